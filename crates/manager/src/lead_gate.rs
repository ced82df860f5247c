//! Keeps this process from leading while controllers that `--controllers` asks for are missing or cannot start.
//!
//! A leader without them looks healthy, while nothing does their work and no other manager may. So a process with such
//! an obstacle does not compete for the Lease and fails `/readyz`, unless `--allow-missing-controllers` is set. Obstacles
//! that can be removed (files, permissions) are looked for again every second until there are none. A kind that the API server
//! does not serve is none: its controller waits, as in the original, and the others work.

use std::sync::Arc;
use std::time::Duration;

use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher as publisher;
use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::Controller;
use keleustes_runtime::caches::{Cache, Caches};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::LateStart;

/// How long the API server may take to accept or refuse the first lists before the process competes for the Lease without
/// its answers: lists that fail because it is busy succeed later.
const FIRST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
const FIRST_ANSWERS_CHECK_PERIOD: Duration = Duration::from_millis(5);
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How often the same obstacles are logged again.
const REMIND_EVERY: Duration = Duration::from_secs(600);

/// Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct LeadGate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_open: bool,
    missing: Vec<&'static str>,
    /// The enabled controllers with the caches that they read.
    caches: Vec<(&'static str, Vec<Arc<Cache>>)>,
    /// Why files that controllers need at their start cannot be used.
    files: Mutex<Option<String>>,
}

impl LeadGate {
    /// The gate of a process with these controllers. With `is_open` obstacles are only logged.
    pub(crate) fn new(
        is_open: bool,
        missing: Vec<&'static str>,
        members: &[Controller],
        caches: &Caches,
    ) -> Self {
        let caches_of = |controller: &Controller| {
            let entries = controller.loops.iter().flat_map(|one| &one.reads);
            (controller.name, entries.map(|entry| caches.cache(entry)).collect())
        };
        // The version of ClusterTrustBundles is discovered by the leader: no cache of another version is opened here.
        let members = members.iter().filter(|controller| controller.name != publisher::NAME);
        let caches = members.map(caches_of).collect();
        Self(Arc::new(Inner { is_open, missing, caches, files: Mutex::default() }))
    }

    /// The check of `/readyz`.
    pub(crate) fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let gate = self.clone();
        move || match gate.obstacles() {
            obstacles if obstacles.is_empty() || gate.0.is_open => Ok(()),
            obstacles => Err(obstacles.join("; ")),
        }
    }

    /// Returns when the process may lead, or `false` when it is stopped before.
    pub(crate) async fn wait(&self, late_start: &LateStart, stop: &CancellationToken) -> bool {
        let began = Instant::now();
        let (mut logged, mut logged_at) = (Vec::new(), began);
        loop {
            let members = self.0.caches.iter().map(|(name, _)| *name);
            *self.0.files.lock() = late_start.check_files(members).err();
            let obstacles = self.obstacles();
            let is_unsure = self.may_be_refused() && began.elapsed() < FIRST_ANSWERS_WITHIN;
            if obstacles.is_empty() && !is_unsure {
                if !logged.is_empty() {
                    tracing::info!("all enabled controllers can start, competing for the lease");
                }
                self.log_unserved();
                return true;
            }
            if !obstacles.is_empty() && (obstacles != logged || logged_at.elapsed() >= REMIND_EVERY) {
                self.log(&obstacles);
                (logged, logged_at) = (obstacles, Instant::now());
            }
            if self.0.is_open && !is_unsure {
                return true;
            }
            let pause = if is_unsure { FIRST_ANSWERS_CHECK_PERIOD } else { CHECK_PERIOD };
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn log(&self, obstacles: &[String]) {
        let reason = obstacles.join("; ");
        if self.0.is_open {
            tracing::warn!(%reason, "leading without controllers, as --allow-missing-controllers says");
        } else {
            tracing::error!(
                %reason,
                "not ready and not competing for the lease: enabled controllers are missing or cannot start; \
                 remove the cause, disable them with --controllers, or set --allow-missing-controllers"
            );
        }
    }

    /// Names each controller that waits for a kind that the API server does not serve.
    fn log_unserved(&self) {
        for (controller, cache, _) in self.refusals().filter(|(_, _, refusal)| is_unserved(refusal)) {
            tracing::warn!(controller, resource = %cache.entry().resource(), "waiting for a kind that is not served");
        }
    }

    /// The lists of each controller that the API server has refused.
    fn refusals(&self) -> impl Iterator<Item = (&'static str, &Cache, ApiError)> {
        self.0.caches.iter().flat_map(|(name, caches)| {
            caches.iter().filter_map(|cache| Some((*name, &**cache, cache.refusal()?)))
        })
    }

    /// Whether a list has neither been accepted nor refused.
    fn may_be_refused(&self) -> bool {
        self.0.caches.iter().flat_map(|(_, caches)| caches).any(|cache| cache.may_be_refused())
    }

    /// One sentence for each controller that is missing or cannot start.
    fn obstacles(&self) -> Vec<String> {
        let missing = self.0.missing.iter().map(|name| format!("{name}: not implemented"));
        let mut named = None;
        let refused = self.refusals().filter(|(_, _, refusal)| !is_unserved(refusal));
        // One list is enough to know about a controller.
        let refused = refused.filter(|(name, ..)| named.replace(*name) != Some(*name));
        let refused = refused.map(|(name, cache, refusal)| {
            format!("{name}: cannot list {}: {refusal}", cache.entry().resource())
        });
        missing.chain(self.0.files.lock().clone()).chain(refused).collect()
    }
}

fn is_unserved(refusal: &ApiError) -> bool {
    refusal.reason == ErrorReason::NotFound
}

#[cfg(test)]
mod tests;
