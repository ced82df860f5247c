//! The controllers. Each module starts with one sentence on what it maintains; then follow the watches that
//! enqueue keys, the permissions to write, the decision, and the tests.
//!
//! This crate has no clock, no randomness, no async runtime and no connection: a controller receives its
//! inputs as arguments and returns its writes as a plan.

pub mod clusterrole_aggregation;
pub mod daemonset;
pub mod deployment;
mod disruption_target;
pub mod endpointslice;
pub mod garbage_collector;
pub mod job;
pub mod names;
pub mod namespace;
pub mod node_lifecycle;
pub mod pod_garbage_collector;
mod pods_by_node;
mod registry;
pub mod replicaset;
pub mod replicationcontroller;
pub mod root_ca_certificate_publisher;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod statefulset;
pub mod taint_eviction;
mod workloads;

pub use registry::{ControllersOptions, all_controllers};
