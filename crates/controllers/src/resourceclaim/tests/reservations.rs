//! Reservations of allocated claims for bound pods.

use super::*;

const RESERVE: &str =
    "patch resourceclaims.resource.k8s.io/status a/web-gpu-1 because pod web is bound and uses it";

/// Proves RCL-33, RCL-56.
#[test]
fn allocated_claim_is_reserved_for_the_bound_pod() {
    let mut cluster =
        test_cluster().with::<ResourceClaim>(allocated(generated("web-gpu-1"), &[by_pod("other")]));
    cluster.put::<Pod>(recorded());
    assert_eq!(cluster.pod(), "");
    cluster.put::<Pod>(bound(recorded()));
    let body = json!({
        "metadata": {"resourceVersion": "1"},
        "status": {"reservedFor": [{"resource": "pods", "name": "web", "uid": "u-web"}]},
    });
    assert_eq!(cluster.pod(), format!("{RESERVE}: {body}\n"));
    cluster.put::<ResourceClaim>(allocated(generated("web-gpu-1"), &[by_pod("other"), by_pod("web")]));
    assert_eq!(cluster.pod(), "");
    // The UID counts, not the name.
    let mut old = by_pod("web");
    old["uid"] = json!("u-old");
    cluster.put::<ResourceClaim>(allocated(generated("web-gpu-1"), &[old]));
    assert!(cluster.pod().starts_with(RESERVE));
    // A claim that is not allocated is not reserved.
    cluster.put::<ResourceClaim>(generated("web-gpu-1"));
    assert_eq!(cluster.pod(), "");
}

/// The rest of RCL-56: the order of the entries, a missing claim, and a foreign one.
#[test]
fn missing_claim_ends_the_reservations_without_an_error() {
    let entries = json!([
        direct("one", "one"),
        from_template("none", "t"),
        direct("lost", "lost"),
        direct("two", "two")
    ]);
    let mut pod = bound(pod(entries));
    pod["status"]["resourceClaimStatuses"] = json!([{"name": "none"}]);
    let mut cluster = test_cluster().with::<Pod>(pod);
    for name in ["one", "two"] {
        cluster.put::<ResourceClaim>(allocated(claim(name), &[]));
    }
    let one = "patch resourceclaims.resource.k8s.io/status a/one because pod web is bound and uses it\n";
    let get = "get resourceclaims.resource.k8s.io a/lost\n";
    assert_eq!(cluster.outline(ClaimItem::Pod, "web"), format!("{get}{one}"));
    cluster.put::<ResourceClaim>(allocated(claim("lost"), &[]));
    let lines = cluster.outline(ClaimItem::Pod, "web");
    let order: Vec<_> = lines.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(order, ["a/one", "a/lost", "a/two"]);
}

/// Proves RCL-57.
#[test]
fn claim_that_was_just_created_is_reserved_by_the_retry() {
    let cluster = test_cluster().with::<Pod>(bound(templated()));
    let transcript = cluster.with::<ResourceClaimTemplate>(template()).pod();
    assert!(transcript.contains("apply pods/status a/web"), "{transcript}");
    assert!(transcript.ends_with("retry: pod \"a/web\": ResourceClaim not created yet\n"), "{transcript}");
}

/// The error text of RCL-128, and no event (RCL-91).
#[test]
fn conflict_is_retried_without_an_event() {
    let cluster = test_cluster().with::<ResourceClaim>(allocated(generated("web-gpu-1"), &[]));
    let cluster = cluster.with::<Pod>(bound(recorded()));
    let mut cluster = cluster.failing::<ResourceClaim>("patch", "web-gpu-1", ErrorReason::Conflict);
    let error = "retry: reserve claim a/web-gpu-1: refused\n";
    assert_eq!(cluster.pod(), format!("{RESERVE} FAILED: refused\n{error}"));
}
