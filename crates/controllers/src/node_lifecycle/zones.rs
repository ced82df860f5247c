//! How much of each zone is lost, and how fast its nodes may therefore be tainted.
//!
//! A zone in which almost nobody answers says more about the network between us and the zone than about
//! its nodes. So the pace of tainting depends on the share of lost nodes, and if no zone at all has a
//! healthy node, it is us who are cut off: then nothing is tainted.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{ArcStr, Node};

use super::tainter::TaintQueue;

/// What decides about a zone's pace; see the flags of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionRates {
    /// Nodes a second, where most are healthy and where none is.
    pub node_eviction_rate: f32,
    /// Nodes a second in a large zone that has lost many.
    pub secondary_node_eviction_rate: f32,
    /// A zone with more nodes is large.
    pub large_cluster_size_threshold: i32,
    /// The share of lost nodes from which on a zone has lost many.
    pub unhealthy_zone_threshold: f32,
}

/// How a zone fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not judged yet.
    Initial,
    /// Most nodes are healthy.
    Normal,
    /// Many nodes are lost.
    PartialDisruption,
    /// No node is healthy.
    FullDisruption,
}

/// The nodes of a zone that were judged.
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

    /// Healthy nodes in percent.
    #[expect(clippy::cast_precision_loss, reason = "no zone has 2^52 nodes")]
    pub(super) fn health(self) -> f64 {
        if self.size() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.size() as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "the share is compared in 32 bits, as the flag is")]
    fn state(self, eviction_rates: &EvictionRates) -> State {
        let share = self.not_ready as f32 / self.size() as f32;
        match self {
            Self { ready: 0, not_ready: 1.. } => State::FullDisruption,
            Self { not_ready: 3.., .. } if share >= eviction_rates.unhealthy_zone_threshold => {
                State::PartialDisruption
            }
            _ => State::Normal,
        }
    }
}

/// What all zones together have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing of note.
    None,
    /// From now on no zone has a healthy node.
    EnterFullDisruption,
    /// Some zone has a healthy node again.
    LeaveFullDisruption,
}

/// All zones by name.
///
/// With the process they are lost, and begin anew in the state [`State::Initial`]: the first pass
/// judges them before more than one node of each can be tainted.
#[derive(Debug, Default)]
pub(super) struct Zones(BTreeMap<ArcStr, Zone>);

#[derive(Debug)]
struct Zone {
    state: State,
    tainter: TaintQueue,
}

impl Zones {
    /// Makes sure that a zone is known; tells whether it is new.
    pub(super) fn meet(&mut self, name: &ArcStr, eviction_rates: &EvictionRates, now: Duration) -> bool {
        let is_new = !self.0.contains_key(name);
        if is_new {
            let tainter = TaintQueue::new(eviction_rates.node_eviction_rate, now);
            self.0.insert(name.clone(), Zone { state: State::Initial, tainter });
        }
        is_new
    }

    /// The waiting nodes of a zone.
    pub(super) fn tainter(&mut self, name: &str) -> Option<&mut TaintQueue> {
        self.0.get_mut(name).map(|zone| &mut zone.tainter)
    }

    /// Lets a node wait no longer, wherever it does.
    pub(super) fn remove(&mut self, node: &str) {
        self.0.values_mut().for_each(|zone| zone.tainter.remove(node));
    }

    /// The nodes whose turn it is, with their zones.
    pub(super) fn turns(&mut self, now: Duration) -> Vec<(ArcStr, ArcStr)> {
        let mut turns = Vec::new();
        for (name, zone) in &mut self.0 {
            // Who had a turn stays until something came of it, and must not have a second one before that.
            let mut had: Vec<ArcStr> = Vec::new();
            while let Some(node) = zone.tainter.next(now).filter(|node| !had.contains(node)) {
                zone.tainter.wait_until(&node, now);
                had.push(node);
            }
            turns.extend(had.into_iter().map(|node| (name.clone(), node)));
        }
        turns
    }

    /// When there can be a turn again, if ever.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        self.0.values().filter_map(|zone| zone.tainter.next_at(now)).min()
    }

    /// Judges all zones anew. A zone without a judged node is forgotten; its name is told.
    pub(super) fn judge(
        &mut self,
        counted: &BTreeMap<ArcStr, ZoneNodeCounts>,
        eviction_rates: &EvictionRates,
        now: Duration,
    ) -> (Turn, Vec<ArcStr>) {
        let lost: Vec<ArcStr> = self.0.keys().filter(|name| !counted.contains_key(*name)).cloned().collect();
        lost.iter().for_each(|name| drop(self.0.remove(name)));
        for name in counted.keys() {
            self.meet(name, eviction_rates, now);
        }
        let all_were_lost = self.0.values().all(|zone| zone.state == State::FullDisruption);
        let all_are_lost =
            counted.values().all(|census| census.state(eviction_rates) == State::FullDisruption);
        let turn = match (all_were_lost, all_are_lost) {
            (false, true) => Turn::EnterFullDisruption,
            (true, false) => Turn::LeaveFullDisruption,
            _ => Turn::None,
        };
        for (name, census) in counted {
            let Some(zone) = self.0.get_mut(name) else { continue };
            let (state, before) = (census.state(eviction_rates), zone.state);
            zone.state = state;
            if turn == Turn::EnterFullDisruption {
                zone.tainter.set_pace(0.0, now);
            } else if !all_are_lost && (turn == Turn::LeaveFullDisruption || state != before) {
                zone.tainter.set_pace(pace(state, census.size(), eviction_rates), now);
            }
        }
        (turn, lost)
    }
}

/// Where a node is: its region and its zone, by the older labels if it has them.
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

/// How many nodes a second may be tainted.
fn pace(state: State, size: usize, eviction_rates: &EvictionRates) -> f32 {
    let is_large =
        i64::try_from(size).is_ok_and(|size| size > eviction_rates.large_cluster_size_threshold.into());
    match state {
        State::PartialDisruption if is_large => eviction_rates.secondary_node_eviction_rate,
        State::PartialDisruption => 0.0,
        State::Initial | State::Normal | State::FullDisruption => eviction_rates.node_eviction_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACES: EvictionRates = EvictionRates {
        node_eviction_rate: 0.1,
        secondary_node_eviction_rate: 0.01,
        large_cluster_size_threshold: 50,
        unhealthy_zone_threshold: 0.55,
    };

    fn census(ready: usize, not_ready: usize) -> ZoneNodeCounts {
        ZoneNodeCounts { ready, not_ready }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn judge(zones: &mut Zones, counted: &[(&str, ZoneNodeCounts)], seconds: u64) -> Turn {
        let counted = counted.iter().map(|(name, census)| (ArcStr::from(*name), *census)).collect();
        zones.judge(&counted, &PACES, at(seconds)).0
    }

    fn state(zones: &Zones, name: &str) -> State {
        zones.0[name].state
    }

    /// Seconds until the second of two waiting nodes has its turn: the pace, seen from outside.
    fn seconds_between_turns(zones: &mut Zones, name: &str, now: u64) -> Option<u64> {
        let tainter = zones.tainter(name).unwrap();
        tainter.add(&ArcStr::from("probe"), at(now));
        let first = tainter.next_at(at(now))?;
        assert!(tainter.next(first).is_some());
        let between = tainter.next_at(first)? - first;
        tainter.remove("probe");
        Some(between.as_secs())
    }

    /// Proves NLC-56, NLC-90.
    #[test]
    fn the_state_follows_from_the_share_of_lost_nodes() {
        for (ready, not_ready, wanted) in [
            (1, 0, State::Normal),
            (0, 1, State::FullDisruption),
            (0, 7, State::FullDisruption),
            (2, 3, State::PartialDisruption),
            (3, 3, State::Normal),
            (1, 2, State::Normal),
            (45, 55, State::PartialDisruption),
            (46, 54, State::Normal),
            (9, 11, State::PartialDisruption),
        ] {
            assert_eq!(census(ready, not_ready).state(&PACES), wanted, "{ready} ready, {not_ready} not");
        }
    }

    /// Proves NLC-57, NLC-91.
    #[test]
    fn the_pace_follows_from_the_state_and_the_size() {
        let same = |one: f32, other: f32| one.to_bits() == other.to_bits();
        assert!(same(pace(State::Normal, 500, &PACES), 0.1));
        assert!(same(pace(State::FullDisruption, 500, &PACES), 0.1));
        assert!(same(pace(State::PartialDisruption, 51, &PACES), 0.01));
        assert!(same(pace(State::PartialDisruption, 50, &PACES), 0.0));
        let odd = EvictionRates { large_cluster_size_threshold: -1, ..PACES };
        assert!(same(pace(State::PartialDisruption, 3, &odd), 0.01));
    }

    /// Proves NLC-58.
    #[test]
    fn the_pace_changes_with_the_state_only() {
        let mut zones = Zones::default();
        judge(&mut zones, &[("a", census(40, 60)), ("b", census(1, 0))], 0);
        assert_eq!(seconds_between_turns(&mut zones, "a", 1000), Some(100));
        // It shrinks below what is large, and stays as unhealthy as it was.
        judge(&mut zones, &[("a", census(10, 30)), ("b", census(1, 0))], 2000);
        assert_eq!(seconds_between_turns(&mut zones, "a", 3000), Some(100));
        judge(&mut zones, &[("a", census(40, 0)), ("b", census(1, 0))], 4000);
        assert_eq!(seconds_between_turns(&mut zones, "a", 5000), Some(10));
        judge(&mut zones, &[("a", census(10, 30)), ("b", census(1, 0))], 6000);
        assert_eq!(seconds_between_turns(&mut zones, "a", 7000), None);
        judge(&mut zones, &[("a", census(0, 40)), ("b", census(1, 0))], 8000);
        assert_eq!((state(&zones, "a"), state(&zones, "b")), (State::FullDisruption, State::Normal));
        assert_eq!(seconds_between_turns(&mut zones, "a", 9000), Some(10));
    }

    /// Proves NLC-59, NLC-60, NLC-61, NLC-81.
    #[test]
    fn when_all_zones_are_lost_nothing_is_tainted_until_somebody_is_back() {
        let mut zones = Zones::default();
        zones.meet(&ArcStr::from("a"), &PACES, at(0));
        assert_eq!(state(&zones, "a"), State::Initial);
        let all_lost = [("a", census(0, 2)), ("b", census(0, 60))];
        assert_eq!(judge(&mut zones, &all_lost, 0), Turn::EnterFullDisruption);
        assert_eq!(seconds_between_turns(&mut zones, "a", 100), None);
        assert_eq!(judge(&mut zones, &all_lost, 100), Turn::None);
        assert_eq!(seconds_between_turns(&mut zones, "b", 200), None);
        let one_back = [("a", census(1, 1)), ("b", census(0, 60))];
        assert_eq!(judge(&mut zones, &one_back, 300), Turn::LeaveFullDisruption);
        assert_eq!(seconds_between_turns(&mut zones, "a", 400), Some(10));
        assert_eq!(
            seconds_between_turns(&mut zones, "b", 400),
            Some(10),
            "also of zones that are still lost"
        );
        assert_eq!(judge(&mut zones, &one_back, 500), Turn::None);
        assert_eq!(judge(&mut zones, &all_lost, 600), Turn::EnterFullDisruption);
    }

    /// Proves NLC-77, NLC-86.
    #[test]
    fn a_zone_without_nodes_is_forgotten_and_begins_anew() {
        let mut zones = Zones::default();
        judge(&mut zones, &[("a", census(0, 3)), ("b", census(1, 0))], 0);
        zones.tainter("a").unwrap().add(&ArcStr::from("n"), at(0));
        let (turn, lost) = zones.judge(&BTreeMap::from([(ArcStr::from("b"), census(1, 0))]), &PACES, at(5));
        assert_eq!((turn, lost), (Turn::None, vec![ArcStr::from("a")]));
        assert!(zones.tainter("a").is_none());
        assert!(zones.meet(&ArcStr::from("a"), &PACES, at(10)) && state(&zones, "a") == State::Initial);
        assert_eq!(zones.tainter("a").unwrap().next(at(10)), None);
        // Nobody at all was judged: that says nothing about anybody.
        assert_eq!(zones.judge(&BTreeMap::new(), &PACES, at(15)).0, Turn::None);
        assert_eq!(judge(&mut zones, &[("a", census(0, 1))], 20), Turn::EnterFullDisruption);
    }

    #[test]
    fn everybody_has_one_turn_at_a_time_however_fast_the_pace() {
        let mut zones = Zones::default();
        let fast = EvictionRates { node_eviction_rate: f32::MAX, ..PACES };
        zones.meet(&ArcStr::from("a"), &fast, at(0));
        for node in ["x", "y"] {
            zones.tainter("a").unwrap().add(&ArcStr::from(node), at(0));
        }
        let turns =
            |zones: &mut Zones| zones.turns(at(1)).into_iter().map(|(_, node)| node).collect::<Vec<_>>();
        assert_eq!(turns(&mut zones), ["x", "y"]);
        zones.remove("x");
        assert_eq!(turns(&mut zones), ["y"]);
        assert_eq!(zones.next_at(at(2)), Some(at(2)));
    }

    /// Proves NLC-15.
    #[test]
    fn a_zone_is_named_by_region_and_zone_the_older_labels_first() {
        let zone = |labels: serde_json::Value| {
            let node = serde_json::json!({"metadata": {"name": "n", "labels": labels}});
            zone_of(&serde_json::from_value(node).unwrap()).to_string()
        };
        let (region, zone_label) = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone");
        let old_zone = "failure-domain.beta.kubernetes.io/zone";
        assert_eq!(zone(serde_json::json!({})), "");
        assert_eq!(zone(serde_json::json!({region: "eu", zone_label: "a"})), "eu:\0:a");
        assert_eq!(zone(serde_json::json!({region: "eu", zone_label: "a", old_zone: "b"})), "eu:\0:b");
        assert_eq!(zone(serde_json::json!({zone_label: "a", old_zone: ""})), "", "an empty one is one, too");
        assert_eq!(zone(serde_json::json!({zone_label: "a"})), ":\0:a");
    }

    #[test]
    fn health_is_told_in_percent() {
        assert!((census(1, 3).health() - 25.0).abs() < f64::EPSILON);
        assert!((census(0, 0).health() - 100.0).abs() < f64::EPSILON);
    }
}
