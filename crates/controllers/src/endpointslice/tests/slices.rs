//! What is written of slices, in which order, and what failures mean.

use std::sync::Arc;

use keleustes_objects::{ApiError, ErrorReason, Pod};
use keleustes_plan::Change;
use serde_json::{Value, json};

use super::wakes::updated;
use super::{Stage, pod, service, service_with, slice, slice_of, unready, with};

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
fn of_a_service_that_is_gone_nothing_is_remembered_and_nothing_written() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..3).sync();
    let minutes = stage.no_service().sync();
    assert!(minutes.is_calm());
    assert_eq!(minutes.measured("endpoints_desired"), ["{} 0"]);
    // Its slices go with their owner. One of the same name is a new one: it is dated by its creation.
    stage.slices.clear();
    stage.service(service_with("metadata/creationTimestamp", json!("2026-05-05T00:00:00Z"))).sync();
    let annotations = &stage.only()["metadata"]["annotations"];
    assert_eq!(annotations[TRIGGER_TIME], "2026-05-05T00:00:00Z");
}

/// Proves EPS-21.
#[test]
fn services_without_selector_or_with_an_external_name_are_left_alone() {
    for foreign in
        [service_with("spec/selector", Value::Null), service_with("spec/type", json!("ExternalName"))]
    {
        let mut stage = Stage::new();
        assert!(stage.service(foreign).pods(0..3).slice(slice_of("web-1", 7..9)).sync().is_calm());
    }
}

/// Proves EPS-22.
#[test]
fn slices_of_others_are_never_touched() {
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
        let mut stage = Stage::new();
        let minutes = stage.service(service()).pods(0..2).slice(foreign.clone()).sync();
        assert_eq!(minutes.verbs(), ["create"]);
        assert_eq!(stage.slices[foreign["metadata"]["name"].as_str().unwrap()], foreign);
    }
}

/// Proves EPS-23.
#[test]
fn slices_on_their_way_out_do_not_count() {
    let leaving = with(slice_of("web-1", 0..2), "metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let mut stage = Stage::new();
    assert_eq!(stage.service(service()).pods(0..2).slice(leaving).sync().verbs(), ["create"]);
    assert!(stage.sync().is_calm());
}

/// Proves EPS-29.
#[test]
fn slices_of_types_that_the_service_does_not_have_go_last_and_each_for_itself() {
    let of_type = |name: &str, kind: &str| with(slice_of(name, 0..2), "addressType", json!(kind));
    let mut stage = Stage::new();
    stage
        .service(service())
        .pods(0..2)
        .slice(of_type("a1", "IP"))
        .slice(of_type("a2", "FQDN"))
        .slice(of_type("a3", "IPv6"));
    let minutes = stage.refusing("delete", "a1", refused(ErrorReason::Forbidden)).sync();
    assert_eq!(minutes.verbs(), ["create", "delete", "delete", "delete"]);
    let text = "error deleting a1 EndpointSlice for Service a/web: refused";
    assert_eq!(minutes.retry.as_deref(), Some(text));
    assert_eq!(stage.slices.keys().filter(|name| name.starts_with('a')).collect::<Vec<_>>(), ["a1"]);
}

/// Proves EPS-30.
#[test]
fn a_failure_in_one_family_does_not_stop_the_other() {
    let mut stage = Stage::new();
    stage.service(dual()).pod(dual_pod("p1")).slice(slice_of("web-1", 5..6));
    let minutes = stage.refusing("update", "web-1", refused(ErrorReason::Conflict)).sync();
    assert_eq!(minutes.verbs(), ["put", "create"]);
    assert_eq!(minutes.writes[1].body["addressType"], "IPv6");
    assert_eq!(
        minutes.retry.as_deref(),
        Some("failed to update web-1 EndpointSlice for Service a/web: refused")
    );
}

/// Proves EPS-60, EPS-61.
#[test]
fn a_service_without_endpoints_has_one_empty_slice_which_is_then_left_alone() {
    let mut stage = Stage::new();
    assert_eq!(stage.service(service()).sync().verbs(), ["create"]);
    assert_eq!((&stage.only()["endpoints"], &stage.only()["ports"]), (&json!([]), &json!([])));
    assert!(stage.sync().is_calm());
    let mut bare = stage.only().clone();
    bare["endpoints"] = Value::Null;
    bare["ports"] = Value::Null;
    bare["metadata"]["annotations"] = json!({"by": "hand"});
    assert!(
        stage.slice(bare).sync().is_calm(),
        "no list is an empty one, and other metadata does not matter"
    );
    // Any other slice is made one, and so is an empty one with other labels.
    stage.service(service_with("metadata/labels", json!({"team": "x"})));
    assert_eq!(stage.sync().verbs(), ["put"]);
    assert!(stage.sync().is_calm());
}

/// Proves EPS-62, EPS-68.
#[test]
fn the_last_slice_is_emptied_and_taken_up_again() {
    let mut stage = Stage::new();
    let noted = with(slice_of("web-1", 0..2), "metadata/annotations", json!({"note": "x"}));
    stage.service(service()).pods(0..2).slice(noted);
    stage.pod(unready(pod("p000")));
    assert_eq!(stage.sync().verbs(), ["put"]);
    assert_eq!(stage.only()["metadata"]["annotations"]["note"], "x", "annotations survive updates");
    let service = service_with("metadata/annotations", json!({"for": "the service"}));
    let minutes = stage.service(service).no_pods().sync();
    assert_eq!(minutes.verbs(), ["put"]);
    assert_eq!((stage.sizes(), stage.slices.keys().next().unwrap().as_str()), (vec![0], "web-1"));
    let annotations = stage.only()["metadata"].get("annotations").cloned().unwrap_or(json!({}));
    assert!(annotations.get("note").is_none() && annotations.get("for").is_none(), "{annotations}");
    assert_eq!(stage.pods(0..3).sync().verbs(), ["put"], "and filled again");
    assert_eq!((stage.sizes(), stage.slices.keys().next().unwrap().as_str()), (vec![3], "web-1"));
}

/// Proves EPS-63.
#[test]
fn each_family_has_its_own_empty_slice() {
    let mut stage = Stage::new();
    assert_eq!(stage.service(dual()).sync().verbs(), ["create", "create"]);
    assert!(stage.sync().is_calm());
    assert_eq!(stage.pods(0..1).sync().verbs(), ["put"]);
    assert_eq!(stage.sizes(), [1, 0]);
    assert!(stage.sync().is_calm());
}

/// Proves EPS-64, EPS-65, EPS-66.
#[test]
fn a_new_slice_belongs_to_its_service_and_looks_like_it() {
    let labels = json!({"team": "x", "kubernetes.io/service-name": "lie", "service.kubernetes.io/headless": "lie",
                        "endpointslice.kubernetes.io/managed-by": "lie"});
    let mut stage = Stage::new();
    let minutes = stage.service(service_with("metadata/labels", labels)).pods(0..1).sync();
    let metadata = json!({
        "generateName": "web-", "namespace": "a",
        "labels": {"team": "x", "kubernetes.io/service-name": "web",
                   "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service-1",
                             "controller": true, "blockOwnerDeletion": true}],
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
    });
    assert_eq!(minutes.writes[0].body["metadata"], metadata);
    for ip in ["None", ""] {
        let mut stage = Stage::new();
        stage.service(service_with("spec/clusterIP", json!(ip))).sync();
        assert_eq!(stage.only()["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    }
}

/// Proves EPS-67, EPS-130.
#[test]
fn foreign_labels_go_and_reserved_ones_alone_are_no_reason() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..1).slice(slice_of("web-1", 0..1));
    let mut labelled = stage.only().clone();
    labelled["metadata"]["labels"]["by"] = json!("hand");
    assert_eq!(stage.slice(labelled).sync().verbs(), ["put"]);
    assert_eq!(stage.only()["metadata"]["labels"].get("by"), None);
    let headless = service_with("spec/clusterIP", json!("None"));
    let reserved = with(headless, "metadata/labels", json!({"kubernetes.io/service-name": "lie"}));
    assert!(stage.service(reserved).sync().is_calm());
    assert_eq!(stage.pod(unready(pod("p000"))).sync().verbs(), ["put"]);
    assert_eq!(
        stage.only()["metadata"]["labels"]["service.kubernetes.io/headless"],
        "",
        "with the next write"
    );
}

/// Proves EPS-92.
#[test]
fn creates_come_before_updates_and_deletes_and_a_failure_ends_it() {
    let stage = || {
        let mut stage = Stage::of_slices(2);
        let foreign = with(slice_of("old", 0..2), "metadata/ownerReferences/0/uid", json!("service-0"));
        stage.service(service()).pods(0..5).slice(slice_of("web-1", 0..2)).slice(foreign);
        stage.slice(slice_of("web-2", 7..9)).pod(unready(pod("p000")));
        stage
    };
    assert_eq!(stage().sync().verbs(), ["create", "put", "put", "delete"]);
    for (verb, name, done) in
        [("create", "", 1), ("update", "web-1", 2), ("update", "web-2", 3), ("delete", "old", 4)]
    {
        let mut stage = stage();
        let minutes = stage.refusing(verb, name, refused(ErrorReason::Unavailable)).sync();
        assert_eq!(minutes.writes.len(), done, "{verb} {name}");
        assert!(minutes.retry.is_some());
        stage.no_refusals().sync();
        assert!(stage.sync().is_calm());
        assert_eq!(stage.sizes(), [2, 2, 1]);
    }
}

/// Proves EPS-93, EPS-94.
#[test]
fn a_slice_to_be_deleted_becomes_one_to_be_created() {
    let mut stage = Stage::new();
    let old = with(slice_of("web-1", 0..1), "metadata/finalizers", json!(["example.com/hold"]));
    stage.service(service_with("spec/ports/0/targetPort", json!(9090))).pods(0..1).slice(old);
    let minutes = stage.sync();
    assert_eq!((minutes.verbs(), &*minutes.writes[0].name), (vec!["put"], "web-1"));
    let metadata = &minutes.writes[0].body["metadata"];
    assert_eq!(
        (metadata.get("resourceVersion"), metadata.get("finalizers")),
        (None, None),
        "nothing of it stays"
    );
    assert_eq!(
        (&metadata["name"], &metadata["uid"]),
        (&json!("web-1"), &json!("uid-web-1")),
        "but the life is meant"
    );
    // Not one of another owner.
    let foreign = with(slice_of("old", 0..1), "metadata/ownerReferences/0/uid", json!("service-0"));
    let mut stage = Stage::new();
    let minutes = stage.service(service()).pods(0..1).slice(foreign).sync();
    assert_eq!((minutes.verbs(), &*minutes.writes[1].name), (vec!["create", "delete"], "old"));
}

/// Proves EPS-95.
#[test]
fn an_update_puts_what_was_seen_and_a_conflict_is_tried_again() {
    let whole = with(slice_of("web-1", 0..2), "metadata/finalizers", json!(["example.com/hold"]));
    let mut stage = Stage::new();
    stage.service(service()).pods(0..2).slice(whole.clone()).pod(unready(pod("p000")));
    let minutes = stage.refusing("update", "web-1", refused(ErrorReason::Conflict)).sync();
    assert_eq!(
        minutes.retry.as_deref(),
        Some("failed to update web-1 EndpointSlice for Service a/web: refused")
    );
    assert_eq!(minutes.events.len(), 1);
    let minutes = stage.no_refusals().sync();
    let metadata = &minutes.writes[0].body["metadata"];
    for field in
        ["name", "namespace", "uid", "resourceVersion", "finalizers", "ownerReferences", "generateName"]
    {
        assert_eq!(metadata[field], whole["metadata"][field], "{field}");
    }
}

/// Proves EPS-96.
#[test]
fn a_service_on_its_way_out_gets_no_new_slices() {
    let leaving = || service_with("metadata/deletionTimestamp", json!("2026-01-03T00:00:00Z"));
    let mut stage = Stage::of_slices(1);
    assert!(stage.service(leaving()).pods(0..2).sync().is_calm());
    let mut stage = Stage::of_slices(2);
    stage.service(leaving()).pods(0..3).slice(slice_of("web-1", 0..2)).slice(slice_of("web-2", 7..9));
    stage.slice(slice_of("web-3", 9..10)).pod(unready(pod("p000")));
    assert_eq!(stage.sync().verbs(), ["put", "put", "delete"]);
}

/// Proves EPS-97.
#[test]
fn a_terminating_namespace_is_no_failure_and_ends_the_family() {
    let mut stage = Stage::new();
    let foreign = with(slice_of("old", 0..1), "metadata/ownerReferences/0/uid", json!("service-0"));
    stage.service(service()).pods(0..1).slice(foreign);
    let minutes = stage.refusing("create", "", refused(ErrorReason::NamespaceTerminating)).sync();
    assert_eq!(minutes.writes.len(), 1);
    assert_eq!((minutes.retry.as_deref(), &*minutes.events), (None, &[][..]));
    assert!(minutes.measured("endpointslices_changed_per_sync").is_empty());
    let minutes = stage.no_refusals().refusing("create", "", refused(ErrorReason::Forbidden)).sync();
    assert_eq!(minutes.retry.as_deref(), Some("failed to create EndpointSlice for Service a/web: refused"));
}

/// Proves EPS-98, EPS-99.
#[test]
fn deletes_fail_even_if_there_is_nothing_to_delete() {
    let mut stage = Stage::new();
    stage
        .service(service())
        .pods(0..1)
        .slice(slice_of("web-1", 0..1))
        .slice(slice("web-2", &[super::endpoint("p9")]));
    let minutes = stage.refusing("delete", "web-2", refused(ErrorReason::NotFound)).sync();
    assert_eq!(minutes.verbs(), ["delete"]);
    assert_eq!(
        minutes.retry.as_deref(),
        Some("failed to delete web-2 EndpointSlice for Service a/web: refused")
    );
}

const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A pod that became what it is at a moment.
fn pod_since(pod: Value, time: &str) -> Value {
    with(pod, "status/conditions/0/lastTransitionTime", json!(time))
}

/// Proves EPS-25, EPS-69.
#[test]
fn writes_are_dated_by_the_earliest_change_they_tell_of() {
    let date = |stage: &Stage| stage.only()["metadata"]["annotations"].get(TRIGGER_TIME).cloned();
    let become_unready = |stage: &mut Stage, name: &str, time: &str| {
        let changed = pod_since(unready(pod(name)), time);
        stage.pod(changed.clone()).wakes::<Pod>(updated(pod(name), changed));
    };
    let mut stage = Stage::new();
    stage.service(service()).pods(0..3).sync();
    assert_eq!(date(&stage), Some(json!("2026-01-01T00:00:00Z")), "first the creation of the Service");
    become_unready(&mut stage, "p000", "2026-02-02T00:00:02Z");
    become_unready(&mut stage, "p001", "2026-02-02T00:00:01Z");
    stage.sync();
    assert_eq!(date(&stage), Some(json!("2026-02-02T00:00:01Z")), "then the earliest change");
    // A deletion has no time of its own; what was told before is not told again.
    let gone: Pod = serde_json::from_value(pod("p002")).unwrap();
    stage.wakes::<Pod>(Change::deleted(Arc::new(gone)));
    stage.no_pod("p002").sync();
    assert_eq!(date(&stage), None);
    // A turn without a write takes the times with it.
    become_unready(&mut stage, "p000", "2026-03-03T00:00:00Z");
    assert!(stage.sync().is_calm());
    stage.no_pod("p001").sync();
    assert_eq!(date(&stage), None);
}
