//! The controllers. Each module starts with one sentence on what it maintains; then follow the watches that
//! enqueue keys, the permissions to write, the decision, and the tests.
//!
//! This crate has no clock, no randomness, no async runtime and no connection: a controller receives its
//! inputs as arguments and returns its writes as a plan.

pub mod bootstrap_signer;
pub mod certificates;
pub mod certificatesigningrequest_approving;
pub mod certificatesigningrequest_cleaner;
pub mod certificatesigningrequest_signing;
mod cidr;
pub mod clusterrole_aggregation;
#[cfg(test)]
mod cpu_time;
pub mod cronjob;
mod csi_translation;
pub mod daemonset;
pub mod deployment;
pub mod device_taint_eviction;
pub mod disruption;
mod disruption_target;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod ephemeral_volume;
pub mod garbage_collector;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod kube_apiserver_serving_clustertrustbundle_publisher;
pub mod legacy_serviceaccount_token_cleaner;
pub mod names;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod persistentvolume_attach_detach;
pub mod persistentvolume_binder;
pub mod persistentvolume_expander;
pub mod persistentvolume_protection;
pub mod persistentvolumeclaim_protection;
pub mod pod_garbage_collector;
pub mod podcertificaterequest_cleaner;
pub mod podgroup_protection;
mod pods_by_claim;
mod pods_by_node;
mod protection;
mod registry;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourceclaim;
pub mod resourcepoolstatusrequest;
pub mod resourcequota;
pub mod root_ca_certificate_publisher;
pub mod selinux_warning;
pub mod service_cidr;
mod service_endpoints;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod statefulset;
pub mod storage_version_migrator;
pub mod storageversion_garbage_collector;
pub mod taint_eviction;
pub mod token_cleaner;
pub mod ttl;
pub mod ttl_after_finished;
pub mod validatingadmissionpolicy_status;
pub mod volumeattributesclass_protection;
mod workloads;

pub use registry::{ControllersOptions, all_controllers, enabled_controllers};
