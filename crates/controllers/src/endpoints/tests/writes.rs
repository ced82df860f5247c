//! When and what the controller writes.

use super::*;

const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

fn annotation(body: &Value, name: &str) -> Option<String> {
    body["metadata"]["annotations"][name].as_str().map(str::to_owned)
}

/// Changes the cached Endpoints.
fn tamper(cluster: &mut TestCluster, pointer: &str, value: Value) {
    let mut object = cluster.rehearsal.live_object::<Endpoints>(&web()).expect("Endpoints").clone();
    set(&mut object, pointer, value);
    cluster.endpoints(object);
}

/// Proves EP-19, EP-66.
#[test]
fn endpoints_of_a_deleted_service_are_deleted() {
    let metadata = json!({"namespace": "a", "name": "web", "uid": "e"});
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.sync(), "get endpoints a/web\n", "there are none");
    cluster.endpoints(json!({"metadata": metadata}));
    let deleted = "get services a/web\ndelete endpoints a/web because the Service is deleted\n";
    assert_eq!(cluster.sync(), deleted);
    // The cache may lack what the server has.
    let mut stale = TestCluster::new();
    stale.rehearsal = stale.rehearsal.with_live::<Endpoints>(json!({"metadata": metadata}));
    assert_eq!(stale.sync(), format!("get endpoints a/web\n{deleted}"));
    let mut gone = TestCluster::new().failing("delete", ErrorReason::NotFound);
    gone.endpoints(json!({"metadata": metadata}));
    assert!(!gone.sync().contains("retry"));
    for reason in [ErrorReason::Conflict, ErrorReason::Unavailable] {
        let mut failing = TestCluster::new().failing("delete", reason);
        failing.endpoints(json!({"metadata": metadata}));
        let wanted = "retry: delete endpoints a/web because the Service is deleted: refused\n";
        assert!(failing.sync().ends_with(wanted), "{reason:?}");
    }
}

/// Proves EP-19, EP-70.
#[test]
fn endpoints_of_a_service_that_the_cache_does_not_show_yet_are_kept() {
    let by_hand = json!({"metadata": {"namespace": "a", "name": "web", "uid": "e"},
                         "subsets": [{"addresses": [{"ip": "1.1.1.1"}]}]});
    let with_new_service = |mut cluster: TestCluster| {
        let live = service(json!({"selector": null}));
        cluster.rehearsal = cluster.rehearsal.with_live::<Service>(live);
        cluster
    };
    let mut cached = with_new_service(TestCluster::new());
    cached.endpoints(by_hand.clone());
    assert_eq!(cached.sync(), "get services a/web\n");
    let mut unknown = with_new_service(TestCluster::new());
    unknown.rehearsal = unknown.rehearsal.with_live::<Endpoints>(by_hand.clone());
    assert_eq!(unknown.sync(), "get endpoints a/web\nget services a/web\n");
    // Without an answer nothing is deleted.
    let mut silent = TestCluster::new();
    silent.endpoints(by_hand);
    let lost = ApiError::transport(ErrorReason::ConnectionLost, "lost");
    silent.rehearsal = silent.rehearsal.failing::<Service>("get", &web(), lost);
    let transcript = silent.sync();
    assert!(transcript.contains("retry") && !transcript.contains("delete"), "{transcript}");
}

/// Proves EP-20, EP-21, EP-72, EP-73.
#[test]
fn services_without_selector_and_external_names_are_left_alone() {
    for spec in [json!({"type": "ExternalName"}), json!({"selector": null})] {
        let mut cluster = TestCluster::with_service(spec.clone());
        cluster.pod(pod("p", "10.0.0.1"));
        assert_eq!(cluster.sync(), "");
        let by_hand = json!({"metadata": {"namespace": "a", "name": "web", "uid": "e"},
                             "subsets": [{"addresses": [{"ip": "1.1.1.1"}]}]});
        cluster.endpoints(by_hand);
        assert_eq!(cluster.sync(), "");
        cluster.service(service(json!({})));
        assert_eq!(cluster.addresses(), ["10.0.0.1"]);
        cluster.service(service(spec));
        assert_eq!(cluster.sync(), "", "they keep their last content");
    }
}

/// Proves EP-43, EP-44, EP-90, EP-95, EP-98.
#[test]
fn unchanged_endpoints_are_not_written() {
    let mut cluster = TestCluster::with_service(json!({}));
    let body = cluster.write();
    assert_eq!((&body["metadata"]["name"], &body["subsets"]), (&json!("web"), &json!([])));
    assert!(body["metadata"]["annotations"][TRIGGER_TIME].is_string());
    assert_eq!(cluster.sync(), "");
    tamper(&mut cluster, "/subsets", Value::Null);
    assert_eq!(cluster.sync(), "", "no subsets are empty subsets");
    cluster.pods(0..3);
    cluster.write();
    assert_eq!(cluster.sync(), "");
    let target = "/subsets/0/addresses/0/targetRef/resourceVersion";
    tamper(&mut cluster, target, json!("77"));
    assert_eq!(cluster.sync(), "", "versions of targets are ignored");
    let live = cluster.rehearsal.live_object::<Endpoints>(&web()).unwrap().clone();
    let mut reordered = live["subsets"][0]["addresses"].as_array().unwrap().clone();
    reordered.reverse();
    let ports = live["subsets"][0]["ports"].clone();
    let split =
        json!([{"addresses": reordered[..1], "ports": ports}, {"addresses": reordered[1..], "ports": ports}]);
    tamper(&mut cluster, "/subsets", split);
    assert_eq!(cluster.sync(), "", "another order of the same content");
    let mut restarted = TestCluster::with_service(json!({}));
    restarted.pods(0..3);
    restarted.endpoints(live);
    assert_eq!(restarted.sync(), "");
    tamper(&mut restarted, "/subsets/0/addresses/0/nodeName", json!("n2"));
    assert_ne!(restarted.sync(), "");
}

/// Proves EP-45, EP-47, EP-48, EP-94.
#[test]
fn labels_are_those_of_the_service() {
    let managed = "endpoints.kubernetes.io/managed-by";
    let headless = "service.kubernetes.io/headless";
    let mut cluster = TestCluster::with_service(json!({"clusterIP": "None"}));
    let labels = cluster.write()["metadata"]["labels"].take();
    assert_eq!(labels, json!({"team": "x", managed: "endpoint-controller", headless: ""}));
    tamper(&mut cluster, "/metadata/labels", json!({"team": "x", managed: "endpoint-controller"}));
    assert_eq!(cluster.sync(), "", "a removed headless label alone is not restored");
    for wrong in [
        json!({"team": "x"}),
        json!({"team": "x", managed: "other"}),
        json!({"team": "y", managed: "endpoint-controller"}),
        json!({managed: "endpoint-controller"}),
        json!({"team": "x", "more": "z", managed: "endpoint-controller"}),
    ] {
        tamper(&mut cluster, "/metadata/labels", wrong);
        assert_eq!(cluster.write()["metadata"]["labels"], labels);
    }
    let mut with_ip = service(json!({}));
    set(&mut with_ip, "/metadata/labels", json!({"new": "1", headless: ""}));
    cluster.service(with_ip);
    assert_eq!(cluster.write()["metadata"]["labels"], json!({"new": "1", managed: "endpoint-controller"}));
    tamper(&mut cluster, "/metadata/annotations", json!({TRIGGER_TIME: "edited"}));
    assert_eq!(cluster.sync(), "", "an edited trigger time is not restored");
}

/// Proves EP-76.
#[test]
fn service_with_reserved_labels_is_not_written_again() {
    for reserved in ["service.kubernetes.io/headless", "endpoints.kubernetes.io/managed-by"] {
        let mut cluster = TestCluster::new();
        let mut labelled = service(json!({}));
        set(&mut labelled, "/metadata/labels", json!({reserved: "x"}));
        cluster.service(labelled);
        cluster.write();
        assert_eq!(cluster.sync(), "", "{reserved}");
    }
}

/// Proves EP-46, EP-49, EP-55, EP-60, EP-91.
#[test]
fn update_keeps_foreign_metadata_and_has_the_cached_version() {
    let mut terminating = service(json!({}));
    set(&mut terminating, "/metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let mut cluster = TestCluster::new();
    cluster.service(terminating);
    cluster.write();
    let owners = json!([{"apiVersion": "v1", "kind": "X", "name": "o", "uid": "o"}]);
    tamper(&mut cluster, "/metadata/ownerReferences", owners.clone());
    tamper(&mut cluster, "/metadata/finalizers", json!(["f/g"]));
    tamper(&mut cluster, "/metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let over = "endpoints.kubernetes.io/over-capacity";
    tamper(&mut cluster, "/metadata/annotations", json!({"note": "kept", over: "warning"}));
    let version = cluster.versions.to_string();
    let body = cluster.write();
    let metadata = &body["metadata"];
    assert_eq!(metadata["annotations"], json!({"note": "kept"}), "the annotation alone causes a write");
    assert_eq!((&metadata["ownerReferences"], &metadata["finalizers"]), (&owners, &json!(["f/g"])));
    assert_eq!((&metadata["resourceVersion"], &metadata["uid"]), (&json!(version), &json!("u-endpoints")));
    cluster.pods(0..1001);
    tamper(&mut cluster, "/metadata/annotations", json!({over: "warning"}));
    assert_eq!(annotation(&cluster.write(), over).as_deref(), Some("truncated"));
}

/// Proves EP-50, EP-51, EP-52, EP-53, EP-81, EP-96.
#[test]
fn trigger_time_is_that_of_the_earliest_new_change() {
    let at = |day: u8| format!("2026-01-{day:02}T00:00:00Z");
    let ready_at = |name: &str, ip: &str, day: u8| {
        pod_with(name, ip, "/status/conditions/0/lastTransitionTime", json!(at(day)))
    };
    let trigger_time = |cluster: &mut TestCluster| annotation(&cluster.write(), TRIGGER_TIME);
    let mut cluster = TestCluster::with_service(json!({}));
    cluster.pod(ready_at("p1", "10.0.0.1", 2));
    assert_eq!(trigger_time(&mut cluster).as_deref(), Some(CREATED), "the first write");
    cluster.pod(ready_at("p2", "10.0.0.2", 5));
    cluster.pod(ready_at("p3", "10.0.0.3", 4));
    assert_eq!(trigger_time(&mut cluster), Some(at(4)));
    cluster.no_pod("p3");
    assert_eq!(trigger_time(&mut cluster), None, "a deletion has no time, and the annotation is removed");
    // A reconcile without a write takes note of a pod that is left out.
    let mut left_out = ready_at("p4", "10.0.0.4", 6);
    set(&mut left_out, "/status/phase", json!("Failed"));
    cluster.pod(left_out);
    assert_eq!(cluster.sync(), "");
    cluster.no_pod("p2");
    assert_eq!(trigger_time(&mut cluster), None);
    cluster.pod(ready_at("p1", "10.0.0.9", 2));
    assert_eq!(trigger_time(&mut cluster), None, "the time did not increase");
    cluster.pod(not_ready(ready_at("p1", "10.0.0.9", 7)));
    assert_eq!(trigger_time(&mut cluster), Some(at(7)));
    // A Service that selects other pods, and one that was recreated.
    let mut api = ready_at("api", "10.0.0.5", 8);
    set(&mut api, "/metadata/labels", json!({"app": "api"}));
    cluster.pod(api);
    cluster.service(service(json!({"selector": {"app": "api"}})));
    assert_eq!(trigger_time(&mut cluster), Some(at(8)));
    let mut recreated = service(json!({}));
    set(&mut recreated, "/metadata/creationTimestamp", json!(at(9)));
    cluster.service(recreated);
    assert_eq!(trigger_time(&mut cluster), Some(at(6)), "pod p4 is selected again, although it is left out");
    let mut restarted = TestCluster::with_service(json!({}));
    restarted.pod(ready_at("p1", "10.0.0.1", 2));
    restarted.endpoints(json!({"metadata": {"namespace": "a", "name": "web", "uid": "e"}}));
    assert_eq!(trigger_time(&mut restarted).as_deref(), Some(CREATED));
}

/// Proves EP-61, EP-62, EP-67, EP-68, EP-79.
#[test]
fn failed_writes_are_recorded_and_retried_unless_the_namespace_terminates() {
    let mut terminating =
        TestCluster::with_service(json!({})).failing("create", ErrorReason::NamespaceTerminating);
    let transcript = terminating.sync();
    assert!(!transcript.contains("retry") && !transcript.contains("event"), "{transcript}");
    for reason in
        [ErrorReason::Forbidden, ErrorReason::AlreadyExists, ErrorReason::Invalid, ErrorReason::Unavailable]
    {
        let failing = |verb: &str| {
            let mut cluster = TestCluster::new();
            if verb == "update" {
                cluster.endpoints(json!({"metadata": {"namespace": "a", "name": "web", "uid": "e"}}));
            }
            cluster.service(service(json!({})));
            cluster.failing(verb, reason).outline()
        };
        let created = "create endpoints a/web because the Service has no Endpoints FAILED: refused\n\
                       event Warning FailedToCreateEndpoint on Endpoints a/web uid=: Failed to create endpoint for service a/web: refused\n\
                       retry: create endpoints a/web because the Service has no Endpoints: refused\n";
        assert_eq!(failing("create"), created);
        let updated = "put endpoints a/web because the pods, the labels or the capacity differ FAILED: refused\n\
                       event Warning FailedToUpdateEndpoint on Endpoints a/web uid=e: Failed to update endpoint a/web: refused\n\
                       retry: put endpoints a/web because the pods, the labels or the capacity differ: refused\n";
        assert_eq!(failing("update"), updated);
    }
}

/// Proves EP-78.
#[test]
fn second_create_before_the_cache_shows_the_first_is_refused_and_recorded() {
    let mut cluster = TestCluster::with_service(json!({})).failing("create", ErrorReason::AlreadyExists);
    assert!(cluster.sync().contains("event Warning FailedToCreateEndpoint"));
}
