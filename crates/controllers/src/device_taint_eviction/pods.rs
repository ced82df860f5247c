//! Which pods a claim concerns, and whether a pod is to be evicted.

use std::sync::Arc;

use keleustes_objects::{Key, Pod, ResourceClaim};
use keleustes_plan::{Memory, View};

use super::DeviceTaintEvictionOptions;
use super::memory::EvictionMemory;
use super::taints::{Eviction, Rules, eviction_for};
use crate::resourceclaim::indexes::{PODS_BY_POD_GROUP, value};
use crate::resourceclaim::names::claim_name;
use crate::resourceclaim::owner::{is_for_pod, is_reserved_for};

/// The eviction of a pod that its claims require. Its phase, its owner and its priority do not matter.
pub(super) fn eviction_of(
    view: &View<'_>,
    memory: &Memory<EvictionMemory>,
    pod: &Pod,
    rules: &Rules<'_>,
    options: &DeviceTaintEvictionOptions,
) -> Option<Eviction> {
    if pod.node_name.is_empty() {
        return None;
    }
    let accept_group = options.enable_workload_claims;
    let used = pod.spec.resource_claims().iter().filter_map(|entry| {
        let named = claim_name(entry, pod.resource_claim_statuses()).ok()??;
        let key = Key { namespace: pod.meta.key.namespace.clone(), name: named.name.into() };
        let claim = view.get::<ResourceClaim>(&key)?;
        let is_its = !named.must_be_owned || is_for_pod(pod, claim, accept_group).is_ok();
        (is_its && is_reserved_for(pod, claim, accept_group)).then_some(claim)
    });
    used.fold(None, |eviction, claim| Eviction::join(eviction, eviction_for(view, memory, claim, rules)))
}

/// The pods that a claim is reserved for.
pub(super) fn pods_of<'a>(
    view: &View<'a>,
    claim: &ResourceClaim,
    options: &DeviceTaintEvictionOptions,
) -> Vec<&'a Arc<Pod>> {
    let namespace = &claim.meta.key.namespace;
    let mut pods = Vec::new();
    for consumer in &claim.reserved_for {
        match (&*consumer.api_group, &*consumer.resource) {
            ("", "pods") => {
                let key = Key { namespace: namespace.clone(), name: consumer.name.clone() };
                pods.extend(view.get::<Pod>(&key).filter(|pod| pod.meta.uid == consumer.uid));
            }
            ("scheduling.k8s.io", "podgroups") if options.enable_workload_claims => {
                let members = value(namespace, &consumer.name);
                pods.extend(view.store::<Pod>().by_index(&PODS_BY_POD_GROUP, &members));
            }
            _ => {}
        }
    }
    pods
}
