//! What must hold: always, and once the world is calm.
//!
//! Always: [`identity`], [`states`], [`own_writes`], [`lease`], [`access`], [`pace`], [`ownership`], [`adoption`], and
//! what single controllers promise while they work. While nodes are silent: [`nodes`]. Once calm, each kind is what its spec asks for: every controller has a checker here.

pub mod access;
pub mod accounts;
pub mod adoption;
pub mod daemonset;
pub mod deployment;
pub mod endpointslice;
pub mod garbage;
pub mod identity;
pub mod job;
pub mod lease;
pub mod look;
pub mod namespace;
pub mod nodes;
pub mod own_writes;
pub mod ownership;
pub mod pace;
pub mod replicas;
pub mod roles;
pub mod statefulset;
pub mod states;
pub mod tokens;

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;

use crate::witness::{Effect, Look};

/// Judges what happens, and what is there in the end.
pub trait Checker: Send {
    /// What it watches over.
    fn name(&self) -> &'static str;

    /// A write has reached the server.
    ///
    /// # Errors
    /// What it breaks.
    fn wrote(&mut self, _effect: &Effect, _server: &ApiServer) -> Result<(), String> {
        Ok(())
    }

    /// A manager has looked at one object afresh.
    fn looked(&mut self, _look: &Look<'_>) {}

    /// Nothing is wrong any more but that these nodes are silent, and have been for some time.
    ///
    /// # Errors
    /// What is still missing.
    fn silent(&self, _server: &ApiServer, _nodes: &BTreeSet<String>) -> Result<(), String> {
        Ok(())
    }

    /// The world was left alone for some time.
    ///
    /// # Errors
    /// What is still missing.
    fn calm(&self, _server: &ApiServer) -> Result<(), String> {
        Ok(())
    }
}

/// All checkers.
#[must_use]
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(identity::Identity),
        Box::new(access::Access),
        Box::new(lease::Lease::default()),
        Box::new(states::States::default()),
        Box::new(own_writes::OwnWrites::default()),
        Box::new(adoption::Adoption::default()),
        Box::new(pace::Pace::default()),
        Box::new(ownership::Ownership::default()),
        Box::new(garbage::Garbage),
        Box::new(replicas::Replicas::default()),
        Box::new(deployment::Deployments::default()),
        Box::new(statefulset::StatefulSets),
        Box::new(daemonset::DaemonSets::default()),
        Box::new(job::Jobs::default()),
        Box::new(endpointslice::EndpointSlices::default()),
        Box::new(namespace::Namespaces),
        Box::new(accounts::Accounts),
        Box::new(nodes::Nodes),
        Box::new(tokens::Tokens),
        Box::new(roles::Roles),
    ]
}
