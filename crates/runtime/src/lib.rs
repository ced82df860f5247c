//! Runs controllers: shared caches, event handlers, work queues, the executor of plans, leader election.
//!
//! The flow of a change: a reflector of the client crate reads it from a watch; [`caches`] puts it into the
//! one store of its kind and calls the event handlers of the loops that declared the kind; a handler adds
//! items to its loop's work [`queue`]; a worker of [`loops`] takes one, asks the [`gate`] whether the caches
//! have observed the item's earlier writes, and lets the controller decide; the [`executor`] sends the writes
//! of the plan.

pub mod caches;
pub mod certificates;
pub mod clock;
pub mod events;
pub mod executor;
pub mod explain;
mod failure_log;
pub mod gate;
pub mod handover;
pub mod inspection;
pub mod journal;
pub mod leader;
pub mod list_progress;
pub mod loops;
pub mod metrics;
pub mod monitors;
pub mod ordered_watch;
pub mod process_context;
pub mod queue;
pub mod reloaded_files;
pub mod running_controllers;
pub mod shadow;
pub mod signing;
pub mod status_coalescing;
