//! The consumer that an allocated claim of a pod is reserved for: the pod, or its PodGroup if that has the same entry.
//!
//! Parity: BindTo of k8s.io/dynamic-resource-allocation/resourceclaim.

use std::sync::Arc;

use keleustes_objects::{ClaimEntry, ClaimSource, Key, ObjectMeta, Pod, PodGroup};
use keleustes_plan::View;
use serde_json::{Value, json};

use super::names::Unresolved;
use super::{ResourceClaimOptions, SCHEDULING_GROUP};

/// The consumer of a claim.
#[derive(Clone, Debug)]
pub(super) enum BindTarget {
    /// The pod itself.
    Pod,
    /// Its PodGroup, with the claims of which all its pods work.
    PodGroup(Arc<PodGroup>),
}

impl BindTarget {
    /// The entry of `status.reservedFor`.
    pub(super) fn reservation(&self, pod: &Pod) -> Value {
        let entry = |resource: &str, meta: &ObjectMeta| json!({"resource": resource, "name": meta.key.name, "uid": meta.uid});
        match self {
            Self::Pod => entry("pods", &pod.meta),
            Self::PodGroup(group) => {
                let mut entry = entry("podgroups", &group.meta);
                entry["apiGroup"] = json!(SCHEDULING_GROUP);
                entry
            }
        }
    }
}

/// Why the PodGroup of a pod is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoPodGroup {
    /// The feature gate is off; a retry would not help.
    Disabled(String),
    /// The cache does not hold it.
    NotFound(String),
}

/// The PodGroup of a pod; `None` if it is in none.
pub(super) fn pod_group(
    view: &View<'_>,
    pod: &Pod,
    options: &ResourceClaimOptions,
) -> Result<Option<Arc<PodGroup>>, NoPodGroup> {
    let name = pod.spec.pod_group_name();
    if name.is_empty() {
        return Ok(None);
    }
    if !options.enable_generic_workload {
        let message = format!("Pod is a member of PodGroup {name} but GenericWorkload feature is disabled");
        return Err(NoPodGroup::Disabled(message));
    }
    let key = Key { namespace: pod.meta.key.namespace.clone(), name: (&**name).into() };
    let group = view.store_if_synced::<PodGroup>().and_then(|groups| groups.get(&key));
    let not_found = || NoPodGroup::NotFound(format!("podgroup.{SCHEDULING_GROUP} \"{name}\" not found"));
    group.cloned().map(Some).ok_or_else(not_found)
}

/// The consumer of the claim of an entry.
///
/// # Errors
/// If the PodGroup has, before the same entry, one with a source that this program does not know.
pub(super) fn bind_target(group: Option<&Arc<PodGroup>>, entry: &ClaimEntry) -> Result<BindTarget, String> {
    let Some(group) = group else { return Ok(BindTarget::Pod) };
    for of_group in &group.resource_claims {
        if of_group.source == ClaimSource::Unknown {
            let (key, why) = (&group.meta.key, Unresolved::Unsupported.as_str());
            return Err(format!("PodGroup {key} claim {}: {why}", of_group.name));
        }
        if of_group == entry {
            return Ok(BindTarget::PodGroup(group.clone()));
        }
    }
    Ok(BindTarget::Pod)
}
