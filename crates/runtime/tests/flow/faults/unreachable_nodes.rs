//! A node stops renewing its lease: it becomes unreachable, its pods without a toleration are evicted, and
//! nothing else is changed, with every fault.

use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::{node_lifecycle, taint_eviction};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Case, converges_with_every_fault};

const UNREACHABLE: &str = "n0";
const HEALTHY: [&str; 3] = ["n1", "n2", "n3"];

fn node(name: &str) -> Value {
    let condition = |name: &str, status: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({"type": name, "status": status, "lastHeartbeatTime": time, "lastTransitionTime": time})
    };
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
        "status": {"conditions": [condition("Ready", "True"), condition("DiskPressure", "False")]},
    })
}

fn pod(node: &str, tolerates: bool) -> Value {
    let name = format!("{node}-{}", if tolerates { "tolerating" } else { "intolerant" });
    let tolerations = if tolerates { json!([{"operator": "Exists"}]) } else { json!([]) };
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
        "spec": {
            "nodeName": node, "tolerations": tolerations, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}],
        },
        "status": {"phase": "Running", "conditions": [ready]},
    })
}

fn renew(server: &ApiServer, node: &str, seconds: u64) {
    let time =
        format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "kube-node-lease", "name": node},
        "spec": {"holderIdentity": node, "renewTime": time},
    });
    server.seed(lease).unwrap();
}

fn given(server: &ApiServer) {
    for name in HEALTHY.into_iter().chain([UNREACHABLE]) {
        server.seed(node(name)).unwrap();
        renew(server, name, 0);
        server.seed(pod(name, true)).unwrap();
        server.seed(pod(name, false)).unwrap();
    }
}

/// From now on, one node does not renew its lease.
fn when(server: ApiServer) -> BoxFuture<'static, ()> {
    let began = Instant::now();
    tokio::spawn(async move {
        loop {
            HEALTHY.iter().for_each(|node| renew(&server, node, 1 + began.elapsed().as_secs()));
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    });
    Box::pin(async {})
}

/// Taints as `key:effect`, sorted.
fn taints(server: &ApiServer, node: &str) -> Vec<String> {
    let node = server.object("nodes", "", node).unwrap();
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().replace("node.kubernetes.io/", "");
    let mut taints: Vec<_> =
        all.iter().map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect();
    taints.sort();
    taints
}

/// The status of an object's `Ready` condition.
fn ready(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready["status"].as_str()).unwrap_or_default().to_owned()
}

fn then(server: &ApiServer) -> Result<(), String> {
    let pods = server.objects("pods");
    let pods_ready: Vec<_> = pods
        .iter()
        .map(|pod| format!("{} {}", pod["metadata"]["name"].as_str().unwrap(), ready(pod)))
        .collect();
    let wanted = [
        "n0-tolerating False",
        "n1-intolerant True",
        "n1-tolerating True",
        "n2-intolerant True",
        "n2-tolerating True",
        "n3-intolerant True",
        "n3-tolerating True",
    ];
    let unreachable = (ready(&server.object("nodes", "", UNREACHABLE).unwrap()), taints(server, UNREACHABLE));
    let expected_taints = ["unreachable:NoExecute", "unreachable:NoSchedule"].map(str::to_owned);
    let untouched = |node: &&str| {
        let object = server.object("nodes", "", node).unwrap();
        ready(&object) == "True"
            && taints(server, node).is_empty()
            && object["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"
    };
    if pods_ready == wanted
        && unreachable == ("Unknown".to_owned(), expected_taints.to_vec())
        && HEALTHY.iter().all(untouched)
    {
        return Ok(());
    }
    let others: Vec<_> = HEALTHY.iter().map(|node| taints(server, node)).collect();
    Err(format!("pods {pods_ready:?}, the unreachable node {unreachable:?}, taints of the others {others:?}"))
}

/// Proves NLC-29, NLC-47, NLC-65, NLC-87, TE-24, TE-30.
#[test]
fn unreachable_node_is_tainted_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || {
            vec![
                node_lifecycle::controller(node_lifecycle::NodeLifecycleOptions {
                    monitor_period: Duration::from_secs(10),
                    ..node_lifecycle::NodeLifecycleOptions::default()
                }),
                taint_eviction::controller(taint_eviction::TaintEvictionOptions::default()),
            ]
        },
        given,
        when,
        then,
        within: Duration::from_secs(90),
        quiet_for: super::QUIET_FOR,
    });
}

/// A node that was tainted before the controller started.
fn tainted(server: &ApiServer) {
    let mut node = node(UNREACHABLE);
    node["spec"] = json!({"taints": [{"key": "maintenance", "effect": "NoExecute"}]});
    server.seed(node).unwrap();
    server.seed(pod(UNREACHABLE, true)).unwrap();
    for name in ["a", "b", "c"] {
        let mut pod = pod(UNREACHABLE, false);
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["tolerations"] = json!([{"key": "maintenance", "operator": "Exists", "tolerationSeconds": if name == "c" { 30 } else { 0 }}]);
        server.seed(pod).unwrap();
    }
}

/// Proves TE-24, TE-30, TE-32, TE-39.
#[test]
fn pods_are_evicted_from_a_tainted_node_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![taint_eviction::controller(taint_eviction::TaintEvictionOptions::default())],
        given: tainted,
        when: |_| Box::pin(async {}),
        then: |server| {
            let pods = server.objects("pods");
            let names: Vec<_> = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
            if names == ["n0-tolerating"] { Ok(()) } else { Err(format!("there are {names:?}")) }
        },
        within: Duration::from_secs(40),
        quiet_for: super::QUIET_FOR,
    });
}
