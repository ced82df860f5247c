//! Decodes request bodies into objects of the expected kind, or rejects them with 400, 415 or 422.

use serde_json::{Map, Value, json};

use super::metadata;
use super::random::Random;
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::strict_json;
use super::types::{self, Form};

/// kube-apiserver's messages name the source line of its scheme.
pub(crate) const SCHEME: &str = "in scheme \"pkg/runtime/scheme.go:111\"";
/// Go's name of the type that reads apiVersion and kind.
const KIND_READER: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// Accepted media types as kube-apiserver lists them; YAML is not accepted here.
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// How many bytes of a body an error message quotes.
const QUOTED_BYTES_MAX: usize = 30;

/// A decoded object and the strict decoding errors: unknown and duplicate fields.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) strict_errors: Vec<String>,
    /// Whether the spec has empty lists, which count as a change although they are not stored.
    pub(crate) has_empty_lists: bool,
    /// The object is of another apiVersion or kind than this resource; reported after the strict errors.
    pub(crate) type_mismatch: Option<Box<Status>>,
}

/// Decodes the body of a create or update.
pub(crate) fn decode(call: &Call<'_>) -> ApiResult<Decoded> {
    let resource = call.target.resource;
    let quoted = |why: String| {
        let kind = resource.kind;
        let body = summary(&call.request.body);
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({body})"
        ))
    };
    let (mut value, mut strict_errors) = read_strictly(call)?.map_err(quoted)?;
    mark_managed_fields_reset(resource, &mut value);
    if resource.is_custom() && value["kind"].as_str().unwrap_or_default().is_empty() {
        let sent = String::from_utf8_lossy(&call.request.body);
        let why = format!("Object 'Kind' is missing in '{sent}'");
        return Err(match call.query.text("fieldValidation") {
            "Ignore" => undecodable(resource, resource.kind, resource.version, &why),
            _ => quoted(why),
        });
    }
    let (sent, expected) = (value["apiVersion"].as_str().unwrap_or_default(), resource.api_version());
    let mut type_mismatch = None;
    if resource.is_custom() && sent != expected {
        type_mismatch = Some(Status::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({expected})"
        )));
        value["apiVersion"] = json!(expected);
    }
    // If version and kind are both wrong, the version is reported.
    if resource.is_custom()
        && let Value::Object(map) = &mut value
        && let Err(status) = check_type(resource, map)
        && status.reason == StatusReason::Invalid
    {
        type_mismatch = type_mismatch.or(Some(status));
        map.insert("kind".to_owned(), json!(resource.kind));
    }
    let decoded = decode_as(resource, value, Form::Sent)?;
    let mut decoded = Decoded { type_mismatch, ..decoded };
    // A duplicate of an unknown field is reported only as unknown.
    let known = |duplicates: &String| {
        let path = duplicates.trim_start_matches("duplicate field \"").trim_end_matches('"');
        !decoded.strict_errors.iter().any(|unknown| unknown.ends_with(&format!(" {path:?}")))
    };
    strict_errors.retain(known);
    strict_errors.append(&mut decoded.strict_errors);
    Ok(Decoded { strict_errors, ..decoded })
}

/// Sent empty managedFields reset the ownership. Decoding would drop an empty list, so it becomes a list with one
/// empty entry, which means the same.
pub(crate) fn mark_managed_fields_reset(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    if let Some(managers) = object.pointer_mut("/metadata/managedFields").filter(|m| **m == json!([])) {
        *managers = json!([{}]);
    }
}

/// Parses the body of a write in any accepted media type.
pub(crate) fn read(call: &Call<'_>) -> ApiResult<Value> {
    read_strictly(call)?.map(|(value, _)| value).map_err(Status::bad_request)
}

/// The body and its duplicate fields, or why its kind cannot be determined.
fn read_strictly(call: &Call<'_>) -> ApiResult<Result<(Value, Vec<String>), String>> {
    let body = &call.request.body;
    match media_type(&call.request.content_type) {
        "" | "application/json" => Ok(strict_json::parse(body)
            .and_then(|(value, duplicates)| {
                identifiable(&value)?;
                Ok((value, duplicates))
            })
            .map_err(|why| unidentified(&why))),
        "application/vnd.kubernetes.protobuf" => {
            let read = types::protobuf::read(body);
            Ok(read.map(|value| (value, Vec::new())).map_err(|error| error.0.to_string()))
        }
        _ => Err(unsupported(BODIES)),
    }
}

fn unidentified(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Whether apiVersion and kind can be read from the value.
fn identifiable(value: &Value) -> Result<(), String> {
    let found = match value {
        Value::Null | Value::Object(_) => None,
        Value::Array(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Number(_) => Some("number"),
        Value::Bool(_) => Some("bool"),
    };
    if let Some(found) = found {
        return Err(format!("json: cannot unmarshal {found} into Go value of type {KIND_READER}"));
    }
    for field in ["apiVersion", "kind"] {
        let found = match value.get(field) {
            None | Some(Value::Null | Value::String(_)) => continue,
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
            Some(Value::Number(_)) => "number",
            Some(Value::Bool(_)) => "bool",
        };
        return Err(format!("json: cannot unmarshal {found} into Go struct field .{field} of type string"));
    }
    Ok(())
}

/// The first bytes of a body, as error messages quote them.
fn summary(body: &[u8]) -> String {
    let more = if body.len() > QUOTED_BYTES_MAX { " ..." } else { "" };
    let begin = &body[..body.len().min(QUOTED_BYTES_MAX)];
    match begin.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(begin)),
        Some(_) => format!("{}{more}", begin.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

/// The media type without its parameters.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// 415 for a body of another media type.
pub(crate) fn unsupported(accepted: &str) -> Box<Status> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    Status::new(StatusReason::UnsupportedMediaType, message)
}

/// Converts `object` to the kind's type: fills in apiVersion and kind, drops unknown fields, normalizes values.
pub(crate) fn conform(resource: &Resource, object: Value) -> ApiResult<Decoded> {
    decode_as(resource, object, Form::Sent)
}

/// Normalizes an object whose fields are already valid.
pub(crate) fn complete(resource: &Resource, object: Value) -> ApiResult<Value> {
    decode_as(resource, object, Form::Stored).map(|decoded| decoded.object)
}

/// The zero value of the kind.
pub(crate) fn zero(resource: &Resource) -> Value {
    types::decode(resource.shape(), json!({}), Form::Stored, &mut Vec::new()).unwrap_or_default()
}

fn decode_as(resource: &Resource, object: Value, form: Form) -> ApiResult<Decoded> {
    let mut object = if object.is_null() { json!({}) } else { object };
    if let Value::Object(map) = &mut object {
        check_type(resource, map)?;
    }
    let has_empty_lists = resource.strategy == Strategy::NetworkPolicy && has_empty_list(&object["spec"]);
    let mut unknown = Vec::new();
    let object = types::decode(resource.shape(), object, form, &mut unknown).map_err(|mismatch| {
        let mut status = undecodable(resource, resource.kind, resource.version, &mismatch.0);
        status.message_from_value = mismatch.1;
        status
    })?;
    let mut object = object;
    unknown.extend(resource.schema.into_iter().flat_map(|schema| schema.default_and_prune(&mut object)));
    let strict_errors = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    Ok(Decoded { object, strict_errors, has_empty_lists, type_mismatch: None })
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(map) => map.values().any(has_empty_list),
        _ => false,
    }
}

/// The strict decoding errors as one 400.
pub(crate) fn strict_decoding_error(resource: &Resource, strict_errors: &[String]) -> Box<Status> {
    undecodable(resource, resource.kind, resource.version, &strict_decoding_message(strict_errors))
}

/// The strict decoding errors as one message.
pub(crate) fn strict_decoding_message(strict_errors: &[String]) -> String {
    format!("strict decoding error: {}", strict_errors.join(", "))
}

fn undecodable(resource: &Resource, kind: &str, version: &str, why: &str) -> Box<Status> {
    let expected = resource.kind;
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {expected}: {why}"))
}

/// The apiextensions server has few types in its scheme.
pub(crate) fn unregistered(kind: &str) -> Box<Status> {
    Status::bad_request(format!("no kind is registered for the type {kind} {SCHEME}"))
}

fn check_type(resource: &Resource, map: &mut Map<String, Value>) -> ApiResult<()> {
    for field in ["apiVersion", "kind"] {
        if let Some(wrong) = map.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            let found = if wrong.is_number() { "int64" } else { "map" };
            let restored = format!("cannot convert {found} to string");
            let why = identifiable(&Value::Object(map.clone())).err();
            let message = why.map_or_else(|| restored.clone(), |why| unidentified(&why));
            let mut status = Status::bad_request(message);
            status.message_from_value = Some(restored);
            return Err(status);
        }
    }
    for (field, expected) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_owned())] {
        if map.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
            map.insert(field.to_owned(), json!(expected));
        }
    }
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default();
    let (sent, kind) = (text("apiVersion"), text("kind"));
    if sent == resource.api_version() && kind == resource.kind {
        return Ok(());
    }
    if resource.is_custom() && sent == resource.api_version() {
        let error = FieldError::invalid("kind", &json!(kind), &format!("must be {}", resource.kind));
        let given = |field: &str| map.get("metadata").and_then(|metadata| metadata[field].as_str());
        let mut name = given("name").unwrap_or_default().to_owned();
        if let Some(prefix) = given("generateName").filter(|_| name.is_empty()) {
            // kube-apiserver has generated a name at this point. The object is rejected anyway, so the seed does not
            // matter.
            name = Random::seeded(0).name(prefix);
        }
        return Err(Status::invalid(resource.group, kind, &name, &[error]));
    }
    let version = sent.rsplit('/').next().unwrap_or_default();
    let why = format!("no kind {kind:?} is registered for version {sent:?} {SCHEME}");
    Err(undecodable(resource, kind, version, &why))
}

/// Checks name and namespace in the body against the path, and fills them in from it.
pub(crate) fn check_name_and_namespace(call: &Call<'_>, object: &mut Value) -> ApiResult<()> {
    let target = &call.target;
    let namespace = metadata::meta_str(object, "namespace");
    if !namespace.is_empty() && target.resource.namespaced && namespace != target.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    metadata::set_meta(object, "namespace", target.namespace.as_ref().map(|namespace| json!(namespace)));
    let name = metadata::meta_str(object, "name");
    match target.name.as_deref() {
        Some(expected) if name.is_empty() => {
            metadata::set_meta(object, "name", Some(json!(expected)));
        }
        Some(expected) if name != expected => {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({expected})"
            )));
        }
        _ => {}
    }
    Ok(())
}
