//! Civil dates in a time zone, with the rules of Go's `time.Date` for local times that do not exist or exist twice.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY: i64 = 86_400;

/// The fields of a local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    /// 0 is Sunday.
    pub(super) weekday: i64,
}

/// The offset of a zone from UTC at an instant, in seconds.
pub(super) fn offset_at(zone: &TimeZone, unix_seconds: i64) -> i64 {
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let timestamp = Timestamp::from_second(unix_seconds.clamp(first, last)).unwrap_or(Timestamp::MAX);
    zone.to_offset(timestamp).seconds().into()
}

/// The local time at an instant.
pub(super) fn civil(zone: &TimeZone, unix_seconds: i64) -> Civil {
    from_local(unix_seconds.saturating_add(offset_at(zone, unix_seconds)))
}

/// The instant of a local time. Months and days beyond their range count on into the next year or month.
///
/// The offset is the one that is valid at the local time read as UTC, or the one that is valid at the instant which
/// results from it. In a gap this gives a time before or after the gap, as Go does.
pub(super) fn instant(zone: &TimeZone, year: i64, month: i64, day: i64, seconds_of_day: i64) -> i64 {
    let local = days_since_1970(year, month) * DAY + (day - 1) * DAY + seconds_of_day;
    let first_guess = local - offset_at(zone, local);
    local - offset_at(zone, first_guess)
}

/// Days from 1970-01-01 to the first day of a month; the month may be beyond 12.
fn days_since_1970(year: i64, month: i64) -> i64 {
    let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
    // Years that start in March put the leap day at the end.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn from_local(local: i64) -> Civil {
    let (days, seconds) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    Civil {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month,
        day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
        hour: seconds / 3600,
        minute: seconds % 3600 / 60,
        second: seconds % 60,
        weekday: (days + 4).rem_euclid(7),
    }
}

/// An instant in a zone as RFC 3339, with `Z` for UTC.
#[must_use]
pub fn rfc3339(zone: &TimeZone, unix_seconds: i64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = civil(zone, unix_seconds);
    let offset = offset_at(zone, unix_seconds) / 60;
    let suffix = if offset == 0 {
        "Z".to_owned()
    } else {
        let sign = if offset < 0 { '-' } else { '+' };
        format!("{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{suffix}")
}

/// An instant in UTC in Go's layout `RFC1123Z`.
#[must_use]
pub fn rfc1123z(unix_seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Civil { year, month, day, hour, minute, second, weekday } = from_local(unix_seconds);
    let name = |names: &[&'static str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
    };
    let (weekday, month) = (name(&DAYS, weekday), name(&MONTHS, month - 1));
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}
