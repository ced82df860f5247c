//! Validation of admission configuration, CRDs, dynamic resource allocation and flow control.

use serde_json::{Value, json};

use super::super::metadata::{is_terminating, meta_str};
use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, is_set, list, refuse_text, rules, text};

/// The length of a driver's name.
const DRIVER_BYTES_MAX: usize = 63;
/// The length of a pool's name.
const POOL_BYTES_MAX: usize = 253;

pub(super) fn webhooks(new: &Value, errors: &mut Errors) {
    for (at, hook) in list(new, "/webhooks").iter().enumerate() {
        let path = format!("webhooks[{at}]");
        let name = text(hook, "/name");
        let messages = naming::subdomain(name);
        if !messages.is_empty() {
            refuse_text(&format!("{path}.name"), name, &messages, errors);
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(&format!("{path}.name"), &json!(name), why));
        }
        match text(hook, "/sideEffects") {
            "None" | "NoneOnDryRun" => {}
            "" => {
                let why = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(&format!("{path}.sideEffects"), why));
            }
            other => {
                let supported = "\"None\", \"NoneOnDryRun\"";
                errors.push(FieldError::not_supported(&format!("{path}.sideEffects"), other, supported));
            }
        }
        let ways =
            ["/clientConfig/url", "/clientConfig/service"].iter().filter(|way| is_set(hook, way)).count();
        if ways != 1 {
            let why = "exactly one of url or service is required";
            errors.push(FieldError::required(&format!("{path}.clientConfig"), why));
        } else if let Some(url) = hook.pointer("/clientConfig/url").and_then(Value::as_str)
            && !url.starts_with("https://")
        {
            let scheme = url.split("://").next().unwrap_or_default();
            let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            errors.push(FieldError::invalid(&format!("{path}.clientConfig.url"), &json!(scheme), why));
        }
        for (number, rule) in list(hook, "/rules").iter().enumerate() {
            for field in ["apiGroups", "apiVersions", "operations", "resources"] {
                if list(rule, &format!("/{field}")).is_empty() {
                    errors.push(FieldError::required(&format!("{path}.rules[{number}].{field}"), ""));
                }
            }
        }
    }
}

/// A ValidatingAdmissionPolicy needs validations or audit annotations.
pub(super) fn policy(new: &Value, errors: &mut Errors) {
    let fields = ["validations", "auditAnnotations"];
    if new["kind"] == "ValidatingAdmissionPolicy"
        && fields.iter().all(|field| list(&new["spec"], &format!("/{field}")).is_empty())
    {
        for field in fields {
            let why = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(&format!("spec.{field}"), why));
        }
    }
}

/// A ResourceSlice has exactly one kind of node selection.
pub(super) fn resource_slice(new: &Value, errors: &mut Errors) {
    let places = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    if new.pointer("/spec/nodeName") == Some(&json!("")) {
        let why = "must be either unset or set to a non-empty string";
        errors.push(FieldError::invalid("spec.nodeName", &json!(""), why));
    }
    let set = |place: &&&str| new["spec"].get(**place).is_some_and(|value| !value.is_null() && *value != "");
    if places.iter().filter(set).count() == 0 {
        let why =
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        errors.push(FieldError::required("spec", why));
    }
}

/// A selector has valid names, and a taint has a label's key and value. An effect that does not change may be any.
pub(super) fn device_taint_rule(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let selected = |name: &str| new.pointer(&format!("/spec/deviceSelector/{name}")).and_then(Value::as_str);
    let field = |name: &str| format!("spec.deviceSelector.{name}");
    if let Some(driver) = selected("driver") {
        if driver.is_empty() {
            errors.push(FieldError::required(&field("driver"), ""));
        } else {
            if driver.len() > DRIVER_BYTES_MAX {
                errors.push(FieldError::too_long(&field("driver"), DRIVER_BYTES_MAX));
            }
            refuse_text(&field("driver"), driver, &naming::subdomain(&driver.to_lowercase()), errors);
        }
    }
    if let Some(pool) = selected("pool") {
        if pool.is_empty() {
            errors.push(FieldError::required(&field("pool"), ""));
        } else {
            if pool.len() > POOL_BYTES_MAX {
                errors.push(FieldError::too_long(&field("pool"), POOL_BYTES_MAX));
            }
            for part in pool.split('/') {
                refuse_text(&field("pool"), part, &naming::subdomain(part), errors);
            }
        }
    }
    if let Some(device) = selected("device") {
        refuse_text(&field("device"), device, &naming::label(device), errors);
    }
    let of_taint = |name: &str| text(new, &format!("/spec/taint/{name}"));
    refuse_text("spec.taint.key", of_taint("key"), &naming::qualified(of_taint("key")), errors);
    refuse_text("spec.taint.value", of_taint("value"), &naming::label_value(of_taint("value")), errors);
    let effect = of_taint("effect");
    let is_changed = old.is_none_or(|old| text(old, "/spec/taint/effect") != effect);
    if is_changed && effect.is_empty() {
        errors.push(FieldError::required("spec.taint.effect", ""));
    } else if is_changed && !["NoExecute", "NoSchedule", "None"].contains(&effect) {
        let supported = "\"NoExecute\", \"NoSchedule\", \"None\"";
        errors.push(FieldError::not_supported("spec.taint.effect", effect, supported));
    }
}

pub(super) fn policy_binding(new: &Value, errors: &mut Errors) {
    let actions = &new["spec"]["validationActions"];
    let has = |action: &str| list(new, "/spec/validationActions").iter().any(|other| other == action);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.push(FieldError::invalid("spec.validationActions", actions, why));
    }
}

/// Objects may be stored in every version of `status.storedVersions`, so none of them may be removed.
pub(super) fn stored_versions(new: &Value, errors: &mut Errors) {
    let versions = list(new, "/spec/versions");
    for (at, stored) in list(new, "/status/storedVersions").iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *stored) {
            let field = format!("status.storedVersions[{at}]");
            let name = stored.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(&field, stored, &why));
        }
    }
}

pub(super) fn definition(new: &Value, errors: &mut Errors) {
    for (field, pointer) in [
        ("spec.group", "/spec/group"),
        ("spec.names.plural", "/spec/names/plural"),
        ("spec.names.kind", "/spec/names/kind"),
        ("spec.names.listKind", "/spec/names/listKind"),
        ("spec.names.singular", "/spec/names/singular"),
    ] {
        if text(new, pointer).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let expected = format!("{}.{}", text(new, "/spec/names/plural"), text(new, "/spec/group"));
    let why = "must be spec.names.plural+\".\"+spec.group";
    for field in ["name", "generateName"] {
        let found = meta_str(new, field);
        if found != expected && !found.is_empty() {
            errors.push(FieldError::invalid(&format!("metadata.{field}"), &json!(found), why));
        }
    }
    match text(new, "/spec/scope") {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => {
            let supported = "\"Cluster\", \"Namespaced\"";
            errors.push(FieldError::not_supported("spec.scope", other, supported));
        }
    }
    let versions = list(new, "/spec/versions");
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &new["spec"]["versions"], why));
    }
    if !versions.iter().any(|version| version["storage"] == true) {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, why));
    }
    for (at, version) in versions.iter().enumerate() {
        if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
            let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.push(FieldError::required(&field, ""));
        }
    }
}

/// Each device request has exactly one form, and constraints refer to existing requests.
pub(super) fn device_claim(path: &str, claim: &Value, errors: &mut Errors) {
    let requests = list(claim, "/devices/requests");
    for (at, request) in requests.iter().enumerate() {
        let ways = ["/exactly", "/firstAvailable"].iter().filter(|way| is_set(request, way)).count();
        if ways != 1 {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            errors.push(FieldError::required(&format!("{path}.devices.requests[{at}]"), why));
        }
    }
    for (at, constraint) in list(claim, "/devices/constraints").iter().enumerate() {
        for (number, name) in list(constraint, "/requests").iter().enumerate() {
            let named = name.as_str().and_then(|name| name.split('/').next()).unwrap_or_default();
            if !requests.iter().any(|request| request["name"] == named) {
                let field = format!("{path}.devices.constraints[{at}].requests[{number}]");
                let why = "must be the name of a request in the claim or the name of a request and a subrequest \
                           separated by '/'";
                errors.push(FieldError::invalid(&field, name, why));
            }
        }
    }
}

/// Only an allocated claim can be reserved, and not while it is terminating.
pub(super) fn claim_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, reserved) = (list(old, "/status/reservedFor"), list(new, "/status/reservedFor"));
    let why = if !reserved.is_empty() && !is_set(new, "/status/allocation") {
        "may not be specified when `allocated` is not set"
    } else if is_terminating(new) && reserved.iter().any(|user| !before.contains(user)) {
        "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    } else {
        return;
    };
    errors.push(FieldError::forbidden("status.reservedFor", why));
}

/// A priority level is either Limited or Exempt, with the matching field set.
pub(super) fn priority_level(new: &Value, errors: &mut Errors) {
    let kind = text(new, "/spec/type");
    if (meta_str(new, "name") == "exempt") != (kind == "Exempt") && matches!(kind, "Exempt" | "Limited") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid("spec.type", &json!(kind), why));
    }
    if kind == "Limited" {
        if !is_set(new, "/spec/limited") {
            errors.push(FieldError::required("spec.limited", "must not be empty when type is Limited"));
        }
        rules::check_block("LimitedLevel", "spec.limited", None, &new["spec"]["limited"], errors);
        return;
    }
    if is_set(new, "/spec/limited") {
        errors.push(FieldError::forbidden("spec.limited", ""));
    }
    if !matches!(kind, "Exempt" | "") {
        errors.push(FieldError::not_supported("spec.type", kind, "\"Exempt\", \"Limited\""));
    }
}
