//! Server-side apply: merges the applied configuration, removes fields the manager no longer applies, and reports
//! conflicts with other managers.
//!
//! Maps are owned field by field, set and map lists item by item, all other lists as a whole.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::create::Write;
use super::fields::{self, Comparison, FieldSet, ManagedFieldsEntry, Operation, ResetFields};
use super::metadata::{meta, meta_str};
use super::options::WriteOptions;
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, Status, StatusCause, StatusReason};
use super::types::{ListKind, Node};
use super::{Document, Kernel, body, conversion, prepare, schema, strict_json};

/// Manager of the fields of an object that has no managedFields at its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The annotation in which client-side `kubectl apply` stores its configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Kernel {
    pub(crate) fn apply(
        &mut self,
        call: &Call<'_>,
        options: &WriteOptions,
        now: Timestamp,
    ) -> ApiResult<Document> {
        let target = &call.target;
        let live = self.store.get(target.resource, target.namespace(), target.name());
        // These kinds can also be created through their status subresource.
        let creates = matches!(target.resource.strategy, Strategy::AdmissionPolicy | Strategy::Service);
        if live.is_none() && target.subresource.is_some() && !creates {
            return Err(Status::not_found(target.resource, target.name()));
        }
        let (applied, sent_place) = decode(call, live.is_some())?;
        let write = Write { target, options, now, applied: None, user: &call.user, has_empty_lists: false };
        let by = write.manager(Operation::Apply);
        let reset_fields = prepare::reset_fields(target.resource, target.subresource.as_deref());
        let Some(live) = live else {
            let uid = meta_str(&applied, "uid");
            if !uid.is_empty() {
                return Err(Status::precondition(target.resource, target.name(), ("UID", uid, "")));
            }
            let node = target.resource.node();
            let mut owned = fields::field_set(node, &applied);
            fields::strip_reset_fields(&mut owned, reset_fields);
            let managers = vec![ManagedFieldsEntry { fields: owned, ..by }];
            let complete = convert(target.resource, applied, &sent_place)?.object;
            let complete = conversion::to_storage_version(target.resource, complete);
            let created = self.insert(Write { applied: Some(managers), ..write }, complete)?;
            return Ok(self.show(call, 201, &created));
        };
        let force = call.query.flag("force") == Some(true);
        let served = conversion::to_served_version(target.resource, &live);
        let (mut merged, managers) = merge(target.resource, &served, &applied, &by, force, reset_fields)?;
        update_last_applied(&mut merged, &applied, &by);
        let body::Decoded { object: merged, has_empty_lists, .. } =
            convert(target.resource, merged, &sent_place)?;
        let merged = conversion::to_storage_version(target.resource, merged);
        let stored =
            self.replace(Write { applied: Some(managers), has_empty_lists, ..write }, &live, merged)?;
        Ok(self.show(call, 200, &stored))
    }
}

/// Converts to the kind's type; kube-apiserver reports a failure as an internal error (500).
fn convert(resource: &Resource, object: Value, place: &str) -> ApiResult<body::Decoded> {
    let kind = format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind);
    body::conform(resource, object).map_err(|status| {
        let why = status.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
        let why = status.message_from_value.as_deref().or(why.map(|(_, why)| why)).unwrap_or(&status.message).to_owned();
        let message = format!(
            "failed to convert new object ({place}; {kind}) to proper version: unable to convert unstructured \
             object to {kind}: {why}"
        );
        Status::new(StatusReason::Unknown, message)
    })
}

/// The applied configuration with only the fields it sets, and its `namespace/name` as sent.
fn decode(call: &Call<'_>, exists: bool) -> ApiResult<(Value, String)> {
    let resource = call.target.resource;
    let (parsed, _) = strict_json::parse(&call.request.body)
        .map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
    let text = |field: &str| parsed[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let kind = format!("{group}/{version}, Kind={}", text("kind"));
    if (group, version, text("kind")) != (resource.group, resource.version, resource.kind) {
        return Err(Status::bad_request(format!("invalid object type: {kind}")));
    }
    if meta(&parsed, "managedFields").is_some_and(|managers| !managers.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let violations = schema::violations(resource.node(), &parsed);
    if !violations.is_empty() {
        let (namespace, name) = (meta_str(&parsed, "namespace"), meta_str(&parsed, "name"));
        let kind = kind.trim_start_matches('/');
        let details = match violations.as_slice() {
            [only] => only.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        // kube-apiserver answers 500 here.
        let message = format!("failed to create typed patch object ({namespace}/{name}; /{kind}): {details}");
        let message = if group.is_empty() { message } else { message.replace("; /", "; ") };
        return Err(Status::new(StatusReason::Unknown, message));
    }
    let mut applied = parsed;
    if meta_str(&applied, "name").is_empty() && !exists {
        return Err(Status::name_undeterminable(call.target.name()));
    }
    let place = format!("{}/{}", meta_str(&applied, "namespace"), meta_str(&applied, "name"));
    body::check_name_and_namespace(call, &mut applied)?;
    Ok((applied, place))
}

/// A server-side apply by kubectl also updates the last-applied annotation, if there is one, so that a later
/// client-side apply compares with the right configuration. No manager owns this change.
fn update_last_applied(merged: &mut Value, applied: &Value, by: &ManagedFieldsEntry) {
    let present =
        meta(merged, "annotations").is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if by.name != "kubectl" || !present {
        return;
    }
    let mut last_applied = applied.clone();
    remove_last_applied(&mut last_applied, by);
    merged["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{last_applied}\n"));
}

/// Removes the last-applied annotation if the manager is kubectl.
fn remove_last_applied(object: &mut Value, by: &ManagedFieldsEntry) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations.filter(|_| by.name == "kubectl") {
        annotations.remove(LAST_APPLIED);
    }
}

/// The merged object and its managedFields.
fn merge(
    resource: &Resource,
    live: &Value,
    applied: &Value,
    by: &ManagedFieldsEntry,
    force: bool,
    reset_fields: ResetFields,
) -> ApiResult<(Value, Vec<ManagedFieldsEntry>)> {
    let node = resource.node();
    let mut managers = fields::managed_fields(live);
    let mut wanted = fields::field_set(node, applied);
    fields::strip_reset_fields(&mut wanted, reset_fields);
    if managers.is_empty() {
        let mut all = Comparison::between(node, &body::zero(resource), live).written();
        fields::strip_reset_fields(&mut all, reset_fields);
        // An object that was never applied may have no managedFields; its fields belong to this synthetic manager, so
        // that the apply does not remove them.
        managers.push(ManagedFieldsEntry {
            name: BEFORE_FIRST_APPLY.to_owned(),
            operation: Operation::Update,
            fields: all,
            ..by.clone()
        });
    }
    let mut merged = live.clone();
    merge_value(node, &mut merged, applied);
    let mut changed = Comparison::between(node, live, &merged).written();
    fields::strip_reset_fields(&mut changed, reset_fields);
    let conflicts = conflicts(&managers, &changed, by);
    if !force && !conflicts.is_empty() {
        return Err(conflict(conflicts));
    }
    for other in managers.iter_mut().filter(|m| !m.same_as(by)) {
        other.fields.retain(|owned| !changed.contains(owned));
    }
    let mine = managers.iter().find(|m| m.same_as(by)).cloned();
    let mine = mine.unwrap_or_else(|| ManagedFieldsEntry { time: String::new(), ..by.clone() });
    managers.retain(|m| !m.same_as(by));
    // A container stays as long as something below it is still applied.
    let still_applied = |path: &fields::FieldPath| {
        wanted.range(path.clone()..).next().is_some_and(|next| next.starts_with(path))
    };
    let given_up =
        |path: &fields::FieldPath| !still_applied(path) && !managers.iter().any(|other| other.owns(path));
    for path in &mine.fields {
        // If no manager owns anything below a struct, the whole struct is removed, with its unowned fields.
        let structs =
            (1..path.len()).filter(|length| path[length - 1].starts_with("f:")).map(|l| path[..l].to_vec());
        let structs = structs.filter(|path| *path != ["f:metadata"]);
        if let Some(path) = structs.chain([path.clone()]).find(|path| given_up(path)) {
            fields::remove(&mut merged, &path);
        }
    }
    if resource.is_custom() {
        keep_emptied_objects(&mut merged, applied);
    }
    // An apply that changes nothing transfers ownership but keeps the timestamp.
    let time = if merged == *live { mine.time } else { by.time.clone() };
    managers.push(ManagedFieldsEntry { fields: wanted, time, ..mine });
    // resourceVersion and uid of the applied configuration are preconditions; they are not merged.
    for lock in ["resourceVersion", "uid"] {
        if let Some(value) = meta(applied, lock) {
            merged["metadata"][lock] = value.clone();
        }
    }
    Ok((merged, managers))
}

/// A field applied as an empty object whose content was removed becomes null. Only custom resources show this: typed
/// kinds do not keep the null.
fn keep_emptied_objects(merged: &mut Value, applied: &Value) {
    for (name, value) in applied.as_object().into_iter().flatten().filter(|(_, value)| value.is_object()) {
        match merged.get_mut(name) {
            Some(left) => keep_emptied_objects(left, value),
            None => merged[name.as_str()] = Value::Null,
        }
    }
}

/// Conflicts: fields owned by other managers with a different value.
fn conflicts(
    managers: &[ManagedFieldsEntry],
    changed: &FieldSet,
    by: &ManagedFieldsEntry,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut others: Vec<&ManagedFieldsEntry> = managers.iter().filter(|m| !m.same_as(by)).collect();
    others.sort_by_key(|other| (&other.name, other.operation == Operation::Update));
    for other in others {
        let mut paths: Vec<&fields::FieldPath> =
            changed.iter().filter(|path| other.fields.contains(*path)).collect();
        // At each level, leaf fields sort before containers.
        let order = |path: &&fields::FieldPath| -> Vec<(bool, String)> {
            path.iter().enumerate().map(|(at, step)| (at + 1 < path.len(), step.clone())).collect()
        };
        paths.sort_by_key(order);
        for path in paths {
            causes.push(StatusCause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {}", describe_manager(other)),
                field: path.iter().map(|step| readable_step(step)).collect(),
            });
        }
    }
    causes
}

fn describe_manager(manager: &ManagedFieldsEntry) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}

fn readable_step(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", key)) => {
            let key: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
            let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", parts.join(","))
        }
        Some((_, value)) => format!("[={value}]"),
        None => step.to_owned(),
    }
}

fn conflict(causes: Vec<StatusCause>) -> Box<Status> {
    let message = match causes.as_slice() {
        [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
        many => {
            let mut lines: Vec<String> = Vec::new();
            for cause in many {
                let head = format!("{}:", cause.message.replacen("conflict", "conflicts", 1));
                if !lines.contains(&head) {
                    lines.push(head);
                }
                lines.push(format!("- {}", cause.field));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut status = Status::new(StatusReason::Conflict, message);
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
    let live_order = items.clone();
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
    order(items, &live_order, applied, &|a, b| match keyed {
        Some(keys) => node.item_key(keys, a) == node.item_key(keys, b),
        None => a == b,
    });
}

/// Orders a merged list: applied items are in the applied order; items only in the live list come as early as the
/// items in both lists allow.
fn order(items: &mut Vec<Value>, live: &[Value], applied: &[Value], same: &dyn Fn(&Value, &Value) -> bool) {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let mut merged = std::mem::take(items);
    let mut take = |wanted: &Value| place(&merged, wanted).map(|at| merged.remove(at));
    let mut next_live = 0;
    for (at, item) in applied.iter().enumerate() {
        let shared = applied[at..].iter().find_map(|item| place(live, item));
        let until = shared.filter(|place| *place >= next_live).unwrap_or(live.len());
        for other in &live[next_live..until] {
            items.extend(if place(applied, other).is_none() { take(other) } else { None });
        }
        next_live = until;
        items.extend(take(item));
    }
    items.extend(merged);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(live: &[i64], applied: &[i64]) -> Value {
        let list = |numbers: &[i64]| -> Vec<Value> { numbers.iter().map(|n| json!(n)).collect() };
        let (live, applied) = (list(live), list(applied));
        let mut items = live.clone();
        items.extend(applied.iter().filter(|item| !live.contains(item)).cloned());
        order(&mut items, &live, &applied, &|a, b| a == b);
        Value::Array(items)
    }

    #[test]
    fn merged_list_keeps_the_applied_order() {
        assert_eq!(ordered(&[1], &[2]), json!([1, 2]));
        assert_eq!(ordered(&[1, 2, 8], &[2, 1, 3]), json!([2, 8, 1, 3]));
        assert_eq!(ordered(&[8, 1, 9], &[0, 1]), json!([8, 0, 1, 9]));
        assert_eq!(ordered(&[1, 2], &[1]), json!([1, 2]));
    }
}
