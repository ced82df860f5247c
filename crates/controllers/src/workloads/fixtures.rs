//! Small changes to objects that the tests of workloads tell their stories with.

use keleustes_objects::{ApiError, ErrorReason};
use serde_json::{Value, json};

/// An object with one thing about it changed.
pub(crate) fn with_field(mut object: Value, pointer: &str, value: Value) -> Value {
    if let Some(there) = object.pointer_mut(pointer) {
        *there = value;
        return object;
    }
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    object.pointer_mut(parent).expect("a parent")[field.replace("~1", "/")] = value;
    object
}

/// An object on its way out.
pub(crate) fn terminating(object: Value) -> Value {
    with_field(object, "/metadata/deletionTimestamp", json!("2027-01-03T00:00:00Z"))
}

/// A pod in another phase.
pub(crate) fn with_phase(phase: &str, pod: Value) -> Value {
    with_field(pod, "/status/phase", json!(phase))
}

/// A pod that is not ready.
pub(crate) fn unready(pod: Value) -> Value {
    with_field(pod, "/status/conditions/0/status", json!("False"))
}

/// A pod that has been ready for three seconds.
pub(crate) fn recently_ready(pod: Value) -> Value {
    with_field(pod, "/status/conditions/0/lastTransitionTime", json!("2027-01-15T07:59:57Z"))
}

/// How the server refuses a request.
pub(crate) fn api_error(reason: ErrorReason) -> ApiError {
    ApiError::transport(reason, "refused")
}

/// What a turn does to the revisions of namespace `a`, by its transcript.
pub(crate) fn revisions_in(transcript: &str) -> Vec<String> {
    let of_revision = |line: &str| {
        let (verb, rest) = line.split_once(" controllerrevisions.apps a/")?;
        Some(format!("{verb} {}", rest.split(' ').next().unwrap_or_default()))
    };
    transcript.lines().filter_map(of_revision).collect()
}
