//! Deletes objects whose owners are all gone, and has owners wait for, or let go of, their dependents.

mod absent;
mod dot;
mod graph;
mod identity;

pub use graph::{Graph, Ripple};
