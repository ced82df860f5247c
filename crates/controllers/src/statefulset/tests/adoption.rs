//! Adoption and release of pods and revisions.

use super::*;

const ADOPT: &str = "because it matches the selector and has no controllerRef";
const RELEASE: &str = "because it does not match the selector any more";

fn unowned(object: Value) -> Value {
    with_field(object, "/metadata/ownerReferences", json!([]))
}

/// Proves STS-14, STS-120, REV-31, REV-73.
#[test]
fn revisions_are_adopted_before_pods() {
    let orphans = || {
        bare(up_to_date(1), [orphan("web-0")])
            .with::<ControllerRevision>(unowned(revision("web-1", 1, "v1")))
            .with::<ControllerRevision>(unowned(revision("web-2", 2, "v2")))
    };
    // Pods of an earlier StatefulSet of that name are kept: their revision has the same data.
    assert_eq!(
        reconcile(orphans()),
        format!(
            "patch controllerrevisions.apps a/web-1 {ADOPT}\n\
             patch controllerrevisions.apps a/web-2 {ADOPT}\n\
             patch pods a/web-0 {ADOPT}\n\
             {NONE_MISSING}{MAX}"
        )
    );
    let raced =
        orphans().failing::<ControllerRevision>("patch", &key("web-1"), api_error(ErrorReason::Invalid));
    assert_eq!(
        reconcile(raced),
        format!(
            "patch controllerrevisions.apps a/web-1 {ADOPT} FAILED: refused\n\
             patch controllerrevisions.apps a/web-2 {ADOPT}\n\
             retry: patch controllerrevisions.apps a/web-1 {ADOPT}: refused\n"
        )
    );
    let terminating_owner = RehearsalCluster::of(&the_loop())
        .with_cached::<StatefulSet>(up_to_date(0))
        .with_live::<StatefulSet>(terminating(up_to_date(0)))
        .with::<ControllerRevision>(unowned(revision("web-2", 2, "v2")));
    let why = "the owner is being deleted";
    assert_eq!(
        reconcile(terminating_owner),
        format!(
            "patch controllerrevisions.apps a/web-2 {ADOPT} FAILED: {why}\n\
             retry: patch controllerrevisions.apps a/web-2 {ADOPT}: {why}\n"
        )
    );
    let of_another =
        with_field(revision("web-1", 1, "v1"), "/metadata/ownerReferences/0/uid", json!("u-other"));
    let of_another = bare(up_to_date(0), []).with::<ControllerRevision>(of_another);
    assert!(!reconcile(of_another).contains("patch"), "a revision of another controller is not released");
    let elsewhere = with_field(unowned(revision("web-1", 1, "v1")), "/metadata/namespace", json!("b"));
    let elsewhere = bare(up_to_date(0), []).with::<ControllerRevision>(elsewhere);
    assert!(!reconcile(elsewhere).contains("patch"), "and one of another namespace is not adopted");
}

/// Proves STS-15, STS-112.
#[test]
fn pods_are_claimed_by_name_and_labels() {
    let unlabelled = with_field(pod(1), "/metadata/labels", json!({"app": "none"}));
    assert_eq!(
        actions(cluster(up_to_date(1), [pod(0), unlabelled])),
        format!("patch pods a/web-1 {RELEASE}\n")
    );
    for name in ["web", "web-", "web-x", "web-1x", "web--", "other-1", "web-web-1"] {
        let misnamed = owned(orphan(name));
        assert_eq!(
            actions(cluster(up_to_date(1), [pod(0), misnamed])),
            format!("patch pods a/{name} {RELEASE}\n"),
            "{name}"
        );
        assert_eq!(actions(cluster(up_to_date(1), [pod(0), orphan(name)])), "", "{name} is not adopted");
    }
    // A name with a leading zero has the same ordinal.
    let spelled = orphan("web-00");
    assert_eq!(actions(cluster(up_to_date(1), [spelled])), format!("patch pods a/web-00 {ADOPT}\n"));
    let failed = pods_failing_to_be_claimed();
    assert_eq!(
        actions(failed),
        format!("patch pods a/web-0 {ADOPT} FAILED: refused\nretry: patch pods a/web-0 {ADOPT}: refused\n")
    );
}

fn pods_failing_to_be_claimed() -> RehearsalCluster {
    let cluster = cluster(set(3), [orphan("web-0")]);
    cluster.failing::<Pod>("patch", &key("web-0"), api_error(ErrorReason::Conflict))
}

/// Proves STS-127.
#[test]
fn an_adopted_pod_without_revision_label_is_replaced() {
    let bare_pod = with_field(orphan("web-0"), "/metadata/labels/controller-revision-hash", json!(""));
    assert_eq!(pod_actions(cluster(up_to_date(1), [bare_pod])), ["patch web-0", "delete web-0"]);
}

/// A pod that was deleted before its adoption is recreated.
#[test]
fn a_pod_that_was_deleted_before_its_adoption_is_recreated() {
    let cluster = cluster(set(1), [orphan("web-0")]);
    let cluster = cluster.failing::<Pod>("patch", &key("web-0"), api_error(ErrorReason::NotFound));
    assert_eq!(pod_actions(cluster), ["patch web-0", "create web-0"]);
}

/// Proves STS-19, STS-123.
#[test]
fn ordinals_are_parsed_from_pod_names() {
    // An ordinal that does not fit in 32 bits is neither a replica nor out of range.
    let huge = owned(orphan("web-99999999999"));
    assert_eq!(actions(cluster(up_to_date(1), [pod(0), huge.clone()])), "");
    assert_eq!(status(cluster(set(1), [pod(0), huge]))["replicas"], 1);
    // Of two pods with the same ordinal the later one counts.
    let twin = unready(owned(orphan("web-00")));
    assert_eq!(status(cluster(set(1), [twin, pod(0)]))["readyReplicas"], 0, "web-00 comes after web-0");
    // Out of range, both are deleted.
    let both = [pod(5), owned(orphan("web-05"))];
    assert_eq!(pod_actions(cluster(parallel(set(0)), both)), ["delete web-5", "delete web-05"]);
}
