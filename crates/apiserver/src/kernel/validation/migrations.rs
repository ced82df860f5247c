//! Validation of StorageVersionMigrations and StorageVersions.

use serde_json::{Value, json};

use super::super::metadata::meta_str;
use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, list, text};

/// `spec.resource.resource` is required by the table of rules.
pub(super) fn migration(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (group, resource) = (text(new, "/spec/resource/group"), text(new, "/spec/resource/resource"));
    let mut refuse = |field: &str, value: &str, messages: Vec<String>| {
        if !messages.is_empty() {
            errors.push(FieldError::invalid(field, &json!(value), &messages.join(",")));
        }
    };
    if !resource.is_empty() {
        refuse("spec.resource.resource", resource, naming::label_1035(resource));
    }
    if !group.is_empty() {
        refuse("spec.resource.group", group, naming::subdomain(group));
    }
    if old.is_some_and(|old| old["spec"] != new["spec"]) {
        // The message shows the internal type, whose field has no JSON name.
        let value = json!({"Resource": {"group": group, "resource": resource}});
        errors.push(FieldError::invalid("spec", &value, "field is immutable"));
    }
}

/// The resourceVersion of a migration is set once, and a migration ends once.
pub(super) fn migration_status(old: &Value, new: &Value, errors: &mut Errors) {
    let version = |object: &Value| text(object, "/status/resourceVersion").to_owned();
    let (before, after) = (version(old), version(new));
    let digits = after.bytes().all(|byte| byte.is_ascii_digit());
    let field = "status.resourceVersion";
    if !after.is_empty() && (!digits || after.starts_with('0')) {
        let why = format!("resource version is not well formed: {after}");
        errors.push(FieldError::invalid(field, &json!(after), &why));
    }
    if !before.is_empty() && before != after {
        errors.push(FieldError::invalid(field, &json!(after), "field is immutable"));
    }
    let is_true = |object: &Value, r#type: &str| {
        list(object, "/status/conditions").iter().any(|one| one["type"] == r#type && one["status"] == "True")
    };
    let conditions = &new["status"]["conditions"];
    let mut refuse = |why: &str| errors.push(FieldError::invalid("status.conditions", conditions, why));
    if is_true(new, "Succeeded") && is_true(new, "Failed") {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    if is_true(old, "Succeeded") && !is_true(new, "Succeeded") {
        refuse("Success condition cannot be set to false once it is true");
    }
    if is_true(old, "Failed") && !is_true(new, "Failed") {
        refuse("Failed condition cannot be set to false once it is true");
    }
}

/// The name of a StorageVersion is `GROUP.RESOURCE`.
pub(super) fn storage_version(new: &Value, errors: &mut Errors) {
    let name = meta_str(new, "name");
    let messages = match name.rsplit_once('.') {
        None => vec!["name must be in the form of <group>.<resource>".to_owned()],
        Some((_, resource)) => naming::label_1035(resource)
            .into_iter()
            .map(|message| format!("the resource segment {message}"))
            .collect(),
    };
    errors.extend(messages.iter().map(|message| FieldError::invalid("metadata.name", &json!(name), message)));
}

/// The records of the API servers, and the version that they agree on.
pub(super) fn storage_version_status(new: &Value, errors: &mut Errors) {
    let records = list(new, "/status/storageVersions");
    for (at, record) in records.iter().enumerate() {
        let field = format!("status.storageVersions[{at}]");
        if records[..at].iter().any(|other| other["apiServerID"] == record["apiServerID"]) {
            errors.push(FieldError::duplicate(&format!("{field}.apiServerID"), &record["apiServerID"]));
        }
        server_storage_version(&field, record, errors);
    }
    let encodings = || records.iter().map(|record| &record["encodingVersion"]);
    let actual = encodings().next().filter(|first| encodings().all(|other| other == *first));
    let common = new["status"].get("commonEncodingVersion").filter(|common| !common.is_null());
    let why = match (actual.and_then(Value::as_str), common.and_then(Value::as_str)) {
        (None, Some(_)) => {
            "should be nil if servers do not agree on the same encoding version, or if there is no \
                            server reporting the supported versions yet"
                .to_owned()
        }
        (Some(actual), None) => format!("the common encoding version is {actual}"),
        (Some(actual), Some(common)) if actual != common => {
            format!("the actual common encoding version is {actual}")
        }
        _ => return,
    };
    let value = common.unwrap_or(&Value::Null);
    errors.push(FieldError::invalid("status.commonEncodingVersion", value, &why));
}

fn server_storage_version(field: &str, record: &Value, errors: &mut Errors) {
    let id = text(record, "/apiServerID");
    for message in naming::subdomain(id) {
        errors.push(FieldError::invalid(&format!("{field}.apiServerID"), &json!(id), &message));
    }
    let (encoding, decodable) = (text(record, "/encodingVersion"), list(record, "/decodableVersions"));
    if !decodable.iter().any(|version| version == encoding) {
        let why = format!("decodableVersions must include encodingVersion {encoding}");
        errors.push(FieldError::invalid(
            &format!("{field}.decodableVersions"),
            &record["decodableVersions"],
            &why,
        ));
    }
    for (at, served) in list(record, "/servedVersions").iter().enumerate() {
        if !decodable.contains(served) {
            let all: Vec<_> = decodable.iter().filter_map(Value::as_str).collect();
            let why = format!(
                "individual served version : {} must be included in decodableVersions : [{}]",
                served.as_str().unwrap_or_default(),
                all.join(" ")
            );
            errors.push(FieldError::invalid(&format!("{field}.servedVersions[{at}]"), served, &why));
        }
    }
}
