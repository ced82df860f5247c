//! The example of docs/playground.md in which a Deployment follows its load, and what `kubectl top` reads.

use std::time::{Duration, Instant};

use http::Method;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{Key, Resource};
use serde_json::{Value, json};

use crate::playground::{DEPLOYMENTS, Playground, deployment};

const AUTOSCALERS: Resource =
    Resource::namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");

/// Four periods of the autoscaler (`--horizontal-pod-autoscaler-sync-period`) and some more for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The commands of the example; the test sends the same objects.
const COMMANDS: [&str; 4] = [
    "kubectl create deployment oars --image=any",
    "kubectl set resources deployment oars --requests=cpu=200m",
    "kubectl autoscale deployment oars --cpu=50% --min=1 --max=10",
    "kubectl annotate deployment oars hollow.keleustes.io/cpu-load=500m",
];
/// 500m in shares of at most half of 200m.
const REPLICAS: usize = 5;

/// Waits until an answer of the API server is as wanted; an error is one that is not.
async fn wait_for(client: &kube::Client, path: &'static str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = Call::raw(Method::GET, path).send(client).await;
        if let Some(answer) = answer.as_ref().ok().filter(|answer| is_wanted(answer)) {
            return answer.clone();
        }
        assert!(began.elapsed() < PATIENCE, "{path}: {answer:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A quantity of CPU in thousandths, as the metrics APIs write it.
fn milli(quantity: &Value) -> f64 {
    let text = quantity.as_str().unwrap();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let factor = match unit {
        "" => 1e3,
        "m" => 1.0,
        "u" => 1e-3,
        "n" => 1e-6,
        _ => panic!("{text}"),
    };
    number.parse::<f64>().unwrap() * factor
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_of_the_page_follows_its_load_and_kubectl_top_shows_it() {
    let page = include_str!("../../../../docs/playground.md");
    let example = page.split_once("**A Deployment follows its load.**").unwrap().1;
    let example = example.split("```").nth(1).unwrap();
    assert!(COMMANDS.iter().all(|command| example.contains(command)), "{example}");

    let playground = Playground::start();
    let admin = playground.admin();
    let mut oars = deployment("oars", "any");
    oars["spec"]["replicas"] = 1.into();
    oars["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m"}});
    Call::create(&DEPLOYMENTS, "default", &oars).send(&admin).await.unwrap();
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "oars"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "oars"},
            "minReplicas": 1, "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    });
    Call::create(&AUTOSCALERS, "default", &autoscaler).send(&admin).await.unwrap();
    let load = json!({"metadata": {"annotations": {"hollow.keleustes.io/cpu-load": "500m"}}});
    let key = Key::namespaced("default", "oars");
    Call::patch(&DEPLOYMENTS, &key, PatchType::Merge, &load).send(&admin).await.unwrap();

    let path = "/apis/apps/v1/namespaces/default/deployments/oars";
    wait_for(&admin, path, |oars| oars["status"]["readyReplicas"] == REPLICAS).await;
    let pods = "/apis/metrics.k8s.io/v1beta1/pods";
    let pods = wait_for(&admin, pods, |pods| items(pods).len() == REPLICAS).await;
    let used: Vec<f64> =
        items(&pods).iter().map(|pod| milli(&pod["containers"][0]["usage"]["cpu"])).collect();
    assert!(used.iter().all(|used| (used - 100.0).abs() < 1.0), "equal shares of 500m: {used:?}");
    let nodes = "/apis/metrics.k8s.io/v1beta1/nodes";
    let nodes = wait_for(&admin, nodes, |nodes| items(nodes).len() == 1).await;
    let node = &items(&nodes)[0];
    assert_eq!(node["metadata"]["name"], "hollow-0");
    assert!(milli(&node["usage"]["cpu"]) >= used.iter().sum(), "it runs all of them: {node:#}");
    let autoscaler = Call::get(&AUTOSCALERS, &key).send(&admin).await.unwrap();
    assert_eq!(autoscaler["status"]["desiredReplicas"], REPLICAS, "{autoscaler:#}");
}
