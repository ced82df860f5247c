//! The pod garbage collector deletes the right pods and no others, with every fault.

use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::pod_garbage_collector::{PodGarbageCollectorOptions, controller};
use serde_json::{Value, json};

use super::{Case, converges_with_every_fault};

const COLLECTED: [&str; 6] = ["old", "older", "orphan", "orphan-done", "out-of-service", "unscheduled"];
const KEPT: [&str; 4] = ["pending", "running", "young", "younger"];

fn pod(name: &str, node: &str, phase: &str) -> Value {
    let second = COLLECTED.iter().chain(&KEPT).position(|pod| *pod == name);
    let created_at = format!("2025-01-01T00:00:{:02}Z", second.unwrap_or_default());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "generation": 1, "creationTimestamp": created_at},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": phase},
    })
}

fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2025-12-01T00:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn given(server: &ApiServer) {
    for (name, ready, taint) in [("n", "True", "x"), ("out", "False", "node.kubernetes.io/out-of-service")] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        server.seed(node).unwrap();
    }
    for pod in [
        pod("old", "n", "Succeeded"),
        pod("older", "n", "Failed"),
        pod("orphan", "deleted", "Running"),
        pod("orphan-done", "deleted", "Failed"),
        terminating(pod("out-of-service", "out", "Running")),
        terminating(pod("unscheduled", "", "Pending")),
        pod("pending", "", "Pending"),
        terminating(pod("running", "n", "Running")),
        pod("young", "n", "Succeeded"),
        pod("younger", "n", "Failed"),
    ] {
        server.seed(pod).unwrap();
    }
}

fn then(server: &ApiServer) -> Result<(), String> {
    let pods = server.objects("pods");
    let names: Vec<_> = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default()).collect();
    if names == KEPT { Ok(()) } else { Err(format!("there are {names:?}")) }
}

/// Proves PGC-13, PGC-30, PGC-32.
#[test]
fn pods_are_garbage_collected_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![controller(PodGarbageCollectorOptions { terminated_pod_threshold: 2 })],
        given,
        when: |_| Box::pin(async {}),
        then,
        within: Duration::from_secs(70),
        quiet_for: super::QUIET_FOR,
    });
}
