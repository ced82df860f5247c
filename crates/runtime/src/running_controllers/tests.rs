//! When each controller starts, and how long shutdown waits for all of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use keleustes_client::{ClientOptions, Connection};
use keleustes_plan::{Loop, Pass, Plan, View};
use keleustes_test_log::TestLog;
use tokio::time::Instant;
use tracing::Level;

use super::*;
use crate::clock::{Clocks, Random};
use crate::metrics::Metrics;

fn process() -> ProcessContext {
    let connection =
        Connection::from_service(tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        }));
    let (clocks, random) = (Clocks::new(|| 0), Random::seeded(7));
    ProcessContext::new(connection, ClientOptions::default(), clocks, random, Metrics::new(), None)
}

const FIRST: &str = "first-controller";

fn idle_controllers(names: &[&'static str], interval: Duration) -> ControllerSet {
    ControllerSet {
        controllers: names.iter().map(|name| Controller::new(name)).collect(),
        first: FIRST,
        start_interval: interval,
    }
}

/// Without predecessor and without leader election.
fn context_without_election(process: &ProcessContext) -> ControllerContext {
    controller_context(process, &Leadership::without_election(), PredecessorState::None)
}

/// Proves RUN-58, OPT-115, SAT-69.
#[tokio::test(start_paused = true)]
async fn controllers_start_after_individual_delays_that_run_in_parallel() {
    let process = process();
    let (context, stop) = (context_without_election(&process), CancellationToken::new());
    let began = Instant::now();
    let first_after = Mutex::new(None);
    let interval = Duration::from_secs(10);
    let set = idle_controllers(&["a", FIRST, "b", "c", "d"], interval);
    let on_first_started = || *first_after.lock() = Some(began.elapsed());
    let controllers = RunningControllers::start(&process, set, &context, on_first_started, &stop).await;
    let took = began.elapsed();
    assert_eq!(controllers.running.len(), 5);
    let first_after = first_after.lock().unwrap();
    assert!((interval..took).contains(&first_after), "it has a delay of its own, too: {first_after:?}");
    assert!((interval..interval * 2).contains(&took), "{took:?}");

    let began = Instant::now();
    RunningControllers::start(
        &process,
        idle_controllers(&["a", "b"], Duration::ZERO),
        &context,
        || {},
        &stop,
    )
    .await;
    assert!(began.elapsed() < Duration::from_millis(5), "by default there is no delay");
}

/// Proves LE-56.
#[tokio::test(start_paused = true)]
async fn set_without_the_first_controller_signals_immediately() {
    let process = process();
    let (context, stop) = (context_without_election(&process), CancellationToken::new());
    let began = Instant::now();
    let first_after = Mutex::new(None);
    let set = idle_controllers(&["a", "b"], Duration::from_secs(10));
    let on_first_started = || *first_after.lock() = Some(began.elapsed());
    RunningControllers::start(&process, set, &context, on_first_started, &stop).await;
    assert_eq!(*first_after.lock(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn stop_during_startup_keeps_every_started_controller() {
    let process = process();
    let stop = CancellationToken::new();
    let context = context_without_election(&process);
    let reconciled = Arc::new(Mutex::new(0));
    let mut set = idle_controllers(&["a", "b", "c", "d", "e", "f"], Duration::from_secs(10));
    for controller in &mut set.controllers {
        let reconciled = reconciled.clone();
        let count = move |_: &View<'_>, _: &Pass| {
            *reconciled.lock() += 1;
            Plan::none()
        };
        controller.loops.push(Loop::deciding("counting", count).initial_item(Pass));
    }
    let starting = RunningControllers::start(&process, set, &context, || {}, &stop);
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        stop.cancel();
    };
    let (controllers, ()) = tokio::join!(starting, stopping);
    assert_eq!(controllers.running.len(), *reconciled.lock());
    assert!((1..6).contains(&controllers.running.len()), "{}", controllers.running.len());
}

#[tokio::test(start_paused = true)]
async fn failing_start_step_ends_the_start_and_the_error_names_the_controller() {
    let process = process();
    let (context, stop) = (context_without_election(&process), CancellationToken::new());
    let reconciled = Arc::new(Mutex::new(Vec::new()));
    let counting = |name: &'static str| {
        let reconciled = reconciled.clone();
        let count = move |_: &View<'_>, _: &Pass| {
            reconciled.lock().push(name);
            Plan::none()
        };
        Loop::deciding("counting", count).initial_item(Pass)
    };
    let mut set = idle_controllers(&["good", "bad"], Duration::ZERO);
    set.controllers[0].loops.push(counting("good").before_start(|_| Ok(Vec::new())));
    set.controllers[1].loops.push(counting("first loop of bad"));
    set.controllers[1].loops.push(counting("bad").before_start(|_| Err("nothing left".to_owned())));
    let controllers = RunningControllers::start(&process, set, &context, || {}, &stop).await;
    let error = controllers.start_error.clone().unwrap();
    assert_eq!((error.controller, error.to_string().as_str()), ("bad", "nothing left"));
    assert_eq!(controllers.running.len(), 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*reconciled.lock(), ["good"], "no loop of the other is started");
    controllers.stop(Duration::ZERO).await.unwrap();
}

/// The renewal of the lease is another part of the same task, and a start on full caches takes a while.
#[tokio::test(start_paused = true)]
async fn rest_of_the_task_runs_between_two_starts() {
    let process = process();
    let (context, stop) = (context_without_election(&process), CancellationToken::new());
    let (polls, polls_at_starts) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let polls = Arc::new(polls);
    let mut set = idle_controllers(&["a", "b", "c", "d"], Duration::ZERO);
    for controller in &mut set.controllers {
        let (polls, polls_at_starts) = (polls.clone(), polls_at_starts.clone());
        let step = move |_: &View<'_>| {
            polls_at_starts.lock().push(polls.load(Ordering::Relaxed));
            Ok(Vec::new())
        };
        let idle = Loop::deciding("idle", |_: &View<'_>, _: &Pass| Plan::none());
        controller.loops.push(idle.before_start(step));
    }
    let rest_of_the_task = std::future::poll_fn(|_| {
        polls.fetch_add(1, Ordering::Relaxed);
        Poll::<()>::Pending
    });
    tokio::select! {
        biased;
        () = rest_of_the_task => {}
        _ = RunningControllers::start(&process, set, &context, || {}, &stop) => {}
    }
    let mut different = polls_at_starts.lock().clone();
    different.dedup();
    assert_eq!(different.len(), 4, "{different:?}");
}

async fn ends_after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Proves RUN-75, RUN-76.
#[tokio::test(start_paused = true)]
async fn controller_that_exceeds_the_shutdown_timeout_is_logged_and_abandoned() {
    let (log, _guard) = TestLog::capture(Level::INFO);
    let began = Instant::now();
    let endings = [("quick", ends_after(1)), ("slow", ends_after(60))];
    let error = ended_within(Duration::from_secs(9), endings.into_iter()).await.unwrap_err();
    assert_eq!(error.to_string(), "controller shutdown timeout reached");
    assert_eq!(began.elapsed().as_secs(), 9);
    assert_eq!(log.count(&["still running", "slow"]), 2);
    assert_eq!(log.count(&["still running", "quick"]), 0);
    assert_eq!(log.count(&["Controller shutdown timeout reached", "slow"]), 1);

    let in_time = [("quick", ends_after(1)), ("slow", ends_after(8))];
    ended_within(Duration::from_secs(9), in_time.into_iter()).await.unwrap();
}

/// Proves RUN-75.
#[tokio::test(start_paused = true)]
async fn shutdown_timeout_of_zero_waits_without_limit() {
    let (log, _guard) = TestLog::capture(Level::INFO);
    let began = Instant::now();
    ended_within(Duration::ZERO, [("slow", ends_after(3602))].into_iter()).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3602);
    assert_eq!(log.count(&["still running", "slow"]), 720);
}
