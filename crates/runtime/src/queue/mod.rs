//! Work queues: every item is queued once, in order, never processed by two workers at a time, and retried
//! with backoff.
//!
//! The rules are in `core`, which has no clock and no threads; this file adds waiting and metrics.

mod core;

pub use self::core::{ItemState, QueueCounts, QueueSnapshot};

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::{Item, RateLimiter};
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::core::Core;
use crate::clock::Clocks;
use crate::metrics::QueueMetrics;

/// A queue that any number of tasks may add to and take from.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    core: Mutex<Core>,
    /// Notified whenever a waiter might have an item to take or an earlier time to wait for.
    changed: Notify,
    clocks: Clocks,
    metrics: QueueMetrics,
}

impl Queue {
    /// An empty queue whose metrics carry this name.
    #[must_use]
    pub fn new(limiter: RateLimiter, clocks: Clocks, metrics: QueueMetrics) -> Self {
        let core = Mutex::new(Core::new(limiter));
        let shared = Arc::new(Shared { core, changed: Notify::new(), clocks, metrics });
        let watched = Arc::downgrade(&shared);
        shared.metrics.watch(move || {
            let shared = watched.upgrade()?;
            let now = shared.clocks.monotonic();
            let running = shared.core.lock().running(now);
            Some(running)
        });
        Self(shared)
    }

    /// Queues an item, unless it is queued already.
    pub fn add(&self, item: Item) {
        self.change(|core, now| {
            if core.add(item, now) {
                self.0.metrics.added();
            }
        });
    }

    /// Queues an item after a delay; of several delays the earliest counts. It counts as a retry even if the delay is
    /// zero, as client-go's `AddAfter` does.
    pub fn add_after(&self, item: Item, delay: Duration) {
        self.0.metrics.retried();
        if delay.is_zero() {
            return self.add(item);
        }
        self.change(|core, now| core.add_after(item, delay, now));
    }

    /// Queues an item after its backoff, and not before `at_least` (the server's Retry-After).
    pub fn add_rate_limited(&self, item: Item, at_least: Duration) {
        self.0.metrics.retried();
        self.change(|core, now| core.add_rate_limited(item, at_least, now));
    }

    /// Resets an item's backoff.
    pub fn forget(&self, item: &Item) {
        self.0.core.lock().forget(item);
    }

    /// How often an item was requeued with backoff since it was last forgotten.
    #[must_use]
    pub fn failures(&self, item: &Item) -> u32 {
        self.0.core.lock().failures(item)
    }

    /// How many items it has.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.0.core.lock().counts()
    }

    /// The items that `wanted` accepts and that the queue knows anything about.
    #[must_use]
    pub fn states(&self, wanted: &dyn Fn(&Item) -> bool) -> Vec<ItemState> {
        self.0.core.lock().states(wanted)
    }

    /// Some of the items that wait, at most `limit` of each sort: those that fail, those being processed, those that are
    /// due next. Unlike [`Queue::states`] it is fast with any number of items.
    #[must_use]
    pub fn some_waiting(&self, limit: usize) -> Vec<ItemState> {
        self.0.core.lock().some_waiting(limit)
    }

    /// The next item, as soon as there is one; `None` after shutdown, when none is left.
    pub async fn next(&self) -> Option<Item> {
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the check, so that no item added after it is missed.
            changed.as_mut().enable();
            let due = {
                let mut core = self.0.core.lock();
                let now = self.0.clocks.monotonic();
                self.0.metrics.added_many(core.move_due(now));
                if let Some((item, waited)) = core.take(now) {
                    self.0.metrics.taken(waited);
                    return Some(item);
                }
                if core.is_finished() {
                    return None;
                }
                core.next_due()
            };
            match due {
                None => changed.await,
                Some(due) => {
                    let sleep = tokio::time::sleep_until(self.0.clocks.instant(due));
                    tokio::select! { biased; () = changed => {}, () = sleep => {} }
                }
            }
        }
    }

    /// Ends the processing of an item. If it was added meanwhile, it is queued again now.
    pub fn done(&self, item: &Item) {
        self.change(|core, now| {
            if let Some(worked) = core.done(item, now) {
                self.0.metrics.worked(worked);
            }
        });
    }

    /// Takes no more items; queued items are still handed out, delayed ones are dropped.
    pub fn shut_down(&self) {
        self.change(|core, _| core.shut_down(false));
    }

    /// As [`Queue::shut_down`], but items that are added while they are processed are still handed out;
    /// returns when all processing has ended.
    pub async fn drain(&self) {
        self.change(|core, _| core.shut_down(true));
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.0.core.lock().is_drained() {
                return;
            }
            changed.await;
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Core, Duration) -> R) -> R {
        let result = change(&mut self.0.core.lock(), self.0.clocks.monotonic());
        // All waiters are notified: one may wait for an item, another for shutdown or for an earlier due
        // time.
        self.0.changed.notify_waiters();
        result
    }
}

#[cfg(test)]
mod tests;
