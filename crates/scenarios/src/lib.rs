//! Scenarios: what a user of a cluster does and then sees, written once, run in every world.
//!
//! A scenario speaks to a cluster as its administrator and waits for what a controller manager must
//! bring about. Whether the cluster is the embedded one or a real control plane, and whether the manager
//! is this one or the original, is the [`World`]'s affair.

mod accepted;
mod accounts;
pub mod comparison;
mod differences;
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
mod workloads;
mod world;

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

/// All scenarios.
pub const ALL: &[Scenario] = &[
    accounts::A_NAMESPACE_HAS_ITS_DEFAULT_ACCOUNT,
    accounts::A_TERMINATING_NAMESPACE_GETS_NOTHING,
    tokens::A_TOKEN_SECRET_IS_FILLED_WORKS_AND_GOES_WITH_ITS_ACCOUNT,
    tokens::A_TOKEN_SECRET_WITHOUT_AN_ACCOUNT_IS_DELETED,
    tokens::A_DELETED_TOKEN_SECRET_LEAVES_ITS_ACCOUNT_S_LIST,
    tokens::AN_EMPTIED_TOKEN_IS_MINTED_AGAIN,
    roles::AGGREGATED_ROLES_FILL_AND_FOLLOW,
    roles::BUILT_IN_ROLES_TAKE_UP_NEW_PARTS,
    root_ca::EVERY_NAMESPACE_HAS_THE_CA_AND_GETS_IT_BACK,
    namespaces::A_NAMESPACE_GOES_WITH_ALL_THAT_IS_IN_IT,
    namespaces::FINALIZERS_HOLD_A_NAMESPACE_AND_ARE_TOLD,
    namespaces::PODS_GO_BEFORE_ALL_ELSE,
    namespaces::CUSTOM_OBJECTS_GO_WITH_THEIR_NAMESPACE,
    namespaces::ANOTHER_S_HOLD_ON_A_NAMESPACE_IS_RESPECTED,
    namespaces::AN_API_THAT_DOES_NOT_ANSWER_HOLDS_A_NAMESPACE,
    garbage::WHAT_NOBODY_OWNS_ANY_MORE_GOES,
    garbage::DEPENDENTS_GO_FIRST_IN_THE_FOREGROUND,
    garbage::ORPHANS_ARE_LEFT_FREE,
    garbage::OWNERS_IN_A_CIRCLE_GO,
    garbage::AN_OWNER_ELSEWHERE_IS_NO_OWNER,
    garbage::A_KIND_THAT_COMES_LATER_HAS_OWNERS_TOO,
    services::A_SERVICE_LISTS_ITS_PODS,
    services::SLICES_ARE_PACKED_AND_USED_AGAIN,
    services::SPOILT_SLICES_ARE_REPAIRED,
    services::CLIENTS_ARE_TOLD_WHAT_IS_CLOSE,
    services::A_SERVICE_OF_TWO_FAMILIES_HAS_SLICES_OF_BOTH,
    jobs::A_JOB_COUNTS_ITS_PODS_AND_COMPLETES,
    jobs::A_FAILED_POD_ENDS_A_JOB_WITHOUT_PATIENCE,
    jobs::INDEXES_FAIL_AND_SUCCEED_ONE_BY_ONE,
    jobs::A_SUSPENDED_JOB_HAS_NO_PODS,
    jobs::A_KILLED_MANAGER_COUNTS_NO_POD_TWICE,
    nodes::LOST_NODES_ARE_LEFT_AND_A_LOST_CLUSTER_IS_NOT,
    nodes::PODS_LEAVE_A_TAINTED_NODE_IN_THEIR_TIME,
    nodes::PODS_OF_A_VANISHED_NODE_GO,
    nodes::A_NODE_OUT_OF_SERVICE_HOLDS_NO_POD,
    nodes::CONDITIONS_OF_A_NODE_BECOME_TAINTS,
    deployments::A_DEPLOYMENT_ROLLS_WITHIN_ITS_BOUNDS,
    deployments::A_DEPLOYMENT_PAUSES_AND_SCALES_IN_THE_MIDDLE,
    replicas::A_REPLICA_SET_ADOPTS_RELEASES_AND_SCALES,
    replicas::A_REPLICATION_CONTROLLER_SCALES,
    statefulsets::A_STATEFUL_SET_STARTS_AND_STOPS_IN_ORDER,
    statefulsets::A_STATEFUL_SET_ROLLS_DOWN_TO_ITS_PARTITION,
    statefulsets::A_PARALLEL_STATEFUL_SET_WAITS_FOR_NOBODY,
    daemonsets::A_DAEMON_RUNS_WHERE_IT_MAY,
    daemonsets::A_DAEMON_ROLLS_NODE_BY_NODE,
    daemonsets::A_DAEMON_SURGES,
    resilience::A_KILLED_MANAGER_LOSES_NOTHING,
    garbage::A_KILLED_MANAGER_FINISHES_EVERY_DELETION,
    resilience::AN_API_SERVER_RESTART_LOSES_NOTHING,
    resilience::AN_ETCD_RESTART_LOSES_NOTHING,
    resilience::A_PAUSE_OF_A_MINUTE_LOSES_NOTHING,
    pages::PAGES_TELL_WHAT_THE_ORIGINAL_S_TELL,
    kubectl::KUBECTL_CANNOT_TELL_THE_CLUSTERS_APART,
    stopping::A_SECOND_SIGNAL_ENDS_IT_AT_ONCE,
    stopping::THE_GATE_KEEPS_THE_LEASE,
    stopping::THE_MANAGER_ITSELF_WRITES_LITTLE,
    failover::A_STOPPED_LEADER_IS_FOLLOWED_AT_ONCE,
    failover::A_KILLED_LEADER_IS_FOLLOWED_WHEN_ITS_LEASE_ENDS,
    failover::A_PAUSED_LEADER_WRITES_NOTHING_ON_WAKING,
    failover::THE_ORIGINAL_AND_WE_ALTERNATE,
    handover::LEADERS_CHANGE_IN_THE_MIDDLE_OF_ROLLOUTS,
];
