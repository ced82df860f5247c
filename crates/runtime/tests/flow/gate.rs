//! Read your own writes: a key is not reconciled before the caches have observed what it wrote.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{Key, Kind, Namespace, ResourceVersion, TokenSecret, Uid};
use keleustes_plan::{Controller, Grant, Item, KindEntry, Loop, PatchKind, Plan, View, Write};
use keleustes_runtime::gate::{Gate, GateDecision, HOLD_MAX};
use keleustes_runtime::loops::RunningController;
use serde_json::json;

use crate::test_cluster::{ConfigMap, TestCluster, settle, wait};

const GRANTS: &[Grant] = &[
    Grant { group: "", resource: "configmaps", verbs: &["create", "delete", "patch"] },
    Grant { group: "", resource: "secrets", verbs: &["create"] },
];

/// A controller that is enqueued by Namespaces and also reads ConfigMaps and Secrets.
fn deciding(decide: fn(&View<'_>, &Key) -> Plan) -> Controller {
    Controller::new("test").may_write(GRANTS).with_loop(unkeyed(decide).keyed_by::<Namespace>())
}

/// A loop that names its items after namespaces, but waits for what was written for an earlier one of the same name.
fn unkeyed(decide: fn(&View<'_>, &Key) -> Plan) -> Loop {
    Loop::deciding("test", decide)
        .enqueue_on::<Namespace>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .reads::<ConfigMap>()
        .reads::<TokenSecret>()
}

/// Wants one ConfigMap in namespace `a`, of any name.
fn want_one(view: &View<'_>, item: &Key) -> Plan {
    let namespace = (&*item.name).into();
    let has_one = view.in_namespace::<ConfigMap>(&namespace).next().is_some();
    if item.name != "a" || has_one || view.get::<Namespace>(item).is_none() {
        return Plan::none();
    }
    let body = json!({"metadata": {"generateName": "child-"}});
    Plan::of(Write::create::<ConfigMap>(Key::namespaced(namespace, ""), body).because("there is none"))
}

/// Starts it with synced caches; the watch of ConfigMaps lags from then on.
async fn start_lagging(cluster: &TestCluster, decide: fn(&View<'_>, &Key) -> Plan) -> RunningController {
    start_controller_lagging(cluster, deciding(decide)).await
}

async fn start_controller_lagging(cluster: &TestCluster, controller: Controller) -> RunningController {
    cluster.synced_cache::<ConfigMap>().await;
    cluster.tap.lag("configmaps");
    let running = cluster.start(controller).await;
    settle().await;
    running
}

/// Changes a namespace, which enqueues its key.
fn touch(cluster: &TestCluster, name: &str) {
    let stamp = cluster.server.resource_version().to_string();
    let uid = format!("uid-of-{name}");
    cluster
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": uid, "annotations": {"touched": stamp}},
            "status": {"phase": "Active"}}))
        .unwrap();
}

/// Proves INF-71, INF-72, INF-74.
#[tokio::test(start_paused = true)]
async fn key_is_held_until_the_cache_observes_what_it_created() {
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let running = start_lagging(&cluster, want_one).await;
    for _ in 0..5 {
        touch(&cluster, "a");
        settle().await;
    }
    assert_eq!(
        cluster.writes().len(),
        1,
        "five more reconciles of the stale cache would have created five more"
    );
    assert!(cluster.metric(r#"keleustes_stale_cache_holds_total{controller="test"} 5"#));
    cluster.tap.catch_up();
    settle().await;
    touch(&cluster, "a");
    settle().await;
    assert_eq!(cluster.writes().len(), 1);
    assert!(
        cluster.metric(r#"keleustes_stale_cache_holds_total{controller="test"} 5"#),
        "the key is not held back now"
    );
    running.stop().await;
}

/// Proves INF-72.
#[tokio::test(start_paused = true)]
async fn key_is_held_until_the_cache_observes_what_it_deleted() {
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    cluster.put("a/x", "red");
    cluster.put("a/y", "red");
    let running = start_lagging(&cluster, want_none).await;
    for _ in 0..3 {
        touch(&cluster, "a");
        settle().await;
    }
    assert_eq!(cluster.writes().len(), 2, "one for each, although the cache still shows them");
    cluster.tap.catch_up();
    settle().await;
    cluster.put("a/z", "red");
    touch(&cluster, "a");
    settle().await;
    assert_eq!(cluster.writes().len(), 3, "and then the key proceeds");
    running.stop().await;
}

fn want_none(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for map in view.in_namespace::<ConfigMap>(&(&*item.name).into()) {
        plan.push(Write::delete(&**map).because("there is one too many"));
    }
    plan
}

/// Wants the ConfigMap of this name.
fn want_named(view: &View<'_>, item: &Key) -> Plan {
    let key = Key::namespaced(&*item.name, "x");
    if item.name != "a" || view.get::<ConfigMap>(&key).is_some() {
        return Plan::none();
    }
    Plan::of(Write::create::<ConfigMap>(key, json!({"metadata": {"name": "x"}})).because("there is none"))
}

/// Adds a letter to what the cache shows, which shows whether the cache was current.
fn want_two_letters(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for map in view.in_namespace::<ConfigMap>(&(&*item.name).into()) {
        if map.colour.len() < 2 {
            let change = json!({"data": {"colour": format!("{}b", map.colour)}});
            plan.push(Write::patch(&**map, PatchKind::Merge, change).because("it has too few letters"));
        }
    }
    plan
}

/// The actions whose response is lost: what exists before, the decision, and how many writes it needs.
type LostWrite = (&'static str, &'static [&'static str], fn(&View<'_>, &Key) -> Plan);

const LOST_WRITES: [LostWrite; 4] = [
    ("create with a generated name", &[], want_one),
    ("create", &[], want_named),
    ("patch", &["a/x"], want_two_letters),
    ("delete", &["a/x"], want_none),
];

fn lost_responses() -> [InjectedFault; 3] {
    [
        InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset),
        InjectedFault::status(500, "InternalError", "etcdserver: leader changed"),
        InjectedFault::status(504, "Timeout", "too slow"),
    ]
}

#[tokio::test(start_paused = true)]
async fn key_is_held_until_a_write_with_a_lost_response_is_observed() {
    for (what, before, decide) in LOST_WRITES {
        for lost in lost_responses() {
            let cluster = TestCluster::new();
            touch(&cluster, "a");
            before.iter().for_each(|key| cluster.put(key, "a"));
            let fault = InjectedFault::ApplyThen(Box::new(lost));
            cluster.faults.add(FaultRule::new(fault).resource("configmaps").writes(true).times(1));
            let running = start_lagging(&cluster, decide).await;
            for _ in 0..5 {
                touch(&cluster, "a");
                settle().await;
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(cluster.writes().len(), 1, "{what}: written again on a stale cache");
            cluster.tap.catch_up();
            settle().await;
            touch(&cluster, "a");
            settle().await;
            assert_eq!(cluster.writes().len(), 1, "{what}");
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn key_is_reconciled_at_once_if_a_write_without_response_had_no_effect() {
    for (what, before, decide) in LOST_WRITES {
        for lost in lost_responses() {
            let (name, cluster) = (format!("{lost:?}"), TestCluster::new());
            touch(&cluster, "a");
            before.iter().for_each(|key| cluster.put(key, "a"));
            let failed =
                cluster.faults.add(FaultRule::new(lost).resource("configmaps").writes(true).times(1));
            let running = start_lagging(&cluster, decide).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(cluster.faults.hits(failed), 1, "{what}");
            assert_eq!(cluster.writes().len(), 1, "{what}, {name}: not retried");
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn key_is_not_reconciled_while_the_outcome_of_its_write_cannot_be_read() {
    for (what, before, decide) in LOST_WRITES {
        let cluster = TestCluster::new();
        touch(&cluster, "a");
        before.iter().for_each(|key| cluster.put(key, "a"));
        let reset = || InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset);
        let lost = InjectedFault::ApplyThen(Box::new(reset()));
        cluster.faults.add(FaultRule::new(lost).resource("configmaps").writes(true).times(1));
        cluster.synced_cache::<ConfigMap>().await;
        let unread = cluster
            .faults
            .add(FaultRule::new(reset()).resource("configmaps").method(Method::GET).watch(false));
        let running = start_lagging(&cluster, decide).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(cluster.faults.hits(unread) > 3, "{what}: {} reads", cluster.faults.hits(unread));
        assert_eq!(cluster.writes().len(), 1, "{what}");
        cluster.faults.disable(unread);
        cluster.tap.catch_up();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(cluster.writes().len(), 1, "{what}");
        running.stop().await;
    }
}

/// Other keys are not held back by one key's writes.
#[tokio::test(start_paused = true)]
async fn other_keys_proceed_while_one_is_held() {
    fn decide(view: &View<'_>, item: &Key) -> Plan {
        let mut plan = want_one(view, item);
        if item.name == "b" {
            let body = json!({"metadata": {"generateName": "b-"}});
            plan.push(
                Write::create::<ConfigMap>(Key::namespaced("b", ""), body).because("the test wants it"),
            );
        }
        plan
    }
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let running = start_lagging(&cluster, decide).await;
    touch(&cluster, "a");
    touch(&cluster, "b");
    settle().await;
    let targets: Vec<_> = cluster.writes().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps"]);
    running.stop().await;
}

/// Proves INF-142.
#[tokio::test(start_paused = true)]
async fn bookmark_releases_a_key_whose_write_no_event_shows() {
    /// The cache holds token Secrets only, so no watch event shows this one.
    fn want_secret(_: &View<'_>, item: &Key) -> Plan {
        let body = json!({"metadata": {"generateName": "s-"}, "type": "Opaque"});
        let key = Key::namespaced(&*item.name, "");
        if item.name == "a" {
            Plan::of(Write::create::<TokenSecret>(key, body).because("the test wants it"))
        } else {
            Plan::none()
        }
    }
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let running = cluster.start(deciding(want_secret)).await;
    settle().await;
    touch(&cluster, "a");
    wait(Duration::from_secs(59)).await;
    assert_eq!(cluster.writes().len(), 1, "held back");
    cluster.server.send_bookmarks();
    settle().await;
    assert_eq!(cluster.writes().len(), 2, "the held key is reconciled again without another event");
    running.stop().await;
}

/// Proves INF-74, INF-78, INF-149.
#[tokio::test(start_paused = true)]
async fn recreated_owner_is_not_held_by_writes_of_its_predecessor() {
    assert_eq!(writes_for_a_recreated_owner(deciding(want_one)).await, 2, "the second UID is not held back");
}

/// What is written under the owner's name, as Endpoints are, concerns the next owner of that name as well.
#[tokio::test(start_paused = true)]
async fn recreated_owner_is_held_in_a_loop_that_is_not_keyed_by_it() {
    let controller = Controller::new("test").may_write(GRANTS).with_loop(unkeyed(want_one));
    assert_eq!(writes_for_a_recreated_owner(controller).await, 1, "the cache does not show the first write");
}

/// The number of writes after the owner was recreated, while the cache does not show what was written for the first.
async fn writes_for_a_recreated_owner(controller: Controller) -> usize {
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let running = start_controller_lagging(&cluster, controller).await;
    touch(&cluster, "a");
    settle().await;
    assert_eq!(cluster.writes().len(), 1, "the first UID is held back");
    assert!(cluster.server.remove("namespaces", "", "a"));
    settle().await;
    let recreated = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"},
        "status": {"phase": "Active"}});
    cluster.server.seed(recreated).unwrap();
    settle().await;
    running.stop().await;
    cluster.writes().len()
}

/// Proves INF-145.
#[tokio::test(start_paused = true)]
async fn cache_that_never_catches_up_holds_a_key_for_five_minutes() {
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let running = start_lagging(&cluster, want_one).await;
    touch(&cluster, "a");
    wait(HOLD_MAX - Duration::from_secs(1)).await;
    assert_eq!(cluster.writes().len(), 1);
    wait(Duration::from_secs(2)).await;
    assert_eq!(cluster.writes().len(), 2, "the hold has expired");
    running.stop().await;
}

/// Proves INF-71, INF-74, INF-79.
#[tokio::test(start_paused = true)]
async fn newest_resource_version_counts_and_incomparable_ones_never_do() {
    let cluster = TestCluster::new();
    let (empty, key) = (cluster.caches.cache(&KindEntry::of::<Namespace>()), Key::namespaced("a", "owner"));
    let clocks = cluster.context.clocks.clone();
    let gate = |cache| Gate::new(&[cache], None, clocks.clone());
    let item = Item::from(&key);

    let unfilled = gate(empty.clone());
    unfilled.expect_version(&item, &Namespace::RESOURCE, &ResourceVersion::from("100"));
    assert_eq!(unfilled.decide(&item), GateDecision::Proceed, "a cache without a resourceVersion");

    let cache = cluster.synced_cache::<ConfigMap>().await;
    let reached = cache.resource_version();
    let gate = gate(cache);
    for invalid in ["", "0", "abc", "007"] {
        gate.expect_version(&item, &ConfigMap::RESOURCE, &ResourceVersion::from(invalid));
        assert_eq!(gate.decide(&item), GateDecision::Proceed, "{invalid:?}");
    }
    gate.expect_version(&item, &ConfigMap::RESOURCE, &ResourceVersion::from("1000000"));
    gate.expect_version(&item, &ConfigMap::RESOURCE, &reached);
    gate.expect_version(&item, &ConfigMap::RESOURCE, &ResourceVersion::default());
    assert!(
        matches!(gate.decide(&item), GateDecision::HoldFor(_)),
        "an older write does not replace a newer one"
    );
    assert_eq!(gate.decide(&Key::namespaced("a", "other").into()), GateDecision::Proceed);
    assert!(gate.take_released().is_empty());

    gate.expect_version(&Key::namespaced("b", "owner").into(), &ConfigMap::RESOURCE, &reached);
    assert_eq!(gate.decide(&Key::namespaced("b", "owner").into()), GateDecision::Proceed, "observed already");
    let other_kind = Item::from(Key::namespaced("c", "owner"));
    gate.expect_version(&other_kind, &TokenSecret::RESOURCE, &ResourceVersion::from("1000000"));
    assert_eq!(gate.decide(&other_kind), GateDecision::Proceed, "a kind that the loop does not read");
    gate.expect_deleted(
        &Key::namespaced("d", "owner").into(),
        &ConfigMap::RESOURCE,
        &Key::namespaced("d", "x"),
        &Uid::from("u"),
    );
    assert_eq!(gate.decide(&Key::namespaced("d", "owner").into()), GateDecision::Proceed, "not in the cache");
}
