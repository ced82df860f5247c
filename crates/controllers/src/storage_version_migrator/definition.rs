//! What the runner writes to the CustomResourceDefinition of a migrated resource.

use keleustes_objects::{
    ArcStr, Conditions as _, CustomResourceDefinition, ErrorReason, FALSE, GroupResource, Key, TRUE, Time,
};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, ReconcileError, Write};
use serde_json::{Value, json};

/// The field manager of what is applied here.
const FIELD_MANAGER: &str = "migration-runner-controller";
const STORAGE_MIGRATING: &str = "StorageMigrating";
/// How often a definition is read and applied before a conflict fails the reconcile.
const TRIES: usize = 5;

/// What is reported about a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report<'a> {
    /// The migration of this name starts.
    Starts(&'a str),
    /// It has ended.
    Ended {
        /// Whether all objects were migrated.
        succeeded: bool,
    },
}

/// The name of the definition of a resource. For the core group it ends in a dot, so that no such definition exists.
fn definition_of(GroupResource { group, resource }: &GroupResource) -> Key {
    Key::cluster(format!("{resource}.{group}"))
}

/// Reads the definition of a resource, if there is one, and applies the report to its status. After a conflict both are
/// repeated, because the report depends on the generation.
pub(super) async fn report(
    cx: &mut Context<'_>,
    resource: &GroupResource,
    report: Report<'_>,
    now: Time,
) -> Result<(), ReconcileError> {
    let key = definition_of(resource);
    for tries_left in (0..TRIES).rev() {
        let Some(definition) = cx.fetch::<CustomResourceDefinition>(&key).await? else { return Ok(()) };
        if was_reported(&definition, report) {
            return Ok(());
        }
        let write = Write::apply(&definition, FIELD_MANAGER, fields(&definition, report, now))
            .on_subresource("status")
            .on_failure(OnFailure::ReturnOutcome)
            .because(match report {
                Report::Starts(_) => "a migration of its objects starts",
                Report::Ended { .. } => "the migration of its objects has ended",
            });
        let applied = cx.apply(Plan::of(write.clone())).await;
        match applied.outcomes.first() {
            Some(Outcome::Failed(error)) if error.reason == ErrorReason::Conflict && tries_left > 0 => {}
            Some(Outcome::Failed(error)) => return Err(ReconcileError::from_write(&write, error)),
            _ => return applied.all_done(),
        }
    }
    unreachable!("the last try returns")
}

/// Whether an earlier try has reported the end: the start sets the condition to True. Its generation is that of the report,
/// not of the start, so it says no more which versions objects may be stored in.
fn was_reported(definition: &CustomResourceDefinition, report: Report<'_>) -> bool {
    let migrating = definition.conditions.of_type(STORAGE_MIGRATING);
    matches!(report, Report::Ended { .. }) && migrating.is_some_and(|condition| !condition.is_true())
}

/// The applied fields. The resourceVersion makes the write fail if the definition has changed since it was read.
fn fields(definition: &CustomResourceDefinition, report: Report<'_>, now: Time) -> Value {
    let generation = definition.meta.generation;
    let is_current = definition
        .conditions
        .of_type(STORAGE_MIGRATING)
        .is_some_and(|condition| condition.observed_generation.unwrap_or_default() == generation);
    let (status, reason, message) = match report {
        Report::Starts(name) => (TRUE, "MigrationRunning", format!("Migration {name} is running")),
        Report::Ended { succeeded: false } => {
            (FALSE, "MigrationFailed", "The migration has failed".to_owned())
        }
        Report::Ended { succeeded: true } => {
            let versions = match is_current {
                true => "and the stored versions have been updated",
                false => "but the stored versions have not been updated due to a generation mismatch",
            };
            (FALSE, "MigrationSucceeded", format!("The migration has succeeded {versions}"))
        }
    };
    let is_trimmed = is_current && report == Report::Ended { succeeded: true };
    let mut fields = json!({
        "metadata": {"resourceVersion": definition.meta.resource_version},
        "status": {"conditions": [{
            "type": STORAGE_MIGRATING, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "observedGeneration": generation,
        }]},
    });
    let stored = match &definition.storage_version {
        Some(version) if is_trimmed => std::slice::from_ref(version),
        // An apply replaces what this manager applied before: without the list, the server would remove the one that an
        // earlier migration has trimmed.
        _ => &*definition.stored_versions,
    };
    if !stored.is_empty() {
        fields["status"]["storedVersions"] = stored.iter().map(ArcStr::as_str).collect();
    }
    fields
}
