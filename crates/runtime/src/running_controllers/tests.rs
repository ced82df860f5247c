//! When each starts, and how long all are waited for.

use keleustes_client::{ClientOptions, Connection};
use keleustes_objects::Key;
use keleustes_plan::{Item, Loop, Plan, View};
use keleustes_test_log::TestLog;
use tokio::time::Instant;
use tracing::Level;

use super::*;
use crate::clock::{Clocks, Random};
use crate::metrics::Metrics;

fn house() -> ProcessContext {
    let nowhere = Connection::from_service(tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    }));
    let (clocks, chance) = (Clocks::new(|| 0), Random::seeded(7));
    ProcessContext::new(nowhere, ClientOptions::default(), clocks, chance, Metrics::new(), None)
}

const FIRST: &str = "first-controller";

fn idle(names: &[&'static str], interval: Duration) -> ControllerSet {
    ControllerSet {
        controllers: names.iter().map(|name| Controller::new(name)).collect(),
        first: FIRST,
        start_interval: interval,
    }
}

/// Nobody led before, and nobody else wants to.
fn alone(house: &ProcessContext) -> ControllerContext {
    controller_context(house, &Leadership::without_election(), PredecessorState::None)
}

/// Proves RUN-58, RUN-124, OPT-115.
#[tokio::test(start_paused = true)]
async fn each_starts_after_a_delay_of_its_own_and_all_wait_at_once() {
    let house = house();
    let (context, stop) = (alone(&house), CancellationToken::new());
    let began = Instant::now();
    let mut first_after = None;
    let interval = Duration::from_secs(10);
    let team = idle(&["a", FIRST, "b", "c", "d"], interval);
    let noted = || first_after = Some(began.elapsed());
    let at_work = RunningControllers::start(&house, team, &context, noted, &stop).await;
    let took = began.elapsed();
    assert_eq!(at_work.running[0].name, FIRST);
    assert_eq!(at_work.running.len(), 5);
    assert_eq!(first_after, Some(Duration::ZERO), "others need what it makes");
    assert!((interval..interval * 2).contains(&took), "{took:?}");

    let began = Instant::now();
    RunningControllers::start(&house, idle(&["a", "b"], Duration::ZERO), &context, || {}, &stop).await;
    assert!(began.elapsed() < Duration::from_millis(5), "by default nobody waits");
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_forgets_nobody_who_has_started() {
    let house = house();
    let stop = CancellationToken::new();
    let context = alone(&house);
    let begun = Arc::new(Mutex::new(0));
    let mut team = idle(&["a", "b", "c", "d", "e", "f"], Duration::from_secs(10));
    for controller in &mut team.controllers {
        let begun = begun.clone();
        let count = move |_: &View<'_>, _: &Item| {
            *begun.lock() += 1;
            Plan::none()
        };
        controller.loops.push(Loop::deciding("counting", count).initial_item(Key::cluster("once")));
    }
    let starting = RunningControllers::start(&house, team, &context, || {}, &stop);
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        stop.cancel();
    };
    let (at_work, ()) = tokio::join!(starting, stopping);
    assert_eq!(at_work.running.len(), *begun.lock());
    assert!((1..6).contains(&at_work.running.len()), "{}", at_work.running.len());
}

async fn ends_after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Proves RUN-75, RUN-76.
#[tokio::test(start_paused = true)]
async fn who_does_not_end_in_time_is_named_and_given_up() {
    let (log, _listening) = TestLog::capture(Level::INFO);
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
async fn zero_waits_as_long_as_it_takes() {
    let (log, _listening) = TestLog::capture(Level::INFO);
    let began = Instant::now();
    ended_within(Duration::ZERO, [("slow", ends_after(3602))].into_iter()).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3602);
    assert_eq!(log.count(&["still running", "slow"]), 720);
}
