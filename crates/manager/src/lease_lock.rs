//! `--lease-lock-file`: the kernel's lock on a local file proves that the previous process on this machine has ended.
//!
//! A container that is killed restarts on the same machine at once, but its Lease names the dead process for another 15 s.
//! Here each process locks a file and appends its identity to it. The kernel releases the lock when the last thread of a
//! process is gone, so the process that gets the lock may take the Lease of exactly the identities that it finds in the file.
//!
//! What is in the file counts only if it was written
//! - in the same boot of the same machine: boot ids are random, so neither a reboot nor a disk that moved to another machine
//!   passes for the same one;
//! - into this very file, by device and inode: the lock of a copy proves nothing about the processes in the original;
//! - for the same Lease.
//!
//! The file must be on a local file system of which it is known that locks work; on others, such as NFS, a lock may be lost
//! while its process lives. A file that is damaged or does not count only costs time: the Lease expires as usual.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use keleustes_objects::Key;
use keleustes_runtime::leader::ProcessLock;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The random id of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A change of the format needs a new number; a file of another format does not count.
const FORMAT: u64 = 1;
/// Only the latest identities can still hold a Lease.
const IDENTITIES_MAX: usize = 16;
/// What this program writes is far smaller.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// File systems of one machine whose locks end with their process, by the number that `statfs` reports.
const LOCAL_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0xef53, "ext2, ext3 or ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0xca45_1a4e, "bcachefs"),
];

/// A file whose lock ends with this process.
pub(crate) struct LeaseLockFile {
    path: PathBuf,
    lease: Key,
    boot_id: String,
    state: Mutex<State>,
}

struct State {
    /// Open as long as this process runs.
    file: File,
    /// Once the lock is taken: the identities of ended processes.
    ended: Option<Vec<String>>,
}

impl LeaseLockFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// If it cannot be opened, is no regular file, or is not on a file system whose locks prove anything.
    pub(crate) fn open(path: &Path, lease: Key) -> anyhow::Result<Self> {
        Self::open_in_boot(path, lease, Path::new(BOOT_ID))
    }

    fn open_in_boot(path: &Path, lease: Key, boot_id: &Path) -> anyhow::Result<Self> {
        let opened = || -> anyhow::Result<(File, String)> {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(path)?;
            ensure!(file.metadata()?.is_file(), "not a regular file");
            check_file_system(rustix::fs::fstatfs(&file)?.f_type)?;
            let boot_id =
                std::fs::read_to_string(boot_id).with_context(|| format!("reading {}", boot_id.display()))?;
            ensure!(!boot_id.trim().is_empty(), "{BOOT_ID} is empty");
            Ok((file, boot_id.trim().to_owned()))
        };
        let (file, boot_id) = opened().with_context(|| format!("--lease-lock-file {}", path.display()))?;
        Ok(Self { path: path.to_owned(), lease, boot_id, state: Mutex::new(State { file, ended: None }) })
    }

    /// What the file says about itself: a content with another description does not count.
    fn description(&self, file: &File) -> std::io::Result<Value> {
        let metadata = file.metadata()?;
        Ok(json!({
            "format": FORMAT,
            "bootId": self.boot_id,
            "device": metadata.dev(),
            "inode": metadata.ino(),
            "lease": self.lease.to_string(),
        }))
    }

    /// The identities in the locked file, if they count.
    fn read_identities(&self, file: &mut File) -> std::io::Result<Vec<String>> {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        let Ok(mut content) = serde_json::from_slice::<Value>(&text) else { return Ok(Vec::new()) };
        let Some(fields) = content.as_object_mut() else { return Ok(Vec::new()) };
        let identities = fields.remove("identities").and_then(|value| serde_json::from_value(value).ok());
        if content != self.description(file)? {
            tracing::info!(file = %self.path.display(), "lease lock file of another boot, file or lease: not used");
            return Ok(Vec::new());
        }
        Ok(identities.unwrap_or_default())
    }

    /// In place: another file under the same name would have another lock.
    fn write_identities(&self, file: &mut File, identities: &[String]) -> std::io::Result<()> {
        let mut content = self.description(file)?;
        content["identities"] = json!(identities);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(format!("{content}\n").as_bytes())
    }

    fn take_lock(&self, state: &mut State, identity: &str) -> std::io::Result<Option<Vec<String>>> {
        match state.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let ended = self.read_identities(&mut state.file)?;
        let mut identities = ended.clone();
        identities.push(identity.to_owned());
        let surplus = identities.len().saturating_sub(IDENTITIES_MAX);
        self.write_identities(&mut state.file, &identities[surplus..])?;
        Ok(Some(ended))
    }
}

impl ProcessLock for LeaseLockFile {
    fn take(&self, identity: &str) -> Result<Option<Vec<String>>, String> {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.ended = self
                .take_lock(&mut state, identity)
                .map_err(|error| format!("lease lock file {}: {error}", self.path.display()))?;
        }
        Ok(state.ended.clone())
    }
}

/// Whether [`LeaseLockFile::open`] can open or create the file, which this does not create.
///
/// # Errors
/// Why it cannot.
pub(crate) fn check_path(path: &Path) -> anyhow::Result<()> {
    if path.try_exists()? {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        ensure!(file.metadata()?.is_file(), "not a regular file");
        return check_file_system(rustix::fs::fstatfs(&file)?.f_type);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let check_folder = || {
        ensure!(folder.metadata()?.is_dir(), "not a folder");
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
        check_file_system(rustix::fs::statfs(folder)?.f_type)
    };
    check_folder().with_context(|| folder.display().to_string())
}

fn check_file_system(number: i64) -> anyhow::Result<()> {
    if LOCAL_FILE_SYSTEMS.iter().any(|(local, _)| *local == number) {
        return Ok(());
    }
    let names: Vec<_> = LOCAL_FILE_SYSTEMS.iter().map(|(_, name)| *name).collect();
    bail!(
        "is on a file system (type {number:#x}) whose locks may be shared or lost; use {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Key {
        Key::namespaced("kube-system", "kube-controller-manager")
    }

    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { folder: tempfile::tempdir().unwrap() };
            machine.boot("one");
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn boot(&self, id: &str) {
            std::fs::write(self.path("boot_id"), format!("{id}\n")).unwrap();
        }

        fn process_with(&self, name: &str, lease: Key) -> LeaseLockFile {
            LeaseLockFile::open_in_boot(&self.path(name), lease, &self.path("boot_id")).unwrap()
        }

        /// A process of the lease in question, which uses the file `lock`.
        fn process(&self) -> LeaseLockFile {
            self.process_with("lock", lease())
        }
    }

    fn ended(identities: &[&str]) -> Result<Option<Vec<String>>, String> {
        Ok(Some(identities.iter().map(|&identity| identity.to_owned()).collect()))
    }

    #[test]
    fn lock_is_granted_after_its_process_ended_and_names_it() {
        let machine = Machine::new();
        let first = machine.process();
        assert_eq!(first.take("a"), ended(&[]));
        assert_eq!(first.take("a"), ended(&[]), "asked again");
        let second = machine.process();
        assert_eq!(second.take("b"), Ok(None), "the first process lives");
        drop(first);
        assert_eq!(second.take("b"), ended(&["a"]));
        drop(second);
        // One that ended before it held the Lease leaves the identity of the one before it.
        assert_eq!(machine.process().take("c"), ended(&["a", "b"]));
    }

    #[test]
    fn process_without_the_lock_leaves_no_identity() {
        let machine = Machine::new();
        let first = machine.process();
        first.take("a").unwrap();
        machine.process().take("b").unwrap();
        drop(first);
        assert_eq!(machine.process().take("c"), ended(&["a"]));
    }

    #[test]
    fn identities_of_another_boot_lease_or_file_do_not_count() {
        let machine = Machine::new();
        machine.process().take("a").unwrap();
        machine.boot("two");
        assert_eq!(machine.process().take("b"), ended(&[]), "rebooted, or another machine");
        assert_eq!(machine.process().take("c"), ended(&["b"]));
        let other = machine.process_with("lock", Key::namespaced("kube-system", "other"));
        assert_eq!(other.take("d"), ended(&[]), "another lease");
        drop(other);
        let living = machine.process();
        living.take("e").unwrap();
        std::fs::copy(machine.path("lock"), machine.path("copy")).unwrap();
        assert_eq!(machine.process_with("copy", lease()).take("f"), ended(&[]), "e lives");
    }

    #[test]
    fn damaged_file_costs_time_only() {
        let machine = Machine::new();
        for text in ["", "{", "[]", "null", "{\"identities\":[\"a\"]}", "\0\0\0"] {
            std::fs::write(machine.path("lock"), text).unwrap();
            assert_eq!(machine.process().take("b"), ended(&[]), "{text}");
            assert_eq!(machine.process().take("c"), ended(&["b"]), "{text}");
        }
        std::fs::write(machine.path("lock"), "x".repeat(1 << 20)).unwrap();
        assert_eq!(machine.process().take("b"), ended(&[]));
        assert!(std::fs::metadata(machine.path("lock")).unwrap().len() < 1_000);
    }

    #[test]
    fn file_does_not_grow_with_restarts() {
        let machine = Machine::new();
        for number in 0..100 {
            machine.process().take(&format!("process-{number}")).unwrap();
        }
        let Ok(Some(ended)) = machine.process().take("last") else { panic!("the lock is free") };
        assert_eq!(ended.len(), IDENTITIES_MAX);
        assert_eq!(ended.last().map(String::as_str), Some("process-99"));
    }

    #[test]
    fn unusable_files_are_named() {
        let machine = Machine::new();
        let error = |path: &Path| {
            let opened = LeaseLockFile::open_in_boot(path, lease(), &machine.path("boot_id"));
            format!("{:#}", opened.err().expect("it cannot be used"))
        };
        let missing = error(&machine.path("missing/lock"));
        assert!(missing.starts_with("--lease-lock-file ") && missing.contains("No such file"), "{missing}");
        assert!(error(machine.folder.path()).contains("Is a directory"));
        assert!(error(Path::new("/dev/null")).contains("not a regular file"));
        let on_proc = error(Path::new("/proc/self/comm"));
        assert!(on_proc.contains("whose locks may be shared or lost; use ext2"), "{on_proc}");
        // NFS, CIFS, SMB2, FUSE, 9p, Ceph, GFS2, OCFS2.
        for number in [
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x00c3_6400,
            0x0116_1970,
            0x7461_636f,
        ] {
            check_file_system(number).unwrap_err();
        }
    }

    #[test]
    fn only_its_owner_can_read_the_file() {
        let machine = Machine::new();
        machine.process();
        assert_eq!(std::fs::metadata(machine.path("lock")).unwrap().mode() & 0o777, 0o600);
    }
}
