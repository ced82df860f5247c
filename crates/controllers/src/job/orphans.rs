//! Lets go of pods that no Job will ever count: whose Job is gone or over, or that belong to nobody.

use keleustes_objects::{ArcStr, InternedStr, Job, Key, Kind as _, LabelSelector, Pod};
use keleustes_plan::{Change, Enqueue, Item, Plan, View};

use super::{has_tracking_finalizer, is_managed_externally, tracking};
use crate::workloads::owners::resolve;

/// The fact of an item that stands for all pods a selector selects.
const SELECTOR: &str = "selector";

pub(super) fn job_changed(change: &Change<Job>, _: &View<'_>, wakes: &mut Enqueue) {
    let (before, job) = (change.old(), change.latest());
    let gone = before.filter(|before| change.is_deletion() || before.meta.uid != job.meta.uid);
    let over = Some(job).filter(|job| before.is_some() && job.is_finished());
    let Some(selector) = gone.or(over).and_then(|job| job.spec.selector.as_ref()) else { return };
    // A selector that was read can be written.
    let Ok(text) = serde_json::to_string(selector) else { return };
    let all = Key { namespace: job.meta.key.namespace.clone(), name: ArcStr::default() };
    wakes.add(Item::from(all).with_attribute(SELECTOR, text));
}

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Enqueue) {
    let pod = change.latest();
    if change.is_resync() || !has_tracking_finalizer(pod) {
        return;
    }
    let is_alone = match pod.meta.controller_ref() {
        None => true,
        Some(_) if !change.is_deletion() && !pod.is_terminating() => false,
        Some(owner) => {
            resolve::<Job>(view, &pod.meta.key.namespace, owner).is_none_or(|job| job.is_finished())
        }
    };
    if is_alone {
        wakes.add(&pod.meta.key);
    }
}

/// Takes the finalizer off one pod, or off all that a selector selects.
pub(super) fn decide(view: &View<'_>, item: &Item) -> Plan {
    let mut plan = Plan::none();
    let release = |pod: &Pod| tracking::release(pod, "no Job will count it");
    let writes = match item.attribute(SELECTOR) {
        "" => view
            .get::<Pod>(item)
            .filter(|pod| is_orphan(view, pod))
            .map(|pod| release(pod))
            .into_iter()
            .collect(),
        text => {
            let selector = serde_json::from_str::<LabelSelector>(text).ok();
            let Some(selector) = selector.and_then(|selector| selector.matcher().ok()) else { return plan };
            let pods = view.in_namespace::<Pod>(&item.key.namespace);
            let orphans = pods.filter(|pod| selector.matches(&pod.meta.labels) && is_orphan(view, pod));
            orphans.map(|pod| release(pod)).collect()
        }
    };
    plan.push_parallel(writes);
    plan
}

/// Whether a pod waits for a Job that will not count it. An owner that does not manage it protects nobody.
fn is_orphan(view: &View<'_>, pod: &Pod) -> bool {
    let is_alone = pod.meta.controller_ref().is_none_or(|owner| {
        let namespace: &InternedStr = &pod.meta.key.namespace;
        let is_job = owner.kind == *Job::RESOURCE.kind && owner.api_version == *Job::RESOURCE.api_version();
        let job = resolve::<Job>(view, namespace, owner);
        is_job && job.is_none_or(|job| job.is_finished() && !is_managed_externally(job))
    });
    has_tracking_finalizer(pod) && is_alone
}
