//! Numbers and booleans, parsed and formatted as Go's `strconv` does.

use super::quote;

/// Parses a boolean.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(parse_error("ParseBool", text, INVALID)),
    }
}

/// Parses a signed integer of this many bits. `0x`, `0o`, `0b` and a leading `0` set the base; `_` may separate digits.
pub(crate) fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let invalid = || parse_error("ParseInt", text, INVALID);
    let out_of_range = || parse_error("ParseInt", text, OUT_OF_RANGE);
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits, prefixed) = split_base(unsigned);
    if !underscores_separate_digits(digits, prefixed) {
        return Err(invalid());
    }
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Err(invalid());
    }
    let magnitude = i128::from_str_radix(&digits, base).map_err(|_| out_of_range())?;
    let value = if negative { -magnitude } else { magnitude };
    let limit = 1_i128 << (bits - 1);
    if value < -limit || value >= limit {
        return Err(out_of_range());
    }
    i64::try_from(value).map_err(|_| out_of_range())
}

/// Parses an unsigned decimal integer of at most 31 bits: a log level.
pub(crate) fn parse_uint31(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(parse_error("ParseUint", text, INVALID));
    }
    match text.parse::<u64>() {
        Ok(value) if value < 1 << 31 => Ok(value as u32),
        _ => Err(parse_error("ParseUint", text, OUT_OF_RANGE)),
    }
}

/// Parses a 32-bit float. Hexadecimal floats, which Go accepts, are errors.
pub(crate) fn parse_float32(text: &str) -> Result<f32, String> {
    let value: f32 = float_text(text)?.parse().map_err(|_| parse_error("ParseFloat", text, INVALID))?;
    if value.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err(parse_error("ParseFloat", text, OUT_OF_RANGE));
    }
    Ok(value)
}

/// Parses a 64-bit float. Hexadecimal floats, which Go accepts, are errors.
pub(crate) fn parse_float64(text: &str) -> Result<f64, String> {
    let value: f64 = float_text(text)?.parse().map_err(|_| parse_error("ParseFloat", text, INVALID))?;
    if value.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err(parse_error("ParseFloat", text, OUT_OF_RANGE));
    }
    Ok(value)
}

/// Formats a float as Go's `strconv.FormatFloat` does with format `g` and precision -1, from its shortest representation
/// without an exponent: an exponent is used below 1e-4 and from 1e6 on.
pub(crate) fn format_float(plain: &str) -> String {
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain), |rest| ("-", rest));
    if digits == "NaN" {
        return "NaN".to_owned();
    }
    if digits == "inf" {
        return if sign.is_empty() { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return format!("{sign}0");
    }
    let exponent = whole.len() as i64 - (all.len() - significant.len()) as i64 - 1;
    if (-4..6).contains(&exponent) {
        return plain.to_owned();
    }
    let significant = significant.trim_end_matches('0');
    let (first, rest) = significant.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{direction}{:02}", exponent.abs())
}

const INVALID: &str = "invalid syntax";
const OUT_OF_RANGE: &str = "value out of range";

fn parse_error(function: &str, text: &str, what: &str) -> String {
    format!("strconv.{function}: parsing {}: {what}", quote(text))
}

fn split_base(text: &str) -> (u32, &str, bool) {
    let bytes = text.as_bytes();
    if bytes.len() >= 3 && bytes[0] == b'0' {
        match bytes[1].to_ascii_lowercase() {
            b'x' => return (16, &text[2..], true),
            b'o' => return (8, &text[2..], true),
            b'b' => return (2, &text[2..], true),
            _ => {}
        }
    }
    // The leading zero of an octal number is a digit, so an underscore may follow it.
    if bytes.len() >= 2 && bytes[0] == b'0' { (8, &text[1..], true) } else { (10, text, false) }
}

fn underscores_separate_digits(digits: &str, mut after_digit: bool) -> bool {
    let mut after_underscore = false;
    for character in digits.chars() {
        if character == '_' && !after_digit {
            return false;
        }
        after_underscore = character == '_';
        after_digit = character.is_ascii_hexdigit();
    }
    !after_underscore
}

/// The text without underscores where Go allows them; what Rust parses and Go does not is an error.
fn float_text(text: &str) -> Result<String, String> {
    let invalid = || parse_error("ParseFloat", text, INVALID);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let signed_nan = unsigned.len() < text.len() && unsigned.eq_ignore_ascii_case("nan");
    if signed_nan || !underscores_separate_digits(unsigned, false) {
        return Err(invalid());
    }
    Ok(text.chars().filter(|c| *c != '_').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_accept_bases_and_underscores_within_bounds() {
        let read = [
            ("0", 0),
            ("-5", -5),
            ("+7", 7),
            ("0x1F", 31),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("0_7", 7),
            ("0x_f", 15),
            ("2147483647", i64::from(i32::MAX)),
            ("-2147483648", i64::from(i32::MIN)),
        ];
        for (text, value) in read {
            assert_eq!(parse_int(text, 32), Ok(value), "{text}");
        }
        for text in ["", "-", "abc", "_1", "1_", "1__0", "08", "0x", "1.5", " 1", "0b2", "1e3"] {
            let message = format!("strconv.ParseInt: parsing {}: invalid syntax", quote(text));
            assert_eq!(parse_int(text, 32), Err(message), "{text}");
        }
        for text in ["2147483648", "-2147483649", "99999999999999999999999999999999999999999999"] {
            let message = format!("strconv.ParseInt: parsing \"{text}\": value out of range");
            assert_eq!(parse_int(text, 32), Err(message), "{text}");
        }
        assert_eq!(parse_int("9223372036854775807", 64), Ok(i64::MAX));
    }

    #[test]
    fn floats_are_parsed_and_formatted_as_in_go() {
        for (text, shown) in [
            ("20", "20"),
            ("2000", "2000"),
            ("1e6", "1e+06"),
            ("1234567", "1.234567e+06"),
            ("0.1", "0.1"),
            ("1e-7", "1e-07"),
            ("1.5e-5", "1.5e-05"),
            ("0.0001", "0.0001"),
            ("1_0.5", "10.5"),
            ("-0.55", "-0.55"),
            ("0", "0"),
            ("NaN", "NaN"),
            ("-inf", "-Inf"),
        ] {
            assert_eq!(format_float(&parse_float32(text).unwrap().to_string()), shown, "{text}");
        }
        for text in ["", ".", "abc", "1e", "+nan", "0x1p3", "1__0"] {
            assert!(parse_float32(text).is_err(), "{text}");
        }
        assert!(parse_float32("1e39").unwrap_err().ends_with("value out of range"));
        assert!(parse_float64("1e39").is_ok());
    }
}
