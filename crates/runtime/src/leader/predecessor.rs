//! What a leader leaves to the next one: a note on the Lease, if it ends in order.

use serde_json::Value;

/// Where the note stands. The original keeps annotations of the Lease as they are, so it is taken away by whoever
/// takes the Lease, or it would be read again after another's term.
pub(super) const NOTE: &str = "keleustes.io/handover";

/// The leader before this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none: there was no Lease.
    Nobody,
    /// It gave the Lease back and left this note.
    Told(String),
    /// It let the Lease run out, or gave it back without a word. What it did last is not known.
    #[default]
    Silent,
}

impl Predecessor {
    /// Whoever had the Lease that is about to be taken.
    pub(super) fn of(lease: Option<&Value>) -> Self {
        let Some(lease) = lease else { return Self::Nobody };
        let is_free = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty();
        match lease["metadata"]["annotations"][NOTE].as_str() {
            Some(note) if is_free => Self::Told(note.to_owned()),
            _ => Self::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_note_counts_only_on_a_lease_that_was_given_back() {
        assert_eq!(Predecessor::of(None), Predecessor::Nobody);
        let lease = |holder: &str, annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}});
        assert_eq!(Predecessor::of(Some(&lease("", json!({NOTE: "x"})))), Predecessor::Told("x".to_owned()));
        assert_eq!(Predecessor::of(Some(&lease("other", json!({NOTE: "x"})))), Predecessor::Silent);
        assert_eq!(Predecessor::of(Some(&lease("", Value::Null))), Predecessor::Silent);
    }
}
