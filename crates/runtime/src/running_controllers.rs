//! The controllers that run under one lease: how they start and stop together.

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
use crate::loops::{self, ControllerContext, RunningController, StartError};
use crate::process_context::{IN_FLIGHT_MAX, ProcessContext};

/// How often running controllers are logged if there is no shutdown timeout.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// How long, and how often, the API server's health is checked before the controllers start.
const API_SERVER_HEALTHY_WITHIN: Duration = Duration::from_secs(10);
const API_SERVER_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Controllers were still running when the shutdown timeout expired.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("controller shutdown timeout reached")]
pub struct ShutdownTimeout;

/// The API server did not become healthy in time; the last error of the health check.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("failed to wait for apiserver being healthy: timed out waiting for the condition: {0}")]
pub struct ApiServerUnhealthy(String);

/// Why running controllers under a lease failed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RunError {
    /// The controllers were never started.
    #[error(transparent)]
    ApiServerUnhealthy(#[from] ApiServerUnhealthy),
    /// A controller could not start; those that had started were stopped.
    #[error(transparent)]
    StartFailed(#[from] StartError),
    /// The controllers did not stop in time.
    #[error(transparent)]
    ShutdownTimeout(#[from] ShutdownTimeout),
}

/// Which controllers start, and when.
pub struct ControllerSet {
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The controller whose start is signalled: after it, a process may compete for its second lease.
    pub first: &'static str,
    /// Each of them waits between once and twice this time.
    pub start_interval: Duration,
}

/// Runs controllers until the term ends, and shuts them down gracefully.
///
/// # Errors
/// If the API server was not healthy, a controller could not start, or controllers were still running when the shutdown timeout expired.
pub async fn run_controllers(
    process: &ProcessContext,
    set: ControllerSet,
    term: Term,
    shutdown_timeout: Duration,
    on_start: impl FnOnce(&[Controller]),
) -> Result<(), RunError> {
    let Term { predecessor, leadership, stop, ready, .. } = term;
    let predecessor_state = PredecessorState::of(&predecessor, &process.clocks);
    let context = controller_context(process, &leadership, predecessor_state);
    let work = async {
        wait_for_api_server(process, &stop).await?;
        on_start(&set.controllers);
        let mut controllers =
            RunningControllers::start(process, set, &context, || ready.signal(), &stop).await;
        if let Some(error) = controllers.start_error.take() {
            tracing::error!(
                controller = error.controller,
                error = error.message,
                "Error initializing a controller"
            );
            controllers.stop(shutdown_timeout).await?;
            return Err(error.into());
        }
        stop.cancelled().await;
        Ok(controllers.stop(shutdown_timeout).await?)
    };
    let catch_up = async {
        process.caches.written_versions().catch_up(&process.caches, &context.predecessor_state).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        // First, so that the term has begun before anything else happens in it.
        () = catch_up => unreachable!("it stays pending"),
        result = work => result,
    }
}

/// The controllers that run under one lease: how they start and stop together.
pub struct RunningControllers {
    running: Vec<RunningController>,
    /// Why one of them could not start. No further one is started then.
    pub start_error: Option<StartError>,
}

impl RunningControllers {
    /// Starts controllers, each after its own delay and as soon as the caches that it reads are synced: one that
    /// never starts, because a kind cannot be listed, keeps no other from starting. Calls `on_first_started` right
    /// before the first controller starts, or immediately if there is none. Stops starting when `stop` is cancelled.
    ///
    /// Parity: `RunControllers` in `cmd/kube-controller-manager/app/controllermanager.go`.
    pub async fn start(
        process: &ProcessContext,
        set: ControllerSet,
        context: &ControllerContext,
        on_first_started: impl FnOnce(),
        stop: &CancellationToken,
    ) -> Self {
        let ControllerSet { controllers, first, start_interval: interval } = set;
        loops::declare_pod_parts(&controllers, &process.caches);
        let (mut running, mut start_error) = (Vec::new(), None);
        let mut on_first_started = Some(on_first_started);
        if controllers.iter().all(|controller| controller.name != first) {
            on_first_started.take().into_iter().for_each(|signal| signal());
        }
        let start_all = async {
            let mut random = process.random.fork();
            let mut delayed: FuturesUnordered<_> = controllers
                .into_iter()
                .map(|controller| {
                    let delay = interval.mul_f64(1.0 + random.f64());
                    let signal = on_first_started.take_if(|_| controller.name == first);
                    async move {
                        tokio::time::sleep(delay).await;
                        // Before it waits for its caches: nothing else may depend on what it can list.
                        signal.into_iter().for_each(|signal| signal());
                        start_one(process, context, controller, stop).await
                    }
                })
                .collect();
            // Added one by one: a controller that has started must be stopped, even if others never start.
            while let Some(started) = delayed.next().await {
                match started {
                    Ok(started) => {
                        running.push(started);
                        // A start on full caches enqueues every object, and the lease is renewed by the same task.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => {
                        start_error = Some(error);
                        break;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = start_all => {}
        }
        Self { running, start_error }
    }

    /// Stops the controllers and waits for running reconciles. A timeout of zero waits as long as it takes.
    ///
    /// # Errors
    /// If controllers were still running when the timeout expired.
    pub async fn stop(self, timeout: Duration) -> Result<(), ShutdownTimeout> {
        ended_within(timeout, self.running.into_iter().map(|running| (running.name, running.stop()))).await
    }
}

/// Waits for all to end, and logs those that have not from time to time.
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
    let reminder_period = if timeout.is_zero() { REMIND_EVERY } else { timeout / 3 };
    let reminders = async {
        loop {
            tokio::time::sleep(reminder_period).await;
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

/// The context of controllers of this process, while it leads and after this predecessor.
#[must_use]
pub fn controller_context(
    process: &ProcessContext,
    leadership: &Leadership,
    predecessor_state: PredecessorState,
) -> ControllerContext {
    let (leadership, shadows) = (leadership.clone(), process.shadow.is_some());
    ControllerContext {
        caches: process.caches.clone(),
        clocks: process.clocks.clone(),
        random: process.random.clone(),
        metrics: process.metrics.clone(),
        is_leader: Arc::new(move || !shadows && leadership.still_held()),
        in_flight_max: IN_FLIGHT_MAX,
        predecessor_state: Arc::new(predecessor_state),
        inspection: process.inspection.clone(),
        shadow: process.shadow.clone(),
    }
}

async fn start_one(
    process: &ProcessContext,
    context: &ControllerContext,
    controller: Controller,
    stop: &CancellationToken,
) -> Result<RunningController, StartError> {
    let factory =
        process.factory.with_qps_multiplier(controller.qps_multiplier.qps, controller.qps_multiplier.burst);
    let factory = factory.with_write_fence(context.is_leader.clone());
    let client = match controller.service_account {
        Some(account) => factory.for_controller(account),
        None => factory.root("tokens-controller"),
    };
    if context.shadow.is_some() {
        // Events are decisions, too, and not recorded.
        return loops::start(controller, context, client, Arc::new(|_| {})).await;
    }
    let recorder = EventRecorder::for_controller(
        &controller,
        client.clone(),
        process.clocks.clone(),
        process.random.fork(),
    );
    let record: Arc<dyn Fn(PlannedEvent) + Send + Sync> = match recorder {
        Some((recorder, writer)) => {
            tokio::spawn(writer.run(stop.clone()));
            Arc::new(move |event| recorder.record(event))
        }
        None => Arc::new(|_| unreachable!("a controller without an event component records no events")),
    };
    loops::start(controller, context, client, record).await
}

/// Waits until the API server is healthy. A manager without a healthy API server would only fill its log; its
/// supervisor restarts it.
///
/// # Errors
/// If it is not healthy within 10 s.
pub async fn wait_for_api_server(
    process: &ProcessContext,
    stop: &CancellationToken,
) -> Result<(), ApiServerUnhealthy> {
    let client = process.factory.root("kube-controller-manager");
    let mut last = "no response".to_owned();
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        () = tokio::time::sleep(API_SERVER_HEALTHY_WITHIN) => Err(ApiServerUnhealthy(last)),
        () = until_healthy(&client, &mut last) => Ok(()),
    }
}

/// Checks until the API server is healthy, and keeps the last error.
async fn until_healthy(client: &kube::Client, last: &mut String) {
    let mut checks = tokio::time::interval(API_SERVER_CHECK_PERIOD);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        checks.tick().await;
        match Call::raw(http::Method::GET, "/healthz").send_for_bytes(client).await {
            Ok(_) => return,
            Err(failure) => *last = failure.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
