//! Evictions at work: none waits for another, and a stop lets those under way end.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::taint_eviction::{TaintEvictionOptions, controller};
use serde_json::{Value, json};

use crate::world::{World, settle, wait};

/// A node with a taint, and pods on it: those named `patient` tolerate it for five minutes.
fn world(pods: &[&str]) -> World {
    let world = World::new();
    world
        .server
        .seed(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
        }))
        .unwrap();
    for name in pods {
        let toleration = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 300});
        let tolerations = if name.starts_with("patient") { vec![toleration] } else { vec![] };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
            "spec": {"nodeName": "n", "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        });
        world.server.seed(pod).unwrap();
    }
    world
}

fn pods(world: &World) -> Vec<String> {
    let is_going = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let pods = world.server.objects("pods");
    let there = pods.iter().filter(|pod| !is_going(pod));
    there.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Proves TE-25.
#[tokio::test(start_paused = true)]
async fn one_eviction_that_hangs_holds_no_other_up() {
    let names: Vec<String> = (0..20).map(|n| format!("p{n:02}")).collect();
    let world = world(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for stuck in ["p00", "p01", "p02", "p03", "p04", "p05", "p06", "p07"] {
        world.faults.add(
            FaultRule::new(InjectedFault::Hang).method(Method::DELETE).target(&format!("/pods/{stuck}")),
        );
    }
    let _running = world.start(controller(TaintEvictionOptions::default())).await;
    settle().await;
    assert_eq!(pods(&world), names[..8]);
}

/// Proves TE-52.
#[tokio::test(start_paused = true)]
async fn a_stop_drops_who_waits_and_lets_the_evictions_under_way_end() {
    let world = world(&["now", "patient"]);
    let slow = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    world.faults.add(FaultRule::new(slow).method(Method::PATCH));
    let running = world.start(controller(TaintEvictionOptions::default())).await;
    settle().await;
    assert_eq!(pods(&world), ["now", "patient"]);
    running.stop().await;
    assert_eq!(pods(&world), ["patient"]);
    wait(Duration::from_secs(600)).await;
    assert_eq!(pods(&world), ["patient"]);
    let events = world.events.lock();
    let told: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(told, ["Marking for deletion Pod default/now"]);
}
