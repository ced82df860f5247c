//! How items are worked on: contained, retried, revisited, one at a time, and stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault};
use keleustes_objects::{ApiError, ErrorReason, Key, Namespace, ServiceAccount};
use keleustes_plan::{
    Change, Controller, Enqueue, Grant, Item, Loop, Plan, ReconcileError, Requeue, View, Write,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::world::{ConfigMap, World, act, on_config_maps, settle, wait};

const GRANTS: &[Grant] =
    &[Grant { group: "", resource: "configmaps", verbs: &["create", "update", "get", "delete"] }];

fn controller(a_loop: Loop) -> Controller {
    Controller::new("test").may_write(GRANTS).with_loop(a_loop)
}

/// Notes when each item was worked on, in milliseconds since the start.
#[derive(Clone)]
struct Diary {
    began: Instant,
    turns: Arc<Mutex<Vec<(String, u128)>>>,
}

impl Diary {
    fn new() -> Self {
        Self { began: Instant::now(), turns: Arc::default() }
    }

    fn note(&self, item: &Item) -> usize {
        let mut turns = self.turns.lock();
        turns.push((item.to_string(), self.began.elapsed().as_millis()));
        turns.iter().filter(|(there, _)| *there == item.to_string()).count()
    }

    /// The times of one item's turns.
    fn times(&self, item: &str) -> Vec<u128> {
        self.turns.lock().iter().filter(|(there, _)| there == item).map(|(_, at)| *at).collect()
    }

    fn items(&self) -> Vec<String> {
        self.turns.lock().iter().map(|(item, _)| item.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_begins_without_what_few_decisions_need() {
    let world = World::new();
    let slowly = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    world.faults.add(FaultRule::new(slowly).target("/configmaps?").times(1));
    world.put("default/there", "red");
    let knew = Arc::new(Mutex::new(Vec::new()));
    let note = knew.clone();
    let decide = move |view: &View<'_>, _: &Item| {
        let maps = view.store_if_synced::<ConfigMap>().map(|maps| maps.all().count());
        note.lock().push(maps);
        let mut plan = Plan::none();
        if maps.is_none() {
            plan.requeue_after(Duration::from_secs(1));
        }
        plan
    };
    let a_loop = Loop::deciding("test", decide)
        .enqueue_on::<Namespace>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .starts_without::<ConfigMap>();
    let began = Instant::now();
    let running = world.start(controller(a_loop)).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    wait(Duration::from_secs(10)).await;
    let knew = knew.lock().clone();
    assert_eq!(knew.first(), Some(&None), "not known is not the same as none");
    assert_eq!(knew.last(), Some(&Some(1)));
    running.stop().await;
}

/// Proves RUN-80.
#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_turn_of_one_item_and_is_tried_again() {
    let world = World::new();
    for key in ["a/bad", "a/good", "b/good"] {
        world.put(key, "red");
    }
    let diary = Diary::new();
    let notes = diary.clone();
    let a_loop = on_config_maps(move |_, item| {
        let turn = notes.note(item);
        assert!(item.name != "bad" || turn > 3, "a bug that shows for one object");
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = world.start(controller(a_loop)).await;
    wait(Duration::from_secs(10)).await;
    assert_eq!(diary.times("a/bad").len(), 4, "tried again until it goes well");
    assert_eq!(diary.times("a/bad")[1..], [5, 15, 35], "ever more slowly");
    for good in ["a/good", "b/good"] {
        assert_eq!(diary.times(good), [0], "not held up by it");
    }
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="test"} 3"#));
    assert_eq!(world.caches.unsynced(), [""; 0]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reading_what_was_not_declared_is_a_contained_panic() {
    let world = World::new();
    world.put("a/x", "red");
    let a_loop = Loop::deciding("test", |view, _| {
        let _ = view.all::<ServiceAccount>().count();
        Plan::none()
    });
    let a_loop = a_loop.enqueue_on::<ConfigMap>(|change, _, wakes| wakes.add(&change.latest().meta.key));
    let running = world.start(controller(a_loop)).await;
    settle().await;
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    running.stop().await;
}

/// Writing what was not declared ends the turn the same way, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn writing_what_was_not_declared_is_a_contained_panic() {
    let world = World::new();
    world.put("a/x", "red");
    let a_loop = Loop::deciding("test", |view, item| {
        view.get::<ConfigMap>(item).map_or_else(Plan::none, |map| Plan::of(Write::delete(&**map)))
    });
    let a_loop = a_loop.enqueue_on::<ConfigMap>(|change, _, wakes| wakes.add(&change.latest().meta.key));
    let running = world.start(Controller::new("test").with_loop(a_loop)).await;
    settle().await;
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    assert_eq!(world.writes(), []);
    running.stop().await;
}

/// A list of a thousand objects has one that a wake-up panics over; all others wake their items.
#[tokio::test(start_paused = true)]
async fn a_wake_up_that_panics_over_one_object_loses_no_other() {
    fn wake(change: &Change<ConfigMap>, _: &View<'_>, wakes: &mut Enqueue) {
        let key = &change.latest().meta.key;
        assert!(key.name != "n0500", "a bug that shows for one object");
        wakes.add(key);
    }
    let world = World::new();
    for n in 0..2500 {
        world.put(&format!("a/n{n:04}"), "red");
    }
    let diary = Diary::new();
    let notes = diary.clone();
    let act = act(move |_, item| {
        notes.note(item);
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = world.start(controller(Loop::reconciling("test", act).enqueue_on::<ConfigMap>(wake))).await;
    settle().await;
    assert_eq!(diary.items().len(), 2499);
    assert!(world.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    world.put("a/n0501", "blue");
    settle().await;
    assert_eq!(diary.items().len(), 2500, "and it goes on hearing");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_item_is_dropped_after_its_retries_until_something_changes() {
    let world = World::new();
    world.put("a/x", "red");
    let diary = Diary::new();
    let notes = diary.clone();
    let a_loop = on_config_maps(move |_, item| {
        notes.note(item);
        Box::pin(async { Err(ReconcileError::because("it never works")) })
    });
    let running = world.start(controller(a_loop.max_retries(3))).await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(diary.times("a/x").len(), 4, "the first try and three more");
    world.put("a/x", "blue");
    wait(Duration::from_secs(3600)).await;
    assert_eq!(diary.times("a/x").len(), 8, "a change gives it all its retries back");
    assert!(world.metric(r#"workqueue_retries_total{name="test"} 6"#));
    running.stop().await;
}

/// When an item was tried that may fail three times more by its own fault, and of whose turns some meet an outage.
async fn tries_in(meets_outage: fn(usize) -> bool) -> Vec<u128> {
    let world = World::new();
    world.put("a/x", "red");
    let diary = Diary::new();
    let notes = diary.clone();
    let a_loop = on_config_maps(move |_, item| {
        let outage = ApiError::transport(ErrorReason::ConnectionRefused, "nobody there");
        let retry = if meets_outage(notes.note(item)) {
            ReconcileError::from_api_error(&outage, "an outage")
        } else {
            ReconcileError::because("its own fault")
        };
        Box::pin(async { Err(retry) })
    });
    let running = world.start(controller(a_loop.max_retries(3))).await;
    wait(Duration::from_secs(3600)).await;
    running.stop().await;
    diary.times("a/x")
}

/// The original gives up in an outage that lasts longer than the retries do, and nothing tells it later.
#[tokio::test(start_paused = true)]
async fn an_outage_uses_up_no_retries() {
    let tries = tries_in(|turn| turn <= 10).await;
    assert_eq!(tries.len(), 14, "ten in the outage, the first after it and three more");
}

/// An item that meets now an outage and now a refusal still waits longer from try to try.
#[tokio::test(start_paused = true)]
async fn outages_between_failures_do_not_make_waits_short_again() {
    let tries = tries_in(|turn| turn.is_multiple_of(2)).await;
    let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (gap, wanted) in gaps.iter().zip([5, 10, 20, 40, 80, 160]) {
        assert!((wanted..=wanted + 2).contains(gap), "{gaps:?}");
    }
    assert_eq!(gaps.len(), 6, "three outages, the first try and three more");
}

#[tokio::test(start_paused = true)]
async fn a_revisit_comes_at_its_time_and_success_forgets_failures() {
    let world = World::new();
    world.put("a/x", "red");
    let diary = Diary::new();
    let notes = diary.clone();
    let a_loop = on_config_maps(move |_, item| {
        let turn = notes.note(item);
        Box::pin(async move {
            match turn {
                2 | 4 => Err(ReconcileError::because("not yet")),
                6 => Ok(Requeue::Forget),
                _ => Ok(Requeue::After(Duration::from_secs(10))),
            }
        })
    });
    let running = world.start(controller(a_loop)).await;
    wait(Duration::from_secs(3600)).await;
    let times = diary.times("a/x");
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let wanted = [10_000, 5, 10_000, 5, 10_000];
    for (gap, wanted) in gaps.iter().zip(wanted) {
        assert!((wanted..=wanted + 2).contains(gap), "{gaps:?}");
    }
    assert_eq!(gaps.len(), 5, "and then no more");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_calm_gets_it() {
    let world = World::new();
    world.server.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})).unwrap();
    let id =
        world.faults.add(FaultRule::new(InjectedFault::too_many_requests(30)).method(Method::POST).times(1));
    let a_loop = Loop::deciding("test", |view, item| {
        let key = Key::namespaced("a", "made");
        let body = json!({"metadata": {"name": "made"}});
        let wanted = item.name == "a" && view.get::<ConfigMap>(&key).is_none();
        if wanted { Plan::of(Write::create::<ConfigMap>(key, body)) } else { Plan::none() }
    });
    let a_loop = a_loop
        .enqueue_on::<Namespace>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .reads::<ConfigMap>();
    let running = world.start(controller(a_loop)).await;
    wait(Duration::from_millis(29_900)).await;
    assert_eq!((world.faults.hits(id), world.writes().len()), (1, 0));
    wait(Duration::from_secs(1)).await;
    assert_eq!(world.writes().len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_start_replays_what_is_there() {
    let world = World::new();
    world.filled::<ConfigMap>().await;
    for key in ["a/x", "a/y"] {
        world.put(key, "red");
    }
    world.remove("a/x");
    settle().await;
    let diary = Diary::new();
    let notes = diary.clone();
    let a_loop = on_config_maps(move |_, item| {
        notes.note(item);
        Box::pin(async { Ok(Requeue::Forget) })
    });
    let running = world.start(controller(a_loop)).await;
    settle().await;
    assert_eq!(diary.items(), ["a/y"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_work_under_way_in_order_and_takes_up_no_more() {
    let world = World::new();
    for n in 0..10 {
        world.put(&format!("a/n{n}"), "red");
    }
    let (diary, ended) = (Diary::new(), Arc::new(AtomicUsize::new(0)));
    let (notes, counter) = (diary.clone(), ended.clone());
    let a_loop = on_config_maps(move |_, item| {
        notes.note(item);
        let ended = counter.clone();
        Box::pin(async move {
            wait(Duration::from_secs(60)).await;
            ended.fetch_add(1, Ordering::Relaxed);
            Ok(Requeue::After(Duration::from_secs(1)))
        })
    });
    let running = world.start(controller(a_loop.workers(2))).await;
    wait(Duration::from_secs(10)).await;
    let began = Instant::now();
    running.stop().await;
    assert_eq!(began.elapsed().as_secs(), 50, "as long as the work under way took");
    assert_eq!(ended.load(Ordering::Relaxed), 2, "nothing was cut off");
    world.put("a/late", "red");
    wait(Duration::from_secs(600)).await;
    assert_eq!(diary.items().len(), 2, "eight were queued, one came late; none was taken up");
    assert!(world.metric(r#"workqueue_unfinished_work_seconds{name="test"} 0"#), "the queue is gone");
}

#[tokio::test(start_paused = true)]
async fn an_item_is_never_with_two_workers() {
    let world = World::new();
    let under_way = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let (most, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (busy, peak, counter) = (under_way.clone(), most.clone(), turns.clone());
    let a_loop = on_config_maps(move |_, item| {
        let (busy, peak, item) = (busy.clone(), peak.clone(), item.to_string());
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let now = {
                let mut busy = busy.lock();
                *busy.entry(item.clone()).or_default() += 1;
                assert_eq!(busy[&item], 1, "{item} is worked on twice at once");
                busy.values().sum()
            };
            peak.fetch_max(now, Ordering::Relaxed);
            wait(Duration::from_millis(70)).await;
            *busy.lock().get_mut(&item).unwrap() -= 1;
            Ok(Requeue::Forget)
        })
    });
    let running = world.start(controller(a_loop.workers(8))).await;
    for round in 0..50 {
        for n in 0..3 {
            world.put(&format!("a/n{n}"), &round.to_string());
        }
        wait(Duration::from_millis(20)).await;
    }
    wait(Duration::from_secs(1)).await;
    assert_eq!(most.load(Ordering::Relaxed), 3, "different items go side by side");
    assert!(!world.metrics.text().contains("keleustes_sync_panics_total{"));
    assert!(turns.load(Ordering::Relaxed) >= 3 * 14, "changes during a turn lead to another one");
    running.stop().await;
}

/// A change that comes while its item is being worked on is not lost.
#[tokio::test(start_paused = true)]
async fn the_last_state_is_always_looked_at() {
    let world = World::new();
    world.put("a/x", "first");
    let (go_on, seen) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (signal, notes) = (go_on.clone(), seen.clone());
    let a_loop = on_config_maps(move |cx, item| {
        let colour = cx.gather(|view| view.get::<ConfigMap>(item).map(|map| map.colour.clone()));
        notes.lock().push(colour.unwrap_or_default());
        let signal = signal.clone();
        Box::pin(async move {
            signal.notified().await;
            Ok(Requeue::Forget)
        })
    });
    let running = world.start(controller(a_loop)).await;
    settle().await;
    world.put("a/x", "second");
    world.put("a/x", "third");
    settle().await;
    go_on.notify_one();
    settle().await;
    go_on.notify_one();
    settle().await;
    assert_eq!(*seen.lock(), ["first", "third"]);
    running.stop().await;
}

/// Two loops look at the same two kinds, declared the other way round, while both kinds change. With
/// tables locked in the order of declaration this ends in a standstill within moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loops_that_read_the_same_kinds_in_any_order_never_wait_for_each_other() {
    fn decide(view: &View<'_>, _: &Item) -> Plan {
        assert!(view.all::<ConfigMap>().count() + view.all::<ServiceAccount>().count() > 0);
        Plan::none()
    }
    let world = World::around(ApiServer::default(), None);
    let one = Loop::deciding("one", decide)
        .enqueue_on::<ConfigMap>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .enqueue_on::<ServiceAccount>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .workers(4);
    let two = Loop::deciding("two", decide)
        .enqueue_on::<ServiceAccount>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .enqueue_on::<ConfigMap>(|change, _, wakes| wakes.add(&change.latest().meta.key))
        .workers(4);
    let running = world.start(Controller::new("test").with_loop(one).with_loop(two)).await;
    let server = &world.server;
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
    written.await.expect("the server takes writes");
    let version = server.resource_version().to_string();
    let caught_up = async {
        let cache = world.filled::<ServiceAccount>().await;
        while cache.resource_version().to_string() != version {
            server.send_bookmarks();
            wait(Duration::from_millis(5)).await;
        }
        running.stop().await;
    };
    tokio::time::timeout(Duration::from_secs(60), caught_up).await.expect("nobody waits for ever");
    assert!(!world.metrics.text().contains("keleustes_sync_panics_total{"));
}
