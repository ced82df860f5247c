//! The program that answers for the original which bootstrap tokens sign and which signatures kubeadm accepts: the original's
//! own check of tokens, with a clock that is set.

use std::fs;
use std::path::{Path, PathBuf};

use super::BinaryCache;
use super::templates::{run, write_sources};
use crate::error::{During, Result};
use crate::sources::{JWS_CHECK, sources_key};

const NAME: &str = "jws-check";

impl BinaryCache {
    /// Finds the program, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_jws_check(&self) -> Result<PathBuf> {
        self.provide_answering(NAME, &sources_key(&JWS_CHECK), |module| {
            write_sources(&module.join(NAME), &JWS_CHECK)?;
            self.copy_token_check(module)
        })
    }

    /// Copies the original's check of tokens from the module cache, and lets it read the clock that the program sets.
    fn copy_token_check(&self, module: &Path) -> Result<()> {
        let mut command = self.go(module);
        command.args(["list", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/controller/bootstrap"]);
        let original = PathBuf::from(String::from_utf8_lossy(&run(NAME, command)?.stdout).trim());
        let check = original.join("util.go");
        let text = fs::read_to_string(&check).during(|| format!("reading {}", check.display()))?;
        let text = text
            .replace("package bootstrap", "package main")
            .replace("time.Now()", "clock")
            .replace("\t\"time\"\n", "");
        fs::write(module.join(NAME).join("util.go"), text).during(|| "writing util.go")
    }
}
