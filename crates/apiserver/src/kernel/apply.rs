//! Server-side apply: a manager's object is merged in, fields it no longer names go, fields of others are respected.
//!
//! Maps are owned field by field, set and keyed lists item by item, all other lists whole.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::create::{Write, nobodys};
use super::fields::{self, Difference, FieldSet, Manager, Operation};
use super::metadata::{meta, meta_str};
use super::options::{UnknownFields, WriteOptions};
use super::patch::refuse_other_uid;
use super::request::Call;
use super::resources::Resource;
use super::status::{Cause, FieldError, Outcome, Reason, Status};
use super::types::{ListKind, Node};
use super::{Document, Kernel, body, views};

/// Owner of what an object without owners holds at its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Where `kubectl apply` keeps what it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Kernel {
    pub(crate) fn apply(
        &mut self,
        call: &Call<'_>,
        options: &WriteOptions,
        now: Timestamp,
    ) -> Outcome<Document> {
        let target = &call.target;
        if call.query.text("fieldManager").is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(error.of_options("PatchOptions"));
        }
        let applied = decode(call, options)?;
        let write = Write { target, options, now, applied: None, user: &call.user };
        let by = write.manager(Operation::Apply);
        let live = self.store.get(target.resource, target.namespace(), target.name());
        let Some(live) = live else {
            if target.subresource.is_some() {
                return Err(Status::not_found(target.resource, target.name()));
            }
            let uid = meta_str(&applied, "uid");
            if !uid.is_empty() {
                return Err(Status::precondition(target.resource, target.name(), "UID", uid, ""));
            }
            let node = Node::Struct(target.resource.shape());
            let managers = vec![Manager { fields: fields::claims(node, &applied), ..by }];
            let complete = views::stored_form(target.resource, body::complete(target.resource, applied)?);
            let created = self.insert(Write { applied: Some(managers), ..write }, complete)?;
            return Ok(self.show(call, 201, &created));
        };
        refuse_other_uid(target.resource, &live, &applied)?;
        let force = call.query.flag("force") == Some(true);
        let shown = views::shown_form(target.resource, &live);
        let (mut merged, managers) = merge(target.resource, &shown, &applied, &by, force)?;
        keep_last_applied(&mut merged, &applied, &by);
        let merged = body::conform(target.resource, merged, UnknownFields::Drop)?;
        let merged = views::stored_form(target.resource, merged);
        let stored = self.replace(Write { applied: Some(managers), ..write }, &live, merged)?;
        Ok(self.show(call, 200, &stored))
    }
}

fn decode(call: &Call<'_>, options: &WriteOptions) -> Outcome<Value> {
    let parsed: Value = serde_json::from_slice(&call.request.body).map_err(|e| {
        Status::bad_request(format!(
            "error decoding apply patch (the embedded API server reads JSON only): {e}"
        ))
    })?;
    for field in ["apiVersion", "kind"] {
        if parsed.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(Status::bad_request(format!("an apply patch must name its {field}")));
        }
    }
    if parsed.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let mut applied = body::sparse(call.target.resource, parsed, options.unknown_fields)?;
    body::place(call, &mut applied)?;
    Ok(applied)
}

/// What `kubectl apply` left in an annotation follows the applies of kubectl on the server, so that a later one on the
/// client compares with the right thing. Nobody owns the change.
fn keep_last_applied(merged: &mut Value, applied: &Value, by: &Manager) {
    let kept = meta(merged, "annotations").is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if by.name != "kubectl" || !kept {
        return;
    }
    let mut said = applied.clone();
    forget_last_applied(&mut said, by);
    merged["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{said}\n"));
}

/// Removes what kubectl applied last, if it is kubectl that applies.
pub(crate) fn forget_last_applied(object: &mut Value, by: &Manager) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations.filter(|_| by.name == "kubectl") {
        annotations.remove(LAST_APPLIED);
    }
}

/// The object after the apply and who owns what in it.
fn merge(
    resource: &Resource,
    live: &Value,
    applied: &Value,
    by: &Manager,
    force: bool,
) -> Outcome<(Value, Vec<Manager>)> {
    let node = Node::Struct(resource.shape());
    let mut managers = fields::managers(live);
    let wanted = fields::claims(node, applied);
    if managers.is_empty() {
        let mut all = Difference::between(node, &body::zero(resource), live).written();
        let aside: Vec<String> = nobodys(resource).iter().map(|field| format!("f:{field}")).collect();
        all.retain(|path| path.first().is_none_or(|step| !aside.contains(step)));
        // Until its first apply an object may be without owners; what it holds then is nobody's to remove.
        managers.push(Manager {
            name: BEFORE_FIRST_APPLY.to_owned(),
            operation: Operation::Update,
            subresource: String::new(),
            fields: all,
            ..by.clone()
        });
    }
    let mut merged = live.clone();
    merge_value(node, &mut merged, applied);
    let changed = Difference::between(node, live, &merged).written();
    let conflicts = conflicts(&managers, &changed, by);
    if !force && !conflicts.is_empty() {
        return Err(conflict(conflicts));
    }
    for other in managers.iter_mut().filter(|m| !m.same_as(by)) {
        other.fields.retain(|owned| !changed.contains(owned));
    }
    // The time is that of the last apply that changed something; it is set when that is known.
    let new = || Manager { time: String::new(), ..by.clone() };
    let mine = managers.iter().find(|m| m.same_as(by)).cloned().unwrap_or_else(new);
    managers.retain(|m| !m.same_as(by));
    // What holds something that is still wanted stays, even if it was owned by itself before.
    let kept =
        |path: &fields::Path| wanted.range(path.clone()..).next().is_some_and(|next| next.starts_with(path));
    for path in mine.fields.iter().filter(|path| !kept(path)) {
        if !managers.iter().any(|other| other.holds(path)) {
            fields::remove(&mut merged, path);
        }
    }
    managers.push(Manager { fields: wanted, ..mine });
    // The locks of the applied object are judged, not merged.
    for lock in ["resourceVersion", "uid"] {
        if let Some(value) = meta(applied, lock) {
            merged["metadata"][lock] = value.clone();
        }
    }
    Ok((merged, managers))
}

/// Fields others own with another value, each with its owner.
fn conflicts(managers: &[Manager], changed: &FieldSet, by: &Manager) -> Vec<Cause> {
    let mut causes = Vec::new();
    for other in managers.iter().filter(|m| !m.same_as(by)) {
        for path in changed.iter().filter(|path| other.fields.contains(*path)) {
            causes.push(Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {}", introduced(other)),
                field: path.iter().map(|step| readable(step)).collect(),
            });
        }
    }
    causes
}

fn introduced(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}

fn readable(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", key)) => format!("[{}]", key.trim_matches(['{', '}']).replace("\":", "\"=")),
        Some((_, value)) => format!("[={value}]"),
        None => step.to_owned(),
    }
}

fn conflict(causes: Vec<Cause>) -> Box<Status> {
    let listed: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.message, c.field)).collect();
    let message = match listed.as_slice() {
        [only] => format!("Apply failed with 1 conflict: {only}"),
        many => format!("Apply failed with {} conflicts: {}", many.len(), many.join("; ")),
    };
    let mut status = Status::new(Reason::Conflict, message);
    status.causes = causes;
    status
}

fn merge_value(node: Node, live: &mut Value, applied: &Value) {
    match applied {
        Value::Object(map) if !node.is_atomic() => {
            if !live.is_object() {
                *live = json!({});
            }
            for (name, value) in map {
                merge_value(node.field(name), &mut live[name.as_str()], value);
            }
        }
        Value::Array(items) => merge_list(node, live, items),
        value => *live = value.clone(),
    }
}

fn merge_list(node: Node, live: &mut Value, applied: &[Value]) {
    let kind = node.list_kind();
    let keyed = match kind {
        ListKind::Keyed(keys) if applied.iter().all(|i| node.item_key(keys, i).is_some()) => Some(keys),
        _ => None,
    };
    let Some(items) = live.as_array_mut().filter(|_| kind == ListKind::Set || keyed.is_some()) else {
        *live = Value::Array(applied.to_vec());
        return;
    };
    for item in applied {
        let at = match keyed {
            Some(keys) => items.iter().position(|i| node.item_key(keys, i) == node.item_key(keys, item)),
            None => items.iter().position(|i| i == item),
        };
        match at {
            Some(at) => merge_value(node.item(), &mut items[at], item),
            None => items.push(item.clone()),
        }
    }
}
