//! The kinds, one file each: what the caches keep of them.

mod cluster_role;
mod controller_revision;
mod daemon_set;
mod deployment;
mod endpoint_slice;
mod job;
mod lease;
mod namespace;
mod node;
mod partial;
mod persistent_volume_claim;
mod pod;
mod replica_set;
mod replication_controller;
mod root_ca_config_map;
mod service;
mod service_account;
mod stateful_set;
mod token_secret;
mod whole;

pub use cluster_role::{ClusterRole, PolicyRule};
pub use controller_revision::ControllerRevision;
pub use daemon_set::{
    DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
pub use deployment::{
    Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy, RollingUpdateDeployment,
};
pub use endpoint_slice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, HintTarget, TargetRef,
    TargetRefRest,
};
pub use job::{
    Job, JobSpec, JobStatus, OnExitCodes, OnPodCondition, PodFailurePolicy, PodFailureRule, SuccessPolicy,
    SuccessRule, UncountedTerminatedPods,
};
pub use lease::{Lease, NODE_LEASE_NAMESPACE};
pub use namespace::Namespace;
pub use node::Node;
pub use partial::PartialObjectMeta;
pub use persistent_volume_claim::PersistentVolumeClaim;
pub use pod::{
    Availability, ConditionStatus, Container, ContainerPort, ContainerStatus, Pod, PodPhase, PodSpec,
    Terminated,
};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::{ReplicationController, ReplicationControllerSpec};
pub use root_ca_config_map::{ROOT_CA_CONFIG_MAP, RootCaConfigMap};
pub use service::{Service, ServicePort};
pub use service_account::ServiceAccount;
pub use stateful_set::{
    ClaimRetentionPolicy, Ordinals, RollingUpdateStatefulSet, StatefulSet, StatefulSetSpec,
    StatefulSetStatus, StatefulSetUpdateStrategy, VolumeClaimTemplate,
};
pub use token_secret::{SECRET_TYPE_SERVICE_ACCOUNT_TOKEN, TokenSecret};

/// Names of annotations that controllers read or write.
pub mod annotations {
    /// On a token Secret: the account it belongs to.
    pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// On a token Secret: the life of the account it belongs to.
    pub const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
    /// On a pod: what it costs to delete it, compared with others of its owner.
    pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    /// On a pod of an indexed job: its index.
    pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// On a pod of an indexed job: how many pods of its index have failed before.
    pub const JOB_INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
    /// On a pod of an indexed job: how many failures of its index were ignored before.
    pub const JOB_INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
    /// On a pod that a kubelet made from a file of its own.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
    /// On a daemon set: how often its template has changed. The API server counts it.
    pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
}
