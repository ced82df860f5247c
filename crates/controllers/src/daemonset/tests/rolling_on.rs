//! How nodes are moved to a new template.

use super::*;

fn on(set: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    let pods: Vec<Value> = pods.into_iter().collect();
    let mut nodes: Vec<&str> = pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let nodes: Vec<Value> = nodes.into_iter().map(node).collect();
    moves(world(set, nodes, pods))
}

/// Three old pods, but for some.
fn three(first: Value, second: Value) -> [Value; 3] {
    [first, second, old("c", "n3")]
}

/// Proves DS-25.
#[test]
fn a_step_is_only_taken_when_there_is_nothing_else_to_do() {
    let one_missing = world(set(), [node("n1"), node("n2")], [old("a", "n1")]);
    assert_eq!(moves(one_missing), ["create on n2"]);
}

/// Proves DS-58.
#[test]
fn parts_are_rounded_up() {
    let pods = || ["n1", "n2", "n3", "n4"].map(|node| old(&format!("on-{node}"), node));
    assert_eq!(on(allowing("26%", 0), pods()).len(), 2);
    assert_eq!(on(allowing("25%", 0), pods()).len(), 1);
    assert_eq!(on(allowing(0, "26%"), pods()), ["create on n1", "create on n2"]);
    assert_eq!(on(allowing(0, 0), pods()).len(), 1, "or nothing would ever move");
    assert_eq!(
        on(with_field(set(), "/spec/updateStrategy", json!({"type": "RollingUpdate"})), pods()).len(),
        1
    );
}

/// Proves DS-59, DS-96, DS-98, REV-39.
#[test]
fn a_pod_is_new_by_its_hash_or_by_its_generation() {
    let labelled = |hash: &str, generation: &str| {
        let labels =
            json!({"app": "agent", "controller-revision-hash": hash, "pod-template-generation": generation});
        with_field(pod("x", "n"), "/metadata/labels", labels)
    };
    assert!(on(set(), [labelled("h2", "1")]).is_empty());
    assert!(on(set(), [labelled("h9", "2")]).is_empty());
    assert_eq!(on(set(), [labelled("h9", "1")]), ["delete x"]);
    for odd in [Value::Null, json!("many")] {
        let odd = with_field(set(), "/metadata/annotations/deprecated.daemonset.template.generation", odd);
        assert_eq!(on(odd.clone(), [labelled("h9", "2")]), ["delete x"]);
        assert!(on(odd, [labelled("h2", "1")]).is_empty());
    }
    // Another spelling of the template is another revision; pods of the same generation stay.
    let reworded = with_field(set(), "/spec/template/spec/volumes", json!([]));
    let transcript = turn(world(reworded, [node("n")], [pod("x", "n")]));
    assert!(transcript.contains("create controllerrevisions.apps") && !transcript.contains("delete pods"));
}

/// Proves DS-60, DS-61, DS-62, DS-63.
#[test]
fn without_surplus_old_ones_go_as_far_as_nodes_may_be_without() {
    assert_eq!(on(set(), three(old("a", "n1"), old("b", "n2"))), ["delete a"]);
    // Those that serve nobody all go, and use up the room.
    let sick = || unready(old("b", "n2"));
    assert_eq!(on(set(), three(old("a", "n1"), sick())), ["delete b"]);
    assert_eq!(on(set(), three(unready(old("a", "n1")), sick())), ["delete a", "delete b"]);
    assert_eq!(on(allowing(2, 0), three(old("a", "n1"), sick())), ["delete b", "delete a"]);
    // A new one that is not available, and a node whose pod goes, use it up, too.
    assert!(on(set(), three(old("a", "n1"), unready(pod("b", "n2")))).is_empty());
    assert!(on(set(), three(old("a", "n1"), terminating(old("b", "n2")))).is_empty());
    assert_eq!(on(allowing(2, 0), three(old("a", "n1"), terminating(old("b", "n2")))), ["delete a"]);
    let patient = with_field(set(), "/spec/minReadySeconds", json!(5));
    assert!(on(patient, three(old("a", "n1"), recently_ready(pod("b", "n2")))).is_empty());
    // Two of a kind are settled first; that is done before.
    assert_eq!(on(set(), three(old("a", "n1"), old("b", "n1"))), ["delete b"]);
}

/// Proves DS-70.
#[test]
fn ten_that_serve_nobody_are_replaced_and_no_other() {
    let half_sick = |at: usize, node: &str| {
        let pod = old(&format!("on-{node}"), node);
        if at < 10 { unready(pod) } else { pod }
    };
    let gone = moves(many(allowing(10, 0), 20, half_sick));
    let sick: Vec<String> = (0..10).map(|at| format!("delete on-n{at:03}")).collect();
    assert_eq!(gone, sick);
    let gone = moves(many(allowing(11, 0), 20, half_sick));
    assert_eq!((gone.len(), &gone[..10]), (11, &sick[..]));
}

/// Proves DS-64, DS-65, DS-66, DS-67, DS-111.
#[test]
fn with_surplus_new_ones_come_first() {
    let surging = |surge: i32| allowing(0, surge);
    assert_eq!(on(surging(1), three(old("a", "n1"), old("b", "n2"))), ["create on n1"]);
    assert_eq!(on(surging(2), three(old("a", "n1"), old("b", "n2"))), ["create on n1", "create on n2"]);
    // Where the old one serves nobody one comes whatever the room.
    assert_eq!(
        on(surging(1), three(unready(old("a", "n1")), unready(old("b", "n2")))),
        ["create on n1", "create on n2", "create on n3"]
    );
    // One that is not available yet takes up room.
    let two = || [unready(pod("new", "n1")), old("a", "n1"), old("b", "n2")];
    assert!(on(surging(1), two()).is_empty());
    assert_eq!(on(surging(2), two()), ["create on n2"]);
    // How many may be missing does not matter then.
    assert!(on(allowing(5, 1), two()).is_empty());
    // One that goes is not there; what replaces it is made at once.
    assert_eq!(on(surging(1), [terminating(old("a", "n1"))]), ["create on n1"]);
    let tainted = |pod: Value| moves(world(surging(1), [tainted("n", "x", "NoSchedule")], [pod]));
    assert_eq!(tainted(unready(old("a", "n"))), ["delete a"]);
    assert_eq!(tainted(old("a", "n")), ["delete a"], "nobody wants it, and none is wanted");
}

/// The step itself, for states that are settled before it comes to it.
#[test]
fn a_new_one_that_serves_takes_over_whatever_its_hash() {
    // New by its generation only, so that it is taken for an old one before.
    let by_generation = with_field(pod("new", "n"), "/metadata/labels/controller-revision-hash", json!("h9"));
    let hashless = with_field(by_generation, "/metadata/creationTimestamp", json!("2027-01-02T00:00:00Z"));
    let set: DaemonSet = serde_json::from_value(allowing(0, 1)).unwrap();
    let facts = bounds::facts(set, &[("n", true, vec![hashless, old("old", "n")])]);
    let work = rolling_update::work(&facts, "h2");
    let gone: Vec<_> = work.delete.iter().map(|(pod, _)| pod.meta.key.name.to_string()).collect();
    assert_eq!(gone, ["old"]);
    // Two of a kind are left alone and take up room.
    let set: DaemonSet = serde_json::from_value(allowing(0, 1)).unwrap();
    let twins = ("n", true, vec![old("a", "n"), old("b", "n")]);
    let facts = bounds::facts(set, &[twins, ("m", true, vec![old("c", "m")])]);
    let work = rolling_update::work(&facts, "h2");
    assert!(work.is_none());
}

/// Proves DS-68.
#[test]
fn pods_in_the_wrong_place_go_when_others_have_taken_over() {
    // Two nodes are not wanted any more, two new ones are.
    let world_with = |new: [Value; 2]| {
        let nodes = [tainted("a", "x", "NoSchedule"), tainted("b", "x", "NoSchedule"), node("c"), node("d")];
        world(allowing(0, 2), nodes, [old("x", "a"), old("y", "b")].into_iter().chain(new))
    };
    assert!(moves(world_with([unready(pod("v", "c")), unready(pod("w", "d"))])).is_empty());
    assert_eq!(moves(world_with([pod("v", "c"), unready(pod("w", "d"))])), ["delete x"]);
    assert_eq!(moves(world_with([pod("v", "c"), pod("w", "d")])), ["delete x", "delete y"]);
}

/// Proves DS-69.
#[test]
fn by_hand_nothing_is_replaced() {
    let by_hand = with_field(set(), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert!(on(by_hand.clone(), three(old("a", "n1"), unready(old("b", "n2")))).is_empty());
    let fresh = made(world(by_hand, [node("n")], []));
    assert_eq!(fresh["metadata"]["labels"]["controller-revision-hash"], "h2");
}

/// Proves DS-99.
#[test]
fn a_pod_on_a_node_that_is_gone_holds_nothing_up() {
    let pods = || [old("a", "gone"), old("b", "n")];
    assert_eq!(moves(world(allowing(0, 1), [node("n")], pods())), ["create on n"]);
    assert_eq!(moves(world(set(), [node("n")], pods())), ["delete b"]);
}
