//! Keeps one migration per resource running: cleans up those that have ended, and promotes the oldest of the others.

use std::sync::Arc;

use keleustes_objects::{StorageVersionMigration, Time};
use keleustes_plan::{Context, Plan, ReconcileError, Reconciler, Requeue, View};

use super::MigratedResource;
use super::conditions::{self, NewStatus};
use super::definition::{self, Report};

/// Reconciles one resource.
pub(super) struct Runner;

/// What is to be done for the migrations of one resource.
#[derive(Default)]
struct Steps {
    /// Terminal migrations whose condition `Running` is still True.
    clean_up: Vec<Arc<StorageVersionMigration>>,
    /// The migration that runs next, if none is running.
    promote: Option<Arc<StorageVersionMigration>>,
}

impl Reconciler<MigratedResource> for Runner {
    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        resource: &MigratedResource,
    ) -> Result<Requeue, ReconcileError> {
        let (steps, now) = cx.gather(|view| (Steps::of(view, resource), view.now().wall));
        for migration in &steps.clean_up {
            clean_up(cx, migration, now).await?;
        }
        if let Some(migration) = &steps.promote {
            promote(cx, migration, now).await?;
        }
        Ok(Requeue::Forget)
    }
}

impl Steps {
    /// The steps for the migrations of exactly this group and resource.
    fn of(view: &View<'_>, resource: &MigratedResource) -> Self {
        let (mut steps, mut is_any_running) = (Self::default(), false);
        let of_resource =
            |migration: &&Arc<StorageVersionMigration>| MigratedResource::of(migration) == *resource;
        for migration in view.all::<StorageVersionMigration>().filter(of_resource) {
            match (conditions::is_running(migration), conditions::is_terminal(migration)) {
                (true, true) => steps.clean_up.push(migration.clone()),
                (true, false) => is_any_running = true,
                (false, false) if steps.promote.as_ref().is_none_or(|first| is_before(migration, first)) => {
                    steps.promote = Some(migration.clone());
                }
                (false, _) => {}
            }
        }
        if is_any_running {
            steps.promote = None;
        }
        steps
    }
}

/// Whether a migration runs before another one of the same resource.
fn is_before(one: &StorageVersionMigration, other: &StorageVersionMigration) -> bool {
    let order = |migration: &StorageVersionMigration| {
        (migration.meta.creation_timestamp, migration.meta.key.name.clone())
    };
    order(one) < order(other)
}

/// Reports the end to the definition, then sets the migration's own condition `Running` to False.
async fn clean_up(
    cx: &mut Context<'_>,
    migration: &StorageVersionMigration,
    now: Time,
) -> Result<(), ReconcileError> {
    let ended = Report::Ended { succeeded: conditions::has_succeeded(migration) };
    definition::report(cx, &migration.spec.resource, ended, now).await?;
    let write = NewStatus::of(migration, now).cleaned_up().write("the migration has ended");
    cx.apply(Plan::of(write)).await.all_done()
}

/// Reports the start to the definition, then starts the migration.
async fn promote(
    cx: &mut Context<'_>,
    migration: &StorageVersionMigration,
    now: Time,
) -> Result<(), ReconcileError> {
    let starts = Report::Starts(&migration.meta.key.name);
    definition::report(cx, &migration.spec.resource, starts, now).await?;
    let write =
        NewStatus::of(migration, now).promoted().write("no other migration of the resource is running");
    cx.apply(Plan::of(write)).await.all_done()
}
