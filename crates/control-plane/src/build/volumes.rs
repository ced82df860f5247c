//! The program that answers for the original which volume a claim gets: the original's own index of volumes.

use std::fs;
use std::path::{Path, PathBuf};

use super::BinaryCache;
use super::templates::{run, write_sources};
use crate::error::{During, Result};
use crate::sources::{VOLUMES, sources_key};

const NAME: &str = "volumes";

impl BinaryCache {
    /// Finds the program, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_volumes(&self) -> Result<PathBuf> {
        self.provide_answering(NAME, &sources_key(&VOLUMES), |module| {
            write_sources(&module.join(NAME), &VOLUMES)?;
            self.copy_index(module)
        })
    }

    /// Copies the original's index from the module cache into the program.
    fn copy_index(&self, module: &Path) -> Result<()> {
        let mut command = self.go(module);
        command.args(["list", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/controller/volume/persistentvolume"]);
        let original = PathBuf::from(String::from_utf8_lossy(&run(NAME, command)?.stdout).trim());
        let index = original.join("index.go");
        let text = fs::read_to_string(&index).during(|| format!("reading {}", index.display()))?;
        let text = text.replace("package persistentvolume", "package main");
        fs::write(module.join(NAME).join("index.go"), text).during(|| "writing index.go")
    }
}
