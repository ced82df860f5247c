//! Controllers on clusters with one fault: a table, controller by fault. With every fault they must reach the
//! same final state as without it.
//!
//! A controller brings a [`Case`]: the initial objects, what a user does, and the final state. The faults are
//! the same for all: each write and each read of the run without faults fails once, in every way; watches are
//! cut, expire and lag; and the process dies between any two writes, so that another has to continue.

mod endpointslice;
mod garbage_collector;
mod namespace;
mod pod_garbage_collector;
mod root_ca;
mod unreachable_nodes;
mod workloads;

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, clock};
use keleustes_plan::{BoxFuture, Controller};
use keleustes_runtime::loops::RunningController;
use tokio::time::Instant;

use crate::test_cluster::{TestCluster, settle, wait};

/// A controller, and the state that it must reach.
pub(crate) struct Case {
    /// The controllers.
    pub(crate) controllers: fn() -> Vec<Controller>,
    /// Creates the initial objects.
    pub(crate) given: fn(&ApiServer),
    /// What a user does once they run.
    pub(crate) when: fn(ApiServer) -> BoxFuture<'static, ()>,
    /// Checks the final state; an error says what is missing.
    pub(crate) then: fn(&ApiServer) -> Result<(), String>,
    /// How long that may take without a fault.
    pub(crate) within: Duration,
    /// For this long nothing may be written once the final state is reached.
    pub(crate) quiet_for: Duration,
}

/// The fault.
#[derive(Clone)]
enum Fault {
    None,
    /// One request, a write or a read.
    Request {
        writes: bool,
        skip: u64,
        what: &'static str,
        fault: InjectedFault,
    },
    /// All watches end, repeatedly, as they do when a server restarts.
    WatchesEnd,
    /// All watches end and their resourceVersions are compacted.
    WatchesExpire,
    /// No watch delivers anything for a while.
    CachesLag,
    /// The process dies after this many writes.
    Crash {
        writes: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no fault"),
            Self::Request { writes: true, skip, what, .. } => write!(f, "{what} to write {skip}"),
            Self::Request { writes: false, skip, what, .. } => write!(f, "{what} to read {skip}"),
            Self::WatchesEnd => f.write_str("watches end"),
            Self::WatchesExpire => f.write_str("watches expire"),
            Self::CachesLag => f.write_str("caches lag"),
            Self::Crash { writes } => write!(f, "a crash after {writes} writes"),
        }
    }
}

/// How long any single fault may delay the final state: a lost response is awaited for 90 s, a lagging watch
/// resumes, a failed item is retried within a minute or so.
const DELAY_MAX: Duration = Duration::from_secs(600);
/// The default for [`Case::quiet_for`].
pub(crate) const QUIET_FOR: Duration = Duration::from_secs(1200);
/// After this long, the last response to earlier requests has arrived.
const LAST_RESPONSE: Duration = Duration::from_secs(100);
/// If there are more requests than this, only this many fail, spread evenly.
const REQUESTS_MAX: u64 = 12;

/// Runs a case with every fault.
pub(crate) fn converges_with_every_fault(case: &Case) {
    let (writes, reads) = run_case(case, &Fault::None);
    let requests = |writes: bool, count: u64, injected: &[(&'static str, InjectedFault)]| {
        let step = count.div_ceil(REQUESTS_MAX).max(1);
        let places = (0..count).step_by(usize::try_from(step).unwrap());
        let of = |skip| {
            let fault = move |(what, fault)| Fault::Request { writes, skip, what, fault };
            injected.iter().cloned().map(fault)
        };
        places.flat_map(of).collect::<Vec<_>>()
    };
    let mut faults = vec![Fault::WatchesEnd, Fault::WatchesExpire, Fault::CachesLag];
    faults.extend(requests(true, writes, &write_faults()));
    faults.extend(requests(false, reads, &read_faults()));
    faults.extend((0..=writes).map(|writes| Fault::Crash { writes }));
    for fault in faults {
        run_case(case, &fault);
    }
}

fn write_faults() -> Vec<(&'static str, InjectedFault)> {
    let lost = InjectedFault::ConnectionError(ErrorKind::ConnectionReset);
    let late = InjectedFault::status(504, "Timeout", "request did not complete within the allotted timeout");
    vec![
        ("409", InjectedFault::status(409, "Conflict", "the object has been modified")),
        ("410", InjectedFault::status(410, "Gone", "gone")),
        ("429", InjectedFault::too_many_requests(2)),
        ("500", InjectedFault::status(500, "InternalError", "boom")),
        ("no connection", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("a timeout after the effect", InjectedFault::ApplyThen(Box::new(late))),
        ("a lost response after the effect", InjectedFault::ApplyThen(Box::new(lost))),
        ("no response", InjectedFault::Hang),
    ]
}

fn read_faults() -> Vec<(&'static str, InjectedFault)> {
    vec![
        ("410", InjectedFault::status(410, "Expired", "too old")),
        ("429", InjectedFault::too_many_requests(2)),
        ("500", InjectedFault::status(500, "InternalError", "boom")),
        ("a lost response", InjectedFault::ConnectionError(ErrorKind::ConnectionReset)),
        ("no response", InjectedFault::Hang),
    ]
}

/// Runs a case with one fault, in its own runtime with paused time. Returns how many writes and reads there
/// were.
fn run_case(case: &Case, fault: &Fault) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build();
        (case.given)(&server);
        Run { case, fault, began: Instant::now(), server }.run().await
    })
}

struct Run<'c> {
    case: &'c Case,
    fault: &'c Fault,
    began: Instant,
    server: ApiServer,
}

impl Run<'_> {
    async fn run(&self) -> (u64, u64) {
        let first = self.process();
        self.add_request_fault(&first);
        let mut running = self.start(&first).await;
        (self.case.when)(self.server.clone()).await;
        self.disturb_watches(&first).await;
        if let Fault::Crash { .. } = self.fault {
            // A process without a single response is as good as dead.
            first.faults.disable_all();
            first.faults.add(FaultRule::new(InjectedFault::Hang));
            self.server.cut_watches();
            running.extend(self.start(&self.process()).await);
        }
        self.wait_for_convergence().await;
        drop(running);
        let requests = self.server.requests();
        let writes = requests.iter().filter(|request| !request.method.is_safe()).count();
        let reads = requests.iter().filter(|request| !request.target.contains("watch=true")).count() - writes;
        (u64::try_from(writes).unwrap(), u64::try_from(reads).unwrap())
    }

    fn process(&self) -> TestCluster {
        TestCluster::started_at(self.began, self.server.clone(), None)
    }

    /// Starts all controllers; they run as long as the result is kept.
    async fn start(&self, process: &TestCluster) -> Vec<RunningController> {
        let running = process.start_all((self.case.controllers)()).await;
        settle().await;
        running
    }

    /// Adds the fault for requests.
    fn add_request_fault(&self, process: &TestCluster) {
        let (rule, skip) = match self.fault {
            Fault::Request { writes, skip, fault, .. } => {
                (FaultRule::new(fault.clone()).writes(*writes).watch(false).times(1), *skip)
            }
            Fault::Crash { writes } => (FaultRule::new(InjectedFault::Hang).writes(true), *writes),
            _ => return,
        };
        process.faults.add(rule.skip(skip));
    }

    /// Disturbs the watches, or waits until a crash.
    async fn disturb_watches(&self, process: &TestCluster) {
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
            Fault::None | Fault::Request { .. } => {}
        }
    }

    /// Waits for the final state, then checks that nothing more is written.
    async fn wait_for_convergence(&self) {
        let (began, fault) = (Instant::now(), self.fault);
        let patience = if matches!(fault, Fault::None) { Duration::ZERO } else { DELAY_MAX };
        while let Err(missing) = (self.case.then)(&self.server) {
            let overdue = began.elapsed() > self.case.within + patience;
            assert!(!overdue, "with {fault}: {missing}\n{}", self.request_log());
            wait(Duration::from_secs(1)).await;
        }
        let written = || self.server.requests().iter().filter(|request| !request.method.is_safe()).count();
        wait(LAST_RESPONSE.max(self.case.quiet_for / 2)).await;
        let before = written();
        wait(self.case.quiet_for).await;
        assert_eq!(written(), before, "with {fault}, it keeps writing:\n{}", self.request_log());
        if let Err(missing) = (self.case.then)(&self.server) {
            panic!("with {fault}, the final state is lost: {missing}\n{}", self.request_log());
        }
    }

    /// All requests but watches.
    fn request_log(&self) -> String {
        let requests = self.server.requests().into_iter();
        let without_watches = requests.filter(|request| !request.target.contains("watch=true"));
        without_watches
            .map(|request| format!("{} {} {}\n", request.code, request.method, request.target))
            .collect()
    }
}
