//! API timestamps in UTC: `Time` in seconds, and `MicroTime` in microseconds for Leases.

use std::fmt;
use std::num::NonZeroU64;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// A timestamp in seconds since 1970.
///
/// The seconds are stored with an offset of 2^63, which keeps the order and leaves zero as the niche of
/// `Option<Time>`: optional timestamps are frequent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    shifted: NonZeroU64,
}

const SHIFT: u64 = 1 << 63;

impl Time {
    /// The time this many seconds after the start of 1970.
    #[must_use]
    pub const fn from_unix_seconds(unix_seconds: i64) -> Self {
        match NonZeroU64::new(unix_seconds.cast_unsigned() ^ SHIFT) {
            Some(shifted) => Self { shifted },
            None => Self { shifted: NonZeroU64::MIN },
        }
    }

    /// Seconds since the start of 1970.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        (self.shifted.get() ^ SHIFT).cast_signed()
    }

    /// The time this many seconds later.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_unix_seconds(self.unix_seconds().saturating_add(seconds))
    }

    /// Seconds from another time to this one; negative if the other is later.
    #[must_use]
    pub const fn seconds_since(self, other: Self) -> i64 {
        self.unix_seconds().saturating_sub(other.unix_seconds())
    }
}

/// A timestamp in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime {
    unix_microseconds: i64,
}

impl MicroTime {
    /// The time this many microseconds after the start of 1970.
    #[must_use]
    pub const fn from_unix_microseconds(unix_microseconds: i64) -> Self {
        Self { unix_microseconds }
    }

    /// Microseconds since the start of 1970.
    #[must_use]
    pub const fn unix_microseconds(self) -> i64 {
        self.unix_microseconds
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.unix_microseconds) {
            Ok(timestamp) => write!(f, "{timestamp:.6}"),
            Err(_) => write!(f, "{} us after 1970", self.unix_microseconds),
        }
    }
}

/// RFC 3339 in human-readable formats, microseconds since 1970 in protobuf.
fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<jiff::Timestamp, D::Error> {
    if !deserializer.is_human_readable() {
        let microseconds = i64::deserialize(deserializer)?;
        return jiff::Timestamp::from_microsecond(microseconds).map_err(D::Error::custom);
    }
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("not an RFC 3339 time: {text:?}")))
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.unix_seconds()) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{} s after 1970", self.unix_seconds()),
        }
    }
}

macro_rules! rfc_3339 {
    ($name:ident, $from_timestamp:expr) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parse(deserializer).map($from_timestamp)
            }
        }
    };
}

rfc_3339!(Time, |timestamp| Self::from_unix_seconds(timestamp.as_second()));
rfc_3339!(MicroTime, |timestamp| Self::from_unix_microseconds(timestamp.as_microsecond()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_rfc_3339() {
        let time: Time = serde_json::from_str("\"2026-11-15T09:00:01Z\"").unwrap();
        assert_eq!(time.unix_seconds(), 1_794_733_201);
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-15T09:00:01Z\"");
    }

    #[test]
    fn optional_times_take_eight_bytes_and_keep_their_order() {
        assert_eq!(size_of::<Option<Time>>(), 8);
        let times: Vec<_> = [i64::MIN + 1, -1, 0, 1, i64::MAX].map(Time::from_unix_seconds).to_vec();
        assert!(times.is_sorted());
        assert_eq!(
            times.iter().map(|time| time.unix_seconds()).collect::<Vec<_>>(),
            [i64::MIN + 1, -1, 0, 1, i64::MAX]
        );
        assert_eq!(times[2].plus_seconds(5).seconds_since(times[1]), 6);
    }

    #[test]
    fn micro_times_keep_microseconds() {
        let time: MicroTime = serde_json::from_str("\"2026-11-15T09:00:01.000120Z\"").unwrap();
        assert_eq!(time.unix_microseconds(), 1_794_733_201_000_120);
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-15T09:00:01.000120Z\"");
    }
}
