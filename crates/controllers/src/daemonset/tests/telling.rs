//! What the status says, and when.

use super::*;

/// Proves DS-80, DS-81, DS-82.
#[test]
fn nodes_are_counted_by_their_first_pod() {
    let nodes = ["a", "b", "c", "d", "e", "f"].map(node).into_iter().chain([
        tainted("x", "x", "NoSchedule"),
        tainted("y", "x", "NoExecute"),
        tainted("z", "x", "NoExecute"),
    ]);
    let later = |pod: Value| with_field(pod, "/metadata/creationTimestamp", json!("2027-01-05T00:00:00Z"));
    let pods = [
        pod("on-a", "a"),
        // The older one counts, ready or not, and so does one on its way out.
        unready(old("on-b", "b")),
        later(pod("too-on-b", "b")),
        terminating(pod("on-c", "c")),
        recently_ready(pod("on-d", "d")),
        unbound("on-e", "e"),
        pod("on-x", "x"),
        pod("on-y", "y"),
    ];
    let patient = with_field(set(), "/spec/minReadySeconds", json!(5));
    let told = status(world(patient, nodes, pods));
    let count = |name: &str| told[name].as_i64().unwrap();
    assert_eq!(count("desiredNumberScheduled"), 6);
    assert_eq!(count("currentNumberScheduled"), 5);
    assert_eq!(count("numberMisscheduled"), 2);
    assert_eq!(count("numberReady"), 3, "a, c and d");
    assert_eq!(count("numberAvailable"), 2, "but d is young");
    assert_eq!(count("numberUnavailable"), 4);
    assert_eq!(count("updatedNumberScheduled"), 4, "all but b");
}

/// Proves DS-83.
#[test]
fn only_news_are_told() {
    let told = |set: Value| turn(world(set, [node("n")], [pod("x", "n")])).contains(STATUS);
    assert!(!told(content(1)));
    assert!(told(with_field(content(1), "/metadata/generation", json!(3))));
    for count in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ] {
        assert!(told(with_field(content(1), &format!("/status/{count}"), json!(9))), "{count}");
    }
    let mut before = with_field(set(), "/metadata/generation", json!(5));
    before["status"]["conditions"] = json!([{"type": "Odd", "status": "True"}]);
    before["status"]["collisionCount"] = json!(4);
    let told = status(world(before, [node("n")], [pod("x", "n")]));
    assert_eq!((&told["observedGeneration"], &told["collisionCount"]), (&json!(5), &json!(4)));
    assert_eq!(told["conditions"], json!([{"type": "Odd", "status": "True"}]), "none is ever set");
}

/// Proves DS-84.
#[test]
fn it_is_looked_at_again_when_pods_may_be_available() {
    let last = |seconds: i32, pod: Value| {
        let set = with_field(set(), "/spec/minReadySeconds", json!(seconds));
        turn(world(set, [node("n")], [pod])).lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(last(5, recently_ready(pod("x", "n"))), "requeue after 5s");
    assert!(!last(5, pod("x", "n")).starts_with("revisit"));
    assert!(!last(0, recently_ready(pod("x", "n"))).starts_with("revisit"));
    assert!(!last(5, unready(pod("x", "n"))).starts_with("revisit"));
}

/// Proves DS-104.
#[test]
fn a_node_that_is_gone_is_not_counted() {
    let told = status(world(set(), [node("n")], [pod("x", "n"), pod("y", "gone")]));
    assert_eq!((&told["desiredNumberScheduled"], &told["numberMisscheduled"]), (&json!(1), &json!(0)));
}

#[test]
fn wishes_seen_and_fulfilled_must_be_known_at_once() {
    let telling = |set: Value, changed_anything, change: fn(&mut keleustes_objects::DaemonSetStatus)| {
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        let mut said = set.status.clone();
        change(&mut said);
        status::telling(&bounds::facts(set, &[]), &said, changed_anything)
    };
    let short = || with_field(content(3), "/status/numberAvailable", json!(1));
    assert_eq!(telling(short(), false, |said| said.number_available = 2), StatusUrgency::Coalesce);
    assert_eq!(telling(short(), true, |said| said.number_available = 2), StatusUrgency::Superseded);
    assert_eq!(telling(short(), true, |said| said.number_available = 3), StatusUrgency::Immediate);
    assert_eq!(telling(content(3), false, |said| said.number_available = 2), StatusUrgency::Coalesce);
    assert_eq!(telling(content(3), false, |said| said.observed_generation = 9), StatusUrgency::Immediate);
}
