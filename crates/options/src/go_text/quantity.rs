//! Kubernetes quantities, for buffer sizes.

use std::fmt;

/// A quantity with a decimal or binary suffix, such as `512`, `1k` or `1.5Ki`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// The value in units of 1e-9, the smallest suffix.
    nano: i128,
    form: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Decimal,
    Binary,
    Exponent,
}

const UNIT: i128 = 1_000_000_000;
const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";
/// The original saturates at this value.
const LARGEST: i128 = i64::MAX as i128 * UNIT;

impl Quantity {
    /// The value, rounded up.
    #[must_use]
    pub fn value(self) -> i64 {
        let rounded = if self.nano > 0 { (self.nano + UNIT - 1) / UNIT } else { self.nano / UNIT };
        i64::try_from(rounded).unwrap_or(i64::MAX)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(FORMAT.to_owned());
        }
        let (scale, form) = scale_of(suffix)?;
        let digits: String = whole.chars().chain(fraction.chars()).take(38).collect();
        let mantissa: i128 = digits.parse().map_err(|_| FORMAT.to_owned())?;
        let mut nano = mantissa.saturating_mul(scale);
        for _ in 0..fraction.len().min(38usize.saturating_sub(whole.len())) {
            // Digits beyond 1e-9 round away from zero.
            nano = nano / 10 + i128::from(nano % 10 != 0);
        }
        let nano = nano.min(LARGEST);
        Ok(Self { nano: if text.starts_with('-') { -nano } else { nano }, form })
    }
}

/// The factor of a suffix, in units of 1e-9.
fn scale_of(suffix: &str) -> Result<(i128, Form), String> {
    let binary = |power: u32| Ok((UNIT << (10 * power), Form::Binary));
    let decimal = |power: u32| Ok((10_i128.pow(power), Form::Decimal));
    match suffix {
        "n" => decimal(0),
        "u" => decimal(3),
        "m" => decimal(6),
        "" => decimal(9),
        "k" => decimal(12),
        "M" => decimal(15),
        "G" => decimal(18),
        "T" => decimal(21),
        "P" => decimal(24),
        "E" => decimal(27),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(|| suffix_error(suffix))?;
            let exponent: i32 = exponent.parse().map_err(|_| suffix_error(suffix))?;
            let power = u32::try_from(exponent + 9).map_err(|_| SUFFIX.to_owned())?;
            Ok((10_i128.checked_pow(power).ok_or_else(|| SUFFIX.to_owned())?, Form::Exponent))
        }
    }
}

fn suffix_error(suffix: &str) -> String {
    let letters = suffix.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['+', '-']);
    let known = letters.chars().all(|c| "eEinumkKMGTP".contains(c));
    if known { SUFFIX.to_owned() } else { FORMAT.to_owned() }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return out.write_str("0");
        }
        let whole = self.nano % UNIT == 0;
        if self.form == Form::Binary && whole && self.nano.abs() >= 1024 * UNIT {
            let mut amount = self.nano / UNIT;
            let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter();
            let mut suffix = suffixes.next();
            while amount % 1024 == 0 {
                amount /= 1024;
                suffix = suffixes.next();
            }
            return write!(out, "{amount}{}", suffix.unwrap_or(&""));
        }
        let mut amount = self.nano;
        let mut power = -9_i32;
        while amount % 1000 == 0 {
            amount /= 1000;
            power += 3;
        }
        if self.form == Form::Exponent {
            return if power == 0 { write!(out, "{amount}") } else { write!(out, "{amount}e{power}") };
        }
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let place = usize::try_from((power + 9) / 3).unwrap_or_default();
        write!(out, "{amount}{}", suffix.get(place).copied().unwrap_or("E"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_formatted_canonically() {
        for (text, value, shown) in [
            ("0", 0, "0"),
            ("512", 512, "512"),
            ("1k", 1000, "1k"),
            ("1000", 1000, "1k"),
            ("1024", 1024, "1024"),
            ("2Ki", 2048, "2Ki"),
            ("1.5Ki", 1536, "1536"),
            ("1024Ki", 1_048_576, "1Mi"),
            ("1.5", 2, "1500m"),
            ("-1", -1, "-1"),
            ("3M", 3_000_000, "3M"),
            ("1e3", 1000, "1e3"),
        ] {
            let read = Quantity::parse(text).unwrap();
            assert_eq!((read.value(), read.to_string().as_str()), (value, shown), "{text}");
        }
        for text in ["", "abc", "1.2.3", "+", "1 k", "1x"] {
            assert_eq!(Quantity::parse(text), Err(FORMAT.to_owned()), "{text}");
        }
        assert_eq!(Quantity::parse("1ki"), Err(SUFFIX.to_owned()));
    }
}
