//! Times that users write into Secrets, ConfigMaps and labels, parsed exactly as Go's `time.Parse` parses them.
//!
//! `jiff` is stricter in some places and laxer in others, and a value that only one of two managers can parse would be
//! deleted by one and kept by the other.

use jiff::civil::Date;

/// Parses a time in the layout `time.RFC3339` as nanoseconds since 1970; `None` where `time.Parse` fails.
///
/// Laxer than RFC 3339: the hour may have one digit, the fraction may follow a comma, and the zone offset may be up to
/// 24:60. Stricter: `T` and `Z` are upper case.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i128> {
    let mut rest = text.as_bytes();
    let days = date(&mut rest)?;
    literal(&mut rest, b'T')?;
    let hour = if rest.get(1).is_some_and(u8::is_ascii_digit) {
        digits(&mut rest, 2)?
    } else {
        digits(&mut rest, 1)?
    };
    literal(&mut rest, b':')?;
    let minute = digits(&mut rest, 2)?;
    literal(&mut rest, b':')?;
    let second = digits(&mut rest, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanoseconds = fraction(&mut rest);
    let offset = zone_offset(&mut rest)?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    rest.is_empty().then(|| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
}

/// Parses a date in the layout `2006-01-02` as the days since 1970; `None` where `time.Parse` fails.
#[must_use]
pub fn parse_date(text: &str) -> Option<i64> {
    let mut rest = text.as_bytes();
    let days = date(&mut rest)?;
    rest.is_empty().then_some(days)
}

/// The days since 1970 of an existing date.
fn date(rest: &mut &[u8]) -> Option<i64> {
    let year = digits(rest, 4)?;
    literal(rest, b'-')?;
    let month = digits(rest, 2)?;
    literal(rest, b'-')?;
    let day = digits(rest, 2)?;
    let date =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let since = date.since(Date::constant(1970, 1, 1)).ok()?;
    Some(i64::from(since.get_days()))
}

/// Exactly this many digits as a number.
fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (number, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    number.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

fn literal(rest: &mut &[u8], expected: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[expected])?;
    Some(())
}

/// The nanoseconds of a fraction, if there is one; digits beyond the ninth are dropped.
fn fraction(rest: &mut &[u8]) -> i64 {
    let [b'.' | b',', behind @ ..] = *rest else { return 0 };
    let length = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return 0;
    }
    *rest = &behind[length..];
    let places = behind[..length].iter().chain(std::iter::repeat(&b'0')).take(9);
    places.fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'))
}

/// The zone offset in seconds. The limits are Go's.
fn zone_offset(rest: &mut &[u8]) -> Option<i64> {
    let (&sign, behind) = rest.split_first()?;
    *rest = behind;
    let sign = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = digits(rest, 2)?;
    literal(rest, b':')?;
    let minutes = digits(rest, 2)?;
    (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    /// Proves TOK-37, TOK-40, TOK-35.
    #[test]
    fn times_are_parsed_as_go_parses_them() {
        let at = |text: &str| parse_rfc3339(text).unwrap_or_else(|| panic!("{text} is unparsable"));
        let noon = at("2026-11-15T12:00:00Z");
        assert_eq!(noon, 1_794_744_000 * SECOND);
        assert_eq!(at("2026-11-15T12:00:00.25Z"), noon + SECOND / 4);
        assert_eq!(at("2026-11-15T12:00:00,25Z"), noon + SECOND / 4);
        assert_eq!(at("2026-11-15T12:00:00.1234567899Z"), noon + 123_456_789);
        assert_eq!(at("2026-11-15T14:30:00+02:30"), noon);
        assert_eq!(at("2026-11-15T07:00:00-05:00"), noon);
        assert_eq!(at("2026-11-15T9:00:00Z"), noon - 3 * 3600 * SECOND);
        assert_eq!(at("2026-11-16T13:00:00+24:60"), noon);
        assert_eq!(at("2024-02-29T00:00:00Z"), 1_709_164_800 * SECOND);
        assert_eq!(at("0000-01-01T00:00:00Z"), -62_167_219_200 * SECOND);
        assert_eq!(at("9999-12-31T23:59:59-24:60"), (253_402_300_799 + 25 * 3600) * SECOND);
    }

    /// Proves TOK-37, TOK-38, TOK-39.
    #[test]
    fn what_go_does_not_parse_is_unparsable() {
        for text in [
            "",
            "2026-11-15",
            "2026-11-15T12:00:00",
            "2026-11-15t12:00:00Z",
            "2026-11-15T12:00:00z",
            "2026-11-15 12:00:00Z",
            "2026-11-15T12:00:00Z\n",
            " 2026-11-15T12:00:00Z",
            "2026-11-15T12:00:00Z ",
            "2026-13-15T12:00:00Z",
            "2026-00-15T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-11-00T12:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T12:60:00Z",
            "2026-11-15T12:00:60Z",
            "2026-11-15T12:00:00+25:00",
            "2026-11-15T12:00:00+00:61",
            "2026-11-15T12:00:00+0000",
            "2026-11-15T12:00:00.Z",
            "2026-11-15T12:0:00Z",
            "2026-1-15T12:00:00Z",
            "26-11-15T12:00:00Z",
            "+026-11-15T12:00:00Z",
            "12026-11-15T12:00:00Z",
            "2026-11-15T12:00Z",
            "never",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text:?}");
        }
    }

    /// Proves LSTC-48, LSTC-46.
    #[test]
    fn dates_have_four_two_and_two_digits_and_exist() {
        assert_eq!(parse_date("1970-01-02"), Some(1));
        assert_eq!(parse_date("2024-02-29"), Some(19_782));
        for text in [
            "",
            "2024-1-5",
            "2024-02-30",
            "2023-02-29",
            " 2024-01-05",
            "2024-01-05 ",
            "2022-12-27-1",
            "20240105",
        ] {
            assert_eq!(parse_date(text), None, "{text:?}");
        }
    }
}
