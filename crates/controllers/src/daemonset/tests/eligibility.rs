//! Which nodes should run a pod, and on which a pod may continue to run.

use super::*;

/// Whether a pod is created on a node without one, and kept on the same node with one.
fn on(set: &Value, node: Value) -> (bool, bool) {
    let creates = pod_changes(cluster(set.clone(), [node.clone()], [])) == ["create on n"];
    let keeps = pod_changes(cluster(set.clone(), [node], [pod("x", "n")])).is_empty();
    (creates, keeps)
}

fn spec(field: &str, value: Value) -> Value {
    with_field(set(), &format!("/spec/template/spec/{field}"), value)
}

/// The same, with a changed template: the reconcile creates its revision.
fn on_with(field: &str, value: Value, node: Value) -> (bool, bool) {
    let set = spec(field, value);
    let creates = pod_changes(bare(set.clone(), [node.clone()], [])) == ["create on n"];
    let keeps = pod_changes(bare(set, [node], [pod("x", "n")])).is_empty();
    (creates, keeps)
}

const BOTH: (bool, bool) = (true, true);
const NEITHER: (bool, bool) = (false, false);

/// Proves DS-26, DS-27.
#[test]
fn a_template_with_a_node_name_is_only_for_that_node() {
    assert_eq!(on(&set(), node("n")), BOTH);
    assert_eq!(on_with("nodeName", json!("n"), node("n")), BOTH);
    assert_eq!(on_with("nodeName", json!("other"), node("n")), NEITHER);
}

/// Proves DS-28.
#[test]
fn node_selector_and_required_affinity_must_match() {
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
fn untolerated_taints_prevent_or_evict_pods() {
    assert_eq!(on(&set(), tainted("n", "x", "NoSchedule")), (false, true));
    assert_eq!(on(&set(), tainted("n", "x", "NoExecute")), NEITHER);
    assert_eq!(on(&set(), tainted("n", "x", "PreferNoSchedule")), BOTH);
    // A pod that continues to run there is misscheduled; an outdated one is deleted and not recreated.
    let misplaced = || cluster(set(), [tainted("n", "x", "NoSchedule")], [old("x", "n")]);
    assert_eq!(status(misplaced())["numberMisscheduled"], 1);
    assert_eq!(pod_changes(misplaced()), ["delete x"]);
    assert!(pod_changes(cluster(set(), [tainted("n", "x", "NoSchedule")], [])).is_empty());
    // All pods on a node that is not selected any more are deleted.
    let selective = with_field(set(), "/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let both =
        bare(selective, [node("m"), node("n")], [pod("x", "m"), pod("y", "n"), terminating(pod("z", "n"))]);
    assert_eq!(pod_changes(both), ["delete x", "delete y"]);
}

/// Proves DS-30, DS-102.
#[test]
fn tolerated_taints_do_not_matter() {
    let tolerating = |toleration: Value| spec("tolerations", json!([toleration]));
    let anything = tolerating(json!({"operator": "Exists"}));
    let eligibility = |set: &Value, taint: Value| {
        let creates = pod_changes(bare(set.clone(), [taint.clone()], [])) == ["create on n"];
        (creates, pod_changes(bare(set.clone(), [taint], [pod("x", "n")])).is_empty())
    };
    assert_eq!(eligibility(&anything, tainted("n", "x", "NoExecute")), BOTH);
    let one = tolerating(json!({"key": "x", "value": "v", "effect": "NoSchedule"}));
    assert_eq!(eligibility(&one, tainted("n", "x", "NoSchedule")), BOTH);
    assert_eq!(eligibility(&one, tainted("n", "x", "NoExecute")), NEITHER);
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
    assert_eq!(eligibility(&spec("hostNetwork", json!(true)), network()), BOTH);
    // Comparison operators need the feature gate.
    let at_most = tolerating(json!({"key": "x", "operator": "Lt", "value": "5", "effect": "NoSchedule"}));
    let numbered = with_field(tainted("n", "x", "NoSchedule"), "/spec/taints/0/value", json!("3"));
    assert_eq!(eligibility(&at_most, numbered.clone()), (false, true));
    let comparing =
        controller(&DaemonSetOptions { comparison_operators: true, ..DaemonSetOptions::default() })
            .loops
            .remove(0);
    assert_eq!(pod_changes_in(&comparing, &mut bare(at_most, [numbered], [])), ["create on n"]);
}

/// Proves DS-31, DS-32.
#[test]
fn readiness_and_capacity_of_a_node_do_not_matter() {
    let mut broken = with_field(node("n"), "/spec/unschedulable", json!(true));
    broken["status"] = json!({
        "conditions": [{"type": "Ready", "status": "False"}], "allocatable": {"cpu": "0", "pods": "0"},
    });
    assert_eq!(on(&set(), broken), BOTH);
    let all = cluster(set(), [node("a"), node("b"), node("c")], []);
    assert_eq!(pod_changes(all), ["create on a", "create on b", "create on c"]);
}
