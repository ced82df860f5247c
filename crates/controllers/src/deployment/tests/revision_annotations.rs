//! Which ReplicaSet is the new one, and its annotations.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

const NOTE: &str = "/metadata/annotations/note";

fn revision_of(set: Value, revision: &str) -> Value {
    with_field(set, "/metadata/annotations/deployment.kubernetes.io~1revision", json!(revision))
}

/// The annotations that one reconcile writes to the new ReplicaSet.
fn annotations_written(deployment: Value, sets: impl IntoIterator<Item = Value>) -> Value {
    let patches = bodies(cluster(deployment, sets), "patch replicasets.apps ").into_iter();
    let mut new_set = patches.filter(|(name, _)| name == "new");
    new_set.next().map_or(Value::Null, |(_, mut body)| body["metadata"]["annotations"].take())
}

/// Proves DEP-16, DEP-18, DEP-19, DEP-20, DEP-116, INF-151.
#[test]
fn the_oldest_replica_set_with_the_template_is_the_new_one() {
    let hashed = |set: Value, hash: &str| {
        let set = with_field(set, "/metadata/labels/pod-template-hash", json!(hash));
        with_field(set, "/spec/template/metadata/labels/pod-template-hash", json!(hash))
    };
    // With any hash label and without one.
    for set in [new(3, 3), hashed(new(3, 3), "anything")] {
        check(cluster(complete(3), [set, old(0, 0)]), "");
    }
    // Of two equal ones the older, by creation time and then by name.
    let twin = |born: &str| {
        let twin = revision_of(set("twin", "v2", 1, 1), "2");
        with_field(twin, "/metadata/creationTimestamp", json!(born))
    };
    let pair = |born| cluster(deployment(3), [new(3, 3), twin(born)]);
    assert_eq!(sizes(pair("2027-01-04T00:00:00Z")), sized(&[("twin", 0)]));
    assert_eq!(sizes(pair("2027-01-03T00:00:00Z")), sized(&[("twin", 0)]));
    // Here `new` is an old ReplicaSet.
    let older = cluster(
        with_field(deployment(3), "/spec/replicas", json!(3)),
        [new(3, 3), twin("2027-01-02T00:00:00Z")],
    );
    assert_eq!(sizes(older), sized(&[("new", 1)]));
}

/// Proves DEP-21, DEP-24.
#[test]
fn the_new_replica_set_has_the_highest_revision() {
    for (olds, before, after) in [
        (["1", "5"], "2", json!("6")),
        (["1", "x"], "1", json!("2")),
        (["", "-4"], "", json!("1")),
        // A revision that is higher than necessary stays.
        (["1", "2"], "9", Value::Null),
    ] {
        let [one, other] = olds.map(|revision| revision_of(old(0, 0), revision));
        let other = with_field(
            with_field(other, "/metadata/name", json!("older")),
            "/metadata/uid",
            json!("u-older"),
        );
        let written = annotations_written(complete(3), [one, other, revision_of(new(3, 3), before)]);
        assert_eq!(written[annotations::REVISION], after, "{olds:?} {before}");
    }
}

/// Proves DEP-22, DEP-23.
#[test]
fn annotations_are_copied_to_the_new_replica_set() {
    let mut noted = with_field(complete(3), NOTE, json!("x"));
    for own in [
        annotations::LAST_APPLIED,
        annotations::REVISION_HISTORY,
        annotations::DESIRED_REPLICAS,
        annotations::MAX_REPLICAS,
    ] {
        noted["metadata"]["annotations"][own] = json!("9");
    }
    noted["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!("");
    let kept = with_field(new(3, 3), "/metadata/annotations/kept", json!("y"));
    assert_eq!(annotations_written(noted.clone(), [kept.clone()]), json!({"note": "x"}));
    check(cluster(noted, [with_field(kept, NOTE, json!("x"))]), "");
}

/// Proves DEP-25.
#[test]
fn an_invalid_revision_leaves_all_annotations_unchanged() {
    let noted = with_field(complete(3), NOTE, json!("x"));
    assert_eq!(annotations_written(noted.clone(), [revision_of(new(3, 3), "two")]), Value::Null);
    // With another change what was copied is written, as the original does.
    let patient = with_field(noted, "/spec/minReadySeconds", json!(7));
    assert_eq!(annotations_written(patient, [revision_of(new(3, 3), "two")]), json!({"note": "x"}));
}

/// Proves DEP-26, DEP-27.
#[test]
fn earlier_revisions_are_kept_in_the_history() {
    let written = annotations_written(complete(3), [revision_of(old(0, 0), "4"), new(3, 3)]);
    assert_eq!(written, json!({annotations::REVISION: "5", annotations::REVISION_HISTORY: "2"}));
    let mut requeue_after = new(3, 3);
    requeue_after["metadata"]["annotations"][annotations::REVISION_HISTORY] = json!("1");
    let written = annotations_written(complete(3), [revision_of(old(0, 0), "4"), requeue_after]);
    assert_eq!(written[annotations::REVISION_HISTORY], "1,2");
    let mut bare = new(3, 3);
    bare["metadata"]["annotations"] = json!({});
    assert_eq!(annotations_written(complete(3), [bare])[annotations::REVISION_HISTORY], Value::Null);
}

/// Proves DEP-28, DEP-92.
#[test]
fn the_new_replica_set_is_patched_before_the_deployment_gets_its_revision() {
    let behind =
        with_field(complete(3), "/metadata/annotations/deployment.kubernetes.io~1revision", json!("1"));
    let patient = with_field(behind.clone(), "/spec/minReadySeconds", json!(7));
    let there = || cluster(patient.clone(), [new(3, 3)]);
    let patches = bodies(there(), "patch replicasets.apps ");
    let [(_, body)] = &patches[..] else { panic!("one patch") };
    assert_eq!(
        (&body["spec"]["minReadySeconds"], &body["metadata"]["resourceVersion"]),
        (&json!(7), &json!("5"))
    );
    assert!(body["spec"].get("replicas").is_none());
    assert!(!reconcile(there()).contains("deployments.apps"), "not in this reconcile");
    let raced = there().failing::<ReplicaSet>(
        "patch",
        &Key::namespaced("a", "new"),
        api_error(ErrorReason::Conflict),
    );
    assert!(is_retried_because(&reconcile(raced), "refused"));
    // In the next reconcile.
    let written = put(cluster(behind, [new(3, 3)]));
    assert_eq!(written["metadata"]["annotations"][annotations::REVISION], "2");
}

/// Proves DEP-29, DEP-94, DEP-95.
#[test]
fn the_deployment_gets_the_revision_with_its_status() {
    let mut behind =
        with_field(complete(3), "/metadata/annotations/deployment.kubernetes.io~1revision", json!("1"));
    behind["metadata"]["labels"] = json!({"l": "1"});
    let written = put(cluster(behind.clone(), [new(3, 3)]));
    assert_eq!(written["metadata"]["annotations"][annotations::REVISION], "2");
    assert_eq!(
        (&written["metadata"]["labels"], &written["metadata"]["resourceVersion"]),
        (&json!({"l": "1"}), &json!("7"))
    );
    assert_eq!(written["status"]["conditions"], behind["status"]["conditions"]);
    check(cluster(behind, [new(3, 3)]), STATUS);
}

/// Proves DEP-30.
#[test]
fn an_existing_new_replica_set_is_reported_as_found() {
    let found = written_condition(cluster(deployment(3), [new(1, 0), old(3, 3)]), "Progressing");
    assert_eq!(words(&found)[1], "ReplicaSetUpdated", "the rollout progresses at once");
    let mut counted = deployment(3);
    counted["status"] = json!({"observedGeneration": 2, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3});
    let there = || cluster(counted.clone(), [new(1, 0), old(3, 3)]);
    assert_eq!(
        words(&written_condition(there(), "Progressing")),
        ["True", "FoundNewReplicaSet", "Found new replica set \"new\""]
    );
    let endless = with_field(counted.clone(), "/spec/progressDeadlineSeconds", Value::Null);
    assert_eq!(written_condition(cluster(endless, [new(1, 0), old(3, 3)]), "Progressing"), Value::Null);
}
