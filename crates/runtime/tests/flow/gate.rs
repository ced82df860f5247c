//! Read your own writes: a key is not reconciled before the caches have observed what it wrote.

use std::time::Duration;

use keleustes_apiserver::faults::FaultRuleId;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{Key, Kind, Namespace, ResourceQuota, ResourceVersion, TokenSecret, Uid};
use keleustes_plan::{
    Controller, Edited, Grant, Item, KindEntry, Loop, PatchKind, Plan, Target, View, Write,
};
use keleustes_runtime::gate::{Gate, GateDecision, HOLD_MAX};
use keleustes_runtime::leader::Handover as _;
use keleustes_runtime::loops::RunningController;
use serde_json::json;

use crate::test_cluster::{ConfigMap, TestCluster, settle, wait};

const GRANTS: &[Grant] = &[
    Grant {
        group: "",
        resource: "configmaps",
        verbs: &["create", "delete", "deletecollection", "get", "patch", "update"],
    },
    Grant { group: "", resource: "resourcequotas/status", verbs: &["update"] },
    Grant { group: "", resource: "secrets", verbs: &["create"] },
];

/// A controller that is enqueued by Namespaces and also reads ConfigMaps, Secrets and ResourceQuotas.
fn deciding(decide: fn(&View<'_>, &Key) -> Plan) -> Controller {
    Controller::new("test").may_write(GRANTS).with_loop(unkeyed(decide).keyed_by::<Namespace>())
}

/// A loop that names its items after namespaces, but waits for what was written for an earlier one of the same name.
fn unkeyed(decide: fn(&View<'_>, &Key) -> Plan) -> Loop {
    Loop::deciding("test", decide)
        .enqueue_on::<Namespace>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .reads::<ConfigMap>()
        .reads::<TokenSecret>()
        .reads::<ResourceQuota>()
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
    start_lagging_on(cluster, controller, "configmaps").await
}

async fn start_lagging_on(
    cluster: &TestCluster,
    controller: Controller,
    plural: &'static str,
) -> RunningController {
    cluster.synced_cache::<ConfigMap>().await;
    cluster.synced_cache::<ResourceQuota>().await;
    cluster.tap.lag(plural);
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

/// The ConfigMaps with fewer than two letters, and what they are to become.
fn too_short<'a>(view: &'a View<'_>, item: &Key) -> impl Iterator<Item = (&'a ConfigMap, String)> {
    let maps = view.in_namespace::<ConfigMap>(&(&*item.name).into()).filter(|map| map.colour.len() < 2);
    maps.map(|map| (&**map, format!("{}b", map.colour)))
}

/// The same as a PUT of the cached object.
fn put_two_letters(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for (map, letters) in too_short(view, item) {
        let meta = &map.meta;
        let body = json!({"metadata": {"namespace": &*meta.key.namespace, "name": &*meta.key.name,
            "uid": meta.uid.to_string(), "resourceVersion": meta.resource_version.to_string()}, "data": {"colour": letters}});
        plan.push(Write::put(map, "", body).because("it has too few letters"));
    }
    plan
}

/// The same as a change of the live object, which adds a letter whenever it is sent.
fn edit_two_letters(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for (map, _) in too_short(view, item) {
        let add = |live: &mut serde_json::Value| {
            live["data"]["colour"] = json!(format!("{}b", live["data"]["colour"].as_str().unwrap()));
            Edited::Changed
        };
        plan.push(Write::edit(map, add).because("it has too few letters"));
    }
    plan
}

/// The same as a server-side apply.
fn apply_two_letters(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for (map, letters) in too_short(view, item) {
        plan.push(
            Write::apply(map, "test", json!({"data": {"colour": letters}})).because("it has too few letters"),
        );
    }
    plan
}

/// Wants a label on every ConfigMap.
fn want_label(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for map in view.in_namespace::<ConfigMap>(&(&*item.name).into()) {
        if map.meta.labels.value("seen").is_none() {
            let label = |_: &serde_json::Value| Some(json!({"labels": {"seen": "yes"}}));
            plan.push(Write::patch_metadata(Target::of(&**map), label).because("it has no label"));
        }
    }
    plan
}

/// Wants a status on every ResourceQuota.
fn want_status(view: &View<'_>, item: &Key) -> Plan {
    let mut plan = Plan::none();
    for quota in view.in_namespace::<ResourceQuota>(&(&*item.name).into()) {
        if quota.status.hard.is_none() {
            let status = json!({"hard": {"pods": "1"}, "used": {"pods": "0"}});
            plan.push(Write::put_status(&**quota, &status).because("it has no status"));
        }
    }
    plan
}

/// A write whose response is lost.
struct LostWrite {
    what: &'static str,
    /// The resource of the request, with its subresource.
    resource: &'static str,
    /// Creates what exists before.
    before: fn(&TestCluster),
    decide: fn(&View<'_>, &Key) -> Plan,
}

impl LostWrite {
    const fn of_config_map(
        what: &'static str,
        before: fn(&TestCluster),
        decide: fn(&View<'_>, &Key) -> Plan,
    ) -> Self {
        Self { what, resource: "configmaps", before, decide }
    }

    fn plural(&self) -> &'static str {
        self.resource.split('/').next().unwrap()
    }

    /// A cluster in which the first write hits this fault.
    fn cluster(&self, fault: InjectedFault) -> (TestCluster, FaultRuleId) {
        let cluster = TestCluster::new();
        touch(&cluster, "a");
        (self.before)(&cluster);
        let rule = FaultRule::new(fault).resource(self.resource).writes(true).times(1);
        let id = cluster.faults.add(rule);
        (cluster, id)
    }

    async fn start(&self, cluster: &TestCluster) -> RunningController {
        start_lagging_on(cluster, deciding(self.decide), self.plural()).await
    }
}

fn put_x(cluster: &TestCluster) {
    cluster.put("a/x", "a");
}

fn put_quota(cluster: &TestCluster) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": "a", "name": "q"},
        "spec": {"hard": {"pods": "1"}}});
    cluster.server.seed(quota).unwrap();
}

/// Every kind of write that is followed until its outcome is known. The only other one deletes a collection: the
/// namespace controller, which sends it, lists what is left live before it decides anything.
const LOST_WRITES: [LostWrite; 9] = [
    LostWrite::of_config_map("create with a generated name", |_| {}, want_one),
    LostWrite::of_config_map("create", |_| {}, want_named),
    LostWrite::of_config_map("patch", put_x, want_two_letters),
    LostWrite::of_config_map("put", put_x, put_two_letters),
    LostWrite {
        what: "put of a status",
        resource: "resourcequotas/status",
        before: put_quota,
        decide: want_status,
    },
    LostWrite::of_config_map("edit", put_x, edit_two_letters),
    LostWrite::of_config_map("apply", put_x, apply_two_letters),
    LostWrite::of_config_map("patch of metadata", put_x, want_label),
    LostWrite::of_config_map("delete", put_x, want_none),
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
    for write in LOST_WRITES {
        for lost in lost_responses() {
            let (what, (cluster, _)) = (write.what, write.cluster(InjectedFault::ApplyThen(Box::new(lost))));
            let running = write.start(&cluster).await;
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
    for write in LOST_WRITES {
        for lost in lost_responses() {
            let (what, name) = (write.what, format!("{lost:?}"));
            let (cluster, failed) = write.cluster(lost);
            let running = write.start(&cluster).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(cluster.faults.hits(failed), 1, "{what}");
            assert_eq!(cluster.writes().len(), 1, "{what}, {name}: not retried");
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn key_is_not_reconciled_while_the_outcome_of_its_write_cannot_be_read() {
    for write in LOST_WRITES {
        let reset = || InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset);
        let (what, (cluster, _)) = (write.what, write.cluster(InjectedFault::ApplyThen(Box::new(reset()))));
        cluster.synced_cache::<ConfigMap>().await;
        cluster.synced_cache::<ResourceQuota>().await;
        let rule = FaultRule::new(reset()).resource(write.plural()).verbs(&["list"]);
        let unread = cluster.faults.add(rule);
        let running = write.start(&cluster).await;
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

/// An overloaded API server that fails a batch of creates must not get a list for each of them.
#[tokio::test(start_paused = true)]
async fn equal_creates_without_a_response_are_looked_up_with_one_list() {
    fn want_eight(view: &View<'_>, item: &Key) -> Plan {
        let mut plan = Plan::none();
        let is_empty = view.in_namespace::<ConfigMap>(&(&*item.name).into()).next().is_none();
        if item.name == "a" && is_empty && view.get::<Namespace>(item).is_some() {
            let body = json!({"metadata": {"generateName": "child-", "labels": {"of": "a"}}});
            let create = || Write::create::<ConfigMap>(Key::namespaced("a", ""), body.clone());
            plan.push_parallel((0..8).map(|_| create().because("there is none")).collect());
        }
        plan
    }
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    let unavailable = InjectedFault::status(500, "InternalError", "etcdserver: leader changed");
    let rule = FaultRule::new(unavailable).resource("configmaps").writes(true).times(8);
    let failed = cluster.faults.add(rule);
    let running = cluster.start(deciding(want_eight)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        (cluster.faults.hits(failed), cluster.writes().len()),
        (8, 8),
        "eight failed, eight more did not"
    );
    assert_eq!(cluster.reads("configmaps", "labelSelector"), 1);
    running.stop().await;
}

/// The key is not reconciled meanwhile, and its worker waits.
#[tokio::test(start_paused = true)]
async fn outcomes_of_one_key_are_looked_up_together_until_one_of_them_fails() {
    fn delete_all(view: &View<'_>, item: &Key) -> Plan {
        let mut plan = Plan::none();
        let maps = view.in_namespace::<ConfigMap>(&(&*item.name).into());
        plan.push_parallel(maps.map(|map| Write::delete(&**map).because("all are to go")).collect());
        plan
    }
    let cluster = TestCluster::new();
    touch(&cluster, "a");
    (0..8).for_each(|n| cluster.put(&format!("a/x{n}"), "red"));
    cluster.synced_cache::<ConfigMap>().await;
    let unavailable = || InjectedFault::status(500, "InternalError", "etcdserver: leader changed");
    let writes = FaultRule::new(unavailable()).resource("configmaps").writes(true).times(8);
    let one = FaultRule::new(unavailable()).resource("configmaps").verbs(&["list"]).target("x5").times(1);
    let slow = InjectedFault::DelayThen(Duration::from_secs(1), Box::new(InjectedFault::Pass));
    let slow = FaultRule::new(slow).resource("configmaps").verbs(&["list"]);
    let (failed, _, lists) = (cluster.faults.add(writes), cluster.faults.add(one), cluster.faults.add(slow));
    let running = cluster.start(deciding(delete_all)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // The first five, and two more that were under way; then the last three.
    assert_eq!((cluster.faults.hits(failed), cluster.faults.hits(lists)), (8, 7 + 3));
    assert_eq!(cluster.writes().len(), 8);
    running.stop().await;
}

/// A leader that stops in the meantime does not know what its successor must see.
#[tokio::test(start_paused = true)]
async fn no_handover_record_is_left_while_a_write_is_in_flight() {
    let delete_all = |view: &View<'_>, item: &Key| {
        let is_empty = view.in_namespace::<ConfigMap>(&(&*item.name).into()).next().is_none();
        let delete = Write::delete_collection(&ConfigMap::RESOURCE, &item.name);
        if is_empty { Plan::none() } else { Plan::of(delete.because("there are some")) }
    };
    let delete_all = LostWrite::of_config_map("delete of a collection", put_x, delete_all);
    for write in LOST_WRITES.into_iter().chain([delete_all]) {
        let slow = InjectedFault::DelayThen(Duration::from_secs(10), Box::new(InjectedFault::Pass));
        let (what, (cluster, delayed)) = (write.what, write.cluster(slow));
        let running = cluster.start(deciding(write.decide)).await;
        let state = || (cluster.caches.has_write_in_flight(), cluster.caches.handover_record().is_some());
        settle().await;
        assert_eq!((cluster.faults.hits(delayed), state()), (1, (true, false)), "{what}: in flight");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(state(), (true, false), "{what}: still in flight");
        // What a deleted collection held is not known, so that no record is left for a minute.
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!((cluster.writes().len(), state()), (1, (false, true)), "{what}: it has a response");
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
