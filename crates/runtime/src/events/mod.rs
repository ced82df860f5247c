//! What controllers want people to see becomes core/v1 Events, without ever holding a controller up.
//!
//! One pipeline per component: a [`EventRecorder`] takes notes and never waits, an [`EventWriter`] turns them
//! into requests, one after the other. Between them the [`Correlator`] keeps a chatty object from
//! flooding the API: repeats raise a count, many similar messages become one, and what is still too much
//! is left out. Of repeats that follow each other closely only the last is written.
//!
//! kube's own recorder (`kube::runtime::events`) was looked at: it writes events.k8s.io/v1 with series,
//! where the original writes core/v1 with counts, and it neither combines nor filters.

mod coalescing;
mod component;
mod correlate;
mod event;
mod recorder;

pub use component::MANAGER_COMPONENT;
pub use correlate::{ClockReading, CorrelatedEvent, Correlator, EventCorrelateResult};
pub use event::{Event, EventNames, StoredEvent, WallNanos};
pub use recorder::{EventRecorder, EventWriter};
