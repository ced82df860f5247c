//! What runs controllers: shared caches, wake-ups, queues, the executor of plans, leader election.
//!
//! The flow of a change, room by room: a reflector of the client crate reads it from the wire;
//! [`caches`] puts it into the one table of its kind and tells the loops that declared the kind; a
//! loop's wake-up adds items to its [`queue`]; a worker of [`loops`] takes one, asks the [`gate`] whether the
//! caches have seen what this item wrote before, and lets the controller decide; the [`executor`] carries the
//! plan out.

pub mod caches;
pub mod clock;
pub mod events;
pub mod executor;
pub mod gate;
pub mod handover;
pub mod leader;
pub mod loops;
pub mod metrics;
pub mod monitors;
pub mod ordered_watch;
pub mod process_context;
pub mod queue;
pub mod running_controllers;
pub mod signing;
pub mod status_coalescing;
