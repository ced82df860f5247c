//! Resource quantities, parsed exactly and written canonically.

mod format;
mod parsed;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::Deserialize;
use serde::de::{Deserializer, Error};

pub use format::QuantityFormat;
pub(crate) use parsed::ParsedQuantity;

/// A quantity in units of 10⁻⁹, the finest precision of the API, and the format in which it is written.
///
/// Only the amount is compared: `1Gi` equals `1024Mi`, and `1` equals `1000m`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nano: i128,
    format: QuantityFormat,
}

const NANO: i128 = 1_000_000_000;

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl Quantity {
    /// Parses a quantity. Digits beyond 10⁻⁹ round away from zero, as in apimachinery. `None` if the text is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        // The value is digits * multiplier * 10^exponent nano units.
        let (multiplier, exponent) = scale(suffix)?;
        let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        // Only digits are left, so the number can only be too large; then it is saturated.
        let digits = format!("{whole}{fraction}").parse::<i128>().unwrap_or(i128::MAX);
        let mut nano = digits.saturating_mul(multiplier);
        if nano != 0 {
            let power = 10_i128.checked_pow(exponent.unsigned_abs());
            nano = match (exponent >= 0, power) {
                (true, Some(power)) => nano.saturating_mul(power),
                (true, None) => i128::MAX,
                (false, Some(power)) => nano.div_euclid(power) + i128::from(nano % power != 0),
                (false, None) => 1,
            };
        }
        Some(Self::formatted(if negative { -nano } else { nano }, QuantityFormat::of_suffix(suffix)))
    }

    /// The sum, saturated. A zero takes the format of what is added to it.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano), format }
    }

    /// The difference, saturated. A zero takes the format of what is subtracted from it.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_sub(other.nano), format }
    }

    /// A quantity of so many milli units.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self { nano: i128::from(milli) * (NANO / 1000), format: QuantityFormat::DecimalSi }
    }

    /// A whole number.
    #[must_use]
    pub fn from_whole(number: i64) -> Self {
        Self { nano: i128::from(number) * NANO, format: QuantityFormat::DecimalSi }
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is above zero.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.nano > 0
    }

    /// The quantity rounded away from zero to whole units, in the same format.
    #[must_use]
    pub fn to_whole(self) -> Self {
        let units = self.nano / NANO + (self.nano % NANO).signum();
        Self { nano: units.saturating_mul(NANO), ..self }
    }

    /// The value as a float, with the rounding errors of `AsApproximateFloat64`. `None` if the text is invalid.
    #[must_use]
    pub fn approximate_float(text: &str) -> Option<f64> {
        let parsed = ParsedQuantity::parse(text)?;
        #[expect(clippy::cast_precision_loss, reason = "the original rounds as well")]
        match parsed.value_and_scale() {
            Some((value, 0)) => Some(value as f64),
            Some((value, scale)) => Some(value as f64 * 10_f64.powi(scale)),
            None => Self::parse(text).map(|exact| exact.nano as f64 / 1e9),
        }
    }

    /// The value in milli units, rounded away from zero and saturated, like `MilliValue`.
    #[must_use]
    pub fn milli(self) -> i64 {
        self.in_units_of(NANO / 1000)
    }

    /// The value in units, rounded away from zero and saturated, like `Value`.
    #[must_use]
    pub fn whole(self) -> i64 {
        self.in_units_of(NANO)
    }

    fn in_units_of(self, nano: i128) -> i64 {
        let units = self.nano / nano + (self.nano % nano).signum();
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The scale of a suffix: a factor and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Decodes strings and plain numbers.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl serde::de::Visitor<'_> for Read {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).ok_or_else(|| E::custom(format!("not a quantity: {text:?}")))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_whole(number))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_exactly() {
        for (text, milli) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("0.1", Some(100)),
            (".5", Some(500)),
            ("1.", Some(1000)),
            ("1u", Some(1)),
            ("-1u", Some(-1)),
            ("-1500m", Some(-1500)),
            ("2k", Some(2_000_000)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1e3", Some(1_000_000)),
            ("5E-1", Some(500)),
            ("100E", Some(i64::MAX)),
            ("1e999999999", Some(i64::MAX)),
            ("1e-999999999", Some(1)),
            ("0e999999999", Some(0)),
            ("x", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("5 apples", None),
            ("1ki", None),
        ] {
            assert_eq!(Quantity::parse(text).map(Quantity::milli), milli, "{text}");
        }
        assert_eq!(Quantity::parse("1500m").unwrap().whole(), 2);
        assert_eq!(Quantity::parse("0.5"), Quantity::parse("500m"));
        assert_eq!(serde_json::from_str::<Quantity>("4").unwrap().milli(), 4000);
    }
}
