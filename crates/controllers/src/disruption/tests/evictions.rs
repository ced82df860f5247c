//! Granted evictions: pods that are about to be deleted.

use super::*;

/// A budget that keeps two of its pods, with these granted evictions.
fn granted(disrupted: Value) -> Value {
    with_status(budget(json!({"minAvailable": 1})), json!({"disruptedPods": disrupted}))
}

/// Proves PDB-35, PDB-37, PDB-38.
#[test]
fn entries_of_pods_that_are_still_there_are_kept_and_rechecked_at_the_earliest_deadline() {
    let pods = [pod("kept"), pod("later"), pod("unknown"), terminating(pod("going")), not_ready(pod("sick"))];
    let disrupted = json!({"kept": at(-20), "later": at(-10), "going": at(-20), "missing": at(-20)});
    let synced = sync(&mut cluster(granted(disrupted), &pods));
    assert_eq!(synced.status()["disruptedPods"], json!({"kept": at(-20), "later": at(-10)}));
    assert_eq!(synced.numbers(), [5, 1, 1, 0], "only one is healthy");
    assert_eq!(synced.queued, ["enqueue a/web in disruption_recheck after 100s"]);
    assert!(synced.events.is_empty(), "{synced:?}");
    let none = sync(&mut cluster(granted(json!({"missing": at(-20)})), &[pod("unknown")]));
    assert!(none.queued.is_empty() && none.status()["disruptedPods"].is_null(), "{none:?}");
}

/// Proves PDB-37.
#[test]
fn a_budget_is_rechecked_also_without_an_update_but_not_after_a_failed_one() {
    let mut cluster = cluster(granted(json!({"p": at(-20)})), &[pod("p")]);
    let status = sync(&mut cluster).status().clone();
    let settled = super::cluster(with_status(budget(json!({"minAvailable": 1})), status), &[pod("p")]);
    let mut settled = settled.with_clock_advanced(Duration::from_millis(500));
    let synced = sync(&mut settled);
    assert!(synced.updates.is_empty(), "{synced:?}");
    assert_eq!(synced.queued, ["enqueue a/web in disruption_recheck after 99.5s"]);
    let error = keleustes_objects::ApiError::transport(keleustes_objects::ErrorReason::Invalid, "refused");
    let mut failing = cluster.failing::<PodDisruptionBudget>("update", &key("web"), error);
    assert!(sync(&mut failing).queued.is_empty());
}

/// Proves PDB-36, PDB-60, PDB-62, PDB-92.
#[test]
fn an_overdue_entry_is_dropped_and_its_pod_counts_again() {
    // The pod may be another one of the same name: UIDs are not compared.
    let mut cluster = cluster(granted(json!({"p": at(-121), "q": null})), &[pod("p"), pod("q"), pod("r")]);
    let synced = sync(&mut cluster);
    assert_eq!(
        synced.events,
        [
            "Warning NotDeleted on Pod a/p uid=uid-p: Pod was expected by PDB a/a to be deleted but it wasn't",
            "Warning NotDeleted on Pod a/q uid=uid-q: Pod was expected by PDB a/a to be deleted but it wasn't",
        ]
    );
    assert!(synced.status()["disruptedPods"].is_null() && synced.queued.is_empty(), "{synced:?}");
    assert_eq!(synced.numbers(), [3, 1, 3, 2]);
    let recreated = super::cluster(granted(json!({"p": at(-60)})), &[pod("p"), pod("r")]);
    assert_eq!(sync(&mut { recreated }).numbers(), [2, 1, 1, 0], "not healthy before");
}

/// Proves PDB-93.
#[test]
fn an_entry_exactly_two_minutes_old_is_kept_while_its_pod_is_healthy() {
    let budget = granted(json!({"p": at(-120), "q": at(-119)}));
    let mut cluster = cluster(budget, &[pod("p"), pod("q")]);
    let synced = sync(&mut cluster);
    assert_eq!(synced.status()["disruptedPods"], json!({"p": at(-120), "q": at(-119)}));
    assert_eq!((synced.numbers(), synced.events.len()), ([2, 1, 1, 0], 0));
    cluster.advance_clock(Duration::from_nanos(1));
    let synced = sync(&mut cluster);
    assert_eq!(synced.status()["disruptedPods"], json!({"q": at(-119)}));
    assert_eq!(synced.reasons(), ["NotDeleted"]);
}

/// Proves PDB-81.
#[test]
fn an_entry_of_the_future_counts_until_two_minutes_after_it() {
    let mut cluster = cluster(granted(json!({"p": at(600)})), &[pod("p"), pod("q")]);
    let synced = sync(&mut cluster);
    assert_eq!(synced.numbers(), [2, 1, 1, 0]);
    assert_eq!(synced.status()["disruptedPods"], json!({"p": at(600)}));
    assert_eq!(synced.queued, ["enqueue a/web in disruption_recheck after 720s"]);
}
