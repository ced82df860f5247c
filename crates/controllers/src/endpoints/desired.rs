//! The desired Endpoints of a Service, and the write that they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{
    Address, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ErrorReason, FullMeta as _,
    InternedStr, Kind as _, Labels, Pod, ResourceVersion, Service, SubsetPort, TargetRefRest, Time, Uid,
};
use keleustes_plan::{InvolvedObject, Outcome, PlannedEvent, Write};
use serde_json::{Value, json};

use super::COMPONENT;
use crate::service_endpoints::subsets::repack;
use crate::service_endpoints::{
    AddressType, HEADLESS, LAST_CHANGE_TRIGGER_TIME, PortSet, ResolvedPorts, has_endpoint, hostname,
    target_ref,
};

/// The label that excludes Endpoints from mirroring by other programs and names their controller.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The annotation of Endpoints that lack addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";
/// The maximum number of addresses of all subsets together.
const CAPACITY: usize = 1000;

/// The desired Endpoints of a Service.
pub(super) struct Desired {
    /// The subsets in canonical form.
    pub(super) subsets: Vec<EndpointSubset>,
    /// Whether addresses are left out because there are too many.
    pub(super) is_truncated: bool,
    labels: Labels,
}

impl Desired {
    pub(super) fn of(service: &Service, selected_pods: &[Arc<Pod>]) -> Self {
        let subsets = repack(&subsets_by_ports(service, selected_pods));
        let (subsets, is_truncated) = match truncate(&subsets) {
            Some(truncated) => (repack(&truncated), true),
            None => (subsets, false),
        };
        let labels = service.meta.labels.without(HEADLESS).with(MANAGED_BY, COMPONENT);
        let labels = if service.is_headless() { labels.with(HEADLESS, "") } else { labels };
        Self { subsets, is_truncated, labels }
    }

    /// Whether Endpoints need no write. The trigger time is not compared, and neither is the headless label.
    pub(super) fn is_satisfied_by(&self, current: &Endpoints, service: &Service) -> bool {
        let is_marked = current.annotations().value(OVER_CAPACITY).map(|value| value.as_str());
        let is_managed = current.meta.labels.value(MANAGED_BY).is_some_and(|value| *value == COMPONENT);
        let labels = current.meta.labels.without(HEADLESS).without(MANAGED_BY);
        is_marked == self.is_truncated.then_some(TRUNCATED)
            && (is_managed && labels == service.meta.labels || current.meta.labels == self.labels)
            && without_versions(repack(&current.subsets)) == self.subsets
    }

    /// Creates the Endpoints, or replaces subsets, labels and two annotations of the current ones.
    pub(super) fn write(
        self,
        service: &Service,
        current: Option<&Endpoints>,
        trigger_time: Option<Time>,
    ) -> Write {
        let key = &service.meta.key;
        let mut metadata =
            current.map_or_else(|| json!({"name": key.name}), |current| current.full_meta_json());
        metadata["labels"] = json!(self.labels);
        let trigger_time = trigger_time.map(|time| json!(time));
        set_annotation(&mut metadata, LAST_CHANGE_TRIGGER_TIME, trigger_time);
        set_annotation(&mut metadata, OVER_CAPACITY, self.is_truncated.then(|| json!(TRUNCATED)));
        let body = json!({"metadata": metadata, "subsets": self.subsets});
        let involved = match current {
            Some(current) => InvolvedObject::of(current),
            None => InvolvedObject::named(
                &Endpoints::RESOURCE,
                &key.namespace,
                &key.name,
                Uid::default(),
                ResourceVersion::default(),
            ),
        };
        let (write, reason, failed) = match current {
            Some(current) => (
                Write::put(current, "", body).because("the pods, the labels or the capacity differ"),
                "FailedToUpdateEndpoint",
                format!("Failed to update endpoint {key}"),
            ),
            None => (
                Write::create::<Endpoints>(key.clone(), body)
                    .because("the Service has no Endpoints")
                    .ignoring_errors(&[ErrorReason::NamespaceTerminating]),
                "FailedToCreateEndpoint",
                format!("Failed to create endpoint for service {key}"),
            ),
        };
        write.record_on_outcome(move |outcome| match outcome {
            Outcome::Failed(error) => {
                Some(PlannedEvent::warning(involved.clone(), reason, format!("{failed}: {error}")))
            }
            _ => None,
        })
    }
}

/// Sets or removes an annotation in metadata for a write.
fn set_annotation(metadata: &mut Value, annotation: &str, value: Option<Value>) {
    match (value, metadata.get_mut("annotations").and_then(Value::as_object_mut)) {
        (Some(value), _) => metadata["annotations"][annotation] = value,
        (None, Some(annotations)) => drop(annotations.remove(annotation)),
        (None, None) => {}
    }
}

/// The addresses of the pods, one subset for each set of ports.
fn subsets_by_ports(service: &Service, selected_pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let mut resolved = ResolvedPorts::default();
    let mut by_ports: BTreeMap<PortSet, (Vec<SubsetPort>, [Vec<EndpointAddress>; 2])> = BTreeMap::new();
    let is_listed =
        |pod: &&Arc<Pod>| has_endpoint(pod) && (service.publish_not_ready_addresses || !pod.is_terminating());
    let allows_no_ports = service.ports.is_empty() && service.cluster_ip == "None";
    for pod in selected_pods.iter().filter(is_listed) {
        let (set, ports) = resolved.ports(service, &pod.spec);
        if ports.is_empty() && !allows_no_ports {
            continue;
        }
        let Some(ip) = address(service, pod) else { continue };
        let is_ready = service.publish_not_ready_addresses || pod.is_ready();
        let new_group = || (ports.iter().map(subset_port).collect(), Default::default());
        let (_, addresses) = by_ports.entry(set).or_insert_with(new_group);
        addresses[usize::from(!is_ready)].push(EndpointAddress {
            ip,
            hostname: hostname(service, pod),
            node_name: pod.node_name.clone(),
            target_ref: Some(target_ref(pod)),
        });
    }
    by_ports.into_values().map(|(ports, [ready, not_ready])| subset(ready, not_ready, ports.into())).collect()
}

fn subset(
    addresses: Vec<EndpointAddress>,
    not_ready_addresses: Vec<EndpointAddress>,
    ports: Box<[SubsetPort]>,
) -> EndpointSubset {
    EndpointSubset { addresses: addresses.into(), not_ready_addresses: not_ready_addresses.into(), ports }
}

fn subset_port(port: &EndpointPort) -> SubsetPort {
    SubsetPort {
        name: port.name.clone().unwrap_or_default(),
        port: port.port.unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| InternedStr::from("TCP")),
        app_protocol: port.app_protocol.clone(),
    }
}

/// The pod's first address of the Service's first family. A Service without families has that of its cluster IP or,
/// without one, that of the pod.
fn address(service: &Service, pod: &Pod) -> Option<Address> {
    let type_of = |address: &Address| AddressType::of_address(address).map(|(address_type, _)| address_type);
    let family = match service.ip_families.first() {
        Some(family) if *family == AddressType::Ipv6.as_str() => Some(AddressType::Ipv6),
        Some(_) => Some(AddressType::Ipv4),
        None if service.is_headless() => type_of(pod.pod_ips().first()?),
        None => type_of(&Address::from(&*service.cluster_ip)),
    };
    let family = family.unwrap_or(AddressType::Ipv4);
    pod.pod_ips().iter().find_map(|address| family.canonical(address))
}

/// Leaves out addresses beyond the capacity, those that are not ready first, in proportion to the size of each subset;
/// `None` if there are not too many.
fn truncate(subsets: &[EndpointSubset]) -> Option<Vec<EndpointSubset>> {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + not_ready <= CAPACITY {
        return None;
    }
    let cuts_ready = ready > CAPACITY;
    let (total, capacity) = if cuts_ready { (ready, CAPACITY) } else { (not_ready, CAPACITY - ready) };
    let mut remaining = capacity;
    let mut cut = |addresses: &[EndpointAddress]| {
        let kept = (addresses.len() * capacity).div_ceil(total).min(remaining).min(addresses.len());
        remaining -= kept;
        addresses[..kept].to_vec()
    };
    let truncated = subsets.iter().map(|each| match cuts_ready {
        true => subset(cut(&each.addresses), Vec::new(), each.ports.clone()),
        false => subset(each.addresses.to_vec(), cut(&each.not_ready_addresses), each.ports.clone()),
    });
    Some(truncated.collect())
}

/// Subsets without the resourceVersions of targets, which change with every update of a pod.
fn without_versions(mut subsets: Vec<EndpointSubset>) -> Vec<EndpointSubset> {
    for subset in &mut subsets {
        for address in subset.addresses.iter_mut().chain(&mut subset.not_ready_addresses) {
            let Some(target) = &mut address.target_ref else { continue };
            let Some(rest) = &mut target.rest else { continue };
            rest.resource_version = ResourceVersion::default();
            if **rest == TargetRefRest::default() {
                target.rest = None;
            }
        }
    }
    subsets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subsets(sizes: &[(usize, usize)]) -> Vec<EndpointSubset> {
        let addresses = |count: usize| vec![EndpointAddress::default(); count];
        sizes
            .iter()
            .map(|(ready, not_ready)| subset(addresses(*ready), addresses(*not_ready), Box::default()))
            .collect()
    }

    fn sizes(subsets: &[EndpointSubset]) -> Vec<(usize, usize)> {
        subsets.iter().map(|subset| (subset.addresses.len(), subset.not_ready_addresses.len())).collect()
    }

    /// Proves EP-54, EP-56, EP-57, EP-58.
    #[test]
    fn addresses_beyond_the_capacity_are_cut_in_proportion() {
        assert!(truncate(&subsets(&[(600, 0), (300, 100)])).is_none(), "1,000 are not too many");
        let cut = |before: &[(usize, usize)]| truncate(&subsets(before)).map(|after| sizes(&after));
        let ready = [(205, 9), (400, 0), (402, 3), (400, 0), (693, 0)];
        assert_eq!(cut(&ready), Some(vec![(98, 0), (191, 0), (192, 0), (191, 0), (328, 0)]));
        let not_ready = [(0, 101), (80, 200), (0, 200), (200, 201), (0, 298)];
        assert_eq!(cut(&not_ready), Some(vec![(0, 73), (80, 144), (0, 144), (200, 145), (0, 214)]));
        assert_eq!(cut(&[(1000, 1)]), Some(vec![(1000, 0)]), "not ready ones are cut first");
        let many = cut(&[(1, 0), (1000, 0)]).unwrap_or_default();
        assert_eq!(many, [(1, 0), (999, 0)]);
        let tail = cut(&[(1000, 0), (1000, 0), (1, 0)]).unwrap_or_default();
        assert_eq!(tail.iter().map(|(ready, _)| ready).sum::<usize>(), CAPACITY, "{tail:?}");
    }
}
