//! Files that only their owner can read: the state contains Secrets, and a kubeconfig file contains a private key.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// The bits that give access to the group and to all others.
const OTHERS: u32 = 0o077;
/// The bit of directories such as /tmp, which are shared on purpose.
const STICKY: u32 = 0o1000;

/// Creates an empty file. An existing one is replaced, not truncated: another process may have opened it while it was
/// readable.
pub fn create(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        fs::remove_file(path)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Writes a file; an existing one is replaced.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    create(path)?.write_all(text.as_bytes())
}

/// Opens a file for writing, keeps its content, and creates it if it is missing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    restrict(path, FILE_MODE)?;
    Ok(file)
}

/// Creates a directory, or takes an existing one: restricts its files with the names `own`, and the directory itself
/// unless it holds anything else, which others may have a reason to reach.
pub fn create_dir(dir: &Path, own: &[&str]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
    let mut is_own = true;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let known = entry.file_name().to_str().is_some_and(|name| own.contains(&name));
        if known && entry.file_type()?.is_file() {
            restrict(&entry.path(), FILE_MODE)?;
        } else {
            is_own = false;
        }
    }
    if is_own { restrict(dir, DIR_MODE) } else { Ok(()) }
}

fn restrict(path: &Path, mode: u32) -> io::Result<()> {
    let found = fs::metadata(path)?.permissions().mode();
    if found & OTHERS == 0 || found & STICKY != 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn written_file_is_private_and_hidden_from_a_process_that_opened_it_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        write(&path, "old").unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut opened = File::open(&path).unwrap();
        write(&path, "new").unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "new"));
        let mut seen = String::new();
        opened.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "old");
    }

    #[test]
    fn symbolic_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(write(&link, "new").is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }

    #[test]
    fn existing_directories_are_restricted_unless_they_are_shared() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        create_dir(&dir, &["own"]).unwrap();
        assert_eq!((mode(&dir), mode(&parent.path().join("a"))), (0o700, 0o700));
        for (found, wanted) in [(0o755, 0o700), (0o777, 0o700), (0o1777, 0o1777), (0o500, 0o500)] {
            fs::set_permissions(&dir, Permissions::from_mode(found)).unwrap();
            create_dir(&dir, &["own"]).unwrap();
            assert_eq!(mode(&dir), wanted, "{found:o}");
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        for name in ["own", "other"] {
            write(&dir.join(name), "").unwrap();
            fs::set_permissions(dir.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        create_dir(&dir, &["own"]).unwrap();
        let modes = ["own", "other"].map(|name| mode(&dir.join(name)));
        assert_eq!((mode(&dir), modes), (0o755, [0o600, 0o644]));
    }
}
