//! Invariants: some hold at every write, some only after the faults have ended.
//!
//! At every write: [`uid_preconditions`], [`resource_version_preconditions`], [`own_writes`], [`lease`],
//! [`access`], [`write_rate`], [`ownership`], [`owners_elsewhere`], [`adoption`], and the safety properties of
//! single controllers. While nodes are unreachable: [`nodes`]. After convergence every kind matches its spec: each
//! controller has a checker here.

pub mod access;
pub mod adoption;
pub mod aggregated_roles;
pub mod daemonset;
pub mod deployment;
pub mod endpointslice;
pub mod garbage;
pub mod job;
pub mod lease;
pub mod namespace;
pub mod namespace_defaults;
pub mod nodes;
pub mod objects;
pub mod own_writes;
pub mod owners_elsewhere;
pub mod ownership;
pub mod replicas;
pub mod resource_version_preconditions;
pub mod statefulset;
pub mod tokens;
pub mod uid_preconditions;
pub mod write_rate;

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;

use crate::recorder::{LiveRead, ObservedWrite};

/// A checker of one invariant, called at every write and at the end.
pub trait Checker: Send {
    /// The controller or property that it checks.
    fn name(&self) -> &'static str;

    /// A write has reached the server.
    ///
    /// # Errors
    /// The violation.
    fn on_write(&mut self, _effect: &ObservedWrite, _server: &ApiServer) -> Result<(), String> {
        Ok(())
    }

    /// A manager has read one object live.
    fn on_live_read(&mut self, _look: &LiveRead<'_>) {}

    /// All faults have ended except that these nodes have sent no heartbeat for some time.
    ///
    /// # Errors
    /// What has not converged.
    fn check_silent_nodes(&self, _server: &ApiServer, _nodes: &BTreeSet<String>) -> Result<(), String> {
        Ok(())
    }

    /// The cluster has run for some time without faults and user actions.
    ///
    /// # Errors
    /// What has not converged.
    fn check_converged(&self, _server: &ApiServer) -> Result<(), String> {
        Ok(())
    }
}

/// All checkers.
#[must_use]
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(uid_preconditions::UidPreconditions),
        Box::new(access::Access),
        Box::new(lease::LeaderLease::default()),
        Box::new(resource_version_preconditions::ResourceVersionPreconditions::default()),
        Box::new(own_writes::OwnWrites::default()),
        Box::new(adoption::Adoption::default()),
        Box::new(write_rate::WriteRate::default()),
        Box::new(ownership::Ownership::default()),
        Box::new(owners_elsewhere::OwnersElsewhere::default()),
        Box::new(garbage::Garbage),
        Box::new(replicas::Replicas::default()),
        Box::new(deployment::Deployments::default()),
        Box::new(statefulset::StatefulSets),
        Box::new(daemonset::DaemonSets::default()),
        Box::new(job::Jobs::default()),
        Box::new(endpointslice::EndpointSlices::default()),
        Box::new(namespace::Namespaces),
        Box::new(namespace_defaults::NamespaceDefaults),
        Box::new(nodes::Nodes),
        Box::new(tokens::Tokens),
        Box::new(aggregated_roles::AggregatedRoles),
    ]
}
