//! Table cells of pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::text;

fn list<'a>(pod: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The row condition of a finished pod.
pub(super) fn end(pod: &Value) -> Option<Value> {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str)?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": phase, "message": message}))
}

/// Whether the init container is a sidecar (restartPolicy Always).
fn is_sidecar(pod: &Value, name: &Value) -> bool {
    list(pod, "/spec/initContainers").any(|c| c["name"] == *name && c["restartPolicy"] == "Always")
}

pub(super) fn ready(pod: &Value, _: Timestamp) -> Value {
    let sidecars = list(pod, "/spec/initContainers").filter(|c| c["restartPolicy"] == "Always").count();
    let all = list(pod, "/spec/containers").count() + sidecars;
    let ready = list(pod, "/status/containerStatuses")
        .filter(|c| c["ready"] == true && c.pointer("/state/running").is_some())
        .count();
    let started = list(pod, "/status/initContainerStatuses")
        .filter(|c| is_sidecar(pod, &c["name"]) && c["ready"] == true)
        .count();
    json!(format!("{}/{all}", ready + started))
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let statuses = || {
        list(pod, "/status/containerStatuses")
            .chain(list(pod, "/status/initContainerStatuses").filter(|c| is_sidecar(pod, &c["name"])))
    };
    let count: i64 = statuses().filter_map(|c| c["restartCount"].as_i64()).sum();
    let last = statuses()
        .filter_map(|c| c.pointer("/lastState/terminated/finishedAt")?.as_str()?.parse::<Timestamp>().ok())
        .max();
    json!(match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", text::age(&last.to_string(), now)),
        _ => count.to_string(),
    })
}

pub(super) fn gates(pod: &Value, _: Timestamp) -> Value {
    let gates: Vec<&Value> = list(pod, "/spec/readinessGates").collect();
    if gates.is_empty() {
        return json!("<none>");
    }
    let holds = |gate: &&&Value| {
        list(pod, "/status/conditions").any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    json!(format!("{}/{}", gates.iter().filter(holds).count(), gates.len()))
}

/// The STATUS column.
pub(super) fn status(pod: &Value, _: Timestamp) -> Value {
    let word = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let mut reason = word("/status/phase").to_owned();
    if !word("/status/reason").is_empty() {
        reason = word("/status/reason").to_owned();
    }
    let gated = list(pod, "/status/conditions")
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
    if gated {
        reason = "SchedulingGated".to_owned();
    }
    match initialising(pod) {
        Some(found) => reason = found,
        None => reason = running(pod, reason),
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if word("/status/reason") == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(word("/status/phase"), "Succeeded" | "Failed") {
            reason = "Terminating".to_owned();
        }
    }
    json!(reason)
}

fn initialising(pod: &Value) -> Option<String> {
    let all = list(pod, "/spec/initContainers").count();
    for (at, container) in list(pod, "/status/initContainerStatuses").enumerate() {
        let code = container.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
        if code == Some(0) || (is_sidecar(pod, &container["name"]) && container["started"] == true) {
            continue;
        }
        if let Some(terminated) = container.pointer("/state/terminated") {
            return Some(format!("Init:{}", ended(terminated)));
        }
        let waiting = container.pointer("/state/waiting/reason").and_then(Value::as_str);
        return Some(match waiting.filter(|why| !why.is_empty() && *why != "PodInitializing") {
            Some(why) => format!("Init:{why}"),
            None => format!("Init:{at}/{all}"),
        });
    }
    None
}

fn running(pod: &Value, mut reason: String) -> String {
    let mut any_running = false;
    let statuses: Vec<&Value> = list(pod, "/status/containerStatuses").collect();
    for container in statuses.into_iter().rev() {
        let why = container.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        if !why.is_empty() {
            reason = why.to_owned();
        } else if let Some(terminated) = container.pointer("/state/terminated") {
            reason = ended(terminated);
        } else if container["ready"] == true && container.pointer("/state/running").is_some() {
            any_running = true;
        }
    }
    if reason == "Completed" && any_running {
        let ready = list(pod, "/status/conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
        reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
    reason
}

fn ended(terminated: &Value) -> String {
    match terminated["reason"].as_str().filter(|why| !why.is_empty()) {
        Some(why) => why.to_owned(),
        None => match terminated["signal"].as_i64().filter(|signal| *signal != 0) {
            Some(signal) => format!("Signal:{signal}"),
            None => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(pod: &Value) -> Value {
        status(pod, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn pod_status_column() {
        assert_eq!(word(&json!({"status": {"phase": "Pending"}})), "Pending");
        let waiting = json!({"status": {"phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        assert_eq!(word(&waiting), "ContainerCreating");
        let failed = json!({"status": {"phase": "Failed",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}});
        assert_eq!(word(&failed), "ExitCode:3");
        let terminating = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}});
        assert_eq!(word(&terminating), "Terminating");
        let init = json!({"spec": {"initContainers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Pending",
            "initContainerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}},
                {"name": "b", "state": {"running": {}}}]}});
        assert_eq!(word(&init), "Init:1/2");
    }
}
