//! Creates and deletes pods for an owner, and records an event for each.

use keleustes_objects::{ArcStr, ErrorReason, Key, Kind, Pod};
use keleustes_plan::{InvolvedObject, OnFailure, Outcome, PlannedEvent, Write};
use serde_json::Value;

/// Creates a pod in the namespace of its owner; the API server generates the name.
pub(crate) fn create<O: Kind>(owner: &O, body: Value, because: &'static str) -> Write {
    let key = Key { namespace: owner.key().namespace.clone(), name: ArcStr::default() };
    let involved = InvolvedObject::of(owner);
    Write::create::<Pod>(key, body)
        // A terminating namespace accepts no new objects and needs no pods.
        .ignoring_errors(&[ErrorReason::NamespaceTerminating])
        .because(because)
        .record_on_outcome(move |outcome| match outcome {
            Outcome::Done { name, .. } if !name.is_empty() => Some(PlannedEvent::normal(
                involved.clone(),
                "SuccessfulCreate",
                format!("Created pod: {name}"),
            )),
            Outcome::Failed(failure) => {
                let message = format!("Error creating: {}", failure.message);
                Some(PlannedEvent::warning(involved.clone(), "FailedCreate", message))
            }
            _ => None,
        })
}

/// Deletes a pod of an owner with a UID precondition.
pub(crate) fn delete<O: Kind>(owner: &O, pod: &Pod, because: &'static str) -> Write {
    let (involved, name) = (InvolvedObject::of(owner), pod.meta.key.name.clone());
    Write::delete(pod)
        // The pod was deleted, or its name belongs to another pod.
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
        .on_failure(OnFailure::ContinueAndRetry)
        .because(because)
        .record_on_outcome(move |outcome| match outcome {
            Outcome::Done { name: deleted, .. } if !deleted.is_empty() => Some(PlannedEvent::normal(
                involved.clone(),
                "SuccessfulDelete",
                format!("Deleted pod: {name}"),
            )),
            Outcome::Failed(failure) => {
                let message = format!("Error deleting: {}", failure.message);
                Some(PlannedEvent::warning(involved.clone(), "FailedDelete", message))
            }
            _ => None,
        })
}
