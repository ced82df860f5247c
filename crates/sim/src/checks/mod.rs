//! Invariants: some hold at every write, some only after the faults have ended.
//!
//! At every write: [`uid_preconditions`], [`resource_version_preconditions`], [`own_writes`], [`lease`],
//! [`access`], [`write_rate`], [`unchanged_writes`], [`ownership`], [`owners_elsewhere`], [`adoption`], and the safety properties of
//! single controllers. While nodes are unreachable: [`nodes`]. After convergence every kind matches its spec: each
//! controller has a checker here.

pub mod access;
pub mod adoption;
pub mod aggregated_roles;
pub mod attachments;
pub mod autoscaler;
pub mod bootstrap_tokens;
pub mod certificates;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod device_evictions;
pub mod devices;
pub mod disruption;
pub mod endpoints;
pub mod endpointslice;
pub mod garbage;
pub mod job;
pub mod lease;
pub mod legacy_tokens;
mod live_volumes;
pub mod migrations;
pub mod namespace;
pub mod namespace_defaults;
pub mod node_ranges;
pub mod nodes;
pub mod objects;
pub mod old_requests;
pub mod own_writes;
mod owner_sizes;
pub mod owners_elsewhere;
pub mod ownership;
pub mod pod_groups;
pub mod policy_status;
pub mod pool_requests;
pub mod quota;
pub mod replicas;
pub mod resource_version_preconditions;
pub mod service_cidrs;
mod staleness;
pub mod statefulset;
pub mod storage_versions;
pub mod tokens;
pub mod trust_bundles;
pub mod ttl_after_finished;
pub mod uid_preconditions;
pub mod unchanged_writes;
pub mod volume_binding;
pub mod volume_data;
pub mod volume_events;
pub mod volume_protection;
pub mod write_rate;

use std::collections::BTreeSet;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::all_controllers;

use crate::actions::ListedKind;
use crate::recorder::{LiveRead, ObservedWrite};
use crate::storm::controller_options;

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

    /// A manager has removed a directory of its host.
    ///
    /// # Errors
    /// The violation.
    fn on_removed_directory(&mut self, _path: &str, _server: &ApiServer) -> Result<(), String> {
        Ok(())
    }

    /// A manager has read one object live, or has learned that there is none.
    fn on_live_read(&mut self, _look: &LiveRead<'_>) {}

    /// The wall clock of a manager jumps.
    fn on_clock_jump(&mut self) {}

    /// The wall clock of the API server jumps.
    fn on_server_clock_jump(&mut self) {}

    /// Something other than a user has acted, this long after the start: a network fault, a crash, a clock.
    fn on_fault(&mut self, _at: Duration) {}

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
        Box::new(unchanged_writes::UnchangedWrites::default()),
        Box::new(ownership::Ownership::default()),
        Box::new(owners_elsewhere::OwnersElsewhere::default()),
        Box::new(garbage::Garbage),
        Box::new(replicas::Replicas::default()),
        Box::new(deployment::Deployments::default()),
        Box::new(disruption::Budgets::default()),
        Box::new(statefulset::StatefulSets),
        Box::new(daemonset::DaemonSets::default()),
        Box::new(job::Jobs::default()),
        Box::new(cronjob::CronJobs::default()),
        Box::new(ttl_after_finished::FinishedJobs::default()),
        Box::new(autoscaler::Autoscalers::default()),
        Box::new(endpointslice::EndpointSlices::default()),
        Box::new(endpoints::EndpointsAgree::default()),
        Box::new(quota::Quotas),
        Box::new(namespace::Namespaces),
        Box::new(namespace_defaults::NamespaceDefaults),
        Box::new(nodes::Nodes),
        Box::new(node_ranges::NodeRanges),
        Box::new(service_cidrs::ServiceCidrs::default()),
        Box::new(tokens::Tokens),
        Box::new(aggregated_roles::AggregatedRoles),
        Box::new(bootstrap_tokens::BootstrapTokens::default()),
        Box::new(trust_bundles::TrustBundles),
        Box::new(old_requests::OldRequests::default()),
        Box::new(certificates::Certificates),
        Box::new(legacy_tokens::LegacyTokens),
        Box::new(attachments::Attachments::default()),
        Box::new(volume_binding::VolumeBinding::default()),
        Box::new(volume_data::VolumeData::default()),
        Box::new(volume_protection::VolumeProtection::default()),
        Box::new(volume_protection::AttributesClassProtection::default()),
        Box::new(migrations::Migrations::default()),
        Box::new(devices::Devices::default()),
        Box::new(device_evictions::DeviceEvictions::default()),
        Box::new(pod_groups::PodGroups::default()),
        Box::new(storage_versions::StorageVersions::default()),
        Box::new(pool_requests::PoolRequests::default()),
        Box::new(policy_status::PolicyStatus::default()),
        Box::new(volume_events::ExpansionEvents::default()),
        Box::new(volume_events::LabelConflictEvents::default()),
    ]
}

/// Whether a checker can expect convergence while lists of these kinds fail: none of the controllers that it checks
/// reads one of them, as far as the shipped controllers do.
#[must_use]
pub fn is_independent_of(checker: &str, failing: &BTreeSet<ListedKind>) -> bool {
    let reads = |plural: &str| failing.iter().any(|kind| kind.plural() == plural);
    let controllers = all_controllers(&controller_options());
    let affected = controllers.iter().filter(|controller| {
        controller.loops.iter().flat_map(|a_loop| &a_loop.reads).any(|kind| reads(&kind.resource().plural))
    });
    let checks_affected = affected.map(|controller| controller.name).any(|name| checker.contains(name));
    // The garbage collector reads all kinds, and deletes nothing of a kind that it cannot list.
    let checks_garbage =
        checker == garbage::NAME && failing.iter().any(|kind| kind.needs_garbage_collector());
    // Quotas count objects of all kinds.
    let checks_quotas = checker == quota::NAME && !failing.is_empty();
    // A migration lists the objects of any kind.
    let checks_migrations = checker == migrations::NAME && !failing.is_empty();
    !checks_affected && !checks_garbage && !checks_quotas && !checks_migrations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkers_of_controllers_that_read_a_failing_kind_do_not_judge() {
        let judges = |kind| {
            let failing = BTreeSet::from([kind]);
            let exempt = all().into_iter().filter(|one| !is_independent_of(one.name(), &failing));
            let names: Vec<_> = exempt.map(|checker| checker.name()).collect();
            assert!(names.contains(&quota::NAME), "quotas count all kinds");
            let of_all_kinds = [quota::NAME, migrations::NAME];
            names.into_iter().filter(|name| !of_all_kinds.contains(name)).collect::<Vec<_>>()
        };
        let bootstrap = "token-cleaner-controller and bootstrap-signer-controller";
        let endpoints = "endpoints-controller, endpointslice-mirroring-controller and ttl-controller";
        let legacy = "legacy-serviceaccount-token-cleaner-controller";
        assert_eq!(judges(ListedKind::Secret), ["serviceaccount-token-controller", bootstrap, legacy]);
        assert_eq!(judges(ListedKind::ClusterRole), ["clusterrole-aggregation-controller"]);
        assert_eq!(judges(ListedKind::Service), ["garbage-collector", "endpointslice-controller", endpoints]);
        assert_eq!(
            judges(ListedKind::EndpointSlice),
            ["garbage-collector", "endpointslice-controller", endpoints]
        );
        assert_eq!(
            judges(ListedKind::ControllerRevision),
            ["garbage-collector", "statefulset-controller", "daemonset-controller"]
        );
    }
}
