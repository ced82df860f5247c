//! Which requests are deleted when.

use keleustes_objects::{ApiError, ErrorReason, Time};

use super::*;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

fn cleaning() -> Loop {
    controller(ENABLED).loops.remove(1)
}

fn pass(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&cleaning(), Pass)
}

fn time(seconds_ago: i64) -> Value {
    json!(Time::from_unix_seconds(NOW - seconds_ago))
}

/// A request of this age, with this status.
fn aged(name: &str, created: Value, status: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "7", "creationTimestamp": created},
        "spec": {"driver": "d"}, "status": status})
}

fn condition(kind: &str, status: &str, since: Value) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": "r", "message": "m"})
}

fn is_deleted(request: Value) -> bool {
    let mut cluster = RehearsalCluster::of(&cleaning()).with::<ResourcePoolStatusRequest>(request);
    let transcript = pass(&mut cluster);
    assert!(transcript.ends_with("requeue after 600s\n"), "{transcript}");
    transcript.starts_with("delete resourcepoolstatusrequests.resource.k8s.io r")
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Proves RPSR-40, RPSR-41, RPSR-65.
#[test]
fn answered_requests_expire_after_an_hour_and_pending_ones_after_a_day() {
    let answered = |conditions: Value| aged("r", time(10 * DAY), json!({"conditions": conditions}));
    for (kind, status) in [("Complete", "True"), ("Failed", "True"), ("Complete", "False")] {
        assert!(is_deleted(answered(json!([condition(kind, status, time(HOUR + 1))]))), "{kind} {status}");
        assert!(!is_deleted(answered(json!([condition(kind, status, time(HOUR))]))), "exactly an hour");
    }
    let first = json!([condition("Failed", "True", time(1)), condition("Complete", "True", time(DAY))]);
    assert!(!is_deleted(answered(first)), "the first one decides");
    let later = json!([condition("Other", "True", time(1)), condition("Complete", "True", time(DAY))]);
    assert!(is_deleted(answered(later)));
    assert!(!is_deleted(answered(json!([condition("Complete", "True", Value::Null)]))), "no time");
    assert!(is_deleted(aged("r", time(HOUR + 1), json!({}))), "by its creation");
    assert!(!is_deleted(aged("r", time(HOUR), json!({}))));
    assert!(is_deleted(aged("r", time(DAY + 1), Value::Null)));
    assert!(!is_deleted(aged("r", time(DAY), Value::Null)));
    assert!(!is_deleted(aged("r", Value::Null, Value::Null)), "no creationTimestamp");
    // A fraction of a second is enough.
    let mut cluster = RehearsalCluster::of(&cleaning()).with::<ResourcePoolStatusRequest>(aged(
        "r",
        time(DAY),
        Value::Null,
    ));
    cluster.set_wall_clock(Time::from_unix_seconds(NOW), 1);
    assert!(pass(&mut cluster).starts_with("delete "));
}

/// Proves RPSR-74.
#[test]
fn terminating_requests_are_handled_and_a_failure_does_not_stop_the_pass() {
    let mut terminating = request(json!({}));
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:59:30Z");
    let mut fixture =
        Fixture { cluster: RehearsalCluster::of(&the_loop()) }.with::<ResourcePoolStatusRequest>(terminating);
    assert!(fixture.reconcile().starts_with(WRITTEN));
    let old = |name: &str| {
        let mut old = aged(name, time(2 * DAY), Value::Null);
        old["metadata"]["deletionTimestamp"] = time(DAY);
        old["metadata"]["finalizers"] = json!(["example.com/x"]);
        old
    };
    for (reason, is_logged) in [(ErrorReason::Forbidden, true), (ErrorReason::NotFound, false)] {
        let error = ApiError::transport(reason, "refused");
        let mut cluster = RehearsalCluster::of(&cleaning())
            .with::<ResourcePoolStatusRequest>(old("a"))
            .with::<ResourcePoolStatusRequest>(old("b"))
            .failing::<ResourcePoolStatusRequest>("delete", &Key::cluster("a"), error);
        let transcript = pass(&mut cluster);
        assert!(transcript.contains("delete resourcepoolstatusrequests.resource.k8s.io b"), "{transcript}");
        assert!(
            !transcript.contains("retry") && transcript.ends_with("requeue after 600s\n"),
            "{transcript} {is_logged}"
        );
    }
}
