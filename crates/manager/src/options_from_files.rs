//! Builds the controllers' options from flags and from files that are read once at start: the signing key and the cluster CA.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use keleustes_client::Connection;
use keleustes_controllers::{self as controllers, ControllersOptions, node_lifecycle};
use keleustes_options::Options;
use keleustes_runtime::signing::Signer;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// The options of all controllers.
///
/// # Errors
/// A file is missing or invalid; the error names the flag and the file.
pub(crate) fn settings(options: &Options, connection: &Connection) -> anyhow::Result<ControllersOptions> {
    let flags = &options.service_account;
    let root_ca: Arc<[u8]> = match flags.root_ca_file.as_str() {
        "" => connection.embedded_ca().unwrap_or_default().into(),
        file => certificates(file).with_context(|| format!("error parsing root-ca-file at {file}"))?.into(),
    };
    let replicas = |count| controllers::replicaset::ReplicaSetOptions {
        workers: workers(count),
        honor_deletion_cost: options.gates.enabled("PodDeletionCost"),
        count_terminating_replicas: options.gates.enabled("DeploymentReplicaSetTerminatingReplicas"),
    };
    Ok(ControllersOptions {
        serviceaccount_token: token_settings(options, &root_ca)?,
        statefulset: controllers::statefulset::StatefulSetOptions {
            workers: workers(options.workers.stateful_set),
            honor_max_unavailable: options.gates.enabled("MaxUnavailableStatefulSet"),
            allow_recreate_strategy: options.gates.enabled("StatefulSetRecreateStrategy"),
            semantic_revision_comparison: options.gates.enabled("StatefulSetSemanticRevisionComparison"),
        },
        daemonset: controllers::daemonset::DaemonSetOptions {
            workers: workers(options.workers.daemon_set),
            comparison_operators: options.gates.enabled("TaintTolerationComparisonOperators"),
        },
        deployment: controllers::deployment::DeploymentOptions {
            workers: workers(options.workers.deployment),
            count_terminating_replicas: options.gates.enabled("DeploymentReplicaSetTerminatingReplicas"),
        },
        endpointslice: controllers::endpointslice::EndpointSliceOptions {
            workers: workers(options.workers.endpoint_slice),
            max_endpoints_per_slice: workers(options.endpoint_slice.max_endpoints_per_slice),
            updates_batch_period: options.endpoint_slice.updates_batch_period.to_std(),
        },
        job: controllers::job::JobOptions {
            workers: workers(options.workers.job),
            clear_start_time_on_suspend: options.gates.enabled("MutableSchedulingDirectivesForSuspendedJobs"),
        },
        replicaset: replicas(options.workers.replica_set),
        replicationcontroller: replicas(options.workers.replication_controller),
        root_ca_certificate_publisher:
            controllers::root_ca_certificate_publisher::RootCaCertificatePublisherOptions {
                ca: String::from_utf8_lossy(&root_ca).into(),
            },
        garbage_collector: controllers::garbage_collector::GarbageCollectorOptions {
            enabled: options.garbage_collector.enabled,
            workers: workers(options.workers.garbage_collector),
            hash_key: crate::process_context::seed(),
        },
        namespace: controllers::namespace::NamespaceOptions {
            workers: workers(options.workers.namespace),
            sync_period: options.namespace.sync_period.to_std(),
        },
        pod_garbage_collector: controllers::pod_garbage_collector::PodGarbageCollectorOptions {
            terminated_pod_threshold: options.terminated_pod_gc_threshold,
        },
        node_lifecycle: node_lifecycle_settings(options),
        taint_eviction: controllers::taint_eviction::TaintEvictionOptions {
            enable_comparison_operators: options.gates.enabled("TaintTolerationComparisonOperators"),
        },
    })
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

/// The number of workers from a flag.
fn workers(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0).max(1)
}

/// The contents of a file with at least one certificate. All are parsed, because the file is published to every
/// namespace, and client-go refuses a file with one malformed certificate. Parity: readCA, ParseCertsPEM.
fn certificates(file: &str) -> anyhow::Result<Vec<u8>> {
    let pem = std::fs::read(file)?;
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        found += 1;
        let (rest, _) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| anyhow::anyhow!("certificate {found} is malformed: {error}"))?;
        if !rest.is_empty() {
            bail!("certificate {found} is malformed: trailing data");
        }
    }
    if found == 0 {
        bail!("it contains no certificate");
    }
    Ok(pem)
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

    /// Proves RCA-1, RCA-2, SAT-5, RUN-2.
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
        assert!(bad.ends_with("ca.crt: it contains no certificate"), "{bad}");
        let missing = complaint(&["--root-ca-file=/no/such/file"]);
        assert!(
            missing.starts_with("error parsing root-ca-file at /no/such/file: No such file"),
            "{missing}"
        );
    }

    /// Proves RCA-1, SAT-4.
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
        for (pem, at) in [
            (block(b"not a certificate"), 1),
            (truncated.clone(), 1),
            (trailing, 1),
            (format!("{good}{truncated}"), 2),
            (format!("{truncated}{good}"), 1),
        ] {
            let (_directory, path) = file("ca.crt", &pem);
            let bad = complaint(&[&format!("--root-ca-file={path}")]);
            let wanted = format!("error parsing root-ca-file at {path}: certificate {at} is malformed: ");
            assert!(bad.starts_with(&wanted), "{bad}");
        }
        // Several certificates, and blocks of another type between them.
        let bundle = format!("{good}{}{good}", key.serialize_pem());
        let (_directory, path) = file("ca.crt", &bundle);
        assert_eq!(certificates(&path).unwrap(), bundle.as_bytes());
    }
}
