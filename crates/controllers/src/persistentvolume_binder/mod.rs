//! Binds PersistentVolumeClaims to PersistentVolumes, asks provisioners for volumes, and reclaims released volumes.
//!
//! There are two queues. The queue of claims matches an unbound claim with an Available volume, finishes what an earlier
//! sync or another writer began, asks a provisioner for a volume if nothing matches, and declares a bound claim Lost if
//! its volume is gone. The queue of volumes keeps the phase of a volume, releases a volume whose claim is gone, and
//! reclaims it as its policy says: Retain keeps it, Delete leaves it to its external driver, Recycle scrubs it in a pod.
//! Everything is read again after every `--pvclaimbinder-sync-period`.
//!
//! Every write is a PUT of the whole object with the resourceVersion that the decision is based on. A volume is released,
//! and a claim is declared Lost, only for what the API server says at that moment, not for what a cache says. Data is
//! destroyed only after the volume and its claim were read again.
//!
//! Parity: pkg/controller/volume/persistentvolume.

mod bind;
mod claims;
mod gauges;
mod host_path;
mod live;
mod matching;
mod metrics;
mod migration;
mod names;
mod operations;
mod provision;
mod reclaim;
mod recycle;
#[cfg(test)]
mod tests;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodParts, StorageClass};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, View};
use serde_json::Value;

use crate::pods_by_claim::BY_CLAIM;

pub(crate) use metrics::STORAGE_OPERATION_SECONDS;

pub use host_path::HostFiles;
pub use judged::choose_volume;

/// Options of the binder.
#[derive(Clone)]
pub struct PersistentVolumeBinderOptions {
    /// How often all claims and volumes are synced (`--pvclaimbinder-sync-period`).
    pub sync_period: Duration,
    /// Whether provisioners are asked for volumes (`--enable-dynamic-provisioning`).
    pub enable_dynamic_provisioning: bool,
    /// Whether directories of the controller's host are provisioned (`--enable-hostpath-provisioner`).
    pub enable_hostpath_provisioner: bool,
    /// The recycler pods (`--pv-recycler-*`).
    pub recycler: RecyclerOptions,
    /// The file system of the controller's host; without it host-path volumes are neither provisioned nor deleted.
    pub host_files: Option<Arc<dyn HostFiles>>,
}

/// The recycler pods of the two kinds of volumes that have them.
#[derive(Clone, Debug, PartialEq)]
pub struct RecyclerOptions {
    /// Of host-path volumes.
    pub host_path: RecyclerPodOptions,
    /// Of NFS volumes.
    pub nfs: RecyclerPodOptions,
}

/// The recycler pod of one kind of volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct RecyclerPodOptions {
    /// The pod of the template file; a built-in pod if there is none.
    pub template: Option<Value>,
    /// The least number of seconds that a pod may run.
    pub minimum_seconds: i32,
    /// The number of seconds that are added for each GiB.
    pub increment_seconds: i32,
}

impl Default for PersistentVolumeBinderOptions {
    fn default() -> Self {
        let pod =
            |minimum_seconds| RecyclerPodOptions { template: None, minimum_seconds, increment_seconds: 30 };
        Self {
            sync_period: Duration::from_secs(15),
            enable_dynamic_provisioning: true,
            enable_hostpath_provisioner: false,
            recycler: RecyclerOptions { host_path: pod(60), nfs: pod(300) },
            host_files: None,
        }
    }
}

/// The queue of claims.
const CLAIMS_QUEUE: &str = "claims";
/// The queue of volumes.
const VOLUMES_QUEUE: &str = "volumes";

/// What both queues share.
#[derive(Clone)]
struct Binder {
    options: PersistentVolumeBinderOptions,
    operations: operations::Operations,
    gauges: gauges::Gauges,
}

/// Why a change of a class, a node or a pod enqueues no claim and no volume.
const RESYNCED: &str = "all claims and volumes are resynced every 15 s by default";

/// Builds the controller.
#[must_use]
pub fn controller(options: &PersistentVolumeBinderOptions) -> Controller {
    let binder = Binder {
        options: options.clone(),
        operations: operations::Operations::default(),
        gauges: gauges::Gauges::default(),
    };
    // Both queues wait for all five caches.
    let with_caches = |a_loop: Loop| {
        a_loop
            .reads_unwatched::<StorageClass>(RESYNCED)
            .reads_unwatched::<Node>(RESYNCED)
            .reads_index(BY_CLAIM)
            .reads_pod_parts(PodParts::VOLUME_CLAIMS)
            .resync_every(options.sync_period)
    };
    let claims = Loop::reconciling(CLAIMS_QUEUE, claims::ClaimReconciler(binder.clone()))
        .keyed_by::<PersistentVolumeClaim>()
        .enqueue_on::<PersistentVolumeClaim>(|change, _, items| items.add(&change.latest().meta.key))
        .enqueue_on::<PersistentVolume>(enqueue_claim_of_deleted_volume)
        .reads_unwatched::<Pod>(RESYNCED);
    let volumes = Loop::reconciling(VOLUMES_QUEUE, volumes::VolumeReconciler(binder))
        .keyed_by::<PersistentVolume>()
        .enqueue_on::<PersistentVolume>(|change, _, items| items.add(&change.latest().meta.key))
        .enqueue_on::<PersistentVolumeClaim>(enqueue_volume_of_deleted_claim)
        .enqueue_on::<Pod>(enqueue_volume_of_recycler_pod);
    Controller::new("persistentvolume-binder-controller")
        .service_account("persistent-volume-binder")
        .event_component("persistentvolume-controller")
        .metrics(metrics::ALL)
        .may_write(&[
            Grant { group: "", resource: "persistentvolumes", verbs: &["get", "update", "create", "delete"] },
            Grant { group: "", resource: "persistentvolumes/status", verbs: &["update"] },
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "update"] },
            Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["get", "create", "delete"] },
        ])
        .with_loop(with_caches(claims))
        .with_loop(with_caches(volumes))
}

/// A claim whose volume is gone is read at once. No other event of a volume enqueues a claim.
fn enqueue_claim_of_deleted_volume(change: &Change<PersistentVolume>, _: &View<'_>, items: &mut Effects) {
    if let (true, Some(claim)) = (change.is_deletion(), &change.latest().spec.claim_ref) {
        items.add(Key::namespaced(claim.namespace.clone(), claim.name.clone()));
    }
}

/// A volume whose claim is gone is read at once. No other event of a claim enqueues a volume.
fn enqueue_volume_of_deleted_claim(
    change: &Change<PersistentVolumeClaim>,
    _: &View<'_>,
    items: &mut Effects,
) {
    let volume = &change.latest().spec.volume_name;
    if change.is_deletion() && !volume.is_empty() {
        items.add(Key::cluster(volume.clone()));
    }
}

fn enqueue_volume_of_recycler_pod(change: &Change<Pod>, _: &View<'_>, items: &mut Effects) {
    let name = change.latest().meta.key.name.strip_prefix(recycle::POD_NAME_PREFIX);
    if let Some(volume) = name.filter(|_| !change.is_unchanged()) {
        items.add(Key::cluster(volume));
    }
}

/// The choice of a volume, for the comparison with the original.
mod judged {
    use super::*;

    /// The name of the volume that an unbound claim gets; `None` if it gets none.
    ///
    /// # Errors
    /// If the selector of the claim is invalid.
    pub fn choose_volume(
        claim: &PersistentVolumeClaim,
        volumes: &[Arc<PersistentVolume>],
        is_delayed: bool,
    ) -> Result<Option<String>, String> {
        let found =
            matching::find_best_match(claim, volumes, is_delayed).map_err(|error| error.to_string())?;
        Ok(found.map(|volume| volume.meta.key.name.to_string()))
    }
}
