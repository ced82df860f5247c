//! The binding subresource: sets a pod's node once, and only if the pod is not terminating.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::metadata::{is_terminating, meta, meta_mut, meta_str};
use super::options::WriteOptions;
use super::request::Call;
use super::resources::{self, Resource};
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::store::SharedObject;
use super::{Document, Kernel, body, prepare, seconds};

impl Kernel {
    /// Handles `POST pods/NAME/binding` and the older `POST bindings`.
    pub(crate) fn bind(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = WriteOptions::parse(call)?;
        let binding = body::read(call)?;
        let name = meta_str(&binding, "name").to_owned();
        if call.target.name.as_deref().is_some_and(|in_path| in_path != name) {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let node = node_of(&binding)?;
        let Some(pods) = resources::by_path("", "v1", "pods") else {
            return Err(Status::no_resource());
        };
        let Some(live) = self.store.get(pods, call.target.namespace(), &name) else {
            return Err(Status::not_found(pods, &name));
        };
        check(pods, &name, &live, &binding)?;
        let mut bound = bound(&live, &binding, &node, now);
        self.set_topology_labels(&mut bound);
        if !options.dry_run {
            let event = self.store.put(pods, bound);
            self.publish(&event, now);
        }
        Ok(success())
    }
}

/// The response of subresources that return no object.
pub(crate) fn success() -> Document {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Document::json(201, &status)
}

fn node_of(binding: &Value) -> ApiResult<String> {
    let target = binding.get("target").unwrap_or(&Value::Null);
    let kind = target["kind"].as_str().unwrap_or_default();
    let node = target["name"].as_str().unwrap_or_default();
    // kube-apiserver answers 500 here.
    let refuse = |error: FieldError| Err(Status::new(StatusReason::Unknown, error.message()));
    if !matches!(kind, "" | "Node") {
        return refuse(FieldError::not_supported("target.kind", kind, "\"Node\", \"<empty>\""));
    }
    if node.is_empty() {
        return refuse(FieldError::required("target.name", ""));
    }
    Ok(node.to_owned())
}

fn check(pods: &Resource, name: &str, live: &SharedObject, binding: &Value) -> ApiResult<()> {
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (meta_str(binding, field), meta_str(live, field));
        if !wanted.is_empty() && wanted != found {
            return Err(Status::precondition(pods, name, (what, wanted, found)));
        }
    }
    let refuse = |why: String| {
        let mut status = Status::conflict(pods, name, &why);
        status.kind = "pods/binding".to_owned();
        status.message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
        status.reason = StatusReason::Conflict;
        Err(status)
    };
    if is_terminating(live) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = live.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty())
    {
        return refuse(format!("pod {name} is already assigned to node {node:?}"));
    }
    if live.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
    {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn bound(live: &Value, binding: &Value, node: &str, now: Timestamp) -> Value {
    let mut pod = live.clone();
    pod["spec"]["nodeName"] = json!(node);
    for field in ["annotations", "labels"] {
        for (key, value) in meta(binding, field).and_then(Value::as_object).into_iter().flatten() {
            let map = meta_mut(&mut pod).entry(field).or_insert_with(|| json!({}));
            map[key] = value.clone();
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": seconds(now)});
    prepare::set_condition(&mut pod, condition);
    pod
}
