//! Controllers of kinds that API servers need not serve.

use std::time::Duration;

use keleustes_apiserver::{ApiServer, clock};
use keleustes_controllers::podgroup_protection::{self, PodGroupProtectionOptions};
use keleustes_controllers::resourcepoolstatusrequest::{self, ResourcePoolStatusOptions};
use keleustes_plan::Controller;
use serde_json::json;

use crate::test_cluster::{TestCluster, wait};

fn controllers() -> [Controller; 2] {
    let groups = PodGroupProtectionOptions { enable_generic_workload: true };
    let pools = ResourcePoolStatusOptions { enabled: true, ..ResourcePoolStatusOptions::default() };
    [
        podgroup_protection::controller_if_enabled(groups).unwrap(),
        resourcepoolstatusrequest::controller_if_enabled(pools).unwrap(),
    ]
}

/// Proves PGP-41, RPSR-76.
#[tokio::test(start_paused = true)]
async fn controllers_of_kinds_that_are_not_served_wait_without_writing() {
    let cluster = TestCluster::new();
    for controller in controllers() {
        let start = tokio::time::timeout(Duration::from_secs(600), cluster.start(controller));
        assert!(start.await.is_err(), "the workers wait for all caches");
    }
    assert!(cluster.writes().is_empty());
}

/// An object that waits for the controller is handled as soon as it starts.
///
/// Proves PGP-36, RPSR-75.
#[tokio::test(start_paused = true)]
async fn restarted_controllers_handle_what_waits_for_them() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).gated_kinds(true).build();
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"namespace": "default", "name": "g", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["scheduling.k8s.io/podgroup-protection"]},
        "spec": {"schedulingPolicy": {"basic": {}}},
    });
    let request = |name: &str, status: serde_json::Value| {
        json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": name}, "spec": {"driver": "d"}, "status": status})
    };
    for object in [group, request("pending", json!(null)), request("answered", json!({"poolCount": 7}))] {
        server.seed(object).unwrap();
    }
    let cluster = TestCluster::on_server(server, None);
    let mut running = Vec::new();
    for controller in controllers() {
        running.push(cluster.start(controller).await);
    }
    wait(Duration::from_secs(30)).await;
    assert!(cluster.server.object("podgroups", "default", "g").is_none());
    let status =
        |name: &str| cluster.server.object("resourcepoolstatusrequests", "", name).unwrap()["status"].clone();
    assert_eq!(status("pending")["conditions"][0]["type"], "Complete");
    assert_eq!(status("answered"), json!({"poolCount": 7}), "a finished one is not computed again");
}
