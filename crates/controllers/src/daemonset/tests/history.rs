//! The current revision of a DaemonSet, and the revisions that it keeps.

use keleustes_objects::Kind as _;
use keleustes_objects::PodTemplate;
use keleustes_plan::rehearsal::is_retried_because;

use super::*;
use crate::workloads::fixtures::revisions_in;

/// A DaemonSet with image `v3`, for which there is no revision.
fn changed() -> Value {
    with_field(set(), "/spec/template", template("v3"))
}

/// The hash of `v3` after this many collisions.
fn hash_of_v3(collisions: Option<i32>) -> String {
    PodTemplate::parse(&template("v3").to_string()).unwrap().pod_template_hash(collisions)
}

fn revision_writes(cluster: RehearsalCluster) -> Vec<String> {
    revisions_in(&transcript_of(cluster))
}

fn hash_of_new_pods(cluster: RehearsalCluster) -> Value {
    created_pod(cluster)["metadata"]["labels"]["controller-revision-hash"].take()
}

/// Proves DS-76, REV-29, REV-47, REV-54.
#[test]
fn a_new_template_gets_a_revision_with_the_next_number() {
    let noted = with_field(changed(), "/metadata/annotations/note", json!("x"));
    let mut cluster_of_noted = cluster(noted, [node("n")], []);
    let mut bodies = cluster_of_noted.bodies(&the_loop(), agent(), "create controllerrevisions.apps ");
    let mut template = template("v3");
    template["$patch"] = json!("replace");
    assert_eq!(
        bodies.remove(0).1,
        json!({
            "metadata": {
                "name": format!("agent-{}", hash_of_v3(None)), "namespace": "a", "ownerReferences": [owner()],
                "labels": {"app": "agent", "controller-revision-hash": hash_of_v3(None)},
                "annotations": {"deprecated.daemonset.template.generation": "2", "note": "x"},
            },
            "data": {"spec": {"template": template}},
            "revision": 3,
        })
    );
    assert_eq!(hash_of_new_pods(cluster(changed(), [node("n")], [])), json!(hash_of_v3(None)));
    let name = "d".repeat(250);
    let long = with_field(with_field(changed(), "/metadata/name", json!(name)), "/status", json!({}));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<DaemonSet>(long).with::<Node>(node("n"));
    let created_pod = cluster.bodies(&the_loop(), key(&name), "create controllerrevisions.apps ").remove(0).0;
    assert_eq!(created_pod, format!("{name}-{}", hash_of_v3(None)), "the name is not truncated");
}

/// Proves DS-110.
#[test]
fn no_pods_are_created_without_a_revision() {
    let name = key(&format!("agent-{}", hash_of_v3(None)));
    let failing = cluster(changed(), [node("n")], []);
    let failing = failing.failing::<ControllerRevision>("create", &name, api_error(ErrorReason::Invalid));
    let transcript = transcript_of(failing);
    assert!(
        transcript.contains("FAILED: refused\nretry: create controllerrevisions.apps a/agent-"),
        "{transcript}"
    );
    assert!(is_retried_because(&transcript, "refused") && !transcript.contains("pods"), "{transcript}");
}

/// Proves DS-73, DS-74, REV-57, REV-72.
#[test]
fn the_current_revision_is_found_by_its_data_and_gets_the_highest_number() {
    assert!(revision_writes(cluster(set(), [], [])).is_empty());
    let older = || {
        bare(set(), [node("n")], [])
            .with::<ControllerRevision>(revision("h1", 7, "v1"))
            .with::<ControllerRevision>(revision("h2", 2, "v2"))
    };
    let patches = older().bodies(&the_loop(), agent(), "patch controllerrevisions.apps ");
    assert_eq!(patches, [("agent-h2".to_owned(), json!({"revision": 8}))], "the data is not sent");
    // Pods get the hash label of the existing revision.
    assert_eq!(hash_of_new_pods(older()), "h2");
    let higher = bare(set(), [], [])
        .with::<ControllerRevision>(revision("h1", 1, "v1"))
        .with::<ControllerRevision>(revision("h2", 9, "v2"));
    assert!(revision_writes(higher).is_empty(), "a number is never lowered");
}

/// Proves DS-72, DS-88, REV-33.
#[test]
fn a_revision_without_a_label_is_labelled_with_its_name() {
    let unlabelled = |hash: &str, number, image| {
        with_field(revision(hash, number, image), "/metadata/labels", json!({"app": "agent"}))
    };
    let cluster = || {
        bare(set(), [node("n")], [])
            .with::<ControllerRevision>(unlabelled("h1", 1, "v1"))
            .with::<ControllerRevision>(unlabelled("h2", 2, "v2"))
    };
    let patches = cluster().bodies(&the_loop(), agent(), "patch controllerrevisions.apps ");
    let label = |name: &str| json!({"metadata": {"labels": {"controller-revision-hash": name}}});
    assert_eq!(
        patches,
        [("agent-h1".to_owned(), label("agent-h1")), ("agent-h2".to_owned(), label("agent-h2"))]
    );
    assert_eq!(hash_of_new_pods(cluster()), "agent-h2");
}

/// Proves DS-75, DS-95.
#[test]
fn duplicate_revisions_are_merged() {
    let twice = |pods: Vec<Value>| {
        cluster(set(), [node("n"), node("m"), node("o")], pods)
            .with::<ControllerRevision>(revision("h3", 3, "v2"))
    };
    let pods = || vec![pod("x", "n"), old("y", "m"), outdated(pod("z", "o"))];
    let mut cluster = twice(pods());
    let transcript = cluster.reconcile(&the_loop(), agent());
    let expected = [
        "patch pods a/x because its revision is a duplicate: \
         {\"metadata\":{\"labels\":{\"controller-revision-hash\":\"h3\"}}}",
        "patch pods a/y because",
        "patch pods a/z because",
        "delete controllerrevisions.apps a/agent-h2 because the revision is a duplicate",
    ];
    let lines: Vec<_> = transcript.lines().collect();
    for (line, beginning) in lines.iter().zip(expected) {
        assert!(line.starts_with(beginning), "{line}");
    }
    assert_eq!(hash_of_new_pods(twice(vec![])), "h3");
    // Equal numbers: the last one in sort order is kept.
    let tied = bare(set(), [node("n")], [])
        .with::<ControllerRevision>(revision("h8", 3, "v2"))
        .with::<ControllerRevision>(revision("h9", 3, "v2"));
    assert_eq!(hash_of_new_pods(tied), "h9");
    let failing = twice(pods()).failing::<Pod>("patch", &key("x"), api_error(ErrorReason::Forbidden));
    let transcript = transcript_of(failing);
    assert!(!transcript.contains("delete") && is_retried_because(&transcript, "refused"), "{transcript}");
}

/// Proves DS-77.
#[test]
fn a_name_collision_increments_collision_count_and_is_retried() {
    let name = format!("agent-{}", hash_of_v3(None));
    let colliding = |cluster: RehearsalCluster, image: &str| {
        let cluster = cluster.failing::<ControllerRevision>(
            "create",
            &key(&name),
            api_error(ErrorReason::AlreadyExists),
        );
        let existing = with_field(revision("x", 1, image), "/metadata/name", json!(name));
        cluster.with_live::<ControllerRevision>(existing)
    };
    // The existing revision has the same data: it is used.
    let same = || colliding(cluster(changed(), [node("n")], []), "v3");
    assert_eq!(hash_of_new_pods(same()), "x", "the label of the existing revision");
    // The existing revision has other data: the next reconcile uses another name.
    let mut other = colliding(cluster(changed(), [node("n")], []), "v9");
    let transcript = other.outline(&the_loop(), agent());
    assert!(transcript.ends_with(
        "get daemonsets.apps a/agent\n\
         put daemonsets.apps/status a/agent because the revision name collides\n\
         retry: refused\n"
    ));
    let put = other.bodies(&the_loop(), agent(), "put daemonsets.apps/status ").remove(0).1;
    assert_eq!(put["status"]["collisionCount"], 1);
    let counted = with_field(changed(), "/status/collisionCount", json!(1));
    assert_eq!(
        revision_writes(cluster(counted.clone(), [], [])),
        [format!("create agent-{}", hash_of_v3(Some(1)))]
    );
    // The existing revision was deleted in the meantime: no collision is counted.
    let deleted = colliding(cluster(changed(), [node("n")], []), "v9");
    let path = ControllerRevision::RESOURCE.object_path(&key(&name));
    let transcript = transcript_of(deleted.changing_on_failure(&path, None));
    assert!(!transcript.contains("put") && transcript.ends_with(" not found\n"), "{transcript}");
    // The live collisionCount is already higher: it is not incremented again.
    let stale =
        RehearsalCluster::of(&the_loop()).with_cached::<DaemonSet>(changed()).with_live::<DaemonSet>(counted);
    let transcript = transcript_of(colliding(stale, "v9"));
    assert!(!transcript.contains("put") && is_retried_because(&transcript, "refused"), "{transcript}");
}

/// Proves DS-78, DS-115, DS-116.
#[test]
fn the_oldest_revisions_are_deleted_except_those_of_pods() {
    let cluster_of = |limit: Value, pods: Vec<Value>| {
        let set = with_field(
            with_field(content(1), "/spec/template", template("v5")),
            "/spec/revisionHistoryLimit",
            limit,
        );
        let cluster = cluster(set, [node("n")], pods);
        let cluster = (3..6).fold(cluster, |cluster, number| {
            cluster.with::<ControllerRevision>(revision(&format!("h{number}"), number, &format!("v{number}")))
        });
        let writes = revision_writes(cluster).into_iter();
        writes.filter_map(|write| Some(write.strip_prefix("delete agent-h")?.to_owned())).collect::<String>()
    };
    let of_second = || vec![pod("x", "n")];
    assert_eq!(cluster_of(json!(0), of_second()), "134");
    assert_eq!(cluster_of(json!(1), of_second()), "134", "three beyond the limit, and h2 is in use");
    assert_eq!(cluster_of(json!(2), of_second()), "13");
    assert_eq!(cluster_of(json!(4), of_second()), "");
    // A terminated pod keeps its revision, a pod without a node does not.
    let finished = with_field(terminating(pod("x", "n")), "/status/phase", json!("Failed"));
    assert_eq!(cluster_of(json!(0), vec![finished]), "134");
    let nowhere = with_field(pod("x", "n"), "/spec", json!({"containers": []}));
    assert_eq!(cluster_of(json!(0), vec![nowhere]), "1234");
    // A pod without a hash label keeps no revision.
    let unlabelled = with_field(
        pod("x", "n"),
        "/metadata/labels",
        json!({"app": "agent", "pod-template-generation": "2"}),
    );
    assert_eq!(cluster_of(json!(0), vec![unlabelled]), "1234");
    assert_eq!(cluster_of(Value::Null, of_second()), "", "without a limit all are kept");
}

/// Proves REV-47, REV-57, REV-76.
#[test]
fn a_field_of_a_newer_api_server_creates_no_revision_and_restarts_no_pod() {
    let invented = |object: Value, at: &str| {
        let object =
            with_field(object, &format!("{at}/spec/containers/0/invented"), json!({"by": "default"}));
        with_field(object, &format!("{at}/spec/invented"), json!(true))
    };
    // A changed template has the next template generation, so that only the hash can show that a pod is current.
    let newer = invented(content(1), "/spec/template");
    let newer =
        with_field(newer, "/metadata/annotations/deprecated.daemonset.template.generation", json!("3"));
    let pods = || [pod("p", "n")];
    assert_eq!(transcript_of(cluster(newer.clone(), [node("n")], pods())), "");
    // A revision that an earlier version of this program wrote contains the field, and has that version's hash.
    let stored = invented(revision("h2", 2, "v2"), "/data/spec/template");
    for set in [newer.clone(), content(1)] {
        let cluster = bare(set, [node("n")], pods()).with::<ControllerRevision>(stored.clone());
        assert_eq!(transcript_of(cluster), "");
    }
    // What is known counts.
    let other = with_field(newer, "/spec/template/spec/containers/0/image", json!("v3"));
    let writes = revision_writes(cluster(other, [node("n")], pods()));
    assert_eq!(writes, [format!("create agent-{}", hash_of_v3(None))]);
}

/// Proves REV-76.
#[test]
fn a_newly_defaulted_field_creates_a_revision_and_keeps_the_pods() {
    let defaulted =
        with_field(content(1), "/spec/template/spec/containers/0/terminationMessagePolicy", json!("File"));
    let cluster = |set: &Value| cluster(set.clone(), [node("n")], [pod("p", "n")]);
    let hash =
        PodTemplate::parse(&defaulted["spec"]["template"].to_string()).unwrap().pod_template_hash(None);
    // No user has changed the template, so its generation is that of the pod.
    assert_eq!(revision_writes(cluster(&defaulted)), [format!("create agent-{hash}")]);
    assert!(pod_changes(cluster(&defaulted)).is_empty());
    assert!(!transcript_of(cluster(&defaulted)).contains("put daemonsets"), "the pod counts as updated");
    let by_a_user =
        with_field(defaulted, "/metadata/annotations/deprecated.daemonset.template.generation", json!("3"));
    assert_eq!(pod_changes(cluster(&by_a_user)), ["delete p"]);
}

/// Proves REV-16, REV-39.
#[test]
fn another_spelling_of_a_quantity_creates_a_revision() {
    let limited = |object: Value, at: &str, memory: &str| {
        with_field(
            object,
            &format!("{at}/spec/containers/0/resources"),
            json!({"limits": {"memory": memory}}),
        )
    };
    let stored = limited(revision("h3", 3, "v3"), "/data/spec/template", "1Gi");
    let writes = |memory: &str| {
        let set = limited(changed(), "/spec/template", memory);
        revision_writes(bare(set, [], []).with::<ControllerRevision>(stored.clone()))
    };
    assert!(writes("1Gi").is_empty());
    assert_eq!(writes("1073741824").len(), 1);
}

/// Proves REV-45.
#[test]
fn a_new_revision_has_the_name_that_the_original_gives_it() {
    let template = json!({
        "metadata": {"labels": {"app": "foo"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    let named = with_field(set(), "/spec/template", template);
    let salted = with_field(named.clone(), "/status/collisionCount", json!(1));
    assert_eq!(revision_writes(cluster(named, [], [])), ["create agent-b94d89f8f"]);
    assert_eq!(revision_writes(cluster(salted, [], [])), ["create agent-6d98f56b7b"]);
}
