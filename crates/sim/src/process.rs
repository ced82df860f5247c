//! One manager process: it starts, competes for the lease, works, exits, and is restarted by its
//! supervisor.
//!
//! A crash cuts the process off from the network: none of its later requests arrives, so that for the
//! cluster it has ended at that moment, between any two requests or in the middle of one. Its remaining
//! tasks are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use keleustes_apiserver::User;
use keleustes_client::ClientOptions;
use keleustes_plan::Controller;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::leader::{
    self, Announcer, ElectionObserver, Handover, Leadership, Locks, LocksOutcome, Predecessor, ProcessLock,
    Term,
};
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{self, ControllerSet};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::actions::Party;
use crate::network::{Network, SimulatedTransport};
use crate::reconcile_check::check_reconciles;
use crate::recorder::Recorder;
use crate::storm::START_NANOSECONDS;

/// The user of a manager's requests without a controller's token.
const USER: &str = "system:kube-controller-manager";
/// The controller that is started first, because others may need it for their credentials.
const FIRST: &str = "serviceaccount-token-controller";
/// The delay before a supervisor restarts a manager, in milliseconds.
const RESTART_DELAY_MS: std::ops::Range<u64> = 500..8_000;
/// How long running reconciles may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the controllers of one process.
pub type ControllerFactory = Arc<dyn Fn() -> Vec<Controller> + Send + Sync>;

/// The controllers of a process and its mutations.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Builds its controllers.
    pub controllers: ControllerFactory,
    /// Whether they check before each write that the process still holds the lease.
    pub checks_lease: bool,
    /// Whether a new leader uses the state of its predecessor.
    pub uses_predecessor_state: bool,
    /// Its lease lock file, if it has one: a restarted process need not wait for its predecessor's lease.
    pub lock_file: Option<Arc<MachineLock>>,
}

/// The lease lock file of a machine. Its kernel grants the lock to one process at a time.
#[derive(Default)]
pub struct MachineLock(Mutex<LockFile>);

#[derive(Default)]
struct LockFile {
    /// Whether several processes may have the lock at once; only a broken lock lets them.
    is_shared: bool,
    /// Who has the lock.
    owner: Option<String>,
    /// The identities of all processes that have had it.
    identities: Vec<String>,
}

impl MachineLock {
    /// A broken lock that every process gets at once, and that names living processes as ended.
    #[must_use]
    pub fn shared() -> Self {
        Self(Mutex::new(LockFile { is_shared: true, ..LockFile::default() }))
    }

    /// The process that has the lock has ended.
    fn release(&self) {
        self.0.lock().owner = None;
    }
}

impl ProcessLock for MachineLock {
    fn take(&self, identity: &str) -> Result<Option<Vec<String>>, String> {
        let mut file = self.0.lock();
        let is_shared = file.is_shared;
        let owner = file.owner.get_or_insert_with(|| identity.to_owned());
        if owner != identity && !is_shared {
            return Ok(None);
        }
        let ended = file.identities.iter().filter(|ended| *ended != identity).cloned().collect();
        if !file.identities.iter().any(|known| known == identity) {
            file.identities.push(identity.to_owned());
        }
        Ok(Some(ended))
    }
}

/// A command to the supervisor.
enum Command {
    Crash,
    Stop,
    DelayLeaseWatchdog(Duration),
}

/// A manager and its supervisor.
pub struct Process {
    commands: mpsc::UnboundedSender<Command>,
    /// The skew of its wall clock, in seconds.
    skew: Arc<AtomicI64>,
}

impl Process {
    /// Starts a manager and its supervisor.
    #[must_use]
    pub fn start(
        number: usize,
        network: Arc<Network>,
        recorder: Arc<Recorder>,
        options: ManagerOptions,
        rng: fastrand::Rng,
    ) -> Self {
        let (commands, incoming) = mpsc::unbounded_channel();
        let skew = Arc::new(AtomicI64::new(0));
        let name = Self::name_of(number);
        let supervisor = Supervisor { number, name, network, recorder, options, rng, skew: skew.clone() };
        tokio::spawn(supervisor.run(incoming));
        Self { commands, skew }
    }

    /// The host name of a manager.
    #[must_use]
    pub fn name_of(number: usize) -> String {
        format!("manager-{number}")
    }

    /// Kills the manager.
    pub fn crash(&self) {
        // The supervisor is gone when the storm is over.
        let _ = self.commands.send(Command::Crash);
    }

    /// Asks the manager to shut down gracefully.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Delays the thread that checks the lease, longer than the other threads: after a pause any thread of
    /// a process may be the first to run.
    pub fn delay_lease_watchdog(&self, time: Duration) {
        let _ = self.commands.send(Command::DelayLeaseWatchdog(time));
    }

    /// Skews its wall clock.
    pub fn skew(&self, seconds: i64) {
        self.skew.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Resets its wall clock.
    pub fn reset_clock(&self) {
        self.skew.store(0, Ordering::Relaxed);
    }
}

struct Supervisor {
    number: usize,
    name: String,
    network: Arc<Network>,
    recorder: Arc<Recorder>,
    options: ManagerOptions,
    rng: fastrand::Rng,
    skew: Arc<AtomicI64>,
}

impl Supervisor {
    async fn run(mut self, mut incoming: mpsc::UnboundedReceiver<Command>) {
        loop {
            let stop = CancellationToken::new();
            let party = Some(Party::Manager(self.number));
            let transport = SimulatedTransport::new(
                &self.network,
                User::new(USER, &["system:authenticated"]),
                party,
                &self.name,
            );
            let context = Arc::new(self.build_process_context(&transport));
            let (name, recorder) = (self.name.clone(), self.recorder.clone());
            let running = run_manager(context.clone(), &self.options, &recorder, name, stop.clone());
            let mut running = Box::pin(running);
            let end = loop {
                tokio::select! {
                    biased;
                    command = incoming.recv() => match command {
                        Some(Command::Stop) => stop.cancel(),
                        Some(Command::DelayLeaseWatchdog(time)) => sleep(time).await,
                        Some(Command::Crash) => break "crashes".to_owned(),
                        None => return,
                    },
                    end = &mut running => break end,
                }
            };
            transport.cut_off();
            self.recorder.record(format_args!("{} {end}", self.name));
            stop.cancel();
            drop(running);
            self.options.lock_file.iter().for_each(|lock| lock.release());
            // Nothing waits for the remaining tasks.
            tokio::spawn(async move { context.caches.stop().await });
            let pause = self.rng.u64(RESTART_DELAY_MS);
            sleep(Duration::from_millis(pause)).await;
            self.recorder.record(format_args!("{} restarts", self.name));
        }
    }

    fn build_process_context(&mut self, transport: &SimulatedTransport) -> ProcessContext {
        let (began, skew) = (self.recorder.began(), self.skew.clone());
        let wall_clock = move || {
            let since = i64::try_from(Instant::now().duration_since(began).as_nanos()).unwrap_or(i64::MAX);
            START_NANOSECONDS + since + skew.load(Ordering::Relaxed) * 1_000_000_000
        };
        let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
        let random = Random::seeded(self.rng.u64(..));
        let resync = Some(Duration::from_secs(12 * 3600));
        ProcessContext::new(
            transport.connection(),
            options,
            Clocks::new(wall_clock),
            random,
            Metrics::new(),
            resync,
        )
    }
}

/// Runs a manager as `main` does, without flags, files and sockets. Returns how it ended.
async fn run_manager(
    context: Arc<ProcessContext>,
    options: &ManagerOptions,
    recorder: &Arc<Recorder>,
    host: String,
    stop: CancellationToken,
) -> String {
    let root = context.factory.root("kube-controller-manager");
    let (clocks, metrics) = (context.clocks.clone(), context.metrics.clone());
    let (announcer, events) = Announcer::new(root, clocks, context.random.fork(), metrics);
    let _events = AbortOnDropHandle::new(tokio::spawn(events.run(CancellationToken::new())));
    let identity = leader::identity(&host, &mut context.random.fork());
    let announcer: Arc<dyn ElectionObserver> = Arc::new(announcer);
    let mut config = leader::LeaderElectionConfig::new(identity);
    config.release_on_stop = true;
    let client = context.factory.root("leader-election");
    let locks = Locks::elected(&client, config, None, &context.clocks, context.random.fork(), &announcer);
    let mut locks = match locks {
        // A mutant that does not use its predecessor's state does not hand over either.
        Ok(locks) if !options.uses_predecessor_state => locks,
        Ok(locks) => {
            let handover: Arc<dyn Handover> = Arc::new(context.caches.clone());
            locks.with_handover(&handover)
        }
        Err(error) => return format!("does not start: {error}"),
    };
    if let Some(lock) = options.lock_file.clone() {
        let lock: Arc<dyn ProcessLock> = lock;
        locks = locks.with_process_lock(&lock);
    }
    locks.read_leases().await;
    let mut not_started = (options.controllers)();
    loops::prepare(&not_started, &context.caches);
    not_started.iter_mut().for_each(|controller| check_reconciles(controller, recorder));
    let not_started = Mutex::new(not_started);
    let work = |mut term: Term| {
        if !options.checks_lease {
            term.leadership = Leadership::without_election();
        }
        if !options.uses_predecessor_state {
            term.predecessor = Predecessor::Absent;
        }
        let controllers = std::mem::take(&mut *not_started.lock());
        let controller_set = ControllerSet { controllers, first: FIRST, start_interval: Duration::ZERO };
        running_controllers::run_controllers(&context, controller_set, term, SHUTDOWN_TIMEOUT, |_| {})
    };
    match locks.run(&stop, work).await {
        LocksOutcome::Lost(_) => "loses the lease and exits".to_owned(),
        LocksOutcome::Stopped { errors } if errors.is_empty() => "shuts down gracefully".to_owned(),
        LocksOutcome::Stopped { errors } => {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            format!("shuts down with errors: {}", errors.join("; "))
        }
    }
}
