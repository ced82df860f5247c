//! What a leader leaves to the next one: a handover record in an annotation of the Lease, after a graceful
//! shutdown.

use serde_json::Value;

use super::elector::MonotonicTime;

/// The annotation with the handover record. The original keeps annotations of the Lease, so a new holder
/// removes it; otherwise it would be read again after a term of the original.
pub(super) const HANDOVER_ANNOTATION: &str = "keleustes.io/handover";

/// The previous leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There is none: this process runs without leader election.
    Absent,
    /// It released the Lease and left this handover record.
    LeftRecord(String),
    /// It let the Lease expire, or released it without a record. Its last writes are not known, but if there
    /// is a time here, they were made before it.
    LeftNoRecord(Option<MonotonicTime>),
}

impl Default for Predecessor {
    fn default() -> Self {
        Self::LeftNoRecord(None)
    }
}

/// The state that is handed over from one leader to the next.
pub trait Handover: Send + Sync {
    /// The record that a leader leaves at a graceful shutdown; `None` if the written state is not known for
    /// certain.
    fn handover_record(&self) -> Option<String>;
    /// The leader has made its last write, unless it renews again: the standby updates its caches.
    fn prepare_takeover(&self);
}

impl Predecessor {
    /// The previous holder of the Lease that is about to be taken.
    pub(super) fn of(lease: Option<&Value>, holder_writes_end_at: Option<MonotonicTime>) -> Self {
        // A user may have deleted it to end a leader's term.
        let Some(lease) = lease else { return Self::LeftNoRecord(holder_writes_end_at) };
        let is_released = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty();
        match lease["metadata"]["annotations"][HANDOVER_ANNOTATION].as_str() {
            Some(record) if is_released => Self::LeftRecord(record.to_owned()),
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
    fn handover_record_counts_only_on_a_released_lease() {
        let lease = |holder: &str, annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}});
        let since = Some(Duration::from_secs(7));
        let of = |lease: Value| Predecessor::of(Some(&lease), since);
        assert_eq!(Predecessor::of(None, since), Predecessor::LeftNoRecord(since));
        assert_eq!(of(lease("", json!({HANDOVER_ANNOTATION: "x"}))), Predecessor::LeftRecord("x".to_owned()));
        assert_eq!(of(lease("other", json!({HANDOVER_ANNOTATION: "x"}))), Predecessor::LeftNoRecord(since));
        assert_eq!(of(lease("", Value::Null)), Predecessor::LeftNoRecord(since));
    }
}
