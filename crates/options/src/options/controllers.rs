//! The options of each controller.

use crate::go_text::GoDuration;
use crate::parser::Values;

/// Options shared by cloud and node controllers.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudShared {
    /// Whether nodes are assigned pod CIDRs.
    pub allocate_node_cidrs: bool,
    /// Deprecated, without effect.
    pub allow_untagged_cloud: bool,
    /// The CIDR allocator.
    pub cidr_allocator_type: String,
    /// The cloud's configuration file.
    pub cloud_config_file: String,
    /// Empty or `external`.
    pub cloud_provider: String,
    /// The pod CIDR of the cluster.
    pub cluster_cidr: String,
    /// The cluster's name in the cloud.
    pub cluster_name: String,
    /// Whether routes for node CIDRs are configured in the cloud.
    pub configure_cloud_routes: bool,
    /// The volume plugin of an external cloud.
    pub external_cloud_volume_plugin: String,
    /// Deprecated, without effect.
    pub node_sync_period: GoDuration,
    /// The interval of route reconciliation.
    pub route_reconciliation_period: GoDuration,
    /// Whether each controller uses the credentials of its own ServiceAccount.
    pub use_service_account_credentials: bool,
}

impl CloudShared {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            allocate_node_cidrs: values.bool("allocate-node-cidrs"),
            allow_untagged_cloud: values.bool("allow-untagged-cloud"),
            cidr_allocator_type: values.text("cidr-allocator-type"),
            cloud_config_file: values.text("cloud-config"),
            cloud_provider: values.text("cloud-provider"),
            cluster_cidr: values.text("cluster-cidr"),
            cluster_name: values.text("cluster-name"),
            configure_cloud_routes: values.bool("configure-cloud-routes"),
            external_cloud_volume_plugin: values.text("external-cloud-volume-plugin"),
            node_sync_period: values.duration("node-sync-period"),
            route_reconciliation_period: values.duration("route-reconciliation-period"),
            use_service_account_credentials: values.bool("use-service-account-credentials"),
        }
    }
}

/// The number of workers of each controller. A count of 0 or less, where validation allows it, starts a controller that
/// is healthy and reconciles nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrentSyncs {
    /// CronJobs.
    pub cron_job: i32,
    /// DaemonSets.
    pub daemon_set: i32,
    /// Deployments.
    pub deployment: i32,
    /// Pods to evict.
    pub device_taint_eviction: i32,
    /// PodDisruptionBudgets.
    pub disruption: i32,
    /// Services with Endpoints.
    pub endpoints: i32,
    /// Services with EndpointSlices.
    pub endpoint_slice: i32,
    /// Endpoints to mirror.
    pub endpoint_slice_mirroring: i32,
    /// Pods with ephemeral volumes.
    pub ephemeral_volume: i32,
    /// Objects of the garbage collector.
    pub garbage_collector: i32,
    /// Autoscalers.
    pub horizontal_pod_autoscaler: i32,
    /// Jobs.
    pub job: i32,
    /// Namespaces.
    pub namespace: i32,
    /// ReplicaSets.
    pub replica_set: i32,
    /// ReplicationControllers.
    pub replication_controller: i32,
    /// ResourceClaims.
    pub resource_claim: i32,
    /// ResourceQuotas.
    pub resource_quota: i32,
    /// Token Secrets.
    pub service_account_token: i32,
    /// StatefulSets.
    pub stateful_set: i32,
    /// Finished Jobs.
    pub ttl_after_finished: i32,
    /// ValidatingAdmissionPolicies.
    pub validating_admission_policy_status: i32,
}

impl ConcurrentSyncs {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            cron_job: values.int32("concurrent-cron-job-syncs"),
            daemon_set: values.int32("concurrent-daemonset-syncs"),
            deployment: values.int32("concurrent-deployment-syncs"),
            device_taint_eviction: values.int32("concurrent-device-taint-eviction-syncs"),
            disruption: values.int32("concurrent-disruption-syncs"),
            endpoints: values.int32("concurrent-endpoint-syncs"),
            endpoint_slice: values.int32("concurrent-service-endpoint-syncs"),
            endpoint_slice_mirroring: values.int32("mirroring-concurrent-service-endpoint-syncs"),
            ephemeral_volume: values.int32("concurrent-ephemeralvolume-syncs"),
            garbage_collector: values.int32("concurrent-gc-syncs"),
            horizontal_pod_autoscaler: values.int32("concurrent-horizontal-pod-autoscaler-syncs"),
            job: values.int32("concurrent-job-syncs"),
            namespace: values.int32("concurrent-namespace-syncs"),
            replica_set: values.int32("concurrent-replicaset-syncs"),
            replication_controller: values.int32("concurrent-rc-syncs"),
            resource_claim: values.int32("concurrent-resourceclaim-syncs"),
            resource_quota: values.int32("concurrent-resource-quota-syncs"),
            service_account_token: values.int32("concurrent-serviceaccount-token-syncs"),
            stateful_set: values.int32("concurrent-statefulset-syncs"),
            ttl_after_finished: values.int32("concurrent-ttl-after-finished-syncs"),
            validating_admission_policy_status: values
                .int32("concurrent-validating-admission-policy-status-syncs"),
        }
    }
}

/// The attach-detach controller.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachDetach {
    /// The interval of checks.
    pub reconcile_sync_period: GoDuration,
    /// Whether the checks are disabled.
    pub disable_reconcile_sync: bool,
    /// Whether volumes are never force-detached after a timeout.
    pub disable_force_detach_on_timeout: bool,
}

impl AttachDetach {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            reconcile_sync_period: values.duration("attach-detach-reconcile-sync-period"),
            disable_reconcile_sync: values.bool("disable-attach-detach-reconcile-sync"),
            disable_force_detach_on_timeout: values.bool("disable-force-detach-on-timeout"),
        }
    }
}

/// The endpoints controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    /// The debounce interval of updates.
    pub updates_batch_period: GoDuration,
}

impl Endpoints {
    pub(super) fn read(values: &Values) -> Self {
        Self { updates_batch_period: values.duration("endpoint-updates-batch-period") }
    }
}

/// The EndpointSlice controller.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSlice {
    /// The debounce interval of updates.
    pub updates_batch_period: GoDuration,
    /// The maximum number of endpoints per slice.
    pub max_endpoints_per_slice: i32,
}

impl EndpointSlice {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            updates_batch_period: values.duration("endpointslice-updates-batch-period"),
            max_endpoints_per_slice: values.int32("max-endpoints-per-slice"),
        }
    }
}

/// The EndpointSlice mirroring controller.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSliceMirroring {
    /// The debounce interval of updates.
    pub updates_batch_period: GoDuration,
    /// The maximum number of mirrored endpoints per subset.
    pub max_endpoints_per_subset: i32,
}

impl EndpointSliceMirroring {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            updates_batch_period: values.duration("mirroring-endpointslice-updates-batch-period"),
            max_endpoints_per_subset: values.int32("mirroring-max-endpoints-per-subset"),
        }
    }
}

/// The garbage collector.
#[derive(Clone, Debug, PartialEq)]
pub struct GarbageCollector {
    /// Whether it is enabled.
    pub enabled: bool,
}

impl GarbageCollector {
    pub(super) fn read(values: &Values) -> Self {
        Self { enabled: values.bool("enable-garbage-collector") }
    }
}

/// The horizontal pod autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct HorizontalPodAutoscaler {
    /// The period after pod start in which CPU samples may be skipped.
    pub cpu_initialization_period: GoDuration,
    /// The downscale stabilization window.
    pub downscale_stabilization: GoDuration,
    /// The period after pod start in which readiness changes count as initial.
    pub initial_readiness_delay: GoDuration,
    /// The sync period.
    pub sync_period: GoDuration,
    /// The minimum deviation of the metrics ratio from 1.
    pub tolerance: f64,
}

impl HorizontalPodAutoscaler {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            cpu_initialization_period: values.duration("horizontal-pod-autoscaler-cpu-initialization-period"),
            downscale_stabilization: values.duration("horizontal-pod-autoscaler-downscale-stabilization"),
            initial_readiness_delay: values.duration("horizontal-pod-autoscaler-initial-readiness-delay"),
            sync_period: values.duration("horizontal-pod-autoscaler-sync-period"),
            tolerance: values.float64("horizontal-pod-autoscaler-tolerance"),
        }
    }
}

/// The namespace controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// The resync period.
    pub sync_period: GoDuration,
}

impl Namespace {
    pub(super) fn read(values: &Values) -> Self {
        Self { sync_period: values.duration("namespace-sync-period") }
    }
}

/// The node IPAM controller.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeIpam {
    /// The mask size of node CIDRs in a single-stack cluster; 0 for the default.
    pub node_cidr_mask_size: i32,
    /// The mask size of IPv4 node CIDRs; 0 for the default.
    pub node_cidr_mask_size_ipv4: i32,
    /// The mask size of IPv6 node CIDRs; 0 for the default.
    pub node_cidr_mask_size_ipv6: i32,
    /// The Service CIDR, or two separated by a comma.
    pub service_cluster_ip_range: String,
}

impl NodeIpam {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            node_cidr_mask_size: values.int32("node-cidr-mask-size"),
            node_cidr_mask_size_ipv4: values.int32("node-cidr-mask-size-ipv4"),
            node_cidr_mask_size_ipv6: values.int32("node-cidr-mask-size-ipv6"),
            service_cluster_ip_range: values.text("service-cluster-ip-range"),
        }
    }
}

/// The node lifecycle controller.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLifecycle {
    /// The number of nodes up to which a zone counts as small.
    pub large_cluster_size_threshold: i32,
    /// Evicted nodes per second in a healthy zone.
    pub node_eviction_rate: f32,
    /// How long a node may not report before it is unhealthy.
    pub node_monitor_grace_period: GoDuration,
    /// The sync period.
    pub node_monitor_period: GoDuration,
    /// The same for a new node.
    pub node_startup_grace_period: GoDuration,
    /// Evicted nodes per second in an unhealthy zone.
    pub secondary_node_eviction_rate: f32,
    /// The fraction of not-ready nodes that makes a zone unhealthy.
    pub unhealthy_zone_threshold: f32,
}

impl NodeLifecycle {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            large_cluster_size_threshold: values.int32("large-cluster-size-threshold"),
            node_eviction_rate: values.float32("node-eviction-rate"),
            node_monitor_grace_period: values.duration("node-monitor-grace-period"),
            node_monitor_period: values.duration("node-monitor-period"),
            node_startup_grace_period: values.duration("node-startup-grace-period"),
            secondary_node_eviction_rate: values.float32("secondary-node-eviction-rate"),
            unhealthy_zone_threshold: values.float32("unhealthy-zone-threshold"),
        }
    }
}

/// The PersistentVolume binder.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeBinder {
    /// Whether volumes are provisioned dynamically.
    pub enable_dynamic_provisioning: bool,
    /// Whether hostPath volumes are provisioned.
    pub enable_hostpath_provisioner: bool,
    /// The directory of FlexVolume plugins.
    pub flex_volume_plugin_dir: String,
    /// The sync period.
    pub sync_period: GoDuration,
    /// Recycler pods.
    pub recycler: Recycler,
}

impl VolumeBinder {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            enable_dynamic_provisioning: values.bool("enable-dynamic-provisioning"),
            enable_hostpath_provisioner: values.bool("enable-hostpath-provisioner"),
            flex_volume_plugin_dir: values.text("flex-volume-plugin-dir"),
            sync_period: values.duration("pvclaimbinder-sync-period"),
            recycler: Recycler::read(values),
        }
    }
}

/// Recycler pods, which scrub released volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct Recycler {
    /// NFS: additional seconds per Gi.
    pub increment_timeout_nfs: i32,
    /// hostPath: minimum seconds.
    pub minimum_timeout_hostpath: i32,
    /// NFS: minimum seconds.
    pub minimum_timeout_nfs: i32,
    /// hostPath: the pod template file.
    pub pod_template_filepath_hostpath: String,
    /// NFS: the pod template file.
    pub pod_template_filepath_nfs: String,
    /// hostPath: additional seconds per Gi.
    pub timeout_increment_hostpath: i32,
}

impl Recycler {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            increment_timeout_nfs: values.int32("pv-recycler-increment-timeout-nfs"),
            minimum_timeout_hostpath: values.int32("pv-recycler-minimum-timeout-hostpath"),
            minimum_timeout_nfs: values.int32("pv-recycler-minimum-timeout-nfs"),
            pod_template_filepath_hostpath: values.text("pv-recycler-pod-template-filepath-hostpath"),
            pod_template_filepath_nfs: values.text("pv-recycler-pod-template-filepath-nfs"),
            timeout_increment_hostpath: values.int32("pv-recycler-timeout-increment-hostpath"),
        }
    }
}

/// The resource quota controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceQuota {
    /// The interval of full recalculation.
    pub sync_period: GoDuration,
}

impl ResourceQuota {
    pub(super) fn read(values: &Values) -> Self {
        Self { sync_period: values.duration("resource-quota-sync-period") }
    }
}

/// The CA and signing key of ServiceAccount tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceAccount {
    /// The root CA file to publish; empty if unset.
    pub root_ca_file: String,
    /// The private key file that signs tokens; empty if unset.
    pub private_key_file: String,
}

impl ServiceAccount {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            root_ca_file: values.text("root-ca-file"),
            private_key_file: values.text("service-account-private-key-file"),
        }
    }
}

/// The CSR signing controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSigning {
    /// The maximum validity of a certificate.
    pub duration: GoDuration,
    /// For all signers.
    pub all: SignerFiles,
    /// For `kubernetes.io/kubelet-serving`.
    pub kubelet_serving: SignerFiles,
    /// For `kubernetes.io/kube-apiserver-client-kubelet`.
    pub kubelet_client: SignerFiles,
    /// For `kubernetes.io/kube-apiserver-client`.
    pub kube_apiserver_client: SignerFiles,
    /// For `kubernetes.io/legacy-unknown`.
    pub legacy_unknown: SignerFiles,
}

/// The files of a signer; empty if unset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerFiles {
    /// The CA certificate.
    pub cert_file: String,
    /// The CA key.
    pub key_file: String,
}

impl ClusterSigning {
    pub(super) fn read(values: &Values) -> Self {
        let files = |signer: &str| SignerFiles {
            cert_file: values.text(&format!("cluster-signing{signer}-cert-file")),
            key_file: values.text(&format!("cluster-signing{signer}-key-file")),
        };
        Self {
            duration: values.duration("cluster-signing-duration"),
            all: files(""),
            kubelet_serving: files("-kubelet-serving"),
            kubelet_client: files("-kubelet-client"),
            kube_apiserver_client: files("-kube-apiserver-client"),
            legacy_unknown: files("-legacy-unknown"),
        }
    }

    /// Errors: a signer with one file of two, or single signers together with the default signer.
    pub(super) fn problems(&self) -> Vec<String> {
        // The names in the original's errors, two of which differ from the flags.
        let single = [
            ("cluster-signing-kubelet-serving", &self.kubelet_serving),
            ("cluster-signing-kube-apiserver-client", &self.kubelet_client),
            ("cluster-signing-kube-apiserver", &self.kube_apiserver_client),
            ("cluster-signing-legacy-unknown", &self.legacy_unknown),
        ];
        let incomplete = |(name, files): &(&str, &SignerFiles)| match (
            files.cert_file.is_empty(),
            files.key_file.is_empty(),
        ) {
            (true, false) => Some(format!("\"{name}\": cannot specify key without cert")),
            (false, true) => Some(format!("\"{name}\": cannot specify cert without key")),
            _ => None,
        };
        let mut problems: Vec<_> = single.iter().filter_map(incomplete).collect();
        if self.all.is_set() && single.iter().any(|(_, files)| files.is_set()) {
            let text = "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time";
            problems.push(text.to_owned());
        }
        problems
    }
}

impl SignerFiles {
    fn is_set(&self) -> bool {
        !self.cert_file.is_empty() || !self.key_file.is_empty()
    }
}

impl NodeIpam {
    /// The first and the second Service CIDR; empty if unset.
    #[must_use]
    pub fn service_ranges(&self) -> (&str, &str) {
        let mut ranges = self.service_cluster_ip_range.split(',');
        (ranges.next().unwrap_or_default(), ranges.next().unwrap_or_default())
    }
}
