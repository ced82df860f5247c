//! Who should prefer which endpoint: hints by the Service's wish, and none if it has none.
//!
//! Parity: staging/src/k8s.io/endpointslice/trafficdist/, and the order of precedence of reconciler.go.

use keleustes_objects::{Endpoint, EndpointHints, EndpointSlice, HintTarget, Interned, InternedStr, Service};
use keleustes_plan::{InvolvedObject, Memory, PlannedEvent};

use super::endpoints::AddressType;
use super::memory::EndpointSliceMemory;
use super::packing::{Draft, SliceChanges};
use super::topology;

/// What a Service wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HintMode {
    /// No hints.
    Nothing,
    /// Zones get endpoints in proportion to their CPUs.
    Proportional,
    /// Clients stay in their zone, and on their node if that is wanted, too.
    Close { nodes: bool },
}

impl HintMode {
    /// The annotations come first: the older one decides even if it only says no.
    pub(super) fn of(service: &Service) -> Self {
        let mode = service.topology_aware_hints.as_ref().or(service.topology_mode.as_ref());
        if mode.is_some_and(|mode| *mode == "Auto" || *mode == "auto") {
            return Self::Proportional;
        }
        match service.traffic_distribution.as_deref() {
            Some("PreferClose" | "PreferSameZone") => Self::Close { nodes: false },
            Some("PreferSameNode") => Self::Close { nodes: true },
            _ => Self::Nothing,
        }
    }
}

/// Hints all endpoints as the Service wishes and tells people what changed in that.
pub(super) fn hint(
    lists: &mut SliceChanges,
    service: &Service,
    family: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    match HintMode::of(service) {
        HintMode::Proportional => proportionally(lists, service, family, memory),
        HintMode::Close { nodes } => {
            let events = no_longer_proportionally(service, family, memory);
            stay_close(lists, nodes);
            events
        }
        HintMode::Nothing => {
            let events = no_longer_proportionally(service, family, memory);
            remove_all(lists);
            events
        }
    }
}

fn proportionally(
    lists: &mut SliceChanges,
    service: &Service,
    family: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    let key = &service.meta.key;
    let Some(zones) = memory.with(|recall| recall.zones().cloned()) else {
        unreachable!("a Service that wants them shared out has them looked at first")
    };
    match topology::add_hints(lists, &zones) {
        Ok(counts) => {
            let had_hints = memory.with(|recall| recall.hinted(key, family, counts));
            let enabled = || {
                let message = told("Topology Aware Hints has been enabled", family);
                PlannedEvent::normal(InvolvedObject::of(service), "TopologyAwareHintsEnabled", message)
            };
            (!had_hints).then(enabled).into_iter().collect()
        }
        Err(why) => {
            memory.with(|recall| recall.remove_hint_counts(key, family));
            remove_all(lists);
            vec![disabled(service, &why.to_string(), family)]
        }
    }
}

fn no_longer_proportionally(
    service: &Service,
    family: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    let had_hints = memory.with(|recall| recall.remove_hint_counts(&service.meta.key, family));
    let told = || disabled(service, "Topology Aware Hints has been disabled", family);
    had_hints.then(told).into_iter().collect()
}

fn disabled(service: &Service, why: &str, family: AddressType) -> PlannedEvent {
    PlannedEvent::warning(InvolvedObject::of(service), "TopologyAwareHintsDisabled", told(why, family))
}

fn told(text: &str, family: AddressType) -> String {
    format!("{text}, addressType: {}", family.as_str())
}

/// Whether new clients may use an endpoint. Only such endpoints are hinted; others keep what they have.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.ready == Some(true)
}

/// Clients in one zone should prefer an endpoint.
pub(super) fn prefer_zone(zone: &InternedStr) -> Interned<EndpointHints> {
    Interned::new(EndpointHints { for_zones: only(zone), for_nodes: Box::default() })
}

fn only(name: &InternedStr) -> Box<[HintTarget]> {
    Some(name)
        .filter(|name| !name.is_empty())
        .map(|name| HintTarget { name: name.clone() })
        .into_iter()
        .collect()
}

/// Strips every endpoint of its hints.
fn remove_all(lists: &mut SliceChanges) {
    let has_hints = |slice: &EndpointSlice| slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some());
    write_again(lists, "no clients are to be preferred any more", has_hints);
    drafted(lists).for_each(|endpoint| endpoint.hints = None);
}

/// Hints every ready endpoint to its own zone, and to its node.
fn stay_close(lists: &mut SliceChanges, nodes: bool) {
    let is_off = |endpoint: &Endpoint| {
        let there = endpoint.hints.as_deref().cloned().unwrap_or_default();
        there != close(endpoint, nodes)
    };
    write_again(lists, "other clients are to be preferred", |slice| {
        slice.endpoints.iter().any(|endpoint| is_ready(endpoint) && is_off(endpoint))
    });
    for endpoint in drafted(lists).filter(|endpoint| is_ready(endpoint)) {
        let hints = close(endpoint, nodes);
        endpoint.hints = (hints != EndpointHints::default()).then(|| Interned::new(hints));
    }
}

fn close(endpoint: &Endpoint, nodes: bool) -> EndpointHints {
    let for_nodes = if nodes { only(&endpoint.node_name) } else { Box::default() };
    EndpointHints { for_zones: only(&endpoint.zone), for_nodes }
}

/// Moves unchanged slices to those to be written, where something is wrong with them.
fn write_again(lists: &mut SliceChanges, because: &'static str, is_wrong: impl Fn(&EndpointSlice) -> bool) {
    let (wrong, right) = std::mem::take(&mut lists.unchanged).into_iter().partition(|slice| is_wrong(slice));
    lists.unchanged = right;
    let wrong: Vec<_> = wrong;
    lists.update.extend(wrong.iter().map(|slice| Draft::of(slice, because)));
}

fn drafted(lists: &mut SliceChanges) -> impl Iterator<Item = &mut Endpoint> {
    lists.create.iter_mut().chain(&mut lists.update).flat_map(|draft| &mut draft.endpoints)
}
