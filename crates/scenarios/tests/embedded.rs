//! Plays the scenarios in the embedded world: the same controllers over an API server in this process.

use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, clock};
use keleustes_client::{ClientOptions, Connection};
use keleustes_controllers::{Settings, all, root_ca_certificate_publisher, serviceaccount_token};
use keleustes_runtime::at_work::{ControllerSet, RunningControllers, surroundings};
use keleustes_runtime::clock::{Chance, Clocks};
use keleustes_runtime::handover::Legacy;
use keleustes_runtime::house::House;
use keleustes_runtime::leader::Leadership;
use keleustes_runtime::metrics::Metrics;
use keleustes_scenarios::{ALL, Stage, World};
use tokio_util::sync::CancellationToken;

/// When the world begins: 2026-01-01T00:00:00Z.
const START: (&str, i64) = ("2026-01-01T00:00:00Z", 1_767_225_600_000_000_000);

/// Clocks that go with the time of the test, as the server's does.
fn clocks() -> Clocks {
    let began = tokio::time::Instant::now();
    Clocks::new(move || START.1 + i64::try_from(began.elapsed().as_nanos()).unwrap_or_default())
}

/// All controllers at work on an API server.
async fn start_controllers(server: &ApiServer) -> RunningControllers {
    let settings = Settings {
        serviceaccount_token: Some(serviceaccount_token::Settings {
            sign: Arc::new(|claims| Ok(claims.to_string())),
            ca: Arc::from(*b"-----BEGIN CERTIFICATE-----"),
            workers: 5,
        }),
        root_ca_certificate_publisher: root_ca_certificate_publisher::Settings {
            ca: "-----BEGIN CERTIFICATE-----".into(),
        },
        ..Settings::default()
    };
    let (connection, metrics) = (Connection::over(server.clone()), Metrics::new());
    let house = House::new(connection, ClientOptions::default(), clocks(), Chance::seeded(1), metrics, None);
    let first = "serviceaccount-token-controller";
    let roster = ControllerSet { controllers: all(&settings), first, interval: Duration::ZERO };
    let stop = CancellationToken::new();
    let surroundings = surroundings(&house, &Leadership::without_election(), Legacy::None);
    RunningControllers::start(&house, roster, &surroundings, || {}, &stop).await
}

#[tokio::test(start_paused = true)]
async fn every_scenario_holds_in_the_embedded_world() {
    let clock = clock::following_tokio(START.0.parse().unwrap());
    let server = ApiServer::builder().seed(7).clock(clock).build();
    let _at_work = start_controllers(&server).await;
    let admin = kube::Client::new(server.clone(), "default");
    let world = World::new(admin, None, Duration::from_secs(60));
    for scenario in ALL.iter().filter(|scenario| scenario.stage == Stage::Anywhere) {
        if let Err(error) = (scenario.play)(&world).await {
            panic!("{}: {error:#}", scenario.name);
        }
    }
}
