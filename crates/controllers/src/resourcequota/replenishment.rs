//! Replenishment: which changes of objects make a quota be recomputed, and which quotas.

use std::time::Duration;

use keleustes_objects::quota::{Evaluator, is_charged, is_terminating, reported_resources_changed};
use keleustes_objects::{ArcStr, InternedStr, Key, Kind, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use keleustes_plan::{
    Change, Context, Effects, Memory, QueueItem, ReconcileError, Reconciler, Requeue, View,
};

use super::{MonitoredObjects, PRIMARY, device_classes};

/// What makes quotas be recomputed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    /// Enough time has passed: all quotas.
    Period,
    /// Objects of a resource in a namespace were deleted or use less.
    Change(ChangedResource),
}

/// A resource of which objects in a namespace were deleted or use less.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangedResource {
    namespace: InternedStr,
    plural: ArcStr,
    group: ArcStr,
}

impl Trigger {
    pub(super) fn change(namespace: &InternedStr, group: &str, plural: &str) -> Self {
        let (plural, group) = (plural.into(), group.into());
        Self::Change(ChangedResource { namespace: namespace.clone(), plural, group })
    }
}

impl QueueItem for Trigger {
    fn text(&self) -> String {
        match self {
            Self::Period => "all quotas".to_owned(),
            Self::Change(ChangedResource { namespace, plural, group }) => {
                format!("{namespace}/{plural} group={group}")
            }
        }
    }
}

/// Enqueues the quotas that limit a changed resource.
pub(super) struct Replenishment {
    pub(super) monitored: Memory<MonitoredObjects>,
    pub(super) sync_period: Duration,
}

impl Reconciler<Trigger> for Replenishment {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Trigger) -> Result<Requeue, ReconcileError> {
        let (keys, requeue) = cx.gather(|view| match item {
            Trigger::Period => (all_keys(view), Requeue::after(self.sync_period, "the next full resync")),
            Trigger::Change(resource) => (self.affected_quotas(view, resource), Requeue::Forget),
        });
        let mut effects = Effects::default();
        keys.iter().for_each(|key| effects.enqueue(PRIMARY, key));
        cx.effects(effects);
        Ok(requeue)
    }
}

impl Replenishment {
    /// The quotas of the namespace whose published limits name something that the resource is charged to.
    fn affected_quotas(&self, view: &View<'_>, changed: &ChangedResource) -> Vec<Key> {
        let ChangedResource { namespace, plural, group } = changed;
        let classes = device_classes(view);
        let evaluator = Evaluator::of(group, plural);
        self.monitored.with(|monitored| {
            let is_charged = |name: &str| match evaluator {
                Some(evaluator) => evaluator.matches(name, &classes),
                None => monitored.counts_resource(group, plural, name),
            };
            let limits = |quota: &ResourceQuota| {
                quota.status.hard.iter().any(|hard| hard.names().any(|name| is_charged(name)))
            };
            let quotas = view.in_namespace::<ResourceQuota>(namespace);
            quotas.filter(|quota| limits(quota)).map(|quota| quota.meta.key.clone()).collect()
        })
    }
}

fn all_keys(view: &View<'_>) -> Vec<Key> {
    view.all::<ResourceQuota>().map(|quota| quota.meta.key.clone()).collect()
}

/// Whether an object was deleted, or deleted and recreated.
pub(super) fn by_deletion<T: Kind>(change: &Change<T>) -> bool {
    let uid = |object: &T| object.meta().uid.clone();
    let was_replaced = |new: &T| change.old().is_some_and(|old| uid(old) != uid(new));
    change.new().is_none_or(|new| was_replaced(new))
}

/// Whether a change of a pod may lower its usage: it is gone, its containers have other resources, its scope changed, or
/// it is no longer charged. A change of what it wants has been charged by admission.
pub(super) fn by_pod(change: &Change<Pod>, view: &View<'_>) -> bool {
    let updated = change.old().zip(change.new()).filter(|_| !change.is_unchanged());
    let now = view.now().wall_nanoseconds();
    by_deletion(change)
        || updated.is_some_and(|(old, new)| {
            reported_resources_changed(old, new)
                || is_terminating(old) != is_terminating(new)
                || is_charged(old, now) && !is_charged(new, now)
        })
}

/// Whether a Service was deleted or changed between node ports, a load balancer and all other types.
pub(super) fn by_service(change: &Change<Service>) -> bool {
    let charged_type = |service: &Service| {
        ["NodePort", "LoadBalancer"].into_iter().find(|charged| service.service_type == *charged)
    };
    let updated = change.old().zip(change.new());
    by_deletion(change) || updated.is_some_and(|(old, new)| charged_type(old) != charged_type(new))
}

/// Whether a PersistentVolumeClaim was deleted or updated. Every update counts, even a resync.
///
/// Parity: the original compares the addresses of two copies of the allocated storage.
pub(super) fn by_volume_claim(change: &Change<PersistentVolumeClaim>) -> bool {
    change.old().is_some()
}
