//! Shared by the workload controllers: adoption and release, creating pods from templates, ranking pods for
//! deletion, revisions.

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

#[cfg(test)]
mod foreign_owner_tests;
