//! Which Deployments the end of a pod concerns: those that must see all old pods gone before new ones come.

use keleustes_objects::{Deployment, Pod, ReplicaSet};
use keleustes_plan::{Change, Enqueue, View};

use super::inputs::RECREATE;
use crate::workloads::owners::resolve;

/// Only the end of a pod matters, and only where it holds up a rollout.
pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Enqueue) {
    if !change.is_deletion() {
        return;
    }
    let pod = change.latest();
    let namespace = &pod.meta.key.namespace;
    let set = pod.meta.controller_ref().and_then(|owner| resolve::<ReplicaSet>(view, namespace, owner));
    let owner = set.and_then(|set| set.meta.controller_ref());
    let deployment = owner.and_then(|owner| resolve::<Deployment>(view, namespace, owner));
    if let Some(deployment) = deployment.filter(|existing| existing.spec.strategy.r#type == RECREATE) {
        enqueue.add(&deployment.meta.key);
    }
}
