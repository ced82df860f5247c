//! Sets the topology hints of endpoints according to the Service.
//!
//! Parity: staging/src/k8s.io/endpointslice/trafficdist/, and the order of precedence of reconciler.go.

use keleustes_objects::{Endpoint, EndpointHints, EndpointSlice, HintTarget, Interned, InternedStr, Service};
use keleustes_plan::{InvolvedObject, Memory, PlannedEvent};

use super::memory::EndpointSliceMemory;
use super::packing::{Draft, SliceChanges};
use super::topology;
use crate::service_endpoints::AddressType;

/// The hints that a Service requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HintMode {
    None,
    /// Topology aware hints: zones get endpoints in proportion to their CPUs.
    Proportional,
    /// Traffic distribution: clients prefer endpoints in their zone, and on their node with `nodes`.
    PreferClose {
        nodes: bool,
    },
}

impl HintMode {
    /// The annotations take precedence over the field, and the deprecated annotation over the newer one,
    /// even with a value other than Auto.
    pub(super) fn of(service: &Service) -> Self {
        let mode = service.topology_aware_hints.as_ref().or(service.topology_mode.as_ref());
        if mode.is_some_and(|mode| *mode == "Auto" || *mode == "auto") {
            return Self::Proportional;
        }
        match service.traffic_distribution.as_deref() {
            Some("PreferClose" | "PreferSameZone") => Self::PreferClose { nodes: false },
            Some("PreferSameNode") => Self::PreferClose { nodes: true },
            _ => Self::None,
        }
    }
}

/// Sets the hints of all endpoints. Returns events if topology aware hints were enabled or disabled.
pub(super) fn set_hints(
    changes: &mut SliceChanges,
    service: &Service,
    address_type: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    match HintMode::of(service) {
        HintMode::Proportional => set_proportional_hints(changes, service, address_type, memory),
        HintMode::PreferClose { nodes } => {
            let events = disable_proportional_hints(service, address_type, memory);
            set_prefer_close_hints(changes, nodes);
            events
        }
        HintMode::None => {
            let events = disable_proportional_hints(service, address_type, memory);
            remove_all_hints(changes);
            events
        }
    }
}

fn set_proportional_hints(
    changes: &mut SliceChanges,
    service: &Service,
    address_type: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    let key = &service.meta.key;
    let Some(zones) = memory.with(|memory| memory.zones().cloned()) else {
        unreachable!("the zones are computed before a Service with proportional hints is reconciled")
    };
    match topology::add_hints(changes, &zones) {
        Ok(counts) => {
            let had_hints = memory.with(|memory| memory.set_hint_counts(key, address_type, counts));
            let enabled = || {
                let message = event_message("Topology Aware Hints has been enabled", address_type);
                PlannedEvent::normal(InvolvedObject::of(service), "TopologyAwareHintsEnabled", message)
            };
            (!had_hints).then(enabled).into_iter().collect()
        }
        Err(why) => {
            memory.with(|memory| memory.remove_hint_counts(key, address_type));
            remove_all_hints(changes);
            vec![disabled(service, &why.to_string(), address_type)]
        }
    }
}

fn disable_proportional_hints(
    service: &Service,
    address_type: AddressType,
    memory: &Memory<EndpointSliceMemory>,
) -> Vec<PlannedEvent> {
    let had_hints = memory.with(|memory| memory.remove_hint_counts(&service.meta.key, address_type));
    let event = || disabled(service, "Topology Aware Hints has been disabled", address_type);
    had_hints.then(event).into_iter().collect()
}

fn disabled(service: &Service, why: &str, address_type: AddressType) -> PlannedEvent {
    PlannedEvent::warning(
        InvolvedObject::of(service),
        "TopologyAwareHintsDisabled",
        event_message(why, address_type),
    )
}

fn event_message(text: &str, address_type: AddressType) -> String {
    format!("{text}, addressType: {}", address_type.as_str())
}

/// Whether an endpoint is ready. Only ready endpoints get hints; the others keep theirs.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.ready == Some(true)
}

/// A hint for one zone.
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

/// Removes the hints of all endpoints.
fn remove_all_hints(changes: &mut SliceChanges) {
    let has_hints = |slice: &EndpointSlice| slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some());
    update_slices_if(changes, "hints are removed", has_hints);
    draft_endpoints(changes).for_each(|endpoint| endpoint.hints = None);
}

/// Sets the hints of every ready endpoint to its own zone, and to its node with `nodes`.
fn set_prefer_close_hints(changes: &mut SliceChanges, nodes: bool) {
    let differs = |endpoint: &Endpoint| {
        let current = endpoint.hints.as_deref().cloned().unwrap_or_default();
        current != close_hints(endpoint, nodes)
    };
    update_slices_if(changes, "hints changed", |slice| {
        slice.endpoints.iter().any(|endpoint| is_ready(endpoint) && differs(endpoint))
    });
    for endpoint in draft_endpoints(changes).filter(|endpoint| is_ready(endpoint)) {
        let hints = close_hints(endpoint, nodes);
        endpoint.hints = (hints != EndpointHints::default()).then(|| Interned::new(hints));
    }
}

fn close_hints(endpoint: &Endpoint, nodes: bool) -> EndpointHints {
    let for_nodes = if nodes { only(&endpoint.node_name) } else { Box::default() };
    EndpointHints { for_zones: only(&endpoint.zone), for_nodes }
}

/// Moves unchanged slices with wrong hints to the slices to update.
fn update_slices_if(
    changes: &mut SliceChanges,
    because: &'static str,
    needs_update: impl Fn(&EndpointSlice) -> bool,
) {
    let (wrong, unchanged) =
        std::mem::take(&mut changes.unchanged).into_iter().partition(|slice| needs_update(slice));
    changes.unchanged = unchanged;
    let wrong: Vec<_> = wrong;
    changes.update.extend(wrong.iter().map(|slice| Draft::of(slice, because)));
}

fn draft_endpoints(changes: &mut SliceChanges) -> impl Iterator<Item = &mut Endpoint> {
    changes.create.iter_mut().chain(&mut changes.update).flat_map(|draft| &mut draft.endpoints)
}
