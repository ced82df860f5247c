//! Quantities such as `100m` or `1Gi`: canonical form and comparison.

use std::fmt;

/// Resolution; smaller quantities are rounded up.
const NANO: i128 = 1_000_000_000;
/// Maximum, as in kube-apiserver.
const UNITS_MAX: i128 = i64::MAX as i128;

/// The format of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Parses a quantity; `None` if the text is invalid.
    pub(crate) fn parse(text: &str) -> Option<Quantity> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, suffix) = rest.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (multiplier, divisor, format) = scale(suffix)?;
        // More than 18 fraction digits are beyond the resolution.
        let fraction = &fraction[..fraction.len().min(18)];
        let mantissa: i128 = format!("0{}{fraction}", &whole[..whole.len().min(24)]).parse().ok()?;
        let shift = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
        let scaled = match mantissa.checked_mul(multiplier).and_then(|v| v.checked_mul(NANO)) {
            Some(product) => product / shift + i128::from(product % shift != 0),
            // A value too large for exact arithmetic exceeds the maximum anyway.
            None => (mantissa / shift).saturating_mul(multiplier).saturating_mul(NANO),
        };
        let bounded = scaled.min(UNITS_MAX * NANO);
        Some(Quantity { nano: if negative { -bounded } else { bounded }, format })
    }
}

impl Quantity {
    /// Whether it is below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is above zero.
    pub(crate) fn is_positive(self) -> bool {
        self.nano > 0
    }

    /// In whole units, rounded away from zero.
    pub(crate) fn rounded_up(self) -> i128 {
        let over = self.nano % NANO;
        self.nano / NANO + over.signum()
    }

    /// Whether it is greater than `other`.
    pub(crate) fn exceeds(self, other: Quantity) -> bool {
        self.nano > other.nano
    }
}

/// Multiplier, divisor and format of a suffix.
fn scale(suffix: &str) -> Option<(i128, i128, Format)> {
    let decimal = |exponent: u32| 10_i128.pow(exponent);
    Some(match suffix {
        "" => (1, 1, Format::Decimal),
        "n" => (1, decimal(9), Format::Decimal),
        "u" => (1, decimal(6), Format::Decimal),
        "m" => (1, decimal(3), Format::Decimal),
        "k" => (decimal(3), 1, Format::Decimal),
        "M" => (decimal(6), 1, Format::Decimal),
        "G" => (decimal(9), 1, Format::Decimal),
        "T" => (decimal(12), 1, Format::Decimal),
        "P" => (decimal(15), 1, Format::Decimal),
        "E" => (decimal(18), 1, Format::Decimal),
        "Ki" => (1 << 10, 1, Format::Binary),
        "Mi" => (1 << 20, 1, Format::Binary),
        "Gi" => (1 << 30, 1, Format::Binary),
        "Ti" => (1 << 40, 1, Format::Binary),
        "Pi" => (1 << 50, 1, Format::Binary),
        "Ei" => (1 << 60, 1, Format::Binary),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = exponent.unsigned_abs().min(18);
            match exponent {
                0.. => (decimal(size), 1, Format::Exponent),
                _ => (1, decimal(size), Format::Exponent),
            }
        }
    })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nano == other.nano
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nano % NANO == 0;
        let small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::Binary && whole && !small {
            let (mut value, mut power) = (self.nano / NANO, 0);
            while value % 1024 == 0 && power < 6 {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut value, mut exponent) = (self.nano, -9_i32);
        while value != 0 && value % 1000 == 0 && exponent < 18 {
            value /= 1000;
            exponent += 3;
        }
        match (value, exponent, self.format) {
            (0, _, _) => f.write_str("0"),
            (_, 0, _) => write!(f, "{value}"),
            (_, _, Format::Exponent) => write!(f, "{value}e{exponent}"),
            (_, -9, _) => write!(f, "{value}n"),
            (_, -6, _) => write!(f, "{value}u"),
            (_, -3, _) => write!(f, "{value}m"),
            _ => {
                // Exponents are multiples of three from 3 to 18 here.
                let at = usize::try_from(exponent / 3).unwrap_or(0);
                write!(f, "{value}{}", ["", "k", "M", "G", "T", "P", "E"][at.min(6)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_a_canonical_form() {
        for (text, canonical) in [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("2000m", "2"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("100000", "100k"),
            ("1500", "1500"),
            ("0.5Gi", "512Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("100", "100"),
            ("-5m", "-5m"),
            ("0.1n", "1n"),
            ("1E", "1E"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
        assert_eq!(Quantity::parse("1Gi"), Quantity::parse("1024Mi"));
    }

    #[test]
    fn invalid_quantities_are_rejected_and_nothing_overflows() {
        for text in ["", "-", ".", "x", "1x", "1 Gi", "1.2.3", "1ee3", "e3"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
        for text in
            ["99999999999999999999999999999999999999", "9999Ei", "1e99", "1e-99", "0.00000000000000000000001"]
        {
            let _ = Quantity::parse(text).unwrap().to_string();
        }
    }
}
