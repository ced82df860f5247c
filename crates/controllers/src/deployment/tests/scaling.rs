//! A change of `spec.replicas` during a rollout and outside of one.

use super::*;

fn sized_for(desired: &str, set: Value) -> Value {
    with_field(set, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas", json!(desired))
}

/// Proves DEP-44.
#[test]
fn a_desired_replicas_annotation_that_differs_means_scaling() {
    // After a change the old ReplicaSet is scaled in proportion; otherwise the rollout continues.
    let change = |set: Value| sizes(cluster(deployment(3), [set, new(2, 2)])) != sized(&[("old", 0)]);
    assert!(change(sized_for("4", old(2, 2))));
    for other in ["0", "2147483647"] {
        assert!(change(sized_for(other, old(2, 2))), "{other}");
    }
    for nothing in ["3", "", "x", "-1", "2147483648"] {
        assert!(!change(sized_for(nothing, old(2, 2))), "{nothing}");
    }
    let mut missing = old(2, 2);
    missing["metadata"]["annotations"].as_object_mut().unwrap().remove(annotations::DESIRED_REPLICAS);
    assert!(!change(missing));
    // The annotation of the new ReplicaSet counts as well, and that of a ReplicaSet without replicas does not.
    assert_ne!(sizes(cluster(deployment(3), [old(2, 2), sized_for("4", new(2, 2))])), sized(&[("old", 0)]));
    let older = |set: Value| sizes(cluster(deployment(3), [set, old(2, 2), new(2, 2)]));
    assert_eq!(older(sized_for("4", set("older", "v0", 0, 0))), sized(&[("old", 0)]));
    assert_ne!(older(sized_for("4", set("older", "v0", 1, 1))), sized(&[("old", 0)]));
}

/// Proves DEP-45, DEP-66, DEP-67.
#[test]
fn a_single_active_replica_set_gets_all_replicas() {
    let five = |sets: &[Value]| cluster(deployment(5), sets.to_vec());
    assert_eq!(sizes(five(&[new(3, 3), old(0, 0)])), sized(&[("new", 5)]));
    check(
        five(&[new(3, 3)]),
        &format!(
            "patch replicasets.apps a/new because the Deployment scales it up\n\
             event Normal ScalingReplicaSet on Deployment a/web uid=u-web: Scaled up replica set new from 3 to 5\n{STATUS}"
        ),
    );
    let (_, body) = bodies(five(&[new(3, 3)]), "patch replicasets.apps ").remove(0);
    assert_eq!(
        body["metadata"]["annotations"],
        json!({annotations::DESIRED_REPLICAS: "5", annotations::MAX_REPLICAS: "6"})
    );
    // An old ReplicaSet, although the template has changed: scaling creates no ReplicaSet.
    assert_eq!(sizes(five(&[old(3, 3)])), sized(&[("old", 5)]));
    // None is active: the new one, or else the youngest old one. Only a paused Deployment gets here.
    let held = |sets: &[Value]| sizes(cluster(paused(deployment(5)), sets.to_vec()));
    assert_eq!(held(&[new(0, 0), old(0, 0)]), sized(&[("new", 5)]));
    assert_eq!(held(&[set("older", "v0", 0, 0), old(0, 0)]), sized(&[("old", 5)]));
    assert_eq!(held(&[]), sized(&[]));
}

/// Proves DEP-46, DEP-105.
#[test]
fn a_saturated_new_replica_set_scales_the_old_ones_to_zero() {
    let full = |available: i32, desired: &str| {
        let sets =
            [sized_for(desired, new(3, available)), sized_for("9", old(2, 2)), set("older", "v0", 1, 1)];
        sizes(cluster(deployment(3), sets))
    };
    assert_eq!(full(3, "3"), sized(&[("older", 0), ("old", 0)]));
    assert_ne!(full(2, "3"), sized(&[("older", 0), ("old", 0)]));
    assert_ne!(full(0, "3"), sized(&[("older", 0), ("old", 0)]));
    assert_ne!(full(3, "4"), sized(&[("older", 0), ("old", 0)]));
    // Nothing exceeds the allowed surge: whether the new pods are available decides alone.
    let fitting =
        |available: i32| sizes(cluster(deployment(3), [new(3, available), sized_for("9", old(1, 1))]));
    assert_eq!(fitting(3), sized(&[("old", 0)]));
    for unavailable in [0, 2] {
        assert_eq!(fitting(unavailable), sized(&[]), "{unavailable}");
    }
}

/// Proves DEP-47, DEP-51, DEP-52.
#[test]
fn a_change_of_replicas_is_distributed_over_a_rolling_update() {
    let there = |strategy: fn(Value) -> Value| cluster(strategy(deployment(6)), [old(2, 2), new(2, 2)]);
    // Seven pods are allowed, four were: each gets its share, the new one the remainder.
    assert_eq!(sizes(there(|same| same)), sized(&[("new", 4), ("old", 3)]));
    assert_eq!(sizes(there(recreating)), sized(&[]));
    let raced = there(|same| same);
    let raced =
        raced.failing::<ReplicaSet>("patch", &Key::namespaced("a", "new"), api_error(ErrorReason::Conflict));
    check(
        raced,
        "patch replicasets.apps a/new because the Deployment scales it up FAILED: refused\n\
         retry: patch replicasets.apps a/new because the Deployment scales it up: refused\n",
    );
    // Sizes that fit stay, and the annotations are updated.
    let fitting = || cluster(deployment(3), [sized_for("9", old(2, 2)), new(2, 2)]);
    assert_eq!(sizes(fitting()), sized(&[]));
    let patches = bodies(fitting(), "patch replicasets.apps ");
    let [(name, body)] = &patches[..] else { panic!("one patch") };
    assert_eq!(
        (&**name, &body["metadata"]["annotations"]),
        ("old", &json!({annotations::DESIRED_REPLICAS: "3"}))
    );
}

/// Proves DEP-102, DEP-103.
#[test]
fn scaling_comes_before_a_new_template() {
    // Both changed: the old ReplicaSet is scaled up now, the new one is created in the next reconcile.
    let both = reconcile(cluster(deployment(5), [old(3, 3)]));
    assert!(both.contains("Scaled up replica set old from 3 to 5") && !both.contains("create"));
    // A ReplicaSet of the right size with an outdated annotation blocks the rollout, as in the original.
    let stuck = reconcile(cluster(deployment(3), [sized_for("9", old(3, 3))]));
    assert!(!stuck.contains("replicasets"), "{stuck}");
}
