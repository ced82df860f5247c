//! Runs one schedule: the actions at their times, then no more faults, until the cluster has converged and
//! stays so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keleustes_apiserver::{ApiServer, MetricsSource, User, clock};
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::{ControllersOptions, all_controllers, certificates};
use keleustes_hollow::{Hollow, HollowHandle, StorageDriver, StorageDriverHandle};
use tokio::time::{Instant, sleep, sleep_until};

use crate::actions::{Action, Party, Schedule, TimedAction, UserAction, node};
use crate::checks;
use crate::host_files::SimulatedHostFiles;
use crate::network::{Network, SimulatedTransport};
use crate::process::{ControllerFactory, MachineLock, ManagerOptions, Process};
use crate::recorder::{LeaseHolder, Recorder};
use crate::user::SimulatedUser;
use crate::{host_files, log_capture, panics, signer, user_storage};

/// The start time of every simulated cluster: 2026-01-01T00:00:00Z.
pub const START_NANOSECONDS: i64 = 1_767_225_600_000_000_000;

/// How often convergence is checked after the faults have ended, and how long it may take: an item that
/// failed often is retried after up to a thousand seconds.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const CONVERGE_WITHIN: Duration = Duration::from_secs(30 * 60);
/// After convergence managers write nothing for this time: longer than any periodic work.
const NO_WRITES_FOR: Duration = Duration::from_secs(35);

/// The lease watchdog thread of a process resumes up to this number of milliseconds later than the others.
const WATCHDOG_DELAY_MAX_MS: u64 = 40;

/// How many zones the nodes are in at first.
const ZONES: usize = 2;

/// The result of a storm.
#[derive(Debug)]
pub struct Report {
    /// Violated invariants; empty if all held.
    pub violations: Vec<String>,
    /// The transcript, if it was recorded.
    pub lines: Vec<String>,
    /// The simulated time.
    pub simulated: Duration,
    /// How many requests reached the server.
    pub requests: u64,
    /// A digest of all objects at the end.
    pub digest: u64,
    /// A digest of every request that was sent: method, path, query and body, in order.
    pub request_digest: u64,
}

/// How a storm is run.
#[derive(Clone)]
pub struct StormOptions {
    /// Builds the controllers of every manager.
    pub controllers: ControllerFactory,
    /// Whether a transcript is recorded.
    pub transcript: bool,
    /// Whether managers check before each write that they still hold the lease; only a mutant does not.
    pub checks_lease: bool,
    /// Whether a new leader uses the state of its predecessor; only a mutant does not.
    pub uses_predecessor_state: bool,
    /// The service account of a controller that never learns the resourceVersions of its writes; only for
    /// mutants.
    pub open_gate: Option<&'static str>,
    /// Whether all managers share a lease lock file that excludes none of them and names living processes as ended; only
    /// a broken one does.
    pub shares_lock_file: bool,
}

impl Default for StormOptions {
    /// All controllers that ship, and no transcript.
    fn default() -> Self {
        let controllers: ControllerFactory = Arc::new(|| all_controllers(&controller_options()));
        Self {
            controllers,
            transcript: false,
            checks_lease: true,
            uses_predecessor_state: true,
            open_gate: None,
            shares_lock_file: false,
        }
    }
}

/// The controllers of kinds behind feature gates. They run only where their kinds are served, as in a cluster whose
/// components have the same gates.
const GATED_CONTROLLERS: [&str; 3] = [
    "podgroup-protection-controller",
    "resourcepoolstatusrequest-controller",
    "storageversion-garbage-collector-controller",
];

/// The controllers that run in the storm of a schedule.
fn controllers_of(schedule: &Schedule, all: &ControllerFactory) -> ControllerFactory {
    let (all, gated_kinds) = (all.clone(), schedule.gated_kinds);
    Arc::new(move || {
        let mut controllers = all();
        controllers.retain(|controller| gated_kinds || !GATED_CONTROLLERS.contains(&controller.name));
        controllers
    })
}

/// The options of the controllers in a storm. The gates of all controllers are on.
#[must_use]
pub fn controller_options() -> ControllersOptions {
    let mut options = ControllersOptions {
        serviceaccount_token: Some(keleustes_controllers::serviceaccount_token::ServiceAccountTokenOptions {
            // A real signature uses random numbers that do not derive from the seed.
            sign: Arc::new(|claims| Ok(format!("signed.{}", claims["sub"].as_str().unwrap_or_default()))),
            ca: Arc::from(&b"the CA"[..]),
            workers: 2,
        }),
        bootstrap_signer: Some(keleustes_controllers::bootstrap_signer::BootstrapSignerOptions {
            hmac_sha256: keleustes_runtime::signing::hmac_sha256,
        }),
        certificatesigningrequest_signing: Some(certificate_signing()),
        node_ipam: keleustes_controllers::node_ipam::NodeIpamOptions {
            allocate_node_cidrs: true,
            // Four ranges: those of deleted nodes are used again.
            cluster_cidr: "10.244.0.0/22".to_owned(),
            ..keleustes_controllers::node_ipam::NodeIpamOptions::default()
        },
        ..ControllersOptions::default()
    };
    options.garbage_collector.hash_key = 7;
    options.podgroup_protection.enable_generic_workload = true;
    options.storageversion_garbage_collector = true;
    options.resourcepoolstatusrequest.enabled = true;
    options.persistentvolume_binder.host_files = Some(Arc::new(SimulatedHostFiles));
    options.root_ca_certificate_publisher.ca = "the CA".into();
    options.kube_apiserver_serving_clustertrustbundle_publisher = checks::trust_bundles::publisher_options();
    options
}

fn certificate_signing() -> CertificateSigningRequestSigningOptions {
    let signer = |name| BuiltInSigner { name, sign: Arc::new(signer::sign) };
    CertificateSigningRequestSigningOptions {
        signers: [certificates::KUBE_APISERVER_CLIENT_KUBELET, certificates::KUBE_APISERVER_CLIENT]
            .map(signer)
            .to_vec(),
        duration_nanoseconds: i128::from(signer::LONGEST_LIFE_SECONDS) * 1_000_000_000,
    }
}

/// Runs a schedule on a single-threaded runtime with paused time.
#[must_use]
pub fn play(schedule: &Schedule, options: &StormOptions) -> Report {
    panics::capture();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(SimulatedCluster::play(schedule, options)),
        Err(error) => panic!("cannot build the async runtime: {error}"),
    };
    panics::stop_capturing();
    report
}

struct SimulatedCluster<'a> {
    schedule: &'a Schedule,
    server: ApiServer,
    recorder: Arc<Recorder>,
    network: Arc<Network>,
    processes: Vec<Process>,
    nodes: HollowHandle,
    /// The CSI driver, in storms with storage.
    driver: Option<StorageDriverHandle>,
    user: Arc<SimulatedUser>,
    /// The skew of the API server's wall clock, in seconds.
    clock_skew: Arc<AtomicI64>,
}

impl<'a> SimulatedCluster<'a> {
    async fn play(schedule: &'a Schedule, options: &StormOptions) -> Report {
        let began = Instant::now();
        let cluster = Self::new(schedule, options);
        let _removals = host_files::observe(&cluster.recorder, &cluster.server);
        let _capture = options.transcript.then(|| log_capture::capture(&cluster.recorder));
        for timed in &schedule.actions {
            sleep_until(began + Duration::from_millis(timed.at_ms)).await;
            cluster
                .recorder
                .record(format_args!("--- {}", serde_json::to_string(&timed.action).unwrap_or_default()));
            cluster.perform(&timed.action).await;
            if cluster.recorder.has_violations() {
                break;
            }
        }
        if !cluster.recorder.has_violations() {
            cluster.converge().await;
        }
        for panic in panics::take() {
            cluster.recorder.report_violation(format_args!("a panic: {panic}"));
        }
        let digest = cluster.server.snapshot().iter().fold(schedule.seed, |sum, object| {
            object
                .to_string()
                .bytes()
                .fold(sum, |sum, byte| sum.rotate_left(5).wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
        });
        Report {
            violations: cluster.recorder.violations(),
            lines: cluster.recorder.take_lines(),
            simulated: began.elapsed(),
            requests: cluster.recorder.requests(),
            digest,
            request_digest: cluster.recorder.request_digest(),
        }
    }

    fn new(schedule: &'a Schedule, options: &StormOptions) -> Self {
        let mut rng = fastrand::Rng::with_seed(schedule.seed ^ 0x6b65_6c65_7573_7465);
        let start = Timestamp::from_nanosecond(START_NANOSECONDS.into()).unwrap_or_default();
        let clock_skew = Arc::new(AtomicI64::new(0));
        let (steady, skew) = (clock::following_tokio(start), clock_skew.clone());
        let clock = Arc::new(move || steady() + SignedDuration::from_secs(skew.load(Ordering::Relaxed)));
        let server = ApiServer::builder()
            .seed(rng.u64(..))
            .clock(clock)
            .rbac(schedule.rbac)
            .gated_kinds(schedule.gated_kinds)
            .request_log_limit(0)
            .keep_parsed(true)
            .metrics(MetricsSource {
                pod_usage: keleustes_hollow::pod_usage,
                external: keleustes_hollow::external_metrics,
            })
            .build();
        let initial_objects = [
            checks::bootstrap_tokens::initial_objects,
            checks::legacy_tokens::initial_objects,
            checks::trust_bundles::initial_objects,
            checks::old_requests::initial_objects,
        ];
        let initial_objects = initial_objects.into_iter().flat_map(|objects| objects());
        let classes = schedule.storage.then(user_storage::initial_objects).into_iter().flatten();
        let gated = schedule.gated_kinds.then(checks::pool_requests::initial_objects).into_iter().flatten();
        for object in initial_objects.chain(classes).chain(gated) {
            server.seed(object).unwrap_or_else(|error| panic!("the initial objects are valid: {error:?}"));
        }
        let recorder = Recorder::new(checks::all(), options.transcript);
        let network = Network::new(server.clone(), recorder.clone(), rng.fork(), options.open_gate);
        let nodes = SimulatedTransport::new(&network, User::admin(), Some(Party::Nodes), "nodes");
        let nodes = Hollow::builder(kube::Client::new(nodes, "default"))
            .nodes(schedule.nodes)
            .zones(ZONES)
            .seed(rng.u64(..))
            .scheduler(true)
            .volumes(schedule.storage)
            .wall_time(start)
            .start();
        let driver = schedule.storage.then(|| {
            let transport = SimulatedTransport::new(&network, User::admin(), Some(Party::Driver), "driver");
            let client = kube::Client::new(transport, "default");
            StorageDriver::new(client, user_storage::DRIVER).seed(schedule.seed).start()
        });
        let shared_lock = options.shares_lock_file.then(|| Arc::new(MachineLock::shared()));
        let start = |number| {
            let (network, recorder) = (network.clone(), recorder.clone());
            let StormOptions { checks_lease, uses_predecessor_state, .. } = *options;
            let controllers = controllers_of(schedule, &options.controllers);
            let lock_file = schedule.lease_lock_files.then(|| shared_lock.clone().unwrap_or_default());
            let manager = ManagerOptions { controllers, checks_lease, uses_predecessor_state, lock_file };
            Process::start(number, network, recorder, manager, rng.fork())
        };
        let processes = (0..schedule.managers).map(start).collect();
        let user = Arc::new(SimulatedUser::new(kube::Client::new(
            SimulatedTransport::new(&network, User::admin(), None, "user"),
            "default",
        )));
        Self { schedule, server, recorder, network, processes, nodes, driver, user, clock_skew }
    }

    async fn perform(&self, action: &Action) {
        let process = |number: &usize| self.processes.get(*number);
        let changes_leader =
            matches!(action, Action::User(UserAction::TamperWithLease(_) | UserAction::LeadAsOriginal(..)));
        if !matches!(action, Action::User(_)) || changes_leader {
            self.recorder.on_fault();
        }
        match action {
            // Other actions happen during the term.
            Action::User(UserAction::LeadAsOriginal(term, transitions)) => {
                let (user, term, transitions) =
                    (self.user.clone(), Duration::from_millis(*term), *transitions);
                tokio::spawn(async move { user.lead_as_original(term, transitions).await });
            }
            Action::User(action) => self.user.perform(action).await,
            Action::Fault(fault) => self.network.inject(fault.clone()),
            Action::FailLists(kind) => self.network.fail_lists(*kind),
            Action::Compact => self.server.compact(),
            Action::ExpireWatches => self.server.expire_watches(),
            Action::CutWatches => self.server.cut_watches(),
            Action::RestartApiServer(time) => self.network.stop_server_for(Duration::from_millis(*time)),
            Action::CrashManager(number) => process(number).into_iter().for_each(Process::crash),
            Action::StopManager(number) => process(number).into_iter().for_each(Process::stop),
            Action::StopLeader => self.stop_leader(),
            Action::SkewManagerClock(number, seconds) => {
                process(number).into_iter().for_each(|process| process.skew(*seconds));
                self.recorder.on_clock_jump();
            }
            Action::SkewServerClock(seconds) => {
                self.clock_skew.fetch_add(*seconds, Ordering::Relaxed);
                self.recorder.on_server_clock_jump();
            }
            Action::PauseManager(number, time) => {
                self.network.pause_manager(*number, Duration::from_millis(*time));
            }
            Action::FreezeMachine(time) => self.freeze(*time).await,
            Action::RotateCertificates(number, time) => {
                self.network.rotate_certificates(*number, Duration::from_millis(*time));
            }
            Action::FailNode(number) => drop(self.nodes.fail_node(&node(*number)).await),
            Action::RecoverNode(number) => drop(self.nodes.recover_node(&node(*number)).await),
            Action::FailDriver(operation, fault, times) => {
                if let Some(driver) = &self.driver {
                    driver.fail((*operation).into(), (*fault).into(), *times).await;
                }
            }
        }
    }

    fn stop_leader(&self) {
        let leader = LeaseHolder::now(&self.server);
        let mut processes = (0..).zip(&self.processes);
        let leading = processes.find(|(number, _)| leader.is(&Process::name_of(*number)));
        leading.into_iter().for_each(|(_, process)| process.stop());
    }

    /// Advances the clock for all processes at once. The threads of a manager do not resume at the same
    /// moment.
    async fn freeze(&self, time: u64) {
        let delay = Duration::from_millis(time + time % WATCHDOG_DELAY_MAX_MS);
        self.processes.iter().for_each(|process| process.delay_lease_watchdog(delay));
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(time)).await;
    }

    /// A deleted node may receive its delete event late, when a stalled watch continues, and registers
    /// again only then.
    async fn recover_missing_nodes(&self) {
        for name in (0..self.schedule.nodes).map(node) {
            if self.server.object("nodes", "", &name).is_none() {
                self.nodes.recover_node(&name).await;
            }
        }
    }

    /// No more faults and user actions: the cluster must converge to its specs.
    async fn converge(&self) {
        self.recorder.record("--- faults end");
        self.network.clear_faults();
        // With a slow clock the finish times of pods lie in the future, and a Job waits for them again and
        // again.
        self.processes.iter().for_each(Process::reset_clock);
        let was_failed = |number: usize| {
            let fails_it = |action: &Action| match action {
                Action::FailNode(there) | Action::User(UserAction::DeleteNode(there)) => *there == number,
                _ => false,
            };
            self.schedule.actions.iter().any(|timed| fails_it(&timed.action))
        };
        // Untouched nodes are left alone: node events enqueue many keys, which could hide that a key was
        // lost.
        for number in 0..self.schedule.nodes {
            if was_failed(number) {
                self.nodes.recover_node(&node(number)).await;
            }
            self.user.restore_node(&node(number)).await;
        }
        self.user.remove_blockers().await;
        if self.schedule.storage {
            self.user.restore_volumes().await;
        }
        self.check_failing_lists().await;
        self.user.repeat_failed_migrations().await;
        self.wait_until_quiescent(true, || self.recorder.not_converged(&self.server)).await;
        if !self.recorder.has_violations() {
            self.check_single_zone().await;
            self.check_unreachable_nodes().await;
        }
    }

    /// While lists of a kind fail, everything converges that does not depend on the kind. Then they recover.
    async fn check_failing_lists(&self) {
        let failing = self.network.failing_lists();
        if !failing.is_empty() {
            self.recorder.record(format_args!("--- lists still fail: {failing:?}"));
            let is_judged = |checker: &str| checks::is_independent_of(checker, &failing);
            self.wait_until_quiescent(false, || self.recorder.not_converged_among(&self.server, is_judged))
                .await;
            self.network.recover_lists();
        }
    }

    /// After convergence, if users have changed zones, moves all nodes into one zone.
    async fn check_single_zone(&self) {
        let moves = |timed: &TimedAction| matches!(timed.action, Action::User(UserAction::SetNodeZone(..)));
        if self.schedule.actions.iter().any(moves) {
            for number in 0..self.schedule.nodes {
                self.user.perform(&UserAction::SetNodeZone(number, 0)).await;
            }
            self.recorder.record("--- all nodes in one zone");
            self.wait_until_quiescent(true, || self.recorder.not_converged(&self.server)).await;
        }
    }

    /// After convergence, fails one node that failed in the storm, and taints one node that users tainted
    /// and binds one more pod to it.
    async fn check_unreachable_nodes(&self) {
        let (mut unreachable, mut tainted) = (BTreeSet::new(), false);
        for timed in &self.schedule.actions {
            match &timed.action {
                Action::FailNode(number) if unreachable.is_empty() => {
                    unreachable.insert(node(*number));
                    self.nodes.fail_node(&node(*number)).await;
                }
                Action::User(UserAction::SetNodeTaint(number, true)) if !tainted => {
                    tainted = true;
                    self.user.taint_and_bind_pod(&node(*number)).await;
                }
                _ => {}
            }
        }
        if tainted || !unreachable.is_empty() {
            self.recorder.record("--- with unreachable or tainted nodes");
            self.wait_until_quiescent(false, || {
                self.recorder.not_converged_with_silent_nodes(&self.server, &unreachable)
            })
            .await;
        }
    }

    /// Waits until the cluster has converged; optionally managers must write nothing afterwards.
    async fn wait_until_quiescent(&self, expect_no_writes: bool, not_converged: impl Fn() -> Vec<String>) {
        let started = Instant::now();
        loop {
            sleep(CHECK_EVERY).await;
            if self.recorder.has_violations() {
                return;
            }
            if expect_no_writes {
                self.recover_missing_nodes().await;
            }
            let unmet = not_converged();
            if unmet.is_empty() {
                if !expect_no_writes {
                    return;
                }
                let _before = self.recorder.take_writes();
                sleep(NO_WRITES_FOR).await;
                if self.recorder.take_writes().is_empty() && not_converged().is_empty() {
                    return;
                }
            }
            if started.elapsed() > CONVERGE_WITHIN {
                let writes = self.recorder.take_writes();
                unmet.iter().for_each(|why| self.recorder.report_violation(why));
                if unmet.is_empty() {
                    let last = writes.iter().rev().take(5).cloned().collect::<Vec<_>>();
                    self.recorder
                        .report_violation(format_args!("managers still write: {}", last.join(" | ")));
                }
                return;
            }
        }
    }
}
