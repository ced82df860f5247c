//! Volumes and their claims.

use super::*;

fn claimed(changes: &[(&str, Value)]) -> Value {
    let (_, volume) = bound_pair();
    with(volume, changes)
}

/// Proves PVB-60.
#[test]
fn volume_without_a_bound_claim_is_available() {
    let a_loop = volumes_loop();
    for (phase, claim_ref) in
        [("Pending", Value::Null), ("Released", Value::Null), ("Failed", bound_ref("")), ("", Value::Null)]
    {
        let volume = with(
            volume("pv"),
            &[
                ("/status/phase", json!(phase)),
                ("/status/message", json!("old")),
                ("/spec/claimRef", claim_ref),
            ],
        );
        let transcript = cluster(&a_loop, &[], &[volume]).reconcile(&a_loop, volume_key("pv"));
        let puts = puts(&transcript);
        assert_eq!((puts.len(), puts[0].0.as_str()), (1, "persistentvolumes/status"), "{transcript}");
        let status = json!({"phase": "Available", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"});
        assert_eq!(puts[0].1["status"], status);
    }
    assert_eq!(sync_volume(&mut cluster(&a_loop, &[], &[volume("pv")]), &a_loop), "");
}

const RELEASED: &str =
    "put persistentvolumes/status pv because the claim of the volume is gone or bound elsewhere\n";

/// Proves PVB-61, PVB-66, PVB-71, PVB-142, PVB-173.
#[test]
fn volume_is_released_only_if_the_api_server_has_no_such_claim() {
    let a_loop = volumes_loop();
    let (claim, volume) = bound_pair();
    let mut gone = cluster(&a_loop, &[], &[volume.clone()]);
    assert_eq!(sync_volume(&mut gone, &a_loop), format!("{GET_CLAIM}get persistentvolumes pv\n{RELEASED}"));
    let mut behind = cluster(&a_loop, &[], &[volume.clone()]).with_live::<PersistentVolumeClaim>(claim);
    assert_eq!(sync_volume(&mut behind, &a_loop), GET_CLAIM);
    for reason in [ErrorReason::Unavailable, ErrorReason::Forbidden, ErrorReason::ConnectionLost] {
        let mut down = cluster(&a_loop, &[], &[volume.clone()]).failing::<PersistentVolumeClaim>(
            "get",
            &claim_key(),
            error(reason, "down"),
        );
        let transcript = sync_volume(&mut down, &a_loop);
        assert!(transcript.starts_with(&format!("{GET_CLAIM}retry: ")), "{transcript}");
        assert!(!transcript.contains("put "), "{transcript}");
    }
    let nameless = claimed(&[("/spec/claimRef/name", Value::Null)]);
    let transcript = sync_volume(&mut cluster(&a_loop, &[], &[nameless]), &a_loop);
    assert!(transcript.starts_with("retry: ") && !transcript.contains("put "), "{transcript}");
}

/// Proves PVB-143, PVB-66.
#[test]
fn released_or_failed_volume_needs_no_live_claim() {
    let a_loop = volumes_loop();
    for phase in ["Released", "Failed"] {
        let volume = claimed(&[("/status/phase", json!(phase))]);
        assert_eq!(sync_volume(&mut cluster(&a_loop, &[], &[volume]), &a_loop), "");
    }
}

/// Proves PVB-62, PVB-63, PVB-122.
#[test]
fn unbound_claim_is_enqueued_or_reports_the_volume_mode() {
    let a_loop = volumes_loop();
    let mut cluster_of = cluster(&a_loop, &[claim()], &[claimed(&[])]);
    let transcript = sync_volume(&mut cluster_of, &a_loop);
    assert!(transcript.contains("a/data") && transcript.contains("claims"), "{transcript}");
    assert!(!transcript.contains("put ") && !transcript.contains("event "), "{transcript}");
    let block = claimed(&[("/spec/volumeMode", json!("Block"))]);
    assert_eq!(
        sync_volume(&mut cluster(&a_loop, &[claim()], &[block]), &a_loop),
        "event Warning VolumeMismatch on PersistentVolume pv uid=v-pv: Cannot bind PersistentVolume to requested \
         PersistentVolumeClaim \"data\" due to incompatible volumeMode.\n\
         event Warning VolumeMismatch on PersistentVolumeClaim a/data uid=c-1: Cannot bind PersistentVolume \"pv\" to \
         requested PersistentVolumeClaim due to incompatible volumeMode.\n"
    );
}

/// Proves PVB-64.
#[test]
fn volume_that_its_claim_names_is_bound() {
    let a_loop = volumes_loop();
    let (claim, volume) = bound_pair();
    assert_eq!(sync_volume(&mut cluster(&a_loop, &[claim.clone()], &[volume]), &a_loop), "");
    let released = claimed(&[("/status/phase", json!("Released"))]);
    assert_eq!(
        sync_volume(&mut cluster(&a_loop, &[claim], &[released]), &a_loop),
        "get persistentvolumes pv\nput persistentvolumes/status pv because the volume is bound to its claim\n"
    );
}

/// Proves PVB-65, PVB-144, PVB-172.
#[test]
fn claim_with_another_uid_is_read_live_in_every_phase() {
    let a_loop = volumes_loop();
    let (claim, volume) = bound_pair();
    let other = with(claim.clone(), &[("/metadata/uid", json!("c-2"))]);
    let mut recreated = cluster(&a_loop, &[other.clone()], &[volume.clone()]);
    assert_eq!(
        sync_volume(&mut recreated, &a_loop),
        format!("{GET_CLAIM}get persistentvolumes pv\n{RELEASED}")
    );
    let released = claimed(&[("/status/phase", json!("Released"))]);
    assert_eq!(sync_volume(&mut cluster(&a_loop, &[other.clone()], &[released]), &a_loop), GET_CLAIM);
    // The cached claim is the older one.
    let mut behind = RehearsalCluster::of(&a_loop)
        .with::<PersistentVolume>(volume.clone())
        .with_cached::<PersistentVolumeClaim>(other.clone())
        .with_live::<PersistentVolumeClaim>(claim);
    assert_eq!(sync_volume(&mut behind, &a_loop), GET_CLAIM);
    let mut down = cluster(&a_loop, &[other], &[volume]).failing::<PersistentVolumeClaim>(
        "get",
        &claim_key(),
        error(ErrorReason::Unavailable, "down"),
    );
    assert!(!sync_volume(&mut down, &a_loop).contains("put "));
}

/// Proves PVB-67, PVB-68, PVB-141.
#[test]
fn volume_whose_claim_is_bound_elsewhere_is_unbound_or_released() {
    let a_loop = volumes_loop();
    let (claim, _) = bound_pair();
    let elsewhere = with(claim, &[("/spec/volumeName", json!("other"))]);
    let bodies = |volume: Value| {
        let transcript =
            cluster(&a_loop, &[elsewhere.clone()], &[volume]).reconcile(&a_loop, volume_key("pv"));
        puts(&transcript)
    };
    let by_controller = bodies(claimed(&[]));
    assert_eq!(by_controller[0].1["spec"]["claimRef"], Value::Null);
    assert_eq!(by_controller[0].1["metadata"].get("annotations"), None);
    assert_eq!(by_controller[1].1["status"]["phase"], "Available");
    let by_user = bodies(claimed(&[("/metadata/annotations", json!({"kept": "x"}))]));
    assert_eq!(by_user[0].1["spec"]["claimRef"]["name"], "data");
    assert_eq!(by_user[0].1["spec"]["claimRef"].get("uid"), None);
    assert_eq!(by_user[0].1["metadata"]["annotations"], json!({"kept": "x"}));
    let dynamic = [
        ("/metadata/annotations", json!({names::PROVISIONED_BY: "csi.d"})),
        ("/spec/persistentVolumeReclaimPolicy", json!("Delete")),
        ("/spec/local", Value::Null),
        ("/spec/csi", json!({"driver": "csi.d", "volumeHandle": "h"})),
    ];
    let released = bodies(claimed(&dynamic));
    assert_eq!((released.len(), &released[0].1["status"]["phase"]), (1, &json!("Released")));
    let retained =
        bodies(with(claimed(&dynamic), &[("/spec/persistentVolumeReclaimPolicy", json!("Retain"))]));
    assert_eq!(retained[1].1["status"]["phase"], "Available");
}

/// Proves PVB-99, PVB-100, PVB-101, PVB-102.
#[test]
fn finalizers_follow_the_plugin_and_the_policy() {
    let a_loop = volumes_loop();
    let (in_tree, external) = (names::IN_TREE_FINALIZER, names::EXTERNAL_FINALIZER);
    let after = |provisioner: Option<&str>, policy: &str, finalizers: &[&str]| {
        let volume = with(
            volume("pv"),
            &[
                ("/spec/persistentVolumeReclaimPolicy", json!(policy)),
                ("/metadata/finalizers", json!(finalizers)),
            ],
        );
        let volume =
            provisioner.map_or(volume.clone(), |name| annotated(volume, &[(names::PROVISIONED_BY, name)]));
        let transcript = cluster(&a_loop, &[], &[volume]).reconcile(&a_loop, volume_key("pv"));
        let put = puts(&transcript).into_iter().find(|(target, _)| target == "persistentvolumes");
        put.map(|(_, body)| body["metadata"]["finalizers"].clone())
    };
    assert_eq!(after(None, "Delete", &[]), None);
    assert_eq!(after(Some("csi.d"), "Delete", &[in_tree, external]), None);
    assert_eq!(
        after(Some("kubernetes.io/aws-ebs"), "Delete", &["x/y", in_tree, external]),
        Some(json!(["x/y", external]))
    );
    assert_eq!(after(Some("kubernetes.io/rbd"), "Delete", &["x/y"]), Some(json!(["x/y", in_tree])));
    assert_eq!(after(Some("kubernetes.io/rbd"), "Delete", &["x/y", in_tree]), None);
    assert_eq!(after(Some("kubernetes.io/rbd"), "Delete", &[external, "x/y"]), Some(json!(["x/y", in_tree])));
    assert_eq!(after(Some("kubernetes.io/rbd"), "Retain", &[in_tree]), Some(Value::Null));
    assert_eq!(after(Some("kubernetes.io/rbd"), "Recycle", &["x/y", in_tree]), Some(json!(["x/y"])));
}

/// Proves PVB-102, PVB-155.
#[test]
fn annotation_and_finalizers_go_in_one_update_and_its_error_is_retried() {
    let a_loop = volumes_loop();
    let volume = with(
        annotated(volume("pv"), &[(names::PROVISIONED_BY, "kubernetes.io/aws-ebs")]),
        &[("/metadata/finalizers", json!([names::IN_TREE_FINALIZER]))],
    );
    let transcript = cluster(&a_loop, &[], &[volume.clone()]).reconcile(&a_loop, volume_key("pv"));
    let puts = puts(&transcript);
    assert_eq!(puts.len(), 1);
    assert_eq!(puts[0].1["metadata"]["annotations"][names::MIGRATED_TO], "ebs.csi.aws.com");
    assert_eq!(puts[0].1["metadata"].get("finalizers"), None);
    let path = PersistentVolume::RESOURCE.object_path(&volume_key("pv"));
    let mut refusing = cluster(&a_loop, &[], &[volume]).failing_at(
        "update",
        &path,
        error(ErrorReason::Invalid, "finalizers: Forbidden"),
        None,
    );
    assert!(sync_volume(&mut refusing, &a_loop).ends_with(
        "retry: persistent Volume Controller can't anneal migration annotations or finalizer: finalizers: Forbidden\n"
    ));
}

/// Proves PVB-127, PVB-128, PVB-129, PVB-159.
#[test]
fn gauges_count_volumes_and_claims() {
    let a_loop = volumes_loop();
    let (claim, _) = bound_pair();
    let nfs = with(
        claimed(&[("/spec/storageClassName", json!("fast"))]),
        &[("/spec/local", Value::Null), ("/spec/nfs", json!({"server": "s", "path": "/"}))],
    );
    let block = with(volume("b"), &[("/spec/volumeMode", json!("Block"))]);
    let unbound = with(
        super::claim(),
        &[("/metadata/name", json!("other")), ("/spec/volumeAttributesClassName", json!("gold"))],
    );
    let mut cluster = cluster(&a_loop, &[claim, unbound], &[nfs, block]);
    let transcript = cluster.reconcile(&a_loop, volume_key("pv"));
    let gauges: Vec<&str> =
        transcript.lines().filter_map(|line| line.strip_prefix("measure pv_collector_")).collect();
    assert_eq!(
        gauges,
        [
            "total_pv_count{N/A,Block} 1",
            "total_pv_count{kubernetes.io/nfs,Filesystem} 1",
            "bound_pv_count{fast} 1",
            "unbound_pv_count{} 1",
            "bound_pvc_count{a,,} 1",
            "unbound_pvc_count{a,,gold} 1",
        ]
    );
}
