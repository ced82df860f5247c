//! Controllers at work under one lock: how they start and stop together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use keleustes_client::Call;
use keleustes_plan::{Controller, PlannedEvent};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::events::EventRecorder;
use crate::handover::PredecessorState;
use crate::leader::{Leadership, Term};
use crate::loops::{self, ControllerContext, RunningController};
use crate::process_context::{IN_FLIGHT_MAX, ProcessContext};

/// How often those who still run are named if there is no end to waiting for them.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// How long, and how often, an API server is waited for that has just been fit to give us the lease.
const API_SERVER_WELL_WITHIN: Duration = Duration::from_secs(10);
const API_SERVER_ASKED_EVERY: Duration = Duration::from_secs(1);

/// Work was still going on when the time to end it was over.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("controller shutdown timeout reached")]
pub struct ShutdownTimeout;

/// The API server did not get well in time; the last thing that was wrong with it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("failed to wait for apiserver being healthy: timed out waiting for the condition: {0}")]
pub struct ApiServerUnhealthy(String);

/// Why work under a lock ended before its time, or not in time.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RunError {
    /// It never began.
    #[error(transparent)]
    ApiServerUnhealthy(#[from] ApiServerUnhealthy),
    /// It did not end.
    #[error(transparent)]
    ShutdownTimeout(#[from] ShutdownTimeout),
}

/// Who starts, and in what order.
pub struct ControllerSet {
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The one that others may need before they can have credentials.
    pub first: &'static str,
    /// Each of the others waits between once and twice this time.
    pub start_interval: Duration,
}

/// Works under a lock until its term is over, and stops in order.
///
/// # Errors
/// If the API server was not well enough to begin, or work was still going on when the time to end it was over.
pub async fn run_controllers(
    house: &ProcessContext,
    roster: ControllerSet,
    term: Term,
    stops_within: Duration,
    begins: impl FnOnce(&[Controller]),
) -> Result<(), RunError> {
    let Term { predecessor, leadership, stop, ready, .. } = term;
    let legacy = PredecessorState::of(&predecessor, &house.clocks);
    wait_for_api_server(house, &stop).await?;
    begins(&roster.controllers);
    let context = controller_context(house, &leadership, legacy);
    let at_work = RunningControllers::start(house, roster, &context, || ready.signal(), &stop).await;
    stop.cancelled().await;
    Ok(at_work.stop(stops_within).await?)
}

/// Controllers at work under one lock.
pub struct RunningControllers {
    running: Vec<RunningController>,
}

impl RunningControllers {
    /// Starts controllers, the first before all others; each of the others after a delay of its own. Gives up if
    /// told to stop.
    pub async fn start(
        house: &ProcessContext,
        roster: ControllerSet,
        context: &ControllerContext,
        first_runs: impl FnOnce(),
        stop: &CancellationToken,
    ) -> Self {
        let ControllerSet { mut controllers, first, start_interval: interval } = roster;
        let mut running = Vec::new();
        let start_all = async {
            if let Some(at) = controllers.iter().position(|controller| controller.name == first) {
                running.push(start_one(house, context, controllers.remove(at), stop).await);
            }
            first_runs();
            let mut chance = house.random.fork();
            let mut delayed: FuturesUnordered<_> = controllers
                .into_iter()
                .map(|controller| {
                    let delay = interval.mul_f64(1.0 + chance.f64());
                    async move {
                        tokio::time::sleep(delay).await;
                        start_one(house, context, controller, stop).await
                    }
                })
                .collect();
            // Noted one by one: whoever has started must be stopped, even if others never start.
            while let Some(started) = delayed.next().await {
                running.push(started);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = start_all => {}
        }
        Self { running }
    }

    /// Lets the work under way end. Zero waits as long as it takes.
    ///
    /// # Errors
    /// If work was still going on when the time was over.
    pub async fn stop(self, timeout: Duration) -> Result<(), ShutdownTimeout> {
        ended_within(timeout, self.running.into_iter().map(|running| (running.name, running.stop()))).await
    }
}

/// Waits for all to end, and names those who have not from time to time.
async fn ended_within<F: Future<Output = ()>>(
    timeout: Duration,
    endings: impl Iterator<Item = (&'static str, F)>,
) -> Result<(), ShutdownTimeout> {
    let still_running = Mutex::new(BTreeSet::new());
    let all = join_all(endings.map(|(name, ending)| {
        still_running.lock().insert(name);
        let still_running = &still_running;
        async move {
            ending.await;
            still_running.lock().remove(name);
        }
    }));
    let remind_every = if timeout.is_zero() { REMIND_EVERY } else { timeout / 3 };
    let reminders = async {
        loop {
            tokio::time::sleep(remind_every).await;
            tracing::info!(controllers = ?*still_running.lock(), "Controllers are still running");
        }
    };
    let deadline = async {
        if timeout.is_zero() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(timeout).await;
    };
    tokio::select! {
        biased;
        _ = all => Ok(()),
        () = deadline => {
            tracing::error!(controllers = ?*still_running.lock(), "Controller shutdown timeout reached");
            Err(ShutdownTimeout)
        }
        () = reminders => unreachable!("reminders never end"),
    }
}

/// What loops need of a house, while this process leads and after whoever did so before.
#[must_use]
pub fn controller_context(
    house: &ProcessContext,
    leadership: &Leadership,
    legacy: PredecessorState,
) -> ControllerContext {
    let leadership = leadership.clone();
    ControllerContext {
        caches: house.caches.clone(),
        clocks: house.clocks.clone(),
        random: house.random.clone(),
        metrics: house.metrics.clone(),
        is_leader: Arc::new(move || leadership.still_held()),
        in_flight_max: IN_FLIGHT_MAX,
        predecessor_state: Arc::new(legacy),
    }
}

async fn start_one(
    house: &ProcessContext,
    context: &ControllerContext,
    controller: Controller,
    stop: &CancellationToken,
) -> RunningController {
    let factory =
        house.factory.with_qps_multiplier(controller.qps_multiplier.qps, controller.qps_multiplier.burst);
    let factory = factory.with_write_fence(context.is_leader.clone());
    let client = match controller.service_account {
        Some(account) => factory.for_controller(account),
        None => factory.root("tokens-controller"),
    };
    let recorder =
        EventRecorder::for_controller(&controller, client.clone(), house.clocks.clone(), house.random.fork());
    let record: Arc<dyn Fn(PlannedEvent) + Send + Sync> = match recorder {
        Some((recorder, writer)) => {
            tokio::spawn(writer.run(stop.clone()));
            Arc::new(move |note| recorder.record(note))
        }
        None => Arc::new(|_| unreachable!("a controller without a component records no events")),
    };
    loops::start(controller, context, client, record).await
}

/// A manager whose API server is not healthy would only fill its log; its supervisor starts it again.
///
/// # Errors
/// If it is not well for too long.
pub async fn wait_for_api_server(
    house: &ProcessContext,
    stop: &CancellationToken,
) -> Result<(), ApiServerUnhealthy> {
    let client = house.factory.root("kube-controller-manager");
    let mut last = "no answer".to_owned();
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        () = tokio::time::sleep(API_SERVER_WELL_WITHIN) => Err(ApiServerUnhealthy(last)),
        () = until_well(&client, &mut last) => Ok(()),
    }
}

/// Asks until all is well, and notes what was wrong last.
async fn until_well(client: &kube::Client, last: &mut String) {
    let mut asking = tokio::time::interval(API_SERVER_ASKED_EVERY);
    asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        asking.tick().await;
        match Call::raw(http::Method::GET, "/healthz").send_for_bytes(client).await {
            Ok(_) => return,
            Err(failure) => *last = failure.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
