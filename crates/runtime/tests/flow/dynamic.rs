//! Words about resources that are only known at run time: discovery, fresh lists, whole collections; and
//! the waits of those who look at the server instead of a cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{ErrorReason, Key, Kind as _, Resource};
use keleustes_plan::{
    Applied, Context, Controller, Grant, Loop, Outcome, Plan, PropagationPolicy, ReconcileError, Requeue,
    Target, Write,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::world::{ConfigMap, World, act, on_config_maps, settle, wait};

const EVERYTHING: &[Grant] =
    &[Grant { group: "*", resource: "*", verbs: &["get", "list", "delete", "deletecollection"] }];
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");

/// Runs a script once, for the item `a/x`.
async fn once<R: Send + 'static>(
    world: &World,
    grants: &'static [Grant],
    script: impl for<'a> Fn(&'a mut Context<'_>) -> keleustes_plan::BoxFuture<'a, R> + Send + Sync + 'static,
) -> Option<R> {
    let result = Arc::new(Mutex::new(None));
    let told = result.clone();
    let script = Arc::new(script);
    let a_loop = Loop::reconciling(
        "test",
        act(move |cx, _| {
            let (script, told) = (script.clone(), told.clone());
            Box::pin(async move {
                let result = script(cx).await;
                *told.lock() = Some(result);
                Ok(Requeue::Forget)
            })
        }),
    );
    let running = world
        .start(
            Controller::new("test")
                .may_write(grants)
                .with_loop(a_loop.initial_item(Key::namespaced("a", "x"))),
        )
        .await;
    settle().await;
    running.stop().await;
    result.lock().take()
}

fn world() -> World {
    let world = World::new();
    for key in ["a/one", "a/two", "b/three"] {
        world.put(key, "red");
    }
    world
}

#[tokio::test(start_paused = true)]
async fn what_is_served_is_asked_for_anew_every_time() {
    let world = world();
    for failing in [true, false] {
        world.server.set_group_version_failing("apps", "v1", failing);
        let found = once(&world, EVERYTHING, |cx| Box::pin(cx.discover())).await.unwrap().unwrap();
        assert_eq!(found.failed.contains_key("apps/v1"), failing);
        assert!(found.preferred().iter().any(|one| one.resource == SECRETS));
    }
}

#[tokio::test(start_paused = true)]
async fn many_lists_are_asked_for_at_once_and_fail_one_by_one() {
    let world = world();
    world.faults.add(FaultRule::new(InjectedFault::status(500, "InternalError", "boom")).target("/secrets"));
    let listed = once(&world, EVERYTHING, |cx| {
        Box::pin(async move { cx.list_metadata([&SECRETS, &ConfigMap::RESOURCE], "a", None).await })
    });
    let [secrets, maps] = &listed.await.unwrap()[..] else { panic!("two answers") };
    assert_eq!(secrets.as_ref().unwrap_err().code, 500);
    let names: Vec<_> = maps.as_ref().unwrap().iter().map(|map| map.meta.key.to_string()).collect();
    assert_eq!(names, ["a/one", "a/two"]);
    let some = once(&world, EVERYTHING, |cx| {
        Box::pin(async move { cx.list_metadata([&ConfigMap::RESOURCE], "a", Some(1)).await })
    });
    assert_eq!(some.await.unwrap()[0].as_ref().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_are_listed_whole_and_metadata_is_read_alone() {
    let world = world();
    let maps = once(&world, EVERYTHING, |cx| Box::pin(async move { cx.list::<ConfigMap>("a").await }));
    assert_eq!(maps.await.unwrap().unwrap()[0].colour, "red");
    let read = |name: &'static str| {
        once(&world, EVERYTHING, move |cx| {
            Box::pin(
                async move { cx.fetch_metadata(&ConfigMap::RESOURCE, &Key::namespaced("a", name)).await },
            )
        })
    };
    let found = read("one").await.unwrap().unwrap().unwrap();
    assert_eq!(found.meta.key.to_string(), "a/one");
    assert!(!String::from_utf8_lossy(world.tap.received.lock().last().unwrap()).contains("red"));
    assert_eq!(read("none").await.unwrap().unwrap(), None);
}

fn empty(namespace: &'static str) -> Write {
    Write::delete_collection(&ConfigMap::RESOURCE, namespace)
        .propagation_policy(PropagationPolicy::Background)
        .because("the namespace goes")
}

async fn applied(world: &World, grants: &'static [Grant], write: Write) -> Option<Applied> {
    once(world, grants, move |cx| {
        let plan = Plan::of(write.clone());
        Box::pin(async move { cx.apply(plan).await })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_one_request() {
    let world = world();
    let done = applied(&world, EVERYTHING, empty("a")).await.unwrap();
    assert_eq!(done.outcomes, [Outcome::done()]);
    assert_eq!((world.colour("a/one"), world.colour("b/three")), (None, Some("red".to_owned())));
    let [write] = &world.writes()[..] else { panic!("one request") };
    assert_eq!((write.method.as_str(), write.target.as_str()), ("DELETE", "/api/v1/namespaces/a/configmaps"));
    assert_eq!(write.json()["propagationPolicy"], "Background");
    assert_eq!(empty("a").to_string(), "deletecollection configmaps in a because the namespace goes");
}

#[tokio::test(start_paused = true)]
async fn a_refused_collection_is_told_or_tolerated() {
    let world = world();
    let refusal = InjectedFault::status(405, "MethodNotAllowed", "no such verb");
    world.faults.add(FaultRule::new(refusal).method(Method::DELETE));
    let refused = applied(&world, EVERYTHING, empty("a")).await.unwrap();
    let [Outcome::Failed(failure)] = &refused.outcomes[..] else { panic!("a failure") };
    assert_eq!((failure.reason, refused.error.is_some()), (ErrorReason::MethodNotAllowed, true));
    let tolerant = empty("a").ignoring_errors(&[ErrorReason::MethodNotAllowed]);
    assert_eq!(applied(&world, EVERYTHING, tolerant).await.unwrap().outcomes, [Outcome::done()]);
    assert_eq!(world.colour("a/one").as_deref(), Some("red"));
}

#[tokio::test(start_paused = true)]
async fn a_collection_needs_its_grant_and_the_lease() {
    let world = world();
    const DELETES: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["delete"] }];
    assert_eq!(applied(&world, DELETES, empty("a")).await, None, "the turn ended in a panic");
    world.leads.store(false, Ordering::Relaxed);
    let not_led = applied(&world, EVERYTHING, empty("a")).await.unwrap();
    assert_eq!(not_led.outcomes, [Outcome::NotSent]);
    assert_eq!(world.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_any_resource_is_deleted_in_the_life_that_was_seen() {
    let world = world();
    let target = |uid: &str| Target {
        resource: ConfigMap::RESOURCE,
        key: Key::namespaced("a", "one"),
        uid: uid.into(),
    };
    let other_life = applied(&world, EVERYTHING, Write::delete_target(target("other"))).await.unwrap();
    assert!(
        matches!(&other_life.outcomes[..], [Outcome::Failed(failure)] if failure.reason == ErrorReason::Conflict)
    );
    let uid = world.server.object("configmaps", "a", "one").unwrap()["metadata"]["uid"].clone();
    applied(&world, EVERYTHING, Write::delete_target(target(uid.as_str().unwrap()))).await.unwrap();
    assert_eq!(world.colour("a/one"), None);
}

/// Turns of the item `a/x`, in seconds since the start, of a script that fails, waits and fails again.
#[tokio::test(start_paused = true)]
async fn who_keeps_waiting_is_neither_forgiven_nor_blamed() {
    let world = World::new();
    world.put("a/x", "red");
    let (turns, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let noted = turns.clone();
    let a_loop = on_config_maps(move |_, _| {
        noted.lock().push(began.elapsed().as_millis());
        let next = match noted.lock().len() {
            // Three failures: 5, 10 and 20 ms.
            1..=3 => Err(ReconcileError::because("not yet")),
            4 => Ok(Requeue::KeepBackoff(Duration::from_secs(1))),
            // The fourth failure waits 40 ms.
            5 => Err(ReconcileError::because("not yet")),
            _ => Ok(Requeue::Forget),
        };
        Box::pin(async move { next })
    });
    let running = world.start(Controller::new("test").with_loop(a_loop)).await;
    wait(Duration::from_secs(5)).await;
    assert_eq!(*turns.lock(), [0, 5, 15, 35, 1035, 1075]);
    running.stop().await;
}

/// Proves INF-48.
#[tokio::test(start_paused = true)]
async fn a_loop_may_be_shown_everything_again_more_often_than_others() {
    let world = world();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let noted = turns.clone();
    let note = on_config_maps(move |_, item| {
        noted.lock().push(item.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running =
        world.start(Controller::new("test").with_loop(note.resync_every(Duration::from_secs(300)))).await;
    wait(Duration::from_secs(299)).await;
    assert_eq!(turns.lock().len(), 3);
    wait(Duration::from_secs(2)).await;
    assert_eq!(turns.lock()[3..], ["a/one", "a/two", "b/three"]);
    wait(Duration::from_secs(300)).await;
    assert_eq!(turns.lock().len(), 9);
    running.stop().await;
}
