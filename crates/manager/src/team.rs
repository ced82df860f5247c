//! The controllers of this process: which of them run, and how they start and stop together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use keleustes_controllers::names::{self, KNOWN};
use keleustes_controllers::{Settings, all};
use keleustes_options::Options;
use keleustes_plan::{Controller, EventNote};
use keleustes_runtime::events::Recorder;
use keleustes_runtime::leader::Leadership;
use keleustes_runtime::loops::{self, Running, Surroundings};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::house::{House, IN_FLIGHT_MAX};

/// The controller that others may need before they can have credentials.
pub(crate) const FIRST: &str = "serviceaccount-token-controller";

/// How often those who still run are named if there is no end to waiting for them.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// The canonical names of all controllers that are written.
pub(crate) fn landed() -> Vec<&'static str> {
    let written = all(&Settings::default()).into_iter().map(|controller| controller.name);
    std::iter::once(FIRST).chain(written).collect()
}

/// The controllers that the options ask for.
pub(crate) struct Team {
    /// Those that can run.
    pub(crate) members: Vec<Controller>,
    /// Those that are asked for and are not written yet.
    pub(crate) missing: Vec<&'static str>,
}

impl Team {
    /// Chooses by `--controllers`; says what does not run, and why.
    pub(crate) fn choose(options: &Options, settings: &Settings) -> Self {
        let landed = landed();
        let mut wanted = BTreeSet::new();
        for known in &KNOWN {
            let by_default = known.default != names::Default::NamedOnly;
            if known.name == FIRST {
                // Only a missing key switches the token controller off.
                wanted.insert(FIRST);
            } else if !options.generic.controllers.enables(known.name, by_default) {
                tracing::info!(controller = known.name, "Warning: controller is disabled");
            } else if let Some(gate) = known.gates.iter().find(|gate| !options.gates.enabled(gate)) {
                tracing::info!(controller = known.name, gate, "Controller is disabled by a feature gate");
            } else {
                wanted.insert(known.name);
            }
        }
        let members: Vec<_> =
            all(settings).into_iter().filter(|controller| wanted.contains(controller.name)).collect();
        for skipped in landed.iter().filter(|name| wanted.contains(*name)) {
            if !members.iter().any(|controller| controller.name == *skipped) {
                tracing::info!(controller = skipped, "Warning: skipping controller");
            }
        }
        let missing: Vec<_> = KNOWN
            .iter()
            .map(|known| known.name)
            .filter(|name| wanted.contains(name) && !landed.contains(name))
            .collect();
        if !missing.is_empty() {
            tracing::warn!(
                controllers = missing.join(","),
                "these controllers are not written yet and do not run; keep another manager for them"
            );
        }
        Self { members, missing }
    }
}

/// Controllers at work under one lock.
pub(crate) struct AtWork {
    running: Vec<Running>,
}

impl AtWork {
    /// Starts controllers, the token controller before all others; each of the others after a delay of its own
    /// between once and twice `interval`. Gives up if told to stop.
    pub(crate) async fn start(
        house: &House,
        mut controllers: Vec<Controller>,
        leadership: &Leadership,
        interval: Duration,
        first_runs: impl FnOnce(),
        stop: &CancellationToken,
    ) -> Self {
        let mut running = Vec::new();
        let surroundings = surroundings(house, leadership);
        let start_all = async {
            if let Some(at) = controllers.iter().position(|controller| controller.name == FIRST) {
                running.push(start_one(house, &surroundings, controllers.remove(at), stop).await);
            }
            first_runs();
            let mut chance = house.chance.fork();
            let mut delayed: FuturesUnordered<_> = controllers
                .into_iter()
                .map(|controller| {
                    let delay = interval.mul_f64(1.0 + chance.f64());
                    let surroundings = &surroundings;
                    async move {
                        tokio::time::sleep(delay).await;
                        start_one(house, surroundings, controller, stop).await
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
    pub(crate) async fn stop(self, timeout: Duration) -> anyhow::Result<()> {
        ended_within(timeout, self.running.into_iter().map(|running| (running.name, running.stop()))).await
    }
}

/// Waits for all to end, and names those who have not from time to time.
async fn ended_within<F: Future<Output = ()>>(
    timeout: Duration,
    endings: impl Iterator<Item = (&'static str, F)>,
) -> anyhow::Result<()> {
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
            bail!("controller shutdown timeout reached")
        }
        () = reminders => unreachable!("reminders never end"),
    }
}

fn surroundings(house: &House, leadership: &Leadership) -> Surroundings {
    let leadership = leadership.clone();
    Surroundings {
        caches: house.caches.clone(),
        clocks: house.clocks.clone(),
        chance: house.chance.clone(),
        metrics: house.metrics.clone(),
        leads: Arc::new(move || leadership.still_held()),
        in_flight_max: IN_FLIGHT_MAX,
    }
}

async fn start_one(
    house: &House,
    surroundings: &Surroundings,
    controller: Controller,
    stop: &CancellationToken,
) -> Running {
    let factory = house.factory.hurrying(controller.haste.rate, controller.haste.burst);
    let client = match controller.service_account {
        Some(account) => factory.for_controller(account),
        None => factory.root("tokens-controller"),
    };
    let recorder = Recorder::of(&controller, client.clone(), house.clocks.clone(), house.chance.fork());
    let record: Arc<dyn Fn(EventNote) + Send + Sync> = match recorder {
        Some((recorder, writer)) => {
            tokio::spawn(writer.run(stop.clone()));
            Arc::new(move |note| recorder.record(note))
        }
        None => Arc::new(|_| unreachable!("a controller without a component records no events")),
    };
    loops::start(controller, surroundings, client, record).await
}

#[cfg(test)]
mod tests;
