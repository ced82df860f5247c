//! Names of unknown nodes that pods are bound to, held back until it is certain that the node does not exist.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::InternedStr;

/// How long a name is quarantined.
const QUARANTINE_TIME: Duration = Duration::from_secs(40);

/// The quarantined names and the end of each quarantine.
///
/// Lost on failover: the new leader starts every quarantine again, so pods on deleted nodes are deleted
/// later, never too early.
#[derive(Clone, Debug, Default)]
pub(super) struct Quarantine(BTreeMap<InternedStr, Duration>);

impl Quarantine {
    /// Quarantines a name. Admitting it again does not extend the quarantine.
    pub(super) fn admit(&mut self, node: &InternedStr, now: Duration) {
        self.0.entry(node.clone()).or_insert_with(|| now + QUARANTINE_TIME);
    }

    /// Removes and returns the names whose quarantine is over.
    pub(super) fn release(&mut self, now: Duration) -> Vec<InternedStr> {
        self.0.extract_if(.., |_, until| *until <= now).map(|(node, _)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Proves PGC-5.
    #[test]
    fn quarantine_lasts_forty_seconds_from_the_first_admission() {
        let mut quarantine = Quarantine::default();
        quarantine.admit(&InternedStr::from("b"), at(0));
        quarantine.admit(&InternedStr::from("a"), at(20));
        quarantine.admit(&InternedStr::from("b"), at(20));
        assert!(quarantine.release(at(39)).is_empty());
        assert_eq!(quarantine.release(at(40)), [InternedStr::from("b")]);
        assert!(quarantine.release(at(59)).is_empty());
        quarantine.admit(&InternedStr::from("b"), at(60));
        assert_eq!(quarantine.release(at(60)), [InternedStr::from("a")]);
        assert_eq!(quarantine.release(at(100)), [InternedStr::from("b")]);
    }
}
