//! The indexes of pods, PodGroups and claims by what they refer to; values are `namespace/name` or `namespace/uid`.

use keleustes_objects::{ClaimEntry, ClaimSource, InternedStr, Key, Pod, PodGroup, ResourceClaim};
use keleustes_plan::Index;

use super::names::claim_name;
use super::owner::is_pod_or_pod_group;

/// The index value of a name in a namespace.
pub(crate) fn value(namespace: &str, name: &str) -> InternedStr {
    InternedStr::from(&*format!("{namespace}/{name}"))
}

/// The index value of a key.
pub(crate) fn value_of(key: &Key) -> InternedStr {
    value(&key.namespace, &key.name)
}

/// Pods by the claims that they refer to or that were generated for them.
pub(super) const PODS_BY_CLAIM: Index<Pod> = Index {
    name: "resource-claim",
    values: |pod, emit| {
        let names = pod.spec.resource_claims().iter();
        let names = names.filter_map(|entry| claim_name(entry, pod.resource_claim_statuses()).ok()?);
        names.for_each(|named| emit(value(&pod.meta.key.namespace, named.name)));
    },
};

/// Pods by the templates that they refer to.
pub(super) const PODS_BY_TEMPLATE: Index<Pod> = Index {
    name: "resource-claim-template",
    values: |pod, emit| {
        let templates = pod.spec.resource_claims().iter().filter_map(template);
        templates.for_each(|name| emit(value(&pod.meta.key.namespace, name)));
    },
};

/// Pods by their PodGroup.
pub(crate) const PODS_BY_POD_GROUP: Index<Pod> = Index {
    name: "pod-group",
    values: |pod, emit| {
        if !pod.spec.pod_group_name().is_empty() {
            emit(value(&pod.meta.key.namespace, pod.spec.pod_group_name()));
        }
    },
};

/// Claims by the UID of the pod or PodGroup that controls them.
pub(super) const CLAIMS_BY_OWNER: Index<ResourceClaim> = Index {
    name: "pod-or-pod-group-owner",
    values: |claim, emit| {
        let owners = claim.meta.owner_references.iter().filter(|owner| is_pod_or_pod_group(owner));
        owners.for_each(|owner| emit(value(&claim.meta.key.namespace, &owner.uid.to_string())));
    },
};

/// PodGroups by the claims that they refer to or that were generated for them.
pub(super) const POD_GROUPS_BY_CLAIM: Index<PodGroup> = Index {
    name: "resource-claim",
    values: |group, emit| {
        let names = group.resource_claims.iter();
        let names = names.filter_map(|entry| claim_name(entry, &group.resource_claim_statuses).ok()?);
        names.for_each(|named| emit(value(&group.meta.key.namespace, named.name)));
    },
};

/// PodGroups by the templates that they refer to.
pub(super) const POD_GROUPS_BY_TEMPLATE: Index<PodGroup> = Index {
    name: "resource-claim-template",
    values: |group, emit| {
        let templates = group.resource_claims.iter().filter_map(template);
        templates.for_each(|name| emit(value(&group.meta.key.namespace, name)));
    },
};

fn template(entry: &ClaimEntry) -> Option<&InternedStr> {
    match &entry.source {
        ClaimSource::Template(name) => Some(name),
        ClaimSource::Claim(_) | ClaimSource::Unknown => None,
    }
}
