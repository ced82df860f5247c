//! Writes of slices, their order, and their failures.

use std::sync::Arc;

use keleustes_objects::{ApiError, ErrorReason, Pod, Service};
use keleustes_plan::Change;
use serde_json::{Value, json};

use super::enqueue::updated;
use super::{TestCluster, pod, service, service_with, slice, slice_of, unready, with};

fn refused(reason: ErrorReason) -> ApiError {
    ApiError::transport(reason, "refused")
}

/// A dual-stack Service.
fn dual() -> Value {
    service_with("spec/ipFamilies", json!(["IPv4", "IPv6"]))
}

fn dual_pod(name: &str) -> Value {
    with(pod(name), "status/podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]))
}

/// Proves EPS-20.
#[test]
fn a_deleted_service_is_forgotten_and_nothing_is_written() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..3).sync();
    let result = cluster.no_service().sync();
    assert!(result.is_noop());
    assert_eq!(result.measured("endpoints_desired"), ["{} 0"]);
    // The garbage collector deletes its slices. A recreated Service starts with its own creation as trigger time.
    cluster.slices.clear();
    cluster.service(service_with("metadata/creationTimestamp", json!("2026-05-05T00:00:00Z"))).sync();
    let annotations = &cluster.only()["metadata"]["annotations"];
    assert_eq!(annotations[TRIGGER_TIME], "2026-05-05T00:00:00Z");
}

/// Proves EPS-21.
#[test]
fn services_without_selector_or_of_type_external_name_are_skipped() {
    for foreign in
        [service_with("spec/selector", Value::Null), service_with("spec/type", json!("ExternalName"))]
    {
        let mut cluster = TestCluster::new();
        assert!(cluster.service(foreign).pods(0..3).slice(slice_of("web-1", 7..9)).sync().is_noop());
    }
}

/// Proves EPS-22.
#[test]
fn slices_of_other_controllers_and_services_are_never_written() {
    let by = |manager: Value| {
        let mut slice = slice_of("theirs", 5..9);
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = manager;
        slice
    };
    let of_another = with(
        slice_of("other-1", 5..9),
        "metadata/labels",
        json!({"kubernetes.io/service-name": "other",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}),
    );
    for foreign in [by(json!("me")), by(Value::Null), of_another] {
        let mut cluster = TestCluster::new();
        let result = cluster.service(service()).pods(0..2).slice(foreign.clone()).sync();
        assert_eq!(result.verbs(), ["create"]);
        assert_eq!(cluster.slices[foreign["metadata"]["name"].as_str().unwrap()], foreign);
    }
}

/// Proves EPS-23.
#[test]
fn terminating_slices_are_ignored() {
    let terminating =
        with(slice_of("web-1", 0..2), "metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.service(service()).pods(0..2).slice(terminating).sync().verbs(), ["create"]);
    assert!(cluster.sync().is_noop());
}

/// Proves EPS-29.
#[test]
fn slices_of_unsupported_address_types_are_deleted_last_and_independently() {
    let of_type = |name: &str, kind: &str| with(slice_of(name, 0..2), "addressType", json!(kind));
    let mut cluster = TestCluster::new();
    cluster
        .service(service())
        .pods(0..2)
        .slice(of_type("a1", "IP"))
        .slice(of_type("a2", "FQDN"))
        .slice(of_type("a3", "IPv6"));
    let result = cluster.failing("delete", "a1", refused(ErrorReason::Forbidden)).sync();
    assert_eq!(result.verbs(), ["create", "delete", "delete", "delete"]);
    let text = "error deleting a1 EndpointSlice for Service a/web: refused";
    assert_eq!(result.retry.as_deref(), Some(text));
    assert_eq!(cluster.slices.keys().filter(|name| name.starts_with('a')).collect::<Vec<_>>(), ["a1"]);
}

/// Proves EPS-30.
#[test]
fn an_error_for_one_address_type_does_not_stop_the_other() {
    let mut cluster = TestCluster::new();
    cluster.service(dual()).pod(dual_pod("p1")).slice(slice_of("web-1", 5..6));
    let result = cluster.failing("update", "web-1", refused(ErrorReason::Conflict)).sync();
    assert_eq!(result.verbs(), ["put", "create"]);
    assert_eq!(result.writes[1].body["addressType"], "IPv6");
    assert_eq!(
        result.retry.as_deref(),
        Some("failed to update web-1 EndpointSlice for Service a/web: refused")
    );
}

/// Proves EPS-60, EPS-61.
#[test]
fn a_service_without_endpoints_has_one_empty_slice_that_is_not_rewritten() {
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.service(service()).sync().verbs(), ["create"]);
    assert_eq!((&cluster.only()["endpoints"], &cluster.only()["ports"]), (&json!([]), &json!([])));
    assert!(cluster.sync().is_noop());
    let mut bare = cluster.only().clone();
    bare["endpoints"] = Value::Null;
    bare["ports"] = Value::Null;
    bare["metadata"]["annotations"] = json!({"by": "hand"});
    assert!(
        cluster.slice(bare).sync().is_noop(),
        "null lists equal empty ones, and other metadata does not matter"
    );
    // An empty slice with other labels is updated.
    cluster.service(service_with("metadata/labels", json!({"team": "x"})));
    assert_eq!(cluster.sync().verbs(), ["put"]);
    assert!(cluster.sync().is_noop());
}

/// Proves EPS-62, EPS-68.
#[test]
fn the_last_slice_is_emptied_and_filled_again() {
    let mut cluster = TestCluster::new();
    let noted = with(slice_of("web-1", 0..2), "metadata/annotations", json!({"note": "x"}));
    cluster.service(service()).pods(0..2).slice(noted);
    cluster.pod(unready(pod("p000")));
    assert_eq!(cluster.sync().verbs(), ["put"]);
    assert_eq!(cluster.only()["metadata"]["annotations"]["note"], "x", "updates keep annotations");
    let service = service_with("metadata/annotations", json!({"for": "the service"}));
    let result = cluster.service(service).no_pods().sync();
    assert_eq!(result.verbs(), ["put"]);
    assert_eq!((cluster.sizes(), cluster.slices.keys().next().unwrap().as_str()), (vec![0], "web-1"));
    let annotations = cluster.only()["metadata"].get("annotations").cloned().unwrap_or(json!({}));
    assert!(annotations.get("note").is_none() && annotations.get("for").is_none(), "{annotations}");
    assert_eq!(cluster.pods(0..3).sync().verbs(), ["put"], "and filled again");
    assert_eq!((cluster.sizes(), cluster.slices.keys().next().unwrap().as_str()), (vec![3], "web-1"));
}

/// Proves EPS-63.
#[test]
fn each_address_type_has_its_own_empty_slice() {
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.service(dual()).sync().verbs(), ["create", "create"]);
    assert!(cluster.sync().is_noop());
    assert_eq!(cluster.pods(0..1).sync().verbs(), ["put"]);
    assert_eq!(cluster.sizes(), [1, 0]);
    assert!(cluster.sync().is_noop());
}

/// Proves EPS-64, EPS-65, EPS-66.
#[test]
fn a_new_slice_has_the_owner_and_the_labels_of_its_service() {
    let labels = json!({"team": "x", "kubernetes.io/service-name": "lie", "service.kubernetes.io/headless": "lie",
                        "endpointslice.kubernetes.io/managed-by": "lie"});
    let mut cluster = TestCluster::new();
    let result = cluster.service(service_with("metadata/labels", labels)).pods(0..1).sync();
    let metadata = json!({
        "generateName": "web-", "namespace": "a",
        "labels": {"team": "x", "kubernetes.io/service-name": "web",
                   "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service-1",
                             "controller": true, "blockOwnerDeletion": true}],
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
    });
    assert_eq!(result.writes[0].body["metadata"], metadata);
    for ip in ["None", ""] {
        let mut cluster = TestCluster::new();
        cluster.service(service_with("spec/clusterIP", json!(ip))).sync();
        assert_eq!(cluster.only()["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    }
}

/// Proves EPS-67, EPS-130.
#[test]
fn foreign_labels_are_removed_and_reserved_ones_alone_cause_no_write() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..1).slice(slice_of("web-1", 0..1));
    let mut labelled = cluster.only().clone();
    labelled["metadata"]["labels"]["by"] = json!("hand");
    assert_eq!(cluster.slice(labelled).sync().verbs(), ["put"]);
    assert_eq!(cluster.only()["metadata"]["labels"].get("by"), None);
    let headless = service_with("spec/clusterIP", json!("None"));
    let reserved = with(headless, "metadata/labels", json!({"kubernetes.io/service-name": "lie"}));
    assert!(cluster.service(reserved).sync().is_noop());
    assert_eq!(cluster.pod(unready(pod("p000"))).sync().verbs(), ["put"]);
    assert_eq!(
        cluster.only()["metadata"]["labels"]["service.kubernetes.io/headless"],
        "",
        "updated with the next write"
    );
}

/// Proves EPS-92.
#[test]
fn writes_are_in_the_order_create_update_delete_and_stop_at_the_first_error() {
    let cluster = || {
        let mut cluster = TestCluster::of_slices(2);
        let foreign = with(slice_of("old", 0..2), "metadata/ownerReferences/0/uid", json!("service-0"));
        cluster.service(service()).pods(0..5).slice(slice_of("web-1", 0..2)).slice(foreign);
        cluster.slice(slice_of("web-2", 7..9)).pod(unready(pod("p000")));
        cluster
    };
    assert_eq!(cluster().sync().verbs(), ["create", "put", "put", "delete"]);
    for (verb, name, done) in
        [("create", "", 1), ("update", "web-1", 2), ("update", "web-2", 3), ("delete", "old", 4)]
    {
        let mut cluster = cluster();
        let result = cluster.failing(verb, name, refused(ErrorReason::Unavailable)).sync();
        assert_eq!(result.writes.len(), done, "{verb} {name}");
        assert!(result.retry.is_some());
        cluster.no_failures().sync();
        assert!(cluster.sync().is_noop());
        assert_eq!(cluster.sizes(), [2, 2, 1]);
    }
}

/// Proves EPS-93, EPS-94.
#[test]
fn a_slice_to_delete_is_reused_for_a_slice_to_create() {
    let mut cluster = TestCluster::new();
    let old = with(slice_of("web-1", 0..1), "metadata/finalizers", json!(["example.com/hold"]));
    cluster.service(service_with("spec/ports/0/targetPort", json!(9090))).pods(0..1).slice(old);
    let result = cluster.sync();
    assert_eq!((result.verbs(), &*result.writes[0].name), (vec!["put"], "web-1"));
    let metadata = &result.writes[0].body["metadata"];
    assert_eq!(
        (metadata.get("resourceVersion"), metadata.get("finalizers")),
        (None, None),
        "nothing of the old metadata is kept"
    );
    assert_eq!(
        (&metadata["name"], &metadata["uid"]),
        (&json!("web-1"), &json!("uid-web-1")),
        "name and uid address the old slice"
    );
    // A slice of another owner is not reused.
    let foreign = with(slice_of("old", 0..1), "metadata/ownerReferences/0/uid", json!("service-0"));
    let mut cluster = TestCluster::new();
    let result = cluster.service(service()).pods(0..1).slice(foreign).sync();
    assert_eq!((result.verbs(), &*result.writes[1].name), (vec!["create", "delete"], "old"));
}

/// Proves EPS-95.
#[test]
fn an_update_sends_the_cached_metadata_and_a_conflict_is_retried() {
    let existing = with(slice_of("web-1", 0..2), "metadata/finalizers", json!(["example.com/hold"]));
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..2).slice(existing.clone()).pod(unready(pod("p000")));
    let result = cluster.failing("update", "web-1", refused(ErrorReason::Conflict)).sync();
    assert_eq!(
        result.retry.as_deref(),
        Some("failed to update web-1 EndpointSlice for Service a/web: refused")
    );
    assert_eq!(result.events.len(), 1);
    let result = cluster.no_failures().sync();
    let metadata = &result.writes[0].body["metadata"];
    for field in
        ["name", "namespace", "uid", "resourceVersion", "finalizers", "ownerReferences", "generateName"]
    {
        assert_eq!(metadata[field], existing["metadata"][field], "{field}");
    }
}

/// Proves EPS-96.
#[test]
fn a_terminating_service_gets_no_new_slices() {
    let terminating = || service_with("metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let mut cluster = TestCluster::of_slices(1);
    assert!(cluster.service(terminating()).pods(0..2).sync().is_noop());
    let mut cluster = TestCluster::of_slices(2);
    cluster.service(terminating()).pods(0..3).slice(slice_of("web-1", 0..2)).slice(slice_of("web-2", 7..9));
    cluster.slice(slice_of("web-3", 9..10)).pod(unready(pod("p000")));
    assert_eq!(cluster.sync().verbs(), ["put", "put", "delete"]);
}

/// Proves EPS-97.
#[test]
fn a_terminating_namespace_is_not_an_error_and_ends_the_address_type() {
    let mut cluster = TestCluster::new();
    let foreign = with(slice_of("old", 0..1), "metadata/ownerReferences/0/uid", json!("service-0"));
    cluster.service(service()).pods(0..1).slice(foreign);
    let result = cluster.failing("create", "", refused(ErrorReason::NamespaceTerminating)).sync();
    assert_eq!(result.writes.len(), 1);
    assert_eq!((result.retry.as_deref(), &*result.events), (None, &[][..]));
    assert!(result.measured("endpointslices_changed_per_sync").is_empty());
    let result = cluster.no_failures().failing("create", "", refused(ErrorReason::Forbidden)).sync();
    assert_eq!(result.retry.as_deref(), Some("failed to create EndpointSlice for Service a/web: refused"));
}

/// Proves EPS-98, EPS-99.
#[test]
fn a_delete_of_a_missing_slice_is_an_error() {
    let mut cluster = TestCluster::new();
    cluster
        .service(service())
        .pods(0..1)
        .slice(slice_of("web-1", 0..1))
        .slice(slice("web-2", &[super::endpoint("p9")]));
    let result = cluster.failing("delete", "web-2", refused(ErrorReason::NotFound)).sync();
    assert_eq!(result.verbs(), ["delete"]);
    assert_eq!(
        result.retry.as_deref(),
        Some("failed to delete web-2 EndpointSlice for Service a/web: refused")
    );
}

const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A pod with this time of its last Ready transition.
fn pod_since(pod: Value, time: &str) -> Value {
    with(pod, "status/conditions/0/lastTransitionTime", json!(time))
}

/// Proves EPS-25, EPS-69.
#[test]
fn the_trigger_time_is_the_earliest_change() {
    let trigger_time =
        |cluster: &TestCluster| cluster.only()["metadata"]["annotations"].get(TRIGGER_TIME).cloned();
    let become_unready = |cluster: &mut TestCluster, name: &str, time: &str| {
        let changed = pod_since(unready(pod(name)), time);
        cluster.pod(changed.clone()).enqueues::<Pod>(updated(pod(name), changed));
    };
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..3).sync();
    assert_eq!(
        trigger_time(&cluster),
        Some(json!("2026-01-01T00:00:00Z")),
        "first the creation of the Service"
    );
    become_unready(&mut cluster, "p000", "2026-02-02T00:00:02Z");
    become_unready(&mut cluster, "p001", "2026-02-02T00:00:01Z");
    cluster.sync();
    assert_eq!(trigger_time(&cluster), Some(json!("2026-02-02T00:00:01Z")), "then the earliest change");
    // A new selector: the pods that it adds count as changed, those that the Service had do not.
    let labelled = |pod: Value, group: &str| with(pod, "metadata/labels/group", json!(group));
    for (name, time) in [("late", "2026-02-04T00:00:00Z"), ("early", "2026-02-03T00:00:00Z")] {
        let other = with(pod_since(pod(name), time), "metadata/labels", json!({"group": "g"}));
        cluster.pod(with(other, "status/podIPs/0/ip", json!(format!("10.9.0.{}", name.len()))));
    }
    cluster.pod(labelled(pod("p002"), "g"));
    let widened = with(service(), "spec/selector", json!({"group": "g"}));
    cluster.service(widened.clone()).enqueues::<Service>(updated(service(), widened.clone()));
    cluster.sync();
    assert_eq!(trigger_time(&cluster), Some(json!("2026-02-03T00:00:00Z")), "the earliest of the added pods");
    cluster.service(service()).enqueues::<Service>(updated(widened, service()));
    cluster.sync();
    // A deletion has no trigger time, and earlier times are not used again.
    let deleted: Pod = serde_json::from_value(pod("p002")).unwrap();
    cluster.enqueues::<Pod>(Change::deleted(Arc::new(deleted)));
    cluster.no_pod("p002").sync();
    assert_eq!(trigger_time(&cluster), None);
    // A reconcile without a write discards the times.
    become_unready(&mut cluster, "p000", "2026-03-03T00:00:00Z");
    assert!(cluster.sync().is_noop());
    cluster.no_pod("p001").sync();
    assert_eq!(trigger_time(&cluster), None);
}
