//! Reconciles of a Service named `a/web` in a test cluster.

mod endpoints;
mod enqueue;
mod hints;
mod metrics_and_events;
mod packing;
mod properties;
mod slices;
mod zones;

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{ApiError, EndpointSlice, Key, Kind, Node, Pod, Service};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Effects, Item, KindEntry, Loop};
use serde_json::{Value, json};

use super::{EndpointSliceOptions, the_loop};

/// The controller's loop with its memory, the cached objects, and the server's part of writes.
pub(super) struct TestCluster {
    pub(super) a_loop: Loop,
    services: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    pub(super) slices: BTreeMap<String, Value>,
    failures: Vec<(&'static str, String, ApiError)>,
    elapsed: Duration,
    write_count: usize,
}

/// The result of one reconcile.
#[derive(Default)]
pub(super) struct SyncResult {
    pub(super) writes: Vec<SliceRequest>,
    pub(super) events: Vec<String>,
    pub(super) measured: Vec<String>,
    pub(super) enqueued: Vec<String>,
    pub(super) retry: Option<String>,
    pub(super) requeue_after: Option<String>,
}

/// One write: a verb, the name of the slice (empty if the server chose it), the body.
#[derive(Clone, Debug)]
pub(super) struct SliceRequest {
    pub(super) verb: String,
    pub(super) name: String,
    pub(super) body: Value,
    pub(super) failed: bool,
}

impl TestCluster {
    /// A cluster with only one node, `n1` in zone `z1`.
    pub(super) fn new() -> Self {
        Self::with(&EndpointSliceOptions::default())
    }

    pub(super) fn with(options: &EndpointSliceOptions) -> Self {
        let mut cluster = Self {
            a_loop: the_loop(options),
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            slices: BTreeMap::new(),
            failures: Vec::new(),
            elapsed: Duration::ZERO,
            write_count: 0,
        };
        cluster.node(node("n1", "z1"));
        cluster
    }

    /// A cluster with this maximum of endpoints per slice.
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
    pub(super) fn failing(&mut self, verb: &'static str, name: &str, failure: ApiError) -> &mut Self {
        self.failures.push((verb, name.to_owned(), failure));
        self
    }

    pub(super) fn no_failures(&mut self) -> &mut Self {
        self.failures.clear();
        self
    }

    pub(super) fn advance_clock(&mut self, time: Duration) -> &mut Self {
        self.elapsed += time;
        self
    }

    fn rehearsal(&self) -> RehearsalCluster {
        let rehearsal = RehearsalCluster::of(&self.a_loop).with_clock_advanced(self.elapsed);
        let rehearsal = self.services.values().cloned().fold(rehearsal, RehearsalCluster::with::<Service>);
        let rehearsal = self.pods.values().cloned().fold(rehearsal, RehearsalCluster::with::<Pod>);
        let rehearsal = self.nodes.values().cloned().fold(rehearsal, RehearsalCluster::with::<Node>);
        let rehearsal =
            self.slices.values().cloned().fold(rehearsal, RehearsalCluster::with::<EndpointSlice>);
        self.failures.iter().fold(rehearsal, |rehearsal, (verb, name, failure)| {
            rehearsal.failing::<EndpointSlice>(verb, &Key::namespaced("a", name.as_str()), failure.clone())
        })
    }

    /// Reconciles the Service and applies its writes.
    pub(super) fn sync(&mut self) -> SyncResult {
        self.sync_item(Key::namespaced("a", "web"))
    }

    /// Reconciles the zones.
    pub(super) fn sync_zones(&mut self) -> SyncResult {
        self.sync_item(super::Zones)
    }

    /// Reconciles one second later, when no debounce interval is active.
    fn sync_item(&mut self, item: impl Into<Item>) -> SyncResult {
        self.advance_clock(Duration::from_secs(1));
        self.sync_now(item)
    }

    /// Reconciles without advancing the clock.
    pub(super) fn sync_now(&mut self, item: impl Into<Item>) -> SyncResult {
        let result = SyncResult::read(&self.rehearsal().reconcile(&self.a_loop, item));
        for write in result.writes.iter().filter(|write| !write.failed) {
            self.take_effect(write);
        }
        result
    }

    fn take_effect(&mut self, write: &SliceRequest) {
        let mut slice = write.body.clone();
        self.write_count += 1;
        match &*write.verb {
            "delete" => {
                self.slices.remove(&write.name).expect("the deleted slice exists");
                return;
            }
            "create" => {
                let prefix = slice["metadata"]["generateName"].as_str().unwrap();
                slice["metadata"]["name"] = json!(format!("{prefix}{:03}", self.write_count));
                slice["metadata"]["uid"] = json!(format!("slice-{}", self.write_count));
                slice["metadata"]["generation"] = json!(1);
            }
            _ => {
                let there = &self.slices[&write.name]["metadata"];
                slice["metadata"]["uid"] = there["uid"].clone();
                slice["metadata"]["generation"] = json!(there["generation"].as_i64().unwrap_or(0) + 1);
            }
        }
        slice["metadata"]["resourceVersion"] = json!(format!("{}", 1000 + self.write_count));
        put(&mut self.slices, slice);
    }

    /// The items that a change enqueues, with their delays in milliseconds.
    pub(super) fn enqueues<T: Kind>(&self, change: Change<T>) -> Vec<(String, u128)> {
        let (kind, change, mut queue) = (KindEntry::of::<T>(), change.into(), Effects::default());
        let rehearsal = self.rehearsal();
        for watch in self.a_loop.watches.iter().filter(|watch| watch.kind == kind) {
            watch.enqueue(&change, &rehearsal.view(), &mut queue);
        }
        queue
            .into_items()
            .into_iter()
            .map(|(item, delay)| (item.to_string(), delay.unwrap_or_default().as_millis()))
            .collect()
    }

    /// The number of endpoints of each slice, largest first.
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

    /// The endpoint of a pod, in any slice.
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

impl SyncResult {
    fn read(transcript: &str) -> Self {
        let mut result = Self::default();
        for line in transcript.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "event" => result.events.push(rest.to_owned()),
                "measure" => {
                    let name = rest.trim_start_matches("endpoint_slice_controller_");
                    result.measured.push(name.to_owned());
                }
                "wake" | "enqueue" => result.enqueued.push(rest.to_owned()),
                "requeue" => result.requeue_after = rest.split(' ').next_back().map(str::to_owned),
                "retry:" => result.retry = Some(rest.to_owned()),
                verb => {
                    let name = rest.split(' ').nth(1).unwrap().trim_start_matches("a/").to_owned();
                    let body =
                        rest.split_once(": {").map(|(_, body)| format!("{{{body}")).unwrap_or("null".into());
                    let (verb, failed) = (verb.to_owned(), rest.contains(" FAILED: "));
                    let body = if failed { Value::Null } else { serde_json::from_str(&body).unwrap() };
                    result.writes.push(SliceRequest { verb, name, body, failed });
                }
            }
        }
        result
    }

    /// The verbs of the writes, in order.
    pub(super) fn verbs(&self) -> Vec<&str> {
        self.writes.iter().map(|write| &*write.verb).collect()
    }

    /// Whether there was no write, event or error.
    pub(super) fn is_noop(&self) -> bool {
        self.writes.is_empty() && self.events.is_empty() && self.retry.is_none()
    }

    /// The measurements of a metric.
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

/// A ready pod on node `n1` that the Service selects. Its address derives from the number in its name.
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

/// A slice of the Service as this controller writes it, with these endpoints.
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
    let pod_json = self::pod(pod);
    json!({
        "addresses": [pod_json["status"]["podIP"]],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "a", "name": pod, "uid": pod_json["metadata"]["uid"]},
        "nodeName": "n1", "zone": "z1",
    })
}
