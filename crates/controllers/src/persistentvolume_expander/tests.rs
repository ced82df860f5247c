//! Claims that grow, on volumes of every kind.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
use keleustes_objects::ErrorReason;
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;

use super::*;

const GET: &str = "get persistentvolumes pv\n";
const WAITING: &str = "event Normal ExternalExpanding on PersistentVolumeClaim a/c uid=c-uid: waiting for an external \
                       controller to expand this PVC\n";

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn key() -> Key {
    Key::namespaced("a", "c")
}

fn claim(request: &str, capacity: &str) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "c-uid", "resourceVersion": "7"},
        "spec": {"volumeName": "pv", "resources": {"requests": {"storage": request}}},
        "status": {"phase": "Bound", "capacity": {"storage": capacity}},
    })
}

/// A volume of 1 GiB that is bound to the claim.
fn volume(source: &str, fields: Value) -> Value {
    json!({
        "metadata": {"name": "pv", "uid": "pv-uid", "resourceVersion": "5"},
        "spec": {"capacity": {"storage": "1Gi"}, source: fields,
                 "claimRef": {"namespace": "a", "name": "another", "uid": "c-uid"}},
    })
}

fn csi() -> Value {
    volume("csi", json!({"driver": "d", "volumeHandle": "h"}))
}

fn flex() -> Value {
    volume("flexVolume", json!({"driver": "example.com/flex"}))
}

fn annotated(mut volume: Value) -> Value {
    volume["metadata"]["annotations"] = json!({PRE_RESIZE_CAPACITY: ""});
    volume
}

fn cluster(claim: Value, volume: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop())
        .with::<PersistentVolumeClaim>(claim)
        .with_live::<PersistentVolume>(volume)
}

fn sync(mut cluster: RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(), key())
}

/// Proves EXP-1, EXP-4.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller();
    assert_eq!(controller.name, "persistentvolume-expander-controller");
    assert_eq!(crate::names::aliases_of(controller.name), ["persistentvolume-expander"]);
    assert_eq!(controller.service_account, Some("expand-controller"));
    assert_eq!(controller.event_component, Some("volume_expand"));
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("volume_expand", 10, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    let kinds: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["persistentvolumeclaims"], "volumes are read live");
}

/// Proves EXP-2, EXP-3, EXP-50, EXP-51, EXP-52, EXP-58.
#[test]
fn bound_claim_is_enqueued_if_it_is_new_or_grows() {
    let a_loop = the_loop();
    let mut version = 7;
    let mut cluster = RehearsalCluster::of(&a_loop);
    let mut put = |cluster: &mut RehearsalCluster, mut claim: Value| {
        version += 1;
        claim["metadata"]["resourceVersion"] = json!(version.to_string());
        !cluster.put::<PersistentVolumeClaim>(&a_loop, claim).is_empty()
    };
    assert!(put(&mut cluster, claim("1Gi", "1Gi")), "an addition, as after every restart");
    let cached = cluster.view().get::<PersistentVolumeClaim>(&key()).unwrap().clone();
    assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
    assert!(put(&mut cluster, claim("2Gi", "1Gi")), "a larger request");
    assert!(!put(&mut cluster, claim("2048Mi", "1Gi")), "the same request");
    assert!(put(&mut cluster, claim("2048Mi", "2Gi")), "a larger capacity");
    assert!(!put(&mut cluster, claim("2Gi", "2048Mi")), "the same capacity");
    assert!(!put(&mut cluster, claim("1Gi", "2Gi")), "a smaller request");
    let mut lost = claim("5Gi", "2Gi");
    lost["status"]["phase"] = json!("Lost");
    assert!(!put(&mut cluster, lost));
    let mut unbound = claim("5Gi", "2Gi");
    unbound["status"] = json!({"phase": "Pending"});
    assert!(!put(&mut cluster, unbound), "not bound");
    assert!(put(&mut cluster, claim("5Gi", "1Gi")), "bound: the capacity grows from nothing");
    assert_eq!(cluster.take::<PersistentVolumeClaim>(&a_loop, &key()), ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "and nothing is found");
}

/// Proves EXP-10, EXP-11, EXP-54, EXP-57.
#[test]
fn volume_that_cannot_be_read_is_tried_again() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    let mut lost = claim("2Gi", "1Gi");
    lost["status"]["phase"] = json!("Lost");
    let mut cluster = cluster.with::<PersistentVolumeClaim>(lost);
    let missing = "retry: failed to get PV \"pv\": persistentvolumes \"pv\" not found\n";
    assert_eq!(cluster.reconcile(&a_loop, key()), format!("{GET}{missing}"), "whatever its phase");
    let error = ApiError::transport(ErrorReason::Unavailable, "no etcd");
    let failing = super::tests::cluster(claim("2Gi", "1Gi"), csi()).failing::<PersistentVolume>(
        "get",
        &Key::cluster("pv"),
        error,
    );
    assert_eq!(sync(failing), format!("{GET}retry: failed to get PV \"pv\": no etcd\n"));
    let mut unbound = claim("2Gi", "0");
    unbound["spec"]["volumeName"] = json!("");
    let wanted = "retry: failed to get PV \"\": resource name may not be empty\n";
    assert_eq!(sync(super::tests::cluster(unbound, csi())), wanted);
}

/// Proves EXP-12.
#[test]
fn volume_of_another_claim_is_not_touched() {
    let wanted = format!("{GET}retry: persistent Volume is not bound to PVC being updated : a/c\n");
    for (field, value) in [("uid", json!("another")), ("namespace", json!("b"))] {
        let mut other = volume("awsElasticBlockStore", json!({"volumeID": "v"}));
        other["spec"]["claimRef"][field] = value;
        assert_eq!(sync(cluster(claim("2Gi", "1Gi"), other)), wanted, "{field}");
    }
    let mut free = csi();
    free["spec"].as_object_mut().unwrap().remove("claimRef");
    assert_eq!(sync(cluster(claim("2Gi", "1Gi"), free)), wanted);
}

/// Proves EXP-13, EXP-53, EXP-55.
#[test]
fn claim_that_has_what_it_asks_for_needs_nothing() {
    assert_eq!(sync(cluster(claim("1Gi", "1024Mi"), csi())), GET);
    assert_eq!(sync(cluster(claim("1Gi", "2Gi"), csi())), GET);
    let mut empty = claim("0", "0");
    empty["spec"]["resources"] = Value::Null;
    empty["status"].as_object_mut().unwrap().remove("capacity");
    assert_eq!(sync(cluster(empty, csi())), GET);
    let cluster = cluster(claim("1Gi", "1Gi"), annotated(csi()));
    assert_eq!(sync(cluster), format!("{GET}{WAITING}"), "the annotation stays");
}

/// Proves EXP-5, EXP-15, EXP-25, EXP-26, EXP-40, EXP-43, EXP-56.
#[test]
fn external_resizer_expands_all_volumes_but_flex_volumes() {
    for source in ["csi", "hostPath", "nfs", "fc", "iscsi", "local", "unknown"] {
        let cluster = cluster(claim("2Gi", "1Gi"), volume(source, json!({})));
        assert_eq!(sync(cluster), format!("{GET}{WAITING}"), "{source}: one event, no write");
    }
    let mut deleted = claim("2Gi", "1Gi");
    deleted["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    assert_eq!(sync(cluster(deleted, csi())), format!("{GET}{WAITING}"));
    assert!(controller().metrics.is_empty() && controller().debug_handler.is_none());
}

/// Proves EXP-14, EXP-20, EXP-21, EXP-22, EXP-39, EXP-41.
#[test]
fn claim_of_a_migrated_volume_names_its_driver() {
    for (source, plugin, driver) in [
        ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
        ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com"),
        ("vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
        ("portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ] {
        for present in [None, Some(driver), Some("other")] {
            let mut claim = claim("2Gi", "1Gi");
            claim["metadata"]["annotations"] = json!({STORAGE_RESIZER: present});
            if present.is_none() {
                claim["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            let wanted = format!(
                "{GET}event Normal ExternalExpanding on PersistentVolumeClaim a/c uid=c-uid: CSI migration enabled for \
                 {plugin}; waiting for external resizer to expand the pvc\n\
                 patch persistentvolumeclaims/status a/c because the external resizer expands the volume: {}\n",
                json!({"metadata": {"annotations": {STORAGE_RESIZER: driver}, "resourceVersion": "7"}}),
            );
            assert_eq!(sync(cluster(claim, volume(source, json!({})))), wanted);
        }
    }
}

/// Proves EXP-22, EXP-39, EXP-42.
#[test]
fn refused_annotation_is_an_event_and_is_retried() {
    for reason in [ErrorReason::Conflict, ErrorReason::Forbidden] {
        let error = ApiError::transport(reason, "refused");
        let cluster = cluster(claim("2Gi", "1Gi"), volume("cinder", json!({})))
            .failing::<PersistentVolumeClaim>("patch", &key(), error);
        let message = "error setting resizer annotation to pvc a/c, with error patchPVCStatus failed to patch PVC \
                       \"c\": refused";
        let transcript = sync(cluster);
        let event =
            format!("event Warning ExternalExpanding on PersistentVolumeClaim a/c uid=c-uid: {message}\n");
        assert!(transcript.ends_with(&format!("{event}retry: {message}\n")), "{transcript}");
    }
}

/// The bodies of the patches of claims and volumes, in order.
fn patches(cluster: RehearsalCluster) -> Vec<Value> {
    let transcript = sync(cluster);
    assert!(!transcript.contains("retry"), "{transcript}");
    let bodies = transcript.lines().filter_map(|line| line.strip_prefix("patch ")?.split_once(": {"));
    bodies.map(|(_, body)| serde_json::from_str(&format!("{{{body}")).expect("a body")).collect()
}

/// Proves EXP-30, EXP-32, EXP-33, EXP-34, EXP-35, EXP-45.
#[test]
fn flex_volume_gets_its_size_and_is_left_to_the_node() {
    let mut claim = claim("2Gi", "1Gi");
    claim["status"]["conditions"] = json!([
        {"type": "FileSystemResizePending", "status": "True"}, {"type": "Unused", "status": "True"},
        {"type": "NodeResizeError", "status": "True"}, {"type": "ControllerResizeError", "status": "True"}]);
    let now = "2027-01-15T08:00:00Z";
    let [first, size, second, old] = &patches(cluster(claim, flex()))[..] else { panic!("four patches") };
    let gone = |r#type: &str| json!({"$patch": "delete", "type": r#type});
    assert_eq!(
        first["metadata"],
        json!({"annotations": {STORAGE_RESIZER: "example.com/flex"}, "resourceVersion": "7"})
    );
    assert_eq!(
        first["status"],
        json!({
            "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
            "conditions": [gone("FileSystemResizePending"), gone("NodeResizeError"), gone("ControllerResizeError"),
                {"type": "Resizing", "status": "True", "reason": null, "message": null, "lastProbeTime": null,
                 "lastTransitionTime": now}],
        })
    );
    assert_eq!(*size, json!({"spec": {"capacity": {"storage": "2Gi"}}}), "no resourceVersion");
    let message = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
    assert_eq!(
        second["status"],
        json!({
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True", "reason": null, "message": message,
                            "lastProbeTime": null, "lastTransitionTime": now}],
        })
    );
    assert_eq!(*old, json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: "1Gi"}}}));
}

/// Proves EXP-32, EXP-33.
#[test]
fn block_flex_volume_is_finished_at_once() {
    let mut block = flex();
    block["spec"]["volumeMode"] = json!("Block");
    let mut claim = claim("2Gi", "1Gi");
    claim["status"]["conditions"] = json!([{"type": "Resizing", "status": "True"}]);
    let transcript = sync(cluster(claim.clone(), block.clone()));
    let event = "event Normal VolumeResizeSuccessful on PersistentVolumeClaim a/c uid=c-uid: ExpandVolume succeeded for \
                 volume a/c\n";
    assert!(transcript.ends_with(event), "{transcript}");
    let [first, _, last] = &patches(cluster(claim, block))[..] else { panic!("three patches") };
    assert!(first["status"].get("conditions").is_none(), "an existing condition keeps its time");
    assert_eq!(
        last["status"],
        json!({"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": null},
               "conditions": [{"$patch": "delete", "type": "Resizing"}]})
    );
}

/// Proves EXP-31, EXP-37, EXP-60.
#[test]
fn flex_expansion_goes_on_where_it_ended() {
    let finished = patches(cluster(claim("1Gi", "1Gi"), annotated(flex())));
    assert_eq!(finished, [json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: null}}})]);
    // The volume has its size, the claim was not marked yet; the first old capacity stays.
    let mut large = annotated(flex());
    large["spec"]["capacity"]["storage"] = json!("2Gi");
    let mut claim = claim("2Gi", "1Gi");
    claim["status"]["allocatedResources"] = json!({"storage": "2Gi"});
    claim["status"]["allocatedResourceStatuses"] = json!({"storage": "ControllerResizeInProgress"});
    assert_eq!(patches(cluster(claim.clone(), large.clone())).len(), 3);
    claim["status"]["allocatedResourceStatuses"]["storage"] = json!("NodeResizeInfeasible");
    let infeasible = patches(cluster(claim.clone(), large.clone()));
    assert_eq!(infeasible.len(), 1);
    assert_eq!(infeasible[0]["status"]["allocatedResourceStatuses"]["storage"], "NodeResizePending");
    claim["status"]["allocatedResourceStatuses"]["storage"] = json!("NodeResizePending");
    assert_eq!(patches(cluster(claim, large)), [Value::Null; 0]);
}

/// Proves EXP-38.
#[test]
fn failed_flex_expansion_is_an_event_and_is_retried() {
    let error = || ApiError::transport(ErrorReason::Conflict, "refused");
    let failure = |cluster: RehearsalCluster| {
        let transcript = sync(cluster);
        let retried = transcript.lines().next_back().and_then(|line| line.strip_prefix("retry: "));
        let message = retried.expect("a retry").to_owned();
        let event =
            format!("event Warning VolumeResizeFailed on PersistentVolumeClaim a/c uid=c-uid: {message}\n");
        assert!(transcript.contains(&event), "{transcript}");
        message
    };
    let grown = || cluster(claim("2Gi", "1Gi"), flex());
    let path = <PersistentVolumeClaim as keleustes_objects::Kind>::RESOURCE.object_path(&key());
    let cause = "patchPVCStatus failed to patch PVC \"c\": refused";
    assert_eq!(
        failure(grown().failing_at("patch", &path, error(), Some(1))),
        format!("error updating pvc a/c with resize in progress: {cause}")
    );
    assert_eq!(
        failure(grown().failing::<PersistentVolume>("patch", &Key::cluster("pv"), error())),
        "error updating pv for pvc a/c: error Patching PV \"pv\" with error : refused"
    );
}
