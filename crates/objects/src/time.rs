//! Points in time as the API writes them: whole seconds, UTC.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// A point in time of the API, in whole seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    unix_seconds: i64,
}

impl Time {
    /// The time this many seconds after the start of 1970.
    #[must_use]
    pub const fn from_unix_seconds(unix_seconds: i64) -> Self {
        Self { unix_seconds }
    }

    /// Seconds since the start of 1970.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.unix_seconds) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{} s after 1970", self.unix_seconds),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let timestamp: jiff::Timestamp =
            text.parse().map_err(|_| D::Error::custom(format!("not an RFC 3339 time: {text:?}")))?;
        Ok(Self::from_unix_seconds(timestamp.as_second()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_rfc_3339() {
        let time: Time = serde_json::from_str("\"2026-11-15T09:00:01Z\"").unwrap();
        assert_eq!(time.unix_seconds(), 1_794_733_201);
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-15T09:00:01Z\"");
    }
}
