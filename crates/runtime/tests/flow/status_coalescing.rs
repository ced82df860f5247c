//! Status writes are coalesced, and the last one is always sent.

use std::time::Duration;

use keleustes_objects::Key;
use keleustes_plan::{
    Controller, Grant, Loop, PatchKind, Plan, RateLimiter, StatusUrgency, Step, View, Write,
};
use keleustes_runtime::status_coalescing::{INTERVAL_FIRST, INTERVAL_MAX};
use serde_json::json;

use crate::test_cluster::{ConfigMap, TestCluster, settle, wait};

const GRANTS: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["patch"] }];

/// Reports the colour of one map in another. The colour gold is urgent.
fn report_colour(view: &View<'_>, _: &Key) -> Plan {
    let map = |name| view.get::<ConfigMap>(&Key::namespaced("a", name));
    let Some((sky, report)) = map("sky").zip(map("report")) else { return Plan::none() };
    if sky.colour == report.colour {
        return Plan::none();
    }
    let urgency = if sky.colour == "gold" { StatusUrgency::Immediate } else { StatusUrgency::Coalesce };
    let write = Write::patch(&**report, PatchKind::Merge, json!({"data": {"colour": sky.colour}}));
    Plan::of(write.status_urgency(urgency).because("the colour has changed"))
}

async fn cluster() -> (TestCluster, keleustes_runtime::loops::RunningController) {
    let cluster = TestCluster::new();
    cluster.put("a/sky", "blue");
    cluster.put("a/report", "blue");
    let a_loop = Loop::deciding("test", report_colour).enqueue_on::<ConfigMap>(|change, _, enqueue| {
        if change.latest().meta.key.name == "sky" {
            enqueue.add(&change.latest().meta.key);
        }
    });
    let running = cluster.start(Controller::new("test").may_write(GRANTS).with_loop(a_loop)).await;
    (cluster, running)
}

#[tokio::test(start_paused = true)]
async fn single_change_is_written_immediately() {
    let (cluster, running) = cluster().await;
    for colour in ["red", "grey", "white"] {
        cluster.put("a/sky", colour);
        settle().await;
        assert_eq!(cluster.colour("a/report").as_deref(), Some(colour));
        wait(INTERVAL_MAX).await;
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_coalesced_and_the_last_is_written_without_another_event() {
    let (cluster, running) = cluster().await;
    for shade in 0..100 {
        cluster.put("a/sky", &format!("shade {shade}"));
        wait(Duration::from_millis(10)).await;
    }
    let writes = cluster.writes().len();
    assert!((2..=5).contains(&writes), "the first, and then at growing intervals: {writes}");
    assert_ne!(cluster.colour("a/report").as_deref(), Some("shade 99"));
    wait(INTERVAL_MAX).await;
    assert_eq!(cluster.colour("a/report").as_deref(), Some("shade 99"));
    assert_eq!(cluster.writes().len(), writes + 1);
    wait(10 * INTERVAL_MAX).await;
    assert_eq!(cluster.writes().len(), writes + 1, "then there is nothing left to write");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn immediate_write_is_never_held_back() {
    let (cluster, running) = cluster().await;
    for colour in ["red", "grey", "gold"] {
        cluster.put("a/sky", colour);
        settle().await;
    }
    assert_eq!(cluster.colour("a/report").as_deref(), Some("gold"));
    assert_eq!(cluster.writes().len(), 2, "grey was never written");
    wait(10 * INTERVAL_MAX).await;
    assert_eq!(cluster.writes().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn status_that_is_obsolete_at_the_end_of_the_interval_is_not_written() {
    let (cluster, running) = cluster().await;
    for colour in ["red", "grey", "red"] {
        cluster.put("a/sky", colour);
        settle().await;
    }
    wait(INTERVAL_FIRST).await;
    assert_eq!(cluster.colour("a/report").as_deref(), Some("red"));
    assert_eq!(cluster.writes().len(), 1);
    running.stop().await;
}

/// The backoff may be minutes by then, and an item that is dropped has none.
#[tokio::test(start_paused = true)]
async fn held_back_status_of_a_failed_reconcile_does_not_wait_for_the_backoff() {
    for max_retries in [None, Some(0)] {
        let cluster = TestCluster::new();
        cluster.put("a/sky", "blue");
        cluster.put("a/report", "blue");
        let report_and_fail = |view: &View<'_>, key: &Key| {
            let mut plan = Plan::error("another object cannot be written");
            let report = report_colour(view, key);
            report.steps().iter().flat_map(Step::writes).for_each(|write| plan.push(write.clone()));
            plan
        };
        let slow = RateLimiter { base_delay: 100 * INTERVAL_MAX, ..RateLimiter::DEFAULT };
        let mut a_loop = Loop::deciding("test", report_and_fail).rate_limited_by(slow);
        a_loop = a_loop.enqueue_on::<ConfigMap>(|change, _, enqueue| {
            if change.latest().meta.key.name == "sky" {
                enqueue.add(&change.latest().meta.key);
            }
        });
        a_loop.max_retries = max_retries;
        let running = cluster.start(Controller::new("test").may_write(GRANTS).with_loop(a_loop)).await;
        for colour in ["red", "grey"] {
            cluster.put("a/sky", colour);
            settle().await;
        }
        assert_eq!(cluster.colour("a/report").as_deref(), Some("red"), "grey is held back");
        wait(INTERVAL_MAX).await;
        assert_eq!(cluster.colour("a/report").as_deref(), Some("grey"), "{max_retries:?}");
        wait(10 * INTERVAL_MAX).await;
        assert_eq!(cluster.writes().len(), 2);
        running.stop().await;
    }
}
