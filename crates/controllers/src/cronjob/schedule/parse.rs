//! The grammar of schedules: five fields, descriptors, and a zone prefix. Parity: `ParseStandard` of robfig/cron v3,
//! with the texts of its errors, which users see in events.

use jiff::tz::TimeZone;

use super::fields::{Bits, STAR};
use super::{FieldSchedule, Schedule, duration};
use crate::cronjob::time_zones::TimeZones;

/// The values of one field.
struct Bounds {
    min: u64,
    max: u64,
    /// Names of values, from `min` on.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS_OF_MONTH: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Bounds =
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Parses a schedule.
///
/// # Errors
/// The text of the error of robfig/cron.
pub fn parse(text: &str, zones: &TimeZones) -> Result<Schedule, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let Some(prefixed) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return without_zone(text, zones.local().clone());
    };
    // The original slices with the index -1 here and recovers from the panic.
    let no_space = || "invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned();
    let (name, rest) = prefixed.split_once(' ').ok_or_else(no_space)?;
    let zone = zones.load(name).map_err(|error| format!("provided bad location {name}: {error}"))?;
    parse_in(rest, zone)
}

/// Parses what follows the prefix with a zone.
///
/// # Errors
/// The text of the error of robfig/cron.
pub(in crate::cronjob) fn parse_in(text: &str, zone: TimeZone) -> Result<Schedule, String> {
    without_zone(text.trim(), zone)
}

fn without_zone(text: &str, zone: TimeZone) -> Result<Schedule, String> {
    if text.starts_with('@') { descriptor(text, zone) } else { five_fields(text, zone) }
}

fn five_fields(text: &str, zone: TimeZone) -> Result<Schedule, String> {
    let fields: Vec<_> = text.split_whitespace().collect();
    let [minute, hour, day_of_month, month, day_of_week] = fields[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    Ok(Schedule::Fields(FieldSchedule {
        minute: field(minute, &MINUTES)?,
        hour: field(hour, &HOURS)?,
        day_of_month: field(day_of_month, &DAYS_OF_MONTH)?,
        month: field(month, &MONTHS)?,
        day_of_week: field(day_of_week, &DAYS_OF_WEEK)?,
        zone,
    }))
}

fn descriptor(text: &str, zone: TimeZone) -> Result<Schedule, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(period) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let nanoseconds = duration::parse(period)
                .map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            return Ok(Schedule::Every((nanoseconds / 1_000_000_000).max(1)));
        }
    };
    five_fields(fields, zone)
}

/// A comma-separated list; empty entries are skipped.
fn field(text: &str, bounds: &Bounds) -> Result<Bits, String> {
    text.split(',')
        .filter(|entry| !entry.is_empty())
        .try_fold(0, |bits, entry| Ok(bits | range(entry, bounds)?))
}

fn range(text: &str, bounds: &Bounds) -> Result<Bits, String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        // Errors of the range come first.
        [range, ..] => {
            ends(range, text, bounds)?;
            return Err(format!("too many slashes: {text}"));
        }
        [] => (text, None),
    };
    let Ends { start, mut end, is_single, mut star } = ends(range, text, bounds)?;
    let step = match step {
        Some(step) => {
            let step = number(step)?;
            if is_single {
                end = bounds.max;
            }
            if step > 1 {
                star = 0;
            }
            step
        }
        None => 1,
    };
    let Bounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > *max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((start..=end).step_by(step).fold(star, |bits, value| bits | 1 << value))
}

/// The ends of a range.
struct Ends {
    start: u64,
    end: u64,
    /// Whether there is no hyphen.
    is_single: bool,
    /// [`STAR`] for `*` and `?`.
    star: Bits,
}

fn ends(range: &str, text: &str, bounds: &Bounds) -> Result<Ends, String> {
    let parts: Vec<_> = range.split('-').collect();
    let is_single = parts.len() == 1;
    if matches!(parts[0], "*" | "?") {
        return Ok(Ends { start: bounds.min, end: bounds.max, is_single, star: STAR });
    }
    let start = number_or_name(parts[0], bounds)?;
    let end = match parts[..] {
        [_] => start,
        [_, end] => number_or_name(end, bounds)?,
        _ => return Err(format!("too many hyphens: {text}")),
    };
    Ok(Ends { start, end, is_single, star: 0 })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + at as u64),
        None => number(text),
    }
}

/// A number as Go's `strconv.Atoi` reads it.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let failed =
        |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quote(text));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

/// Quotes a text as Go's `%q` does.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            '\0'..='\u{1f}' | '\u{7f}' => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ if c.is_control() || (c.is_whitespace() && c != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
