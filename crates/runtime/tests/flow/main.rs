//! Controllers on the embedded API server: how caches, gate, executor and loops work together.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

mod caches;
mod dynamic_resources;
mod executor;
mod faults;
mod garbage_collector;
mod gate;
mod loops;
mod metadata;
mod monitors;
mod namespaces;
mod outages;
mod plan_features;
mod status_coalescing;
mod taint_eviction;
mod test_cluster;
