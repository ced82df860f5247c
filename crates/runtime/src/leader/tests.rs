//! Elections between processes that share nothing but an API server.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{ApiServer, Faults, Rule, Verdict, clock};
use keleustes_plan::EventNote;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::Layer as _;

use super::*;
use crate::clock::Clocks;

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

/// Changes the stored spec behind everybody's back.
fn edit(server: &ApiServer, field: &str, value: Value) {
    let mut changed = lease(server);
    changed["spec"][field] = value;
    server.seed(changed).unwrap();
}

#[derive(Default)]
struct Diary {
    events: Mutex<Vec<EventNote>>,
    notes: Mutex<Vec<String>>,
}

impl ElectionObserver for Diary {
    fn event(&self, event: EventNote) {
        self.events.lock().push(event);
    }
    fn leading(&self, lease_name: &str, leading: bool) {
        self.notes.lock().push(format!("{lease_name} {leading}"));
    }
    fn slow_path(&self, lease_name: &str) {
        self.notes.lock().push(format!("{lease_name} slow"));
    }
}

/// One process with a connection and clocks of its own.
struct Candidate {
    election: LeaderElection,
    leadership: Leadership,
    faults: Faults,
    diary: Arc<Diary>,
}

/// A process whose wall clock is off by some seconds.
fn candidate(server: &ApiServer, name: &str, skew_seconds: i64) -> Candidate {
    let faults = Faults::new();
    let client = Client::new(faults.layer(server.clone()), "default");
    let start: jiff::Timestamp = START.parse().unwrap();
    let (base, epoch) = (start.as_second() + skew_seconds, Instant::now());
    let clocks = Clocks::new(move || base * 1_000_000_000 + epoch.elapsed().as_nanos() as i64);
    let diary = Arc::new(Diary::default());
    let chance = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
    let settings = Settings::new(name.to_owned());
    let observer = Arc::clone(&diary) as Arc<dyn ElectionObserver>;
    let election = LeaderElection::new(client, settings, clocks, chance, observer).unwrap();
    Candidate { leadership: election.leadership(), election, faults, diary }
}

async fn never() {
    std::future::pending::<()>().await;
}

impl Candidate {
    /// Leads as soon as possible and renews in the background until told to stop or lost.
    async fn lead(self) -> Leader {
        let leading = self.election.acquire(never()).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(leading.hold(async {
            // A dropped sender is a process that goes on.
            if stopped.await.is_err() {
                never().await;
            }
        }));
        Leader { stop, ended, leadership: self.leadership, faults: self.faults, diary: self.diary }
    }
}

struct Leader {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Ended>,
    leadership: Leadership,
    faults: Faults,
    diary: Arc<Diary>,
}

impl Leader {
    async fn stop(self) -> Ended {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap()
    }
}

/// Parity: LE-10, LE-11, LE-80, LE-90, LE-91.
#[tokio::test(start_paused = true)]
async fn the_first_to_come_creates_the_lease_and_says_so() {
    let server = server();
    let me = candidate(&server, "me", 0);
    assert_eq!(*me.diary.notes.lock(), ["kube-controller-manager false"]);
    let me = me.lead().await;
    let stored = lease(&server);
    assert_eq!(
        stored["spec"],
        json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        })
    );
    assert!(stored["metadata"].get("labels").is_none() && stored["metadata"].get("annotations").is_none());
    assert!(me.leadership.still_held());
    assert_eq!(*me.diary.notes.lock(), ["kube-controller-manager false", "kube-controller-manager true"]);
    {
        let events = me.diary.events.lock();
        assert_eq!((&*events[0].reason, &*events[0].message), ("LeaderElection", "me became leader"));
        let involved = &events[0].involved;
        assert_eq!((&*involved.api_version, &*involved.kind), ("coordination.k8s.io/v1", "Lease"));
        assert_eq!(involved.uid.to_string(), stored["metadata"]["uid"].as_str().unwrap());
    }
    assert!(server.requests().iter().all(|request| ["GET", "POST"].contains(&request.method.as_str())));
}

/// Parity: LE-8, LE-12, LE-20.
#[tokio::test(start_paused = true)]
async fn a_leader_renews_with_one_put_each_period() {
    let server = server();
    let me = candidate(&server, "me", 0).lead().await;
    server.clear_requests();
    sleep(Duration::from_millis(20_500)).await;
    let requests = server.requests();
    assert_eq!(requests.len(), 10);
    for request in &requests {
        assert_eq!(request.method, Method::PUT);
        assert!(request.target.ends_with("/leases/kube-controller-manager?timeout=5s"), "{}", request.target);
    }
    let spec = &lease(&server)["spec"];
    assert_eq!(spec["acquireTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(spec["leaseTransitions"], 0);
    let renewed: jiff::Timestamp = spec["renewTime"].as_str().unwrap().parse().unwrap();
    assert!(renewed.as_second() >= START.parse::<jiff::Timestamp>().unwrap().as_second() + 20);
    assert!(me.leadership.still_held());
}

/// Parity: LE-13, LE-26, LE-44: only the local clock counts, whatever the other's says.
#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_succeeded_when_its_lease_runs_out_whatever_the_clocks_say() {
    for skew_seconds in [0, 7_200, -7_200] {
        let server = server();
        let dead = candidate(&server, "dead", 0).lead().await;
        let heir = tokio::spawn(candidate(&server, "heir", skew_seconds).lead());
        sleep(Duration::from_secs(61)).await;
        assert_eq!(holder(&server), "dead");
        dead.ended.abort();
        let renewed_at = Instant::now() - Duration::from_secs(1);
        let heir = heir.await.unwrap();
        let waited = renewed_at.elapsed();
        assert!(waited >= Duration::from_secs(15), "too early: {waited:?}, skew {skew_seconds}");
        assert!(waited < Duration::from_millis(15_500), "too late: {waited:?}, skew {skew_seconds}");
        assert!(heir.leadership.still_held() && !dead.leadership.still_held());
        assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1);
    }
}

/// Parity: LE-40, LE-43.
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let server = server();
    let old = candidate(&server, "old", 0).lead().await;
    let heir = tokio::spawn(candidate(&server, "heir", 0).lead());
    sleep(Duration::from_secs(31)).await;
    let asked = Instant::now();
    assert_eq!(old.stop().await, Ended::Stopped { released: true });
    let heir = heir.await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    assert!(heir.leadership.still_held());
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1);
}

/// Parity: LE-40, LE-90.
#[tokio::test(start_paused = true)]
async fn releasing_leaves_an_empty_name_and_one_second() {
    let server = server();
    let me = candidate(&server, "me", 0).lead().await;
    sleep(Duration::from_secs(5)).await;
    let (leadership, diary) = (me.leadership.clone(), Arc::clone(&me.diary));
    assert_eq!(me.stop().await, Ended::Stopped { released: true });
    assert!(!leadership.still_held());
    let spec = lease(&server)["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!((&spec["leaseTransitions"], &spec["acquireTime"]), (&json!(0), &spec["renewTime"]));
    assert_eq!(diary.events.lock().last().unwrap().message, "me stopped leading");
    assert_eq!(diary.notes.lock().last().unwrap(), "kube-controller-manager false");
}

/// Parity: LE-43.
#[tokio::test(start_paused = true)]
async fn without_a_watch_a_released_lease_is_found_by_polling() {
    let server = server();
    let old = candidate(&server, "old", 0).lead().await;
    let heir = candidate(&server, "heir", 0);
    heir.faults.add(Rule::new(Verdict::status(403, "Forbidden", "no watching")).watch(true));
    let heir = tokio::spawn(heir.lead());
    sleep(Duration::from_secs(31)).await;
    let asked = Instant::now();
    assert_eq!(old.stop().await, Ended::Stopped { released: true });
    heir.await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(4_500), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_opened_again() {
    let server = server();
    let old = candidate(&server, "old", 0).lead().await;
    let heir = tokio::spawn(candidate(&server, "heir", 0).lead());
    sleep(Duration::from_secs(31)).await;
    server.expire_watches();
    sleep(Duration::from_secs(3)).await;
    let asked = Instant::now();
    assert_eq!(old.stop().await, Ended::Stopped { released: true });
    heir.await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
}

/// Parity: LE-33, LE-36. Trust ends first, then the term, and only then may others begin.
#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_writing_then_ends_before_others_begin() {
    let hanging = Verdict::Hang;
    let refusing = Verdict::ConnectionError(std::io::ErrorKind::ConnectionRefused);
    let failing = Verdict::status(500, "InternalError", "etcd is away");
    for verdict in [hanging, refusing, failing] {
        let server = server();
        let cut_off = candidate(&server, "cut-off", 0).lead().await;
        let heir = tokio::spawn(candidate(&server, "heir", 0).lead());
        sleep(Duration::from_secs(31)).await;
        let renewed_at = Instant::now() - Duration::from_secs(1);
        cut_off.faults.add(Rule::new(verdict));
        sleep(Duration::from_millis(8_900)).await;
        assert!(cut_off.leadership.still_held());
        sleep(Duration::from_millis(200)).await;
        assert!(!cut_off.leadership.still_held(), "trusted {:?} after renewal", renewed_at.elapsed());
        assert!(!cut_off.ended.is_finished());
        assert_eq!(cut_off.ended.await.unwrap(), Ended::Lost);
        let lasted = renewed_at.elapsed();
        assert!(
            lasted > Duration::from_millis(11_900) && lasted < Duration::from_millis(12_100),
            "{lasted:?}"
        );
        assert_eq!(holder(&server), "cut-off");
        assert_eq!(cut_off.diary.events.lock().last().unwrap().message, "cut-off stopped leading");
        heir.await.unwrap();
        assert!(renewed_at.elapsed() >= Duration::from_secs(15));
    }
}

/// Parity: LE-105. What a SIGSTOP does: nothing runs, time goes on.
#[tokio::test(start_paused = true)]
async fn a_process_that_slept_through_its_lease_wakes_up_lost_and_sends_nothing() {
    let server = server();
    let sleeper = candidate(&server, "sleeper", 0);
    let leading = sleeper.election.acquire(never()).await.unwrap();
    assert!(leading.leadership().still_held());
    let heir = candidate(&server, "heir", 0).lead().await;
    assert_eq!(holder(&server), "heir");
    assert!(!sleeper.leadership.still_held() && heir.leadership.still_held());
    heir.ended.abort();
    sleep(Duration::from_millis(10)).await;
    server.clear_requests();
    assert_eq!(leading.hold(never()).await, Ended::Lost);
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

/// Parity: LE-100, LE-101, LE-102.
#[tokio::test(start_paused = true)]
async fn strange_edits_do_not_end_a_term_that_nobody_else_began() {
    let server = server();
    let me = candidate(&server, "me", 0).lead().await;
    let slow = |me: &Leader| me.diary.notes.lock().iter().filter(|note| note.ends_with("slow")).count();

    edit(&server, "leaseTransitions", json!(6));
    sleep(Duration::from_secs(3)).await;
    assert!(me.leadership.still_held());
    assert_eq!((lease(&server)["spec"]["leaseTransitions"].as_i64(), slow(&me)), (Some(6), 1));

    edit(&server, "holderIdentity", json!(""));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        (holder(&server), lease(&server)["spec"]["leaseTransitions"].as_i64()),
        ("me".to_owned(), Some(7))
    );

    assert!(server.remove("leases", "kube-system", "kube-controller-manager"));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        (holder(&server), lease(&server)["spec"]["leaseTransitions"].as_i64()),
        ("me".to_owned(), Some(0))
    );
    assert!(me.leadership.still_held() && !me.ended.is_finished());
}

/// Parity: LE-35, LE-42, LE-103.
#[tokio::test(start_paused = true)]
async fn a_lease_in_another_name_stops_writes_at_once_and_is_not_released() {
    let server = server();
    let me = candidate(&server, "me", 0).lead().await;
    edit(&server, "holderIdentity", json!("other"));
    sleep(Duration::from_millis(2_100)).await;
    assert!(!me.leadership.still_held(), "known to be another's, yet trusted");
    assert!(!me.ended.is_finished());
    let leadership = me.leadership.clone();
    assert_eq!(me.stop().await, Ended::Stopped { released: false });
    assert_eq!(holder(&server), "other");
    assert!(!leadership.still_held());

    let server = self::server();
    let me = candidate(&server, "me", 0).lead().await;
    edit(&server, "holderIdentity", json!("other"));
    assert_eq!(me.ended.await.unwrap(), Ended::Lost);
}

/// Parity: LE-41.
#[tokio::test(start_paused = true)]
async fn releasing_looks_again_after_a_conflict_and_gives_up_on_other_errors() {
    let server = server();
    let me = candidate(&server, "me", 0).lead().await;
    me.faults.add(Rule::new(Verdict::status(409, "Conflict", "changed")).method(Method::PUT).times(3));
    assert_eq!(me.stop().await, Ended::Stopped { released: true });
    assert_eq!(holder(&server), "");

    let me = candidate(&server, "me", 0).lead().await;
    me.faults.add(Rule::new(Verdict::status(500, "InternalError", "no")).method(Method::PUT));
    assert_eq!(me.stop().await, Ended::Stopped { released: false });

    let me = candidate(&server, "me", 0).lead().await;
    me.faults.add(Rule::new(Verdict::status(409, "Conflict", "always")).method(Method::PUT));
    let asked = Instant::now();
    // An API server that is always in conflict answers in no time at all here, so time is made to pass.
    me.faults.add(Rule::new(Verdict::DelayThen(Duration::from_millis(50), Box::new(Verdict::Pass))));
    assert_eq!(me.stop().await, Ended::Stopped { released: false });
    assert_eq!(asked.elapsed().as_secs(), 10);
}

/// Parity: LE-109.
#[tokio::test(start_paused = true)]
async fn a_standby_outlives_any_outage_and_stops_when_asked() {
    let server = server();
    let standby = candidate(&server, "standby", 0);
    let outage = standby.faults.add(Rule::new(Verdict::ConnectionError(std::io::ErrorKind::ConnectionReset)));
    let waiting = tokio::spawn(standby.election.acquire(sleep(Duration::from_secs(3_600))));
    assert!(waiting.await.unwrap().is_none());
    assert!(standby.faults.struck(outage) > 500);
    assert!(!standby.leadership.still_held());
    assert!(server.object("leases", "kube-system", "kube-controller-manager").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_not_awaited_is_taken_back() {
    let server = server();
    let hasty = candidate(&server, "hasty", 0);
    let lost_answer = Verdict::AfterEffect(Box::new(Verdict::Hang));
    hasty.faults.add(Rule::new(lost_answer).method(Method::POST).times(1));
    assert!(hasty.election.acquire(sleep(Duration::from_secs(1))).await.is_none());
    assert_eq!(holder(&server), "");
}

/// The promise itself, under storms: whatever fails, hangs, dies or freezes, never do two guards hold at
/// once, and somebody leads again when it is calm.
#[tokio::test(start_paused = true)]
async fn never_do_two_processes_believe_to_lead() {
    for seed in 0..20 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let server = server();
        let mut crew: Vec<Option<Member>> = (0..3).map(|_| None).collect();
        // The guards of all processes that ever were: one that is frozen still has its own.
        let mut guards = Vec::new();
        let mut terms = 0;
        for round in 0..600 {
            for (seat, member) in crew.iter_mut().enumerate() {
                let killed = round < 500 && chance.u8(..) == 0;
                if killed || member.as_ref().is_none_or(|member| member.life.is_finished()) {
                    let joined = member.insert(join(&server, &format!("{seat}-{round}"), round, &mut chance));
                    guards.push(joined.leadership.clone());
                }
            }
            stir(&crew, &mut chance, round < 500);
            for _ in 0..10 {
                sleep(Duration::from_millis(chance.u64(1..200))).await;
                let held = guards.iter().filter(|guard| guard.still_held()).count();
                assert!(held <= 1, "seed {seed}, round {round}: {held} leaders");
                terms += held;
            }
        }
        let held = guards.iter().filter(|guard| guard.still_held()).count();
        assert!(held == 1 && terms > 500, "seed {seed}: nobody leads in calm weather ({terms})");
    }
}

struct Member {
    life: JoinHandle<()>,
    leadership: Leadership,
    faults: Faults,
}

impl Drop for Member {
    fn drop(&mut self) {
        // A kill -9, or a freeze for good: nothing is given back.
        self.life.abort();
    }
}

fn join(server: &ApiServer, name: &str, round: usize, chance: &mut fastrand::Rng) -> Member {
    let candidate = candidate(server, name, chance.i64(-999..999));
    let stay = Duration::from_secs(if round < 400 { chance.u64(1..600) } else { 9_999 });
    let election = candidate.election;
    let life = tokio::spawn(async move {
        if let Some(leading) = election.acquire(sleep(stay)).await {
            leading.hold(sleep(stay)).await;
        }
    });
    Member { life, leadership: candidate.leadership, faults: candidate.faults }
}

/// Changes the weather for each process by chance.
fn stir(crew: &[Option<Member>], chance: &mut fastrand::Rng, stormy: bool) {
    for member in crew.iter().flatten() {
        if !stormy {
            member.faults.retire_all();
        } else if chance.u8(..) < 24 {
            member.faults.retire_all();
            let verdict = match chance.u8(..6) {
                0 => Verdict::Hang,
                1 => Verdict::ConnectionError(std::io::ErrorKind::ConnectionReset),
                2 => Verdict::AfterEffect(Box::new(Verdict::ConnectionError(
                    std::io::ErrorKind::ConnectionReset,
                ))),
                3 => Verdict::DelayThen(Duration::from_millis(chance.u64(1..6_000)), Box::new(Verdict::Pass)),
                4 => Verdict::CutStream { after_events: chance.usize(..3), cleanly: chance.bool() },
                _ => Verdict::Pass,
            };
            member.faults.add(Rule::new(verdict));
        }
    }
}
