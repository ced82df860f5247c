//! Which revision a DaemonSet is at, and which ones it keeps.

use keleustes_objects::PodTemplate;

use super::*;
use crate::workloads::fixtures::revisions_in;
use crate::workloads::templates::pod_template_hash;

/// A DaemonSet of `v3`, which no revision is of.
fn changed() -> Value {
    with_field(set(), "/spec/template", template("v3"))
}

/// The hash of `v3` after so many collisions.
fn short(collisions: Option<i32>) -> String {
    pod_template_hash(&PodTemplate::parse(&template("v3").to_string()).unwrap(), collisions)
}

fn deeds_to_revisions(world: RehearsalCluster) -> Vec<String> {
    revisions_in(&turn(world))
}

fn hash_of_new_pods(world: RehearsalCluster) -> Value {
    made(world)["metadata"]["labels"]["controller-revision-hash"].take()
}

/// Proves DS-76, REV-29, REV-47, REV-54.
#[test]
fn a_new_template_is_noted_with_the_next_number() {
    let noted = with_field(changed(), "/metadata/annotations/note", json!("x"));
    let mut world_of_noted = world(noted, [node("n")], []);
    let mut bodies = world_of_noted.bodies(&the_loop(), agent(), "create controllerrevisions.apps ");
    let mut template = template("v3");
    template["$patch"] = json!("replace");
    assert_eq!(
        bodies.remove(0).1,
        json!({
            "metadata": {
                "name": format!("agent-{}", short(None)), "namespace": "a", "ownerReferences": [owner()],
                "labels": {"app": "agent", "controller-revision-hash": short(None)},
                "annotations": {"deprecated.daemonset.template.generation": "2", "note": "x"},
            },
            "data": {"spec": {"template": template}},
            "revision": 3,
        })
    );
    assert_eq!(hash_of_new_pods(world(changed(), [node("n")], [])), json!(short(None)));
    let name = "d".repeat(250);
    let long = with_field(with_field(changed(), "/metadata/name", json!(name)), "/status", json!({}));
    let mut world = RehearsalCluster::of(&the_loop()).with::<DaemonSet>(long).with::<Node>(node("n"));
    let made = world.bodies(&the_loop(), key(&name), "create controllerrevisions.apps ").remove(0).0;
    assert_eq!(made, format!("{name}-{}", short(None)), "it is not cut");
}

/// Proves DS-110.
#[test]
fn without_a_revision_there_are_no_pods() {
    let name = key(&format!("agent-{}", short(None)));
    let failing = world(changed(), [node("n")], []);
    let failing = failing.failing::<ControllerRevision>("create", &name, api_error(ErrorReason::Invalid));
    let transcript = turn(failing);
    assert!(transcript.ends_with("FAILED: refused\nretry: refused\n") && !transcript.contains("pods"));
}

/// Proves DS-73, DS-74, REV-57, REV-72.
#[test]
fn the_newest_is_found_by_what_it_says_and_has_the_highest_number() {
    assert!(deeds_to_revisions(world(set(), [], [])).is_empty());
    let older = || {
        bare(set(), [node("n")], [])
            .with::<ControllerRevision>(revision("h1", 7, "v1"))
            .with::<ControllerRevision>(revision("h2", 2, "v2"))
    };
    let patches = older().bodies(&the_loop(), agent(), "patch controllerrevisions.apps ");
    assert_eq!(patches, [("agent-h2".to_owned(), json!({"revision": 8}))], "its data is not sent again");
    // Whoever made it, it goes by its own label.
    assert_eq!(hash_of_new_pods(older()), "h2");
    let higher = bare(set(), [], [])
        .with::<ControllerRevision>(revision("h1", 1, "v1"))
        .with::<ControllerRevision>(revision("h2", 9, "v2"));
    assert!(deeds_to_revisions(higher).is_empty(), "a number is only ever raised");
}

/// Proves DS-72, DS-88, REV-33.
#[test]
fn a_revision_without_a_label_is_labelled_with_its_name() {
    let unlabelled = |hash: &str, number, image| {
        with_field(revision(hash, number, image), "/metadata/labels", json!({"app": "agent"}))
    };
    let world = || {
        bare(set(), [node("n")], [])
            .with::<ControllerRevision>(unlabelled("h1", 1, "v1"))
            .with::<ControllerRevision>(unlabelled("h2", 2, "v2"))
    };
    let patches = world().bodies(&the_loop(), agent(), "patch controllerrevisions.apps ");
    let label = |name: &str| json!({"metadata": {"labels": {"controller-revision-hash": name}}});
    assert_eq!(
        patches,
        [("agent-h1".to_owned(), label("agent-h1")), ("agent-h2".to_owned(), label("agent-h2"))]
    );
    assert_eq!(hash_of_new_pods(world()), "agent-h2");
}

/// Proves DS-75, DS-95.
#[test]
fn of_several_that_say_the_same_one_is_made() {
    let twice = |pods: Vec<Value>| {
        world(set(), [node("n"), node("m"), node("o")], pods)
            .with::<ControllerRevision>(revision("h3", 3, "v2"))
    };
    let pods = || vec![pod("x", "n"), old("y", "m"), aged(pod("z", "o"))];
    let mut world = twice(pods());
    let transcript = world.reconcile(&the_loop(), agent());
    let expected = [
        "patch pods a/x because another revision says the same as its own: \
         {\"metadata\":{\"labels\":{\"controller-revision-hash\":\"h3\"}}}",
        "patch pods a/y because",
        "patch pods a/z because",
        "delete controllerrevisions.apps a/agent-h2 because another revision says the same",
    ];
    let lines: Vec<_> = transcript.lines().collect();
    for (line, beginning) in lines.iter().zip(expected) {
        assert!(line.starts_with(beginning), "{line}");
    }
    assert_eq!(hash_of_new_pods(twice(vec![])), "h3");
    // Equal numbers: the last in order.
    let tied = bare(set(), [node("n")], [])
        .with::<ControllerRevision>(revision("h8", 3, "v2"))
        .with::<ControllerRevision>(revision("h9", 3, "v2"));
    assert_eq!(hash_of_new_pods(tied), "h9");
    let failing = twice(pods()).failing::<Pod>("patch", &key("x"), api_error(ErrorReason::Forbidden));
    let transcript = turn(failing);
    assert!(!transcript.contains("delete") && transcript.ends_with("retry: refused\n"), "{transcript}");
}

/// Proves DS-77.
#[test]
fn a_name_that_is_taken_is_counted_and_tried_again() {
    let name = format!("agent-{}", short(None));
    let taken = |world: RehearsalCluster, image: &str| {
        let world =
            world.failing::<ControllerRevision>("create", &key(&name), api_error(ErrorReason::AlreadyExists));
        let there = with_field(revision("x", 1, image), "/metadata/name", json!(name));
        world.with_live::<ControllerRevision>(there)
    };
    // It says the same: it is used.
    let same = || taken(world(changed(), [node("n")], []), "v3");
    assert_eq!(hash_of_new_pods(same()), "x", "by its own label");
    // It says something else: the next turn takes another name.
    let mut other = taken(world(changed(), [node("n")], []), "v9");
    let transcript = other.outline(&the_loop(), agent());
    assert!(transcript.ends_with(
        "get daemonsets.apps a/agent\n\
         put daemonsets.apps/status a/agent because the name of its revision is taken\n\
         retry: refused\n"
    ));
    let put = other.bodies(&the_loop(), agent(), "put daemonsets.apps/status ").remove(0).1;
    assert_eq!(put["status"]["collisionCount"], 1);
    let counted = with_field(changed(), "/status/collisionCount", json!(1));
    assert_eq!(
        deeds_to_revisions(world(counted.clone(), [], [])),
        [format!("create agent-{}", short(Some(1)))]
    );
    // Somebody counted meanwhile: nothing is counted twice.
    let stale =
        RehearsalCluster::of(&the_loop()).with_cached::<DaemonSet>(changed()).with_live::<DaemonSet>(counted);
    let transcript = turn(taken(stale, "v9"));
    assert!(!transcript.contains("put") && transcript.ends_with("retry: refused\n"), "{transcript}");
}

/// Proves DS-78, DS-115, DS-116.
#[test]
fn the_oldest_go_but_none_that_a_pod_is_of() {
    let many = |limit: Value, pods: Vec<Value>| {
        let set = with_field(
            with_field(content(1), "/spec/template", template("v5")),
            "/spec/revisionHistoryLimit",
            limit,
        );
        let world = world(set, [node("n")], pods);
        let world = (3..6).fold(world, |world, number| {
            world.with::<ControllerRevision>(revision(&format!("h{number}"), number, &format!("v{number}")))
        });
        let deeds = deeds_to_revisions(world).into_iter();
        deeds.filter_map(|deed| Some(deed.strip_prefix("delete agent-h")?.to_owned())).collect::<String>()
    };
    let of_second = || vec![pod("x", "n")];
    assert_eq!(many(json!(0), of_second()), "134");
    assert_eq!(many(json!(1), of_second()), "134", "three too many, and the second does not count");
    assert_eq!(many(json!(2), of_second()), "13");
    assert_eq!(many(json!(4), of_second()), "");
    // A pod that does not say what it is of keeps nothing.
    let silent = with_field(
        pod("x", "n"),
        "/metadata/labels",
        json!({"app": "agent", "pod-template-generation": "2"}),
    );
    assert_eq!(many(json!(0), vec![silent]), "1234");
    assert_eq!(many(Value::Null, of_second()), "", "without a limit all are kept");
}
