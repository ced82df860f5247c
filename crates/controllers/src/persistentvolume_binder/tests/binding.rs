//! The four writes of a binding.

use super::*;

const BIND: &str = "\
get persistentvolumes pv
put persistentvolumes pv because the volume is bound to the claim
put persistentvolumes/status pv because the volume is bound to its claim
get persistentvolumeclaims a/data
put persistentvolumeclaims a/data because the claim is bound to the volume
put persistentvolumeclaims/status a/data because the claim became bound
";

/// Proves PVB-50, PVB-51, PVB-52, PVB-53, PVB-54, PVB-55, PVB-59, PVB-115, PVB-168.
#[test]
fn binding_writes_volume_and_claim_in_order_and_keeps_unknown_fields() {
    let a_loop = claims_loop();
    let transcript = cluster(&a_loop, &[claim()], &[volume("pv")]).reconcile(&a_loop, claim_key());
    let outline = cluster(&a_loop, &[claim()], &[volume("pv")]).outline(&a_loop, claim_key());
    assert_eq!(without_noise(&outline), BIND);
    let puts = puts(&transcript);
    let (volume_spec, volume_status) = (&puts[0].1, &puts[1].1);
    assert_eq!(
        volume_spec["spec"]["claimRef"],
        json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "a", "name": "data", "uid": "c-1",
               "resourceVersion": "7"})
    );
    assert_eq!(volume_spec["metadata"]["annotations"], json!({names::BOUND_BY_CONTROLLER: "yes"}));
    assert_eq!(volume_spec["metadata"]["resourceVersion"], "9");
    assert_eq!(
        volume_status["status"],
        json!({"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"})
    );
    let (claim_spec, claim_status) = (&puts[2].1, &puts[3].1);
    assert_eq!(claim_spec["spec"]["volumeName"], "pv");
    assert_eq!(claim_spec["metadata"]["resourceVersion"], "7");
    assert_eq!(
        claim_spec["metadata"]["annotations"],
        json!({names::BIND_COMPLETED: "yes", names::BOUND_BY_CONTROLLER: "yes"})
    );
    assert_eq!(
        claim_status["status"],
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})
    );
    for (_, body) in &puts {
        assert_eq!(body["spec"]["newerField"], json!({"kept": true}));
    }
}

/// Proves PVB-140, PVB-149.
#[test]
fn binding_resumes_after_each_write() {
    let a_loop = claims_loop();
    let (claim_bound, volume_bound) = bound_pair();
    let reserved = with(volume_bound.clone(), &[("/status/phase", json!("Available"))]);
    let pending = with(claim_bound.clone(), &[("/status", json!({"phase": "Pending"}))]);
    let unmarked =
        with(claim_bound.clone(), &[("/metadata/annotations/pv.kubernetes.io~1bind-completed", Value::Null)]);
    let rest = |lines: &[usize]| -> String {
        lines.iter().map(|at| format!("{}\n", BIND.lines().nth(*at).unwrap())).collect()
    };
    for (claim, volume, expected) in [
        (claim(), reserved, rest(&[0, 2, 3, 4, 5])),
        (claim(), volume_bound.clone(), rest(&[3, 4, 5])),
        (pending, volume_bound.clone(), rest(&[3, 5])),
        (unmarked, volume_bound.clone(), rest(&[3, 4])),
        (claim_bound, volume_bound, String::new()),
    ] {
        let mut cluster = cluster(&a_loop, &[claim], &[volume]);
        assert_eq!(sync_claim(&mut cluster, &a_loop), expected);
    }
}

/// Proves PVB-44, PVB-47, PVB-151.
#[test]
fn bound_claim_binds_a_volume_without_claim_ref_again_even_if_it_was_lost() {
    let a_loop = claims_loop();
    let (claim_bound, volume_bound) = bound_pair();
    let lost = with(claim_bound, &[("/status", json!({"phase": "Lost"}))]);
    let unclaimed = with(
        volume_bound,
        &[("/spec/claimRef", Value::Null), ("/spec/volumeAttributesClassName", json!("gold"))],
    );
    let transcript = cluster(&a_loop, &[lost], &[unclaimed]).reconcile(&a_loop, claim_key());
    let puts = puts(&transcript);
    let targets: Vec<_> = puts.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(targets, ["persistentvolumes", "persistentvolumeclaims/status"]);
    assert_eq!(puts[0].1["spec"]["claimRef"]["uid"], "c-1");
    assert_eq!(puts[1].1["status"]["phase"], "Bound");
    assert_eq!(puts[1].1["status"]["currentVolumeAttributesClassName"], Value::Null);
}

/// Proves PVB-51, PVB-52.
#[test]
fn reserved_volume_keeps_its_owner_and_gets_the_uid() {
    let a_loop = claims_loop();
    let reserved = with(volume("pv"), &[("/spec/claimRef", json!({"namespace": "a", "name": "data"}))]);
    let transcript = cluster(&a_loop, &[claim()], &[reserved]).reconcile(&a_loop, claim_key());
    let body = &puts(&transcript)[0].1;
    assert_eq!(body["spec"]["claimRef"]["uid"], "c-1");
    assert_eq!(body["metadata"]["annotations"], Value::Null);
}

/// Proves PVB-54.
#[test]
fn claim_that_named_its_volume_is_only_marked_as_complete() {
    let a_loop = claims_loop();
    let named = with(claim(), &[("/spec/volumeName", json!("pv"))]);
    let transcript = cluster(&a_loop, &[named], &[volume("pv")]).reconcile(&a_loop, claim_key());
    let puts = puts(&transcript);
    assert_eq!(puts[2].1["metadata"]["annotations"], json!({names::BIND_COMPLETED: "yes"}));
}

fn capacity_after(claim: Value, volume: Value) -> Option<Value> {
    let a_loop = claims_loop();
    let transcript = cluster(&a_loop, &[claim], &[volume]).reconcile(&a_loop, claim_key());
    let status = puts(&transcript).pop().filter(|(target, _)| target == "persistentvolumeclaims/status")?;
    Some(status.1["status"]["capacity"].clone())
}

/// Proves PVB-55, PVB-56, PVB-69, PVB-152.
#[test]
fn capacity_is_written_when_the_claim_becomes_bound() {
    let (bound, volume_bound) = bound_pair();
    let pending = with(bound.clone(), &[("/status", json!({"phase": "Pending"}))]);
    let more = with(volume_bound.clone(), &[("/spec/capacity", json!({"storage": "2Gi", "x/y": "1"}))]);
    assert_eq!(capacity_after(pending.clone(), more.clone()), Some(json!({"storage": "2Gi", "x/y": "1"})));
    let equal = with(pending.clone(), &[("/status/capacity", json!({"storage": "2048Mi"}))]);
    assert_eq!(capacity_after(equal, more.clone()), Some(json!({"storage": "2048Mi"})));
    let smaller = with(pending.clone(), &[("/status/capacity", json!({"storage": "1Gi"}))]);
    assert_eq!(capacity_after(smaller, more.clone()), Some(json!({"storage": "2Gi", "x/y": "1"})));
    assert_eq!(capacity_after(bound.clone(), more.clone()), None);
    let other_modes = with(more.clone(), &[("/spec/accessModes", json!(["ReadWriteOnce", "ReadOnlyMany"]))]);
    assert_eq!(capacity_after(bound, other_modes), Some(json!({"storage": "1Gi"})));
    let resizing = |text: &str| annotated(more.clone(), &[(names::PRE_RESIZE_CAPACITY, text)]);
    let with_other = with(pending.clone(), &[("/status/capacity", json!({"other": "3"}))]);
    assert_eq!(capacity_after(with_other, resizing("1Gi")), Some(json!({"storage": "1Gi", "other": "3"})));
    assert_eq!(capacity_after(pending.clone(), resizing("huge")), Some(json!({"storage": "2Gi"})));
    let a_loop = claims_loop();
    let without = with(volume_bound, &[("/spec/capacity", json!({"x/y": "1"}))]);
    let mut cluster = cluster(&a_loop, &[pending], &[without]);
    assert_eq!(
        sync_claim(&mut cluster, &a_loop),
        "retry: PersistentVolume \"pv\" is without a storage capacity\n"
    );
}

/// Proves PVB-58.
#[test]
fn current_attributes_class_is_set_from_pending_to_bound_only() {
    let (bound, volume_bound) = bound_pair();
    let gold = with(volume_bound, &[("/spec/volumeAttributesClassName", json!("gold"))]);
    let a_loop = claims_loop();
    let pending = with(bound.clone(), &[("/status/phase", json!("Pending"))]);
    let transcript = cluster(&a_loop, &[pending], &[gold.clone()]).reconcile(&a_loop, claim_key());
    assert_eq!(puts(&transcript)[0].1["status"]["currentVolumeAttributesClassName"], "gold");
    assert_eq!(sync_claim(&mut cluster(&a_loop, &[bound], &[gold]), &a_loop), "");
}

/// Proves PVB-53.
#[test]
fn message_of_a_bound_volume_stays() {
    let a_loop = claims_loop();
    let (claim, volume) = bound_pair();
    let volume = with(volume, &[("/status/message", json!("old"))]);
    assert_eq!(sync_claim(&mut cluster(&a_loop, &[claim], &[volume]), &a_loop), "");
}

/// Proves PVB-118.
#[test]
fn changed_or_deleted_object_is_not_written() {
    let a_loop = claims_loop();
    let newer = with(volume("pv"), &[("/metadata/resourceVersion", json!("10"))]);
    let mut stale = cluster(&a_loop, &[claim()], &[volume("pv")]).with_live::<PersistentVolume>(newer);
    assert_eq!(
        sync_claim(&mut stale, &a_loop),
        "get persistentvolumes pv\nretry: Operation cannot be fulfilled on persistentvolumes \"pv\": the object has \
         been modified; please apply your changes to the latest version and try again\n"
    );
    let recreated = with(volume("pv"), &[("/metadata/uid", json!("v-2"))]);
    let mut other = cluster(&a_loop, &[claim()], &[volume("pv")]).with_live::<PersistentVolume>(recreated);
    assert!(!sync_claim(&mut other, &a_loop).contains("put "));
    let mut gone = RehearsalCluster::of(&a_loop)
        .with::<PersistentVolumeClaim>(claim())
        .with_cached::<PersistentVolume>(volume("pv"));
    assert_eq!(
        sync_claim(&mut gone, &a_loop),
        "get persistentvolumes pv\nretry: persistentvolumes \"pv\" not found\n"
    );
    let versionless = with(volume("pv"), &[("/metadata/resourceVersion", Value::Null)]);
    assert!(!sync_claim(&mut cluster(&a_loop, &[claim()], &[versionless]), &a_loop).contains("put "));
}

/// Proves PVB-27.
#[test]
fn conflict_at_any_write_stops_the_binding() {
    let a_loop = claims_loop();
    for (kind, writes) in [("persistentvolumes/pv", 1), ("namespaces/a/persistentvolumeclaims/data", 3)] {
        let path = format!("/api/v1/{kind}");
        let conflict = error(ErrorReason::Conflict, "conflict");
        let mut cluster =
            cluster(&a_loop, &[claim()], &[volume("pv")]).failing_at("update", &path, conflict, None);
        let transcript = sync_claim(&mut cluster, &a_loop);
        assert_eq!(transcript.matches("put ").count(), writes, "{transcript}");
        assert!(transcript.ends_with("retry: conflict\n"), "{transcript}");
    }
}
