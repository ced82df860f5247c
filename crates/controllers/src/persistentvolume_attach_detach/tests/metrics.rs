//! Metrics, grants, and what is never written.

use keleustes_objects::{CsiDriver, Pod};

use super::*;

/// The measurements of a metric: labels and value.
pub(super) fn measured(transcript: &str, metric: &str) -> Vec<String> {
    let prefix = format!("measure {metric}");
    transcript.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned())).collect()
}

/// Proves AD-98, AD-99.
#[test]
fn volumes_are_counted_by_node_plugin_and_state() {
    let mut world = World::attached("1", "p1", "n1");
    world.put::<CsiDriver>(json!({"metadata": {"name": "none.io"}, "spec": {"attachRequired": false}}));
    let volumes = json!([{"name": "v", "csi": {"driver": "none.io"}}, {"name": "w", "emptyDir": {}},
                         {"name": "x", "persistentVolumeClaim": {"claimName": "missing"}}]);
    let mut done = pod_in("a", "p2", "n1", volumes);
    done["status"]["phase"] = json!("Succeeded");
    world.put::<Pod>(done);
    world.put::<Pod>(pod("p3", "", "1"));
    world.advance(5000);
    let transcript = world.transcript("n1");
    assert_eq!(
        measured(&transcript, "storage_count_attachable_volumes_in_use"),
        ["{n1,kubernetes.io/csi:d.io} 1", "{n1,kubernetes.io/csi:none.io} 1"]
    );
    assert_eq!(
        measured(&transcript, "attachdetach_controller_total_volumes"),
        [
            "{kubernetes.io/csi:d.io,actual_state_of_world} 1",
            "{kubernetes.io/csi:d.io,desired_state_of_world} 1"
        ]
    );
    // What is not there any more is set to zero.
    world.take_pod("p2");
    world.advance(5000);
    let transcript = world.transcript("n1");
    assert!(
        measured(&transcript, "storage_count_attachable_volumes_in_use")
            .contains(&"{n1,kubernetes.io/csi:none.io} 0".to_owned())
    );
    // An entry whose volume is unknown is left out.
    let mut world = World::empty(AttachDetachOptions::default());
    world.put::<Node>(with_attached(node("n1"), &["1"], &["1"]));
    world.start();
    let transcript = world.transcript("n1");
    assert_eq!(measured(&transcript, "attachdetach_controller_total_volumes"), none());
}

/// Proves AD-101, AD-102.
#[test]
fn operations_are_measured() {
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.put_attachment("1", "n1", json!({"attachError": {"message": "x"}}));
    world.advance(500);
    let labels = |transcript: &str| measured(transcript, "storage_operation_duration_seconds");
    assert_eq!(
        labels(&world.transcript("n1")),
        ["{kubernetes.io/csi:d.io,volume_attach,fail-unknown,false} 0.5"]
    );
    world.advance(500);
    world.run("n1");
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.advance(2000);
    assert_eq!(labels(&world.transcript("n1")), ["{kubernetes.io/csi:d.io,volume_attach,success,false} 2"]);
    world.cluster.reconcile(&world.nodes, StatePass::Verify);
    world.advance(60_000);
    let transcript = world.cluster.reconcile(&world.nodes, StatePass::Verify);
    assert_eq!(labels(&transcript), ["{<n/a>,verify_volumes_are_attached_per_node,success,false} 0"]);
    // With an unknown spec the driver is unknown.
    let mut world = World::empty(AttachDetachOptions::default());
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    world.start();
    assert_eq!(labels(&world.transcript("n1")), ["{kubernetes.io/csi,volume_detach,success,false} 0"]);
    // A migrated volume is labelled.
    let mut world = World::started();
    world.put::<Pod>(pod_in("a", "p1", "n1", json!([{"name": "c", "cinder": {"volumeID": "v"}}])));
    world.run("n1");
    world.advance(120_000);
    assert_eq!(
        labels(&world.transcript("n1")),
        ["{kubernetes.io/csi:cinder.csi.openstack.org,volume_attach,fail-unknown,true} 120"]
    );
}

/// Proves AD-94, AD-96, AD-97.
#[test]
fn only_attachments_and_node_statuses_are_written() {
    let controller = controller(AttachDetachOptions::default());
    assert_eq!(controller.event_component, Some("attachdetach-controller"));
    assert_eq!(controller.service_account, Some("attachdetach-controller"));
    let writing = ["create", "update", "patch", "delete"];
    let written: Vec<(&str, Vec<&str>)> = controller
        .grants
        .iter()
        .map(|grant| {
            (grant.resource, grant.verbs.iter().copied().filter(|verb| writing.contains(verb)).collect())
        })
        .filter(|(_, verbs): &(&str, Vec<&str>)| !verbs.is_empty())
        .collect();
    assert_eq!(
        written,
        [
            ("nodes/status", vec!["patch", "update"]),
            ("volumeattachments", vec!["create", "delete"]),
            ("events", vec!["create", "patch", "update"])
        ]
    );
}

/// Proves AD-134, AD-136.
#[test]
fn list_that_another_writer_has_cleared_is_written_with_the_next_change() {
    let mut world = World::attached("1", "p1", "n1");
    world.put::<Node>(with_attached(node("n1"), &[], &["1"]));
    assert_eq!(world.run("n1"), none(), "not noticed");
    world.add_volume("2", json!(["ReadWriteOnce"]));
    world.put::<Pod>(pod("p2", "n1", "2"));
    world.run("n1");
    world.put_attachment("2", "n1", json!({"attached": true}));
    let both = format!("report [{} {}]", unique("1"), unique("2"));
    assert!(world.run("n1").contains(&both));
    // If the cache shows the new list already, nothing is sent.
    let mut world = World::started();
    world.put::<Pod>(pod("p1", "n1", "1"));
    world.run("n1");
    world.put_attachment("1", "n1", json!({"attached": true}));
    world.put::<Node>(with_attached(node("n1"), &["1"], &[]));
    assert_eq!(world.run("n1").len(), 1, "only the event");
}
