//! Removes the records of API servers that no longer exist from StorageVersions, and deletes a StorageVersion without
//! records.
//!
//! An API server exists as long as its identity Lease does: a Lease in `kube-system` with the label
//! `apiserver.kubernetes.io/identity: kube-apiserver`, whose name is the ID of the server. The deletion of such a Lease
//! enqueues its name; a StorageVersion that names a server without Lease is enqueued by itself. The caches only select
//! candidates: Leases and StorageVersions are read live before anything is written.
//!
//! The gates `APIServerIdentity` and `StorageVersionAPI` are both required; the latter is off by default.
//!
//! Parity: pkg/controller/storageversiongc.

mod records;

use keleustes_objects::{
    ErrorReason, Key, Lease, ServerStorageVersion, StorageVersion, Time, invalid_path_segment,
};
use keleustes_plan::{
    Context, Controller, Grant, Loop, OnFailure, Plan, ReconcileError, Reconciler, Requeue, View, Write,
};

const LEASES: &str = "storage_version_garbage_collector_leases";
const STORAGE_VERSIONS: &str = "storage_version_garbage_collector_storageversions";
const NAMESPACE: &str = "kube-system";
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const KUBE_APISERVER: &str = "kube-apiserver";

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("storageversion-garbage-collector-controller")
        .service_account("storage-version-garbage-collector")
        .may_write(&[
            Grant { group: "coordination.k8s.io", resource: "leases", verbs: &["get", "list", "watch"] },
            Grant {
                group: "internal.apiserver.k8s.io",
                resource: "storageversions",
                verbs: &["get", "list", "watch", "patch", "update", "delete"],
            },
            Grant {
                group: "internal.apiserver.k8s.io",
                resource: "storageversions/status",
                verbs: &["get", "patch", "update"],
            },
        ])
        .with_loop(lease_loop())
        .with_loop(storage_version_loop())
}

/// Items are the names of deleted identity Leases. The loop waits for both caches, as the original does.
fn lease_loop() -> Loop {
    Loop::reconciling(LEASES, DeletedLease)
        .reads_unwatched::<StorageVersion>("a stale record is found by the other loop")
        .enqueue_on::<Lease>(|change, _, items| {
            // A Lease that was deleted and created again between two lists is one change, and exists.
            if change.is_deletion() && is_identity_lease(change.latest()) {
                items.add(Key::cluster(change.latest().meta.key.name.clone()));
            }
        })
}

fn storage_version_loop() -> Loop {
    Loop::reconciling(STORAGE_VERSIONS, StaleRecords)
        .reads_unwatched::<Lease>("the deletion of a Lease is found by the other loop")
        .keyed_by::<StorageVersion>()
        .enqueue_on::<StorageVersion>(|change, view, items| {
            let Some(version) = change.new() else { return };
            if version.status.storage_versions.iter().any(|record| !has_cached_lease(view, record)) {
                items.add(&version.meta.key);
            }
        })
}

fn lease_of(api_server_id: &str) -> Key {
    Key::namespaced(NAMESPACE, api_server_id)
}

fn is_identity_lease(lease: &Lease) -> bool {
    &*lease.meta.key.namespace == NAMESPACE
        && lease.meta.labels.value(IDENTITY_LABEL).is_some_and(|value| &**value == KUBE_APISERVER)
}

fn has_cached_lease(view: &View<'_>, record: &ServerStorageVersion) -> bool {
    view.get::<Lease>(&lease_of(&record.api_server_id)).is_some_and(|lease| is_identity_lease(lease))
}

/// Removes the records of an API server whose identity Lease was deleted.
struct DeletedLease;

impl Reconciler for DeletedLease {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let name = &item.name;
        // Created again meanwhile, be it without the label.
        if cx.fetch::<Lease>(&lease_of(name)).await?.is_some() {
            return Ok(Requeue::Forget);
        }
        let now = cx.gather(|view| view.now().wall);
        let versions = cx.list::<StorageVersion>("").await;
        let versions = versions.map_err(|error| {
            ReconcileError::from_api_error(&error, format!("listing StorageVersions: {error}"))
        })?;
        let mut plan = Plan::none();
        for version in &versions {
            let is_left = |record: &&ServerStorageVersion| record.api_server_id != *name;
            let left: Vec<_> = version.status.storage_versions.iter().filter(is_left).cloned().collect();
            if left.len() < version.status.storage_versions.len() {
                // One that fails does not keep the others from being written.
                plan.push(write(version, left, now).on_failure(OnFailure::ContinueAndRetry));
            }
        }
        cx.apply(plan).await.all_done().map(|()| Requeue::Forget)
    }
}

/// Removes the records of one StorageVersion whose API servers have no identity Lease.
struct StaleRecords;

impl Reconciler for StaleRecords {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(version) = cx.fetch::<StorageVersion>(item).await? else { return Ok(Requeue::Forget) };
        let now = cx.gather(|view| view.now().wall);
        let mut left = Vec::new();
        for record in &version.status.storage_versions {
            if has_live_lease(cx, &record.api_server_id).await? {
                left.push(record.clone());
            }
        }
        if left.len() == version.status.storage_versions.len() {
            return Ok(Requeue::Forget);
        }
        cx.apply(Plan::of(write(&version, left, now))).await.all_done().map(|()| Requeue::Forget)
    }
}

/// Whether an API server has an identity Lease. Unlike in the original, a failed read is not taken for a missing Lease:
/// the record of a running API server must survive it.
async fn has_live_lease(cx: &mut Context<'_>, api_server_id: &str) -> Result<bool, ReconcileError> {
    // No object can have such a name.
    if api_server_id.is_empty() || invalid_path_segment(api_server_id).is_some() {
        return Ok(false);
    }
    Ok(cx.fetch::<Lease>(&lease_of(api_server_id)).await?.is_some_and(|lease| is_identity_lease(&lease)))
}

/// Keeps the records that are left, or deletes the StorageVersion if there are none. Both fail if the StorageVersion has
/// changed since it was read: an API server may have added its record.
fn write(version: &StorageVersion, left: Vec<ServerStorageVersion>, now: Time) -> Write {
    if left.is_empty() {
        return Write::delete(version)
            .resource_version_precondition(&version.meta.resource_version)
            .ignoring_errors(&[ErrorReason::NotFound])
            .because("none of its API servers exists");
    }
    let status = records::with_records(version, left, now);
    Write::put_status(version, &status).because("an API server that it names does not exist")
}

#[cfg(test)]
mod tests;
