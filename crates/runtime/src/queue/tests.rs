//! The behaviour facts about work queues, one test each, on the rules and on the waiting.

use std::sync::atomic::{AtomicUsize, Ordering};

use keleustes_objects::Key;

use super::*;
use crate::metrics::Metrics;

const MS: Duration = Duration::from_millis(1);

fn item(name: &str) -> Item {
    Key::cluster(name).into()
}

fn core() -> Core {
    Core::new(RateLimiter::DEFAULT)
}

fn take(core: &mut Core) -> Option<String> {
    core.take(Duration::ZERO).map(|(item, _)| item.to_string())
}

/// Proves INF-55, INF-146, EPS-133.
#[test]
fn item_is_queued_once_and_never_processed_twice_at_a_time() {
    let mut core = core();
    assert!(core.add(item("a"), Duration::ZERO));
    assert!(!core.add(item("a"), Duration::ZERO), "queued already");
    assert_eq!(take(&mut core).as_deref(), Some("a"));
    assert!(core.add(item("a"), Duration::ZERO), "needs processing again");
    assert!(!core.add(item("a"), Duration::ZERO));
    assert_eq!(take(&mut core), None, "not while it is being processed");
    core.done(&item("a"), Duration::ZERO);
    assert_eq!(take(&mut core).as_deref(), Some("a"), "right after, without delay");
    core.done(&item("a"), Duration::ZERO);
    assert_eq!(take(&mut core), None);
}

/// Proves INF-56.
#[test]
fn items_are_handed_out_in_order_and_a_readded_one_goes_to_the_end() {
    let mut core = core();
    for name in ["b", "a", "c"] {
        core.add(item(name), Duration::ZERO);
    }
    assert_eq!(take(&mut core).as_deref(), Some("b"));
    core.add(item("b"), Duration::ZERO);
    core.done(&item("b"), Duration::ZERO);
    core.shut_down(false);
    assert!(!core.add(item("late"), Duration::ZERO), "ignored after shutdown");
    assert_eq!(
        [take(&mut core), take(&mut core), take(&mut core), take(&mut core)],
        [Some("a".into()), Some("c".into()), Some("b".into()), None]
    );
    assert!(core.is_finished());
}

/// Proves INF-57.
#[tokio::test(start_paused = true)]
async fn drain_hands_out_items_readded_during_processing_and_waits_for_their_end() {
    let queue = queue();
    queue.add(item("a"));
    let a = queue.next().await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    queue.add(item("new"));
    queue.add(a.clone());
    queue.done(&a);
    assert!(!draining.is_finished());
    let again = queue.next().await.unwrap();
    assert_eq!(again, a, "dirty items are handed out, new ones are not");
    queue.done(&again);
    draining.await.unwrap();
    assert_eq!(queue.next().await, None);
}

/// Proves INF-58.
#[test]
fn earliest_of_several_delays_counts_and_an_immediate_add_cancels_none() {
    let mut core = core();
    core.add_after(item("a"), 50 * MS, Duration::ZERO);
    core.add_after(item("a"), 20 * MS, Duration::ZERO);
    core.add_after(item("a"), 90 * MS, Duration::ZERO);
    assert_eq!(core.next_due(), Some(20 * MS));
    core.add(item("a"), Duration::ZERO);
    assert_eq!(take(&mut core).as_deref(), Some("a"));
    core.done(&item("a"), Duration::ZERO);
    assert_eq!(core.move_due(19 * MS), 0);
    assert_eq!(core.move_due(20 * MS), 1, "the delayed one is still added");
    assert_eq!(take(&mut core).as_deref(), Some("a"));
    assert_eq!(core.next_due(), None);
}

/// Proves INF-59, INF-60, INF-63.
#[test]
fn backoff_doubles_up_to_1000_seconds() {
    let mut core = core();
    let mut now = Duration::ZERO;
    let mut delays = Vec::new();
    for _ in 0..20 {
        core.add_rate_limited(item("a"), Duration::ZERO, now);
        let due = core.next_due().unwrap();
        delays.push((due - now).as_millis());
        now = due + Duration::from_secs(60);
        core.move_due(now);
        core.take(now);
        core.done(&item("a"), now);
    }
    let wanted: Vec<u128> = (0..20).map(|n| (5 << n).min(1_000_000)).collect();
    assert_eq!(delays, wanted);
    assert_eq!(core.failures(&item("a")), 20);
    core.add_rate_limited(item("a"), Duration::ZERO, now);
    core.forget(&item("a"));
    assert!(core.next_due().is_some(), "forgetting does not cancel the delayed item");
    assert_eq!(core.failures(&item("a")), 0);
}

/// Proves INF-61, INF-62.
#[test]
fn every_retry_takes_a_token_of_the_queue_wide_bucket() {
    let mut core = core();
    for n in 0..110 {
        core.add_rate_limited(item(&format!("i{n:03}")), Duration::ZERO, Duration::ZERO);
    }
    core.move_due(5 * MS);
    assert_eq!(core.running(5 * MS).depth, 100, "the burst passes immediately");
    core.move_due(105 * MS);
    assert_eq!(core.running(5 * MS).depth, 101, "then ten a second");
    core.move_due(1000 * MS);
    assert_eq!(core.running(5 * MS).depth, 110);
    // Other rate limiters are other numbers in the same rules.
    let mut slow =
        Core::new(RateLimiter { base_delay: 100 * MS, max_delay: 150 * MS, ..RateLimiter::DEFAULT });
    for wanted in [100, 150, 150] {
        slow.add_rate_limited(item("a"), Duration::ZERO, Duration::ZERO);
        assert_eq!(slow.next_due(), Some(wanted * MS));
        slow.move_due(Duration::from_secs(1));
        slow.take(Duration::ZERO);
        slow.done(&item("a"), Duration::ZERO);
    }
}

#[test]
fn thousand_adds_of_one_item_delay_another_by_one_reconcile() {
    let mut core = core();
    core.add(item("noisy"), Duration::ZERO);
    core.add(item("quiet"), Duration::ZERO);
    assert_eq!(take(&mut core).as_deref(), Some("noisy"));
    for _ in 0..1000 {
        core.add(item("noisy"), Duration::ZERO);
    }
    core.done(&item("noisy"), Duration::ZERO);
    assert_eq!(take(&mut core).as_deref(), Some("quiet"));
}

fn queue() -> Queue {
    let metrics = Metrics::new();
    Queue::new(RateLimiter::DEFAULT, Clocks::new(|| 0), metrics.queue("test"))
}

#[tokio::test(start_paused = true)]
async fn next_returns_on_an_item_a_due_time_or_shutdown() {
    let queue = queue();
    queue.add_after(item("later"), Duration::from_secs(30));
    let began = tokio::time::Instant::now();
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.add_after(item("sooner"), Duration::from_secs(2));
    assert_eq!(waiter.await.unwrap(), Some(item("sooner")));
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(queue.next().await, Some(item("later")));
    let (one, two) = (queue.clone(), queue.clone());
    let waiters = tokio::spawn(async move { tokio::join!(one.next(), two.next()) });
    tokio::task::yield_now().await;
    queue.shut_down();
    assert_eq!(waiters.await.unwrap(), (None, None));
}

/// Proves INF-130, INF-131, INF-132.
#[tokio::test(start_paused = true)]
async fn metrics_report_depth_adds_retries_and_unfinished_work() {
    let metrics = Metrics::new();
    let queue = Queue::new(RateLimiter::DEFAULT, Clocks::new(|| 0), metrics.queue("jobs"));
    queue.add(item("a"));
    queue.add(item("b"));
    tokio::time::advance(Duration::from_secs(2)).await;
    let a = queue.next().await.unwrap();
    queue.add(a.clone());
    queue.add_after(item("c"), Duration::from_secs(60));
    queue.add_rate_limited(item("d"), Duration::ZERO);
    // A delay of zero counts as a retry as well.
    queue.add_after(item("e"), Duration::ZERO);
    tokio::time::advance(Duration::from_secs(3)).await;
    let text = metrics.text();
    for line in [
        r#"workqueue_depth{name="jobs"} 3"#,
        r#"workqueue_adds_total{name="jobs"} 4"#,
        r#"workqueue_retries_total{name="jobs"} 3"#,
        r#"workqueue_queue_duration_seconds_sum{name="jobs"} 2"#,
        r#"workqueue_queue_duration_seconds_bucket{name="jobs",le="0.00000001"} 0"#,
        r#"workqueue_queue_duration_seconds_bucket{name="jobs",le="10"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="jobs"} 3"#,
        r#"workqueue_longest_running_processor_seconds{name="jobs"} 3"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    queue.done(&a);
    assert!(metrics.text().contains(r#"workqueue_work_duration_seconds_sum{name="jobs"} 3"#));
    assert!(metrics.text().contains(r#"workqueue_unfinished_work_seconds{name="jobs"} 0"#));
}

/// A future that counts how often it is polled.
async fn counting_polls<T>(polls: Arc<AtomicUsize>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn item_notifies_one_of_the_waiting_workers() {
    let (queue, polls) = (queue(), Arc::<AtomicUsize>::default());
    for _ in 0..5 {
        let (queue, polls) = (queue.clone(), polls.clone());
        tokio::spawn(counting_polls(polls, async move {
            while let Some(item) = queue.next().await {
                queue.done(&item);
            }
        }));
    }
    let polled = async |change: &dyn Fn()| {
        change();
        tokio::time::sleep(MS).await;
        polls.swap(0, Ordering::Relaxed)
    };
    assert_eq!(polled(&|| ()).await, 5, "all wait");
    assert_eq!(polled(&|| queue.add(item("a"))).await, 1);
    assert_eq!(polled(&|| ["a", "b"].into_iter().for_each(|name| queue.add(item(name)))).await, 2);
    assert_eq!(polled(&|| queue.add_after(item("a"), Duration::from_secs(5))).await, 1, "sets the alarm");
    assert_eq!(
        polled(&|| queue.add_after(item("b"), Duration::from_secs(9))).await,
        0,
        "later than the alarm"
    );
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(polls.load(Ordering::Relaxed), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(polls.swap(0, Ordering::Relaxed) <= 2, "one takes the item, one takes over the alarm");
    assert_eq!(polled(&|| queue.shut_down()).await, 5);
}

/// Any number of the API may become a delay, such as the activeDeadlineSeconds of a Job.
#[tokio::test(start_paused = true)]
async fn delay_beyond_all_instants_stops_no_worker() {
    let queue = queue();
    let longest = [Duration::from_secs(i64::MAX.unsigned_abs()), Duration::MAX];
    longest.into_iter().for_each(|delay| queue.add_after(item("never"), delay));
    let workers = [(); 2].map(|()| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.next().await })
    });
    tokio::task::yield_now().await;
    ["a", "b"].into_iter().for_each(|name| queue.add(item(name)));
    for worker in workers {
        assert!(worker.await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_waiting_leaves_its_alarm_to_another() {
    let queue = queue();
    queue.add_after(item("a"), Duration::from_secs(3));
    let one = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await }
    });
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await }
    });
    tokio::task::yield_now().await;
    one.abort();
    assert_eq!(other.await.unwrap(), Some(item("a")));
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

/// How late items are taken, in a random order of changes and reconciles, is a question of free workers only.
#[tokio::test(start_paused = true)]
async fn no_worker_waits_while_an_item_is_due() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (queue, free) = (queue(), Arc::<AtomicUsize>::default());
        let workers = random.usize(1..6);
        for _ in 0..workers {
            let (queue, free, mut random) = (queue.clone(), free.clone(), random.fork());
            tokio::spawn(async move {
                loop {
                    free.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = queue.next().await else { return };
                    free.fetch_sub(1, Ordering::Relaxed);
                    tokio::time::sleep(MS * random.u32(0..8)).await;
                    queue.done(&item);
                }
            });
        }
        for _ in 0..200 {
            let item = item(&random.u32(0..12).to_string());
            match random.u32(0..4) {
                0 => queue.add(item),
                1 => queue.add_after(item, MS * random.u32(0..20)),
                2 => queue.add_rate_limited(item, Duration::ZERO),
                _ => queue.forget(&item),
            }
            tokio::time::sleep(MS * random.u32(0..3)).await;
            // Those that were notified have their turn.
            for _ in 0..2 * workers {
                tokio::task::yield_now().await;
            }
            // A timer may be a millisecond late.
            let now = queue.0.clocks.monotonic().saturating_sub(MS);
            let core = queue.0.core.lock();
            let is_due = core.ready_count() > 0 || core.next_due().is_some_and(|due| due < now);
            assert!(!is_due || free.load(Ordering::Relaxed) == 0, "an item waits for a worker, seed {seed}");
        }
        queue.shut_down();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(free.load(Ordering::Relaxed), workers, "all have ended, seed {seed}");
    }
}
