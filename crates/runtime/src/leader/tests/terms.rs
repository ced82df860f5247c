//! One Lease and several processes: which one acquires it when, what is written, and how a term ends.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;
use crate::metrics::Metrics;

/// Proves LE-10, LE-11, LE-21.
#[tokio::test(start_paused = true)]
async fn first_process_creates_the_lease_and_reports_it() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
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
    assert_eq!(
        *me.observed.metrics.lock(),
        ["kube-controller-manager false", "kube-controller-manager true"]
    );
    let methods: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.method.clone())
        .filter(|request| request != Method::GET)
        .collect();
    assert_eq!(methods, [Method::POST]);
}

/// Proves LE-21.
#[tokio::test(start_paused = true)]
async fn lease_that_cannot_be_read_or_created_is_not_acquired() {
    let server = server();
    let me = contestant(&server, "me", 0);
    let failing = || InjectedFault::status(500, "InternalError", "etcd is away");
    let unread = me.faults.add(FaultRule::new(failing()).method(Method::GET).watch(false));
    let uncreated = me.faults.add(FaultRule::new(failing()).method(Method::POST));
    let (faults, leadership) = (me.faults.clone(), me.leadership.clone());
    let leader = tokio::spawn(me.lead());
    sleep(Duration::from_secs(20)).await;
    assert!(faults.hits(unread) > 4);
    assert_eq!(faults.hits(uncreated), 0, "created without knowing whether it exists");
    faults.disable(unread);
    sleep(Duration::from_secs(20)).await;
    assert!(faults.hits(uncreated) > 4 && !leadership.still_held());
    faults.disable(uncreated);
    assert!(leader.await.unwrap().leadership.still_held());
}

/// Proves LE-8, RUN-34.
#[tokio::test(start_paused = true)]
async fn election_has_its_own_user_agent_and_times_out_at_half_the_renew_deadline() {
    let server = server();
    let faults = keleustes_apiserver::Faults::new();
    let connection = Connection::from_service(faults.layer(server.clone()));
    let client = ClientFactory::new(connection, ClientOptions::default()).root(CLIENT_NAME);
    let machine = Machine { client, faults, ..machine(&server, 0) };
    machine.faults.add(FaultRule::new(InjectedFault::Hang).times(2));
    let began = Instant::now();
    let me = machine.compete(LeaderElectionConfig::new("me".to_owned()));
    let me = me.lead().await;
    assert!(began.elapsed() >= Duration::from_secs(5 + 2), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_millis(5_000 + 4_500), "{:?}", began.elapsed());
    assert!(me.leadership.still_held());
    let is_watch = |target: &str| target.contains("watch=");
    for request in server.requests() {
        assert!(request.user_agent.ends_with("/leader-election"), "{}", request.user_agent);
        assert!(is_watch(&request.target) || request.target.contains("timeout=5s"), "{}", request.target);
    }
}

/// Proves LE-14, LE-25: foreign metadata stays, foreign parts of the spec do not.
#[tokio::test(start_paused = true)]
async fn acquiring_a_lease_replaces_only_its_spec_at_the_read_resource_version() {
    let server = server();
    let stored = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system",
            "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"holderIdentity": "", "leaseTransitions": 7, "strategy": "OldestEmulationVersion",
            "preferredHolder": "other", "leaseDurationSeconds": 5},
    });
    let stored = server.seed(stored).unwrap();
    let me = contestant(&server, "me", 0);
    me.faults
        .add(FaultRule::new(InjectedFault::status(409, "Conflict", "changed")).method(Method::PUT).times(1));
    let began = Instant::now();
    let _me = me.lead().await;
    assert!(began.elapsed() >= Duration::from_secs(2), "no wait after a refused try");
    let requests = server.requests();
    let put = requests.iter().find(|request| request.method == Method::PUT).unwrap();
    let body = put.json();
    assert_eq!(body["metadata"], stored["metadata"]);
    assert_eq!(body["spec"].as_object().unwrap().len(), 5, "{}", body["spec"]);
    assert_eq!(
        (&body["spec"]["leaseTransitions"], &body["spec"]["holderIdentity"]),
        (&json!(8), &json!("me"))
    );
    assert_eq!(lease(&server)["metadata"]["labels"], json!({"a": "b"}));
}

/// Proves LE-80.
#[tokio::test(start_paused = true)]
async fn lease_is_only_created_and_updated() {
    let server = server();
    let old = contestant(&server, "old", 0).lead().await;
    let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
    sleep(Duration::from_secs(30)).await;
    assert_eq!(old.stop().await, TermEnd::Stopped { released: true });
    let _heir = standby.await.unwrap();
    let of_one = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager?";
    for request in server.requests().iter().filter(|request| request.method != Method::GET) {
        let is_create = request.method == Method::POST;
        assert!(is_create || request.method == Method::PUT, "{} {}", request.method, request.target);
        assert!(is_create || request.target.starts_with(of_one), "{}", request.target);
    }
}

/// Proves LE-81, LE-90, LE-91, RUN-12.
#[tokio::test(start_paused = true)]
async fn announcer_writes_events_on_the_lease_and_sets_metrics() {
    let server = server();
    let Machine { client, clocks, .. } = machine(&server, 0);
    let metrics = Metrics::new();
    let (announcer, writer) =
        Announcer::new(client.clone(), clocks.clone(), random("events"), metrics.clone());
    let config = LeaderElectionConfig::new("me".to_owned());
    let election = LeaderElection::new(client, config, clocks, random("me"), Arc::new(announcer)).unwrap();
    let has_metric = |line: &str| metrics.text().lines().any(|metric_line| metric_line == line);
    let mut acquiring = Box::pin(election.acquire(never()));
    assert!(futures::poll!(&mut acquiring).is_pending());
    assert!(
        has_metric("leader_election_master_status{name=\"kube-controller-manager\"} 0"),
        "{}",
        metrics.text()
    );
    let leading = acquiring.await.unwrap();
    assert!(has_metric("leader_election_master_status{name=\"kube-controller-manager\"} 1"));
    edit(&server, "leaseTransitions", json!(3));
    let ended = leading.hold(sleep(Duration::from_secs(5))).await;
    assert_eq!(ended, TermEnd::Stopped { released: true });
    assert!(has_metric("leader_election_master_status{name=\"kube-controller-manager\"} 0"));
    assert!(has_metric("leader_election_slowpath_total{name=\"kube-controller-manager\"} 1"));
    // All recorders are dropped, so the writer ends when everything is written.
    writer.run(tokio_util::sync::CancellationToken::new()).await;
    let mut events = server.objects("events");
    events.sort_by_key(|event| event["message"].as_str().unwrap().to_owned());
    assert_eq!(events.len(), 2);
    for (event, message) in events.iter().zip(["me became leader", "me stopped leading"]) {
        assert_eq!((&event["message"], &event["reason"]), (&json!(message), &json!("LeaderElection")));
        assert_eq!(
            (&event["type"], &event["source"]["component"]),
            (&json!("Normal"), &json!("kube-controller-manager"))
        );
        assert_eq!(event["metadata"]["namespace"], "kube-system");
        let involved = &event["involvedObject"];
        assert_eq!(
            (&involved["apiVersion"], &involved["kind"]),
            (&json!("coordination.k8s.io/v1"), &json!("Lease"))
        );
        assert_eq!(
            (&involved["uid"], &involved["name"]),
            (&lease(&server)["metadata"]["uid"], &json!("kube-controller-manager"))
        );
    }
}

/// Proves LE-106: the event is written while no other process can lead, or not at all.
#[tokio::test(start_paused = true)]
async fn last_event_is_written_before_the_lease_is_released_and_does_not_delay_it_for_long() {
    for has_outage in [false, true] {
        let server = server();
        let Machine { client, clocks, faults, .. } = machine(&server, 0);
        let (announcer, writer) =
            Announcer::new(client.clone(), clocks.clone(), random("events"), Metrics::new());
        tokio::spawn(writer.run(tokio_util::sync::CancellationToken::new()));
        let config = LeaderElectionConfig::new("me".to_owned());
        let election =
            LeaderElection::new(client, config, clocks, random("me"), Arc::new(announcer)).unwrap();
        let leading = election.acquire(never()).await.unwrap();
        sleep(Duration::from_millis(10)).await;
        if has_outage {
            faults.add(FaultRule::new(InjectedFault::Hang).target("/events"));
        }
        server.clear_requests();
        let stopped_at = Instant::now();
        assert_eq!(leading.hold(std::future::ready(())).await, TermEnd::Stopped { released: true });
        let expected = if has_outage { 500..600 } else { 0..50 };
        let took = stopped_at.elapsed().as_millis();
        assert!(expected.contains(&took), "{took} ms");
        let writes: Vec<_> = server
            .requests()
            .iter()
            .map(|request| request.method.clone())
            .filter(|m| m != Method::GET)
            .collect();
        let expected = if has_outage { vec![Method::PUT] } else { vec![Method::POST, Method::PUT] };
        assert_eq!(writes, expected, "the event, then the release");
    }
}

/// Proves LE-12, LE-20.
#[tokio::test(start_paused = true)]
async fn leader_renews_with_one_put_each_period() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
    sleep(Duration::from_millis(100)).await;
    server.clear_requests();
    sleep(Duration::from_millis(20_400)).await;
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

/// Proves LE-13, LE-24, LE-26: only the local clock counts, whatever the other's says.
#[tokio::test(start_paused = true)]
async fn dead_leader_is_succeeded_at_expiry_with_any_clock_skew() {
    for skew_seconds in [0, 7_200, -7_200] {
        let server = server();
        let dead = contestant(&server, "dead", 0).lead().await;
        let standby = tokio::spawn(contestant(&server, "heir", skew_seconds).lead());
        sleep(Duration::from_secs(61)).await;
        assert_eq!(holder(&server), "dead");
        let written = server
            .requests()
            .iter()
            .filter(|request| request.body.windows(4).any(|part| part == b"heir"))
            .count();
        assert_eq!(written, 0, "wrote to a lease held by another");
        dead.ended.abort();
        let renewed_at = Instant::now() - Duration::from_secs(1);
        let standby = standby.await.unwrap();
        let waited = renewed_at.elapsed();
        assert!(waited >= Duration::from_secs(15), "too early: {waited:?}, skew {skew_seconds}");
        assert!(waited < Duration::from_millis(15_050), "too late: {waited:?}, skew {skew_seconds}");
        assert!(standby.leadership.still_held() && !dead.leadership.still_held());
        assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1);
    }
}

/// Records when a takeover is prepared.
#[derive(Default)]
struct RecordingHandover(Mutex<Vec<Instant>>);

impl Handover for RecordingHandover {
    fn handover_record(&self) -> Option<Value> {
        None
    }
    fn has_write_in_flight(&self) -> bool {
        false
    }
    fn prepare_takeover(&self) {
        self.0.lock().push(Instant::now());
    }
}

#[tokio::test(start_paused = true)]
async fn standby_prepares_takeover_once_when_the_leader_can_no_longer_write() {
    let (server, recording) = (server(), Arc::new(RecordingHandover::default()));
    let dead = contestant(&server, "dead", 0).lead().await;
    let mut standby = contestant(&server, "heir", 0);
    standby.election = standby.election.with_handover(recording.clone());
    let standby = tokio::spawn(standby.election.acquire(never()));
    sleep(Duration::from_secs(61)).await;
    assert!(recording.0.lock().is_empty());
    dead.ended.abort();
    let renewed_at = Instant::now() - Duration::from_secs(1);
    let leading = standby.await.unwrap().unwrap();
    let prepared = recording.0.lock().clone();
    assert_eq!(prepared.len(), 1);
    let waited = prepared[0] - renewed_at;
    assert!((13_000..13_050).contains(&waited.as_millis()), "{waited:?}");
    assert!(matches!(leading.predecessor(), Predecessor::LeftNoRecord(Some(_))));
}

/// What a leader hands over in a test.
struct FixedHandover {
    record: Value,
    has_write_in_flight: bool,
}

impl Handover for FixedHandover {
    fn handover_record(&self) -> Option<Value> {
        Some(self.record.clone())
    }
    fn has_write_in_flight(&self) -> bool {
        self.has_write_in_flight
    }
    fn prepare_takeover(&self) {}
}

/// The process that leads next after one with this handover, and after a term of the original if there is one.
async fn successor_after(has_write_in_flight: bool, original: bool) -> (Duration, Predecessor) {
    let server = server();
    let handover = FixedHandover { record: json!({"pods": {"lastList": "3"}}), has_write_in_flight };
    let mut old = contestant(&server, "old", 0);
    old.election = old.election.with_handover(Arc::new(handover));
    let leading = old.election.acquire(never()).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let ended = leading.hold(std::future::ready(())).await;
    assert_eq!(ended, TermEnd::Stopped { released: !has_write_in_flight });
    if original {
        // It acquires and releases the Lease and keeps its annotations.
        for spec in [
            json!({"holderIdentity": "original", "leaseDurationSeconds": 15, "leaseTransitions": 1}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1}),
        ] {
            let mut changed = lease(&server);
            changed["spec"] = spec;
            server.seed(changed).unwrap();
        }
    }
    let began = Instant::now();
    let next = contestant(&server, "next", 0).election.acquire(never()).await.unwrap();
    let left = lease(&server)["metadata"]["annotations"]["keleustes.io/handover"].clone();
    assert_eq!(left, Value::Null, "the new holder removes it");
    (began.elapsed(), next.predecessor().clone())
}

#[tokio::test(start_paused = true)]
async fn successor_uses_the_record_of_the_last_term_only() {
    let (took, predecessor) = successor_after(false, false).await;
    assert_eq!(predecessor, Predecessor::LeftRecord(json!({"pods": {"lastList": "3"}})));
    assert!(took < Duration::from_millis(50), "{took:?}");
    let (_, predecessor) = successor_after(false, true).await;
    assert!(matches!(predecessor, Predecessor::LeftNoRecord(_)), "{predecessor:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_is_not_released_while_a_write_is_in_flight() {
    let (took, predecessor) = successor_after(true, false).await;
    assert!(matches!(predecessor, Predecessor::LeftNoRecord(_)), "{predecessor:?}");
    assert!(took >= Duration::from_secs(15), "{took:?}");
}

/// Proves LE-40, LE-43.
#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_immediately() {
    let server = server();
    let old = contestant(&server, "old", 0).lead().await;
    let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
    sleep(Duration::from_secs(31)).await;
    let stopped_at = Instant::now();
    assert_eq!(old.stop().await, TermEnd::Stopped { released: true });
    let standby = standby.await.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_millis(100), "{:?}", stopped_at.elapsed());
    assert!(standby.leadership.still_held());
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1);
}

/// Proves LE-40.
#[tokio::test(start_paused = true)]
async fn release_writes_an_empty_holder_and_one_second() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
    sleep(Duration::from_secs(5)).await;
    let (leadership, observed) = (me.leadership.clone(), Arc::clone(&me.observed));
    assert_eq!(me.stop().await, TermEnd::Stopped { released: true });
    assert!(!leadership.still_held());
    let spec = lease(&server)["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!((&spec["leaseTransitions"], &spec["acquireTime"]), (&json!(0), &spec["renewTime"]));
    assert_eq!(observed.events.lock().last().unwrap().message, "me stopped leading");
    assert_eq!(observed.metrics.lock().last().unwrap(), "kube-controller-manager false");
}

/// Proves LE-44, RUN-70.
#[tokio::test(start_paused = true)]
async fn lease_without_release_on_stop_expires() {
    let server = server();
    let config =
        LeaderElectionConfig { release_on_stop: false, ..LeaderElectionConfig::new("old".to_owned()) };
    let old = machine(&server, 0).compete(config).lead().await;
    let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
    sleep(Duration::from_secs(31)).await;
    let (stopped_at, leadership) = (Instant::now(), old.leadership.clone());
    assert_eq!(old.stop().await, TermEnd::Stopped { released: false });
    assert_eq!((holder(&server), leadership.still_held()), ("old".to_owned(), false));
    standby.await.unwrap();
    assert!(stopped_at.elapsed() >= Duration::from_secs(14), "{:?}", stopped_at.elapsed());
}

/// Proves LE-43.
#[tokio::test(start_paused = true)]
async fn without_a_watch_a_released_lease_is_found_by_polling() {
    let server = server();
    let old = contestant(&server, "old", 0).lead().await;
    let standby = contestant(&server, "heir", 0);
    standby.faults.add(FaultRule::new(InjectedFault::status(403, "Forbidden", "no watching")).watch(true));
    let standby = tokio::spawn(standby.lead());
    sleep(Duration::from_secs(31)).await;
    let stopped_at = Instant::now();
    assert_eq!(old.stop().await, TermEnd::Stopped { released: true });
    standby.await.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_millis(4_500), "{:?}", stopped_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn ended_watch_is_opened_again() {
    let server = server();
    let old = contestant(&server, "old", 0).lead().await;
    let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
    sleep(Duration::from_secs(31)).await;
    server.expire_watches();
    sleep(Duration::from_secs(3)).await;
    let stopped_at = Instant::now();
    assert_eq!(old.stop().await, TermEnd::Stopped { released: true });
    standby.await.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_millis(100), "{:?}", stopped_at.elapsed());
}

/// Proves LE-33, LE-36, LE-106. Trust ends first, then the term, and only then may others begin.
#[tokio::test(start_paused = true)]
async fn disconnected_leader_stops_writing_and_ends_before_another_leads() {
    let hanging = InjectedFault::Hang;
    let refusing = InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused);
    let failing = InjectedFault::status(500, "InternalError", "etcd is away");
    for fault in [hanging, refusing, failing] {
        let server = server();
        let cut_off = contestant(&server, "cut-off", 0).lead().await;
        let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
        sleep(Duration::from_secs(31)).await;
        let renewed_at = Instant::now() - Duration::from_secs(1);
        cut_off.faults.add(FaultRule::new(fault));
        sleep(Duration::from_millis(8_900)).await;
        assert!(cut_off.leadership.still_held());
        sleep(Duration::from_millis(200)).await;
        assert!(!cut_off.leadership.still_held(), "trusted {:?} after renewal", renewed_at.elapsed());
        assert!(!cut_off.ended.is_finished());
        assert_eq!(cut_off.ended.await.unwrap(), TermEnd::Lost);
        let lasted = renewed_at.elapsed();
        assert!(
            lasted > Duration::from_millis(11_900) && lasted < Duration::from_millis(12_100),
            "{lasted:?}"
        );
        assert_eq!(holder(&server), "cut-off");
        assert_eq!(cut_off.observed.events.lock().last().unwrap().message, "cut-off stopped leading");
        standby.await.unwrap();
        assert!(renewed_at.elapsed() >= Duration::from_secs(15));
    }
}

/// Proves LE-105. What a SIGSTOP does: nothing runs, time goes on.
#[tokio::test(start_paused = true)]
async fn process_suspended_past_its_lease_ends_and_sends_nothing() {
    let server = server();
    let suspended = contestant(&server, "sleeper", 0);
    let leading = suspended.election.acquire(never()).await.unwrap();
    assert!(leading.leadership().still_held());
    let standby = contestant(&server, "heir", 0).lead().await;
    assert_eq!(holder(&server), "heir");
    assert!(!suspended.leadership.still_held() && standby.leadership.still_held());
    standby.ended.abort();
    sleep(Duration::from_millis(10)).await;
    server.clear_requests();
    assert_eq!(leading.hold(never()).await, TermEnd::Lost);
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

/// Proves LE-100, LE-101, LE-102.
#[tokio::test(start_paused = true)]
async fn edits_of_the_lease_do_not_end_a_term_without_another_holder() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
    let slow_path_count =
        |me: &Leader| me.observed.metrics.lock().iter().filter(|metric| metric.ends_with("slow")).count();

    edit(&server, "leaseTransitions", json!(6));
    sleep(Duration::from_secs(3)).await;
    assert!(me.leadership.still_held());
    assert_eq!((lease(&server)["spec"]["leaseTransitions"].as_i64(), slow_path_count(&me)), (Some(6), 1));

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

/// Proves LE-35, LE-42, LE-103. Without a watch, the leader notices at its next renewal.
#[tokio::test(start_paused = true)]
async fn lease_with_another_holder_stops_writes_and_is_not_released() {
    let unwatched = |server: &ApiServer| {
        let me = contestant(server, "me", 0);
        me.faults.add(FaultRule::new(InjectedFault::status(403, "Forbidden", "no watching")).watch(true));
        me.lead()
    };
    let server = server();
    let me = unwatched(&server).await;
    edit(&server, "holderIdentity", json!("other"));
    let leadership = me.leadership.clone();
    assert_eq!(me.stop().await, TermEnd::Stopped { released: false });
    assert_eq!(holder(&server), "other");
    assert!(!leadership.still_held());

    let server = self::server();
    let me = unwatched(&server).await;
    edit(&server, "holderIdentity", json!("other"));
    let edited_at = Instant::now();
    assert_eq!(me.ended.await.unwrap(), TermEnd::Lost);
    assert!(edited_at.elapsed() < Duration::from_millis(2_050), "{:?}", edited_at.elapsed());
    assert!(!me.leadership.still_held());
}

/// Proves LE-41.
#[tokio::test(start_paused = true)]
async fn release_reads_again_after_a_conflict_and_gives_up_on_other_errors() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
    me.faults
        .add(FaultRule::new(InjectedFault::status(409, "Conflict", "changed")).method(Method::PUT).times(3));
    assert_eq!(me.stop().await, TermEnd::Stopped { released: true });
    assert_eq!(holder(&server), "");

    let me = contestant(&server, "me", 0).lead().await;
    me.faults.add(FaultRule::new(InjectedFault::status(500, "InternalError", "no")).method(Method::PUT));
    assert_eq!(me.stop().await, TermEnd::Stopped { released: false });

    let me = contestant(&server, "me", 0).lead().await;
    me.faults.add(FaultRule::new(InjectedFault::status(409, "Conflict", "always")).method(Method::PUT));
    let stopped_at = Instant::now();
    // An API server that always returns a conflict responds in no time here, so a delay is added.
    me.faults.add(FaultRule::new(InjectedFault::DelayThen(
        Duration::from_millis(50),
        Box::new(InjectedFault::Pass),
    )));
    assert_eq!(me.stop().await, TermEnd::Stopped { released: false });
    assert_eq!(stopped_at.elapsed().as_secs(), 10);

    let server = self::server();
    let me = contestant(&server, "me", 0).lead().await;
    assert!(server.remove("leases", "kube-system", "kube-controller-manager"));
    assert_eq!(me.stop().await, TermEnd::Stopped { released: false });
    assert!(server.object("leases", "kube-system", "kube-controller-manager").is_none());
}

/// Proves LE-109.
#[tokio::test(start_paused = true)]
async fn standby_survives_an_outage_and_stops_when_asked() {
    let server = server();
    let standby = contestant(&server, "standby", 0);
    let outage = standby
        .faults
        .add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset)));
    let waiting = tokio::spawn(standby.election.acquire(sleep(Duration::from_secs(3_600))));
    assert!(waiting.await.unwrap().is_none());
    assert!(standby.faults.hits(outage) > 500);
    assert!(!standby.leadership.still_held());
    assert!(server.object("leases", "kube-system", "kube-controller-manager").is_none());
}

#[tokio::test(start_paused = true)]
async fn claim_with_unawaited_response_is_released() {
    let server = server();
    let stopped_early = contestant(&server, "stopped-early", 0);
    let lost_answer = InjectedFault::ApplyThen(Box::new(InjectedFault::Hang));
    stopped_early.faults.add(FaultRule::new(lost_answer).method(Method::POST).times(1));
    assert!(stopped_early.election.acquire(sleep(Duration::from_secs(1))).await.is_none());
    assert_eq!(holder(&server), "");
}

/// An operator can tell which of two programs leads; the annotation does not outlive the term.
#[tokio::test(start_paused = true)]
async fn lease_and_events_name_the_program_while_it_leads() {
    let server = server();
    let program = Some("Keleustes 0.1.0 (commit abc)".to_owned());
    let config = LeaderElectionConfig { program, ..LeaderElectionConfig::new("me".to_owned()) };
    let leader = machine(&server, 0).compete(config).lead().await;
    sleep(Duration::from_secs(3)).await;
    let annotation = |server: &ApiServer| lease(server)["metadata"]["annotations"][LEADER_ANNOTATION].clone();
    assert_eq!(annotation(&server), "me Keleustes 0.1.0 (commit abc)");
    let observed = leader.observed.clone();
    assert_eq!(leader.stop().await, TermEnd::Stopped { released: true });
    assert_eq!(annotation(&server), json!(null));
    let messages: Vec<_> = observed.events.lock().iter().map(|event| event.message.to_string()).collect();
    assert_eq!(
        messages,
        [
            "me became leader (Keleustes 0.1.0 (commit abc))",
            "me stopped leading (Keleustes 0.1.0 (commit abc))",
        ]
    );
}
