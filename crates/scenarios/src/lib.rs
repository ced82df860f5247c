//! Scenarios: what a user does in a cluster and must see afterwards, written once, run in every
//! environment.
//!
//! A scenario acts as the cluster administrator and waits for the results of the controller manager. The
//! [`TestCluster`] decides whether the cluster is the embedded one or a real control plane, and whether the
//! manager is ours or the original.

mod accepted;
mod accounts;
pub mod comparison;
mod custom_kind;
mod differences;
mod encodings;
mod failover;
mod garbage;
mod heartbeats;
mod http_endpoints;
mod jobs;
mod kubectl;
mod namespaces;
mod nodes;
mod normalize;
pub mod real;
mod resilience;
mod roles;
mod root_ca;
mod services;
mod shutdown;
mod test_cluster;
mod tokens;
mod workloads;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

pub use test_cluster::{ControlPlaneProcesses, TestCluster};
use workloads::{daemonsets, deployments, handover, replicas, statefulsets};

/// A property of a cluster with a controller manager, as an executable test.
pub struct Scenario {
    /// The property, as a sentence with underscores.
    pub name: &'static str,
    /// The environments it can run in.
    pub runs_on: RunsOn,
    /// Runs it.
    pub play: fn(&TestCluster) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

/// The environments a scenario can run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// Everywhere, with any manager.
    Anywhere,
    /// Only on a real control plane, with any manager.
    RealCluster,
    /// Only with processes that can be killed, paused and started again.
    Processes,
    /// Only where the original's program is there to compete with.
    BesideOriginal,
}

/// Scenarios by environment and function; a scenario has the name of its function.
macro_rules! scenarios {
    ($($runs_on:ident $module:ident :: $name:ident;)*) => {
        &[$(Scenario {
            name: stringify!($name),
            runs_on: RunsOn::$runs_on,
            play: |cluster| $module::$name(cluster).boxed_local(),
        }),*]
    };
}

/// All scenarios.
pub const ALL: &[Scenario] = scenarios! {
    Anywhere accounts::namespace_gets_its_default_service_account;
    Anywhere accounts::terminating_namespace_gets_no_service_account;
    Anywhere tokens::token_secret_is_filled_and_deleted_with_its_service_account;
    Anywhere tokens::token_secret_without_service_account_is_deleted;
    Anywhere tokens::token_secret_gets_no_token_of_a_service_account_it_does_not_name;
    Anywhere tokens::deleted_token_secret_is_removed_from_its_service_account;
    Anywhere tokens::emptied_token_secret_is_refilled;
    Anywhere roles::aggregated_cluster_role_follows_the_selected_roles;
    RealCluster roles::built_in_cluster_roles_aggregate_new_roles;
    RealCluster encodings::a_deployment_is_the_same_in_both_encodings;
    RealCluster encodings::an_endpoint_slice_is_the_same_in_both_encodings;
    Anywhere root_ca::every_namespace_has_the_root_ca_config_map;
    Anywhere namespaces::namespace_is_deleted_with_its_content;
    Anywhere namespaces::finalizers_block_a_namespace_and_are_in_its_conditions;
    Anywhere namespaces::namespace_deletes_pods_first;
    Anywhere namespaces::custom_objects_are_deleted_with_their_namespace;
    Anywhere namespaces::foreign_namespace_finalizer_is_respected;
    RealCluster namespaces::unavailable_api_service_blocks_a_namespace;
    Anywhere garbage::objects_without_existing_owners_are_deleted;
    Anywhere garbage::dependents_of_owners_with_reserved_characters_in_their_names_are_kept;
    Anywhere garbage::foreground_deletion_deletes_dependents_first;
    Anywhere garbage::orphaned_dependents_are_kept_without_owner_reference;
    Anywhere garbage::owner_cycle_is_deleted;
    Anywhere garbage::owner_in_another_namespace_is_reported_as_invalid;
    Anywhere garbage::kind_defined_later_is_garbage_collected;
    Anywhere services::service_lists_its_pods_as_endpoints;
    Anywhere services::endpoint_slices_are_packed_and_reused;
    Anywhere services::tampered_endpoint_slices_are_repaired;
    Anywhere services::endpoints_have_topology_hints;
    RealCluster services::dual_stack_service_has_slices_of_both_families;
    Anywhere jobs::job_counts_its_pods_and_completes;
    Anywhere jobs::job_with_backoff_limit_zero_fails_with_its_first_failed_pod;
    Anywhere jobs::indexed_job_fails_and_succeeds_per_index;
    Anywhere jobs::suspended_job_has_no_pods;
    Anywhere jobs::pod_failure_policy_is_applied;
    Anywhere jobs::success_policy_completes_a_job_early;
    Anywhere jobs::job_follows_parallelism_and_active_deadline;
    Processes jobs::killed_manager_counts_no_job_pod_twice;
    Anywhere nodes::pods_leave_lost_nodes_unless_all_nodes_are_lost;
    Anywhere nodes::pods_are_evicted_after_their_toleration_seconds;
    Anywhere nodes::pods_of_a_vanished_node_are_deleted;
    Anywhere nodes::out_of_service_node_loses_its_terminating_pods;
    Anywhere nodes::node_conditions_become_taints;
    Anywhere deployments::a_deployment_rolls_within_its_bounds;
    Anywhere deployments::a_deployment_is_paused_and_scaled_during_a_rollout;
    Anywhere deployments::a_deployment_recreates_pods_and_exceeds_its_progress_deadline;
    Anywhere replicas::replica_set_adopts_releases_and_scales;
    RealCluster replicas::replica_set_reports_an_exceeded_quota;
    Anywhere replicas::replication_controller_scales;
    Anywhere statefulsets::stateful_set_starts_and_stops_pods_in_order;
    Anywhere statefulsets::stateful_set_rolls_down_to_its_partition;
    Anywhere statefulsets::parallel_stateful_set_does_not_wait_for_readiness;
    Anywhere statefulsets::stateful_set_updates_on_delete_and_deletes_its_claims;
    Anywhere daemonsets::daemon_set_runs_on_eligible_nodes;
    Anywhere daemonsets::daemon_set_rolls_node_by_node;
    Anywhere daemonsets::daemon_set_surges;
    Anywhere daemonsets::daemon_set_updates_on_delete;
    Processes resilience::killed_manager_loses_no_work;
    Processes garbage::killed_manager_finishes_every_deletion;
    Processes resilience::api_server_restart_loses_no_work;
    Processes resilience::etcd_restart_loses_no_work;
    Processes resilience::manager_paused_for_a_minute_loses_no_work;
    BesideOriginal http_endpoints::http_endpoints_match_the_original;
    Processes kubectl::kubectl_output_matches_kube_apiserver;
    Processes shutdown::second_signal_exits_at_once;
    Processes shutdown::feature_gate_keeps_the_lease_on_exit;
    Processes shutdown::manager_credentials_write_only_expected_resources;
    Processes failover::stopped_leader_is_replaced_at_once;
    Processes failover::killed_leader_is_replaced_when_its_lease_expires;
    Processes failover::paused_leader_writes_nothing_after_resuming;
    BesideOriginal failover::leadership_alternates_with_the_original;
    BesideOriginal handover::leaders_change_during_rollouts;
};
