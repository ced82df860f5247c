//! Detaching: what prevents it, what forces it, what must happen before.

use keleustes_objects::{ApiError, ErrorReason, Kind as _, Pod, VolumeAttachment};

use super::*;

fn detaching() -> [&'static str; 3] {
    ["report []", "get nodes n1", "delete h1 on n1"]
}

/// `n1` has `pv1` attached and in use, and the pod is gone.
fn unwanted() -> World {
    let mut world = World::attached("1", "p1", "n1");
    world.take_pod("p1");
    world
}

/// Proves AD-5, AD-35, AD-46, AD-50, AD-51, AD-121, AD-122.
#[test]
fn volume_in_use_on_a_ready_node_is_never_detached() {
    let mut world = World::attached("1", "p1", "n1");
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.take_pod("p1"), ["n1"]);
    assert_eq!(world.run("n1"), none());
    world.advance(3_600_000);
    assert_eq!(world.run("n1"), none(), "not after an hour either");
    assert_eq!(world.put::<Node>(with_attached(node("n1"), &["1"], &[])), ["n1"]);
    assert_eq!(world.run("n1"), detaching());
}

/// Proves AD-4, AD-140.
#[test]
fn terminated_pod_frees_its_volume() {
    let mut finished = pod("p1", "n1", "1");
    finished["status"]["phase"] = json!("Succeeded");
    let mut stopped = pod("p1", "n1", "1");
    stopped["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    stopped["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let mut running = stopped.clone();
    running["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    for (pod, frees) in [(finished, true), (stopped, true), (running, false)] {
        let mut world = World::attached("1", "p1", "n1");
        world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
        assert_eq!(!world.put::<Pod>(pod).is_empty(), frees);
        assert_eq!(world.run("n1"), if frees { detaching().to_vec() } else { vec![] });
    }
}

/// Proves AD-48, AD-49, AD-52, AD-100.
#[test]
fn volume_on_an_unhealthy_node_is_detached_by_force_after_six_minutes() {
    let mut world = unwanted();
    assert_eq!(world.run("n1"), none());
    world.put::<Node>(not_ready(with_attached(node("n1"), &["1"], &["1"])));
    world.advance(360_000);
    assert_eq!(world.run("n1"), none(), "six minutes must have passed");
    assert_eq!(world.requeue("n1"), "requeue after 1ms");
    world.advance(1);
    let transcript = world.transcript("n1");
    assert!(
        transcript.contains(
            "measure attach_detach_controller_attachdetach_controller_forced_detaches{timeout} 1\n"
        )
    );
    assert_eq!(world.short(&transcript), ["report []", "delete h1 on n1"], "without asking the node");
}

/// Proves AD-13, AD-153.
#[test]
fn force_detach_on_timeout_can_be_disabled() {
    for disabled in [true, false] {
        let options = AttachDetachOptions { disable_force_detach_on_timeout: disabled, ..Default::default() };
        // In use on a node that is not Ready, and then gone.
        let mut world = World::empty(options);
        world.populate_with_volume("1", json!(["ReadWriteOnce"]));
        world.start();
        world.attach("1", "p1", "n1");
        world.take_pod("p1");
        world.put::<Node>(not_ready(with_attached(node("n1"), &["1"], &["1"])));
        assert_eq!(world.run("n1"), none());
        if disabled {
            world.advance(3_600_000);
            assert_eq!(world.run("n1"), none());
            assert_eq!(world.requeue("n1"), "", "no time is waited for");
        }
        world.take::<Node>(&Key::cluster("n1"));
        assert_eq!(world.run("n1"), none());
        world.advance(3_600_000);
        let forced: &[&str] = if disabled { &[] } else { &["delete h1 on n1"] };
        assert_eq!(world.run("n1"), forced, "disabled: {disabled}");
        if disabled {
            let mut returned = node("n1");
            returned["metadata"]["uid"] = json!("u-returned");
            world.put::<Node>(returned);
            assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"], "a node of that name returns");
        }
        // Found at the start, on a node that is gone.
        let mut world = World::empty(options);
        world.populate_with_volume("1", json!(["ReadWriteOnce"]));
        world.put_attachment("1", "n3", json!({"attached": true}));
        world.start();
        assert_eq!(world.run("n3"), none());
        world.advance(3_600_000);
        let forced: &[&str] = if disabled { &[] } else { &["delete h1 on n3"] };
        assert_eq!(world.run("n3"), forced, "disabled: {disabled}");
    }
}

/// Proves AD-52, AD-100, AD-122.
#[test]
fn healthy_node_is_asked_even_after_six_minutes() {
    let mut world = unwanted();
    world.run("n1");
    world.advance(400_000);
    assert_eq!(world.run("n1"), none());
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    let transcript = world.transcript("n1");
    assert!(!transcript.contains("forced_detaches"), "{transcript}");
    assert_eq!(world.short(&transcript), detaching());
}

/// Proves AD-124, AD-49, AD-100.
#[test]
fn volume_on_an_out_of_service_node_is_detached_at_once() {
    for effect in ["NoExecute", "NoSchedule"] {
        let mut world = World::attached("1", "p1", "n1");
        let mut tainted = with_attached(node("n1"), &["1"], &["1"]);
        tainted["spec"]["taints"] =
            json!([{"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": effect}]);
        world.put::<Node>(tainted.clone());
        assert_eq!(world.run("n1"), none(), "a pod still needs it");
        world.take_pod("p1");
        // Without the taint the usual rules hold.
        world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
        assert_eq!(world.run("n1"), none());
        world.put::<Node>(tainted);
        let transcript = world.transcript("n1");
        assert!(transcript.contains("forced_detaches{out-of-service} 1\n"), "{transcript}");
        assert_eq!(world.short(&transcript), ["report []", "delete h1 on n1"]);
    }
}

/// Proves AD-8, AD-123, AD-51.
#[test]
fn volume_of_a_deleted_node_is_detached_at_once_unless_it_was_in_use() {
    let mut world = unwanted();
    assert_eq!(world.take::<Node>(&Key::cluster("n1")), ["n1"]);
    assert_eq!(world.run("n1"), none(), "last seen in use");
    world.advance(360_001);
    assert_eq!(world.run("n1"), ["delete h1 on n1"], "there is no status to write");

    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.take::<Node>(&Key::cluster("n1"));
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"]);
}

/// Proves AD-8, AD-135, AD-139, AD-155, AD-88, AD-7.
#[test]
fn node_that_returns_keeps_its_volumes() {
    let mut world = World::attached("1", "p1", "n1");
    world.take::<Node>(&Key::cluster("n1"));
    assert_eq!(world.run("n1"), none(), "the pod still needs the volume");
    let mut again = node("n1");
    again["metadata"]["uid"] = json!("u-n1-again");
    assert_eq!(world.put::<Node>(again.clone()), ["n1"]);
    assert_eq!(world.run("n1"), [format!("report [{}]", unique("1"))]);
    // The new node has nothing in use, so the volume can be detached after the live read.
    world.take_pod("p1");
    again["status"]["volumesAttached"] = json!([{"name": unique("1"), "devicePath": ""}]);
    world.put::<Node>(again);
    assert_eq!(world.run("n1"), detaching());
    // A node without volumes is not managed any more, and a pod on it is ignored.
    world.take::<Node>(&Key::cluster("n2"));
    assert_eq!(world.put::<Pod>(pod("p2", "n2", "1")), none());
}

/// Proves AD-54, AD-55.
#[test]
fn live_node_with_the_volume_in_use_fails_the_detach() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    let live = with_attached(node("n1"), &["1"], &["1"]);
    world.cluster = std::mem::take(&mut world.cluster).with_live::<Node>(live);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1"], "nothing is deleted, no event");
    assert_eq!(world.requeue("n1"), "requeue after 500ms");
    // It stays unreported until an attach succeeds.
    world.put::<Node>(with_attached(node("n1"), &[], &["1"]));
    world.advance(500);
    assert_eq!(world.run("n1"), none(), "now the cache knows");
    world.put::<Pod>(pod("p3", "n1", "1"));
    assert_eq!(world.run("n1"), none(), "the attachment exists");
    let done = world.run("n1");
    assert!(done.contains(&format!("report [{}]", unique("1"))), "{done:?}");
}

/// Proves AD-54.
#[test]
fn node_that_cannot_be_read_fails_the_detach() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    let error = ApiError::transport(ErrorReason::Other, "no route");
    world.cluster = std::mem::take(&mut world.cluster).failing::<Node>("get", &Key::cluster("n1"), error);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1"]);
    // A node that is not found is no obstacle.
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    let error = ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, "gone") };
    let path = Node::RESOURCE.object_path(&Key::cluster("n1"));
    world.cluster = std::mem::take(&mut world.cluster)
        .failing_at("get", &path, error, Some(0))
        .changing_on_failure(&path, None);
    let done = world.run("n1");
    assert_eq!(done.last().map(String::as_str), Some("delete h1 on n1"), "{done:?}");
}

/// Proves AD-51, AD-53, AD-88, AD-95, AD-157.
#[test]
fn nothing_is_detached_until_the_status_of_the_node_is_written() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.add_volume("2", json!(["ReadWriteOnce"]));
    world.put::<Pod>(pod("p2", "n1", "2"));
    let path = Node::RESOURCE.object_path(&Key::cluster("n1"));
    for (reason, code) in [(ErrorReason::Forbidden, 403), (ErrorReason::NotFound, 404)] {
        let error = ApiError { code, ..ApiError::transport(reason, "no") };
        world.cluster = std::mem::take(&mut world.cluster).failing_at("patch", &path, error, Some(1));
        let done = world.run("n1");
        assert_eq!(done[0], "report FAILED: no");
        assert!(!done.iter().any(|line| line.starts_with("delete")), "{done:?}");
        assert!(done.last().unwrap().starts_with("retry: "), "{done:?}");
    }
    assert_eq!(world.run("n1"), detaching(), "no backoff: the detach had not begun");
}

/// Proves AD-157.
#[test]
fn attaches_continue_while_the_status_cannot_be_written() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.add_volume("2", json!(["ReadWriteOnce"]));
    world.put::<Pod>(pod("p2", "n1", "2"));
    let path = Node::RESOURCE.object_path(&Key::cluster("n1"));
    let error = ApiError { code: 500, ..ApiError::transport(ErrorReason::Other, "no") };
    world.cluster = std::mem::take(&mut world.cluster).failing_at("patch", &path, error, None);
    assert_eq!(world.run("n1")[..2], ["report FAILED: no", "create h2 on n1"]);
}

/// Proves AD-42, AD-126.
#[test]
fn pod_that_returns_resets_the_clock() {
    let mut world = unwanted();
    world.put::<Node>(not_ready(with_attached(node("n1"), &["1"], &["1"])));
    world.run("n1");
    world.advance(300_000);
    world.put::<Pod>(pod("p2", "n1", "1"));
    assert_eq!(world.run("n1"), none());
    world.take_pod("p2");
    world.run("n1");
    world.advance(300_000);
    assert_eq!(world.run("n1"), none(), "six minutes have not passed since the pod left");
    world.advance(60_001);
    assert_eq!(world.run("n1"), ["report []", "delete h1 on n1"]);
}

/// Proves AD-60, AD-76, AD-77, AD-78.
#[test]
fn detach_ends_when_the_attachment_is_gone_and_fails_with_its_error() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), detaching());
    world.put::<Node>(with_attached(node("n1"), &[], &[]));
    world.put_attachment("1", "n1", json!({"attached": true, "detachError": {"message": "busy"}}));
    world.advance(500);
    assert_eq!(world.run("n1"), none(), "it fails, without an event");
    world.advance(499);
    assert_eq!(world.run("n1"), none(), "backoff");
    world.advance(1);
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"], "every attempt deletes it again");
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.advance(119_999);
    assert_eq!(world.run("n1"), none());
    world.advance(1);
    assert_eq!(world.run("n1"), none(), "timed out");
    world.advance(1000);
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"]);
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.requeue("n1"), "", "detached");
}

/// Proves AD-76.
#[test]
fn attachment_that_does_not_exist_is_detached() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "get h1 on n1"]);
    world.put::<Node>(with_attached(node("n1"), &[], &[]));
    assert_eq!(world.requeue("n1"), "", "done at once");
    // One that only the server knows is deleted.
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.take_attachment("1", "n1");
    let live = attachment("1", "n1", json!({"attached": true}));
    world.cluster = std::mem::take(&mut world.cluster).with_live::<VolumeAttachment>(live);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "get h1 on n1", "delete h1 on n1"]);
    // Another error fails the detach.
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    let path = VolumeAttachment::RESOURCE.object_path(&attachment_key("1", "n1"));
    let error = ApiError { code: 403, ..ApiError::transport(ErrorReason::Forbidden, "no") };
    world.cluster = std::mem::take(&mut world.cluster).failing_at("delete", &path, error, Some(1));
    assert_eq!(world.run("n1")[2], "delete h1 on n1 FAILED: no");
    assert_eq!(world.requeue("n1"), "requeue after 500ms");
}

/// Proves AD-75, AD-146.
#[test]
fn volume_without_a_plugin_stays_and_one_with_an_odd_handle_is_retried() {
    let mut world = World::empty(AttachDetachOptions::default());
    let mut one = node("n1");
    let odd = format!("kubernetes.io/csi/{DRIVER}^a^b");
    one["status"]["volumesAttached"] = json!([{"name": "kubernetes.io/aws-ebs/vol-1", "devicePath": ""}, {"name": odd, "devicePath": ""},
               {"name": "odd", "devicePath": ""}]);
    world.put::<Node>(one);
    world.start();
    // It is unreported and fails; the others stay, without a request.
    assert_eq!(world.run("n1"), ["report [kubernetes.io/aws-ebs/vol-1 odd]", "get nodes n1"]);
    assert_eq!(world.requeue("n1"), "requeue after 500ms");
}

/// Proves AD-47.
#[test]
fn operation_on_an_exclusive_volume_postpones_its_detach_on_every_node() {
    for (modes, is_exclusive) in [(json!(["ReadWriteOnce"]), true), (json!(["ReadWriteMany"]), false)] {
        // The attach on `n1` has failed, and the one on `n2` is running.
        let mut world = World::empty(AttachDetachOptions::default());
        world.populate_with_volume("1", modes);
        world.start();
        world.put::<Pod>(pod("p1", "n1", "1"));
        world.run("n1");
        world.put_attachment("1", "n1", json!({"attachError": {"message": "x"}}));
        world.advance(500);
        world.run("n1");
        world.advance(500);
        world.put::<Pod>(pod("p2", "n2", "1"));
        let created = world.run("n2");
        assert_eq!(created.last().map(String::as_str), Some("create h1 on n2"), "{created:?}");
        // No pod on `n1` needs it any more, and it is not in use there.
        world.take_pod("p1");
        let mut changed = node("n1");
        changed["metadata"]["resourceVersion"] = json!("9");
        world.put::<Node>(changed);
        let detach = ["get nodes n1", "delete h1 on n1"];
        assert_eq!(world.run("n1"), if is_exclusive { vec![] } else { detach.to_vec() });
        if is_exclusive {
            world.put_attachment("1", "n2", json!({"attached": true}));
            let done = world.transcript("n2");
            assert!(
                done.contains("enqueue n1"),
                "the end of the attach enqueues the node that waits: {done}"
            );
            assert_eq!(world.run("n1"), detach);
        }
    }
}

/// Proves AD-47.
#[test]
fn detach_in_backoff_is_not_started_again() {
    let mut world = unwanted();
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), detaching());
    world.put_attachment("1", "n1", json!({"attached": true, "detachError": {"message": "busy"}}));
    world.advance(500);
    assert_eq!(world.run("n1"), none(), "the detach has failed");
    world.advance(499);
    assert_eq!(world.run("n1"), none(), "it is in backoff");
    world.advance(1);
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"]);
    // An entry that is gone meanwhile needs nothing.
    world.take_attachment("1", "n1");
    assert_eq!(world.run("n1"), none());
    world.advance(600_000);
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-47.
#[test]
fn running_attach_postpones_the_detach() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.take_pod("p1");
    assert_eq!(world.run("n1"), none(), "the attach is running");
    world.put_attachment("1", "n1", json!({"attached": true}));
    let done = world.run("n1");
    assert!(done.contains(&format!("report [{}]", unique("1"))), "{done:?}");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), detaching());
}

/// Proves AD-138.
#[test]
fn volume_on_a_node_that_is_not_managed_is_detached() {
    let mut world = World::empty(AttachDetachOptions::default());
    world.populate_with_volume("1", json!(["ReadWriteOnce"]));
    let mut unmanaged = with_attached(node("n3"), &["1"], &[]);
    unmanaged["metadata"]["annotations"] = json!({});
    world.put::<Node>(unmanaged);
    world.put_attachment("1", "n3", json!({"attached": true}));
    world.put::<Pod>(pod("p1", "n3", "1"));
    world.start();
    assert_eq!(world.run("n3"), ["report []", "get nodes n3", "delete h1 on n3"]);
}

/// Proves AD-40.
#[test]
fn volume_counts_as_in_use_until_the_next_event_of_its_node() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.run("n1");
    world.take_pod("p1");
    assert_eq!(world.run("n1"), none(), "kubelet may have mounted it");
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), detaching());
}
