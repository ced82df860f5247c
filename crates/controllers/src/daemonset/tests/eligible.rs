//! Which nodes may get a pod, and which may keep one.

use super::*;

/// What is done on a node without a pod, and on the same node with one.
fn on(set: &Value, node: Value) -> (bool, bool) {
    let creates = moves(world(set.clone(), [node.clone()], [])) == ["create on n"];
    let keeps = moves(world(set.clone(), [node], [pod("x", "n")])).is_empty();
    (creates, keeps)
}

fn spec(field: &str, value: Value) -> Value {
    with_field(set(), &format!("/spec/template/spec/{field}"), value)
}

/// The newest revision is made on the way where the template was changed for a test.
fn on_with(field: &str, value: Value, node: Value) -> (bool, bool) {
    let set = spec(field, value);
    let creates = moves(bare(set.clone(), [node.clone()], [])) == ["create on n"];
    let keeps = moves(bare(set, [node], [pod("x", "n")])).is_empty();
    (creates, keeps)
}

const BOTH: (bool, bool) = (true, true);
const NEITHER: (bool, bool) = (false, false);

/// Proves DS-26, DS-27.
#[test]
fn a_template_for_one_node_is_for_no_other() {
    assert_eq!(on(&set(), node("n")), BOTH);
    assert_eq!(on_with("nodeName", json!("n"), node("n")), BOTH);
    assert_eq!(on_with("nodeName", json!("other"), node("n")), NEITHER);
}

/// Proves DS-28.
#[test]
fn selectors_and_required_affinity_must_match() {
    let zoned = || with_field(node("n"), "/metadata/labels", json!({"zone": "a", "disk": "ssd"}));
    assert_eq!(on_with("nodeSelector", json!({"zone": "a"}), zoned()), BOTH);
    assert_eq!(on_with("nodeSelector", json!({"zone": "b"}), zoned()), NEITHER);
    let required = |terms: Value| {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        on_with("affinity", json!({"nodeAffinity": terms}), zoned())
    };
    let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    assert_eq!(required(json!([{"matchExpressions": [is("zone", "a"), is("disk", "ssd")]}])), BOTH);
    assert_eq!(required(json!([{"matchExpressions": [is("zone", "a"), is("disk", "hdd")]}])), NEITHER);
    let either = json!([{"matchExpressions": [is("zone", "b")]}, {"matchExpressions": [is("zone", "a")]}]);
    assert_eq!(required(either), BOTH);
    assert_eq!(required(json!([{"matchFields": [is("metadata.name", "n")]}])), BOTH);
    assert_eq!(required(json!([{"matchFields": [is("metadata.name", "m")]}])), NEITHER);
    let both = json!([{"matchFields": [is("metadata.name", "n")], "matchExpressions": [is("zone", "b")]}]);
    assert_eq!(required(both), NEITHER);
    assert_eq!(required(json!([])), NEITHER);
    assert_eq!(required(json!([{}])), NEITHER);
    let odd = json!([{"matchExpressions": [{"key": "zone", "operator": "Likes", "values": ["a"]}]}]);
    assert_eq!(required(odd), NEITHER);
    let preferred = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [is("zone", "b")]}},
    ]}});
    assert_eq!(on_with("affinity", preferred, zoned()), BOTH);
}

/// Proves DS-29, DS-100, DS-101, DS-103.
#[test]
fn a_taint_keeps_pods_away_or_drives_them_out() {
    assert_eq!(on(&set(), tainted("n", "x", "NoSchedule")), (false, true));
    assert_eq!(on(&set(), tainted("n", "x", "NoExecute")), NEITHER);
    assert_eq!(on(&set(), tainted("n", "x", "PreferNoSchedule")), BOTH);
    // A pod that stays there is in the wrong place, is replaced all the same, and not made again.
    let misplaced = || world(set(), [tainted("n", "x", "NoSchedule")], [old("x", "n")]);
    assert_eq!(status(misplaced())["numberMisscheduled"], 1);
    assert_eq!(moves(misplaced()), ["delete x"]);
    assert!(moves(world(set(), [tainted("n", "x", "NoSchedule")], [])).is_empty());
    // A node that is not selected any more loses all at once.
    let picky = with_field(set(), "/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let both =
        bare(picky, [node("m"), node("n")], [pod("x", "m"), pod("y", "n"), terminating(pod("z", "n"))]);
    assert_eq!(moves(both), ["delete x", "delete y"]);
}

/// Proves DS-30, DS-102.
#[test]
fn what_is_tolerated_does_not_count() {
    let ignoring_errors = |toleration: Value| spec("tolerations", json!([toleration]));
    let anything = ignoring_errors(json!({"operator": "Exists"}));
    let judged = |set: &Value, taint: Value| {
        let creates = moves(bare(set.clone(), [taint.clone()], [])) == ["create on n"];
        (creates, moves(bare(set.clone(), [taint], [pod("x", "n")])).is_empty())
    };
    assert_eq!(judged(&anything, tainted("n", "x", "NoExecute")), BOTH);
    let one = ignoring_errors(json!({"key": "x", "value": "v", "effect": "NoSchedule"}));
    assert_eq!(judged(&one, tainted("n", "x", "NoSchedule")), BOTH);
    assert_eq!(judged(&one, tainted("n", "x", "NoExecute")), NEITHER);
    for (key, effect) in [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ] {
        assert_eq!(on(&set(), tainted("n", key, effect)), BOTH, "{key}");
    }
    let network = || tainted("n", "node.kubernetes.io/network-unavailable", "NoSchedule");
    assert_eq!(on(&set(), network()), (false, true));
    assert_eq!(judged(&spec("hostNetwork", json!(true)), network()), BOTH);
    // Numbers are compared only behind a gate.
    let at_most =
        ignoring_errors(json!({"key": "x", "operator": "Lt", "value": "5", "effect": "NoSchedule"}));
    let numbered = with_field(tainted("n", "x", "NoSchedule"), "/spec/taints/0/value", json!("3"));
    assert_eq!(judged(&at_most, numbered.clone()), (false, true));
    let comparing =
        controller(&DaemonSetOptions { comparison_operators: true, ..DaemonSetOptions::default() })
            .loops
            .remove(0);
    assert_eq!(moves_in(&comparing, &mut bare(at_most, [numbered], [])), ["create on n"]);
}

/// Proves DS-31, DS-32.
#[test]
fn nothing_else_about_a_node_matters() {
    let mut broken = with_field(node("n"), "/spec/unschedulable", json!(true));
    broken["status"] = json!({
        "conditions": [{"type": "Ready", "status": "False"}], "allocatable": {"cpu": "0", "pods": "0"},
    });
    assert_eq!(on(&set(), broken), BOTH);
    let all = world(set(), [node("a"), node("b"), node("c")], []);
    assert_eq!(moves(all), ["create on a", "create on b", "create on c"]);
}
