//! Bodies become objects of the expected kind with well-typed metadata, or are refused with 400, 415 or 422.

use serde_json::{Map, Value, json};

use super::metadata;
use super::random::Random;
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::strict_json;
use super::types::{self, Form};

/// In this place of its source the real server keeps its kinds, and says so.
pub(crate) const SCHEME: &str = "in scheme \"pkg/runtime/scheme.go:111\"";
/// How Go prints the type that it reads kinds with.
const KIND_READER: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// The forms in which bodies are read; YAML only by the real server.
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// How much of a body is quoted back.
const QUOTED_BYTES_MAX: usize = 30;

/// An object, and what is strange about how it was sent: fields nobody knows, fields sent twice.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) strict_errors: Vec<String>,
    /// Whether it has empty lists that count as something said, although they are never stored.
    pub(crate) has_empty_lists: bool,
    /// Why the object is none of those served here; told after what is strange.
    pub(crate) type_mismatch: Option<Box<Status>>,
}

/// The object in the body of a create or update.
pub(crate) fn decode(call: &Call<'_>) -> ApiResult<Decoded> {
    let resource = call.target.resource;
    let quoted = |why: String| {
        let kind = resource.kind;
        let body = summary(&call.request.body);
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({body})"
        ))
    };
    let (mut value, mut strange) = read_strictly(call)?.map_err(quoted)?;
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
    let mut misplaced = None;
    if resource.is_custom() && sent != expected {
        misplaced = Some(Status::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({expected})"
        )));
        value["apiVersion"] = json!(expected);
    }
    // Of the wrong version and the wrong kind the version is told.
    if resource.is_custom()
        && let Value::Object(map) = &mut value
        && let Err(status) = check_type(resource, map)
        && status.reason == StatusReason::Invalid
    {
        misplaced = misplaced.or(Some(status));
        map.insert("kind".to_owned(), json!(resource.kind));
    }
    let decoded = shaped(resource, value, Form::Sent)?;
    let mut decoded = Decoded { type_mismatch: misplaced, ..decoded };
    // Nobody looks twice at a field that is not known.
    let known = |twice: &String| {
        let path = twice.trim_start_matches("duplicate field \"").trim_end_matches('"');
        !decoded.strict_errors.iter().any(|unknown| unknown.ends_with(&format!(" {path:?}")))
    };
    strange.retain(known);
    strange.append(&mut decoded.strict_errors);
    Ok(Decoded { strict_errors: strange, ..decoded })
}

/// An empty list of managers, which would not outlive the next step, says that ownership starts afresh; so does a list
/// of one empty entry.
pub(crate) fn mark_managed_fields_reset(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    if let Some(managers) = object.pointer_mut("/metadata/managedFields").filter(|m| **m == json!([])) {
        *managers = json!([{}]);
    }
}

/// The body of a write, whatever form it is sent in.
pub(crate) fn read(call: &Call<'_>) -> ApiResult<Value> {
    read_strictly(call)?.map(|(value, _)| value).map_err(Status::bad_request)
}

/// The body and the fields in it that were sent twice, or why it cannot be told what it is.
fn read_strictly(call: &Call<'_>) -> ApiResult<Result<(Value, Vec<String>), String>> {
    let body = &call.request.body;
    match media_type(&call.request.content_type) {
        "" | "application/json" => Ok(strict_json::parse(body)
            .and_then(|(value, twice)| {
                identifiable(&value)?;
                Ok((value, twice))
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

/// Whether the value can tell its kind at all.
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

/// The beginning of a body, as it is quoted in a refusal.
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

/// The body's media type is none of those accepted.
pub(crate) fn unsupported(accepted: &str) -> Box<Status> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    Status::new(StatusReason::UnsupportedMediaType, message)
}

/// Makes `object` one of the kind: right apiVersion and kind, known fields of the right types, all written in their
/// one form.
pub(crate) fn conform(resource: &Resource, object: Value) -> ApiResult<Decoded> {
    shaped(resource, object, Form::Sent)
}

/// Writes out an object whose fields are known to be right.
pub(crate) fn complete(resource: &Resource, object: Value) -> ApiResult<Value> {
    shaped(resource, object, Form::Stored).map(|decoded| decoded.object)
}

/// The object of the kind about which nothing is said.
pub(crate) fn zero(resource: &Resource) -> Value {
    types::decode(resource.shape(), json!({}), Form::Stored, &mut Vec::new()).unwrap_or_default()
}

fn shaped(resource: &Resource, object: Value, form: Form) -> ApiResult<Decoded> {
    let mut object = if object.is_null() { json!({}) } else { object };
    if let Value::Object(map) = &mut object {
        check_type(resource, map)?;
    }
    let hollow = resource.strategy == Strategy::NetworkPolicy && has_empty_list(&object["spec"]);
    let mut unknown = Vec::new();
    let object = types::decode(resource.shape(), object, form, &mut unknown).map_err(|mismatch| {
        let mut status = undecodable(resource, resource.kind, resource.version, &mismatch.0);
        status.message_from_value = mismatch.1;
        status
    })?;
    let mut object = object;
    unknown.extend(resource.schema.into_iter().flat_map(|schema| schema.default_and_prune(&mut object)));
    let strange = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    Ok(Decoded { object, strict_errors: strange, has_empty_lists: hollow, type_mismatch: None })
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(map) => map.values().any(has_empty_list),
        _ => false,
    }
}

/// What is strange counts as an error.
pub(crate) fn strict_decoding_error(resource: &Resource, strange: &[String]) -> Box<Status> {
    undecodable(resource, resource.kind, resource.version, &strict_decoding_message(strange))
}

/// What is strange, in one sentence.
pub(crate) fn strict_decoding_message(strange: &[String]) -> String {
    format!("strict decoding error: {}", strange.join(", "))
}

fn undecodable(resource: &Resource, kind: &str, version: &str, why: &str) -> Box<Status> {
    let expected = resource.kind;
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {expected}: {why}"))
}

/// The server for custom resources knows few types.
pub(crate) fn unregistered(kind: &str) -> Box<Status> {
    Status::bad_request(format!("no kind is registered for the type {kind} {SCHEME}"))
}

fn check_type(resource: &Resource, map: &mut Map<String, Value>) -> ApiResult<()> {
    for field in ["apiVersion", "kind"] {
        if let Some(strange) = map.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            let found = if strange.is_number() { "int64" } else { "map" };
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
            // The real server has drawn a name by now; nothing will ever have it, so any will do.
            name = Random::seeded(0).name(prefix);
        }
        return Err(Status::invalid(resource.group, kind, &name, &[error]));
    }
    let version = sent.rsplit('/').next().unwrap_or_default();
    let why = format!("no kind {kind:?} is registered for version {sent:?} {SCHEME}");
    Err(undecodable(resource, kind, version, &why))
}

/// Checks that the name and namespace in the body do not contradict the path, and completes them from it.
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
