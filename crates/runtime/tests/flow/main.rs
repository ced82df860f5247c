//! Controllers on the embedded API server: how caches, gate, executor and loops work together.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

mod bootstrap_tokens;
mod caches;
mod certificates;
mod cleaners;
mod clients;
mod dynamic_resources;
mod executor;
mod explain;
mod failing_list;
mod faults;
mod garbage_collector;
mod gate;
mod gated_kinds;
mod hostile_metrics;
mod loops;
mod metadata;
mod monitors;
mod namespaces;
mod outages;
mod plan_features;
mod pod_parts;
mod resource_claims;
mod schedules;
mod secrets;
mod shadow;
mod status_coalescing;
mod taint_eviction;
mod test_cluster;
mod volume_binder;
