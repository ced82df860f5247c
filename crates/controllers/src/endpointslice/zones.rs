//! Allocates endpoints to zones in proportion to the CPUs of their nodes.
//!
//! This module only computes with zone names and counts; `topology` decides which endpoint goes to which
//! zone.
//!
//! Parity: staging/src/k8s.io/endpointslice/topologycache/.

use std::collections::BTreeMap;

use keleustes_objects::InternedStr;

/// The number of endpoints with a hint for each zone.
pub(super) type HintsPerZone = BTreeMap<InternedStr, usize>;

/// The CPU ratios of the zones of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ZoneCpuRatios {
    /// A node has no zone or no allocatable CPU, or there are fewer than two zones.
    Insufficient,
    /// Each zone's share of the cluster's CPUs.
    Ratios(BTreeMap<InternedStr, f64>),
}

/// The allocatable CPU of one node.
pub(super) struct NodeCpu {
    /// Its zone; empty if it has no zone label.
    pub(super) zone: InternedStr,
    pub(super) cpu_milli: i64,
}

/// The allocation of endpoints to one zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allocation {
    /// With fewer endpoints, each would get too much of the zone's traffic.
    pub(super) minimum: usize,
    /// With more endpoints, other zones would fall below their minimum.
    pub(super) maximum: usize,
    /// The zone's proportional ratio, but not less than the minimum.
    pub(super) desired: f64,
}

/// Why endpoints cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationError {
    InsufficientNodes,
    /// There are fewer endpoints than zones.
    InsufficientEndpoints {
        endpoints: usize,
        zones: usize,
    },
    /// The minimums of all zones exceed the number of endpoints.
    Overload {
        endpoints: usize,
        zones: usize,
    },
}

/// How much more than its proportional share of the traffic an endpoint may get (upstream:
/// overloadThreshold).
const OVERLOAD: f64 = 0.2;

impl ZoneCpuRatios {
    /// Sums up the nodes by zone.
    pub(super) fn of(nodes: impl IntoIterator<Item = NodeCpu>) -> Self {
        let mut milli_by_zone: BTreeMap<InternedStr, i128> = BTreeMap::new();
        for node in nodes {
            if node.zone.is_empty() || node.cpu_milli == 0 {
                return Self::Insufficient;
            }
            *milli_by_zone.entry(node.zone).or_default() += i128::from(node.cpu_milli);
        }
        let total: i128 = milli_by_zone.values().sum();
        if milli_by_zone.len() < 2 || total == 0 {
            return Self::Insufficient;
        }
        let ratio = |(zone, milli)| (zone, milli as f64 / total as f64);
        Self::Ratios(milli_by_zone.into_iter().map(ratio).collect())
    }

    /// Allocates this many ready endpoints to the zones.
    pub(super) fn allocate(
        &self,
        endpoints: usize,
    ) -> Result<BTreeMap<InternedStr, Allocation>, AllocationError> {
        let ratios = match self {
            Self::Insufficient => return Err(AllocationError::InsufficientNodes),
            Self::Ratios(ratios) => ratios,
        };
        let zones = ratios.len();
        if zones > endpoints {
            return Err(AllocationError::InsufficientEndpoints { endpoints, zones });
        }
        let allocate = |(zone, ratio): (&InternedStr, &f64)| {
            let fair_share = ratio * as_float(endpoints);
            let minimum = min_endpoints(fair_share);
            let desired = fair_share.max(as_float(minimum));
            (zone.clone(), Allocation { minimum, maximum: minimum, desired })
        };
        let mut allocations: BTreeMap<_, _> = ratios.iter().map(allocate).collect();
        let minimums: usize = allocations.values().map(|allocation| allocation.minimum).sum();
        if minimums > endpoints {
            return Err(AllocationError::Overload { endpoints, zones });
        }
        allocations.values_mut().for_each(|allocation| allocation.maximum += endpoints - minimums);
        Ok(allocations)
    }

    /// Whether some zone has fewer endpoints than its minimum under these ratios.
    pub(super) fn is_overloaded(&self, counts: &HintsPerZone) -> bool {
        let Self::Ratios(ratios) = self else { return !counts.is_empty() };
        let total = as_float(counts.values().sum::<usize>());
        !counts.is_empty()
            && ratios.iter().any(|(zone, ratio)| {
                counts.get(zone).is_none_or(|count| *count < min_endpoints(total * ratio))
            })
    }
}

/// The minimum number of endpoints for a proportional share.
fn min_endpoints(fair_share: f64) -> usize {
    // A product of a ratio and a count, so it is neither negative nor large.
    (fair_share * (1.0 / (1.0 + OVERLOAD))).ceil() as usize
}

/// Counts of endpoints and CPUs are far below the range where `f64` loses integers.
fn as_float<N: TryInto<i64>>(number: N) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}

/// The number of endpoints that zones give, and that others receive: repeatedly, the zone with the largest
/// surplus gives one to the zone with the largest deficit, until the difference is too small for a whole
/// endpoint.
pub(super) fn balance(
    allocations: &BTreeMap<InternedStr, Allocation>,
    counts: &HintsPerZone,
) -> (HintsPerZone, HintsPerZone) {
    let surplus =
        |zone: &InternedStr, desired: f64| as_float(counts.get(zone).copied().unwrap_or_default()) - desired;
    let mut over: BTreeMap<&InternedStr, f64> = BTreeMap::new();
    let mut under: BTreeMap<&InternedStr, f64> = BTreeMap::new();
    for (zone, allocation) in allocations {
        let surplus = surplus(zone, allocation.desired);
        if surplus > 0.0 {
            over.insert(zone, surplus);
        } else if surplus < 0.0 {
            under.insert(zone, -surplus);
        }
    }
    let (mut giving, mut receiving) = (HintsPerZone::new(), HintsPerZone::new());
    while let (Some((giver, spare)), Some((taker, deficit))) = (largest(&over), largest(&under)) {
        if spare < 0.5 || deficit < 0.5 || (spare < 1.0 && deficit < 1.0) {
            break;
        }
        over.insert(giver, spare - 1.0);
        under.insert(taker, deficit - 1.0);
        *giving.entry(giver.clone()).or_default() += 1;
        *receiving.entry(taker.clone()).or_default() += 1;
    }
    (giving, receiving)
}

/// The zone with the largest amount; the first by name among equal ones.
fn largest<'z>(amounts: &BTreeMap<&'z InternedStr, f64>) -> Option<(&'z InternedStr, f64)> {
    let mut largest = None;
    for (zone, amount) in amounts {
        if *amount > largest.map_or(0.0, |(_, most)| most) {
            largest = Some((*zone, *amount));
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(ratios: &[(&str, i64)]) -> ZoneCpuRatios {
        ZoneCpuRatios::of(
            ratios
                .iter()
                .map(|(zone, cpu_milli)| NodeCpu { zone: InternedStr::from(*zone), cpu_milli: *cpu_milli }),
        )
    }

    fn counts(counts: &[(&str, usize)]) -> HintsPerZone {
        counts.iter().map(|(zone, count)| (InternedStr::from(*zone), *count)).collect()
    }

    fn allotted(zones: &ZoneCpuRatios, endpoints: usize) -> Vec<(String, usize, usize)> {
        let allocations = zones.allocate(endpoints).unwrap().into_iter();
        allocations
            .map(|(zone, allocation)| (zone.to_string(), allocation.minimum, allocation.maximum))
            .collect()
    }

    /// Proves EPS-78, EPS-79.
    #[test]
    fn ratios_are_cpu_shares_and_need_two_zones() {
        let ZoneCpuRatios::Ratios(ratios) = zones(&[("a", 1000), ("b", 1000), ("a", 2000)]) else {
            panic!("two zones")
        };
        assert_eq!(ratios.into_values().collect::<Vec<_>>(), [0.75, 0.25]);
        // A node may report any number.
        let ZoneCpuRatios::Ratios(ratios) = zones(&[("a", i64::MAX), ("a", i64::MAX), ("b", i64::MAX)])
        else {
            panic!("two zones")
        };
        assert_eq!(ratios.into_values().collect::<Vec<_>>(), [2.0 / 3.0, 1.0 / 3.0]);
        for nodes in [&[][..], &[("a", 1000)], &[("a", 1000), ("", 1000), ("b", 1)], &[("a", 1000), ("b", 0)]]
        {
            assert_eq!(zones(nodes), ZoneCpuRatios::Insufficient, "{nodes:?}");
        }
    }

    /// Proves EPS-80, EPS-81, EPS-82.
    #[test]
    fn every_zone_has_a_minimum_and_the_rest_may_go_to_any_zone() {
        let thirds = zones(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(
            thirds.allocate(2),
            Err(AllocationError::InsufficientEndpoints { endpoints: 2, zones: 3 })
        );
        assert_eq!(allotted(&thirds, 3), [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)].map(owned));
        // A third of 4 is 1.33; divided by 1.2 it is 1.11, so the minimum is 2 each, but there are only 4
        // endpoints.
        assert_eq!(thirds.allocate(4), Err(AllocationError::Overload { endpoints: 4, zones: 3 }));
        assert_eq!(allotted(&thirds, 12), [("a", 4, 4), ("b", 4, 4), ("c", 4, 4)].map(owned));
        assert_eq!(allotted(&thirds, 30), [("a", 9, 12), ("b", 9, 12), ("c", 9, 12)].map(owned));
        let uneven = zones(&[("a", 4), ("b", 1)]);
        assert_eq!(allotted(&uneven, 10), [("a", 7, 8), ("b", 2, 3)].map(owned));
        // A twentieth of 10 is half an endpoint, but the minimum is a whole one.
        let few = zones(&[("a", 19), ("b", 1)]).allocate(10).unwrap();
        assert_eq!(few.into_values().map(|allocation| allocation.desired).collect::<Vec<_>>(), [9.5, 1.0]);
        assert_eq!(
            zones(&[("a", 9), ("b", 1)]).allocate(2),
            Err(AllocationError::Overload { endpoints: 2, zones: 2 })
        );
    }

    fn owned((zone, minimum, maximum): (&str, usize, usize)) -> (String, usize, usize) {
        (zone.to_owned(), minimum, maximum)
    }

    /// Proves EPS-85, EPS-86.
    #[test]
    fn the_largest_surplus_fills_the_largest_deficit_by_whole_endpoints() {
        let moved = |ratios: &[(&str, i64)], endpoints, there: &[(&str, usize)]| {
            balance(&zones(ratios).allocate(endpoints).unwrap(), &counts(there))
        };
        let thirds = [("a", 1), ("b", 1), ("c", 1)];
        assert_eq!(
            moved(&thirds, 12, &[("a", 8), ("b", 3), ("c", 1)]),
            (counts(&[("a", 4)]), counts(&[("b", 1), ("c", 3)]))
        );
        assert_eq!(
            moved(&thirds, 12, &[("a", 4), ("b", 4), ("c", 4)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
        // Differences below half an endpoint move nothing: five of ten each against 5.4 and 4.6.
        assert_eq!(
            moved(&[("a", 54), ("b", 46)], 10, &[("a", 5), ("b", 5)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
        // More than half on both sides moves nothing either, unless one side is at least a whole endpoint
        // off.
        assert_eq!(
            moved(&[("a", 56), ("b", 44)], 10, &[("a", 5), ("b", 5)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
        assert_eq!(
            moved(&[("a", 62), ("b", 38)], 10, &[("a", 5), ("b", 5)]),
            (counts(&[("b", 1)]), counts(&[("a", 1)]))
        );
        // A zone without an allocation neither gives nor receives.
        assert_eq!(
            moved(&[("a", 1), ("b", 1)], 12, &[("a", 2), ("b", 2), ("z", 8)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
    }

    /// Proves EPS-91.
    #[test]
    fn a_service_is_overloaded_when_a_zone_is_below_its_minimum() {
        let halves = zones(&[("a", 1), ("b", 1)]);
        assert!(!halves.is_overloaded(&counts(&[("a", 5), ("b", 5)])));
        // Half of 10 divided by 1.2 is 4.17.
        assert!(!halves.is_overloaded(&counts(&[("a", 5), ("b", 5), ("c", 0)])));
        assert!(halves.is_overloaded(&counts(&[("a", 6), ("b", 4)])));
        assert!(halves.is_overloaded(&counts(&[("a", 6)])), "a zone without endpoints");
        assert!(ZoneCpuRatios::Insufficient.is_overloaded(&counts(&[("a", 6)])), "no ratios at all");
        assert!(
            !halves.is_overloaded(&HintsPerZone::new())
                && !ZoneCpuRatios::Insufficient.is_overloaded(&HintsPerZone::new())
        );
    }
}
