//! Events of claims and pods.

use super::*;

/// Proves PVCP-2, PVCP-57, PVCP-68.
#[test]
fn claim_is_enqueued_if_a_finalizer_or_the_condition_is_to_be_written() {
    let a_loop = the_loop();
    let enqueued = |claim: Value| RehearsalCluster::of(&a_loop).put::<PersistentVolumeClaim>(&a_loop, claim);
    assert_eq!(enqueued(claim("")), ["a/c"], "no condition");
    for phase in ["Pending", "Lost", "Bound"] {
        assert_eq!(enqueued(with_phase(claim(""), phase)), ["a/c"], "{phase}");
        assert_eq!(sync(cluster(with_phase(claim(""), phase))).contains(LISTED), phase == "Bound", "{phase}");
    }
    assert_eq!(enqueued(deleted(claim("True"))), ["a/c"], "deleted, with the finalizer");
    assert_eq!(enqueued(without_finalizer(claim("False"))), ["a/c"], "no finalizer");
    assert!(enqueued(claim("False")).is_empty() && enqueued(claim("True")).is_empty());
    assert!(enqueued(deleted(without_finalizer(claim("True")))).is_empty(), "nothing can be added any more");
    // A claim that becomes bound is enqueued by its own update, and a deletion enqueues nothing.
    let mut cluster = cluster(with_phase(claim(""), "Pending"));
    assert_eq!(sync_in(&mut cluster), "");
    assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, changed(claim(""), "8")), ["a/c"]);
    assert_eq!(sync_in(&mut cluster), format!("{LISTED}{UNUSED}"));
    assert!(cluster.take::<PersistentVolumeClaim>(&a_loop, &key()).is_empty());
}

fn sync_in(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(), key())
}

/// Proves PVCP-36, PVCP-67.
#[test]
fn without_the_gate_the_condition_neither_enqueues_nor_is_written() {
    let a_loop = loop_without_condition();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("")).is_empty());
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    cluster.put::<PersistentVolumeClaim>(&a_loop, changed(claim("True"), "8"));
    let mut cluster = cluster.with::<Pod>(pod());
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "an old condition stays");
    // When the gate is on again, only a pod's event corrects the condition.
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("True")).is_empty());
    assert_eq!(cluster.put::<Pod>(&a_loop, pod()), ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), USED);
}

/// Proves PVCP-1, PVCP-3, PVCP-4.
#[test]
fn every_pod_event_enqueues_its_claims_unless_only_finalizers_matter() {
    let running = changed(pod(), "4");
    let finished = with_phase(changed(pod(), "5"), "Succeeded");
    for (a_loop, ignores_running) in [(the_loop(), false), (loop_without_condition(), true)] {
        let mut cluster = RehearsalCluster::of(&a_loop);
        assert_eq!(cluster.put::<Pod>(&a_loop, unscheduled(pod())), ["a/c"], "unscheduled");
        assert_eq!(cluster.put::<Pod>(&a_loop, running.clone()).is_empty(), ignores_running);
        let cached = cluster.view().get::<Pod>(&Key::namespaced("a", "p")).unwrap().clone();
        assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty(), ignores_running);
        assert_eq!(cluster.put::<Pod>(&a_loop, finished.clone()), ["a/c"]);
        cluster.put::<Pod>(&a_loop, changed(running.clone(), "6"));
        assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "p")), ["a/c"], "deleted");
    }
    let a_loop = the_loop();
    let mut both = ephemeral_pod();
    both["spec"]["volumes"].as_array_mut().unwrap().push(pod()["spec"]["volumes"][0].clone());
    assert_eq!(RehearsalCluster::of(&a_loop).put::<Pod>(&a_loop, both), ["a/c", "a/p-v"]);
    let kinds: Vec<_> = a_loop.watches.iter().map(|watch| watch.kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["persistentvolumeclaims", "pods"]);
    assert!(a_loop.starts_without.is_empty(), "both caches are synced first");
}

/// Proves PVCP-5.
#[test]
fn pod_replaced_in_one_update_enqueues_the_claims_of_both() {
    let mut other = changed(pod(), "9");
    other["metadata"]["uid"] = json!("another");
    other["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("d");
    for a_loop in [the_loop(), loop_without_condition()] {
        let mut cluster = RehearsalCluster::of(&a_loop);
        cluster.put::<Pod>(&a_loop, pod());
        let enqueued = cluster.put::<Pod>(&a_loop, other.clone());
        assert!(enqueued.contains(&"a/c".to_owned()), "{enqueued:?}");
    }
}

/// Proves PVCP-61.
#[test]
fn nothing_corrects_the_condition_of_a_claim_whose_pod_went_while_no_manager_ran() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("False")).is_empty());
    assert_eq!(cluster.put::<Pod>(&a_loop, unscheduled(pod())), ["a/c"], "until a pod names it again");
}

/// Proves PVCP-59.
#[test]
fn restart_costs_one_list_per_namespace_and_nothing_for_unused_claims() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    let mut enqueued = Vec::new();
    for name in ["d", "e", "f"] {
        enqueued.extend(cluster.put::<PersistentVolumeClaim>(&a_loop, named(claim(""), name)));
    }
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, named(claim("True"), "g")).is_empty());
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("False")).is_empty());
    enqueued.extend(cluster.put::<Pod>(&a_loop, pod()));
    assert_eq!(enqueued, ["a/d", "a/e", "a/f", "a/c"]);
    let transcript: String = enqueued
        .iter()
        .map(|item| cluster.reconcile(&a_loop, Key::namespaced("a", item.split_once('/').unwrap().1)))
        .collect();
    assert_eq!(transcript.matches(LISTED).count(), 1, "{transcript}");
    assert_eq!(transcript.matches("no pod uses the claim any more").count(), 3, "{transcript}");
    assert!(!transcript.contains("a/c"), "the used claim says so already");
}
