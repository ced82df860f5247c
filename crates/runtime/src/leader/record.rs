//! The spec of a Lease, in the bytes that Go's clients read and write.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The part of a Lease that the election uses. Absent fields read as empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder identity; empty if there is no holder.
    pub holder: String,
    /// How long it is valid after it was last observed to change.
    pub duration_seconds: i64,
    /// When the holder acquired it, by the holder's clock.
    pub acquired_at: Option<Timestamp>,
    /// When the holder last renewed it, by the holder's clock.
    pub renewed_at: Option<Timestamp>,
    /// How often the holder has changed.
    pub transitions: i64,
    /// The strategy of a coordinated election; kept there, and dropped by a plain election like unknown
    /// fields.
    pub strategy: String,
    /// The next holder in a coordinated election; a holder that observes it writes no more.
    pub preferred_holder: String,
}

impl LeaseRecord {
    /// Reads a Lease object.
    #[must_use]
    pub fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| spec[name].as_i64().unwrap_or_default().max(0);
        let time = |name: &str| spec[name].as_str().and_then(|text| text.parse().ok());
        Self {
            holder: text("holderIdentity"),
            duration_seconds: number("leaseDurationSeconds"),
            acquired_at: time("acquireTime"),
            renewed_at: time("renewTime"),
            transitions: number("leaseTransitions"),
            strategy: text("strategy"),
            preferred_holder: text("preferredHolder"),
        }
    }

    /// The spec of a Lease; an empty holder is written, too, since that releases it.
    #[must_use]
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration_seconds,
            "acquireTime": self.acquired_at.map(micro_time),
            "renewTime": self.renewed_at.map(micro_time),
            "leaseTransitions": self.transitions,
        });
        for (name, text) in [("strategy", &self.strategy), ("preferredHolder", &self.preferred_holder)] {
            if !text.is_empty() {
                spec[name] = text.as_str().into();
            }
        }
        spec
    }

    /// Whether the holder itself has released the Lease, in the form that this process and client-go write, or the
    /// Lease never had a holder. A holder that was cleared by hand leaves the other fields as they were.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.holder.is_empty() && self.duration_seconds <= 1 && self.acquired_at == self.renewed_at
    }

    /// Whether two records are the same. Times count in whole seconds, as Go's clients compare them;
    /// [`LeaderElectionConfig::valid_for_others`](super::LeaderElectionConfig::valid_for_others) allows for
    /// that.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let seconds_of = |record: &Self| {
            let seconds = |time: Option<Timestamp>| time.map(|time| time.as_second());
            (seconds(record.acquired_at), seconds(record.renewed_at))
        };
        let untimed = |record: &Self| Self { acquired_at: None, renewed_at: None, ..record.clone() };
        seconds_of(self) == seconds_of(other) && untimed(self) == untimed(other)
    }
}

/// RFC 3339 in UTC with exactly six digits; Go's parser for MicroTime accepts nothing else.
pub(super) fn micro_time(time: Timestamp) -> String {
    // Truncated, not rounded, as Go does.
    let time = Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time);
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Proves LE-10. The expected text is what a Go client stores for these times.
    #[test]
    fn times_always_have_six_digits() {
        let rows = [
            ("2026-11-15T09:00:01.123456789Z", "2026-11-15T09:00:01.123456Z"),
            ("2026-11-15T09:00:01.9999999Z", "2026-11-15T09:00:01.999999Z"),
            ("2026-11-15T09:00:01.5Z", "2026-11-15T09:00:01.500000Z"),
            ("2026-11-15T09:00:01Z", "2026-11-15T09:00:01.000000Z"),
            ("2026-11-15T10:00:01+01:00", "2026-11-15T09:00:01.000000Z"),
        ];
        for (given, written) in rows {
            assert_eq!(micro_time(time(given)), written);
        }
    }

    /// Proves LE-10.
    #[test]
    fn record_is_written_as_go_writes_it() {
        let record = LeaseRecord {
            holder: "node-1_u".to_owned(),
            duration_seconds: 15,
            acquired_at: Some(time("2026-11-15T09:00:00Z")),
            renewed_at: Some(time("2026-11-15T09:00:02.25Z")),
            transitions: 3,
            ..LeaseRecord::default()
        };
        let expected = json!({
            "holderIdentity": "node-1_u", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-11-15T09:00:00.000000Z", "renewTime": "2026-11-15T09:00:02.250000Z",
        });
        assert_eq!(record.spec(), expected);
        assert_eq!(LeaseRecord::of(&json!({ "spec": expected })), record);
        let strategy = "OldestEmulationVersion".to_owned();
        let coordinated = LeaseRecord { strategy, preferred_holder: "other".to_owned(), ..record };
        assert_eq!(coordinated.spec()["strategy"], "OldestEmulationVersion");
        assert_eq!(LeaseRecord::of(&json!({ "spec": coordinated.spec() })), coordinated);
    }

    /// Proves LE-15.
    #[test]
    fn absent_and_invalid_fields_read_as_empty() {
        for lease in [json!({}), json!({"spec": {}}), json!({"spec": null})] {
            assert_eq!(LeaseRecord::of(&lease), LeaseRecord::default());
        }
        let invalid =
            json!({"spec": {"leaseDurationSeconds": -4, "renewTime": "yesterday", "holderIdentity": 7}});
        assert_eq!(LeaseRecord::of(&invalid), LeaseRecord::default());
    }

    #[test]
    fn release_differs_from_a_holder_that_was_cleared_by_hand() {
        let held = LeaseRecord {
            holder: "other".to_owned(),
            duration_seconds: 15,
            acquired_at: Some(time("2026-11-15T09:00:00Z")),
            renewed_at: Some(time("2026-11-15T09:00:02Z")),
            ..LeaseRecord::default()
        };
        let cleared = LeaseRecord { holder: String::new(), ..held.clone() };
        let released = LeaseRecord { duration_seconds: 1, acquired_at: held.renewed_at, ..cleared.clone() };
        assert!(released.is_released() && LeaseRecord::default().is_released());
        assert!(!LeaseRecord { holder: "other".to_owned(), ..released }.is_released());
        assert!(!held.is_released() && !cleared.is_released());
        assert!(!LeaseRecord { acquired_at: held.renewed_at, ..cleared.clone() }.is_released());
        assert!(!LeaseRecord { duration_seconds: 1, ..cleared }.is_released());
    }

    /// Proves LE-23.
    #[test]
    fn records_are_compared_with_times_in_whole_seconds() {
        let base = LeaseRecord { renewed_at: Some(time("2026-11-15T09:00:02.1Z")), ..LeaseRecord::default() };
        let within = LeaseRecord { renewed_at: Some(time("2026-11-15T09:00:02.9Z")), ..base.clone() };
        let beyond = LeaseRecord { renewed_at: Some(time("2026-11-15T09:00:03Z")), ..base.clone() };
        assert!(base.is_same_as(&within) && !base.is_same_as(&beyond));
        assert!(!base.is_same_as(&LeaseRecord { transitions: 1, ..base.clone() }));
        assert!(!base.is_same_as(&LeaseRecord { holder: "x".to_owned(), ..base.clone() }));
        assert!(!base.is_same_as(&LeaseRecord { preferred_holder: "x".to_owned(), ..base.clone() }));
    }
}
