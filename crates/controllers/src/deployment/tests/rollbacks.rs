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
        format!("{EDIT}event Normal DeploymentRollback: Rolled back deployment \"web\" to revision 1\n")
    );
    let alone = || cluster(back("0"), [new(3, 3)]);
    check(
        alone(),
        &format!("event Warning DeploymentRollbackRevisionNotFound: Unable to find last revision.\n{EDIT}"),
    );
    assert!(rollback_annotation_is_removed(alone()));
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
    let mut there = cluster(now, [new(3, 3), old]);
    assert_eq!(
        there.reconcile(&the_loop(), web()),
        format!("{EDIT}event Normal DeploymentRollback: Rolled back deployment \"web\" to revision 1\n")
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
            "event Warning DeploymentRollbackTemplateUnchanged: \
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
        "event Warning DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to.\n{EDIT}"
    )));
    assert!(rollback_annotation_is_removed(there()));
}
