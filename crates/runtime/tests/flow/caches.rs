//! What caches guarantee to readers and event handlers.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::StreamBody;
use keleustes_apiserver::{FaultRule, InjectedFault, LoggedRequest};
use keleustes_objects::protobuf::Message;
use keleustes_objects::{
    InternedStr, Key, Kind, Namespace, Object, ObjectMeta, Resource, ServiceAccount, WireMeta,
};
use keleustes_plan::{AnyChange, Change, Controller, Effects, Index, KindEntry, Loop, Plan, Requeue, View};
use keleustes_runtime::caches::{Caches, EventHandler};
use keleustes_runtime::loops::prepare;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::test_cluster::{
    ChangeLog, ConfigMap, TestCluster, UNREADABLE, config_map, has_panicked, reconcile_with, settle, wait,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Proves INF-1, INF-12, INF-50, RUN-46.
#[tokio::test(start_paused = true)]
async fn kind_is_listed_once_for_any_number_of_controllers() {
    let cluster = TestCluster::new();
    let controller = |name| {
        let decides_nothing = |_: &View<'_>, _: &Key| Plan::none();
        let a_loop =
            || Loop::deciding("test", decides_nothing).reads::<Namespace>().reads::<ServiceAccount>();
        Controller::new(name).with_loop(a_loop()).with_loop(a_loop())
    };
    let one = cluster.start(controller("one")).await;
    let two = cluster.start(controller("two")).await;
    for kind in ["namespaces", "serviceaccounts"] {
        assert_eq!(cluster.reads(kind, "sendInitialEvents=true"), 1, "one initial list of {kind}");
        assert_eq!(cluster.reads(kind, "watch=true"), 1, "and the same watch continues");
        assert_eq!(cluster.reads(kind, "Selector"), 0);
    }
    let everywhere = |request: &LoggedRequest| !request.target.contains("/namespaces/");
    assert!(cluster.server.requests().iter().all(everywhere), "all namespaces in one request");
    wait(24 * HOUR).await;
    assert_eq!(cluster.reads("namespaces", "sendInitialEvents=true"), 1, "no periodic list");
    assert!(cluster.reads("namespaces", "watch=true") >= 24 * 6, "watches end and are resumed");
    one.stop().await;
    two.stop().await;
}

/// Proves INF-30, INF-31.
#[tokio::test(start_paused = true)]
async fn changes_are_delivered_in_order_after_the_store_holds_them() {
    let cluster = TestCluster::new();
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    for colour in ["red", "green", "blue"] {
        cluster.put("a/x", colour);
        cluster.put("a/y", colour);
    }
    cluster.remove("a/x");
    cluster.put("a/x", "again");
    settle().await;
    let wanted = ["+a/x", "+a/y", "~a/x", "~a/y", "~a/x", "~a/y", "-a/x", "+a/x"];
    assert_eq!(log.take(), wanted, "no change is coalesced or reordered");
}

const BY_COLOUR: Index<ConfigMap> =
    Index { name: "colour", values: |map, emit| emit(InternedStr::from(&*map.colour)) };

/// Proves INF-31.
#[tokio::test(start_paused = true)]
async fn event_handler_sees_indexes_that_hold_the_change() {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let recorded = handled.clone();
    let enqueue_key = move |change: &Change<ConfigMap>, view: &View<'_>, enqueue: &mut Effects| {
        let map = change.latest();
        let is_in_index = |colour: &str| {
            view.store::<ConfigMap>().by_index(&BY_COLOUR, colour).any(|other| other.meta.key == map.meta.key)
        };
        assert_eq!(is_in_index(&map.colour), !change.is_deletion(), "{} in the index", map.meta.key);
        if let Some(old) = change.old().filter(|old| old.colour != map.colour) {
            assert!(!is_in_index(&old.colour), "{} under its old value", map.meta.key);
        }
        let what = if change.is_deletion() { "deleted" } else { &map.colour };
        recorded.lock().push(format!("{} {what}", map.meta.key));
        enqueue.add(&map.meta.key);
    };
    let cluster = TestCluster::new();
    let a_loop = Loop::deciding("test", |_, _: &Key| Plan::none())
        .enqueue_on::<ConfigMap>(enqueue_key)
        .reads_index::<ConfigMap>(BY_COLOUR);
    let running = cluster.start(Controller::new("test").with_loop(a_loop)).await;
    for (key, colour) in [("a/x", "red"), ("a/y", "red"), ("a/x", "blue")] {
        cluster.put(key, colour);
        settle().await;
    }
    cluster.remove("a/y");
    settle().await;
    assert_eq!(*handled.lock(), ["a/x red", "a/y red", "a/x blue", "a/y deleted"]);
    assert!(!cluster.has_panicked(), "no event handler found a stale index");
    running.stop().await;
}

/// Proves INF-39, INF-40.
#[tokio::test(start_paused = true)]
async fn late_event_handler_gets_every_object_once_and_can_be_removed() {
    let cluster = TestCluster::new();
    cluster.put("a/before", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let early = ChangeLog::at(&cache);
    cluster.put("a/while", "red");
    // The change above is in flight while the second handler is added.
    let late = ChangeLog::at(&cache);
    cluster.put("a/after", "red");
    settle().await;
    assert_eq!(early.take(), ["+a/before", "+a/while", "+a/after"]);
    assert_eq!(late.take(), ["+a/before", "+a/while", "+a/after"], "nothing missing, nothing twice");
    let removed: Arc<dyn EventHandler> = late.clone();
    cache.remove_event_handler(&removed);
    cluster.put("a/undelivered", "red");
    settle().await;
    assert_eq!(early.take(), ["+a/undelivered"]);
    assert_eq!(late.take(), [""; 0]);
}

/// Proves INF-45.
#[tokio::test(start_paused = true)]
async fn cache_is_synced_when_its_first_list_is_stored_and_delivered() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    cluster.tap.lag("configmaps");
    let cache = cluster.caches.cache(&KindEntry::of::<ConfigMap>());
    let log = ChangeLog::at(&cache);
    wait(HOUR / 60).await;
    assert_eq!(cluster.caches.unsynced(), ["configmaps"]);
    assert!(cache.is_empty(), "nothing is stored before the list is complete");
    cluster.tap.catch_up();
    cache.wait_for_sync().await;
    assert_eq!(cluster.caches.unsynced(), [""; 0]);
    assert_eq!((cache.len(), log.take()), (1, vec!["+a/x".to_owned()]), "delivered when it counts as synced");
}

/// Proves INF-46, RUN-56.
#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_all_caches_are_synced_or_after_an_abandoned_start() {
    let cluster = TestCluster::new();
    let hangs = cluster.faults.add(FaultRule::new(InjectedFault::Hang).target("/serviceaccounts"));
    let cut =
        tokio::time::timeout(HOUR / 60, cluster.start(keleustes_controllers::serviceaccount::controller()));
    assert!(cut.await.is_err(), "one of the two caches never syncs");
    cluster.faults.disable(hangs);
    wait(HOUR).await;
    assert_eq!(cluster.caches.unsynced(), [""; 0]);
    assert_eq!(cluster.writes(), [], "an abandoned start has started nothing");
    let running = cluster.start(keleustes_controllers::serviceaccount::controller()).await;
    settle().await;
    assert_eq!(cluster.writes().len(), 4, "one service account for each namespace");
    running.stop().await;
}

/// Proves INF-47, INF-49, RUN-45.
#[tokio::test(start_paused = true)]
async fn resync_delivers_every_object_again_without_a_request() {
    let cluster = TestCluster::resyncing(Some(HOUR));
    cluster.put("a/x", "red");
    cluster.put("a/y", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    assert_eq!(log.take(), ["+a/x", "+a/y"]);
    let began = tokio::time::Instant::now();
    while log.lines() < 2 {
        wait(Duration::from_secs(1)).await;
    }
    let period = began.elapsed();
    assert!(
        HOUR <= period && period <= 2 * HOUR + Duration::from_secs(1),
        "between once and twice the period: {period:?}"
    );
    assert_eq!(log.take(), ["=a/x", "=a/y"]);
    assert_eq!(cluster.reads("configmaps", "sendInitialEvents=true"), 1);

    // A relist delivers everything, too, and restarts the resync period.
    wait(period / 2).await;
    cluster.server.compact();
    cluster.server.expire_watches();
    wait(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["=a/x", "=a/y"]);
    wait(period - Duration::from_secs(180)).await;
    assert_eq!(cluster.reads("configmaps", "sendInitialEvents=true"), 2, "there was a relist");
    assert_eq!(log.take(), [""; 0], "more than a period, but not since the relist");
    wait(Duration::from_secs(240)).await;
    assert_eq!(log.take(), ["=a/x", "=a/y"]);
}

/// Proves INF-47, INF-49.
#[tokio::test(start_paused = true)]
async fn resync_period_is_at_least_a_second_and_zero_disables_it() {
    for (period, wanted) in [(Duration::from_millis(1), 10), (Duration::ZERO, 0)] {
        let cluster = TestCluster::resyncing(Some(period));
        cluster.put("a/x", "red");
        let log = ChangeLog::at(&cluster.synced_cache::<ConfigMap>().await);
        log.take();
        wait(Duration::from_millis(10_500)).await;
        assert_eq!(log.take().len(), wanted, "{period:?}");
    }
}

/// Proves INF-34, INF-35, INF-37, INF-143, INF-144.
#[tokio::test(start_paused = true)]
async fn relist_after_a_gap_delivers_every_object() {
    let cluster = TestCluster::new();
    for key in ["a/changed", "a/deleted", "a/kept"] {
        cluster.put(key, "red");
    }
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    log.take();
    let refused = InjectedFault::ConnectionError(ErrorKind::ConnectionRefused);
    let refused = cluster.faults.add(FaultRule::new(refused).target("/configmaps"));
    cluster.server.expire_watches();
    settle().await;
    cluster.remove("a/deleted");
    cluster.put("a/changed", "blue");
    cluster.put("a/added", "blue");
    cluster.server.compact();
    wait(Duration::from_secs(120)).await;
    assert_eq!((cache.len(), log.take().len()), (3, 0), "the server is unreachable, the cache is unchanged");
    cluster.faults.disable(refused);
    wait(Duration::from_secs(120)).await;
    assert_eq!(
        log.take(),
        ["-a/deleted", "+a/added", "~a/changed", "=a/kept"],
        "deletions first, unchanged objects as such"
    );
    assert_eq!(cache.len(), 3);
}

/// Proves INF-143.
#[tokio::test(start_paused = true)]
async fn watch_resumes_after_a_server_restart_without_relist() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    let refused = InjectedFault::ConnectionError(ErrorKind::ConnectionRefused);
    let refused = cluster.faults.add(FaultRule::new(refused).target("/configmaps"));
    let observed = cache.resource_version();
    wait(Duration::from_secs(2)).await;
    cluster.server.cut_watches();
    cluster.put("a/meanwhile", "red");
    wait(Duration::from_secs(90)).await;
    assert!(cluster.faults.hits(refused) > 2, "it keeps retrying");
    assert_eq!(log.take(), ["+a/x"]);
    cluster.faults.disable(refused);
    wait(Duration::from_secs(90)).await;
    assert_eq!(log.take(), ["+a/meanwhile"]);
    assert_eq!(cluster.reads("configmaps", "sendInitialEvents"), 1, "no relist");
    assert_eq!(
        cluster.reads("configmaps", &format!("resourceVersion={observed}&")),
        1,
        "from the last observed resourceVersion"
    );
}

/// Proves INF-29, INF-142.
#[tokio::test(start_paused = true)]
async fn bookmarks_alone_keep_a_cache_current() {
    let cluster = TestCluster::new();
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    for _ in 0..30 {
        cluster
            .server
            .seed(serde_json::json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "elsewhere"}}))
            .unwrap();
        // The server sends a bookmark every minute.
        wait(Duration::from_secs(62)).await;
        assert_eq!(cache.resource_version().to_string(), cluster.server.resource_version().to_string());
    }
    assert_eq!(log.take(), [""; 0], "no change is delivered");
    assert!(*log.bookmarks.lock() >= 31, "but every bookmark, and the empty list at the start");
    assert_eq!(cluster.reads("configmaps", "sendInitialEvents=true"), 1);
    let gauge = r#"informer_store_resource_version{group="",name="kube-controller-manager",resource="configmaps",version="v1"}"#;
    assert!(cluster.metric(&format!("{gauge} {}", cluster.server.resource_version())));
}

/// Proves INF-43.
#[tokio::test(start_paused = true)]
async fn filter_on_old_and_new_state_distinguishes_entering_from_exiting() {
    fn is_red(map: &Arc<ConfigMap>) -> bool {
        map.colour == "red"
    }
    fn enqueue_key(change: &Change<ConfigMap>, _: &View<'_>, enqueue: &mut Effects) {
        let (was, is) = (change.old().is_some_and(is_red), change.new().is_some_and(is_red));
        let key = &change.latest().meta.key;
        match (was, is) {
            (false, true) => enqueue.add(Key::namespaced("entered", &*key.name)),
            (true, false) => enqueue.add(Key::namespaced("left", &*key.name)),
            (true, true) => enqueue.add(Key::namespaced("stayed", &*key.name)),
            (false, false) => {}
        }
    }
    let cluster = TestCluster::new();
    cluster.put("a/late", "red");
    let enqueued = Arc::new(Mutex::new(Vec::new()));
    let recorded = enqueued.clone();
    let reconcile_with = reconcile_with(move |_, item| {
        recorded.lock().push(item.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let a_loop = Loop::reconciling("test", reconcile_with).enqueue_on::<ConfigMap>(enqueue_key);
    let running = cluster.start(Controller::new("test").with_loop(a_loop)).await;
    for colour in ["blue", "green", "red", "red ", "red"] {
        cluster.put("a/x", colour);
        settle().await;
    }
    cluster.server.seed(config_map("a/x", "red")).unwrap();
    settle().await;
    cluster.remove("a/x");
    settle().await;
    cluster.put("a/x", "blue");
    settle().await;
    cluster.remove("a/x");
    settle().await;
    let wanted = ["entered/late", "entered/x", "left/x", "entered/x", "stayed/x", "left/x"];
    assert_eq!(*enqueued.lock(), wanted);
    running.stop().await;
}

/// Panics over one key.
struct PanickingHandler(Mutex<usize>);

impl EventHandler for PanickingHandler {
    fn on_changes(&self, changes: &[AnyChange]) {
        *self.0.lock() += changes.len();
        assert!(changes.iter().all(|change| change.meta().unwrap().key.name != "odd"));
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_event_handler_does_not_affect_others() {
    let cluster = TestCluster::new();
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let panicking = Arc::new(PanickingHandler(Mutex::default()));
    cache.add_event_handler(panicking.clone());
    let log = ChangeLog::at(&cache);
    for key in ["a/x", "a/odd", "a/y"] {
        cluster.put(key, "red");
    }
    settle().await;
    assert_eq!(log.take(), ["+a/x", "+a/odd", "+a/y"]);
    assert_eq!(*panicking.0.lock(), 3, "it still receives later changes");
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="event-handler"} 1"#));
}

/// Proves INF-148.
#[tokio::test(start_paused = true)]
async fn undecodable_object_is_left_out_and_counted() {
    let cluster = TestCluster::new();
    cluster.put("a/before", "red");
    cluster.put("a/in-the-list", UNREADABLE);
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    cluster.put("a/in-the-watch", UNREADABLE);
    settle().await;
    assert_eq!(
        cache.resource_version().to_string(),
        cluster.server.resource_version().to_string(),
        "the cache does not wait for it"
    );
    cluster.put("a/after", "red");
    settle().await;
    assert_eq!(log.take(), ["+a/before", "+a/after"]);
    assert!(cluster.metric(r#"keleustes_undecodable_objects_total{group="",resource="configmaps"} 2"#));
    cluster.put("a/in-the-list", "fixed");
    settle().await;
    assert_eq!(log.take(), ["+a/in-the-list"]);
}

/// A Lease whose holder decides whether it can be decoded; it is watched in protobuf.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "LeaseWire")]
struct HeldLease {
    meta: ObjectMeta,
}

#[derive(Deserialize)]
struct LeaseWire {
    metadata: WireMeta,
    spec: LeaseSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: String,
}

impl TryFrom<LeaseWire> for HeldLease {
    type Error = &'static str;

    fn try_from(wire: LeaseWire) -> Result<Self, &'static str> {
        let is_readable = wire.spec.holder_identity != UNREADABLE;
        is_readable.then(|| Self { meta: wire.metadata.into() }).ok_or("unreadable")
    }
}

static HELD_LEASE: LazyLock<Message> =
    LazyLock::new(|| Message::of(&HeldLease::RESOURCE, "spec { holderIdentity }"));

impl Object for HeldLease {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&HELD_LEASE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for HeldLease {
    const RESOURCE: Resource = Resource::built_in("coordination.k8s.io", "Lease");
}

/// A protobuf record with content of less than 128 bytes.
fn record(field: u8, content: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// A frame of a protobuf watch: an event with a Lease of this metadata and holder.
fn lease_event(event: &str, metadata: &[u8], holder: &str) -> Bytes {
    let type_meta = [record(1, b"coordination.k8s.io/v1"), record(2, b"Lease")].concat();
    let lease = [record(1, metadata), record(2, &record(1, holder.as_bytes()))].concat();
    let envelope = [b"k8s\0".to_vec(), record(1, &type_meta), record(2, &lease)].concat();
    let event = [record(1, event.as_bytes()), record(2, &record(1, &envelope))].concat();
    [u32::try_from(event.len()).unwrap().to_be_bytes().as_slice(), &event].concat().into()
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_undecodable_protobuf_object_removes_it_from_the_cache() {
    let (server, events) = futures::channel::mpsc::unbounded::<Bytes>();
    let events = Mutex::new(Some(events));
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let events = events.lock().take().expect("one watch, and no relist");
        let body = StreamBody::new(events.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
        let media_type = "application/vnd.kubernetes.protobuf;stream=watch";
        let response = http::Response::builder().header(http::header::CONTENT_TYPE, media_type);
        std::future::ready(Ok::<_, Infallible>(response.body(body).unwrap()))
    });
    let TestCluster { metrics, context, .. } = TestCluster::new();
    let client = kube::Client::new(service, "default");
    let caches = Caches::new(client, context.clocks, context.random, metrics, None);
    let cache = caches.cache(&KindEntry::of::<HeldLease>());
    let log = ChangeLog::at(&cache);
    let metadata = |version: &str| {
        [record(1, b"x"), record(3, b"a"), record(5, b"u"), record(6, version.as_bytes())].concat()
    };
    let end = [record(1, b"k8s.io/initial-events-end"), record(2, b"true")].concat();
    let end = [record(6, b"2"), record(12, &end)].concat();
    for (event, metadata, holder, changes) in [
        ("ADDED", metadata("1"), "red", ""),
        ("BOOKMARK", end, "", "+a/x"),
        ("MODIFIED", metadata("3"), UNREADABLE, ""),
        ("DELETED", metadata("4"), UNREADABLE, "-a/x"),
    ] {
        server.unbounded_send(lease_event(event, &metadata, holder)).unwrap();
        settle().await;
        assert_eq!(log.take().concat(), changes, "{event}");
    }
    assert!(cache.is_empty());
    assert_eq!(cache.resource_version().to_string(), "4");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_undecodable_object_removes_it_from_the_cache() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    assert_eq!(log.take(), ["+a/x"]);
    cluster.put("a/x", UNREADABLE);
    settle().await;
    assert_eq!((log.lines(), cache.len()), (0, 1), "the last readable state stays");
    cluster.remove("a/x");
    settle().await;
    assert_eq!(log.take(), ["-a/x"], "handlers receive the deletion of the last readable state");
    assert!(cache.is_empty());
    assert_eq!(cluster.reads("configmaps", "watch=true"), 1, "without a relist");
}

/// An index that panics is a bug; it may affect the object it panics over, but not the cache.
#[tokio::test(start_paused = true)]
async fn index_that_panics_over_one_object_does_not_end_the_cache() {
    const PANICKING: Index<ConfigMap> =
        Index { name: "fragile", values: |map, _| assert!(map.colour != "odd", "an odd colour") };
    let cluster = TestCluster::new();
    let a_loop = Loop::deciding("test", |_, _: &Key| Plan::none()).reads_index::<ConfigMap>(PANICKING);
    prepare([&Controller::new("test").with_loop(a_loop)], &cluster.caches);
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let log = ChangeLog::at(&cache);
    cluster.put("a/x", "odd");
    cluster.put("a/y", "red");
    settle().await;
    assert_eq!(log.take(), ["+a/y"]);
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="cache"} 1"#));
    cluster.put("a/x", "red");
    settle().await;
    assert_eq!(log.take(), ["+a/x"]);
}

/// Proves INF-133, INF-135.
#[tokio::test(start_paused = true)]
async fn cache_metrics_report_resource_version_and_latency() {
    /// Checks the queued items during delivery.
    struct CheckingHandler(TestCluster);
    impl EventHandler for CheckingHandler {
        fn on_changes(&self, changes: &[AnyChange]) {
            if !changes.is_empty() {
                let labels =
                    r#"{group="",name="kube-controller-manager",resource="configmaps",version="v1"}"#;
                assert!(self.0.metric(&format!("informer_queued_items{labels} {}", changes.len())));
            }
        }
    }
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    cluster.put("a/y", "red");
    let cache = cluster.caches.cache(&KindEntry::of::<ConfigMap>());
    let (metrics, server) = (cluster.metrics.clone(), cluster.server.clone());
    cache.add_event_handler(Arc::new(CheckingHandler(cluster)));
    cache.wait_for_sync().await;
    server.seed(config_map("a/z", "red")).unwrap();
    server.send_bookmarks();
    settle().await;
    let labels = r#"group="",name="kube-controller-manager",resource="configmaps",version="v1""#;
    let text = metrics.text();
    let version = server.resource_version();
    let mut wanted = vec![
        format!("informer_queued_items{{{labels}}} 0"),
        format!("informer_store_resource_version{{{labels}}} {version}"),
        format!("informer_processing_latency_seconds_count{{{labels}}} 2"),
    ];
    for le in ["0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]
    {
        wanted.push(format!("informer_processing_latency_seconds_bucket{{{labels},le=\"{le}\"}} 2"));
    }
    for line in wanted {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert!(!has_panicked(&text), "the number of queued items was right");
}

/// Proves RUN-79.
#[tokio::test(start_paused = true)]
async fn stop_ends_all_watches_and_keeps_cached_objects() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    assert_eq!(cluster.server.open_watches(), 1);
    cluster.caches.stop().await;
    assert_eq!((cluster.server.open_watches(), cache.len()), (0, 1));
}
