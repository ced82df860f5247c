//! Temporary folders of playgrounds: locked while their process lives, and removed by the next playground if it was killed.

use std::fs::{File, Permissions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

const PREFIX: &str = "keleustes-playground-";
const LOCK: &str = "lock";
/// A folder without a lock is being created, or is that of a version that had no locks.
const UNLOCKED_FOR: Duration = Duration::from_secs(24 * 3600);

/// A folder that is removed when the process ends.
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    /// Locked until the process ends, however it ends.
    _lock: File,
}

impl Scratch {
    pub(super) fn create(parent: &Path) -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        // Under this name it is always locked: a playground that starts at the same moment takes an unlocked one for
        // abandoned.
        let new = folder.path().join("lock.new");
        let lock = keleustes_apiserver::private_files::create(&new)?;
        lock.try_lock().context("locking a new folder")?;
        std::fs::rename(&new, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of this user's playgrounds that were killed. Returns their number.
pub(super) fn remove_abandoned(parent: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(parent) else { return 0 };
    let folders = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    folders
        .filter(|entry| is_abandoned(&entry.path()) && std::fs::remove_dir_all(entry.path()).is_ok())
        .count()
}

fn is_abandoned(folder: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    // Not through a symbolic link: another user may have made it.
    let Ok(metadata) = folder.symlink_metadata() else { return false };
    if !metadata.is_dir() || metadata.uid() != own {
        return false;
    }
    match File::open(folder.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNLOCKED_FOR)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Playgrounds that start at the same moment leave each other's folders alone.
    #[test]
    fn new_folder_never_looks_abandoned() {
        let parent = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| {
                let mut removed = 0;
                while !is_over.load(Ordering::Relaxed) {
                    removed += remove_abandoned(parent.path());
                }
                removed
            });
            let created: Result<Vec<_>, _> =
                (0..300).map(|_| Scratch::create(parent.path()).map(drop)).collect();
            is_over.store(true, Ordering::Relaxed);
            created.unwrap();
            assert_eq!(removed.join().unwrap(), 0);
        });
    }

    #[test]
    fn folders_of_killed_playgrounds_are_removed_and_those_of_running_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let running = Scratch::create(parent.path()).unwrap();
        let killed = parent.path().join("keleustes-playground-killed");
        let starting = parent.path().join("keleustes-playground-starting");
        let other = parent.path().join("keleustes-control-plane-x");
        for folder in [&killed, &starting, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(killed.join(LOCK), "").unwrap();
        std::fs::write(killed.join("sa.key"), "secret").unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join("keleustes-playground-link")).unwrap();
        assert_eq!(remove_abandoned(parent.path()), 1);
        assert!(!killed.exists() && starting.exists() && other.exists() && running.path().exists());
        let path = running.path().to_owned();
        drop(running);
        assert!(!path.exists());
    }
}
