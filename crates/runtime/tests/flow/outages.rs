//! A shipped controller on a server whose requests fail: it converges.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, clock};
use keleustes_controllers::serviceaccount;
use serde_json::json;

use crate::test_cluster::{TestCluster, settle, wait};

const NAMESPACES: usize = 12;

fn populate(server: &ApiServer) {
    for n in 0..NAMESPACES {
        server
            .seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{n:02}")},
                "status": {"phase": "Active"}}))
            .unwrap();
    }
}

/// Every namespace has its service account, and each was created once.
fn assert_complete(cluster: &TestCluster, what: &str) {
    let mut accounts = BTreeMap::new();
    for account in cluster.server.objects("serviceaccounts") {
        *accounts.entry(account["metadata"]["namespace"].to_string()).or_insert(0) += 1;
    }
    assert_eq!(accounts.len(), NAMESPACES + 4, "{what}");
    assert!(accounts.values().all(|count| *count == 1), "{what}");
}

/// Proves RUN-116.
#[tokio::test(start_paused = true)]
async fn every_namespace_gets_its_service_account_despite_failing_writes() {
    let reset = || InjectedFault::ConnectionError(ErrorKind::ConnectionReset);
    let faults: Vec<(&str, InjectedFault)> = vec![
        ("conflict", InjectedFault::status(409, "Conflict", "try again")),
        ("too many requests", InjectedFault::too_many_requests(2)),
        ("server error", InjectedFault::status(500, "InternalError", "boom")),
        ("server timeout", InjectedFault::status(504, "Timeout", "too slow")),
        ("forbidden for a while", InjectedFault::status(403, "Forbidden", "no role yet")),
        ("connection refused", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("connection reset", reset()),
        ("response lost after the effect", InjectedFault::ApplyThen(Box::new(reset()))),
        (
            "error returned after the effect",
            InjectedFault::ApplyThen(Box::new(InjectedFault::status(
                500,
                "InternalError",
                "etcdserver: leader changed",
            ))),
        ),
        ("no response ever", InjectedFault::Hang),
        ("unreadable response", InjectedFault::RawBody { code: 201, body: "<html>".into() }),
    ];
    for (what, fault) in faults {
        let cluster = TestCluster::new();
        populate(&cluster.server);
        let id = cluster.faults.add(FaultRule::new(fault).method(Method::POST).times(5));
        let running = cluster.start(serviceaccount::controller()).await;
        wait(Duration::from_secs(1800)).await;
        assert_eq!(cluster.faults.hits(id), 5, "{what}");
        assert_complete(&cluster, what);
        let writes_before = cluster.writes().len();
        wait(Duration::from_secs(1800)).await;
        assert_eq!(cluster.writes().len(), writes_before, "{what}: it has converged");
        cluster.stop(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_lists_and_watches_only_cause_delay() {
    let faults: Vec<(&str, InjectedFault)> = vec![
        ("server error", InjectedFault::status(500, "InternalError", "boom")),
        ("too many requests", InjectedFault::too_many_requests(1)),
        ("expired", InjectedFault::status(410, "Expired", "too old")),
        ("connection refused", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("cut off in the list", InjectedFault::CutStream { after_events: 2, cleanly: false }),
        ("ended in the list", InjectedFault::CutStream { after_events: 2, cleanly: true }),
    ];
    for (what, fault) in faults {
        let cluster = TestCluster::new();
        populate(&cluster.server);
        cluster.faults.add(FaultRule::new(fault).method(Method::GET).times(6));
        let running = cluster.start(serviceaccount::controller()).await;
        for round in 0..5 {
            cluster.server.expire_watches();
            wait(Duration::from_secs(120)).await;
            assert!(cluster.server.remove("serviceaccounts", "n03", "default"), "{what}, round {round}");
        }
        wait(Duration::from_secs(120)).await;
        assert_complete(&cluster, what);
        assert_eq!(
            cluster.writes().len(),
            NAMESPACES + 4 + 5,
            "{what}: one write for each missing service account"
        );
        cluster.stop(running).await;
    }
}

/// A process dies after each number of writes; the next one completes its work.
#[test]
fn next_process_completes_the_work_of_one_that_died_between_writes() {
    for writes in 1..NAMESPACES + 4 {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::builder().clock(clock::fixed(start)).build();
        populate(&server);
        let process = || {
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
        };
        let first = process();
        first.block_on(async {
            let cluster = TestCluster::on_server(server.clone(), None);
            // The response to this write never arrives, although it takes effect.
            let last = InjectedFault::ApplyThen(Box::new(InjectedFault::Hang));
            cluster.faults.add(FaultRule::new(last).method(Method::POST).skip(writes as u64 - 1));
            let running = cluster.start(serviceaccount::controller()).await;
            settle().await;
            assert_eq!(server.objects("serviceaccounts").len(), writes);
            std::mem::forget(running);
        });
        drop(first);
        process().block_on(async {
            let cluster = TestCluster::on_server(server.clone(), None);
            let running = cluster.start(serviceaccount::controller()).await;
            settle().await;
            assert_complete(&cluster, &format!("died after {writes}"));
            assert_eq!(cluster.writes().len(), NAMESPACES + 4, "nothing was written twice");
            running.stop().await;
        });
    }
}

/// A service account is created and deleted again while its cache cannot watch, so that no event shows
/// either.
#[tokio::test(start_paused = true)]
async fn object_deleted_between_two_lists_is_recreated() {
    for (what, response) in [
        ("response received", InjectedFault::Pass),
        (
            "response lost",
            InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(ErrorKind::ConnectionReset))),
        ),
    ] {
        let cluster = TestCluster::new();
        let running = cluster.start(serviceaccount::controller()).await;
        settle().await;
        let no_watch = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused))
            .target("/serviceaccounts?");
        let no_watch = cluster.faults.add(no_watch.method(Method::GET));
        cluster.faults.add(FaultRule::new(response).method(Method::POST).times(1));
        cluster.server.cut_watches();
        populate(&cluster.server);
        wait(Duration::from_secs(5)).await;
        let writes_before = cluster.writes().len();
        wait(Duration::from_secs(5)).await;
        assert_eq!(cluster.writes().len(), writes_before, "{what}: no retries while the cache cannot watch");
        assert_complete(&cluster, what);
        assert!(cluster.server.remove("serviceaccounts", "n00", "default"));
        cluster.server.compact();
        cluster.faults.disable(no_watch);
        wait(Duration::from_secs(120)).await;
        assert_complete(&cluster, what);
        assert_eq!(cluster.writes().len(), writes_before + 1, "{what}");
        cluster.stop(running).await;
    }
}

/// The same, and the response to the write arrives only after the relist.
#[tokio::test(start_paused = true)]
async fn object_deleted_before_its_create_response_arrives_is_recreated() {
    let cluster = TestCluster::new();
    let running = cluster.start(serviceaccount::controller()).await;
    settle().await;
    let no_watch = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused))
        .target("/serviceaccounts?");
    let no_watch = cluster.faults.add(no_watch.method(Method::GET));
    cluster.server.cut_watches();
    *cluster.tap.post_response_delay.lock() = Duration::from_secs(40);
    populate(&cluster.server);
    settle().await;
    assert!(
        cluster.server.remove("serviceaccounts", "n00", "default"),
        "created, but without a response yet"
    );
    cluster.server.compact();
    cluster.faults.disable(no_watch);
    wait(Duration::from_secs(39)).await;
    assert_eq!(cluster.reads("serviceaccounts", "sendInitialEvents=true"), 2, "there was a relist");
    *cluster.tap.post_response_delay.lock() = Duration::ZERO;
    wait(Duration::from_secs(60)).await;
    assert_complete(&cluster, "a late response");
    cluster.stop(running).await;
}

/// Random errors, lost responses and broken watches for a while, with service accounts deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn controller_converges_after_random_faults() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cluster = TestCluster::new();
        populate(&cluster.server);
        let running = cluster.start(serviceaccount::controller()).await;
        for _ in 0..30 {
            let fault = match random.u8(0..6) {
                0 => InjectedFault::status(500, "InternalError", "boom"),
                1 => InjectedFault::too_many_requests(1),
                2 => InjectedFault::ConnectionError(ErrorKind::ConnectionReset),
                3 => InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(
                    ErrorKind::ConnectionReset,
                ))),
                4 => InjectedFault::CutStream { after_events: random.usize(0..3), cleanly: random.bool() },
                _ => InjectedFault::DelayThen(
                    Duration::from_millis(random.u64(0..3000)),
                    Box::new(InjectedFault::Pass),
                ),
            };
            let method = if random.bool() { Method::GET } else { Method::POST };
            cluster.faults.add(FaultRule::new(fault).method(method).times(random.u64(1..4)));
            let namespace = format!("n{:02}", random.usize(0..NAMESPACES));
            cluster.server.remove("serviceaccounts", &namespace, "default");
            match random.u8(0..4) {
                0 => cluster.server.expire_watches(),
                1 => cluster.server.cut_watches(),
                2 => cluster.server.compact(),
                _ => {}
            }
            wait(Duration::from_millis(random.u64(0..5000))).await;
        }
        cluster.faults.disable_all();
        wait(Duration::from_secs(1200)).await;
        assert_complete(&cluster, &format!("seed {seed}"));
        assert!(!cluster.has_panicked(), "seed {seed}");
        cluster.stop(running).await;
    }
}
