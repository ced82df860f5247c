//! Cron schedules with the grammar and the arithmetic of robfig/cron v3, which the original uses.
//!
//! Other cron parsers differ where it matters: in the meaning of `*` in day fields, in daylight-saving changes, and
//! in what they accept. A CronJob must not run at other times, or stop running, when the manager is replaced.

mod calendar;
mod duration;
mod fields;
mod parse;

pub use self::calendar::{rfc1123z, rfc3339};
pub use self::fields::FieldSchedule;
pub(super) use self::parse::parse_in;
pub use self::parse::{parse, quote};

/// When a CronJob runs.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Five fields, or a descriptor such as `@daily`.
    Fields(FieldSchedule),
    /// `@every`: a constant period in seconds, at least one.
    Every(i64),
}

impl Schedule {
    /// The first time after this second, in seconds since 1970; `None` if there is none before the end of the fifth
    /// year after it.
    #[must_use]
    pub fn next(&self, unix_seconds: i64) -> Option<i64> {
        match self {
            Self::Fields(fields) => fields.next(unix_seconds),
            Self::Every(period) => Some(unix_seconds.saturating_add(*period)),
        }
    }
}
