//! The state that is built at the start.

use keleustes_objects::{CsiDriver, Pod, VolumeAttachment};

use super::metrics::measured;
use super::*;

fn restarted(prepare: impl FnOnce(&mut World)) -> World {
    restarted_with(AttachDetachOptions::default(), prepare)
}

fn restarted_with(options: AttachDetachOptions, prepare: impl FnOnce(&mut World)) -> World {
    let mut world = World::empty(options);
    world.populate_with_volume("1", json!(["ReadWriteOnce"]));
    prepare(&mut world);
    world.start();
    // The event handlers deliver the nodes once more.
    let nodes: Vec<Value> = ["n1", "n2"]
        .iter()
        .filter_map(|name| world.cluster.live_object::<Node>(&Key::cluster(*name)).cloned())
        .collect();
    for node in nodes {
        let node: Node = serde_json::from_value(node).unwrap();
        let _ = world.cluster.enqueued_by(&world.nodes, Change::added(std::sync::Arc::new(node)));
    }
    world
}

/// Proves AD-30, AD-33, AD-35, AD-41, AD-145.
#[test]
fn reported_volumes_are_attached_and_those_that_no_pod_needs_are_detached() {
    let mut world = restarted(|world| {
        world.add_volume("2", json!(["ReadWriteOnce"]));
        world.put::<Node>(with_attached(node("n1"), &["1", "2"], &["1"]));
        world.put_attachment("1", "n1", json!({"attached": true}));
        world.put_attachment("2", "n1", json!({"attached": true}));
        world.put::<Pod>(pod("p1", "n1", "1"));
    });
    let remaining = format!("report [{}]", unique("1"));
    assert_eq!(world.run("n1"), [&remaining, "get nodes n1", "delete h2 on n1"]);
    // The pod has shown what the volume is: another node must wait for it.
    world.put::<Pod>(pod("p2", "n2", "1"));
    assert!(world.run("n2")[0].contains("Volume is already used by pod(s) p1"));
    // A list that has not changed is not sent again.
    let mut world = restarted(|world| {
        world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
        world.put_attachment("1", "n1", json!({"attached": true}));
        world.put::<Pod>(pod("p1", "n1", "1"));
    });
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-34, AD-145.
#[test]
fn objects_that_cannot_be_resolved_at_the_start_do_not_stop_it() {
    let mut world = restarted(|world| {
        world.add_volume("2", json!(["ReadWriteOnce"]));
        // A name without a plugin comes first in its list, and so do a pod and a VolumeAttachment that cannot be resolved.
        let mut reporting = with_attached(node("n1"), &["1", "2"], &["1"]);
        let reported = reporting["status"]["volumesAttached"].as_array_mut().unwrap();
        reported.insert(0, json!({"name": "odd", "devicePath": ""}));
        world.put::<Node>(reporting);
        let mut odd = attachment("1", "n1", json!({"attached": true}));
        odd["metadata"]["name"] = json!("a");
        odd["spec"]["source"]["persistentVolumeName"] = json!("none");
        world.put::<VolumeAttachment>(odd);
        world.put_attachment("1", "n1", json!({"attached": true}));
        world.put_attachment("2", "n1", json!({"attached": true}));
        world.add_volume("3", json!(["ReadWriteOnce"]));
        world.put_attachment("3", "n3", json!({"attached": true}));
        let volumes = json!([
            {"name": "missing", "persistentVolumeClaim": {"claimName": "none"}},
            {"name": "v", "persistentVolumeClaim": {"claimName": "c1"}},
        ]);
        world.put::<Pod>(pod_in("a", "p0", "n1", json!([volumes[0]])));
        world.put::<Pod>(pod_in("a", "p1", "n1", volumes));
    });
    let remaining = format!("report [{} odd]", unique("1"));
    assert_eq!(world.run("n1"), [&remaining, "get nodes n1", "delete h2 on n1"]);
    // The volume after the missing one is wanted, and its access modes are known.
    world.put::<Pod>(pod("p2", "n2", "1"));
    assert!(world.run("n2")[0].contains("Volume is already used by pod(s) p1"));
    // So is the VolumeAttachment after the one of a missing volume.
    assert_eq!(world.run("n3"), none());
    world.advance(360_001);
    assert_eq!(world.run("n3"), ["delete h3 on n3"]);
}

/// Proves AD-125.
#[test]
fn restart_starts_the_six_minutes_again() {
    let reporting = || not_ready(with_attached(node("n1"), &["1"], &["1"]));
    // The first process waits for all but one millisecond.
    let mut world = World::attached("1", "p1", "n1");
    world.take_pod("p1");
    world.put::<Node>(reporting());
    assert_eq!(world.run("n1"), none());
    world.advance(360_000);
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.requeue("n1"), "requeue after 1ms");
    // The next one begins with the same objects at the same time.
    let mut world = restarted(|world| {
        world.advance(360_000);
        world.put::<Node>(reporting());
        world.put_attachment("1", "n1", json!({"attached": true}));
    });
    assert_eq!(world.run("n1"), none());
    world.advance(360_000);
    assert_eq!(world.run("n1"), none(), "six minutes since the restart");
    assert_eq!(world.requeue("n1"), "requeue after 1ms");
    world.advance(1);
    assert_eq!(world.run("n1"), ["report []", "delete h1 on n1"], "without asking the node");
}

/// Proves AD-30, AD-79.
#[test]
fn reported_volume_is_detached_by_its_name_alone() {
    let mut world = World::empty(AttachDetachOptions::default());
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.put::<CsiDriver>(driver(json!(false)));
    world.start();
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
}

/// Proves AD-31, AD-35, AD-40.
#[test]
fn attachment_that_no_node_reports_counts_as_in_use_until_the_node_changes() {
    let mut world = restarted(|world| {
        world.put_attachment("1", "n1", json!({"attached": true}));
    });
    assert_eq!(world.run("n1"), none());
    world.advance(400_000);
    assert_eq!(world.run("n1"), none(), "the node is Ready");
    let mut changed = node("n1");
    changed["metadata"]["resourceVersion"] = json!("9");
    assert_eq!(world.put::<Node>(changed), ["n1"]);
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"], "it was never reported");
    // On a missing node, after six minutes.
    let mut world = restarted(|world| {
        world.put_attachment("1", "n3", json!({"attached": true}));
    });
    assert_eq!(world.run("n3"), none());
    world.advance(360_001);
    assert_eq!(world.run("n3"), ["delete h1 on n3"]);
}

/// Proves AD-35, AD-128, AD-153.
#[test]
fn attachment_on_a_missing_node_is_deleted_at_once_if_a_pod_on_another_node_needs_the_volume() {
    let left_on_n3 = |world: &mut World| {
        world.put_attachment("1", "n3", json!({"attached": true}));
    };
    let needed_on_n1 = |world: &mut World| {
        left_on_n3(world);
        world.put::<Pod>(pod("p2", "n1", "1"));
    };
    for disabled in [false, true] {
        let options = AttachDetachOptions { disable_force_detach_on_timeout: disabled, ..Default::default() };
        let mut world = restarted_with(options, needed_on_n1);
        assert_eq!(world.run("n3"), ["get nodes n3", "delete h1 on n3"], "disabled: {disabled}");
        assert_eq!(world.run("n1"), none(), "the detach is running");
        world.take_attachment("1", "n3");
        assert_eq!(world.run("n3"), ["enqueue n1"]);
        assert_eq!(world.run("n1"), ["create h1 on n1"]);
    }
    // The pod comes later.
    let mut world = restarted(left_on_n3);
    assert_eq!(world.run("n3"), none());
    world.put::<Pod>(pod("p2", "n1", "1"));
    let waiting = world.run("n1");
    assert!(waiting[0].contains("Waiting for detach") && waiting[1] == "enqueue n3", "{waiting:?}");
    assert_eq!(world.run("n3"), ["get nodes n3", "delete h1 on n3"]);
    // A node that only the server knows has the volume in use.
    let mut world = restarted(needed_on_n1);
    let live = with_attached(node("n3"), &["1"], &["1"]);
    world.cluster = std::mem::take(&mut world.cluster).with_live::<Node>(live);
    assert_eq!(world.run("n3"), ["get nodes n3", "enqueue n1"], "nothing is deleted");
}

/// Proves AD-31, AD-62.
#[test]
fn attachment_of_a_pod_is_resumed() {
    let mut world = restarted(|world| {
        world.put_attachment("1", "n1", json!({"attached": true}));
        world.put::<Pod>(pod("p1", "n1", "1"));
    });
    assert_eq!(world.run("n1"), none(), "the attach is run again, nothing is created");
    let done = world.run("n1");
    assert!(done[0].contains("SuccessfulAttachVolume") && done[1] == format!("report [{}]", unique("1")));
}

/// Proves AD-142.
#[test]
fn operations_that_a_shutdown_interrupts_are_resumed_from_their_attachments() {
    // The first process begins an attach, and its reconcile ends without waiting for the driver.
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
    assert_ne!(world.requeue("n1"), "", "the attach is running");
    // The next one finds what the first has created.
    let mut world = restarted(|world| {
        world.put_attachment("1", "n1", json!({}));
        world.put::<Pod>(pod("p1", "n1", "1"));
    });
    assert_eq!(world.run("n1"), none(), "neither created again nor deleted");
    assert_eq!(world.put_attachment("1", "n1", json!({"attached": true})), ["n1"]);
    let done = world.run("n1");
    assert!(done[0].contains("SuccessfulAttachVolume"), "{done:?}");
    // A detach is interrupted after the node's status was patched: the VolumeAttachment is terminating.
    let mut terminating = attachment("1", "n1", json!({"attached": true}));
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut world = restarted(|world| {
        world.put::<VolumeAttachment>(terminating);
    });
    let mut changed = node("n1");
    changed["metadata"]["resourceVersion"] = json!("9");
    world.put::<Node>(changed);
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"], "the detach is run again");
    world.put::<Pod>(pod("p2", "n2", "1"));
    assert_eq!(world.run("n2"), none(), "another node waits for its end");
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), ["enqueue n2"]);
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
}

/// Proves AD-31, AD-32, AD-144.
#[test]
fn unknown_attachments_are_left_alone() {
    let leave_alone = |attachment: Value, attach_required: Value| {
        let mut world = restarted(|world| {
            world.put::<CsiDriver>(driver(attach_required));
            world.put::<VolumeAttachment>(attachment);
        });
        let mut changed = node("n1");
        changed["metadata"]["resourceVersion"] = json!("9");
        world.put::<Node>(changed);
        world.run("n1")
    };
    let known = attachment("1", "n1", json!({"attached": true}));
    assert_eq!(leave_alone(known.clone(), Value::Null), ["get nodes n1", "delete h1 on n1"], "the rule");
    let mut inline = known.clone();
    inline["spec"]["source"] = json!({"inlineVolumeSpec": {"csi": {"driver": DRIVER, "volumeHandle": "h1"}}});
    assert_eq!(leave_alone(inline, Value::Null), none());
    let mut missing = known.clone();
    missing["spec"]["source"]["persistentVolumeName"] = json!("none");
    assert_eq!(leave_alone(missing, Value::Null), none());
    assert_eq!(leave_alone(known.clone(), json!(false)), none(), "the driver attaches nothing");
    // Neither the attacher nor the status nor the name matters: what is deleted is the computed name, if it exists.
    let mut renamed = known;
    renamed["metadata"]["name"] = json!("another");
    renamed["spec"]["attacher"] = json!("another");
    renamed["status"] = json!({});
    assert_eq!(leave_alone(renamed, Value::Null), ["get nodes n1", "get h1 on n1"]);
}

/// Proves AD-31.
#[test]
fn attachment_of_a_migrated_volume_is_found_whatever_its_driver_says() {
    let mut world = restarted(|world| {
        let mut migrated = volume("1", json!(["ReadWriteOnce"]));
        migrated["spec"]["csi"] = Value::Null;
        migrated["spec"]["cinder"] = json!({"volumeID": "h1"});
        world.put::<PersistentVolume>(migrated);
        let name = "cinder.csi.openstack.org";
        world.put::<CsiDriver>(json!({"metadata": {"name": name}, "spec": {"attachRequired": false}}));
        let mut attachment = attachment("1", "n3", json!({"attached": true}));
        attachment["metadata"]["name"] = json!(attachment_name("h1", name, "n3"));
        world.put::<VolumeAttachment>(attachment);
    });
    world.run("n3");
    world.advance(360_001);
    let name = attachment_name("h1", "cinder.csi.openstack.org", "n3");
    assert_eq!(world.run("n3"), [format!("delete {name}")]);
}

/// Proves AD-33.
#[test]
fn terminated_pod_shows_what_a_reported_volume_is() {
    // What is known of a reported volume shows in the gauge, which leaves out volumes of which only the name is known.
    let counted = |pods: &[&str]| {
        let mut world = restarted(|world| {
            world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
            for name in pods {
                let mut done = pod(name, "n1", "1");
                done["status"]["phase"] = json!("Failed");
                world.put::<Pod>(done);
            }
        });
        let transcript = world.transcript("n1");
        assert!(!transcript.contains("volumeattachments"), "the node has it in use: {transcript}");
        measured(&transcript, "attachdetach_controller_total_volumes")
    };
    assert_eq!(counted(&["p1"]), ["{kubernetes.io/csi:d.io,actual_state_of_world} 1"]);
    assert_eq!(counted(&[]), none());
}

/// Proves AD-158.
#[test]
fn volume_of_a_lost_claim_is_not_wanted_after_a_restart() {
    let lost = || {
        let mut claim = claim("1");
        claim["status"]["phase"] = json!("Lost");
        claim
    };
    let mut world = restarted(|world| {
        world.put::<PersistentVolumeClaim>(lost());
        world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
        world.put_attachment("1", "n1", json!({"attached": true}));
        world.put::<Pod>(pod("p1", "n1", "1"));
    });
    assert_eq!(world.run("n1"), none(), "only the kubelet keeps it");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
    // Without a restart the volume stays wanted.
    let mut world = World::attached("1", "p1", "n1");
    world.put::<PersistentVolumeClaim>(lost());
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.populate();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), none());
}
