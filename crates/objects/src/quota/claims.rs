//! The usage of Services, PersistentVolumeClaims and ResourceClaims.
//!
//! Parity: services.go, persistent_volume_claims.go and resource_claims.go in pkg/quota/v1/evaluator/core.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{DEVICE_CLASS_PREFIX, DEVICES_SUFFIX, REQUESTS, STORAGE_CLASS_INFIX};
use crate::{
    ArcStr, DeviceClass, InternedStr, Key, OwnerReference, PersistentVolumeClaim, Pod, Quantity,
    ResourceClaim, ResourceList, Service, Time, Uid,
};

/// The usage of a Service. The node ports of a load balancer are those that will be allocated.
#[must_use]
pub fn service_usage(service: &Service) -> ResourceList {
    let count = |ports: usize| i64::try_from(ports).unwrap_or(i64::MAX);
    let ports = count(service.ports.len());
    let explicit = count(service.ports.iter().filter(|port| port.node_port != 0).count());
    let (load_balancers, node_ports) = match service.service_type.as_str() {
        "NodePort" => (0, ports),
        "LoadBalancer" if service.allocate_load_balancer_node_ports == Some(false) => (1, explicit),
        "LoadBalancer" => (1, ports),
        _ => (0, 0),
    };
    list([
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", load_balancers),
        ("services.nodeports", node_ports),
    ])
}

/// The usage of a PersistentVolumeClaim.
#[must_use]
pub fn persistent_volume_claim_usage(claim: &PersistentVolumeClaim) -> ResourceList {
    let mut usage = list([("count/persistentvolumeclaims", 1), ("persistentvolumeclaims", 1)]);
    let class = claim.class();
    if !class.is_empty() {
        usage.set(&*format!("{class}{STORAGE_CLASS_INFIX}persistentvolumeclaims"), Quantity::from_whole(1));
    }
    if let Some(requested) = claim.spec.resources.requests.quantity("storage") {
        let allocated = claim.status.allocated_resources.quantity("storage");
        let storage = allocated.filter(|allocated| *allocated > requested.to_whole()).unwrap_or(requested);
        usage.set("requests.storage", storage.to_whole());
        if !class.is_empty() {
            usage.set(&*format!("{class}{STORAGE_CLASS_INFIX}requests.storage"), storage.to_whole());
        }
    }
    usage
}

/// The extended resources that DeviceClasses stand for.
#[derive(Clone, Debug, Default)]
pub struct DeviceClasses {
    names: BTreeSet<InternedStr>,
    extended_resources: BTreeMap<InternedStr, InternedStr>,
    /// The class that an extended resource is allocated from.
    winners: BTreeMap<InternedStr, InternedStr>,
}

impl DeviceClasses {
    /// Reads the classes. Of several with one extended resource the newest wins, then the one with the lowest name.
    pub fn of<'a>(classes: impl Iterator<Item = &'a DeviceClass>) -> Self {
        let mut all: Vec<_> = classes.collect();
        all.sort_by(|one, other| {
            let age = |class: &DeviceClass| class.meta.creation_timestamp;
            age(other).cmp(&age(one)).then_with(|| one.meta.key.name.cmp(&other.meta.key.name))
        });
        let mut result = Self::default();
        for class in all {
            let name = InternedStr::from(&*class.meta.key.name);
            let resource = &class.extended_resource_name;
            if !resource.is_empty() {
                result.winners.entry(resource.clone()).or_insert_with(|| name.clone());
                result.extended_resources.insert(name.clone(), resource.clone());
            }
            result.names.insert(name);
        }
        result
    }

    /// Whether some class provides a resource, by its extended resource name or by the name of the class.
    pub(super) fn provide(&self, resource: &str) -> bool {
        let class = resource.strip_prefix(DEVICE_CLASS_PREFIX);
        self.winners.contains_key(resource) || class.is_some_and(|class| self.names.contains(class))
    }
}

/// The usage of a ResourceClaim. `pod_usage` is that of the pod for whose extended resources the scheduler created it
/// ([`verified_pod`]): the pod is charged for them already.
#[must_use]
pub fn resource_claim_usage(
    claim: &ResourceClaim,
    classes: &DeviceClasses,
    pod_usage: Option<&ResourceList>,
) -> ResourceList {
    let mut usage = list([("count/resourceclaims.resource.k8s.io", 1)]);
    let mut requests = ResourceList::default();
    for (class, devices) in claim.requested_devices.iter().filter(|(class, _)| !class.is_empty()) {
        let devices = Quantity::from_whole(*devices);
        usage.set(&*format!("{class}{DEVICES_SUFFIX}"), devices);
        requests.set(&*format!("{REQUESTS}{DEVICE_CLASS_PREFIX}{class}"), devices);
        if let Some(resource) = classes.extended_resources.get(class) {
            let name = InternedStr::from(&*format!("{REQUESTS}{resource}"));
            if classes.winners.get(resource) == Some(class) || requests.amount(&name).is_none() {
                requests.set(name, devices);
            }
        }
    }
    for (name, amount) in requests.iter() {
        let charged = pod_usage.and_then(|usage| usage.amount(name));
        let rest = charged.map_or(*amount, |charged| amount.minus(charged));
        if rest.is_positive() {
            usage.set(name.clone(), rest);
        }
    }
    usage
}

/// The oldest of the claims for extended resources that each pod controls. It is computed once for all claims of a namespace: nothing
/// limits how many claims of a user name one pod.
#[derive(Clone, Debug, Default)]
pub struct OldestClaims(BTreeMap<Uid, ClaimAge>);

/// The order of claims: those of one second by name.
type ClaimAge = (Option<Time>, ArcStr);

impl OldestClaims {
    /// Reads all claims of a namespace.
    pub fn of<'a>(claims: impl Iterator<Item = &'a ResourceClaim>) -> Self {
        let mut oldest = BTreeMap::new();
        for claim in claims {
            let Some(owner) = extended_resource_owner(claim) else { continue };
            let first = oldest.entry(owner.uid.clone()).or_insert_with(|| age(claim));
            if age(claim) < *first {
                *first = age(claim);
            }
        }
        Self(oldest)
    }
}

fn age(claim: &ResourceClaim) -> ClaimAge {
    (claim.meta.creation_timestamp, claim.meta.key.name.clone())
}

/// The pod for whose extended resources the scheduler created a claim, if claim and pod refer to each other. If the pod
/// does not name its claim yet, it is the oldest of those that it controls.
pub fn verified_pod<'p>(
    claim: &ResourceClaim,
    pod: impl FnOnce(&Key) -> Option<&'p Pod>,
    oldest: &OldestClaims,
) -> Option<&'p Pod> {
    let owner = extended_resource_owner(claim)?;
    let pod = pod(&Key { namespace: claim.meta.key.namespace.clone(), name: owner.name.clone() })?;
    if pod.meta.uid != owner.uid {
        return None;
    }
    let is_verified = match pod.extended_resource_claim() {
        Some(name) => *name == claim.meta.key.name,
        None => oldest.0.get(&pod.meta.uid).is_none_or(|first| age(claim) <= *first),
    };
    is_verified.then_some(pod)
}

/// The pod that controls a claim for extended resources.
fn extended_resource_owner(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let owner = claim.meta.controller_ref()?;
    let is_pod = owner.kind == "Pod" && owner.api_version == "v1";
    (claim.is_extended_resource_claim && is_pod).then_some(owner)
}

fn list<const N: usize>(counts: [(&str, i64); N]) -> ResourceList {
    counts.into_iter().map(|(name, count)| (InternedStr::from(name), Quantity::from_whole(count))).collect()
}
