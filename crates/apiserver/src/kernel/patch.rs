//! Patch: four patch formats become one new object, which then has to pass as an update.

use jiff::Timestamp;
use json_patch::{PatchOperation, PatchOperation::Copy};
use serde_json::{Value, json};

use super::create::Write;
use super::metadata::meta_str;
use super::options::WriteOptions;
use super::request::Call;
use super::resources::Resource;
use super::status::{FieldError, Outcome, Reason, Status};
use super::types::Node;
use super::{Document, Kernel, body, strategic, views};

/// Most operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;
/// Deepest object a patch may produce; the JSON reader has about the same limit for bodies.
const DEPTH_MAX: usize = 120;
/// Largest object a patch may produce by copying.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// All that the real server says about operations that do not fit the object.
const CANNOT_BE_APPLIED: &str = "the server rejected our request due to an error in our request";

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Kernel {
    pub(crate) fn patch(&mut self, call: &Call<'_>, now: Timestamp) -> Outcome<Document> {
        let options = WriteOptions::parse(call)?;
        let media = body::media_type(&call.request.content_type);
        if media == APPLY_PATCH {
            return self.apply(call, &options, now);
        }
        if call.query.flag("force").is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(error.of_options("PatchOptions"));
        }
        let target = &call.target;
        check_media(target.resource, media)?;
        let Some(live) = self.store.get(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        let mut patched = Value::clone(&*views::shown_form(target.resource, &live));
        edit(Node::Struct(target.resource.shape()), media, &mut patched, &call.request.body)?;
        let mut patched = body::conform(target.resource, patched, options.unknown_fields).map_err(unfit)?;
        body::place(call, &mut patched)?;
        refuse_other_uid(target.resource, &live, &patched)?;
        let patched = views::stored_form(target.resource, patched);
        let write = Write { target, options: &options, now, applied: None, user: &call.user };
        let stored = self.replace(write, &live, patched)?;
        Ok(self.show(call, 200, &stored))
    }
}

/// Custom resources have no types a strategic merge could go by.
pub(crate) fn check_media(resource: &Resource, media: &str) -> Outcome<()> {
    let accepted: &[&str] = if resource.is_custom() {
        &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    } else {
        &[JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH]
    };
    if accepted.contains(&media) { Ok(()) } else { Err(body::unsupported(media, &accepted.join(", "))) }
}

/// Changes the object as the patch says.
pub(crate) fn edit(node: Node, media: &str, object: &mut Value, patch: &[u8]) -> Outcome<()> {
    match media {
        JSON_PATCH => json_patch(object, patch),
        MERGE_PATCH => {
            json_patch::merge(object, &parse_object(patch)?);
            Ok(())
        }
        _ => strategic::merge(node, object, &parse_object(patch)?).map_err(Status::bad_request),
    }
}

/// A patch that yields an object nobody can decode is itself invalid.
fn unfit(status: Box<Status>) -> Box<Status> {
    if status.reason != Reason::BadRequest {
        return status;
    }
    let error = FieldError::invalid("patch", &Value::Null, &status.message);
    Status::invalid("", "", "", &[error])
}

/// In a patch the uid is a field like others, one that cannot be changed; controllers rely on the 422.
pub(crate) fn refuse_other_uid(resource: &Resource, live: &Value, new: &Value) -> Outcome<()> {
    let uid = meta_str(new, "uid");
    if uid.is_empty() || uid == meta_str(live, "uid") {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", &json!(uid), "field is immutable");
    Err(Status::invalid(resource.group, resource.kind, meta_str(live, "name"), &[error]))
}

fn json_patch(object: &mut Value, patch: &[u8]) -> Outcome<()> {
    let operations: Vec<PatchOperation> = serde_json::from_slice(patch)
        .map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}");
        return Err(Status::new(Reason::RequestEntityTooLarge, message));
    }
    for operation in &operations {
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|_| Status::new(Reason::Invalid, CANNOT_BE_APPLIED))?;
        // Copies can double the object each time, and nested additions deepen it without end.
        let copied = matches!(operation, Copy(_)) && object.to_string().len() > COPIED_BYTES_MAX;
        if copied || is_deeper_than(object, DEPTH_MAX) {
            let message = "the patch makes the object too large or too deep";
            return Err(Status::new(Reason::RequestEntityTooLarge, message));
        }
    }
    Ok(())
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

fn parse_object(patch: &[u8]) -> Outcome<Value> {
    let patch = body::parse(patch)?;
    if patch.is_object() {
        Ok(patch)
    } else {
        Err(Status::bad_request("a merge patch must be a JSON object"))
    }
}
