//! The formats of quantities and their canonical text, which is also what the API server stores.
//!
//! Parity: pkg/api/resource/quantity.go of apimachinery.

use std::fmt;

use serde::ser::{Serialize, Serializer};

use super::{NANO, Quantity};

/// How a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantityFormat {
    /// With a decimal suffix: `100m`, `5`, `2k`.
    #[default]
    DecimalSi,
    /// With a binary suffix: `512Mi`, `1Gi`.
    BinarySi,
    /// With a decimal exponent: `12e6`.
    DecimalExponent,
}

impl QuantityFormat {
    /// The format that a valid suffix implies.
    pub(super) fn of_suffix(suffix: &str) -> Self {
        match suffix {
            "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" => Self::DecimalSi,
            _ if suffix.ends_with('i') => Self::BinarySi,
            _ => Self::DecimalExponent,
        }
    }
}

/// The largest amount with a binary suffix.
const BINARY_MAX: i128 = i64::MAX as i128 * NANO;

impl Quantity {
    /// A parsed quantity. Less than one has no binary suffix to be written with, and there is a largest one.
    pub(super) fn formatted(nano: i128, format: QuantityFormat) -> Self {
        match format {
            QuantityFormat::BinarySi if nano.abs() < NANO => Self { nano, format: QuantityFormat::DecimalSi },
            QuantityFormat::BinarySi => Self { nano: nano.clamp(-BINARY_MAX, BINARY_MAX), format },
            _ => Self { nano, format },
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nano = self.nano;
        let is_whole = nano % NANO == 0;
        let is_small = nano.abs() < 1024 * NANO;
        if self.format == QuantityFormat::BinarySi && is_whole && !is_small {
            let (mut value, mut power) = (nano / NANO, 0);
            while value % 1024 == 0 && power < 6 {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut value, mut exponent) = (nano, -9_i32);
        while value != 0 && value % 1000 == 0 && exponent < 18 {
            value /= 1000;
            exponent += 3;
        }
        match (value, exponent, self.format) {
            (0, _, _) => f.write_str("0"),
            (_, 0, _) => write!(f, "{value}"),
            (_, _, QuantityFormat::DecimalExponent) => write!(f, "{value}e{exponent}"),
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

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

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
            ("0.0001Ki", "102400u"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("5e0", "5"),
            ("100", "100"),
            ("-5m", "-5m"),
            ("-1Gi", "-1Gi"),
            ("0.1n", "1n"),
            ("1E", "1E"),
            ("100E", "100E"),
            ("9999Ei", "9223372036854775807"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(parsed(text).to_string(), canonical, "{text}");
        }
        assert_eq!(parsed("1Gi"), parsed("1073741824"));
        assert_eq!(serde_json::to_string(&parsed("1024Mi")).unwrap(), "\"1Gi\"");
    }

    #[test]
    fn invalid_quantities_are_rejected_and_nothing_overflows() {
        for text in ["", "-", ".", "x", "1x", "1 Gi", "1.2.3", "1ee3", "e3"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
        let long = "9".repeat(99);
        for text in [&*long, "9999Ei", "1e99", "1e-99", "0.00000000000000000000001"] {
            let large = parsed(text);
            let _ = (large.to_string(), large.plus(large), large.minus(parsed("-1e99")), large.to_whole());
        }
    }

    /// Proves RQ-112.
    #[test]
    fn a_sum_has_the_format_of_the_first_amount_that_is_not_zero() {
        let sum = |texts: &[&str]| {
            texts.iter().fold(Quantity::default(), |sum, text| sum.plus(parsed(text))).to_string()
        };
        assert_eq!(sum(&["512Mi", "512Mi"]), "1Gi");
        assert_eq!(sum(&["1Gi", "1073741824"]), "2Gi");
        assert_eq!(sum(&["1073741824", "1Gi"]), "2147483648");
        assert_eq!(sum(&["0", "1Gi"]), "1Gi");
        assert_eq!(sum(&["500m", "1500m"]), "2");
        assert_eq!(sum(&[]), "0");
        assert_eq!(parsed("2Gi").minus(parsed("1Gi")).to_string(), "1Gi");
        assert_eq!(parsed("1500m").to_whole().to_string(), "2");
        assert_eq!(parsed("0.5Ki").to_whole().to_string(), "512");
    }
}
