//! The name of one behaviour: a sheet's prefix and a number, such as `INF-12`.

use std::fmt;
use std::str::FromStr;

/// A behaviour id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The letters that name the sheet.
    pub prefix: String,
    /// The number within the sheet.
    pub number: u32,
}

/// The text is not a prefix of capital letters, a dash and a number.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnId;

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (prefix, number) = text.split_once('-').ok_or(NotAnId)?;
        let prefix_is_plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_uppercase());
        let number_is_plain = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
        if !prefix_is_plain || !number_is_plain {
            return Err(NotAnId);
        }
        Ok(Self { prefix: prefix.to_owned(), number: number.parse().map_err(|_| NotAnId)? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.prefix, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prefix_and_a_number_make_an_id() {
        assert_eq!("INF-12".parse::<Id>().unwrap().to_string(), "INF-12");
        for bad in ["INF", "inf-12", "INF-", "-12", "INF-012", "INF-1a", "INF-12-14", "INF-10..INF-13"] {
            assert_eq!(bad.parse::<Id>(), Err(NotAnId), "{bad}");
        }
    }
}
