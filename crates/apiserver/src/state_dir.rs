//! Persistence: a snapshot and a log of the changes since, with one JSON value per line.
//!
//! Writes are not synced: the changes of the last moments before a machine crash may be lost. A truncated line is
//! detected and skipped.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kernel::JournalEntry;
use crate::service::{ApiServer, Builder};
use crate::{entropy, private_files};

const SNAPSHOT: &str = "state.jsonl";
const SNAPSHOT_NEW: &str = "state.jsonl.new";
const CHANGES: &str = "changes.jsonl";
const LOCK: &str = "lock";
/// The names of the files in a directory that is used by [`StateDir`] and [`crate::http::Pki`].
pub const FILES: [&str; 6] = [SNAPSHOT, SNAPSHOT_NEW, CHANGES, LOCK, "ca.crt", "ca.key"];
/// A new snapshot is written after this many changes.
const CHANGES_MAX: usize = 50_000;

/// Why the state cannot be persisted.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The directory or a file in it cannot be used; choose another.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another process uses the directory; stop it or choose another directory.
    #[error("{path} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// The directory with the state of one server.
#[derive(Debug)]
pub struct StateDir {
    dir: PathBuf,
    changes: BufWriter<File>,
    count: usize,
    /// Held while the directory is in use.
    _lock: File,
}

/// What [`StateDir::open`] has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Entries that were read.
    pub entries: usize,
    /// Lines that did not parse, and entries of kinds that are no longer served.
    pub skipped: usize,
}

impl StateDir {
    /// Opens the directory and builds the server from its state, or a new server.
    ///
    /// A seed of the builder is not used: it would give the same UIDs after every restart, and the garbage collector
    /// identifies owners by UID. Only the owner can read the files, because Secrets are in them.
    pub fn open(dir: &Path, builder: Builder) -> Result<(ApiServer, StateDir, LoadSummary), StateDirError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| StateDirError::File { path, source }
        };
        private_files::create_dir(dir, &FILES).map_err(at(dir))?;
        let lock = private_files::open(&dir.join(LOCK)).map_err(at(&dir.join(LOCK)))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateDirError::InUse { path: dir.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(at(&dir.join(LOCK))(source)),
        }
        let (entries, mut summary) = read(dir).map_err(at(dir))?;
        let builder = builder.journal(true).entropy(entropy::operating_system());
        let (server, lost) = if entries.is_empty() { (builder.build(), 0) } else { builder.restore(entries) };
        summary.skipped += lost;
        let changes = private_files::create(&dir.join(SNAPSHOT_NEW)).map_err(at(&dir.join(SNAPSHOT_NEW)))?;
        let mut state_dir =
            StateDir { dir: dir.to_owned(), changes: BufWriter::new(changes), count: 0, _lock: lock };
        state_dir.snapshot(&server).map_err(at(dir))?;
        Ok((server, state_dir, summary))
    }

    /// Appends the changes since the last call; returns their number.
    pub fn save(&mut self, server: &ApiServer) -> io::Result<usize> {
        let entries = server.take_journal();
        for entry in &entries {
            writeln!(self.changes, "{}", entry.to_line())?;
        }
        self.changes.flush()?;
        self.count += entries.len();
        if self.count > CHANGES_MAX {
            self.snapshot(server)?;
        }
        Ok(entries.len())
    }

    /// Saves every `every` until `ending` becomes true, and once more then. Returns on the first error.
    pub async fn run(
        mut self,
        server: ApiServer,
        every: Duration,
        mut ending: watch::Receiver<bool>,
    ) -> io::Result<()> {
        loop {
            let ended = tokio::select! {
                biased;
                _ = ending.wait_for(|ended| *ended) => true,
                () = tokio::time::sleep(every) => false,
            };
            self.save(&server)?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Writes a snapshot of the full state and starts a new log of changes.
    ///
    /// Changes have their revision, so a log older than its snapshot, after a crash between the two steps, is
    /// harmless.
    fn snapshot(&mut self, server: &ApiServer) -> io::Result<()> {
        let (new, current) = (self.dir.join(SNAPSHOT_NEW), self.dir.join(SNAPSHOT));
        let entries = server.dump();
        let mut file = BufWriter::new(private_files::create(&new)?);
        writeln!(file, "{}", json!({"format": 1, "revision": server.resource_version()}))?;
        for entry in &entries {
            writeln!(file, "{}", entry.to_line())?;
        }
        file.flush()?;
        drop(file);
        fs::rename(new, current)?;
        self.changes = BufWriter::new(private_files::create(&self.dir.join(CHANGES))?);
        self.count = 0;
        Ok(())
    }
}

/// The entries of the snapshot and the changes after it.
fn read(dir: &Path) -> io::Result<(Vec<JournalEntry>, LoadSummary)> {
    let (mut entries, mut summary) = (Vec::new(), LoadSummary::default());
    let mut revision = 0;
    for name in [SNAPSHOT, CHANGES] {
        let file = match File::open(dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            // A truncated line may end within a UTF-8 sequence; it is not an entry either way.
            let line = String::from_utf8(line?).unwrap_or_default();
            if name == SNAPSHOT && entries.is_empty() && line.starts_with("{\"format\"") {
                let head: Value = serde_json::from_str(&line).unwrap_or_default();
                revision = head["revision"].as_u64().unwrap_or(0);
                continue;
            }
            match JournalEntry::from_line(&line) {
                Some(entry) if name == SNAPSHOT || entry.revision() > revision => entries.push(entry),
                Some(_) => {}
                None => summary.skipped += 1,
            }
        }
    }
    summary.entries = entries.len();
    Ok((entries, summary))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn config_map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
    }

    #[test]
    fn state_survives_a_restart_and_a_truncated_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut state_dir, summary) = StateDir::open(dir.path(), ApiServer::builder()).unwrap();
        assert_eq!(summary, LoadSummary::default());
        server.seed(config_map("a")).unwrap();
        server.seed(config_map("b")).unwrap();
        assert!(state_dir.save(&server).unwrap() >= 2);
        server.remove("configmaps", "default", "a");
        assert_eq!(state_dir.save(&server).unwrap(), 1);
        let (revision, current) =
            (server.resource_version(), server.object("configmaps", "default", "b").unwrap());
        assert!(matches!(StateDir::open(dir.path(), ApiServer::builder()), Err(StateDirError::InUse { .. })));
        drop(state_dir);
        let mut changes = fs::OpenOptions::new().append(true).open(dir.path().join(CHANGES)).unwrap();
        changes.write_all(b"{\"revision\":99,\"object\":{\"apiVer").unwrap();
        let (server, _state_dir, summary) = StateDir::open(dir.path(), ApiServer::builder()).unwrap();
        assert_eq!(summary.skipped, 1);
        assert_eq!(server.resource_version(), revision);
        assert_eq!(server.object("configmaps", "default", "b").unwrap(), current);
        assert!(server.object("configmaps", "default", "a").is_none());
    }

    #[test]
    fn custom_resources_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut state_dir, _) = StateDir::open(dir.path(), ApiServer::builder()).unwrap();
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        server.seed(definition).unwrap();
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
        server.seed(widget).unwrap();
        state_dir.save(&server).unwrap();
        drop(state_dir);
        // First from the log of changes, then from the snapshot that opening writes.
        for _ in 0..2 {
            let (server, _state_dir, summary) = StateDir::open(dir.path(), ApiServer::builder()).unwrap();
            assert_eq!(summary.skipped, 0);
            assert!(server.object("widgets", "default", "w").is_some());
        }
    }

    #[test]
    fn objects_created_after_a_restart_have_fresh_uids() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = 0;
        for start in 0..3 {
            let builder = ApiServer::builder().bootstrap(true);
            // A caller's seed must not apply either: it would repeat at every start.
            let builder = if start == 2 { builder.seed(7) } else { builder };
            let (server, mut state_dir, _) = StateDir::open(dir.path(), builder).unwrap();
            for _ in 0..20 {
                names += 1;
                server.seed(config_map(&format!("c{names}"))).unwrap();
            }
            let mut uids: Vec<String> = server
                .snapshot()
                .iter()
                .map(|object| object["metadata"]["uid"].as_str().unwrap().to_owned())
                .collect();
            let objects = uids.len();
            assert!(objects > 100, "{objects}");
            uids.sort_unstable();
            uids.dedup();
            assert_eq!(uids.len(), objects, "two objects have the same uid after start {start}");
            state_dir.save(&server).unwrap();
        }
    }

    #[test]
    fn only_the_owner_can_read_the_state() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("new");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let check = |dir_mode: u32| {
            let (server, mut state_dir, _) = StateDir::open(&dir, ApiServer::builder()).unwrap();
            server.seed(config_map("a")).unwrap();
            state_dir.save(&server).unwrap();
            assert_eq!(mode(&dir), dir_mode);
            for name in [SNAPSHOT, CHANGES, LOCK] {
                assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
            }
        };
        check(0o700);
        // As an earlier version has left them.
        let widen = || {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
            for name in [SNAPSHOT, CHANGES, LOCK] {
                fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o644)).unwrap();
            }
        };
        widen();
        check(0o700);
        // A directory that holds something else too is shared by the user's choice; only our files are restricted.
        fs::create_dir(dir.join("other")).unwrap();
        widen();
        check(0o755);
    }

    #[test]
    fn unwritable_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        private_files::write(&file, "").unwrap();
        assert!(matches!(StateDir::open(&file, ApiServer::builder()), Err(StateDirError::File { .. })));
    }
}
