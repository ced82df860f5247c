//! Generated ResourceClaims: one per pod and entry, whatever fails.

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::resourceclaim::{ResourceClaimOptions, controller};
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, wait};

/// A template in namespace `default`.
fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "default", "name": "t"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}},
    });
    cluster.server.seed(template).unwrap();
    cluster
}

/// Creates pod `web` with an entry from the template.
fn create_pod(cluster: &TestCluster) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "web"},
        "spec": {"containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    });
    cluster.server.seed(pod).unwrap();
}

/// The names of the claims, and those that the pod's status lists.
fn names(cluster: &TestCluster) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let claims = cluster.server.objects("resourceclaims");
    let pod = cluster.server.object("pods", "default", "web").unwrap();
    let recorded = pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
    (
        claims.iter().map(|claim| text(&claim["metadata"]["name"])).collect(),
        recorded.iter().map(|status| text(&status["resourceClaimName"])).collect(),
    )
}

/// The cache does not show the new claim while its record fails. Without the gate each retry would create another one.
///
/// Proves RCL-52.
#[tokio::test(start_paused = true)]
async fn claim_whose_record_failed_is_adopted_and_created_once() {
    let cluster = cluster();
    let refused = InjectedFault::status(500, "InternalError", "refused");
    let rule = cluster.faults.add(FaultRule::new(refused).method(Method::PATCH).target("/status").times(3));
    let _running = cluster.start(controller(&ResourceClaimOptions::default())).await;
    cluster.tap.lag("resourceclaims");
    create_pod(&cluster);
    wait(std::time::Duration::from_secs(5)).await;
    let (claims, recorded) = names(&cluster);
    assert_eq!((claims.len(), recorded.len()), (1, 0), "created, and not recorded: {claims:?}");
    assert_eq!(cluster.faults.hits(rule), 1, "the pod waits for the cache");
    cluster.tap.catch_up();
    wait(std::time::Duration::from_secs(60)).await;
    assert_eq!(cluster.faults.hits(rule), 3);
    let (after, recorded) = names(&cluster);
    assert_eq!((&after, recorded), (&claims, claims.clone()));
}

/// Proves RCL-131.
#[tokio::test(start_paused = true)]
async fn nothing_is_created_while_templates_cannot_be_listed() {
    let cluster = cluster();
    create_pod(&cluster);
    let refused = InjectedFault::status(403, "Forbidden", "refused");
    cluster.faults.add(FaultRule::new(refused).method(Method::GET).target("/resourceclaimtemplates"));
    let start = cluster.start(controller(&ResourceClaimOptions::default()));
    let started = tokio::time::timeout(std::time::Duration::from_secs(600), start).await;
    assert!(started.is_err(), "the workers wait for all caches");
    assert_eq!(names(&cluster), (Vec::new(), Vec::new()));
}
