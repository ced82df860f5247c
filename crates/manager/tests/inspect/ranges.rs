//! Nodes of a playground have ranges, and pods have addresses of the range of their node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use keleustes_client::Call;
use keleustes_objects::Resource;
use serde_json::Value;

use crate::playground::{DEPLOYMENTS, Playground, deployment};

const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

/// Waits until all objects of a kind have a text here, and returns it by name, together with another text.
async fn texts(
    client: &kube::Client,
    resource: &Resource,
    count: usize,
    pointers: [&str; 2],
) -> BTreeMap<String, [String; 2]> {
    let began = Instant::now();
    loop {
        let list = Call::list(resource, "").send(client).await.unwrap();
        let text = |object: &Value, pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let objects = list["items"].as_array().unwrap();
        let found: BTreeMap<_, _> = objects
            .iter()
            .map(|object| (text(object, "/metadata/name"), pointers.map(|pointer| text(object, pointer))))
            .collect();
        if found.len() == count && found.values().flatten().all(|text| !text.is_empty()) {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_playground_have_addresses_of_the_range_of_their_node() {
    let playground = Playground::start_with(&["--nodes=2"]);
    let admin = playground.admin();
    let nodes = texts(&admin, &NODES, 2, ["/spec/podCIDR", "/spec/podCIDRs/0"]).await;
    assert!(nodes.values().all(|[range, first]| range == first), "{nodes:?}");
    let ranges: BTreeSet<&str> = nodes.values().map(|[range, _]| range.as_str()).collect();
    assert_eq!(ranges, BTreeSet::from(["10.32.0.0/24", "10.32.1.0/24"]));
    let mut oars = deployment("oars", "any:1");
    oars["spec"]["replicas"] = 6.into();
    Call::create(&DEPLOYMENTS, "default", &oars).send(&admin).await.unwrap();
    let pods = texts(&admin, &PODS, 6, ["/status/podIP", "/spec/nodeName"]).await;
    for [address, node] in pods.values() {
        let network = nodes[node][0].trim_end_matches("0/24");
        assert!(address.starts_with(network), "{address} on {node}, {nodes:?}");
    }
    let distinct: BTreeSet<&String> = pods.values().map(|[address, _]| address).collect();
    assert_eq!(distinct.len(), 6, "{pods:?}");
}
