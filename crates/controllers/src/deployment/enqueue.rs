//! Which Deployments are enqueued for a deleted pod: those with strategy Recreate, which wait until all old
//! pods are deleted.

use keleustes_objects::{Deployment, Pod, ReplicaSet};
use keleustes_plan::{Change, Effects, View};

use super::inputs::RECREATE;
use crate::workloads::owners::resolve;

/// Enqueues the Deployment of a deleted pod if its strategy is Recreate.
pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
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
