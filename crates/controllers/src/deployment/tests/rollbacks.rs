//! The rollback annotation of old clients.

use super::*;

fn back(to: &str) -> Value {
    let mut back = deployment(3);
    back["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!(to);
    back
}

const EDIT: &str = "edit deployments.apps a/web because a rollback was requested\n";

fn rollback_annotation_is_removed(mut cluster: RehearsalCluster) -> bool {
    cluster.reconcile(&the_loop(), web());
    let live = cluster.live_object::<Deployment>(&web()).unwrap();
    live["metadata"]["annotations"].get(annotations::ROLLBACK_TO).is_none()
}

/// Proves DEP-71.
#[test]
fn only_a_number_requests_a_rollback() {
    for nothing in ["", "x"] {
        assert!(!reconcile(cluster(back(nothing), [new(3, 3), old(0, 0)])).contains("edit"), "{nothing}");
    }
    assert!(!reconcile(cluster(paused(back("1")), [new(3, 3), old(0, 0)])).contains("edit"));
    assert!(reconcile(cluster(back("1"), [new(3, 3), old(0, 0)])).contains(EDIT));
}

/// Proves DEP-72.
#[test]
fn rollback_to_zero_means_the_previous_revision() {
    let there = || cluster(back("0"), [new(3, 3), old(0, 0), set("older", "v0", 0, 0)]);
    assert_eq!(
        reconcile(there()),
        format!(
            "{EDIT}event Normal DeploymentRollback on Deployment a/web uid=u-web: Rolled back deployment \"web\" to revision 1\n"
        )
    );
    let alone = || cluster(back("0"), [new(3, 3)]);
    check(
        alone(),
        &format!(
            "event Warning DeploymentRollbackRevisionNotFound on Deployment a/web uid=u-web: Unable to find last revision.\n{EDIT}"
        ),
    );
    assert!(rollback_annotation_is_removed(alone()));
}

/// Proves DEP-22, DEP-72.
#[test]
fn rollback_refreshes_the_revision_of_the_new_replica_set_first() {
    // The template is that of an earlier revision again: `new` still has revision 1, and `old` has 2.
    let revision = |set: Value, revision: &str| {
        with_field(set, "/metadata/annotations/deployment.kubernetes.io~1revision", json!(revision))
    };
    for to in ["0", "2"] {
        let stale = || cluster(back(to), [revision(new(3, 3), "1"), revision(old(0, 0), "2")]);
        let patches = bodies(stale(), "patch replicasets.apps ");
        let [(name, body)] = &patches[..] else { panic!("one patch") };
        assert_eq!((&**name, &body["metadata"]["annotations"][annotations::REVISION]), ("new", &json!("3")));
        assert!(!reconcile(stale()).contains("edit"), "the rollback waits for the watch event of the patch");
        let refreshed = cluster(back(to), [revision(new(3, 3), "3"), revision(old(0, 0), "2")]);
        assert!(
            reconcile(refreshed).ends_with("Rolled back deployment \"web\" to revision 2\n"),
            "not to itself"
        );
    }
}

/// Proves DEP-73, DEP-74.
#[test]
fn rollback_restores_the_template_and_the_annotations() {
    let mut old = old(0, 0);
    old["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = json!("x");
    old["metadata"]["annotations"]["note"] = json!("then");
    let mut now = with_field(back("1"), "/metadata/annotations/note", json!("now"));
    now["metadata"]["annotations"]["other"] = json!("now");
    now["metadata"]["annotations"][annotations::LAST_APPLIED] = json!("{}");
    let mut current = with_field(new(3, 3), "/metadata/annotations/note", json!("now"));
    current["metadata"]["annotations"]["other"] = json!("now");
    let mut there = cluster(now, [current, old]);
    assert_eq!(
        there.reconcile(&the_loop(), web()),
        format!(
            "{EDIT}event Normal DeploymentRollback on Deployment a/web uid=u-web: Rolled back deployment \"web\" to revision 1\n"
        )
    );
    let live = there.live_object::<Deployment>(&web()).unwrap();
    assert_eq!(live["spec"]["template"], template("v1"));
    assert_eq!(
        live["metadata"]["annotations"],
        json!({annotations::REVISION: "2", annotations::LAST_APPLIED: "{}", "note": "then"})
    );
    // A failed update records no event.
    let refused = cluster(back("1"), [new(3, 3), super::old(0, 0)]);
    let refused = refused.failing::<Deployment>("update", &web(), super::api_error(ErrorReason::Conflict));
    assert!(!reconcile(refused).contains("event"));
}

/// Proves DEP-74, DEP-119.
#[test]
fn rollback_to_the_current_template_is_rejected() {
    let there = || cluster(back("2"), [new(3, 3), old(0, 0)]);
    check(
        there(),
        &format!(
            "event Warning DeploymentRollbackTemplateUnchanged on Deployment a/web uid=u-web: \
             The rollback revision contains the same template as current deployment \"web\"\n{EDIT}"
        ),
    );
    assert!(rollback_annotation_is_removed(there()));
}

/// Proves DEP-75.
#[test]
fn rollback_to_a_missing_revision_warns_after_creating_the_new_replica_set() {
    let there = || cluster(back("9"), [old(3, 3)]);
    let transcript = reconcile(there());
    assert!(transcript.starts_with("create replicasets.apps a/web-"), "{transcript}");
    assert!(transcript.ends_with(&format!(
        "event Warning DeploymentRollbackRevisionNotFound on Deployment a/web uid=u-web: Unable to find the revision to rollback to.\n{EDIT}"
    )));
    assert!(rollback_annotation_is_removed(there()));
}
