//! The finalizer: added to living claims, removed from deleted ones that no pod uses.

use super::*;

/// Proves PVCP-10, PVCP-12, PVCP-14, PVCP-40.
#[test]
fn unused_deleted_claim_loses_the_finalizer_and_nothing_else() {
    let mut twice = deleted(claim("True"));
    twice["metadata"]["finalizers"].as_array_mut().unwrap().push(json!(FINALIZER));
    assert_eq!(sync(cluster(twice.clone())), format!("{LISTED}{REMOVED}"));
    let mut wanted = twice.clone();
    wanted["metadata"]["finalizers"] = json!(["example.com/first", "example.com/last"]);
    assert_eq!(written(cluster(twice)), wanted, "unknown fields survive");
    assert_eq!(sync(cluster(deleted(without_finalizer(claim("True"))))), "", "without the finalizer");
    assert_eq!(sync(RehearsalCluster::of(&the_loop())), "", "gone");
    // A used claim keeps it, without a retry.
    assert_eq!(sync(cluster(deleted(claim("True"))).with::<Pod>(pod())), "");
}

/// Proves PVCP-13.
#[test]
fn living_claim_gets_the_finalizer_at_the_end() {
    let mut claim = without_finalizer(claim("True"));
    assert_eq!(sync(cluster(claim.clone())), ADDED);
    let with = written(cluster(claim.clone()));
    assert_eq!(with["metadata"]["finalizers"], json!(["example.com/first", FINALIZER]));
    claim["metadata"].as_object_mut().unwrap().remove("finalizers");
    assert_eq!(written(cluster(claim))["metadata"]["finalizers"], json!([FINALIZER]));
}

/// Proves PVCP-20, PVCP-52, PVCP-53.
#[test]
fn scheduled_pod_keeps_the_claim_whatever_its_phase() {
    for phase in ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""] {
        let cluster = cluster(deleted(claim("True"))).with::<Pod>(with_phase(pod(), phase));
        assert_eq!(sync(cluster), "", "{phase}");
    }
    let mut unmounted = pod();
    unmounted["spec"]["containers"] = json!([{"name": "x", "volumeMounts": []}]);
    assert_eq!(sync(cluster(deleted(claim("True"))).with::<Pod>(unmounted)), "");
    let waiting = unscheduled(with_phase(pod(), "Pending"));
    let transcript = sync(cluster(deleted(claim("False"))).with::<Pod>(waiting.clone()));
    assert_eq!(transcript, format!("{LISTED}{REMOVED}"), "no kubelet starts a pod with a terminating claim");
    // For the condition it is the other way round.
    assert_eq!(sync(cluster(claim("True")).with::<Pod>(waiting)), USED);
    let finished = with_phase(pod(), "Succeeded");
    assert_eq!(sync(cluster(claim("False")).with::<Pod>(finished)), format!("{LISTED}{UNUSED}"));
}

/// Proves PVCP-21, PVCP-54, PVCP-55, PVCP-69.
#[test]
fn ephemeral_claim_waits_until_its_own_pod_is_shut_down() {
    let item = Key::namespaced("a", "p-v");
    let released = |claim: Value, pod: Value| {
        let mut cluster = cluster(deleted(claim)).with::<Pod>(pod);
        let transcript = cluster.reconcile(&the_loop(), item.clone());
        assert!(transcript.is_empty() || transcript.starts_with(LISTED), "{transcript}");
        transcript.contains("no pod uses it")
    };
    let own = || ephemeral_claim("True", "p-uid");
    assert!(!released(own(), ephemeral_pod()));
    assert!(!released(own(), terminating(ephemeral_pod(), 30)), "the kubelet is not done yet");
    assert!(released(own(), terminating(ephemeral_pod(), 0)), "shut down, or force-deleted");
    assert!(released(own(), unscheduled(ephemeral_pod())));
    assert!(released(ephemeral_claim("True", "another"), ephemeral_pod()), "the claim of another pod");
    let mut no_controller = own();
    no_controller["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    assert!(released(no_controller, ephemeral_pod()));
    // An ordinary claim waits for a force-deleted pod, too.
    assert_eq!(sync(cluster(deleted(claim("True"))).with::<Pod>(terminating(pod(), 0))), "");
}

/// Proves PVCP-24, PVCP-25, PVCP-51, PVCP-66.
#[test]
fn only_a_live_list_shows_that_a_claim_is_unused() {
    // The cache knows no user, the API server does.
    let only_live = cluster(deleted(claim("True"))).with_live::<Pod>(pod());
    assert_eq!(sync(only_live), LISTED);
    let only_live = cluster(claim("False")).with_live::<Pod>(pod());
    assert_eq!(sync(only_live), LISTED, "the condition stays False");
    // The cache knows one, so nothing is asked; its deletion enqueues the claim.
    let a_loop = the_loop();
    let mut only_cached = cluster(deleted(claim("True"))).with_cached::<Pod>(pod());
    assert_eq!(only_cached.reconcile(&a_loop, key()), "");
    assert_eq!(only_cached.take::<Pod>(&a_loop, &Key::namespaced("a", "p")), ["a/c"]);
    assert_eq!(only_cached.reconcile(&a_loop, key()), format!("{LISTED}{REMOVED}"));
}

/// Proves PVCP-26.
#[test]
fn claims_deleted_together_share_one_list() {
    let a_loop = the_loop();
    let cluster = (0..100).fold(RehearsalCluster::of(&a_loop), |cluster, n| {
        cluster.with::<PersistentVolumeClaim>(deleted(named(claim("True"), &format!("c{n}"))))
    });
    let mut live_only = pod();
    live_only["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("c50");
    let mut cluster = cluster.with_live::<Pod>(live_only);
    let mut all = String::new();
    for n in 0..100 {
        all += &cluster.reconcile(&a_loop, Key::namespaced("a", format!("c{n}").as_str()));
    }
    // One list for all, and one more for the claim that a live pod uses: it may have gone since.
    assert_eq!(all.matches(LISTED).count(), 2, "{all}");
    assert_eq!(all.matches("no pod uses it").count(), 99);
    assert!(!all.contains("a/c50 "), "{all}");
    // The answer is used once, and only for the state of the claim before the list.
    let again = |cluster: &mut RehearsalCluster| cluster.reconcile(&a_loop, Key::namespaced("a", "c7"));
    assert!(!again(&mut cluster).starts_with(LISTED), "the second list has shown it once more");
    assert!(again(&mut cluster).starts_with(LISTED));
    let newer = changed(deleted(named(claim("True"), "c8")), "70");
    cluster.put::<PersistentVolumeClaim>(&a_loop, newer);
    assert!(cluster.reconcile(&a_loop, Key::namespaced("a", "c8")).starts_with(LISTED));
    cluster.advance_clock(Duration::from_secs(11));
    assert!(cluster.reconcile(&a_loop, Key::namespaced("a", "c9")).starts_with(LISTED), "too old");
}

/// A claim that was deleted after the list must not be judged by it: a pod may have been scheduled in between.
///
/// Proves PVCP-26, PVCP-51.
#[test]
fn claim_deleted_after_a_list_needs_another_one() {
    let a_loop = the_loop();
    let mut cluster = cluster(claim("")).with::<PersistentVolumeClaim>(deleted(named(claim("True"), "d")));
    let transcript = cluster.reconcile(&a_loop, Key::namespaced("a", "d"));
    assert!(transcript.starts_with(LISTED) && transcript.contains("no pod uses it"));
    cluster.put::<PersistentVolumeClaim>(&a_loop, changed(deleted(claim("")), "8"));
    let mut cluster = cluster.with_live::<Pod>(pod());
    assert_eq!(cluster.reconcile(&a_loop, key()), LISTED, "the new pod keeps it");
}

/// Proves PVCP-26, PVCP-64.
#[test]
fn failed_list_changes_nothing_and_is_retried() {
    for (reason, code) in [(ErrorReason::Forbidden, 403), (ErrorReason::Unavailable, 500)] {
        for claim in [deleted(claim("True")), claim(""), claim("False")] {
            let error = ApiError { reason, code, message: "no".to_owned(), retry_after: None };
            let other = deleted(named(super::claim("True"), "d"));
            let mut cluster = cluster(claim.clone()).with::<PersistentVolumeClaim>(other).failing_at(
                "list",
                &pods_path(),
                error,
                Some(1),
            );
            let a_loop = the_loop();
            let transcript = cluster.reconcile(&a_loop, key());
            assert_eq!(transcript, format!("{LISTED}retry: live list of pods failed: no\n"));
            assert_eq!(*cluster.live_object::<PersistentVolumeClaim>(&key()).unwrap(), claim);
            // The failure is not shared: the next claim lists again.
            assert!(cluster.reconcile(&a_loop, Key::namespaced("a", "d")).starts_with(LISTED));
        }
    }
}

/// Proves PVCP-65.
#[test]
fn pod_of_another_namespace_does_not_use_the_claim() {
    let mut elsewhere = pod();
    elsewhere["metadata"]["namespace"] = json!("b");
    let cluster = cluster(deleted(claim("True"))).with::<Pod>(elsewhere);
    assert_eq!(sync(cluster), format!("{LISTED}{REMOVED}"));
    let reads: Vec<_> = the_loop().reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(reads, ["persistentvolumeclaims", "pods"], "nothing else is read");
}

/// Proves PVCP-42.
#[test]
fn failed_write_is_retried() {
    for reason in [ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable] {
        for claim in [deleted(claim("True")), without_finalizer(claim("True")), claim("False"), claim("")] {
            let error = ApiError::transport(reason, "refused");
            let cluster = cluster(claim.clone()).failing::<PersistentVolumeClaim>("update", &key(), error);
            let transcript = sync(cluster);
            assert!(transcript.contains("retry: ") && transcript.ends_with("refused\n"), "{transcript}");
        }
    }
}

/// Proves PVCP-40.
#[test]
fn finalizer_is_written_only_to_the_state_that_was_judged() {
    for claim in [deleted(claim("True")), without_finalizer(claim("True"))] {
        let plan_of = |cluster: RehearsalCluster| sync(cluster);
        let newer = changed(claim.clone(), "8");
        let stale = RehearsalCluster::of(&the_loop())
            .with_cached::<PersistentVolumeClaim>(claim.clone())
            .with_live::<PersistentVolumeClaim>(newer.clone());
        assert!(plan_of(stale).ends_with("(resourceVersion changed)\n"));
        // The event of the newer state enqueues the claim again.
        let a_loop = the_loop();
        assert_eq!(cluster(claim.clone()).put::<PersistentVolumeClaim>(&a_loop, newer), ["a/c"]);
    }
    // A removal checks the live deletionTimestamp as well.
    let removal = remove_finalizer(
        &serde_json::from_value::<PersistentVolumeClaim>(deleted(claim("True"))).unwrap(),
        FINALIZER,
        |_| false,
    );
    let Action::Edit(Edit { change, expected_resource_version, .. }) = &removal.action else {
        panic!("an edit")
    };
    assert!(expected_resource_version.is_some());
    assert_eq!(change(&mut claim("True")), keleustes_plan::Edited::Unneeded);
    assert_eq!(
        Plan::of(removal.because("it is not used"))
            .steps()
            .iter()
            .map(Step::writes)
            .map(<[_]>::len)
            .sum::<usize>(),
        1
    );
}

/// Proves PVCP-10.
#[test]
fn recreated_claim_is_judged_by_its_own_state() {
    let a_loop = the_loop();
    let mut cluster = cluster(deleted(claim("True")));
    let mut recreated = changed(claim("True"), "9");
    recreated["metadata"]["uid"] = json!("new");
    cluster.put::<PersistentVolumeClaim>(&a_loop, recreated);
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "the new claim is not deleted");
}
