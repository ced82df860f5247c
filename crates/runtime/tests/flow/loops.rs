//! How items are reconciled: panics contained, retried, requeued, one worker at a time, and stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault};
use keleustes_objects::{ApiError, ErrorReason, Key, Namespace, ServiceAccount};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Plan, ReconcileError, Requeue, View, Write};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::test_cluster::{ConfigMap, TestCluster, on_config_maps, reconcile_with, settle, wait};

const GRANTS: &[Grant] =
    &[Grant { group: "", resource: "configmaps", verbs: &["create", "update", "get", "delete"] }];

fn controller(a_loop: Loop) -> Controller {
    Controller::new("test").may_write(GRANTS).with_loop(a_loop)
}

/// Records when each item was reconciled, in milliseconds since the start.
#[derive(Clone)]
struct ReconcileLog {
    began: Instant,
    reconciles: Arc<Mutex<Vec<(String, u128)>>>,
}

impl ReconcileLog {
    fn new() -> Self {
        Self { began: Instant::now(), reconciles: Arc::default() }
    }

    fn record(&self, item: &Key) -> usize {
        let mut reconciles = self.reconciles.lock();
        reconciles.push((item.to_string(), self.began.elapsed().as_millis()));
        reconciles.iter().filter(|(recorded, _)| *recorded == item.to_string()).count()
    }

    /// The times of one item's reconciles.
    fn times(&self, item: &str) -> Vec<u128> {
        self.reconciles.lock().iter().filter(|(recorded, _)| recorded == item).map(|(_, at)| *at).collect()
    }

    fn items(&self) -> Vec<String> {
        self.reconciles.lock().iter().map(|(item, _)| item.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn loop_starts_without_a_deferred_kind() {
    let cluster = TestCluster::new();
    let slow = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(slow).target("/configmaps?").times(1));
    cluster.put("default/there", "red");
    let observed = Arc::new(Mutex::new(Vec::new()));
    let record = observed.clone();
    let decide = move |view: &View<'_>, _: &Key| {
        let maps = view.store_if_synced::<ConfigMap>().map(|maps| maps.all().count());
        record.lock().push(maps);
        let mut plan = Plan::none();
        if maps.is_none() {
            plan.requeue_after(Duration::from_secs(1), "a test");
        }
        plan
    };
    let a_loop = Loop::deciding("test", decide)
        .enqueue_on::<Namespace>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .starts_without::<ConfigMap>();
    let began = Instant::now();
    let running = cluster.start(controller(a_loop)).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    wait(Duration::from_secs(10)).await;
    let observed = observed.lock().clone();
    assert_eq!(observed.first(), Some(&None), "not synced is not the same as empty");
    assert_eq!(observed.last(), Some(&Some(1)));
    running.stop().await;
}

/// An alert on an increase never sees the first failure of a series that begins with it.
#[tokio::test(start_paused = true)]
async fn panics_and_undecodable_objects_are_exposed_as_zero_before_the_first() {
    let cluster = TestCluster::new();
    let a_loop = on_config_maps(|_, _| Box::pin(async { Ok(Requeue::Forget) }));
    let running = cluster.start(controller(a_loop)).await;
    settle().await;
    for part in ["test", "cache", "event-handler"] {
        let line = format!("keleustes_sync_panics_total{{controller=\"{part}\"}} 0");
        assert!(cluster.metric(&line), "{line}");
    }
    assert!(cluster.metric(r#"keleustes_undecodable_objects_total{group="",resource="configmaps"} 0"#));
    running.stop().await;
}

/// Proves RUN-80.
#[tokio::test(start_paused = true)]
async fn panic_ends_one_reconcile_of_one_item_and_is_retried() {
    let cluster = TestCluster::new();
    for key in ["a/bad", "a/good", "b/good"] {
        cluster.put(key, "red");
    }
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        let attempt = recording.record(item);
        assert!(item.name != "bad" || attempt > 3, "panics over one object");
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = cluster.start(controller(a_loop)).await;
    wait(Duration::from_secs(10)).await;
    assert_eq!(log.times("a/bad").len(), 4, "retried until it succeeds");
    assert_eq!(log.times("a/bad")[1..], [5, 15, 35], "with backoff");
    for good in ["a/good", "b/good"] {
        assert_eq!(log.times(good), [0], "not delayed by it");
    }
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="test"} 3"#));
    assert_eq!(cluster.caches.unsynced(), [""; 0]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn undeclared_read_is_a_contained_panic() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let a_loop = Loop::deciding("test", |view, _: &Key| {
        let _ = view.all::<ServiceAccount>().count();
        Plan::none()
    });
    let a_loop = a_loop.enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key));
    let running = cluster.start(controller(a_loop)).await;
    settle().await;
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    running.stop().await;
}

/// An undeclared write ends the reconcile the same way, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn undeclared_write_is_a_contained_panic() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let a_loop = Loop::deciding("test", |view, item: &Key| {
        view.get::<ConfigMap>(item)
            .map_or_else(Plan::none, |map| Plan::of(Write::delete(&**map).because("the test wants it")))
    });
    let a_loop = a_loop.enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key));
    let running = cluster.start(Controller::new("test").with_loop(a_loop)).await;
    settle().await;
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    assert_eq!(cluster.writes(), []);
    running.stop().await;
}

/// An event handler panics over one object of a list of 2,500; all others are enqueued.
#[tokio::test(start_paused = true)]
async fn event_handler_panic_over_one_object_loses_no_other() {
    fn enqueue_key(change: &Change<ConfigMap>, _: &View<'_>, enqueue: &mut Effects) {
        let key = &change.latest().meta.key;
        assert!(key.name != "n0500", "panics over one object");
        enqueue.add(key);
    }
    let cluster = TestCluster::new();
    for n in 0..2500 {
        cluster.put(&format!("a/n{n:04}"), "red");
    }
    let log = ReconcileLog::new();
    let recording = log.clone();
    let reconcile_with = reconcile_with(move |_, item| {
        recording.record(item);
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = cluster
        .start(controller(Loop::reconciling("test", reconcile_with).enqueue_on::<ConfigMap>(enqueue_key)))
        .await;
    settle().await;
    assert_eq!(log.items().len(), 2499);
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    cluster.put("a/n0501", "blue");
    settle().await;
    assert_eq!(log.items().len(), 2500, "and it still receives changes");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failing_item_is_dropped_at_the_retry_limit_until_a_change() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        recording.record(item);
        Box::pin(async { Err(ReconcileError::because("it always fails")) })
    });
    let running = cluster.start(controller(a_loop.max_retries(3))).await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(log.times("a/x").len(), 4, "the first try and three retries");
    cluster.put("a/x", "blue");
    wait(Duration::from_secs(3600)).await;
    assert_eq!(log.times("a/x").len(), 8, "a change resets its retries");
    assert!(cluster.metric(r#"workqueue_retries_total{name="test"} 6"#));
    running.stop().await;
}

/// Proves INF-37, INF-144.
#[tokio::test(start_paused = true)]
async fn relist_retries_a_dropped_key_even_if_the_object_is_unchanged() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        recording.record(item);
        Box::pin(async { Err(ReconcileError::because("it always fails")) })
    });
    let running = cluster.start(controller(a_loop.max_retries(3))).await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(log.times("a/x").len(), 4, "the first try and three retries");
    cluster.server.cut_watches();
    wait(Duration::from_secs(3600)).await;
    assert_eq!(log.times("a/x").len(), 4, "a watch that resumes delivers only changes");
    cluster.server.compact();
    cluster.server.expire_watches();
    wait(Duration::from_secs(3600)).await;
    assert_eq!(log.times("a/x").len(), 8);
    running.stop().await;
}

/// A renewal that comes late lets this process lead on, and no other leader has done what was refused meanwhile.
#[tokio::test(start_paused = true)]
async fn write_that_is_refused_while_the_lease_is_lost_uses_up_no_retries() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let delete = |view: &View<'_>, item: &Key| {
        let map = view.get::<ConfigMap>(item);
        map.map_or_else(Plan::none, |map| Plan::of(Write::delete(&**map).because("the test wants it")))
    };
    let a_loop = Loop::deciding("test", delete)
        .enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key));
    cluster.is_leader.store(false, Ordering::Relaxed);
    let running = cluster.start(controller(a_loop.max_retries(0))).await;
    wait(Duration::from_secs(1)).await;
    assert_eq!(cluster.writes(), []);
    cluster.is_leader.store(true, Ordering::Relaxed);
    wait(Duration::from_secs(10)).await;
    assert_eq!(cluster.writes().len(), 1);
    running.stop().await;
}

/// When an item with three retries was reconciled, of whose reconciles some meet an API server outage.
async fn times_with_outages(meets_outage: fn(usize) -> bool) -> Vec<u128> {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        let outage = ApiError::transport(ErrorReason::ConnectionRefused, "connection refused");
        let retry = if meets_outage(recording.record(item)) {
            ReconcileError::from_api_error(&outage, "an outage")
        } else {
            ReconcileError::because("not an outage")
        };
        Box::pin(async { Err(retry) })
    });
    let running = cluster.start(controller(a_loop.max_retries(3))).await;
    wait(Duration::from_secs(3600)).await;
    running.stop().await;
    log.times("a/x")
}

/// The original drops the key in an outage that lasts longer than its retries, and nothing enqueues it later.
#[tokio::test(start_paused = true)]
async fn outage_uses_up_no_retries() {
    let times = times_with_outages(|attempt| attempt <= 10).await;
    assert_eq!(times.len(), 14, "ten in the outage, the first after it and three retries");
}

/// The backoff of an item that alternates between outages and other failures still grows.
#[tokio::test(start_paused = true)]
async fn outages_between_failures_do_not_reset_the_backoff() {
    let times = times_with_outages(|attempt| attempt.is_multiple_of(2)).await;
    let intervals: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (interval, wanted) in intervals.iter().zip([5, 10, 20, 40, 80, 160]) {
        assert!((wanted..=wanted + 2).contains(interval), "{intervals:?}");
    }
    assert_eq!(intervals.len(), 6, "three outages, the first try and three retries");
}

#[tokio::test(start_paused = true)]
async fn requeue_after_is_honoured_and_success_resets_the_backoff() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        let attempt = recording.record(item);
        Box::pin(async move {
            match attempt {
                2 | 4 => Err(ReconcileError::because("not yet")),
                6 => Ok(Requeue::Forget),
                _ => Ok(Requeue::after(Duration::from_secs(10), "a test")),
            }
        })
    });
    let running = cluster.start(controller(a_loop)).await;
    wait(Duration::from_secs(3600)).await;
    let times = log.times("a/x");
    let intervals: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let wanted = [10_000, 5, 10_000, 5, 10_000];
    for (interval, wanted) in intervals.iter().zip(wanted) {
        assert!((wanted..=wanted + 2).contains(interval), "{intervals:?}");
    }
    assert_eq!(intervals.len(), 5, "and then no more");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_server_is_honoured() {
    let cluster = TestCluster::new();
    cluster.server.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})).unwrap();
    let id = cluster
        .faults
        .add(FaultRule::new(InjectedFault::too_many_requests(30)).method(Method::POST).times(1));
    let a_loop = Loop::deciding("test", |view, item: &Key| {
        let key = Key::namespaced("a", "created");
        let body = json!({"metadata": {"name": "created"}});
        let wanted = item.name == "a" && view.get::<ConfigMap>(&key).is_none();
        if wanted {
            Plan::of(Write::create::<ConfigMap>(key, body).because("the test wants it"))
        } else {
            Plan::none()
        }
    });
    let a_loop = a_loop
        .enqueue_on::<Namespace>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .reads::<ConfigMap>();
    let running = cluster.start(controller(a_loop)).await;
    wait(Duration::from_millis(29_900)).await;
    assert_eq!((cluster.faults.hits(id), cluster.writes().len()), (1, 0));
    wait(Duration::from_secs(1)).await;
    assert_eq!(cluster.writes().len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn late_start_enqueues_existing_objects() {
    let cluster = TestCluster::new();
    cluster.synced_cache::<ConfigMap>().await;
    for key in ["a/x", "a/y"] {
        cluster.put(key, "red");
    }
    cluster.remove("a/x");
    settle().await;
    let log = ReconcileLog::new();
    let recording = log.clone();
    let a_loop = on_config_maps(move |_, item| {
        recording.record(item);
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = cluster.start(controller(a_loop)).await;
    settle().await;
    assert_eq!(log.items(), ["a/y"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_running_reconciles_and_starts_no_more() {
    let cluster = TestCluster::new();
    for n in 0..10 {
        cluster.put(&format!("a/n{n}"), "red");
    }
    let (log, ended) = (ReconcileLog::new(), Arc::new(AtomicUsize::new(0)));
    let (recording, counter) = (log.clone(), ended.clone());
    let a_loop = on_config_maps(move |_, item| {
        recording.record(item);
        let ended = counter.clone();
        Box::pin(async move {
            wait(Duration::from_secs(60)).await;
            ended.fetch_add(1, Ordering::Relaxed);
            Ok(Requeue::after(Duration::from_secs(1), "a test"))
        })
    });
    let running = cluster.start(controller(a_loop.workers(2))).await;
    wait(Duration::from_secs(10)).await;
    let began = Instant::now();
    running.stop().await;
    assert_eq!(began.elapsed().as_secs(), 50, "as long as the running reconciles took");
    assert_eq!(ended.load(Ordering::Relaxed), 2, "no reconcile was aborted");
    cluster.put("a/late", "red");
    wait(Duration::from_secs(600)).await;
    assert_eq!(log.items().len(), 2, "eight were queued, one came late; none was reconciled");
    assert!(cluster.metric(r#"workqueue_unfinished_work_seconds{name="test"} 0"#), "the queue is dropped");
}

#[tokio::test(start_paused = true)]
async fn item_is_never_reconciled_by_two_workers() {
    let cluster = TestCluster::new();
    let running = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let (most, reconciles) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (busy, peak, counter) = (running.clone(), most.clone(), reconciles.clone());
    let a_loop = on_config_maps(move |_, item| {
        let (busy, peak, item) = (busy.clone(), peak.clone(), item.to_string());
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let now = {
                let mut busy = busy.lock();
                *busy.entry(item.clone()).or_default() += 1;
                assert_eq!(busy[&item], 1, "{item} is reconciled twice at once");
                busy.values().sum()
            };
            peak.fetch_max(now, Ordering::Relaxed);
            wait(Duration::from_millis(70)).await;
            *busy.lock().get_mut(&item).unwrap() -= 1;
            Ok(Requeue::Forget)
        })
    });
    let running = cluster.start(controller(a_loop.workers(8))).await;
    for round in 0..50 {
        for n in 0..3 {
            cluster.put(&format!("a/n{n}"), &round.to_string());
        }
        wait(Duration::from_millis(20)).await;
    }
    wait(Duration::from_secs(1)).await;
    assert_eq!(most.load(Ordering::Relaxed), 3, "different items are reconciled in parallel");
    assert!(!cluster.has_panicked());
    assert!(reconciles.load(Ordering::Relaxed) >= 3 * 14, "changes during a reconcile lead to another one");
    running.stop().await;
}

/// A change during a reconcile of its item is not lost.
#[tokio::test(start_paused = true)]
async fn last_state_is_always_reconciled() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "first");
    let (proceed, colours) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (signal, recording) = (proceed.clone(), colours.clone());
    let a_loop = on_config_maps(move |cx, item| {
        let colour = cx.gather(|view| view.get::<ConfigMap>(item).map(|map| map.colour.clone()));
        recording.lock().push(colour.unwrap_or_default());
        let signal = signal.clone();
        Box::pin(async move {
            signal.notified().await;
            Ok(Requeue::Forget)
        })
    });
    let running = cluster.start(controller(a_loop)).await;
    settle().await;
    cluster.put("a/x", "second");
    cluster.put("a/x", "third");
    settle().await;
    proceed.notify_one();
    settle().await;
    proceed.notify_one();
    settle().await;
    assert_eq!(*colours.lock(), ["first", "third"]);
    running.stop().await;
}

/// Two loops read the same two kinds, declared in different order, while both kinds change. If stores were
/// locked in the order of declaration, this would deadlock within moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loops_that_read_the_same_kinds_in_any_order_never_deadlock() {
    fn decide(view: &View<'_>, _: &Key) -> Plan {
        assert!(view.all::<ConfigMap>().count() + view.all::<ServiceAccount>().count() > 0);
        Plan::none()
    }
    let cluster = TestCluster::on_server(ApiServer::default(), None);
    let one = Loop::deciding("one", decide)
        .enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .enqueue_on::<ServiceAccount>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .workers(4);
    let two = Loop::deciding("two", decide)
        .enqueue_on::<ServiceAccount>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
        .workers(4);
    let running = cluster.start(Controller::new("test").with_loop(one).with_loop(two)).await;
    let server = &cluster.server;
    let writers = (0..4).map(|writer| {
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            for n in 0..500 {
                let name = format!("w{writer}-{}", n % 20);
                let metadata = json!({"namespace": "a", "name": name});
                let kind = if n % 2 == 0 { "ConfigMap" } else { "ServiceAccount" };
                server.seed(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap();
            }
        })
    });
    let written = tokio::time::timeout(Duration::from_secs(60), join_all(writers));
    written.await.expect("the server accepts writes");
    let version = server.resource_version().to_string();
    let caught_up = async {
        let cache = cluster.synced_cache::<ServiceAccount>().await;
        while cache.resource_version().to_string() != version {
            server.send_bookmarks();
            wait(Duration::from_millis(5)).await;
        }
        running.stop().await;
    };
    tokio::time::timeout(Duration::from_secs(60), caught_up).await.expect("no deadlock");
    assert!(!cluster.has_panicked());
}
