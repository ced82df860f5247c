//! Builds the controllers' options from flags and from files that are read once at start: the signing key and the cluster CA.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use keleustes_client::Connection;
use keleustes_controllers::bootstrap_signer::BootstrapSignerOptions;
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher as publisher;
use keleustes_controllers::legacy_serviceaccount_token_cleaner::LegacyTokenCleanerOptions;
use keleustes_controllers::{self as controllers, ControllersOptions, node_ipam, node_lifecycle};
use keleustes_options::Options;
use keleustes_runtime::signing::{Signer, hmac_sha256};

use crate::certificates::LateStart;

/// The options of all controllers.
///
/// # Errors
/// A file is missing or invalid; the error names the flag and the file.
#[cfg(test)]
pub(crate) fn settings(options: &Options, connection: &Connection) -> anyhow::Result<ControllersOptions> {
    Ok(settings_and_late_start(options, connection)?.0)
}

/// The options of all controllers, and what is read when the process becomes leader.
///
/// # Errors
/// A file is missing or invalid; the error names the flag and the file.
pub(crate) fn settings_and_late_start(
    options: &Options,
    connection: &Connection,
) -> anyhow::Result<(ControllersOptions, LateStart)> {
    let root_ca = root_ca(options, connection)?;
    let late_start = LateStart::new(options, &root_ca);
    let mut settings = controllers_options(options, &root_ca)?;
    settings.certificatesigningrequest_signing = late_start.signing_options(options);
    settings.kube_apiserver_serving_clustertrustbundle_publisher = late_start.publisher_options();
    Ok((settings, late_start))
}

/// The CA bundle of the API server: from the file of the flag, else the data in the kubeconfig.
fn root_ca(options: &Options, connection: &Connection) -> anyhow::Result<Arc<[u8]>> {
    Ok(match options.service_account.root_ca_file.as_str() {
        "" => {
            let data: Arc<[u8]> = connection.embedded_ca().unwrap_or_default().into();
            check_embedded_ca(options, &data)?;
            data
        }
        file => certificates(file).with_context(|| format!("error parsing root-ca-file at {file}"))?.into(),
    })
}

/// The publisher of trust bundles refuses a kubeconfig whose CA data are malformed.
fn check_embedded_ca(options: &Options, data: &[u8]) -> anyhow::Result<()> {
    let name = publisher::NAME;
    let is_enabled =
        options.generic.controllers.enables(name, true) && options.gates.enabled("ClusterTrustBundle");
    if data.is_empty() || !is_enabled {
        return Ok(());
    }
    check_certificates(data).context(
        "failed to create a static CA content provider for the kube-apiserver-serving signer: error loading CA \
         bundle for \"kube-apiserver-serving\"",
    )
}

fn controllers_options(options: &Options, root_ca: &Arc<[u8]>) -> anyhow::Result<ControllersOptions> {
    let replicas = |count| controllers::replicaset::ReplicaSetOptions {
        workers: workers(count),
        honor_deletion_cost: options.gates.enabled("PodDeletionCost"),
        count_terminating_replicas: options.gates.enabled("DeploymentReplicaSetTerminatingReplicas"),
    };
    Ok(ControllersOptions {
        serviceaccount_token: token_settings(options, root_ca)?,
        statefulset: statefulset_settings(options),
        cronjob: controllers::cronjob::CronJobOptions {
            workers: workers(options.workers.cron_job),
            time_zones: crate::time_zones::of_this_host(),
        },
        daemonset: controllers::daemonset::DaemonSetOptions {
            workers: workers(options.workers.daemon_set),
            comparison_operators: options.gates.enabled("TaintTolerationComparisonOperators"),
        },
        deployment: controllers::deployment::DeploymentOptions {
            workers: workers(options.workers.deployment),
            count_terminating_replicas: options.gates.enabled("DeploymentReplicaSetTerminatingReplicas"),
        },
        endpointslice: endpointslice_settings(options),
        endpoints: endpoints_settings(options),
        endpointslice_mirroring: endpointslice_mirroring_settings(options),
        horizontal_pod_autoscaler: horizontal_pod_autoscaler_settings(options),
        job: job_settings(options),
        replicaset: replicas(options.workers.replica_set),
        replicationcontroller: replicas(options.workers.replication_controller),
        persistentvolume_attach_detach: attach_detach_settings(options),
        persistentvolume_binder: crate::volume_binder_options::settings(&options.volume_binder)?,
        root_ca_certificate_publisher:
            controllers::root_ca_certificate_publisher::RootCaCertificatePublisherOptions {
                ca: String::from_utf8_lossy(root_ca).into(),
            },
        garbage_collector: controllers::garbage_collector::GarbageCollectorOptions {
            enabled: options.garbage_collector.enabled,
            workers: workers(options.workers.garbage_collector),
            hash_key: crate::process_context::seed(),
        },
        // The selection looks at its gates.
        storageversion_garbage_collector: true,
        resourcequota: resourcequota_settings(options),
        namespace: namespace_settings(options),
        pod_garbage_collector: controllers::pod_garbage_collector::PodGarbageCollectorOptions {
            terminated_pod_threshold: options.terminated_pod_gc_threshold,
        },
        node_ipam: node_ipam_settings(options),
        node_lifecycle: node_lifecycle_settings(options),
        disruption: disruption_settings(options),
        ttl_after_finished: controllers::ttl_after_finished::TtlAfterFinishedOptions {
            // Not validated: without workers the controller runs and deletes nothing.
            workers: usize::try_from(options.workers.ttl_after_finished).unwrap_or(0),
        },
        taint_eviction: controllers::taint_eviction::TaintEvictionOptions {
            enable_comparison_operators: options.gates.enabled("TaintTolerationComparisonOperators"),
        },
        device_taint_eviction: device_taint_eviction_settings(options),
        podgroup_protection: pod_group_settings(options),
        resourceclaim: resourceclaim_settings(options),
        resourcepoolstatusrequest: pool_status_settings(options),
        bootstrap_signer: Some(BootstrapSignerOptions { hmac_sha256 }),
        persistentvolumeclaim_protection: claim_protection_settings(options),
        ephemeral_volume: ephemeral_volume_settings(options),
        legacy_serviceaccount_token_cleaner: legacy_token_settings(options)?,
        selinux_warning: selinux_settings(options),
        validatingadmissionpolicy_status: policy_status_settings(options),
        ..ControllersOptions::default()
    })
}

fn job_settings(options: &Options) -> controllers::job::JobOptions {
    controllers::job::JobOptions {
        workers: workers(options.workers.job),
        clear_start_time_on_suspend: options.gates.enabled("MutableSchedulingDirectivesForSuspendedJobs"),
        honor_managed_by: options.gates.enabled("JobManagedBy"),
        enable_workloads: options.gates.enabled("WorkloadWithJob"),
    }
}

fn pod_group_settings(options: &Options) -> controllers::podgroup_protection::PodGroupProtectionOptions {
    controllers::podgroup_protection::PodGroupProtectionOptions {
        enable_generic_workload: options.gates.enabled("GenericWorkload"),
    }
}

fn pool_status_settings(
    options: &Options,
) -> controllers::resourcepoolstatusrequest::ResourcePoolStatusOptions {
    controllers::resourcepoolstatusrequest::ResourcePoolStatusOptions {
        enabled: options.gates.enabled("DRAResourcePoolStatus"),
        enable_taint_rules: options.gates.enabled("DRADeviceTaintRules"),
    }
}

fn selinux_settings(options: &Options) -> controllers::selinux_warning::SelinuxWarningOptions {
    controllers::selinux_warning::SelinuxWarningOptions {
        mounts_with_labels: options.gates.enabled("SELinuxMountReadWriteOncePod"),
    }
}

fn statefulset_settings(options: &Options) -> controllers::statefulset::StatefulSetOptions {
    controllers::statefulset::StatefulSetOptions {
        workers: workers(options.workers.stateful_set),
        honor_max_unavailable: options.gates.enabled("MaxUnavailableStatefulSet"),
        allow_recreate_strategy: options.gates.enabled("StatefulSetRecreateStrategy"),
        semantic_revision_comparison: options.gates.enabled("StatefulSetSemanticRevisionComparison"),
    }
}

fn resourcequota_settings(options: &Options) -> controllers::resourcequota::ResourceQuotaOptions {
    controllers::resourcequota::ResourceQuotaOptions {
        workers: workers(options.workers.resource_quota),
        sync_period: options.resource_quota.sync_period.to_std(),
        pod_level_resources: options.gates.enabled("PodLevelResources"),
    }
}

fn device_taint_eviction_settings(
    options: &Options,
) -> controllers::device_taint_eviction::DeviceTaintEvictionOptions {
    controllers::device_taint_eviction::DeviceTaintEvictionOptions {
        workers: workers(options.workers.device_taint_eviction),
        enable_rules: options.gates.enabled("DRADeviceTaintRules"),
        enable_workload_claims: options.gates.enabled("DRAWorkloadResourceClaims"),
    }
}

fn resourceclaim_settings(options: &Options) -> controllers::resourceclaim::ResourceClaimOptions {
    controllers::resourceclaim::ResourceClaimOptions {
        workers: workers(options.workers.resource_claim),
        enable_admin_access: options.gates.enabled("DRAAdminAccess"),
        enable_prioritized_list: options.gates.enabled("DRAPrioritizedList"),
        enable_generic_workload: options.gates.enabled("GenericWorkload"),
        enable_workload_claims: options.gates.enabled("DRAWorkloadResourceClaims"),
    }
}

fn namespace_settings(options: &Options) -> controllers::namespace::NamespaceOptions {
    controllers::namespace::NamespaceOptions {
        workers: workers(options.workers.namespace),
        sync_period: options.namespace.sync_period.to_std(),
    }
}

fn attach_detach_settings(
    options: &Options,
) -> controllers::persistentvolume_attach_detach::AttachDetachOptions {
    let flags = &options.attach_detach;
    controllers::persistentvolume_attach_detach::AttachDetachOptions {
        reconcile_sync_period: flags.reconcile_sync_period.to_std(),
        disable_reconcile_sync: flags.disable_reconcile_sync,
        disable_force_detach_on_timeout: flags.disable_force_detach_on_timeout,
    }
}

fn claim_protection_settings(
    options: &Options,
) -> controllers::persistentvolumeclaim_protection::ClaimProtectionOptions {
    controllers::persistentvolumeclaim_protection::ClaimProtectionOptions {
        report_unused: options.gates.enabled("PersistentVolumeClaimUnusedSinceTime"),
    }
}

fn policy_status_settings(
    options: &Options,
) -> controllers::validatingadmissionpolicy_status::PolicyStatusOptions {
    controllers::validatingadmissionpolicy_status::PolicyStatusOptions {
        // Not validated: without workers the controller runs and checks nothing.
        workers: usize::try_from(options.workers.validating_admission_policy_status).unwrap_or(0),
    }
}

fn ephemeral_volume_settings(options: &Options) -> controllers::ephemeral_volume::EphemeralVolumeOptions {
    controllers::ephemeral_volume::EphemeralVolumeOptions {
        workers: workers(options.workers.ephemeral_volume),
    }
}

fn endpointslice_settings(options: &Options) -> controllers::endpointslice::EndpointSliceOptions {
    controllers::endpointslice::EndpointSliceOptions {
        workers: workers(options.workers.endpoint_slice),
        max_endpoints_per_slice: workers(options.endpoint_slice.max_endpoints_per_slice),
        updates_batch_period: options.endpoint_slice.updates_batch_period.to_std(),
    }
}

fn endpoints_settings(options: &Options) -> controllers::endpoints::EndpointsOptions {
    controllers::endpoints::EndpointsOptions {
        workers: workers(options.workers.endpoints),
        updates_batch_period: options.endpoints.updates_batch_period.to_std(),
    }
}

fn endpointslice_mirroring_settings(
    options: &Options,
) -> controllers::endpointslice_mirroring::EndpointSliceMirroringOptions {
    controllers::endpointslice_mirroring::EndpointSliceMirroringOptions {
        workers: workers(options.workers.endpoint_slice_mirroring),
        max_endpoints_per_subset: workers(options.endpoint_slice_mirroring.max_endpoints_per_subset),
        updates_batch_period: options.endpoint_slice_mirroring.updates_batch_period.to_std(),
    }
}

/// The autoscaler's options. Every number that parses is used as it is; a period of zero or less is the default one.
fn horizontal_pod_autoscaler_settings(
    options: &Options,
) -> controllers::horizontal_pod_autoscaler::HorizontalPodAutoscalerOptions {
    let scaling = &options.horizontal_pod_autoscaler;
    controllers::horizontal_pod_autoscaler::HorizontalPodAutoscalerOptions {
        workers: workers(options.workers.horizontal_pod_autoscaler),
        sync_period: scaling.sync_period.to_std(),
        downscale_stabilization: scaling.downscale_stabilization.to_std(),
        tolerance: scaling.tolerance,
        cpu_initialization_period: scaling.cpu_initialization_period.to_std(),
        initial_readiness_delay: scaling.initial_readiness_delay.to_std(),
        scale_to_zero: options.gates.enabled("HPAScaleToZero"),
        generation: options.gates.enabled("HPAGeneration"),
        name_all_overlapping: !options.gates.enabled("HPAOptimizedSelectorStore"),
        pod_level_resources: options.gates.enabled("PodLevelResources"),
    }
}

/// The legacy token cleaner's options. A period that is not positive is an error only if the controller is enabled.
fn legacy_token_settings(options: &Options) -> anyhow::Result<LegacyTokenCleanerOptions> {
    let period = options.legacy_token_clean_up_period;
    let is_enabled =
        options.generic.controllers.enables("legacy-serviceaccount-token-cleaner-controller", true);
    if is_enabled && period.to_std().is_zero() {
        bail!("failed to init the legacy service account token cleaner: invalid CleanUpPeriod: {period}");
    }
    Ok(LegacyTokenCleanerOptions { clean_up_period: period.to_std() })
}

/// The node IPAM options. The controller reads the ranges when it is constructed, so that they do not matter without it.
fn node_ipam_settings(options: &Options) -> node_ipam::NodeIpamOptions {
    let (primary, secondary) = options.node_ipam.service_ranges();
    let settings = node_ipam::NodeIpamOptions {
        allocate_node_cidrs: options.cloud.allocate_node_cidrs,
        cidr_allocator_type: options.cloud.cidr_allocator_type.clone(),
        cluster_cidr: options.cloud.cluster_cidr.clone(),
        service_cidr: primary.to_owned(),
        secondary_service_cidr: secondary.to_owned(),
        node_cidr_mask_size: options.node_ipam.node_cidr_mask_size,
        node_cidr_mask_size_ipv4: options.node_ipam.node_cidr_mask_size_ipv4,
        node_cidr_mask_size_ipv6: options.node_ipam.node_cidr_mask_size_ipv6,
    };
    for range in settings.unreadable_service_ranges().filter(|_| settings.allocate_node_cidrs) {
        tracing::warn!(CIDR = range, "Warning: unsuccessful parsing of service CIDR");
    }
    settings
}

/// The node lifecycle options. Every number that parses is used as it is.
fn node_lifecycle_settings(options: &Options) -> node_lifecycle::NodeLifecycleOptions {
    let flags = &options.node_lifecycle;
    node_lifecycle::NodeLifecycleOptions {
        monitor_period: flags.node_monitor_period.to_std(),
        grace_periods: node_lifecycle::GracePeriods {
            monitor: flags.node_monitor_grace_period.to_std(),
            startup: flags.node_startup_grace_period.to_std(),
        },
        eviction_rates: node_lifecycle::EvictionRates {
            node_eviction_rate: flags.node_eviction_rate,
            secondary_node_eviction_rate: flags.secondary_node_eviction_rate,
            large_cluster_size_threshold: flags.large_cluster_size_threshold,
            unhealthy_zone_threshold: flags.unhealthy_zone_threshold,
        },
        lease_circuit_breaker: options.gates.enabled("NodeControllerLeaseCircuitBreaker"),
    }
}

/// The token controller's options; `None` without a signing key.
fn token_settings(
    options: &Options,
    root_ca: &Arc<[u8]>,
) -> anyhow::Result<Option<controllers::serviceaccount_token::ServiceAccountTokenOptions>> {
    let file = options.service_account.private_key_file.as_str();
    if file.is_empty() {
        return Ok(None);
    }
    let read = || Ok::<_, anyhow::Error>(Signer::from_pem(&std::fs::read(file)?)?);
    let signer =
        read().with_context(|| format!("error reading key for service account token controller: {file}"))?;
    Ok(Some(controllers::serviceaccount_token::ServiceAccountTokenOptions {
        sign: Arc::new(move |claims| signer.sign(claims)),
        ca: root_ca.clone(),
        workers: workers(options.workers.service_account_token),
    }))
}

/// The number of workers is not validated: without any the controller runs and writes no status.
fn disruption_settings(options: &Options) -> controllers::disruption::DisruptionOptions {
    let workers = usize::try_from(options.workers.disruption).unwrap_or(0);
    controllers::disruption::DisruptionOptions { workers }
}

/// The number of workers from a flag.
fn workers(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0).max(1)
}

/// The contents of a file with at least one certificate. All are parsed, because the file is published to every
/// namespace, and client-go refuses a file with one malformed certificate. Parity: readCA, ParseCertsPEM.
fn certificates(file: &str) -> anyhow::Result<Vec<u8>> {
    let pem = std::fs::read(file)?;
    check_certificates(&pem)?;
    Ok(pem)
}

/// Blocks of other types, blocks with headers and text around them are ignored.
fn check_certificates(pem: &[u8]) -> anyhow::Result<()> {
    keleustes_x509::certificates_from_pem(pem).map(drop).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;
    use base64::Engine as _;

    /// A connection that sends nothing.
    fn unused_connection() -> Connection {
        Connection::from_service(tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        }))
    }

    fn options(args: impl Iterator<Item = String>) -> Box<Options> {
        command::read(args.map(Into::into)).unwrap()
    }

    fn complaint(args: &[&str]) -> String {
        let options = options(args.iter().map(ToString::to_string));
        settings(&options, &unused_connection()).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    fn file(name: &str, content: &str) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        (directory, path.display().to_string())
    }

    /// Proves SAT-1.
    #[test]
    fn token_controller_needs_a_key_and_an_invalid_key_fails_the_start() {
        assert_eq!(complaint(&[]), "");
        let missing = complaint(&["--service-account-private-key-file=/no/such/file"]);
        let begins = "error reading key for service account token controller: /no/such/file: No such file";
        assert!(missing.starts_with(begins), "{missing}");
        let (_directory, path) = file("sa.key", "not a key");
        let bad = complaint(&[&format!("--service-account-private-key-file={path}")]);
        assert!(bad.ends_with("sa.key: data does not contain a valid RSA or ECDSA private key"), "{bad}");
    }

    /// Proves LSTC-1.
    #[test]
    fn clean_up_period_of_legacy_tokens_must_be_positive() {
        let flag = |period: &str| format!("--legacy-service-account-token-clean-up-period={period}");
        let invalid = "failed to init the legacy service account token cleaner: invalid CleanUpPeriod: ";
        assert_eq!(complaint(&[&flag("0")]), format!("{invalid}0s"));
        assert_eq!(complaint(&[&flag("-1h")]), format!("{invalid}-1h0m0s"));
        assert_eq!(complaint(&[&flag("-1h"), "--controllers=*,-legacy-service-account-token-cleaner"]), "");
        let period = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            let settings = settings(&options, &unused_connection()).unwrap();
            settings.legacy_serviceaccount_token_cleaner.clean_up_period.as_secs()
        };
        assert_eq!(period(&[]), 8760 * 3600);
        assert_eq!(period(&[&flag("1s")]), 1);
    }

    /// Proves GC-1, GC-2.
    #[test]
    fn flags_enable_the_garbage_collector_and_set_its_workers() {
        let gc_options = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            settings(&options, &unused_connection()).unwrap().garbage_collector
        };
        let default_options = gc_options(&[]);
        assert_eq!((default_options.enabled, default_options.workers), (true, 20));
        let changed = gc_options(&["--enable-garbage-collector=false", "--concurrent-gc-syncs=7"]);
        assert_eq!((changed.enabled, changed.workers), (false, 7));
        assert_ne!(
            default_options.hash_key, changed.hash_key,
            "the hash key of uids must not be predictable"
        );
    }

    /// Proves RCA-1, RCA-2, SAT-5, RUN-2, CTB-2.
    #[test]
    fn signing_key_and_ca_are_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let (key_file, ca_file) = (directory.path().join("sa.key"), directory.path().join("ca.crt"));
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::new(["ca".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        std::fs::write(&ca_file, &ca).unwrap();
        let options = options(
            [("--service-account-private-key-file", &key_file), ("--root-ca-file", &ca_file)]
                .into_iter()
                .map(|(flag, file)| format!("{flag}={}", file.display())),
        );
        let settings = settings(&options, &unused_connection()).unwrap();
        std::fs::remove_file(&key_file).unwrap();
        std::fs::write(&ca_file, "another").unwrap();
        assert_eq!(&*settings.root_ca_certificate_publisher.ca, ca);
        assert_eq!(&*settings.kube_apiserver_serving_clustertrustbundle_publisher.ca, ca);
        let settings = settings.serviceaccount_token.unwrap();
        assert_eq!(&*settings.ca, ca.as_bytes());
        assert!((settings.sign)(&serde_json::json!({})).is_ok());
    }

    /// Proves EPS-1, EPS-2, EPS-3.
    #[test]
    fn flags_reach_the_endpointslice_controller() {
        let made = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            let settings = settings(&options, &unused_connection()).unwrap().endpointslice;
            (settings.workers, settings.max_endpoints_per_slice, settings.updates_batch_period.as_millis())
        };
        assert_eq!(made(&[]), (5, 100, 0));
        let flags = [
            "--concurrent-service-endpoint-syncs=9",
            "--max-endpoints-per-slice=7",
            "--endpointslice-updates-batch-period=1500ms",
        ];
        assert_eq!(made(&flags), (9, 7, 1500));
    }

    /// Proves CRON-2.
    #[test]
    fn flag_sets_the_workers_of_the_cronjob_controller_and_must_be_positive() {
        let workers = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            settings(&options, &unused_connection()).unwrap().cronjob.workers
        };
        assert_eq!(workers(&[]), 5);
        assert_eq!(workers(&["--concurrent-cron-job-syncs=2"]), 2);
        for refused in ["0", "-1"] {
            let args = [format!("--concurrent-cron-job-syncs={refused}")];
            assert!(command::read(args.into_iter().map(Into::into)).is_err(), "{refused}");
        }
    }

    /// Proves TTLF-4.
    #[test]
    fn flag_sets_the_workers_of_the_ttl_after_finished_controller() {
        let workers = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            settings(&options, &unused_connection()).unwrap().ttl_after_finished.workers
        };
        assert_eq!(workers(&[]), 5);
        assert_eq!(workers(&["--concurrent-ttl-after-finished-syncs=2"]), 2);
        assert_eq!(workers(&["--concurrent-ttl-after-finished-syncs=0"]), 0);
        assert_eq!(workers(&["--concurrent-ttl-after-finished-syncs=-3"]), 0);
    }

    /// Proves PDB-2.
    #[test]
    fn flag_sets_the_workers_of_the_disruption_controller() {
        let workers = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            let settings = settings(&options, &unused_connection()).unwrap();
            let controller = controllers::disruption::controller(settings.disruption);
            controller.loops.iter().map(|one| one.workers).collect::<Vec<_>>()
        };
        assert_eq!(workers(&[]), [1, 1, 1]);
        assert_eq!(workers(&["--concurrent-disruption-syncs=4"]), [4, 1, 1]);
        assert_eq!(workers(&["--concurrent-disruption-syncs=0"]), [0, 1, 1]);
        assert_eq!(workers(&["--concurrent-disruption-syncs=-3"]), [0, 1, 1]);
    }

    /// Proves EP-1, EP-2.
    #[test]
    fn flags_reach_the_endpoints_controller() {
        let made = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            let settings = settings(&options, &unused_connection()).unwrap().endpoints;
            (settings.workers, settings.updates_batch_period.as_millis())
        };
        assert_eq!(made(&[]), (5, 0));
        let flags = ["--concurrent-endpoint-syncs=9", "--endpoint-updates-batch-period=1500ms"];
        assert_eq!(made(&flags), (9, 1500));
        let odd = ["--concurrent-endpoint-syncs=-1", "--endpoint-updates-batch-period=-3s"];
        assert_eq!(made(&odd), (1, 0), "at least one worker runs");
    }

    /// Proves EPSM-1, EPSM-2, EPSM-3.
    #[test]
    fn flags_reach_the_endpointslice_mirroring_controller() {
        let made = |args: &[&str]| {
            let options = options(args.iter().map(ToString::to_string));
            let settings = settings(&options, &unused_connection()).unwrap().endpointslice_mirroring;
            (settings.workers, settings.max_endpoints_per_subset, settings.updates_batch_period.as_millis())
        };
        assert_eq!(made(&[]), (5, 1000, 0));
        let flags = [
            "--mirroring-concurrent-service-endpoint-syncs=50",
            "--mirroring-max-endpoints-per-subset=1",
            "--mirroring-endpointslice-updates-batch-period=1500ms",
        ];
        assert_eq!(made(&flags), (50, 1, 1500));
    }

    /// Proves IPAM-1, IPAM-2.
    #[test]
    fn flags_reach_the_node_ipam_controller_unchanged() {
        let read = |args: &[&str]| node_ipam_settings(&options(args.iter().map(ToString::to_string)));
        assert_eq!(read(&[]), node_ipam::NodeIpamOptions::default());
        let default = node_ipam::NodeIpamOptions::default();
        assert_eq!(
            (default.allocate_node_cidrs, default.cidr_allocator_type.as_str()),
            (false, "RangeAllocator")
        );
        let changed = read(&[
            "--allocate-node-cidrs",
            "--cluster-cidr=10.0.0.0/16, fd00::/48",
            "--service-cluster-ip-range=10.96.0.0/16, fd01::/108",
            "--node-cidr-mask-size=1",
            "--node-cidr-mask-size-ipv4=2",
            "--node-cidr-mask-size-ipv6=3",
        ]);
        assert_eq!(
            changed,
            node_ipam::NodeIpamOptions {
                allocate_node_cidrs: true,
                cidr_allocator_type: "RangeAllocator".to_owned(),
                cluster_cidr: "10.0.0.0/16, fd00::/48".to_owned(),
                service_cidr: "10.96.0.0/16".to_owned(),
                secondary_service_cidr: " fd01::/108".to_owned(),
                node_cidr_mask_size: 1,
                node_cidr_mask_size_ipv4: 2,
                node_cidr_mask_size_ipv6: 3,
            }
        );
    }

    /// Proves NLC-2, NLC-3, NLC-5.
    #[test]
    fn flags_reach_the_node_lifecycle_controller_unchanged() {
        let read = |args: &[&str]| node_lifecycle_settings(&options(args.iter().map(ToString::to_string)));
        assert_eq!(read(&[]), node_lifecycle::NodeLifecycleOptions::default());
        let odd = read(&[
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=-3s",
            "--node-startup-grace-period=0s",
            "--node-eviction-rate=-1",
            "--secondary-node-eviction-rate=7.5",
            "--unhealthy-zone-threshold=3",
            "--large-cluster-size-threshold=-5",
            "--feature-gates=NodeControllerLeaseCircuitBreaker=false",
        ]);
        let seconds = [odd.monitor_period, odd.grace_periods.monitor, odd.grace_periods.startup]
            .map(|span| span.as_secs());
        assert_eq!(seconds, [1, 0, 0]);
        let eviction_rates = odd.eviction_rates;
        let rates = [
            eviction_rates.node_eviction_rate,
            eviction_rates.secondary_node_eviction_rate,
            eviction_rates.unhealthy_zone_threshold,
        ];
        assert_eq!(rates.map(|rate| rate.to_string()), ["-1", "7.5", "3"]);
        assert_eq!((eviction_rates.large_cluster_size_threshold, odd.lease_circuit_breaker), (-5, false));
    }

    /// Proves RCA-1, SAT-4.
    #[test]
    fn root_ca_file_without_a_certificate_fails_the_start() {
        let (_directory, path) = file("ca.crt", "nothing");
        let bad = complaint(&[&format!("--root-ca-file={path}")]);
        let text = "ca.crt: data does not contain any valid RSA or ECDSA certificates";
        assert!(bad.ends_with(text), "{bad}");
        let missing = complaint(&["--root-ca-file=/no/such/file"]);
        assert!(
            missing.starts_with("error parsing root-ca-file at /no/such/file: No such file"),
            "{missing}"
        );
    }

    /// Proves RCA-1, SAT-4, CTB-1, CTB-48, CTB-49.
    #[test]
    fn root_ca_file_with_a_malformed_certificate_fails_the_start() {
        let block = |der: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::new(["ca".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (good, truncated) = (block(ca.der()), block(&ca.der()[..100]));
        let trailing = block(&[&ca.der()[..], b"more"].concat());
        for pem in [
            block(b"not a certificate"),
            truncated.clone(),
            trailing,
            format!("{good}{truncated}"),
            format!("{truncated}{good}"),
        ] {
            let (_directory, path) = file("ca.crt", &pem);
            let bad = complaint(&[&format!("--root-ca-file={path}")]);
            let wanted = format!("error parsing root-ca-file at {path}: x509: ");
            assert!(bad.starts_with(&wanted), "{bad}");
        }
        // Several certificates, none of a CA and one twice; text, another block and a malformed block with headers.
        let headers = truncated.replace("-----\nMII", "-----\nkey: value\n\nMII");
        assert_ne!(headers, truncated);
        let bundle = format!("text\n{good}{}{headers}{good}", key.serialize_pem());
        let (_directory, path) = file("ca.crt", &bundle);
        assert_eq!(certificates(&path).unwrap(), bundle.as_bytes());
    }

    /// Proves CTB-1, CTB-47, CTB-49.
    #[tokio::test]
    async fn ca_data_in_the_kubeconfig_must_be_certificates_and_a_path_counts_as_none() {
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::new(["ca".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
        let published = |cluster: &str, more: &[&str]| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: \
                 u}}}}]\nusers: [{{name: u, user: {{}}}}]\nclusters: [{{name: c, cluster: {{server: \
                 'https://127.0.0.1:1', {cluster}}}}}]\n"
            );
            let (_directory, path) = file("kubeconfig", &text);
            let connection =
                Connection::open(Some(path.as_ref()), None, None).map_err(anyhow::Error::from)?;
            let options = options(more.iter().map(ToString::to_string));
            let settings = settings(&options, &connection)?;
            anyhow::Ok(settings.kube_apiserver_serving_clustertrustbundle_publisher.ca)
        };
        let data = |text: &str| {
            let text = base64::engine::general_purpose::STANDARD.encode(text);
            format!("certificate-authority-data: {text}")
        };
        assert_eq!(&*published(&data(&ca), &[]).unwrap(), ca);
        let (_directory, ca_file) = file("ca.crt", &ca);
        let named = published(&format!("certificate-authority: {ca_file}"), &[]).unwrap();
        assert_eq!(&*named, "", "a file that the kubeconfig names");
        assert_eq!(&*published("insecure-skip-tls-verify: true", &[]).unwrap(), "");
        assert_eq!(
            &*settings(&options(std::iter::empty()), &unused_connection())
                .unwrap()
                .kube_apiserver_serving_clustertrustbundle_publisher
                .ca,
            "",
            "the configuration in a cluster"
        );
    }

    /// Proves CTB-49.
    #[test]
    fn malformed_ca_data_fail_the_start_only_with_the_publisher() {
        let error = |more: &[&str]| {
            let options = options(more.iter().map(ToString::to_string));
            check_embedded_ca(&options, b"nothing")
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default()
        };
        let text = "failed to create a static CA content provider for the kube-apiserver-serving signer: error \
                    loading CA bundle for \"kube-apiserver-serving\": data does not contain any valid RSA or ECDSA \
                    certificates";
        assert_eq!(error(&[]), text);
        assert_eq!(
            error(&["--feature-gates=ClusterTrustBundle=false,ClusterTrustBundleProjection=false"]),
            ""
        );
        let without = format!("--controllers=*,-{}", publisher::NAME);
        assert_eq!(error(&[&without]), "");
    }
}
