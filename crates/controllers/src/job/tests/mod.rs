//! Decisions about Jobs, single reconciles, and long runs with faults.

mod cluster;
mod crashes;
mod enqueue;
mod finish;
mod fixture;
mod large;
mod pods;
mod scheduling;
