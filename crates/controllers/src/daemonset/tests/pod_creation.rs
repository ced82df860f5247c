//! The bodies of daemon pods, and limits and failures of creations and deletions.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

fn exists(key: &str, effect: &str) -> Value {
    json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect})
}

fn spec(field: &str, value: Value) -> RehearsalCluster {
    bare(with_field(set(), &format!("/spec/template/spec/{field}"), value), [node("n")], [])
}

/// Proves DS-33, DS-34, DS-35.
#[test]
fn daemon_pods_tolerate_node_conditions() {
    let always = [
        exists("not-ready", "NoExecute"),
        exists("unreachable", "NoExecute"),
        exists("disk-pressure", "NoSchedule"),
        exists("memory-pressure", "NoSchedule"),
        exists("pid-pressure", "NoSchedule"),
        exists("unschedulable", "NoSchedule"),
    ];
    assert_eq!(created_pod(cluster(set(), [node("n")], []))["spec"]["tolerations"], json!(always));
    let on_host = created_pod(spec("hostNetwork", json!(true)));
    assert_eq!(on_host["spec"]["tolerations"][6], exists("network-unavailable", "NoSchedule"));
    // An equal toleration of the template is replaced, the others are kept unchanged.
    let for_a_while = with_field(exists("not-ready", "NoExecute"), "/tolerationSeconds", json!(30));
    let own = json!([{"key": "mine", "operator": "Exists", "unknownField": 1}, for_a_while]);
    let tolerations = created_pod(spec("tolerations", own.clone()))["spec"]["tolerations"].take();
    assert_eq!(tolerations[0], own[0]);
    assert_eq!(tolerations[1], always[0]);
    assert_eq!(tolerations.as_array().unwrap()[2..], always[1..]);
    // A toleration with another effect is kept.
    let other = created_pod(spec("tolerations", json!([exists("not-ready", "NoSchedule")])));
    assert_eq!(other["spec"]["tolerations"].as_array().unwrap().len(), 7);
}

/// Proves DS-36, DS-37.
#[test]
fn the_node_affinity_selects_the_target_node() {
    let term = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]});
    let plain = created_pod(cluster(set(), [node("n")], []));
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
    let pod = created_pod(spec("affinity", affinity.clone()));
    assert_eq!(*pod.pointer(REQUIRED).unwrap(), term, "it replaces all required terms");
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(pod["spec"]["affinity"]["nodeAffinity"][preferred], affinity["nodeAffinity"][preferred]);
    assert_eq!(pod["spec"]["affinity"]["podAntiAffinity"], affinity["podAntiAffinity"]);
    let silent = created_pod(spec("affinity", Value::Null));
    assert_eq!(*silent.pointer(REQUIRED).unwrap(), term);
}

/// Proves DS-38, DS-39, REV-2, REV-3, REV-55.
#[test]
fn a_pod_has_the_revision_hash_and_the_template_generation() {
    let mut noted = with_field(set(), "/spec/template/metadata/annotations", json!({"note": "x"}));
    noted["spec"]["template"]["metadata"]["finalizers"] = json!(["x/y"]);
    noted["spec"]["template"]["spec"]["unknownField"] = json!({"a": 1});
    let hash = |cluster: RehearsalCluster| created_pod(cluster)["metadata"]["labels"].take();
    let labels = json!({"app": "agent", "controller-revision-hash": "h2", "pod-template-generation": "2"});
    assert_eq!(hash(cluster(set(), [node("n")], [])), labels);
    for odd in [Value::Null, json!("many")] {
        let odd = with_field(set(), "/metadata/annotations/deprecated.daemonset.template.generation", odd);
        assert_eq!(hash(cluster(odd, [node("n")], []))["pod-template-generation"], Value::Null);
    }
    let pod = created_pod(bare(noted, [node("n")], []));
    let metadata = &pod["metadata"];
    assert_eq!((&metadata["generateName"], &metadata["name"]), (&json!("agent-"), &Value::Null));
    assert_eq!(metadata["ownerReferences"], json!([owner()]));
    assert_eq!(metadata["annotations"], json!({"note": "x"}));
    assert_eq!(metadata["finalizers"], json!(["x/y"]));
    assert_eq!(pod["spec"]["unknownField"], json!({"a": 1}));
}

/// The label of the revision is enough for a pod: a selector may match pods without certain labels.
#[test]
fn a_template_without_labels_makes_pods_with_the_label_of_their_revision() {
    for metadata in [json!({}), Value::Null] {
        let unlabelled = with_field(set(), "/spec/template/metadata", metadata);
        let transcript = transcript_of(bare(unlabelled, [node("n")], []));
        assert!(transcript.contains("create pods a/") && !transcript.contains("no labels"), "{transcript}");
    }
}

/// Proves DS-54, DS-112.
#[test]
fn at_most_250_pods_are_created_and_250_deleted_in_one_reconcile() {
    let names: Vec<String> = (0..600).map(|at| format!("n{at:03}")).collect();
    let set = || with_field(set(), "/spec/template/spec/nodeSelector", json!({"wanted": "yes"}));
    let labelled = |name: &String| with_field(node(name), "/metadata/labels", json!({"wanted": "yes"}));
    let nodes = names[..300].iter().map(labelled).chain(names[300..].iter().map(|name| node(name)));
    let pods = names[300..].iter().map(|name| pod(&format!("on-{name}"), name));
    let pod_changes = pod_changes(bare(set(), nodes, pods));
    let (created_pod, deleted): (Vec<_>, Vec<_>) =
        pod_changes.into_iter().partition(|it| it.starts_with("create"));
    assert_eq!((created_pod.len(), deleted.len()), (250, 250));
}

/// Proves DS-55, DS-57, DS-113.
#[test]
fn a_failed_creation_stops_creations_but_not_deletions() {
    let nodes = || ["a", "b", "c", "d"].map(node);
    let twins = [
        pod("x", "e"),
        with_field(pod("y", "e"), "/metadata/creationTimestamp", json!("2027-01-02T00:00:00Z")),
    ];
    let failing = cluster(set(), nodes().into_iter().chain([node("e")]), twins);
    let failing = failing.failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    let transcript = transcript_of(failing);
    assert_eq!(transcript.matches("FAILED: refused").count(), 1, "the first batch is one pod: {transcript}");
    assert!(transcript.contains("delete pods a/y because the node has another daemon pod\n"), "{transcript}");
    assert!(is_retried_because(&transcript, "refused"));
    // A failed deletion does not stop the others, and a pod that is not found is no error.
    let elsewhere = || cluster(set(), [], [unbound("x", "gone"), unbound("y", "gone")]);
    let one = elsewhere().failing::<Pod>("delete", &key("x"), api_error(ErrorReason::Forbidden));
    let transcript = transcript_of(one);
    assert!(
        transcript.contains("delete pods a/y") && is_retried_because(&transcript, "refused"),
        "{transcript}"
    );
    let gone = elsewhere().failing::<Pod>("delete", &key("x"), api_error(ErrorReason::NotFound));
    assert!(!transcript_of(gone).contains("retry"));
}

/// Proves DS-56.
#[test]
fn a_creation_in_a_terminating_namespace_is_not_an_error() {
    let terminating = cluster(set(), [node("n")], []);
    let terminating =
        terminating.failing::<Pod>("create", &key(""), api_error(ErrorReason::NamespaceTerminating));
    let transcript = transcript_of(terminating);
    assert!(!transcript.contains("event") && !transcript.contains("retry"), "{transcript}");
}

/// Proves DS-89.
#[test]
fn an_event_is_recorded_for_each_pod() {
    let transcript = transcript_of(cluster(set(), [node("n")], []));
    assert!(transcript.contains(
        "event Normal SuccessfulCreate on DaemonSet a/agent uid=u-agent: Created pod: agent-new\n"
    ));
    let transcript = transcript_of(cluster(set(), [], [unbound("x", "gone")]));
    assert!(
        transcript
            .contains("event Normal SuccessfulDelete on DaemonSet a/agent uid=u-agent: Deleted pod: x\n")
    );
    let failing = cluster(set(), [], [unbound("x", "gone")]);
    let failing = failing.failing::<Pod>("delete", &key("x"), api_error(ErrorReason::Forbidden));
    assert!(
        transcript_of(failing).contains(
            "event Warning FailedDelete on DaemonSet a/agent uid=u-agent: Error deleting: refused\n"
        )
    );
}
