//! Whether a pod or PodGroup needs a reconcile, or still needs its claims.

use std::sync::Arc;

use keleustes_objects::{ClaimEntry, ClaimSource, InternedStr, Key, Pod, PodGroup, ResourceClaim};
use keleustes_plan::View;

use super::ResourceClaimOptions;
use super::bind_target::{BindTarget, bind_target, pod_group};
use super::names::claim_name;
use super::owner::{is_for_pod, is_reserved_for};

/// Whether none of a pod's containers runs or will run.
pub(super) fn is_done(pod: &Pod) -> bool {
    pod.is_terminal() || (pod.is_terminating() && pod.node_name.is_empty())
}

/// Whether a pod has claims, in its spec or from the scheduler.
pub(super) fn has_claims(pod: &Pod) -> bool {
    !pod.spec.resource_claims().is_empty() || pod.extended_resource_claim().is_some()
}

/// The cached claim of a name.
pub(super) fn cached_claim<'a>(
    view: &View<'a>,
    namespace: &InternedStr,
    name: &str,
) -> Option<&'a Arc<ResourceClaim>> {
    view.get(&Key { namespace: namespace.clone(), name: name.into() })
}

/// Whether a pod has claims to be created, recorded or reserved.
pub(super) fn pod_needs_work(view: &View<'_>, pod: &Pod, options: &ResourceClaimOptions) -> bool {
    !pod.is_terminating()
        && pod.spec.resource_claims().iter().any(|entry| entry_needs_work(view, pod, entry, options))
}

fn entry_needs_work(view: &View<'_>, pod: &Pod, entry: &ClaimEntry, options: &ResourceClaimOptions) -> bool {
    let named = match claim_name(entry, pod.resource_claim_statuses()) {
        Ok(Some(named)) => named,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let Some(claim) = cached_claim(view, &pod.meta.key.namespace, named.name) else {
        // A user's claim is created by the user, and a PodGroup's claim by the reconcile of the PodGroup.
        return matches!(entry.source, ClaimSource::Template(_))
            && pod_group(view, pod, options)
                .map_or(true, |group| matches!(bind_target(group.as_ref(), entry), Ok(BindTarget::Pod)));
    };
    if named.must_be_owned && is_for_pod(pod, claim, options.enable_workload_claims).is_err() {
        // Nothing can be done until the other claim is gone.
        return false;
    }
    !pod.node_name.is_empty() && needs_reservation(pod, claim, options)
}

/// Whether an allocated claim is not reserved for a pod that uses it.
pub(super) fn needs_reservation(pod: &Pod, claim: &ResourceClaim, options: &ResourceClaimOptions) -> bool {
    claim.allocated_devices.is_some() && !is_reserved_for(pod, claim, options.enable_workload_claims)
}

/// Whether a PodGroup has claims to be created or recorded.
pub(super) fn pod_group_needs_work(view: &View<'_>, group: &PodGroup) -> bool {
    let needs_work = |entry: &ClaimEntry| match claim_name(entry, &group.resource_claim_statuses) {
        Ok(Some(named)) => {
            matches!(entry.source, ClaimSource::Template(_))
                && cached_claim(view, &group.meta.key.namespace, named.name).is_none()
        }
        Ok(None) => false,
        Err(_) => true,
    };
    group.meta.deletion_timestamp.is_none() && group.resource_claims.iter().any(needs_work)
}
