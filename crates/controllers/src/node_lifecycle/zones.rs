//! The state of each zone, and how fast its nodes may be tainted.
//!
//! If almost no node of a zone has a heartbeat, the network to the zone is more likely broken than the nodes.
//! So the rate of tainting depends on the share of unready nodes; if no zone has a ready node, this process
//! is likely partitioned, and no node is tainted.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{ArcStr, Node};

use super::taint_queue::TaintQueue;

/// Eviction rates and thresholds; see the flags of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionRates {
    /// Nodes per second in a zone that is healthy or has no ready node at all.
    pub node_eviction_rate: f32,
    /// Nodes per second in a large zone in partial disruption.
    pub secondary_node_eviction_rate: f32,
    /// A zone with more nodes than this is large.
    pub large_cluster_size_threshold: i32,
    /// The share of unready nodes from which a zone is in partial disruption.
    pub unhealthy_zone_threshold: f32,
}

/// The state of a zone. Parity: ZoneState.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    /// Not determined yet.
    Initial,
    /// Most nodes are ready.
    Normal,
    /// At least `unhealthy_zone_threshold` of the nodes, and at least three, are not ready.
    PartialDisruption,
    /// No node is ready.
    FullDisruption,
}

/// Nodes of a zone whose health is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneNodeCounts {
    pub(super) ready: usize,
    pub(super) not_ready: usize,
}

impl ZoneNodeCounts {
    pub(super) fn count(&mut self, is_ready: bool) {
        if is_ready {
            self.ready += 1;
        } else {
            self.not_ready += 1;
        }
    }

    pub(super) fn size(self) -> usize {
        self.ready + self.not_ready
    }

    /// Ready nodes in percent.
    #[expect(clippy::cast_precision_loss, reason = "no zone has 2^52 nodes")]
    pub(super) fn health(self) -> f64 {
        if self.size() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.size() as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "the share is compared in 32 bits, as the flag is")]
    fn state(self, eviction_rates: &EvictionRates) -> ZoneState {
        let unready_share = self.not_ready as f32 / self.size() as f32;
        match self {
            Self { ready: 0, not_ready: 1.. } => ZoneState::FullDisruption,
            Self { not_ready: 3.., .. } if unready_share >= eviction_rates.unhealthy_zone_threshold => {
                ZoneState::PartialDisruption
            }
            _ => ZoneState::Normal,
        }
    }
}

/// How the state of all zones together changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisruptionChange {
    /// No change.
    None,
    /// All zones are in full disruption, for the first time.
    EnterFullDisruption,
    /// At least one zone has left full disruption.
    LeaveFullDisruption,
}

/// All zones by name.
///
/// Lost on failover; zones start in the state [`ZoneState::Initial`], and the first health check determines their
/// state before more than one node of each can be tainted.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones(BTreeMap<ArcStr, Zone>);

#[derive(Clone, Debug)]
struct Zone {
    /// `None` after a health check that counted no node of the zone. Nodes that do not count are tainted too, so
    /// the queue stays until the next health check starts a new one.
    state: Option<ZoneState>,
    taint_queue: TaintQueue,
}

impl Zones {
    /// Adds a zone if it is unknown or has lost its state; returns whether it was added. Parity:
    /// addPodEvictorForNewZone.
    pub(super) fn ensure_zone(&mut self, name: &ArcStr, eviction_rates: &EvictionRates) -> bool {
        let is_new = self.0.get(name).is_none_or(|zone| zone.state.is_none());
        if is_new {
            let taint_queue = TaintQueue::new(eviction_rates.node_eviction_rate);
            self.0.insert(name.clone(), Zone { state: Some(ZoneState::Initial), taint_queue });
        }
        is_new
    }

    /// The taint queue of a zone.
    pub(super) fn taint_queue(&mut self, name: &str) -> Option<&mut TaintQueue> {
        self.0.get_mut(name).map(|zone| &mut zone.taint_queue)
    }

    /// Removes a node from the queues of all zones.
    pub(super) fn remove(&mut self, node: &str) {
        self.0.values_mut().for_each(|zone| zone.taint_queue.remove(node));
    }

    /// The nodes that may be tainted now, with their zones.
    pub(super) fn due_nodes(&mut self, now: Duration) -> Vec<(ArcStr, ArcStr)> {
        let mut due = Vec::new();
        for (name, zone) in &mut self.0 {
            // A released node stays queued until it is tainted, and must not be released twice before that.
            let mut released: Vec<ArcStr> = Vec::new();
            while let Some(node) = zone.taint_queue.next(now).filter(|node| !released.contains(node)) {
                zone.taint_queue.add_until(&node, now);
                released.push(node);
            }
            due.extend(released.into_iter().map(|node| (name.clone(), node)));
        }
        due
    }

    /// When the next node can be released, if ever.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        self.0.values().filter_map(|zone| zone.taint_queue.next_at(now)).min()
    }

    /// Updates the states of all zones. The state of a zone without counted nodes is dropped, and the zone's
    /// name returned. Parity: handleDisruption.
    pub(super) fn update_states(
        &mut self,
        counts_by_zone: &BTreeMap<ArcStr, ZoneNodeCounts>,
        eviction_rates: &EvictionRates,
        now: Duration,
    ) -> (DisruptionChange, Vec<ArcStr>) {
        let dropped = self.drop_uncounted(counts_by_zone);
        for name in counts_by_zone.keys() {
            self.ensure_zone(name, eviction_rates);
        }
        let mut old_states = self.0.values().filter_map(|zone| zone.state);
        let all_were_disrupted = old_states.all(|state| state == ZoneState::FullDisruption);
        let all_are_disrupted =
            counts_by_zone.values().all(|counts| counts.state(eviction_rates) == ZoneState::FullDisruption);
        let change = match (all_were_disrupted, all_are_disrupted) {
            (false, true) => DisruptionChange::EnterFullDisruption,
            (true, false) => DisruptionChange::LeaveFullDisruption,
            _ => DisruptionChange::None,
        };
        for (name, counts) in counts_by_zone {
            let Some(zone) = self.0.get_mut(name) else { continue };
            let state = counts.state(eviction_rates);
            let old_state = zone.state.replace(state);
            if change == DisruptionChange::EnterFullDisruption {
                zone.taint_queue.set_rate(0.0, now);
            } else if !all_are_disrupted
                && (change == DisruptionChange::LeaveFullDisruption || old_state != Some(state))
            {
                zone.taint_queue.set_rate(eviction_rate(state, counts.size(), eviction_rates), now);
            }
        }
        (change, dropped)
    }

    /// Drops the states of the zones without counted nodes and returns their names. A zone that lost its state
    /// in an earlier health check and was not added again has no node at all, and is removed.
    fn drop_uncounted(&mut self, counts_by_zone: &BTreeMap<ArcStr, ZoneNodeCounts>) -> Vec<ArcStr> {
        self.0.retain(|name, zone| zone.state.is_some() || counts_by_zone.contains_key(name));
        let uncounted = self.0.iter_mut().filter(|(name, _)| !counts_by_zone.contains_key(*name));
        uncounted
            .map(|(name, zone)| {
                zone.state = None;
                name.clone()
            })
            .collect()
    }
}

/// The zone key of a node: region and zone, from the deprecated labels if present. Parity: GetZoneKey.
pub(super) fn zone_of(node: &Node) -> ArcStr {
    let part = |old: &str, new: &str| {
        let labels = &node.meta.labels;
        labels.value(old).or_else(|| labels.value(new)).map_or("", |value| value.as_str())
    };
    let region = part("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    let zone = part("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    // Parity: pkg/util/node of component-helpers. Neither part can hold the separator.
    if region.is_empty() && zone.is_empty() {
        ArcStr::default()
    } else {
        format!("{region}:\0:{zone}").into()
    }
}

/// How many nodes per second may be tainted. Parity: setLimiterInZone.
fn eviction_rate(state: ZoneState, size: usize, eviction_rates: &EvictionRates) -> f32 {
    let is_large =
        i64::try_from(size).is_ok_and(|size| size > eviction_rates.large_cluster_size_threshold.into());
    match state {
        ZoneState::PartialDisruption if is_large => eviction_rates.secondary_node_eviction_rate,
        ZoneState::PartialDisruption => 0.0,
        ZoneState::Initial | ZoneState::Normal | ZoneState::FullDisruption => {
            eviction_rates.node_eviction_rate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVICTION_RATES: EvictionRates = EvictionRates {
        node_eviction_rate: 0.1,
        secondary_node_eviction_rate: 0.01,
        large_cluster_size_threshold: 50,
        unhealthy_zone_threshold: 0.55,
    };

    fn zone_counts(ready: usize, not_ready: usize) -> ZoneNodeCounts {
        ZoneNodeCounts { ready, not_ready }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn update_states(
        zones: &mut Zones,
        counts_by_zone: &[(&str, ZoneNodeCounts)],
        seconds: u64,
    ) -> DisruptionChange {
        let counts_by_zone =
            counts_by_zone.iter().map(|(name, counts)| (ArcStr::from(*name), *counts)).collect();
        zones.update_states(&counts_by_zone, &EVICTION_RATES, at(seconds)).0
    }

    fn state(zones: &Zones, name: &str) -> ZoneState {
        zones.0[name].state.unwrap()
    }

    /// Seconds between two releases of one queue: the rate, measured from outside.
    fn seconds_between_releases(zones: &mut Zones, name: &str, now: u64) -> Option<u64> {
        let taint_queue = zones.taint_queue(name).unwrap();
        taint_queue.add(&ArcStr::from("probe"), at(now));
        let first = taint_queue.next_at(at(now))?;
        assert!(taint_queue.next(first).is_some());
        let between = taint_queue.next_at(first)? - first;
        taint_queue.remove("probe");
        Some(between.as_secs())
    }

    /// Proves NLC-56, NLC-90.
    #[test]
    fn zone_state_follows_from_the_share_of_unready_nodes() {
        for (ready, not_ready, wanted) in [
            (1, 0, ZoneState::Normal),
            (0, 1, ZoneState::FullDisruption),
            (0, 7, ZoneState::FullDisruption),
            (2, 3, ZoneState::PartialDisruption),
            (3, 3, ZoneState::Normal),
            (1, 2, ZoneState::Normal),
            (45, 55, ZoneState::PartialDisruption),
            (46, 54, ZoneState::Normal),
            (9, 11, ZoneState::PartialDisruption),
        ] {
            assert_eq!(
                zone_counts(ready, not_ready).state(&EVICTION_RATES),
                wanted,
                "{ready} ready, {not_ready} not"
            );
        }
    }

    /// Proves NLC-57, NLC-91.
    #[test]
    fn eviction_rate_follows_from_zone_state_and_size() {
        let same = |one: f32, other: f32| one.to_bits() == other.to_bits();
        assert!(same(eviction_rate(ZoneState::Normal, 500, &EVICTION_RATES), 0.1));
        assert!(same(eviction_rate(ZoneState::FullDisruption, 500, &EVICTION_RATES), 0.1));
        assert!(same(eviction_rate(ZoneState::PartialDisruption, 51, &EVICTION_RATES), 0.01));
        assert!(same(eviction_rate(ZoneState::PartialDisruption, 50, &EVICTION_RATES), 0.0));
        let negative_threshold = EvictionRates { large_cluster_size_threshold: -1, ..EVICTION_RATES };
        assert!(same(eviction_rate(ZoneState::PartialDisruption, 3, &negative_threshold), 0.01));
    }

    /// Proves NLC-58.
    #[test]
    fn eviction_rate_changes_only_with_the_zone_state() {
        let mut zones = Zones::default();
        update_states(&mut zones, &[("a", zone_counts(40, 60)), ("b", zone_counts(1, 0))], 0);
        assert_eq!(seconds_between_releases(&mut zones, "a", 1000), Some(100));
        // It is no longer large, and stays in partial disruption.
        update_states(&mut zones, &[("a", zone_counts(10, 30)), ("b", zone_counts(1, 0))], 2000);
        assert_eq!(seconds_between_releases(&mut zones, "a", 3000), Some(100));
        update_states(&mut zones, &[("a", zone_counts(40, 0)), ("b", zone_counts(1, 0))], 4000);
        assert_eq!(seconds_between_releases(&mut zones, "a", 5000), Some(10));
        update_states(&mut zones, &[("a", zone_counts(10, 30)), ("b", zone_counts(1, 0))], 6000);
        assert_eq!(seconds_between_releases(&mut zones, "a", 7000), None);
        update_states(&mut zones, &[("a", zone_counts(0, 40)), ("b", zone_counts(1, 0))], 8000);
        assert_eq!((state(&zones, "a"), state(&zones, "b")), (ZoneState::FullDisruption, ZoneState::Normal));
        assert_eq!(seconds_between_releases(&mut zones, "a", 9000), Some(10));
    }

    /// Proves NLC-59, NLC-60, NLC-61, NLC-81.
    #[test]
    fn full_disruption_of_all_zones_stops_tainting_until_a_node_is_ready() {
        let mut zones = Zones::default();
        zones.ensure_zone(&ArcStr::from("a"), &EVICTION_RATES);
        assert_eq!(state(&zones, "a"), ZoneState::Initial);
        let all_disrupted = [("a", zone_counts(0, 2)), ("b", zone_counts(0, 60))];
        assert_eq!(update_states(&mut zones, &all_disrupted, 0), DisruptionChange::EnterFullDisruption);
        assert_eq!(seconds_between_releases(&mut zones, "a", 100), None);
        assert_eq!(update_states(&mut zones, &all_disrupted, 100), DisruptionChange::None);
        assert_eq!(seconds_between_releases(&mut zones, "b", 200), None);
        let one_ready = [("a", zone_counts(1, 1)), ("b", zone_counts(0, 60))];
        assert_eq!(update_states(&mut zones, &one_ready, 300), DisruptionChange::LeaveFullDisruption);
        assert_eq!(seconds_between_releases(&mut zones, "a", 400), Some(10));
        assert_eq!(
            seconds_between_releases(&mut zones, "b", 400),
            Some(10),
            "also of zones still in full disruption"
        );
        assert_eq!(update_states(&mut zones, &one_ready, 500), DisruptionChange::None);
        assert_eq!(update_states(&mut zones, &all_disrupted, 600), DisruptionChange::EnterFullDisruption);
    }

    /// Proves NLC-77, NLC-86.
    #[test]
    fn zone_without_nodes_is_dropped_and_starts_as_initial() {
        let mut zones = Zones::default();
        update_states(&mut zones, &[("a", zone_counts(0, 3)), ("b", zone_counts(1, 0))], 0);
        zones.taint_queue("a").unwrap().add(&ArcStr::from("n"), at(0));
        let (change, dropped) = zones.update_states(
            &BTreeMap::from([(ArcStr::from("b"), zone_counts(1, 0))]),
            &EVICTION_RATES,
            at(5),
        );
        assert_eq!((change, dropped), (DisruptionChange::None, vec![ArcStr::from("a")]));
        assert_eq!(
            zones.due_nodes(at(5)),
            [(ArcStr::from("a"), ArcStr::from("n"))],
            "its nodes may be excluded, and are tainted too"
        );
        assert!(
            zones.ensure_zone(&ArcStr::from("a"), &EVICTION_RATES)
                && state(&zones, "a") == ZoneState::Initial
        );
        assert_eq!(zones.taint_queue("a").unwrap().next(at(10)), None, "the new queue is empty");
        // No node's health is known, which says nothing about the zones.
        assert_eq!(zones.update_states(&BTreeMap::new(), &EVICTION_RATES, at(15)).0, DisruptionChange::None);
        assert_eq!(
            update_states(&mut zones, &[("a", zone_counts(0, 1))], 20),
            DisruptionChange::EnterFullDisruption
        );
        assert!(zones.taint_queue("b").is_none(), "it has had no node for two health checks");
    }

    #[test]
    fn each_node_is_released_once_at_a_time_at_any_rate() {
        let mut zones = Zones::default();
        let fast = EvictionRates { node_eviction_rate: f32::MAX, ..EVICTION_RATES };
        zones.ensure_zone(&ArcStr::from("a"), &fast);
        for node in ["x", "y"] {
            zones.taint_queue("a").unwrap().add(&ArcStr::from(node), at(0));
        }
        let due =
            |zones: &mut Zones| zones.due_nodes(at(1)).into_iter().map(|(_, node)| node).collect::<Vec<_>>();
        assert_eq!(due(&mut zones), ["x", "y"]);
        zones.remove("x");
        assert_eq!(due(&mut zones), ["y"]);
        assert_eq!(zones.next_at(at(2)), Some(at(2)));
    }

    /// Proves NLC-15.
    #[test]
    fn zone_key_uses_deprecated_region_and_zone_labels_first() {
        let zone = |labels: serde_json::Value| {
            let node = serde_json::json!({"metadata": {"name": "n", "labels": labels}});
            zone_of(&serde_json::from_value(node).unwrap()).to_string()
        };
        let (region, zone_label) = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone");
        let old_zone = "failure-domain.beta.kubernetes.io/zone";
        assert_eq!(zone(serde_json::json!({})), "");
        assert_eq!(zone(serde_json::json!({region: "eu", zone_label: "a"})), "eu:\0:a");
        assert_eq!(zone(serde_json::json!({region: "eu", zone_label: "a", old_zone: "b"})), "eu:\0:b");
        assert_eq!(
            zone(serde_json::json!({zone_label: "a", old_zone: ""})),
            "",
            "an empty deprecated label wins, too"
        );
        assert_eq!(zone(serde_json::json!({zone_label: "a"})), ":\0:a");
    }

    #[test]
    fn zone_health_is_in_percent() {
        assert!((zone_counts(1, 3).health() - 25.0).abs() < f64::EPSILON);
        assert!((zone_counts(0, 0).health() - 100.0).abs() < f64::EPSILON);
    }
}
