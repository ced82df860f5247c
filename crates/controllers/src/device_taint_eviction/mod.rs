//! Deletes pods that use a device with a `NoExecute` taint that their claim does not tolerate, and reports on each DeviceTaintRule.
//!
//! Taints come from ResourceSlices and from DeviceTaintRules. The queue has two kinds of items. A pod's item decides from the
//! caches whether and when the pod is to be evicted, waits until then and deletes it. A rule's item writes the condition
//! `EvictionInProgress`: how many pods are still to be evicted, or would be.
//!
//! A change reaches the pods that it concerns through indexes: from a device to the claims that hold it and to the rules that
//! taint it, from a selector to the devices that it selects, from a claim to the pods that it is reserved for. No pass over all
//! devices, claims, rules or pods is made, except for a rule that selects all devices. A pass over the slices of a pool is made
//! only when its current generation changes, which is remembered, and to count the devices of a rule with the effect `None`.
//!
//! Parity: pkg/controller/devicetainteviction.

mod enqueue;
mod evict;
mod indexes;
mod memory;
mod pods;
mod pools;
mod rule;
mod taints;

use keleustes_objects::{
    DeviceClass, DeviceTaintRule, Key, Pod, PodParts, ResourceClaim, ResourceSlice, Uid,
};
use keleustes_plan::{
    Buckets, Context, Controller, Grant, Loop, Memory, Metric, QueueItem, ReconcileError, Reconciler, Requeue,
};

use enqueue::Enqueuer;
use memory::EvictionMemory;

/// Options of the device taint eviction controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTaintEvictionOptions {
    /// The number of workers.
    pub workers: usize,
    /// The feature gate `DRADeviceTaintRules`.
    pub enable_rules: bool,
    /// The feature gate `DRAWorkloadResourceClaims`: a claim may be reserved for a PodGroup.
    pub enable_workload_claims: bool,
}

impl Default for DeviceTaintEvictionOptions {
    fn default() -> Self {
        Self { workers: 8, enable_rules: true, enable_workload_claims: false }
    }
}

const NAME: &str = "device-taint-eviction-controller";

static DELETED: Metric = Metric::counter(
    "device_taint_eviction_controller_pod_deletions_total",
    "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
    &[],
);
static DELETION_DURATION: Metric = Metric::histogram(
    "device_taint_eviction_controller_pod_deletion_duration_seconds",
    "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.",
    &[],
    Buckets::Explicit(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]),
);

/// Builds the controller.
#[must_use]
pub fn controller(options: &DeviceTaintEvictionOptions) -> Controller {
    Controller::new(NAME)
        .service_account(NAME)
        .event_component(NAME)
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete", "get", "list", "watch"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch", "update"] },
            Grant {
                group: "resource.k8s.io",
                resource: "devicetaintrules/status",
                verbs: &["patch", "update"],
            },
        ])
        .metrics([&DELETED, &DELETION_DURATION])
        .with_loop(the_loop(*options))
}

fn the_loop(options: DeviceTaintEvictionOptions) -> Loop {
    let memory = Memory::<EvictionMemory>::default();
    let enqueuer = Enqueuer { options, memory: memory.clone() };
    let (of_pods, of_claims, of_slices, of_rules) =
        (enqueuer.clone(), enqueuer.clone(), enqueuer.clone(), enqueuer);
    let mut the_loop = Loop::reconciling(NAME, EvictionReconciler { options, memory })
        .workers(options.workers)
        .enqueue_on::<Pod>(move |change, _, queue| of_pods.pod_changed(change, queue))
        .enqueue_on::<ResourceClaim>(move |change, view, queue| of_claims.claim_changed(change, view, queue))
        .enqueue_on::<ResourceSlice>(move |change, view, queue| of_slices.slice_changed(change, view, queue))
        .reads_unwatched::<DeviceClass>("its cache is only waited for, as in the original")
        .reads_pod_parts(PodParts::RESOURCE_CLAIMS)
        .reads_index(indexes::CLAIMS_BY_DEVICE)
        .reads_index(indexes::SLICES_BY_POOL)
        .reads_index(indexes::SLICES_BY_TAINTED_DEVICE);
    if options.enable_rules {
        the_loop = the_loop
            .enqueue_on::<DeviceTaintRule>(move |change, view, queue| {
                of_rules.rule_changed(change, view, queue);
            })
            .reads_index(indexes::RULES_BY_SELECTOR);
    }
    if options.enable_workload_claims {
        the_loop = the_loop
            .reads_pod_parts(PodParts::POD_GROUP)
            .reads_index(crate::resourceclaim::indexes::PODS_BY_POD_GROUP);
    }
    the_loop
}

/// A queue item: an object with its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionItem {
    Pod(Key, Uid),
    Rule(Key, Uid),
}

impl QueueItem for EvictionItem {
    fn key(&self) -> Key {
        let (Self::Pod(key, _) | Self::Rule(key, _)) = self;
        key.clone()
    }

    fn text(&self) -> String {
        match self {
            Self::Pod(key, uid) => format!("{key} kind=pod uid={uid}"),
            Self::Rule(key, uid) => format!("{key} kind=rule uid={uid}"),
        }
    }
}

struct EvictionReconciler {
    options: DeviceTaintEvictionOptions,
    memory: Memory<EvictionMemory>,
}

impl Reconciler<EvictionItem> for EvictionReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &EvictionItem) -> Result<Requeue, ReconcileError> {
        match item {
            EvictionItem::Pod(key, uid) => evict::reconcile(&self.options, &self.memory, cx, key, uid).await,
            EvictionItem::Rule(key, uid) => rule::reconcile(&self.options, &self.memory, cx, key, uid).await,
        }
    }
}

#[cfg(test)]
mod tests;
