//! The scale subresource.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::create::Write;
use super::metadata::{meta, meta_str};
use super::options::WriteOptions;
use super::patch::{self, APPLY_PATCH, apply_patch, check_media};
use super::printing::selector_text;
use super::request::{Call, Verb};
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, FieldError, Status};
use super::types::{self, Form, Node};
use super::{Document, Kernel, body};

impl Kernel {
    pub(crate) fn scale(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let target = &call.target;
        let live = self.store.get(target.resource, target.namespace(), target.name());
        let absent = || Status::not_found(target.resource, target.name());
        if call.verb == Verb::Get {
            let live = live.ok_or_else(absent)?;
            if let Some(paths) =
                target.resource.scale.filter(|paths| live.pointer(paths.spec_replicas).is_none())
            {
                let path = paths.spec_replicas.replace('/', ".");
                return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
            }
            return Ok(Document::json(200, &scale_of(target.resource, &live)));
        }
        let options = WriteOptions::parse(call)?;
        let unread =
            |status| if target.resource.is_custom() { body::unregistered("v1.Scale") } else { status };
        let sent = match call.verb {
            Verb::Update => Some(decode(body::read(call)?).map_err(unread)?),
            _ => None,
        };
        if let Some(scale) = &sent {
            check_name(target.name(), scale)?;
        }
        if sent.is_none() {
            check_media(target.resource, body::media_type(&call.request.content_type))?;
        }
        let live = live.ok_or_else(absent)?;
        let scale = match sent {
            Some(scale) => scale,
            None => {
                let media = body::media_type(&call.request.content_type);
                if media == APPLY_PATCH {
                    return Err(Status::not_implemented("server-side apply to scale"));
                }
                let mut scale = scale_of(target.resource, &live);
                apply_patch(Node::Free, media, &mut scale, patch::read(&call.request.body)?.0)?;
                decode(scale).map_err(|status| patch::invalid_patch(status, media))?
            }
        };
        check_name(target.name(), &scale)?;
        let mut object = Value::clone(&live);
        match target.resource.scale {
            // Custom resources are validated as a whole object and need no resourceVersion here.
            Some(_) if meta_str(&scale, "resourceVersion").is_empty() => {}
            custom => {
                if custom.is_none() {
                    check(target.name(), &scale)?;
                }
                object["metadata"]["resourceVersion"] = json!(meta_str(&scale, "resourceVersion"));
            }
        }
        set_replicas(target.resource, &mut object, scale["spec"]["replicas"].as_i64().unwrap_or(0));
        let write =
            Write { target, options: &options, now, applied: None, user: &call.user, has_empty_lists: false };
        let stored = self.replace(write, &live, object)?;
        Ok(Document::json(200, &scale_of(target.resource, &stored)))
    }
}

/// Decodes a Scale object.
fn decode(scale: Value) -> ApiResult<Value> {
    let shape = types::named("autoscaling.v1.Scale").unwrap_or_else(types::custom);
    types::decode(shape, scale, Form::Stored, &mut Vec::new()).map_err(|wrong| {
        let message = format!("Scale in version \"v1\" cannot be handled as a Scale: {}", wrong.0);
        let mut status = Status::bad_request(message);
        status.message_from_value = wrong.1;
        status
    })
}

fn check(name: &str, scale: &Value) -> ApiResult<()> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), why);
        return Err(Status::invalid("autoscaling", "Scale", name, &[error]));
    }
    Ok(())
}

fn check_name(name: &str, scale: &Value) -> ApiResult<()> {
    let named = meta_str(scale, "name");
    if named.is_empty() || named == name {
        return Ok(());
    }
    let message = format!("the name of the object ({named}) does not match the name on the URL ({name})");
    Err(Status::bad_request(message))
}

fn set_replicas(resource: &Resource, object: &mut Value, replicas: i64) {
    let pointer = resource.scale.map_or("/spec/replicas", |paths| paths.spec_replicas);
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = json!(replicas);
}

/// The Scale of an object.
fn scale_of(resource: &Resource, object: &Value) -> Value {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let paths = resource.scale;
    let selector = match (paths, resource.strategy) {
        (Some(paths), _) => object.pointer(paths.selector).and_then(Value::as_str).map(str::to_owned),
        (None, Strategy::ReplicationController) => {
            Some(selector_text(Some(&json!({"matchLabels": object.pointer("/spec/selector")}))))
        }
        (None, _) => Some(selector_text(object.pointer("/spec/selector"))),
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta(object, field) {
            metadata[field] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": number(paths.map_or("/status/replicas", |p| p.status_replicas))},
    });
    let wanted = number(paths.map_or("/spec/replicas", |p| p.spec_replicas));
    if wanted != 0 {
        scale["spec"]["replicas"] = json!(wanted);
    }
    if let Some(selector) = selector.filter(|text| !text.is_empty() && text != "<none>") {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}
