//! Go durations such as `1h30m`, with the errors of Go's parser.

const NANOSECONDS_MAX: u64 = 1 << 63;

/// Parses a duration to nanoseconds. Parity: `time.ParseDuration`.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split_digits(rest);
        let whole = digits.bytes().try_fold(0, push_digit).ok_or_else(invalid)?;
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if digits.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let unit_nanoseconds = nanoseconds_of(unit)
            .ok_or_else(|| format!("time: unknown unit {} in duration {}", quote(unit), quote(text)))?;
        if whole > NANOSECONDS_MAX / unit_nanoseconds {
            return Err(invalid());
        }
        let part = whole * unit_nanoseconds + fraction_of(fraction, unit_nanoseconds);
        total = total.checked_add(part).filter(|sum| *sum <= NANOSECONDS_MAX).ok_or_else(invalid)?;
        rest = after;
    }
    if negative {
        return Ok(0_i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).map_err(|_| invalid())
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn push_digit(number: u64, digit: u8) -> Option<u64> {
    if number > NANOSECONDS_MAX / 10 {
        return None;
    }
    Some(number * 10 + u64::from(digit - b'0')).filter(|number| *number <= NANOSECONDS_MAX)
}

/// The fraction of a unit; digits beyond the range of a number are dropped.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fraction_of(digits: &str, unit_nanoseconds: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        if number > (NANOSECONDS_MAX - 1) / 10 {
            break;
        }
        let longer = number * 10 + u64::from(digit - b'0');
        if longer > NANOSECONDS_MAX {
            break;
        }
        (number, scale) = (longer, scale * 10.0);
    }
    (number as f64 * (unit_nanoseconds as f64 / scale)) as u64
}

fn nanoseconds_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Quotes a text as the errors of Go's package `time` do.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' | '\u{7f}' => quoted.push(c),
            _ => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    quoted.push_str(&format!("\\x{byte:02x}"));
                }
            }
        }
    }
    quoted.push('"');
    quoted
}
