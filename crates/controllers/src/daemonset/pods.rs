//! The body of the pod of a node, and whether a pod is updated to the current template.

use keleustes_objects::{DaemonSet, NO_EXECUTE, NO_SCHEDULE, Pod, Toleration, taint_keys};
use keleustes_plan::{OnFailure, Write};
use serde_json::{Map, Value, json};

use crate::workloads::pod_creation::pod_from_template;
use crate::workloads::pod_writes;

/// The label of a pod or revision with the hash of its template.
pub(super) const REVISION_HASH: &str = "controller-revision-hash";
/// The label with the DaemonSet's template generation at the creation of a pod.
const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The tolerations that every daemon pod gets.
fn daemon_tolerations(host_network: bool) -> impl Iterator<Item = Toleration> {
    let always = [
        (taint_keys::NOT_READY, NO_EXECUTE),
        (taint_keys::UNREACHABLE, NO_EXECUTE),
        (taint_keys::DISK_PRESSURE, NO_SCHEDULE),
        (taint_keys::MEMORY_PRESSURE, NO_SCHEDULE),
        (taint_keys::PID_PRESSURE, NO_SCHEDULE),
        (taint_keys::UNSCHEDULABLE, NO_SCHEDULE),
    ];
    let network = host_network.then_some((taint_keys::NETWORK_UNAVAILABLE, NO_SCHEDULE));
    always.into_iter().chain(network).map(|(key, effect)| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        effect: effect.into(),
        ..Toleration::default()
    })
}

/// The tolerations of the pods of a DaemonSet: those of the template and those of every daemon pod.
pub(super) fn tolerations(of_template: &[Toleration], host_network: bool) -> Vec<Toleration> {
    of_template.iter().cloned().chain(daemon_tolerations(host_network)).collect()
}

/// Adds the tolerations to the template's JSON. An equal toleration, apart from tolerationSeconds, is
/// replaced.
fn add_tolerations(spec: &mut Value) {
    let host_network = spec["hostNetwork"] == true;
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for added in daemon_tolerations(host_network) {
        let added = json!(added);
        let value_of =
            |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
        let same = |toleration: &&mut Value| {
            let mut fields = ["key", "effect", "operator", "value"].into_iter();
            fields.all(|field| value_of(toleration, field) == value_of(&added, field))
        };
        match all.iter_mut().find(same) {
            Some(existing) => *existing = added,
            None => all.push(added),
        }
    }
    spec["tolerations"] = json!(all);
}

/// The body of a DaemonSet's pods, without the node affinity.
pub(super) fn pod_body(set: &DaemonSet, hash: &str) -> Result<Value, &'static str> {
    let mut template = set.spec.template.json();
    let labels = &mut template.entry("metadata").or_insert_with(|| json!({}))["labels"];
    labels[REVISION_HASH] = json!(hash);
    if let Some(generation) = set.template_generation() {
        labels[TEMPLATE_GENERATION] = json!(generation.to_string());
    }
    let mut body = pod_from_template::<DaemonSet>(&template, &set.meta)?;
    add_tolerations(&mut body["spec"]);
    Ok(body)
}

/// Creates the pod of a node. The required node affinity makes the scheduler bind it to that node.
pub(super) fn create_pod(set: &DaemonSet, body: &Value, node: &str) -> Write {
    let mut body = body.clone();
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let affinity = body["spec"].as_object_mut().map(|spec| {
        spec.entry("affinity").and_modify(null_to_object).or_insert_with(|| Value::Object(Map::new()))
    });
    if let Some(affinity) = affinity {
        if affinity["nodeAffinity"].is_null() {
            affinity["nodeAffinity"] = json!({});
        }
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [term]});
    }
    pod_writes::create(set, body, "the node has no pod of the DaemonSet")
        .on_failure(OnFailure::ContinueAndRetry)
}

fn null_to_object(value: &mut Value) {
    if value.is_null() {
        *value = json!({});
    }
}

pub(super) fn has_hash(pod: &Pod, hash: &str) -> bool {
    pod.meta.labels.value(REVISION_HASH).is_some_and(|label| *label == *hash)
}

/// Whether a pod is updated: by its revision hash, or by its template generation.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let generation = pod.meta.labels.value(TEMPLATE_GENERATION);
    let generation = generation.and_then(|generation| generation.parse::<i64>().ok());
    has_hash(pod, hash) || (generation.is_some() && generation == set.template_generation())
}
