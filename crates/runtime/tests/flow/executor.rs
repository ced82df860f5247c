//! How plans are carried out: guards, batches, refusals, edits, and what never leaves the process.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{ApiError, ErrorReason, Key, Kind, ResourceVersion, Uid};
use keleustes_plan::{
    Applied, Edited, Grant, Guard, InvolvedObject, OnFailure, Outcome, PatchKind, Plan, PlannedEvent,
    ReconcileError, Target, Write,
};
use keleustes_runtime::executor::Executor;
use keleustes_runtime::gate::Gate;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{ConfigMap, World};

const GRANTS: &[Grant] = &[
    Grant { group: "", resource: "configmaps", verbs: &["get", "create", "update", "patch", "delete"] },
    Grant { group: "", resource: "namespaces", verbs: &["get"] },
    Grant { group: "", resource: "namespaces/status", verbs: &["update"] },
];

/// A world with a namespace to write to.
pub(crate) fn world() -> World {
    let world = World::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"},
        "status": {"phase": "Active"}});
    world.server.seed(namespace).unwrap();
    world
}

fn executor(world: &World) -> Executor {
    let events = world.events.clone();
    Executor {
        controller: "test",
        grants: GRANTS,
        client: world.client(),
        gate: Arc::new(Gate::new(&[], None, world.surroundings.clocks.clone())),
        caches: world.surroundings.caches.clone(),
        status_coalescer: Arc::default(),
        clocks: world.surroundings.clocks.clone(),
        is_leader: world.surroundings.is_leader.clone(),
        record: Arc::new(move |note| events.lock().push(note)),
        metrics: world.surroundings.metrics.clone(),
        in_flight_max: 64,
        random: Mutex::new(world.surroundings.random.fork()),
    }
}

pub(crate) async fn apply(world: &World, plan: Plan) -> Applied {
    executor(world).apply(&Key::namespaced("a", "owner").into(), plan).await
}

pub(crate) fn create(name: &str) -> Write {
    Write::create::<ConfigMap>(Key::namespaced("a", name), json!({"metadata": {"name": name}}))
}

pub(crate) fn many(count: usize) -> Vec<Write> {
    (0..count).map(|n| create(&format!("n{n:02}"))).collect()
}

/// An object as a cache would show it now.
pub(crate) fn seen(world: &World, key: &str) -> ConfigMap {
    let (namespace, name) = key.split_once('/').unwrap();
    serde_json::from_value((*world.server.object("configmaps", namespace, name).unwrap()).clone()).unwrap()
}

fn paint(map: &ConfigMap, colour: &'static str) -> Write {
    Write::edit(map, move |live| {
        live["data"]["colour"] = json!(colour);
        Edited::Changed
    })
}

fn reads_of(world: &World, name: &str) -> usize {
    let is_read = |target: &str| target == format!("/api/v1/namespaces/a/configmaps/{name}");
    world.server.requests().iter().filter(|r| r.method == Method::GET && is_read(&r.target)).count()
}

/// How the outcomes went, one letter each: Done, Unneeded, Failed, Not tried.
pub(crate) fn letters(applied: &Applied) -> String {
    let letter = |outcome: &Outcome| match outcome {
        Outcome::Done { .. } => 'D',
        Outcome::Unneeded => 'U',
        Outcome::Failed(_) => 'F',
        Outcome::NotSent => 'N',
    };
    applied.outcomes.iter().map(letter).collect()
}

fn failures(applied: &Applied) -> Vec<ApiError> {
    let failure = |outcome: &'_ Outcome| match outcome {
        Outcome::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    applied.outcomes.iter().filter_map(failure).collect()
}

/// Strikes requests of one method.
pub(crate) fn on(method: Method, verdict: InjectedFault) -> FaultRule {
    FaultRule::new(verdict).method(method)
}

/// How many were created in each second.
fn created_by_second(world: &World) -> Vec<usize> {
    let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
    for map in world.server.objects("configmaps") {
        *seconds.entry(map["metadata"]["creationTimestamp"].to_string()).or_default() += 1;
    }
    seconds.into_values().collect()
}

/// Proves INF-97.
#[tokio::test(start_paused = true)]
async fn slow_start_doubles_its_batches() {
    let world = world();
    let slowly = InjectedFault::DelayThen(Duration::from_secs(1), Box::new(InjectedFault::Pass));
    world.faults.add(on(Method::POST, slowly));
    let mut plan = Plan::none();
    plan.push_slow_start(many(20));
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "D".repeat(20));
    assert_eq!(created_by_second(&world), [1, 2, 4, 8, 5]);
}

/// Proves INF-97.
#[tokio::test(start_paused = true)]
async fn slow_start_ends_with_the_first_batch_that_fails() {
    let world = world();
    let forbidden = InjectedFault::status(403, "Forbidden", "no");
    world.faults.add(on(Method::POST, forbidden).skip(4).times(1));
    let mut plan = Plan::none();
    plan.push_slow_start(many(20));
    plan.push(create("after"));
    let applied = apply(&world, plan).await;
    assert_eq!(
        letters(&applied),
        format!("DDDDFDD{}", "N".repeat(14)),
        "the rest of its batch was under way"
    );
    assert_eq!(world.writes().len(), 6, "the refused one did not get that far, those after it were not sent");
    assert_eq!(applied.error.unwrap().because, "create configmaps a/n04 because : no");
}

/// A failure that does not stop a plan ends the batches, but not what comes after them.
#[tokio::test(start_paused = true)]
async fn what_follows_a_slow_start_is_decided_by_the_failed_write() {
    let world = world();
    world.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).times(1));
    let mut plan = Plan::none();
    let carry_on = |write: Write| write.on_failure(OnFailure::ContinueAndRetry);
    plan.push_slow_start(many(5).into_iter().map(carry_on).collect());
    plan.push(create("after"));
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "FNNNND");
    assert!(applied.error.is_some());
}

#[tokio::test(start_paused = true)]
async fn no_more_writes_are_under_way_than_allowed() {
    for (in_flight_max, wanted) in [(4, vec![1, 2, 4, 4, 4, 1]), (0, vec![1; 16])] {
        let world = world();
        let slowly = InjectedFault::DelayThen(Duration::from_secs(1), Box::new(InjectedFault::Pass));
        world.faults.add(on(Method::POST, slowly));
        let mut plan = Plan::none();
        plan.push_slow_start(many(16));
        let executor = Executor { in_flight_max, ..executor(&world) };
        executor.apply(&Key::namespaced("a", "owner").into(), plan).await;
        assert_eq!(created_by_second(&world), wanted, "at most {in_flight_max}");
    }
}

/// Three writes of which the second is refused.
async fn refused_in_the_middle(on_failure: OnFailure, tolerated: &'static [ErrorReason]) -> (World, Applied) {
    let world = world();
    let taken = InjectedFault::status(409, "AlreadyExists", "taken");
    world.faults.add(on(Method::POST, taken).skip(1).times(1));
    let mut plan = Plan::none();
    plan.push(create("x"));
    plan.push(create("y").on_failure(on_failure).ignoring_errors(tolerated).because("it is missing"));
    plan.push(create("z"));
    let applied = apply(&world, plan).await;
    (world, applied)
}

#[tokio::test(start_paused = true)]
async fn a_write_says_what_its_failure_means_for_the_rest() {
    let (world, stopped) = refused_in_the_middle(OnFailure::StopAndRetry, &[]).await;
    assert_eq!((&*letters(&stopped), world.writes().len()), ("DFN", 1));
    let because = "create configmaps a/y because it is missing: taken";
    assert_eq!(stopped.error, Some(ReconcileError::because(because)));

    let (_, continued) = refused_in_the_middle(OnFailure::ContinueAndRetry, &[]).await;
    assert_eq!((&*letters(&continued), continued.error), ("DFD", Some(ReconcileError::because(because))));

    let (_, logged) = refused_in_the_middle(OnFailure::LogOnly, &[]).await;
    assert_eq!((&*letters(&logged), logged.all_done()), ("DFD", Ok(())));

    let (_, tolerated) = refused_in_the_middle(OnFailure::StopAndRetry, &[ErrorReason::AlreadyExists]).await;
    assert_eq!((&*letters(&tolerated), tolerated.all_done()), ("DDD", Ok(())));

    let (_, other) = refused_in_the_middle(OnFailure::StopAndRetry, &[ErrorReason::NotFound]).await;
    assert_eq!(letters(&other), "DFN", "only what was named is tolerated");
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_that_a_server_asks_for_is_kept() {
    let world = world();
    world.faults.add(on(Method::POST, InjectedFault::status(500, "InternalError", "boom")).times(1));
    world.faults.add(on(Method::POST, InjectedFault::too_many_requests(30)).times(1));
    world.faults.add(on(Method::POST, InjectedFault::too_many_requests(3)).times(1));
    let mut plan = Plan::none();
    for write in many(3) {
        plan.push(write.on_failure(OnFailure::ContinueAndRetry));
    }
    let retry = apply(&world, plan).await.error.unwrap();
    assert_eq!(retry.retry_after, Some(Duration::from_secs(30)));
    assert!(retry.because.ends_with("boom"), "the first failure is the reason: {}", retry.because);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_stuck_asks_for_another_try_and_still_does_its_writes() {
    let world = world();
    let mut plan = Plan::error("a selector cannot be read");
    plan.push(create("x"));
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "D");
    assert_eq!(applied.error, Some(ReconcileError::because("a selector cannot be read")));
}

fn guarded(write: Write, owner: &ConfigMap) -> Write {
    write.guarded(Guard::RecheckOwner(Target::of(owner)))
}

/// Proves INF-103.
#[tokio::test(start_paused = true)]
async fn an_owner_is_checked_once_for_all_writes_that_depend_on_it() {
    let world = world();
    world.put("a/owner", "red");
    let owner = seen(&world, "a/owner");
    let mut plan = Plan::none();
    plan.push(guarded(create("first"), &owner));
    plan.push_slow_start(many(5).into_iter().map(|write| guarded(write, &owner)).collect());
    let applied = apply(&world, plan.clone()).await;
    assert_eq!(letters(&applied), "DDDDDD");
    assert_eq!(reads_of(&world, "owner"), 1);
    apply(&world, plan).await;
    assert_eq!(reads_of(&world, "owner"), 2, "another plan asks again");
}

/// The one failure of two guarded and one free write, after the world has changed.
async fn guard_failure(change: impl FnOnce(&World)) -> String {
    let world = world();
    world.put("a/owner", "red");
    let owner = seen(&world, "a/owner");
    change(&world);
    world.server.clear_requests();
    let mut plan = Plan::none();
    for (name, depends) in [("x", true), ("y", false), ("z", true)] {
        let write =
            create(name).ignoring_errors(&[ErrorReason::NotFound]).on_failure(OnFailure::ContinueAndRetry);
        plan.push(if depends { guarded(write, &owner) } else { write });
    }
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "FDF", "its failure fails all that depend on it, and only those");
    assert!(reads_of(&world, "owner") <= 1);
    let failures = failures(&applied);
    assert_eq!(failures[0], failures[1]);
    failures[0].to_string()
}

/// Proves INF-99, INF-103, INF-104.
#[tokio::test(start_paused = true)]
async fn an_owner_that_is_gone_going_or_another_fails_what_depends_on_it() {
    let gone = guard_failure(|world| world.remove("a/owner")).await;
    assert_eq!(gone, "can't recheck DeletionTimestamp: configmaps \"owner\" not found");

    let unknown = guard_failure(|world| {
        let boom = InjectedFault::status(500, "InternalError", "boom");
        world.faults.add(FaultRule::new(boom).target("/owner"));
    });
    assert_eq!(unknown.await, "can't recheck DeletionTimestamp: boom");

    let mut uids = (String::new(), String::new());
    let another = guard_failure(|world| {
        uids.0 = seen(world, "a/owner").meta.uid.to_string();
        world.remove("a/owner");
        world.put("a/owner", "blue");
        uids.1 = seen(world, "a/owner").meta.uid.to_string();
    });
    let wanted = |uids: (String, String)| {
        let (old, new) = uids;
        format!("original ConfigMap a/owner is gone: got uid {new}, wanted {old}")
    };
    let another = another.await;
    assert_eq!(another, format!("can't recheck DeletionTimestamp: {}", wanted(uids)));

    let going = guard_failure(|world| {
        let mut going = (*world.server.object("configmaps", "a", "owner").unwrap()).clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:05Z");
        going["metadata"]["finalizers"] = json!(["example.com/hold"]);
        world.server.seed(going).unwrap();
    });
    assert_eq!(going.await, "a/owner has just been deleted at 2026-01-01T00:00:05Z");
}

#[tokio::test(start_paused = true)]
async fn an_edit_reads_again_after_a_conflict_and_waits_a_little() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let conflict = InjectedFault::status(409, "Conflict", "the object has been modified");
    world.faults.add(on(Method::PUT, conflict).times(3));
    let began = tokio::time::Instant::now();
    let failed = apply(&world, Plan::of(paint(&map, "blue").conflict_tries(2))).await;
    let waited = began.elapsed().as_millis();
    assert_eq!(failures(&failed)[0].reason, ErrorReason::Conflict, "two tries in all");
    assert!((100..=201).contains(&waited), "{waited} ms between the two");
    assert_eq!(reads_of(&world, "x"), 2);
    let done = apply(&world, Plan::of(paint(&map, "blue").conflict_tries(2))).await;
    assert_eq!(letters(&done), "D");
    assert_eq!(world.colour("a/x").as_deref(), Some("blue"));
}

/// An edit changes what is there now, and loses nothing that others wrote.
#[tokio::test(start_paused = true)]
async fn an_edit_builds_on_the_state_it_reads() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let mut newer = (*world.server.object("configmaps", "a", "x").unwrap()).clone();
    newer["data"]["size"] = json!("large");
    newer["metadata"]["labels"] = json!({"by": "somebody-else"});
    world.server.seed(newer).unwrap();
    let applied = apply(&world, Plan::of(paint(&map, "blue"))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    let stored = world.server.object("configmaps", "a", "x").unwrap();
    assert_eq!(stored["data"], json!({"colour": "blue", "size": "large"}));
    assert_eq!(stored["metadata"]["labels"]["by"], "somebody-else");
    let Outcome::Done { resource_version, uid, .. } = &applied.outcomes[0] else { panic!("{applied:?}") };
    assert_eq!(resource_version.to_string(), stored["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(*uid, map.meta.uid);
}

#[tokio::test(start_paused = true)]
async fn an_edit_leaves_alone_what_is_not_what_was_decided_about() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let stale = ResourceVersion::from("1");
    let plans = [
        ("another state", paint(&map, "blue").expected_resource_version(&stale)),
        ("nothing to do", Write::edit(&map, |_| Edited::Unneeded)),
        ("cannot be done", Write::edit(&map, |_| Edited::Impossible("it is odd".to_owned()))),
    ];
    for (what, write) in plans {
        let applied = apply(&world, Plan::of(write)).await;
        assert_eq!((&*letters(&applied), applied.all_done()), ("U", Ok(())), "{what}");
    }
    let current =
        apply(&world, Plan::of(paint(&map, "green").expected_resource_version(&map.meta.resource_version)))
            .await;
    assert_eq!(letters(&current), "D");

    world.remove("a/x");
    assert_eq!(letters(&apply(&world, Plan::of(paint(&map, "blue"))).await), "U", "it is gone");
    world.put("a/x", "red");
    assert_eq!(letters(&apply(&world, Plan::of(paint(&map, "blue"))).await), "U", "it is another one");
    assert_eq!(world.colour("a/x").as_deref(), Some("red"));
    assert_eq!(world.writes().len(), 1);
}

/// It goes away between reading and putting back.
#[tokio::test(start_paused = true)]
async fn an_edit_of_what_has_just_gone_is_unneeded() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let server = world.server.clone();
    let write = Write::edit(&map, move |_| {
        server.remove("configmaps", "a", "x");
        Edited::Changed
    });
    assert_eq!(letters(&apply(&world, Plan::of(write)).await), "U");
}

/// Proves INF-140.
#[tokio::test(start_paused = true)]
async fn a_put_carries_field_ownership_as_it_was_read_or_not_at_all() {
    let world = world();
    let managed = json!([{"manager": "kubectl", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:colour": {}}}}]);
    for fields in [Some(managed), None] {
        let mut object = crate::world::config_map("a/x", "red");
        if let Some(fields) = &fields {
            object["metadata"]["managedFields"] = fields.clone();
        }
        world.server.seed(object).unwrap();
        let read =
            world.server.object("configmaps", "a", "x").unwrap()["metadata"].get("managedFields").cloned();
        assert_eq!(read, fields, "the server keeps what it is given");
        apply(&world, Plan::of(paint(&seen(&world, "a/x"), "blue"))).await;
        let put = world.writes().pop().unwrap().json();
        assert_eq!(put["metadata"].get("managedFields").cloned(), fields);
        assert_ne!(put["metadata"].get("managedFields"), Some(&json!([])), "which would take it from all");
        world.remove("a/x");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_names_the_life_it_means() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    world.remove("a/x");
    world.put("a/x", "blue");
    let applied = apply(&world, Plan::of(Write::delete(&map))).await;
    assert_eq!(failures(&applied)[0].reason, ErrorReason::Conflict);
    assert_eq!(world.colour("a/x").as_deref(), Some("blue"), "another life is left alone");
    let applied = apply(&world, Plan::of(Write::delete(&seen(&world, "a/x")))).await;
    assert_eq!((&*letters(&applied), world.colour("a/x")), ("D", None));
    let preconditions: Vec<Value> =
        world.writes().iter().map(|request| request.json()["preconditions"]["uid"].clone()).collect();
    assert_eq!(preconditions[0], json!(map.meta.uid));
    assert_ne!(preconditions[0], preconditions[1]);
    let again = apply(&world, Plan::of(Write::delete(&map).ignoring_errors(&[ErrorReason::NotFound]))).await;
    assert_eq!(again.all_done(), Ok(()), "gone is as good as deleted");
}

/// Proves INF-141.
#[tokio::test(start_paused = true)]
async fn type_lines_come_from_the_kind() {
    let world = world();
    world.put("a/x", "red");
    let mut plan = Plan::of(create("y"));
    plan.record(PlannedEvent::normal(InvolvedObject::of(&seen(&world, "a/x")), "Painted", "it is red"));
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "D");
    let body = world.writes()[0].json();
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("v1"), &json!("ConfigMap")));
    let events = world.events.lock();
    let involved = &events[0].involved_object;
    assert_eq!((&*involved.api_version, &*involved.kind), ("v1", "ConfigMap"));
    assert_eq!(involved.uid, seen(&world, "a/x").meta.uid);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_declared_is_not_sent_and_nothing_beside_it() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let undeclared = Write::patch(&map, PatchKind::Merge, json!({})).on_subresource("status");
    let mut plan = Plan::of(create("before"));
    plan.push(undeclared);
    assert!(AssertUnwindSafe(apply(&world, plan)).catch_unwind().await.is_err());
    assert_eq!(world.writes(), []);
    let executor = Executor { grants: &[], ..executor(&world) };
    let key = Key::namespaced("a", "x");
    assert!(AssertUnwindSafe(executor.fetch(&ConfigMap::RESOURCE, &key)).catch_unwind().await.is_err());
    let owner = Target { resource: ConfigMap::RESOURCE, key, uid: Uid::default() };
    const CREATES: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["create"] }];
    let blind = Executor { grants: CREATES, ..executor };
    let guarded = Plan::of(create("y").guarded(Guard::RecheckOwner(owner)));
    let applied =
        AssertUnwindSafe(blind.apply(&Key::namespaced("a", "owner").into(), guarded)).catch_unwind().await;
    assert!(applied.is_err(), "a guard reads");
    assert_eq!(world.server.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_or_recorded_once_the_lease_is_lost() {
    let world = world();
    world.put("a/x", "red");
    let map = seen(&world, "a/x");
    let event = || PlannedEvent::normal(InvolvedObject::of(&map), "Painted", "it is blue");

    // Lost between two writes.
    let leads = world.leads.clone();
    let mut plan = Plan::of(create("y"));
    plan.push(Write::edit(&map, move |live| {
        leads.store(false, Ordering::Relaxed);
        live["data"]["colour"] = json!("blue");
        Edited::Changed
    }));
    plan.push(create("z"));
    plan.record(event());
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "DFN");
    assert_eq!((world.writes().len(), world.events.lock().len()), (1, 1));

    // Lost before the plan.
    let mut plan = Plan::of(create("z"));
    plan.record(event());
    let applied = apply(&world, plan).await;
    assert_eq!(letters(&applied), "N");
    assert!(applied.all_done().is_err());
    assert_eq!((world.writes().len(), world.events.lock().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_read_tells_absent_from_unknown() {
    let world = world();
    world.put("a/x", "red");
    let executor = executor(&world);
    let fetch = |name: &'static str| {
        let (executor, key) = (&executor, Key::namespaced("a", name));
        async move { executor.fetch(&ConfigMap::RESOURCE, &key).await }
    };
    assert!(fetch("x").await.unwrap().unwrap().contains("red"));
    assert_eq!(fetch("y").await, Ok(None));
    world.faults.add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "away")));
    assert_eq!(fetch("x").await.unwrap_err().reason, ErrorReason::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn fresh_reads_of_many_come_in_order_and_do_not_stop_each_other() {
    let world = world();
    world.put("a/x", "red");
    world.put("a/z", "blue");
    let keys = ["x", "y", "bad", "z"].map(|name| Key::namespaced("a", name));
    world.faults.add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "away")).target("/bad"));
    let answers = executor(&world).fetch_all(&ConfigMap::RESOURCE, &keys).await;
    let held = |at: usize, colour: &str| matches!(&answers[at], Ok(Some(json)) if json.contains(colour));
    assert!(held(0, "red") && held(3, "blue"), "{answers:?}");
    assert_eq!(answers[1], Ok(None));
    assert_eq!(answers[2].as_ref().unwrap_err().reason, ErrorReason::Unavailable);
}
