//! Topology aware hints: each zone gets a share of the endpoints in proportion to its share of the cluster's
//! CPUs.
//!
//! Parity: staging/src/k8s.io/endpointslice/topologycache/.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use keleustes_objects::{Endpoint, EndpointSlice, InternedStr, Node};

use super::gather::zone_of;
use super::hints::{is_ready, prefer_zone};
use super::packing::{Draft, SliceChanges};
use super::zones::{Allocation, AllocationError, HintsPerZone, NodeCpu, ZoneCpuRatios, balance};

/// Nodes with one of these labels are excluded, because they run no ordinary pods.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHints {
    /// The zones do not allow hints.
    WriteError(AllocationError),
    /// An endpoint has no zone.
    NoZone,
    /// There is no endpoint that could get a hint.
    NoEndpoints,
}

impl fmt::Display for NoHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, counts) = match self {
            Self::NoZone => ("One or more endpoints do not have a zone specified", None),
            Self::NoEndpoints => ("No hints allocated for zones", None),
            Self::WriteError(AllocationError::InsufficientNodes) => (
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
                None,
            ),
            Self::WriteError(AllocationError::InsufficientEndpoints { endpoints, zones }) => {
                ("Insufficient number of endpoints", Some((endpoints, zones)))
            }
            Self::WriteError(AllocationError::Overload { endpoints, zones }) => (
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold",
                Some((endpoints, zones)),
            ),
        };
        f.write_str(text)?;
        counts.map_or(Ok(()), |(endpoints, zones)| write!(f, " ({endpoints} endpoints, {zones} zones)"))
    }
}

/// Computes the CPU ratios of the zones from all nodes.
pub(super) fn zone_cpu_ratios<'n>(nodes: impl Iterator<Item = &'n Arc<Node>>) -> ZoneCpuRatios {
    let is_excluded = |node: &Node| EXCLUDED.iter().any(|label| node.meta.labels.value(label).is_some());
    let counted = nodes.filter(|node| node.is_ready() && !is_excluded(node));
    ZoneCpuRatios::of(
        counted.map(|node| NodeCpu { zone: zone_of(node), cpu_milli: node.allocatable_cpu_milli }),
    )
}

/// Assigns every ready endpoint to a zone. Returns the number of endpoints per zone.
///
/// # Errors
/// The reason why hints are not possible; some hints may already be changed then.
pub(super) fn add_hints(changes: &mut SliceChanges, zones: &ZoneCpuRatios) -> Result<HintsPerZone, NoHints> {
    let allocations = zones.allocate(ready_endpoints(changes)).map_err(NoHints::WriteError)?;
    let mut counts = keep_slices_with_valid_hints(changes, &allocations);
    let mut drafts: Vec<&mut Draft> = changes.create.iter_mut().chain(&mut changes.update).collect();
    for endpoint in ready_in(&mut drafts) {
        if endpoint.zone.is_empty() {
            return Err(NoHints::NoZone);
        }
        endpoint.hints = Some(prefer_zone(&endpoint.zone));
        *counts.entry(endpoint.zone.clone()).or_default() += 1;
    }
    let (giving, receiving) = balance(&allocations, &counts);
    move_hints(&mut drafts, giving, receiving, &mut counts);
    if counts.is_empty() { Err(NoHints::NoEndpoints) } else { Ok(counts) }
}

fn ready_endpoints(changes: &SliceChanges) -> usize {
    let draft_endpoints = changes.create.iter().chain(&changes.update).flat_map(|draft| &draft.endpoints);
    let unchanged = changes.unchanged.iter().flat_map(|slice| &slice.endpoints);
    draft_endpoints.chain(unchanged).filter(|endpoint| is_ready(endpoint)).count()
}

fn ready_in<'d>(drafts: &'d mut [&mut Draft]) -> impl Iterator<Item = &'d mut Endpoint> {
    drafts.iter_mut().flat_map(|draft| &mut draft.endpoints).filter(|endpoint| is_ready(endpoint))
}

/// Counts the hints of slices that can stay unchanged; the other slices are updated.
fn keep_slices_with_valid_hints(
    changes: &mut SliceChanges,
    allocations: &BTreeMap<InternedStr, Allocation>,
) -> HintsPerZone {
    let mut counts = HintsPerZone::new();
    for slice in std::mem::take(&mut changes.unchanged) {
        match valid_hints(&slice, &counts, allocations) {
            Some(hints) => {
                hints.into_iter().for_each(|(zone, more)| *counts.entry(zone).or_default() += more);
                changes.unchanged.push(slice);
            }
            None => changes.update.push(Draft::of(&slice, "zone hints changed")),
        }
    }
    counts
}

/// The hints per zone of a slice, if every ready endpoint has one and no zone exceeds its maximum.
fn valid_hints(
    slice: &EndpointSlice,
    counts: &HintsPerZone,
    allocations: &BTreeMap<InternedStr, Allocation>,
) -> Option<HintsPerZone> {
    let mut hints = HintsPerZone::new();
    for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
        let zones = &endpoint.hints.as_ref()?.for_zones;
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            allocations.get(&zone.name)?;
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, more): (&InternedStr, &usize)| {
        let current = counts.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_some_and(|allocation| current + more <= allocation.maximum)
    };
    hints.iter().all(fits).then_some(hints)
}

/// Reassigns endpoints from zones with too many to zones with too few.
fn move_hints(
    drafts: &mut [&mut Draft],
    mut giving: HintsPerZone,
    mut receiving: HintsPerZone,
    counts: &mut HintsPerZone,
) {
    for endpoint in ready_in(drafts) {
        let giver = endpoint.zone.clone();
        if !giving.contains_key(&giver) {
            continue;
        }
        let Some(taker) = receiving.keys().next().cloned() else { return };
        endpoint.hints = Some(prefer_zone(&taker));
        take_one(&mut giving, &giver);
        take_one(&mut receiving, &taker);
        *counts.entry(taker).or_default() += 1;
        if let Some(count) = counts.get_mut(&giver) {
            *count = count.saturating_sub(1);
        }
    }
}

fn take_one(counts: &mut HintsPerZone, zone: &InternedStr) {
    if let Some(count) = counts.get_mut(zone) {
        *count -= 1;
        if *count == 0 {
            counts.remove(zone);
        }
    }
}
