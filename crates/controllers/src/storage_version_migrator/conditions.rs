//! The conditions of StorageVersionMigrations and their messages.

use std::fmt::Write as _;

use keleustes_objects::{
    ApiError, Condition, Conditions as _, FALSE, StorageVersionMigration, StorageVersionMigrationStatus,
    TRUE, Time,
};
use keleustes_plan::Write;

pub(super) const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Whether the migration is running, and perhaps finished, but not cleaned up.
pub(super) fn is_running(migration: &StorageVersionMigration) -> bool {
    migration.status.conditions.is_condition_true(RUNNING)
}

/// Whether the migration has ended; it is never run again.
pub(super) fn is_terminal(migration: &StorageVersionMigration) -> bool {
    has_succeeded(migration) || migration.status.conditions.is_condition_true(FAILED)
}

pub(super) fn has_succeeded(migration: &StorageVersionMigration) -> bool {
    migration.status.conditions.is_condition_true(SUCCEEDED)
}

/// How many objects there are, and how many of them are not migrated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) left: usize,
    pub(super) total: usize,
}

/// The message of the condition `Running`.
pub(super) fn running_message(counts: Option<Counts>, transient: Option<&ApiError>) -> String {
    let mut message = "The migration is running".to_owned();
    // Writing to a String cannot fail.
    if let Some(Counts { left, total }) = counts.filter(|counts| counts.total > 0) {
        let _ = match left {
            0 => write!(message, ", {total} objects verified migrated"),
            _ => write!(message, ", {left}/{total} objects not yet migrated"),
        };
    }
    if let Some(error) = transient {
        let _ = write!(message, "; transient error: {error}");
    }
    message
}

/// A status that is to be written, and whether it differs from the cached one.
pub(super) struct NewStatus<'a> {
    migration: &'a StorageVersionMigration,
    pub(super) status: StorageVersionMigrationStatus,
    now: Time,
}

impl<'a> NewStatus<'a> {
    pub(super) fn of(migration: &'a StorageVersionMigration, now: Time) -> Self {
        Self { migration, status: migration.status.clone(), now }
    }

    /// The migration runs.
    pub(super) fn running(self, counts: Option<Counts>, transient: Option<&ApiError>) -> Self {
        let message = running_message(counts, transient);
        self.with(RUNNING, TRUE, "MigrationRunning", &message, None)
    }

    /// A promoted migration runs, unless the condition was set before: one that is False stays so, which blocks the
    /// resource.
    ///
    /// Parity: `setStatusConditions` of pkg/controller/storageversionmigrator/util.go.
    pub(super) fn promoted(self) -> Self {
        if self.is_set(RUNNING) { self } else { self.running(None, None) }
    }

    /// All objects are migrated.
    pub(super) fn succeeded(self) -> Self {
        self.with(SUCCEEDED, TRUE, "StorageVersionMigrationSucceeded", "Migration completed", None)
    }

    /// The migration failed and is not retried.
    pub(super) fn failed(self, message: &str) -> Self {
        self.with(FAILED, TRUE, "StorageVersionMigrationFailed", message, None)
    }

    /// A terminal migration does not run any more.
    pub(super) fn cleaned_up(self) -> Self {
        let generation = self.migration.meta.generation;
        self.with(RUNNING, FALSE, "MigrationCompleted", "Migration completed", Some(generation))
    }

    fn is_set(&self, r#type: &str) -> bool {
        let condition = self.status.conditions.of_type(r#type);
        condition.is_some_and(|condition| condition.is_true() || condition.status == FALSE)
    }

    /// Sets a condition; lastTransitionTime changes together with the status only.
    ///
    /// Parity: `meta.SetStatusCondition`.
    fn with(
        mut self,
        r#type: &str,
        status: &str,
        reason: &str,
        message: &str,
        observed_generation: Option<i64>,
    ) -> Self {
        // The API does not distinguish zero from unset.
        let observed_generation = observed_generation.filter(|generation| *generation != 0);
        let new =
            Condition { observed_generation, ..Condition::new(r#type, status, reason, message, self.now) };
        match self.status.conditions.iter_mut().find(|condition| condition.r#type == r#type) {
            None => self.status.conditions.push(new),
            Some(condition) => {
                let is_same = condition.status == status;
                let since = if is_same { condition.last_transition_time } else { new.last_transition_time };
                let unknown = std::mem::take(&mut condition.unknown);
                *condition = Condition { last_transition_time: since, unknown, ..new };
            }
        }
        self
    }

    /// Whether anything changed.
    pub(super) fn is_changed(&self) -> bool {
        self.status != self.migration.status
    }

    /// The update of the status, with the resourceVersion of the cached object as precondition.
    pub(super) fn write(&self, because: &'static str) -> Write {
        Write::put_status(self.migration, &self.status).because(because)
    }
}
