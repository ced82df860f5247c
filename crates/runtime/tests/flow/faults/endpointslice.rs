//! Every pod behind a Service is in its EndpointSlices once, with every fault while pods and ports change.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_controllers::endpointslice::{self, EndpointSliceOptions};
use keleustes_objects::{Key, Kind as _, Pod, Service};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};

use super::{Case, converges_with_every_fault};
use crate::test_cluster::{TestCluster, wait};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

fn pod(name: &str, ready: &str) -> Value {
    let ip = format!("10.0.0.{}", &name[1..]);
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "a", "name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": ready}]}})
}

fn slice(name: &str, address_type: &str, labels: &Value, address: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "a", "name": name, "labels": labels,
                     "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "an earlier UID"}]},
        "addressType": address_type, "endpoints": [{"addresses": [address]}], "ports": []})
}

fn given(server: &ApiServer) {
    let ours = json!({"kubernetes.io/service-name": "web", MANAGED_BY: "endpointslice-controller.k8s.io"});
    let foreign = json!({"kubernetes.io/service-name": "web", MANAGED_BY: "another-controller"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
                 "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let others = [
        slice("of-an-earlier-uid", "IPv4", &ours, "10.9.9.1"),
        slice("of-another-type", "FQDN", &ours, "example.com"),
        slice("of-another-controller", "IPv4", &foreign, "10.9.9.2"),
    ];
    let pods = (1..=5).map(|n| pod(&format!("p{n}"), "True"));
    for object in [namespace, service, node].into_iter().chain(others).chain(pods) {
        server.seed(object).unwrap();
    }
}

fn when(server: ApiServer) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let client = kube::Client::new(server.clone(), "default");
        let key = |name: &str| Key::namespaced("a", name);
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.seed(pod("p1", "False")).unwrap();
        server.seed(pod("p6", "True")).unwrap();
        let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        Call::delete(&Pod::RESOURCE, &key("p2"), &now).send(&client).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let ports = json!({"spec": {"ports": [{"port": 80, "targetPort": 9090, "protocol": "TCP"}]}});
        Call::patch(&Service::RESOURCE, &key("web"), PatchType::Merge, &ports).send(&client).await.unwrap();
    })
}

/// The pods in the slices, with port and readiness.
fn listed(server: &ApiServer) -> Result<BTreeMap<String, (i64, bool)>, String> {
    let mut listed = BTreeMap::new();
    let slices = server.objects("endpointslices.discovery.k8s.io");
    for slice in slices.iter().filter(|slice| slice["metadata"]["labels"][MANAGED_BY] != "another-controller")
    {
        let endpoints = slice["endpoints"].as_array().map_or(&[][..], |endpoints| endpoints);
        if endpoints.len() > 2 {
            return Err(format!("{} has too many endpoints", slice["metadata"]["name"]));
        }
        for endpoint in endpoints {
            let name = endpoint["targetRef"]["name"].as_str().ok_or("an endpoint without a pod")?.to_owned();
            let port = slice["ports"][0]["port"].as_i64().unwrap_or_default();
            let port_and_readiness = (port, endpoint["conditions"]["ready"] == true);
            if listed.insert(name.clone(), port_and_readiness).is_some() {
                return Err(format!("{name} is listed twice"));
            }
        }
    }
    Ok(listed)
}

fn then(server: &ApiServer) -> Result<(), String> {
    let listed = listed(server)?;
    let wanted = [("p1", false), ("p3", true), ("p4", true), ("p5", true), ("p6", true)];
    let wanted = BTreeMap::from(wanted.map(|(pod, ready)| (pod.to_owned(), (9090, ready))));
    if listed != wanted {
        return Err(format!("{listed:?} are listed"));
    }
    let foreign = server.object("endpointslices.discovery.k8s.io", "a", "of-another-controller");
    if foreign.is_none_or(|slice| slice["endpoints"][0]["addresses"][0] != "10.9.9.2") {
        return Err("a slice of another controller was changed".to_owned());
    }
    Ok(())
}

/// Proves EPS-92, EPS-95, EPS-116, EPS-118.
#[test]
fn every_pod_is_in_one_slice_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || {
            vec![endpointslice::controller(&EndpointSliceOptions {
                max_endpoints_per_slice: 2,
                ..EndpointSliceOptions::default()
            })]
        },
        given,
        when,
        then,
        within: Duration::from_secs(20),
        quiet_for: super::QUIET_FOR,
    });
}

/// Proves EPS-11, EPS-13, EPS-14.
#[tokio::test(start_paused = true)]
async fn own_writes_do_not_enqueue_the_service() {
    let cluster = TestCluster::new();
    given(&cluster.server);
    for slice in ["of-an-earlier-uid", "of-another-type"] {
        cluster.server.remove("endpointslices.discovery.k8s.io", "a", slice);
    }
    let options = EndpointSliceOptions { max_endpoints_per_slice: 2, ..EndpointSliceOptions::default() };
    let running = cluster.start(endpointslice::controller(&options)).await;
    let assert_reconciles = |count: usize| {
        let line = format!("endpoint_slice_controller_syncs{{result=\"success\"}} {count}");
        assert!(cluster.metric(&line), "{}", cluster.metrics.text());
    };
    wait(Duration::from_secs(60)).await;
    assert_reconciles(1); // Three slices were created.
    cluster.server.seed(pod("p1", "False")).unwrap();
    wait(Duration::from_secs(60)).await;
    assert_reconciles(2); // One was updated.
    cluster.server.remove("pods", "a", "p5");
    wait(Duration::from_secs(60)).await;
    assert_reconciles(3); // One was deleted.
    assert_eq!(listed(&cluster.server).unwrap().len(), 4);
    running.stop().await;
}
