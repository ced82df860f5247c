//! Compiles `spec.scheduling` of a Job into a PodGroupTemplate, and a template into the spec of a PodGroup.

use keleustes_objects::{Job, Workload};
use serde_json::{Map, Value, json};

/// Whether the pod template names a PodGroup of the user.
pub(super) fn names_own_group(job: &Job) -> bool {
    pod_spec(job).get("schedulingGroup").is_some_and(|group| !group.is_null())
}

fn pod_spec(job: &Job) -> Map<String, Value> {
    match job.spec.template.json().remove("spec") {
        Some(Value::Object(spec)) => spec,
        _ => Map::new(),
    }
}

/// The only template of a Job's Workload.
pub(super) fn template(job: &Job) -> Value {
    let scheduling = job.spec.scheduling.as_deref().unwrap_or(&Value::Null);
    let mut template = json!({
        "name": format!("{}-pgt-0", job.meta.key.name),
        "schedulingPolicy": policy(job, &scheduling["schedulingPolicy"]),
    });
    let topology = &scheduling["schedulingConstraints"]["topology"];
    if has_items(topology) {
        template["schedulingConstraints"] = json!({"topology": topology});
    }
    let mode = &scheduling["disruptionMode"];
    if ["single", "all"].iter().any(|name| mode[name].is_object()) {
        template["disruptionMode"] = mode.clone();
    }
    if has_items(&scheduling["resourceClaims"]) {
        template["resourceClaims"] = scheduling["resourceClaims"].clone();
    }
    if let Some(class) = pod_spec(job).get("priorityClassName").filter(|class| **class != json!("")) {
        template["priorityClassName"] = class.clone();
    }
    template
}

fn has_items(list: &Value) -> bool {
    list.as_array().is_some_and(|items| !items.is_empty())
}

/// A gang without size needs as many pods as run in parallel.
fn policy(job: &Job, policy: &Value) -> Value {
    if !policy["gang"].is_object() {
        return json!({"basic": {}});
    }
    let size = policy["gang"]["minCount"].as_i64().unwrap_or_else(|| i64::from(job.spec.parallelism.max(1)));
    json!({"gang": {"minCount": size}})
}

/// `schedulingPolicy.gang.minCount` of a template; `None` if its policy is another one.
pub(super) fn gang_size(template: &Value) -> Option<i64> {
    let gang = template["schedulingPolicy"]["gang"].as_object()?;
    Some(gang.get("minCount").and_then(Value::as_i64).unwrap_or_default())
}

/// The template of this name; the first one if the name is empty.
pub(super) fn template_named<'a>(workload: &'a Workload, name: &str) -> Option<&'a Value> {
    let mut templates = workload.pod_group_templates.iter();
    if name.is_empty() { templates.next() } else { templates.find(|template| template["name"] == *name) }
}

/// The spec of a PodGroup from a template.
pub(super) fn group_spec(workload: &str, template: &Value) -> Value {
    let mut spec = json!({
        "workloadRef": {"workloadName": workload, "templateName": template["name"]},
        "schedulingPolicy": template["schedulingPolicy"],
    });
    for field in
        ["schedulingConstraints", "resourceClaims", "disruptionMode", "priorityClassName", "priority"]
    {
        if !template[field].is_null() {
            spec[field] = template[field].clone();
        }
    }
    spec
}
