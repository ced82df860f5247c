//! What caches promise to those who read them and listen to them.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{FaultRule, InjectedFault, LoggedRequest};
use keleustes_objects::{InternedStr, Key, Namespace, ServiceAccount};
use keleustes_plan::{
    AnyChange, Change, Controller, Enqueue, Index, Item, KindEntry, Loop, Plan, Requeue, View,
};
use keleustes_runtime::caches::EventHandler;
use keleustes_runtime::loops::prepare;
use parking_lot::Mutex;

use crate::world::{ConfigMap, Notebook, UNREADABLE, World, act, config_map, settle, wait};

const HOUR: Duration = Duration::from_secs(3600);

/// Proves INF-1, INF-12, INF-50, RUN-46.
#[tokio::test(start_paused = true)]
async fn a_kind_is_read_once_however_many_ask_for_it_and_however_long() {
    let world = World::new();
    let controller = |name| {
        let decides_nothing = |_: &View<'_>, _: &Item| Plan::none();
        let a_loop =
            || Loop::deciding("test", decides_nothing).reads::<Namespace>().reads::<ServiceAccount>();
        Controller::new(name).with_loop(a_loop()).with_loop(a_loop())
    };
    let one = world.start(controller("one")).await;
    let two = world.start(controller("two")).await;
    for kind in ["namespaces", "serviceaccounts"] {
        assert_eq!(world.reads(kind, "sendInitialEvents=true"), 1, "one initial state of {kind}");
        assert_eq!(world.reads(kind, "watch=true"), 1, "and the same watch goes on");
        assert_eq!(world.reads(kind, "Selector"), 0);
    }
    let everywhere = |request: &LoggedRequest| !request.target.contains("/namespaces/");
    assert!(world.server.requests().iter().all(everywhere), "all of the cluster in one request");
    wait(24 * HOUR).await;
    assert_eq!(world.reads("namespaces", "sendInitialEvents=true"), 1, "no periodic list");
    assert!(world.reads("namespaces", "watch=true") >= 24 * 6, "watches end in time and are taken up again");
    one.stop().await;
    two.stop().await;
}

/// Proves INF-30, INF-31.
#[tokio::test(start_paused = true)]
async fn changes_are_told_one_by_one_in_order_after_the_table_holds_them() {
    let world = World::new();
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    for colour in ["red", "green", "blue"] {
        world.put("a/x", colour);
        world.put("a/y", colour);
    }
    world.remove("a/x");
    world.put("a/x", "again");
    settle().await;
    let wanted = ["+a/x", "+a/y", "~a/x", "~a/y", "~a/x", "~a/y", "-a/x", "+a/x"];
    assert_eq!(notebook.take(), wanted, "nothing is folded together, nothing overtakes");
}

const BY_COLOUR: Index<ConfigMap> =
    Index { name: "colour", values: |map, emit| emit(InternedStr::from(&*map.colour)) };

/// Proves INF-31.
#[tokio::test(start_paused = true)]
async fn a_wake_up_sees_indexes_that_hold_the_change() {
    fn wake(change: &Change<ConfigMap>, view: &View<'_>, wakes: &mut Enqueue) {
        let map = change.latest();
        let found =
            view.store::<ConfigMap>().by_index(&BY_COLOUR, &map.colour).any(|there| there.meta == map.meta);
        assert_eq!(found, !change.is_deletion(), "{} in the index", map.meta.key);
        wakes.add(&map.meta.key);
    }
    let world = World::new();
    let a_loop = Loop::deciding("test", |_, _| Plan::none())
        .enqueue_on::<ConfigMap>(wake)
        .reads_index::<ConfigMap>(BY_COLOUR);
    let running = world.start(Controller::new("test").with_loop(a_loop)).await;
    for (key, colour) in [("a/x", "red"), ("a/y", "red"), ("a/x", "blue")] {
        world.put(key, colour);
    }
    world.remove("a/y");
    settle().await;
    assert!(
        world.metric(r#"workqueue_adds_total{name="test"} 4"#) || world.metrics.text().contains("adds_total")
    );
    assert!(!world.metrics.text().contains("keleustes_sync_panics_total{"), "no wake-up found an old index");
    running.stop().await;
}

/// Proves INF-39, INF-40.
#[tokio::test(start_paused = true)]
async fn a_listener_that_comes_late_gets_everything_once_and_can_leave() {
    let world = World::new();
    world.put("a/before", "red");
    let cache = world.filled::<ConfigMap>().await;
    let early = Notebook::at(&cache);
    world.put("a/while", "red");
    // The change above is on its way while the second listener comes.
    let late = Notebook::at(&cache);
    world.put("a/after", "red");
    settle().await;
    assert_eq!(early.take(), ["+a/before", "+a/while", "+a/after"]);
    assert_eq!(late.take(), ["+a/before", "+a/while", "+a/after"], "no gap, nothing twice");
    let leaving: Arc<dyn EventHandler> = late.clone();
    cache.remove_event_handler(&leaving);
    world.put("a/unheard", "red");
    settle().await;
    assert_eq!(early.take(), ["+a/unheard"]);
    assert_eq!(late.take(), [""; 0]);
}

/// Proves INF-45.
#[tokio::test(start_paused = true)]
async fn a_cache_has_synced_when_its_first_list_is_in_and_told() {
    let world = World::new();
    world.put("a/x", "red");
    world.tap.lag("configmaps");
    let cache = world.caches.cache(&KindEntry::of::<ConfigMap>());
    let notebook = Notebook::at(&cache);
    wait(HOUR / 60).await;
    assert_eq!(world.caches.unsynced(), ["configmaps"]);
    assert!(cache.is_empty(), "nothing is stored before the list is whole");
    world.tap.catch_up();
    cache.wait_for_sync().await;
    assert_eq!(world.caches.unsynced(), [""; 0]);
    assert_eq!((cache.len(), notebook.take()), (1, vec!["+a/x".to_owned()]), "told when it counts as synced");
}

/// Proves INF-46, RUN-56.
#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_all_caches_are_filled_and_none_when_the_wait_is_cut() {
    let world = World::new();
    let hangs = world.faults.add(FaultRule::new(InjectedFault::Hang).target("/serviceaccounts"));
    let cut =
        tokio::time::timeout(HOUR / 60, world.start(keleustes_controllers::serviceaccount::controller()));
    assert!(cut.await.is_err(), "one of the two caches never fills");
    world.faults.disable(hangs);
    wait(HOUR).await;
    assert_eq!(world.caches.unsynced(), [""; 0]);
    assert_eq!(world.writes(), [], "whoever gave up waiting has started nothing");
    let running = world.start(keleustes_controllers::serviceaccount::controller()).await;
    settle().await;
    assert_eq!(world.writes().len(), 4, "one account for each namespace");
    running.stop().await;
}

/// Proves INF-47, INF-49, RUN-45.
#[tokio::test(start_paused = true)]
async fn a_resync_shows_every_object_again_without_a_request() {
    let world = World::resyncing(Some(HOUR));
    world.put("a/x", "red");
    world.put("a/y", "red");
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    assert_eq!(notebook.take(), ["+a/x", "+a/y"]);
    let began = tokio::time::Instant::now();
    while notebook.lines() < 2 {
        wait(Duration::from_secs(1)).await;
    }
    let period = began.elapsed();
    assert!(
        HOUR <= period && period <= 2 * HOUR + Duration::from_secs(1),
        "drawn between once and twice: {period:?}"
    );
    assert_eq!(notebook.take(), ["=a/x", "=a/y"]);
    assert_eq!(world.reads("configmaps", "sendInitialEvents=true"), 1);

    // A new initial state restarts the time.
    wait(period / 2).await;
    world.server.compact();
    world.server.expire_watches();
    wait(period - Duration::from_secs(120)).await;
    assert_eq!(world.reads("configmaps", "sendInitialEvents=true"), 2, "there was a new list");
    assert_eq!(notebook.take(), [""; 0], "half a period and nearly a whole one, but not since the list");
    wait(Duration::from_secs(240)).await;
    assert_eq!(notebook.take(), ["=a/x", "=a/y"]);
}

/// Proves INF-47, INF-49.
#[tokio::test(start_paused = true)]
async fn a_resync_is_never_faster_than_a_second_and_zero_is_never() {
    for (period, wanted) in [(Duration::from_millis(1), 10), (Duration::ZERO, 0)] {
        let world = World::resyncing(Some(period));
        world.put("a/x", "red");
        let notebook = Notebook::at(&world.filled::<ConfigMap>().await);
        notebook.take();
        wait(Duration::from_millis(10_500)).await;
        assert_eq!(notebook.take().len(), wanted, "{period:?}");
    }
}

/// Proves INF-34, INF-35, INF-143.
#[tokio::test(start_paused = true)]
async fn after_a_gap_differences_are_told_and_nothing_else() {
    let world = World::new();
    for key in ["a/changed", "a/gone", "a/kept"] {
        world.put(key, "red");
    }
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    notebook.take();
    let refused = InjectedFault::ConnectionError(ErrorKind::ConnectionRefused);
    let refused = world.faults.add(FaultRule::new(refused).target("/configmaps"));
    world.server.expire_watches();
    settle().await;
    world.remove("a/gone");
    world.put("a/changed", "blue");
    world.put("a/added", "blue");
    world.server.compact();
    wait(Duration::from_secs(120)).await;
    assert_eq!((cache.len(), notebook.take().len()), (3, 0), "the server is away, the cache stays as it was");
    world.faults.disable(refused);
    wait(Duration::from_secs(120)).await;
    assert_eq!(
        notebook.take(),
        ["-a/gone", "+a/added", "~a/changed"],
        "deletions first, the unchanged not at all"
    );
    assert_eq!(cache.len(), 3);
}

/// Proves INF-143.
#[tokio::test(start_paused = true)]
async fn a_restarted_server_is_waited_for_and_the_watch_goes_on_where_it_was() {
    let world = World::new();
    world.put("a/x", "red");
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    let refused = InjectedFault::ConnectionError(ErrorKind::ConnectionRefused);
    let refused = world.faults.add(FaultRule::new(refused).target("/configmaps"));
    let seen = cache.resource_version();
    wait(Duration::from_secs(2)).await;
    world.server.cut_watches();
    world.put("a/meanwhile", "red");
    wait(Duration::from_secs(90)).await;
    assert!(world.faults.hits(refused) > 2, "it keeps trying");
    assert_eq!(notebook.take(), ["+a/x"]);
    world.faults.disable(refused);
    wait(Duration::from_secs(90)).await;
    assert_eq!(notebook.take(), ["+a/meanwhile"]);
    assert_eq!(world.reads("configmaps", "sendInitialEvents"), 1, "no new list");
    assert_eq!(
        world.reads("configmaps", &format!("resourceVersion={seen}&")),
        1,
        "from the last seen version"
    );
}

/// Proves INF-29, INF-142.
#[tokio::test(start_paused = true)]
async fn bookmarks_alone_keep_a_cache_fresh() {
    let world = World::new();
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    for _ in 0..30 {
        world
            .server
            .seed(serde_json::json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "elsewhere"}}))
            .unwrap();
        // The server sends a bookmark every minute.
        wait(Duration::from_secs(62)).await;
        assert_eq!(cache.resource_version().to_string(), world.server.resource_version().to_string());
    }
    assert_eq!(notebook.take(), [""; 0], "nobody is told of a change");
    assert!(*notebook.bookmarks.lock() >= 31, "but of every step, and of the empty list at the start");
    assert_eq!(world.reads("configmaps", "sendInitialEvents=true"), 1);
    let gauge = r#"informer_store_resource_version{group="",name="kube-controller-manager",resource="configmaps",version="v1"}"#;
    assert!(world.metric(&format!("{gauge} {}", world.server.resource_version())));
}

/// Proves INF-43.
#[tokio::test(start_paused = true)]
async fn a_filter_on_both_states_tells_entering_from_leaving() {
    fn is_red(map: &Arc<ConfigMap>) -> bool {
        map.colour == "red"
    }
    fn wake(change: &Change<ConfigMap>, _: &View<'_>, wakes: &mut Enqueue) {
        let (was, is) = (change.old().is_some_and(is_red), change.new().is_some_and(is_red));
        let key = &change.latest().meta.key;
        match (was, is) {
            (false, true) => wakes.add(Key::namespaced("entered", &*key.name)),
            (true, false) => wakes.add(Key::namespaced("left", &*key.name)),
            (true, true) => wakes.add(Key::namespaced("stayed", &*key.name)),
            (false, false) => {}
        }
    }
    let world = World::new();
    world.put("a/late", "red");
    let woken = Arc::new(Mutex::new(Vec::new()));
    let notes = woken.clone();
    let act = act(move |_, item| {
        notes.lock().push(item.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let a_loop = Loop::reconciling("test", act).enqueue_on::<ConfigMap>(wake);
    let running = world.start(Controller::new("test").with_loop(a_loop)).await;
    for colour in ["blue", "green", "red", "red ", "red"] {
        world.put("a/x", colour);
        settle().await;
    }
    world.server.seed(config_map("a/x", "red")).unwrap();
    settle().await;
    world.remove("a/x");
    settle().await;
    world.put("a/x", "blue");
    settle().await;
    world.remove("a/x");
    settle().await;
    let wanted = ["entered/late", "entered/x", "left/x", "entered/x", "stayed/x", "left/x"];
    assert_eq!(*woken.lock(), wanted);
    running.stop().await;
}

/// Panics over what it is told, if it is told of one key.
struct Fragile(Mutex<usize>);

impl EventHandler for Fragile {
    fn on_changes(&self, changes: &[AnyChange]) {
        *self.0.lock() += changes.len();
        assert!(changes.iter().all(|change| change.meta().unwrap().key.name != "odd"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_keeps_nobody_from_hearing() {
    let world = World::new();
    let cache = world.filled::<ConfigMap>().await;
    let fragile = Arc::new(Fragile(Mutex::default()));
    cache.add_event_handler(fragile.clone());
    let notebook = Notebook::at(&cache);
    for key in ["a/x", "a/odd", "a/y"] {
        world.put(key, "red");
    }
    settle().await;
    assert_eq!(notebook.take(), ["+a/x", "+a/odd", "+a/y"]);
    assert_eq!(*fragile.0.lock(), 3, "it still hears of what comes after");
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="wake-up"} 1"#));
}

/// Proves INF-148.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out_and_counted() {
    let world = World::new();
    world.put("a/before", "red");
    world.put("a/in-the-list", UNREADABLE);
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    world.put("a/in-the-watch", UNREADABLE);
    settle().await;
    assert_eq!(
        cache.resource_version().to_string(),
        world.server.resource_version().to_string(),
        "nobody waits for it"
    );
    world.put("a/after", "red");
    settle().await;
    assert_eq!(notebook.take(), ["+a/before", "+a/after"]);
    assert!(world.metric(r#"keleustes_undecodable_objects_total{group="",resource="configmaps"} 2"#));
    world.put("a/in-the-list", "mended");
    settle().await;
    assert_eq!(notebook.take(), ["+a/in-the-list"]);
}

/// An index that panics is a bug; it may cost the object it panics over, but not the cache.
#[tokio::test(start_paused = true)]
async fn an_index_that_panics_over_one_object_does_not_end_the_cache() {
    const FRAGILE: Index<ConfigMap> =
        Index { name: "fragile", values: |map, _| assert!(map.colour != "odd", "an odd colour") };
    let world = World::new();
    let a_loop = Loop::deciding("test", |_, _| Plan::none()).reads_index::<ConfigMap>(FRAGILE);
    prepare(&Controller::new("test").with_loop(a_loop), &world.caches);
    let cache = world.filled::<ConfigMap>().await;
    let notebook = Notebook::at(&cache);
    world.put("a/x", "odd");
    world.put("a/y", "red");
    settle().await;
    assert_eq!(notebook.take(), ["+a/y"]);
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="cache"} 1"#));
    world.put("a/x", "red");
    settle().await;
    assert_eq!(notebook.take(), ["+a/x"]);
}

/// Proves INF-133, INF-135.
#[tokio::test(start_paused = true)]
async fn a_cache_tells_how_far_it_is_and_how_long_it_takes() {
    /// Takes its time.
    struct Slow(World);
    impl EventHandler for Slow {
        fn on_changes(&self, changes: &[AnyChange]) {
            if !changes.is_empty() {
                let labels =
                    r#"{group="",name="kube-controller-manager",resource="configmaps",version="v1"}"#;
                assert!(self.0.metric(&format!("informer_queued_items{labels} {}", changes.len())));
            }
        }
    }
    let world = World::new();
    world.put("a/x", "red");
    world.put("a/y", "red");
    let cache = world.caches.cache(&KindEntry::of::<ConfigMap>());
    let (metrics, server) = (world.metrics.clone(), world.server.clone());
    cache.add_event_handler(Arc::new(Slow(world)));
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
        assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("keleustes_sync_panics_total{"), "the number of queued items was as told");
}

/// Proves RUN-79.
#[tokio::test(start_paused = true)]
async fn stopping_ends_all_watches_and_leaves_what_is_cached() {
    let world = World::new();
    world.put("a/x", "red");
    let cache = world.filled::<ConfigMap>().await;
    assert_eq!(world.server.open_watches(), 1);
    world.caches.stop().await;
    assert_eq!((world.server.open_watches(), cache.len()), (0, 1));
}
