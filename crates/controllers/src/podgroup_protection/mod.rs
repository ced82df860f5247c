//! Keeps the protection finalizer on deleted PodGroups until no active pod refers to them.
//!
//! The API server's admission plugin `PodGroupProtection` sets the finalizer on every new PodGroup; this controller only
//! removes it. A pod is active in every phase other than `Succeeded` and `Failed`, also while it is being deleted. Pods
//! refer to a PodGroup by namespace and name.
//!
//! The controller runs with the feature gate `GenericWorkload`, which is off by default. An API server that does not serve
//! PodGroups only keeps this controller from starting.
//!
//! Parity: pkg/controller/scheduling/podgroupprotection.

#[cfg(test)]
mod tests;

use keleustes_objects::{Key, Pod, PodGroup, PodParts};
use keleustes_plan::{Change, Controller, Effects, Grant, Index, Loop, Plan, View};

use crate::protection::{is_deletion_candidate, remove_finalizer};
use crate::resourceclaim::indexes::{value, value_of};

/// The finalizer.
pub const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Options of the PodGroup protection controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupProtectionOptions {
    /// The feature gate `GenericWorkload`.
    pub enable_generic_workload: bool,
}

/// Pods that are neither succeeded nor failed, by their PodGroup.
const ACTIVE_PODS_BY_POD_GROUP: Index<Pod> = Index {
    name: "active-pod-group",
    values: |pod, emit| {
        if !pod.is_terminal() && !pod.spec.pod_group_name().is_empty() {
            emit(value(&pod.meta.key.namespace, pod.spec.pod_group_name()));
        }
    },
};

/// Builds the controller, if its feature gate is enabled.
#[must_use]
pub fn controller_if_enabled(options: PodGroupProtectionOptions) -> Option<Controller> {
    options.enable_generic_workload.then(controller)
}

fn controller() -> Controller {
    Controller::new("podgroup-protection-controller")
        .service_account("podgroup-protection-controller")
        .may_write(&[
            Grant {
                group: "scheduling.k8s.io",
                resource: "podgroups",
                verbs: &["get", "list", "watch", "update"],
            },
            Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
        ])
        .with_loop(
            Loop::deciding("podgroupprotection", decide)
                .keyed_by::<PodGroup>()
                .enqueue_on::<PodGroup>(pod_group_changed)
                .enqueue_on::<Pod>(pod_changed)
                .reads_pod_parts(PodParts::POD_GROUP)
                .reads_index(ACTIVE_PODS_BY_POD_GROUP),
        )
}

fn pod_group_changed(change: &Change<PodGroup>, _: &View<'_>, enqueue: &mut Effects) {
    let Some(group) = change.new() else { return };
    if is_deletion_candidate(&group.meta, FINALIZER) {
        enqueue.add(&group.meta.key);
    }
}

fn pod_changed(change: &Change<Pod>, _: &View<'_>, enqueue: &mut Effects) {
    let pod = change.latest();
    if change.is_deletion() || pod.is_terminal() {
        enqueue_pod_group(pod, enqueue);
    }
    // The deletion of a pod and the creation of another with its name may arrive as one update.
    if let Some(old) = change.old().filter(|old| old.meta.uid != pod.meta.uid) {
        enqueue_pod_group(old, enqueue);
    }
}

fn enqueue_pod_group(pod: &Pod, enqueue: &mut Effects) {
    if !pod.spec.pod_group_name().is_empty() {
        let namespace = pod.meta.key.namespace.clone();
        enqueue.add(Key { namespace, name: (&**pod.spec.pod_group_name()).into() });
    }
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(group) = view.get::<PodGroup>(item) else { return Plan::none() };
    if !is_deletion_candidate(&group.meta, FINALIZER) {
        return Plan::none();
    }
    let mut active = view.store::<Pod>().by_index(&ACTIVE_PODS_BY_POD_GROUP, &value_of(&group.meta.key));
    if active.next().is_some() {
        return Plan::none();
    }
    let removal = remove_finalizer(&**group, FINALIZER, |_| false);
    Plan::of(removal.because("the PodGroup is deleted and no active pod refers to it"))
}
