//! Durations in Go's format, with units; they may be negative.

use std::fmt;
use std::time::Duration;

use super::quote;

/// Go's `time.Duration`: nanoseconds, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

impl GoDuration {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// A duration in seconds.
    #[must_use]
    pub const fn seconds(seconds: i64) -> Self {
        Self(seconds * SECOND)
    }

    /// A duration in minutes.
    #[must_use]
    pub const fn minutes(minutes: i64) -> Self {
        Self(minutes * MINUTE)
    }

    /// A duration in hours.
    #[must_use]
    pub const fn hours(hours: i64) -> Self {
        Self(hours * HOUR)
    }

    /// The nanoseconds.
    #[must_use]
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// The duration for timers; zero if it is negative.
    #[must_use]
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Parses a duration such as `300ms`, `-1.5h` or `2h45m`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("time: invalid duration {}", quote(text));
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (amount, after) = parse_part(text, rest)?;
            total += amount;
            if total > i128::from(i64::MAX) + 1 {
                return Err(invalid());
            }
            rest = after;
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(Self).map_err(|_| invalid())
    }
}

/// Parses one number with its unit from the front of `rest`; `text` is the whole input, for the error.
fn parse_part<'a>(text: &str, rest: &'a str) -> Result<(i128, &'a str), String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (whole, after_whole) = split_digits(rest);
    let (fraction, after_number) = match after_whole.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", after_whole),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = after_number.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after_number.len());
    let (unit, after) = after_number.split_at(end);
    if unit.is_empty() {
        return Err(format!("time: missing unit in duration {}", quote(text)));
    }
    let scale = match unit {
        "ns" => 1,
        // U+00B5 (micro sign) and U+03BC (Greek mu).
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return Err(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))),
    };
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    if whole > i128::from(i64::MAX) + 1 {
        return Err(invalid());
    }
    Ok((whole * i128::from(scale) + fraction_of(fraction, scale), after))
}

/// The value of the fractional digits; those below a nanosecond are dropped.
fn fraction_of(digits: &str, scale: i64) -> i128 {
    let mut value = 0_i128;
    let mut divisor = 1_i128;
    for digit in digits.bytes().take(18) {
        value = value * 10 + i128::from(digit - b'0');
        divisor *= 10;
    }
    value * i128::from(scale) / divisor
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return out.write_str("0s");
        }
        if self.0 < 0 {
            out.write_str("-")?;
        }
        let amount = self.0.unsigned_abs();
        let second = SECOND.unsigned_abs();
        if amount < second {
            let (unit, name) = match amount {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (MICROSECOND.unsigned_abs(), "\u{b5}s"),
                _ => (MILLISECOND.unsigned_abs(), "ms"),
            };
            return write!(out, "{}{name}", decimal(amount, unit));
        }
        let (minutes, rest) = (amount / (60 * second), amount % (60 * second));
        let (hours, minutes) = (minutes / 60, minutes % 60);
        if hours > 0 {
            write!(out, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(out, "{minutes}m")?;
        }
        write!(out, "{}s", decimal(rest, second))
    }
}

fn decimal(amount: u64, unit: u64) -> String {
    let (whole, rest) = (amount / unit, amount % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{rest:0width$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves OPT-3.
    #[test]
    fn durations_require_units_and_are_formatted_with_them() {
        for (text, shown) in [
            ("0", "0s"),
            ("-0", "0s"),
            ("300ms", "300ms"),
            ("1h30m", "1h30m0s"),
            ("1.5h", "1h30m0s"),
            ("-1.5s", "-1.5s"),
            ("90s", "1m30s"),
            ("8760h", "8760h0m0s"),
            ("1500us", "1.5ms"),
            ("5\u{3bc}s", "5\u{b5}s"),
            ("1ns", "1ns"),
            ("+.5s", "500ms"),
            ("1m0.25s", "1m0.25s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(GoDuration::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for (text, message) in [
            ("5", "time: missing unit in duration \"5\""),
            ("1h5", "time: missing unit in duration \"1h5\""),
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("ten", "time: invalid duration \"ten\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 s", "time: unknown unit \" s\" in duration \"1 s\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            (
                "99999999999999999999999999999999999999999h",
                "time: invalid duration \"99999999999999999999999999999999999999999h\"",
            ),
        ] {
            assert_eq!(GoDuration::parse(text), Err(message.to_owned()), "{text}");
        }
        assert_eq!(GoDuration::seconds(-3).to_std(), Duration::ZERO);
    }
}
