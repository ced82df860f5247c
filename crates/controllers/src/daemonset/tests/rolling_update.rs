//! Rolling updates to a new template.

use super::*;

fn on(set: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    let pods: Vec<Value> = pods.into_iter().collect();
    let mut nodes: Vec<&str> = pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let nodes: Vec<Value> = nodes.into_iter().map(node).collect();
    pod_changes(cluster(set, nodes, pods))
}

/// Two given pods and an outdated one.
fn three(first: Value, second: Value) -> [Value; 3] {
    [first, second, old("c", "n3")]
}

/// Proves DS-25.
#[test]
fn the_rolling_update_waits_until_all_nodes_have_pods() {
    let one_missing = cluster(set(), [node("n1"), node("n2")], [old("a", "n1")]);
    assert_eq!(pod_changes(one_missing), ["create on n2"]);
}

/// Proves DS-58.
#[test]
fn percentages_are_rounded_up() {
    let pods = || ["n1", "n2", "n3", "n4"].map(|node| old(&format!("on-{node}"), node));
    assert_eq!(on(allowing("26%", 0), pods()).len(), 2);
    assert_eq!(on(allowing("25%", 0), pods()).len(), 1);
    assert_eq!(on(allowing(0, "26%"), pods()), ["create on n1", "create on n2"]);
    assert_eq!(on(allowing(0, 0), pods()).len(), 1, "otherwise the rollout could not proceed");
    assert_eq!(
        on(with_field(set(), "/spec/updateStrategy", json!({"type": "RollingUpdate"})), pods()).len(),
        1
    );
}

/// Proves DS-59, DS-96, DS-98, REV-39.
#[test]
fn a_pod_is_updated_by_its_hash_or_by_its_generation() {
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
    // A list that is empty is not in the data.
    let same = with_field(set(), "/spec/template/spec/volumes", json!([]));
    assert!(!transcript_of(cluster(same, [node("n")], [pod("x", "n")])).contains("controllerrevisions"));
    // An equivalent template with other JSON is another revision; pods of the same generation stay.
    let equivalent = with_field(set(), "/spec/template/spec/securityContext", json!({}));
    let transcript = transcript_of(cluster(equivalent, [node("n")], [pod("x", "n")]));
    assert!(transcript.contains("create controllerrevisions.apps") && !transcript.contains("delete pods"));
}

/// Proves DS-60, DS-61, DS-62, DS-63.
#[test]
fn without_surge_outdated_pods_are_deleted_within_max_unavailable() {
    assert_eq!(on(set(), three(old("a", "n1"), old("b", "n2"))), ["delete a"]);
    // All unavailable outdated pods are deleted, and count towards maxUnavailable.
    let unavailable = || unready(old("b", "n2"));
    assert_eq!(on(set(), three(old("a", "n1"), unavailable())), ["delete b"]);
    assert_eq!(on(set(), three(unready(old("a", "n1")), unavailable())), ["delete a", "delete b"]);
    assert_eq!(on(allowing(2, 0), three(old("a", "n1"), unavailable())), ["delete b", "delete a"]);
    // An unavailable updated pod and a terminating pod count as well.
    assert!(on(set(), three(old("a", "n1"), unready(pod("b", "n2")))).is_empty());
    assert!(on(set(), three(old("a", "n1"), terminating(old("b", "n2")))).is_empty());
    assert_eq!(on(allowing(2, 0), three(old("a", "n1"), terminating(old("b", "n2")))), ["delete a"]);
    let patient = with_field(set(), "/spec/minReadySeconds", json!(5));
    assert!(on(patient, three(old("a", "n1"), recently_ready(pod("b", "n2")))).is_empty());
    // Two outdated pods on one node are resolved first.
    assert_eq!(on(set(), three(old("a", "n1"), old("b", "n1"))), ["delete b"]);
}

/// Proves DS-70.
#[test]
fn unavailable_pods_use_up_max_unavailable() {
    let half_unavailable = |at: usize, node: &str| {
        let pod = old(&format!("on-{node}"), node);
        if at < 10 { unready(pod) } else { pod }
    };
    let deleted = pod_changes(cluster_of(allowing(10, 0), 20, half_unavailable));
    let unavailable: Vec<String> = (0..10).map(|at| format!("delete on-n{at:03}")).collect();
    assert_eq!(deleted, unavailable);
    let deleted = pod_changes(cluster_of(allowing(11, 0), 20, half_unavailable));
    assert_eq!((deleted.len(), &deleted[..10]), (11, &unavailable[..]));
}

/// Proves DS-64, DS-65, DS-66, DS-67, DS-111.
#[test]
fn with_surge_updated_pods_are_created_first() {
    let surging = |surge: i32| allowing(0, surge);
    assert_eq!(on(surging(1), three(old("a", "n1"), old("b", "n2"))), ["create on n1"]);
    assert_eq!(on(surging(2), three(old("a", "n1"), old("b", "n2"))), ["create on n1", "create on n2"]);
    // Nodes with an unavailable outdated pod get an updated one regardless of maxSurge.
    assert_eq!(
        on(surging(1), three(unready(old("a", "n1")), unready(old("b", "n2")))),
        ["create on n1", "create on n2", "create on n3"]
    );
    // An updated pod that is not available counts towards maxSurge.
    let two = || [unready(pod("new", "n1")), old("a", "n1"), old("b", "n2")];
    assert!(on(surging(1), two()).is_empty());
    assert_eq!(on(surging(2), two()), ["create on n2"]);
    // maxUnavailable does not matter with maxSurge.
    assert!(on(allowing(5, 1), two()).is_empty());
    // A terminating pod is ignored; its replacement is created at once.
    assert_eq!(on(surging(1), [terminating(old("a", "n1"))]), ["create on n1"]);
    let tainted = |pod: Value| pod_changes(cluster(surging(1), [tainted("n", "x", "NoSchedule")], [pod]));
    assert_eq!(tainted(unready(old("a", "n"))), ["delete a"]);
    assert_eq!(tainted(old("a", "n")), ["delete a"], "the node should not run a pod, and no pod is desired");
}

/// Calls the rolling update directly, with states that `manage` resolves before.
#[test]
fn an_available_updated_pod_replaces_the_outdated_one_regardless_of_its_hash() {
    // Updated by its generation only, so that `manage` takes it for an outdated one.
    let by_generation = with_field(pod("new", "n"), "/metadata/labels/controller-revision-hash", json!("h9"));
    let hashless = with_field(by_generation, "/metadata/creationTimestamp", json!("2027-01-02T00:00:00Z"));
    let set: DaemonSet = serde_json::from_value(allowing(0, 1)).unwrap();
    let inputs = bounds::inputs(set, &[("n", true, vec![hashless, old("old", "n")])]);
    let changes = crate::daemonset::rolling_update::pod_changes(&inputs, "h2");
    let deleted: Vec<_> =
        changes.pods_to_delete.iter().map(|(pod, _)| pod.meta.key.name.to_string()).collect();
    assert_eq!(deleted, ["old"]);
    // Two outdated pods on one node are skipped and count towards maxSurge.
    let set: DaemonSet = serde_json::from_value(allowing(0, 1)).unwrap();
    let twins = ("n", true, vec![old("a", "n"), old("b", "n")]);
    let inputs = bounds::inputs(set, &[twins, ("m", true, vec![old("c", "m")])]);
    let changes = crate::daemonset::rolling_update::pod_changes(&inputs, "h2");
    assert!(changes.is_none());
}

/// Proves DS-68.
#[test]
fn misscheduled_pods_are_deleted_once_enough_others_are_available() {
    // Two nodes are not eligible any more, two new ones are.
    let cluster_with = |new: [Value; 2]| {
        let nodes = [tainted("a", "x", "NoSchedule"), tainted("b", "x", "NoSchedule"), node("c"), node("d")];
        cluster(allowing(0, 2), nodes, [old("x", "a"), old("y", "b")].into_iter().chain(new))
    };
    assert!(pod_changes(cluster_with([unready(pod("v", "c")), unready(pod("w", "d"))])).is_empty());
    assert_eq!(pod_changes(cluster_with([pod("v", "c"), unready(pod("w", "d"))])), ["delete x"]);
    assert_eq!(pod_changes(cluster_with([pod("v", "c"), pod("w", "d")])), ["delete x", "delete y"]);
}

/// Proves DS-69.
#[test]
fn on_delete_strategy_replaces_nothing() {
    let on_delete = with_field(set(), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert!(on(on_delete.clone(), three(old("a", "n1"), unready(old("b", "n2")))).is_empty());
    let fresh = created_pod(cluster(on_delete, [node("n")], []));
    assert_eq!(fresh["metadata"]["labels"]["controller-revision-hash"], "h2");
}

/// Proves DS-99.
#[test]
fn a_pod_on_a_deleted_node_does_not_block_the_rollout() {
    let pods = || [old("a", "gone"), old("b", "n")];
    assert_eq!(pod_changes(cluster(allowing(0, 1), [node("n")], pods())), ["create on n"]);
    assert_eq!(pod_changes(cluster(set(), [node("n")], pods())), ["delete b"]);
}
