//! How endpoints are shared out among zones in proportion to the CPUs of their nodes.
//!
//! Plain arithmetic over names of zones and counts; which endpoint goes where is decided in `topology`.
//!
//! Parity: staging/src/k8s.io/endpointslice/topologycache/.

use std::collections::BTreeMap;

use keleustes_objects::InternedStr;

/// How many endpoints are hinted to each zone.
pub(super) type HintsPerZone = BTreeMap<InternedStr, usize>;

/// What is known of the zones of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ZoneCpuRatios {
    /// A node tells no zone or no CPUs, or there are not two zones.
    Insufficient,
    /// The share of the cluster's CPUs that each zone has.
    Shares(BTreeMap<InternedStr, f64>),
}

/// What one node brings to its zone.
pub(super) struct NodeCpu {
    /// Its zone; empty if it tells none.
    pub(super) zone: InternedStr,
    /// Its allocatable CPUs in thousandths.
    pub(super) cpu_milli: i64,
}

/// What one zone is to get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allocation {
    /// With fewer endpoints than this, each would get too much of the zone's traffic.
    pub(super) minimum: usize,
    /// With more than this, other zones would fall below their minimum.
    pub(super) maximum: usize,
    /// What would be just.
    pub(super) desired: f64,
}

/// Why there can be no hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationError {
    /// The nodes do not tell enough.
    InsufficientNodes,
    /// There are fewer endpoints than zones.
    FewEndpoints { endpoints: usize, zones: usize },
    /// The minimums of all zones are more than there is.
    Overload { endpoints: usize, zones: usize },
}

/// How much more than its just share of the traffic an endpoint may get.
const OVERLOAD: f64 = 0.2;

impl ZoneCpuRatios {
    /// Adds up the nodes that count.
    pub(super) fn of(nodes: impl IntoIterator<Item = NodeCpu>) -> Self {
        let mut milli_by_zone: BTreeMap<InternedStr, i64> = BTreeMap::new();
        for node in nodes {
            if node.zone.is_empty() || node.cpu_milli == 0 {
                return Self::Insufficient;
            }
            *milli_by_zone.entry(node.zone).or_default() += node.cpu_milli;
        }
        let total: i64 = milli_by_zone.values().sum();
        if milli_by_zone.len() < 2 || total == 0 {
            return Self::Insufficient;
        }
        let share = |(zone, milli)| (zone, as_float(milli) / as_float(total));
        Self::Shares(milli_by_zone.into_iter().map(share).collect())
    }

    /// What each zone is to get of so many ready endpoints.
    pub(super) fn allocate(
        &self,
        endpoints: usize,
    ) -> Result<BTreeMap<InternedStr, Allocation>, AllocationError> {
        let shares = match self {
            Self::Insufficient => return Err(AllocationError::InsufficientNodes),
            Self::Shares(shares) => shares,
        };
        let zones = shares.len();
        if zones > endpoints {
            return Err(AllocationError::FewEndpoints { endpoints, zones });
        }
        let allocate = |(zone, share): (&InternedStr, &f64)| {
            let just = share * as_float(endpoints);
            let minimum = least(just);
            let desired = just.max(as_float(minimum));
            (zone.clone(), Allocation { minimum, maximum: minimum, desired })
        };
        let mut allotments: BTreeMap<_, _> = shares.iter().map(allocate).collect();
        let minimums: usize = allotments.values().map(|allotment| allotment.minimum).sum();
        if minimums > endpoints {
            return Err(AllocationError::Overload { endpoints, zones });
        }
        allotments.values_mut().for_each(|allotment| allotment.maximum += endpoints - minimums);
        Ok(allotments)
    }

    /// Whether some zone has too few endpoints for the CPUs it has now.
    pub(super) fn overload(&self, counts: &HintsPerZone) -> bool {
        let Self::Shares(shares) = self else { return !counts.is_empty() };
        let total = as_float(counts.values().sum::<usize>());
        !counts.is_empty()
            && shares
                .iter()
                .any(|(zone, share)| counts.get(zone).is_none_or(|count| *count < least(total * share)))
    }
}

/// The fewest endpoints that may bear the traffic of so many.
fn least(just: f64) -> usize {
    // A product of a share and a count, so it is neither negative nor large.
    (just * (1.0 / (1.0 + OVERLOAD))).ceil() as usize
}

/// Counts of endpoints and CPUs are far below where floating point becomes coarse.
fn as_float<N: TryInto<i64>>(number: N) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}

/// How many endpoints zones are to give, and how many others are to receive: one after the other, the
/// largest surplus fills the largest lack until it is not worth a whole endpoint.
pub(super) fn balance(
    allotments: &BTreeMap<InternedStr, Allocation>,
    counts: &HintsPerZone,
) -> (HintsPerZone, HintsPerZone) {
    let surplus =
        |zone: &InternedStr, desired: f64| as_float(counts.get(zone).copied().unwrap_or_default()) - desired;
    let mut over: BTreeMap<&InternedStr, f64> = BTreeMap::new();
    let mut under: BTreeMap<&InternedStr, f64> = BTreeMap::new();
    for (zone, allotment) in allotments {
        let surplus = surplus(zone, allotment.desired);
        if surplus > 0.0 {
            over.insert(zone, surplus);
        } else if surplus < 0.0 {
            under.insert(zone, -surplus);
        }
    }
    let (mut giving, mut receiving) = (HintsPerZone::new(), HintsPerZone::new());
    while let (Some((giver, spare)), Some((taker, lack))) = (largest(&over), largest(&under)) {
        if spare < 0.5 || lack < 0.5 || (spare < 1.0 && lack < 1.0) {
            break;
        }
        over.insert(giver, spare - 1.0);
        under.insert(taker, lack - 1.0);
        *giving.entry(giver.clone()).or_default() += 1;
        *receiving.entry(taker.clone()).or_default() += 1;
    }
    (giving, receiving)
}

/// The zone with most; the first by name of equal ones.
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

    fn zones(shares: &[(&str, i64)]) -> ZoneCpuRatios {
        ZoneCpuRatios::of(
            shares
                .iter()
                .map(|(zone, cpu_milli)| NodeCpu { zone: InternedStr::from(*zone), cpu_milli: *cpu_milli }),
        )
    }

    fn counts(counts: &[(&str, usize)]) -> HintsPerZone {
        counts.iter().map(|(zone, count)| (InternedStr::from(*zone), *count)).collect()
    }

    fn allotted(zones: &ZoneCpuRatios, endpoints: usize) -> Vec<(String, usize, usize)> {
        let allotments = zones.allocate(endpoints).unwrap().into_iter();
        allotments.map(|(zone, allotment)| (zone.to_string(), allotment.minimum, allotment.maximum)).collect()
    }

    /// Proves EPS-78, EPS-79.
    #[test]
    fn shares_are_cpus_of_a_zone_among_all_and_need_two_zones() {
        let ZoneCpuRatios::Shares(shares) = zones(&[("a", 1000), ("b", 1000), ("a", 2000)]) else {
            panic!("two zones")
        };
        assert_eq!(shares.into_values().collect::<Vec<_>>(), [0.75, 0.25]);
        for nodes in [&[][..], &[("a", 1000)], &[("a", 1000), ("", 1000), ("b", 1)], &[("a", 1000), ("b", 0)]]
        {
            assert_eq!(zones(nodes), ZoneCpuRatios::Insufficient, "{nodes:?}");
        }
    }

    /// Proves EPS-80, EPS-81, EPS-82.
    #[test]
    fn every_zone_has_a_minimum_and_what_is_left_may_go_anywhere() {
        let thirds = zones(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(thirds.allocate(2), Err(AllocationError::FewEndpoints { endpoints: 2, zones: 3 }));
        assert_eq!(allotted(&thirds, 3), [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)].map(owned));
        // A third of four is 1.33; that over 1.2 is 1.11, so two each, and there are only four.
        assert_eq!(thirds.allocate(4), Err(AllocationError::Overload { endpoints: 4, zones: 3 }));
        assert_eq!(allotted(&thirds, 12), [("a", 4, 4), ("b", 4, 4), ("c", 4, 4)].map(owned));
        assert_eq!(allotted(&thirds, 30), [("a", 9, 12), ("b", 9, 12), ("c", 9, 12)].map(owned));
        let uneven = zones(&[("a", 4), ("b", 1)]);
        assert_eq!(allotted(&uneven, 10), [("a", 7, 8), ("b", 2, 3)].map(owned));
        // A twentieth of ten is half an endpoint, but the least is a whole one.
        let few = zones(&[("a", 19), ("b", 1)]).allocate(10).unwrap();
        assert_eq!(few.into_values().map(|allotment| allotment.desired).collect::<Vec<_>>(), [9.5, 1.0]);
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
    fn the_largest_surplus_fills_the_largest_lack_while_it_is_worth_an_endpoint() {
        let moved = |shares: &[(&str, i64)], endpoints, there: &[(&str, usize)]| {
            balance(&zones(shares).allocate(endpoints).unwrap(), &counts(there))
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
        // Nobody wants less than half an endpoint: five of ten each against 5.4 and 4.6.
        assert_eq!(
            moved(&[("a", 54), ("b", 46)], 10, &[("a", 5), ("b", 5)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
        // More than half on both sides is not enough either, unless one of them has a whole one.
        assert_eq!(
            moved(&[("a", 56), ("b", 44)], 10, &[("a", 5), ("b", 5)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
        assert_eq!(
            moved(&[("a", 62), ("b", 38)], 10, &[("a", 5), ("b", 5)]),
            (counts(&[("b", 1)]), counts(&[("a", 1)]))
        );
        // A zone that is not allotted anything neither gives nor receives.
        assert_eq!(
            moved(&[("a", 1), ("b", 1)], 12, &[("a", 2), ("b", 2), ("z", 8)]),
            (HintsPerZone::new(), HintsPerZone::new())
        );
    }

    /// Proves EPS-91.
    #[test]
    fn a_service_is_overloaded_when_a_zone_lacks_its_minimum() {
        let halves = zones(&[("a", 1), ("b", 1)]);
        assert!(!halves.overload(&counts(&[("a", 5), ("b", 5)])));
        // Half of ten over 1.2 is 4.17.
        assert!(!halves.overload(&counts(&[("a", 5), ("b", 5), ("c", 0)])));
        assert!(halves.overload(&counts(&[("a", 6), ("b", 4)])));
        assert!(halves.overload(&counts(&[("a", 6)])), "a zone without endpoints");
        assert!(ZoneCpuRatios::Insufficient.overload(&counts(&[("a", 6)])), "no shares at all");
        assert!(
            !halves.overload(&HintsPerZone::new())
                && !ZoneCpuRatios::Insufficient.overload(&HintsPerZone::new())
        );
    }
}
