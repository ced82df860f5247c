//! How plans are executed: guards, batches, errors, edits, and what is never sent.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{ApiError, ErrorReason, Key, Kind, ResourceVersion};
use keleustes_plan::{
    Applied, Edited, Grant, Guard, InvolvedObject, OnFailure, Outcome, PatchKind, Plan, PlannedEvent,
    Precondition, ReconcileError, Target, Write,
};
use keleustes_runtime::executor::{Executor, UnknownWrites};
use keleustes_runtime::gate::Gate;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::test_cluster::{ConfigMap, TestCluster};

const GRANTS: &[Grant] = &[
    Grant { group: "", resource: "configmaps", verbs: &["get", "create", "update", "patch", "delete"] },
    Grant { group: "", resource: "namespaces", verbs: &["get"] },
    Grant { group: "", resource: "namespaces/status", verbs: &["update"] },
];

/// A cluster with a namespace to write to.
pub(crate) fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"},
        "status": {"phase": "Active"}});
    cluster.server.seed(namespace).unwrap();
    cluster
}

fn executor(cluster: &TestCluster) -> Executor {
    let events = cluster.events.clone();
    Executor {
        controller: "test",
        grants: GRANTS,
        client: cluster.client(),
        unknown_writes: UnknownWrites::default(),
        gate: Arc::new(Gate::new(&[], None, cluster.context.clocks.clone())),
        caches: cluster.context.caches.clone(),
        status_coalescer: Arc::default(),
        clocks: cluster.context.clocks.clone(),
        is_leader: cluster.context.is_leader.clone(),
        record: Arc::new(move |event| events.lock().push(event)),
        metrics: cluster.context.metrics.clone(),
        in_flight_max: 64,
        journal: cluster.context.inspection.journal().clone(),
        random: Mutex::new(cluster.context.random.fork()),
    }
}

pub(crate) async fn apply(cluster: &TestCluster, plan: Plan) -> Applied {
    executor(cluster).apply(&Key::namespaced("a", "owner").into(), plan).await
}

pub(crate) fn create(name: &str) -> Write {
    Write::create::<ConfigMap>(Key::namespaced("a", name), json!({"metadata": {"name": name}}))
        .because("it is missing")
}

pub(crate) fn many(count: usize) -> Vec<Write> {
    (0..count).map(|n| create(&format!("n{n:02}"))).collect()
}

/// An object as a synced cache would show it.
pub(crate) fn observed(cluster: &TestCluster, key: &str) -> ConfigMap {
    let (namespace, name) = key.split_once('/').unwrap();
    serde_json::from_value((*cluster.server.object("configmaps", namespace, name).unwrap()).clone()).unwrap()
}

fn paint(map: &ConfigMap, colour: &'static str) -> Write {
    Write::edit(map, move |live| {
        live["data"]["colour"] = json!(colour);
        Edited::Changed
    })
    .because("the test wants it")
}

fn reads_of(cluster: &TestCluster, name: &str) -> usize {
    let is_read = |target: &str| target == format!("/api/v1/namespaces/a/configmaps/{name}");
    cluster.server.requests().iter().filter(|r| r.method == Method::GET && is_read(&r.target)).count()
}

/// The outcomes, one letter each: Done, Unneeded, Failed, Not sent.
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

/// A fault for requests of one method.
pub(crate) fn on(method: Method, fault: InjectedFault) -> FaultRule {
    FaultRule::new(fault).method(method)
}

/// How many objects were created in each second.
fn created_by_second(cluster: &TestCluster) -> Vec<usize> {
    let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
    for map in cluster.server.objects("configmaps") {
        *seconds.entry(map["metadata"]["creationTimestamp"].to_string()).or_default() += 1;
    }
    seconds.into_values().collect()
}

/// Proves INF-97.
#[tokio::test(start_paused = true)]
async fn slow_start_doubles_its_batches() {
    let cluster = cluster();
    let slow = InjectedFault::DelayThen(Duration::from_secs(1), Box::new(InjectedFault::Pass));
    cluster.faults.add(on(Method::POST, slow));
    let mut plan = Plan::none();
    plan.push_slow_start(many(20));
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "D".repeat(20));
    assert_eq!(created_by_second(&cluster), [1, 2, 4, 8, 5]);
}

/// Proves INF-97.
#[tokio::test(start_paused = true)]
async fn slow_start_ends_with_the_first_batch_that_fails() {
    let cluster = cluster();
    let forbidden = InjectedFault::status(403, "Forbidden", "no");
    cluster.faults.add(on(Method::POST, forbidden).skip(4).times(1));
    let mut plan = Plan::none();
    plan.push_slow_start(many(20));
    plan.push(create("after"));
    let applied = apply(&cluster, plan).await;
    assert_eq!(
        letters(&applied),
        format!("DDDDFDD{}", "N".repeat(14)),
        "the rest of its batch was in flight"
    );
    assert_eq!(
        cluster.writes().len(),
        6,
        "the failed one did not reach the server, those after it were not sent"
    );
    assert_eq!(applied.error.unwrap().because, "create configmaps a/n04 because it is missing: no");
}

/// A failure that does not stop a plan ends the batches, but not the steps after them.
#[tokio::test(start_paused = true)]
async fn steps_after_a_slow_start_depend_on_the_failed_write() {
    let cluster = cluster();
    cluster.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).times(1));
    let mut plan = Plan::none();
    let carry_on = |write: Write| write.on_failure(OnFailure::ContinueAndRetry);
    plan.push_slow_start(many(5).into_iter().map(carry_on).collect());
    plan.push(create("after"));
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "FNNNND");
    assert!(applied.error.is_some());
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_limited() {
    for (in_flight_max, wanted) in [(4, vec![1, 2, 4, 4, 4, 1]), (0, vec![1; 16])] {
        let cluster = cluster();
        let slow = InjectedFault::DelayThen(Duration::from_secs(1), Box::new(InjectedFault::Pass));
        cluster.faults.add(on(Method::POST, slow));
        let mut plan = Plan::none();
        plan.push_slow_start(many(16));
        let executor = Executor { in_flight_max, ..executor(&cluster) };
        executor.apply(&Key::namespaced("a", "owner").into(), plan).await;
        assert_eq!(created_by_second(&cluster), wanted, "at most {in_flight_max}");
    }
}

/// Three writes of which the second fails.
async fn failed_in_the_middle(
    on_failure: OnFailure,
    tolerated: &'static [ErrorReason],
) -> (TestCluster, Applied) {
    let cluster = cluster();
    let taken = InjectedFault::status(409, "AlreadyExists", "taken");
    cluster.faults.add(on(Method::POST, taken).skip(1).times(1));
    let mut plan = Plan::none();
    plan.push(create("x"));
    plan.push(create("y").on_failure(on_failure).ignoring_errors(tolerated));
    plan.push(create("z"));
    let applied = apply(&cluster, plan).await;
    (cluster, applied)
}

#[tokio::test(start_paused = true)]
async fn on_failure_decides_about_the_rest_of_the_plan() {
    let (cluster, stopped) = failed_in_the_middle(OnFailure::StopAndRetry, &[]).await;
    assert_eq!((&*letters(&stopped), cluster.writes().len()), ("DFN", 1));
    let because = "create configmaps a/y because it is missing: taken";
    assert_eq!(stopped.error, Some(ReconcileError::because(because)));

    let (_, continued) = failed_in_the_middle(OnFailure::ContinueAndRetry, &[]).await;
    assert_eq!((&*letters(&continued), continued.error), ("DFD", Some(ReconcileError::because(because))));

    let (_, logged) = failed_in_the_middle(OnFailure::LogOnly, &[]).await;
    assert_eq!((&*letters(&logged), logged.all_done()), ("DFD", Ok(())));

    let (_, tolerated) = failed_in_the_middle(OnFailure::StopAndRetry, &[ErrorReason::AlreadyExists]).await;
    assert_eq!((&*letters(&tolerated), tolerated.all_done()), ("DDD", Ok(())));

    let (_, other) = failed_in_the_middle(OnFailure::StopAndRetry, &[ErrorReason::NotFound]).await;
    assert_eq!(letters(&other), "DFN", "only the listed reasons are tolerated");
}

#[tokio::test(start_paused = true)]
async fn longest_retry_after_is_kept() {
    let cluster = cluster();
    cluster.faults.add(on(Method::POST, InjectedFault::status(500, "InternalError", "boom")).times(1));
    cluster.faults.add(on(Method::POST, InjectedFault::too_many_requests(30)).times(1));
    cluster.faults.add(on(Method::POST, InjectedFault::too_many_requests(3)).times(1));
    let mut plan = Plan::none();
    for write in many(3) {
        plan.push(write.on_failure(OnFailure::ContinueAndRetry));
    }
    let retry = apply(&cluster, plan).await.error.unwrap();
    assert_eq!(retry.retry_after, Some(Duration::from_secs(30)));
    assert!(retry.because.ends_with("boom"), "the first failure is the reason: {}", retry.because);
}

#[tokio::test(start_paused = true)]
async fn plan_with_an_error_is_retried_and_still_sends_its_writes() {
    let cluster = cluster();
    let mut plan = Plan::error("a selector cannot be read");
    plan.push(create("x"));
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "D");
    assert_eq!(applied.error, Some(ReconcileError::because("a selector cannot be read")));
}

fn guarded(write: Write, owner: &ConfigMap) -> Write {
    write.guarded(Guard::RecheckOwner(Target::of(owner)))
}

/// Proves INF-103.
#[tokio::test(start_paused = true)]
async fn owner_is_rechecked_once_per_plan() {
    let cluster = cluster();
    cluster.put("a/owner", "red");
    let owner = observed(&cluster, "a/owner");
    let mut plan = Plan::none();
    plan.push(guarded(create("first"), &owner));
    plan.push_slow_start(many(5).into_iter().map(|write| guarded(write, &owner)).collect());
    let applied = apply(&cluster, plan.clone()).await;
    assert_eq!(letters(&applied), "DDDDDD");
    assert_eq!(reads_of(&cluster, "owner"), 1);
    apply(&cluster, plan).await;
    assert_eq!(reads_of(&cluster, "owner"), 2, "another plan reads again");
}

/// The failure of two guarded writes beside an unguarded one, after the cluster has changed.
async fn guard_failure(change: impl FnOnce(&TestCluster)) -> String {
    let cluster = cluster();
    cluster.put("a/owner", "red");
    let owner = observed(&cluster, "a/owner");
    change(&cluster);
    cluster.server.clear_requests();
    let mut plan = Plan::none();
    for (name, depends) in [("x", true), ("y", false), ("z", true)] {
        let write =
            create(name).ignoring_errors(&[ErrorReason::NotFound]).on_failure(OnFailure::ContinueAndRetry);
        plan.push(if depends { guarded(write, &owner) } else { write });
    }
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "FDF", "a failed guard fails all writes that depend on it, and only those");
    assert!(reads_of(&cluster, "owner") <= 1);
    let failures = failures(&applied);
    assert_eq!(failures[0], failures[1]);
    failures[0].to_string()
}

/// Proves INF-99, INF-103, INF-104.
#[tokio::test(start_paused = true)]
async fn owner_that_is_deleted_terminating_or_recreated_fails_dependent_writes() {
    let deleted = guard_failure(|cluster| cluster.remove("a/owner")).await;
    assert_eq!(deleted, "can't recheck DeletionTimestamp: configmaps \"owner\" not found");

    let unknown = guard_failure(|cluster| {
        let boom = InjectedFault::status(500, "InternalError", "boom");
        cluster.faults.add(FaultRule::new(boom).target("/owner"));
    });
    assert_eq!(unknown.await, "can't recheck DeletionTimestamp: boom");

    let mut uids = (String::new(), String::new());
    let another = guard_failure(|cluster| {
        uids.0 = observed(cluster, "a/owner").meta.uid.to_string();
        cluster.remove("a/owner");
        cluster.put("a/owner", "blue");
        uids.1 = observed(cluster, "a/owner").meta.uid.to_string();
    });
    let wanted = |uids: (String, String)| {
        let (old, new) = uids;
        format!("original ConfigMap a/owner is gone: got uid {new}, wanted {old}")
    };
    let another = another.await;
    assert_eq!(another, format!("can't recheck DeletionTimestamp: {}", wanted(uids)));

    let terminating = guard_failure(|cluster| {
        let mut terminating = (*cluster.server.object("configmaps", "a", "owner").unwrap()).clone();
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:05Z");
        terminating["metadata"]["finalizers"] = json!(["example.com/hold"]);
        cluster.server.seed(terminating).unwrap();
    });
    assert_eq!(terminating.await, "a/owner has just been deleted at 2026-01-01T00:00:05Z");
}

#[tokio::test(start_paused = true)]
async fn edit_reads_again_after_a_conflict_with_a_delay() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let conflict = InjectedFault::status(409, "Conflict", "the object has been modified");
    cluster.faults.add(on(Method::PUT, conflict).times(3));
    let began = tokio::time::Instant::now();
    let failed = apply(&cluster, Plan::of(paint(&map, "blue").conflict_tries(2))).await;
    let waited = began.elapsed().as_millis();
    assert_eq!(failures(&failed)[0].reason, ErrorReason::Conflict, "two tries in all");
    assert!((100..=201).contains(&waited), "{waited} ms between the two");
    assert_eq!(reads_of(&cluster, "x"), 2);
    let done = apply(&cluster, Plan::of(paint(&map, "blue").conflict_tries(2))).await;
    assert_eq!(letters(&done), "D");
    assert_eq!(cluster.colour("a/x").as_deref(), Some("blue"));
}

/// An edit changes the live object, and keeps what other clients wrote.
#[tokio::test(start_paused = true)]
async fn edit_changes_the_live_object() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let mut newer = (*cluster.server.object("configmaps", "a", "x").unwrap()).clone();
    newer["data"]["size"] = json!("large");
    newer["metadata"]["labels"] = json!({"by": "another-client"});
    cluster.server.seed(newer).unwrap();
    let applied = apply(&cluster, Plan::of(paint(&map, "blue"))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    let stored = cluster.server.object("configmaps", "a", "x").unwrap();
    assert_eq!(stored["data"], json!({"colour": "blue", "size": "large"}));
    assert_eq!(stored["metadata"]["labels"]["by"], "another-client");
    let Outcome::Done { resource_version, uid, .. } = &applied.outcomes[0] else { panic!("{applied:?}") };
    assert_eq!(resource_version.to_string(), stored["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(*uid, map.meta.uid);
}

#[tokio::test(start_paused = true)]
async fn edit_skips_an_object_that_has_changed_since_the_decision() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let stale = ResourceVersion::from("1");
    let plans = [
        ("another resourceVersion", paint(&map, "blue").expected_resource_version(&stale)),
        ("nothing to do", Write::edit(&map, |_| Edited::Unneeded).because("the test wants it")),
        (
            "impossible",
            Write::edit(&map, |_| Edited::Impossible("invalid object".to_owned()))
                .because("the test wants it"),
        ),
    ];
    for (what, write) in plans {
        let applied = apply(&cluster, Plan::of(write)).await;
        assert_eq!((&*letters(&applied), applied.all_done()), ("U", Ok(())), "{what}");
    }
    let current =
        apply(&cluster, Plan::of(paint(&map, "green").expected_resource_version(&map.meta.resource_version)))
            .await;
    assert_eq!(letters(&current), "D");

    cluster.remove("a/x");
    assert_eq!(letters(&apply(&cluster, Plan::of(paint(&map, "blue"))).await), "U", "it is deleted");
    cluster.put("a/x", "red");
    assert_eq!(letters(&apply(&cluster, Plan::of(paint(&map, "blue"))).await), "U", "it has another UID");
    assert_eq!(cluster.colour("a/x").as_deref(), Some("red"));
    assert_eq!(cluster.writes().len(), 1);
}

/// It is deleted between the read and the update.
#[tokio::test(start_paused = true)]
async fn edit_of_a_just_deleted_object_is_unneeded() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let server = cluster.server.clone();
    let write = Write::edit(&map, move |_| {
        server.remove("configmaps", "a", "x");
        Edited::Changed
    });
    assert_eq!(letters(&apply(&cluster, Plan::of(write.because("the test wants it"))).await), "U");
}

/// Proves INF-140.
#[tokio::test(start_paused = true)]
async fn put_carries_managed_fields_as_read_or_not_at_all() {
    let cluster = cluster();
    let managed = json!([{"manager": "kubectl", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:colour": {}}}}]);
    for fields in [Some(managed), None] {
        let mut object = crate::test_cluster::config_map("a/x", "red");
        if let Some(fields) = &fields {
            object["metadata"]["managedFields"] = fields.clone();
        }
        cluster.server.seed(object).unwrap();
        let read =
            cluster.server.object("configmaps", "a", "x").unwrap()["metadata"].get("managedFields").cloned();
        assert_eq!(read, fields, "the server keeps what it is given");
        apply(&cluster, Plan::of(paint(&observed(&cluster, "a/x"), "blue"))).await;
        let put = cluster.writes().pop().unwrap().json();
        assert_eq!(put["metadata"].get("managedFields").cloned(), fields);
        assert_ne!(
            put["metadata"].get("managedFields"),
            Some(&json!([])),
            "which would reset field ownership"
        );
        cluster.remove("a/x");
    }
}

#[tokio::test(start_paused = true)]
async fn delete_has_a_uid_precondition() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    cluster.remove("a/x");
    cluster.put("a/x", "blue");
    let applied = apply(&cluster, Plan::of(Write::delete(&map).because("the test wants it"))).await;
    assert_eq!(failures(&applied)[0].reason, ErrorReason::Conflict);
    assert_eq!(cluster.colour("a/x").as_deref(), Some("blue"), "an object with another UID is not deleted");
    let applied =
        apply(&cluster, Plan::of(Write::delete(&observed(&cluster, "a/x")).because("the test wants it")))
            .await;
    assert_eq!((&*letters(&applied), cluster.colour("a/x")), ("D", None));
    let preconditions: Vec<Value> =
        cluster.writes().iter().map(|request| request.json()["preconditions"]["uid"].clone()).collect();
    assert_eq!(preconditions[0], json!(map.meta.uid));
    assert_ne!(preconditions[0], preconditions[1]);
    let tolerated_delete = apply(
        &cluster,
        Plan::of(Write::delete(&map).ignoring_errors(&[ErrorReason::NotFound]).because("the test wants it")),
    )
    .await;
    assert_eq!(tolerated_delete.all_done(), Ok(()), "not found counts as deleted");
}

/// Proves INF-141.
#[tokio::test(start_paused = true)]
async fn type_meta_comes_from_the_kind() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let mut plan = Plan::of(create("y"));
    plan.record(PlannedEvent::normal(InvolvedObject::of(&observed(&cluster, "a/x")), "Painted", "it is red"));
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "D");
    let body = cluster.writes()[0].json();
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("v1"), &json!("ConfigMap")));
    let events = cluster.events.lock();
    let involved = &events[0].involved_object;
    assert_eq!((&*involved.api_version, &*involved.kind), ("v1", "ConfigMap"));
    assert_eq!(involved.uid, observed(&cluster, "a/x").meta.uid);
}

#[tokio::test(start_paused = true)]
async fn plan_with_an_undeclared_write_sends_nothing() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let undeclared = Write::patch(&map, PatchKind::Merge, json!({})).on_subresource("status");
    let mut plan = Plan::of(create("before"));
    plan.push(undeclared.because("the test wants it"));
    assert!(AssertUnwindSafe(apply(&cluster, plan)).catch_unwind().await.is_err());
    assert_eq!(cluster.writes(), []);
    let executor = Executor { grants: &[], ..executor(&cluster) };
    let key = Key::namespaced("a", "x");
    assert!(AssertUnwindSafe(executor.fetch(&ConfigMap::RESOURCE, &key)).catch_unwind().await.is_err());
    let owner = Target::named(&ConfigMap::RESOURCE, key, Precondition::None("the get is refused"));
    const CREATES: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["create"] }];
    let without_get = Executor { grants: CREATES, ..executor };
    let guarded = Plan::of(create("y").guarded(Guard::RecheckOwner(owner)));
    let applied = AssertUnwindSafe(without_get.apply(&Key::namespaced("a", "owner").into(), guarded))
        .catch_unwind()
        .await;
    assert!(applied.is_err(), "a guard needs the get grant");
    assert_eq!(cluster.server.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_or_recorded_once_the_lease_is_lost() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let map = observed(&cluster, "a/x");
    let event = || PlannedEvent::normal(InvolvedObject::of(&map), "Painted", "it is blue");

    // Lost between two writes.
    let is_leader = cluster.is_leader.clone();
    let mut plan = Plan::of(create("y"));
    plan.push(
        Write::edit(&map, move |live| {
            is_leader.store(false, Ordering::Relaxed);
            live["data"]["colour"] = json!("blue");
            Edited::Changed
        })
        .because("the test wants it"),
    );
    plan.push(create("z"));
    plan.record(event());
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "DFN");
    let Outcome::Failed(failure) = &applied.outcomes[1] else { panic!("not refused") };
    assert!(!failure.may_have_taken_effect(), "nothing has to be looked up");
    assert_eq!((cluster.writes().len(), cluster.events.lock().len()), (1, 1));

    // Lost before the plan.
    let mut plan = Plan::of(create("z"));
    plan.record(event());
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "N");
    assert!(applied.all_done().is_err());
    assert_eq!((cluster.writes().len(), cluster.events.lock().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn live_read_distinguishes_not_found_from_errors() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let executor = executor(&cluster);
    let fetch = |name: &'static str| {
        let (executor, key) = (&executor, Key::namespaced("a", name));
        async move { executor.fetch(&ConfigMap::RESOURCE, &key).await }
    };
    assert!(fetch("x").await.unwrap().unwrap().contains("red"));
    assert_eq!(fetch("y").await, Ok(None));
    cluster.faults.add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "unavailable")));
    assert_eq!(fetch("x").await.unwrap_err().reason, ErrorReason::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn live_reads_of_many_keys_return_in_order_and_fail_individually() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    cluster.put("a/z", "blue");
    let keys = ["x", "y", "bad", "z"].map(|name| Key::namespaced("a", name));
    cluster
        .faults
        .add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "unavailable")).target("/bad"));
    let answers = executor(&cluster).fetch_all(&ConfigMap::RESOURCE, &keys).await;
    let contains = |at: usize, colour: &str| matches!(&answers[at], Ok(Some(json)) if json.contains(colour));
    assert!(contains(0, "red") && contains(3, "blue"), "{answers:?}");
    assert_eq!(answers[1], Ok(None));
    assert_eq!(answers[2].as_ref().unwrap_err().reason, ErrorReason::Unavailable);
}
