//! What a pod of a DaemonSet is made of, and how many are made at once.

use super::*;

fn exists(key: &str, effect: &str) -> Value {
    json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect})
}

fn spec(field: &str, value: Value) -> RehearsalCluster {
    bare(with_field(set(), &format!("/spec/template/spec/{field}"), value), [node("n")], [])
}

/// Proves DS-33, DS-34, DS-35.
#[test]
fn what_befalls_nodes_is_tolerated() {
    let always = [
        exists("not-ready", "NoExecute"),
        exists("unreachable", "NoExecute"),
        exists("disk-pressure", "NoSchedule"),
        exists("memory-pressure", "NoSchedule"),
        exists("pid-pressure", "NoSchedule"),
        exists("unschedulable", "NoSchedule"),
    ];
    assert_eq!(made(world(set(), [node("n")], []))["spec"]["tolerations"], json!(always));
    let on_host = made(spec("hostNetwork", json!(true)));
    assert_eq!(on_host["spec"]["tolerations"][6], exists("network-unavailable", "NoSchedule"));
    // What the template says about the same is replaced, the rest is kept as it was written.
    let for_a_while = with_field(exists("not-ready", "NoExecute"), "/tolerationSeconds", json!(30));
    let own = json!([{"key": "mine", "operator": "Exists", "unheardOf": 1}, for_a_while]);
    let tolerations = made(spec("tolerations", own.clone()))["spec"]["tolerations"].take();
    assert_eq!(tolerations[0], own[0]);
    assert_eq!(tolerations[1], always[0]);
    assert_eq!(tolerations.as_array().unwrap()[2..], always[1..]);
    // Another effect is another matter.
    let other = made(spec("tolerations", json!([exists("not-ready", "NoSchedule")])));
    assert_eq!(other["spec"]["tolerations"].as_array().unwrap().len(), 7);
}

/// Proves DS-36, DS-37.
#[test]
fn affinity_says_which_node_it_is_for() {
    let term = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]});
    let plain = made(world(set(), [node("n")], []));
    assert_eq!(*plain.pointer(REQUIRED).unwrap(), term);
    assert_eq!(plain["spec"]["nodeName"], Value::Null);
    let is = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]});
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [is]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        },
        "podAntiAffinity": {"x": 1},
    });
    let pod = made(spec("affinity", affinity.clone()));
    assert_eq!(*pod.pointer(REQUIRED).unwrap(), term, "in place of all others");
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(pod["spec"]["affinity"]["nodeAffinity"][preferred], affinity["nodeAffinity"][preferred]);
    assert_eq!(pod["spec"]["affinity"]["podAntiAffinity"], affinity["podAntiAffinity"]);
    let silent = made(spec("affinity", Value::Null));
    assert_eq!(*silent.pointer(REQUIRED).unwrap(), term);
}

/// Proves DS-38, DS-39, REV-2, REV-3, REV-55.
#[test]
fn a_pod_tells_its_revision_and_its_generation() {
    let mut noted = with_field(set(), "/spec/template/metadata/annotations", json!({"note": "x"}));
    noted["spec"]["template"]["metadata"]["finalizers"] = json!(["x/y"]);
    noted["spec"]["template"]["spec"]["unheardOf"] = json!({"a": 1});
    let hash = |world: RehearsalCluster| made(world)["metadata"]["labels"].take();
    let labels = json!({"app": "agent", "controller-revision-hash": "h2", "pod-template-generation": "2"});
    assert_eq!(hash(world(set(), [node("n")], [])), labels);
    for odd in [Value::Null, json!("many")] {
        let odd = with_field(set(), "/metadata/annotations/deprecated.daemonset.template.generation", odd);
        assert_eq!(hash(world(odd, [node("n")], []))["pod-template-generation"], Value::Null);
    }
    let pod = made(bare(noted, [node("n")], []));
    let metadata = &pod["metadata"];
    assert_eq!((&metadata["generateName"], &metadata["name"]), (&json!("agent-"), &Value::Null));
    assert_eq!(metadata["ownerReferences"], json!([owner()]));
    assert_eq!(metadata["annotations"], json!({"note": "x"}));
    assert_eq!(metadata["finalizers"], json!(["x/y"]));
    assert_eq!(pod["spec"]["unheardOf"], json!({"a": 1}));
}

/// A template without labels makes no pod.
#[test]
fn a_template_without_labels_is_a_failure() {
    let unlabelled = with_field(set(), "/spec/template/metadata", json!({}));
    let transcript = turn(bare(unlabelled, [node("n")], []));
    assert!(transcript.ends_with("retry: unable to create pods, no labels\n"), "{transcript}");
}

/// Proves DS-54, DS-112.
#[test]
fn at_most_250_are_made_and_at_most_250_deleted_at_once() {
    let names: Vec<String> = (0..600).map(|at| format!("n{at:03}")).collect();
    let set = || with_field(set(), "/spec/template/spec/nodeSelector", json!({"wanted": "yes"}));
    let labelled = |name: &String| with_field(node(name), "/metadata/labels", json!({"wanted": "yes"}));
    let nodes = names[..300].iter().map(labelled).chain(names[300..].iter().map(|name| node(name)));
    let pods = names[300..].iter().map(|name| pod(&format!("on-{name}"), name));
    let moves = moves(bare(set(), nodes, pods));
    let (made, deleted): (Vec<_>, Vec<_>) = moves.into_iter().partition(|it| it.starts_with("create"));
    assert_eq!((made.len(), deleted.len()), (250, 250));
}

/// Proves DS-55, DS-57, DS-113.
#[test]
fn a_failure_ends_the_making_but_not_the_deleting() {
    let nodes = || ["a", "b", "c", "d"].map(node);
    let twins = [
        pod("x", "e"),
        with_field(pod("y", "e"), "/metadata/creationTimestamp", json!("2027-01-02T00:00:00Z")),
    ];
    let failing = world(set(), nodes().into_iter().chain([node("e")]), twins);
    let failing = failing.failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    let transcript = turn(failing);
    assert_eq!(transcript.matches("create pods").count(), 1, "the first batch is one pod: {transcript}");
    assert!(transcript.contains("delete pods a/y because its node has another one\n"), "{transcript}");
    assert!(transcript.ends_with("retry: refused\n"));
    // None stops another, and one that is gone is fine.
    let elsewhere = || world(set(), [], [unbound("x", "gone"), unbound("y", "gone")]);
    let one = elsewhere().failing::<Pod>("delete", &key("x"), api_error(ErrorReason::Forbidden));
    let transcript = turn(one);
    assert!(
        transcript.contains("delete pods a/y") && transcript.ends_with("retry: refused\n"),
        "{transcript}"
    );
    let gone = elsewhere().failing::<Pod>("delete", &key("x"), api_error(ErrorReason::NotFound));
    assert!(!turn(gone).contains("retry"));
}

/// Proves DS-56.
#[test]
fn a_namespace_on_its_way_out_takes_nothing() {
    let going = world(set(), [node("n")], []);
    let going = going.failing::<Pod>("create", &key(""), api_error(ErrorReason::NamespaceTerminating));
    let transcript = turn(going);
    assert!(!transcript.contains("event") && !transcript.contains("retry"), "{transcript}");
}

/// Proves DS-89.
#[test]
fn people_hear_of_each_pod() {
    let transcript = turn(world(set(), [node("n")], []));
    assert!(transcript.contains("event Normal SuccessfulCreate: Created pod: agent-new\n"));
    let transcript = turn(world(set(), [], [unbound("x", "gone")]));
    assert!(transcript.contains("event Normal SuccessfulDelete: Deleted pod: x\n"));
    let failing = world(set(), [], [unbound("x", "gone")]);
    let failing = failing.failing::<Pod>("delete", &key("x"), api_error(ErrorReason::Forbidden));
    assert!(turn(failing).contains("event Warning FailedDelete: Error deleting: refused\n"));
}
