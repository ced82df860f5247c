//! Plays the scenarios in the embedded world: the same controllers over an API server in this process.

use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, clock};
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_controllers::{Settings, all, root_ca_certificate_publisher, serviceaccount_token};
use keleustes_runtime::caches::Caches;
use keleustes_runtime::clock::{Chance, Clocks};
use keleustes_runtime::events::Recorder;
use keleustes_runtime::loops::{self, Surroundings};
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
async fn start_controllers(server: &ApiServer) {
    let factory = ClientFactory::new(Connection::over(server.clone()), ClientOptions::default());
    let (clocks, chance, metrics) = (clocks(), Chance::seeded(1), Metrics::new());
    let caches =
        Caches::new(factory.root("shared-informers"), clocks.clone(), chance.clone(), metrics.clone(), None);
    let surroundings =
        Surroundings { caches, clocks, chance, metrics, leads: Arc::new(|| true), in_flight_max: 8 };
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
    for controller in all(&settings) {
        let client = factory.root(controller.name);
        let recorder = Recorder::of(
            &controller,
            client.clone(),
            surroundings.clocks.clone(),
            surroundings.chance.fork(),
        );
        match recorder {
            Some((recorder, writer)) => {
                tokio::spawn(writer.run(CancellationToken::new()));
                let record = Arc::new(move |note| recorder.record(note));
                loops::start(controller, &surroundings, client, record).await
            }
            None => loops::start(controller, &surroundings, client, Arc::new(|_| {})).await,
        };
    }
}

#[tokio::test(start_paused = true)]
async fn every_scenario_holds_in_the_embedded_world() {
    let clock = clock::following_tokio(START.0.parse().unwrap());
    let server = ApiServer::builder().seed(7).clock(clock).build();
    start_controllers(&server).await;
    let admin = kube::Client::new(server.clone(), "default");
    let world = World::new(admin, None, Duration::from_secs(60));
    for scenario in ALL.iter().filter(|scenario| scenario.stage == Stage::Anywhere) {
        if let Err(error) = (scenario.play)(&world).await {
            panic!("{}: {error:#}", scenario.name);
        }
    }
}
