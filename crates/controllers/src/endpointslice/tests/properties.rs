//! What holds for any pods and any slices.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Stage, endpoint, pod, pod_on, service_with, slice, terminating, unready, with};

/// A pod in one of the states that matter, or none.
#[derive(Clone, Debug)]
enum State {
    Absent,
    Ready,
    Unready,
    Terminating,
    Ended,
    Lost,
    OtherPort,
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        3 => Just(State::Absent),
        6 => Just(State::Ready),
        2 => Just(State::Unready),
        1 => Just(State::Terminating),
        1 => Just(State::Ended),
        1 => Just(State::Lost),
        1 => Just(State::OtherPort),
    ]
}

const PODS: usize = 24;

fn made(at: usize, state: &State) -> Option<Value> {
    let plain = || {
        let ports = json!([{"name": "http", "containerPort": 8080}]);
        with(pod(&format!("p{at:03}")), "spec/containers/0/ports", ports)
    };
    Some(match state {
        State::Absent => return None,
        State::Ready => plain(),
        State::Unready => unready(plain()),
        State::Terminating => terminating(plain()),
        State::Ended => with(plain(), "status/phase", json!("Succeeded")),
        State::Lost => with(
            pod_on(&format!("p{at:03}"), "gone"),
            "spec/containers",
            plain()["spec"]["containers"].clone(),
        ),
        State::OtherPort => with(plain(), "spec/containers/0/ports/0/containerPort", json!(9090)),
    })
}

fn is_listed(state: &State) -> bool {
    !matches!(state, State::Absent | State::Ended | State::Lost)
}

/// A world as anybody could have left it, and what happens in it.
#[derive(Clone, Debug)]
struct Story {
    max_endpoints_per_slice: usize,
    /// Endpoints of any pods, doubled ones too, and whether they are at the other port.
    slices: Vec<(Vec<usize>, bool)>,
    moments: Vec<Vec<State>>,
    close: bool,
}

fn stories() -> impl Strategy<Value = Story> {
    (1_usize..9).prop_flat_map(|max_endpoints_per_slice| {
        let endpoints = prop::collection::vec(0..PODS, 0..=max_endpoints_per_slice);
        let slices = prop::collection::vec((endpoints, any::<bool>()), 0..6);
        let moments = prop::collection::vec(prop::collection::vec(state(), PODS), 1..4);
        let parts = (slices, moments, any::<bool>());
        parts.prop_map(move |(slices, moments, close)| Story {
            max_endpoints_per_slice,
            slices,
            moments,
            close,
        })
    })
}

/// Whom slices list, with how often, and at which port.
fn listed(stage: &Stage) -> BTreeMap<String, (usize, i64)> {
    let mut listed = BTreeMap::new();
    for slice in stage.slices.values() {
        for endpoint in super::endpoints(slice) {
            let name = endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
            let entry = listed.entry(name).or_insert((0, slice["ports"][0]["port"].as_i64().unwrap()));
            entry.0 += 1;
        }
    }
    listed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever was there and whatever happens: every pod that should be listed is listed once, at its port, no
    /// slice holds more than it may, and a second turn has nothing to do.
    #[test]
    fn nobody_is_lost_or_doubled_no_slice_is_too_full_and_it_comes_to_rest(story in stories()) {
        let mut stage = Stage::of_slices(story.max_endpoints_per_slice);
        let mut service = service_with("spec/ports/0/targetPort", json!("http"));
        if story.close {
            service["spec"]["trafficDistribution"] = json!("PreferSameZone");
        }
        stage.service(service);
        for (at, (endpoints, other_port)) in story.slices.iter().enumerate() {
            let endpoints: Vec<_> = endpoints.iter().map(|pod| endpoint(&format!("p{pod:03}"))).collect();
            let port = if *other_port { 9090 } else { 8080 };
            stage.slice(with(slice(&format!("old-{at}"), &endpoints), "ports/0/port", json!(port)));
        }
        for states in &story.moments {
            let pods = states.iter().enumerate().filter_map(|(at, state)| made(at, state));
            let minutes = pods.fold(stage.no_pods(), Stage::pod).sync();
            let wanted: BTreeMap<_, _> = states.iter().enumerate().filter(|(_, state)| is_listed(state)).map(|(at, state)| {
                (format!("p{at:03}"), (1, if matches!(state, State::OtherPort) { 9090 } else { 8080 }))
            }).collect();
            prop_assert_eq!(listed(&stage), wanted);
            prop_assert!(stage.sizes().iter().all(|size| *size <= story.max_endpoints_per_slice), "{:?}", stage.sizes());
            let names: BTreeSet<_> = minutes.writes.iter().map(|write| &write.name).filter(|name| !name.is_empty()).collect();
            let named = minutes.writes.iter().filter(|write| !write.name.is_empty()).count();
            prop_assert_eq!(names.len(), named, "no slice is written twice in one turn");
            prop_assert!(stage.sync().writes.is_empty());
        }
    }
}
