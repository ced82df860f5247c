//! Which ReplicaSets are enqueued for which watch event.

use std::sync::Arc;

use keleustes_plan::{Change, Effects, Store};

use super::*;
use crate::workloads::fixtures::unready;

/// Caches with two ReplicaSets, and a pod's old state.
struct Before {
    cluster: RehearsalCluster,
    pods: Store<Pod>,
}

fn before(pod: Option<Value>) -> Before {
    let other =
        with_field(with_field(set(1), "/metadata/name", json!("other")), "/metadata/uid", json!("u-other"));
    let other = with_field(other, "/spec/selector", json!({"matchLabels": {"app": "other"}}));
    let mut pods = Store::default();
    if let Some(pod) = pod {
        pods.apply(decoded(pod));
    }
    Before { cluster: cluster(set(1)).with::<ReplicaSet>(other), pods }
}

fn decoded<T: keleustes_objects::Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).expect("a well-formed object"))
}

impl Before {
    /// The enqueued keys with their delays in seconds after the pod has changed to this state.
    fn now(mut self, pod: Value) -> Vec<(String, u64)> {
        let change = self.pods.apply(decoded(with_field(pod, "/metadata/resourceVersion", json!("2"))));
        self.enqueue(&change)
    }

    fn enqueue(&self, change: &Change<Pod>) -> Vec<(String, u64)> {
        let mut enqueue = Effects::default();
        enqueue::pod_changed::<ReplicaSet>(change, &self.cluster.view(), &mut enqueue);
        let items = enqueue.into_items().into_iter();
        items.map(|(item, delay)| (item.to_string(), delay.unwrap_or_default().as_secs())).collect()
    }
}

fn at_once(names: &[&str]) -> Vec<(String, u64)> {
    names.iter().map(|name| (format!("a/{name}"), 0)).collect()
}

fn labelled(app: &str, pod: Value) -> Value {
    with_field(pod, "/metadata/labels", json!({"app": app}))
}

fn of_other(pod: Value) -> Value {
    owned_by("ReplicaSet", "other", "u-other", pod)
}

/// Proves RS-5, RS-6, RS-7.
#[test]
fn every_change_of_a_replica_set_enqueues_it() {
    let (a_loop, mut sets) = (the_loop(), Store::<ReplicaSet>::default());
    let cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.enqueued_by(&a_loop, sets.apply(decoded(set(1)))), ["a/web"]);
    let written = with_field(set(1), "/status/replicas", json!(1));
    assert_eq!(cluster.enqueued_by(&a_loop, sets.apply(decoded(written))), ["a/web"]);
    let another = with_field(set(1), "/metadata/uid", json!("u-another"));
    assert_eq!(cluster.enqueued_by(&a_loop, sets.apply(decoded(another))), ["a/web"]);
    let last = sets.get(&web()).unwrap().clone();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(last.clone())), ["a/web"]);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(last)), ["a/web"]);
}

/// Proves RS-8, RS-9, RS-17.
#[test]
fn a_new_pod_enqueues_its_controller_if_kind_name_and_uid_match() {
    assert_eq!(before(None).now(pod("x")), at_once(&["web"]));
    assert_eq!(before(None).now(terminating(pod("x"))), at_once(&["web"]));
    for (kind, name, uid) in
        [("StatefulSet", "web", "u-web"), ("ReplicaSet", "gone", "u-web"), ("ReplicaSet", "web", "u-old")]
    {
        assert!(before(None).now(owned_by(kind, name, uid, orphan("x"))).is_empty(), "{kind} {name} {uid}");
    }
    // The API group is not compared.
    let odd = with_field(pod("x"), "/metadata/ownerReferences/0/apiVersion", json!("x.io/v9"));
    assert_eq!(before(None).now(odd), at_once(&["web"]));
}

/// Proves RS-10, RS-18.
#[test]
fn a_new_orphan_enqueues_every_matching_replica_set() {
    assert_eq!(before(None).now(orphan("x")), at_once(&["web"]));
    assert!(before(None).now(terminating(orphan("x"))).is_empty());
    assert!(before(None).now(labelled("none", orphan("x"))).is_empty());
    assert!(before(None).now(with_field(orphan("x"), "/metadata/labels", json!({}))).is_empty());
    assert!(before(None).now(with_field(orphan("x"), "/metadata/namespace", json!("b"))).is_empty());
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Likes"}]});
    for selector in [odd, json!({}), Value::Null] {
        let mut before = before(None);
        before.cluster = cluster(with_field(set(1), "/spec/selector", selector));
        assert!(before.now(orphan("x")).is_empty());
    }
    let twin =
        with_field(with_field(set(1), "/metadata/name", json!("twin")), "/metadata/uid", json!("u-twin"));
    let mut both = before(None);
    both.cluster = both.cluster.with::<ReplicaSet>(twin);
    assert_eq!(both.now(orphan("x")), at_once(&["twin", "web"]));
}

/// Proves RS-11.
#[test]
fn an_irrelevant_pod_change_enqueues_nothing() {
    let seen = before(None);
    assert!(seen.enqueue(&Change::resync(decoded(pod("x")))).is_empty());
    // Kubelets write many fields that no ReplicaSet reads.
    assert!(before(Some(pod("x"))).now(with_field(pod("x"), "/status/hostIP", json!("10.0.0.1"))).is_empty());
}

/// Proves RS-12, RS-13.
#[test]
fn a_change_of_controller_ref_enqueues_both_replica_sets() {
    assert_eq!(before(Some(pod("x"))).now(of_other(pod("x"))), at_once(&["web", "other"]));
    assert_eq!(before(Some(pod("x"))).now(labelled("none", orphan("x"))), at_once(&["web"]));
    assert_eq!(before(Some(pod("x"))).now(labelled("other", orphan("x"))), at_once(&["web", "other"]));
    assert_eq!(before(Some(orphan("x"))).now(pod("x")), at_once(&["web"]));
    assert_eq!(before(Some(pod("x"))).now(terminating(pod("x"))), at_once(&["web"]));
    let gone_and_given = terminating(labelled("other", of_other(pod("x"))));
    assert_eq!(before(Some(pod("x"))).now(gone_and_given), at_once(&["web", "other"]));
    let stranger = owned_by("ReplicaSet", "gone", "u-gone", orphan("x"));
    assert_eq!(before(Some(stranger)).now(pod("x")), at_once(&["web"]));
}

/// Proves RS-14.
#[test]
fn a_pod_that_becomes_ready_enqueues_its_controller_when_it_is_available() {
    let patient = |seconds: i32| {
        let mut before = before(Some(unready(pod("x"))));
        before.cluster = cluster(with_field(set(1), "/spec/minReadySeconds", json!(seconds)));
        before
    };
    assert_eq!(patient(10).now(pod("x")), [("a/web".to_owned(), 0), ("a/web".to_owned(), 10)]);
    assert_eq!(patient(0).now(pod("x")), at_once(&["web"]));
    let ready_before = Before { pods: before(Some(pod("x"))).pods, ..patient(10) };
    assert_eq!(ready_before.now(unready(pod("x"))), at_once(&["web"]));
}

/// Proves RS-15.
#[test]
fn an_orphan_enqueues_when_its_labels_or_owners_change() {
    assert!(before(Some(orphan("x"))).now(unready(orphan("x"))).is_empty());
    assert_eq!(before(Some(labelled("none", orphan("x")))).now(orphan("x")), at_once(&["web"]));
    let stranger = owned_by("ReplicaSet", "gone", "u-gone", orphan("x"));
    assert_eq!(before(Some(stranger)).now(orphan("x")), at_once(&["web"]));
}

/// Proves RS-16.
#[test]
fn a_deleted_pod_enqueues_its_controller_and_an_orphan_nothing() {
    let seen = before(None);
    assert_eq!(seen.enqueue(&Change::deleted(decoded(pod("x")))), at_once(&["web"]));
    assert!(seen.enqueue(&Change::deleted(decoded(orphan("x")))).is_empty());
}
