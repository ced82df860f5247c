//! PrepareForCreate and PrepareForUpdate: status, generation, and the fields a write may not change.

use jiff::Timestamp;
use keleustes_objects::template;
use serde_json::{Value, json};

use super::clusterip::drop_by_type;
use super::fields::ResetFields;
use super::metadata::{meta, meta_mut, meta_str, set_meta};
use super::resources::{Resource, StatusField, Strategy};
use super::seconds;
use super::users::{User, set_requester};

/// The annotation with the template generation of a DaemonSet.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Built-in kinds whose status updates do not change labels, annotations, ownerReferences or finalizers.
const STATUS_WITHOUT_METADATA: &[&str] = &[
    "ValidatingAdmissionPolicy",
    "PodCertificateRequest",
    "ServiceCIDR",
    "DeviceTaintRule",
    "ResourceClaim",
    "PodGroup",
    "ResourcePoolStatusRequest",
    "CSINode",
    "VolumeAttachment",
    "StorageVersionMigration",
    "StorageVersion",
    "CustomResourceDefinition",
];

/// Keeps the stored object metadata.
fn keep_metadata(old: &Value, new: &mut Value) {
    for field in OWN_METADATA {
        set_meta(new, field, meta(old, field).cloned());
    }
}

/// Metadata that a status update may not change.
const OWN_METADATA: &[&str] =
    &["labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"];

/// Whether a status update keeps the stored labels, annotations, ownerReferences and finalizers.
pub(crate) fn status_update_keeps_metadata(resource: &Resource) -> bool {
    resource.strategy == Strategy::Custom || STATUS_WITHOUT_METADATA.contains(&resource.kind)
}

/// The fields that a write to this resource or subresource resets.
pub(crate) fn reset_fields(resource: &Resource, subresource: Option<&str>) -> ResetFields {
    match (subresource, resource.strategy) {
        (None, Strategy::CertificateSigningRequest) => &[&["spec"], &["status"]],
        (None, _) if resource.has_status() => &[&["status"]],
        (Some("status"), Strategy::CertificateSigningRequest) => &[&["spec"], &["status", "conditions"]],
        (Some("approval"), _) => &[&["spec"], &["status", "certificate"]],
        (Some("status"), Strategy::Deployment) => &[&["spec"], &["metadata", "labels"]],
        (Some("status"), Strategy::Pod) => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        (Some("status"), Strategy::CustomResourceDefinition) => &[&["spec"]],
        (Some("status"), _) if status_update_keeps_metadata(resource) => &[&["spec"], &["metadata"]],
        (Some("status"), _) => &[&["spec"]],
        (Some("finalize"), _) => &[&["status"]],
        _ => &[],
    }
}

/// Sets the server-side fields of a new object; uid and creationTimestamp are already set.
pub(crate) fn create(resource: &Resource, object: &mut Value, user: &User, now: Timestamp) {
    if resource.status == StatusField::ResetOnCreate {
        remove_field(object, "status");
    }
    if resource.generation {
        set_meta(object, "generation", Some(json!(1)));
    }
    match resource.strategy {
        Strategy::Namespace => {
            let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array).cloned();
            let mut finalizers = finalizers.unwrap_or_default();
            if !finalizers.contains(&json!("kubernetes")) {
                finalizers.push(json!("kubernetes"));
            }
            object["spec"] = json!({ "finalizers": finalizers });
            object["status"] = json!({"phase": "Active"});
        }
        Strategy::Pod => {
            let class = qos_class(object);
            object["status"] = json!({"phase": "Pending", "qosClass": class});
            if object
                .pointer("/spec/schedulingGates")
                .and_then(Value::as_array)
                .is_some_and(|g| !g.is_empty())
            {
                object["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
                    "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": seconds(now)}]);
            }
        }
        Strategy::PersistentVolume => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": seconds(now)});
        }
        Strategy::PersistentVolumeClaim => {
            object["status"] = json!({"phase": "Pending"});
            share_data_source(object);
        }
        Strategy::Lease => drop_election_strategy(None, object),
        Strategy::Job => generate_selector(object),
        Strategy::CustomResourceDefinition => {
            let versions = object.pointer("/spec/versions").and_then(Value::as_array);
            let stored = versions.into_iter().flatten().find(|version| version["storage"] == true);
            object["status"] = json!({"storedVersions": stored.map(|version| [version["name"].clone()])});
        }
        Strategy::DaemonSet => {
            let annotations = meta_mut(object).entry("annotations").or_insert_with(|| json!({}));
            annotations[TEMPLATE_GENERATION] = json!("1");
        }
        Strategy::CertificateSigningRequest => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                set_requester(spec, user);
            }
        }
        // The admission plugin PodGroupProtection.
        Strategy::Plain if resource.kind == "PodGroup" => {
            protect_pod_group(object);
        }
        _ if has_device_taints(resource) => set_taint_times(object, now),
        _ => {}
    }
}

/// Whether objects of the resource contain taints of devices.
fn has_device_taints(resource: &Resource) -> bool {
    matches!(resource.kind, "DeviceTaintRule" | "ResourceSlice")
}

/// Gives taints of devices the current time unless they have one.
fn set_taint_times(object: &mut Value, now: Timestamp) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let set = |taint: &mut Value| {
        if taint.is_object() && taint["timeAdded"].is_null() {
            taint["timeAdded"] = json!(seconds(now));
        }
    };
    spec.get_mut("taint").into_iter().for_each(set);
    for device in spec.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten() {
        device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten().for_each(set);
    }
}

/// The time of a rule's taint is that of its effect, unless the client changes both.
fn update_taint_time(old: &Value, rule: &mut Value, now: Timestamp) {
    let of = |rule: &Value, field: &str| rule.pointer(&format!("/spec/taint/{field}")).cloned();
    if of(old, "effect") != of(rule, "effect")
        && of(old, "timeAdded") == of(rule, "timeAdded")
        && let Some(taint) = rule.pointer_mut("/spec/taint").filter(|taint| taint.is_object())
    {
        taint["timeAdded"] = json!(seconds(now));
    }
}

fn protect_pod_group(object: &mut Value) {
    let finalizers = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    let protection = json!("scheduling.k8s.io/podgroup-protection");
    if let Some(list) = finalizers.as_array_mut().filter(|list| !list.contains(&protection)) {
        list.push(protection);
    }
}

/// dataSource and dataSourceRef have the same content.
fn share_data_source(claim: &mut Value) {
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if let Some(source) = claim["spec"].get(from).filter(|source| source.is_object()).cloned()
            && claim["spec"].get(to).is_none_or(Value::is_null)
        {
            claim["spec"][to] = source;
        }
    }
}

/// Clears the Lease's strategy: its feature gate is off by default.
fn drop_election_strategy(old: Option<&Value>, lease: &mut Value) {
    for field in ["strategy", "preferredHolder"] {
        let used = old.is_some_and(|old| old["spec"].get(field).is_some());
        if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !used) {
            spec.remove(field);
        }
    }
}

/// Generates the selector and labels of a Job, unless it has manualSelector.
fn generate_selector(job: &mut Value) {
    if job.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let (name, uid) = (meta_str(job, "name").to_owned(), meta_str(job, "uid").to_owned());
    let Some(template) = job.pointer_mut("/spec/template") else {
        return;
    };
    if !template["metadata"].is_object() {
        template["metadata"] = json!({});
    }
    let labels = &mut template["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[label] = json!(value);
    }
    if !job["spec"]["selector"].is_object() {
        job["spec"]["selector"] = json!({});
    }
    let selector = &mut job["spec"]["selector"];
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
}

/// Resets the fields that this endpoint may not change: the main resource, its status, or another subresource.
pub(crate) fn update(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    now: Timestamp,
) {
    match subresource {
        None => update_main(resource, old, new, now),
        Some("finalize") => {
            keep(old, new, "status");
            if new.pointer("/spec/finalizers") == Some(&json!([])) {
                new["spec"] = json!({});
            }
        }
        Some("status") => update_status(resource, old, new, now),
        Some("approval") => {
            keep(old, new, "spec");
            let conditions = new.pointer("/status/conditions").cloned();
            keep(old, new, "status");
            if new["status"].is_null() {
                new["status"] = json!({});
            }
            new["status"]["conditions"] = with_transition_times(old, conditions.unwrap_or(json!([])), now);
        }
        Some("resize") => keep_but_resources(old, new),
        Some(_) => {}
    }
    if resource.strategy == Strategy::DaemonSet {
        update_template_generation(old, new);
    }
    if resource.generation && resource.strategy != Strategy::PriorityClass
        || resource.strategy == Strategy::CsiDriver
    {
        let generation = meta(old, "generation").and_then(Value::as_i64).unwrap_or(0);
        // A status update does not increase the generation, even if it changes annotations that count as spec.
        let changed = subresource != Some("status") && is_changed(resource, old, new);
        set_meta(new, "generation", Some(json!(generation + i64::from(changed))));
    }
}

fn update_main(resource: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    if resource.has_status() {
        keep(old, new, "status");
    }
    if has_device_taints(resource) {
        set_taint_times(new, now);
    }
    match resource.strategy {
        Strategy::DeviceTaintRule => update_taint_time(old, new, now),
        Strategy::Namespace | Strategy::CertificateSigningRequest => keep(old, new, "spec"),
        Strategy::PersistentVolumeClaim => share_data_source(new),
        Strategy::Service => drop_by_type(old, new),
        Strategy::Lease => drop_election_strategy(Some(old), new),
        Strategy::CustomResourceDefinition => add_stored_version(new),
        _ => {}
    }
}

/// Objects are stored in the storage version from now on.
fn add_stored_version(definition: &mut Value) {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    match &mut definition["status"]["storedVersions"] {
        Value::Array(stored) if !stored.contains(&name) => stored.push(name),
        Value::Array(_) => {}
        stored => *stored = json!([name]),
    }
}

fn update_status(resource: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    let fields: Vec<String> = [old, &*new]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|map| map.keys().cloned())
        .filter(|field| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"))
        .collect();
    for field in fields {
        keep(old, new, &field);
    }
    let kept: &[&str] = match resource.strategy {
        Strategy::Pod => &["ownerReferences", "deletionTimestamp"],
        Strategy::Deployment => &["labels"],
        Strategy::Custom => {
            set_meta(new, "generateName", meta(old, "generateName").cloned());
            OWN_METADATA
        }
        _ if status_update_keeps_metadata(resource) => OWN_METADATA,
        _ => &[],
    };
    for field in kept {
        set_meta(new, field, meta(old, field).cloned());
    }
    match resource.strategy {
        Strategy::CertificateSigningRequest => keep_approvals(old, new, now),
        Strategy::PersistentVolume => {
            let of = |object: &Value, field: &str| object["status"].get(field).cloned();
            let field = "lastPhaseTransitionTime";
            if of(old, "phase") == of(new, "phase") {
                if let Some(time) = of(old, field).filter(|_| of(new, field).is_none()) {
                    new["status"][field] = time;
                }
            } else if of(new, field).is_none() || of(new, field) == of(old, field) {
                new["status"][field] = json!(seconds(now));
            }
        }
        Strategy::Pod => keep_pod_status(old, new),
        _ => {}
    }
}

/// Keeps pod status fields that a client's update leaves out.
fn keep_pod_status(old: &Value, new: &mut Value) {
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    for field in ["qosClass", "observedGeneration", "resourceClaimStatuses", "extendedResourceClaimStatus"] {
        if let Some(value) = old["status"].get(field)
            && new["status"].get(field).is_none_or(Value::is_null)
        {
            new["status"][field] = value.clone();
        }
    }
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for condition in new["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let known = before.iter().find(|known| known["type"] == condition["type"]);
        if let Some(generation) = known.and_then(|known| known.get("observedGeneration"))
            && condition["observedGeneration"].as_i64().unwrap_or(0) == 0
        {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

/// Approved and Denied conditions change only through the approval subresource.
fn keep_approvals(old: &Value, new: &mut Value, now: Timestamp) {
    let list = |object: &Value| -> Vec<Value> {
        object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut conditions = list(new);
    for kind in ["Approved", "Denied"] {
        let known: Vec<Value> = list(old).into_iter().filter(|condition| condition["type"] == kind).collect();
        let sent = conditions.iter_mut().filter(|condition| condition["type"] == kind);
        let sent: Vec<&mut Value> = sent.collect();
        // Validation rejects an added or removed condition.
        if sent.len() == known.len() {
            sent.into_iter().zip(known).for_each(|(sent, known)| *sent = known);
        }
    }
    if new["status"].is_object() {
        new["status"]["conditions"] = with_transition_times(old, json!(conditions), now);
    }
}

/// Conditions with missing times filled in.
fn with_transition_times(old: &Value, mut conditions: Value, now: Timestamp) -> Value {
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for condition in conditions.as_array_mut().into_iter().flatten().filter(|c| c.is_object()) {
        let known = before.iter().find(|b| b["type"] == condition["type"]);
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = json!(seconds(now));
        }
        if condition["lastTransitionTime"].is_null() {
            let kept =
                known.filter(|b| b["status"] == condition["status"]).map(|b| b["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = kept.unwrap_or_else(|| json!(seconds(now)));
        }
    }
    conditions
}

/// Replaces the condition of the same type, or adds it.
pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|known| known["type"] == condition["type"]) {
            Some(known) => *known = condition,
            None => list.push(condition),
        }
    }
}

fn keep_but_resources(old: &Value, new: &mut Value) {
    let count = |pod: &Value, list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
    // Validation rejects added or removed containers.
    if ["containers", "initContainers"].iter().any(|list| count(old, list) != count(new, list)) {
        return;
    }
    let wanted = new.get("spec").cloned().unwrap_or_default();
    keep(old, new, "spec");
    keep(old, new, "status");
    keep_metadata(old, new);
    for list in ["containers", "initContainers"] {
        let Some(containers) = new["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let sent =
                wanted[list].as_array().and_then(|l| l.iter().find(|c| c["name"] == container["name"]));
            if let Some(resources) = sent.and_then(|c| c.get("resources")) {
                container["resources"] = resources.clone();
            }
        }
    }
}

fn update_template_generation(old: &Value, new: &mut Value) {
    let count =
        |object: &Value| meta(object, "annotations")?.get(TEMPLATE_GENERATION)?.as_str()?.parse::<i64>().ok();
    let changed =
        old.pointer("/spec/template") != new.pointer("/spec/template") && !has_same_template(old, new);
    let next = count(old).unwrap_or(0) + i64::from(changed);
    let annotations = meta_mut(new).entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_object() {
        annotations[TEMPLATE_GENERATION] = json!(next.to_string());
    }
}

/// Whether a change increases the generation. Pod templates are compared by value.
fn is_changed(resource: &Resource, old: &Value, new: &Value) -> bool {
    let (before, mut after) = (specification(resource, old), specification(resource, new));
    let by_value = matches!(
        resource.strategy,
        Strategy::Deployment
            | Strategy::ReplicaSet
            | Strategy::ReplicationController
            | Strategy::DaemonSet
            | Strategy::StatefulSet
    );
    if by_value && before != after && has_same_template(&before, &after) {
        after["spec"]["template"] = before["spec"]["template"].clone();
    }
    before != after
}

/// Whether the pod templates of two workloads have the same values.
fn has_same_template(old: &Value, new: &Value) -> bool {
    let [old, new] = [old, new].map(|object| object.pointer("/spec/template").and_then(Value::as_object));
    old.zip(new).is_some_and(|(old, new)| template::semantically_equal(old, new))
}

/// The part of the object whose changes increase the generation: everything but metadata and status.
fn specification(resource: &Resource, object: &Value) -> Value {
    let mut specification = object.clone();
    if let Some(map) = specification.as_object_mut() {
        if resource.has_status() {
            map.remove("status");
        }
        if resource.is_custom() {
            // The stored object may be in another version.
            map.remove("apiVersion");
        }
        let labels = map
            .remove("metadata")
            .filter(|_| matches!(resource.strategy, Strategy::Deployment | Strategy::EndpointSlice));
        if let Some(metadata) = labels {
            let counted = if resource.strategy == Strategy::Deployment { "annotations" } else { "labels" };
            map.insert("counted".to_owned(), metadata.get(counted).cloned().unwrap_or_default());
        }
    }
    specification
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => remove_field(new, field),
    }
}

fn remove_field(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// The QoS class of a pod.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let containers = lists.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    let (mut any, mut all) = (false, true);
    for container in containers {
        let amount = |kind: &str, what: &str| container.pointer(&format!("/resources/{kind}/{what}"));
        for what in ["cpu", "memory"] {
            let (limit, request) = (amount("limits", what), amount("requests", what));
            any |= limit.is_some() || request.is_some();
            all &= limit.is_some() && request.is_none_or(|request| limit == Some(request));
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
