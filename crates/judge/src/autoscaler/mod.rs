//! Compares what autoscalers do here and in the original: requests, events, sizes and status.
//!
//! The original answers through a Go program that is linked from its own package, with canned responses and a clock that
//! is set; here the controller runs in a rehearsal.

pub mod generate;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use keleustes_controllers::horizontal_pod_autoscaler::{HorizontalPodAutoscalerOptions, controller};
use keleustes_objects::{
    ApiError, ApiResource, DiscoveredResources, ErrorReason, GroupVersion, HorizontalPodAutoscaler, Key, Pod,
    Resource, Subresource,
};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::original::Original;

/// The clock of a rehearsal, in milliseconds since 1970.
pub const START: i64 = 1_800_000_000_000;

/// An autoscaler and what happens to it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Situation {
    /// The options of the controller.
    pub options: Options,
    /// The served version of the custom metrics API; empty for none.
    pub custom_version: String,
    /// The reconciles.
    pub steps: Vec<Step>,
}

/// The options of the controller; durations are in seconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Options {
    pub tolerance: f64,
    pub downscale_stabilization: u64,
    pub cpu_initialization_period: u64,
    pub initial_readiness_delay: u64,
    pub scale_to_zero: bool,
    pub generation: bool,
    pub pod_level_resources: bool,
}

/// One reconcile.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Milliseconds since 1970.
    pub wall: i64,
    /// The autoscaler, without a status after the first step.
    pub autoscaler: Value,
    /// The selectors of other autoscalers by name.
    pub others: BTreeMap<String, String>,
    /// The pods.
    pub pods: Vec<Value>,
    /// The responses to GETs by path.
    pub responses: BTreeMap<String, Response>,
    /// The codes of the first writes of the Scale.
    pub scale_writes: Vec<u16>,
}

/// A response of the API server.
#[derive(Clone, Debug, Serialize)]
pub struct Response {
    /// The status code.
    pub code: u16,
    /// The body.
    pub body: Value,
}

/// What a manager does in one step.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Outcome {
    #[serde(deserialize_with = "null_is_default")]
    requests: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    events: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    sizes: Vec<i64>,
    status: Option<Value>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    error: String,
    #[serde(deserialize_with = "null_is_default")]
    steps: Vec<Outcome>,
}

fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// What a run compared.
#[derive(Debug, Default)]
pub struct Report {
    /// How many situations were compared.
    pub situations: usize,
    /// How many reconciles were compared.
    pub steps: usize,
    /// How many of them changed a size.
    pub rescales: usize,
    /// How many of them failed.
    pub errors: usize,
    /// One text per difference.
    pub differences: Vec<String>,
}

/// The answers of the original.
fn ask(program: &Path, situations: &[Situation]) -> Result<Vec<Answer>> {
    let mut command = Command::new(program);
    command.env("TZ", "UTC").stderr(Stdio::null());
    Original::start(&mut command)?.ask_all(situations, situations.len())
}

/// Compares the situations.
///
/// # Errors
/// If the Go program fails.
pub fn compare(program: &Path, situations: &[Situation]) -> Result<Report> {
    let answers = ask(program, situations)?;
    let mut report = Report { situations: situations.len(), ..Report::default() };
    for (number, (situation, answer)) in situations.iter().zip(answers).enumerate() {
        ensure!(answer.error.is_empty(), "situation {number}: {}", answer.error);
        let ours = reconcile(situation);
        let mut last = [Value::Null, Value::Null];
        for (at, (here, theirs)) in ours.iter().zip(&answer.steps).enumerate() {
            report.steps += 1;
            report.rescales += usize::from(!here.sizes.is_empty());
            report.errors += usize::from(!here.error.is_empty());
            let written = [changed(&mut last[0], here), changed(&mut last[1], theirs)];
            if let Some(difference) = difference(here, theirs, written) {
                let step = serde_json::to_string(&situation.steps[at])?;
                report.differences.push(format!("situation {number} step {at}: {difference}\n{step}"));
                break;
            }
        }
    }
    Ok(report)
}

/// The written status, unless it says what the last one said: the original writes one that names autoscalers in
/// another order.
fn changed(last: &mut Value, outcome: &Outcome) -> Value {
    let status = normalized(outcome.status.as_ref());
    if status.is_null() || status == *last {
        return Value::Null;
    }
    last.clone_from(&status);
    status
}

fn difference(here: &Outcome, theirs: &Outcome, statuses: [Value; 2]) -> Option<String> {
    let [status_here, status_there] = statuses;
    let parts = [
        ("requests", json!(sorted(&here.requests)), json!(sorted(&theirs.requests))),
        ("events", json!(ordered_names(&here.events)), json!(ordered_names(&theirs.events))),
        ("sizes", json!(here.sizes), json!(theirs.sizes)),
        ("status", status_here, status_there),
        ("failed", json!(!here.error.is_empty()), json!(!theirs.error.is_empty())),
    ];
    let (name, here, theirs) = parts.into_iter().find(|(_, here, theirs)| here != theirs)?;
    Some(format!("{name} are\n{here}\nand must be\n{theirs}"))
}

/// The original reads the Scale once per version and the metrics in the same order; only what is asked for matters.
fn sorted(requests: &[String]) -> Vec<String> {
    let mut requests = requests.to_vec();
    requests.sort();
    requests.dedup();
    requests
}

/// The original names overlapping autoscalers in any order, and any one of several pods that lack a request or container.
fn ordered_names(events: &[String]) -> Vec<String> {
    events.iter().map(|event| ordered(event)).collect()
}

fn ordered(text: &str) -> String {
    let text = &any_pod(text);
    let Some((before, names)) = text.split_once("(e.g. [") else { return text.to_owned() };
    let (names, after) = names.split_once("])").unwrap_or((names, ""));
    let mut names: Vec<_> = names.split(' ').collect();
    names.sort_unstable();
    format!("{before}(e.g. [{}]){after}", names.join(" "))
}

/// The message of a pod that lacks a request or a container, without what it lacks.
fn any_pod(text: &str) -> String {
    let faulty = text.split_once(" utilization: ").and_then(|(before, fault)| {
        let (_, pod) = fault.split_once(" Pod web-")?;
        let after = pod.trim_start_matches(|digit: char| digit.is_ascii_digit());
        Some(format!("{before} utilization of some pod{after}"))
    });
    faulty.unwrap_or_else(|| text.to_owned())
}

/// Without what is unset.
fn normalized(status: Option<&Value>) -> Value {
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(_, value)| !value.is_null());
                Value::Object(
                    kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>(),
                )
            }
            Value::Array(list) => list.iter().map(without_nulls).collect(),
            Value::String(text) => Value::String(ordered(text)),
            other => other.clone(),
        }
    }
    let mut status = status.map_or(Value::Null, without_nulls);
    if let Value::Object(map) = &mut status {
        map.retain(|key, value| !(key == "currentReplicas" && *value == 0) && *value != json!([]));
    }
    status
}

/// What this program does in each step.
fn reconcile(situation: &Situation) -> Vec<Outcome> {
    let Options { tolerance, scale_to_zero, generation, pod_level_resources, .. } = situation.options;
    let options = HorizontalPodAutoscalerOptions {
        tolerance,
        scale_to_zero,
        generation,
        pod_level_resources,
        downscale_stabilization: Duration::from_secs(situation.options.downscale_stabilization),
        cpu_initialization_period: Duration::from_secs(situation.options.cpu_initialization_period),
        initial_readiness_delay: Duration::from_secs(situation.options.initial_readiness_delay),
        ..HorizontalPodAutoscalerOptions::default()
    };
    let a_loop = controller(&options).loops.remove(0);
    let (mut last, mut outcomes, mut others) = (None, Vec::new(), BTreeMap::new());
    for step in &situation.steps {
        let outcome = reconcile_step(&a_loop, step, &situation.custom_version, last.as_ref(), &mut others);
        last = outcome.status.clone().map(stored).or(last);
        outcomes.push(outcome);
    }
    outcomes
}

/// A status as API servers store it: a whole number of a quantity has the largest suffix.
fn stored(mut status: Value) -> Value {
    let metrics = status.get_mut("currentMetrics").and_then(Value::as_array_mut);
    let sources = metrics.into_iter().flatten().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    for current in sources.filter_map(|source| source.get_mut("current")?.as_object_mut()) {
        for value in current.values_mut() {
            let Some(mut digits) =
                value.as_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            else {
                continue;
            };
            let mut suffixes = ["", "k", "M", "G", "T"].iter();
            while let Some(shorter) = digits.strip_suffix("000").filter(|_| suffixes.len() > 1) {
                digits = shorter;
                suffixes.next();
            }
            *value = json!(format!("{digits}{}", suffixes.next().unwrap_or(&"")));
        }
    }
    status
}

fn reconcile_step(
    a_loop: &Loop,
    step: &Step,
    custom_version: &str,
    last: Option<&Value>,
    others: &mut BTreeMap<String, String>,
) -> Outcome {
    let elapsed = u64::try_from(step.wall - START).unwrap_or_default();
    let mut cluster = RehearsalCluster::of(a_loop)
        .with_discovery(Ok(discovery(custom_version)))
        .with_clock_advanced(Duration::from_millis(elapsed));
    for pod in &step.pods {
        cluster = cluster.with::<Pod>(pod.clone());
    }
    for (path, response) in &step.responses {
        // The rehearsal's paths are encoded.
        let path = path.replace('*', "%2A");
        cluster = if response.code == 200 {
            cluster.with_response(&path, response.body.clone())
        } else {
            let message = response.body["message"].as_str().unwrap_or_default();
            let reason = response.body["reason"].as_str().unwrap_or_default();
            let error = ApiError::from_status(response.code, reason, message, [], 0);
            let verb = if path.contains("/external.") || path.ends_with("/pods") { "list" } else { "get" };
            cluster.failing_at(verb, &path, error, None)
        };
    }
    let refused = step.scale_writes.iter().take_while(|code| **code != 200).count();
    if let Some(code) = step.scale_writes.first().filter(|code| **code != 200) {
        let reason = if *code == 409 { ErrorReason::Conflict } else { ErrorReason::Forbidden };
        let error = ApiError { code: *code, ..ApiError::transport(reason, "refused") };
        let path = "/apis/apps/v1/namespaces/shop/deployments/web";
        cluster = cluster.failing_at("update", path, error, u32::try_from(refused).ok());
    }
    let mut autoscaler = step.autoscaler.clone();
    if let Some(last) = last {
        autoscaler["status"] = last.clone();
    }
    let key = Key::namespaced("shop", "web");
    cluster.put::<HorizontalPodAutoscaler>(a_loop, autoscaler);
    store_others(&mut cluster, a_loop, step, others);
    outcome_of(&cluster.reconcile(a_loop, key))
}

/// Lets other autoscalers store their selectors, by a reconcile of their own.
fn store_others(
    cluster: &mut RehearsalCluster,
    a_loop: &Loop,
    step: &Step,
    known: &mut BTreeMap<String, String>,
) {
    for (name, selector) in &step.others {
        if known.insert(name.clone(), selector.clone()).is_some() {
            continue;
        }
        let path = format!("/apis/apps/v1/namespaces/shop/deployments/{name}/scale");
        let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": name},
            "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": selector}});
        let other = json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 1,
                "metrics": [{"type": "Later"}]}});
        *cluster = std::mem::take(cluster).with_response(&path, scale);
        cluster.put::<HorizontalPodAutoscaler>(a_loop, other);
        cluster.reconcile(a_loop, Key::namespaced("shop", name.as_str()));
    }
}

/// Reads a transcript.
fn outcome_of(transcript: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let body = |line: &str| -> Option<Value> {
        let (_, body) = line.split_once(": {")?;
        serde_json::from_str(&format!("{{{body}")).ok()
    };
    for line in transcript.lines() {
        if let Some(path) = line.strip_prefix("get /").or_else(|| line.strip_prefix("list /")) {
            outcome.requests.push(format!("/{}", path.replace("%2A", "*")));
        } else if let Some(event) = line.strip_prefix("event ") {
            outcome.events.push(event.replace(" on HorizontalPodAutoscaler shop/web uid=u1", ""));
        } else if line.starts_with("put deployments.apps/scale") {
            outcome.sizes.push(body(line).and_then(|body| body["spec"]["replicas"].as_i64()).unwrap_or(-1));
        } else if line.starts_with("put horizontalpodautoscalers") {
            outcome.status = body(line).map(|body| body["status"].clone());
        } else if let Some(error) = line.strip_prefix("retry: ") {
            outcome.error = error.to_owned();
        }
    }
    // A refused write has no body in the transcript; the same size is sent again.
    let known = outcome.sizes.iter().copied().find(|size| *size >= 0);
    let announced = outcome.events.iter().find_map(|event| {
        event.split_once("FailedRescale: New size: ")?.1.split(';').next()?.parse::<i64>().ok()
    });
    outcome.sizes = outcome.sizes.iter().map(|_| known.or(announced).unwrap_or(-1)).collect();
    outcome
}

fn discovery(custom_version: &str) -> DiscoveredResources {
    let api = |group, version, plural, kind, namespaced| ApiResource {
        resource: Resource { namespaced, ..Resource::namespaced(group, version, plural, kind) },
        preferred: true,
        singular: String::new(),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: vec![Subresource { name: "scale".to_owned(), ..Subresource::default() }],
    };
    let custom = GroupVersion {
        group: "custom.metrics.k8s.io".to_owned(),
        version: custom_version.to_owned(),
        preferred: true,
    };
    DiscoveredResources {
        resources: vec![
            api("", "v1", "pods", "Pod", true),
            api("", "v1", "services", "Service", true),
            api("", "v1", "namespaces", "Namespace", false),
            api("apps", "v1", "deployments", "Deployment", true),
            api("example.com", "v1", "widgets", "Widget", true),
        ],
        versions: if custom_version.is_empty() { Vec::new() } else { vec![custom] },
        ..DiscoveredResources::default()
    }
}
