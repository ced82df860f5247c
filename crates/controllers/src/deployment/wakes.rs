//! Which Deployments a change concerns: itself, the owner of a ReplicaSet, or, where all old pods must be
//! gone before new ones come, the owner of a pod's ReplicaSet.

use keleustes_objects::{Deployment, Labels, Pod, ReplicaSet};
use keleustes_plan::{Change, View, Wakes};

use super::facts::RECREATE;
use crate::workloads::owners::resolve;

pub(super) fn deployment_changed(change: &Change<Deployment>, _: &View<'_>, wakes: &mut Wakes) {
    wakes.wake(&change.either().meta.key);
}

pub(super) fn set_changed(change: &Change<ReplicaSet>, view: &View<'_>, wakes: &mut Wakes) {
    if change.is_resync() {
        return;
    }
    let (before, set) = (change.before(), change.either());
    if let Some(before) = before.filter(|before| before.meta.controller() != set.meta.controller()) {
        wake_owner(before, view, wakes);
    }
    if set.meta.controller().is_some() {
        wake_owner(set, view, wakes);
    } else if !change.is_deletion() && set.meta.deleted_at.is_none() {
        let is_news = before
            .is_none_or(|before| before.meta.labels != set.meta.labels || before.meta.controller().is_some());
        if is_news {
            let deployments = view.in_namespace::<Deployment>(&set.meta.key.namespace);
            let wanting = deployments.filter(|deployment| wants(deployment, &set.meta.labels));
            wanting.for_each(|deployment| wakes.wake(&deployment.meta.key));
        }
    }
}

/// Only the end of a pod matters, and only where it holds up a rollout.
pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Wakes) {
    if !change.is_deletion() {
        return;
    }
    let pod = change.either();
    let namespace = &pod.meta.key.namespace;
    let set = pod.meta.controller().and_then(|owner| resolve::<ReplicaSet>(view, namespace, owner));
    let owner = set.and_then(|set| set.meta.controller());
    let deployment = owner.and_then(|owner| resolve::<Deployment>(view, namespace, owner));
    if let Some(deployment) = deployment.filter(|there| there.spec.strategy.r#type == RECREATE) {
        wakes.wake(&deployment.meta.key);
    }
}

fn wake_owner(set: &ReplicaSet, view: &View<'_>, wakes: &mut Wakes) {
    let namespace = &set.meta.key.namespace;
    let owner = set.meta.controller().and_then(|owner| resolve::<Deployment>(view, namespace, owner));
    if let Some(owner) = owner {
        wakes.wake(&owner.meta.key);
    }
}

fn wants(deployment: &Deployment, labels: &Labels) -> bool {
    let selector = deployment.spec.selector.as_ref().filter(|selector| !selector.is_empty());
    let matcher = selector.and_then(|selector| selector.matcher().ok());
    !labels.is_empty() && matcher.is_some_and(|matcher| matcher.matches(labels))
}
