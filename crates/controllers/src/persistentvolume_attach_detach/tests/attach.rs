//! Attaching: when it starts, what is created, how it ends, which events pods get.

use keleustes_objects::{ApiError, CsiDriver, ErrorReason, Kind as _, Pod};

use super::*;

const SUCCEEDED: &str =
    "event Normal SuccessfulAttachVolume on Pod a/p1 p1: AttachVolume.Attach succeeded for volume \"pv1\" ";

/// Proves AD-4, AD-24, AD-41, AD-56, AD-59, AD-66, AD-70, AD-73, AD-87, AD-89, AD-93, AD-94.
#[test]
fn volume_of_a_scheduled_pod_is_attached_and_reported() {
    let mut world = World::started();
    let mut unscheduled = pod("p1", "", "1");
    assert_eq!(world.put::<Pod>(unscheduled.clone()), none());
    assert_eq!(world.run("n1"), none());
    unscheduled["spec"]["nodeName"] = json!("n1");
    assert_eq!(world.put::<Pod>(unscheduled.clone()), ["n1"]);
    let created =
        world.cluster.bodies(&world.nodes, Key::cluster("n1"), "create volumeattachments.storage.k8s.io ");
    assert_eq!(
        created,
        [(
            attachment_key("1", "n1").name.to_string(),
            json!({
                "metadata": {"name": attachment_key("1", "n1").name},
                "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv1"}},
            })
        )]
    );
    assert_eq!(world.put::<Pod>(unscheduled), none(), "nothing new");
    assert_eq!(world.put_attachment("1", "n1", json!({"attached": false})), ["n1"]);
    assert_eq!(world.run("n1"), none(), "the external attacher is waited for");
    world.put_attachment("1", "n1", json!({"attached": true, "attachError": {"message": "left over"}}));
    let transcript = world.transcript("n1");
    assert_eq!(world.short(&transcript)[0], SUCCEEDED);
    let patch = json!({"status": {"volumesAttached": [{"devicePath": "", "name": unique("1")}]}});
    assert!(
        transcript.contains(&format!(
            "patch nodes/status n1 because the volumes attached to the node have changed: {patch}"
        )),
        "{transcript}"
    );
    // The original sends the list again only if it changes, and so does this program.
    world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-3, AD-6.
#[test]
fn volumes_are_attached_to_annotated_nodes_only() {
    let mut world = World::started();
    let mut unmanaged = node("n3");
    unmanaged["metadata"]["annotations"] = json!({"other": "true"});
    world.put::<Node>(unmanaged.clone());
    assert_eq!(world.put::<Pod>(pod("p1", "n3", "1")), none());
    assert_eq!(world.run("n3"), none());
    // Any value of the annotation will do; the pod is found by its next event.
    unmanaged["metadata"]["annotations"] =
        json!({"volumes.kubernetes.io/controller-managed-attach-detach": "false"});
    world.put::<Node>(unmanaged.clone());
    assert_eq!(world.run("n3"), none());
    assert_eq!(world.put::<Pod>(pod("p1", "n3", "1")), ["n3"]);
    assert_eq!(world.run("n3"), ["create h1 on n3"]);
    // Removing the annotation changes nothing.
    unmanaged["metadata"]["annotations"] = json!({});
    world.put::<Node>(unmanaged);
    world.add_volume("2", json!(["ReadWriteOnce"]));
    assert_eq!(world.put::<Pod>(pod("p2", "n3", "2")), ["n3"]);
}

/// Proves AD-66, AD-71, AD-127.
#[test]
fn existing_attachment_is_reused_whatever_it_says() {
    let mut world = World::started();
    world.put_attachment("1", "n1", json!({"attached": false, "attachError": {"message": "disk is sad"}}));
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(world.run("n1"), none(), "nothing is created");
    // What is left over from an earlier attempt counts only after half a second.
    world.advance(499);
    assert_eq!(world.run("n1"), none());
    world.advance(1);
    let failed = "event Warning FailedAttachVolume on Pod a/p1 p1: AttachVolume.Attach failed for volume \"pv1\" : disk is sad";
    assert_eq!(world.run("n1"), [failed]);
    assert_eq!(world.run("n1"), none(), "it is in backoff");
    world.advance(500);
    assert_eq!(world.run("n1"), none(), "the second attempt waits again");
    world.advance(500);
    assert_eq!(world.run("n1"), [failed]);
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.advance(1000);
    assert_eq!(world.run("n1"), none(), "the third attempt has begun");
    assert_eq!(world.run("n1"), [SUCCEEDED, &format!("report [{}]", unique("1"))]);

    // One that is being deleted fails the attach.
    let mut world = World::started();
    let mut terminating = attachment("1", "n1", json!({"attached": true}));
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put::<VolumeAttachment>(terminating);
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.advance(500);
    assert_eq!(
        world.run("n1"),
        [
            "event Warning FailedAttachVolume on Pod a/p1 p1: AttachVolume.Attach failed for volume \"pv1\" : volume attachment is being deleted"
        ]
    );
    world.take_attachment("1", "n1");
    world.advance(500);
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
}

/// Proves AD-55, AD-58, AD-62, AD-68.
#[test]
fn refused_create_is_an_event_and_is_repeated_after_a_backoff() {
    let mut world = World::started();
    let path = VolumeAttachment::RESOURCE.object_path(&attachment_key("1", "n1"));
    let error =
        ApiError { code: 403, message: "no".to_owned(), ..ApiError::transport(ErrorReason::Forbidden, "") };
    world.cluster = std::mem::take(&mut world.cluster).failing_at("create", &path, error, Some(1));
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(
        world.run("n1"),
        [
            "create h1 on n1 FAILED: no",
            "event Warning FailedAttachVolume on Pod a/p1 p1: AttachVolume.Attach failed for volume \"pv1\" : kubernetes.io/csi: attacher.Attach failed: no"
        ]
    );
    assert_eq!(world.requeue("n1"), "requeue after 500ms");
    world.advance(499);
    assert_eq!(world.run("n1"), none());
    world.advance(1);
    // The volume is uncertain, not attached: the attach is run again.
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
    // Another object of that name counts as created.
    let mut world = World::started();
    let error = ApiError { code: 409, ..ApiError::transport(ErrorReason::AlreadyExists, "there") };
    world.cluster = std::mem::take(&mut world.cluster).failing_at("create", &path, error, Some(1));
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(world.run("n1").len(), 1, "no event");
    assert_eq!(world.requeue("n1"), "requeue after 500ms", "it is waited for");
}

/// Proves AD-69, AD-72, AD-148.
#[test]
fn attach_that_takes_too_long_fails_and_leaves_the_attachment() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.put_attachment("1", "n1", json!({}));
    // Deleted by hand: it is not created a second time by the same attempt.
    world.take_attachment("1", "n1");
    world.advance(60_000);
    assert_eq!(world.run("n1"), none());
    world.put_attachment("1", "n1", json!({}));
    world.advance(59_999);
    assert_eq!(world.requeue("n1"), "requeue after 1ms");
    world.advance(1);
    assert_eq!(
        world.run("n1"),
        [format!(
            "event Warning FailedAttachVolume on Pod a/p1 p1: AttachVolume.Attach failed for volume \"pv1\" : timed out waiting for external-attacher of {DRIVER} CSI driver to attach volume h1"
        )]
    );
    world.take_attachment("1", "n1");
    world.advance(500);
    assert_eq!(world.run("n1"), ["create h1 on n1"], "the retry creates it again");
}

/// Proves AD-90, AD-91, AD-92, AD-57, AD-120, AD-45.
#[test]
fn volume_of_one_node_is_attached_to_another_only_after_it_was_detached() {
    let mut world = World::attached("1", "p1", "n1");
    world.put::<Pod>(pod("p2", "n2", "1"));
    let waiting = |text: &str| {
        format!(
            "event Warning FailedAttachVolume on Pod a/p2 p2: Waiting for detach for volume \"pv1\" {text}"
        )
    };
    assert_eq!(world.run("n2"), [waiting("Volume is already used by pod(s) p1")]);
    assert_eq!(world.run("n2"), none(), "once");
    world.take_pod("p1");
    assert_eq!(world.run("n1"), none(), "in use");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
    assert_eq!(world.run("n2"), none(), "the detach is running");
    world.put_attachment("1", "n1", json!({"attached": true}));
    assert_eq!(world.run("n2"), none());
    world.take_attachment("1", "n1");
    let transcript = world.transcript("n1");
    assert!(transcript.contains("enqueue n2"), "{transcript}");
    assert_eq!(world.run("n2"), ["create h1 on n2"]);

    // Without a pod on the other node, and with pods of other namespaces.
    let mut world = World::attached("1", "p1", "n1");
    world.take_pod("p1");
    world.put::<Pod>(pod("p2", "n2", "1"));
    assert_eq!(
        world.run("n2"),
        [waiting(
            "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
        )]
    );
}

/// Proves AD-92.
#[test]
fn pods_of_other_namespaces_are_counted_and_not_named() {
    let mut world = World::started();
    // Another claim of another namespace is bound to a second PersistentVolume of the same disk.
    let mut other = volume("1", json!(["ReadWriteOnce"]));
    other["metadata"]["name"] = json!("pvx");
    other["spec"]["claimRef"] = json!({"namespace": "b", "name": "cx", "uid": "u-cx"});
    world.put::<PersistentVolume>(other);
    let mut bound = claim("x");
    bound["metadata"]["namespace"] = json!("b");
    world.put::<PersistentVolumeClaim>(bound);
    let of_b = |name: &str, node: &str| {
        pod_in("b", name, node, json!([{"name": "v", "persistentVolumeClaim": {"claimName": "cx"}}]))
    };
    world.attach("1", "p1", "n1");
    world.put::<Pod>(of_b("q1", "n1"));
    world.put::<Pod>(pod("p2", "n2", "1"));
    world.put::<Pod>(of_b("q2", "n2"));
    let texts: Vec<String> =
        world.run("n2").iter().map(|line| line.split("for volume ").last().unwrap().to_owned()).collect();
    assert_eq!(
        texts,
        [
            "\"pv1\" Volume is already used by pod(s) p1 and 1 pod(s) in different namespaces",
            "\"pv1\" Volume is already used by pod(s) q1 and 1 pod(s) in different namespaces"
        ]
    );
    let mut world = World::started();
    world.attach("1", "p1", "n1");
    let mut other = volume("1", json!(["ReadWriteOnce"]));
    other["metadata"]["name"] = json!("pvx");
    other["spec"]["claimRef"] = json!({"namespace": "b", "name": "cx", "uid": "u-cx"});
    world.put::<PersistentVolume>(other);
    let mut bound = claim("x");
    bound["metadata"]["namespace"] = json!("b");
    world.put::<PersistentVolumeClaim>(bound);
    world.put::<Pod>(of_b("q2", "n2"));
    let events = world.run("n2");
    assert!(
        events[0].ends_with("\"pvx\" Volume is already used by 1 pod(s) in different namespaces"),
        "{events:?}"
    );
}

/// Proves AD-26, AD-130.
#[test]
fn volume_of_many_nodes_is_attached_to_all_of_them_at_once() {
    for modes in [json!(["ReadWriteMany"]), json!(["ReadWriteOnce", "ReadOnlyMany"]), json!([])] {
        let mut world = World::empty(AttachDetachOptions::default());
        world.populate_with_volume("1", modes);
        world.start();
        world.put::<Pod>(pod("p1", "n1", "1"));
        world.put::<Pod>(pod("p2", "n2", "1"));
        assert_eq!(world.run("n1"), ["create h1 on n1"]);
        assert_eq!(world.run("n2"), ["create h1 on n2"]);
    }
    for modes in [json!(["ReadWriteOnce"]), json!(["ReadWriteOncePod"])] {
        let mut world = World::empty(AttachDetachOptions::default());
        world.populate_with_volume("1", modes);
        world.start();
        world.put::<Pod>(pod("p1", "n1", "1"));
        world.put::<Pod>(pod("p2", "n2", "1"));
        assert_eq!(world.run("n1"), ["create h1 on n1"]);
        assert_eq!(world.run("n2"), none(), "an operation on the volume is running");
    }
}

/// Proves AD-24, AD-61.
#[test]
fn node_with_other_access_modes_of_a_volume_is_enqueued_when_an_operation_on_it_ends() {
    // A second PersistentVolume of the same disk, which many nodes may have.
    let add_other = |world: &mut World| {
        let mut other = volume("1", json!(["ReadWriteMany"]));
        other["metadata"]["name"] = json!("pvx");
        other["spec"]["claimRef"] = json!({"namespace": "a", "name": "cx", "uid": "u-cx"});
        world.put::<PersistentVolume>(other);
        world.put::<PersistentVolumeClaim>(claim("x"));
    };
    let mut world = World::started();
    add_other(&mut world);
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
    world.put::<Pod>(pod("p2", "n2", "x"));
    assert_eq!(world.run("n2"), none(), "the attach is running");
    assert_eq!(world.requeue("n2"), "");
    world.put_attachment("1", "n1", json!({"attached": true}));
    let done = world.run("n1");
    assert!(done.contains(&"enqueue n2".to_owned()), "{done:?}");
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
    // The end of a detach leaves nothing that says how the volume may be used.
    let mut world = World::attached("1", "p1", "n1");
    add_other(&mut world);
    world.take_pod("p1");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
    world.put::<Pod>(pod("p2", "n2", "x"));
    assert_eq!(world.run("n2"), none(), "the detach is running");
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), ["enqueue n2"]);
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
}

/// The attach of `p1` on `n1` has failed, the pod is gone or not, the attachment has this status, and `p2` on `n2` needs the
/// volume.
fn failed_on_n1(is_gone: bool, status: Value) -> World {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.put_attachment("1", "n1", json!({"attachError": {"message": "x"}}));
    world.advance(500);
    world.run("n1");
    if is_gone {
        world.take_pod("p1");
    }
    world.put_attachment("1", "n1", status);
    world.put::<Pod>(pod("p2", "n2", "1"));
    world.advance(500);
    world
}

/// Proves AD-57, AD-128.
#[test]
fn uncertain_attachment_that_no_pod_needs_is_deleted_before_another_node_gets_the_volume() {
    let mut world = failed_on_n1(true, json!({"attached": false}));
    assert_eq!(world.run("n2"), ["get h1 on n1", "enqueue n1"], "the external attacher may still attach it");
    assert_eq!(world.requeue("n2"), "requeue after 1s", "it is checked again");
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"], "it is only assumed to be in use");
    assert_eq!(world.run("n2"), none(), "the detach is running");
    world.take_attachment("1", "n1");
    world.run("n1");
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
    // What the node reports in use is no assumption.
    let mut world = failed_on_n1(true, json!({"attached": false}));
    world.put::<Node>(with_attached(node("n1"), &[], &["1"]));
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.run("n2"), ["get h1 on n1", "enqueue n1"]);
    world.take::<Node>(&Key::cluster("n1"));
    assert_eq!(world.run("n1"), none(), "nor is what a deleted node reported last");
    // Without another node that needs it, the assumption holds.
    let mut world = failed_on_n1(true, json!({"attached": false}));
    world.take_pod("p2");
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-57, AD-128.
#[test]
fn unneeded_attachment_that_says_attached_after_its_attach_has_failed_is_deleted() {
    let mut world = failed_on_n1(true, json!({"attached": true}));
    let waiting = "event Warning FailedAttachVolume on Pod a/p2 p2: Waiting for detach for volume \"pv1\" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node";
    assert_eq!(world.run("n2"), [waiting, "enqueue n1"]);
    assert_eq!(world.requeue("n2"), "requeue after 1s", "it is checked again");
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"]);
    assert_eq!(world.run("n2"), none(), "the detach is running");
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), ["enqueue n2"]);
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
}

/// Proves AD-57, AD-128.
#[test]
fn failed_attachment_of_another_pod_leaves_the_volume_free_unless_it_says_attached() {
    let mut world = failed_on_n1(false, json!({"attachError": {"message": "x"}}));
    assert_eq!(world.run("n2"), ["get h1 on n1", "create h1 on n2"]);
    // As long as the external attacher has not answered, it may still attach it.
    let mut world = failed_on_n1(false, json!({}));
    assert_eq!(world.run("n2"), ["get h1 on n1", "enqueue n1"]);
    // Beyond the original: what the external attacher has attached after all is not attached twice.
    let mut world = failed_on_n1(false, json!({"attached": true}));
    let events = world.run("n2");
    assert!(events.len() == 1 && events[0].contains("Volume is already used by pod(s) p1"), "{events:?}");
    assert_eq!(world.requeue("n2"), "requeue after 1s", "it is checked again");
    // Also if only the server knows that.
    let mut world = failed_on_n1(false, json!({"attachError": {"message": "x"}}));
    let live = attachment("1", "n1", json!({"attached": true}));
    world.cluster = std::mem::take(&mut world.cluster).with_live::<VolumeAttachment>(live);
    assert_eq!(world.run("n2"), ["get h1 on n1", "enqueue n1"]);
}

/// Proves AD-147.
#[test]
fn driver_that_attaches_nothing_any_more_fails_the_attach() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.put::<CsiDriver>(driver(json!(false)));
    let failed = "event Warning FailedAttachVolume on Pod a/p1 p1: AttachVolume.FindAttachablePluginBySpec failed for volume \"pv1\" ";
    assert_eq!(world.run("n1"), [failed]);
    assert_eq!(world.run("n1"), none(), "backoff");
    world.advance(500);
    assert_eq!(world.run("n1"), [failed]);
    // There is no entry that would have to be detached.
    world.put::<Node>(with_attached(node("n1"), &[], &[]));
    world.take_pod("p1");
    world.populate();
    world.advance(5000);
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.requeue("n1"), "");
}

/// Proves AD-15, AD-94.
#[test]
fn volumes_that_need_no_attacher_are_reported_at_once() {
    let mut world = World::started();
    let volumes = json!([
        {"name": "i", "iscsi": {"targetPortal": "1.2.3.4:3260", "iqn": "iqn.x", "lun": 2}},
        {"name": "f", "fc": {"targetWWNs": ["w1", "w2"], "lun": 0}}]);
    world.put::<Pod>(pod_in("a", "p1", "n1", volumes));
    let names = "kubernetes.io/fc/[w1 w2]:0 kubernetes.io/iscsi/1.2.3.4:3260:iqn.x:2";
    let success = |name: &str| {
        format!(
            "event Normal SuccessfulAttachVolume on Pod a/p1 p1: AttachVolume.Attach succeeded for volume \"{name}\" "
        )
    };
    assert_eq!(world.run("n1"), [success("f"), success("i"), format!("report [{names}]")]);
    world.take_pod("p1");
    world.put::<Node>(node("n1"));
    assert_eq!(world.run("n1"), ["get nodes n1"], "the reported list is that of the node object");
}

/// Proves AD-67.
#[test]
fn migrated_inline_volume_is_attached_with_its_spec() {
    let mut world = World::started();
    let volumes = json!([{"name": "c", "cinder": {"volumeID": "vol"}}]);
    world.put::<Pod>(pod_in("a", "p1", "n1", volumes));
    let created =
        world.cluster.bodies(&world.nodes, Key::cluster("n1"), "create volumeattachments.storage.k8s.io ");
    assert_eq!(created[0].0, attachment_name("vol", "cinder.csi.openstack.org", "n1"));
    assert_eq!(
        created[0].1["spec"],
        json!({"attacher": "cinder.csi.openstack.org", "nodeName": "n1", "source": {"inlineVolumeSpec": {
            "csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "vol"},
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}}})
    );
}

/// Proves AD-25, AD-129.
#[test]
fn pods_of_one_node_share_an_attachment_and_all_get_events() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.put::<Pod>(pod("p2", "n1", "1"));
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
    world.put_attachment("1", "n1", json!({"attached": true}));
    assert_eq!(world.run("n1").iter().filter(|line| line.contains("SuccessfulAttachVolume")).count(), 2);
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.take_pod("p1"), none());
    assert_eq!(world.run("n1"), none(), "the other pod needs it");
    assert_eq!(world.take_pod("p2"), ["n1"]);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
}

/// Proves AD-2.
#[test]
fn desired_and_actual_state_are_kept_per_node_and_pods_by_uid() {
    let mut world = World::empty(AttachDetachOptions::default());
    world.populate_with_volume("1", json!(["ReadWriteMany"]));
    world.start();
    world.attach("1", "p1", "n1");
    // On the other node the attach fails: the volume is uncertain there and not reported.
    world.put::<Pod>(pod("p2", "n2", "1"));
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
    world.put_attachment("1", "n2", json!({"attachError": {"message": "full"}}));
    world.advance(500);
    let failed = world.run("n2");
    assert!(failed.len() == 1 && failed[0].contains("full"), "{failed:?}");
    // A pod of the same name with another UID is another pod: the volume is wanted until both are gone.
    let mut again = pod("p1", "n1", "1");
    again["metadata"]["uid"] = json!("u-again");
    world.put::<Pod>(again);
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.populate(), none(), "the first UID leaves, the second needs the volume");
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.take_pod("p1"), ["n1"]);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
    // What happens on one node changes nothing on the other: it is still wanted there, and attached again.
    world.take_attachment("1", "n1");
    world.put::<Node>(with_attached(node("n1"), &[], &[]));
    assert_eq!(world.run("n1"), none());
    world.put_attachment("1", "n2", json!({"attached": true}));
    world.advance(500);
    world.run("n2");
    let done = world.run("n2");
    assert!(done.contains(&format!("report [{}]", unique("1"))), "{done:?}");
    // In use on one node does not keep it from being detached on the other.
    world.put::<Node>(with_attached(node("n2"), &["1"], &["1"]));
    world.attach("1", "p3", "n1");
    world.take_pod("p2");
    world.take_pod("p3");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n2"), none(), "in use there");
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
}
