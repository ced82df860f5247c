//! Two locks, two sets of controllers, one process: when each starts, and what ends with what.

use std::time::Duration;

use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_test_log::TestLog;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::*;

const MIGRATION: &str = "cloud-provider-extraction-migration";

/// A process with locks; the test plays its work.
struct Process {
    stop: CancellationToken,
    terms: mpsc::UnboundedReceiver<(Term, oneshot::Sender<Result<(), &'static str>>)>,
    task: JoinHandle<LocksOutcome<&'static str>>,
    observed: Arc<RecordingObserver>,
    faults: Faults,
}

fn locks(
    machine: &Machine,
    name: &str,
    migration: Option<Migration>,
) -> Result<Locks, InvalidElectionConfig> {
    let config = LeaderElectionConfig::new(name.to_owned());
    let observer = Arc::clone(&machine.observed) as Arc<dyn ElectionObserver>;
    Locks::elected(&machine.client, config, migration, &machine.clocks, random(name), &observer)
}

fn process(server: &ApiServer, name: &str, migration: Option<Migration>) -> Process {
    let machine = machine(server, 0);
    let locks = locks(&machine, name, migration).unwrap();
    let stop = CancellationToken::new();
    let (started, terms) = mpsc::unbounded_channel();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let work = |term| {
            let (end, ended) = oneshot::channel();
            started.send((term, end)).unwrap();
            async move { ended.await.unwrap_or(Ok(())) }
        };
        locks.run(&stopped, work).await
    });
    Process { stop, terms, task, observed: machine.observed, faults: machine.faults }
}

impl Process {
    async fn next(&mut self) -> (Term, oneshot::Sender<Result<(), &'static str>>) {
        self.terms.recv().await.expect("a lock is acquired")
    }

    fn has_no_new_term(&mut self) -> bool {
        self.terms.try_recv().is_err()
    }
}

fn holder_of(server: &ApiServer, name: &str) -> Option<String> {
    let lease = server.object("leases", "kube-system", name)?;
    Some(lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
}

/// Proves LE-7: the original starts serving and then panics.
#[tokio::test(start_paused = true)]
async fn invalid_config_is_an_error_before_any_request() {
    let server = server();
    let machine = machine(&server, 0);
    let observer = Arc::clone(&machine.observed) as Arc<dyn ElectionObserver>;
    let config = LeaderElectionConfig {
        retry_period: Duration::from_secs(9),
        ..LeaderElectionConfig::new("me".to_owned())
    };
    let refused = Locks::elected(&machine.client, config, None, &machine.clocks, random("me"), &observer);
    let error = refused.err().unwrap();
    assert_eq!(error.to_string(), "renewDeadline must be greater than retryPeriod*JitterFactor");
    let endpoints = Migration { resource_lock: "endpoints".to_owned(), ..Migration::default() };
    let error = locks(&machine, "me", Some(endpoints)).err().unwrap();
    assert_eq!(error.to_string(), "endpoints lock is removed, migrate to leases");
    assert!(server.requests().is_empty() && machine.observed.metrics.lock().is_empty());
}

/// Proves LE-31, LE-94, RUN-15.
#[tokio::test(start_paused = true)]
async fn work_starts_when_the_lock_is_acquired_and_reported() {
    let server = server();
    let (log, _guard) = TestLog::capture(Level::INFO);
    let mut me = process(&server, "me", None);
    let (term, _end) = me.next().await;
    assert_eq!(me.observed.events.lock()[0].message, "me became leader");
    assert_eq!(
        *me.observed.metrics.lock(),
        ["kube-controller-manager false", "kube-controller-manager true"]
    );
    assert!(term.leadership.still_held() && term.lock == Lock::Main);
    // The lock is renewed while the work runs.
    sleep(Duration::from_secs(60)).await;
    assert!(term.leadership.still_held());
    for line in ["Attempting to acquire leader lease...", "Successfully acquired lease"] {
        assert!(log.count(&[&format!("{line} lock=kube-system/kube-controller-manager")]) > 0, "{line}");
    }
    me.faults.add(FaultRule::new(InjectedFault::Hang));
    assert_eq!(me.task.await.unwrap(), LocksOutcome::Lost(Lock::Main));
    assert!(log.count(&["Failed to renew lease lock=kube-system/kube-controller-manager"]) > 0);
    assert!(log.count(&["leaderelection lost/stopped"]) > 0);
}

/// Proves LE-34.
#[tokio::test(start_paused = true)]
async fn process_that_never_led_ends_like_one_that_did() {
    let server = server();
    let _other = contestant(&server, "other", 0).lead().await;
    let (log, _guard) = TestLog::capture(Level::INFO);
    let mut me = process(&server, "me", Some(Migration::default()));
    sleep(Duration::from_secs(30)).await;
    assert!(me.has_no_new_term());
    me.stop.cancel();
    assert_eq!(me.task.await.unwrap(), LocksOutcome::Stopped { errors: vec![] });
    assert!(
        log.count(&[" leaderelection lost/stopped"]) > 0 && log.count(&["migration leaderelection"]) == 0
    );
}

/// Proves LE-50.
#[tokio::test(start_paused = true)]
async fn without_election_or_migration_there_is_no_second_lock() {
    let server = server();
    let listed = Migration { entries: vec![("job-controller".into(), "*".into())], ..Migration::default() };
    let machine = machine(&server, 0);
    let with = locks(&machine, "me", Some(listed)).unwrap();
    assert_eq!(with.lock_of("job-controller"), Some(Lock::Migration));
    assert_eq!(locks(&machine, "me", None).unwrap().lock_of("job-controller"), Some(Lock::Main));
    assert_eq!(Locks::without_election().lock_of("job-controller"), Some(Lock::Main));

    let stop = CancellationToken::new();
    let work = |term: Term| {
        assert!(term.lock == Lock::Main && term.leadership.still_held());
        async move {
            term.ready.signal();
            term.stop.cancelled().await;
            Err("as planned")
        }
    };
    let (outcome, ()) = tokio::join!(Locks::without_election().run(&stop, work), async { stop.cancel() });
    assert_eq!(outcome, LocksOutcome::Stopped { errors: vec!["as planned"] });
    assert_eq!((Locks::without_election().health())(), Ok(()));
    assert!(server.requests().is_empty());

    let mut me = process(&server, "me", None);
    let (term, _end) = me.next().await;
    term.ready.signal();
    sleep(Duration::from_secs(30)).await;
    assert!(me.has_no_new_term() && server.objects("leases").len() == 1);
}

/// Proves LE-52, LE-55, SAT-69.
#[tokio::test(start_paused = true)]
async fn second_lock_is_tried_once_the_token_controller_runs() {
    let server = server();
    let mut me = process(&server, "me", Some(Migration::default()));
    let (main, _main_end) = me.next().await;
    sleep(Duration::from_secs(30)).await;
    assert!(me.has_no_new_term() && holder_of(&server, MIGRATION).is_none());
    let tried = |target: &str| target.contains(&format!("/leases/{MIGRATION}"));
    assert!(!server.requests().iter().any(|request| tried(&request.target)));
    main.ready.signal();
    let (second, _second_end) = me.next().await;
    assert!(second.lock == Lock::Migration && second.leadership.still_held());
    assert_eq!(holder_of(&server, MIGRATION).as_deref(), Some("me"));
    assert_eq!(holder_of(&server, "kube-controller-manager").as_deref(), Some("me"));
}

/// Proves LE-56: the original crashes here.
#[tokio::test(start_paused = true)]
async fn without_a_token_controller_the_second_lock_is_tried_immediately() {
    let server = server();
    let mut me = process(&server, "me", Some(Migration::default()));
    let (Term { ready, .. }, _main_end) = me.next().await;
    drop(ready);
    let (second, _second_end) = me.next().await;
    assert!(second.leadership.still_held());
}

/// Proves LE-57, RUN-73, RUN-74.
#[tokio::test(start_paused = true)]
async fn losing_either_lock_ends_the_process() {
    for (lost, name, line) in [
        (Lock::Main, "leases/kube-controller-manager", " leaderelection lost/stopped"),
        (Lock::Migration, "leases/cloud-provider", "migration leaderelection lost/stopped"),
    ] {
        let server = server();
        let (log, _guard) = TestLog::capture(Level::INFO);
        let mut me = process(&server, "me", Some(Migration::default()));
        let (main, _main_end) = me.next().await;
        main.ready.signal();
        let (second, _second_end) = me.next().await;
        me.faults.add(FaultRule::new(InjectedFault::status(500, "InternalError", "no")).target(name));
        let began = Instant::now();
        assert_eq!(me.task.await.unwrap(), LocksOutcome::Lost(lost));
        assert_eq!(began.elapsed().as_secs(), 12);
        assert!(log.count(&[line]) > 0);
        // The other lock was held until then; its leadership ends in time with the process.
        sleep(Duration::from_secs(10)).await;
        assert!(!main.leadership.still_held() && !second.leadership.still_held());
    }
}

/// Proves LE-58, RUN-77, RUN-78.
#[tokio::test(start_paused = true)]
async fn work_that_fails_under_either_lock_ends_both_gracefully() {
    for failing in [Lock::Main, Lock::Migration] {
        let server = server();
        let mut me = process(&server, "me", Some(Migration::default()));
        let (main, main_end) = me.next().await;
        main.ready.signal();
        let (second, second_end) = me.next().await;
        let ((_, failed), (other_stop, other)) = match failing {
            Lock::Main => ((main.stop, main_end), (second.stop, second_end)),
            Lock::Migration => ((second.stop, second_end), (main.stop, main_end)),
        };
        failed.send(Err("broken")).unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(1), other_stop.cancelled()).await;
        assert!(stopped.is_ok(), "the work under the other lock was not stopped");
        // The work under the other lock takes its time, and its lock is renewed meanwhile.
        sleep(Duration::from_secs(20)).await;
        assert!(!me.task.is_finished());
        let other_name = if failing == Lock::Main { MIGRATION } else { "kube-controller-manager" };
        assert_eq!(holder_of(&server, other_name).as_deref(), Some("me"));
        other.send(Err("broken too")).unwrap();
        let LocksOutcome::Stopped { mut errors } = me.task.await.unwrap() else { panic!("not lost") };
        errors.sort_unstable();
        assert_eq!(errors, ["broken", "broken too"]);
        for name in ["kube-controller-manager", MIGRATION] {
            assert_eq!(holder_of(&server, name).as_deref(), Some(""), "{name} was not released");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_before_it_is_ready_never_tries_the_second_lock() {
    let server = server();
    let mut me = process(&server, "me", Some(Migration::default()));
    let (main, main_end) = me.next().await;
    main_end.send(Err("broken")).unwrap();
    assert_eq!(me.task.await.unwrap(), LocksOutcome::Stopped { errors: vec!["broken"] });
    drop(main);
    assert!(holder_of(&server, MIGRATION).is_none());
}

/// One process holds both locks; the next acquires both, in the same order.
/// Proves RUN-118.
#[tokio::test(start_paused = true)]
async fn both_released_locks_are_taken_immediately() {
    let server = server();
    let mut old = process(&server, "old", Some(Migration::default()));
    let (main, main_end) = old.next().await;
    main.ready.signal();
    let (_second, second_end) = old.next().await;
    let mut standby = process(&server, "heir", Some(Migration::default()));
    sleep(Duration::from_secs(30)).await;
    assert!(standby.has_no_new_term());
    let stopped_at = Instant::now();
    old.stop.cancel();
    main_end.send(Ok(())).unwrap();
    second_end.send(Ok(())).unwrap();
    assert_eq!(old.task.await.unwrap(), LocksOutcome::Stopped { errors: vec![] });
    let (main, _main_end) = standby.next().await;
    main.ready.signal();
    let (second, _second_end) = standby.next().await;
    assert!(stopped_at.elapsed() < Duration::from_millis(100), "{:?}", stopped_at.elapsed());
    assert!(main.leadership.still_held() && second.leadership.still_held());
}

#[tokio::test(start_paused = true)]
async fn both_locks_of_a_dead_process_are_taken_at_expiry() {
    let server = server();
    let mut old = process(&server, "old", Some(Migration::default()));
    let (main, _main_end) = old.next().await;
    main.ready.signal();
    let (_second, _second_end) = old.next().await;
    let mut standby = process(&server, "heir", Some(Migration::default()));
    sleep(Duration::from_secs(31)).await;
    old.task.abort();
    let died = Instant::now();
    let (main, _main_end) = standby.next().await;
    main.ready.signal();
    let (_second, _second_end) = standby.next().await;
    assert!(died.elapsed() < Duration::from_millis(15_050), "{:?}", died.elapsed());
}

/// An operator must see why no process leads, without reading the same line every two seconds.
#[tokio::test(start_paused = true)]
async fn failed_acquisition_is_logged_at_rising_intervals_and_an_orderly_stop_is_no_error() {
    let server = server();
    let (log, _guard) = TestLog::capture(Level::INFO);
    let me = process(&server, "me", None);
    let refusal = InjectedFault::status(403, "Forbidden", "leases is forbidden");
    me.faults.add(FaultRule::new(refusal).target("leases/kube-controller-manager"));
    sleep(Duration::from_secs(60)).await;
    let lines = log.lines(&["WARN", "Failed to acquire lease, retrying", "leases is forbidden"]);
    assert!((2..=4).contains(&lines.len()), "{lines:?}");
    me.stop.cancel();
    assert_eq!(me.task.await.unwrap(), LocksOutcome::Stopped { errors: vec![] });
    assert_eq!(log.count(&["ERROR"]), 0, "{}", log.text());
    assert_eq!(log.count(&["INFO", "leaderelection lost/stopped"]), 1);
}
