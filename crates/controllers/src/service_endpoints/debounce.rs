//! When a change of a Service's pods is handled after a write: not at once, because every write is sent to every node of the
//! cluster, and pods of a large Service change faster than single writes could report.

use std::time::Duration;

use keleustes_rate::GrowingInterval;

/// The first interval, per object that a reconcile writes.
const PER_OBJECT: Duration = Duration::from_millis(100);
/// The maximum of the first interval, however many objects a reconcile writes.
const FIRST_MAX: Duration = Duration::from_millis(500);
/// The maximum while changes continue. kube-proxy syncs at most once a second by default.
const MAX: Duration = Duration::from_secs(1);

/// The debounce interval of one Service. The first change after a quiet period is handled at once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Debounce(GrowingInterval);

impl Debounce {
    /// How long changes of pods are still held back.
    pub(crate) fn remaining(&self, now: Duration) -> Duration {
        self.0.remaining(now)
    }

    /// Starts an interval, because a reconcile writes this many objects. If the previous interval ended less than its own
    /// length ago, the new one is at least twice as long.
    pub(crate) fn start(&mut self, now: Duration, objects: usize) {
        let at_first = PER_OBJECT.saturating_mul(u32::try_from(objects).unwrap_or(u32::MAX)).min(FIRST_MAX);
        if self.remaining(now).is_zero() {
            self.0.start(now, at_first, MAX);
        } else {
            // A second write within one reconcile.
            self.0.extend(now, at_first);
        }
    }

    /// Ends the interval, because something else than a pod has changed.
    pub(crate) fn cancel(&mut self) {
        self.0.cancel();
    }
}
