//! Runs the scenarios in the embedded cluster: the same controllers on an API server in this process.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use keleustes_apiserver::{ApiServer, MetricsSource, clock};
use keleustes_client::{ClientOptions, Connection};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::{
    ClusterTrustBundlePublisherOptions, ClusterTrustBundleVersion,
};
use keleustes_controllers::node_ipam::NodeIpamOptions;
use keleustes_controllers::{
    ControllersOptions, all_controllers, bootstrap_signer, root_ca_certificate_publisher,
    serviceaccount_token,
};
use keleustes_hollow::Hollow;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::leader::Leadership;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{ControllerSet, RunningControllers, controller_context};
use keleustes_scenarios::{GROUPS, Group, OwnManager, RunsOn, StartManager, TestCluster};
use tokio_util::sync::CancellationToken;

/// The start time: 2026-01-01T00:00:00Z.
const START: (&str, i64) = ("2026-01-01T00:00:00Z", 1_767_225_600_000_000_000);

/// Clocks that follow the paused time of the test, as the server's does.
fn clocks() -> Clocks {
    let began = tokio::time::Instant::now();
    Clocks::new(move || START.1 + i64::try_from(began.elapsed().as_nanos()).unwrap_or_default())
}

/// The options of all controllers.
fn options(group: &Group) -> ControllersOptions {
    let mut options = ControllersOptions {
        serviceaccount_token: Some(serviceaccount_token::ServiceAccountTokenOptions {
            sign: Arc::new(|claims| Ok(claims.to_string())),
            ca: Arc::from(*b"-----BEGIN CERTIFICATE-----"),
            workers: 5,
        }),
        root_ca_certificate_publisher: root_ca_certificate_publisher::RootCaCertificatePublisherOptions {
            ca: "-----BEGIN CERTIFICATE-----".into(),
        },
        bootstrap_signer: Some(bootstrap_signer::BootstrapSignerOptions {
            hmac_sha256: keleustes_runtime::signing::hmac_sha256,
        }),
        ..ControllersOptions::default()
    };
    options.kube_apiserver_serving_clustertrustbundle_publisher = bundle_options();
    options.podgroup_protection.enable_generic_workload = group.is_gated;
    options.resourcepoolstatusrequest.enabled = group.is_gated;
    options.job.enable_workloads = group.is_gated;
    options.resourceclaim.enable_generic_workload = group.is_gated;
    options.resourceclaim.enable_workload_claims = group.is_gated;
    options.device_taint_eviction.enable_workload_claims = group.is_gated;
    options
}

/// The options of the node ranges, from the flags that scenarios use.
fn node_ranges(flags: &[&str]) -> NodeIpamOptions {
    let mut options = NodeIpamOptions::default();
    for flag in flags {
        let (name, value) = flag.split_once('=').expect("a value");
        match name {
            "--allocate-node-cidrs" => options.allocate_node_cidrs = value == "true",
            "--cluster-cidr" => options.cluster_cidr = value.to_owned(),
            "--node-cidr-mask-size" => options.node_cidr_mask_size = value.parse().expect("a number"),
            "--service-cluster-ip-range" => {
                let (first, second) = value.split_once(',').unwrap_or((value, ""));
                (options.service_cidr, options.secondary_service_cidr) =
                    (first.to_owned(), second.to_owned());
            }
            other => panic!("no scenario uses {other}"),
        }
    }
    options
}

/// Starts the controllers on an API server whose names are wanted.
async fn start_controllers(
    server: &ApiServer,
    options: &ControllersOptions,
    is_wanted: impl Fn(&str) -> bool,
) -> RunningControllers {
    let mut controllers = all_controllers(options);
    controllers.retain(|controller| is_wanted(controller.name));
    let (connection, metrics) = (Connection::from_service(server.clone()), Metrics::new());
    let process_context =
        ProcessContext::new(connection, ClientOptions::default(), clocks(), Random::seeded(1), metrics, None);
    let first = "serviceaccount-token-controller";
    let controller_set = ControllerSet { controllers, first, start_interval: Duration::ZERO };
    let stop = CancellationToken::new();
    let context =
        controller_context(&process_context, &Leadership::without_election(), PredecessorState::None);
    RunningControllers::start(&process_context, controller_set, &context, || {}, &stop).await
}

/// The CA of an API server that serves ClusterTrustBundles.
fn bundle_options() -> ClusterTrustBundlePublisherOptions {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = parameters.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a CA").pem();
    let hash = keleustes_runtime::signing::sha256(ca.as_bytes());
    let ca_hash = *hash.first_chunk().expect("32 bytes");
    ClusterTrustBundlePublisherOptions { ca: ca.into(), ca_hash, version: ClusterTrustBundleVersion::V1 }
}

#[tokio::test(start_paused = true)]
async fn every_scenario_holds_in_the_embedded_cluster() {
    for group in GROUPS {
        play(group).await;
    }
}

/// Starts the managers of scenarios: controllers with caches of their own.
fn own_managers(server: ApiServer, group: &'static Group) -> StartManager {
    Box::new(move |names, flags| {
        let options = ControllersOptions { node_ipam: node_ranges(flags), ..options(group) };
        let server = server.clone();
        async move {
            let is_wanted = |name: &str| names.contains(&name);
            Ok(OwnManager::new(start_controllers(&server, &options, is_wanted).await))
        }
        .boxed_local()
    })
}

/// Runs the scenarios of a group in a cluster of their own.
async fn play(group: &'static Group) {
    let clock = clock::following_tokio(START.0.parse().expect("a time"));
    let mut builder = ApiServer::builder().seed(7).clock(clock).gated_kinds(group.is_gated);
    if group.has_metrics {
        builder = builder.metrics(MetricsSource {
            pod_usage: keleustes_hollow::pod_usage,
            external: keleustes_hollow::external_metrics,
        });
    }
    let server = builder.build();
    let _controllers = start_controllers(&server, &options(group), |_| true).await;
    let admin = kube::Client::new(server.clone(), "default");
    let _nodes = group.has_metrics.then(|| {
        let nodes = Hollow::builder(admin.clone()).nodes(2).scheduler(true).untaint(true);
        nodes.wall_time(START.0.parse().expect("a time")).start()
    });
    let cluster =
        TestCluster::new(admin, None, Duration::from_secs(60)).with_own_managers(own_managers(server, group));
    // `SCENARIO` selects by a part of the name.
    let selected = std::env::var("SCENARIO").unwrap_or_default();
    let can_run = |runs_on| matches!(runs_on, RunsOn::Anywhere | RunsOn::Slow);
    let anywhere = group.scenarios.iter().filter(|scenario| can_run(scenario.runs_on));
    for scenario in anywhere.filter(|scenario| scenario.name.contains(&selected)) {
        if let Err(error) = (scenario.play)(&cluster).await {
            panic!("{}: {error:#}", scenario.name);
        }
    }
}
