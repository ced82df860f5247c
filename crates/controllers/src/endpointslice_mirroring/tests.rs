//! Reconciles of the Endpoints `a/web` in a test cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, EndpointSlice, Endpoints, ErrorReason, Key, Kind, Service, Uid};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Effects, KindEntry, Loop, RateLimiter};
use serde_json::{Value, json};

use super::memory::MirroringMemory;
use super::{EndpointSliceMirroringOptions, controller, the_loop};
use crate::service_endpoints::OwnWrite;

const NONE: [&str; 0] = [];
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const OURS: &str = "endpointslicemirroring-controller.k8s.io";

/// The controller's loop with its memory, the cached objects, and the server's part of writes.
struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    versions: usize,
}

/// The result of one reconcile.
#[derive(Default)]
struct SyncResult {
    /// Verb and name of each write; a created slice has no name.
    writes: Vec<String>,
    bodies: Vec<Value>,
    events: Vec<String>,
    measured: BTreeMap<String, String>,
    retry: Option<String>,
}

impl TestCluster {
    fn with_max(max_endpoints_per_subset: usize) -> Self {
        let options = EndpointSliceMirroringOptions {
            max_endpoints_per_subset,
            ..EndpointSliceMirroringOptions::default()
        };
        let a_loop = the_loop(&options);
        let mut cluster = Self { rehearsal: RehearsalCluster::of(&a_loop), a_loop, versions: 100 };
        cluster.service(service(&Value::Null));
        cluster
    }

    /// A cluster with the Service `a/web`, which has no selector.
    fn new() -> Self {
        Self::with_max(1000)
    }

    /// The same, with Endpoints of these subsets.
    fn mirroring(subsets: Value) -> Self {
        let mut cluster = Self::new();
        cluster.endpoints(endpoints(subsets));
        cluster
    }

    fn put<T: Kind>(&mut self, mut object: Value) -> Vec<String> {
        self.versions += 1;
        object["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.rehearsal.put::<T>(&self.a_loop, object)
    }

    fn service(&mut self, service: Value) -> Vec<String> {
        self.put::<Service>(service)
    }

    fn endpoints(&mut self, endpoints: Value) -> Vec<String> {
        self.put::<Endpoints>(endpoints)
    }

    fn slice(&mut self, slice: Value) -> Vec<String> {
        self.put::<EndpointSlice>(slice)
    }

    fn take<T: Kind>(&mut self, name: &str) -> Vec<String> {
        self.rehearsal.take::<T>(&self.a_loop, &Key::namespaced("a", name))
    }

    fn failing(mut self, verb: &str, name: &str, reason: ErrorReason) -> Self {
        let error = ApiError::transport(reason, "refused");
        self.rehearsal = self.rehearsal.failing::<EndpointSlice>(verb, &Key::namespaced("a", name), error);
        self
    }

    fn sync(&mut self) -> SyncResult {
        let mut result = SyncResult::default();
        for line in self.rehearsal.reconcile(&self.a_loop, Key::namespaced("a", "web")).lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[0] {
                "event" => result.events.push(line["event ".len()..].to_owned()),
                "measure" => drop(result.measured.insert(short(words[1]), words[2].to_owned())),
                "retry:" => result.retry = Some(line["retry: ".len()..].to_owned()),
                verb => {
                    let name = words[2].strip_prefix("a/").unwrap_or_default();
                    result.writes.push(format!("{verb} {name}").trim_end().to_owned());
                    let body = line.split_once(": {").map(|(_, body)| format!("{{{body}"));
                    result.bodies.push(body.map_or(Value::Null, |body| serde_json::from_str(&body).unwrap()));
                }
            }
        }
        result
    }

    /// Reconciles and stores what is written, as the API server does.
    fn apply(&mut self) -> SyncResult {
        let result = self.sync();
        assert_eq!(result.retry, None);
        for (write, body) in result.writes.iter().zip(&result.bodies) {
            match write.split_once(' ') {
                Some(("delete", name)) => drop(self.take::<EndpointSlice>(name)),
                _ => {
                    let mut stored = body.clone();
                    if stored["metadata"]["name"].is_null() {
                        self.versions += 1;
                        stored["metadata"]["name"] = json!(format!("web-{}", self.versions));
                        stored["metadata"]["uid"] = json!(format!("u-{}", self.versions));
                    }
                    stored["metadata"]["generation"] = json!(self.versions);
                    self.slice(stored);
                }
            }
        }
        result
    }

    /// The mirrored slices: address type, addresses (in brackets if not ready) and ports.
    fn mirrored(&self) -> Vec<String> {
        let mut slices: Vec<_> = self.slices().iter().map(describe).collect();
        slices.sort();
        slices
    }

    fn slices(&self) -> Vec<Value> {
        let view = self.rehearsal.view();
        let keys: Vec<_> = view.all::<EndpointSlice>().map(|slice| slice.meta.key.clone()).collect();
        keys.iter().map(|key| self.rehearsal.live_object::<EndpointSlice>(key).unwrap().clone()).collect()
    }
}

/// The part of a metric's name that differs between those of this controller, with its labels.
fn short(name: &str) -> String {
    name.trim_start_matches("endpoint_slice_mirroring_controller_").trim_end_matches("{}").to_owned()
}

fn describe(slice: &Value) -> String {
    let list = |field: &str| slice[field].as_array().cloned().unwrap_or_default();
    let address = |endpoint: &Value| {
        let ip = endpoint["addresses"][0].as_str().unwrap_or_default().to_owned();
        if endpoint["conditions"]["ready"] == json!(true) { ip } else { format!("({ip})") }
    };
    let mut addresses: Vec<_> = list("endpoints").iter().map(address).collect();
    addresses.sort();
    let ports: Vec<_> = list("ports").iter().map(|port| port["port"].to_string()).collect();
    let address_type = slice["addressType"].as_str().unwrap_or_default();
    format!("{address_type} {} :{}", addresses.join(" "), ports.join(","))
}

fn service(selector: &Value) -> Value {
    json!({"metadata": {"namespace": "a", "name": "web", "uid": "u-web"}, "spec": {"selector": selector}})
}

fn endpoints(subsets: Value) -> Value {
    let mut endpoints = json!({"metadata": {"namespace": "a", "name": "web", "uid": "u-endpoints"}});
    endpoints["subsets"] = subsets;
    endpoints
}

/// One subset with port 80.
fn subset(ready: &[&str], not_ready: &[&str]) -> Value {
    let addresses = |ips: &[&str]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
    json!({"addresses": addresses(ready), "notReadyAddresses": addresses(not_ready),
           "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
}

/// A mirrored slice with port 80 and no endpoints.
fn slice(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": name, "uid": format!("u-{name}"), "generation": 1,
                     "labels": {SERVICE_NAME: "web", MANAGED_BY: OURS}},
        "addressType": "IPv4", "endpoints": [], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// Proves EPSM-5, EPSM-6, EPSM-7, EPSM-54.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let controller = controller(&EndpointSliceMirroringOptions::default());
    assert_eq!(crate::names::aliases_of(controller.name), ["endpointslicemirroring"]);
    assert_eq!(controller.service_account, Some("endpointslicemirroring-controller"));
    assert_eq!(controller.event_component, Some("endpoint-slice-mirroring-controller"));
    assert!(controller.debug_handler.is_none());
    let a_loop = the_loop(&EndpointSliceMirroringOptions::default());
    assert_eq!((a_loop.queue, a_loop.max_retries), ("endpoint_slice_mirroring", Some(15)));
    let limiter = RateLimiter {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(100),
        ..RateLimiter::DEFAULT
    };
    assert_eq!(a_loop.rate_limiter, limiter);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(reads, ["endpoints", "services", "endpointslices"]);
    assert!(a_loop.starts_without.is_empty());
}

/// Proves EPSM-8, EPSM-9, EPSM-57, EPSM-77.
#[test]
fn endpoints_enqueue_if_they_are_or_were_mirrorable() {
    let mut cluster = TestCluster::new();
    let labelled = |value: &str| {
        let mut labelled = endpoints(json!([subset(&["10.0.0.1"], &[])]));
        labelled["metadata"]["labels"] = json!({"endpointslice.kubernetes.io/skip-mirror": value});
        labelled
    };
    assert_eq!(cluster.endpoints(labelled("true")), NONE);
    assert_eq!(cluster.sync().writes, NONE);
    assert_eq!(cluster.take::<Endpoints>("web"), NONE);
    for value in ["True", "1", "", "false"] {
        assert_eq!(cluster.endpoints(labelled(value)), ["a/web"], "{value:?}");
        cluster.apply();
        assert_eq!(cluster.mirrored(), ["IPv4 10.0.0.1 :80"], "{value:?}");
    }
    assert_eq!(cluster.endpoints(labelled("true")), ["a/web"], "the old ones were mirrorable");
    cluster.apply();
    assert_eq!(cluster.mirrored(), NONE);
    assert_eq!(cluster.endpoints(labelled("no")), ["a/web"], "the new ones are");
    assert_eq!(cluster.take::<Endpoints>("web"), ["a/web"]);
    let mut lock = endpoints(json!([]));
    lock["metadata"]["annotations"] = json!({"control-plane.alpha.kubernetes.io/leader": ""});
    assert_eq!(cluster.endpoints(lock.clone()), NONE);
    assert_eq!(cluster.endpoints(lock), NONE);
}

/// Proves EPSM-10, EPSM-56.
#[test]
fn services_enqueue_if_they_have_no_selector_or_gain_or_lose_it() {
    let mut cluster = TestCluster::new();
    let without = service(&Value::Null);
    let with = service(&json!({"app": "x"}));
    assert_eq!(cluster.service(without.clone()), NONE);
    assert_eq!(cluster.service(with.clone()), ["a/web"]);
    let mut changed = with.clone();
    changed["spec"]["type"] = json!("NodePort");
    assert_eq!(cluster.service(changed), NONE);
    assert_eq!(cluster.take::<Service>("web"), NONE);
    assert_eq!(cluster.service(with), NONE);
    assert_eq!(cluster.service(without), ["a/web"]);
    assert_eq!(cluster.take::<Service>("web"), ["a/web"]);
    assert_eq!(cluster.service(service(&Value::Null)), ["a/web"]);
}

/// Proves EPSM-11, EPSM-12, EPSM-13, EPSM-59, EPSM-68.
#[test]
fn slices_enqueue_if_another_client_changed_them() {
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.slice(slice("s")), ["a/web"], "an unknown slice of this controller");
    let changed = |pointer: &str, value: Value, generation: i64| {
        let mut changed = slice("s");
        *changed.pointer_mut(pointer).unwrap() = value;
        changed["metadata"]["generation"] = json!(generation);
        changed
    };
    let mut annotated = slice("s");
    annotated["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(cluster.slice(annotated), NONE, "the generation is the same");
    assert_eq!(cluster.slice(changed("/endpoints", json!([{"addresses": ["1.1.1.1"]}]), 2)), ["a/web"]);
    let other = json!({SERVICE_NAME: "api", MANAGED_BY: OURS});
    assert_eq!(cluster.slice(changed("/metadata/labels", other, 3)), ["a/api", "a/web"]);
    assert_eq!(cluster.slice(changed("/metadata/labels", json!({MANAGED_BY: OURS}), 4)), ["a/api"]);
    assert_eq!(cluster.slice(changed("/metadata/labels", json!({SERVICE_NAME: "web"}), 5)), ["a/web"]);
    assert_eq!(cluster.slice(slice("s")), ["a/web"], "it is managed again");
    let foreign = json!({SERVICE_NAME: "web", MANAGED_BY: "endpointslice-controller.k8s.io"});
    assert_eq!(cluster.slice(changed("/metadata/labels", foreign.clone(), 6)), ["a/web"]);
    assert_eq!(cluster.slice(changed("/metadata/labels", foreign, 7)), NONE, "it is not ours");
    assert_eq!(cluster.take::<EndpointSlice>("s"), NONE);
    cluster.slice(slice("s"));
    assert_eq!(cluster.take::<EndpointSlice>("s"), ["a/web"]);
}

/// Proves EPSM-11, EPSM-13, EPSM-45, EPSM-80.
#[test]
fn own_writes_do_not_enqueue() {
    let key = Key::namespaced("a", "web");
    let decoded = |version: &str| -> EndpointSlice {
        let mut slice = slice("s");
        slice["metadata"]["resourceVersion"] = json!(version);
        serde_json::from_value(slice).unwrap()
    };
    let mut memory = MirroringMemory::default();
    assert!(!memory.is_own_write(&key, &decoded("5").meta, false));
    memory.record_write(&key, Uid::from("u-s"), OwnWrite::Version("5".into()));
    assert!(memory.is_own_write(&key, &decoded("5").meta, false));
    assert!(!memory.is_own_write(&key, &decoded("6").meta, false), "another client's write");
    memory.record_write(&key, Uid::from("u-s"), OwnWrite::Deleted);
    assert!(!memory.is_own_write(&Key::namespaced("b", "web"), &decoded("6").meta, true));
    assert!(memory.is_own_write(&key, &decoded("6").meta, true));
    assert!(!memory.is_own_write(&key, &decoded("6").meta, true), "a user deleted it");
}

/// Proves EPSM-3, EPSM-14.
#[test]
fn batch_period_delays_only_changes_of_slices() {
    let options = EndpointSliceMirroringOptions {
        updates_batch_period: Duration::from_millis(300),
        ..EndpointSliceMirroringOptions::default()
    };
    let mut cluster = TestCluster::new();
    cluster.a_loop = the_loop(&options);
    let slice: Arc<EndpointSlice> = Arc::new(serde_json::from_value(slice("s")).unwrap());
    let object: Arc<Endpoints> = Arc::new(serde_json::from_value(endpoints(json!([]))).unwrap());
    let mut enqueue = Effects::default();
    let changes = [
        (KindEntry::of::<EndpointSlice>(), Change::added(slice).into()),
        (KindEntry::of::<Endpoints>(), Change::added(object).into()),
    ];
    for (kind, change) in &changes {
        let watches = cluster.a_loop.watches.iter().filter(|watch| watch.kind == *kind);
        watches.for_each(|watch| watch.enqueue(change, &cluster.rehearsal.view(), &mut enqueue));
    }
    let delays: Vec<_> =
        enqueue.into_items().into_iter().map(|(_, delay)| delay.unwrap_or_default().as_millis()).collect();
    assert_eq!(delays, [300, 0]);
}

/// Proves EPSM-15, EPSM-17, EPSM-55, EPSM-61, EPSM-62, EPSM-65, EPSM-72, EPSM-74.
#[test]
fn slices_exist_while_endpoints_and_a_service_without_selector_do() {
    let subsets = json!([subset(&["10.0.0.1"], &[])]);
    let mut cluster = TestCluster::mirroring(subsets.clone());
    cluster.take::<Service>("web");
    assert_eq!(cluster.sync().writes, NONE, "Endpoints without a Service are not mirrored");
    let mut elsewhere = service(&Value::Null);
    elsewhere["metadata"]["namespace"] = json!("b");
    cluster.service(elsewhere);
    assert_eq!(cluster.sync().writes, NONE, "the Service is in another namespace");
    let mut external = service(&Value::Null);
    external["spec"]["type"] = json!("ExternalName");
    cluster.service(external);
    assert_eq!(cluster.apply().writes, ["create"]);
    cluster.service(service(&json!({"app": "x"})));
    let writes = cluster.apply().writes;
    assert!(writes.len() == 1 && writes[0].starts_with("delete "), "the Service has a selector: {writes:?}");
    assert_eq!(cluster.apply().writes, NONE);
    cluster.service(service(&json!({})));
    assert_eq!(cluster.apply().writes, NONE, "an empty selector is a selector");
    cluster.service(service(&Value::Null));
    assert_eq!(cluster.apply().writes.len(), 1);
    cluster.endpoints(endpoints(Value::Null));
    assert_eq!(cluster.apply().writes.len(), 1, "no addresses, no slices");
    assert_eq!(cluster.mirrored(), NONE);
    cluster.endpoints(endpoints(subsets));
    cluster.apply();
    cluster.take::<Service>("web");
    let transcript = cluster.sync();
    assert!(transcript.writes[0].starts_with("delete"), "{:?}", transcript.writes);
    cluster.service(service(&Value::Null));
    cluster.take::<Endpoints>("web");
    cluster.apply();
    assert_eq!(cluster.mirrored(), NONE);
}

/// Proves EPSM-16, EPSM-71.
#[test]
fn slices_of_other_controllers_are_left_alone() {
    let mut cluster = TestCluster::new();
    let mut foreign = slice("foreign");
    foreign["metadata"]["labels"][MANAGED_BY] = json!("endpointslice-controller.k8s.io");
    let mut by_hand = slice("by-hand");
    by_hand["metadata"]["labels"] = json!({SERVICE_NAME: "web"});
    let mut elsewhere = slice("elsewhere");
    elsewhere["metadata"]["namespace"] = json!("b");
    let mut of_another = slice("of-another");
    of_another["metadata"]["labels"][SERVICE_NAME] = json!("api");
    for other in [foreign, by_hand, elsewhere, of_another] {
        cluster.slice(other);
    }
    assert_eq!(cluster.sync().writes, NONE, "nothing to clean up");
    cluster.endpoints(endpoints(json!([subset(&["10.0.0.1"], &[])])));
    assert_eq!(cluster.sync().writes, ["create"]);
}

/// Proves EPSM-20, EPSM-21, EPSM-24, EPSM-25, EPSM-26, EPSM-36, EPSM-37, EPSM-38, EPSM-73.
#[test]
fn slice_is_a_copy_of_its_subset() {
    let target = json!({"kind": "Pod", "namespace": "a", "name": "p", "uid": "u", "resourceVersion": "9"});
    let subsets = json!([{
        "addresses": [{"ip": "010.0.0.01", "nodeName": "n", "hostname": "h", "targetRef": target}, {"ip": "fd00::1"}],
        "notReadyAddresses": [{"ip": "::ffff:10.0.0.2"}],
        "ports": [{"name": "x", "port": 90, "protocol": "UDP", "appProtocol": "dns"}, {"port": 80, "protocol": "TCP"}],
    }]);
    let mut object = endpoints(subsets);
    object["metadata"]["labels"] = json!({"team": "x", SERVICE_NAME: "odd"});
    object["metadata"]["annotations"] = json!({
        "note": "y", "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    let mut cluster = TestCluster::new();
    cluster.endpoints(object);
    let bodies = cluster.sync().bodies;
    let metadata = json!({
        "namespace": "a", "generateName": "web-", "annotations": {"note": "y"},
        "labels": {"team": "x", SERVICE_NAME: "web", MANAGED_BY: OURS},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "web", "uid": "u-endpoints",
                             "controller": true, "blockOwnerDeletion": true}],
    });
    let ports = json!([{"name": "", "port": 80, "protocol": "TCP"},
                       {"name": "x", "port": 90, "protocol": "UDP", "appProtocol": "dns"}]);
    let v4 = json!({"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": [
        {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n", "hostname": "h", "targetRef": target},
    ]});
    let v6 = json!({"metadata": metadata, "addressType": "IPv6", "ports": ports, "endpoints": [
        {"addresses": ["fd00::1"], "conditions": {"ready": true}},
    ]});
    assert_eq!(bodies, [v4, v6]);
    let long = "w".repeat(253);
    let mut named = endpoints(json!([subset(&["10.0.0.1"], &[])]));
    let mut of_long = service(&Value::Null);
    (named["metadata"]["name"], of_long["metadata"]["name"]) = (json!(long), json!(long));
    cluster.endpoints(named);
    cluster.service(of_long);
    let bodies =
        cluster.rehearsal.bodies(&cluster.a_loop, Key::namespaced("a", &*long), "create endpointslices");
    assert_eq!(bodies[0].1["metadata"]["generateName"], long, "a dash would make the name too long");
}

/// Proves EPSM-22, EPSM-23, EPSM-46, EPSM-47, EPSM-48, EPSM-63, EPSM-78.
#[test]
fn addresses_beyond_the_maximum_are_skipped_and_reported() {
    let mut cluster = TestCluster::with_max(2);
    let too_many = "Warning TooManyAddressesToMirror on Endpoints a/web uid=u-endpoints: A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. ";
    let invalid = "Warning InvalidIPAddress on Endpoints a/web uid=u-endpoints: Skipped 1 invalid IP addresses when mirroring to EndpointSlices";
    for (ready, not_ready, mirrored, events) in [
        (&["10.0.0.1", "10.0.0.2"][..], &[][..], &["IPv4 10.0.0.1 10.0.0.2 :80"][..], vec![]),
        (
            &["10.0.0.9", "10.0.0.10"],
            &["10.0.0.1"],
            &["IPv4 10.0.0.10 10.0.0.9 :80"],
            vec![format!("{too_many}1 addresses were skipped")],
        ),
        (&["10.0.0.1", "bad"], &["10.0.0.2"], &["IPv4 (10.0.0.2) 10.0.0.1 :80"], vec![invalid.to_owned()]),
        (
            &["bad", "10.0.0.1"],
            &["10.0.0.2", "10.0.0.3"],
            // In the order of texts `bad` comes after both ready addresses.
            &["IPv4 (10.0.0.2) 10.0.0.1 :80"],
            vec![invalid.to_owned(), format!("{too_many}2 addresses were skipped")],
        ),
        (
            &["10.0.0.1", "10.0.0.2", "fd00::1"],
            &[],
            &["IPv4 10.0.0.1 10.0.0.2 :80"],
            vec![format!("{too_many}1 addresses were skipped")],
        ),
    ] {
        cluster.endpoints(endpoints(json!([subset(ready, not_ready)])));
        assert_eq!(cluster.apply().events, events, "{ready:?} {not_ready:?}");
        assert_eq!(cluster.mirrored(), mirrored, "{ready:?} {not_ready:?}");
        assert_eq!(cluster.apply().events, events, "they are repeated");
    }
}

/// Proves EPSM-19, EPSM-66, EPSM-67, EPSM-69, EPSM-70.
#[test]
fn subsets_are_merged_before_they_are_mirrored() {
    for app_protocol in [Value::Null, json!("h2c")] {
        let mut both = [subset(&["10.0.0.1", "10.0.0.1"], &[]), subset(&["10.0.0.2"], &["10.0.0.1"])];
        both.iter_mut().for_each(|subset| subset["ports"][0]["appProtocol"] = app_protocol.clone());
        let mut cluster = TestCluster::mirroring(json!(both));
        cluster.apply();
        assert_eq!(cluster.mirrored(), ["IPv4 (10.0.0.1) 10.0.0.2 :80"]);
    }
    let address = |uid: &str| json!({"ip": "10.0.0.1", "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": uid}});
    let mut cluster = TestCluster::mirroring(json!([{"addresses": [address("u1"), address("u2")]}]));
    cluster.apply();
    assert_eq!(cluster.mirrored(), ["IPv4 10.0.0.1 :"]);
}

/// Proves EPSM-27, EPSM-28, EPSM-35, EPSM-39, EPSM-64.
#[test]
fn slices_are_reused_for_other_ports_and_deleted_without_addresses() {
    let with_port = |port: u16, ips: &[&str]| {
        let mut subset = subset(ips, &[]);
        subset["ports"][0]["port"] = json!(port);
        subset
    };
    let mut cluster = TestCluster::mirroring(json!([with_port(80, &["10.0.0.1", "fd00::1"])]));
    assert_eq!(cluster.apply().writes, ["create", "create"]);
    let names = |cluster: &TestCluster| {
        let name = |slice: &Value| slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        cluster.slices().iter().map(name).collect::<Vec<_>>()
    };
    let before = names(&cluster);
    cluster.endpoints(endpoints(json!([with_port(81, &["10.0.0.1", "fd00::1"])])));
    let result = cluster.apply();
    assert!(result.writes.iter().all(|write| write.starts_with("put ")), "{:?}", result.writes);
    assert_eq!(names(&cluster), before);
    assert_eq!(cluster.mirrored(), ["IPv4 10.0.0.1 :81", "IPv6 fd00::1 :81"]);
    cluster.endpoints(endpoints(json!([with_port(81, &["10.0.0.1"])])));
    assert_eq!(cluster.apply().writes.len(), 1);
    assert_eq!(cluster.mirrored(), ["IPv4 10.0.0.1 :81"]);
    // Creates of both families and a deletion of one: the deleted slice is reused for its family.
    cluster.endpoints(endpoints(json!([with_port(82, &["10.0.0.1", "fd00::1"])])));
    let writes = cluster.apply().writes;
    assert!(writes[0] == "create" && writes[1].starts_with("put ") && writes.len() == 2, "{writes:?}");
    assert_eq!(cluster.mirrored(), ["IPv4 10.0.0.1 :82", "IPv6 fd00::1 :82"]);
    // The order of ports does not matter, and no ports are an empty list of ports.
    let two = |first: u16, second: u16| {
        let port = |port: u16| json!({"name": format!("p{port}"), "port": port});
        json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [port(first), port(second)]}])
    };
    let mut cluster = TestCluster::mirroring(two(1, 2));
    cluster.apply();
    cluster.endpoints(endpoints(two(2, 1)));
    assert_eq!(cluster.apply().writes, NONE);
    let mut cluster = TestCluster::mirroring(json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
    cluster.apply();
    let mut stored = cluster.slices().remove(0);
    stored["ports"] = Value::Null;
    cluster.slice(stored);
    assert_eq!(cluster.apply().writes, NONE);
}

/// Proves EPSM-29, EPSM-60.
#[test]
fn one_slice_of_each_group_is_kept() {
    let mut cluster = TestCluster::mirroring(json!([subset(&["10.0.0.1"], &[])]));
    for name in ["s1", "s2", "s3"] {
        let mut existing = slice(name);
        existing["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        cluster.slice(existing);
    }
    assert_eq!(cluster.sync().writes, ["put s1", "delete s2", "delete s3"]);
}

/// Proves EPSM-30, EPSM-31, EPSM-33, EPSM-34.
#[test]
fn only_slices_that_differ_are_rewritten() {
    let target = json!({"kind": "Pod", "namespace": "a", "name": "p", "uid": "u"});
    let one = json!({"ip": "10.0.0.1", "nodeName": "n", "targetRef": target});
    let mut object = endpoints(json!([{"addresses": [one, {"ip": "10.0.0.2"}]}]));
    object["metadata"]["labels"] = json!({"team": "x"});
    object["metadata"]["annotations"] = json!({"note": "y"});
    let mut cluster = TestCluster::new();
    cluster.endpoints(object.clone());
    cluster.apply();
    assert_eq!(cluster.apply().writes, NONE);
    let stored = cluster.slices().remove(0);
    let rewritten = |cluster: &mut TestCluster, pointer: &str, value: Value| {
        let mut changed = stored.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = changed.pointer_mut(parent).unwrap();
        match parent.as_array_mut() {
            Some(list) => list[field.parse::<usize>().unwrap()] = value,
            None => parent[field] = value,
        }
        cluster.slice(changed);
        cluster.sync().bodies.pop()
    };
    let with_version = |at: usize| {
        let has_target = !stored["endpoints"][at]["targetRef"].is_null();
        has_target.then(|| format!("/endpoints/{at}/targetRef/resourceVersion"))
    };
    for pointer in (0..2).filter_map(with_version) {
        assert_eq!(rewritten(&mut cluster, &pointer, json!("77")), None);
    }
    let mut reordered = stored["endpoints"].as_array().unwrap().clone();
    reordered.reverse();
    assert_eq!(rewritten(&mut cluster, "/endpoints", json!(reordered)), None, "the order");
    let hints = json!({"forZones": [{"name": "z"}]});
    assert_eq!(rewritten(&mut cluster, "/endpoints/0/hints", hints), None);
    for (pointer, value) in [
        ("/endpoints/0/zone", json!("z")),
        ("/endpoints/0/nodeName", json!("n9")),
        ("/endpoints/0/conditions/ready", json!(false)),
        ("/endpoints/0/hostname", json!("h")),
        ("/endpoints/0/addresses/0", json!("10.0.0.9")),
        ("/endpoints", json!([reordered[0]])),
        ("/endpoints", json!([reordered[0], reordered[1], reordered[0]])),
        ("/metadata/labels/team", json!("z")),
        ("/metadata/labels/more", json!("z")),
        ("/metadata/annotations", json!({})),
        ("/metadata/annotations/more", json!("z")),
    ] {
        let body = rewritten(&mut cluster, pointer, value);
        let body = body.unwrap_or_else(|| panic!("{pointer} is not rewritten"));
        assert_eq!(body["endpoints"], stored["endpoints"], "{pointer}");
        assert_eq!(body["metadata"]["labels"], stored["metadata"]["labels"]);
        assert_eq!(body["metadata"]["annotations"], stored["metadata"]["annotations"]);
        assert!(body["metadata"]["resourceVersion"].is_null() && body["metadata"]["finalizers"].is_null());
    }
    // Changes of the Endpoints that the slice does not show.
    cluster.slice(stored.clone());
    for (field, value) in [
        ("kubectl.kubernetes.io/last-applied-configuration", json!("{}")),
        ("endpoints.kubernetes.io/last-change-trigger-time", json!("x")),
    ] {
        object["metadata"]["annotations"][field] = value;
        assert_eq!(cluster.endpoints(object.clone()), ["a/web"]);
        assert_eq!(cluster.sync().writes, NONE, "{field}");
    }
    object["metadata"]["labels"]["team"] = json!("new");
    cluster.endpoints(object);
    assert_eq!(cluster.sync().writes.len(), 1);
}

/// Proves EPSM-32, EPSM-79.
#[test]
fn slices_of_recreated_endpoints_get_the_new_owner() {
    let subsets = json!([subset(&["10.0.0.1"], &[])]);
    let mut cluster = TestCluster::mirroring(subsets.clone());
    cluster.apply();
    let mut recreated = endpoints(subsets);
    recreated["metadata"]["uid"] = json!("u-new");
    cluster.endpoints(recreated);
    let result = cluster.apply();
    assert!(result.writes.len() == 1 && result.writes[0].starts_with("put "), "{:?}", result.writes);
    assert_eq!(result.bodies[0]["metadata"]["ownerReferences"][0]["uid"], "u-new");
    let mut unowned = cluster.slices().remove(0);
    unowned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "x"}]);
    cluster.slice(unowned);
    assert_eq!(cluster.sync().writes, NONE, "without a former owner it is not rewritten");
}

/// Proves EPSM-58, EPSM-76.
#[test]
fn reserved_labels_and_relabelled_slices_do_not_stop_mirroring() {
    for reserved in [SERVICE_NAME, MANAGED_BY] {
        let mut object = endpoints(json!([subset(&["10.0.0.1"], &[])]));
        object["metadata"]["labels"] = json!({reserved: "x"});
        let mut cluster = TestCluster::new();
        cluster.endpoints(object);
        cluster.apply();
        assert_eq!(cluster.sync().writes, NONE, "{reserved}");
        let mut relabelled = cluster.slices().remove(0);
        relabelled["metadata"]["labels"][reserved] = json!("other");
        cluster.slice(relabelled);
        assert_eq!(cluster.sync().writes, ["create"], "{reserved}");
    }
}

/// Proves EPSM-40, EPSM-41, EPSM-43, EPSM-49, EPSM-75.
#[test]
fn first_failed_write_ends_the_reconcile() {
    let cluster = || {
        let mut cluster = TestCluster::mirroring(json!([subset(&["10.0.0.1", "fd00::1"], &[])]));
        cluster.slice(slice("s1"));
        cluster.slice(slice("s2"));
        cluster
    };
    assert_eq!(cluster().sync().writes, ["create", "put s1", "delete s2"]);
    for reason in [ErrorReason::Invalid, ErrorReason::Forbidden, ErrorReason::Unavailable] {
        for (verb, name, wanted, error) in [
            ("create", "", vec!["create"], "failed to create EndpointSlice"),
            ("update", "s1", vec!["create", "put s1"], "failed to update s1 EndpointSlice"),
            ("delete", "s2", vec!["create", "put s1", "delete s2"], "failed to delete s2 EndpointSlice"),
        ] {
            let result = cluster().failing(verb, name, reason).sync();
            assert_eq!(result.writes, wanted);
            assert_eq!(result.retry, Some(format!("{error} for Endpoints a/web: refused")));
            assert_eq!(result.events, NONE);
        }
    }
    let gone = cluster().failing("update", "s1", ErrorReason::NotFound).sync();
    let wanted = r#"failed to update s1 EndpointSlice for Endpoints a/web: endpointslices.discovery.k8s.io "s1" not found"#;
    assert_eq!(gone.retry.as_deref(), Some(wanted));
    let terminating = cluster().failing("create", "", ErrorReason::NamespaceTerminating).sync();
    assert_eq!((terminating.writes, terminating.retry), (vec!["create".to_owned()], None));
    let body = cluster().sync().bodies.remove(1);
    assert!(body["metadata"]["resourceVersion"].is_null());
    assert_eq!(body["metadata"]["uid"], "u-s1", "a recreated slice is not overwritten");
}

/// Proves EPSM-42.
#[test]
fn terminating_endpoints_get_no_new_slices() {
    let mut object = endpoints(json!([subset(&["10.0.0.1", "fd00::1"], &[])]));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut cluster = TestCluster::new();
    cluster.endpoints(object);
    cluster.slice(slice("s1"));
    cluster.slice(slice("s2"));
    assert_eq!(cluster.sync().writes, ["put s1", "delete s2"]);
}

/// Proves EPSM-44.
#[test]
fn clean_up_continues_past_errors() {
    let mut cluster = TestCluster::new();
    for name in ["s1", "s2", "s3"] {
        cluster.slice(slice(name));
    }
    let mut failing = cluster.failing("delete", "s1", ErrorReason::Unavailable);
    let result = failing.sync();
    assert_eq!(result.writes, ["delete s1", "delete s2", "delete s3"]);
    let wanted = "error(s) deleting 1/3 EndpointSlices for a/web Endpoints, including: refused";
    assert_eq!(result.retry.as_deref(), Some(wanted));
    let gone = failing.failing("delete", "s1", ErrorReason::NotFound).sync();
    assert_eq!(gone.retry, None, "a slice that is deleted already is no error");
}

/// Proves EPSM-50, EPSM-51, EPSM-52, EPSM-53.
#[test]
fn metrics_count_endpoints_and_slices() {
    let mut cluster = TestCluster::with_max(2);
    let measured = |cluster: &mut TestCluster, names: &[&str]| {
        let measured = cluster.apply().measured;
        names
            .iter()
            .map(|name| measured.get(*name).cloned().unwrap_or("-".into()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let per_sync = [
        "endpoints_added_per_sync",
        "endpoints_updated_per_sync",
        "endpoints_removed_per_sync",
        "addresses_skipped_per_sync",
        "endpoints_sync_duration",
    ];
    let totals = ["endpoints_desired", "num_endpoint_slices", "desired_endpoint_slices"];
    let changes = ["changes{create}", "changes{update}", "changes{delete}"];
    let all = [&per_sync[..], &totals, &changes].concat();
    cluster.endpoints(endpoints(json!([subset(&["10.0.0.1", "10.0.0.2"], &["bad"])])));
    assert_eq!(measured(&mut cluster, &all), "2 0 0 1 0 2 1 1 1 - -");
    cluster.endpoints(endpoints(json!([subset(&["10.0.0.1", "fd00::1"], &[])])));
    assert_eq!(measured(&mut cluster, &all), "1 0 1 0 0 2 2 2 1 1 -");
    cluster.endpoints(endpoints(json!([subset(&[], &["10.0.0.1"])])));
    assert_eq!(measured(&mut cluster, &all), "0 1 1 0 0 1 1 1 - 1 1");
    let mut other_port = subset(&["10.0.0.1"], &[]);
    other_port["ports"][0]["port"] = json!(81);
    cluster.endpoints(endpoints(json!([other_port])));
    assert_eq!(measured(&mut cluster, &all), "1 0 0 0 0 1 1 1 - 1 -", "a reused slice is an update");
    cluster.take::<Endpoints>("web");
    assert_eq!(measured(&mut cluster, &all), "- - - - 0 0 0 0 - - -", "clean-up");
    let names: Vec<_> = super::metrics::ALL.iter().map(|metric| short(metric.name)).collect();
    assert_eq!(names.len(), 9);
    assert!(
        super::metrics::ALL
            .iter()
            .all(|metric| metric.name.starts_with("endpoint_slice_mirroring_controller_"))
    );
}

/// Proves EPSM-80.
#[test]
fn deleted_slice_is_created_again() {
    let mut cluster = TestCluster::mirroring(json!([subset(&["10.0.0.1"], &[])]));
    cluster.apply();
    let name = cluster.slices()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(cluster.take::<EndpointSlice>(&name), ["a/web"]);
    assert_eq!(cluster.apply().writes, ["create"]);
    assert_ne!(cluster.slices()[0]["metadata"]["name"], json!(name));
}

/// Proves EPSM-2, EPSM-21, EPSM-22.
#[test]
fn huge_and_malformed_endpoints_are_mirrored_within_bounds() {
    let addresses: Vec<_> = (0..100_000_u32)
        .map(|n| json!({"ip": std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string()}))
        .collect();
    let mut cluster = TestCluster::mirroring(json!([{"addresses": addresses, "ports": [{"port": 80}]}]));
    let result = cluster.apply();
    assert_eq!(result.writes, ["create"]);
    assert_eq!(result.bodies[0]["endpoints"].as_array().map(Vec::len), Some(1000));
    assert!(result.events[0].ends_with("99000 addresses were skipped"), "{:?}", result.events);
    let odd = [
        "",
        " ",
        "10.0.0.1\n",
        " 10.0.0.1",
        "10.0.0.256",
        "10.0.0.1/24",
        "10.0.0",
        "::g",
        "1",
        "localhost",
        "0x7f.1",
    ];
    let odd: Vec<_> =
        odd.iter().map(|ip| json!({"ip": ip, "hostname": "../..", "nodeName": "%2f"})).collect();
    let count = odd.len();
    cluster.endpoints(endpoints(
        json!([{"addresses": odd, "ports": [{"port": -7}, {"port": 70000, "name": "\u{0}"}]}]),
    ));
    let result = cluster.apply();
    assert!(
        result.events[0].contains(&format!("Skipped {count} invalid IP addresses")),
        "{:?}",
        result.events
    );
    assert_eq!(cluster.mirrored(), NONE);
}
