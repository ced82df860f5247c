//! Plays one schedule: the deeds at their times, then calm, until the world is as it should be and stays so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keleustes_apiserver::{ApiServer, User, clock};
use keleustes_controllers::{ControllersOptions, all_controllers};
use keleustes_hollow::{Hollow, HollowHandle};
use tokio::time::{Instant, sleep, sleep_until};

use crate::checks;
use crate::deeds::{Deed, Party, Schedule, Timed, UserAction, node};
use crate::process::{Crew, Members, Process};
use crate::user::User as Person;
use crate::wire::{Network, Wire};
use crate::witness::Witness;
use crate::{panics, reasons};

/// When every world begins: 2026-01-01T00:00:00Z.
pub const START_NANOSECONDS: i64 = 1_767_225_600_000_000_000;

/// How often a calm world is looked at, and how long it may take to become as it should be: an item that failed often
/// is tried again after a thousand seconds.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(5);
const CALM_WITHIN: Duration = Duration::from_secs(30 * 60);
/// A world that is as it should be is not written to for so long: longer than anything that comes round.
const STAYS_FOR: Duration = Duration::from_secs(35);

/// By so many milliseconds one thread of a process wakes later than another.
const DOZES_AT_MOST_MS: u64 = 40;

/// How many zones the nodes are in, until users move them.
const ZONES: usize = 2;

/// What came of a storm.
#[derive(Debug)]
pub struct Report {
    /// What did not hold; nothing if all did.
    pub broken: Vec<String>,
    /// What happened, if it was to be written down.
    pub lines: Vec<String>,
    /// How much time passed in the simulated world.
    pub simulated: Duration,
    /// How many requests reached the server.
    pub requests: u64,
    /// A digest of all that is in the cluster at the end.
    pub digest: u64,
    /// A digest of every request that was sent: method, path, query and body, in order.
    pub request_digest: u64,
}

/// How a storm is played.
#[derive(Clone)]
pub struct Stage {
    /// The controllers of every manager.
    pub crew: Members,
    /// Whether everything is written down.
    pub transcript: bool,
    /// Whether managers ask if they still lead before they write. Mutants do not.
    pub heeds_lease: bool,
    /// Whether whoever takes over first learns what the leader before has done. Mutants do not.
    pub catches_up: bool,
    /// A controller, by its account, that never learns which state its writes led to. None but a mutant is one.
    pub open_gate: Option<&'static str>,
}

impl Default for Stage {
    /// All controllers that ship, and no transcript.
    fn default() -> Self {
        let crew: Members = Arc::new(|| all_controllers(&settings()));
        Self { crew, transcript: false, heeds_lease: true, catches_up: true, open_gate: None }
    }
}

/// What the controllers are told in a storm.
#[must_use]
pub fn settings() -> ControllersOptions {
    let mut settings = ControllersOptions {
        serviceaccount_token: Some(keleustes_controllers::serviceaccount_token::ServiceAccountTokenOptions {
            // A signature draws chance of its own, which no seed reaches.
            sign: Arc::new(|claims| Ok(format!("signed.{}", claims["sub"].as_str().unwrap_or_default()))),
            ca: Arc::from(&b"the CA"[..]),
            workers: 2,
        }),
        ..ControllersOptions::default()
    };
    settings.garbage_collector.hash_key = 7;
    settings.root_ca_certificate_publisher.ca = "the CA".into();
    settings
}

/// Plays a schedule, in a thread of virtual time of its own.
#[must_use]
pub fn play(schedule: &Schedule, stage: &Stage) -> Report {
    panics::note();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(World::play(schedule, stage)),
        Err(error) => panic!("no async runtime could be made: {error}"),
    };
    panics::let_go();
    report
}

struct World<'a> {
    schedule: &'a Schedule,
    server: ApiServer,
    witness: Arc<Witness>,
    network: Arc<Network>,
    processes: Vec<Process>,
    nodes: HollowHandle,
    person: Person,
    /// By how many seconds the server's wall clock has jumped.
    jumped: Arc<AtomicI64>,
}

impl<'a> World<'a> {
    async fn play(schedule: &'a Schedule, stage: &Stage) -> Report {
        let began = Instant::now();
        let world = Self::new(schedule, stage);
        let _listening = stage.transcript.then(|| reasons::listen(&world.witness));
        for timed in &schedule.deeds {
            sleep_until(began + Duration::from_millis(timed.at)).await;
            world
                .witness
                .note(format_args!("--- {}", serde_json::to_string(&timed.deed).unwrap_or_default()));
            world.carry_out(&timed.deed).await;
            if world.witness.is_broken() {
                break;
            }
        }
        if !world.witness.is_broken() {
            world.calm().await;
        }
        for panic in panics::taken() {
            world.witness.complain(format_args!("a panic: {panic}"));
        }
        let digest = world.server.snapshot().iter().fold(schedule.seed, |sum, object| {
            object
                .to_string()
                .bytes()
                .fold(sum, |sum, byte| sum.rotate_left(5).wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
        });
        Report {
            broken: world.witness.broken(),
            lines: world.witness.take_lines(),
            simulated: began.elapsed(),
            requests: world.witness.requests(),
            digest,
            request_digest: world.witness.request_digest(),
        }
    }

    fn new(schedule: &'a Schedule, stage: &Stage) -> Self {
        let mut chance = fastrand::Rng::with_seed(schedule.seed ^ 0x6b65_6c65_7573_7465);
        let start = Timestamp::from_nanosecond(START_NANOSECONDS.into()).unwrap_or_default();
        let jumped = Arc::new(AtomicI64::new(0));
        let (steady, jumps) = (clock::following_tokio(start), jumped.clone());
        let clock = Arc::new(move || steady() + SignedDuration::from_secs(jumps.load(Ordering::Relaxed)));
        let server = ApiServer::builder()
            .seed(chance.u64(..))
            .clock(clock)
            .rbac(schedule.roles)
            .request_log_limit(0)
            .keep_parsed(true)
            .build();
        let witness = Witness::new(checks::all(), stage.transcript);
        let network = Network::new(server.clone(), witness.clone(), chance.fork(), stage.open_gate);
        let nodes = Wire::new(&network, User::admin(), Some(Party::Nodes), "nodes");
        let nodes = Hollow::builder(kube::Client::new(nodes, "default"))
            .nodes(schedule.nodes)
            .zones(ZONES)
            .seed(chance.u64(..))
            .scheduler(true)
            .wall_time(start)
            .start();
        let start = |number| {
            let (network, witness) = (network.clone(), witness.clone());
            let Stage { crew, heeds_lease, catches_up, .. } = stage.clone();
            let crew = Crew { members: crew, heeds_lease, catches_up };
            Process::start(number, network, witness, crew, chance.fork())
        };
        let processes = (0..schedule.managers).map(start).collect();
        let person =
            Person::new(kube::Client::new(Wire::new(&network, User::admin(), None, "user"), "default"));
        Self { schedule, server, witness, network, processes, nodes, person, jumped }
    }

    async fn carry_out(&self, deed: &Deed) {
        let process = |number: &usize| self.processes.get(*number);
        match deed {
            Deed::User(deed) => self.person.carry_out(deed).await,
            Deed::Trouble(trouble) => self.network.disturb(trouble.clone()),
            Deed::Compact => self.server.compact(),
            Deed::ExpireWatches => self.server.expire_watches(),
            Deed::CutWatches => self.server.cut_watches(),
            Deed::Restart(time) => self.network.go_away(Duration::from_millis(*time)),
            Deed::Crash(number) => process(number).into_iter().for_each(Process::crash),
            Deed::Stop(number) => process(number).into_iter().for_each(Process::stop),
            Deed::Skew(number, seconds) => process(number).into_iter().for_each(|it| it.skew(*seconds)),
            Deed::Jump(seconds) => drop(self.jumped.fetch_add(*seconds, Ordering::Relaxed)),
            Deed::Pause(number, time) => self.network.put_to_sleep(*number, Duration::from_millis(*time)),
            Deed::Freeze(time) => self.freeze(*time).await,
            Deed::Certificates(number, time) => {
                self.network.change_certificates(*number, Duration::from_millis(*time));
            }
            Deed::FailNode(number) => drop(self.nodes.fail_node(&node(*number)).await),
            Deed::RecoverNode(number) => drop(self.nodes.recover_node(&node(*number)).await),
        }
    }

    /// Everybody sleeps. The threads of a manager do not wake all at once.
    async fn freeze(&self, time: u64) {
        let dozes = Duration::from_millis(time + time % DOZES_AT_MOST_MS);
        self.processes.iter().for_each(|process| process.doze(dozes));
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(time)).await;
    }

    /// A node that was removed may hear of it long after, when its watch tells, and comes back only then.
    async fn bring_nodes_back(&self) {
        for name in (0..self.schedule.nodes).map(node) {
            if self.server.object("nodes", "", &name).is_none() {
                self.nodes.recover_node(&name).await;
            }
        }
    }

    /// Nothing goes wrong any more, and nobody wants anything: the world must become what was asked for.
    async fn calm(&self) {
        self.witness.note("--- calm");
        self.network.calm();
        // A Job waits for as long as its pods ended in what is the future to it, again and again.
        self.processes.iter().for_each(Process::set_clock_right);
        let is_away = |number: usize| {
            let away = |deed: &Deed| match deed {
                Deed::FailNode(there) | Deed::User(UserAction::RemoveNode(there)) => *there == number,
                _ => false,
            };
            self.schedule.deeds.iter().any(|timed| away(&timed.deed))
        };
        // What was not touched is left alone: news of nodes wake many who may have been asleep.
        for number in 0..self.schedule.nodes {
            if is_away(number) {
                self.nodes.recover_node(&node(number)).await;
            }
            self.person.make_well(&node(number)).await;
        }
        self.person.let_go().await;
        self.become_quiet(true, || self.witness.missing(&self.server)).await;
        if !self.witness.is_broken() {
            self.try_zones().await;
            self.try_nodes().await;
        }
    }

    /// In a world that is calm, all nodes come into one zone, if users have moved any before.
    async fn try_zones(&self) {
        let moves = |timed: &Timed| matches!(timed.deed, Deed::User(UserAction::Move(..)));
        if self.schedule.deeds.iter().any(moves) {
            for number in 0..self.schedule.nodes {
                self.person.carry_out(&UserAction::Move(number, 0)).await;
            }
            self.witness.note("--- in one zone");
            self.become_quiet(true, || self.witness.missing(&self.server)).await;
        }
    }

    /// In a world that is calm, a node that was silent in the storm falls silent again, and users drive all off one
    /// from which they did so before, and put one more pod there.
    async fn try_nodes(&self) {
        let (mut silent, mut tried) = (BTreeSet::new(), false);
        for timed in &self.schedule.deeds {
            match &timed.deed {
                Deed::FailNode(number) if silent.is_empty() => {
                    silent.insert(node(*number));
                    self.nodes.fail_node(&node(*number)).await;
                }
                Deed::User(UserAction::Taint(number, true)) if !tried => {
                    tried = true;
                    self.person.drive_off(&node(*number)).await;
                }
                _ => {}
            }
        }
        if tried || !silent.is_empty() {
            self.witness.note("--- with nodes that pods have to leave");
            self.become_quiet(false, || self.witness.missing_of_silence(&self.server, &silent)).await;
        }
    }

    /// Waits until nothing is missing; with everybody well, nothing may be written afterwards either.
    async fn become_quiet(&self, all_well: bool, missing: impl Fn() -> Vec<String>) {
        let calm_since = Instant::now();
        loop {
            sleep(LOOKED_AT_EVERY).await;
            if self.witness.is_broken() {
                return;
            }
            if all_well {
                self.bring_nodes_back().await;
            }
            let lacks = missing();
            if lacks.is_empty() {
                if !all_well {
                    return;
                }
                let _before = self.witness.take_writes();
                sleep(STAYS_FOR).await;
                if self.witness.take_writes().is_empty() && missing().is_empty() {
                    return;
                }
            }
            if calm_since.elapsed() > CALM_WITHIN {
                let writes = self.witness.take_writes();
                lacks.iter().for_each(|why| self.witness.complain(why));
                if lacks.is_empty() {
                    let last = writes.iter().rev().take(5).cloned().collect::<Vec<_>>();
                    self.witness.complain(format_args!("still written to: {}", last.join(" | ")));
                }
                return;
            }
        }
    }
}
