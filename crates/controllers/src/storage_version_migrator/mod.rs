//! Rewrites all stored objects of a resource, so that they are stored in the current storage version and encrypted with
//! the current key, as StorageVersionMigrations ask for it.
//!
//! Three loops share the StorageVersionMigrations. The runner keeps one migration per resource running, and reports it in
//! the resource's CustomResourceDefinition: in the condition `StorageMigrating`, and in `status.storedVersions` when a
//! migration has succeeded. The resource version loop records the current resourceVersion of the resource in the status
//! of a running migration. The migration loop sends an empty patch to every object that is not newer than that, with
//! the object's resourceVersion as precondition: an object that was changed or deleted meanwhile needs no patch.
//!
//! The original takes the objects from the caches of its garbage collector. The monitors here keep no objects, so the
//! migration loop waits until the monitor of the resource has reached the recorded resourceVersion, as the original
//! does, and then lists the metadata of the objects in pages. It keeps the keys and resourceVersions of the objects that
//! are left, and patches a hundred of them per reconcile, so that neither a shutdown nor another migration
//! waits for a hundred thousand patches. A restart loses what is left, and begins the migration again: objects that were
//! rewritten are newer by then.
//!
//! Parity: pkg/controller/storageversionmigrator.

mod conditions;
mod definition;
mod migration;
mod resource_version;
mod runner;
mod served;

use keleustes_objects::{
    ApiResource, ArcStr, GroupResource, Key, ObjectMeta, Resource, StorageVersionMigration,
};
use keleustes_plan::{
    ConstructionError, Controller, Effects, Grant, Loop, Memory, Metric, Observer, QpsMultiplier, QueueItem,
};

use self::migration::{Migrate, MigrationsInProgress};
use self::resource_version::RecordResourceVersion;
use self::runner::Runner;
use crate::garbage_collector::GarbageCollectorOptions;

/// The name, which is also the queue of the migration loop and the field manager of its patches.
pub const NAME: &str = "storage-version-migrator-controller";

/// The queue of the runner and that of the resource version loop: the original gives both the same name.
const RESOURCE_VERSION: &str = "resource-version-controller";

/// Builds the controller.
///
/// # Errors
/// If the garbage collector is disabled: migrations depend on what it monitors.
pub fn controller(
    garbage_collector: &GarbageCollectorOptions,
) -> Result<Option<Controller>, ConstructionError> {
    if !garbage_collector.enabled {
        let message = "storage version migrator requires garbage collector".to_owned();
        return Err(ConstructionError { controller: NAME, message });
    }
    let in_progress = Memory::<MigrationsInProgress>::default();
    let controller = Controller::new(NAME)
        .service_account(NAME)
        .may_write(&[
            Grant { group: "*", resource: "*", verbs: &["list", "patch"] },
            Grant { group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: &["get"] },
            Grant {
                group: "apiextensions.k8s.io",
                resource: "customresourcedefinitions/status",
                verbs: &["patch"],
            },
            Grant {
                group: "storagemigration.k8s.io",
                resource: "storageversionmigrations/status",
                verbs: &["update"],
            },
        ])
        .qps_multiplier(QpsMultiplier { qps: 20, burst: 100 })
        .observer(MonitorUser)
        .with_loop(runner_loop())
        .with_loop(resource_version_loop())
        .with_loop(migration_loop(in_progress));
    Ok(Some(controller))
}

/// One item per resource.
fn runner_loop() -> Loop {
    Loop::reconciling(RESOURCE_VERSION, Runner).enqueue_on::<StorageVersionMigration>(|change, _, items| {
        // The API server refuses to change `spec`, but a migration may be deleted and created again between two lists.
        change.old_and_new().for_each(|migration| items.add(MigratedResource::of(migration)));
    })
}

fn resource_version_loop() -> Loop {
    let record = RecordResourceVersion { last_discovery: Memory::default() };
    Loop::reconciling(RESOURCE_VERSION, record)
        .keyed_by::<StorageVersionMigration>()
        .enqueue_on::<StorageVersionMigration>(|change, _, items| {
            if let Some(migration) = change.new() {
                items.add(&migration.meta.key);
            }
        })
}

fn migration_loop(in_progress: Memory<MigrationsInProgress>) -> Loop {
    let deleted = in_progress.clone();
    Loop::reconciling(NAME, Migrate { in_progress })
        .workers(5)
        .keyed_by::<StorageVersionMigration>()
        .enqueue_on::<StorageVersionMigration>(move |change, _, items| match change.new() {
        Some(migration) => items.add(&migration.meta.key),
        None => deleted.with(|in_progress| in_progress.forget(&change.latest().meta.uid)),
    })
}

/// The queue item of the runner: a resource that is migrated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MigratedResource {
    group: ArcStr,
    resource: ArcStr,
}

impl MigratedResource {
    fn of(migration: &StorageVersionMigration) -> Self {
        let GroupResource { group, resource } = migration.spec.resource.clone();
        Self { group, resource }
    }
}

impl QueueItem for MigratedResource {
    fn text(&self) -> String {
        let Self { group, resource } = self;
        format!("{group}{}{resource}", if group.is_empty() { "" } else { "/" })
    }
}

/// Makes the monitors observe what the garbage collector observes, also if that controller is switched off, and keeps
/// nothing.
struct MonitorUser;

impl Observer for MonitorUser {
    fn queue(&self) -> Option<&'static str> {
        None
    }

    fn failures(&self) -> Option<&'static Metric> {
        None
    }

    fn delays_start(&self) -> bool {
        false // Each migration waits for the monitor of its own resource.
    }

    fn ignores(&self, ApiResource { resource, .. }: &ApiResource) -> bool {
        resource.plural == "events" && (resource.group.is_empty() || resource.group == "events.k8s.io")
    }

    fn on_list(&self, _: &Resource, _: &[&ObjectMeta], _: &[Key], _: &mut Effects) {}

    fn on_update(&self, _: &Resource, _: &ObjectMeta, _: &mut Effects) {}

    fn on_delete(&self, _: &Resource, _: &ObjectMeta, _: &mut Effects) {}

    fn on_start_leading(&self, _: &mut Effects) {}
}

#[cfg(test)]
mod tests;
