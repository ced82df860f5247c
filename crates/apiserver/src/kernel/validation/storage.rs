//! Validation of storage kinds.

use serde_json::{Value, json};

use super::super::naming;
use super::super::status::FieldError;
use super::super::types::Quantity;
use super::{Errors, fixed, is_set, list, refuse_text, text, without};

/// Fields of a PersistentVolume's spec that are not volume sources.
const VOLUME_FIELDS: &[&str] = &[
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

fn access_modes(new: &Value, errors: &mut Errors) {
    let modes = list(new, "/spec/accessModes");
    let single = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if single && modes.len() > 1 {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", why));
    }
    for mode in modes.iter().filter_map(Value::as_str) {
        if !matches!(mode, "ReadOnlyMany" | "ReadWriteMany" | "ReadWriteOnce" | "ReadWriteOncePod") {
            let supported = "\"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"";
            errors.push(FieldError::not_supported("spec.accessModes", mode, supported));
        }
    }
}

pub(super) fn volume(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    access_modes(new, errors);
    let capacity = &new["spec"]["capacity"];
    if capacity.as_object().is_none_or(|map| map.len() != 1 || !map.contains_key("storage")) {
        let supported = "supported values: \"storage\"";
        errors.push(FieldError::not_supported_value("spec.capacity", capacity, supported));
    }
    for (name, amount) in capacity.as_object().into_iter().flatten() {
        let field = format!("spec.capacity[{name}]");
        let quantity = amount.as_str().and_then(Quantity::parse);
        if !quantity.is_some_and(Quantity::is_positive) {
            errors.push(FieldError::invalid(&field, amount, "must be greater than zero"));
        }
        if let Some(negative) = quantity.filter(|quantity| quantity.is_negative()) {
            let why = "must be a valid resource quantity";
            errors.push(FieldError::invalid(&field, &json!(negative.whole()), why));
        }
    }
    let sources = without(&new["spec"], VOLUME_FIELDS);
    let sources: Vec<&String> = sources.as_object().into_iter().flat_map(serde_json::Map::keys).collect();
    if sources.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    // kube-apiserver checks the sources in this order and accepts the first.
    let mut sorted = sources.clone();
    sorted.sort_by_key(|name| ["hostPath", "nfs", "csi"].iter().position(|known| known == name).unwrap_or(9));
    for second in sorted.iter().skip(1) {
        errors.push(FieldError::forbidden(
            &format!("spec.{second}"),
            "may not specify more than 1 volume type",
        ));
    }
    if text(new, "/spec/hostPath/path").split('/').any(|part| part == "..") {
        let value = &new["spec"]["hostPath"]["path"];
        errors.push(FieldError::invalid("spec.hostPath.path", value, "must not contain '..'"));
    }
    if let Some(old) = old {
        volume_update(old, new, errors);
    }
}

fn volume_update(old: &Value, new: &Value, errors: &mut Errors) {
    if without(&old["spec"], VOLUME_FIELDS) != without(&new["spec"], VOLUME_FIELDS) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    let mode = |volume: &Value| volume["spec"]["volumeMode"].clone();
    if mode(old) != mode(new) {
        errors.push(FieldError::invalid("volumeMode", &mode(new), "field is immutable"));
    }
    let before = &old["spec"]["nodeAffinity"];
    if !before.is_null() && *before != new["spec"]["nodeAffinity"] {
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid("nodeAffinity", &new["spec"]["nodeAffinity"], why));
    }
}

pub(super) fn claim(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    access_modes(new, errors);
    let field = "spec.resources[storage]";
    match new.pointer("/spec/resources/requests/storage") {
        None => errors.push(FieldError::required(field, "")),
        Some(amount) => {
            let positive = amount.as_str().and_then(Quantity::parse).is_some_and(Quantity::is_positive);
            if !positive {
                errors.push(FieldError::invalid(field, amount, "must be greater than zero"));
            }
        }
    }
    if let Some(old) = old {
        claim_update(old, new, errors);
    }
}

fn claim_update(old: &Value, new: &Value, errors: &mut Errors) {
    let mut free = Vec::new();
    // The persistent volume binder sets this field once.
    if !is_set(old, "/spec/volumeName") {
        free.push("volumeName");
    }
    let mut wanted = new["spec"].clone();
    if text(new, "/status/phase") == "Bound" {
        free.push("volumeAttributesClassName");
        if is_set(new, "/spec/resources/requests") {
            wanted["resources"]["requests"]["storage"] =
                old["spec"]["resources"]["requests"]["storage"].clone();
        }
    }
    if !is_set(old, "/spec/storageClassName") {
        free.push("storageClassName");
    }
    if without(&old["spec"], &free) != without(&wanted, &free) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                   bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    let size = |claim: &Value| Quantity::parse(text(claim, "/spec/resources/requests/storage"));
    let nothing = Quantity::parse("0");
    let reported = Quantity::parse(text(old, "/status/capacity/storage")).or(nothing);
    if let (Some(before), Some(after), Some(reported)) = (size(old), size(new).or(nothing), reported)
        && before > after
        && after <= reported
    {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", why));
    }
    let mode = |claim: &Value| claim["spec"]["volumeMode"].clone();
    if mode(old) != mode(new) {
        errors.push(FieldError::invalid("volumeMode", &mode(new), "field is immutable"));
    }
}

pub(super) fn class(new: &Value, errors: &mut Errors) {
    let provisioner = text(new, "/provisioner");
    if !provisioner.is_empty() {
        let lower = provisioner.to_lowercase();
        refuse_text("provisioner", &lower, &naming::qualified(&lower), errors);
    }
    if new["parameters"].as_object().is_some_and(|map| map.contains_key("")) {
        errors.push(FieldError::invalid("parameters", &json!(""), "field can not be empty."));
    }
}

pub(super) fn attachment(new: &Value, errors: &mut Errors) {
    let name = new.pointer("/spec/source/persistentVolumeName").and_then(Value::as_str);
    let inline = is_set(new, "/spec/source/inlineVolumeSpec");
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (name, inline) {
        (None, false) => errors.push(FieldError::required("spec.source", one)),
        (Some(_), true) => errors.push(FieldError::forbidden("spec.source", one)),
        (Some(""), false) => {
            let field = "spec.source.persistentVolumeName";
            errors.push(FieldError::required(field, "must specify non empty persistentVolumeName"));
            refuse_text(field, "", &naming::subdomain(""), errors);
        }
        _ => {}
    }
}

pub(super) fn driver(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    for mode in list(new, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            let supported = "\"Persistent\", \"Ephemeral\"";
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, supported));
        }
    }
    let Some(old) = old else { return };
    let before = &old["spec"]["attachRequired"];
    if *before != new["spec"]["attachRequired"] {
        // kube-apiserver's message misspells the field.
        let value = &new["spec"]["attachRequired"];
        errors.push(FieldError::invalid("spec.attachedRequired", value, "field is immutable"));
    }
    fixed(old, new, "/spec/volumeLifecycleModes", errors);
}

/// CSINode drivers can be added and removed but not changed.
pub(super) fn node_drivers(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let Some(old) = old else { return };
    for driver in list(old, "/spec/drivers") {
        let changed = list(new, "/spec/drivers").iter().any(|other| {
            other["name"] == driver["name"]
                && without(other, &["allocatable"]) != without(driver, &["allocatable"])
        });
        if changed {
            errors.push(FieldError::invalid("spec.drivers", &new["spec"]["drivers"], "field is immutable"));
        }
    }
}
