//! The revisions of a StatefulSet, and which ones are kept.

use keleustes_objects::PodTemplate;

use super::*;
use crate::workloads::fixtures::revisions_in;
use crate::workloads::revisions::RevisionData;

/// The hash of a template after so many collisions.
fn revision_hash(image: &str, collisions: i32) -> String {
    let template = PodTemplate::parse(&template(image).to_string()).unwrap();
    RevisionData::of(&template).hash(collisions)
}

/// A StatefulSet of `v3`, which has no revision.
fn changed() -> Value {
    with_field(with_field(set(0), "/spec/template", template("v3")), "/metadata/generation", json!(3))
}

fn revision_actions(cluster: RehearsalCluster) -> Vec<String> {
    revisions_in(&reconcile(cluster))
}

fn update_revision(cluster: RehearsalCluster) -> Value {
    status(cluster)["updateRevision"].take()
}

/// Proves STS-28, STS-33, STS-36, REV-20, REV-21, REV-24, REV-66, REV-67.
#[test]
fn a_new_template_creates_the_next_revision() {
    let name = format!("web-{}", revision_hash("v3", 0));
    let created = body(cluster(changed(), []), "create controllerrevisions.apps ");
    let mut template = template("v3");
    template["$patch"] = json!("replace");
    assert_eq!(
        created,
        json!({
            "metadata": {
                "name": name, "namespace": "a", "ownerReferences": [owner()],
                "labels": {"app": "web", "controller.kubernetes.io/hash": revision_hash("v3", 0)},
                "annotations": {"note": "x"},
            },
            "data": {"spec": {"template": template}},
            "revision": 3,
        })
    );
    assert_eq!(update_revision(cluster(changed(), [])), json!(name));
    assert!(!reconcile(cluster(changed(), [])).contains("event"), "no event is recorded");
    let first = body(bare(changed(), []), "create controllerrevisions.apps ");
    assert_eq!(first["revision"], 1);
}

/// Proves STS-29, STS-34, REV-71.
#[test]
fn a_known_template_creates_no_revision() {
    assert!(revision_actions(cluster(set(0), [])).is_empty());
    let written = status(cluster(set(1), [old(0)]));
    assert_eq!((&written["currentRevision"], &written["updateRevision"]), (&json!("web-1"), &json!("web-2")));
    // Of two revisions with equal data the last one counts.
    let twice = || cluster(set(0), []).with::<ControllerRevision>(revision("web-9", 3, "v2"));
    assert!(revision_actions(twice()).is_empty());
    assert_eq!(update_revision(twice()), "web-9");
}

/// Proves STS-30, REV-30, REV-36, REV-72.
#[test]
fn returning_to_an_old_template_renumbers_its_revision() {
    let back = || {
        let set = with_field(
            with_field(set(0), "/spec/template", template("v1")),
            "/metadata/generation",
            json!(3),
        );
        cluster(set, []).with::<ControllerRevision>(revision("web-7", 7, "v7"))
    };
    assert_eq!(body(back(), "patch controllerrevisions.apps "), json!({"revision": 8}));
    assert_eq!(revision_actions(back()), ["patch web-1"]);
    assert_eq!(update_revision(back()), "web-1");
    let failing = back().failing::<ControllerRevision>("patch", &key("web-1"), api_error(ErrorReason::Other));
    assert!(
        reconcile(failing).contains("FAILED: refused\nretry: patch controllerrevisions.apps a/web-1 "),
        "the reconcile ends"
    );
}

/// Proves STS-27, REV-32, REV-34.
#[test]
fn revisions_are_sorted_by_number_then_age_then_name() {
    let born = |name: &str, number: i64, day: i32| {
        let born = format!("2027-01-0{day}T00:00:00Z");
        with_field(revision(name, number, "v2"), "/metadata/creationTimestamp", json!(born))
    };
    let newest = |revisions: [Value; 2]| {
        let cluster = revisions
            .into_iter()
            .fold(bare(set(0), []), |cluster, it| cluster.with::<ControllerRevision>(it));
        update_revision(cluster)
    };
    assert_eq!(newest([born("b", 2, 1), born("a", 3, 1)]), "a");
    assert_eq!(newest([born("b", 3, 1), born("a", 3, 2)]), "a");
    assert_eq!(newest([born("b", 3, 1), born("a", 3, 1)]), "b");
    // A revision whose labels do not match is ignored, and not released.
    let stray = with_field(revision("web-9", 9, "v3"), "/metadata/labels", json!({"app": "none"}));
    let cluster = cluster(changed(), []).with::<ControllerRevision>(stray);
    assert_eq!(revision_actions(cluster), [format!("create web-{}", revision_hash("v3", 0))]);
}

/// Proves STS-31, REV-11, REV-37, REV-62.
#[test]
fn a_semantically_equal_revision_is_kept() {
    let empty = json!({"creationTimestamp": null, "labels": {"app": "web"}});
    let other_words = with_field(revision("web-3", 3, "v3"), "/data/spec/template/metadata", empty);
    let cluster = |set: Value| cluster(set, []).with::<ControllerRevision>(other_words.clone());
    assert!(revision_actions(cluster(changed())).is_empty());
    assert_eq!(update_revision(cluster(changed())), "web-3");
    let a_loop =
        loop_of(&StatefulSetOptions { semantic_revision_comparison: false, ..StatefulSetOptions::default() });
    let mut literal = cluster(changed());
    assert!(literal.outline(&a_loop, web()).contains("create controllerrevisions.apps a/web-"));
    // Only the latest revision is compared semantically.
    let newer = cluster(changed()).with::<ControllerRevision>(revision("web-4", 4, "v4"));
    assert_eq!(revision_actions(newer).len(), 1);
}

/// Proves REV-76.
#[test]
fn a_newly_defaulted_field_creates_no_revision() {
    let filled = with_field(changed(), "/spec/template/spec/restartPolicy", json!("Always"));
    let world_of = |set: Value| cluster(set, []).with::<ControllerRevision>(revision("web-3", 3, "v3"));
    assert!(revision_actions(world_of(filled)).is_empty());
    let wanted = with_field(changed(), "/spec/template/spec/restartPolicy", json!("Never"));
    assert_eq!(revision_actions(world_of(wanted)).len(), 1);
}

/// Proves REV-61.
#[test]
fn a_new_process_with_the_same_caches_does_the_same() {
    let mut cluster = cluster(changed(), [old(0)]);
    let first = cluster.reconcile(&the_loop(), web());
    assert_eq!(cluster.reconcile(&the_loop(), web()), first);
}

/// Proves REV-74.
#[test]
fn an_exhausted_collision_count_is_an_error() {
    let last = with_field(changed(), "/status/collisionCount", json!(i32::MAX));
    let name = format!("web-{}", revision_hash("v3", i32::MAX));
    let taken = cluster(last, [])
        .failing::<ControllerRevision>("create", &key(&name), api_error(ErrorReason::AlreadyExists))
        .with_live::<ControllerRevision>(revision(&name, 1, "other"));
    assert!(reconcile(taken).ends_with(&format!("retry: the name {name} is taken\n")));
}

/// Proves REV-49, REV-50, REV-51.
#[test]
fn the_revision_in_an_up_to_date_status_is_kept() {
    // The status was written for this generation: its update revision stays, however its data is spelled.
    let odd = with_field(revision("web-2", 2, "v2"), "/data/spec/template/spec/hostname", json!("odd"));
    let cluster = |set: Value| bare(set, [pod(0)]).with::<ControllerRevision>(odd.clone());
    assert_eq!(actions(cluster(up_to_date(1))), "");
    let touched = with_field(up_to_date(1), "/metadata/generation", json!(3));
    assert!(
        actions(cluster(touched)).starts_with("create controllerrevisions.apps"),
        "a new generation is compared again"
    );
}

/// Proves REV-22, REV-23, REV-25, REV-26, REV-27, REV-28.
#[test]
fn a_revision_name_collision_increments_the_collision_count() {
    let names = [0, 1, 2].map(|count| format!("web-{}", revision_hash("v3", count)));
    let taken = |cluster: RehearsalCluster, name: &str, image: &str| {
        let cluster = cluster.failing::<ControllerRevision>(
            "create",
            &key(name),
            api_error(ErrorReason::AlreadyExists),
        );
        cluster.with_live::<ControllerRevision>(revision(name, 1, image))
    };
    let twice = || taken(taken(cluster(changed(), []), &names[0], "other"), &names[1], "another");
    let created = twice().bodies(&the_loop(), web(), "create controllerrevisions.apps ").pop().unwrap();
    assert_eq!(created.0, names[2]);
    let label = &created.1["metadata"]["labels"]["controller.kubernetes.io/hash"];
    assert_eq!(*label, revision_hash("v3", 0), "without the collision count");
    let written = status(twice());
    assert_eq!((&written["updateRevision"], &written["collisionCount"]), (&json!(names[2]), &json!(2)));
    // An existing revision with equal data is used.
    let same = || taken(cluster(changed(), []), &names[0], "v3");
    let written = status(same());
    assert_eq!((&written["updateRevision"], &written["collisionCount"]), (&json!(names[0]), &json!(0)));
    assert_eq!(revision_actions(same()), [format!("create {}", names[0]), format!("get {}", names[0])]);
    // Any other error ends the reconcile.
    let refusing = cluster(changed(), []);
    let refusing = refusing.failing::<ControllerRevision>(
        "create",
        &key(&names[0]),
        api_error(ErrorReason::NamespaceTerminating),
    );
    assert!(reconcile(refusing).contains("FAILED: refused\nretry: create controllerrevisions.apps "));
}

/// Proves STS-37, STS-111, STS-124, REV-63, REV-64.
#[test]
fn the_oldest_unused_revisions_are_deleted() {
    let many = |set: Value, pods: Vec<Value>| {
        let cluster = cluster(set, pods);
        (3..6).fold(cluster, |cluster, number| {
            cluster.with::<ControllerRevision>(revision(
                &format!("web-{number}"),
                number,
                &format!("v{number}"),
            ))
        })
    };
    let limited = |limit: Value| {
        with_field(with_field(set(1), "/spec/template", template("v5")), "/spec/revisionHistoryLimit", limit)
    };
    let of_third = || with_field(pod(0), "/metadata/labels/controller-revision-hash", json!("web-3"));
    let deleted = |limit: Value| {
        let actions = revision_actions(many(limited(limit), vec![of_third()]));
        actions
            .into_iter()
            .filter_map(|action| Some(action.strip_prefix("delete web-")?.to_owned()))
            .collect::<String>()
    };
    // 1 is the current revision, 5 the update revision, 3 is used by a pod.
    assert_eq!(deleted(json!(0)), "24");
    assert_eq!(deleted(json!(1)), "2");
    for retains_all in [json!(2), json!(-1), Value::Null] {
        assert_eq!(deleted(retains_all), "");
    }
    // If the update revision is unknown, only revisions of pods are kept.
    let lost = with_field(limited(json!(1)), "/spec/template", template("v6"));
    let name = format!("web-{}", revision_hash("v6", 0));
    let lost = with_field(lost, "/metadata/generation", json!(3));
    let lost = many(lost, vec![of_third()]).failing::<ControllerRevision>(
        "create",
        &key(&name),
        api_error(ErrorReason::Forbidden),
    );
    assert_eq!(revision_actions(lost)[1..], ["delete web-1", "delete web-2", "delete web-4"]);
}

/// Proves REV-68.
#[test]
fn a_revision_without_template_uses_the_stateful_set_s_template() {
    let parted = with_field(set(1), "/spec/updateStrategy/rollingUpdate/partition", json!(1));
    for nothing in [json!({}), json!({"spec": {}})] {
        let silent = with_field(revision("web-1", 1, "v1"), "/data", nothing);
        let cluster = bare(parted.clone(), [])
            .with::<ControllerRevision>(silent)
            .with::<ControllerRevision>(revision("web-2", 2, "v2"));
        let created = body(cluster, "create pods ");
        assert_eq!(created["spec"]["containers"][0]["image"], "v2");
        assert_eq!(created["metadata"]["labels"]["controller-revision-hash"], "web-1");
    }
}

/// Proves REV-69.
#[test]
fn only_the_template_of_a_revision_is_used() {
    let more = with_field(revision("web-1", 1, "v1"), "/data/spec/replicas", json!(9));
    let more = with_field(more, "/data/metadata", json!({"name": "other"}));
    let parted = with_field(set(1), "/spec/updateStrategy/rollingUpdate/partition", json!(1));
    let cluster = bare(parted, [old(0)])
        .with::<ControllerRevision>(more)
        .with::<ControllerRevision>(revision("web-2", 2, "v2"));
    assert!(pod_actions(cluster).is_empty());
}

/// Proves REV-75.
#[test]
fn labels_of_the_template_create_a_revision_and_those_of_the_stateful_set_do_not() {
    let labelled = with_field(set(0), "/spec/template/metadata/labels/tier", json!("db"));
    let labelled = with_field(labelled, "/metadata/generation", json!(3));
    assert_eq!(revision_actions(cluster(labelled, [])).len(), 1);
    let recorded = with_field(set(0), "/metadata/annotations/more", json!("y"));
    assert!(
        revision_actions(cluster(with_field(recorded, "/metadata/labels", json!({"x": "y"})), [])).is_empty()
    );
}

/// Proves REV-77.
#[test]
fn a_long_name_is_truncated_in_the_name_of_a_revision() {
    let name = "w".repeat(240);
    let long = with_field(with_field(set(0), "/metadata/name", json!(name)), "/status", json!({}));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<StatefulSet>(long);
    let created = cluster.bodies(&the_loop(), key(&name), "create controllerrevisions.apps ").remove(0).0;
    assert_eq!(created, format!("{}-{}", "w".repeat(223), revision_hash("v2", 0)));
}

/// The StatefulSet after a newer API server has set a field that this version does not know.
fn invented(set: Value) -> Value {
    let set = with_field(set, "/spec/template/spec/containers/0/invented", json!({"by": "default"}));
    with_field(with_field(set, "/spec/template/spec/invented", json!(true)), "/metadata/generation", json!(3))
}

/// Proves REV-47, REV-76.
#[test]
fn a_field_of_a_newer_api_server_creates_no_revision_and_restarts_no_pod() {
    let set = invented(up_to_date(2));
    let pods = || [pod(0), pod(1)];
    assert_eq!(actions(cluster(set.clone(), pods())), "");
    assert_eq!(update_revision(cluster(set.clone(), pods())), "web-2");
    // A revision that an earlier version of this program wrote contains the field.
    let data = "/data/spec/template/spec/invented";
    let stored = with_field(revision("web-2", 2, "v2"), data, json!(true));
    for set in [set.clone(), with_field(up_to_date(2), "/metadata/generation", json!(3))] {
        assert_eq!(actions(bare(set, pods()).with::<ControllerRevision>(stored.clone())), "");
    }
    // What is known counts.
    let other = with_field(set, "/spec/template/spec/containers/0/image", json!("v3"));
    let created = body(cluster(other, pods()), "create controllerrevisions.apps ");
    assert!(!created.to_string().contains("invented"), "{created}");
}

/// Proves REV-16, REV-36.
#[test]
fn another_spelling_of_a_quantity_creates_a_revision() {
    let limited = |object: Value, at: &str, memory: &str| {
        with_field(
            object,
            &format!("{at}/spec/containers/0/resources"),
            json!({"limits": {"memory": memory}}),
        )
    };
    let stored = limited(revision("web-2", 2, "v2"), "/data/spec/template", "1Gi");
    let actions = |set: Value, memory: &str| {
        let set = limited(set, "/spec/template", memory);
        revision_actions(bare(set, []).with::<ControllerRevision>(stored.clone()))
    };
    // The API server does not raise the generation, because the value is the same.
    for set in [set(0), with_field(set(0), "/metadata/generation", json!(3))] {
        assert!(actions(set.clone(), "1Gi").is_empty());
        assert_eq!(actions(set, "1073741824").len(), 1);
    }
}
