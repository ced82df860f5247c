//! What the controllers of workloads have in common: whose pods are whose, what a pod is made from, and
//! which pod goes first.

pub(crate) mod adoption;
pub(crate) mod availability;
pub(crate) mod enqueue;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod owners;
pub(crate) mod pod_creation;
pub(crate) mod pod_ranking;
pub(crate) mod pod_writes;
pub(crate) mod revisions;
pub(crate) mod status_urgency;
pub(crate) mod templates;
