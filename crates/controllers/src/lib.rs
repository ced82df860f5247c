//! The controllers. Each module begins with one sentence on what it keeps true; then, in this order,
//! what wakes it, what it may write, how it decides, and the tests.
//!
//! Nothing here can wait, tell the time, roll dice or open a connection; what a controller sees is
//! handed to it and what it wants is handed back.

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
