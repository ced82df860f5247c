//! What is wrong with an object, read from the object itself: rules over its JSON, without I/O.

use keleustes_objects::Time;
use serde::Serialize;
use serde_json::Value;

/// One thing that keeps an object from being as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How likely it is the cause of what is seen above it.
    pub weight: Weight,
    /// The text.
    pub text: String,
}

/// How likely a finding is a cause, the least likely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Weight {
    /// A state that passes by itself, such as a delay.
    Passing,
    /// A condition that follows from something else.
    Consequence,
    /// A deletion that has not ended.
    Terminating,
    /// Something that a person or another component must change.
    Blocking,
    /// The API server refuses what a controller wants.
    Refused,
}

/// Conditions that are bad if they are not true.
const WANTED: [&str; 13] = [
    "Ready",
    "Available",
    "Progressing",
    "PodScheduled",
    "Initialized",
    "ContainersReady",
    "AbleToScale",
    "ScalingActive",
    "DisruptionAllowed",
    "Established",
    "ModifyVolume",
    "Accepted",
    "ServiceCIDRReady",
];
/// Conditions that follow from others of the same object.
const DERIVED: [&str; 5] = ["Ready", "Available", "ContainersReady", "Initialized", "Progressing"];
/// Conditions that are bad if they are true.
const UNWANTED: [&str; 18] = [
    "ReplicaFailure",
    "Failed",
    "FailureTarget",
    "Suspended",
    "Denied",
    "DisruptionTarget",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "FileSystemResizePending",
    "ModifyVolumeError",
    "ControllerResizeError",
];

/// Reasons of an autoscaler that is able to scale, and waits with it.
const STABILIZED: [&str; 2] = ["ScaleUpStabilized", "ScaleDownStabilized"];

/// What is wrong with an object, the most important first.
#[must_use]
pub fn findings(object: &Value, now: Time) -> Vec<Finding> {
    let mut found = Vec::new();
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => pod(object, now, &mut found),
        "Node" => node(object, now, &mut found),
        "PersistentVolumeClaim" => claim(object, &mut found),
        "VolumeAttachment" => attachment(object, now, &mut found),
        "PodDisruptionBudget" => disruption_budget(object, &mut found),
        "CertificateSigningRequest" => signing_request(object, &mut found),
        "ResourceQuota" => quota(object, &mut found),
        "Job" | "CronJob" => job(object, &mut found),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" | "ReplicationController" => {
            workload(object, &mut found);
        }
        _ => {}
    }
    deletion(object, now, &mut found);
    conditions(object, &mut found);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found.dedup_by(|later, earlier| later.text == earlier.text);
    found
}

fn push(found: &mut Vec<Finding>, weight: Weight, text: impl Into<String>) {
    found.push(Finding { weight, text: text.into() });
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `: message`, or nothing.
fn with_message(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", message.trim()) }
}

/// How long ago a timestamp was.
fn age(timestamp: &str, now: Time) -> String {
    match timestamp.parse::<jiff::Timestamp>() {
        Ok(then) => duration(now.unix_seconds() - then.as_second()),
        Err(_) => "an unknown time".to_owned(),
    }
}

/// Seconds as kubectl prints ages.
#[must_use]
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 if seconds % 60 == 0 => format!("{}m", seconds / 60),
        120..7200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn deletion(object: &Value, now: Time, found: &mut Vec<Finding>) {
    let since = text(object, "/metadata/deletionTimestamp");
    if since.is_empty() {
        return;
    }
    let since = age(since, now);
    let finalizers: Vec<_> = list(object, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if finalizers.is_empty() && text(object, "/kind") == "Pod" {
        let node = text(object, "/spec/nodeName");
        let at = if node.is_empty() { String::new() } else { format!(" on node {node}") };
        let grace = number(object, "/metadata/deletionGracePeriodSeconds");
        let line =
            format!("terminating for {since}{at} (grace period {grace} s): its kubelet has not removed it");
        return push(found, Weight::Terminating, line);
    }
    for finalizer in finalizers {
        let (weight, who) = match finalizer {
            "foregroundDeletion" => (
                Weight::Terminating,
                "the garbage collector waits for its dependents with blockOwnerDeletion",
            ),
            "orphan" => (Weight::Terminating, "the garbage collector releases its dependents first"),
            "kubernetes.io/pvc-protection" => (Weight::Blocking, "a pod still uses the claim"),
            "kubernetes.io/pv-protection" => (Weight::Blocking, "a claim is still bound to the volume"),
            "batch.kubernetes.io/job-tracking" => {
                (Weight::Terminating, "the Job has not counted the pod yet")
            }
            _ => (Weight::Blocking, "only the component that added it removes it"),
        };
        push(found, weight, format!("terminating for {since}: finalizer {finalizer} is left, {who}"));
    }
}

fn conditions(object: &Value, found: &mut Vec<Finding>) {
    for condition in list(object, "/status/conditions") {
        let (name, status) = (text(condition, "/type"), text(condition, "/status"));
        let is_bad = WANTED.contains(&name) && matches!(status, "False" | "Unknown")
            || UNWANTED.contains(&name) && status == "True";
        let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
        if name == "AbleToScale" && status == "True" && STABILIZED.contains(&reason) {
            let line = format!("the stabilization window keeps its size ({reason}){}", with_message(message));
            push(found, Weight::Passing, line);
        }
        // A node without Ready has a finding of its own.
        if !is_bad || name == "Ready" && text(object, "/kind") == "Node" {
            continue;
        }
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let weight = match name {
            "ScalingActive" | "AbleToScale" | "NamespaceFinalizersRemaining" | "Failed" | "Denied" => {
                Weight::Blocking
            }
            "NamespaceDeletionContentFailure" | "NamespaceDeletionDiscoveryFailure" => Weight::Refused,
            name if name.starts_with("Namespace") => Weight::Terminating,
            name if DERIVED.contains(&name) => Weight::Consequence,
            "ReplicaFailure" => Weight::Blocking,
            _ => Weight::Consequence,
        };
        push(found, weight, format!("{name} is {status}{reason}{}", with_message(message)));
    }
}

fn pod(pod: &Value, now: Time, found: &mut Vec<Finding>) {
    let condition = |name: &str| {
        list(pod, "/status/conditions").iter().find(|condition| text(condition, "/type") == name)
    };
    let gates: Vec<_> = list(pod, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name")).collect();
    let is_pending = matches!(text(pod, "/status/phase"), "" | "Pending");
    let is_terminating = !text(pod, "/metadata/deletionTimestamp").is_empty();
    if text(pod, "/spec/nodeName").is_empty() && !is_terminating && is_pending {
        let waits = age(text(pod, "/metadata/creationTimestamp"), now);
        match condition("PodScheduled").filter(|condition| text(condition, "/status") == "False") {
            Some(refused) => {
                let message = with_message(text(refused, "/message"));
                let reason = text(refused, "/reason");
                push(found, Weight::Blocking, format!("not scheduled for {waits} ({reason}){message}"));
            }
            None if !gates.is_empty() => {
                push(found, Weight::Blocking, format!("held by scheduling gates: {}", gates.join(", ")));
            }
            None => push(found, Weight::Blocking, format!("no scheduler has assigned a node for {waits}")),
        }
    }
    if text(pod, "/status/phase") == "Failed" {
        let (reason, message) = (text(pod, "/status/reason"), text(pod, "/status/message"));
        push(found, Weight::Blocking, format!("failed ({reason}){}", with_message(message)));
    }
    for list_name in ["/status/initContainerStatuses", "/status/containerStatuses"] {
        for container in list(pod, list_name) {
            pod_container(container, found);
        }
    }
}

fn pod_container(container: &Value, found: &mut Vec<Finding>) {
    let name = text(container, "/name");
    let restarts = number(container, "/restartCount");
    let (reason, message) =
        (text(container, "/state/waiting/reason"), text(container, "/state/waiting/message"));
    if !matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
        let line = format!("container {name} waits ({reason}, {restarts} restarts){}", with_message(message));
        push(found, Weight::Blocking, line);
    }
    let code = container.pointer("/state/terminated/exitCode").and_then(Value::as_i64).unwrap_or(0);
    if code != 0 {
        let (reason, message) =
            (text(container, "/state/terminated/reason"), text(container, "/state/terminated/message"));
        let line = format!("container {name} ended with code {code} ({reason}){}", with_message(message));
        push(found, Weight::Blocking, line);
    }
}

fn node(node: &Value, now: Time, found: &mut Vec<Finding>) {
    for condition in list(node, "/status/conditions") {
        let status = text(condition, "/status");
        if text(condition, "/type") == "Ready" && status != "True" {
            let since = age(text(condition, "/lastTransitionTime"), now);
            let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
            let line = format!(
                "the node is lost: Ready is {status} for {since} ({reason}){}",
                with_message(message)
            );
            push(found, Weight::Refused, line);
        }
    }
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        push(found, Weight::Consequence, "cordoned: no new pods are scheduled to it");
    }
}

fn claim(claim: &Value, found: &mut Vec<Finding>) {
    let (phase, class) = (text(claim, "/status/phase"), claim.pointer("/spec/storageClassName"));
    match phase {
        "Bound" => {}
        "Lost" => push(found, Weight::Blocking, "its volume is gone: the claim is Lost"),
        _ => match class.and_then(Value::as_str) {
            None => push(
                found,
                Weight::Blocking,
                "not bound: it names no StorageClass and the cluster has no default one",
            ),
            Some("") => push(
                found,
                Weight::Blocking,
                "not bound: it asks for a volume without a class, and no free PersistentVolume fits",
            ),
            Some(class) => push(
                found,
                Weight::Blocking,
                format!("not bound: StorageClass {class} has not provided a volume"),
            ),
        },
    }
}

/// An attachment has an `attachError` until it succeeds, and a `detachError` only while it is terminating.
fn attachment(attachment: &Value, now: Time, found: &mut Vec<Finding>) {
    let (node, driver) = (text(attachment, "/spec/nodeName"), text(attachment, "/spec/attacher"));
    let volume = match text(attachment, "/spec/source/persistentVolumeName") {
        "" => "the inline volume".to_owned(),
        name => format!("volume {name}"),
    };
    let error = |name: &str| {
        let error = attachment.pointer(&format!("/status/{name}")).filter(|error| error.is_object())?;
        Some(with_message(text(error, "/message")))
    };
    if let Some(message) = error("detachError") {
        let line = format!("driver {driver} cannot detach {volume} from node {node}{message}");
        push(found, Weight::Blocking, line);
    }
    let is_attached = attachment.pointer("/status/attached") == Some(&Value::Bool(true));
    if is_attached || !text(attachment, "/metadata/deletionTimestamp").is_empty() {
        return;
    }
    let waits = age(text(attachment, "/metadata/creationTimestamp"), now);
    let line = match error("attachError") {
        Some(message) => format!("driver {driver} cannot attach {volume} to node {node}{message}"),
        None => format!(
            "{volume} is not attached to node {node} after {waits}: the attacher of driver {driver} has not answered"
        ),
    };
    push(found, Weight::Blocking, line);
}

fn disruption_budget(budget: &Value, found: &mut Vec<Finding>) {
    let status = |name: &str| number(budget, &format!("/status/{name}"));
    let (healthy, desired, expected) =
        (status("currentHealthy"), status("desiredHealthy"), status("expectedPods"));
    if status("disruptionsAllowed") > 0 || budget.pointer("/status/observedGeneration").is_none() {
        return;
    }
    let line = if expected == 0 {
        "allows no evictions: its selector matches no pods".to_owned()
    } else {
        format!(
            "allows no evictions: {healthy} of {expected} pods are healthy and {desired} must stay healthy"
        )
    };
    push(found, Weight::Blocking, line);
}

fn signing_request(request: &Value, found: &mut Vec<Finding>) {
    let has = |name: &str| {
        list(request, "/status/conditions").iter().any(|condition| text(condition, "/type") == name)
    };
    let signer = text(request, "/spec/signerName");
    if !has("Approved") && !has("Denied") {
        let line = format!(
            "it is neither approved nor denied: `kubectl certificate approve` does (signer {signer})"
        );
        push(found, Weight::Blocking, line);
    } else if has("Approved") && !has("Failed") && text(request, "/status/certificate").is_empty() {
        push(found, Weight::Blocking, format!("approved, but signer {signer} has not issued a certificate"));
    }
}

fn quota(quota: &Value, found: &mut Vec<Finding>) {
    let (Some(hard), Some(used)) = (
        quota.pointer("/status/hard").and_then(Value::as_object),
        quota.pointer("/status/used").and_then(Value::as_object),
    ) else {
        return;
    };
    for (name, limit) in hard {
        if used.get(name) == Some(limit) && limit.as_str() != Some("0") {
            let limit = limit.as_str().unwrap_or_default();
            push(found, Weight::Blocking, format!("exhausted: {name} is at its limit of {limit}"));
        }
    }
}

fn job(job: &Value, found: &mut Vec<Finding>) {
    if job.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        push(found, Weight::Blocking, "suspended: spec.suspend is true");
    }
    let (failed, limit) =
        (number(job, "/status/failed"), job.pointer("/spec/backoffLimit").and_then(Value::as_i64));
    let finished = list(job, "/status/conditions").iter().any(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    });
    if failed > 0 && !finished {
        let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let line = format!(
            "{failed} pods failed (backoffLimit {limit}): each failure doubles the delay of the next pod"
        );
        push(found, Weight::Consequence, line);
    }
}

fn workload(workload: &Value, found: &mut Vec<Finding>) {
    if workload.pointer("/spec/paused") == Some(&Value::Bool(true)) {
        push(found, Weight::Blocking, "paused: `kubectl rollout resume` continues the rollout");
    }
    let (observed, generation) =
        (number(workload, "/status/observedGeneration"), number(workload, "/metadata/generation"));
    if observed < generation {
        let line = format!("generation {generation} is not observed yet, status is of generation {observed}");
        push(found, Weight::Consequence, line);
    }
    let wanted = workload.pointer("/spec/replicas").and_then(Value::as_i64);
    let ready = number(workload, "/status/readyReplicas");
    if let Some(wanted) = wanted.filter(|wanted| *wanted > ready) {
        push(found, Weight::Passing, format!("{ready} of {wanted} replicas are ready"));
    }
}

#[cfg(test)]
mod tests;
