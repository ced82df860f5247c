//! Only the age of a request decides.

use keleustes_objects::{ApiError, Key, Kind as _, Time};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Action, Step};
use serde_json::{Value, json};

use super::*;

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn request(namespace: &str, name: &str, age_seconds: i64) -> Value {
    let created = Time::from_unix_seconds(1_800_000_000 - age_seconds);
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
                        "resourceVersion": "3", "creationTimestamp": created}})
}

fn cluster(requests: Vec<Value>) -> RehearsalCluster {
    requests
        .into_iter()
        .fold(RehearsalCluster::of(&the_loop()), RehearsalCluster::with::<PodCertificateRequest>)
}

fn pass(requests: Vec<Value>) -> String {
    let transcript = cluster(requests).reconcile(&the_loop(), Pass);
    transcript.strip_suffix("requeue after 300s\n").expect("the next pass in five minutes").to_owned()
}

fn deleted(key: &str) -> String {
    format!("delete podcertificaterequests.certificates.k8s.io {key} because it is at least 15 minutes old\n")
}

/// Proves PCRC-10, PCRC-11, PCRC-30, PCRC-3.
#[test]
fn request_is_deleted_at_fifteen_minutes() {
    assert_eq!(pass(vec![request("a", "r", 15 * 60)]), deleted("a/r"));
    assert_eq!(pass(vec![request("a", "r", 99 * 60)]), deleted("a/r"));
    assert_eq!(pass(vec![request("a", "r", 15 * 60 - 1)]), "");
    assert_eq!(pass(vec![]), "");
    let mut just_before = cluster(vec![request("a", "r", 15 * 60 - 1)]);
    just_before.advance_clock(Duration::from_millis(999));
    assert_eq!(just_before.reconcile(&the_loop(), Pass), "requeue after 300s\n");
}

/// Proves PCRC-12, PCRC-37, PCRC-14.
#[test]
fn nothing_but_the_age_is_examined() {
    let mut old = request("a", "r", 15 * 60);
    old["spec"] = json!({"signerName": "example.com/x", "maxExpirationSeconds": 86400, "podName": "gone"});
    old["status"] = json!({"conditions": [{"type": "Issued", "status": "True"}], "certificateChain": "x"});
    old["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}]);
    old["metadata"]["finalizers"] = json!(["example.com/x"]);
    let mut cluster = cluster(vec![old]);
    for _ in 0..2 {
        let transcript = cluster.reconcile(&the_loop(), Pass);
        assert_eq!(transcript, format!("{}requeue after 300s\n", deleted("a/r")), "again in each pass");
    }
    let live = cluster.live_object::<PodCertificateRequest>(&Key::namespaced("a", "r")).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["example.com/x"]));
    for condition in ["Denied", "Failed", "Issued", "Unheard-of"] {
        let mut young = request("a", "r", 60);
        young["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        assert_eq!(pass(vec![young]), "", "{condition}");
    }
}

/// Proves PCRC-35.
#[test]
fn clock_behind_the_api_server_delays_deletion() {
    assert_eq!(pass(vec![request("a", "r", -3600)]), "");
}

/// Proves PCRC-20, PCRC-38, PCRC-40.
#[test]
fn each_delete_has_the_namespace_and_uid_of_its_request() {
    let plan = decide(
        &cluster(vec![request("a", "r", 900), request("b", "r", 900), request("c", "r", 60)]).view(),
        &Pass,
    );
    let [Step::Parallel(writes)] = plan.steps() else { panic!("one step") };
    let targets: Vec<_> = writes
        .iter()
        .map(|write| {
            let Action::Delete { resource_version_precondition: None, .. } = &write.action else {
                panic!("a delete without a resourceVersion precondition")
            };
            (write.target.key.to_string(), write.target.uid.to_string())
        })
        .collect();
    assert_eq!(targets, [("a/r".into(), "a-r".into()), ("b/r".into(), "b-r".into())]);
}

/// Proves PCRC-13, PCRC-42, PCRC-43.
#[test]
fn failed_delete_does_not_stop_the_others_and_is_not_retried() {
    let cases = [
        (ErrorReason::Forbidden, true),
        (ErrorReason::Other, true),
        (ErrorReason::Conflict, true),
        (ErrorReason::NotFound, false),
    ];
    for (reason, is_error) in cases {
        let failure = ApiError::transport(reason, "refused");
        let requests = vec![request("a", "r", 900), request("b", "r", 900), request("c", "r", 900)];
        let mut cluster =
            cluster(requests).failing::<PodCertificateRequest>("delete", &Key::namespaced("b", "r"), failure);
        let transcript = cluster.reconcile(&the_loop(), Pass);
        assert_eq!(transcript.matches("delete ").count(), 3, "{transcript}");
        assert_eq!(transcript.contains("FAILED"), is_error, "{transcript}");
        assert!(transcript.ends_with("requeue after 300s\n"), "{transcript}");
    }
}

/// Proves PCRC-1, PCRC-25.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller();
    assert_eq!(controller.name, "podcertificaterequest-cleaner-controller");
    assert!(crate::names::aliases_of(controller.name).is_empty());
    assert_eq!(controller.service_account, Some("podcertificaterequestcleaner"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.workers, a_loop.watches.len(), a_loop.initial_items.len()), (1, 0, 1));
    assert_eq!(PodCertificateRequest::RESOURCE.api_version(), "certificates.k8s.io/v1");
    assert!(
        PodCertificateRequest::PROJECTION.optional && PodCertificateRequest::PROJECTION.namespace.is_empty()
    );
}
