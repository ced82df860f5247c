//! The result of a decision: writes in order, events, measurements and the requeue delay.

use std::time::Duration;

use crate::{Delay, Measurement, PlannedEvent, Write};

/// What a controller decides about one item. The empty plan means that nothing is to be done.
#[derive(Clone, Default)]
pub struct Plan {
    steps: Vec<Step>,
    events: Vec<PlannedEvent>,
    measurements: Vec<Measurement>,
    error: Option<String>,
    requeue_after: Option<Delay>,
}

/// A step of a plan. The executor applies steps in order.
#[derive(Clone)]
pub enum Step {
    /// One write.
    One(Box<Write>),
    /// Independent writes in batches of 1, 2, 4 and so on; the first batch with a failure is the last. An error that
    /// every write shares, such as an exceeded quota, costs one request instead of thousands.
    SlowStart(Vec<Write>),
    /// Independent writes, sent concurrently; a failure stops none of the others.
    Parallel(Vec<Write>),
}

impl Step {
    /// Its writes, in order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        match self {
            Self::One(write) => std::slice::from_ref(&**write),
            Self::SlowStart(writes) | Self::Parallel(writes) => writes,
        }
    }
}

impl Plan {
    /// The empty plan.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A plan of one write.
    #[must_use]
    pub fn of(write: Write) -> Self {
        let mut plan = Self::none();
        plan.push(write);
        plan
    }

    /// No decision is possible, for a reason that lies in the objects. The item is requeued with backoff, because a
    /// change to an object that does not enqueue it may remove the reason.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self { error: Some(message.into()), ..Self::default() }
    }

    /// Adds a write.
    pub fn push(&mut self, write: Write) {
        self.steps.push(Step::One(Box::new(write)));
    }

    /// Adds independent writes with slow start.
    pub fn push_slow_start(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.steps.push(Step::SlowStart(writes));
        }
    }

    /// Adds independent writes that are sent concurrently.
    pub fn push_parallel(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.steps.push(Step::Parallel(writes));
        }
    }

    /// Adds an event.
    pub fn record(&mut self, event: PlannedEvent) {
        self.events.push(event);
    }

    /// Adds a measurement.
    pub fn measure(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// Requeues the item after a delay even if no event enqueues it; the shortest delay counts. The reason says what the
    /// item waits for.
    pub fn requeue_after(&mut self, duration: Duration, reason: &'static str) {
        let delay = Delay::of(duration, reason);
        self.requeue_after = Some(self.requeue_after.map_or(delay, |earlier| earlier.min(delay)));
    }

    /// Whether the plan is empty.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.steps.is_empty()
            && self.events.is_empty()
            && self.measurements.is_empty()
            && self.error.is_none()
            && self.requeue_after.is_none()
    }

    /// The steps, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The writes, in order, for wrappers that change a plan before it is applied.
    pub fn writes_mut(&mut self) -> impl Iterator<Item = &mut Write> {
        self.steps.iter_mut().flat_map(|step| match step {
            Step::One(write) => std::slice::from_mut(&mut **write),
            Step::SlowStart(writes) | Step::Parallel(writes) => writes.as_mut_slice(),
        })
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[PlannedEvent] {
        &self.events
    }

    /// The measurements, in order.
    #[must_use]
    pub fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    /// Why no decision is possible, if none is.
    #[must_use]
    pub fn error_message(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The delay after which the item is requeued.
    #[must_use]
    pub fn requeue_delay(&self) -> Option<Delay> {
        self.requeue_after
    }
}
