//! Creates and deletes pods for an owner, and tells people about each.

use keleustes_objects::{ArcStr, ErrorReason, Key, Kind, Pod};
use keleustes_plan::{InvolvedObject, OnFailure, Outcome, PlannedEvent, Write};
use serde_json::Value;

/// Creates a pod in the namespace of its owner; the server makes up the name.
pub(crate) fn create<O: Kind>(owner: &O, body: Value, because: &'static str) -> Write {
    let key = Key { namespace: owner.key().namespace.clone(), name: ArcStr::default() };
    let involved = InvolvedObject::of(owner);
    Write::create::<Pod>(key, body)
        // A namespace on its way out takes nothing in, and needs nothing.
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

/// Deletes a pod of an owner: the life that was seen, and no other.
pub(crate) fn delete<O: Kind>(owner: &O, pod: &Pod, because: &'static str) -> Write {
    let (involved, name) = (InvolvedObject::of(owner), pod.meta.key.name.clone());
    Write::delete(pod)
        // Gone, or another pod by now.
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
