//! The rarer words of a plan: puts from the cache, writes sent together, patches that know a life,
//! reports, measurements, and items that are there from the start or woken by others.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::InjectedFault;
use keleustes_objects::{Key, Namespace, Uid};
use keleustes_plan::{
    Controller, InvolvedObject, Loop, Metric, Outcome, PatchKind, Plan, PlannedEvent, Requeue, Write,
};
use serde_json::{Value, json};

use crate::executor::{apply, create, letters, many, on, seen, world};
use crate::world::{ConfigMap, World, act, wait};

fn namespace(world: &World) -> Value {
    (*world.server.object("namespaces", "", "a").unwrap()).clone()
}

/// A status put as a controller makes it of what its cache holds.
fn mark(seen: &Value) -> Write {
    let object: Namespace = serde_json::from_value(seen.clone()).unwrap();
    let body = json!({"metadata": seen["metadata"], "status": {"phase": "Active", "conditions": [{"type": "Made", "status": "True"}]}});
    Write::put(&object, "status", body)
}

#[tokio::test(start_paused = true)]
async fn a_put_needs_no_read() {
    let world = world();
    let applied = apply(&world, Plan::of(mark(&namespace(&world)))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    assert_eq!(namespace(&world)["status"]["conditions"][0]["type"], "Made");
    assert!(world.server.requests().iter().all(|request| request.method != Method::GET));
}

#[tokio::test(start_paused = true)]
async fn a_put_from_an_old_cache_is_refused_or_made_again_on_what_is_there() {
    let world = world();
    let old = namespace(&world);
    let mut newer = old.clone();
    newer["metadata"]["labels"] = json!({"by": "somebody-else"});
    world.server.seed(newer).unwrap();
    let applied = apply(&world, Plan::of(mark(&old))).await;
    assert_eq!(letters(&applied), "F", "{applied:?}");
    assert_eq!(namespace(&world)["status"]["conditions"], Value::Null);
    let applied = apply(&world, Plan::of(mark(&old).conflict_tries(2))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    assert_eq!(namespace(&world)["status"]["conditions"][0]["type"], "Made");
    assert_eq!(namespace(&world)["metadata"]["labels"]["by"], "somebody-else");
}

#[tokio::test(start_paused = true)]
async fn writes_sent_together_do_not_stop_each_other() {
    let world = world();
    world.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).skip(2).times(1));
    let mut plan = Plan::none();
    plan.push_parallel(many(6));
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "DDFDDD");
    assert!(applied.error.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_patch_changes_only_the_life_that_was_seen() {
    let world = world();
    world.put("a/x", "red");
    let mut map = seen(&world, "a/x");
    let patch = |map: &ConfigMap| {
        Plan::of(Write::patch(map, PatchKind::Merge, json!({"metadata": {"labels": {"mine": "yes"}}})))
    };
    assert_eq!(letters(&apply(&world, patch(&map)).await), "D");
    map.meta.uid = Uid::from("11111111-1111-1111-1111-111111111111");
    assert_eq!(letters(&apply(&world, patch(&map)).await), "F", "another life");
}

#[tokio::test(start_paused = true)]
async fn people_are_told_what_became_of_a_write() {
    let world = world();
    world.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).skip(1).times(1));
    let about =
        InvolvedObject { kind: "Namespace".to_owned(), name: "a".to_owned(), ..InvolvedObject::default() };
    let told = |write: Write| {
        let about = about.clone();
        write.record_on_outcome(move |outcome| match outcome {
            Outcome::Done { name, .. } => {
                Some(PlannedEvent::normal(about.clone(), "Made", format!("Made {name}")))
            }
            Outcome::Failed(failure) => {
                Some(PlannedEvent::warning(about.clone(), "Failed", failure.to_string()))
            }
            Outcome::Unneeded | Outcome::NotSent => None,
        })
    };
    let mut plan = Plan::none();
    plan.push_parallel(vec![told(create("one")), told(create("two"))]);
    apply(&world, plan).await;
    let events: Vec<_> = world.events.lock().iter().map(|event| event.message.clone()).collect();
    assert_eq!(events[0], "Made one");
    assert!(events[1].contains("no"), "{events:?}");
}

static TURNS: Metric = Metric::counter("turns_total", "Turns.", &[]);

/// A pass over everything begins without a change and comes again by itself.
#[tokio::test(start_paused = true)]
async fn an_item_may_be_there_from_the_start() {
    let world = World::new();
    let pass = Loop::reconciling("passes", Pass).initial_item(Key::cluster("pass"));
    let running = world.start(Controller::new("test").metrics([&TURNS]).with_loop(pass)).await;
    wait(Duration::from_secs(45)).await;
    assert!(world.metric("turns_total 3"), "at 0, 20 and 40 seconds");
    running.stop().await;
}

struct Pass;

impl keleustes_plan::Reconciler for Pass {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut keleustes_plan::Context<'_>,
        _: &'a keleustes_plan::Item,
    ) -> keleustes_plan::BoxFuture<'a, Result<Requeue, keleustes_plan::ReconcileError>> {
        cx.measure(TURNS.increment(&[]));
        Box::pin(async { Ok(Requeue::After(Duration::from_secs(20))) })
    }
}

/// A script may find that another item is concerned, whose turn comes then as after any change.
#[tokio::test(start_paused = true)]
async fn a_script_may_wake_another_item() {
    let world = World::new();
    let wakes_the_other = act(|cx, item| {
        Box::pin(async move {
            if item.name == "first" {
                cx.enqueue(Key::cluster("second"));
            }
            cx.measure(TURNS.increment(&[]));
            Ok(Requeue::Forget)
        })
    });
    let a_loop = Loop::reconciling("test", wakes_the_other).initial_item(Key::cluster("first"));
    let running = world.start(Controller::new("test").metrics([&TURNS]).with_loop(a_loop)).await;
    wait(Duration::from_secs(1)).await;
    assert!(world.metric("turns_total 2"), "the first one and the one it woke");
    running.stop().await;
}

/// What a controller remembers is shared by all its parts and survives a turn that panicked.
#[test]
fn memory_is_shared_and_survives_a_panic() {
    let memory = keleustes_plan::Memory::new(vec![1]);
    let other = memory.clone();
    let broken = std::thread::spawn(move || other.with(|_| panic!("a bug"))).join();
    assert!(broken.is_err());
    memory.with(|there| there.push(2));
    assert_eq!(memory.with(|there| there.clone()), [1, 2]);
}
