//! Reports pods that use one volume with different SELinux labels or change policies.
//!
//! Two such pods cannot run on one node, because a file system is mounted with one label. The controller records events
//! on both pods and sets a gauge for each conflict; it changes no object. It does not run by default, and only a process
//! that runs it keeps the fields of pods that it reads.
//!
//! Labels come from the pods alone. Fields that a pod leaves to the operating system of its node are not known here.
//!
//! Parity: pkg/controller/volume/selinuxwarning.

mod table;
#[cfg(test)]
mod tests;
mod unique_name;
mod volumes;

use keleustes_objects::{CsiDriver, Key, PersistentVolume, PersistentVolumeClaim, Pod, PodParts};
use keleustes_plan::{
    Change, Controller, Effects, Grant, InvolvedObject, Loop, Memory, Metric, Plan, PlannedEvent, View,
};

use table::{Conflict, SeriesChange, Table};

use crate::pods_by_claim::{BY_CLAIM, pods_of_claim};

const QUEUE: &str = "selinux_warning";

static CONFLICT: Metric = Metric::gauge(
    "selinux_warning_controller_selinux_volume_conflict",
    "Conflict between two Pods using the same volume",
    &["property", "pod1_namespace", "pod1_name", "pod1_value", "pod2_namespace", "pod2_name", "pod2_value"],
);

/// Options of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelinuxWarningOptions {
    /// Whether volumes are mounted with SELinux labels at all (gate `SELinuxMountReadWriteOncePod`). Without it no pod
    /// conflicts.
    pub mounts_with_labels: bool,
}

impl Default for SelinuxWarningOptions {
    fn default() -> Self {
        Self { mounts_with_labels: true }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: SelinuxWarningOptions) -> Controller {
    // A restart loses the table. The initial list enqueues every pod, which fills it again and repeats the events.
    let table: Memory<Table> = Memory::default();
    let tracked = table.clone();
    Controller::new("selinux-warning-controller")
        .service_account("selinux-warning-controller")
        .event_component("selinux_warning")
        .metrics([&CONFLICT])
        .may_write(&[
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
            Grant { group: "events.k8s.io", resource: "events", verbs: &["create", "patch", "update"] },
            Grant { group: "", resource: "persistentvolumes", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
            Grant { group: "storage.k8s.io", resource: "csidrivers", verbs: &["get", "list", "watch"] },
        ])
        .with_loop(
            Loop::deciding(QUEUE, move |view, item| decide(view, item, options, &table))
                .keyed_by::<Pod>()
                .reads_index(BY_CLAIM)
                .reads_pod_parts(PodParts::SELINUX.and(PodParts::VOLUME_CLAIMS))
                .enqueue_on::<Pod>(pod_changed)
                .enqueue_on::<PersistentVolumeClaim>(claim_changed)
                .enqueue_on::<PersistentVolume>(volume_changed)
                .enqueue_on::<CsiDriver>(move |change, _, enqueue| driver_changed(change, &tracked, enqueue)),
        )
}

/// Enqueues pods that are new, gone or finished. Nothing else that is read of a pod ever changes.
fn pod_changed(change: &Change<Pod>, _: &View<'_>, enqueue: &mut Effects) {
    if let (Some(old), Some(new)) = (change.old(), change.new()) {
        let has_ended = old.phase != new.phase && new.phase.is_terminal();
        // A relist may show a new pod of the same name as an update.
        if !has_ended && old.meta.uid == new.meta.uid {
            return;
        }
    }
    enqueue.add(&change.latest().meta.key);
}

/// Enqueues the pods of a claim that names a volume now.
fn claim_changed(change: &Change<PersistentVolumeClaim>, view: &View<'_>, enqueue: &mut Effects) {
    let Some(claim) = change.new() else { return };
    let before = change.old().map_or("", |old| old.spec.volume_name.as_str());
    if claim.spec.volume_name != before {
        enqueue_pods_of_claim(view, &claim.meta.key, enqueue);
    }
}

/// Enqueues the pods of the claim that a volume is bound to now.
fn volume_changed(change: &Change<PersistentVolume>, view: &View<'_>, enqueue: &mut Effects) {
    let bound_to = |volume: &PersistentVolume| {
        volume.spec.claim_ref.clone().filter(|reference| !reference.uid.is_empty())
    };
    let Some(reference) = change.new().and_then(|volume| bound_to(volume)) else { return };
    let before = change.old().and_then(|volume| bound_to(volume));
    if before.is_none_or(|before| before.uid != reference.uid) {
        let claim = Key::namespaced(reference.namespace, reference.name);
        enqueue_pods_of_claim(view, &claim, enqueue);
    }
}

fn enqueue_pods_of_claim(view: &View<'_>, claim: &Key, enqueue: &mut Effects) {
    pods_of_claim(view, claim).for_each(|pod| enqueue.add(&pod.meta.key));
}

/// Enqueues the pods with volumes of a driver that begins or ends to mount with labels.
fn driver_changed(change: &Change<CsiDriver>, table: &Memory<Table>, enqueue: &mut Effects) {
    let matters = match (change.old(), change.new()) {
        (Some(old), Some(new)) => old.se_linux_mount != new.se_linux_mount,
        (None, Some(_)) => true,
        (old, None) => old.is_some_and(|old| old.se_linux_mount),
    };
    if matters {
        let name = &change.latest().meta.key.name;
        table.with(|table| table.pods_of_driver(name)).into_iter().for_each(|pod| enqueue.add(&pod));
    }
}

fn decide(view: &View<'_>, item: &Key, options: SelinuxWarningOptions, table: &Memory<Table>) -> Plan {
    let Some(pod) = view.get::<Pod>(item).filter(|pod| !pod.is_terminal()) else {
        let mut plan = Plan::none();
        measure(&mut plan, table.with(|table| table.remove_pod(item)));
        return plan;
    };
    let (uses, problems) = volumes::of_pod(view, pod, options);
    let mut plan = match aggregate(&problems) {
        Some(message) => Plan::error(message),
        None => Plan::none(),
    };
    for volume in problems.iter().filter_map(|problem| problem.mounted_twice.as_ref()) {
        let message =
            format!("Volume {:?} is mounted twice with different SELinux labels inside this pod", &**volume);
        plan.record(PlannedEvent::warning(InvolvedObject::of(&**pod), "MultipleSELinuxLabels", message));
    }
    for (name, usage) in uses {
        let (conflicts, series) = table.with(|table| table.add(&name, item, usage));
        measure(&mut plan, series);
        report(view, &mut plan, &conflicts);
    }
    plan
}

/// Records an event for each conflict of a volume, until one of the pods is gone: that has resolved a conflict.
fn report(view: &View<'_>, plan: &mut Plan, conflicts: &[Conflict]) {
    for conflict in conflicts {
        let Some(pod) = view.get::<Pod>(&conflict.pod) else { return };
        plan.record(PlannedEvent::normal(
            InvolvedObject::of(&**pod),
            conflict.property.event_reason(),
            conflict.message(),
        ));
    }
}

fn measure(plan: &mut Plan, changes: Vec<SeriesChange>) {
    for SeriesChange { conflict, exists } in changes {
        let labels = [
            conflict.property.name(),
            &conflict.pod.namespace,
            &conflict.pod.name,
            &conflict.value,
            &conflict.other_pod.namespace,
            &conflict.other_pod.name,
            &conflict.other_value,
        ];
        plan.measure(if exists { CONFLICT.measurement(&labels, 1.0) } else { CONFLICT.removal(&labels) });
    }
}

/// One message for all problems, as apimachinery's aggregated errors have it.
fn aggregate(problems: &[volumes::Problem]) -> Option<String> {
    match problems {
        [] => None,
        [one] => Some(one.message.clone()),
        several => {
            let messages: Vec<_> = several.iter().map(|problem| problem.message.as_str()).collect();
            Some(format!("[{}]", messages.join(", ")))
        }
    }
}
