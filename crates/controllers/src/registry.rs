//! The list of all controllers. A new one is a line here and a module beside this one.

use keleustes_plan::{ConstructionError, Controller};

/// Options of all controllers, from flags and files.
#[derive(Default)]
pub struct ControllersOptions {
    /// Token controller; it only runs with a signing key.
    pub serviceaccount_token: Option<crate::serviceaccount_token::ServiceAccountTokenOptions>,
    /// StatefulSet controller.
    pub statefulset: crate::statefulset::StatefulSetOptions,
    /// CronJob controller.
    pub cronjob: crate::cronjob::CronJobOptions,
    /// CSR signing controller; it only runs with the files of a CA.
    pub certificatesigningrequest_signing:
        Option<crate::certificatesigningrequest_signing::CertificateSigningRequestSigningOptions>,
    /// DaemonSet controller.
    pub daemonset: crate::daemonset::DaemonSetOptions,
    /// Deployment controller.
    pub deployment: crate::deployment::DeploymentOptions,
    /// Disruption controller.
    pub disruption: crate::disruption::DisruptionOptions,
    /// Endpoints controller.
    pub endpoints: crate::endpoints::EndpointsOptions,
    /// EndpointSlice controller.
    pub endpointslice: crate::endpointslice::EndpointSliceOptions,
    /// EndpointSlice mirroring controller.
    pub endpointslice_mirroring: crate::endpointslice_mirroring::EndpointSliceMirroringOptions,
    /// Horizontal pod autoscaler.
    pub horizontal_pod_autoscaler: crate::horizontal_pod_autoscaler::HorizontalPodAutoscalerOptions,
    /// Attach-detach controller.
    pub persistentvolume_attach_detach: crate::persistentvolume_attach_detach::AttachDetachOptions,
    /// PersistentVolume binder.
    pub persistentvolume_binder: crate::persistentvolume_binder::PersistentVolumeBinderOptions,
    /// Job controller.
    pub job: crate::job::JobOptions,
    /// ReplicaSet controller.
    pub replicaset: crate::replicaset::ReplicaSetOptions,
    /// ReplicationController controller.
    pub replicationcontroller: crate::replicaset::ReplicaSetOptions,
    /// Pod garbage collector.
    pub pod_garbage_collector: crate::pod_garbage_collector::PodGarbageCollectorOptions,
    /// Node IPAM controller.
    pub node_ipam: crate::node_ipam::NodeIpamOptions,
    /// Node lifecycle controller.
    pub node_lifecycle: crate::node_lifecycle::NodeLifecycleOptions,
    /// Taint eviction controller.
    pub taint_eviction: crate::taint_eviction::TaintEvictionOptions,
    /// Device taint eviction controller.
    pub device_taint_eviction: crate::device_taint_eviction::DeviceTaintEvictionOptions,
    /// TTL-after-finished controller.
    pub ttl_after_finished: crate::ttl_after_finished::TtlAfterFinishedOptions,
    /// Root CA certificate publisher.
    pub root_ca_certificate_publisher:
        crate::root_ca_certificate_publisher::RootCaCertificatePublisherOptions,
    /// Publisher of the API server's CA bundle as a ClusterTrustBundle; it only runs with a CA.
    pub kube_apiserver_serving_clustertrustbundle_publisher:
        crate::kube_apiserver_serving_clustertrustbundle_publisher::ClusterTrustBundlePublisherOptions,
    /// Garbage collector.
    pub garbage_collector: crate::garbage_collector::GarbageCollectorOptions,
    /// ResourceQuota controller.
    pub resourcequota: crate::resourcequota::ResourceQuotaOptions,
    /// Namespace controller.
    pub namespace: crate::namespace::NamespaceOptions,
    /// Bootstrap signer; it only runs with an implementation of HMAC-SHA256.
    pub bootstrap_signer: Option<crate::bootstrap_signer::BootstrapSignerOptions>,
    /// PersistentVolumeClaim protection controller.
    pub persistentvolumeclaim_protection: crate::persistentvolumeclaim_protection::ClaimProtectionOptions,
    /// PodGroup protection controller; it only runs with its feature gate.
    pub podgroup_protection: crate::podgroup_protection::PodGroupProtectionOptions,
    /// Ephemeral volume controller.
    pub ephemeral_volume: crate::ephemeral_volume::EphemeralVolumeOptions,
    /// Whether the storage version garbage collector runs. The API that it reads is not served by default, so it does not
    /// run unless its gates are on.
    pub storageversion_garbage_collector: bool,
    /// Resource claim controller.
    pub resourceclaim: crate::resourceclaim::ResourceClaimOptions,
    /// Controller of pool status requests; it only runs with its feature gate.
    pub resourcepoolstatusrequest: crate::resourcepoolstatusrequest::ResourcePoolStatusOptions,
    /// Legacy token cleaner.
    pub legacy_serviceaccount_token_cleaner:
        crate::legacy_serviceaccount_token_cleaner::LegacyTokenCleanerOptions,
    /// SELinux warning controller.
    pub selinux_warning: crate::selinux_warning::SelinuxWarningOptions,
    /// ValidatingAdmissionPolicy status controller.
    pub validatingadmissionpolicy_status: crate::validatingadmissionpolicy_status::PolicyStatusOptions,
}

/// All controllers that can run with these options, in the original's order of construction.
///
/// # Panics
/// If the options do not allow one of them to be constructed. A process calls [`enabled_controllers`].
#[must_use]
pub fn all_controllers(options: &ControllersOptions) -> Vec<Controller> {
    enabled_controllers(options, &|_| true).unwrap_or_else(|error| panic!("{}: {error}", error.controller))
}

/// The controllers that `is_enabled` selects by name and that can run with these options, in the original's order of
/// construction.
///
/// # Errors
/// If the options do not allow an enabled controller to be constructed. Options of the others do not matter.
pub fn enabled_controllers(
    options: &ControllersOptions,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<Vec<Controller>, ConstructionError> {
    // Wrong options of a controller that is disabled are no error.
    let fallible = |name: &str, build: &dyn Fn() -> Result<Option<Controller>, ConstructionError>| {
        if is_enabled(name) { build() } else { Ok(None) }
    };
    let controllers = [
        options.serviceaccount_token.as_ref().map(crate::serviceaccount_token::controller),
        Some(crate::endpoints::controller(&options.endpoints)),
        Some(crate::endpointslice::controller(&options.endpointslice)),
        Some(crate::endpointslice_mirroring::controller(&options.endpointslice_mirroring)),
        Some(crate::replicationcontroller::controller(&options.replicationcontroller)),
        Some(crate::pod_garbage_collector::controller(options.pod_garbage_collector)),
        Some(crate::resourcequota::controller(&options.resourcequota)),
        Some(crate::namespace::controller(&options.namespace)),
        Some(crate::serviceaccount::controller()),
        crate::garbage_collector::controller_if_enabled(&options.garbage_collector),
        Some(crate::daemonset::controller(&options.daemonset)),
        Some(crate::job::controller(&options.job)),
        Some(crate::deployment::controller(&options.deployment)),
        Some(crate::replicaset::controller(&options.replicaset)),
        Some(crate::horizontal_pod_autoscaler::controller(&options.horizontal_pod_autoscaler)),
        Some(crate::disruption::controller(options.disruption)),
        Some(crate::statefulset::controller(&options.statefulset)),
        Some(crate::cronjob::controller(&options.cronjob)),
        options
            .certificatesigningrequest_signing
            .as_ref()
            .and_then(crate::certificatesigningrequest_signing::controller),
        Some(crate::certificatesigningrequest_approving::controller()),
        Some(crate::certificatesigningrequest_cleaner::controller()),
        Some(crate::podcertificaterequest_cleaner::controller()),
        Some(crate::ttl::controller()),
        options.bootstrap_signer.map(crate::bootstrap_signer::controller),
        Some(crate::token_cleaner::controller()),
        fallible(crate::node_ipam::NAME, &|| crate::node_ipam::controller(&options.node_ipam))?,
        Some(crate::node_lifecycle::controller(options.node_lifecycle)),
        Some(crate::taint_eviction::controller(options.taint_eviction)),
        Some(crate::device_taint_eviction::controller(&options.device_taint_eviction)),
        Some(crate::persistentvolume_binder::controller(&options.persistentvolume_binder)),
        Some(crate::persistentvolume_attach_detach::controller(options.persistentvolume_attach_detach)),
        Some(crate::persistentvolume_expander::controller()),
        Some(crate::clusterrole_aggregation::controller()),
        Some(crate::persistentvolumeclaim_protection::controller(options.persistentvolumeclaim_protection)),
        Some(crate::persistentvolume_protection::controller()),
        crate::podgroup_protection::controller_if_enabled(options.podgroup_protection),
        Some(crate::ttl_after_finished::controller(&options.ttl_after_finished)),
        Some(crate::root_ca_certificate_publisher::controller(&options.root_ca_certificate_publisher)),
        crate::kube_apiserver_serving_clustertrustbundle_publisher::controller(
            &options.kube_apiserver_serving_clustertrustbundle_publisher,
        ),
        Some(crate::ephemeral_volume::controller(options.ephemeral_volume)),
        options.storageversion_garbage_collector.then(crate::storageversion_garbage_collector::controller),
        Some(crate::resourceclaim::controller(&options.resourceclaim)),
        crate::resourcepoolstatusrequest::controller_if_enabled(options.resourcepoolstatusrequest),
        Some(crate::legacy_serviceaccount_token_cleaner::controller(
            options.legacy_serviceaccount_token_cleaner,
        )),
        Some(crate::validatingadmissionpolicy_status::controller(options.validatingadmissionpolicy_status)),
        Some(crate::volumeattributesclass_protection::controller()),
        Some(crate::service_cidr::controller()),
        Some(crate::selinux_warning::controller(options.selinux_warning)),
        fallible(crate::storage_version_migrator::NAME, &|| {
            crate::storage_version_migrator::controller(&options.garbage_collector)
        })?,
    ];
    Ok(controllers.into_iter().flatten().filter(|controller| is_enabled(controller.name)).collect())
}

#[cfg(test)]
mod tests {
    use keleustes_objects::PodParts;

    use super::*;

    #[test]
    fn every_kind_that_a_reconcile_reads_is_watched_or_has_a_reason() {
        let mut uncovered = Vec::new();
        for controller in all_controllers(&ControllersOptions::default()) {
            for a_loop in &controller.loops {
                uncovered.extend(
                    a_loop.uncovered_reads().map(|kind| format!("{} {}", a_loop.queue, kind.resource())),
                );
                assert!(a_loop.unwatched.iter().all(|(_, because)| because.len() > 10), "{}", a_loop.queue);
                let twice =
                    |kind: &keleustes_plan::KindEntry| a_loop.watches.iter().any(|watch| watch.kind == *kind);
                assert!(!a_loop.unwatched.iter().any(|(kind, _)| twice(kind)), "{} watches it", a_loop.queue);
            }
        }
        assert_eq!(uncovered, [""; 0], "these reads would go unnoticed when the object changes");
    }

    /// The cache of pods keeps a part only if one of these controllers is enabled.
    #[test]
    fn parts_of_pods_are_declared_by_few_controllers() {
        let declared = all_controllers(&ControllersOptions::default()).into_iter().filter_map(|controller| {
            let kinds = controller.loops.iter().flat_map(|a_loop| &a_loop.reads);
            let parts = kinds.fold(PodParts::NONE, |parts, kind| parts.and(kind.pod_parts()));
            (parts != PodParts::NONE).then(|| format!("{} {parts:?}", controller.name))
        });
        assert_eq!(
            declared.collect::<Vec<_>>(),
            [
                "endpoints-controller ENDPOINTS",
                "endpointslice-controller ENDPOINTS",
                "resourcequota-controller RESOURCES|RESOURCE_CLAIMS",
                "horizontal-pod-autoscaler-controller RESOURCES",
                "statefulset-controller VOLUME_CLAIMS",
                "taint-eviction-controller TOLERATIONS",
                "device-taint-eviction-controller RESOURCE_CLAIMS",
                "persistentvolume-binder-controller VOLUME_CLAIMS",
                "persistentvolume-attach-detach-controller INLINE_VOLUMES|VOLUME_CLAIMS",
                "persistentvolumeclaim-protection-controller VOLUME_CLAIMS",
                "ephemeral-volume-controller VOLUME_CLAIMS",
                "resourceclaim-controller RESOURCE_CLAIMS|POD_GROUP",
                "legacy-serviceaccount-token-cleaner-controller SECRET_NAMES",
                "selinux-warning-controller VOLUME_CLAIMS|SELINUX",
            ]
        );
    }

    /// Proves EVT-60, EVT-61.
    #[test]
    fn events_name_the_original_s_components_and_other_controllers_record_none() {
        let controllers = all_controllers(&ControllersOptions::default());
        let components: Vec<_> =
            controllers.iter().map(|one| (one.name, one.event_component.unwrap_or_default())).collect();
        assert_eq!(
            components,
            [
                ("endpoints-controller", "endpoint-controller"),
                ("endpointslice-controller", "endpoint-slice-controller"),
                ("endpointslice-mirroring-controller", "endpoint-slice-mirroring-controller"),
                ("replicationcontroller-controller", "replication-controller"),
                ("pod-garbage-collector-controller", ""),
                ("resourcequota-controller", ""),
                ("namespace-controller", ""),
                ("serviceaccount-controller", ""),
                ("garbage-collector-controller", "garbage-collector-controller"),
                ("daemonset-controller", "daemonset-controller"),
                ("job-controller", "job-controller"),
                ("deployment-controller", "deployment-controller"),
                ("replicaset-controller", "replicaset-controller"),
                ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
                ("disruption-controller", "controllermanager"),
                ("statefulset-controller", "statefulset-controller"),
                ("cronjob-controller", "cronjob-controller"),
                ("certificatesigningrequest-approving-controller", ""),
                ("certificatesigningrequest-cleaner-controller", ""),
                ("podcertificaterequest-cleaner-controller", ""),
                ("ttl-controller", ""),
                ("token-cleaner-controller", ""),
                ("node-lifecycle-controller", "node-controller"),
                ("taint-eviction-controller", "taint-eviction-controller"),
                ("device-taint-eviction-controller", "device-taint-eviction-controller"),
                ("persistentvolume-binder-controller", "persistentvolume-controller"),
                ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
                ("persistentvolume-expander-controller", "volume_expand"),
                ("clusterrole-aggregation-controller", ""),
                ("persistentvolumeclaim-protection-controller", ""),
                ("persistentvolume-protection-controller", ""),
                ("ttl-after-finished-controller", ""),
                ("root-ca-certificate-publisher-controller", ""),
                ("ephemeral-volume-controller", "ephemeral_volume"),
                ("resourceclaim-controller", "resource_claim"),
                ("legacy-serviceaccount-token-cleaner-controller", ""),
                ("validatingadmissionpolicy-status-controller", ""),
                ("volumeattributesclass-protection-controller", ""),
                ("service-cidr-controller", "service-cidr-controller"),
                ("selinux-warning-controller", "selinux_warning"),
                ("storage-version-migrator-controller", ""),
            ]
        );
    }
}
