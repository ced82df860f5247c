//! `metadata.managedFields`: who set which field, and with which operation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::metadata::{meta, meta_str, set_meta};
use super::schema::{ListKind, item_key, list_kind};

/// Path of a field in the notation of FieldsV1: `f:name`, `k:{key}` or `v:value` per step.
pub(crate) type Path = Vec<String>;

/// A set of fields.
pub(crate) type FieldSet = BTreeSet<Path>;

/// Deepest FieldsV1 tree that is read; deeper ones come from nobody honest.
const DEPTH_MAX: usize = 100;

/// Fields nobody owns because the server itself sets or needs them.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "generation"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    &["metadata", "selfLink"],
    &["metadata", "managedFields"],
];

/// How a manager set its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One manager's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Manager {
    /// Whether both entries are the same manager doing the same kind of write at the same place.
    pub(crate) fn same_as(&self, other: &Manager) -> bool {
        (&self.name, self.operation, &self.api_version, &self.subresource)
            == (&other.name, other.operation, &other.api_version, &other.subresource)
    }

    /// Whether the manager owns the field, something below it or something around it.
    pub(crate) fn touches(&self, path: &Path) -> bool {
        self.fields.iter().any(|owned| owned.starts_with(path) || path.starts_with(owned))
    }
}

/// The leaves of an object: scalars, atomic lists, set members, and fields of keyed items.
pub(crate) fn leaves(object: &Value) -> BTreeMap<Path, &Value> {
    let mut found = BTreeMap::new();
    collect(object, &mut Vec::new(), &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(
    value: &'a Value,
    names: &mut Vec<&'a str>,
    path: &mut Path,
    found: &mut BTreeMap<Path, &'a Value>,
) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                names.push(name);
                path.push(format!("f:{name}"));
                if !UNOWNED.contains(&names.as_slice()) {
                    collect(value, names, path, found);
                }
                names.pop();
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() => match element_paths(items, list_kind(names)) {
            Some(elements) => {
                for (element, item) in elements.into_iter().zip(items) {
                    path.push(element);
                    collect(item, names, path, found);
                    path.pop();
                }
            }
            None => {
                found.insert(path.clone(), value);
            }
        },
        Value::Null => {}
        _ => {
            found.insert(path.clone(), value);
        }
    }
}

/// The path step of each item, or `None` if the list has to be taken whole.
fn element_paths(items: &[Value], kind: ListKind) -> Option<Vec<String>> {
    let steps: Option<Vec<String>> = match kind {
        ListKind::Atomic => None,
        ListKind::Set => {
            items.iter().map(|i| (!i.is_object() && !i.is_array()).then(|| format!("v:{i}"))).collect()
        }
        ListKind::Keyed(fields) => {
            items.iter().map(|i| item_key(fields, i).map(|k| format!("k:{k}"))).collect()
        }
    };
    // Duplicate keys would make one path stand for two items.
    steps.filter(|s| s.iter().collect::<BTreeSet<_>>().len() == s.len())
}

/// Removes the field at `path` together with parents that become empty.
pub(crate) fn remove(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match value {
        Value::Object(map) => {
            let Some(name) = step.strip_prefix("f:") else {
                return;
            };
            let Some(child) = map.get_mut(name) else { return };
            remove(child, rest);
            if rest.is_empty() || is_hollow(child) {
                map.remove(name);
            }
        }
        Value::Array(items) => {
            let Some(at) = items.iter().position(|item| step_names(step, item)) else {
                return;
            };
            remove(&mut items[at], rest);
            if rest.is_empty() || is_hollow(&items[at]) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn step_names(step: &str, item: &Value) -> bool {
    if let Some(text) = step.strip_prefix("v:") {
        return serde_json::from_str::<Value>(text).is_ok_and(|v| v == *item);
    }
    let key = step.strip_prefix("k:").and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    key.is_some_and(|key| {
        let fields: Vec<&str> = key.keys().map(String::as_str).collect();
        item_key(&fields, item) == Some(Value::Object(key.clone()))
    })
}

/// The entries of an object; those that cannot be read are passed over.
pub(crate) fn managers(object: &Value) -> Vec<Manager> {
    let entries = meta(object, "managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(parse).collect()
}

fn parse(entry: &Value) -> Option<Manager> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let mut fields = FieldSet::new();
    read_tree(entry.get("fieldsV1")?.as_object()?, &mut Vec::new(), &mut fields);
    Some(Manager {
        name: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
        time: text("time"),
        fields,
    })
}

fn read_tree(tree: &Map<String, Value>, path: &mut Path, fields: &mut FieldSet) {
    for (step, below) in tree {
        // A dot marks the container itself; here a container lives by its leaves.
        if step == "." || path.len() >= DEPTH_MAX {
            continue;
        }
        path.push(step.clone());
        match below.as_object() {
            Some(below) if !below.is_empty() => read_tree(below, path, fields),
            _ => {
                fields.insert(path.clone());
            }
        }
        path.pop();
    }
}

fn write_tree(fields: &FieldSet) -> Value {
    let mut root = json!({});
    for path in fields {
        let mut at = &mut root;
        for step in path {
            at = &mut at[step.as_str()];
            if !at.is_object() {
                *at = json!({});
            }
        }
    }
    root
}

/// Writes the entries that own anything into the object, applied ones first, then by time and name.
pub(crate) fn set_managers(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|m| !m.fields.is_empty());
    managers.sort_by(|a, b| (a.operation, &a.time, &a.name).cmp(&(b.operation, &b.time, &b.name)));
    let entries: Vec<Value> = managers.iter().map(entry).collect();
    set_meta(object, "managedFields", (!entries.is_empty()).then_some(Value::Array(entries)));
}

fn entry(manager: &Manager) -> Value {
    let operation = if manager.operation == Operation::Apply { "Apply" } else { "Update" };
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": manager.api_version,
        "time": manager.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": write_tree(&manager.fields),
    });
    if !manager.subresource.is_empty() {
        entry["subresource"] = json!(manager.subresource);
    }
    entry
}

/// Records that `by` changed `old` into `new` by an update: it owns what it changed, others lose that.
pub(crate) fn record_update(old: &Value, new: &mut Value, by: &Manager) {
    // A single empty entry is the documented way to start ownership afresh.
    let reset = meta(new, "managedFields") == Some(&json!([{}]));
    let sent = managers(new);
    let mut all = if !sent.is_empty() { sent } else { managers(old) };
    // An object without owners stays so until somebody applies to it; only a new one gets its first owner here.
    if reset || (all.is_empty() && !meta_str(old, "uid").is_empty()) {
        set_meta(new, "managedFields", None);
        return;
    }
    let (before, after) = (leaves(old), leaves(new));
    let changed: FieldSet = after
        .iter()
        .filter(|(path, value)| before.get(*path) != Some(value))
        .map(|(path, _)| path.clone())
        .collect();
    let removed: FieldSet = before.keys().filter(|path| !after.contains_key(*path)).cloned().collect();
    for manager in &mut all {
        if !manager.same_as(by) {
            manager.fields.retain(|path| !changed.contains(path));
        }
        manager.fields.retain(|path| !removed.contains(path));
    }
    own(&mut all, by, changed);
    set_managers(new, all);
}

/// Sets the time of the entry of `by`, once its write is known to change something.
pub(crate) fn stamp(object: &mut Value, by: &Manager) {
    let mut all = managers(object);
    if let Some(entry) = all.iter_mut().find(|m| m.same_as(by)) {
        entry.time.clone_from(&by.time);
    }
    set_managers(object, all);
}

fn own(all: &mut Vec<Manager>, by: &Manager, changed: FieldSet) {
    if changed.is_empty() {
        return;
    }
    match all.iter_mut().find(|m| m.same_as(by)) {
        Some(entry) => {
            entry.fields.extend(changed);
            entry.time.clone_from(&by.time);
        }
        None => all.push(Manager { fields: changed, ..by.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(name: &str) -> Manager {
        Manager {
            name: name.to_owned(),
            operation: Operation::Update,
            api_version: "v1".to_owned(),
            subresource: String::new(),
            time: "2026-01-01T00:00:00Z".to_owned(),
            fields: FieldSet::new(),
        }
    }

    #[test]
    fn leaves_name_keyed_items_and_set_members() {
        let object = json!({"kind": "X", "metadata": {
            "name": "a", "finalizers": ["f/a"], "ownerReferences": [{"uid": "1", "kind": "K"}]}, "list": [1, 2]});
        let found: Vec<String> = leaves(&object).into_keys().map(|p| p.join("/")).collect();
        assert_eq!(
            found,
            [
                "f:list",
                "f:metadata/f:finalizers/v:\"f/a\"",
                "f:metadata/f:ownerReferences/k:{\"uid\":\"1\"}/f:kind",
                "f:metadata/f:ownerReferences/k:{\"uid\":\"1\"}/f:uid",
            ]
        );
    }

    #[test]
    fn an_update_takes_over_what_it_changes_and_nothing_else() {
        let mut object = json!({"metadata": {"labels": {"a": "1", "b": "1"}}});
        record_update(&json!({}), &mut object, &by("one"));
        let mut next = object.clone();
        next["metadata"]["labels"]["a"] = json!("2");
        record_update(&object, &mut next, &by("two"));
        let owned: Vec<(String, Vec<String>)> = managers(&next)
            .into_iter()
            .map(|m| (m.name, m.fields.into_iter().map(|p| p.join("/")).collect()))
            .collect();
        assert_eq!(
            owned,
            [
                ("one".to_owned(), vec!["f:metadata/f:labels/f:b".to_owned()]),
                ("two".to_owned(), vec!["f:metadata/f:labels/f:a".to_owned()]),
            ]
        );
    }

    #[test]
    fn entries_survive_the_round_trip_and_hostile_ones_are_passed_over() {
        let mut object = json!({"metadata": {"finalizers": ["f/a"]}, "data": {"k": "v"}});
        record_update(&json!({}), &mut object, &by("one"));
        let read = managers(&object);
        assert_eq!(read[0].fields, leaves(&object).into_keys().collect());
        object["metadata"]["managedFields"] = json!([{"operation": "Apply"}, {"fieldsV1": 3}, {}]);
        assert!(managers(&object).is_empty());
    }

    #[test]
    fn removal_prunes_hollow_parents() {
        let mut object = json!({"metadata": {"finalizers": ["f/a"]}, "data": {"k": "v", "l": "w"}});
        remove(&mut object, &["f:metadata".into(), "f:finalizers".into(), "v:\"f/a\"".into()]);
        remove(&mut object, &["f:data".into(), "f:k".into()]);
        assert_eq!(object, json!({"data": {"l": "w"}}));
    }
}
