//! Finds the controller of a pod and its scale in the caches.

use keleustes_objects::{
    Deployment, Key, Kind, ObjectMeta, OwnerReference, ReplicaSet, ReplicationController, StatefulSet, Uid,
};
use keleustes_plan::View;

/// A controller and its desired number of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControllerScale {
    /// The UID of the controller, which is counted once.
    pub(super) uid: Uid,
    /// `spec.replicas`.
    pub(super) replicas: i32,
}

/// The controller that a controllerRef leads to, if the caches hold it: a ReplicationController, a Deployment through its
/// ReplicaSet, a ReplicaSet without a Deployment, or a StatefulSet.
///
/// # Errors
/// If an `apiVersion` on the way has more than two parts.
pub(super) fn find_in_caches(
    view: &View<'_>,
    controller_ref: &OwnerReference,
    namespace: &str,
) -> Result<Option<ControllerScale>, String> {
    match (group_of(&controller_ref.api_version)?, controller_ref.kind.as_str()) {
        ("", "ReplicationController") => {
            let found = cached::<ReplicationController>(view, controller_ref, namespace);
            Ok(found.map(|controller| scale_of(&controller.meta, controller.spec.replicas)))
        }
        ("apps" | "extensions", "ReplicaSet") => {
            let found = cached::<ReplicaSet>(view, controller_ref, namespace);
            found.map_or(Ok(None), |replica_set| of_replica_set(view, replica_set))
        }
        ("apps", "StatefulSet") => {
            let found = cached::<StatefulSet>(view, controller_ref, namespace);
            Ok(found.map(|stateful_set| scale_of(&stateful_set.meta, stateful_set.spec.replicas)))
        }
        _ => Ok(None),
    }
}

/// The Deployment of a ReplicaSet, or the ReplicaSet itself if its controller is no Deployment. A Deployment that is not
/// found is no reason to count the ReplicaSet: its own scale subresource decides then.
fn of_replica_set(view: &View<'_>, replica_set: &ReplicaSet) -> Result<Option<ControllerScale>, String> {
    let own_scale = || Some(scale_of(&replica_set.meta, replica_set.spec.replicas));
    let Some(owner) = replica_set.meta.controller_ref() else { return Ok(own_scale()) };
    let group = group_of(&owner.api_version)?;
    match (owner.kind == "Deployment", group) {
        (true, "apps" | "extensions") => {
            let found = cached::<Deployment>(view, owner, &replica_set.meta.key.namespace);
            Ok(found.map(|deployment| scale_of(&deployment.meta, deployment.spec.replicas)))
        }
        (true, _) => Ok(None),
        (false, _) => Ok(own_scale()),
    }
}

fn scale_of(meta: &ObjectMeta, replicas: i32) -> ControllerScale {
    ControllerScale { uid: meta.uid.clone(), replicas }
}

/// The cached object that a reference means; none if an object of that name has another UID.
fn cached<'a, T: Kind>(view: &View<'a>, reference: &OwnerReference, namespace: &str) -> Option<&'a T> {
    let found = view.get::<T>(&Key::namespaced(namespace, &*reference.name))?;
    (found.meta().uid == reference.uid).then_some(found)
}

/// The group of an `apiVersion`.
///
/// # Errors
/// If it has more than two parts.
pub(super) fn group_of(api_version: &str) -> Result<&str, String> {
    match api_version.split('/').collect::<Vec<_>>()[..] {
        [_] => Ok(""),
        [group, _] => Ok(group),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}
