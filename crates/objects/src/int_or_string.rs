//! Numbers that may also be percentages or names.

use serde::{Deserialize, Serialize};

use crate::InternedStr;

/// A number or a string: a percentage or a port name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A string.
    String(InternedStr),
}

/// The rounding of a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the next larger integer.
    Up,
    /// To the next smaller integer.
    Down,
}

impl IntOrString {
    /// The number, or the percentage of `total`. `None` for a string that is no percentage.
    #[must_use]
    pub fn scaled(&self, total: i32, rounding: Rounding) -> Option<i32> {
        let percent = match self {
            Self::Int(number) => return Some(*number),
            Self::String(text) => text.strip_suffix('%')?.parse::<i64>().ok()?,
        };
        let hundredths = i128::from(percent) * i128::from(total);
        let whole = match rounding {
            Rounding::Down => hundredths.div_euclid(100),
            Rounding::Up => -(-hundredths).div_euclid(100),
        };
        Some(i32::try_from(whole).unwrap_or(if whole < 0 { i32::MIN } else { i32::MAX }))
    }
}

impl From<i32> for IntOrString {
    fn from(number: i32) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked_and_numbers_stay() {
        let of = |text: &str, total, rounding| {
            serde_json::from_str::<IntOrString>(text).unwrap().scaled(total, rounding)
        };
        for (text, total, up, down) in [
            ("3", 10, Some(3), Some(3)),
            ("\"39%\"", 10, Some(4), Some(3)),
            ("\"25%\"", 4, Some(1), Some(1)),
            ("\"0%\"", 4, Some(0), Some(0)),
            ("\"1%\"", 0, Some(0), Some(0)),
            ("\"200%\"", 7, Some(14), Some(14)),
            ("\"100%\"", i32::MAX, Some(i32::MAX), Some(i32::MAX)),
            ("\"3000000000%\"", 5, Some(150_000_000), Some(150_000_000)),
            ("\"9223372036854775807%\"", 5, Some(i32::MAX), Some(i32::MAX)),
            ("\"http\"", 4, None, None),
            ("\"1.5%\"", 4, None, None),
            ("\"5\"", 4, None, None),
        ] {
            assert_eq!(of(text, total, Rounding::Up), up, "{text} of {total} up");
            assert_eq!(of(text, total, Rounding::Down), down, "{text} of {total} down");
        }
    }
}
