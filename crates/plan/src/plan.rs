//! What a controller answers: writes in order, events, and when to look again.

use std::time::Duration;

use crate::{Measurement, PlannedEvent, Write};

/// What is to be done about one item. The empty plan says: all is as it should be.
#[derive(Clone, Default)]
pub struct Plan {
    steps: Vec<Step>,
    events: Vec<PlannedEvent>,
    measurements: Vec<Measurement>,
    complaint: Option<String>,
    requeue_after: Option<Duration>,
}

/// A part of a plan. Steps are carried out in order.
#[derive(Clone)]
pub enum Step {
    /// One write.
    One(Box<Write>),
    /// Writes that do not depend on each other. They are sent in batches of one, two, four and so
    /// on, and the first batch with a failure is the last: a mistake that every write shares costs
    /// one request, not a thousand.
    SlowStart(Vec<Write>),
    /// Writes that do not depend on each other, sent at once; none stops another.
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
    /// Nothing to do.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// One write.
    #[must_use]
    pub fn of(write: Write) -> Self {
        let mut plan = Self::none();
        plan.push(write);
        plan
    }

    /// The item cannot be decided for a reason that lies in the objects; it is tried again, ever more
    /// slowly, because a change elsewhere may cure it without waking the item.
    #[must_use]
    pub fn error(complaint: impl Into<String>) -> Self {
        Self { complaint: Some(complaint.into()), ..Self::default() }
    }

    /// Adds a write.
    pub fn push(&mut self, write: Write) {
        self.steps.push(Step::One(Box::new(write)));
    }

    /// Adds writes that do not depend on each other.
    pub fn push_slow_start(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.steps.push(Step::SlowStart(writes));
        }
    }

    /// Adds writes that do not depend on each other, to be sent at once.
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

    /// Asks to be called again after a while even if nothing changes; the earliest wish counts.
    pub fn requeue_after(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |there| there.min(delay)));
    }

    /// Whether there is nothing to do at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.steps.is_empty()
            && self.events.is_empty()
            && self.measurements.is_empty()
            && self.complaint.is_none()
            && self.requeue_after.is_none()
    }

    /// The steps, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The writes, in order, for whoever stands between a decision and what carries it out.
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

    /// Why the item cannot be decided, if it cannot.
    #[must_use]
    pub fn error_message(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// When to look again.
    #[must_use]
    pub fn requeue_delay(&self) -> Option<Duration> {
        self.requeue_after
    }
}
