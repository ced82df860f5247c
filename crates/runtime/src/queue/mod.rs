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

use self::core::{Alarm, Core};
use crate::clock::Clocks;
use crate::metrics::QueueMetrics;

/// A queue that any number of tasks may add to and take from.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    core: Mutex<Core>,
    /// Notifies one waiting worker for each item that can be taken, one for an earlier time to wait for, and all at shutdown:
    /// a queue that notified all for each item would spend most of its time on those that find none.
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
            let alarm = {
                let mut core = self.0.core.lock();
                let now = self.0.clocks.monotonic();
                let due = core.move_due(now);
                self.0.metrics.added_many(due);
                if let Some((item, waited)) = core.take(now) {
                    self.0.metrics.taken(waited);
                    // The other items that are due, and the times that this worker does not wait for any more, are for
                    // other workers. This worker may have taken an item that was ready before.
                    let notified = due.min(core.ready_count()) + usize::from(core.needs_alarm());
                    drop(core);
                    self.notify(notified);
                    return Some(item);
                }
                if core.is_finished() {
                    return None;
                }
                core.set_alarm()
            };
            let Some(alarm) = alarm else {
                changed.await;
                continue;
            };
            let set = SetAlarm { queue: self, alarm: Some(alarm) };
            let sleep = tokio::time::sleep_until(self.0.clocks.instant(alarm.at));
            tokio::select! { biased; () = changed => {}, () = sleep => {} }
            set.end();
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
        let mut core = self.0.core.lock();
        let (ready, needed_alarm) = (core.ready_count(), core.needs_alarm());
        let result = change(&mut core, self.0.clocks.monotonic());
        let needs_alarm = core.needs_alarm() && !needed_alarm;
        let notified = core.ready_count().saturating_sub(ready) + usize::from(needs_alarm);
        let is_closed = core.is_closed();
        drop(core);
        if is_closed {
            // Some wait for the end of all processing.
            self.0.changed.notify_waiters();
        } else {
            self.notify(notified);
        }
        result
    }

    /// Notifies so many waiting workers. One that has found an item meanwhile passes this on to the next.
    fn notify(&self, workers: usize) {
        (0..workers).for_each(|_| self.0.changed.notify_one());
    }
}

/// The alarm of a worker while it waits. If it stops waiting for another reason, another worker gets the alarm.
struct SetAlarm<'q> {
    queue: &'q Queue,
    alarm: Option<Alarm>,
}

impl SetAlarm<'_> {
    /// The worker looks for items and for times itself.
    fn end(mut self) {
        if let Some(alarm) = self.alarm.take() {
            self.queue.0.core.lock().end_alarm(alarm);
        }
    }
}

impl Drop for SetAlarm<'_> {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            self.queue.change(|core, _| core.end_alarm(alarm));
        }
    }
}

#[cfg(test)]
mod tests;
