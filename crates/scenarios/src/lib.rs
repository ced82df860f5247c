//! Scenarios: what a user of a cluster does and then sees, written once, run in every world.
//!
//! A scenario speaks to a cluster as its administrator and waits for what a controller manager must
//! bring about. Whether the cluster is the embedded one or a real control plane, and whether the manager
//! is this one or the original, is the [`World`]'s affair.

mod accepted;
mod accounts;
pub mod comparison;
mod differences;
mod encodings;
mod failover;
mod garbage;
mod heartbeats;
mod jobs;
mod kubectl;
mod namespaces;
mod nodes;
mod pages;
pub mod real;
mod resilience;
mod roles;
mod root_ca;
mod rules;
mod services;
mod stopping;
mod tokens;
mod wishes;
mod workloads;
mod world;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use workloads::{daemonsets, deployments, handover, replicas, statefulsets};
pub use world::{Plane, World};

/// Something that must hold in a cluster with a controller manager.
pub struct Scenario {
    /// What holds, as a sentence with underscores.
    pub name: &'static str,
    /// Where it can be played.
    pub stage: Stage,
    /// Plays it.
    pub play: fn(&World) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

/// Where a scenario can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In every world, with any manager.
    Anywhere,
    /// Only on a real control plane, with any manager.
    Real,
    /// Only with processes that can be killed, paused and started again.
    Processes,
    /// Only where the original's program is there to compete with.
    BesideOriginal,
}

/// Scenarios by the stage they need and the function that plays them, after which they are called.
macro_rules! scenarios {
    ($($stage:ident $room:ident :: $name:ident;)*) => {
        &[$(Scenario {
            name: stringify!($name),
            stage: Stage::$stage,
            play: |world| $room::$name(world).boxed_local(),
        }),*]
    };
}

/// All scenarios.
pub const ALL: &[Scenario] = scenarios! {
    Anywhere accounts::a_namespace_has_its_default_account;
    Anywhere accounts::a_terminating_namespace_gets_nothing;
    Anywhere tokens::a_token_secret_is_filled_works_and_goes_with_its_account;
    Anywhere tokens::a_token_secret_without_an_account_is_deleted;
    Anywhere tokens::a_deleted_token_secret_leaves_its_account_s_list;
    Anywhere tokens::an_emptied_token_is_minted_again;
    Anywhere roles::aggregated_roles_fill_and_follow;
    Real roles::built_in_roles_take_up_new_parts;
    Real encodings::a_deployment_is_the_same_in_both_encodings;
    Real encodings::an_endpoint_slice_is_the_same_in_both_encodings;
    Anywhere root_ca::every_namespace_has_the_ca_and_gets_it_back;
    Anywhere namespaces::a_namespace_goes_with_all_that_is_in_it;
    Anywhere namespaces::finalizers_hold_a_namespace_and_are_told;
    Anywhere namespaces::pods_go_before_all_else;
    Anywhere namespaces::custom_objects_go_with_their_namespace;
    Anywhere namespaces::another_s_hold_on_a_namespace_is_respected;
    Real namespaces::an_api_that_does_not_answer_holds_a_namespace;
    Anywhere garbage::what_nobody_owns_any_more_goes;
    Anywhere garbage::dependents_go_first_in_the_foreground;
    Anywhere garbage::orphans_are_left_free;
    Anywhere garbage::owners_in_a_circle_go;
    Anywhere garbage::an_owner_elsewhere_is_no_owner;
    Anywhere garbage::a_kind_that_comes_later_has_owners_too;
    Anywhere services::a_service_lists_its_pods;
    Anywhere services::slices_are_packed_and_used_again;
    Anywhere services::spoilt_slices_are_repaired;
    Anywhere services::clients_are_told_what_is_close;
    Real services::a_service_of_two_families_has_slices_of_both;
    Anywhere jobs::a_job_counts_its_pods_and_completes;
    Anywhere jobs::a_failed_pod_ends_a_job_without_patience;
    Anywhere jobs::indexes_fail_and_succeed_one_by_one;
    Anywhere jobs::a_suspended_job_has_no_pods;
    Anywhere jobs::a_pod_s_failure_is_judged_by_the_job_s_rules;
    Anywhere jobs::one_index_can_be_enough;
    Anywhere jobs::a_job_shrinks_grows_and_runs_out_of_time;
    Processes jobs::a_killed_manager_counts_no_pod_twice;
    Anywhere nodes::lost_nodes_are_left_and_a_lost_cluster_is_not;
    Anywhere nodes::pods_leave_a_tainted_node_in_their_time;
    Anywhere nodes::pods_of_a_vanished_node_go;
    Anywhere nodes::a_node_out_of_service_holds_no_pod;
    Anywhere nodes::conditions_of_a_node_become_taints;
    Anywhere deployments::a_deployment_rolls_within_its_bounds;
    Anywhere deployments::a_deployment_pauses_and_scales_in_the_middle;
    Anywhere deployments::a_deployment_recreates_forgets_and_misses_its_deadline;
    Anywhere replicas::a_replica_set_adopts_releases_and_scales;
    Real replicas::a_replica_set_tells_why_it_cannot_grow;
    Anywhere replicas::a_replication_controller_scales;
    Anywhere statefulsets::a_stateful_set_starts_and_stops_in_order;
    Anywhere statefulsets::a_stateful_set_rolls_down_to_its_partition;
    Anywhere statefulsets::a_parallel_stateful_set_waits_for_nobody;
    Anywhere statefulsets::a_stateful_set_changes_by_hand_and_takes_its_claims_along;
    Anywhere daemonsets::a_daemon_runs_where_it_may;
    Anywhere daemonsets::a_daemon_rolls_node_by_node;
    Anywhere daemonsets::a_daemon_surges;
    Anywhere daemonsets::a_daemon_changes_by_hand;
    Processes resilience::a_killed_manager_loses_nothing;
    Processes garbage::a_killed_manager_finishes_every_deletion;
    Processes resilience::an_api_server_restart_loses_nothing;
    Processes resilience::an_etcd_restart_loses_nothing;
    Processes resilience::a_pause_of_a_minute_loses_nothing;
    BesideOriginal pages::pages_tell_what_the_original_s_tell;
    Processes kubectl::kubectl_cannot_tell_the_clusters_apart;
    Processes stopping::a_second_signal_ends_it_at_once;
    Processes stopping::the_gate_keeps_the_lease;
    Processes stopping::the_manager_itself_writes_little;
    Processes failover::a_stopped_leader_is_followed_at_once;
    Processes failover::a_killed_leader_is_followed_when_its_lease_ends;
    Processes failover::a_paused_leader_writes_nothing_on_waking;
    BesideOriginal failover::the_original_and_we_alternate;
    BesideOriginal handover::leaders_change_in_the_middle_of_rollouts;
};
