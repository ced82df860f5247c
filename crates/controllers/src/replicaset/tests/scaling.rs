//! How many pods are created and deleted, and which.

use keleustes_plan::{Action, MetricType, Step};

use super::*;

/// The pods that one reconcile deletes, in order.
fn deleted(cluster: RehearsalCluster) -> Vec<String> {
    let transcript = reconcile(cluster);
    let names = transcript.lines().filter_map(|line| line.strip_prefix("delete pods a/"));
    names.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
}

fn created(cluster: RehearsalCluster) -> usize {
    reconcile(cluster).lines().filter(|line| line.starts_with("create pods a/")).count()
}

fn pods(count: usize) -> Vec<Value> {
    (0..count).map(|number| pod(&format!("p{number:03}"))).collect()
}

fn on(node: &str, pod: Value) -> Value {
    with_field(pod, "/spec/nodeName", json!(node))
}

/// Proves RS-38, RS-39, RS-86, RS-89.
#[test]
fn at_most_500_pods_are_created_or_deleted_per_reconcile() {
    assert_eq!(created(cluster(set(3))), 3);
    assert_eq!(created(cluster(set(501))), 500);
    check(with_pods(cluster(up_to_date(2)), pods(2)), "");
    assert_eq!(deleted(with_pods(cluster(set(1)), pods(3))).len(), 2);
    assert_eq!(deleted(with_pods(cluster(set(0)), pods(501))).len(), 500);
    let ended = with_field(pod("ended"), "/status/phase", json!("Succeeded"));
    assert_eq!(deleted(with_pods(cluster(set(0)), [pod("x"), ended])), ["x"]);
}

/// Proves RS-40, RS-91.
#[test]
fn pods_are_created_with_slow_start() {
    let full = |times| cluster(set(9)).failing_at("create", PODS, api_error(ErrorReason::Forbidden), times);
    const RETRY: &str = "retry: create pods a/ because there are fewer pods than wanted: refused\n";
    const FAILED: &str = "create pods a/ because there are fewer pods than wanted FAILED: refused\n\
                          event Warning FailedCreate on ReplicaSet a/web uid=u-web: Error creating: refused\n";
    check(full(None), &format!("{FAILED}{STATUS}{RETRY}"));
    // The first batch fails, so no other is sent.
    check(full(Some(1)), &format!("{FAILED}{STATUS}{RETRY}"));
    let a_plan = plan_of(set(9), &[]);
    assert!(matches!(a_plan.steps(), [Step::SlowStart(writes)] if writes.len() == 9));
}

const PODS: &str = "/api/v1/namespaces/a/pods/";

fn plan_of(set: Value, pods: &[Value]) -> keleustes_plan::Plan {
    let inputs = reconcile::Inputs::<ReplicaSet> {
        set: serde_json::from_value(set).unwrap(),
        pods: pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect(),
        terminating: 0,
        active_pods_per_node: std::collections::BTreeMap::new(),
        now: keleustes_objects::Time::from_unix_seconds(1_800_000_000),
    };
    scale::plan(&inputs, &ReplicaSetOptions::default())
}

/// Proves RS-42, RS-96.
#[test]
fn creating_pods_in_a_terminating_namespace_is_no_error() {
    let cluster = with_pods(cluster(set(2)), [pod("x")]);
    let cluster = cluster.failing_at("create", PODS, api_error(ErrorReason::NamespaceTerminating), None);
    const FINE: &str = "create pods a/ because there are fewer pods than wanted (ignored: refused)\n";
    check(cluster, &format!("{FINE}{STATUS}"));
}

/// Proves RS-43, RS-72, RS-78, INF-94.
#[test]
fn pods_are_deleted_in_parallel_and_a_failure_stops_no_other() {
    let two = || with_pods(cluster(with_field(set(0), "/status/replicas", json!(2))), [pod("x"), pod("y")]);
    let refusing = |reason| two().failing::<Pod>("delete", &Key::namespaced("a", "x"), api_error(reason));
    const Y: &str = "delete pods a/y because there are more pods than wanted\n\
                     event Normal SuccessfulDelete on ReplicaSet a/web uid=u-web: Deleted pod: y\n";
    for gone in [ErrorReason::NotFound, ErrorReason::Conflict] {
        let transcript = reconcile(refusing(gone));
        assert!(transcript.contains(Y) && !transcript.contains("retry"), "{transcript}");
        assert!(!transcript.contains("Deleted pod: x") && !transcript.contains("Error"), "{transcript}");
    }
    check(
        refusing(ErrorReason::Forbidden),
        &format!(
            "delete pods a/x because there are more pods than wanted FAILED: refused\n\
             event Warning FailedDelete on ReplicaSet a/web uid=u-web: Error deleting: refused\n{Y}{STATUS}\
             retry: delete pods a/x because there are more pods than wanted: refused\n"
        ),
    );
    let plan = plan_of(set(0), &[pod("x")]);
    let [Step::Parallel(writes)] = plan.steps() else { panic!("one step") };
    assert_eq!(writes[0].target.uid.to_string(), "u-x", "a UID precondition");
    assert!(matches!(
        writes[0].action,
        Action::Delete { propagation: None, grace_seconds: None, resource_version_precondition: None }
    ));
}

/// Proves RS-44, INF-118.
#[test]
fn deleting_all_pods_needs_no_ranking() {
    let waiting = on("", with_field(pod("y"), "/status/phase", json!("Pending")));
    let both = || [pod("x"), waiting.clone()];
    assert_eq!(deleted(with_pods(cluster(set(0)), both())), ["x", "y"]);
    assert!(!reconcile(with_pods(cluster(set(0)), both())).contains("measure"));
    assert_eq!(deleted(with_pods(cluster(set(1)), both())), ["y"]);
}

/// Proves RS-20, RS-49, RS-50, INF-113.
#[test]
fn pods_on_nodes_with_most_related_pods_are_deleted_first() {
    let controlled = |set| owned_by("Deployment", "d", "u-d", set);
    let sibling =
        with_field(with_field(set(2), "/metadata/name", json!("old")), "/metadata/uid", json!("u-old"));
    let sibling = with_field(sibling, "/spec/selector", json!({"matchLabels": {"app": "old"}}));
    let of_sibling = |name: &str| {
        let pod = owned_by("ReplicaSet", "old", "u-old", orphan(name));
        on("full", with_field(pod, "/metadata/labels", json!({"app": "old"})))
    };
    let pods = |o: Value, y: Value| [on("n", pod("x")), y, on("full", pod("z")), o, of_sibling("p")];
    let plain = || pods(of_sibling("o"), on("n", pod("y")));
    let related_replica_sets =
        |sibling, pods| with_pods(cluster(controlled(set(2))).with::<ReplicaSet>(sibling), pods);
    assert_eq!(deleted(related_replica_sets(controlled(sibling.clone()), plain())), ["z"]);
    // Terminating pods count, too.
    assert_eq!(deleted(related_replica_sets(terminating(controlled(sibling.clone())), plain())), ["z"]);
    // Pods of unrelated ReplicaSets do not count, so the node with two pods of this ReplicaSet is the
    // fullest.
    assert_eq!(deleted(related_replica_sets(sibling.clone(), plain())), ["x"]);
    let ended = with_field(of_sibling("o"), "/status/phase", json!("Failed"));
    assert_eq!(
        deleted(related_replica_sets(controlled(sibling.clone()), pods(ended, on("n", pod("y"))))),
        ["x"]
    );
    // Without a controllerRef all nodes are equal; the UID decides.
    let first = with_field(on("lonely", pod("y")), "/metadata/uid", json!("t"));
    let alone = with_pods(cluster(set(2)).with::<ReplicaSet>(sibling), pods(of_sibling("o"), first));
    assert_eq!(deleted(alone), ["y"]);
}

/// Proves RS-48.
#[test]
fn pod_deletion_cost_counts_if_the_gate_is_on() {
    let cheap = with_field(
        pod("y"),
        "/metadata/annotations",
        json!({"controller.kubernetes.io/pod-deletion-cost": "-1"}),
    );
    let mut there = with_pods(cluster(set(1)), [pod("x"), cheap]);
    assert_eq!(
        deleted(with_pods(cluster(set(1)), [pod("x"), with_field(pod("y"), "/metadata/uid", json!("v"))])),
        ["x"]
    );
    assert!(there.reconcile(&the_loop(), web()).contains("delete pods a/y"));
    let deaf = ReplicaSetOptions { honor_deletion_cost: false, ..ReplicaSetOptions::default() };
    assert!(there.reconcile(&controller(&deaf).loops.remove(0), web()).contains("delete pods a/x"));
}

/// Proves RS-80, RS-92.
#[test]
fn the_age_ratio_of_deleted_pods_is_measured() {
    let born = |name: &str, at: &str| with_field(pod(name), "/metadata/creationTimestamp", json!(at));
    let costly = json!({"controller.kubernetes.io/pod-deletion-cost": "9"});
    // 10, 40 and 99 seconds old; the youngest is kept.
    let ages = |youngest: &str| {
        let young = with_field(born("x", youngest), "/metadata/annotations", costly.clone());
        let unready =
            with_field(born("u", "2027-01-15T07:00:00Z"), "/status/conditions/0/status", json!("False"));
        [young, unready, born("y", "2027-01-15T07:59:20Z"), born("z", "2027-01-15T07:58:21Z")]
    };
    let measured = |youngest: &str| {
        let transcript = reconcile(with_pods(cluster(set(1)), ages(youngest)));
        let lines = transcript.lines().filter_map(|line| line.strip_prefix("measure "));
        lines.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(measured("2027-01-15T07:59:50Z"), ["4", "9"]);
    assert_eq!(measured("2027-01-15T08:00:00Z"), [""; 0]);
    assert_eq!(AGE_RATIO.name, "replicaset_controller_sorting_deletion_age_ratio");
    assert_eq!(
        AGE_RATIO.metric_type,
        MetricType::Histogram(Buckets::Explicit(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0]))
    );
}

/// Proves RS-58, RS-71, INF-90.
#[test]
fn a_pod_gets_everything_from_the_template() {
    let template = json!({
        "metadata": {
            "name": "ignored", "namespace": "ignored", "ownerReferences": [{"uid": "ignored"}],
            "labels": {"app": "web", "more": "yes"}, "annotations": {"note": "x"}, "finalizers": ["x.io/hold"],
        },
        "spec": {"containers": [{"name": "c", "invented": {"in": 2031}}]},
    });
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web",
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(
        body(cluster(with_field(set(1), "/spec/template", template)), "create pods a/"),
        json!({
            "metadata": {
                "generateName": "web-", "ownerReferences": [owner],
                "labels": {"app": "web", "more": "yes"}, "annotations": {"note": "x"}, "finalizers": ["x.io/hold"],
            },
            "spec": {"containers": [{"name": "c", "invented": {"in": 2031}}]},
        })
    );
}

/// Proves RS-59, INF-90.
#[test]
fn pod_names_start_with_the_replica_set_s_name() {
    let prefix = |length: usize| {
        let name = "w".repeat(length);
        let plan = plan_of(with_field(set(1), "/metadata/name", json!(name)), &[]);
        let Action::Create(body) = &plan.steps()[0].writes()[0].action else { panic!("a creation") };
        body["metadata"]["generateName"].as_str().unwrap().len()
    };
    assert_eq!((prefix(252), prefix(253), prefix(254)), (253, 254, 254));
}

/// Proves RS-60, INF-92.
#[test]
fn a_template_without_labels_creates_no_pods() {
    let bare = with_field(set(1), "/spec/template", json!({"spec": {}}));
    check(cluster(bare.clone()), &format!("{STATUS}retry: unable to create pods, no labels\n"));
    let condition = &status(cluster(bare))["conditions"][0];
    assert_eq!(condition["message"], "unable to create pods, no labels");
}

/// Proves REV-76.
#[test]
fn a_field_of_a_newer_api_server_changes_no_pod() {
    let newer = with_field(up_to_date(1), "/spec/template/spec/invented", json!({"by": "default"}));
    check(with_pods(cluster(newer), [pod("p")]), "");
}
