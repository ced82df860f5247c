//! Scenarios: what a user does in a cluster and must see afterwards, written once, run in every
//! environment.
//!
//! A scenario acts as the cluster administrator and waits for the results of the controller manager. The
//! [`TestCluster`] decides whether the cluster is the embedded one or a real control plane, and whether the
//! manager is ours or the original.

mod accepted;
mod accounts;
mod admission_policies;
mod attachment_handover;
mod attachments;
mod autoscalers;
mod bootstrap_tokens;
mod certificate_life;
mod certificates;
pub mod comparison;
mod cronjobs;
mod custom_kind;
mod device_scheduling;
mod device_taints;
mod differences;
mod dynamic_volumes;
mod encodings;
mod endpoints;
mod explaining;
mod failover;
mod garbage;
mod heartbeats;
mod http_endpoints;
mod jobs;
mod kubectl;
mod migrations;
mod mirroring;
mod namespaces;
mod node_ranges;
mod node_ttl;
mod nodes;
mod normalize;
mod pod_groups;
mod quotas;
pub mod real;
mod resilience;
mod resource_claims;
mod roles;
mod root_ca;
mod scaling;
mod selinux;
mod service_cidrs;
mod services;
pub mod shadow;
mod shutdown;
mod test_cluster;
mod tokens;
mod trust_bundles;
mod volume_protection;
mod volumes;
mod workloads;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use keleustes_control_plane::build::Program;

pub use test_cluster::{ControlPlaneProcesses, OwnManager, StartManager, TestCluster};
use workloads::{daemonsets, deployments, disruptions, handover, replicas, statefulsets, templates};

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
    /// Everywhere, with any manager; on a real control plane only if it is named, because it takes minutes there.
    Slow,
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

/// Scenarios that share a cluster, and how it differs from the usual one.
pub struct Group {
    /// The scenarios.
    pub scenarios: &'static [Scenario],
    /// Arguments of kube-apiserver beyond the usual ones.
    pub api_server_args: &'static [&'static str],
    /// Arguments of the manager beyond the usual ones.
    pub manager_args: &'static [&'static str],
    /// Whether kube-scheduler runs.
    pub has_scheduler: bool,
    /// Programs that scenarios start themselves.
    pub programs: &'static [Program],
    /// Whether pods run on simulated nodes, and the metrics APIs serve what they use.
    pub has_metrics: bool,
    /// Whether kinds and controllers behind feature gates that are off by default exist.
    pub is_gated: bool,
}

/// The usual cluster.
pub const USUAL: Group = Group {
    scenarios: ALL,
    api_server_args: &[],
    manager_args: &[],
    has_scheduler: false,
    programs: &[],
    has_metrics: false,
    is_gated: false,
};

/// The feature gates of the scenarios in [`GATED`].
const GATES: &str = "--feature-gates=GenericWorkload=true,WorkloadWithJob=true,DRAResourcePoolStatus=true,\
                     DRAWorkloadResourceClaims=true";

/// All groups.
pub const GROUPS: &[Group] = &[
    USUAL,
    Group { scenarios: SCHEDULED, has_scheduler: true, programs: &[Program::LocalPathProvisioner], ..USUAL },
    Group { scenarios: MEASURED, has_scheduler: true, has_metrics: true, ..USUAL },
    Group {
        scenarios: GATED,
        api_server_args: &[
            GATES,
            "--feature-gates=StorageVersionAPI=true",
            "--runtime-config=scheduling.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true",
        ],
        manager_args: &[GATES],
        is_gated: true,
        ..USUAL
    },
];

/// Scenarios with a scheduler.
const SCHEDULED: &[Scenario] = scenarios! {
    Anywhere device_scheduling::deployment_with_a_claim_template_uses_and_frees_a_device;
    RealCluster device_scheduling::pod_with_an_extended_resource_frees_its_device;
    RealCluster dynamic_volumes::local_path_provisioner_serves_a_stateful_set;
};

/// Scenarios with metrics.
const MEASURED: &[Scenario] = scenarios! {
    Anywhere scaling::deployment_follows_its_load_up_and_down;
    Anywhere scaling::external_metric_scales_a_deployment;
    RealCluster scaling::custom_metric_of_pods_scales_a_deployment;
    RealCluster scaling::custom_metrics_of_objects_scale_a_deployment;
    Anywhere scaling::custom_resource_is_scaled;
};

/// Scenarios of features whose gates are off by default.
const GATED: &[Scenario] = scenarios! {
    Anywhere pod_groups::pod_group_is_deleted_after_its_last_active_pod;
    Anywhere pod_groups::foreign_finalizer_of_a_pod_group_is_kept;
    Anywhere pod_groups::job_gets_a_workload_and_a_pod_group;
    Anywhere pod_groups::gang_of_a_job_is_resized_suspended_and_resumed;
    Anywhere pod_groups::delegated_job_uses_the_workload_of_its_controller;
    Anywhere pod_groups::pods_of_a_group_share_its_claim_and_leave_its_tainted_device;
    Processes pod_groups::killed_manager_gives_a_job_one_workload_and_one_pod_group;
    Anywhere pod_groups::pool_status_request_is_answered_once;
    Anywhere pod_groups::incomplete_pool_keeps_its_request_without_answer;
    RealCluster migrations::collector_of_storage_versions_writes_with_its_own_role;
};

/// All scenarios in the usual cluster.
pub const ALL: &[Scenario] = scenarios! {
    Anywhere accounts::namespace_gets_its_default_service_account;
    Anywhere accounts::terminating_namespace_gets_no_service_account;
    Anywhere tokens::token_secret_is_filled_and_deleted_with_its_service_account;
    Anywhere tokens::token_secret_without_service_account_is_deleted;
    Anywhere tokens::token_secret_gets_no_token_of_a_service_account_it_does_not_name;
    Anywhere tokens::deleted_token_secret_is_removed_from_its_service_account;
    Anywhere tokens::emptied_token_secret_is_refilled;
    Anywhere bootstrap_tokens::bootstrap_token_signs_cluster_info_until_it_expires;
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
    Anywhere node_ranges::nodes_beyond_the_last_range_wait_until_one_is_free;
    Anywhere node_ranges::existing_ranges_of_nodes_are_kept;
    Anywhere node_ranges::restarted_manager_continues_with_unused_ranges;
    Anywhere admission_policies::wrong_types_in_a_policy_are_reported_once_per_generation;
    Anywhere admission_policies::each_kind_of_a_policy_has_its_own_warnings;
    Anywhere admission_policies::policy_over_a_custom_kind_is_checked_with_its_schema;
    Anywhere service_cidrs::service_cidr_in_use_is_kept_until_its_last_address_is_gone;
    Anywhere service_cidrs::nested_service_cidr_goes_and_an_equal_one_frees_another;
    Anywhere service_cidrs::unused_service_cidr_goes_after_ten_seconds_and_keeps_foreign_finalizers;
    Anywhere services::service_lists_its_pods_as_endpoints;
    Anywhere services::endpoint_slices_are_packed_and_reused;
    Anywhere services::tampered_endpoint_slices_are_repaired;
    Anywhere services::endpoints_have_topology_hints;
    RealCluster services::dual_stack_service_has_slices_of_both_families;
    Anywhere quotas::custom_resources_use_up_a_quota_and_free_it;
    Anywhere quotas::scopes_select_the_pods_of_a_quota;
    Anywhere quotas::services_and_volume_claims_use_a_quota;
    Anywhere quotas::changed_limits_of_a_quota_are_published;
    Anywhere quotas::resized_pods_and_runtime_overhead_use_a_quota;
    Anywhere quotas::classes_of_pods_and_volume_claims_are_scopes;
    Anywhere quotas::resource_claims_use_the_devices_of_a_quota;
    Anywhere endpoints::endpoints_and_slices_of_a_service_agree;
    Anywhere endpoints::endpoints_have_a_thousand_addresses_at_most;
    Anywhere endpoints::leftover_endpoints_are_deleted_at_start;
    Anywhere endpoints::endpoints_have_the_first_family_and_the_time_of_the_change;
    Anywhere mirroring::custom_endpoints_are_mirrored;
    Anywhere mirroring::a_thousand_addresses_of_a_subset_are_mirrored;
    Anywhere mirroring::mirrored_slices_need_a_service_and_endpoints;
    Anywhere mirroring::tampered_mirrored_slices_are_repaired;
    Anywhere node_ttl::nodes_have_their_ttl;
    Anywhere node_ttl::changed_ttl_of_a_node_is_restored;
    Anywhere node_ttl::ttl_grows_beyond_a_hundred_nodes_and_shrinks_below_ninety;
    RealCluster encodings::endpoints_are_the_same_in_both_encodings;
    RealCluster encodings::workloads_and_policies_are_the_same_in_both_encodings;
    RealCluster encodings::a_signing_request_is_the_same_in_both_encodings;
    Anywhere trust_bundles::cluster_trust_bundle_of_the_api_server_is_kept;
    Slow certificates::old_certificate_requests_are_deleted;
    RealCluster certificates::kubelet_request_is_approved_and_signed;
    RealCluster certificates::user_request_waits_for_approval_and_bad_one_fails;
    RealCluster certificate_life::kubelet_bootstraps_with_a_token_and_renews_its_certificate;
    RealCluster certificate_life::serving_certificate_of_a_kubelet_waits_for_a_person;
    RealCluster certificate_life::replaced_ca_signs_once_its_key_is_replaced_too;
    RealCluster certificate_life::thousand_requests_are_signed_while_the_lease_is_renewed;
    RealCluster certificate_life::unused_legacy_token_is_invalidated_and_then_deleted;
    Anywhere autoscalers::autoscaler_without_metrics_keeps_its_bounds;
    Anywhere autoscalers::autoscaler_is_disabled_by_zero_replicas;
    Anywhere attachments::volume_is_attached_with_its_pod_and_detached_after_it;
    Anywhere attachments::second_node_waits_for_a_volume_that_the_first_has;
    Anywhere attachments::volume_in_use_leaves_an_out_of_service_node_only;
    Slow attachments::volume_of_a_dead_node_is_detached_after_six_minutes;
    Anywhere attachments::pod_does_not_wait_for_a_driver_that_attaches_nothing;
    Anywhere volumes::claim_binds_the_smallest_volume_and_releases_it;
    Anywhere volumes::external_driver_provisions_a_volume_and_is_left_to_delete_it;
    Anywhere volumes::delayed_claim_is_provisioned_after_a_node_is_selected;
    Anywhere volumes::claim_is_lost_with_its_volume_and_bound_again;
    Anywhere volumes::class_less_claim_gets_the_later_default_class;
    Anywhere volumes::recycled_volume_is_available_again;
    Anywhere dynamic_volumes::storage_driver_provisions_and_deletes_volumes;
    Anywhere dynamic_volumes::storage_driver_provisions_a_delayed_claim_for_its_node;
    Anywhere dynamic_volumes::retained_claims_outlive_their_stateful_set;
    Anywhere dynamic_volumes::deleted_claims_go_with_their_stateful_set;
    Anywhere dynamic_volumes::storage_driver_expands_a_claim_that_no_pod_uses;
    Anywhere dynamic_volumes::storage_driver_expands_a_claim_on_the_node_of_its_pod;
    Anywhere selinux::pods_with_two_selinux_labels_on_one_volume_are_reported;
    Anywhere selinux::selinux_conflicts_do_not_name_pods_of_other_namespaces;
    Anywhere selinux::selinux_conflicts_depend_on_the_driver_of_the_volume;
    Anywhere jobs::job_counts_its_pods_and_completes;
    Anywhere jobs::job_ignores_pods_of_another_namespace_that_name_it;
    Anywhere jobs::job_with_backoff_limit_zero_fails_with_its_first_failed_pod;
    Anywhere jobs::indexed_job_fails_and_succeeds_per_index;
    Anywhere jobs::suspended_job_has_no_pods;
    Anywhere jobs::pod_failure_policy_is_applied;
    Anywhere jobs::success_policy_completes_a_job_early;
    Anywhere jobs::job_follows_parallelism_and_active_deadline;
    Processes jobs::killed_manager_counts_no_job_pod_twice;
    Anywhere cronjobs::cron_job_runs_its_most_recent_missed_time;
    Anywhere cronjobs::allowed_jobs_of_a_cron_job_run_concurrently;
    Anywhere cronjobs::forbidden_job_of_a_cron_job_waits_for_the_running_one;
    Anywhere cronjobs::replacing_cron_job_deletes_the_running_job;
    Anywhere cronjobs::suspended_or_late_cron_job_creates_no_job;
    Anywhere cronjobs::cron_job_keeps_its_newest_finished_jobs;
    Slow cronjobs::thousand_cron_jobs_of_one_minute_run_once_each;
    Anywhere cronjobs::finished_job_is_deleted_after_its_ttl;
    Anywhere resource_claims::claims_of_a_deployment_are_created_recorded_and_released;
    Anywhere resource_claims::completed_pod_releases_its_generated_claim;
    Anywhere resource_claims::user_claim_is_deallocated_after_its_last_consumer;
    Anywhere device_taints::device_taint_rule_evicts_pods_that_do_not_tolerate_it;
    Anywhere device_taints::tainted_slice_evicts_pods_that_do_not_tolerate_it;
    Anywhere device_taints::pods_leave_tainted_devices_after_their_toleration_seconds;
    Anywhere device_taints::admin_access_does_not_keep_a_pod_on_a_tainted_device;
    Anywhere device_taints::device_taints_without_effect_evict_nothing;
    Anywhere nodes::pods_leave_lost_nodes_unless_all_nodes_are_lost;
    Anywhere nodes::pods_are_evicted_after_their_toleration_seconds;
    Anywhere nodes::pods_of_a_vanished_node_are_deleted;
    Anywhere nodes::out_of_service_node_loses_its_terminating_pods;
    Anywhere nodes::node_conditions_become_taints;
    Anywhere volume_protection::claim_in_use_is_deleted_after_its_pod;
    Anywhere volume_protection::bound_volume_is_deleted_after_its_claim;
    Anywhere volume_protection::ephemeral_volumes_get_claims_of_their_own;
    Anywhere volume_protection::volume_attributes_class_in_use_is_kept;
    Anywhere volume_protection::growing_claim_is_left_to_its_resizer;
    Anywhere migrations::custom_resource_is_migrated_to_its_new_storage_version;
    Anywhere migrations::built_in_objects_are_migrated_without_change;
    Anywhere migrations::migration_of_an_unknown_resource_fails;
    RealCluster migrations::records_of_vanished_api_servers_are_removed;
    Processes migrations::killed_manager_completes_a_migration_once;
    Anywhere deployments::a_deployment_rolls_within_its_bounds;
    Anywhere deployments::a_deployment_is_paused_and_scaled_during_a_rollout;
    Anywhere deployments::a_deployment_recreates_pods_and_exceeds_its_progress_deadline;
    Anywhere replicas::replica_set_adopts_releases_and_scales;
    Anywhere replicas::replica_set_ignores_pods_of_another_namespace_that_name_it;
    RealCluster replicas::replica_set_reports_an_exceeded_quota;
    Anywhere replicas::replication_controller_scales;
    Anywhere statefulsets::stateful_set_starts_and_stops_pods_in_order;
    Anywhere statefulsets::stateful_set_rolls_down_to_its_partition;
    Anywhere statefulsets::parallel_stateful_set_does_not_wait_for_readiness;
    Anywhere statefulsets::stateful_set_updates_on_delete_and_deletes_its_claims;
    Anywhere templates::respelled_templates_roll_where_text_is_compared;
    Anywhere daemonsets::daemon_set_runs_on_eligible_nodes;
    Anywhere daemonsets::daemon_set_rolls_node_by_node;
    Anywhere daemonsets::daemon_set_surges;
    Anywhere daemonsets::daemon_set_updates_on_delete;
    Anywhere disruptions::drain_waits_for_the_disruption_budget;
    Anywhere disruptions::percent_budget_follows_its_deployment;
    Anywhere disruptions::budget_counts_the_scale_of_a_custom_resource;
    Anywhere disruptions::budget_that_cannot_be_calculated_allows_no_eviction;
    Anywhere disruptions::evictions_that_never_happen_are_forgotten;
    Anywhere disruptions::unready_pods_are_evicted_as_the_budget_says;
    Processes resilience::killed_manager_loses_no_work;
    Processes garbage::killed_manager_finishes_every_deletion;
    Processes resilience::api_server_restart_loses_no_work;
    Processes resilience::etcd_restart_loses_no_work;
    Processes resilience::manager_paused_for_a_minute_loses_no_work;
    Processes resilience::undecodable_secret_affects_only_the_token_controller;
    BesideOriginal http_endpoints::http_endpoints_match_the_original;
    BesideOriginal http_endpoints::all_controllers_of_the_original_start_with_the_flags_of_kubeadm;
    Processes kubectl::kubectl_output_matches_kube_apiserver;
    Processes explaining::explain_needs_the_documented_role_and_works_on_a_standby;
    Processes shutdown::second_signal_exits_at_once;
    Processes shutdown::feature_gate_keeps_the_lease_on_exit;
    Processes shutdown::manager_credentials_write_only_expected_resources;
    Processes failover::stopped_leader_is_replaced_at_once;
    Processes failover::standby_takes_over_while_secrets_cannot_be_listed;
    Processes failover::killed_leader_is_replaced_when_its_lease_expires;
    Processes failover::killed_leader_with_a_lock_file_continues_after_its_restart;
    Processes failover::paused_leader_writes_nothing_after_resuming;
    Processes failover::deleted_lease_never_has_two_writers;
    Processes failover::cleared_lease_holder_never_has_two_writers;
    BesideOriginal failover::leadership_alternates_with_the_original;
    BesideOriginal handover::leaders_change_during_rollouts;
    BesideOriginal shadow::shadow_agrees_with_the_original;
    BesideOriginal attachment_handover::leaders_change_during_attach_and_detach;
};
