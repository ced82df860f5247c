//! A temporary directory that is removed even when this program is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{During, Result};

/// The processes that use the directory are killed by the same closing pipe a moment earlier or later, and may still
/// create a file while it is being removed; hence the second look.
const REMOVE_WHEN_ORPHANED: &str = "while read -r _; do :; done\n\
     for pause in 0 1 2; do sleep $pause; rm -rf -- \"$1\"; done";

/// The directory and the shell that removes it should we not live to do so (see [`crate::process`] for the idea).
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: Option<TempDir>,
    undertaker: Child,
}

impl Scratch {
    /// Creates an empty directory whose name starts with `prefix`.
    pub(crate) fn create(prefix: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .during(|| format!("creating a directory in {}", std::env::temp_dir().display()))?;
        let undertaker = Command::new("/bin/sh")
            .arg("-c")
            .arg(REMOVE_WHEN_ORPHANED)
            .arg("undertaker")
            .arg(dir.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .during(|| "starting /bin/sh")?;
        Ok(Self { dir: Some(dir), undertaker })
    }

    pub(crate) fn path(&self) -> &Path {
        // The directory is only taken out while dropping.
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        if removed(dir).is_ok() {
            // On failure the undertaker stays: it tries again when its pipe closes, right after this.
            let _ = self.undertaker.kill();
        }
        drop(self.undertaker.stdin.take());
        let _ = self.undertaker.wait();
    }
}

/// Removes the directory, with a second attempt for files that appear meanwhile.
fn removed(dir: TempDir) -> io::Result<()> {
    let path = dir.path().to_owned();
    dir.close().or_else(|_| {
        std::thread::sleep(Duration::from_millis(100));
        std::fs::remove_dir_all(&path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_directory_goes_when_dropped() {
        let scratch = Scratch::create("scratch-drop-").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "content").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn the_directory_goes_when_our_end_of_the_pipe_closes() {
        let mut scratch = Scratch::create("scratch-orphan-").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "content").unwrap();
        drop(scratch.undertaker.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while path.exists() {
            assert!(Instant::now() < deadline, "{} is still there", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
