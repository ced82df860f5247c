//! Read your own writes: what a key wrote, it sees before it is asked again.

use std::time::Duration;

use keleustes_objects::{Key, Kind, Namespace, ResourceVersion, TokenSecret, Uid};
use keleustes_plan::{Controller, Grant, Item, KindEntry, Loop, Plan, View, Write};
use keleustes_runtime::gate::{Gate, GateDecision, HOLD_MAX};
use keleustes_runtime::loops::RunningController;
use serde_json::json;

use crate::world::{ConfigMap, World, settle, wait};

const GRANTS: &[Grant] = &[
    Grant { group: "", resource: "configmaps", verbs: &["create", "delete"] },
    Grant { group: "", resource: "secrets", verbs: &["create"] },
];

/// A controller that is woken by namespaces and looks at ConfigMaps and Secrets, too.
fn deciding(decide: fn(&View<'_>, &Item) -> Plan) -> Controller {
    let a_loop = Loop::deciding("test", decide)
        .enqueue_on::<Namespace>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .reads::<ConfigMap>()
        .reads::<TokenSecret>();
    Controller::new("test").may_write(GRANTS).with_loop(a_loop)
}

/// Wants one ConfigMap in namespace `a`, of whatever name.
fn want_one(view: &View<'_>, item: &Item) -> Plan {
    let namespace = (&*item.name).into();
    let has_one = view.in_namespace::<ConfigMap>(&namespace).next().is_some();
    if item.name != "a" || has_one || view.get::<Namespace>(item).is_none() {
        return Plan::none();
    }
    let body = json!({"metadata": {"generateName": "child-"}});
    Plan::of(Write::create::<ConfigMap>(Key::namespaced(namespace, ""), body).because("there is none"))
}

/// Starts it with full caches, of which that of ConfigMaps then hears nothing new.
async fn start_lagging(world: &World, decide: fn(&View<'_>, &Item) -> Plan) -> RunningController {
    world.filled::<ConfigMap>().await;
    world.tap.lag("configmaps");
    let running = world.start(deciding(decide)).await;
    settle().await;
    running
}

/// Changes a namespace, which wakes its key.
fn touch(world: &World, name: &str) {
    let stamp = world.server.resource_version().to_string();
    let uid = format!("uid-of-{name}");
    world
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": uid, "annotations": {"touched": stamp}},
            "status": {"phase": "Active"}}))
        .unwrap();
}

/// Proves INF-71, INF-72, INF-74.
#[tokio::test(start_paused = true)]
async fn a_key_is_not_asked_again_before_the_cache_has_seen_what_it_created() {
    let world = World::new();
    touch(&world, "a");
    let running = start_lagging(&world, want_one).await;
    for _ in 0..5 {
        touch(&world, "a");
        settle().await;
    }
    assert_eq!(world.writes().len(), 1, "five more looks at the old cache would have made five more");
    assert!(world.metric(r#"keleustes_stale_cache_holds_total{controller="test"} 5"#));
    world.tap.catch_up();
    settle().await;
    touch(&world, "a");
    settle().await;
    assert_eq!(world.writes().len(), 1);
    assert!(
        world.metric(r#"keleustes_stale_cache_holds_total{controller="test"} 5"#),
        "nothing holds it now"
    );
    running.stop().await;
}

/// Proves INF-72.
#[tokio::test(start_paused = true)]
async fn a_key_is_not_asked_again_before_the_cache_has_seen_what_it_deleted() {
    fn want_none(view: &View<'_>, item: &Item) -> Plan {
        let mut plan = Plan::none();
        for map in view.in_namespace::<ConfigMap>(&(&*item.name).into()) {
            plan.push(Write::delete(&**map).because("it is one too many"));
        }
        plan
    }
    let world = World::new();
    touch(&world, "a");
    world.put("a/x", "red");
    world.put("a/y", "red");
    let running = start_lagging(&world, want_none).await;
    for _ in 0..3 {
        touch(&world, "a");
        settle().await;
    }
    assert_eq!(world.writes().len(), 2, "one for each, although the cache still shows them");
    world.tap.catch_up();
    settle().await;
    world.put("a/z", "red");
    touch(&world, "a");
    settle().await;
    assert_eq!(world.writes().len(), 3, "and then the key is free");
    running.stop().await;
}

/// Other keys are not held by one key's writes.
#[tokio::test(start_paused = true)]
async fn other_keys_go_on_while_one_is_held() {
    fn note(view: &View<'_>, item: &Item) -> Plan {
        let mut plan = want_one(view, item);
        if item.name == "b" {
            let body = json!({"metadata": {"generateName": "b-"}});
            plan.push(Write::create::<ConfigMap>(Key::namespaced("b", ""), body));
        }
        plan
    }
    let world = World::new();
    touch(&world, "a");
    let running = start_lagging(&world, note).await;
    touch(&world, "a");
    touch(&world, "b");
    settle().await;
    let targets: Vec<_> = world.writes().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps"]);
    running.stop().await;
}

/// Proves INF-142.
#[tokio::test(start_paused = true)]
async fn a_bookmark_frees_a_key_whose_write_no_event_will_show() {
    /// The cache holds token Secrets only, so it never hears of this one.
    fn want_secret(_: &View<'_>, item: &Item) -> Plan {
        let body = json!({"metadata": {"generateName": "s-"}, "type": "Opaque"});
        let key = Key::namespaced(&*item.name, "");
        if item.name == "a" { Plan::of(Write::create::<TokenSecret>(key, body)) } else { Plan::none() }
    }
    let world = World::new();
    touch(&world, "a");
    let running = world.start(deciding(want_secret)).await;
    settle().await;
    touch(&world, "a");
    wait(Duration::from_secs(59)).await;
    assert_eq!(world.writes().len(), 1, "held");
    world.server.send_bookmarks();
    settle().await;
    assert_eq!(world.writes().len(), 2, "the key that was held is asked again by itself");
    running.stop().await;
}

/// Proves INF-74, INF-78, INF-149.
#[tokio::test(start_paused = true)]
async fn an_owner_made_anew_is_not_held_by_what_its_namesake_wrote() {
    let world = World::new();
    touch(&world, "a");
    let running = start_lagging(&world, want_one).await;
    touch(&world, "a");
    settle().await;
    assert_eq!(world.writes().len(), 1, "the first life is held");
    assert!(world.server.remove("namespaces", "", "a"));
    settle().await;
    let reborn = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"},
        "status": {"phase": "Active"}});
    world.server.seed(reborn).unwrap();
    settle().await;
    assert_eq!(world.writes().len(), 2, "the second life is not");
    running.stop().await;
}

/// Proves INF-145.
#[tokio::test(start_paused = true)]
async fn a_cache_that_never_catches_up_holds_a_key_for_five_minutes() {
    let world = World::new();
    touch(&world, "a");
    let running = start_lagging(&world, want_one).await;
    touch(&world, "a");
    wait(HOLD_MAX - Duration::from_secs(1)).await;
    assert_eq!(world.writes().len(), 1);
    wait(Duration::from_secs(2)).await;
    assert_eq!(world.writes().len(), 2, "nothing woke it but the end of its patience");
    running.stop().await;
}

/// Proves INF-71, INF-74, INF-79.
#[tokio::test(start_paused = true)]
async fn the_newest_version_counts_and_one_that_cannot_be_compared_never_does() {
    let world = World::new();
    let (empty, key) = (world.caches.cache(&KindEntry::of::<Namespace>()), Key::namespaced("a", "owner"));
    let clocks = world.surroundings.clocks.clone();
    let gate = |cache| Gate::new(&[cache], None, clocks.clone());
    let item = Item::from(&key);

    let unfilled = gate(empty.clone());
    unfilled.expect_version(&item, &Namespace::RESOURCE, &ResourceVersion::from("100"));
    assert_eq!(unfilled.decide(&item), GateDecision::Proceed, "a cache without a version");

    let cache = world.filled::<ConfigMap>().await;
    let reached = cache.resource_version();
    let gate = gate(cache);
    for odd in ["", "0", "abc", "007"] {
        gate.expect_version(&item, &ConfigMap::RESOURCE, &ResourceVersion::from(odd));
        assert_eq!(gate.decide(&item), GateDecision::Proceed, "{odd:?}");
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
    assert_eq!(gate.decide(&Key::namespaced("b", "owner").into()), GateDecision::Proceed, "seen already");
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
