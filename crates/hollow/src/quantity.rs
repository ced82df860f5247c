//! Amounts and durations as people write them into objects, read into plain numbers.

use std::time::Duration;

/// Reads a Kubernetes quantity in thousandths of its unit, rounded up; absurdly large ones are cut off.
pub(crate) fn milli(text: &str) -> Option<i64> {
    let end = text.find(|char: char| !(char.is_ascii_digit() || ".+-".contains(char))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let value: f64 = number.parse().ok()?;
    // A double is exact up to nine petabytes, beyond which no scheduling decision hangs on a byte. What
    // is a hair above a whole number came there by rounding and must not count as one more.
    let thousandths = value * factor * 1000.0;
    let whole = thousandths.round();
    let rounded = if (thousandths - whole).abs() < 1e-6 { whole } else { thousandths.ceil() };
    #[allow(clippy::cast_possible_truncation)] // Casts from a double saturate, which is what is wanted.
    Some(rounded as i64)
}

/// Reads a duration such as `1m30s`, `1.5s` or `200ms`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|char: char| !(char.is_ascii_digit() || char == '.'))?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail.find(|char: char| char.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("0.1", Some(100)),
            ("1.5", Some(1500)),
            ("1u", Some(1)),
            ("2k", Some(2_000_000)),
            ("1Ki", Some(1_024_000)),
            ("256Gi", Some(274_877_906_944_000)),
            ("1e3", Some(1_000_000)),
            ("100E", Some(i64::MAX)),
            ("x", None),
            ("", None),
            ("5 apples", None),
        ] {
            assert_eq!(milli(text), wanted, "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, wanted) in [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("200ms", Some(200)),
            ("1.5s", Some(1500)),
            ("2h", Some(7_200_000)),
            ("0s", Some(0)),
            ("30", None),
            ("-1s", None),
            ("s", None),
            ("", None),
        ] {
            assert_eq!(duration(text), wanted.map(Duration::from_millis), "{text}");
        }
    }
}
