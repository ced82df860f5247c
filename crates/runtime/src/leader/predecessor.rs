//! What a leader leaves to the next one: a handover record in an annotation of the Lease, after a graceful
//! shutdown.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::elector::MonotonicTime;
use super::record::LeaseRecord;

/// The annotation with the handover record. The original keeps annotations of the Lease, so a new holder
/// removes it; otherwise it would be read again after a term of the original.
pub(super) const HANDOVER_ANNOTATION: &str = "keleustes.io/handover";

/// The number of the annotation's format. An annotation of another format is ignored, as after a crash.
const FORMAT: u32 = 2;
/// An API server refuses an object with more than 256 KiB of annotations.
const ANNOTATION_BYTES_MAX: usize = 200 * 1024;

/// The annotation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HandoverAnnotation {
    format: u32,
    /// `spec.leaseTransitions` in the term of the leader that left it. A later term, also one of the original,
    /// makes it obsolete.
    lease_transitions: i64,
    /// How far each list and watch was.
    watches: Value,
}

/// The previous leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There is none: this process runs without leader election.
    Absent,
    /// It released the Lease and left this handover record.
    LeftRecord(Value),
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
    fn handover_record(&self) -> Option<Value>;
    /// Whether a write of this process is on its way, so that the Lease must not be released yet.
    fn has_write_in_flight(&self) -> bool;
    /// The leader has made its last write, unless it renews again: the standby updates its caches.
    fn prepare_takeover(&self);
}

impl Predecessor {
    /// The previous holder of the Lease that is about to be taken.
    pub(super) fn of(lease: Option<&Value>, holder_writes_end_at: Option<MonotonicTime>) -> Self {
        // A user may have deleted it to end a leader's term.
        let Some(lease) = lease else { return Self::LeftNoRecord(holder_writes_end_at) };
        let spec = LeaseRecord::of(lease);
        let annotation = lease["metadata"]["annotations"][HANDOVER_ANNOTATION].as_str();
        let annotation: Option<HandoverAnnotation> =
            annotation.and_then(|text| serde_json::from_str(text).ok());
        match annotation {
            Some(HandoverAnnotation { format: FORMAT, lease_transitions, watches })
                if spec.is_released() && lease_transitions == spec.transitions =>
            {
                Self::LeftRecord(watches)
            }
            _ => Self::LeftNoRecord(holder_writes_end_at),
        }
    }
}

/// The annotation with a handover record, for a Lease with this number of transitions; `None` if it is too long.
pub(super) fn annotation(watches: Value, lease_transitions: i64) -> Option<String> {
    let annotation = HandoverAnnotation { format: FORMAT, lease_transitions, watches };
    serde_json::to_string(&annotation).ok().filter(|text| text.len() <= ANNOTATION_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const SINCE: Option<Duration> = Some(Duration::from_secs(7));

    fn predecessor(holder: &str, transitions: i64, annotation: Option<&str>) -> Predecessor {
        let spec =
            json!({"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 1});
        let annotations = json!({HANDOVER_ANNOTATION: annotation});
        Predecessor::of(Some(&json!({"metadata": {"annotations": annotations}, "spec": spec})), SINCE)
    }

    #[test]
    fn handover_record_counts_only_on_a_lease_released_in_the_same_term() {
        let (watches, none) = (json!({"pods": {"lastList": "3"}}), Predecessor::LeftNoRecord(SINCE));
        let left = annotation(watches.clone(), 4).unwrap();
        let in_full = r#"{"format":2,"leaseTransitions":4,"watches":{"pods":{"lastList":"3"}}}"#;
        assert_eq!(left, in_full, "a change of the format needs a new number");
        assert_eq!(Predecessor::of(None, SINCE), none);
        assert_eq!(predecessor("", 4, Some(&left)), Predecessor::LeftRecord(watches));
        assert_eq!(predecessor("other", 4, Some(&left)), none);
        // The original keeps annotations and counts its own term.
        assert_eq!(predecessor("", 5, Some(&left)), none);
        assert_eq!(predecessor("", 3, Some(&left)), none);
        assert_eq!(predecessor("", 4, None), none);
    }

    #[test]
    fn annotation_of_another_format_is_ignored() {
        for text in [
            r#"{"pods":{"event":"7","listed":"3"}}"#,
            r#"{"format":1,"leaseTransitions":4,"watches":{}}"#,
            r#"{"format":3,"leaseTransitions":4,"watches":{}}"#,
            r#"{"format":2,"leaseTransitions":4,"watches":{},"more":1}"#,
            r#"{"format":2,"watches":{}}"#,
            "x",
            "",
        ] {
            assert_eq!(predecessor("", 4, Some(text)), Predecessor::LeftNoRecord(SINCE), "{text}");
        }
        assert_eq!(annotation(json!("x".repeat(ANNOTATION_BYTES_MAX)), 4), None, "too long");
    }
}
