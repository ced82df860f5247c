//! Hints in proportion to CPUs: every zone's clients prefer as many endpoints as the zone has of the cluster.
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

/// Nodes with one of these labels run no ordinary pods.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Why a Service gets no hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHints {
    /// The zones do not allow it.
    Refused(AllocationError),
    /// An endpoint is in no zone.
    NoZone,
    /// There was no endpoint to hint.
    Nothing,
}

impl fmt::Display for NoHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, counts) = match self {
            Self::NoZone => ("One or more endpoints do not have a zone specified", None),
            Self::Nothing => ("No hints allocated for zones", None),
            Self::Refused(AllocationError::InsufficientNodes) => (
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
                None,
            ),
            Self::Refused(AllocationError::FewEndpoints { endpoints, zones }) => {
                ("Insufficient number of endpoints", Some((endpoints, zones)))
            }
            Self::Refused(AllocationError::Overload { endpoints, zones }) => (
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold",
                Some((endpoints, zones)),
            ),
        };
        f.write_str(text)?;
        counts.map_or(Ok(()), |(endpoints, zones)| write!(f, " ({endpoints} endpoints, {zones} zones)"))
    }
}

/// Looks at all nodes of the cluster.
pub(super) fn survey<'n>(nodes: impl Iterator<Item = &'n Arc<Node>>) -> ZoneCpuRatios {
    let is_excluded = |node: &Node| EXCLUDED.iter().any(|label| node.meta.labels.value(label).is_some());
    let counted = nodes.filter(|node| node.is_ready() && !is_excluded(node));
    ZoneCpuRatios::of(
        counted.map(|node| NodeCpu { zone: zone_of(node), cpu_milli: node.allocatable_cpu_milli }),
    )
}

/// Gives every ready endpoint a zone and tells how many each zone has got.
///
/// # Errors
/// Why that cannot be; hints may have been half changed then.
pub(super) fn add_hints(lists: &mut SliceChanges, zones: &ZoneCpuRatios) -> Result<HintsPerZone, NoHints> {
    let allotments = zones.allocate(ready_endpoints(lists)).map_err(NoHints::Refused)?;
    let mut counts = keep_good_slices(lists, &allotments);
    let mut drafts: Vec<&mut Draft> = lists.create.iter_mut().chain(&mut lists.update).collect();
    for endpoint in ready_in(&mut drafts) {
        if endpoint.zone.is_empty() {
            return Err(NoHints::NoZone);
        }
        endpoint.hints = Some(prefer_zone(&endpoint.zone));
        *counts.entry(endpoint.zone.clone()).or_default() += 1;
    }
    let (giving, receiving) = balance(&allotments, &counts);
    move_hints(&mut drafts, giving, receiving, &mut counts);
    if counts.is_empty() { Err(NoHints::Nothing) } else { Ok(counts) }
}

fn ready_endpoints(lists: &SliceChanges) -> usize {
    let drafted = lists.create.iter().chain(&lists.update).flat_map(|draft| &draft.endpoints);
    let unchanged = lists.unchanged.iter().flat_map(|slice| &slice.endpoints);
    drafted.chain(unchanged).filter(|endpoint| is_ready(endpoint)).count()
}

fn ready_in<'d>(drafts: &'d mut [&mut Draft]) -> impl Iterator<Item = &'d mut Endpoint> {
    drafts.iter_mut().flat_map(|draft| &mut draft.endpoints).filter(|endpoint| is_ready(endpoint))
}

/// Counts the hints of slices that can stay as they are; the others are to be written anew.
fn keep_good_slices(
    lists: &mut SliceChanges,
    allotments: &BTreeMap<InternedStr, Allocation>,
) -> HintsPerZone {
    let mut counts = HintsPerZone::new();
    for slice in std::mem::take(&mut lists.unchanged) {
        match good_hints(&slice, &counts, allotments) {
            Some(hints) => {
                hints.into_iter().for_each(|(zone, more)| *counts.entry(zone).or_default() += more);
                lists.unchanged.push(slice);
            }
            None => lists.update.push(Draft::of(&slice, "zones are to be preferred otherwise")),
        }
    }
    counts
}

/// How many hints a slice has for each zone, if every ready endpoint has one and no zone gets too many.
fn good_hints(
    slice: &EndpointSlice,
    counts: &HintsPerZone,
    allotments: &BTreeMap<InternedStr, Allocation>,
) -> Option<HintsPerZone> {
    let mut hints = HintsPerZone::new();
    for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
        let zones = &endpoint.hints.as_ref()?.for_zones;
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            allotments.get(&zone.name)?;
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, more): (&InternedStr, &usize)| {
        let there = counts.get(zone).copied().unwrap_or_default();
        allotments.get(zone).is_some_and(|allotment| there + more <= allotment.maximum)
    };
    hints.iter().all(fits).then_some(hints)
}

/// Points endpoints of zones that have too many to zones that have too few.
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
