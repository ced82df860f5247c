//! Bodies become objects of the expected kind with well-typed metadata, or are refused with 400, 415 or 422.

use serde_json::{Map, Value, json};

use super::metadata;
use super::options::UnknownFields;
use super::request::Call;
use super::resources::Resource;
use super::status::{Outcome, Reason, Status};
use super::types;

/// The object in the body of a create or update.
pub(crate) fn decode(call: &Call<'_>, unknown: UnknownFields) -> Outcome<Value> {
    conform(call.target.resource, read(call)?, unknown)
}

/// The body of a write, whatever form it is sent in.
pub(crate) fn read(call: &Call<'_>) -> Outcome<Value> {
    match media_type(&call.request.content_type) {
        "" | "application/json" => parse(&call.request.body),
        "application/vnd.kubernetes.protobuf" => types::binary::read(&call.request.body)
            .map_err(|error| Status::bad_request(format!("the binary body cannot be read: {}", error.0))),
        other => Err(unsupported(other, "application/json, application/vnd.kubernetes.protobuf")),
    }
}

/// The media type without its parameters.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The body's media type is none of those accepted.
pub(crate) fn unsupported(media: &str, accepted: &str) -> Box<Status> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted} (got {media:?})"
    );
    Status::new(Reason::UnsupportedMediaType, message)
}

/// JSON, or 400.
pub(crate) fn parse(body: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(body).map_err(|e| {
        Status::bad_request(format!("the object provided is unrecognized or not valid JSON: {e}"))
    })
}

/// Makes `object` one of the kind: right apiVersion and kind, known fields of the right types, all written in their
/// one form.
pub(crate) fn conform(resource: &Resource, object: Value, unknown: UnknownFields) -> Outcome<Value> {
    shaped(resource, object, unknown, true)
}

/// Like [`conform`], but fields that are left out stay out: an applied object claims only what it names.
pub(crate) fn sparse(resource: &Resource, object: Value, unknown: UnknownFields) -> Outcome<Value> {
    shaped(resource, object, unknown, false)
}

/// Writes out an object whose fields are known to be right.
pub(crate) fn complete(resource: &Resource, object: Value) -> Outcome<Value> {
    shaped(resource, object, UnknownFields::Drop, true)
}

/// The object of the kind about which nothing is said.
pub(crate) fn zero(resource: &Resource) -> Value {
    types::decode(resource.shape(), json!({}), true, &mut Vec::new()).unwrap_or_default()
}

fn shaped(resource: &Resource, object: Value, unknown: UnknownFields, complete: bool) -> Outcome<Value> {
    let Value::Object(mut map) = object else {
        return Err(Status::bad_request(format!("a {} must be a JSON object", resource.kind)));
    };
    check_type(resource, &mut map)?;
    let mut strange = Vec::new();
    let object = types::decode(resource.shape(), Value::Object(map), complete, &mut strange)
        .map_err(|mismatch| undecodable(resource, &format!("{} at {}", mismatch.problem, mismatch.path)))?;
    if unknown == UnknownFields::Refuse && !strange.is_empty() {
        let listed: Vec<String> = strange.iter().map(|f| format!("unknown field {f:?}")).collect();
        return Err(undecodable(resource, &format!("strict decoding error: {}", listed.join(", "))));
    }
    Ok(object)
}

fn undecodable(resource: &Resource, why: &str) -> Box<Status> {
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {why}",
        kind = resource.kind,
        version = resource.version,
    ))
}

fn check_type(resource: &Resource, map: &mut Map<String, Value>) -> Outcome<()> {
    for (field, expected) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_owned())] {
        match map.get(field) {
            None | Some(Value::Null) => {
                map.insert(field.to_owned(), json!(expected));
            }
            Some(Value::String(found)) if found.is_empty() => {
                map.insert(field.to_owned(), json!(expected));
            }
            Some(found) if *found == json!(expected) => {}
            Some(found) => {
                return Err(Status::bad_request(format!(
                    "the {field} in the data ({found}) does not match the expected {field} ({expected})"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the name and namespace in the body do not contradict the path, and completes them from it.
pub(crate) fn place(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let target = &call.target;
    for (field, expected) in [("name", target.name.as_deref()), ("namespace", target.namespace.as_deref())] {
        let found = metadata::meta_str(object, field);
        match expected {
            Some(expected) if found.is_empty() => {
                metadata::set_meta(object, field, Some(json!(expected)));
            }
            Some(expected) if found != expected => {
                return Err(Status::bad_request(format!(
                    "the {field} of the object ({found}) does not match the {field} on the URL ({expected})"
                )));
            }
            _ => {}
        }
    }
    if !target.resource.namespaced && !metadata::meta_str(object, "namespace").is_empty() {
        return Err(Status::bad_request(
            "the namespace of the object must be empty for a cluster-scoped kind",
        ));
    }
    Ok(())
}
