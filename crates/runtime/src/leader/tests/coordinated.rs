//! A coordinated election: the process publishes a LeaseCandidate, answers pings, and leads while it is the
//! chosen holder.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::metrics::Metrics;

/// A process that has published a LeaseCandidate.
struct PublishedCandidate {
    health: Box<dyn Fn() -> Result<(), String>>,
    faults: Faults,
    metrics: Metrics,
    task: JoinHandle<()>,
}

fn publish(server: &ApiServer, faults: &[FaultRule]) -> PublishedCandidate {
    let Machine { client, clocks, faults: added, .. } = machine(server, 0);
    for rule in faults {
        added.add(rule.clone());
    }
    let candidacy = Candidacy {
        identity: "node-1_me".to_owned(),
        binary_version: "1.37.1".to_owned(),
        emulation_version: "1.36.0".to_owned(),
    };
    let metrics = Metrics::new();
    let candidate = Candidate::new(client, candidacy, clocks, &metrics);
    let health = Box::new(candidate.health());
    PublishedCandidate { health, faults: added, metrics, task: tokio::spawn(candidate.run(never())) }
}

fn candidate(server: &ApiServer) -> Option<Value> {
    server.object("leasecandidates", "kube-system", "node-1_me").map(|candidate| (*candidate).clone())
}

fn renewed_seconds(server: &ApiServer) -> i64 {
    let renewed = candidate(server).unwrap()["spec"]["renewTime"].as_str().unwrap().to_owned();
    let start: jiff::Timestamp = START.parse().unwrap();
    renewed.parse::<jiff::Timestamp>().unwrap().as_second() - start.as_second()
}

/// Pings the candidate as the API server does.
fn ping(server: &ApiServer, at_seconds: i64) {
    let mut pinged = candidate(server).unwrap();
    let at = START.parse::<jiff::Timestamp>().unwrap() + jiff::SignedDuration::from_secs(at_seconds);
    pinged["spec"]["pingTime"] = format!("{at:.6}").into();
    server.seed(pinged).unwrap();
}

fn writes(server: &ApiServer) -> Vec<String> {
    let requests = server.requests();
    let writes = requests.iter().filter(|request| request.method != Method::GET);
    writes.map(|request| format!("{} {}", request.method, request.target)).collect()
}

/// Proves LE-70, LE-77, LE-81.
#[tokio::test(start_paused = true)]
async fn candidate_has_identity_versions_and_strategy() {
    let server = server();
    let _me = publish(&server, &[]);
    sleep(Duration::from_secs(1)).await;
    let candidate = candidate(&server).unwrap();
    assert_eq!(
        (&candidate["apiVersion"], &candidate["kind"]),
        (&json!("coordination.k8s.io/v1beta1"), &json!("LeaseCandidate"))
    );
    assert_eq!(
        candidate["spec"],
        json!({
            "leaseName": "kube-controller-manager", "strategy": "OldestEmulationVersion",
            "binaryVersion": "1.37.1", "emulationVersion": "1.36.0", "renewTime": "2026-01-01T00:00:00.000000Z",
        })
    );
    let collection = "/apis/coordination.k8s.io/v1beta1/namespaces/kube-system/leasecandidates";
    assert_eq!(writes(&server), [format!("POST {collection}?timeout=10s")]);
}

/// Proves LE-71, LE-81.
#[tokio::test(start_paused = true)]
async fn candidate_is_renewed_every_five_minutes_and_on_ping() {
    let server = server();
    let _me = publish(&server, &[]);
    sleep(Duration::from_secs(299)).await;
    assert_eq!(renewed_seconds(&server), 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(renewed_seconds(&server), 300);

    // An old ping, and any other edit, does not cause a renewal.
    ping(&server, 200);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(renewed_seconds(&server), 300);
    ping(&server, 302);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(renewed_seconds(&server), 303, "a ping is answered immediately");
    assert_eq!(candidate(&server).unwrap()["spec"]["pingTime"], "2026-01-01T00:05:02.000000Z");
    assert!(writes(&server)[1..].iter().all(|write| write.starts_with("PUT ")), "{:?}", writes(&server));

    // A deleted candidate is created again with the next renewal.
    assert!(server.remove("leasecandidates", "kube-system", "node-1_me"));
    sleep(Duration::from_secs(300)).await;
    assert!(candidate(&server).is_some());
}

/// Proves LE-71: the usual limiter, five milliseconds and twice that each time.
#[tokio::test(start_paused = true)]
async fn refused_candidate_retries_with_backoff() {
    let server = server();
    let refusing = FaultRule::new(InjectedFault::status(500, "InternalError", "no")).method(Method::POST);
    let me = publish(&server, &[refusing.times(8)]);
    sleep(Duration::from_millis(5 * 254)).await;
    assert!(candidate(&server).is_none());
    sleep(Duration::from_millis(5 * 3)).await;
    assert!(candidate(&server).is_some());
    // After a conflict the candidate is read live even if the watch is silent.
    let silent = FaultRule::new(InjectedFault::Hang).method(Method::GET).target("fieldSelector");
    let silent = me.faults.add(silent);
    server.cut_watches();
    ping(&server, 0);
    sleep(Duration::from_secs(301)).await;
    assert_eq!(renewed_seconds(&server), 301);
    assert!(me.faults.hits(silent) > 0 && !me.task.is_finished());
}

/// Proves LE-72.
#[tokio::test(start_paused = true)]
async fn candidate_watches_only_itself_and_does_not_wait_for_the_lock() {
    let server = server();
    let _leader = contestant(&server, "other", 0).lead().await;
    sleep(Duration::from_millis(100)).await;
    server.clear_requests();
    let me = publish(&server, &[]);
    sleep(Duration::from_secs(1)).await;
    assert!(candidate(&server).is_some());
    let requests = server.requests();
    let reads: Vec<_> = requests
        .iter()
        .filter(|request| request.method == Method::GET)
        .map(|request| &request.target)
        .collect();
    assert_eq!(reads.len(), 2, "{reads:?}");
    for read in reads {
        assert!(read.contains("/kube-system/leasecandidates?"), "{read}");
        assert!(read.contains("fieldSelector=metadata.name%3Dnode-1_me"), "{read}");
    }
    assert!(
        me.metrics.text().contains("workqueue_adds_total{name=\"leasecandidate\"} 1"),
        "{}",
        me.metrics.text()
    );
}

/// Proves LE-73.
#[tokio::test(start_paused = true)]
async fn health_fails_until_the_first_list() {
    let server = server();
    let unserved = FaultRule::new(InjectedFault::status(404, "NotFound", "no such resource")).times(3);
    let me = publish(&server, &[unserved]);
    sleep(Duration::from_millis(500)).await;
    assert_eq!((me.health)(), Err("1 informers not started yet: [*v1beta1.LeaseCandidate]".to_owned()));
    assert!(candidate(&server).is_none(), "created without knowing whether it exists");
    sleep(Duration::from_secs(10)).await;
    assert_eq!((me.health)(), Ok(()));
    assert!(candidate(&server).is_some());
}

/// Writes the Lease as the API server does when it has chosen a holder.
fn choose_holder(server: &ApiServer, holder: &str, at_seconds: i64) {
    let at = START.parse::<jiff::Timestamp>().unwrap() + jiff::SignedDuration::from_secs(at_seconds);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 5, "strategy": "OldestEmulationVersion",
            "renewTime": format!("{at:.6}")},
    });
    server.seed(lease).unwrap();
}

fn coordinated(server: &ApiServer, name: &str) -> Contestant {
    machine(server, 0)
        .compete(LeaderElectionConfig { coordinated: true, ..LeaderElectionConfig::new(name.to_owned()) })
}

/// Proves LE-74, LE-75.
#[tokio::test(start_paused = true)]
async fn chosen_process_leads_immediately_and_never_before() {
    let server = server();
    let me = coordinated(&server, "me");
    let leadership = me.leadership.clone();
    let me = tokio::spawn(me.lead());
    sleep(Duration::from_secs(20)).await;
    choose_holder(&server, "other", 20);
    sleep(Duration::from_secs(20)).await;
    assert!(writes(&server).is_empty(), "{:?}", writes(&server));
    let reads =
        server.requests().iter().filter(|request| request.target.contains("/leases/kube-controller")).count();
    assert!(reads >= 8, "each try reads: {reads}");

    choose_holder(&server, "me", 40);
    sleep(Duration::from_millis(100)).await;
    assert!(leadership.still_held(), "a chosen process leads immediately");
    let me = me.await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let spec = lease(&server)["spec"].clone();
    assert_eq!(
        (&spec["strategy"], &spec["leaseDurationSeconds"]),
        (&json!("OldestEmulationVersion"), &json!(15))
    );
    assert_eq!((spec["leaseTransitions"].as_i64(), spec["acquireTime"].as_str()), (Some(0), None));
    assert!(writes(&server).iter().all(|write| write.starts_with("PUT ")), "{:?}", writes(&server));
    let slow = me.observed.metrics.lock().iter().filter(|metric| metric.ends_with("slow")).count();
    assert_eq!((slow, writes(&server).len()), (6, 6), "every renewal reads first");

    // A deleted Lease is not created again.
    assert!(server.remove("leases", "kube-system", "kube-controller-manager"));
    assert_eq!(me.ended.await.unwrap(), TermEnd::Lost);
    assert!(server.object("leases", "kube-system", "kube-controller-manager").is_none());
}

/// Proves LE-76.
#[tokio::test(start_paused = true)]
async fn leader_with_another_preferred_holder_ends_its_term() {
    let server = server();
    choose_holder(&server, "me", 0);
    let me = coordinated(&server, "me").lead().await;
    sleep(Duration::from_secs(21)).await;
    let renewed_at = Instant::now() - Duration::from_secs(1);
    edit(&server, "preferredHolder", json!("other"));
    server.clear_requests();
    let leadership = me.leadership.clone();
    assert_eq!(me.ended.await.unwrap(), TermEnd::Lost);
    assert_eq!(renewed_at.elapsed().as_secs(), 12);
    assert!(writes(&server).is_empty() && !leadership.still_held());
    assert_eq!(holder(&server), "me");
}

/// A leader that shuts down gracefully releases the Lease, so that the API server can choose again.
#[tokio::test(start_paused = true)]
async fn chosen_process_releases_on_shutdown() {
    let server = server();
    choose_holder(&server, "me", 0);
    let me = coordinated(&server, "me").lead().await;
    assert_eq!(me.stop().await, TermEnd::Stopped { released: true });
    assert_eq!(holder(&server), "");
}
