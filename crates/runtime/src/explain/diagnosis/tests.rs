//! Objects, and the cause that a diagnosis names.

use serde_json::json;

use super::*;

const NOW: Time = Time::from_unix_seconds(1_767_225_600);

/// The most important finding.
fn first(object: &Value) -> String {
    findings(object, NOW).first().map(|finding| finding.text.clone()).unwrap_or_default()
}

#[test]
fn each_kind_names_what_blocks_it() {
    let rows = [
        (
            json!({"kind": "Pod", "metadata": {"creationTimestamp": "2025-12-31T23:59:00Z"},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available"}]}}),
            "not scheduled for 60s (Unschedulable): 0/3 nodes are available",
        ),
        (
            json!({"kind": "Pod", "spec": {"nodeName": "n"}, "status": {"containerStatuses": [
                {"name": "c", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}]}}),
            "container c waits (CrashLoopBackOff, 4 restarts): back-off",
        ),
        (
            json!({"kind": "Pod", "metadata": {"deletionTimestamp": "2025-12-31T23:50:00Z", "deletionGracePeriodSeconds": 30},
                "spec": {"nodeName": "n"}}),
            "terminating for 10m on node n (grace period 30 s): its kubelet has not removed it",
        ),
        (
            json!({"kind": "Namespace", "metadata": {"deletionTimestamp": "2025-12-31T23:50:00Z"}, "status": {"conditions": [
                {"type": "NamespaceFinalizersRemaining", "status": "True", "reason": "SomeFinalizersRemain",
                 "message": "example.com/hold in 1 resource instances"}]}}),
            "NamespaceFinalizersRemaining is True (SomeFinalizersRemain): example.com/hold in 1 resource instances",
        ),
        (
            json!({"kind": "Widget", "metadata": {"deletionTimestamp": "2025-12-31T23:50:00Z", "finalizers": ["example.com/hold"]}}),
            "terminating for 10m: finalizer example.com/hold is left, only the component that added it removes it",
        ),
        (
            json!({"kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}),
            "not bound: it names no StorageClass and the cluster has no default one",
        ),
        (
            json!({"kind": "PodDisruptionBudget", "status": {"observedGeneration": 1, "disruptionsAllowed": 0,
                "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}}),
            "allows no evictions: 2 of 2 pods are healthy and 2 must stay healthy",
        ),
        (
            json!({"kind": "CertificateSigningRequest", "spec": {"signerName": "example.com/s"}}),
            "it is neither approved nor denied: `kubectl certificate approve` does (signer example.com/s)",
        ),
        (
            json!({"kind": "ResourceQuota", "status": {"hard": {"pods": "2"}, "used": {"pods": "2"}}}),
            "exhausted: pods is at its limit of 2",
        ),
        (json!({"kind": "CronJob", "spec": {"suspend": true}}), "suspended: spec.suspend is true"),
        (
            json!({"kind": "Node", "status": {"conditions": [{"type": "Ready", "status": "Unknown",
                "lastTransitionTime": "2025-12-31T23:58:00Z", "reason": "NodeStatusUnknown", "message": "Kubelet stopped"}]}}),
            "the node is lost: Ready is Unknown for 2m (NodeStatusUnknown): Kubelet stopped",
        ),
        (
            json!({"kind": "Deployment", "spec": {"paused": true}}),
            "paused: `kubectl rollout resume` continues the rollout",
        ),
    ];
    for (object, wanted) in rows {
        assert_eq!(first(&object), wanted);
    }
}

#[test]
fn attachment_names_what_the_driver_reports() {
    let named = |changes: Value| {
        let mut attachment = json!({"kind": "VolumeAttachment", "metadata": {"creationTimestamp": "2025-12-31T23:59:00Z"},
            "spec": {"attacher": "d.io", "nodeName": "n1", "source": {"persistentVolumeName": "pv1"}}, "status": {"attached": false}});
        for (pointer, value) in changes.as_object().unwrap() {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            attachment.pointer_mut(parent).unwrap()[name] = value.clone();
        }
        first(&attachment)
    };
    let (error, since) = (json!({"message": "no such volume"}), "2025-12-31T23:50:00Z");
    let attach = "driver d.io cannot attach volume pv1 to node n1: no such volume";
    let detach = "driver d.io cannot detach volume pv1 from node n1: no such volume";
    assert_eq!(
        named(json!({})),
        "volume pv1 is not attached to node n1 after 60s: the attacher of driver d.io has not answered"
    );
    assert_eq!(named(json!({"/status/attachError": error})), attach);
    assert_eq!(
        named(json!({"/spec/source": {"inlineVolumeSpec": {}}, "/status/attachError": error})),
        "driver d.io cannot attach the inline volume to node n1: no such volume"
    );
    assert_eq!(named(json!({"/status/attached": true})), "");
    assert_eq!(
        named(json!({"/status/attached": true, "/status/attachError": error})),
        "",
        "an error of the past"
    );
    assert_eq!(named(json!({"/status/attached": true, "/status/detachError": error})), detach);
    let finalizers = json!(["external-attacher/d-io"]);
    assert_eq!(
        named(json!({"/metadata/deletionTimestamp": since, "/metadata/finalizers": finalizers,
            "/status/attachError": error})),
        "terminating for 10m: finalizer external-attacher/d-io is left, only the component that added it removes it"
    );
    assert_eq!(named(json!({"/metadata/deletionTimestamp": since, "/status/detachError": error})), detach);
}

#[test]
fn autoscaler_names_what_keeps_its_size() {
    for (condition, status, reason, wanted) in [
        (
            "AbleToScale",
            "True",
            "ScaleUpStabilized",
            "the stabilization window keeps its size (ScaleUpStabilized): because",
        ),
        ("AbleToScale", "True", "ReadyForNewScale", ""),
        (
            "ScalingActive",
            "False",
            "FailedGetResourceMetric",
            "ScalingActive is False (FailedGetResourceMetric): because",
        ),
    ] {
        let condition = json!({"type": condition, "status": status, "reason": reason, "message": "because"});
        let autoscaler = json!({"kind": "HorizontalPodAutoscaler", "status": {"conditions": [condition]}});
        assert_eq!(first(&autoscaler), wanted);
    }
}

#[test]
fn healthy_and_malformed_objects_have_no_findings() {
    let ready = json!({"kind": "Pod", "spec": {"nodeName": "n"}, "status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "False"}]}});
    assert_eq!(findings(&ready, NOW), []);
    for odd in
        [json!(null), json!([]), json!({"kind": 7}), json!({"kind": "Widget", "status": {"conditions": "x"}})]
    {
        assert_eq!(findings(&odd, NOW), [], "{odd}");
    }
}

#[test]
fn ages_are_printed_as_by_kubectl() {
    let printed = [0, 119, 120, 125, 7199, 7200, 100_000, 200_000, -5].map(duration);
    assert_eq!(printed, ["0s", "119s", "2m", "2m5s", "119m59s", "2h0m", "27h46m", "2d", "0s"]);
}
