//! Runs the scenarios in the embedded cluster: the same controllers on an API server in this process.

use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, MetricsSource, clock};
use keleustes_client::{ClientOptions, Connection};
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
use keleustes_scenarios::{GROUPS, Group, RunsOn, TestCluster};
use tokio_util::sync::CancellationToken;

/// The start time: 2026-01-01T00:00:00Z.
const START: (&str, i64) = ("2026-01-01T00:00:00Z", 1_767_225_600_000_000_000);

/// Clocks that follow the paused time of the test, as the server's does.
fn clocks() -> Clocks {
    let began = tokio::time::Instant::now();
    Clocks::new(move || START.1 + i64::try_from(began.elapsed().as_nanos()).unwrap_or_default())
}

/// Starts all controllers on an API server.
async fn start_controllers(server: &ApiServer, group: &Group) -> RunningControllers {
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
    options.podgroup_protection.enable_generic_workload = group.is_gated;
    options.resourcepoolstatusrequest.enabled = group.is_gated;
    options.job.enable_workloads = group.is_gated;
    let (connection, metrics) = (Connection::from_service(server.clone()), Metrics::new());
    let process_context =
        ProcessContext::new(connection, ClientOptions::default(), clocks(), Random::seeded(1), metrics, None);
    let first = "serviceaccount-token-controller";
    let controller_set =
        ControllerSet { controllers: all_controllers(&options), first, start_interval: Duration::ZERO };
    let stop = CancellationToken::new();
    let context =
        controller_context(&process_context, &Leadership::without_election(), PredecessorState::None);
    RunningControllers::start(&process_context, controller_set, &context, || {}, &stop).await
}

#[tokio::test(start_paused = true)]
async fn every_scenario_holds_in_the_embedded_cluster() {
    for group in GROUPS {
        play(group).await;
    }
}

/// Runs the scenarios of a group in a cluster of their own.
async fn play(group: &Group) {
    let clock = clock::following_tokio(START.0.parse().expect("a time"));
    let mut builder = ApiServer::builder().seed(7).clock(clock).gated_kinds(group.is_gated);
    if group.has_metrics {
        builder = builder.metrics(MetricsSource {
            pod_usage: keleustes_hollow::pod_usage,
            external: keleustes_hollow::external_metrics,
        });
    }
    let server = builder.build();
    let _controllers = start_controllers(&server, group).await;
    let admin = kube::Client::new(server.clone(), "default");
    let _nodes = group.has_metrics.then(|| {
        let nodes = Hollow::builder(admin.clone()).nodes(2).scheduler(true).untaint(true);
        nodes.wall_time(START.0.parse().expect("a time")).start()
    });
    let cluster = TestCluster::new(admin, None, Duration::from_secs(60));
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
