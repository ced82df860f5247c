//! The program that answers for the original what its autoscaler does: the original's own package, with a clock that is
//! set and without its informers.

use std::fs;
use std::path::{Path, PathBuf};

use super::BinaryCache;
use super::templates::{run, write_sources};
use crate::error::{During, Result};
use crate::sources::{HORIZONTAL_POD_AUTOSCALER, horizontal_pod_autoscaler_key};

const NAME: &str = "horizontal-pod-autoscaler";

/// The files of the original's package that are copied.
const COPIED: [&str; 4] =
    ["horizontal.go", "hpa_selector_store.go", "rate_limiters.go", "replica_calculator.go"];

impl BinaryCache {
    /// Finds the program, or builds it if there is none of its present sources.
    pub fn provide_horizontal_pod_autoscaler(&self) -> Result<PathBuf> {
        self.provide_answering(NAME, &horizontal_pod_autoscaler_key(), |module| {
            write_sources(module, &HORIZONTAL_POD_AUTOSCALER)?;
            self.copy_package(module)
        })
    }

    /// Copies the original's package from the module cache, and lets it read the clock that the program sets.
    fn copy_package(&self, module: &Path) -> Result<()> {
        let mut command = self.go(module);
        command.args(["list", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/controller/podautoscaler"]);
        let original = PathBuf::from(String::from_utf8_lossy(&run(NAME, command)?.stdout).trim());
        for name in COPIED {
            let text = fs::read_to_string(original.join(name)).during(|| format!("reading {name}"))?;
            let text = text
                .replace("metav1.Now()", "metav1.NewTime(judgeNow())")
                .replace("time.Now()", "judgeNow()");
            fs::write(module.join("podautoscaler").join(name), text).during(|| format!("writing {name}"))?;
        }
        Ok(())
    }
}
