//! What an event handler, an observer or a reconcile does beyond writing to the API server: it enqueues items, records
//! events and observes metrics.

use std::time::Duration;

use crate::{Item, Measurement, PlannedEvent};

/// Collects effects in order. They take effect when the handler or observer has returned, or when a reconciler passes
/// them to [`Context::effects`](crate::Context::effects).
///
/// `add` and its variants use the queue of the loop that the handler or reconcile belongs to, `enqueue` and its
/// variants a queue by name. An observer belongs to no loop, so it names the queue.
#[derive(Default)]
pub struct Effects {
    enqueued: Vec<EnqueuedItem>,
    measurements: Vec<Measurement>,
    events: Vec<PlannedEvent>,
}

/// An item for one of the controller's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnqueuedItem {
    /// The name of the queue; `None` for the queue of the same loop.
    pub queue: Option<&'static str>,
    /// The item.
    pub item: Item,
    /// When it is added.
    pub timing: EnqueueTiming,
}

/// When an item is added to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueTiming {
    /// At once (client-go: `Add`).
    Now,
    /// After a delay (client-go: `AddAfter`). It counts as a retry in `workqueue_retries_total`, even if the delay is
    /// zero.
    After(Duration),
    /// With backoff, as if its reconcile had failed (client-go: `AddRateLimited`).
    RateLimited,
}

impl EnqueueTiming {
    /// The delay; `None` if the item is added at once or with backoff.
    #[must_use]
    pub fn delay(self) -> Option<Duration> {
        match self {
            Self::After(delay) => Some(delay),
            Self::Now | Self::RateLimited => None,
        }
    }
}

impl Effects {
    /// Adds an item to the queue of the same loop.
    pub fn add(&mut self, item: impl Into<Item>) {
        self.push(None, item.into(), EnqueueTiming::Now);
    }

    /// Adds an item to the queue of the same loop after a delay.
    pub fn add_after(&mut self, item: impl Into<Item>, delay: Duration) {
        self.push(None, item.into(), EnqueueTiming::After(delay));
    }

    /// Adds an item to a queue of the controller.
    pub fn enqueue(&mut self, queue: &'static str, item: impl Into<Item>) {
        self.push(Some(queue), item.into(), EnqueueTiming::Now);
    }

    /// Adds an item to a queue of the controller after a delay.
    pub fn enqueue_after(&mut self, queue: &'static str, item: impl Into<Item>, delay: Duration) {
        self.push(Some(queue), item.into(), EnqueueTiming::After(delay));
    }

    /// Adds an item to a queue of the controller with backoff.
    pub fn enqueue_rate_limited(&mut self, queue: &'static str, item: impl Into<Item>) {
        self.push(Some(queue), item.into(), EnqueueTiming::RateLimited);
    }

    fn push(&mut self, queue: Option<&'static str>, item: Item, timing: EnqueueTiming) {
        self.enqueued.push(EnqueuedItem { queue, item, timing });
    }

    /// Observes a metric.
    pub fn measure(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// Records an event that belongs to no plan: a reconcile of the enqueued items does not see its cause.
    pub fn record(&mut self, event: PlannedEvent) {
        self.events.push(event);
    }

    /// Adds all effects of another collection after these.
    pub fn extend(&mut self, mut other: Self) {
        self.enqueued.append(&mut other.enqueued);
        self.measurements.append(&mut other.measurements);
        self.events.append(&mut other.events);
    }

    /// The items, in order.
    #[must_use]
    pub fn enqueued(&self) -> &[EnqueuedItem] {
        &self.enqueued
    }

    /// Takes the items, in order.
    #[must_use]
    pub fn take_enqueued(&mut self) -> Vec<EnqueuedItem> {
        std::mem::take(&mut self.enqueued)
    }

    /// Takes the measurements, in order.
    #[must_use]
    pub fn take_measurements(&mut self) -> Vec<Measurement> {
        std::mem::take(&mut self.measurements)
    }

    /// Takes the events, in order.
    #[must_use]
    pub fn take_events(&mut self) -> Vec<PlannedEvent> {
        std::mem::take(&mut self.events)
    }

    /// The items in order, with the delay of those that are added after one.
    #[must_use]
    pub fn into_items(mut self) -> Vec<(Item, Option<Duration>)> {
        self.take_enqueued().into_iter().map(|added| (added.item, added.timing.delay())).collect()
    }
}
