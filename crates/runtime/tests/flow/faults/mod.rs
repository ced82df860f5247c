//! Controllers in worlds where one thing goes wrong: a table, controller by fault. Whatever it is, they must
//! come to rest where they would have come to rest without it.
//!
//! A controller brings a [`Case`]: what there is, what a user does, and how it must end. The faults are the
//! same for all: each write and each read of the undisturbed run goes wrong once, in every way; watches are
//! cut, expire and lag; and the process dies between any two writes, so that another has to go on.

mod endpointslice;
mod garbage;
mod lost_nodes;
mod namespace;
mod pods_without_hope;
mod root_ca;
mod workloads;

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, clock};
use keleustes_plan::{BoxFuture, Controller};
use keleustes_runtime::loops::RunningController;
use tokio::time::Instant;

use crate::world::{World, settle, wait};

/// A controller at work, and how that must end.
pub(crate) struct Case {
    /// The controllers.
    pub(crate) controllers: fn() -> Vec<Controller>,
    /// What there is before they start.
    pub(crate) given: fn(&ApiServer),
    /// What a user does once they run.
    pub(crate) when: fn(ApiServer) -> BoxFuture<'static, ()>,
    /// How it must end; an error says what is missing.
    pub(crate) then: fn(&ApiServer) -> Result<(), String>,
    /// How long that may take if nothing goes wrong.
    pub(crate) within: Duration,
    /// For this long nothing may be written once the end is reached.
    pub(crate) rest: Duration,
}

/// What goes wrong.
#[derive(Clone)]
enum Fault {
    Nothing,
    /// One request, of those that change something or of those that do not.
    Request {
        writes: bool,
        skip: u64,
        what: &'static str,
        verdict: InjectedFault,
    },
    /// All watches end, again and again, as they do when a server restarts.
    WatchesEnd,
    /// All watches end and what they missed is forgotten.
    WatchesExpire,
    /// Nothing that happens is told for a while.
    CachesLag,
    /// The process dies before the write after so many.
    Crash {
        writes: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing goes wrong"),
            Self::Request { writes: true, skip, what, .. } => write!(f, "{what} to write {skip}"),
            Self::Request { writes: false, skip, what, .. } => write!(f, "{what} to read {skip}"),
            Self::WatchesEnd => f.write_str("watches end"),
            Self::WatchesExpire => f.write_str("watches expire"),
            Self::CachesLag => f.write_str("caches lag"),
            Self::Crash { writes } => write!(f, "a crash after {writes} writes"),
        }
    }
}

/// How long any single fault may delay the end: a lost answer is waited for 90 s, a lagging watch resumes, a
/// failed item comes again within a minute or so.
const DELAY_MAX: Duration = Duration::from_secs(600);
/// How long nothing is written as a rule once the end is reached.
pub(crate) const REST: Duration = Duration::from_secs(1200);
/// After this long, the last answer to what was sent before the end has come.
const LAST_ANSWER: Duration = Duration::from_secs(100);
/// Of more requests than this, only so many go wrong, spread evenly.
const REQUESTS_MAX: u64 = 12;

/// Plays a case with every fault.
pub(crate) fn survive(case: &Case) {
    let (writes, reads) = play(case, &Fault::Nothing);
    let requests = |writes: bool, count: u64, verdicts: &[(&'static str, InjectedFault)]| {
        let step = count.div_ceil(REQUESTS_MAX).max(1);
        let places = (0..count).step_by(usize::try_from(step).unwrap());
        let of = |skip| {
            let fault = move |(what, verdict)| Fault::Request { writes, skip, what, verdict };
            verdicts.iter().cloned().map(fault)
        };
        places.flat_map(of).collect::<Vec<_>>()
    };
    let mut faults = vec![Fault::WatchesEnd, Fault::WatchesExpire, Fault::CachesLag];
    faults.extend(requests(true, writes, &write_verdicts()));
    faults.extend(requests(false, reads, &read_verdicts()));
    faults.extend((0..=writes).map(|writes| Fault::Crash { writes }));
    for fault in faults {
        play(case, &fault);
    }
}

fn write_verdicts() -> Vec<(&'static str, InjectedFault)> {
    let lost = InjectedFault::ConnectionError(ErrorKind::ConnectionReset);
    let late = InjectedFault::status(504, "Timeout", "request did not complete within the allotted timeout");
    vec![
        ("409", InjectedFault::status(409, "Conflict", "the object has been modified")),
        ("410", InjectedFault::status(410, "Gone", "gone")),
        ("429", InjectedFault::too_many_requests(2)),
        ("500", InjectedFault::status(500, "InternalError", "boom")),
        ("no connection", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("a timeout after the effect", InjectedFault::ApplyThen(Box::new(late))),
        ("a lost answer after the effect", InjectedFault::ApplyThen(Box::new(lost))),
        ("silence", InjectedFault::Hang),
    ]
}

fn read_verdicts() -> Vec<(&'static str, InjectedFault)> {
    vec![
        ("410", InjectedFault::status(410, "Expired", "too old")),
        ("429", InjectedFault::too_many_requests(2)),
        ("500", InjectedFault::status(500, "InternalError", "boom")),
        ("a lost answer", InjectedFault::ConnectionError(ErrorKind::ConnectionReset)),
        ("silence", InjectedFault::Hang),
    ]
}

/// Plays a case with one fault, in a runtime of its own whose time is its own too. Tells how many writes and
/// reads there were.
fn play(case: &Case, fault: &Fault) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build();
        (case.given)(&server);
        Play { case, fault, began: Instant::now(), server }.to_the_end().await
    })
}

struct Play<'c> {
    case: &'c Case,
    fault: &'c Fault,
    began: Instant,
    server: ApiServer,
}

impl Play<'_> {
    async fn to_the_end(&self) -> (u64, u64) {
        let first = self.process();
        self.arm(&first);
        let mut running = self.start(&first).await;
        (self.case.when)(self.server.clone()).await;
        self.disturb(&first).await;
        if let Fault::Crash { .. } = self.fault {
            // A process whose every request leads nowhere is as good as dead.
            first.faults.disable_all();
            first.faults.add(FaultRule::new(InjectedFault::Hang));
            self.server.cut_watches();
            running.extend(self.start(&self.process()).await);
        }
        self.come_to_rest().await;
        drop(running);
        let requests = self.server.requests();
        let writes = requests.iter().filter(|request| !request.method.is_safe()).count();
        let reads = requests.iter().filter(|request| !request.target.contains("watch=true")).count() - writes;
        (u64::try_from(writes).unwrap(), u64::try_from(reads).unwrap())
    }

    fn process(&self) -> World {
        World::since(self.began, self.server.clone(), None)
    }

    /// Starts all controllers; they hear of changes as long as what is returned is kept.
    async fn start(&self, process: &World) -> Vec<RunningController> {
        let mut running = Vec::new();
        for controller in (self.case.controllers)() {
            running.push(process.start(controller).await);
        }
        settle().await;
        running
    }

    /// Lays the traps that a request runs into.
    fn arm(&self, process: &World) {
        let (rule, skip) = match self.fault {
            Fault::Request { writes, skip, verdict, .. } => {
                (FaultRule::new(verdict.clone()).writes(*writes).watch(false).times(1), *skip)
            }
            Fault::Crash { writes } => (FaultRule::new(InjectedFault::Hang).writes(true), *writes),
            _ => return,
        };
        process.faults.add(rule.skip(skip));
    }

    /// What happens to watches, and the time until a crash.
    async fn disturb(&self, process: &World) {
        match self.fault {
            Fault::WatchesEnd | Fault::WatchesExpire => {
                for _ in 0..10 {
                    if matches!(self.fault, Fault::WatchesExpire) {
                        self.server.compact();
                        self.server.expire_watches();
                    } else {
                        self.server.cut_watches();
                    }
                    wait(Duration::from_millis(1300)).await;
                }
            }
            Fault::CachesLag => {
                process.tap.lag("*");
                wait(Duration::from_secs(30)).await;
                process.tap.catch_up();
            }
            Fault::Crash { .. } => wait(self.case.within).await,
            Fault::Nothing | Fault::Request { .. } => {}
        }
    }

    /// Waits for the end, then for a time in which nothing is written any more.
    async fn come_to_rest(&self) {
        let (began, fault) = (Instant::now(), self.fault);
        let patience = if matches!(fault, Fault::Nothing) { Duration::ZERO } else { DELAY_MAX };
        while let Err(missing) = (self.case.then)(&self.server) {
            let overdue = began.elapsed() > self.case.within + patience;
            assert!(!overdue, "with {fault}: {missing}\n{}", self.minutes());
            wait(Duration::from_secs(1)).await;
        }
        let written = || self.server.requests().iter().filter(|request| !request.method.is_safe()).count();
        wait(LAST_ANSWER.max(self.case.rest / 2)).await;
        let by_then = written();
        wait(self.case.rest).await;
        assert_eq!(written(), by_then, "with {fault}, it does not come to rest:\n{}", self.minutes());
        if let Err(missing) = (self.case.then)(&self.server) {
            panic!("with {fault}, it does not stay: {missing}\n{}", self.minutes());
        }
    }

    /// All requests but watches.
    fn minutes(&self) -> String {
        let requests = self.server.requests().into_iter();
        let told = requests.filter(|request| !request.target.contains("watch=true"));
        told.map(|request| format!("{} {} {}\n", request.code, request.method, request.target)).collect()
    }
}
