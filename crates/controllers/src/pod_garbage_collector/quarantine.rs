//! Names of nodes that pods are bound to and nobody knows, kept until it is certain that none is coming.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::InternedStr;

/// How long a name waits.
const WAIT: Duration = Duration::from_secs(40);

/// The waiting names.
///
/// With the process they are lost, and wait once more in the next one: pods of vanished nodes go a little
/// later, and none goes too early.
#[derive(Debug, Default)]
pub(super) struct Quarantine(BTreeMap<InternedStr, Duration>);

impl Quarantine {
    /// Lets a name wait. One that waits already waits no longer for being named again.
    pub(super) fn admit(&mut self, node: &InternedStr, now: Duration) {
        self.0.entry(node.clone()).or_insert_with(|| now + WAIT);
    }

    /// Lets the names go that have waited long enough.
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
    fn a_name_waits_forty_seconds_from_the_first_time_it_is_named() {
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
