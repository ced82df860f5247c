//! What happens to slices, played through: a stage with a Service named `a/web` on it.

mod endpoints;
mod hints;
mod packing;
mod properties;
mod slices;
mod telling;
mod wakes;
mod zones;

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{ApiError, EndpointSlice, Key, Kind, Node, Pod, Service};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Enqueue, KindEntry, Loop};
use serde_json::{Value, json};

use super::{EndpointSliceOptions, the_loop};

/// A loop with its memory, the objects that its caches show, and the server's part in what it writes.
pub(super) struct Stage {
    pub(super) a_loop: Loop,
    services: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    pub(super) slices: BTreeMap<String, Value>,
    refusals: Vec<(&'static str, String, ApiError)>,
    passed: Duration,
    chosen: usize,
}

/// What one turn came to.
#[derive(Default)]
pub(super) struct Minutes {
    pub(super) writes: Vec<Written>,
    pub(super) events: Vec<String>,
    pub(super) measured: Vec<String>,
    pub(super) woken: Vec<String>,
    pub(super) retry: Option<String>,
    pub(super) waits: Option<String>,
}

/// One write: a verb, the name of the slice (empty if the server chose it), the body.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) verb: String,
    pub(super) name: String,
    pub(super) body: Value,
    pub(super) failed: bool,
}

impl Stage {
    /// An empty stage but for one node, `n1` in zone `z1`.
    pub(super) fn new() -> Self {
        Self::with(&EndpointSliceOptions::default())
    }

    pub(super) fn with(settings: &EndpointSliceOptions) -> Self {
        let mut stage = Self {
            a_loop: the_loop(settings),
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            slices: BTreeMap::new(),
            refusals: Vec::new(),
            passed: Duration::ZERO,
            chosen: 0,
        };
        stage.node(node("n1", "z1"));
        stage
    }

    /// A stage whose slices hold so many endpoints.
    pub(super) fn of_slices(max_endpoints_per_slice: usize) -> Self {
        Self::with(&EndpointSliceOptions { max_endpoints_per_slice, ..EndpointSliceOptions::default() })
    }

    pub(super) fn service(&mut self, service: Value) -> &mut Self {
        put(&mut self.services, service);
        self
    }

    pub(super) fn no_service(&mut self) -> &mut Self {
        self.services.clear();
        self
    }

    pub(super) fn pod(&mut self, pod: Value) -> &mut Self {
        put(&mut self.pods, pod);
        self
    }

    /// Ready pods `p{n}` on node `n1`.
    pub(super) fn pods(&mut self, numbers: std::ops::Range<usize>) -> &mut Self {
        numbers.for_each(|n| put(&mut self.pods, pod(&format!("p{n:03}"))));
        self
    }

    pub(super) fn no_pod(&mut self, name: &str) -> &mut Self {
        self.pods.remove(name).expect("a pod of that name");
        self
    }

    pub(super) fn no_pods(&mut self) -> &mut Self {
        self.pods.clear();
        self
    }

    pub(super) fn node(&mut self, node: Value) -> &mut Self {
        put(&mut self.nodes, node);
        self
    }

    pub(super) fn no_node(&mut self, name: &str) -> &mut Self {
        self.nodes.remove(name).expect("a node of that name");
        self
    }

    pub(super) fn slice(&mut self, slice: Value) -> &mut Self {
        put(&mut self.slices, slice);
        self
    }

    /// Makes writes of a slice fail; an empty name means those that create one.
    pub(super) fn refusing(&mut self, verb: &'static str, name: &str, failure: ApiError) -> &mut Self {
        self.refusals.push((verb, name.to_owned(), failure));
        self
    }

    pub(super) fn no_refusals(&mut self) -> &mut Self {
        self.refusals.clear();
        self
    }

    pub(super) fn advance_clock(&mut self, time: Duration) -> &mut Self {
        self.passed += time;
        self
    }

    fn world(&self) -> RehearsalCluster {
        let world = RehearsalCluster::of(&self.a_loop).with_clock_advanced(self.passed);
        let world = self.services.values().cloned().fold(world, RehearsalCluster::with::<Service>);
        let world = self.pods.values().cloned().fold(world, RehearsalCluster::with::<Pod>);
        let world = self.nodes.values().cloned().fold(world, RehearsalCluster::with::<Node>);
        let world = self.slices.values().cloned().fold(world, RehearsalCluster::with::<EndpointSlice>);
        self.refusals.iter().fold(world, |world, (verb, name, failure)| {
            world.failing::<EndpointSlice>(verb, &Key::namespaced("a", name.as_str()), failure.clone())
        })
    }

    /// One turn of the Service; what was written is there afterwards.
    pub(super) fn sync(&mut self) -> Minutes {
        self.sync_item(Key::namespaced("a", "web"))
    }

    /// One look at the nodes.
    pub(super) fn survey(&mut self) -> Minutes {
        self.sync_item(super::zones_key())
    }

    /// Turns come a second apart, when nobody gathers any more.
    fn sync_item(&mut self, key: Key) -> Minutes {
        self.advance_clock(Duration::from_secs(1));
        self.turn(key)
    }

    /// A turn at this moment.
    pub(super) fn turn(&mut self, key: Key) -> Minutes {
        let minutes = Minutes::read(&self.world().reconcile(&self.a_loop, key));
        for write in minutes.writes.iter().filter(|write| !write.failed) {
            self.take_effect(write);
        }
        minutes
    }

    fn take_effect(&mut self, write: &Written) {
        let mut slice = write.body.clone();
        self.chosen += 1;
        match &*write.verb {
            "delete" => {
                self.slices.remove(&write.name).expect("what is deleted is there");
                return;
            }
            "create" => {
                let prefix = slice["metadata"]["generateName"].as_str().unwrap();
                slice["metadata"]["name"] = json!(format!("{prefix}{:03}", self.chosen));
                slice["metadata"]["uid"] = json!(format!("slice-{}", self.chosen));
                slice["metadata"]["generation"] = json!(1);
            }
            _ => {
                let there = &self.slices[&write.name]["metadata"];
                slice["metadata"]["uid"] = there["uid"].clone();
                slice["metadata"]["generation"] = json!(there["generation"].as_i64().unwrap_or(0) + 1);
            }
        }
        slice["metadata"]["resourceVersion"] = json!(format!("{}", 1000 + self.chosen));
        put(&mut self.slices, slice);
    }

    /// What a change wakes, and after how many milliseconds.
    pub(super) fn wakes<T: Kind>(&self, change: Change<T>) -> Vec<(String, u128)> {
        let (kind, change, mut wakes) = (KindEntry::of::<T>(), change.into(), Enqueue::default());
        let world = self.world();
        for watch in self.a_loop.watches.iter().filter(|watch| watch.kind == kind) {
            watch.enqueue(&change, &world.view(), &mut wakes);
        }
        wakes.into_items().into_iter().map(|(item, delay)| (item.to_string(), delay.as_millis())).collect()
    }

    /// How many endpoints each slice has, most first.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.slices.values().map(|slice| endpoints(slice).len()).collect();
        sizes.sort_by_key(|size| std::cmp::Reverse(*size));
        sizes
    }

    /// The only slice.
    pub(super) fn only(&self) -> &Value {
        assert_eq!(self.slices.len(), 1, "{:?}", self.slices.keys());
        self.slices.values().next().unwrap()
    }

    /// The endpoint of a pod, in whatever slice it is.
    pub(super) fn endpoint(&self, pod: &str) -> Option<&Value> {
        let mut all = self.slices.values().flat_map(endpoints);
        all.find(|endpoint| endpoint["targetRef"]["name"] == pod)
    }
}

fn put(objects: &mut BTreeMap<String, Value>, object: Value) {
    objects.insert(object["metadata"]["name"].as_str().unwrap().to_owned(), object);
}

pub(super) fn endpoints(slice: &Value) -> &Vec<Value> {
    slice["endpoints"].as_array().unwrap()
}

impl Minutes {
    fn read(transcript: &str) -> Self {
        let mut minutes = Self::default();
        for line in transcript.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "event" => minutes.events.push(rest.to_owned()),
                "measure" => {
                    let name = rest.trim_start_matches("endpoint_slice_controller_");
                    minutes.measured.push(name.to_owned());
                }
                "wake" => minutes.woken.push(rest.to_owned()),
                "keep" => minutes.waits = Some(rest.to_owned()),
                "retry:" => minutes.retry = Some(rest.to_owned()),
                verb => {
                    let name = rest.split(' ').nth(1).unwrap().trim_start_matches("a/").to_owned();
                    let body =
                        rest.split_once(": {").map(|(_, body)| format!("{{{body}")).unwrap_or("null".into());
                    let (verb, failed) = (verb.to_owned(), rest.contains(" FAILED: "));
                    let body = if failed { Value::Null } else { serde_json::from_str(&body).unwrap() };
                    minutes.writes.push(Written { verb, name, body, failed });
                }
            }
        }
        minutes
    }

    /// The verbs of the writes, in order.
    pub(super) fn verbs(&self) -> Vec<&str> {
        self.writes.iter().map(|write| &*write.verb).collect()
    }

    /// Whether nothing at all was to be done.
    pub(super) fn is_calm(&self) -> bool {
        self.writes.is_empty() && self.events.is_empty() && self.retry.is_none()
    }

    /// What was measured of a metric.
    pub(super) fn measured(&self, metric: &str) -> Vec<&str> {
        let of_metric = |line: &&String| line.split(['{', ' ']).next() == Some(metric);
        self.measured.iter().filter(of_metric).map(|line| &line[metric.len()..]).collect()
    }
}

/// A Service that selects `app: web` and has one port, 80, which is 8080 on its pods.
pub(super) fn service() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "service-1", "resourceVersion": "10",
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
                 "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

/// A Service with another value at a path.
pub(super) fn service_with(path: &str, value: Value) -> Value {
    with(service(), path, value)
}

/// An object with another value at a path.
pub(super) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in path.split('/') {
        at = match part.parse::<usize>() {
            Ok(number) if at.is_array() => &mut at[number],
            _ => &mut at[part],
        };
    }
    *at = value;
    object
}

/// A ready pod on node `n1` that the Service selects. Its address is made of the number that its name ends with.
pub(super) fn pod(name: &str) -> Value {
    let number: usize = name.trim_start_matches(char::is_alphabetic).parse().unwrap_or(0);
    let ip = format!("10.0.{}.{}", number / 250, number % 250);
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "20",
                     "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}]},
    })
}

pub(super) fn pod_on(name: &str, node: &str) -> Value {
    with(pod(name), "spec/nodeName", json!(node))
}

pub(super) fn unready(pod: Value) -> Value {
    with(pod, "status/conditions/0/status", json!("False"))
}

pub(super) fn terminating(pod: Value) -> Value {
    with(pod, "metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"))
}

/// A ready node with four CPUs.
pub(super) fn node(name: &str, zone: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A slice of the Service as this controller leaves it, with these endpoints.
pub(super) fn slice(name: &str, endpoints: &[Value]) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "30",
                     "generation": 1, "generateName": "web-",
                     "labels": {"kubernetes.io/service-name": "web",
                                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                     "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service-1",
                                          "controller": true, "blockOwnerDeletion": true}]},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

/// A slice with the endpoints of ready pods `p{n}`.
pub(super) fn slice_of(name: &str, numbers: std::ops::Range<usize>) -> Value {
    slice(name, &numbers.map(|n| endpoint(&format!("p{n:03}"))).collect::<Vec<_>>())
}

/// The endpoint of a ready pod as [`pod`] makes it.
pub(super) fn endpoint(pod: &str) -> Value {
    let made = self::pod(pod);
    json!({
        "addresses": [made["status"]["podIP"]],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "a", "name": pod, "uid": made["metadata"]["uid"]},
        "nodeName": "n1", "zone": "z1",
    })
}
