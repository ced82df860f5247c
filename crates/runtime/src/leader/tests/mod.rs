//! Elections between processes that share nothing but an API server.

use std::sync::Arc;

use keleustes_apiserver::{ApiServer, Faults, clock};
use keleustes_plan::PlannedEvent;
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::Layer as _;

use super::*;
use crate::clock::Clocks;

mod coordinated;
mod locks;
mod process_lock;
mod storm;
mod tampering;
mod terms;

const START: &str = "2026-01-01T00:00:00Z";

fn server() -> ApiServer {
    ApiServer::builder().seed(7).clock(clock::following_tokio(START.parse().unwrap())).build()
}

fn lease(server: &ApiServer) -> Value {
    let lease = server.object("leases", "kube-system", "kube-controller-manager");
    (*lease.expect("there is a lease")).clone()
}

fn holder(server: &ApiServer) -> String {
    lease(server)["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

/// Changes the stored spec as another client would.
fn edit(server: &ApiServer, field: &str, value: Value) {
    let mut changed = lease(server);
    changed["spec"][field] = value;
    server.seed(changed).unwrap();
}

#[derive(Default)]
struct RecordingObserver {
    events: Mutex<Vec<PlannedEvent>>,
    metrics: Mutex<Vec<String>>,
}

impl ElectionObserver for RecordingObserver {
    fn event(&self, event: PlannedEvent) {
        self.events.lock().push(event);
    }
    fn leading(&self, lease_name: &str, leading: bool) {
        self.metrics.lock().push(format!("{lease_name} {leading}"));
    }
    fn slow_path(&self, lease_name: &str) {
        self.metrics.lock().push(format!("{lease_name} slow"));
    }
}

/// A machine with its own connection and clocks.
struct Machine {
    client: Client,
    clocks: Clocks,
    faults: Faults,
    observed: Arc<RecordingObserver>,
}

/// A machine whose wall clock is off by some seconds.
fn machine(server: &ApiServer, skew_seconds: i64) -> Machine {
    let faults = Faults::new();
    let client = Client::new(faults.layer(server.clone()), "default");
    let start: jiff::Timestamp = START.parse().unwrap();
    let (base, epoch) = (start.as_second() + skew_seconds, Instant::now());
    let clocks = Clocks::new(move || base * 1_000_000_000 + epoch.elapsed().as_nanos() as i64);
    Machine { client, clocks, faults, observed: Arc::default() }
}

fn random(name: &str) -> fastrand::Rng {
    fastrand::Rng::with_seed(name.bytes().map(u64::from).sum())
}

/// One process in one election.
struct Contestant {
    election: LeaderElection,
    leadership: Leadership,
    faults: Faults,
    observed: Arc<RecordingObserver>,
}

/// A process with the default configuration, whose wall clock is off by some seconds.
fn contestant(server: &ApiServer, name: &str, skew_seconds: i64) -> Contestant {
    machine(server, skew_seconds).compete(LeaderElectionConfig::new(name.to_owned()))
}

impl Machine {
    fn compete(self, config: LeaderElectionConfig) -> Contestant {
        let Self { client, clocks, faults, observed } = self;
        let random = random(&config.identity);
        let observer = Arc::clone(&observed) as Arc<dyn ElectionObserver>;
        let election = LeaderElection::new(client, config, clocks, random, observer).unwrap();
        Contestant { leadership: election.leadership(), election, faults, observed }
    }
}

async fn never() {
    std::future::pending::<()>().await;
}

impl Contestant {
    /// Leads as soon as possible and renews in the background until it is stopped or loses the lease.
    async fn lead(self) -> Leader {
        let leading = self.election.acquire(never()).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(leading.hold(async {
            // A dropped sender means that the process keeps running.
            if stopped.await.is_err() {
                never().await;
            }
        }));
        Leader { stop, ended, leadership: self.leadership, faults: self.faults, observed: self.observed }
    }
}

struct Leader {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<TermEnd>,
    leadership: Leadership,
    faults: Faults,
    observed: Arc<RecordingObserver>,
}

impl Leader {
    async fn stop(self) -> TermEnd {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap()
    }
}
