//! Shadow mode: runs beside any leader, writes nothing, and reports where this process would have acted differently.
//!
//! The loops of all controllers run as under a Lease, with one exception: a reconcile ends at its first plan with
//! writes (`ShadowWriter`), which becomes a set of pending decisions instead of requests. There is nothing for the gate
//! to wait for, because nothing is written: the item is reconciled again as soon as the caches move, and after a second
//! in any case. [`comparison`] compares the decisions with what watches deliver ([`effect`]).
//!
//! The opposite direction is a question asked afterwards: a change that no pending decision explains is undone in a view
//! of the caches, alone or with what came after it (`rewind`), and the controllers that may have made it are asked whether
//! they want it (`hindsight`). So it does not
//! matter that the leader is mostly faster, or that it makes several writes in one reconcile. Who made a change that
//! no controller here wants is read from its `managedFields` (`attribution`).
//!
//! Nothing can be written, for three reasons each of which is enough: a plan never reaches the executor, the executor
//! refuses because this process does not lead, and every client is fenced against all but reads.
//! A reconcile that changes files of its host asks first (`Context::may_change_host`), here and in a dry run.

mod attribution;
pub mod comparison;
pub mod effect;
mod hindsight;
pub mod known;
mod lost_slices;
mod metrics;
mod observer;
mod report;
mod rewind;
mod writer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::comparison::{Comparison, Decider, Moment, Wanted};
use self::metrics::ShadowMetrics;
use self::observer::{Created, Unexplained};
use self::rewind::LatestChanges;
use crate::clock::Clocks;
use crate::metrics::Metrics;

pub use self::report::{ControllerReport, ShadowReport};
pub(crate) use self::writer::ShadowWriter;

/// The default window, after which a decision that the leader has not made is a difference.
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(30);

/// How many unexplained changes may wait to be looked at.
const UNEXPLAINED_MAX: usize = 4096;

/// The shadow of a leader. Clones share it.
#[derive(Clone)]
pub struct Shadow(Arc<Inner>);

struct Inner {
    comparison: Mutex<Comparison>,
    unexplained: Mutex<VecDeque<Unexplained>>,
    created: Mutex<VecDeque<Created>>,
    latest: Mutex<LatestChanges>,
    /// Changes that could not be compared: there were too many of them, or their author is not known.
    unchecked: Mutex<u64>,
    arrived: Notify,
    clocks: Clocks,
    metrics: ShadowMetrics,
    window: Duration,
    started: Moment,
}

impl Shadow {
    /// Nothing has been decided or observed yet.
    #[must_use]
    pub fn new(clocks: Clocks, metrics: &Metrics, window: Duration) -> Self {
        Self(Arc::new(Inner {
            comparison: Mutex::new(Comparison::new(window)),
            unexplained: Mutex::default(),
            created: Mutex::default(),
            latest: Mutex::default(),
            unchecked: Mutex::default(),
            arrived: Notify::new(),
            started: moment(&clocks),
            clocks,
            metrics: ShadowMetrics::new(metrics.registry()),
            window,
        }))
    }

    fn now(&self) -> Moment {
        moment(&self.0.clocks)
    }

    /// Changes the comparison, and the metrics with it.
    fn compare<R>(&self, change: impl FnOnce(&mut Comparison, Moment) -> R) -> R {
        let now = self.now();
        let mut comparison = self.0.comparison.lock();
        let result = change(&mut comparison, now);
        for counted in comparison.take_counted() {
            self.0.metrics.count(&counted);
        }
        result
    }

    /// A reconcile has ended and wants these writes. Returns when it must be repeated, if it wants any.
    pub(crate) fn decided(&self, decider: &Decider, wanted: Vec<Wanted>) -> Option<Duration> {
        self.compare(|comparison, now| comparison.decided(decider, wanted, now))
    }

    fn add_unexplained(&self, change: Unexplained) {
        let mut unexplained = self.0.unexplained.lock();
        if unexplained.len() >= UNEXPLAINED_MAX {
            drop(unexplained);
            self.count_unchecked();
            return;
        }
        unexplained.push_back(change);
        drop(unexplained);
        self.0.arrived.notify_one();
    }

    fn count_unchecked(&self) {
        *self.0.unchecked.lock() += 1;
        self.0.metrics.unchecked();
    }
}

fn moment(clocks: &Clocks) -> Moment {
    Moment { monotonic: clocks.monotonic(), unix_milliseconds: clocks.wall_nanoseconds() / 1_000_000 }
}
