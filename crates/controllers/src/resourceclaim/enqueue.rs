//! Which pods, PodGroups and claims a change enqueues.

use keleustes_objects::{ClaimEntry, ClaimStatus, Key, Pod, PodGroup, ResourceClaim, ResourceClaimTemplate};
use keleustes_plan::{Change, Effects, Memory, View};

use super::deleted_objects::DeletedObjects;
use super::indexes::{self, value_of};
use super::names::claim_name;
use super::work::{has_claims, is_done, pod_group_needs_work, pod_needs_work};
use super::{ClaimItem, ResourceClaimOptions};

/// Whether an object still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Present,
    Deleted,
}

/// Enqueues items on changes.
#[derive(Clone)]
pub(super) struct Enqueuer {
    pub(super) options: ResourceClaimOptions,
    pub(super) deleted: Memory<DeletedObjects>,
}

impl Enqueuer {
    pub(super) fn pod_changed(&self, change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
        if let Some(replaced) =
            change.old().filter(|old| change.new().is_some_and(|new| new.meta.uid != old.meta.uid))
        {
            self.enqueue_pod(replaced, State::Deleted, view, queue);
        }
        let state = if change.is_deletion() { State::Deleted } else { State::Present };
        self.enqueue_pod(change.latest(), state, view, queue);
    }

    /// Enqueues the claims that a pod no longer needs, and the pod if it has work left.
    fn enqueue_pod(&self, pod: &Pod, state: State, view: &View<'_>, queue: &mut Effects) {
        if !has_claims(pod) {
            return;
        }
        if state == State::Deleted {
            self.deleted.with(|deleted| deleted.add(&pod.meta.uid));
        }
        let key = &pod.meta.key;
        if state == State::Deleted || is_done(pod) {
            enqueue_claims(key, pod.spec.resource_claims(), pod.resource_claim_statuses(), queue);
            if let Some(name) = pod.extended_resource_claim() {
                queue.add(ClaimItem::Claim(Key { namespace: key.namespace.clone(), name: name.clone() }));
            }
        }
        if pod_needs_work(view, pod, &self.options) {
            queue.add(ClaimItem::Pod(key.clone()));
        }
    }

    pub(super) fn claim_changed(&self, change: &Change<ResourceClaim>, view: &View<'_>, queue: &mut Effects) {
        let key = &change.latest().meta.key;
        if !change.is_deletion() {
            // At start, every claim is reconciled once: its consumers may have gone while no controller ran.
            queue.add(ClaimItem::Claim(key.clone()));
        }
        for pod in view.store::<Pod>().by_index(&indexes::PODS_BY_CLAIM, &value_of(key)) {
            self.enqueue_pod(pod, State::Present, view, queue);
        }
        if self.options.enable_workload_claims {
            for group in view.store::<PodGroup>().by_index(&indexes::POD_GROUPS_BY_CLAIM, &value_of(key)) {
                self.enqueue_pod_group(group, State::Present, view, queue);
            }
        }
    }

    pub(super) fn template_changed(
        &self,
        change: &Change<ResourceClaimTemplate>,
        view: &View<'_>,
        queue: &mut Effects,
    ) {
        let Some(template) = change.new() else { return };
        let value = value_of(&template.meta.key);
        for pod in view.store::<Pod>().by_index(&indexes::PODS_BY_TEMPLATE, &value) {
            self.enqueue_pod(pod, State::Present, view, queue);
        }
        if self.options.enable_workload_claims {
            for group in view.store::<PodGroup>().by_index(&indexes::POD_GROUPS_BY_TEMPLATE, &value) {
                self.enqueue_pod_group(group, State::Present, view, queue);
            }
        }
    }

    pub(super) fn pod_group_changed(&self, change: &Change<PodGroup>, view: &View<'_>, queue: &mut Effects) {
        if let Some(replaced) =
            change.old().filter(|old| change.new().is_some_and(|new| new.meta.uid != old.meta.uid))
        {
            self.enqueue_pod_group(replaced, State::Deleted, view, queue);
        }
        let state = if change.is_deletion() { State::Deleted } else { State::Present };
        self.enqueue_pod_group(change.latest(), state, view, queue);
    }

    /// Enqueues the claims of a deleted PodGroup, the PodGroup if it has work left, and its pods, which take over the
    /// names of its claims.
    fn enqueue_pod_group(&self, group: &PodGroup, state: State, view: &View<'_>, queue: &mut Effects) {
        if group.resource_claims.is_empty() {
            return;
        }
        let key = &group.meta.key;
        if state == State::Deleted {
            self.deleted.with(|deleted| deleted.add(&group.meta.uid));
            enqueue_claims(key, &group.resource_claims, &group.resource_claim_statuses, queue);
        }
        if pod_group_needs_work(view, group) {
            queue.add(ClaimItem::PodGroup(key.clone()));
        }
        for pod in view.store::<Pod>().by_index(&indexes::PODS_BY_POD_GROUP, &value_of(key)) {
            self.enqueue_pod(pod, State::Present, view, queue);
        }
    }
}

fn enqueue_claims(owner: &Key, entries: &[ClaimEntry], statuses: &[ClaimStatus], queue: &mut Effects) {
    for named in entries.iter().filter_map(|entry| claim_name(entry, statuses).ok()?) {
        queue.add(ClaimItem::Claim(Key { namespace: owner.namespace.clone(), name: named.name.into() }));
    }
}
