//! Less common features of a plan: puts from the cache, parallel writes, patches with a UID precondition,
//! events on outcomes, measurements, initial items and items enqueued by others.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::InjectedFault;
use keleustes_objects::{Key, Namespace, Uid};
use keleustes_plan::{
    Controller, Effects, InvolvedObject, Loop, Metric, Outcome, Pass, PatchKind, Plan, PlannedEvent, Requeue,
    Write,
};
use serde_json::{Value, json};

use crate::executor::{apply, cluster, create, letters, many, observed, on};
use crate::test_cluster::{ConfigMap, TestCluster, reconcile_with, wait};

fn namespace(cluster: &TestCluster) -> Value {
    (*cluster.server.object("namespaces", "", "a").unwrap()).clone()
}

/// A status update computed from the cached object.
fn put_status(observed: &Value) -> Write {
    let object: Namespace = serde_json::from_value(observed.clone()).unwrap();
    let body = json!({"metadata": observed["metadata"], "status": {"phase": "Active", "conditions": [{"type": "Created", "status": "True"}]}});
    Write::put(&object, "status", body).because("the test wants it")
}

#[tokio::test(start_paused = true)]
async fn put_needs_no_read() {
    let cluster = cluster();
    let applied = apply(&cluster, Plan::of(put_status(&namespace(&cluster)))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    assert_eq!(namespace(&cluster)["status"]["conditions"][0]["type"], "Created");
    assert!(cluster.server.requests().iter().all(|request| request.method != Method::GET));
}

#[tokio::test(start_paused = true)]
async fn put_from_a_stale_cache_fails_or_is_retried_on_the_live_object() {
    let cluster = cluster();
    let old = namespace(&cluster);
    let mut newer = old.clone();
    newer["metadata"]["labels"] = json!({"by": "another-client"});
    cluster.server.seed(newer).unwrap();
    let applied = apply(&cluster, Plan::of(put_status(&old))).await;
    assert_eq!(letters(&applied), "F", "{applied:?}");
    assert_eq!(namespace(&cluster)["status"]["conditions"], Value::Null);
    let applied = apply(&cluster, Plan::of(put_status(&old).conflict_tries(2))).await;
    assert_eq!(letters(&applied), "D", "{applied:?}");
    assert_eq!(namespace(&cluster)["status"]["conditions"][0]["type"], "Created");
    assert_eq!(namespace(&cluster)["metadata"]["labels"]["by"], "another-client");
}

#[tokio::test(start_paused = true)]
async fn parallel_writes_do_not_stop_each_other() {
    let cluster = cluster();
    cluster.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).skip(2).times(1));
    let mut plan = Plan::none();
    plan.push_parallel(many(6));
    let applied = apply(&cluster, plan).await;
    assert_eq!(letters(&applied), "DDFDDD");
    assert!(applied.error.is_some());
}

#[tokio::test(start_paused = true)]
async fn patch_has_a_uid_precondition() {
    let cluster = cluster();
    cluster.put("a/x", "red");
    let mut map = observed(&cluster, "a/x");
    let patch = |map: &ConfigMap| {
        Plan::of(
            Write::patch(map, PatchKind::Merge, json!({"metadata": {"labels": {"mine": "yes"}}}))
                .because("the test wants it"),
        )
    };
    assert_eq!(letters(&apply(&cluster, patch(&map)).await), "D");
    map.meta.uid = Uid::from("11111111-1111-1111-1111-111111111111");
    assert_eq!(letters(&apply(&cluster, patch(&map)).await), "F", "another UID");
}

#[tokio::test(start_paused = true)]
async fn event_is_recorded_on_the_outcome_of_a_write() {
    let cluster = cluster();
    cluster.faults.add(on(Method::POST, InjectedFault::status(403, "Forbidden", "no")).skip(1).times(1));
    let involved =
        InvolvedObject { kind: "Namespace".to_owned(), name: "a".to_owned(), ..InvolvedObject::default() };
    let with_event = |write: Write| {
        let involved = involved.clone();
        write.record_on_outcome(move |outcome| match outcome {
            Outcome::Done { name, .. } => {
                Some(PlannedEvent::normal(involved.clone(), "Created", format!("Created {name}")))
            }
            Outcome::Failed(failure) => {
                Some(PlannedEvent::warning(involved.clone(), "Failed", failure.to_string()))
            }
            Outcome::Unneeded | Outcome::NotSent => None,
        })
    };
    let mut plan = Plan::none();
    plan.push_parallel(vec![with_event(create("one")), with_event(create("two"))]);
    apply(&cluster, plan).await;
    let events: Vec<_> = cluster.events.lock().iter().map(|event| event.message.clone()).collect();
    assert_eq!(events[0], "Created one");
    assert!(events[1].contains("no"), "{events:?}");
}

static RECONCILES: Metric = Metric::counter("reconciles_total", "Reconciles.", &[]);

/// A periodic pass starts without a change and requeues itself.
#[tokio::test(start_paused = true)]
async fn initial_item_is_reconciled_without_a_change() {
    let cluster = TestCluster::new();
    let pass = Loop::reconciling("passes", PeriodicPass).initial_item(Pass);
    let running = cluster.start(Controller::new("test").metrics([&RECONCILES]).with_loop(pass)).await;
    wait(Duration::from_secs(45)).await;
    assert!(cluster.metric("reconciles_total 3"), "at 0, 20 and 40 seconds");
    running.stop().await;
}

struct PeriodicPass;

impl keleustes_plan::Reconciler<Pass> for PeriodicPass {
    async fn reconcile(
        &self,
        cx: &mut keleustes_plan::Context<'_>,
        _: &Pass,
    ) -> Result<Requeue, keleustes_plan::ReconcileError> {
        cx.measure(RECONCILES.increment(&[]));
        Ok(Requeue::after(Duration::from_secs(20), "a test"))
    }
}

/// A reconciler may enqueue another item.
#[tokio::test(start_paused = true)]
async fn reconciler_may_enqueue_another_item() {
    let cluster = TestCluster::new();
    let enqueues_the_other = reconcile_with(|cx, item| {
        Box::pin(async move {
            if item.name == "first" {
                cx.enqueue(Key::cluster("second"));
            }
            cx.measure(RECONCILES.increment(&[]));
            Ok(Requeue::Forget)
        })
    });
    let a_loop = Loop::reconciling("test", enqueues_the_other).initial_item(Key::cluster("first"));
    let running = cluster.start(Controller::new("test").metrics([&RECONCILES]).with_loop(a_loop)).await;
    wait(Duration::from_secs(1)).await;
    assert!(cluster.metric("reconciles_total 2"), "the first one and the one it enqueued");
    running.stop().await;
}

/// A controller's memory is shared by all its parts and survives a reconcile that panicked.
#[test]
fn memory_is_shared_and_survives_a_panic() {
    let memory = keleustes_plan::Memory::new(vec![1]);
    let other = memory.clone();
    let broken = std::thread::spawn(move || other.with(|_| panic!("a panic"))).join();
    assert!(broken.is_err());
    memory.with(|memory_value| memory_value.push(2));
    assert_eq!(memory.with(|memory_value| memory_value.clone()), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn handler_records_an_event_and_a_reconcile_enqueues_in_another_queue_later() {
    let cluster = cluster();
    let later = reconcile_with(|_, _| Box::pin(async { Ok(Requeue::Forget) }));
    let first = reconcile_with(|cx, item| {
        let mut effects = Effects::default();
        effects.enqueue_after("later", item.clone(), Duration::from_secs(60));
        cx.effects(effects);
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let controller = Controller::new("test")
        .with_loop(Loop::reconciling("first", first).enqueue_on::<ConfigMap>(|change, _, enqueue| {
            let key = &change.latest().meta.key;
            let involved = InvolvedObject { name: key.name.to_string(), ..InvolvedObject::default() };
            enqueue.record(PlannedEvent::normal(involved, "Seen", "it changed"));
            enqueue.add(key);
        }))
        .with_loop(Loop::reconciling("later", later));
    let running = cluster.start(controller).await;
    cluster.put("a/x", "red");
    wait(Duration::from_secs(50)).await;
    let recorded: Vec<_> =
        cluster.events.lock().iter().map(|event| event.involved_object.name.clone()).collect();
    assert_eq!(recorded, ["x"]);
    assert!(cluster.metric("workqueue_adds_total{name=\"later\"} 0"), "not due yet");
    wait(Duration::from_secs(11)).await;
    assert!(!cluster.metric("workqueue_adds_total{name=\"later\"} 0"), "due");
    cluster.stop(running).await;
}
