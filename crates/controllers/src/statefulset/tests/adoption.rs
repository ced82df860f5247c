//! Whose pods and revisions are whose.

use super::*;

const ADOPT: &str = "because it matches the selector and nobody manages it";
const RELEASE: &str = "because it does not match the selector any more";

fn unowned(object: Value) -> Value {
    with_field(object, "/metadata/ownerReferences", json!([]))
}

/// Proves STS-9, STS-14, STS-120, REV-31, REV-73.
#[test]
fn revisions_are_adopted_before_pods_and_kept_for_what_they_say() {
    let orphans = || {
        bare(up_to_date(1), [orphan("web-0")])
            .with::<ControllerRevision>(unowned(revision("web-1", 1, "v1")))
            .with::<ControllerRevision>(unowned(revision("web-2", 2, "v2")))
    };
    // Pods of an earlier set of the name stay as they are: their revision says the same.
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
             retry: refused\n"
        )
    );
    let terminating_owner = RehearsalCluster::of(&the_loop())
        .with_cached::<StatefulSet>(up_to_date(0))
        .with_live::<StatefulSet>(terminating(up_to_date(0)))
        .with::<ControllerRevision>(unowned(revision("web-2", 2, "v2")));
    let why = "the owner is being deleted";
    assert_eq!(
        reconcile(terminating_owner),
        format!("patch controllerrevisions.apps a/web-2 {ADOPT} FAILED: {why}\nretry: {why}\n")
    );
    let of_another =
        with_field(revision("web-1", 1, "v1"), "/metadata/ownerReferences/0/uid", json!("u-other"));
    let of_another = bare(up_to_date(0), []).with::<ControllerRevision>(of_another);
    assert!(!reconcile(of_another).contains("patch"), "another's is left alone");
    let elsewhere = with_field(unowned(revision("web-1", 1, "v1")), "/metadata/namespace", json!("b"));
    let elsewhere = bare(up_to_date(0), []).with::<ControllerRevision>(elsewhere);
    assert!(!reconcile(elsewhere).contains("patch"), "and so is that of another namespace");
}

/// Proves STS-15, STS-112.
#[test]
fn a_pod_is_ours_by_its_name_and_its_labels() {
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
    // Another spelling of a number takes its place.
    let spelled = orphan("web-00");
    assert_eq!(actions(cluster(up_to_date(1), [spelled])), format!("patch pods a/web-00 {ADOPT}\n"));
    let failed = pods_failing_to_be_claimed();
    assert_eq!(actions(failed), format!("patch pods a/web-0 {ADOPT} FAILED: refused\nretry: refused\n"));
}

fn pods_failing_to_be_claimed() -> RehearsalCluster {
    let cluster = cluster(set(3), [orphan("web-0")]);
    cluster.failing::<Pod>("patch", &key("web-0"), api_error(ErrorReason::Conflict))
}

/// Proves STS-127.
#[test]
fn an_adopted_pod_that_does_not_say_its_revision_is_replaced() {
    let bare_pod = with_field(orphan("web-0"), "/metadata/labels/controller-revision-hash", json!(""));
    assert_eq!(pod_actions(cluster(up_to_date(1), [bare_pod])), ["patch web-0", "delete web-0"]);
}

/// What was to be adopted and is gone does not count: its number is free.
#[test]
fn what_turns_out_to_be_gone_is_made_anew() {
    let cluster = cluster(set(1), [orphan("web-0")]);
    let cluster = cluster.failing::<Pod>("patch", &key("web-0"), api_error(ErrorReason::NotFound));
    assert_eq!(pod_actions(cluster), ["patch web-0", "create web-0"]);
}

/// Proves STS-19, STS-123.
#[test]
fn numbers_are_read_from_names() {
    // One that does not fit is neither a replica nor too many.
    let huge = owned(orphan("web-99999999999"));
    assert_eq!(actions(cluster(up_to_date(1), [pod(0), huge.clone()])), "");
    assert_eq!(status(cluster(set(1), [pod(0), huge]))["replicas"], 1);
    // Of two with the same number the later one counts.
    let twin = unready(owned(orphan("web-00")));
    assert_eq!(status(cluster(set(1), [twin, pod(0)]))["readyReplicas"], 0, "web-00 comes after web-0");
    // Out of range both go.
    let both = [pod(5), owned(orphan("web-05"))];
    assert_eq!(pod_actions(cluster(parallel(set(0)), both)), ["delete web-5", "delete web-05"]);
}
