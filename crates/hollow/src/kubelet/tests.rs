//! Whole lives of pods as tables: what is wished for, and every status that is written for it.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::ResourceVersion;
use serde_json::{Value, json};

use super::{Life, Place, PodDefaults, Want};
use crate::clock::{after, since};
use crate::seen::Pod;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn pod_defaults() -> PodDefaults {
    PodDefaults {
        start_delay: Duration::from_millis(200),
        start_spread: Duration::ZERO,
        batch_run_for: Some(Duration::from_secs(2)),
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

/// Plays a life in which others do things at times (in milliseconds); tells every write.
fn play(first: &Value, then: &[(u64, Value)], seconds: u64) -> Vec<String> {
    let end = after(START, Duration::from_secs(seconds));
    let mut now = START;
    let mut chance = fastrand::Rng::with_seed(1);
    let mut life = Life::of(&pod(first), &pod_defaults(), &mut chance, now);
    let mut then = then.iter().map(|(at, seen)| (after(START, Duration::from_millis(*at)), seen)).peekable();
    let mut told = Vec::new();
    loop {
        while let Some(want) = life.want() {
            told.push(tell(&life, want, now));
            life.granted(want);
            life.settled(&ResourceVersion::from("10"));
        }
        let seen_at = then.peek().map(|(at, _)| *at);
        let Some(next) = [seen_at, life.due(&pod_defaults(), now)].into_iter().flatten().min() else { break };
        if next > end {
            break;
        }
        assert!(next > now || seen_at == Some(next), "time does not pass: {told:?}");
        now = next;
        if seen_at == Some(now) {
            let (_, seen) = then.next().unwrap();
            life.observe(&pod(seen), &pod_defaults(), now);
        } else {
            life.advance(&pod_defaults(), now);
        }
    }
    told
}

fn tell(life: &Life, want: Want, now: Timestamp) -> String {
    let seconds = since(now, START).as_secs_f64();
    if want == Want::Delete {
        return format!("{seconds} delete");
    }
    let status = patch(life)["status"].clone();
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

fn patch(life: &Life) -> Value {
    let of = pod(&plain(&[], "Always"));
    let place = Place {
        key: &of.meta.key,
        uid: &of.meta.uid,
        host_ip: Ipv4Addr::new(10, 0, 0, 1),
        pod_ip: Some(Ipv4Addr::new(10, 128, 0, 1)),
    };
    life.patch(&place)
}

fn deleted(mut pod: Value, grace: u32) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:01:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    pod
}

/// Annotations, restart policy, for how many seconds to look, and what is written.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, u64, &'a [&'a str]);

#[test]
fn lives_by_annotation_and_restart_policy() {
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
        // The first restart is at once, later ones wait 10 s, 20 s and so on.
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
        assert_eq!(play(&plain(annotations, policy), &[], *seconds), *wanted, "{annotations:?} {policy}");
    }
}

#[test]
fn a_container_that_ran_long_is_forgiven() {
    let told = play(&plain(&[("crash-after", "11m")], "Always"), &[], 3000);
    assert!(told.iter().all(|line| !line.contains("CrashLoopBackOff")), "{told:?}");
    assert_eq!(told.len(), 5);
}

#[test]
fn the_wait_for_a_restart_has_an_upper_bound() {
    let told = play(&plain(&[("crash-after", "1s")], "Always"), &[], 2000);
    let last: Vec<f64> =
        told.iter().rev().take(3).map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert!((last[0] - last[2] - 301.0).abs() < 1e-6, "{told:?}");
}

#[test]
fn deletion_ends_containers_within_their_grace() {
    let running = "0.2 Running running ready";
    let gone = |delay: &[(&str, &str)], grace| {
        let pod = plain(delay, "Always");
        play(&pod, &[(5000, deleted(pod.clone(), grace))], 1000)
    };
    assert_eq!(gone(&[], 30), [running, "5.1 Succeeded terminated 0", "5.1 delete"]);
    assert_eq!(gone(&[("termination-delay", "4s")], 30), [running, "9 Succeeded terminated 0", "9 delete"]);
    // Who does not end in time is killed.
    assert_eq!(gone(&[("termination-delay", "1h")], 30), [running, "35 Failed terminated 137", "35 delete"]);
    let slow = plain(&[("termination-delay", "1h")], "Always");
    let hurried = [(5000, deleted(slow.clone(), 30)), (6000, deleted(slow.clone(), 1))];
    assert_eq!(play(&slow, &hurried, 1000).last().unwrap(), "7 delete");
}

#[test]
fn deletion_of_a_pod_that_never_started_or_has_ended_waits_for_nothing() {
    let pod = plain(&[("never-start", "true")], "Always");
    let told = play(&pod, &[(5000, deleted(pod.clone(), 30))], 1000);
    assert_eq!(told[1..], ["5 Failed waiting ContainerCreating", "5 delete"]);
    let pod = plain(&[], "Never");
    let told = play(&pod, &[(5000, deleted(pod.clone(), 30))], 1000);
    assert_eq!(told[1..], ["2.2 Succeeded terminated 0", "5 delete"]);
}

#[test]
fn a_deadline_fails_the_pod() {
    let mut pod = plain(&[], "Always");
    pod["spec"]["activeDeadlineSeconds"] = json!(3);
    assert_eq!(
        play(&pod, &[], 1000),
        ["0.2 Running running ready", "3 Failed terminated 137 DeadlineExceeded"]
    );
}

#[test]
fn init_containers_run_in_turn_and_sidecars_stay() {
    let mut value = plain(&[("init-run-for", "2s")], "Always");
    value["spec"]["initContainers"] = json!([
        {"name": "one", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}, {"name": "two", "image": "i"},
    ]);
    assert_eq!(
        play(&value, &[], 1000),
        [
            "0.2 Pending waiting PodInitializing",
            "2.2 Pending waiting PodInitializing",
            "4.2 Running running ready"
        ]
    );
    let mut life = Life::of(&pod(&value), &pod_defaults(), &mut fastrand::Rng::with_seed(1), START);
    let states = |life: &Life| -> Vec<String> {
        let status = patch(life)["status"].clone();
        let each = status["initContainerStatuses"].as_array().unwrap().iter();
        each.map(|one| one["state"].as_object().unwrap().keys().next().unwrap().clone()).collect()
    };
    for (at, wanted) in [
        (0, ["waiting", "waiting", "waiting"]),
        (300, ["running", "waiting", "waiting"]),
        (2300, ["terminated", "running", "running"]),
        (4400, ["terminated", "running", "terminated"]),
    ] {
        life.advance(&pod_defaults(), after(START, Duration::from_millis(at)));
        assert_eq!(states(&life), wanted, "{at} ms");
    }
}

#[test]
fn a_life_is_taken_up_where_its_status_left_it() {
    let mut value = plain(&[("ready-after", "100s")], "Always");
    let since = "1969-12-31T23:59:00Z";
    value["status"] = json!({
        "phase": "Running", "startTime": since, "podIP": "10.128.0.7",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
                       {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": since},
                       {"type": "Initialized", "status": "True", "lastTransitionTime": since}],
        "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"running": {"startedAt": since}}}],
    });
    // It has been running for a minute: nothing is to be written until it is ready.
    assert_eq!(play(&value, &[], 1000), ["40 Running running ready restarts=2"]);

    value["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    value["status"]["containerStatuses"][0]["lastState"] =
        json!({"terminated": {"exitCode": 1, "startedAt": since, "finishedAt": "1969-12-31T23:59:50Z"}});
    assert_eq!(play(&value, &[], 60), ["10 Running running restarts=3"]);

    value["status"]["phase"] = json!("Succeeded");
    assert_eq!(play(&value, &[], 1000), [""; 0]);
}

#[test]
fn who_else_ends_a_pod_has_the_last_word() {
    let value = plain(&[], "Always");
    let mut ended = value.clone();
    ended["status"] = json!({"phase": "Failed", "reason": "NodeShutdown"});
    assert_eq!(play(&value, &[(5000, ended)], 1000), ["0.2 Running running ready"]);
}

#[test]
fn what_others_wrote_over_is_written_again_but_echoes_are_not_answered() {
    let value = plain(&[], "Always");
    let seen = |version: &str, ready: &str| {
        let mut seen = value.clone();
        seen["metadata"]["resourceVersion"] = json!(version);
        seen["status"] = json!({"phase": "Running", "conditions": [
            {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": ready}]});
        seen
    };
    let running = "0.2 Running running ready";
    assert_eq!(play(&value, &[(1000, seen("9", "False"))], 60), [running], "older than our write");
    assert_eq!(play(&value, &[(1000, seen("10", "True"))], 60), [running], "our write");
    assert_eq!(
        play(&value, &[(1000, seen("11", "False"))], 60),
        [running, "1 Running running ready"],
        "somebody else's"
    );
}

#[test]
fn readiness_waits_for_gates() {
    let mut value = plain(&[], "Always");
    value["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    let mut open = value.clone();
    open["status"] = json!({"conditions": [{"type": "example.com/open", "status": "True"}]});
    assert_eq!(play(&value, &[(3000, open)], 60), ["0.2 Running running", "3 Running running ready"]);
}

#[test]
fn annotations_may_change_during_a_life() {
    let value = plain(&[], "Always");
    let told = play(&value, &[(3000, plain(&[("ready", "false")], "Always")), (5000, value.clone())], 60);
    assert_eq!(told, ["0.2 Running running ready", "3 Running running", "5 Running running ready"]);
}

#[test]
fn a_status_says_what_a_kubelet_says() {
    let value = plain(&[], "Always");
    let mut life = Life::of(&pod(&value), &pod_defaults(), &mut fastrand::Rng::with_seed(1), START);
    life.advance(&pod_defaults(), after(START, Duration::from_secs(1)));
    let since = "1970-01-01T00:00:01Z";
    let condition = |name: &str, since: &str| json!({"type": name, "status": "True", "observedGeneration": 0, "lastProbeTime": null, "lastTransitionTime": since});
    let start = "1970-01-01T00:00:00Z";
    assert_eq!(
        patch(&life),
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
