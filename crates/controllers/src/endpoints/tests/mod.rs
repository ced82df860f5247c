//! Reconciles of a Service named `a/web` in a test cluster.

mod enqueue;
mod subsets;
mod writes;

use std::time::Duration;

use keleustes_objects::{ApiError, Endpoints, ErrorReason, Key, Pod, Service};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::{EndpointsOptions, Leftovers, controller, the_loop};

/// The controller's loop with its memory, and the cached objects.
struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    versions: usize,
}

impl TestCluster {
    fn new() -> Self {
        let a_loop = the_loop(&EndpointsOptions::default());
        Self { rehearsal: RehearsalCluster::of(&a_loop), a_loop, versions: 100 }
    }

    /// A cluster with the Service `a/web`, whose spec has these additional fields.
    fn with_service(spec: Value) -> Self {
        let mut cluster = Self::new();
        cluster.service(service(spec));
        cluster
    }

    fn service(&mut self, mut service: Value) -> Vec<String> {
        self.versions += 1;
        service["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.rehearsal.put::<Service>(&self.a_loop, service)
    }

    fn pod(&mut self, mut pod: Value) -> Vec<String> {
        self.versions += 1;
        pod["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.rehearsal.put::<Pod>(&self.a_loop, pod)
    }

    /// Ready pods `p{n}`.
    fn pods(&mut self, numbers: std::ops::Range<usize>) {
        for n in numbers {
            self.pod(pod(&format!("p{n}"), &format!("10.1.{}.{}", n / 200, n % 200)));
        }
    }

    fn no_pod(&mut self, name: &str) -> Vec<String> {
        self.rehearsal.take::<Pod>(&self.a_loop, &Key::namespaced("a", name))
    }

    fn endpoints(&mut self, mut endpoints: Value) -> Vec<String> {
        self.versions += 1;
        endpoints["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.rehearsal.put::<Endpoints>(&self.a_loop, endpoints)
    }

    fn no_endpoints(&mut self) -> Vec<String> {
        self.rehearsal.take::<Endpoints>(&self.a_loop, &web())
    }

    fn failing(mut self, verb: &str, reason: ErrorReason) -> Self {
        let error = ApiError::transport(reason, "refused");
        self.rehearsal = self.rehearsal.failing::<Endpoints>(verb, &web(), error);
        self
    }

    /// Reconciles two seconds later, when no debounce interval is active.
    fn sync(&mut self) -> String {
        self.rehearsal.advance_clock(Duration::from_secs(2));
        self.sync_now()
    }

    fn sync_now(&mut self) -> String {
        self.rehearsal.reconcile(&self.a_loop, web())
    }

    fn outline(&mut self) -> String {
        self.rehearsal.advance_clock(Duration::from_secs(2));
        self.rehearsal.outline(&self.a_loop, web())
    }

    /// Reconciles and stores what is written, as the API server does. Returns it.
    fn write(&mut self) -> Value {
        let transcript = self.sync();
        let body = transcript.split_once(": {").unwrap_or_else(|| panic!("no write: {transcript}")).1;
        let body: Value = serde_json::from_str(&format!("{{{}", body.trim_end())).expect("a body");
        let mut stored = body.clone();
        stored["metadata"]["namespace"] = json!("a");
        stored["metadata"]["uid"] = json!("u-endpoints");
        self.endpoints(stored);
        body
    }

    /// The subsets that are written.
    fn subsets(&mut self) -> Value {
        self.write()["subsets"].take()
    }

    /// The written addresses by readiness: `ip` or `(ip)` for one that is not ready.
    fn addresses(&mut self) -> Vec<String> {
        addresses(&self.subsets())
    }
}

fn addresses(subsets: &Value) -> Vec<String> {
    let ip = |address: &Value| address["ip"].as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for subset in subsets.as_array().into_iter().flatten() {
        all.extend(subset["addresses"].as_array().into_iter().flatten().map(ip));
        let not_ready = subset["notReadyAddresses"].as_array().into_iter().flatten();
        all.extend(not_ready.map(|address| format!("({})", ip(address))));
    }
    all
}

fn web() -> Key {
    Key::namespaced("a", "web")
}

fn service(spec: Value) -> Value {
    let mut merged = json!({"selector": {"app": "web"}, "clusterIP": "10.96.0.1", "type": "ClusterIP",
                            "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    let Value::Object(fields) = spec else { panic!("{spec} is no spec") };
    for (field, value) in fields {
        merged[field] = value;
    }
    let metadata = json!({"namespace": "a", "name": "web", "uid": "u-web", "resourceVersion": "1",
                          "creationTimestamp": CREATED, "labels": {"team": "x"}});
    json!({"metadata": metadata, "spec": merged})
}

const CREATED: &str = "2026-01-01T00:00:00Z";

/// A ready pod of the Service.
fn pod(name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": name, "uid": format!("u-{name}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [
            {"name": "web", "containerPort": 8081}, {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"},
        ]},
    })
}

/// The same pod with another value at a JSON pointer.
fn pod_with(name: &str, ip: &str, pointer: &str, value: Value) -> Value {
    let mut pod = pod(name, ip);
    set(&mut pod, pointer, value);
    pod
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    object.pointer_mut(parent).expect("a parent")[field] = value;
}

fn not_ready(mut pod: Value) -> Value {
    set(&mut pod, "/status/conditions/0/status", json!("False"));
    pod
}

/// Proves EP-3, EP-17, EP-18, EP-69.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let controller = controller(&EndpointsOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("endpoints-controller", &["endpoint"][..])
    );
    assert_eq!(controller.service_account, Some("endpoint-controller"));
    assert_eq!(controller.event_component, Some("endpoint-controller"));
    assert!(controller.metrics.is_empty() && controller.debug_handler.is_none());
    let a_loop = the_loop(&EndpointsOptions::default());
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("endpoint", 5, Some(15)));
    assert_eq!(a_loop.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(reads, ["services", "pods", "endpoints"]);
    assert!(a_loop.starts_without.is_empty());
}
