//! Which changes enqueue which Services.

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::{Change, Effects, KindEntry};

use super::*;

const NONE: [&str; 0] = [];

/// A cluster with the Services `web` and `all-web` (label app=web), `api` (app=api), one without selector, and one of
/// the same selector in another namespace.
fn cluster() -> TestCluster {
    let mut cluster = TestCluster::with_service(json!({}));
    for (namespace, name, selector) in [
        ("a", "all-web", json!({"app": "web"})),
        ("a", "api", json!({"app": "api"})),
        ("a", "external", Value::Null),
        ("b", "web", json!({"app": "web"})),
    ] {
        let mut other = service(json!({"selector": selector}));
        set(&mut other, "/metadata/namespace", json!(namespace));
        set(&mut other, "/metadata/name", json!(name));
        assert_eq!(cluster.service(other), [format!("{namespace}/{name}")]);
    }
    cluster
}

/// Proves EP-4.
#[test]
fn every_change_of_a_service_enqueues_it() {
    let cluster = cluster();
    let any: Arc<Service> = Arc::new(serde_json::from_value(service(json!({}))).unwrap());
    for change in [Change::added(any.clone()), Change::resync(any.clone()), Change::deleted(any)] {
        assert_eq!(cluster.rehearsal.enqueued_by(&cluster.a_loop, change), ["a/web"]);
    }
}

/// Proves EP-5, EP-80.
#[test]
fn only_the_deletion_of_endpoints_enqueues_them() {
    let mut cluster = TestCluster::with_service(json!({}));
    let mut endpoints =
        json!({"metadata": {"namespace": "a", "name": "web", "uid": "e", "resourceVersion": "1"}});
    assert_eq!(cluster.endpoints(endpoints.clone()), NONE);
    endpoints["subsets"] = json!([{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 1}]}]);
    assert_eq!(cluster.endpoints(endpoints), NONE, "a hand edit persists");
    assert_eq!(cluster.no_endpoints(), ["a/web"]);
    assert!(cluster.outline().starts_with("create endpoints a/web"));
}

/// Proves EP-6, EP-7, EP-14, EP-87.
#[test]
fn added_and_deleted_pods_enqueue_the_services_that_select_them() {
    let mut cluster = cluster();
    assert_eq!(cluster.pod(pod("p", "10.0.0.1")), ["a/all-web", "a/web"]);
    assert_eq!(cluster.no_pod("p"), ["a/all-web", "a/web"]);
    assert_eq!(cluster.pod(pod_with("q", "10.0.0.2", "/metadata/labels/app", json!("other"))), NONE);
    let mut all = service(json!({"selector": {}}));
    set(&mut all, "/metadata/name", json!("everything"));
    cluster.service(all);
    assert_eq!(cluster.no_pod("q"), ["a/everything"], "an empty selector selects all");
}

/// Proves EP-8, EP-9, EP-10, EP-12, EP-15, EP-74.
#[test]
fn pod_update_enqueues_if_its_endpoint_changed() {
    let enqueued = |base: &Value, pointer: &str, value: Value| {
        let mut cluster = cluster();
        cluster.pod(base.clone());
        let mut changed = base.clone();
        set(&mut changed, pointer, value);
        cluster.pod(changed)
    };
    let ready = pod("p", "10.0.0.1");
    for (pointer, value) in [
        ("/metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z")),
        ("/status/conditions/0/status", json!("False")),
        ("/status/conditions", json!([])),
        ("/status/podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}])),
        ("/status/podIPs", json!([{"ip": "10.0.0.2"}])),
    ] {
        assert_eq!(enqueued(&ready, pointer, value), ["a/all-web", "a/web"], "{pointer}");
    }
    for (pointer, value) in [
        ("/status/phase", json!("Failed")),
        ("/spec/nodeName", json!("n2")),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/spec/containers", json!([{"name": "c", "ports": []}])),
        ("/status/containerStatuses", json!([{"name": "c", "restartCount": 3}])),
        ("/status/conditions/0/lastTransitionTime", json!("2026-01-05T00:00:00Z")),
    ] {
        assert_eq!(enqueued(&ready, pointer, value.clone()), NONE, "{pointer}");
        assert_eq!(enqueued(&not_ready(ready.clone()), pointer, value), NONE, "{pointer}");
    }
    let terminating = pod_with("p", "10.0.0.1", "/metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    assert_eq!(enqueued(&terminating, "/status/phase", json!("Failed")), ["a/all-web", "a/web"]);
    let cluster = cluster();
    let same: Arc<Pod> = Arc::new(serde_json::from_value(terminating).unwrap());
    assert_eq!(cluster.rehearsal.enqueued_by(&cluster.a_loop, Change::resync(same)), NONE);
}

/// Proves EP-11, EP-13, EP-75.
#[test]
fn pod_update_with_other_labels_enqueues_the_services_that_gain_or_lose_it() {
    let after = |changes: &[(&str, Value)]| {
        let mut cluster = cluster();
        cluster.pod(pod("p", "10.0.0.1"));
        let mut changed = pod("p", "10.0.0.1");
        changes.iter().for_each(|(pointer, value)| set(&mut changed, pointer, value.clone()));
        cluster.pod(changed)
    };
    let api = ("/metadata/labels", json!({"app": "api"}));
    let lost_address = ("/status/podIPs", json!([{"ip": "10.0.0.9"}]));
    assert_eq!(after(std::slice::from_ref(&api)), ["a/all-web", "a/api", "a/web"]);
    assert_eq!(after(&[("/metadata/labels", json!({"app": "web", "v": "2"}))]), NONE, "no difference");
    assert_eq!(
        after(&[("/metadata/labels", json!({"app": "web", "v": "2"})), lost_address.clone()]),
        ["a/all-web", "a/web"]
    );
    assert_eq!(after(&[api, lost_address]), ["a/all-web", "a/api", "a/web"], "the union");
    assert_eq!(after(&[("/spec/hostname", json!("h"))]), NONE);
    assert_eq!(after(&[("/spec/subdomain", json!("web"))]), NONE);
}

/// Proves EP-2, EP-85.
#[test]
fn batch_period_delays_only_changes_of_pods() {
    let delays = |batch_period: Duration| {
        let options = EndpointsOptions { updates_batch_period: batch_period, ..EndpointsOptions::default() };
        let mut cluster = TestCluster::new();
        cluster.a_loop = the_loop(&options);
        cluster.service(service(json!({})));
        let mut enqueue = Effects::default();
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod("p", "10.0.0.1")).unwrap());
        let service: Arc<Service> = Arc::new(serde_json::from_value(service(json!({}))).unwrap());
        let changes = [
            (KindEntry::of::<Pod>(), Change::added(pod.clone()).into()),
            (KindEntry::of::<Pod>(), Change::deleted(pod).into()),
            (KindEntry::of::<Service>(), Change::added(service).into()),
        ];
        for (kind, change) in &changes {
            let watches = cluster.a_loop.watches.iter().filter(|watch| watch.kind == *kind);
            watches.for_each(|watch| watch.enqueue(change, &cluster.rehearsal.view(), &mut enqueue));
        }
        let delays: Vec<_> = enqueue
            .into_items()
            .into_iter()
            .map(|(_, delay)| delay.unwrap_or_default().as_millis())
            .collect();
        delays
    };
    assert_eq!(delays(Duration::ZERO), [0, 0, 0]);
    assert_eq!(delays(Duration::from_millis(500)), [500, 500, 0]);
}

/// Every write of Endpoints is sent to all who watch them.
///
/// Proves EP-6.
#[test]
fn pod_changes_are_debounced_after_a_write() {
    let mut cluster = TestCluster::with_service(json!({}));
    cluster.pods(0..2);
    let delay = |cluster: &TestCluster| {
        let mut enqueue = Effects::default();
        let added = Change::added(Arc::new(serde_json::from_value::<Pod>(pod("new", "10.0.0.9")).unwrap()));
        let (kind, change) = (KindEntry::of::<Pod>(), added.into());
        let watches = cluster.a_loop.watches.iter().filter(|watch| watch.kind == kind);
        watches.for_each(|watch| watch.enqueue(&change, &cluster.rehearsal.view(), &mut enqueue));
        enqueue.into_items().first().map(|(_, delay)| delay.unwrap_or_default().as_millis())
    };
    assert_eq!(delay(&cluster), Some(0), "the first change is handled at once");
    cluster.write();
    assert_eq!(delay(&cluster), Some(100));
    // A pod that changed while the write was sent, too.
    cluster.pods(2..3);
    assert_eq!(cluster.sync_now(), "requeue with kept backoff after 100ms\n");
    cluster.rehearsal.advance_clock(Duration::from_millis(60));
    assert_eq!(delay(&cluster), Some(40));
    // A change of the Service, or the loss of its Endpoints, does not wait.
    cluster.service(service(json!({"publishNotReadyAddresses": true})));
    assert!(cluster.sync_now().starts_with("put "));
    cluster.no_endpoints();
    assert!(cluster.sync_now().starts_with("create "));
    assert_eq!(delay(&cluster), Some(100), "its intervals start small again");
}

/// Proves EP-16, EP-70, EP-71.
#[test]
fn leftover_endpoints_are_enqueued_at_start_except_locks() {
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.a_loop.initial_items, [Leftovers.into()]);
    for (namespace, name, annotations) in [
        ("a", "web", json!({})),
        ("b", "by-hand", json!({"note": "x"})),
        ("a", "lock", json!({"control-plane.alpha.kubernetes.io/leader": "{}"})),
    ] {
        let metadata = json!({"namespace": namespace, "name": name, "uid": "e", "annotations": annotations});
        cluster.endpoints(json!({"metadata": metadata}));
    }
    let transcript = cluster.rehearsal.reconcile(&cluster.a_loop, Leftovers);
    assert_eq!(transcript, "enqueue a/web\nenqueue b/by-hand\n");
    let mut sync = |namespace: &str, name: &str| {
        cluster.rehearsal.outline(&cluster.a_loop, Key::namespaced(namespace, name))
    };
    let deleted =
        |name: &str| format!("get services {name}\ndelete endpoints {name} because the Service is deleted\n");
    assert_eq!(sync("b", "by-hand"), deleted("b/by-hand"));
    // Only the scan at start spares locks: the deletion of a Service of that name deletes them.
    assert_eq!(sync("a", "lock"), deleted("a/lock"));
}
