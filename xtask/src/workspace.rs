//! The files of the repository as the checks see them: sorted, with paths relative to the root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use anyhow::{Context, Result, ensure};

/// Directories that hold no text of ours.
const SKIPPED_DIRECTORIES: [&str; 2] = ["target", ".git"];

/// Dot-directories that do hold text of ours; all others belong to editors and tools.
const KEPT_DOT_DIRECTORIES: [&str; 3] = [".cargo", ".ci", ".github"];

/// A checkout of the repository.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    files: Vec<String>,
}

impl Workspace {
    /// Opens the checkout this program belongs to.
    pub fn open() -> Result<Self> {
        // Cargo sets the variable when it runs us; the built-in path serves a binary started by hand.
        let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = manifest_dir.parent().context("xtask has no parent directory")?;
        Self::at(root)
    }

    /// Opens the checkout at `root`.
    pub fn at(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect(root, root, &mut files).with_context(|| format!("listing {}", root.display()))?;
        files.sort();
        Ok(Self { root: root.to_owned(), files })
    }

    /// The directory that holds the root manifest.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every file, sorted, as a slash-separated path relative to the root.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// The files below `folder` whose name ends in `.extension`.
    pub fn files_in<'a>(&'a self, folder: &'a str, extension: &'a str) -> impl Iterator<Item = &'a str> {
        self.files().filter(move |file| is_below(file, folder) && extension_of(file) == Some(extension))
    }

    /// The Rust sources of all crates and of this program.
    pub fn rust_files(&self) -> impl Iterator<Item = &str> {
        self.files_in("crates", "rs").chain(self.files_in("xtask", "rs"))
    }

    /// The text of one file.
    pub fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.root.join(file)).with_context(|| format!("reading {file}"))
    }

    /// The size of one file in bytes.
    pub fn size_bytes(&self, file: &str) -> Result<u64> {
        Ok(fs::metadata(self.root.join(file)).with_context(|| format!("reading {file}"))?.len())
    }

    /// Replaces the text of one file.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.root.join(file), text).with_context(|| format!("writing {file}"))
    }

    /// What `cargo ARGS` prints when run at the root.
    pub fn cargo_output(&self, args: &[&str]) -> Result<String> {
        let output = cargo().args(args).current_dir(&self.root).output().context("starting cargo")?;
        ensure!(
            output.status.success(),
            "`cargo {}` failed:\n{}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).context("cargo printed something that is not UTF-8")
    }
}

/// The cargo that started us, or the one on the path.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The extension of a file name, if it has one.
pub fn extension_of(file: &str) -> Option<&str> {
    Path::new(file).extension().and_then(OsStr::to_str)
}

fn is_below(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let foreign = name.starts_with('.') && !KEPT_DOT_DIRECTORIES.contains(&name.as_str());
            if !foreign && !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() && extension_of(&name) != Some("log") {
            let relative = path.strip_prefix(root).expect("the walk started at the root");
            files.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_finds_sources_and_leaves_build_output_alone() {
        let workspace = Workspace::open().unwrap();
        assert!(workspace.files().any(|file| file == "xtask/src/workspace.rs"));
        assert!(workspace.files().any(|file| file == ".cargo/config.toml"));
        assert!(workspace.files().all(|file| !file.starts_with("target/") && !file.starts_with(".git/")));
    }

    #[test]
    fn a_folder_is_matched_by_whole_names() {
        assert!(is_below("crates/plan/src/lib.rs", "crates/plan"));
        assert!(!is_below("crates/planning/src/lib.rs", "crates/plan"));
    }
}
