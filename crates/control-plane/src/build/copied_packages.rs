//! Programs that answer for the original what its controllers do: the original's own packages, with a clock that is set
//! and without their informers.

use std::fs;
use std::path::{Path, PathBuf};

use super::BinaryCache;
use super::templates::{run, write_sources};
use crate::error::{During, Result};
use crate::sources::{CRON_JOBS, HORIZONTAL_POD_AUTOSCALER, sources_key};

/// A package of the original's controllers, and the files of it that are copied next to ours.
struct Copied {
    package: &'static str,
    files: &'static [&'static str],
}

const AUTOSCALER: Copied = Copied {
    package: "podautoscaler",
    files: &["horizontal.go", "hpa_selector_store.go", "rate_limiters.go", "replica_calculator.go"],
};

const CRON_JOB: Copied =
    Copied { package: "cronjob", files: &["cronjob_controllerv2.go", "injection.go", "utils.go"] };

impl BinaryCache {
    /// Finds the program about autoscalers, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_horizontal_pod_autoscaler(&self) -> Result<PathBuf> {
        self.provide_copying("horizontal-pod-autoscaler", &HORIZONTAL_POD_AUTOSCALER, &AUTOSCALER)
    }

    /// Finds the program about CronJobs, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_cron_jobs(&self) -> Result<PathBuf> {
        self.provide_copying("cron-jobs", &CRON_JOBS, &CRON_JOB)
    }

    fn provide_copying(&self, program: &str, sources: &[(&str, &str)], copied: &Copied) -> Result<PathBuf> {
        self.provide_answering(program, &sources_key(sources), |module| {
            write_sources(module, sources)?;
            self.copy_package(program, module, copied)
        })
    }

    /// Copies the original's package from the module cache, and lets it read the clock that the program sets.
    fn copy_package(&self, program: &str, module: &Path, copied: &Copied) -> Result<()> {
        let mut command = self.go(module);
        let package = format!("k8s.io/kubernetes/pkg/controller/{}", copied.package);
        command.args(["list", "-f", "{{.Dir}}", &package]);
        let original = PathBuf::from(String::from_utf8_lossy(&run(program, command)?.stdout).trim());
        for name in copied.files {
            let text = fs::read_to_string(original.join(name)).during(|| format!("reading {name}"))?;
            let text = text
                .replace("metav1.Now()", "metav1.NewTime(judgeNow())")
                .replace("time.Now()", "judgeNow()");
            fs::write(module.join(copied.package).join(name), text).during(|| format!("writing {name}"))?;
        }
        Ok(())
    }
}
