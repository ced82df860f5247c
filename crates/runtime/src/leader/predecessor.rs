//! What a leader leaves to the next one: a note on the Lease, if it ends in order.

use serde_json::Value;

use super::elector::MonotonicTime;

/// Where the note stands. The original keeps annotations of the Lease as they are, so it is taken away by whoever
/// takes the Lease, or it would be read again after another's term.
pub(super) const HANDOVER_ANNOTATION: &str = "keleustes.io/handover";

/// The leader before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There is no Lease to have.
    Absent,
    /// It gave the Lease back and left this note.
    LeftRecord(String),
    /// It let the Lease run out, or gave it back without a word. What it did last is not known, but if there is a
    /// moment here, it was done before.
    LeftNoRecord(Option<MonotonicTime>),
}

impl Default for Predecessor {
    fn default() -> Self {
        Self::LeftNoRecord(None)
    }
}

/// What passes from one leader to the next.
pub trait Handover: Send + Sync {
    /// What a leader that ends in order leaves to the next one; nothing if there is no telling.
    fn handover_record(&self) -> Option<String>;
    /// The leader has done all it did, unless it is heard of again: whoever stands by learns what that was.
    fn prepare_takeover(&self);
}

impl Predecessor {
    /// Whoever had the Lease that is about to be taken.
    pub(super) fn of(lease: Option<&Value>, holder_writes_end_at: Option<MonotonicTime>) -> Self {
        // Somebody may have deleted it to be rid of a leader.
        let Some(lease) = lease else { return Self::LeftNoRecord(holder_writes_end_at) };
        let is_free = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty();
        match lease["metadata"]["annotations"][HANDOVER_ANNOTATION].as_str() {
            Some(note) if is_free => Self::LeftRecord(note.to_owned()),
            _ => Self::LeftNoRecord(holder_writes_end_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_note_counts_only_on_a_lease_that_was_given_back() {
        let lease = |holder: &str, annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}});
        let since = Some(Duration::from_secs(7));
        let of = |lease: Value| Predecessor::of(Some(&lease), since);
        assert_eq!(Predecessor::of(None, since), Predecessor::LeftNoRecord(since));
        assert_eq!(of(lease("", json!({HANDOVER_ANNOTATION: "x"}))), Predecessor::LeftRecord("x".to_owned()));
        assert_eq!(of(lease("other", json!({HANDOVER_ANNOTATION: "x"}))), Predecessor::LeftNoRecord(since));
        assert_eq!(of(lease("", Value::Null)), Predecessor::LeftNoRecord(since));
    }
}
