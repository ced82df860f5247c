//! Index of pods by the PersistentVolumeClaims that they refer to.

use std::sync::Arc;

use keleustes_objects::{ArcStr, InternedStr, Key, PersistentVolumeClaim, Pod};
use keleustes_plan::{Index, View};

/// Pods by `namespace/name` of the PersistentVolumeClaims that their volumes name or, for generic ephemeral volumes,
/// that are named after them.
///
/// Parity: `PodPVCIndex` of pkg/controller/volume/common.
pub(crate) const BY_CLAIM: Index<Pod> = Index {
    name: "persistentVolumeClaim",
    values: |pod, emit| {
        let namespace = &pod.meta.key.namespace;
        pod.used_claims().for_each(|claim| emit(InternedStr::from(&*format!("{namespace}/{claim}"))));
    },
};

/// The cached pods that refer to a claim.
pub(crate) fn pods_of_claim<'a>(
    view: &View<'a>,
    claim: &Key,
) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
    view.store::<Pod>().by_index(&BY_CLAIM, &format!("{}/{}", claim.namespace, claim.name))
}

/// The name of the claim of a generic ephemeral volume.
pub(crate) fn ephemeral_claim_name(pod: &Pod, volume: &str) -> ArcStr {
    ArcStr::from(format!("{}-{volume}", pod.meta.key.name))
}

/// Whether the pod is the controller of a claim of its namespace. A claim that only has the name of an ephemeral volume's
/// claim does not belong to the pod.
pub(crate) fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    claim.meta.controller_ref().is_some_and(|owner| owner.uid == pod.meta.uid)
}
