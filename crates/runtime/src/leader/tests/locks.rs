//! Two locks, two sets of controllers, one process: who starts when, and what ends with what.

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

/// A process with locks, and a test that plays its work.
struct Process {
    stop: CancellationToken,
    terms: mpsc::UnboundedReceiver<(Term, oneshot::Sender<Result<(), &'static str>>)>,
    life: JoinHandle<LocksOutcome<&'static str>>,
    diary: Arc<Diary>,
    faults: Faults,
}

fn locks(
    machine: &Machine,
    name: &str,
    migration: Option<Migration>,
) -> Result<Locks, InvalidElectionConfig> {
    let settings = LeaderElectionConfig::new(name.to_owned());
    let observer = Arc::clone(&machine.diary) as Arc<dyn ElectionObserver>;
    Locks::elected(&machine.client, settings, migration, &machine.clocks, chance(name), &observer)
}

fn process(server: &ApiServer, name: &str, migration: Option<Migration>) -> Process {
    let machine = machine(server, 0);
    let locks = locks(&machine, name, migration).unwrap();
    let stop = CancellationToken::new();
    let (tell, terms) = mpsc::unbounded_channel();
    let stopped = stop.clone();
    let life = tokio::spawn(async move {
        let work = |term| {
            let (end, ended) = oneshot::channel();
            tell.send((term, end)).unwrap();
            async move { ended.await.unwrap_or(Ok(())) }
        };
        locks.run(&stopped, work).await
    });
    Process { stop, terms, life, diary: machine.diary, faults: machine.faults }
}

impl Process {
    async fn next(&mut self) -> (Term, oneshot::Sender<Result<(), &'static str>>) {
        self.terms.recv().await.expect("a lock is won")
    }

    fn idle(&mut self) -> bool {
        self.terms.try_recv().is_err()
    }
}

fn holder_of(server: &ApiServer, name: &str) -> Option<String> {
    let lease = server.object("leases", "kube-system", name)?;
    Some(lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
}

/// Proves LE-7: the original starts serving and then panics.
#[tokio::test(start_paused = true)]
async fn bad_settings_are_an_error_before_anything_happens() {
    let server = server();
    let machine = machine(&server, 0);
    let observer = Arc::clone(&machine.diary) as Arc<dyn ElectionObserver>;
    let settings = LeaderElectionConfig {
        retry_period: Duration::from_secs(9),
        ..LeaderElectionConfig::new("me".to_owned())
    };
    let refused = Locks::elected(&machine.client, settings, None, &machine.clocks, chance("me"), &observer);
    let error = refused.err().unwrap();
    assert_eq!(error.to_string(), "renewDeadline must be greater than retryPeriod*JitterFactor");
    let endpoints = Migration { resource_lock: "endpoints".to_owned(), ..Migration::default() };
    let error = locks(&machine, "me", Some(endpoints)).err().unwrap();
    assert_eq!(error.to_string(), "endpoints lock is removed, migrate to leases");
    assert!(server.requests().is_empty() && machine.diary.notes.lock().is_empty());
}

/// Proves LE-31, LE-94, RUN-15.
#[tokio::test(start_paused = true)]
async fn work_begins_when_the_lock_is_won_and_told_of() {
    let server = server();
    let (log, _guard) = TestLog::capture(Level::INFO);
    let mut me = process(&server, "me", None);
    let (term, _end) = me.next().await;
    assert_eq!(me.diary.events.lock()[0].message, "me became leader");
    assert_eq!(*me.diary.notes.lock(), ["kube-controller-manager false", "kube-controller-manager true"]);
    assert!(term.leadership.still_held() && term.lock == Lock::Main);
    // The lock is kept while the work goes on.
    sleep(Duration::from_secs(60)).await;
    assert!(term.leadership.still_held());
    for line in ["Attempting to acquire leader lease...", "Successfully acquired lease"] {
        assert!(log.count(&[&format!("{line} lock=kube-system/kube-controller-manager")]) > 0, "{line}");
    }
    me.faults.add(FaultRule::new(InjectedFault::Hang));
    assert_eq!(me.life.await.unwrap(), LocksOutcome::Lost(Lock::Main));
    assert!(log.count(&["Failed to renew lease lock=kube-system/kube-controller-manager"]) > 0);
    assert!(log.count(&["leaderelection lost/stopped"]) > 0);
}

/// Proves LE-34.
#[tokio::test(start_paused = true)]
async fn a_process_that_never_led_ends_as_one_that_did() {
    let server = server();
    let _other = contestant(&server, "other", 0).lead().await;
    let (log, _guard) = TestLog::capture(Level::INFO);
    let mut me = process(&server, "me", Some(Migration::default()));
    sleep(Duration::from_secs(30)).await;
    assert!(me.idle());
    me.stop.cancel();
    assert_eq!(me.life.await.unwrap(), LocksOutcome::Stopped { errors: vec![] });
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
    let (finish, ()) = tokio::join!(Locks::without_election().run(&stop, work), async { stop.cancel() });
    assert_eq!(finish, LocksOutcome::Stopped { errors: vec!["as planned"] });
    assert_eq!((Locks::without_election().health())(), Ok(()));
    assert!(server.requests().is_empty());

    let mut me = process(&server, "me", None);
    let (term, _end) = me.next().await;
    term.ready.signal();
    sleep(Duration::from_secs(30)).await;
    assert!(me.idle() && server.objects("leases").len() == 1);
}

/// Proves LE-52, LE-55.
#[tokio::test(start_paused = true)]
async fn the_second_lock_is_tried_once_the_token_controller_runs() {
    let server = server();
    let mut me = process(&server, "me", Some(Migration::default()));
    let (main, _main_end) = me.next().await;
    sleep(Duration::from_secs(30)).await;
    assert!(me.idle() && holder_of(&server, MIGRATION).is_none());
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
async fn without_a_token_controller_the_second_lock_is_tried_at_once() {
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
        assert_eq!(me.life.await.unwrap(), LocksOutcome::Lost(lost));
        assert_eq!(began.elapsed().as_secs(), 12);
        assert!(log.count(&[line]) > 0);
        // The other lock was good until then; with the process its trust ends in time.
        sleep(Duration::from_secs(10)).await;
        assert!(!main.leadership.still_held() && !second.leadership.still_held());
    }
}

/// Proves LE-58, RUN-77, RUN-78.
#[tokio::test(start_paused = true)]
async fn work_that_fails_under_either_lock_ends_both_in_order() {
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
        let told = tokio::time::timeout(Duration::from_secs(1), other_stop.cancelled()).await;
        assert!(told.is_ok(), "what runs under the other lock was not told");
        // What runs under the other lock takes its time, and its lock is kept meanwhile.
        sleep(Duration::from_secs(20)).await;
        assert!(!me.life.is_finished());
        let other_name = if failing == Lock::Main { MIGRATION } else { "kube-controller-manager" };
        assert_eq!(holder_of(&server, other_name).as_deref(), Some("me"));
        other.send(Err("broken too")).unwrap();
        let LocksOutcome::Stopped { mut errors } = me.life.await.unwrap() else { panic!("not lost") };
        errors.sort_unstable();
        assert_eq!(errors, ["broken", "broken too"]);
        for name in ["kube-controller-manager", MIGRATION] {
            assert_eq!(holder_of(&server, name).as_deref(), Some(""), "{name} was not given back");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_before_it_is_ready_keeps_the_second_lock_untried() {
    let server = server();
    let mut me = process(&server, "me", Some(Migration::default()));
    let (main, main_end) = me.next().await;
    main_end.send(Err("broken")).unwrap();
    assert_eq!(me.life.await.unwrap(), LocksOutcome::Stopped { errors: vec!["broken"] });
    drop(main);
    assert!(holder_of(&server, MIGRATION).is_none());
}

/// One process holds both locks; the next takes both over, in the same order.
/// Proves RUN-118.
#[tokio::test(start_paused = true)]
async fn both_locks_change_hands_at_once_when_they_are_given_back() {
    let server = server();
    let mut old = process(&server, "old", Some(Migration::default()));
    let (main, main_end) = old.next().await;
    main.ready.signal();
    let (_second, second_end) = old.next().await;
    let mut heir = process(&server, "heir", Some(Migration::default()));
    sleep(Duration::from_secs(30)).await;
    assert!(heir.idle());
    let asked = Instant::now();
    old.stop.cancel();
    main_end.send(Ok(())).unwrap();
    second_end.send(Ok(())).unwrap();
    assert_eq!(old.life.await.unwrap(), LocksOutcome::Stopped { errors: vec![] });
    let (main, _main_end) = heir.next().await;
    main.ready.signal();
    let (second, _second_end) = heir.next().await;
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    assert!(main.leadership.still_held() && second.leadership.still_held());
}

#[tokio::test(start_paused = true)]
async fn both_locks_of_a_process_that_died_are_taken_when_they_run_out() {
    let server = server();
    let mut old = process(&server, "old", Some(Migration::default()));
    let (main, _main_end) = old.next().await;
    main.ready.signal();
    let (_second, _second_end) = old.next().await;
    let mut heir = process(&server, "heir", Some(Migration::default()));
    sleep(Duration::from_secs(31)).await;
    old.life.abort();
    let died = Instant::now();
    let (main, _main_end) = heir.next().await;
    main.ready.signal();
    let (_second, _second_end) = heir.next().await;
    assert!(died.elapsed() < Duration::from_millis(15_050), "{:?}", died.elapsed());
}
