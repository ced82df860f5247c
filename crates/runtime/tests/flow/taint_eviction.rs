//! Taint evictions: none waits for another, and a stop lets running ones end.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::taint_eviction::{TaintEvictionOptions, controller};
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, settle, wait};

/// A node with a taint, and pods on it: those named `tolerating` tolerate it for five minutes.
fn cluster(pods: &[&str]) -> TestCluster {
    let cluster = TestCluster::new();
    cluster
        .server
        .seed(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
        }))
        .unwrap();
    for name in pods {
        let toleration = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 300});
        let tolerations = if name.starts_with("tolerating") { vec![toleration] } else { vec![] };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
            "spec": {"nodeName": "n", "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        });
        cluster.server.seed(pod).unwrap();
    }
    cluster
}

fn pods(cluster: &TestCluster) -> Vec<String> {
    let is_terminating = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let pods = cluster.server.objects("pods");
    let remaining = pods.iter().filter(|pod| !is_terminating(pod));
    remaining.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Proves TE-25.
#[tokio::test(start_paused = true)]
async fn hanging_eviction_does_not_delay_others() {
    let names: Vec<String> = (0..20).map(|n| format!("p{n:02}")).collect();
    let cluster = cluster(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for hanging in ["p00", "p01", "p02", "p03", "p04", "p05", "p06", "p07"] {
        cluster.faults.add(
            FaultRule::new(InjectedFault::Hang).method(Method::DELETE).target(&format!("/pods/{hanging}")),
        );
    }
    let _running = cluster.start(controller(TaintEvictionOptions::default())).await;
    settle().await;
    assert_eq!(pods(&cluster), names[..8]);
}

/// Proves TE-52.
#[tokio::test(start_paused = true)]
async fn stop_drops_scheduled_evictions_and_lets_running_ones_end() {
    let cluster = cluster(&["now", "tolerating"]);
    let slow = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(slow).method(Method::PATCH));
    let running = cluster.start(controller(TaintEvictionOptions::default())).await;
    settle().await;
    assert_eq!(pods(&cluster), ["now", "tolerating"]);
    running.stop().await;
    assert_eq!(pods(&cluster), ["tolerating"]);
    wait(Duration::from_secs(600)).await;
    assert_eq!(pods(&cluster), ["tolerating"]);
    let events = cluster.events.lock();
    let messages: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages, ["Marking for deletion Pod default/now"]);
}
