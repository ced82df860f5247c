//! Patch: applies one of four patch formats; the result is then handled as an update.

use jiff::Timestamp;
use json_patch::{AddOperation, PatchOperation, PatchOperation::Copy};
use serde_json::{Value, json};

use super::create::Write;
use super::options::WriteOptions;
use super::request::Call;
use super::resources::Resource;
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::strategic::PatchError;
use super::types::Node;
use super::{Document, Kernel, body, conversion, strategic, strict_json};

/// Maximum number of operations in a JSON patch.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum depth of a patched object; the JSON parser has about the same limit for bodies.
const DEPTH_MAX: usize = 120;
/// Maximum size of an object that a patch produces by copying.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Kernel {
    pub(crate) fn patch(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let media = body::media_type(&call.request.content_type);
        check_media(call.target.resource, media)?;
        let options = WriteOptions::parse(call)?;
        if media == APPLY_PATCH {
            return self.apply(call, &options, now);
        }
        let target = &call.target;
        let (patch, duplicates) = read(&call.request.body)?;
        let Some(live) = self.store.get(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        let mut patched = Value::clone(&*conversion::to_served_version(target.resource, &live));
        apply_patch(target.resource.node(), media, &mut patched, patch)?;
        if media != JSON_PATCH {
            self.apply_field_validation(duplicates, options.field_validation, |strict_errors| {
                invalid_patch(Status::bad_request(body::strict_decoding_message(strict_errors)), media)
            })?;
        }
        body::mark_managed_fields_reset(target.resource, &mut patched);
        let body::Decoded { object: mut patched, strict_errors, has_empty_lists, .. } =
            body::conform(target.resource, patched).map_err(|status| invalid_patch(status, media))?;
        self.apply_field_validation(strict_errors, options.field_validation, |strict_errors| {
            invalid_patch(Status::bad_request(body::strict_decoding_message(strict_errors)), media)
        })?;
        body::check_name_and_namespace(call, &mut patched)?;
        let patched = conversion::to_storage_version(target.resource, patched);
        let write =
            Write { target, options: &options, now, applied: None, user: &call.user, has_empty_lists };
        let stored = self.replace(write, &live, patched)?;
        Ok(self.show(call, 200, &stored))
    }
}

/// Checks the patch's media type; custom resources do not support strategic merge patches.
pub(crate) fn check_media(resource: &Resource, media: &str) -> ApiResult<()> {
    if matches!(media, JSON_PATCH | MERGE_PATCH | APPLY_PATCH) {
        return Ok(());
    }
    match (resource.is_custom(), media) {
        (false, STRATEGIC_MERGE_PATCH) => Ok(()),
        // For built-in kinds go-restful checks the media type before the handler does, with its own message.
        (false, _) => Err(Status::generic(StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")),
        (true, _) => Err(body::unsupported(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH].join(", "))),
    }
}

/// Parses the patch as JSON, whatever its format, and returns its duplicate fields.
pub(crate) fn read(body: &[u8]) -> ApiResult<(Value, Vec<String>)> {
    strict_json::parse(body).map_err(|_| Status::bad_request("invalid JSON patch"))
}

/// Applies the patch to the object.
pub(crate) fn apply_patch(node: Node, media: &str, object: &mut Value, patch: Value) -> ApiResult<()> {
    let unreadable = |wanted: &str| {
        let found = match &patch {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        format!("json: cannot unmarshal {found} into Go value of type {wanted}")
    };
    let map = "map[string]interface {}";
    match (media, &patch) {
        (JSON_PATCH, Value::Null) | (STRATEGIC_MERGE_PATCH, Value::Null) => Ok(()),
        (JSON_PATCH, Value::Array(_)) => json_patch(object, patch),
        (JSON_PATCH, _) => Err(Status::bad_request(format!(
            "error decoding patch: {}",
            unreadable("[]handlers.jsonPatchOp")
        ))),
        (MERGE_PATCH, Value::Null) => Err(Status::bad_request("Invalid JSON Patch")),
        (MERGE_PATCH, Value::Object(_)) => {
            json_patch::merge(object, &patch);
            Ok(())
        }
        (MERGE_PATCH, _) => Err(Status::bad_request(format!("error decoding patch: {}", unreadable(map)))),
        (_, Value::Object(_)) => strategic::merge(node, object, &patch).map_err(|error| match error {
            PatchError::Malformed(message) => Status::bad_request(message),
            PatchError::Unexpected(message) => Status::new(StatusReason::Unknown, message),
        }),
        _ => Err(Status::bad_request(unreadable(map))),
    }
}

/// A patch whose result cannot be decoded is invalid (422).
pub(crate) fn invalid_patch(status: Box<Status>, media: &str) -> Box<Status> {
    if status.reason != StatusReason::BadRequest {
        return status;
    }
    let why =
        status.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
    let why = why.map_or(status.message.as_str(), |(_, why)| why);
    let restored = status.message_from_value.as_deref().filter(|_| media == STRATEGIC_MERGE_PATCH);
    let why = restored.unwrap_or(why);
    let error = FieldError::invalid("patch", &json!({}), why);
    Status::invalid("", "", "", &[error])
}

fn json_patch(object: &mut Value, patch: Value) -> ApiResult<()> {
    let failed = || {
        let message = "the server rejected our request due to an error in our request";
        Status::generic(StatusReason::Invalid, message)
    };
    let operations: Vec<PatchOperation> = serde_json::from_value(patch).map_err(|_| failed())?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::new(StatusReason::RequestEntityTooLarge, message));
    }
    for operation in &operations {
        let operation = &lenient(object, operation);
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|_| failed())?;
        // Copies can double the size each time, and nested adds increase the depth without limit.
        let copied = matches!(operation, Copy(_)) && object.to_string().len() > COPIED_BYTES_MAX;
        if copied || is_deeper_than(object, DEPTH_MAX) {
            let message = "the patch makes the object too large or too deep";
            return Err(Status::new(StatusReason::RequestEntityTooLarge, message));
        }
    }
    Ok(())
}

/// kube-apiserver allows replacing a missing field and copying from one (as null).
fn lenient(object: &Value, operation: &PatchOperation) -> PatchOperation {
    let (source, path, value) = match operation {
        PatchOperation::Replace(replace) => (&replace.path, &replace.path, replace.value.clone()),
        Copy(copy) => (&copy.from, &copy.path, Value::Null),
        _ => return operation.clone(),
    };
    let parent = source.split_back().and_then(|(parent, _)| object.pointer(parent.as_str()));
    if object.pointer(source.as_str()).is_none() && parent.is_some_and(Value::is_object) {
        return PatchOperation::Add(AddOperation { path: path.clone(), value });
    }
    operation.clone()
}

fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Object(map) => map.values().any(|v| is_deeper_than(v, left)),
        Value::Array(items) => items.iter().any(|v| is_deeper_than(v, left)),
        _ => false,
    }
}
