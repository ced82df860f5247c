//! A Lease that is deleted or whose holder is cleared by hand: its leader keeps it, and never do two processes
//! write.

use std::time::Duration;

use keleustes_apiserver::{FaultRule, InjectedFault};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tampering {
    Delete,
    ClearHolder,
}

const TAMPERINGS: [Tampering; 2] = [Tampering::Delete, Tampering::ClearHolder];

impl Tampering {
    fn apply(self, server: &ApiServer) {
        match self {
            Self::Delete => assert!(server.remove("leases", "kube-system", "kube-controller-manager")),
            Self::ClearHolder => edit(server, "holderIdentity", json!("")),
        }
    }
}

/// Checks at every millisecond that at most one process may write.
async fn assert_one_writer(what: impl std::fmt::Debug, writers: &[&Leadership], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let count = writers.iter().filter(|writer| writer.still_held()).count();
        assert!(count <= 1, "{what:?}: {count} writers");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Proves LE-100, LE-102.
#[tokio::test(start_paused = true)]
async fn living_leader_retakes_a_tampered_lease_immediately_and_is_the_only_writer() {
    for tampering in TAMPERINGS {
        let server = server();
        let me = contestant(&server, "me", 0).lead().await;
        let standby = contestant(&server, "heir", 0);
        let standby_leadership = standby.leadership.clone();
        tokio::spawn(standby.lead());
        sleep(Duration::from_millis(30_500)).await;
        tampering.apply(&server);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(holder(&server), "me", "{tampering:?}");
        assert!(me.leadership.still_held(), "{tampering:?}");
        assert_one_writer(tampering, &[&me.leadership, &standby_leadership], Duration::from_secs(40)).await;
        assert!(me.leadership.still_held() && !standby_leadership.still_held(), "{tampering:?}");
        assert!(!me.ended.is_finished(), "{tampering:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_watch_its_lease_is_the_only_writer_after_tampering() {
    for tampering in TAMPERINGS {
        let server = server();
        let me = contestant(&server, "me", 0);
        me.faults.add(FaultRule::new(InjectedFault::status(403, "Forbidden", "no watching")).watch(true));
        let me = me.lead().await;
        let standby = contestant(&server, "heir", 0);
        let standby_leadership = standby.leadership.clone();
        tokio::spawn(standby.lead());
        sleep(Duration::from_millis(30_500)).await;
        tampering.apply(&server);
        assert_one_writer(tampering, &[&me.leadership, &standby_leadership], Duration::from_secs(40)).await;
        assert!(me.leadership.still_held() && !standby_leadership.still_held(), "{tampering:?}");
    }
}

/// The leader cannot know that its Lease was deleted, so it writes as long as it trusts its last renewal.
#[tokio::test(start_paused = true)]
async fn disconnected_leader_and_standby_never_write_at_once_after_tampering() {
    for tampering in TAMPERINGS {
        let server = server();
        let cut_off = contestant(&server, "cut-off", 0).lead().await;
        let standby = contestant(&server, "heir", 0);
        let standby_leadership = standby.leadership.clone();
        tokio::spawn(standby.lead());
        sleep(Duration::from_millis(30_500)).await;
        cut_off.faults.add(FaultRule::new(InjectedFault::Hang));
        tampering.apply(&server);
        let writers = [&cut_off.leadership, &standby_leadership];
        assert_one_writer(tampering, &writers, Duration::from_millis(14_900)).await;
        assert!(!standby_leadership.still_held(), "{tampering:?}");
        assert_one_writer(tampering, &writers, Duration::from_millis(300)).await;
        assert!(standby_leadership.still_held() && cut_off.ended.is_finished(), "{tampering:?}");
    }
}

/// Proves LE-28: with what is an empty holder there, a release.
#[tokio::test(start_paused = true)]
async fn release_by_the_original_is_taken_immediately_and_a_cleared_holder_is_not() {
    for is_released in [true, false] {
        let server = server();
        let spec = |holder: &str, seconds: u64, acquired: &str, renewed: &str| {
            let times = (format!("2026-01-01T{acquired}.000000Z"), format!("2026-01-01T{renewed}.000000Z"));
            json!({"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3,
                "acquireTime": times.0, "renewTime": times.1})
        };
        let stored = |spec: Value| {
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
                "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"}})
        };
        server.seed(stored(spec("original", 15, "00:00:00", "00:00:02"))).unwrap();
        let standby = tokio::spawn(contestant(&server, "heir", 0).lead());
        sleep(Duration::from_secs(5)).await;
        // What client-go's release writes; by hand, the other fields stay.
        let changed = if is_released {
            spec("", 1, "00:00:05", "00:00:05")
        } else {
            spec("", 15, "00:00:00", "00:00:02")
        };
        let mut lease = lease(&server);
        lease["spec"] = changed;
        server.seed(lease).unwrap();
        let changed_at = Instant::now();
        standby.await.unwrap();
        let waited = changed_at.elapsed().as_millis();
        let expected = if is_released { 0..50 } else { 15_000..15_050 };
        assert!(expected.contains(&waited), "released: {is_released}, waited {waited} ms");
    }
}

/// Proves LE-103.
#[tokio::test(start_paused = true)]
async fn leader_ends_as_soon_as_another_process_holds_its_lease() {
    let server = server();
    let me = contestant(&server, "me", 0).lead().await;
    sleep(Duration::from_millis(500)).await;
    edit(&server, "holderIdentity", json!("other"));
    let edited_at = Instant::now();
    let leadership = me.leadership.clone();
    assert_eq!(me.ended.await.unwrap(), TermEnd::Lost);
    assert!(edited_at.elapsed() < Duration::from_millis(50), "{:?}", edited_at.elapsed());
    assert!(!leadership.still_held());
    assert_eq!(holder(&server), "other");
    let messages: Vec<_> = me.observed.events.lock().iter().map(|event| event.message.clone()).collect();
    assert_eq!(messages, ["me became leader"], "no event while another process leads");
}

/// A process that starts cannot know whether a missing Lease had a holder; one that has observed the holder waits
/// until that holder can no longer write.
#[tokio::test(start_paused = true)]
async fn deleted_lease_of_a_dead_leader_is_taken_after_its_duration_by_a_standby_and_at_once_by_a_new_process()
 {
    for is_new in [false, true] {
        let server = server();
        let dead = contestant(&server, "dead", 0).lead().await;
        let standby = contestant(&server, "heir", 0);
        let standby = (!is_new).then(|| tokio::spawn(standby.lead()));
        sleep(Duration::from_millis(30_500)).await;
        dead.ended.abort();
        sleep(Duration::from_millis(1)).await;
        Tampering::Delete.apply(&server);
        let deleted_at = Instant::now();
        match standby {
            Some(standby) => drop(standby.await.unwrap()),
            None => drop(contestant(&server, "new", 0).lead().await),
        }
        let waited = deleted_at.elapsed().as_millis();
        let expected = if is_new { 0..50 } else { 15_000..15_050 };
        assert!(expected.contains(&waited), "new: {is_new}, waited {waited} ms");
    }
}
