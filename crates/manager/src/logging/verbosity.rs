//! Log verbosity: one number for all files (`--v`), others for some (`--vmodule`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keleustes_objects::matches_glob;
use keleustes_options::ModuleLevel;
use tracing::{Level, Metadata};

/// The verbosity. Clones share the number for all files, which can be changed at run time.
#[derive(Clone, Debug)]
pub(crate) struct Verbosity {
    everywhere: Arc<AtomicU32>,
    modules: Vec<ModuleLevel>,
}

/// From this verbosity on, dependencies log too.
const LIBRARIES: u32 = 8;

/// The verbosity of a line: that of its level, unless its target ends with a number such as `::v3`.
pub(super) fn of_line(level: Level, target: &str) -> u32 {
    let number = target.rsplit("::").next().and_then(|last| last.strip_prefix('v'));
    let by_target = number.and_then(|number| number.parse().ok());
    match level {
        Level::ERROR | Level::WARN | Level::INFO => 0,
        Level::DEBUG => by_target.unwrap_or(4),
        Level::TRACE => by_target.unwrap_or(6),
    }
}

impl Verbosity {
    pub(crate) fn new(everywhere: u32, modules: Vec<ModuleLevel>) -> Self {
        Self { everywhere: Arc::new(AtomicU32::new(everywhere)), modules }
    }

    /// Changes the number for all files.
    pub(crate) fn change(&self, everywhere: u32) {
        self.everywhere.store(everywhere, Ordering::Relaxed);
        // Call sites cache whether they are enabled; this makes them ask again.
        tracing::callsite::rebuild_interest_cache();
    }

    pub(super) fn enables(&self, metadata: &Metadata<'_>) -> bool {
        let everywhere = self.everywhere.load(Ordering::Relaxed);
        let ours =
            ["keleustes_", "kube_controller_manager"].iter().any(|ours| metadata.target().starts_with(ours));
        if !ours {
            return *metadata.level() <= Level::WARN || everywhere >= LIBRARIES;
        }
        let file = metadata.file().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let module = file.strip_suffix(".rs").unwrap_or(file);
        let here = self.modules.iter().find(|there| matches_glob(&there.pattern, module));
        of_line(*metadata.level(), metadata.target())
            <= here.map_or(everywhere, |there| there.verbosity.max(everywhere))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_can_state_the_verbosity_of_the_original() {
        for (level, target, wanted) in [
            (Level::DEBUG, "keleustes_serving::connection::v3", 3),
            (Level::TRACE, "keleustes_runtime::events::v5", 5),
            (Level::DEBUG, "keleustes_runtime::loops", 4),
            (Level::TRACE, "keleustes_runtime::loops", 6),
            (Level::DEBUG, "keleustes_objects::verbs", 4),
            (Level::DEBUG, "keleustes_objects::v1beta", 4),
            (Level::INFO, "keleustes_serving::v3", 0),
            (Level::ERROR, "keleustes_serving::v3", 0),
        ] {
            assert_eq!(of_line(level, target), wanted, "{level} {target}");
        }
    }
}
