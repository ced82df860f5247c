//! Keeps `status.hard` of a ResourceQuota equal to its spec, and `status.used` equal to what the objects of its namespace
//! use.
//!
//! The API server's admission adds to `status.used` when objects are created; this controller recomputes it from the
//! caches when objects are deleted or use less (*replenishment*), when the limits change, and every five minutes. Pods,
//! Services, PersistentVolumeClaims and ResourceClaims have evaluators of their own; the objects of every other
//! namespaced resource, custom resources included, are counted through the monitors that this controller shares with
//! the garbage collector.
//!
//! A quota whose usage is missing goes through a queue of its own, because nothing is admitted to its namespace until
//! it is known. Deletions and relevant updates go through the queue of resource changes, which enqueues the quotas that
//! limit the changed resource.
//!
//! The counts are in-memory state and are lost on failover; the monitors of a new leader count from their own lists.
//!
//! Parity: pkg/controller/resourcequota.

mod monitored_objects;
mod reconcile;
mod replenishment;
mod usage;

use std::time::Duration;

use keleustes_objects::quota::{DeviceClasses, Evaluator};
use keleustes_objects::{
    DeviceClass, PersistentVolumeClaim, Pod, PodParts, ResourceClaim, ResourceQuota, Service,
};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Memory, View};

use self::monitored_objects::{MonitoredObjects, ObjectCounter};
use self::reconcile::SyncQuota;
use self::replenishment::{Replenishment, Trigger};

/// Options of the resourcequota controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceQuotaOptions {
    /// Workers of each of the two queues of quotas (`--concurrent-resource-quota-syncs`).
    pub workers: usize,
    /// The interval of full recalculation (`--resource-quota-sync-period`); zero switches it off.
    pub sync_period: Duration,
    /// The feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
}

impl Default for ResourceQuotaOptions {
    fn default() -> Self {
        Self { workers: 5, sync_period: Duration::from_secs(300), pod_level_resources: true }
    }
}

const NAME: &str = "resourcequota-controller";
const PRIMARY: &str = "resourcequota_primary";
const PRIORITY: &str = "resourcequota_priority";
const RESOURCE_CHANGES: &str = "resource_quota_controller_resource_changes";

/// Builds the controller.
#[must_use]
pub fn controller(options: &ResourceQuotaOptions) -> Controller {
    let monitored = Memory::<MonitoredObjects>::default();
    Controller::new(NAME)
        .service_account(NAME)
        .may_write(&[
            Grant { group: "*", resource: "*", verbs: &["list", "watch"] },
            Grant { group: "", resource: "resourcequotas/status", verbs: &["update"] },
        ])
        .observer(ObjectCounter { monitored: monitored.clone() })
        .with_loop(quota_loop(PRIMARY, options, &monitored))
        .with_loop(quota_loop(PRIORITY, options, &monitored))
        .with_loop(resource_changes_loop(options, &monitored))
}

/// One of the two queues of quotas. They do not exclude each other: if a quota is in both, the later write gets a
/// conflict and is retried.
fn quota_loop(
    queue: &'static str,
    options: &ResourceQuotaOptions,
    monitored: &Memory<MonitoredObjects>,
) -> Loop {
    let routing = monitored.clone();
    let sync = SyncQuota { monitored: monitored.clone(), pod_level_resources: options.pod_level_resources };
    reading_usage(Loop::reconciling(queue, sync))
        .reads_unwatched::<Pod>(REPLENISHED)
        .reads_unwatched::<Service>(REPLENISHED)
        .reads_unwatched::<PersistentVolumeClaim>(REPLENISHED)
        .reads_unwatched::<ResourceClaim>(REPLENISHED)
        .workers(options.workers)
        .keyed_by::<ResourceQuota>()
        .enqueue_on::<ResourceQuota>(move |change, view, items| {
            let chosen = routing.with(|monitored| queue_of(change, view, monitored));
            if chosen == Some(queue) {
                items.add(&change.latest().meta.key);
            }
        })
}

/// The queue of changed resources.
fn resource_changes_loop(options: &ResourceQuotaOptions, monitored: &Memory<MonitoredObjects>) -> Loop {
    let replenishment = Replenishment { monitored: monitored.clone(), sync_period: options.sync_period };
    let changes = reading_usage(Loop::reconciling(RESOURCE_CHANGES, replenishment))
        .reads_unwatched::<ResourceQuota>("a new or changed quota enqueues itself in its own queue")
        .enqueue_on::<Pod>(|change, view, items| {
            enqueue_if(replenishment::by_pod(change, view), Evaluator::Pods, change, view, items);
        })
        .enqueue_on::<Service>(|change, view, items| {
            enqueue_if(replenishment::by_service(change), Evaluator::Services, change, view, items);
        })
        .enqueue_on::<PersistentVolumeClaim>(|change, view, items| {
            let counts = replenishment::by_volume_claim(change);
            enqueue_if(counts, Evaluator::PersistentVolumeClaims, change, view, items);
        })
        .enqueue_on::<ResourceClaim>(|change, view, items| {
            let counts = replenishment::by_deletion(change);
            enqueue_if(counts, Evaluator::ResourceClaims, change, view, items);
        });
    if options.sync_period.is_zero() { changes } else { changes.initial_item(Trigger::Period) }
}

/// Why a change of a counted object enqueues no quota.
const REPLENISHED: &str = "the queue of changed resources enqueues the quotas of a namespace";

/// The kinds whose usage is computed from caches. An API server need not serve `resource.k8s.io`.
fn reading_usage(a_loop: Loop) -> Loop {
    a_loop
        .reads_pod_parts(PodParts::RESOURCES.and(PodParts::RESOURCE_CLAIMS))
        .reads::<Service>()
        .reads::<PersistentVolumeClaim>()
        .starts_without::<ResourceClaim>()
        .starts_without::<DeviceClass>()
        .reads_unwatched::<DeviceClass>("every quota is enqueued after each --resource-quota-sync-period")
}

/// Enqueues a changed object's resource, if the change counts and its namespace has a quota.
fn enqueue_if<T: keleustes_objects::Kind>(
    counts: bool,
    evaluator: Evaluator,
    change: &Change<T>,
    view: &View<'_>,
    items: &mut Effects,
) {
    let namespace = &change.latest().key().namespace;
    if counts && view.in_namespace::<ResourceQuota>(namespace).next().is_some() {
        let (group, plural) = evaluator.group_resource();
        items.add(Trigger::change(namespace, group, plural));
    }
}

/// The queue that a change of a quota belongs to. Updates that leave the limits as they are belong to none: the status is
/// written by this controller and by admission.
fn queue_of(
    change: &Change<ResourceQuota>,
    view: &View<'_>,
    monitored: &MonitoredObjects,
) -> Option<&'static str> {
    let Some(quota) = change.new() else { return Some(PRIMARY) };
    let is_same = |old: &ResourceQuota| {
        old.meta.uid == quota.meta.uid
            && old.spec.hard.clone().unwrap_or_default() == quota.spec.hard.clone().unwrap_or_default()
    };
    if change.old().is_some_and(|old| is_same(old)) {
        return None;
    }
    let hard = quota.status.hard.clone().unwrap_or_default();
    let used = quota.status.used.clone().unwrap_or_default();
    let classes = device_classes(view);
    let is_computable =
        |name: &str| Evaluator::ALL.iter().any(|one| one.matches(name, &classes)) || monitored.counts(name);
    let is_missing = hard.names().any(|name| used.amount(name).is_none() && is_computable(name));
    let is_unpublished = quota.spec.hard.clone().unwrap_or_default() != hard;
    Some(if is_unpublished || is_missing { PRIORITY } else { PRIMARY })
}

/// The DeviceClasses, as far as they are known.
fn device_classes(view: &View<'_>) -> DeviceClasses {
    let store = view.store_if_synced::<DeviceClass>();
    DeviceClasses::of(store.into_iter().flat_map(|store| store.all()).map(|class| &**class))
}

#[cfg(test)]
mod tests;
