//! Whether literals are durations and timestamps for Go.

/// The first second of year 1 and the last of year 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Whether a number of seconds since 1970 is a timestamp.
pub(crate) fn is_timestamp_second(second: i64) -> bool {
    SECONDS.contains(&second)
}

/// Whether Go's `time.ParseDuration` reads the text.
pub(crate) fn is_duration(text: &str) -> bool {
    duration(text).is_some()
}

fn duration(text: &str) -> Option<()> {
    const LIMIT: u128 = 1 << 63;
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(());
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|one: char| one == '.' || one.is_ascii_digit()).unwrap_or(after.len());
        let unit: u128 = match &after[..end] {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = &after[end..];
        let whole = if whole.is_empty() { 0 } else { whole.parse().ok().filter(|whole| *whole <= LIMIT)? };
        let digits = &fraction[..fraction.len().min(18)];
        let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or_default());
        let part = if digits.is_empty() { 0 } else { digits.parse::<u128>().ok()? * unit / scale };
        total += whole.checked_mul(unit)? + part;
        if total > LIMIT {
            return None;
        }
    }
    (negative || total < LIMIT).then_some(())
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Whether Go reads the text as RFC 3339, in the years that CEL has.
pub(crate) fn is_timestamp(text: &str) -> bool {
    timestamp(text).is_some_and(|second| SECONDS.contains(&second))
}

fn timestamp(text: &str) -> Option<i64> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    literal(&mut rest, '-')?;
    let month = number(&mut rest, 2).filter(|month| (1..=12).contains(month))?;
    literal(&mut rest, '-')?;
    let day = number(&mut rest, 2)?;
    literal(&mut rest, 'T')?;
    // Go takes a single digit for the hour.
    let hour = number(&mut rest, 2).or_else(|| number(&mut rest, 1)).filter(|hour| *hour < 24)?;
    literal(&mut rest, ':')?;
    let minute = number(&mut rest, 2).filter(|minute| *minute < 60)?;
    literal(&mut rest, ':')?;
    let second = number(&mut rest, 2).filter(|second| *second < 60)?;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let (digits, after) = split_digits(fraction);
        if digits.is_empty() {
            return None;
        }
        rest = after;
    }
    let offset = zone(rest)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

fn zone(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut rest = text.strip_prefix(['+', '-'])?;
    let hours = number(&mut rest, 2).filter(|hours| *hours <= 24)?;
    literal(&mut rest, ':')?;
    let minutes = number(&mut rest, 2).filter(|minutes| *minutes <= 60)?;
    rest.is_empty().then_some(sign * (hours * 3600 + minutes * 60))
}

fn number(rest: &mut &str, digits: usize) -> Option<i64> {
    let text = rest.get(..digits).filter(|text| text.bytes().all(|one| one.is_ascii_digit()))?;
    *rest = &rest[digits..];
    text.parse().ok()
}

fn literal(rest: &mut &str, expected: char) -> Option<()> {
    *rest = rest.strip_prefix(expected)?;
    Some(())
}

/// In the proleptic Gregorian calendar, with years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for text in ["0", "-0", "1h2m3.5s", ".5s", "1.s", "+5ms", "1\u{b5}s", "2562047h47m16.854775807s"] {
            assert!(is_duration(text), "{text}");
        }
        for text in ["", "-", "1", "1d", "s", ".s", "1 s", "2562048h", "1h1", "9223372036854775808ns"] {
            assert!(!is_duration(text), "{text}");
        }
    }

    #[test]
    fn timestamps_are_those_of_go() {
        assert_eq!(timestamp("1970-01-02T00:00:01Z"), Some(86_401));
        assert_eq!(timestamp("2000-03-01T00:00:00+01:00"), Some(951_868_800 - 3600));
        for text in ["2021-02-28T1:00:00Z", "2024-02-29T23:59:59.999,5"] {
            assert_eq!(is_timestamp(text), text.ends_with('Z'), "{text}");
        }
        for text in
            ["2021-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "2021-01-01", "2021-01-01t00:00:00Z", "x", ""]
        {
            assert!(!is_timestamp(text), "{text}");
        }
        assert!(is_timestamp("9999-12-31T23:59:59Z") && !is_timestamp("9999-12-31T23:59:59-01:00"));
    }
}
