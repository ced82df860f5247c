//! Operations of the binder that have a start time and a backoff of their own: provisioning, deletion, recycling.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{Key, ResourceVersion, Uid};
use keleustes_plan::{Context, Memory};
use keleustes_rate::Backoff;

use super::metrics;

/// The delay after the first error of an operation; each further error doubles it.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The longest delay.
const MAX_BACKOFF: Duration = Duration::from_secs(122);

/// Start times and backoffs. A restart loses them: a latency is not measured, and an operation is tried at once.
#[derive(Clone, Default)]
pub(super) struct Operations(Memory<State>);

#[derive(Clone, Default)]
struct State {
    started: BTreeMap<String, Started>,
    backoffs: BTreeMap<String, Backoff>,
    recycling: BTreeMap<String, RecyclerPod>,
}

#[derive(Clone)]
struct Started {
    plugin: String,
    operation: &'static str,
    at: Duration,
}

/// A recycler pod that this process created and waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecyclerPod {
    /// The UID of the volume that it scrubs.
    pub(super) volume: Uid,
    /// The version of the volume when the pod was created. A later version may have been used in between.
    pub(super) volume_version: ResourceVersion,
    /// The namespace and name of the pod.
    pub(super) key: Key,
    /// The UID of the pod.
    pub(super) pod: Uid,
}

impl Operations {
    /// Remembers when an operation on an object was first started.
    pub(super) fn start(&self, object: &str, plugin: &str, operation: &'static str, now: Duration) {
        let started = || Started { plugin: plugin.to_owned(), operation, at: now };
        self.0.with(|state| {
            state.started.entry(object.to_owned()).or_insert_with(started);
        });
    }

    /// Forgets the start of an operation.
    pub(super) fn forget(&self, object: &str) {
        self.0.with(|state| state.started.remove(object));
    }

    /// Counts an error of a started operation.
    pub(super) fn count_error(&self, cx: &mut Context<'_>, object: &str) {
        let labels = self.0.with(|state| {
            state.started.get(object).map(|started| (started.plugin.clone(), started.operation))
        });
        if let Some((plugin, operation)) = labels {
            cx.measure(metrics::OPERATION_ERRORS.increment(&[&plugin, operation]));
        }
    }

    /// Observes the time that a started operation took, and forgets it.
    pub(super) fn finish(&self, cx: &mut Context<'_>, object: &str, now: Duration) {
        if let Some(started) = self.0.with(|state| state.started.remove(object)) {
            let seconds = now.saturating_sub(started.at).as_secs_f64();
            cx.measure(
                metrics::OPERATION_SECONDS.measurement(&[&started.plugin, started.operation], seconds),
            );
        }
    }

    /// Whether an operation may run: it has no error, or its backoff is over.
    pub(super) fn may_run(&self, name: &str, now: Duration) -> bool {
        self.0.with(|state| !state.backoffs.get(name).is_some_and(|backoff| backoff.is_waiting(now)))
    }

    /// Records the result of an operation.
    pub(super) fn record(&self, name: &str, succeeded: bool, now: Duration) {
        self.0.with(|state| {
            if succeeded {
                state.backoffs.remove(name);
                return;
            }
            let backoff = state.backoffs.entry(name.to_owned()).or_default();
            backoff.record_failure(now, INITIAL_BACKOFF, MAX_BACKOFF);
        });
    }

    /// The recycler pod of a volume, if this process created one.
    pub(super) fn recycler_pod(&self, volume: &str) -> Option<RecyclerPod> {
        self.0.with(|state| state.recycling.get(volume).cloned())
    }

    /// Remembers the recycler pod of a volume, or forgets it.
    pub(super) fn set_recycler_pod(&self, volume: &str, pod: Option<RecyclerPod>) {
        self.0.with(|state| match pod {
            Some(pod) => drop(state.recycling.insert(volume.to_owned(), pod)),
            None => drop(state.recycling.remove(volume)),
        });
    }
}
