//! Actions on resources that are only known at run time: discovery, live lists, deletecollection; and
//! requeueing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{ErrorReason, Key, Kind as _, Resource};
use keleustes_plan::{
    Applied, Context, Controller, Delay, Grant, Loop, Outcome, Plan, Precondition, PropagationPolicy,
    ReconcileError, Requeue, Target, Write,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::test_cluster::{ConfigMap, TestCluster, on_config_maps, reconcile_with, settle, wait};

const EVERYTHING: &[Grant] =
    &[Grant { group: "*", resource: "*", verbs: &["get", "list", "delete", "deletecollection"] }];
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");

/// Runs a reconciler once, for the item `a/x`.
async fn once<R: Send + 'static>(
    cluster: &TestCluster,
    grants: &'static [Grant],
    reconcile: impl for<'a> Fn(&'a mut Context<'_>) -> keleustes_plan::BoxFuture<'a, R> + Send + Sync + 'static,
) -> Option<R> {
    let result = Arc::new(Mutex::new(None));
    let slot = result.clone();
    let reconcile = Arc::new(reconcile);
    let a_loop = Loop::reconciling(
        "test",
        reconcile_with(move |cx, _| {
            let (reconcile, slot) = (reconcile.clone(), slot.clone());
            Box::pin(async move {
                let result = reconcile(cx).await;
                *slot.lock() = Some(result);
                Ok(Requeue::Forget)
            })
        }),
    );
    let running = cluster
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

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    for key in ["a/one", "a/two", "b/three"] {
        cluster.put(key, "red");
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn discovery_is_not_cached() {
    let cluster = cluster();
    for failing in [true, false] {
        cluster.server.set_group_version_failing("apps", "v1", failing);
        let found = once(&cluster, EVERYTHING, |cx| Box::pin(cx.discover())).await.unwrap().unwrap();
        assert_eq!(found.failed.contains_key("apps/v1"), failing);
        assert!(found.preferred().iter().any(|one| one.resource == SECRETS));
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_lists_fail_individually() {
    let cluster = cluster();
    cluster
        .faults
        .add(FaultRule::new(InjectedFault::status(500, "InternalError", "boom")).target("/secrets"));
    let listed = once(&cluster, EVERYTHING, |cx| {
        Box::pin(async move { cx.list_metadata([&SECRETS, &ConfigMap::RESOURCE], "a", None).await })
    });
    let [secrets, maps] = &listed.await.unwrap()[..] else { panic!("two results") };
    assert_eq!(secrets.as_ref().unwrap_err().code, 500);
    let names: Vec<_> = maps.as_ref().unwrap().iter().map(|map| map.meta.key.to_string()).collect();
    assert_eq!(names, ["a/one", "a/two"]);
    let some = once(&cluster, EVERYTHING, |cx| {
        Box::pin(async move { cx.list_metadata([&ConfigMap::RESOURCE], "a", Some(1)).await })
    });
    assert_eq!(some.await.unwrap()[0].as_ref().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_return_full_objects_and_metadata_reads_only_metadata() {
    let cluster = cluster();
    let maps = once(&cluster, EVERYTHING, |cx| Box::pin(async move { cx.list::<ConfigMap>("a").await }));
    assert_eq!(maps.await.unwrap().unwrap()[0].colour, "red");
    let read = |name: &'static str| {
        once(&cluster, EVERYTHING, move |cx| {
            Box::pin(
                async move { cx.fetch_metadata(&ConfigMap::RESOURCE, &Key::namespaced("a", name)).await },
            )
        })
    };
    let found = read("one").await.unwrap().unwrap().unwrap();
    assert_eq!(found.meta.key.to_string(), "a/one");
    assert!(!String::from_utf8_lossy(cluster.tap.received.lock().last().unwrap()).contains("red"));
    assert_eq!(read("none").await.unwrap().unwrap(), None);
}

fn delete_all(namespace: &'static str) -> Write {
    Write::delete_collection(&ConfigMap::RESOURCE, namespace)
        .propagation_policy(PropagationPolicy::Background)
        .because("the namespace is terminating")
}

async fn applied(cluster: &TestCluster, grants: &'static [Grant], write: Write) -> Option<Applied> {
    once(cluster, grants, move |cx| {
        let plan = Plan::of(write.clone());
        Box::pin(async move { cx.apply(plan).await })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn collection_is_deleted_by_one_request() {
    let cluster = cluster();
    let done = applied(&cluster, EVERYTHING, delete_all("a")).await.unwrap();
    assert_eq!(done.outcomes, [Outcome::done()]);
    assert_eq!((cluster.colour("a/one"), cluster.colour("b/three")), (None, Some("red".to_owned())));
    let [write] = &cluster.writes()[..] else { panic!("one request") };
    assert_eq!((write.method.as_str(), write.target.as_str()), ("DELETE", "/api/v1/namespaces/a/configmaps"));
    assert_eq!(write.json()["propagationPolicy"], "Background");
    assert_eq!(
        delete_all("a").to_string(),
        "deletecollection configmaps in a because the namespace is terminating"
    );
}

#[tokio::test(start_paused = true)]
async fn refused_deletecollection_fails_or_is_tolerated() {
    let cluster = cluster();
    let refusal = InjectedFault::status(405, "MethodNotAllowed", "no such verb");
    cluster.faults.add(FaultRule::new(refusal).method(Method::DELETE));
    let refused = applied(&cluster, EVERYTHING, delete_all("a")).await.unwrap();
    let [Outcome::Failed(failure)] = &refused.outcomes[..] else { panic!("a failure") };
    assert_eq!((failure.reason, refused.error.is_some()), (ErrorReason::MethodNotAllowed, true));
    let tolerant = delete_all("a").ignoring_errors(&[ErrorReason::MethodNotAllowed]);
    assert_eq!(applied(&cluster, EVERYTHING, tolerant).await.unwrap().outcomes, [Outcome::done()]);
    assert_eq!(cluster.colour("a/one").as_deref(), Some("red"));
}

#[tokio::test(start_paused = true)]
async fn deletecollection_needs_its_grant_and_the_lease() {
    let cluster = cluster();
    const DELETES: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["delete"] }];
    assert_eq!(applied(&cluster, DELETES, delete_all("a")).await, None, "the reconcile panicked");
    cluster.is_leader.store(false, Ordering::Relaxed);
    let not_leading = applied(&cluster, EVERYTHING, delete_all("a")).await.unwrap();
    assert_eq!(not_leading.outcomes, [Outcome::NotSent]);
    assert_eq!(cluster.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn object_of_any_resource_is_deleted_with_a_uid_precondition() {
    let cluster = cluster();
    let target = |uid: &str| Target {
        resource: ConfigMap::RESOURCE,
        key: Key::namespaced("a", "one"),
        uid: uid.into(),
        precondition: Precondition::Uid,
    };
    let other_uid =
        applied(&cluster, EVERYTHING, Write::delete_target(target("other")).because("it is asked for"))
            .await
            .unwrap();
    assert!(
        matches!(&other_uid.outcomes[..], [Outcome::Failed(failure)] if failure.reason == ErrorReason::Conflict)
    );
    let uid = cluster.server.object("configmaps", "a", "one").unwrap()["metadata"]["uid"].clone();
    applied(
        &cluster,
        EVERYTHING,
        Write::delete_target(target(uid.as_str().unwrap())).because("it is asked for"),
    )
    .await
    .unwrap();
    assert_eq!(cluster.colour("a/one"), None);
}

/// Reconciles of the item `a/x`, in milliseconds since the start, of a reconciler that fails, keeps its
/// backoff and fails again.
#[tokio::test(start_paused = true)]
async fn keep_backoff_neither_resets_nor_increases_the_backoff() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let (reconciles, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let recorded = reconciles.clone();
    let a_loop = on_config_maps(move |_, _| {
        recorded.lock().push(began.elapsed().as_millis());
        let next = match recorded.lock().len() {
            // Three failures: 5, 10 and 20 ms.
            1..=3 => Err(ReconcileError::because("not yet")),
            4 => Ok(Requeue::KeepBackoff(Delay::of(Duration::from_secs(1), "a test"))),
            // The fourth failure waits 40 ms.
            5 => Err(ReconcileError::because("not yet")),
            _ => Ok(Requeue::Forget),
        };
        Box::pin(async move { next })
    });
    let running = cluster.start(Controller::new("test").with_loop(a_loop)).await;
    wait(Duration::from_secs(5)).await;
    assert_eq!(*reconciles.lock(), [0, 5, 15, 35, 1035, 1075]);
    running.stop().await;
}

/// Proves INF-48.
#[tokio::test(start_paused = true)]
async fn loop_may_have_a_shorter_resync_period() {
    let cluster = cluster();
    let reconciles = Arc::new(Mutex::new(Vec::new()));
    let recorded = reconciles.clone();
    let recording = on_config_maps(move |_, item| {
        recorded.lock().push(item.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = cluster
        .start(Controller::new("test").with_loop(recording.resync_every(Duration::from_secs(300))))
        .await;
    wait(Duration::from_secs(299)).await;
    assert_eq!(reconciles.lock().len(), 3);
    wait(Duration::from_secs(2)).await;
    assert_eq!(reconciles.lock()[3..], ["a/one", "a/two", "b/three"]);
    wait(Duration::from_secs(300)).await;
    assert_eq!(reconciles.lock().len(), 9);
    running.stop().await;
}
