//! The object that `/configz` serves, equal to the original's for the same flags, but for the rate limit that only the
//! original has by default.

use serde_json::{Number, Value, json};

use crate::go_text::GoDuration;

use super::Options;

const GROUP: &str = "kubecontrollermanager.config.k8s.io";

impl Options {
    /// The object, keyed by its API group.
    #[must_use]
    pub fn configz(&self) -> Value {
        let mut object = json!({
            "kind": "KubeControllerManagerConfiguration",
            "apiVersion": format!("{GROUP}/v1alpha1"),
            "Generic": self.generic_section(),
            "KubeCloudShared": self.cloud_section(),
            // No flag sets these two any more; the original still serves them.
            "DeprecatedController": {},
            "ServiceController": { "ConcurrentServiceSyncs": 0 },
        });
        for (name, section) in self.workload_sections().into_iter().chain(self.other_sections()) {
            object[name] = section;
        }
        json!({ GROUP: object })
    }

    fn generic_section(&self) -> Value {
        let client = &self.client;
        let election = &self.leader_election;
        json!({
            // The insecure port, which no flag can enable.
            "Port": 0,
            "Address": "0.0.0.0",
            "MinResyncPeriod": duration(self.generic.min_resync_period),
            "ClientConnection": {
                "kubeconfig": client.kubeconfig,
                "acceptContentTypes": "",
                "contentType": client.content_type,
                "qps": single(client.effective_qps()),
                "burst": client.burst,
            },
            "ControllerStartInterval": duration(self.generic.controller_start_interval),
            "LeaderElection": {
                "leaderElect": election.leader_elect,
                "leaseDuration": duration(election.lease_duration),
                "renewDeadline": duration(election.renew_deadline),
                "retryPeriod": duration(election.retry_period),
                "resourceLock": election.resource_lock,
                "resourceName": election.resource_name,
                "resourceNamespace": election.resource_namespace,
            },
            "Controllers": self.generic.controllers.entries(),
            "Debugging": {
                "enableProfiling": self.debugging.profiling,
                "enableContentionProfiling": self.debugging.contention_profiling,
            },
            "LeaderMigrationEnabled": self.leader_migration.is_some(),
            "LeaderMigration": self.migration_section(),
        })
    }

    fn migration_section(&self) -> Value {
        let Some(migration) = &self.leader_migration else {
            return json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
        };
        let leaders: Vec<_> = migration
            .controller_leaders
            .iter()
            .map(|leader| json!({ "name": leader.name, "component": leader.component }))
            .collect();
        let leaders = if migration.has_list { leaders.into() } else { Value::Null };
        json!({
            "leaderName": migration.leader_name,
            "resourceLock": migration.resource_lock,
            "controllerLeaders": leaders,
        })
    }

    fn cloud_section(&self) -> Value {
        let cloud = &self.cloud;
        json!({
            "CloudProvider": { "Name": cloud.cloud_provider, "CloudConfigFile": cloud.cloud_config_file },
            "ExternalCloudVolumePlugin": cloud.external_cloud_volume_plugin,
            "UseServiceAccountCredentials": cloud.use_service_account_credentials,
            "AllowUntaggedCloud": cloud.allow_untagged_cloud,
            "RouteReconciliationPeriod": duration(cloud.route_reconciliation_period),
            // The original ignores the flag.
            "NodeSyncPeriod": duration(cloud.node_sync_period),
            "ClusterName": cloud.cluster_name,
            "ClusterCIDR": cloud.cluster_cidr,
            "AllocateNodeCIDRs": cloud.allocate_node_cidrs,
            "CIDRAllocatorType": cloud.cidr_allocator_type,
            "ConfigureCloudRoutes": cloud.configure_cloud_routes,
        })
    }

    fn workload_sections(&self) -> Vec<(&'static str, Value)> {
        let workers = &self.workers;
        let scaling = &self.horizontal_pod_autoscaler;
        vec![
            ("CronJobController", json!({ "ConcurrentCronJobSyncs": workers.cron_job })),
            ("DaemonSetController", json!({ "ConcurrentDaemonSetSyncs": workers.daemon_set })),
            ("DeploymentController", json!({ "ConcurrentDeploymentSyncs": workers.deployment })),
            ("DeviceTaintEvictionController", json!({ "ConcurrentSyncs": workers.device_taint_eviction })),
            ("DisruptionController", json!({ "ConcurrentDisruptionSyncs": workers.disruption })),
            (
                "EphemeralVolumeController",
                json!({ "ConcurrentEphemeralVolumeSyncs": workers.ephemeral_volume }),
            ),
            ("JobController", json!({ "ConcurrentJobSyncs": workers.job })),
            ("ReplicaSetController", json!({ "ConcurrentRSSyncs": workers.replica_set })),
            ("ReplicationController", json!({ "ConcurrentRCSyncs": workers.replication_controller })),
            ("ResourceClaimController", json!({ "ConcurrentSyncs": workers.resource_claim })),
            ("StatefulSetController", json!({ "ConcurrentStatefulSetSyncs": workers.stateful_set })),
            ("TTLAfterFinishedController", json!({ "ConcurrentTTLSyncs": workers.ttl_after_finished })),
            (
                "ValidatingAdmissionPolicyStatusController",
                json!({ "ConcurrentPolicySyncs": workers.validating_admission_policy_status }),
            ),
            ("PodGCController", json!({ "TerminatedPodGCThreshold": self.terminated_pod_gc_threshold })),
            (
                "HPAController",
                json!({
                    "ConcurrentHorizontalPodAutoscalerSyncs": workers.horizontal_pod_autoscaler,
                    "HorizontalPodAutoscalerSyncPeriod": duration(scaling.sync_period),
                    "HorizontalPodAutoscalerDownscaleStabilizationWindow": duration(scaling.downscale_stabilization),
                    "HorizontalPodAutoscalerTolerance": number(scaling.tolerance),
                    "HorizontalPodAutoscalerCPUInitializationPeriod": duration(scaling.cpu_initialization_period),
                    "HorizontalPodAutoscalerInitialReadinessDelay": duration(scaling.initial_readiness_delay),
                }),
            ),
        ]
    }

    fn other_sections(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("AttachDetachController", self.attach_detach_section()),
            ("CSRSigningController", self.signing_section()),
            (
                "EndpointController",
                json!({
                    "ConcurrentEndpointSyncs": self.workers.endpoints,
                    "EndpointUpdatesBatchPeriod": duration(self.endpoints.updates_batch_period),
                }),
            ),
            (
                "EndpointSliceController",
                json!({
                    "ConcurrentServiceEndpointSyncs": self.workers.endpoint_slice,
                    "MaxEndpointsPerSlice": self.endpoint_slice.max_endpoints_per_slice,
                    "EndpointUpdatesBatchPeriod": duration(self.endpoint_slice.updates_batch_period),
                }),
            ),
            (
                "EndpointSliceMirroringController",
                json!({
                    "MirroringConcurrentServiceEndpointSyncs": self.workers.endpoint_slice_mirroring,
                    "MirroringMaxEndpointsPerSubset": self.endpoint_slice_mirroring.max_endpoints_per_subset,
                    "MirroringEndpointUpdatesBatchPeriod": duration(self.endpoint_slice_mirroring.updates_batch_period),
                }),
            ),
            (
                "GarbageCollectorController",
                json!({
                    "EnableGarbageCollector": self.garbage_collector.enabled,
                    "ConcurrentGCSyncs": self.workers.garbage_collector,
                    // No flag sets this list.
                    "GCIgnoredResources": [
                        { "Group": "", "Resource": "events" },
                        { "Group": "events.k8s.io", "Resource": "events" },
                    ],
                }),
            ),
            ("LegacySATokenCleaner", json!({ "CleanUpPeriod": duration(self.legacy_token_clean_up_period) })),
            (
                "NamespaceController",
                json!({
                    "NamespaceSyncPeriod": duration(self.namespace.sync_period),
                    "ConcurrentNamespaceSyncs": self.workers.namespace,
                }),
            ),
            ("NodeIPAMController", self.ipam_section()),
            ("NodeLifecycleController", self.lifecycle_section()),
            ("PersistentVolumeBinderController", self.binder_section()),
            (
                "ResourceQuotaController",
                json!({
                    "ResourceQuotaSyncPeriod": duration(self.resource_quota.sync_period),
                    "ConcurrentResourceQuotaSyncs": self.workers.resource_quota,
                }),
            ),
            (
                "SAController",
                json!({
                    "ServiceAccountKeyFile": self.service_account.private_key_file,
                    "ConcurrentSATokenSyncs": self.workers.service_account_token,
                    "RootCAFile": self.service_account.root_ca_file,
                }),
            ),
        ]
    }

    fn attach_detach_section(&self) -> Value {
        json!({
            "DisableAttachDetachReconcilerSync": self.attach_detach.disable_reconcile_sync,
            "ReconcilerSyncLoopPeriod": duration(self.attach_detach.reconcile_sync_period),
            "disableForceDetachOnTimeout": self.attach_detach.disable_force_detach_on_timeout,
        })
    }

    fn signing_section(&self) -> Value {
        let signing = &self.cluster_signing;
        let files =
            |files: &super::SignerFiles| json!({ "CertFile": files.cert_file, "KeyFile": files.key_file });
        json!({
            "ClusterSigningCertFile": signing.all.cert_file,
            "ClusterSigningKeyFile": signing.all.key_file,
            "KubeletServingSignerConfiguration": files(&signing.kubelet_serving),
            "KubeletClientSignerConfiguration": files(&signing.kubelet_client),
            "KubeAPIServerClientSignerConfiguration": files(&signing.kube_apiserver_client),
            "LegacyUnknownSignerConfiguration": files(&signing.legacy_unknown),
            "ClusterSigningDuration": duration(signing.duration),
        })
    }

    fn ipam_section(&self) -> Value {
        let ipam = &self.node_ipam;
        let (primary, secondary) = ipam.service_ranges();
        json!({
            "ServiceCIDR": primary,
            "SecondaryServiceCIDR": secondary,
            "NodeCIDRMaskSize": ipam.node_cidr_mask_size,
            "NodeCIDRMaskSizeIPv4": ipam.node_cidr_mask_size_ipv4,
            "NodeCIDRMaskSizeIPv6": ipam.node_cidr_mask_size_ipv6,
        })
    }

    fn lifecycle_section(&self) -> Value {
        let nodes = &self.node_lifecycle;
        json!({
            "NodeEvictionRate": single(nodes.node_eviction_rate),
            "SecondaryNodeEvictionRate": single(nodes.secondary_node_eviction_rate),
            "NodeStartupGracePeriod": duration(nodes.node_startup_grace_period),
            "NodeMonitorPeriod": duration(nodes.node_monitor_period),
            "NodeMonitorGracePeriod": duration(nodes.node_monitor_grace_period),
            // The flag was removed, the field was not.
            "PodEvictionTimeout": "0s",
            "LargeClusterSizeThreshold": nodes.large_cluster_size_threshold,
            "UnhealthyZoneThreshold": single(nodes.unhealthy_zone_threshold),
        })
    }

    fn binder_section(&self) -> Value {
        let binder = &self.volume_binder;
        let recycler = &binder.recycler;
        json!({
            "PVClaimBinderSyncPeriod": duration(binder.sync_period),
            "VolumeConfiguration": {
                "EnableHostPathProvisioning": binder.enable_hostpath_provisioner,
                "EnableDynamicProvisioning": binder.enable_dynamic_provisioning,
                "PersistentVolumeRecyclerConfiguration": {
                    // No flag sets this number.
                    "MaximumRetry": 3,
                    "MinimumTimeoutNFS": recycler.minimum_timeout_nfs,
                    "PodTemplateFilePathNFS": recycler.pod_template_filepath_nfs,
                    "IncrementTimeoutNFS": recycler.increment_timeout_nfs,
                    "PodTemplateFilePathHostPath": recycler.pod_template_filepath_hostpath,
                    "MinimumTimeoutHostPath": recycler.minimum_timeout_hostpath,
                    "IncrementTimeoutHostPath": recycler.timeout_increment_hostpath,
                },
                "FlexVolumePluginDir": binder.flex_volume_plugin_dir,
            },
        })
    }
}

fn duration(duration: GoDuration) -> String {
    duration.to_string()
}

/// An f32 with the digits of its own precision, not those of its conversion to f64.
fn single(value: f32) -> Value {
    value.to_string().parse().map_or(Value::Null, number)
}

/// A number without a decimal point if it is an integer, as Go encodes it.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
