//! Removes the tracking finalizer from pods that no Job will count: the Job is deleted or finished, or the
//! pod has no controllerRef, or it is terminating and another workload has adopted it.

use keleustes_objects::{ArcStr, InternedStr, Job, Key, Kind as _, LabelSelector, Pod};
use keleustes_plan::{Change, Effects, Item, Plan, View};

use super::{JobOptions, has_tracking_finalizer, tracking};
use crate::workloads::owners::resolve;

/// The attribute of an item that stands for all pods that match a selector.
const SELECTOR: &str = "selector";

pub(super) fn job_changed(change: &Change<Job>, _: &View<'_>, queue: &mut Effects) {
    let (old, job) = (change.old(), change.latest());
    let deleted = old.filter(|old| change.is_deletion() || old.meta.uid != job.meta.uid);
    let finished = Some(job).filter(|job| old.is_some() && job.is_finished());
    let Some(selector) = deleted.or(finished).and_then(|job| job.spec.selector.as_ref()) else { return };
    // Serializing a selector that was parsed cannot fail.
    let Ok(text) = serde_json::to_string(selector) else { return };
    let all = Key { namespace: job.meta.key.namespace.clone(), name: ArcStr::default() };
    queue.add(Item::from(all).with_attribute(SELECTOR, text));
}

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
    let pod = change.latest();
    if change.is_unchanged() || !has_tracking_finalizer(pod) {
        return;
    }
    let has_no_active_job = match pod.meta.controller_ref() {
        None => true,
        Some(_) if !change.is_deletion() && !pod.is_terminating() => false,
        Some(owner) => {
            resolve::<Job>(view, &pod.meta.key.namespace, owner).is_none_or(|job| job.is_finished())
        }
    };
    if has_no_active_job {
        queue.add(&pod.meta.key);
    }
}

/// Removes the finalizer from one pod, or from all pods that match a selector.
pub(super) fn decide(
    options: &JobOptions,
) -> impl Fn(&View<'_>, &Item) -> Plan + Send + Sync + 'static + use<> {
    let options = options.clone();
    move |view, item| remove_finalizers(view, item, &options)
}

fn remove_finalizers(view: &View<'_>, item: &Item, options: &JobOptions) -> Plan {
    let mut plan = Plan::none();
    let remove = |pod: &Pod| tracking::remove_tracking_finalizer(pod, "no Job will count the pod");
    let writes = match item.attribute(SELECTOR) {
        "" => view
            .get::<Pod>(item)
            .filter(|pod| is_orphan(view, pod, options))
            .map(|pod| remove(pod))
            .into_iter()
            .collect(),
        text => {
            let selector = serde_json::from_str::<LabelSelector>(text).ok();
            let Some(selector) = selector.and_then(|selector| selector.matcher().ok()) else { return plan };
            let pods = view.in_namespace::<Pod>(&item.key.namespace);
            let orphans =
                pods.filter(|pod| selector.matches(&pod.meta.labels) && is_orphan(view, pod, options));
            orphans.map(|pod| remove(pod)).collect()
        }
    };
    plan.push_parallel(writes);
    plan
}

/// Whether a pod has the finalizer and no Job will count it. Only the controllerRef counts, not other owner
/// references.
fn is_orphan(view: &View<'_>, pod: &Pod, options: &JobOptions) -> bool {
    let has_no_active_job = pod.meta.controller_ref().is_none_or(|owner| {
        let namespace: &InternedStr = &pod.meta.key.namespace;
        let is_job = owner.kind == *Job::RESOURCE.kind && owner.api_version == *Job::RESOURCE.api_version();
        let job = resolve::<Job>(view, namespace, owner);
        is_job && job.is_none_or(|job| job.is_finished() && !options.is_managed_externally(job))
    });
    has_tracking_finalizer(pod)
        && (has_no_active_job || pod.is_terminating() && is_controlled_by_workload(pod))
}

/// Whether a controller of this manager that is not the Job controller controls a pod. Such a controller does not
/// know the finalizer, so the pod would stay terminating for ever; a controller of a custom resource may.
fn is_controlled_by_workload(pod: &Pod) -> bool {
    const WORKLOADS: [(&str, &str); 4] = [
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("v1", "ReplicationController"),
    ];
    let is_controller = |(api_version, kind): &(&str, &str)| {
        pod.meta
            .controller_ref()
            .is_some_and(|owner| owner.api_version == **api_version && owner.kind == **kind)
    };
    WORKLOADS.iter().any(is_controller)
}
