//! In every state of a StatefulSet, no more pods become unavailable than allowed, and none below the
//! partition is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::Time;
use proptest::prelude::*;

use super::*;
use crate::statefulset::history::{History, Revision};
use crate::statefulset::inputs::Inputs;

/// The inputs of a StatefulSet with these pods, by ordinal.
pub(super) fn inputs(set: StatefulSet, pods: &[Option<Value>]) -> Inputs {
    let pods = pods.iter().map(|pod| pod.clone().map(|pod| Arc::new(serde_json::from_value(pod).unwrap())));
    let start = set.spec.ordinals.start;
    let replicas: BTreeMap<i32, Option<Arc<Pod>>> = (start..).zip(pods).collect();
    let pods = replicas.values().flatten().cloned().collect();
    let (condemned, revisions, claims) = (Vec::new(), Vec::new(), BTreeMap::new());
    let now = Time::from_unix_seconds(1_800_000_000);
    Inputs { set: Arc::new(set), replicas, deferred: 0, condemned, pods, revisions, claims, now }
}

fn history(set: &StatefulSet) -> History {
    let revision = |name: &str| Revision { name: name.into(), template: set.spec.template.clone() };
    History { current: revision("web-1"), update: revision("web-2"), collisions: 0 }
}

/// The state of one pod.
#[derive(Clone, Copy, Debug)]
struct State {
    there: bool,
    new: bool,
    healthy: bool,
    terminating: bool,
}

impl State {
    fn available(self) -> bool {
        self.there && self.healthy && !self.terminating
    }

    fn pod(self, number: i32) -> Option<Value> {
        let pod = if self.new { pod(number) } else { old(number) };
        let pod = if self.healthy { pod } else { unready(pod) };
        self.there.then(|| if self.terminating { terminating(pod) } else { pod })
    }
}

fn states() -> impl Strategy<Value = Vec<State>> {
    let state =
        (prop::bool::weighted(0.9), any::<bool>(), prop::bool::weighted(0.7), prop::bool::weighted(0.2));
    let state =
        state.prop_map(|(there, new, healthy, terminating)| State { there, new, healthy, terminating });
    prop::collection::vec(state, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// In every state, one step stays within maxUnavailable.
    #[test]
    fn one_step_stays_within_max_unavailable(
        states in states(),
        (partition, most, start) in (0..9_usize, 1..5_usize, 0..3_i32),
        in_parallel in any::<bool>(),
    ) {
        let mut set = set(i32::try_from(states.len()).unwrap());
        set["spec"]["ordinals"] = json!({"start": start});
        set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"partition": partition, "maxUnavailable": most});
        if in_parallel {
            set = parallel(set);
        }
        let set: StatefulSet = serde_json::from_value(set).unwrap();
        let pods: Vec<_> = (start..).zip(&states).map(|(number, state)| state.pod(number)).collect();
        let inputs = inputs(set, &pods);
        let replaced = rolling::pods_to_replace(&inputs, &history(&inputs.set), true);
        let of = |pod: &Arc<Pod>| {
            let number: i32 = pod.meta.key.name.rsplit('-').next().unwrap().parse().unwrap();
            usize::try_from(number - start).unwrap()
        };
        let indexes: Vec<usize> = replaced.iter().map(of).collect();
        // Only old pods from the partition up are deleted, each once, and no terminating one.
        for (at, index) in indexes.iter().enumerate() {
            let State { new, terminating, there, .. } = states[*index];
            prop_assert!(*index >= partition && there && !new && !terminating);
            prop_assert!(!indexes[..at].contains(index));
        }
        // Available pods are deleted only within maxUnavailable.
        let missing = states.iter().filter(|state| !state.available()).count();
        let healthy: Vec<usize> = indexes.iter().copied().filter(|index| states[*index].available()).collect();
        prop_assert!(healthy.is_empty() || missing + healthy.len() <= most);
        prop_assert!(healthy.is_sorted_by(|one, other| one > other), "from the highest ordinal");
        let unhealthy = indexes.len() - healthy.len();
        if in_parallel {
            // All unavailable old pods are deleted: they cannot get worse.
            let wanted = (partition..states.len()).map(|index| states[index]);
            let wanted = wanted.filter(|state| state.there && !state.new && !state.terminating && !state.healthy);
            prop_assert_eq!(unhealthy, wanted.count());
        } else {
            prop_assert!(missing + indexes.len() <= most || indexes.is_empty());
        }
        // If maxUnavailable allows it and an old pod exists, something is deleted.
        let movable = (partition..states.len()).any(|index| states[index].available() && !states[index].new);
        prop_assert!(!(movable && missing < most && indexes.is_empty()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A simulated rollout never exceeds maxUnavailable, replaces nothing below the partition, and completes.
    #[test]
    fn a_whole_rollout_stays_within_max_unavailable(
        (size, partition, most) in (1..8_usize, 0..9_usize, 1..5_usize),
        in_parallel in any::<bool>(),
        readiness in prop::collection::vec(any::<bool>(), 200),
    ) {
        let mut set = set(i32::try_from(size).unwrap());
        set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"partition": partition, "maxUnavailable": most});
        if in_parallel {
            set = parallel(set);
        }
        let mut states = vec![State { there: true, new: false, healthy: true, terminating: false }; size];
        let mut rolls = readiness.into_iter().chain(std::iter::repeat(true));
        let mut reconciles = 0;
        while states.iter().skip(partition).any(|state| !state.new || !state.available()) {
            reconciles += 1;
            prop_assert!(reconciles < 500, "the rollout completes");
            let there = states.iter().zip(0..).filter_map(|(state, number)| state.pod(number));
            for action in pod_actions(cluster(set.clone(), there)) {
                let (verb, name) = action.split_once(' ').unwrap();
                let index: usize = name.rsplit('-').next().unwrap().parse().unwrap();
                prop_assert!(index >= partition, "{}", action);
                states[index] = match verb {
                    "delete" => State { terminating: true, ..states[index] },
                    _ => State { there: true, new: true, healthy: false, terminating: false },
                };
            }
            let missing = states.iter().filter(|state| !state.available()).count();
            prop_assert!(missing <= most, "{} of {}", missing, most);
            // Some pods become ready, some are deleted, others stay.
            for state in &mut states {
                if rolls.next() == Some(true) {
                    *state = State { there: !state.terminating, terminating: false, healthy: true, ..*state };
                }
            }
        }
        prop_assert!(states.iter().take(partition).all(|state| !state.new));
    }
}
