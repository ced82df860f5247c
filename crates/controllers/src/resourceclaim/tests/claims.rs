//! Reconciles of a claim: which reservations go, and what follows.

use super::*;

const STATUS: &str = "patch resourceclaims.resource.k8s.io/status a/c because its consumers are gone or done";
const FINALIZER: &str = "patch resourceclaims.resource.k8s.io a/c because it is not allocated any more";
const DELETE: &str =
    "delete resourceclaims.resource.k8s.io a/c because the pod that it was generated for will not run\n";

fn named(name: &str) -> Value {
    let mut pod = pod(json!([direct("gpu", "c")]));
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(format!("u-{name}"));
    pod
}

/// The UIDs of the reservations that a reconcile removes; `all` if none is left.
fn removed(cluster: &mut TestCluster) -> Vec<String> {
    let bodies = cluster.bodies(ClaimItem::Claim, "c", "patch resourceclaims.resource.k8s.io/status ");
    let Some(body) = bodies.first() else { return Vec::new() };
    let Some(entries) = body["status"]["reservedFor"].as_array() else { return vec!["all".to_owned()] };
    assert!(entries.iter().all(|entry| entry["$patch"] == "delete"), "{body}");
    entries.iter().map(|entry| entry["uid"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Proves RCL-70, RCL-71, RCL-108, RCL-110.
#[test]
fn reservations_of_replaced_and_done_pods_are_removed() {
    let mut cluster = test_cluster();
    assert_eq!(cluster.claim("c"), "");
    cluster.put::<ResourceClaim>(allocated(claim("c"), &[by_pod("web"), by_pod("live")]));
    cluster.put::<Pod>(named("live"));
    let none: [&str; 0] = [];
    for (pod, expected) in [
        (named("web"), none.as_slice()),
        (with_phase(named("web"), "Running"), &none),
        (terminating(bound(named("web"))), &none),
        (terminating(named("web")), &["u-web"]),
        (with_phase(named("web"), "Succeeded"), &["u-web"]),
        (with_phase(bound(named("web")), "Failed"), &["u-web"]),
    ] {
        cluster.put::<Pod>(pod.clone());
        assert_eq!(removed(&mut cluster), expected, "{pod}");
    }
    // Recreated under the same name: the old entry goes, the new pod's stays. Allocation and finalizer stay.
    let mut new = named("web");
    new["metadata"]["uid"] = json!("u-new");
    cluster.put::<Pod>(new);
    let mut for_new = by_pod("web");
    for_new["uid"] = json!("u-new");
    cluster.put::<ResourceClaim>(allocated(claim("c"), &[by_pod("web"), by_pod("live"), for_new]));
    let body = json!({"metadata": {"resourceVersion": "10"}, "status": {"reservedFor": [{"$patch": "delete", "uid": "u-web"}]}});
    assert_eq!(cluster.claim("c"), format!("{STATUS}: {body}\n"));
}

/// Proves RCL-72, RCL-107.
#[test]
fn pod_that_is_not_cached_is_read_before_its_reservation_is_removed() {
    let reserved = || test_cluster().with::<ResourceClaim>(allocated(claim("c"), &[by_pod("web")]));
    const GET: &str = "get pods a/web\n";
    // The scheduler knows a pod that this cache has not seen. Its phase is not looked at.
    assert_eq!(reserved().live::<Pod>(with_phase(named("web"), "Succeeded")).claim("c"), GET);
    let mut other = named("web");
    other["metadata"]["uid"] = json!("u-other");
    for mut cluster in [reserved(), reserved().live::<Pod>(other)] {
        assert!(cluster.claim("c").starts_with(&format!("{GET}{STATUS}")));
    }
    // The cache still holds the pod that was replaced.
    let replaced = || {
        let mut cluster = reserved();
        let mut predecessor = named("web");
        predecessor["metadata"]["uid"] = json!("u-old");
        cluster.put::<Pod>(predecessor);
        cluster
    };
    assert_eq!(replaced().live::<Pod>(named("web")).claim("c"), GET);
    assert!(replaced().claim("c").starts_with(&format!("{GET}{STATUS}")));
    for reason in [ErrorReason::Forbidden, ErrorReason::Unavailable] {
        let mut cluster = reserved().failing::<Pod>("get", "web", reason);
        assert_eq!(cluster.claim("c"), format!("{GET}retry: reading pods a/web: refused\n"));
    }
}

/// Proves RCL-109, RCL-125.
#[test]
fn consumers_of_unknown_kinds_keep_their_reservation() {
    let foreign = json!({"apiGroup": "foo.com", "resource": "foo", "name": "x", "uid": "u-x"});
    let pods_of_other_group =
        json!({"apiGroup": "foo.com", "resource": "pods", "name": "gone", "uid": "u-y"});
    let consumers = [by_pod("web"), foreign, pods_of_other_group, by_pod_group("g")];
    let mut cluster =
        test_cluster().with::<ResourceClaim>(terminating(allocated(generated("c"), &consumers)));
    cluster.put::<Pod>(with_phase(named("web"), "Failed"));
    // A pod of that name in another namespace does not keep the entry.
    cluster.put::<Pod>(in_namespace(named("web"), "b"));
    // It stays allocated, protected and existent, also while it is terminating.
    let body = json!({"metadata": {"resourceVersion": "1"}, "status": {"reservedFor": [{"$patch": "delete", "uid": "u-web"}]}});
    assert_eq!(cluster.claim("c"), format!("{STATUS}: {body}\n"));
}

/// Proves RCL-74, RCL-75, RCL-126.
#[test]
fn last_reservation_deallocates_and_removes_the_finalizer() {
    let mut cluster = test_cluster().with::<ResourceClaim>(allocated(claim("c"), &[by_pod("web")]));
    cluster.put::<Pod>(with_phase(named("web"), "Succeeded"));
    // Devices of the status, and whatever else it holds, are not part of the patch.
    let status =
        json!({"metadata": {"resourceVersion": "1"}, "status": {"allocation": null, "reservedFor": null}});
    let finalizers = json!({"metadata": {"finalizers": ["example.com/mine"]}});
    assert_eq!(cluster.claim("c"), format!("{STATUS}: {status}\n{FINALIZER}: {finalizers}\n"));
}

/// Proves RCL-76, RCL-77, RCL-111.
#[test]
fn unused_claim_is_deallocated_only_when_it_is_deleted() {
    let mut cluster = test_cluster().with::<ResourceClaim>(allocated(claim("c"), &[]));
    assert_eq!(cluster.claim("c"), "");
    cluster.put::<ResourceClaim>(terminating(allocated(claim("c"), &[])));
    let lines = cluster.outline(ClaimItem::Claim, "c");
    assert_eq!(lines, format!("{STATUS}\n{FINALIZER}\n"));
    let status = cluster.bodies(ClaimItem::Claim, "c", "patch resourceclaims.resource.k8s.io/status ");
    assert_eq!(status[0]["status"], json!({"allocation": null}));
    let mut unallocated = terminating(allocated(claim("c"), &[]));
    unallocated["status"] = json!({});
    cluster.put::<ResourceClaim>(unallocated);
    let finalizers = json!({"metadata": {"finalizers": ["example.com/mine"], "resourceVersion": "3"}});
    assert_eq!(cluster.claim("c"), format!("{FINALIZER}: {finalizers}\n"));
    // In use: it stays until the consumer is done.
    cluster.put::<ResourceClaim>(terminating(allocated(claim("c"), &[by_pod("web")])));
    cluster.put::<Pod>(bound(named("web")));
    assert_eq!(cluster.claim("c"), "");
    cluster.put::<Pod>(with_phase(bound(named("web")), "Succeeded"));
    assert_eq!(cluster.outline(ClaimItem::Claim, "c"), format!("{STATUS}\n{FINALIZER}\n"));
}

/// Proves RCL-78.
#[test]
fn without_the_finalizer_the_allocation_stays() {
    let mut claim = allocated(claim("c"), &[by_pod("web")]);
    claim["metadata"]["finalizers"] = json!(["example.com/mine"]);
    let mut cluster =
        test_cluster().with::<ResourceClaim>(claim).with::<Pod>(with_phase(named("web"), "Failed"));
    let body = json!({"metadata": {"resourceVersion": "1"}, "status": {"reservedFor": null}});
    assert_eq!(cluster.claim("c"), format!("{STATUS}: {body}\n"));
}

/// Proves RCL-79, RCL-80, RCL-127.
#[test]
fn claim_of_a_pod_that_will_not_run_is_deleted() {
    let mut cluster = test_cluster().with::<ResourceClaim>(generated("c"));
    // A pod that is not cached is left to the garbage collector, without a read.
    assert_eq!(cluster.claim("c"), "");
    for (pod, expected) in [
        (named("web"), ""),
        (terminating(bound(named("web"))), ""),
        (terminating(named("web")), DELETE),
        (with_phase(bound(named("web")), "Failed"), DELETE),
    ] {
        cluster.put::<Pod>(pod.clone());
        assert_eq!(cluster.claim("c"), expected, "{pod}");
    }
    // Neither annotation nor template is needed, and the scheduler's claims for extended resources are treated alike.
    let mut by_hand = generated("c");
    by_hand["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    cluster.put::<ResourceClaim>(by_hand.clone());
    assert_eq!(cluster.claim("c"), DELETE);
    let mut not_controller = by_hand.clone();
    not_controller["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let mut of_group = by_hand.clone();
    of_group["metadata"]["ownerReferences"][0]["kind"] = json!("PodGroup");
    for other in [claim("c"), not_controller, of_group] {
        cluster.put::<ResourceClaim>(other);
        assert_eq!(cluster.claim("c"), "");
    }
    // Replaced by a pod of the same name.
    cluster.put::<Pod>(named("web"));
    by_hand["metadata"]["ownerReferences"][0]["uid"] = json!("u-old");
    cluster.put::<ResourceClaim>(by_hand.clone());
    assert_eq!(cluster.claim("c"), DELETE);
    // In one reconcile with the release, in this order.
    cluster.put::<ResourceClaim>(allocated(by_hand, &[by_pod("gone")]));
    let lines = format!("get pods a/gone\n{STATUS}\n{FINALIZER}\n{DELETE}");
    assert_eq!(cluster.outline(ClaimItem::Claim, "c"), lines);
}

#[test]
fn conflict_at_any_step_repeats_the_reconcile_without_an_event() {
    let reserved = || {
        let cluster = test_cluster().with::<Pod>(with_phase(named("web"), "Failed"));
        cluster.with::<ResourceClaim>(allocated(generated("c"), &[by_pod("web")]))
    };
    let mut cluster = reserved().failing::<ResourceClaim>("patch", "c", ErrorReason::Conflict);
    let transcript = cluster.claim("c");
    assert_eq!(transcript.lines().count(), 2, "{transcript}");
    assert!(transcript.contains("retry: ") && !transcript.contains("event"), "{transcript}");
    let mut cluster = reserved().failing::<ResourceClaim>("delete", "c", ErrorReason::Unavailable);
    let transcript = cluster.claim("c");
    assert!(transcript.ends_with("retry: delete unused generated claim a/c: refused\n"), "{transcript}");
    // It is gone: nothing is left to do.
    let mut cluster = reserved().failing::<ResourceClaim>("delete", "c", ErrorReason::NotFound);
    assert!(!cluster.claim("c").contains("retry"));
}
