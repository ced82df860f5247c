//! Removes the tracking finalizer from pods that no Job will count: the Job is deleted or finished, or the
//! pod has no controllerRef, or it is terminating and another workload has adopted it.

use keleustes_objects::{ArcStr, InternedStr, Job, Key, Kind as _, LabelSelector, Pod};
use keleustes_plan::{Change, Effects, ObjectOr, Plan, QueueItem, View};

use super::{JobOptions, has_tracking_finalizer, tracking};
use crate::workloads::owners::resolve;

/// The queue item for all pods of a namespace that match a selector, which is JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectedPods {
    pub(super) namespace: InternedStr,
    pub(super) selector: String,
}

impl QueueItem for SelectedPods {
    fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: ArcStr::default() }
    }

    fn text(&self) -> String {
        format!("{}/ selector={}", self.namespace, self.selector)
    }
}

pub(super) fn job_changed(change: &Change<Job>, _: &View<'_>, queue: &mut Effects) {
    let (old, job) = (change.old(), change.latest());
    let deleted = old.filter(|old| change.is_deletion() || old.meta.uid != job.meta.uid);
    let finished = Some(job).filter(|job| old.is_some() && job.is_finished());
    let Some(selector) = deleted.or(finished).and_then(|job| job.spec.selector.as_ref()) else { return };
    // Serializing a selector that was parsed cannot fail.
    let Ok(selector) = serde_json::to_string(selector) else { return };
    queue.add(SelectedPods { namespace: job.meta.key.namespace.clone(), selector });
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
pub(super) fn decide(view: &View<'_>, item: &ObjectOr<SelectedPods>, options: &JobOptions) -> Plan {
    let pods: Vec<_> = match item {
        ObjectOr::Object(pod) => view.get::<Pod>(pod).into_iter().collect(),
        ObjectOr::Other(SelectedPods { namespace, selector }) => {
            let selector =
                serde_json::from_str(selector).ok().and_then(|it: LabelSelector| it.matcher().ok());
            let is_selected = |pod: &Pod| selector.as_ref().is_some_and(|it| it.matches(&pod.meta.labels));
            view.in_namespace::<Pod>(namespace).filter(|pod| is_selected(pod)).collect()
        }
    };
    let orphans = pods.into_iter().filter(|pod| is_orphan(view, pod, options));
    let remove = |pod| tracking::remove_tracking_finalizer(pod, "no Job will count the pod");
    let mut plan = Plan::none();
    plan.push_parallel(orphans.map(|pod| remove(pod)).collect());
    plan
}

/// Whether a pod has the finalizer and no Job will count it. Only the controllerRef counts, not other owner
/// references.
fn is_orphan(view: &View<'_>, pod: &Pod, options: &JobOptions) -> bool {
    let has_no_active_job = pod.meta.controller_ref().is_none_or(|owner| {
        let is_job = owner.kind == *Job::RESOURCE.kind && owner.api_version == *Job::RESOURCE.api_version();
        let job = resolve::<Job>(view, &pod.meta.key.namespace, owner);
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
