//! Whether a claim was generated for a pod or PodGroup, and whether it is reserved for a pod.
//!
//! Parity: IsForPod, IsForPodGroup and IsReservedForPod of k8s.io/dynamic-resource-allocation/resourceclaim.

use keleustes_objects::{ObjectMeta, OwnerReference, Pod, PodGroup, ResourceClaim};

use super::SCHEDULING_GROUP;

/// Whether an ownerReference is the controllerRef of a generated claim.
pub(super) fn is_pod_or_pod_group(owner: &OwnerReference) -> bool {
    owner.controller && (is_pod(owner) || is_pod_group(owner))
}

fn is_pod(owner: &OwnerReference) -> bool {
    owner.api_version == "v1" && owner.kind == "Pod"
}

/// Whether it refers to a PodGroup, of any version.
fn is_pod_group(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == "PodGroup" && group == Some(SCHEDULING_GROUP)
}

/// The controllerRef to the pod that a claim was generated for.
pub(super) fn owning_pod(claim: &ResourceClaim) -> Option<&OwnerReference> {
    claim.meta.owner_references.iter().find(|owner| owner.controller && is_pod(owner))
}

/// Whether a claim was generated for a pod or, if that is accepted, for its PodGroup.
pub(crate) fn is_for_pod(pod: &Pod, claim: &ResourceClaim, accept_pod_group: bool) -> Result<(), String> {
    let is_of_pod_group = || {
        let owner = claim.meta.controller_ref();
        owner.is_some_and(|owner| *owner.name == **pod.spec.pod_group_name() && is_pod_group(owner))
    };
    let accepts_pod_group = accept_pod_group && !pod.spec.pod_group_name().is_empty();
    if is_controlled_by(claim, &pod.meta) || (accepts_pod_group && is_of_pod_group()) {
        return Ok(());
    }
    let (claim, pod_key) = (&claim.meta.key, &pod.meta.key);
    let why = if accepts_pod_group {
        format!("neither Pod nor PodGroup {} is the owner", pod.spec.pod_group_name())
    } else {
        "Pod is not owner".to_owned()
    };
    Err(format!("ResourceClaim {claim} was not created for Pod {pod_key} ({why})"))
}

/// Whether a claim was generated for a PodGroup.
pub(super) fn is_for_pod_group(group: &PodGroup, claim: &ResourceClaim) -> bool {
    is_controlled_by(claim, &group.meta)
}

fn is_controlled_by(claim: &ResourceClaim, owner: &ObjectMeta) -> bool {
    let has_uid = claim.meta.controller_ref().is_some_and(|controller| controller.uid == owner.uid);
    has_uid && claim.meta.key.namespace == owner.key.namespace
}

/// Whether a claim is reserved for a pod or, if that is accepted, for its PodGroup, whose UID a pod does not know.
pub(crate) fn is_reserved_for(pod: &Pod, claim: &ResourceClaim, accept_pod_group: bool) -> bool {
    claim.reserved_for.iter().any(|consumer| {
        let is_pod_group = consumer.api_group == SCHEDULING_GROUP && consumer.resource == "podgroups";
        let is_of_pod = || *consumer.name == **pod.spec.pod_group_name();
        let may_be_group = accept_pod_group && is_pod_group && !consumer.name.is_empty();
        consumer.uid == pod.meta.uid || (may_be_group && is_of_pod())
    })
}
