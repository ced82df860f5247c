//! Properties that hold for any pods and any slices.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{TestCluster, endpoint, pod, pod_on, service_with, slice, terminating, unready, with};

/// A pod in one of the relevant states, or no pod.
#[derive(Clone, Debug)]
enum State {
    Absent,
    Ready,
    Unready,
    Terminating,
    Finished,
    OnMissingNode,
    OtherPort,
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        3 => Just(State::Absent),
        6 => Just(State::Ready),
        2 => Just(State::Unready),
        1 => Just(State::Terminating),
        1 => Just(State::Finished),
        1 => Just(State::OnMissingNode),
        1 => Just(State::OtherPort),
    ]
}

const PODS: usize = 24;

fn pod_in(at: usize, state: &State) -> Option<Value> {
    let plain = || {
        let ports = json!([{"name": "http", "containerPort": 8080}]);
        with(pod(&format!("p{at:03}")), "spec/containers/0/ports", ports)
    };
    Some(match state {
        State::Absent => return None,
        State::Ready => plain(),
        State::Unready => unready(plain()),
        State::Terminating => terminating(plain()),
        State::Finished => with(plain(), "status/phase", json!("Succeeded")),
        State::OnMissingNode => with(
            pod_on(&format!("p{at:03}"), "gone"),
            "spec/containers",
            plain()["spec"]["containers"].clone(),
        ),
        State::OtherPort => with(plain(), "spec/containers/0/ports/0/containerPort", json!(9090)),
    })
}

fn is_listed(state: &State) -> bool {
    !matches!(state, State::Absent | State::Finished | State::OnMissingNode)
}

/// Existing slices, and the states of the pods over time.
#[derive(Clone, Debug)]
struct Scenario {
    max_endpoints_per_slice: usize,
    /// Endpoints of any pods, also duplicates, and whether they have the other port.
    slices: Vec<(Vec<usize>, bool)>,
    steps: Vec<Vec<State>>,
    close: bool,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    (1_usize..9).prop_flat_map(|max_endpoints_per_slice| {
        let endpoints = prop::collection::vec(0..PODS, 0..=max_endpoints_per_slice);
        let slices = prop::collection::vec((endpoints, any::<bool>()), 0..6);
        let steps = prop::collection::vec(prop::collection::vec(state(), PODS), 1..4);
        let parts = (slices, steps, any::<bool>());
        parts.prop_map(move |(slices, steps, close)| Scenario {
            max_endpoints_per_slice,
            slices,
            steps,
            close,
        })
    })
}

/// The listed pods: how often, and with which port.
fn listed(cluster: &TestCluster) -> BTreeMap<String, (usize, i64)> {
    let mut listed = BTreeMap::new();
    for slice in cluster.slices.values() {
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

    /// Every pod that should be listed is listed once, with its port, no slice exceeds the maximum, and a second
    /// reconcile writes nothing.
    #[test]
    fn every_pod_is_listed_once_no_slice_is_too_full_and_the_reconcile_converges(scenario in scenarios()) {
        let mut cluster = TestCluster::of_slices(scenario.max_endpoints_per_slice);
        let mut service = service_with("spec/ports/0/targetPort", json!("http"));
        if scenario.close {
            service["spec"]["trafficDistribution"] = json!("PreferSameZone");
        }
        cluster.service(service);
        for (at, (endpoints, other_port)) in scenario.slices.iter().enumerate() {
            let endpoints: Vec<_> = endpoints.iter().map(|pod| endpoint(&format!("p{pod:03}"))).collect();
            let port = if *other_port { 9090 } else { 8080 };
            cluster.slice(with(slice(&format!("old-{at}"), &endpoints), "ports/0/port", json!(port)));
        }
        for states in &scenario.steps {
            let pods = states.iter().enumerate().filter_map(|(at, state)| pod_in(at, state));
            let result = pods.fold(cluster.no_pods(), TestCluster::pod).sync();
            let wanted: BTreeMap<_, _> = states.iter().enumerate().filter(|(_, state)| is_listed(state)).map(|(at, state)| {
                (format!("p{at:03}"), (1, if matches!(state, State::OtherPort) { 9090 } else { 8080 }))
            }).collect();
            prop_assert_eq!(listed(&cluster), wanted);
            prop_assert!(cluster.sizes().iter().all(|size| *size <= scenario.max_endpoints_per_slice), "{:?}", cluster.sizes());
            let names: BTreeSet<_> = result.writes.iter().map(|write| &write.name).filter(|name| !name.is_empty()).collect();
            let named = result.writes.iter().filter(|write| !write.name.is_empty()).count();
            prop_assert_eq!(names.len(), named, "no slice is written twice in one reconcile");
            prop_assert!(cluster.sync().writes.is_empty());
        }
    }
}
