//! The queue of claims and the two passes.

use keleustes_objects::{CsiDriver, Pod};

use super::*;

/// Proves AD-9, AD-16, AD-131.
#[test]
fn claim_that_is_bound_later_attaches_the_volumes_of_its_pods() {
    let mut world = World::started();
    let mut unbound = claim("1");
    unbound["status"]["phase"] = json!("Pending");
    world.put::<PersistentVolumeClaim>(unbound.clone());
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.put::<Pod>(pod("p2", "", "1"));
    let mut terminated = pod("p3", "n2", "1");
    terminated["status"]["phase"] = json!("Failed");
    world.put::<Pod>(terminated);
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.claim_items(&unbound), ["a/c1"]);
    assert_eq!(world.run_claim("c1"), none(), "not bound");
    world.put::<PersistentVolumeClaim>(claim("1"));
    assert_eq!(world.run_claim("c1"), ["enqueue n1 in attachdetach_nodes"]);
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
    assert_eq!(world.run("n2"), none());
    let deleted = Change::deleted(std::sync::Arc::new(serde_json::from_value(claim("1")).unwrap()));
    assert_eq!(world.cluster.enqueued_by::<PersistentVolumeClaim>(&world.claims, deleted), none());
}

/// Proves AD-1, AD-9, AD-11.
#[test]
fn queues_and_periods_are_those_of_the_original() {
    let controller = controller(AttachDetachOptions::default());
    let [nodes, claims] = controller.loops.as_slice() else { panic!("two loops") };
    assert_eq!((claims.queue, claims.workers, claims.max_retries), ("pvcs", 1, None));
    assert_eq!(claims.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
    for a_loop in [nodes, claims] {
        assert_eq!(a_loop.reads.len(), 7, "all seven caches are waited for");
        assert!(a_loop.starts_without.is_empty());
    }
    let mut world = World::started();
    let transcript = world.cluster.reconcile(&world.nodes, StatePass::Populate);
    assert!(transcript.ends_with("requeue after 60s\n"), "{transcript}");
}

/// Proves AD-84, AD-132, AD-133, AD-156.
#[test]
fn stale_pods_are_removed_within_a_minute() {
    let gone = |change: &dyn Fn(&mut World)| {
        let mut world = World::attached("1", "p1", "n1");
        change(&mut world);
        world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
        assert_eq!(world.run("n1"), none(), "not noticed yet");
        assert_eq!(world.populate(), ["enqueue n1"]);
        assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
    };
    // The claim is gone when the pod is deleted.
    gone(&|world| {
        world.take::<PersistentVolumeClaim>(&Key::namespaced("a", "c1"));
        world.take_pod("p1");
    });
    // So is the volume when the pod terminates.
    gone(&|world| {
        world.take::<PersistentVolume>(&Key::cluster("pv1"));
        let mut terminated = pod("p1", "n1", "1");
        terminated["status"]["phase"] = json!("Failed");
        world.put::<Pod>(terminated);
    });
    // A pod of the same name without volumes replaces it.
    gone(&|world| {
        let mut another = pod_in("a", "p1", "n1", json!([]));
        another["metadata"]["uid"] = json!("another");
        world.put::<Pod>(another);
    });
    // A pod that is alive stays.
    let mut world = World::attached("1", "p1", "n1");
    assert_eq!(world.populate(), none());
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-156.
#[test]
fn pod_replaced_under_its_name_is_added_at_once() {
    let mut world = World::attached("1", "p1", "n1");
    let mut another = pod("p1", "n2", "1");
    another["metadata"]["uid"] = json!("another");
    assert_eq!(world.put::<Pod>(another), ["n2"]);
    assert!(world.run("n2")[0].contains("Volume is already used by pod(s) p1"), "the old one is still there");
    assert_eq!(world.populate(), ["enqueue n1"]);
}

/// Proves AD-11, AD-86, AD-133.
#[test]
fn missed_pods_are_added_every_third_minute() {
    let mut world = World::started();
    world.populate();
    // Its event came before its claim was bound, and the event of the claim was missed.
    world.take::<PersistentVolumeClaim>(&Key::namespaced("a", "c1"));
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.put::<PersistentVolumeClaim>(claim("1"));
    world.advance(60_000);
    assert_eq!(world.populate(), none());
    world.advance(119_999);
    assert_eq!(world.populate(), none());
    world.advance(1);
    assert_eq!(world.populate(), ["enqueue n1"]);
    assert_eq!(world.run("n1"), ["create h1 on n1"]);
}

/// Proves AD-85.
#[test]
fn volume_that_is_not_attachable_any_more_is_detached() {
    let mut world = World::attached("1", "p1", "n1");
    world.put::<CsiDriver>(driver(json!(false)));
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), none());
    assert_eq!(world.populate(), ["enqueue n1"]);
    assert_eq!(world.run("n1"), ["report []", "get nodes n1", "delete h1 on n1"]);
}

/// Proves AD-154.
#[test]
fn attachment_of_a_gap_between_two_driver_objects_is_deleted_after_its_attach_has_ended() {
    let mut world = World::started();
    world.put::<CsiDriver>(driver(json!(false)));
    world.put::<Pod>(pod("p0", "n1", "1"));
    assert_eq!(world.run("n1"), none(), "the driver attaches nothing");
    world.take_pod("p0");
    remove_driver(&mut world);
    world.put::<Pod>(pod("p1", "n1", "1"));
    assert_eq!(world.run("n1"), ["create h1 on n1"], "processed in the gap");
    world.put_attachment("1", "n1", json!({}));
    assert_eq!(world.populate(), none(), "without the driver object the volume is wanted");
    world.put::<CsiDriver>(driver(json!(false)));
    assert_eq!(world.populate(), ["enqueue n1"]);
    assert_eq!(world.cluster.reconcile(&world.nodes, StatePass::Populate), "requeue after 60s\n");
    let update = |world: &mut World, version: &str| {
        let mut changed = node("n1");
        changed["metadata"]["resourceVersion"] = json!(version);
        world.put::<Node>(changed);
    };
    update(&mut world, "8");
    assert_eq!(world.run("n1"), none(), "the attach is still running");
    world.advance(120_000);
    let failed = world.run("n1");
    assert!(failed.len() == 1 && failed[0].contains("timed out waiting for external-attacher"), "{failed:?}");
    world.advance(500);
    assert_eq!(world.run("n1"), none(), "it counts as in use");
    update(&mut world, "9");
    assert_eq!(world.run("n1"), ["get nodes n1", "delete h1 on n1"]);
}

/// Proves AD-12, AD-80, AD-81, AD-137.
#[test]
fn attached_volumes_are_verified_once_per_period() {
    let mut world = World::attached("1", "p1", "n1");
    assert_eq!(world.verify(), none());
    world.take_attachment("1", "n1");
    world.advance(59_999);
    assert_eq!(world.verify(), none(), "the first period is not over");
    assert_eq!(world.run("n1"), none(), "and nothing else notices");
    world.advance(1);
    assert_eq!(world.verify(), ["get h1 on n1", "enqueue n1"]);
    assert_eq!(world.run("n1"), ["create h1 on n1", "report []"]);
    // One that is not attached any more is attached again.
    let mut world = World::attached("1", "p1", "n1");
    world.verify();
    world.put_attachment("1", "n1", json!({"attached": false}));
    world.advance(60_000);
    assert_eq!(world.verify(), ["enqueue n1"]);
    assert_eq!(world.run("n1"), ["report []"], "the attachment is reused");
    // One that is being deleted counts as attached, and so does one that only the server knows.
    let mut world = World::attached("1", "p1", "n1");
    world.verify();
    let mut terminating = attachment("1", "n1", json!({"attached": true}));
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put::<VolumeAttachment>(terminating.clone());
    world.advance(60_000);
    assert_eq!(world.verify(), none());
    world.take_attachment("1", "n1");
    world.cluster = std::mem::take(&mut world.cluster).with_live::<VolumeAttachment>(terminating);
    world.advance(60_000);
    assert_eq!(world.verify(), ["get h1 on n1"]);
    // A driver that attaches nothing makes no difference.
    world.put::<CsiDriver>(driver(json!(false)));
    world.advance(60_000);
    assert_eq!(world.verify(), none());
}

/// Proves AD-12.
#[test]
fn first_verification_is_one_period_after_the_start() {
    let mut world = World::attached("1", "p1", "n1");
    // Missing from the start on: a verification would notice it.
    world.take_attachment("1", "n1");
    assert_eq!(world.verify(), none(), "not at the start");
    world.advance(59_999);
    assert_eq!(world.verify(), none());
    world.advance(1);
    assert_eq!(world.verify(), ["get h1 on n1", "enqueue n1"]);
}

/// Proves AD-13, AD-12.
#[test]
fn verification_has_the_period_of_the_flag_and_can_be_disabled() {
    let items = |options| controller(options).loops[0].initial_items.len();
    assert_eq!(items(AttachDetachOptions::default()), 2);
    assert_eq!(items(AttachDetachOptions { disable_reconcile_sync: true, ..Default::default() }), 1);
    let period = Duration::from_secs(7);
    let mut world = World::empty(AttachDetachOptions { reconcile_sync_period: period, ..Default::default() });
    world.start();
    for _ in 0..2 {
        let transcript = world.cluster.reconcile(&world.nodes, StatePass::Verify);
        assert_eq!(transcript, "requeue after 7s\n");
        world.advance(7000);
    }
}

/// Proves AD-149.
#[test]
fn unwanted_volume_that_verification_drops_is_not_detached() {
    let mut world = World::attached("1", "p1", "n1");
    world.verify();
    world.take_pod("p1");
    assert_eq!(world.run("n1"), none(), "in use");
    world.put_attachment("1", "n1", json!({"attached": false}));
    world.advance(60_000);
    assert_eq!(world.verify(), ["enqueue n1"]);
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1"), ["report []"]);
    world.put::<Node>(with_attached(node("n1"), &[], &[]));
    assert_eq!(world.run("n1"), none());
}

/// Proves AD-80, AD-81, AD-120.
#[test]
fn volume_that_verification_drops_is_attached_to_the_node_that_waits_for_it() {
    let mut world = World::attached("1", "p1", "n1");
    world.verify();
    world.take_pod("p1");
    world.put::<Pod>(pod("p2", "n2", "1"));
    let waiting = world.run("n2");
    assert!(waiting.len() == 1 && waiting[0].contains("Waiting for detach"), "{waiting:?}");
    assert_eq!(world.requeue("n2"), "", "no time is waited for");
    assert_eq!(world.take_attachment("1", "n1"), ["n1"]);
    world.advance(60_000);
    assert_eq!(world.verify(), ["get h1 on n1", "enqueue n1", "enqueue n2"]);
    assert_eq!(world.run("n2"), ["create h1 on n2"]);
}
