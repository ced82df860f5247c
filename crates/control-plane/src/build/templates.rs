//! Programs that answer for the original: what becomes of pod templates, which certificates it
//! signs, and what it says about the types of expressions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{BinaryCache, LEFTOVER, locked, remove_leftovers};
use crate::error::{During, Error, Result};
use crate::sources::{CEL, CERTIFICATES, KUBERNETES, TEMPLATES, sources_key};

impl BinaryCache {
    /// Finds the program about pod templates, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_templates(&self) -> Result<PathBuf> {
        self.provide_answering("templates", &sources_key(&TEMPLATES), |module| {
            write_sources(&module.join("templates"), &TEMPLATES)
        })
    }

    /// Finds the program about certificates, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_certificates(&self) -> Result<PathBuf> {
        self.provide_answering("certificates", &sources_key(&CERTIFICATES), |module| {
            write_sources(&module.join("certificates"), &CERTIFICATES)?;
            self.copy_client_usages(module)
        })
    }

    /// Copies the original's check of client certificates, which it does not export, from the module cache.
    fn copy_client_usages(&self, module: &Path) -> Result<()> {
        let mut command = self.go(module);
        command.args(["list", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/controller/certificates/signer"]);
        let original = PathBuf::from(String::from_utf8_lossy(&run("certificates", command)?.stdout).trim());
        let file = original.join("signer.go");
        let text = fs::read_to_string(&file).during(|| format!("reading {}", file.display()))?;
        let begin = text.find("func validAPIServerClientUsages(").unwrap_or_default();
        let end = text[begin..].find("\n}\n").map_or(begin, |length| begin + length + 3);
        let header = "package main\n\nimport (\n\"fmt\"\n\ncapi \"k8s.io/api/certificates/v1\"\n)\n\n";
        let copied = format!("{header}{}", &text[begin..end]);
        fs::write(module.join("certificates/usages.go"), copied).during(|| "writing usages.go")
    }

    /// Finds the program about the type checking of policies, or builds it if there is none of its present sources.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn provide_cel(&self) -> Result<PathBuf> {
        self.provide_answering("cel", &sources_key(&CEL), |module| write_sources(&module.join("cel"), &CEL))
    }

    /// Finds the program with this key, or builds it from what `prepare` writes into the module of the control plane.
    pub(super) fn provide_answering(
        &self,
        program: &str,
        key: &str,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.built_dir().join(format!("{program}-{key}"));
        if path.is_file() {
            return Ok(path);
        }
        let shelf = self.cache.join("control-plane");
        let built = self.built_dir();
        fs::create_dir_all(&built).during(|| format!("creating {}", built.display()))?;
        let _lock = locked(&shelf.join("lock"))?;
        remove_leftovers(&shelf);
        let work = tempfile::Builder::new()
            .prefix(LEFTOVER)
            .tempdir_in(&shelf)
            .during(|| format!("creating a directory in {}", shelf.display()))?;
        let module = KUBERNETES.write_to(work.path())?;
        self.check_go(&module, program.into())?;
        prepare(&module)?;
        eprintln!("building {program} into {}", built.display());
        let fresh = work.path().join(format!("{program}.fresh"));
        let mut command = self.go(&module);
        command.args(["build", "-ldflags", "-s -w", "-o"]).arg(&fresh).arg(format!("./{program}"));
        run(program, command)?;
        fs::rename(fresh, &path).during(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// Writes source files below a folder.
pub(super) fn write_sources(folder: &Path, sources: &[(&str, &str)]) -> Result<()> {
    for (name, source) in sources {
        let file = folder.join(name);
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).during(|| format!("creating {}", parent.display()))?;
        fs::write(&file, source).during(|| format!("writing {name}"))?;
    }
    Ok(())
}

/// Runs Go for a program.
pub(super) fn run(program: &str, mut command: Command) -> Result<Output> {
    let output = command.output().during(|| "starting Go")?;
    if output.status.success() {
        return Ok(output);
    }
    let tail = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Build { program: program.into(), tail })
}
