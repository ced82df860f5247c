//! The cached kinds, one file each.

mod cluster_role;
mod controller_revision;
mod daemon_set;
mod deployment;
mod endpoint_slice;
mod full_meta;
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
    Job, JobSpec, JobStatus, OnExitCodes, OnPodCondition, PodFailurePolicy, PodFailurePolicyRule,
    SuccessPolicy, SuccessPolicyRule, UncountedTerminatedPods,
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

/// Annotation keys that controllers read or write.
pub mod annotations {
    /// On a token Secret: the name of its ServiceAccount.
    pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// On a token Secret: the UID of its ServiceAccount.
    pub const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
    /// On a pod: its deletion cost relative to other pods of the same owner.
    pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    /// On a pod of an Indexed Job: its completion index.
    pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// On a pod of an Indexed Job: the number of earlier failures of its index.
    pub const JOB_INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
    /// On a pod of an Indexed Job: the number of earlier failures of its index that the pod failure policy ignored.
    pub const JOB_INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
    /// On a mirror pod, which a kubelet creates for a static pod.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
    /// On a DaemonSet: the generation of its template, which the API server counts.
    pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
}
