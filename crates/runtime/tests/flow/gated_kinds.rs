//! Controllers of kinds that API servers need not serve.

use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, clock};
use keleustes_controllers::clusterrole_aggregation;
use keleustes_controllers::podgroup_protection::{self, PodGroupProtectionOptions};
use keleustes_controllers::resourcepoolstatusrequest::{self, ResourcePoolStatusOptions};
use keleustes_controllers::validatingadmissionpolicy_status::{self, PolicyStatusOptions};
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

/// Proves VAPS-112.
#[tokio::test(start_paused = true)]
async fn policies_that_are_not_served_keep_only_their_controller_waiting() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["deployments"]}]},
            "validations": [{"expression": "object.spec.nope"}]},
    });
    let rbac = "rbac.authorization.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let part = json!({"apiVersion": rbac, "kind": "ClusterRole",
        "metadata": {"name": "part", "labels": {"a": "b"}}, "rules": [rule]});
    let all = json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    for object in [policy, part, all] {
        server.seed(object).unwrap();
    }
    let cluster = TestCluster::on_server(server, None);
    let not_found =
        InjectedFault::status(404, "NotFound", "the server could not find the requested resource");
    let unserved = cluster.faults.add(FaultRule::new(not_found).resource("validatingadmissionpolicies"));
    let controller = validatingadmissionpolicy_status::controller(PolicyStatusOptions::default());
    let start = tokio::time::timeout(Duration::from_secs(3600), cluster.start(controller));
    assert!(start.await.is_err(), "the worker waits for its cache");
    assert!(cluster.faults.hits(unserved) > 1, "the list is tried again and again");
    assert!(cluster.writes().is_empty());
    let policy = cluster.server.object("validatingadmissionpolicies", "", "p").unwrap();
    assert!(policy["status"]["observedGeneration"].is_null(), "{policy}");
    // The process runs on: another controller works.
    let _running = cluster.start(clusterrole_aggregation::controller()).await;
    wait(Duration::from_secs(30)).await;
    assert_eq!(cluster.server.object("clusterroles", "", "all").unwrap()["rules"], json!([rule]));
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
