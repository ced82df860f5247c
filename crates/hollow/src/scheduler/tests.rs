//! Clusters of nodes and pods, and where the next pod is scheduled or why it is not.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{Key, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::Scheduler;
use crate::claims::Claims;
use crate::clock::after;
use crate::projections::{Node, Pod};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn node(name: &str, with: &Value) -> Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": name.split('-').next()}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "1"}},
    });
    json_patch(&mut node, with);
    serde_json::from_str(&node.to_string()).unwrap()
}

fn pod_value(name: &str, with: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "x"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
    });
    json_patch(&mut pod, with);
    pod
}

fn pod(name: &str, with: &Value) -> Pod {
    serde_json::from_str(&pod_value(name, with).to_string()).unwrap()
}

fn json_patch(onto: &mut Value, patch: &Value) {
    match (onto, patch) {
        (Value::Object(onto), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch(onto.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (onto, patch) => *onto = patch.clone(),
    }
}

fn cluster(nodes: &[Node], pods: &[Pod]) -> Scheduler {
    let mut scheduler = Scheduler::new(fastrand::Rng::with_seed(1));
    nodes.iter().for_each(|node| scheduler.observe_node(node));
    pods.iter().for_each(|pod| scheduler.observe_pod(pod));
    scheduler
}

/// The node of the only pending pod, or the message why there is none.
fn schedule(scheduler: &mut Scheduler) -> String {
    let decisions = scheduler.decide(&Claims::default(), NOW);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    decisions[0].node.clone().map_or_else(|message| message, |node| node.to_string())
}

fn requesting(name: &str, amount: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {name: amount}}}]}})
}

fn with_port() -> Value {
    json!({"spec": {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}})
}

fn merged(one: &Value, two: &Value) -> Value {
    let mut both = one.clone();
    json_patch(&mut both, two);
    both
}

fn pod_affinity(kind: &str, topology: &str, app: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}}]}}}})
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

#[test]
fn pods_are_scheduled_where_they_fit() {
    let small = || vec![node("a-1", &json!({}))];
    let two = || vec![node("a-1", &json!({})), node("b-1", &json!({}))];
    let cordoned = vec![node("a-1", &json!({"spec": {"unschedulable": true}}))];
    let tainted =
        vec![node("a-1", &json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}))];
    let soft = vec![node("a-1", &json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}))];
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let selecting = |zone: &str| json!({"spec": {"nodeSelector": {"zone": zone}}});
    let daemon = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b-1"]}]}]}}}}});
    let unschedulable = "0/1 nodes are available: 1 node(s) were unschedulable.";
    let untolerated = "0/1 nodes are available: 1 node(s) had untolerated taint(s).";
    let unselected = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    let cases: Vec<(Vec<Node>, Vec<Pod>, Value, &str)> = vec![
        (vec![], vec![], json!({}), "no nodes available to schedule pods"),
        (small(), vec![], json!({}), "a-1"),
        (small(), vec![], requesting("cpu", "4"), "a-1"),
        (small(), vec![], requesting("cpu", "4001m"), "0/1 nodes are available: 1 Insufficient cpu."),
        (small(), vec![], requesting("memory", "9Gi"), "0/1 nodes are available: 1 Insufficient memory."),
        (small(), vec![], requesting("example.com/gpu", "1"), "a-1"),
        (
            small(),
            vec![pod("o", &merged(&on("a-1"), &requesting("example.com/gpu", "1")))],
            requesting("example.com/gpu", "1"),
            "0/1 nodes are available: 1 Insufficient example.com/gpu.",
        ),
        (
            vec![node("a-1", &json!({"status": {"allocatable": {"pods": "1"}}}))],
            vec![pod("o", &on("a-1"))],
            json!({}),
            "0/1 nodes are available: 1 Too many pods.",
        ),
        (
            small(),
            vec![pod("o", &merged(&on("a-1"), &with_port()))],
            with_port(),
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        ),
        (cordoned.clone(), vec![], json!({}), unschedulable),
        (cordoned, vec![], tolerant.clone(), "a-1"),
        (tainted.clone(), vec![], json!({}), untolerated),
        (tainted, vec![], tolerant, "a-1"),
        (soft, vec![], json!({}), "a-1"),
        (two(), vec![], selecting("b"), "b-1"),
        (two(), vec![], selecting("c"), unselected),
        (two(), vec![], daemon, "b-1"),
        // The node with fewer requests scores higher.
        (two(), vec![pod("o", &merged(&on("a-1"), &requesting("cpu", "2")))], json!({}), "b-1"),
        (two(), vec![pod("o", &on("b-1"))], json!({}), "a-1"),
    ];
    for (nodes, mut pods, spec, wanted) in cases {
        pods.push(pod("p", &spec));
        assert_eq!(schedule(&mut cluster(&nodes, &pods)), wanted, "{spec}");
    }
}

#[test]
fn required_pod_affinity_and_anti_affinity_are_respected() {
    let nodes = [node("a-1", &json!({})), node("a-2", &json!({})), node("b-1", &json!({}))];
    let far = |topology: &str| pod_affinity("podAntiAffinity", topology, "x");
    let near = |app: &str| pod_affinity("podAffinity", "zone", app);
    // The node of another pod with the labels, its own terms, and the terms of the pending pod.
    let other = |spec: &Value| pod("o", &merged(&on("a-1"), spec));
    let plain = json!({});

    assert_eq!(schedule(&mut cluster(&nodes, &[other(&plain), pod("p", &far("zone"))])), "b-1");
    let host = schedule(&mut cluster(&nodes, &[other(&plain), pod("p", &far("kubernetes.io/hostname"))]));
    assert!(host == "a-2" || host == "b-1", "{host}");
    assert_eq!(schedule(&mut cluster(&nodes, &[other(&far("zone")), pod("p", &plain)])), "b-1");
    assert_eq!(
        schedule(&mut cluster(&nodes[..2], &[other(&far("zone")), pod("p", &plain)])),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    );
    assert_eq!(
        schedule(&mut cluster(&nodes[..2], &[other(&plain), pod("p", &far("zone"))])),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    );
    assert_eq!(schedule(&mut cluster(&nodes, &[other(&plain), pod("p", &near("x"))])), "a-2");
    let first = schedule(&mut cluster(&nodes, &[pod("p", &near("x"))]));
    assert!(first.len() == 3, "the first pod of a group fits anywhere: {first}");
    assert_eq!(
        schedule(&mut cluster(&nodes, &[pod("p", &near("y"))])),
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    );
}

#[test]
fn pods_of_other_schedulers_gated_and_terminating_pods_are_ignored() {
    let nodes = [node("a-1", &json!({}))];
    for spec in [
        json!({"spec": {"schedulerName": "another"}}),
        json!({"spec": {"schedulingGates": [{"name": "g"}]}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"nodeName": "a-1"}}),
        json!({"status": {"phase": "Failed"}}),
    ] {
        let mut scheduler = cluster(&nodes, &[pod("p", &spec)]);
        assert_eq!(scheduler.decide(&Claims::default(), NOW), [], "{spec}");
        assert_eq!(scheduler.due(), None);
    }
}

#[test]
fn recreated_pod_of_an_assigned_name_is_scheduled() {
    let mut scheduler = cluster(&[node("a-1", &json!({}))], &[pod("p", &on("a-1"))]);
    scheduler.observe_pod(&pod("p", &json!({"metadata": {"uid": "another"}})));
    assert_eq!(schedule(&mut scheduler), "a-1");
    scheduler.observe_pod(&pod("p", &json!({"metadata": {"uid": "another"}})));
    assert_eq!(
        scheduler.decide(&Claims::default(), NOW),
        [],
        "it is assigned, though the watch has not delivered that yet"
    );
}

#[test]
fn decision_reserves_resources_before_the_watch_event() {
    let nodes = [node("a-1", &json!({}))];
    let pods = [pod("p", &requesting("cpu", "3")), pod("q", &requesting("cpu", "3"))];
    let mut scheduler = cluster(&nodes, &pods);
    let decisions = scheduler.decide(&Claims::default(), NOW);
    assert_eq!(decisions[0].node.as_deref(), Ok("a-1"));
    assert_eq!(decisions[1].node, Err("0/1 nodes are available: 1 Insufficient cpu.".to_owned()));
    // The watch still delivers it as unbound: it is not scheduled twice.
    scheduler.observe_pod(&pods[0]);
    assert_eq!(scheduler.due(), None);
    // A failed binding releases the resources, for the pod itself and for others.
    scheduler.binding_failed(&pods[0]);
    assert_eq!(scheduler.decide(&Claims::default(), NOW).len(), 1);
}

#[test]
fn unschedulable_pods_are_retried_only_after_a_cluster_event() {
    let full = pod("o", &merged(&on("a-1"), &requesting("cpu", "4")));
    let mut scheduler =
        cluster(&[node("a-1", &json!({}))], &[full.clone(), pod("p", &requesting("cpu", "1"))]);
    assert!(schedule(&mut scheduler).contains("Insufficient cpu"));
    assert_eq!(scheduler.due(), None, "nothing has changed");
    scheduler.observe_node(&node("a-1", &json!({})));
    assert_eq!(scheduler.due(), None, "a heartbeat is no cluster event");
    scheduler.forget_pod(&full.meta.key);
    let due = scheduler.due().unwrap();
    assert_eq!(due, after(NOW, Duration::from_secs(1)), "after the backoff, because more events may follow");
    let decisions = scheduler.decide(&Claims::default(), due);
    assert_eq!(decisions[0].node.as_deref(), Ok("a-1"));
    assert_eq!((scheduler.due(), scheduler.pending()), (None, 0));
}

#[test]
fn attempts_back_off_exponentially() {
    let mut scheduler = cluster(&[node("a-1", &json!({}))], &[pod("p", &requesting("cpu", "9"))]);
    let mut now = NOW;
    let mut waits = Vec::new();
    for round in 0..6 {
        assert_eq!(scheduler.decide(&Claims::default(), now).len(), 1, "{round}");
        scheduler.observe_node(&node("a-1", &json!({"metadata": {"labels": {"round": round.to_string()}}})));
        let due = scheduler.due().unwrap();
        waits.push(crate::clock::since(due, now).as_secs());
        now = due;
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn pods_are_scheduled_by_priority_then_arrival() {
    let nodes = [node("a-1", &json!({}))];
    let urgent = json!({"spec": {"priority": 1000}});
    let pods = [pod("p", &json!({})), pod("q", &json!({})), pod("r", &urgent)];
    let order: Vec<Key> = cluster(&nodes, &pods)
        .decide(&Claims::default(), NOW)
        .into_iter()
        .map(|decision| decision.key)
        .collect();
    assert_eq!(order, ["r", "p", "q"].map(|name| Key::namespaced("n", name)));
}

#[test]
fn same_seed_gives_same_decisions_and_uses_all_nodes() {
    let nodes: Vec<Node> = (0..7).map(|index| node(&format!("a-{index}"), &json!({}))).collect();
    let pods: Vec<Pod> = (0..49).map(|index| pod(&format!("p{index}"), &json!({}))).collect();
    let places = || cluster(&nodes, &pods).decide(&Claims::default(), NOW);
    let first = places();
    assert_eq!(first, places());
    for node in &nodes {
        let here = first.iter().filter(|decision| decision.node.as_deref() == Ok(&*node.meta.key.name));
        assert_eq!(here.count(), 7, "least allocated spreads evenly");
    }
}

fn with_claims(names: &[&str], ephemeral: bool) -> Value {
    let mut volumes: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": format!("v-{name}"), "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    if ephemeral {
        volumes.push(json!({"name": "scratch", "ephemeral": {}}));
    }
    json!({"spec": {"volumes": volumes}})
}

fn claim(namespace: &str, name: &str, class: &str, with: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({"metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"storageClassName": class}, "status": {"phase": "Pending"}});
    json_patch(&mut claim, with);
    serde_json::from_str(&claim.to_string()).unwrap()
}

fn bound_to(volume: &str) -> Value {
    json!({"spec": {"volumeName": volume}, "status": {"phase": "Bound"}})
}

/// Claims of the classes `now`, `later` and `by-hand`, and a volume `in-b` that only nodes of zone b reach.
fn known_claims(claims: Vec<PersistentVolumeClaim>) -> Claims {
    let class = |name: &str, provisioner: &str, mode: &str| {
        let class =
            json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
        serde_json::from_str(&class.to_string()).unwrap()
    };
    let mut known = Claims::default();
    known.watch();
    assert!(!known.are_ready());
    known.replace_claims(claims);
    known.replace_classes(vec![
        class("now", "d.example.com", "Immediate"),
        class("later", "d.example.com", "WaitForFirstConsumer"),
        class("by-hand", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    ]);
    assert!(known.are_ready());
    let volume = json!({"metadata": {"name": "in-b"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}}}});
    known.observe_volume(&serde_json::from_str(&volume.to_string()).unwrap());
    known
}

#[test]
fn pods_wait_for_their_claims() {
    let nodes = || vec![node("a-1", &json!({})), node("b-1", &json!({}))];
    let message = |text: &str| format!("0/2 nodes are available: {text}.");
    let selected =
        |node: &str| json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}});
    let on_a = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let deleted =
        merged(&bound_to("in-b"), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let lost = json!({"spec": {"volumeName": "gone"}, "status": {"phase": "Lost"}});
    let cases: Vec<(Vec<PersistentVolumeClaim>, Value, String)> = vec![
        (vec![], with_claims(&["c"], false), message(r#"persistentvolumeclaim "c" not found"#)),
        // A claim of that name in another namespace is another claim.
        (
            vec![claim("other", "c", "now", &bound_to("in-b"))],
            with_claims(&["c"], false),
            message(r#"persistentvolumeclaim "c" not found"#),
        ),
        (
            vec![],
            with_claims(&[], true),
            message(
                r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch""#,
            ),
        ),
        (
            vec![claim("n", "c", "now", &json!({}))],
            with_claims(&["c"], false),
            message("pod has unbound immediate PersistentVolumeClaims"),
        ),
        (
            vec![claim("n", "c", "", &json!({})), claim("n", "d", "now", &bound_to("in-b"))],
            with_claims(&["d", "c"], false),
            message("pod has unbound immediate PersistentVolumeClaims"),
        ),
        (
            vec![claim("n", "c", "now", &deleted)],
            with_claims(&["c"], false),
            message(r#"persistentvolumeclaim "c" is being deleted"#),
        ),
        (
            vec![claim("n", "c", "now", &lost)],
            with_claims(&["c"], false),
            message(r#"persistentvolumeclaim "c" bound to non-existent persistentvolume "gone""#),
        ),
        (vec![claim("n", "c", "now", &bound_to("in-b"))], with_claims(&["c"], false), "b-1".to_owned()),
        (
            vec![claim("n", "c", "now", &bound_to("in-b"))],
            merged(&on_a, &with_claims(&["c"], false)),
            message(
                "1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector",
            ),
        ),
        (vec![claim("n", "c", "later", &selected("a-1"))], with_claims(&["c"], false), "a-1".to_owned()),
        (
            vec![claim("n", "c", "by-hand", &json!({}))],
            with_claims(&["c"], false),
            message("2 node(s) didn't find available persistent volumes to bind"),
        ),
    ];
    for (claims, spec, wanted) in cases {
        let mut scheduler = cluster(&nodes(), &[pod("p", &spec)]);
        let decisions = scheduler.decide(&known_claims(claims), NOW);
        let decided = decisions[0].node.as_ref().map_or_else(String::as_str, |node| &**node);
        assert_eq!(decided, wanted, "{spec}");
    }
}

#[test]
fn delayed_claims_are_part_of_the_decision_and_a_claim_event_retries() {
    let nodes = [node("a-1", &json!({}))];
    let pods = [pod("p", &with_claims(&["c", "d"], false)), pod("q", &requesting("cpu", "9"))];
    let mut scheduler = cluster(&nodes, &pods);
    let known = known_claims(vec![claim("n", "c", "later", &json!({}))]);
    let decisions = scheduler.decide(&known, NOW);
    assert_eq!(
        decisions[0].node,
        Err(r#"0/1 nodes are available: persistentvolumeclaim "d" not found."#.to_owned())
    );
    assert_eq!(scheduler.due(), None);
    scheduler.on_claim_event();
    let due = scheduler.due().unwrap();
    let both = vec![claim("n", "c", "later", &json!({})), claim("n", "d", "now", &bound_to("anywhere"))];
    let decisions = scheduler.decide(&known_claims(both), due);
    assert_eq!(decisions[0].node.as_deref(), Ok("a-1"));
    assert_eq!(decisions[0].claims, [(Key::namespaced("n", "c"), false)], "the other is bound");
}

#[test]
fn claims_that_are_not_watched_are_no_obstacle() {
    let mut scheduler = cluster(&[node("a-1", &json!({}))], &[pod("p", &with_claims(&["c"], true))]);
    assert_eq!(schedule(&mut scheduler), "a-1");
}
