//! Fields that cannot be changed once they are set.

use serde_json::{Value, json};

use super::super::resources::{Resource, Strategy};
use super::super::status::FieldError;

const IMMUTABLE: &str = "field is immutable";

pub(super) fn validate(resource: &Resource, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let pointers: &[&str] = match resource.strategy {
        Strategy::Secret => &["/type"],
        Strategy::ClusterRoleBinding => &["/roleRef"],
        Strategy::ReplicaSet | Strategy::Deployment | Strategy::DaemonSet => &["/spec/selector"],
        Strategy::Job => &["/spec/selector", "/spec/completionMode"],
        Strategy::VolumeAttachment => &["/spec"],
        Strategy::EndpointSlice => &["/addressType"],
        Strategy::PersistentVolume => &["/spec/volumeMode"],
        Strategy::StorageClass => &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"],
        Strategy::PriorityClass => &["/value", "/preemptionPolicy"],
        Strategy::VolumeAttributesClass => &["/driverName", "/parameters"],
        Strategy::ControllerRevision => &["/data"],
        Strategy::CustomResourceDefinition => &["/spec/scope", "/spec/names/kind"],
        _ => &[],
    };
    for pointer in pointers {
        fixed(old, new, pointer, errors);
    }
    match resource.strategy {
        Strategy::StatefulSet => stateful_set(old, new, errors),
        Strategy::Job => job_template(old, new, errors),
        Strategy::ResourceClaim | Strategy::ResourceClaimTemplate if old["spec"] != new["spec"] => {
            errors.push(FieldError::invalid("spec", &new["spec"], IMMUTABLE));
        }
        Strategy::PersistentVolumeClaim => claim(old, new, errors),
        Strategy::PersistentVolume => volume_source(old, new, errors),
        Strategy::Service => cluster_address(old, new, errors),
        Strategy::PodDisruptionBudget | Strategy::Node => {}
        _ => {}
    }
}

fn fixed(old: &Value, new: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    if old.pointer(pointer) != new.pointer(pointer) {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let value = new.pointer(pointer).unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(&field, value, IMMUTABLE));
    }
}

/// The specification without the fields that may change.
fn without(object: &Value, fields: &[&str]) -> Value {
    let mut spec = object["spec"].clone();
    if let Some(map) = spec.as_object_mut() {
        map.retain(|name, _| !fields.contains(&name.as_str()));
    }
    spec
}

fn stateful_set(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let free = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    if without(old, &free) != without(new, &free) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// The template of a job is fixed; where its pods may run can change while it is suspended and has not started.
fn job_template(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let suspended = old.pointer("/spec/suspend") == Some(&json!(true));
    let waiting = suspended && old.pointer("/status/startTime").is_none();
    let template = |job: &Value| {
        let mut template = job.pointer("/spec/template").cloned().unwrap_or_default();
        if waiting {
            for (place, fields) in [
                ("/metadata", &["labels", "annotations"][..]),
                ("/spec", &["nodeSelector", "affinity", "tolerations", "schedulingGates"][..]),
            ] {
                if let Some(map) = template.pointer_mut(place).and_then(Value::as_object_mut) {
                    map.retain(|name, _| !fields.contains(&name.as_str()));
                }
            }
        }
        template
    };
    if template(old) != template(new) {
        let value = new.pointer("/spec/template").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template", value, IMMUTABLE));
    }
    let indexed = new.pointer("/spec/completionMode") == Some(&json!("Indexed"));
    if !indexed {
        fixed(old, new, "/spec/completions", errors);
    }
}

fn claim(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let mut free = vec!["resources", "volumeAttributesClassName"];
    // The binder fills these in, once.
    for once in ["volumeName", "storageClassName"] {
        if old["spec"].get(once).is_none() {
            free.push(once);
        }
    }
    if without(old, &free) != without(new, &free) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                   bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn volume_source(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let free = [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    ];
    if without(old, &free) != without(new, &free) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
}

fn cluster_address(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let text = |object: &Value, field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    let external = |object: &Value| text(object, "type") == "ExternalName";
    let before = text(old, "clusterIP");
    if !external(old) && !external(new) && !before.is_empty() && before != text(new, "clusterIP") {
        let value = json!([text(new, "clusterIP")]);
        let why = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &value, why));
    }
}
