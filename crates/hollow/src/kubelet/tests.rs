//! Complete pod lifecycles as tables: the configured behaviour, and every status that is written.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::ResourceVersion;
use serde_json::{Value, json};

use super::{PodDefaults, PodLifecycle, PodPlacement, PodWrite};
use crate::clock::{after, since};
use crate::projections::Pod;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn pod_defaults() -> PodDefaults {
    PodDefaults {
        start_delay: Duration::from_millis(200),
        start_spread: Duration::ZERO,
        batch_run_for: Some(Duration::from_secs(2)),
        batch_killed_code: 0,
        termination_delay: Duration::from_millis(100),
    }
}

fn pod(value: &Value) -> Pod {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// A pod of one container with these annotations and this restart policy.
fn plain(annotations: &[(&str, &str)], restart_policy: &str) -> Value {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(name, value)| (format!("hollow.keleustes.io/{name}"), json!(value)))
        .collect();
    json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5", "annotations": annotations},
        "spec": {"nodeName": "hollow-0", "restartPolicy": restart_policy, "containers": [{"name": "c", "image": "i"}]},
    })
}

/// Runs a pod that other clients update at the given times (in milliseconds); returns every write.
fn run_pod(first: &Value, updates: &[(u64, Value)], seconds: u64) -> Vec<String> {
    let terminate = after(START, Duration::from_secs(seconds));
    let mut now = START;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut lifecycle = PodLifecycle::of(&pod(first), &pod_defaults(), false, &mut rng, now);
    let mut updates =
        updates.iter().map(|(at, update)| (after(START, Duration::from_millis(*at)), update)).peekable();
    let mut written = Vec::new();
    loop {
        while let Some(write) = lifecycle.next_write() {
            written.push(describe(&lifecycle, write, now));
            lifecycle.mark_sent(write);
            lifecycle.on_written(&ResourceVersion::from("10"));
        }
        let update_at = updates.peek().map(|(at, _)| *at);
        let Some(next) = [update_at, lifecycle.due(&pod_defaults(), now)].into_iter().flatten().min() else {
            break;
        };
        if next > terminate {
            break;
        }
        assert!(next > now || update_at == Some(next), "time does not pass: {written:?}");
        now = next;
        if update_at == Some(now) {
            let (_, update) = updates.next().unwrap();
            lifecycle.observe(&pod(update), &pod_defaults(), now);
        } else {
            lifecycle.advance(&pod_defaults(), now);
        }
    }
    written
}

fn describe(lifecycle: &PodLifecycle, write: PodWrite, now: Timestamp) -> String {
    let seconds = since(now, START).as_secs_f64();
    if write == PodWrite::Delete {
        return format!("{seconds} delete");
    }
    let status = patch(lifecycle)["status"].clone();
    let container = &status["containerStatuses"][0];
    let state = container["state"].as_object().unwrap();
    let (state, detail) = state.iter().next().unwrap();
    let detail = match state.as_str() {
        "waiting" => format!(" {}", detail["reason"].as_str().unwrap()),
        "terminated" => format!(" {}", detail["exitCode"]),
        _ => String::new(),
    };
    let conditions = status["conditions"].as_array().unwrap().iter();
    let ready = conditions.filter(|one| one["type"] == "Ready" && one["status"] == "True").count();
    let ready = if ready == 1 { " ready" } else { "" };
    let restarts = container["restartCount"].as_u64().unwrap();
    let restarts = if restarts > 0 { format!(" restarts={restarts}") } else { String::new() };
    let reason = status["reason"].as_str().map(|reason| format!(" {reason}")).unwrap_or_default();
    format!("{seconds} {} {state}{detail}{ready}{restarts}{reason}", status["phase"].as_str().unwrap())
}

fn patch(lifecycle: &PodLifecycle) -> Value {
    let of = pod(&plain(&[], "Always"));
    let placement = PodPlacement {
        key: &of.meta.key,
        uid: &of.meta.uid,
        host_ip: Ipv4Addr::new(10, 0, 0, 1),
        pod_ip: Some(Ipv4Addr::new(10, 128, 0, 1)),
    };
    lifecycle.patch(&placement)
}

fn deleted(mut pod: Value, grace_period: u32) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:01:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_period);
    pod
}

/// Annotations, restart policy, duration in seconds, and the expected writes.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, u64, &'a [&'a str]);

#[test]
fn lifecycle_by_annotations_and_restart_policy() {
    let cases: &[Case<'_>] = &[
        (&[], "Always", 1000, &["0.2 Running running ready"]),
        (&[], "Never", 1000, &["0.2 Running running ready", "2.2 Succeeded terminated 0"]),
        (
            &[("start-delay", "3s"), ("ready-after", "2s")],
            "Always",
            1000,
            &["0 Pending waiting ContainerCreating", "3 Running running", "5 Running running ready"],
        ),
        (&[("never-start", "true")], "Always", 1000, &["0 Pending waiting ContainerCreating"]),
        (&[("ready", "false")], "Always", 1000, &["0.2 Running running"]),
        (
            &[("run-for", "1s"), ("exit-code", "7")],
            "Never",
            1000,
            &["0.2 Running running ready", "1.2 Failed terminated 7"],
        ),
        (
            &[("readiness-flips", "10s")],
            "Always",
            25,
            &["0.2 Running running ready", "10.2 Running running", "20.2 Running running ready"],
        ),
        // The first restart is immediate; later ones wait 10 s, 20 s and so on.
        (
            &[("crash-after", "1s")],
            "Always",
            40,
            &[
                "0.2 Running running ready",
                "1.2 Running running ready restarts=1",
                "2.2 Running waiting CrashLoopBackOff restarts=1",
                "12.2 Running running ready restarts=2",
                "13.2 Running waiting CrashLoopBackOff restarts=2",
                "33.2 Running running ready restarts=3",
                "34.2 Running waiting CrashLoopBackOff restarts=3",
            ],
        ),
        (
            &[("crash-after", "1s"), ("crash-times", "1"), ("exit-code", "9"), ("run-for", "5s")],
            "OnFailure",
            1000,
            &[
                "0.2 Running running ready",
                "1.2 Running running ready restarts=1",
                "6.2 Succeeded terminated 0 restarts=1",
            ],
        ),
    ];
    for (annotations, policy, seconds, wanted) in cases {
        assert_eq!(run_pod(&plain(annotations, policy), &[], *seconds), *wanted, "{annotations:?} {policy}");
    }
}

#[test]
fn long_run_resets_the_crash_backoff() {
    let written = run_pod(&plain(&[("crash-after", "11m")], "Always"), &[], 3000);
    assert!(written.iter().all(|line| !line.contains("CrashLoopBackOff")), "{written:?}");
    assert_eq!(written.len(), 5);
}

#[test]
fn crash_backoff_has_an_upper_bound() {
    let written = run_pod(&plain(&[("crash-after", "1s")], "Always"), &[], 2000);
    let last: Vec<f64> =
        written.iter().rev().take(3).map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert!((last[0] - last[2] - 301.0).abs() < 1e-6, "{written:?}");
}

#[test]
fn deletion_terminates_containers_within_the_grace_period() {
    let running = "0.2 Running running ready";
    let deleted_after = |delay: &[(&str, &str)], grace_period| {
        let pod = plain(delay, "Always");
        run_pod(&pod, &[(5000, deleted(pod.clone(), grace_period))], 1000)
    };
    assert_eq!(deleted_after(&[], 30), [running, "5.1 Succeeded terminated 0", "5.1 delete"]);
    assert_eq!(
        deleted_after(&[("termination-delay", "4s")], 30),
        [running, "9 Succeeded terminated 0", "9 delete"]
    );
    // A container that does not terminate in time is killed.
    assert_eq!(
        deleted_after(&[("termination-delay", "1h")], 30),
        [running, "35 Failed terminated 137", "35 delete"]
    );
    let slow = plain(&[("termination-delay", "1h")], "Always");
    let hurried = [(5000, deleted(slow.clone(), 30)), (6000, deleted(slow.clone(), 1))];
    assert_eq!(run_pod(&slow, &hurried, 1000).last().unwrap(), "7 delete");
}

#[test]
fn deletion_of_an_unstarted_or_terminated_pod_is_immediate() {
    let pod = plain(&[("never-start", "true")], "Always");
    let written = run_pod(&pod, &[(5000, deleted(pod.clone(), 30))], 1000);
    assert_eq!(written[1..], ["5 Failed waiting ContainerCreating", "5 delete"]);
    let pod = plain(&[], "Never");
    let written = run_pod(&pod, &[(5000, deleted(pod.clone(), 30))], 1000);
    assert_eq!(written[1..], ["2.2 Succeeded terminated 0", "5 delete"]);
}

#[test]
fn active_deadline_fails_the_pod() {
    let mut pod = plain(&[], "Always");
    pod["spec"]["activeDeadlineSeconds"] = json!(3);
    assert_eq!(
        run_pod(&pod, &[], 1000),
        ["0.2 Running running ready", "3 Failed terminated 137 DeadlineExceeded"]
    );
}

#[test]
fn init_containers_run_in_order_and_sidecars_keep_running() {
    let mut value = plain(&[("init-run-for", "2s")], "Always");
    value["spec"]["initContainers"] = json!([
        {"name": "one", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}, {"name": "two", "image": "i"},
    ]);
    assert_eq!(
        run_pod(&value, &[], 1000),
        [
            "0.2 Pending waiting PodInitializing",
            "2.2 Pending waiting PodInitializing",
            "4.2 Running running ready"
        ]
    );
    let mut lifecycle =
        PodLifecycle::of(&pod(&value), &pod_defaults(), false, &mut fastrand::Rng::with_seed(1), START);
    let states = |lifecycle: &PodLifecycle| -> Vec<String> {
        let status = patch(lifecycle)["status"].clone();
        let each = status["initContainerStatuses"].as_array().unwrap().iter();
        each.map(|one| one["state"].as_object().unwrap().keys().next().unwrap().clone()).collect()
    };
    for (at, wanted) in [
        (0, ["waiting", "waiting", "waiting"]),
        (300, ["running", "waiting", "waiting"]),
        (2300, ["terminated", "running", "running"]),
        (4400, ["terminated", "running", "terminated"]),
    ] {
        lifecycle.advance(&pod_defaults(), after(START, Duration::from_millis(at)));
        assert_eq!(states(&lifecycle), wanted, "{at} ms");
    }
}

#[test]
fn lifecycle_continues_from_the_reported_status() {
    let mut value = plain(&[("ready-after", "100s")], "Always");
    let since = "1969-12-31T23:59:00Z";
    value["status"] = json!({
        "phase": "Running", "startTime": since, "podIP": "10.128.0.7",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
                       {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": since},
                       {"type": "Initialized", "status": "True", "lastTransitionTime": since}],
        "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"running": {"startedAt": since}}}],
    });
    // It has been running for a minute: nothing is written until it is ready.
    assert_eq!(run_pod(&value, &[], 1000), ["40 Running running ready restarts=2"]);

    value["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    value["status"]["containerStatuses"][0]["lastState"] =
        json!({"terminated": {"exitCode": 1, "startedAt": since, "finishedAt": "1969-12-31T23:59:50Z"}});
    assert_eq!(run_pod(&value, &[], 60), ["10 Running running restarts=3"]);

    value["status"]["phase"] = json!("Succeeded");
    assert_eq!(run_pod(&value, &[], 1000), [""; 0]);
}

#[test]
fn terminal_phase_set_by_another_client_is_kept() {
    let value = plain(&[], "Always");
    let mut terminated_reason = value.clone();
    terminated_reason["status"] = json!({"phase": "Failed", "reason": "NodeShutdown"});
    assert_eq!(run_pod(&value, &[(5000, terminated_reason)], 1000), ["0.2 Running running ready"]);
}

#[test]
fn overwritten_conditions_are_restored_but_own_writes_are_ignored() {
    let value = plain(&[], "Always");
    let update = |version: &str, ready: &str| {
        let mut update = value.clone();
        update["metadata"]["resourceVersion"] = json!(version);
        update["status"] = json!({"phase": "Running", "conditions": [
            {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": ready}]});
        update
    };
    let running = "0.2 Running running ready";
    assert_eq!(run_pod(&value, &[(1000, update("9", "False"))], 60), [running], "older than the own write");
    assert_eq!(run_pod(&value, &[(1000, update("10", "True"))], 60), [running], "our write");
    assert_eq!(
        run_pod(&value, &[(1000, update("11", "False"))], 60),
        [running, "1 Running running ready"],
        "written by another client"
    );
}

#[test]
fn readiness_waits_for_readiness_gates() {
    let mut value = plain(&[], "Always");
    value["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    let mut open = value.clone();
    open["status"] = json!({"conditions": [{"type": "example.com/open", "status": "True"}]});
    assert_eq!(run_pod(&value, &[(3000, open)], 60), ["0.2 Running running", "3 Running running ready"]);
}

#[test]
fn annotations_may_change_while_the_pod_runs() {
    let value = plain(&[], "Always");
    let written =
        run_pod(&value, &[(3000, plain(&[("ready", "false")], "Always")), (5000, value.clone())], 60);
    assert_eq!(written, ["0.2 Running running ready", "3 Running running", "5 Running running ready"]);
}

#[test]
fn status_matches_a_kubelets_status() {
    let value = plain(&[], "Always");
    let mut lifecycle =
        PodLifecycle::of(&pod(&value), &pod_defaults(), false, &mut fastrand::Rng::with_seed(1), START);
    lifecycle.advance(&pod_defaults(), after(START, Duration::from_secs(1)));
    let since = "1970-01-01T00:00:01Z";
    let condition = |name: &str, since: &str| json!({"type": name, "status": "True", "observedGeneration": 0, "lastProbeTime": null, "lastTransitionTime": since});
    let start = "1970-01-01T00:00:00Z";
    assert_eq!(
        patch(&lifecycle),
        json!({"metadata": {"uid": "u"}, "status": {
            "observedGeneration": 0,
            "phase": "Running",
            "startTime": start,
            "hostIP": "10.0.0.1",
            "hostIPs": [{"ip": "10.0.0.1"}],
            "podIP": "10.128.0.1",
            "podIPs": [{"ip": "10.128.0.1"}],
            "conditions": [
                condition("PodScheduled", start),
                condition("PodReadyToStartContainers", since),
                condition("Initialized", start),
                condition("ContainersReady", since),
                condition("Ready", since),
            ],
            "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "hollow://i", "containerID": "hollow://u/c/0",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": since}}, "lastState": {},
            }],
        }})
    );
}

/// A Job must not count a pod that was deleted while it ran as succeeded.
#[test]
fn batch_pod_that_is_deleted_while_it_runs_can_exit_with_the_code_of_sigterm() {
    let defaults = PodDefaults { batch_killed_code: 143, ..pod_defaults() };
    for (policy, annotations, wanted) in [
        ("Never", &[("run-for", "30s")][..], "Failed terminated 143"),
        ("Always", &[][..], "Succeeded terminated 0"),
    ] {
        let first = plain(annotations, policy);
        let mut lifecycle =
            PodLifecycle::of(&pod(&first), &defaults, false, &mut fastrand::Rng::with_seed(1), START);
        lifecycle.advance(&defaults, after(START, Duration::from_secs(1)));
        assert!(lifecycle.is_running());
        lifecycle.observe(&pod(&deleted(first, 30)), &defaults, after(START, Duration::from_secs(2)));
        let end = after(START, Duration::from_secs(3));
        lifecycle.advance(&defaults, end);
        let status = describe(&lifecycle, PodWrite::Status, end);
        assert!(status.contains(wanted), "{policy}: {status}");
    }
}
