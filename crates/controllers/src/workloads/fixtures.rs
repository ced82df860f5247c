//! Small changes to objects for the tests of the workload controllers.

use keleustes_objects::{ApiError, ErrorReason};
use serde_json::{Value, json};

/// The object with one field changed.
pub(crate) fn with_field(mut object: Value, pointer: &str, value: Value) -> Value {
    if let Some(there) = object.pointer_mut(pointer) {
        *there = value;
        return object;
    }
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    object.pointer_mut(parent).expect("a parent")[field.replace("~1", "/")] = value;
    object
}

/// The object with a deletionTimestamp.
pub(crate) fn terminating(object: Value) -> Value {
    with_field(object, "/metadata/deletionTimestamp", json!("2027-01-03T00:00:00Z"))
}

/// The pod in another phase.
pub(crate) fn with_phase(phase: &str, pod: Value) -> Value {
    with_field(pod, "/status/phase", json!(phase))
}

/// The pod with its Ready condition False.
pub(crate) fn unready(pod: Value) -> Value {
    with_field(pod, "/status/conditions/0/status", json!("False"))
}

/// The pod, ready for three seconds.
pub(crate) fn recently_ready(pod: Value) -> Value {
    with_field(pod, "/status/conditions/0/lastTransitionTime", json!("2027-01-15T07:59:57Z"))
}

/// An error as the API server returns it.
pub(crate) fn api_error(reason: ErrorReason) -> ApiError {
    ApiError::transport(reason, "refused")
}

/// The verb and name of every write to a ControllerRevision of namespace `a` in a transcript.
pub(crate) fn revisions_in(transcript: &str) -> Vec<String> {
    let of_revision = |line: &str| {
        let (verb, rest) = line.split_once(" controllerrevisions.apps a/")?;
        Some(format!("{verb} {}", rest.split(' ').next().unwrap_or_default()))
    };
    transcript.lines().filter(|line| !line.starts_with("retry: ")).filter_map(of_revision).collect()
}
