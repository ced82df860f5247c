//! Periodic cleaners on the embedded API server: what they delete, when, and what an API server that does not serve a
//! kind or refuses a request changes.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::legacy_serviceaccount_token_cleaner::{self, LegacyTokenCleanerOptions};
use keleustes_controllers::{
    certificatesigningrequest_cleaner, garbage_collector, podcertificaterequest_cleaner,
};
use keleustes_test_log::TestLog;
use serde_json::{Value, json};
use tracing::Level;

use crate::test_cluster::{TestCluster, settle, wait};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn names(cluster: &TestCluster, plural: &str) -> Vec<String> {
    let objects = cluster.server.objects(plural);
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A CertificateSigningRequest that was denied at this time.
fn denied(name: &str, time: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "status": {"conditions": [{"type": "Denied", "status": "True", "lastUpdateTime": time}]},
    })
}

const OLD: &str = "2025-12-31T00:00:00Z";
const CSRS: &str = "certificatesigningrequests.certificates.k8s.io";
const PCRS: &str = "podcertificaterequests.certificates.k8s.io";

/// Proves CSRC-1, CSRC-2, CSRC-47, CSRC-53.
#[tokio::test(start_paused = true)]
async fn old_signing_requests_are_deleted_at_start_and_every_hour() {
    let cluster = TestCluster::new();
    let odd_names = ["a b", "node:csr?x#1", "system:node:n"];
    odd_names.iter().for_each(|name| drop(cluster.server.seed(denied(name, OLD)).unwrap()));
    cluster.server.seed(denied("young", "2026-01-01T00:00:00Z")).unwrap();
    let _running = cluster.start(certificatesigningrequest_cleaner::controller()).await;
    settle().await;
    assert_eq!(names(&cluster, CSRS), ["young"]);
    cluster.server.seed(denied("late", OLD)).unwrap();
    wait(HOUR - Duration::from_secs(1)).await;
    assert_eq!(names(&cluster, CSRS), ["late", "young"], "no event handler");
    wait(Duration::from_secs(2)).await;
    assert_eq!(names(&cluster, CSRS), ["young"], "the next pass; exactly an hour is not too old");
}

/// Proves CSRC-48.
#[tokio::test(start_paused = true)]
async fn signing_request_pass_waits_for_the_list_and_keeps_the_last_known_state() {
    let cluster = TestCluster::new();
    cluster.server.seed(denied("old", OLD)).unwrap();
    let refused = || InjectedFault::status(403, "Forbidden", "no");
    let lists = || FaultRule::new(refused()).resource("certificatesigningrequests").verbs(&["list", "watch"]);
    let rule = cluster.faults.add(lists());
    let start = || cluster.start(certificatesigningrequest_cleaner::controller());
    assert!(tokio::time::timeout(HOUR, start()).await.is_err());
    assert_eq!(names(&cluster, CSRS), ["old"]);
    cluster.faults.disable(rule);
    let _running = start().await;
    settle().await;
    assert_eq!(names(&cluster, CSRS), [""; 0]);
    cluster.server.seed(denied("later", "2026-01-01T01:00:00Z")).unwrap();
    settle().await;
    cluster.faults.add(lists());
    wait(HOUR * 3).await;
    assert_eq!(names(&cluster, CSRS), [""; 0], "deleted from the last known state");
}

/// Proves CSRC-52, CSRC-54, CSRC-59.
#[tokio::test(start_paused = true)]
async fn refused_delete_of_a_signing_request_is_logged_and_left_to_the_next_pass() {
    let (log, _capturing) = TestLog::capture(Level::INFO);
    let cluster = TestCluster::new();
    for name in ["a", "b", "c"] {
        cluster.server.seed(denied(name, OLD)).unwrap();
    }
    let refused = InjectedFault::status(500, "InternalError", "boom");
    cluster.faults.add(FaultRule::new(refused).method(Method::DELETE).target("/b").times(1));
    let _running = cluster.start(certificatesigningrequest_cleaner::controller()).await;
    wait(HOUR - Duration::from_secs(10)).await;
    assert_eq!(names(&cluster, CSRS), ["b"]);
    assert_eq!(log.count(&["certificatesigningrequest-cleaner-controller", "delete", " b ", "boom"]), 1);
    let deletes = cluster.writes();
    assert!(deletes.iter().all(|request| String::from_utf8_lossy(&request.body).contains("\"uid\"")));
    wait(Duration::from_secs(20)).await;
    assert_eq!(names(&cluster, CSRS), [""; 0]);
}

fn pod_request(namespace: &str, created: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
           "metadata": {"namespace": namespace, "name": "r", "creationTimestamp": created}})
}

/// Proves PCRC-2, PCRC-31, PCRC-34, PCRC-36.
#[tokio::test(start_paused = true)]
async fn old_pod_certificate_requests_are_deleted_at_start_and_every_five_minutes() {
    let cluster = TestCluster::new();
    cluster.server.seed(pod_request("default", OLD)).unwrap();
    cluster.server.seed(pod_request("kube-system", "2026-01-01T00:00:00Z")).unwrap();
    let _running = cluster.start(podcertificaterequest_cleaner::controller()).await;
    settle().await;
    assert_eq!(names(&cluster, PCRS).len(), 1);
    wait(MINUTE * 14).await;
    assert_eq!(names(&cluster, PCRS).len(), 1);
    wait(MINUTE * 6 + Duration::from_secs(1)).await;
    assert_eq!(names(&cluster, PCRS).len(), 0, "at most twenty minutes old");
}

/// Proves PCRC-39, PCRC-20, PCRC-43, PCRC-13.
#[tokio::test(start_paused = true)]
async fn refused_delete_of_a_pod_certificate_request_is_logged_and_left_to_the_next_pass() {
    let (log, _capturing) = TestLog::capture(Level::INFO);
    let cluster = TestCluster::new();
    cluster.server.seed(pod_request("default", OLD)).unwrap();
    cluster.server.seed(pod_request("kube-public", OLD)).unwrap();
    let refused = InjectedFault::status(403, "Forbidden", "boom");
    let rule = FaultRule::new(refused).method(Method::DELETE).target("/namespaces/default/").times(1);
    let rule = cluster.faults.add(rule);
    let _running = cluster.start(podcertificaterequest_cleaner::controller()).await;
    wait(MINUTE * 4).await;
    assert_eq!((names(&cluster, PCRS).len(), cluster.faults.hits(rule)), (1, 1));
    assert_eq!(log.count(&["podcertificaterequest-cleaner-controller", "default/r", "boom"]), 1);
    wait(MINUTE * 2).await;
    assert_eq!(names(&cluster, PCRS).len(), 0);
}

/// Proves PCRC-33, PCRC-41.
#[tokio::test(start_paused = true)]
async fn server_without_pod_certificate_requests_keeps_no_other_controller_from_starting() {
    let cluster = TestCluster::new();
    let unserved = InjectedFault::status(404, "NotFound", "the server could not find the requested resource");
    cluster.faults.add(FaultRule::new(unserved).target("/certificates.k8s.io/v1/podcertificaterequests"));
    keleustes_runtime::loops::prepare([&podcertificaterequest_cleaner::controller()], &cluster.caches);
    let collector = garbage_collector::controller(&garbage_collector::GarbageCollectorOptions::default());
    let observer = tokio::time::timeout(MINUTE * 2, cluster.start(collector)).await;
    assert!(observer.is_ok(), "an observer of all kinds starts without it");
    let starting = cluster.start(podcertificaterequest_cleaner::controller());
    assert!(tokio::time::timeout(HOUR, starting).await.is_err(), "only its reader waits");
    assert!(cluster.caches.unsynced().is_empty());
    let asked = cluster.server.requests();
    assert!(!asked.iter().any(|request| request.target.contains("v1beta1/podcertificaterequests")));
}

/// A generated token Secret that was never used, its account, and the tracking ConfigMap.
fn legacy_token(cluster: &TestCluster) {
    let objects = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"since": "2020-01-01"}, "metadata": {
            "namespace": "kube-system", "name": "kube-apiserver-legacy-service-account-token-tracking"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "generated"}],
               "metadata": {"namespace": "default", "name": "builder"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
               "metadata": {"namespace": "default", "name": "generated", "creationTimestamp": "2020-01-01T00:00:00Z",
                            "annotations": {"kubernetes.io/service-account.name": "builder"}}}),
    ];
    objects.into_iter().for_each(|object| drop(cluster.server.seed(object).unwrap()));
}

fn mark(cluster: &TestCluster) -> Option<Value> {
    let secret = cluster.server.object("secrets", "default", "generated")?;
    Some(secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].clone())
}

fn legacy_cleaner(days: u32) -> keleustes_plan::Controller {
    let clean_up_period = HOUR * 24 * days;
    legacy_serviceaccount_token_cleaner::controller(LegacyTokenCleanerOptions { clean_up_period })
}

/// Proves LSTC-2, LSTC-40.
#[tokio::test(start_paused = true)]
async fn unused_legacy_token_is_marked_and_deleted_after_the_period() {
    let cluster = TestCluster::new();
    legacy_token(&cluster);
    let _running = cluster.start(legacy_cleaner(2)).await;
    settle().await;
    assert_eq!(mark(&cluster), Some(json!("2026-01-01")));
    wait(HOUR * 71).await;
    assert_eq!(mark(&cluster), Some(json!("2026-01-01")), "the limit is the day of the mark");
    wait(HOUR * 2).await;
    assert_eq!(mark(&cluster), None);
}

/// Proves LSTC-47.
#[tokio::test(start_paused = true)]
async fn legacy_tokens_are_not_touched_while_a_kind_cannot_be_listed() {
    for resource in ["pods", "secrets", "serviceaccounts"] {
        let cluster = TestCluster::new();
        legacy_token(&cluster);
        let refused = InjectedFault::status(403, "Forbidden", "no");
        cluster.faults.add(FaultRule::new(refused).resource(resource).verbs(&["list", "watch"]));
        assert!(tokio::time::timeout(HOUR * 3, cluster.start(legacy_cleaner(2))).await.is_err());
        assert_eq!(mark(&cluster), Some(Value::Null), "{resource}");
        assert!(cluster.writes().is_empty());
    }
}

/// The references come from a watch in protobuf, whose field numbers the server has from another source.
#[tokio::test(start_paused = true)]
async fn every_reference_of_a_watched_pod_protects_a_legacy_token() {
    let reference = json!({"secretRef": {"name": "generated"}});
    let volume = |kind: &str, source: Value| json!({"volumes": [{"name": "v", kind: source}]});
    let key = json!([{"name": "e", "valueFrom": {"secretKeyRef": {"name": "generated", "key": "k"}}}]);
    let specs = [
        volume("secret", json!({"secretName": "generated"})),
        volume("projected", json!({"sources": [{"secret": {"name": "generated"}}]})),
        volume("azureFile", json!({"secretName": "generated", "shareName": "s"})),
        volume("cephfs", json!({"monitors": ["m"], "secretRef": {"name": "generated"}})),
        volume("cinder", json!({"volumeID": "v", "secretRef": {"name": "generated"}})),
        volume("flexVolume", json!({"driver": "d", "secretRef": {"name": "generated"}})),
        volume("rbd", json!({"monitors": ["m"], "image": "i", "secretRef": {"name": "generated"}})),
        volume("scaleIO", json!({"gateway": "g", "system": "s", "secretRef": {"name": "generated"}})),
        volume(
            "iscsi",
            json!({"targetPortal": "t", "iqn": "i", "lun": 0, "secretRef": {"name": "generated"}}),
        ),
        volume("storageos", reference.clone()),
        volume("csi", json!({"driver": "d", "nodePublishSecretRef": {"name": "generated"}})),
        json!({"imagePullSecrets": [{"name": "generated"}]}),
        json!({"initContainers": [{"name": "i", "image": "i", "envFrom": [reference]}]}),
        json!({"ephemeralContainers": [{"name": "e", "image": "i", "env": key}]}),
    ];
    for spec in specs {
        let cluster = TestCluster::new();
        legacy_token(&cluster);
        keleustes_runtime::loops::prepare([&legacy_cleaner(2)], &cluster.caches);
        cluster.synced_cache::<keleustes_objects::Pod>().await;
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p"}, "spec": spec});
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
        cluster.server.seed(pod).unwrap();
        settle().await;
        let running = cluster.start(legacy_cleaner(2)).await;
        settle().await;
        assert_eq!(mark(&cluster), Some(Value::Null), "{spec}");
        assert!(
            cluster
                .tap
                .accepts
                .lock()
                .iter()
                .any(|accept| accept.starts_with("application/vnd.kubernetes.protobuf"))
        );
        cluster.stop(running).await;
    }
}

/// Proves LSTC-43, LSTC-31.
#[tokio::test(start_paused = true)]
async fn legacy_token_used_between_cache_and_delete_is_kept() {
    let cluster = TestCluster::new();
    legacy_token(&cluster);
    let labelled = |labels: Value| {
        let mut secret = (*cluster.server.object("secrets", "default", "generated").unwrap()).clone();
        secret["metadata"]["labels"] = labels;
        secret
    };
    let old_mark = json!({"kubernetes.io/legacy-token-invalid-since": "2025-01-01"});
    cluster.server.seed(labelled(old_mark.clone())).unwrap();
    let slow = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(slow).method(Method::DELETE).times(1));
    let _running = cluster.start(legacy_cleaner(2)).await;
    wait(Duration::from_secs(2)).await;
    let mut used = old_mark.clone();
    used["kubernetes.io/legacy-token-last-used"] = json!("2026-01-01");
    cluster.server.seed(labelled(used)).unwrap();
    wait(HOUR).await;
    assert_eq!(mark(&cluster), Some(json!("2025-01-01")), "409");
    cluster.server.seed(labelled(old_mark)).unwrap();
    wait(HOUR * 24).await;
    assert_eq!(mark(&cluster), None, "reconsidered in the next pass");
}
