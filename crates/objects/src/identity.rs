//! The UID of an object and the resourceVersion of a state.

use std::fmt;
use std::num::NonZeroU64;

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use crate::ArcStr;

/// The UID of an object. UUIDs, which API servers assign, take no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(UidForm);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum UidForm {
    Uuid([u8; 16]),
    Other(ArcStr),
}

impl Uid {
    /// Whether the UID is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, UidForm::Other(text) if text.is_empty())
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self::from("")
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| UidForm::Other(ArcStr::from(text)), UidForm::Uuid))
    }
}

/// Parses the canonical spelling only, lower case with hyphens, so that formatting restores the text.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
        return None;
    }
    let nibble = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digits = bytes.iter().copied().enumerate().filter(|(at, _)| ![8, 13, 18, 23].contains(at));
    let mut uuid = [0; 16];
    for slot in &mut uuid {
        *slot = nibble(digits.next()?.1)? << 4 | nibble(digits.next()?.1)?;
    }
    Some(uuid)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidForm::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let hyphen = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
                    write!(f, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
            UidForm::Other(text) => f.write_str(text),
        }
    }
}

/// The resourceVersion of an object or of a list.
///
/// resourceVersions of one resource in one cluster compare as integers. One that is not a positive decimal integer
/// compares with nothing, so nothing waits for it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionForm);

#[derive(Clone, PartialEq, Eq, Hash)]
enum VersionForm {
    Number(NonZeroU64),
    Other(ArcStr),
}

impl ResourceVersion {
    /// Whether the resourceVersion is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, VersionForm::Other(text) if text.is_empty())
    }

    /// Whether both are comparable and this one is older.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (VersionForm::Number(this), VersionForm::Number(other)) => this < other,
            _ => match (self.digits(), other.digits()) {
                // Decimal integers of any length: the longer one is larger.
                (Some(this), Some(other)) => (this.len(), &*this) < (other.len(), &*other),
                _ => false,
            },
        }
    }

    /// The last 15 digits as a gauge value, because a double holds no more exactly.
    #[must_use]
    pub fn gauge(&self) -> f64 {
        let digits = self.digits().unwrap_or_default();
        digits[digits.len().saturating_sub(15)..].parse().unwrap_or(0.0)
    }

    fn digits(&self) -> Option<String> {
        let text = self.to_string();
        let comparable =
            !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        comparable.then_some(text)
    }
}

impl Default for ResourceVersion {
    fn default() -> Self {
        Self::from("")
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if plain { text.parse().ok() } else { None };
        Self(number.map_or_else(|| VersionForm::Other(ArcStr::from(text)), VersionForm::Number))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionForm::Number(number) => write!(f, "{number}"),
            VersionForm::Other(text) => f.write_str(text),
        }
    }
}

macro_rules! string_in_json {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok(Self::from(text.as_deref().unwrap_or_default()))
            }
        }
    };
}

string_in_json!(Uid);
string_in_json!(ResourceVersion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_written_back_unchanged() {
        for text in ["", "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab", "5F0E0A5E-7A52-4D6C-9A6B-0123456789AB", "x"]
        {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(Uid::default().is_empty());
    }

    /// Proves INF-75.
    #[test]
    fn resource_versions_compare_as_integers_of_any_length_or_not_at_all() {
        let older = |a: &str, b: &str| ResourceVersion::from(a).is_older_than(&ResourceVersion::from(b));
        assert!(older("9", "10"));
        assert!(older("99999999999999999998", "99999999999999999999"));
        assert!(older("18446744073709551615", "99999999999999999999"));
        assert!(older("7", "100000000000000000000000"));
        assert!(!older("10", "9"));
        assert!(!older("10", "10"));
        for odd in ["", "0", "007", "abc", "-3", "+5", "1.5"] {
            assert!(!older(odd, "10"), "{odd:?} must not compare");
            assert!(!older("10", odd), "{odd:?} must not compare");
        }
    }

    #[test]
    fn the_gauge_keeps_fifteen_digits() {
        assert_eq!(ResourceVersion::from("42").gauge(), 42.0);
        assert_eq!(ResourceVersion::from("1234567890123456789").gauge(), 567_890_123_456_789.0);
        assert_eq!(ResourceVersion::from("").gauge(), 0.0);
    }
}
