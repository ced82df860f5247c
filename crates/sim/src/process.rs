//! One manager: it starts, competes for the lease, works, dies, and is started again by its supervisor.
//!
//! A crash cuts the process off: nothing that it does afterwards reaches anybody, so for the cluster it has ended at
//! that moment, between any two requests or in the middle of one. What is left of its tasks is told to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use keleustes_apiserver::User;
use keleustes_client::ClientOptions;
use keleustes_plan::Controller;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::leader::{
    self, Announcer, ElectionObserver, Handover, Leadership, Locks, LocksOutcome, Predecessor, Term,
};
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{self, ControllerSet};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::deeds::Party;
use crate::storm::START_NANOSECONDS;
use crate::wire::{Network, Wire};
use crate::witness::Witness;

/// The user that a manager is unless it shows the token of a controller.
const USER: &str = "system:kube-controller-manager";
/// The controller that others may need before they can have credentials.
const FIRST: &str = "serviceaccount-token-controller";
/// How long a supervisor waits before it starts a manager again.
const STARTED_AGAIN_AFTER_MS: std::ops::Range<u64> = 500..8_000;
/// How long the work under way may take to end.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Makes the controllers of one process.
pub type Members = Arc<dyn Fn() -> Vec<Controller> + Send + Sync>;

/// Who works in a process, and how.
#[derive(Clone)]
pub struct Crew {
    /// Makes its controllers.
    pub members: Members,
    /// Whether they ask if they still lead before they write.
    pub heeds_lease: bool,
    /// Whether whoever takes over first learns what the leader before has done.
    pub catches_up: bool,
}

/// What is done to a process.
enum Command {
    Crash,
    Stop,
    Doze(Duration),
}

/// A manager and its supervisor.
pub struct Process {
    commands: mpsc::UnboundedSender<Command>,
    /// By how many seconds its wall clock is off.
    skew: Arc<AtomicI64>,
}

impl Process {
    /// Starts a manager and whoever starts it again.
    #[must_use]
    pub fn start(
        number: usize,
        network: Arc<Network>,
        witness: Arc<Witness>,
        crew: Crew,
        chance: fastrand::Rng,
    ) -> Self {
        let (commands, told) = mpsc::unbounded_channel();
        let skew = Arc::new(AtomicI64::new(0));
        let name = format!("manager-{number}");
        let supervisor = Supervisor { number, name, network, witness, crew, chance, skew: skew.clone() };
        tokio::spawn(supervisor.run(told));
        Self { commands, skew }
    }

    /// Ends it at once.
    pub fn crash(&self) {
        // Nobody listens when the world is over.
        let _ = self.commands.send(Command::Crash);
    }

    /// Tells it to end.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Lets the thread that watches over the lease sleep for so long, longer than the others: of the threads of a
    /// process that is woken, any may be the first.
    pub fn doze(&self, time: Duration) {
        let _ = self.commands.send(Command::Doze(time));
    }

    /// Lets its wall clock jump.
    pub fn skew(&self, seconds: i64) {
        self.skew.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Sets its wall clock right.
    pub fn set_clock_right(&self) {
        self.skew.store(0, Ordering::Relaxed);
    }
}

struct Supervisor {
    number: usize,
    name: String,
    network: Arc<Network>,
    witness: Arc<Witness>,
    crew: Crew,
    chance: fastrand::Rng,
    skew: Arc<AtomicI64>,
}

impl Supervisor {
    async fn run(mut self, mut told: mpsc::UnboundedReceiver<Command>) {
        loop {
            let stop = CancellationToken::new();
            let party = Some(Party::Manager(self.number));
            let wire =
                Wire::new(&self.network, User::new(USER, &["system:authenticated"]), party, &self.name);
            let house = Arc::new(self.build_process_context(&wire));
            let living = live(house.clone(), &self.crew, self.name.clone(), stop.clone());
            let mut living = Box::pin(living);
            let end = loop {
                tokio::select! {
                    biased;
                    command = told.recv() => match command {
                        Some(Command::Stop) => stop.cancel(),
                        Some(Command::Doze(time)) => sleep(time).await,
                        Some(Command::Crash) => break "crashes".to_owned(),
                        None => return,
                    },
                    end = &mut living => break end,
                }
            };
            wire.sever();
            self.witness.note(format_args!("{} {end}", self.name));
            stop.cancel();
            drop(living);
            // Whatever is left of it is waited for by nobody.
            tokio::spawn(async move { house.caches.stop().await });
            let pause = self.chance.u64(STARTED_AGAIN_AFTER_MS);
            sleep(Duration::from_millis(pause)).await;
            self.witness.note(format_args!("{} starts again", self.name));
        }
    }

    fn build_process_context(&mut self, wire: &Wire) -> ProcessContext {
        let (began, skew) = (self.witness.began(), self.skew.clone());
        let wall = move || {
            let since = i64::try_from(Instant::now().duration_since(began).as_nanos()).unwrap_or(i64::MAX);
            START_NANOSECONDS + since + skew.load(Ordering::Relaxed) * 1_000_000_000
        };
        let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
        let chance = Random::seeded(self.chance.u64(..));
        let resync = Some(Duration::from_secs(12 * 3600));
        ProcessContext::new(wire.connection(), options, Clocks::new(wall), chance, Metrics::new(), resync)
    }
}

/// The life of a manager, as its `main` wires it, without flags, files and sockets. Tells how it ended.
async fn live(house: Arc<ProcessContext>, crew: &Crew, host: String, stop: CancellationToken) -> String {
    let root = house.factory.root("kube-controller-manager");
    let (clocks, metrics) = (house.clocks.clone(), house.metrics.clone());
    let (announcer, events) = Announcer::new(root, clocks, house.random.fork(), metrics);
    tokio::spawn(events.run(stop.clone()));
    let identity = leader::identity(&host, &mut house.random.fork());
    let announcer: Arc<dyn ElectionObserver> = Arc::new(announcer);
    let mut settings = leader::LeaderElectionConfig::new(identity);
    settings.release_on_stop = true;
    let client = house.factory.root("leader-election");
    let locks = Locks::elected(&client, settings, None, &house.clocks, house.random.fork(), &announcer);
    let mut locks = match locks {
        // A mutant that learns nothing of the leader before does not prepare for its end either.
        Ok(locks) if !crew.catches_up => locks,
        Ok(locks) => {
            let handover: Arc<dyn Handover> = Arc::new(house.caches.clone());
            locks.with_handover(&handover)
        }
        Err(error) => return format!("does not start: {error}"),
    };
    locks.read_leases().await;
    let members = (crew.members)();
    for controller in &members {
        loops::prepare(controller, &house.caches);
    }
    let members = Mutex::new(members);
    let work = |mut term: Term| {
        if !crew.heeds_lease {
            term.leadership = Leadership::without_election();
        }
        if !crew.catches_up {
            term.predecessor = Predecessor::Absent;
        }
        let controllers = std::mem::take(&mut *members.lock());
        let roster = ControllerSet { controllers, first: FIRST, start_interval: Duration::ZERO };
        running_controllers::run_controllers(&house, roster, term, STOPS_WITHIN, |_| {})
    };
    match locks.run(&stop, work).await {
        LocksOutcome::Lost(_) => "loses the lease and ends".to_owned(),
        LocksOutcome::Stopped { errors } if errors.is_empty() => "ends as it is told".to_owned(),
        LocksOutcome::Stopped { errors } => {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            format!("ends: {}", errors.join("; "))
        }
    }
}
