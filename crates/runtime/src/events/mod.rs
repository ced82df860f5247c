//! Writes the events of controllers as core/v1 Events, without ever blocking a controller.
//!
//! One pipeline per component: an [`EventRecorder`] takes planned events and never waits, an [`EventWriter`]
//! sends them, one after the other. Between them the [`Correlator`] keeps one object from flooding the API:
//! repetitions increase a count, many similar messages are aggregated into one, and the spam filter drops
//! what is still too much. Of repetitions within a second only the last is written.
//!
//! kube's own recorder (`kube::runtime::events`) is not suitable: it writes events.k8s.io/v1 with series,
//! where the original writes core/v1 with counts, and it neither aggregates nor filters.

mod coalescing;
mod component;
mod correlate;
mod event;
mod recorder;

pub use component::MANAGER_COMPONENT;
pub use correlate::{ClockReading, CorrelatedEvent, Correlator, EventCorrelateResult};
pub use event::{Event, EventNames, StoredEvent, WallNanos};
pub use recorder::{EventRecorder, EventWriter};
