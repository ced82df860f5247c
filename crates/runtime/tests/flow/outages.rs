//! A controller that ships, in a world where requests go wrong: it comes to rest where it should.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, clock};
use keleustes_controllers::serviceaccount;
use serde_json::json;

use crate::world::{World, settle, wait};

const NAMESPACES: usize = 12;

fn populate(server: &ApiServer) {
    for n in 0..NAMESPACES {
        server
            .seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{n:02}")},
                "status": {"phase": "Active"}}))
            .unwrap();
    }
}

/// Every namespace has its account, and each was stored once.
fn assert_complete(world: &World, what: &str) {
    let mut accounts = BTreeMap::new();
    for account in world.server.objects("serviceaccounts") {
        *accounts.entry(account["metadata"]["namespace"].to_string()).or_insert(0) += 1;
    }
    assert_eq!(accounts.len(), NAMESPACES + 4, "{what}");
    assert!(accounts.values().all(|count| *count == 1), "{what}");
}

/// Proves RUN-116.
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_with_writes_every_namespace_gets_its_account() {
    let reset = || InjectedFault::ConnectionError(ErrorKind::ConnectionReset);
    let faults: Vec<(&str, InjectedFault)> = vec![
        ("conflict", InjectedFault::status(409, "Conflict", "try again")),
        ("calm asked for", InjectedFault::too_many_requests(2)),
        ("server error", InjectedFault::status(500, "InternalError", "boom")),
        ("server timeout", InjectedFault::status(504, "Timeout", "too slow")),
        ("forbidden for a while", InjectedFault::status(403, "Forbidden", "no role yet")),
        ("connection refused", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("connection reset", reset()),
        ("answer lost after the effect", InjectedFault::ApplyThen(Box::new(reset()))),
        (
            "error told after the effect",
            InjectedFault::ApplyThen(Box::new(InjectedFault::status(
                500,
                "InternalError",
                "etcdserver: leader changed",
            ))),
        ),
        ("no answer ever", InjectedFault::Hang),
        ("an answer that cannot be read", InjectedFault::RawBody { code: 201, body: "<html>".into() }),
    ];
    for (what, verdict) in faults {
        let world = World::new();
        populate(&world.server);
        let id = world.faults.add(FaultRule::new(verdict).method(Method::POST).times(5));
        let running = world.start(serviceaccount::controller()).await;
        wait(Duration::from_secs(1800)).await;
        assert_eq!(world.faults.hits(id), 5, "{what}");
        assert_complete(&world, what);
        let quiet = world.writes().len();
        wait(Duration::from_secs(1800)).await;
        assert_eq!(world.writes().len(), quiet, "{what}: it has come to rest");
        world.stop(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_that_go_wrong_delay_and_do_not_mislead() {
    let faults: Vec<(&str, InjectedFault)> = vec![
        ("server error", InjectedFault::status(500, "InternalError", "boom")),
        ("calm asked for", InjectedFault::too_many_requests(1)),
        ("expired", InjectedFault::status(410, "Expired", "too old")),
        ("connection refused", InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)),
        ("cut off in the list", InjectedFault::CutStream { after_events: 2, cleanly: false }),
        ("ended in the list", InjectedFault::CutStream { after_events: 2, cleanly: true }),
    ];
    for (what, verdict) in faults {
        let world = World::new();
        populate(&world.server);
        world.faults.add(FaultRule::new(verdict).method(Method::GET).times(6));
        let running = world.start(serviceaccount::controller()).await;
        for round in 0..5 {
            world.server.expire_watches();
            wait(Duration::from_secs(120)).await;
            assert!(world.server.remove("serviceaccounts", "n03", "default"), "{what}, round {round}");
        }
        wait(Duration::from_secs(120)).await;
        assert_complete(&world, what);
        assert_eq!(
            world.writes().len(),
            NAMESPACES + 4 + 5,
            "{what}: one write for each account that was missing"
        );
        world.stop(running).await;
    }
}

/// A process dies after each number of writes in turn; the next one completes its work.
#[test]
fn a_process_that_dies_between_writes_is_continued_by_the_next() {
    for writes in 1..NAMESPACES + 4 {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::builder().clock(clock::fixed(start)).build();
        populate(&server);
        let process = || {
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
        };
        let first = process();
        first.block_on(async {
            let world = World::around(server.clone(), None);
            // The answer to this write never arrives, although it takes effect.
            let last = InjectedFault::ApplyThen(Box::new(InjectedFault::Hang));
            world.faults.add(FaultRule::new(last).method(Method::POST).skip(writes as u64 - 1));
            let running = world.start(serviceaccount::controller()).await;
            settle().await;
            assert_eq!(server.objects("serviceaccounts").len(), writes);
            std::mem::forget(running);
        });
        drop(first);
        process().block_on(async {
            let world = World::around(server.clone(), None);
            let running = world.start(serviceaccount::controller()).await;
            settle().await;
            assert_complete(&world, &format!("died after {writes}"));
            assert_eq!(world.writes().len(), NAMESPACES + 4, "nothing was written twice");
            running.stop().await;
        });
    }
}

/// An account is made and undone again while its cache cannot hear, so that no event tells of either.
#[tokio::test(start_paused = true)]
async fn what_is_undone_between_two_lists_is_done_again() {
    for (what, answer) in [
        ("answered", InjectedFault::Pass),
        (
            "answer lost",
            InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(ErrorKind::ConnectionReset))),
        ),
    ] {
        let world = World::new();
        let running = world.start(serviceaccount::controller()).await;
        settle().await;
        let deaf = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused))
            .target("/serviceaccounts?");
        let deaf = world.faults.add(deaf.method(Method::GET));
        world.faults.add(FaultRule::new(answer).method(Method::POST).times(1));
        world.server.cut_watches();
        populate(&world.server);
        wait(Duration::from_secs(5)).await;
        let asked = world.writes().len();
        wait(Duration::from_secs(5)).await;
        assert_eq!(world.writes().len(), asked, "{what}: nobody is asked in vain while the cache is deaf");
        assert_complete(&world, what);
        assert!(world.server.remove("serviceaccounts", "n00", "default"));
        world.server.compact();
        world.faults.disable(deaf);
        wait(Duration::from_secs(120)).await;
        assert_complete(&world, what);
        assert_eq!(world.writes().len(), asked + 1, "{what}");
        world.stop(running).await;
    }
}

/// The same, and the answer that tells of the write arrives only after the new list.
#[tokio::test(start_paused = true)]
async fn what_is_undone_before_its_answer_arrives_is_done_again() {
    let world = World::new();
    let running = world.start(serviceaccount::controller()).await;
    settle().await;
    let deaf = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused))
        .target("/serviceaccounts?");
    let deaf = world.faults.add(deaf.method(Method::GET));
    world.server.cut_watches();
    *world.tap.answers_take.lock() = Duration::from_secs(40);
    populate(&world.server);
    settle().await;
    assert!(world.server.remove("serviceaccounts", "n00", "default"), "made, but not answered");
    world.server.compact();
    world.faults.disable(deaf);
    wait(Duration::from_secs(39)).await;
    assert_eq!(world.reads("serviceaccounts", "sendInitialEvents=true"), 2, "there was a new list");
    *world.tap.answers_take.lock() = Duration::ZERO;
    wait(Duration::from_secs(60)).await;
    assert_complete(&world, "a late answer");
    world.stop(running).await;
}

/// Random refusals, lost answers and broken watches for a while, with accounts deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn after_a_storm_everything_is_as_it_should_be() {
    for seed in 0..20 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let world = World::new();
        populate(&world.server);
        let running = world.start(serviceaccount::controller()).await;
        for _ in 0..30 {
            let verdict = match chance.u8(0..6) {
                0 => InjectedFault::status(500, "InternalError", "boom"),
                1 => InjectedFault::too_many_requests(1),
                2 => InjectedFault::ConnectionError(ErrorKind::ConnectionReset),
                3 => InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(
                    ErrorKind::ConnectionReset,
                ))),
                4 => InjectedFault::CutStream { after_events: chance.usize(0..3), cleanly: chance.bool() },
                _ => InjectedFault::DelayThen(
                    Duration::from_millis(chance.u64(0..3000)),
                    Box::new(InjectedFault::Pass),
                ),
            };
            let method = if chance.bool() { Method::GET } else { Method::POST };
            world.faults.add(FaultRule::new(verdict).method(method).times(chance.u64(1..4)));
            let namespace = format!("n{:02}", chance.usize(0..NAMESPACES));
            world.server.remove("serviceaccounts", &namespace, "default");
            match chance.u8(0..4) {
                0 => world.server.expire_watches(),
                1 => world.server.cut_watches(),
                2 => world.server.compact(),
                _ => {}
            }
            wait(Duration::from_millis(chance.u64(0..5000))).await;
        }
        world.faults.disable_all();
        wait(Duration::from_secs(1200)).await;
        assert_complete(&world, &format!("seed {seed}"));
        assert!(!world.metrics.text().contains("keleustes_sync_panics_total{"), "seed {seed}");
        world.stop(running).await;
    }
}
