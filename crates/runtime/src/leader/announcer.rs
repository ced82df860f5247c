//! Reports the election by events on the Lease and two metrics.

use keleustes_plan::{BoxFuture, PlannedEvent};
use kube::Client;

use super::election::ElectionObserver;
use crate::clock::Clocks;
use crate::events::{EventRecorder, EventWriter, MANAGER_COMPONENT};
use crate::metrics::Metrics;

/// The election observer of a process that has an event pipeline and metrics.
pub struct Announcer {
    recorder: EventRecorder,
    metrics: Metrics,
}

impl Announcer {
    /// The announcer, and the writer of its events, which must be run.
    #[must_use]
    pub fn new(
        client: Client,
        clocks: Clocks,
        random: fastrand::Rng,
        metrics: Metrics,
    ) -> (Self, EventWriter) {
        let (recorder, writer) = EventRecorder::new(MANAGER_COMPONENT, client, clocks, random);
        (Self { recorder, metrics }, writer)
    }
}

impl ElectionObserver for Announcer {
    fn event(&self, event: PlannedEvent) {
        self.recorder.record(event);
    }

    fn events_written(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.recorder.written())
    }

    fn leading(&self, lease_name: &str, leading: bool) {
        self.metrics.leading(lease_name, leading);
    }

    fn slow_path(&self, lease_name: &str) {
        self.metrics.slow_path(lease_name);
    }
}
