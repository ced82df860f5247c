//! The cached kinds, one file each.

mod bootstrap_token;
mod certificate_signing_request;
mod claim_entry;
mod cluster_info;
mod cluster_role;
mod cluster_trust_bundle;
mod controller_revision;
mod cron_job;
mod csi_driver;
mod csi_node;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod device_class;
mod device_taint_rule;
mod endpoint_slice;
mod endpoints;
mod ephemeral_volumes_pod;
mod full_meta;
mod horizontal_pod_autoscaler;
mod ip_address;
mod job;
mod lease;
mod legacy_token_tracking;
mod namespace;
mod node;
mod partial;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_certificate_request;
mod pod_disruption_budget;
mod pod_group;
mod pool_status;
mod replica_set;
mod replication_controller;
mod resource_claim;
mod resource_claim_template;
mod resource_pool_status_request;
mod resource_quota;
mod resource_slice;
mod root_ca_config_map;
mod service;
mod service_account;
mod service_cidr;
mod stateful_set;
mod storage_class;
mod storage_version;
mod storage_version_migration;
mod subject_access_review;
mod token_secret;
mod validating_admission_policy;
mod volume_attachment;
mod volume_attributes_class;
mod workload;

pub use bootstrap_token::{BootstrapToken, Expiration};
pub use certificate_signing_request::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
pub use claim_entry::{ClaimEntry, ClaimSource, ClaimStatus};
pub use cluster_info::ClusterInfo;
pub use cluster_role::{ClusterRole, PolicyRule};
pub use cluster_trust_bundle::{
    ClusterTrustBundle, ClusterTrustBundleV1Alpha1, ClusterTrustBundleV1Beta1, KUBE_APISERVER_SERVING_SIGNER,
    TrustBundle,
};
pub use controller_revision::ControllerRevision;
pub use cron_job::{CronJob, CronJobSpec, CronJobStatus, JobTemplate, JobTemplateMeta, ObjectReference};
pub use csi_driver::CsiDriver;
pub use csi_node::CsiNode;
pub use custom_resource_definition::CustomResourceDefinition;
pub use daemon_set::{
    DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
pub use deployment::{
    Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy, RollingUpdateDeployment,
};
pub use device_class::DeviceClass;
pub use device_taint_rule::{DeviceTaintRule, DeviceTaintSelector, RuleCondition};
pub use endpoint_slice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, HintTarget, TargetRef,
    TargetRefRest,
};
pub use endpoints::{EndpointAddress, EndpointSubset, Endpoints, SubsetPort};
pub use ephemeral_volumes_pod::EphemeralVolumesPod;
pub use horizontal_pod_autoscaler::{
    ContainerResourceMetric, CrossVersionObjectReference, CurrentMetric, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, NamedMetric, ObjectMetric,
    ResourceMetric, ScalingPolicy, ScalingRules,
};
pub use ip_address::IpAddress;
pub use job::{
    Job, JobSpec, JobStatus, OnExitCodes, OnPodCondition, PodFailurePolicy, PodFailurePolicyRule,
    SuccessPolicy, SuccessPolicyRule, UncountedTerminatedPods,
};
pub use lease::{Lease, NODE_LEASE_NAMESPACE};
pub use legacy_token_tracking::LegacyTokenTracking;
pub use namespace::Namespace;
pub use node::{AttachedVolume, Node};
pub use partial::PartialObjectMeta;
pub use persistent_volume::{
    ClaimReference, PersistentVolume, PersistentVolumeSource, PersistentVolumeSpec,
    ResourceList as VolumeResourceList,
};
pub use persistent_volume_claim::{
    ModifyVolumeStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    VolumeResourceRequirements,
};
pub use pod::{
    Availability, ConditionStatus, Container, ContainerPort, ContainerStatus, InlineVolume, Pod, PodParts,
    PodPhase, PodSpec, QosClass, ReportedResources, ResourceList, ResourceRequirements, SelinuxSpec,
    SelinuxVolume, SelinuxVolumeSource, Terminated,
};
pub use pod_certificate_request::PodCertificateRequest;
pub use pod_disruption_budget::{
    BudgetSelector, PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
pub use pod_group::PodGroup;
pub use pool_status::{
    Amount, ConsumedCounters, CounterSet, DeviceAttribute, PoolClaim, PoolDevice, PoolResult, PoolSlice,
};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::{ReplicationController, ReplicationControllerSpec};
pub use resource_claim::{AllocatedDevice, ConsumerReference, ResourceClaim};
pub use resource_claim_template::ResourceClaimTemplate;
pub use resource_pool_status_request::ResourcePoolStatusRequest;
pub use resource_quota::{
    ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus, ScopeRequirement, ScopeSelector,
};
pub use resource_slice::{Device, ResourceSlice};
pub use root_ca_config_map::{ROOT_CA_CONFIG_MAP, RootCaConfigMap};
pub use service::{Service, ServicePort};
pub use service_account::ServiceAccount;
pub use service_cidr::ServiceCidr;
pub use stateful_set::{
    ClaimRetentionPolicy, Ordinals, RollingUpdateStatefulSet, StatefulSet, StatefulSetSpec,
    StatefulSetStatus, StatefulSetUpdateStrategy, VolumeClaimTemplate,
};
pub use storage_class::StorageClass;
pub use storage_version::{ServerStorageVersion, StorageVersion, StorageVersionStatus};
pub use storage_version_migration::{
    GroupResource, StorageVersionMigration, StorageVersionMigrationSpec, StorageVersionMigrationStatus,
};
pub use subject_access_review::SubjectAccessReview;
pub use token_secret::{SECRET_TYPE_SERVICE_ACCOUNT_TOKEN, TokenSecret};
pub use validating_admission_policy::{
    ParamKind, PolicyVariable, ResourceRule, ValidatingAdmissionPolicy, Validation,
};
pub use volume_attachment::VolumeAttachment;
pub use volume_attributes_class::VolumeAttributesClass;
pub use workload::{Workload, WorkloadControllerRef};

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
    /// On a Job of a CronJob: the time that it was scheduled for.
    pub const CRON_JOB_SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    /// On a DaemonSet: the generation of its template, which the API server counts.
    pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
    /// On a generated ResourceClaim: the entry of the pod or PodGroup that it was generated for.
    pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
    /// On a ResourceClaim of the scheduler for extended resources: `true`.
    pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
    /// On a claim or a volume: its storage class, before `spec.storageClassName` existed.
    pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    /// On a StorageClass: `true` marks the default class.
    pub const IS_DEFAULT_STORAGE_CLASS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
}
