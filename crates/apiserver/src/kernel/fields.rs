//! `metadata.managedFields`: which manager owns which field, and through which operation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::metadata::{meta, set_meta};
use super::types::{ListKind, Node};

/// Path of a field in FieldsV1 notation: `f:name`, `k:{key}` or `v:value` per step.
pub(crate) type FieldPath = Vec<String>;

/// A set of fields.
pub(crate) type FieldSet = BTreeSet<FieldPath>;

/// Maximum depth of a FieldsV1 tree that is read; only an attack has deeper ones.
const DEPTH_MAX: usize = 100;

/// Fields without an owner, because the server itself sets or needs them.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "generation"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "managedFields"],
];

/// The operation of a managedFields entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of managedFields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManagedFieldsEntry {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl ManagedFieldsEntry {
    /// Whether both entries have the same manager, operation, version and subresource.
    pub(crate) fn same_as(&self, other: &ManagedFieldsEntry) -> bool {
        (&self.name, self.operation, &self.api_version, &self.subresource)
            == (&other.name, other.operation, &other.api_version, &other.subresource)
    }

    /// Whether the entry owns the field or something below it.
    pub(crate) fn owns(&self, path: &FieldPath) -> bool {
        self.fields.range(path.clone()..).next().is_some_and(|owned| owned.starts_with(path))
    }
}

/// The fields an applied configuration owns: every value, every list item, but not the structs around them.
pub(crate) fn field_set(node: Node, object: &Value) -> FieldSet {
    let mut found = FieldSet::new();
    collect_fields(node, object, &mut Vec::new(), &mut found);
    found
}

fn collect_fields(node: Node, value: &Value, path: &mut FieldPath, found: &mut FieldSet) {
    match value {
        Value::Object(map) if !node.is_atomic() => {
            for (name, value) in map {
                path.push(format!("f:{name}"));
                if !is_unowned(path) {
                    collect_fields(node.field(name), value, path, found);
                    let is_empty_value = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    // Below the known schema every container is owned too.
                    let is_untyped = value.is_object() && matches!(node.field(name), Node::Free);
                    if is_empty_value || is_untyped || (node.is_map() && path.len() > 1) {
                        found.insert(path.clone());
                    }
                }
                path.pop();
            }
        }
        Value::Array(items) => match element_paths(node, items) {
            Some(elements) => {
                for (element, item) in elements.into_iter().zip(items) {
                    path.push(element);
                    collect_fields(node.item(), item, path, found);
                    found.insert(path.clone());
                    path.pop();
                }
            }
            None => {
                found.insert(path.clone());
            }
        },
        _ => {
            found.insert(path.clone());
        }
    }
}

/// Whether the field is one of [`UNOWNED`].
fn is_unowned(path: &[String]) -> bool {
    UNOWNED.iter().any(|unowned| {
        unowned.len() == path.len()
            && unowned.iter().zip(path).all(|(name, step)| step.strip_prefix("f:") == Some(name))
    })
}

/// The difference between two states of an object.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// New fields, including new structs, maps and list items.
    pub(crate) added: FieldSet,
    /// Fields with another value.
    pub(crate) modified: FieldSet,
    /// Removed fields.
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Compares two states of an object.
    pub(crate) fn between(node: Node, old: &Value, new: &Value) -> Comparison {
        let mut difference = Comparison::default();
        difference.compare(node, Some(old), Some(new), &mut Vec::new());
        difference
    }

    /// The fields the writer of the new state owns.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified).cloned().collect()
    }

    fn compare(&mut self, node: Node, old: Option<&Value>, new: Option<&Value>, path: &mut FieldPath) {
        if old == new || is_unowned(path) {
            return;
        }
        let atomic = node.is_atomic();
        let object = |value: Option<&Value>| value.is_some_and(|v| v.is_object() && !atomic);
        let list = |value: Option<&Value>| value.is_some_and(Value::is_array);
        if object(old) || object(new) {
            self.compare_maps(node, old, new, path);
        } else if list(old) || list(new) {
            if !self.compare_lists(node, old, new, path) {
                self.modified.extend((old.is_some() && new.is_some()).then(|| path.clone()));
            }
        } else if old.is_some() && new.is_some() {
            self.modified.insert(path.clone());
        }
        if !path.is_empty() {
            // Containers count like values: the manager that adds one owns it.
            self.added.extend(old.is_none().then(|| path.clone()));
            self.removed.extend(new.is_none().then(|| path.clone()));
        }
    }

    fn compare_maps(&mut self, node: Node, old: Option<&Value>, new: Option<&Value>, path: &mut FieldPath) {
        let empty = Map::new();
        let [old, new] = [old, new].map(|value| value.and_then(Value::as_object).unwrap_or(&empty));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            path.push(format!("f:{name}"));
            self.compare(node.field(name), old.get(name), new.get(name), path);
            path.pop();
        }
    }

    /// Returns false if the list is atomic.
    fn compare_lists(
        &mut self,
        node: Node,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut FieldPath,
    ) -> bool {
        let is_list = |value: Option<&Value>| value.is_some_and(Value::is_array);
        let (Some(before), Some(after)) = (items_by_step(node, old), items_by_step(node, new)) else {
            return false;
        };
        if after.is_empty() && is_list(new) && !is_list(old) {
            self.added.insert(path.clone());
        }
        let steps: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let none = Vec::new();
        for step in steps {
            path.push(step.clone());
            let [old, new] = [&before, &after].map(|items| items.get(step).unwrap_or(&none).as_slice());
            self.compare_items(node.item(), old, new, path);
            path.pop();
        }
        true
    }

    /// Compares the items with one key. Several items with the same key are owned together, without their fields.
    fn compare_items(&mut self, node: Node, old: &[&Value], new: &[&Value], path: &mut FieldPath) {
        match (old, new) {
            ([_, _, ..], [_, _, ..]) => self.modified.extend((old != new).then(|| path.clone())),
            ([_, _, ..], _) => {
                self.compare(node, None, new.first().copied(), path);
                self.removed.insert(path.clone());
            }
            (_, [_, _, ..]) => {
                self.compare(node, old.first().copied(), None, path);
                self.added.insert(path.clone());
            }
            _ => self.compare(node, old.first().copied(), new.first().copied(), path),
        }
    }
}

/// The list items by path step, or `None` if the list is atomic.
fn items_by_step(node: Node, list: Option<&Value>) -> Option<BTreeMap<String, Vec<&Value>>> {
    let list = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut items: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for (step, item) in element_paths(node, list)?.into_iter().zip(list) {
        items.entry(step).or_default().push(item);
    }
    Some(items)
}

/// The path step of each item, or `None` if the list is atomic.
fn element_paths(node: Node, items: &[Value]) -> Option<Vec<String>> {
    match node.list_kind() {
        ListKind::Atomic => None,
        ListKind::Set => {
            items.iter().map(|i| (!i.is_object() && !i.is_array()).then(|| format!("v:{i}"))).collect()
        }
        ListKind::Keyed(keys) => {
            items.iter().map(|i| node.item_key(keys, i).map(|k| format!("k:{k}"))).collect()
        }
    }
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
            if rest.is_empty() || is_empty_container(child) {
                map.remove(name);
            }
        }
        Value::Array(items) => {
            let Some(at) = items.iter().position(|item| step_names(step, item)) else {
                return;
            };
            remove(&mut items[at], rest);
            if rest.is_empty() || is_empty_container(&items[at]) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

fn is_empty_container(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn step_names(step: &str, item: &Value) -> bool {
    if let Some(text) = step.strip_prefix("v:") {
        return serde_json::from_str::<Value>(text).is_ok_and(|v| v == *item);
    }
    let key = step.strip_prefix("k:").and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    // A key field missing in the item was defaulted, so the remaining key fields decide.
    key.is_some_and(|key| {
        let mut known = key.iter().filter_map(|(name, value)| Some((value, item.get(name)?))).peekable();
        known.peek().is_some() && known.all(|(wanted, found)| wanted == found)
    })
}

/// The entries of an object. Entries that do not parse are skipped; of two with the same identity the last wins.
pub(crate) fn managed_fields(object: &Value) -> Vec<ManagedFieldsEntry> {
    let entries = meta(object, "managedFields").and_then(Value::as_array);
    let mut managers: Vec<ManagedFieldsEntry> = Vec::new();
    for manager in entries.into_iter().flatten().filter_map(parse) {
        managers.retain(|known| !known.same_as(&manager));
        managers.push(manager);
    }
    managers
}

fn parse(entry: &Value) -> Option<ManagedFieldsEntry> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let mut fields = FieldSet::new();
    read_tree(entry.get("fieldsV1")?.as_object()?, &mut Vec::new(), &mut fields);
    Some(ManagedFieldsEntry {
        name: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
        time: text("time"),
        fields,
    })
}

fn read_tree(tree: &Map<String, Value>, path: &mut FieldPath, fields: &mut FieldSet) {
    for (step, below) in tree {
        if step == "." {
            fields.insert(path.clone());
            continue;
        }
        if path.len() >= DEPTH_MAX {
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
    let mut previous: Option<&FieldPath> = None;
    for path in fields {
        // A container that is owned itself has a `.` entry; it sorts right before its content.
        if let Some(container) = previous.filter(|container| path.starts_with(container)) {
            descend(&mut root, container)["."] = json!({});
        }
        descend(&mut root, path);
        previous = Some(path);
    }
    root
}

/// The node of a path in the tree; missing nodes are created.
fn descend<'a>(root: &'a mut Value, path: &FieldPath) -> &'a mut Value {
    let mut at = root;
    for step in path {
        at = &mut at[step.as_str()];
        if !at.is_object() {
            *at = json!({});
        }
    }
    at
}

/// Writes the entries that own fields: applies first, then by time and name.
pub(crate) fn set_managed_fields(object: &mut Value, mut managers: Vec<ManagedFieldsEntry>) {
    managers.retain(|m| !m.fields.is_empty());
    managers.sort_by(|a, b| (a.operation, &a.time, &a.name).cmp(&(b.operation, &b.time, &b.name)));
    let entries: Vec<Value> = managers.iter().map(entry).collect();
    set_meta(object, "managedFields", (!entries.is_empty()).then_some(Value::Array(entries)));
}

fn entry(manager: &ManagedFieldsEntry) -> Value {
    let operation = if manager.operation == Operation::Apply { "Apply" } else { "Update" };
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": write_tree(&manager.fields),
    });
    if !manager.time.is_empty() {
        entry["time"] = json!(manager.time);
    }
    if !manager.subresource.is_empty() {
        entry["subresource"] = json!(manager.subresource);
    }
    entry
}

/// Fields that a write through an endpoint resets and therefore does not own (upstream: GetResetFields).
pub(crate) type ResetFields = &'static [&'static [&'static str]];

/// Removes the reset fields.
pub(crate) fn strip_reset_fields(fields: &mut FieldSet, reset_fields: ResetFields) {
    let is_below = |path: &FieldPath, part: &[&str]| {
        path.len() >= part.len()
            && part.iter().zip(path).all(|(name, step)| step.strip_prefix("f:") == Some(name))
    };
    fields.retain(|path| !reset_fields.iter().any(|part| is_below(path, part)));
}

/// Records an update of `old` to `new` by `by`: it owns what it changed, and other managers lose those fields.
///
/// `is_new` means that the object is new and `old` is the zero value of the kind.
pub(crate) fn record_update(
    node: Node,
    old: &Value,
    new: &mut Value,
    by: &ManagedFieldsEntry,
    reset_fields: ResetFields,
    is_new: bool,
) {
    // A list with one empty entry is the documented way to reset managedFields.
    let reset = meta(new, "managedFields") == Some(&json!([{}]));
    let sent = if is_new { Vec::new() } else { managed_fields(new) };
    let mut all = if !sent.is_empty() { sent } else { managed_fields(old) };
    // An object without managedFields stays without until its first apply; only a new object gets its first entry
    // here.
    if reset || (all.is_empty() && !is_new) {
        set_meta(new, "managedFields", None);
        return;
    }
    let mut difference = Comparison::between(node, old, new);
    for fields in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
        strip_reset_fields(fields, reset_fields);
    }
    let written = difference.written();
    for manager in &mut all {
        if !manager.same_as(by) {
            manager.fields.retain(|path| !written.contains(path));
        }
        manager.fields.retain(|path| !difference.removed.contains(path));
    }
    own(&mut all, by, written);
    set_managed_fields(new, all);
}

/// Records a write through the scale subresource. It exposes only the replicas field and omits zero: setting zero
/// removes the field from all managers, and an unowned field stays unowned.
///
/// Setting the current value again leaves the owner with two entries, one of which the next write drops:
/// kube-apiserver does not recognize its own entry after the conversion to Scale.
pub(crate) fn record_scale(old: &Value, new: &mut Value, by: &ManagedFieldsEntry, pointer: &str) {
    let path: FieldPath = pointer.split('/').skip(1).map(|step| format!("f:{step}")).collect();
    let mut all = managed_fields(old);
    let owned = all.iter().any(|manager| manager.fields.contains(&path));
    if owned && old.pointer(pointer) == new.pointer(pointer) {
        let updated = |manager: &&mut ManagedFieldsEntry| {
            manager.operation == Operation::Update && manager.fields.contains(&path)
        };
        let mut apart = Vec::new();
        for manager in all.iter_mut().filter(updated) {
            manager.fields.remove(&path);
            let fields = FieldSet::from([path.clone()]);
            apart.push(ManagedFieldsEntry { time: String::new(), fields, ..manager.clone() });
        }
        all.extend(apart);
    } else if owned {
        all.iter_mut().for_each(|manager| manager.fields.retain(|field| *field != path));
        if new.pointer(pointer).and_then(Value::as_i64).unwrap_or(0) != 0 {
            own(&mut all, by, FieldSet::from([path]));
        }
    }
    set_managed_fields(new, all);
}

fn own(all: &mut Vec<ManagedFieldsEntry>, by: &ManagedFieldsEntry, changed: FieldSet) {
    if changed.is_empty() {
        return;
    }
    match all.iter_mut().find(|m| m.same_as(by)) {
        Some(entry) => {
            entry.fields.extend(changed);
            entry.time.clone_from(&by.time);
        }
        None => all.push(ManagedFieldsEntry { fields: changed, ..by.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::of_kind;
    use super::*;

    fn by(name: &str) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            name: name.to_owned(),
            operation: Operation::Update,
            api_version: "v1".to_owned(),
            subresource: String::new(),
            time: "2026-01-01T00:00:00Z".to_owned(),
            fields: FieldSet::new(),
        }
    }

    fn node() -> Node {
        Node::Struct(of_kind("", "v1", "Pod").unwrap())
    }

    fn paths(fields: &FieldSet) -> Vec<String> {
        fields.iter().map(|p| p.join("/")).collect()
    }

    #[test]
    fn field_set_has_map_items_and_set_values() {
        let object = json!({"kind": "X", "metadata": {
            "name": "a", "finalizers": ["f/a"]}, "spec": {"containers": [{"name": "c", "args": ["1", "2"]}]}});
        assert_eq!(
            paths(&field_set(node(), &object)),
            [
                "f:metadata/f:finalizers/v:\"f/a\"",
                "f:spec/f:containers/k:{\"name\":\"c\"}",
                "f:spec/f:containers/k:{\"name\":\"c\"}/f:args",
                "f:spec/f:containers/k:{\"name\":\"c\"}/f:name",
            ]
        );
    }

    #[test]
    fn update_owns_only_the_fields_it_changes() {
        let mut object = json!({"metadata": {"labels": {"a": "1", "b": "1"}}});
        record_update(node(), &json!({"metadata": {}}), &mut object, &by("one"), &[], true);
        let mut next = object.clone();
        next["metadata"]["labels"]["a"] = json!("2");
        record_update(node(), &object, &mut next, &by("two"), &[], false);
        let owned: Vec<(String, Vec<String>)> =
            managed_fields(&next).into_iter().map(|m| (m.name, paths(&m.fields))).collect();
        assert_eq!(
            owned,
            [
                (
                    "one".to_owned(),
                    vec!["f:metadata/f:labels".to_owned(), "f:metadata/f:labels/f:b".to_owned()]
                ),
                ("two".to_owned(), vec!["f:metadata/f:labels/f:a".to_owned()]),
            ]
        );
        assert_eq!(
            next["metadata"]["managedFields"][0]["fieldsV1"],
            json!({"f:metadata": {"f:labels": {".": {}, "f:b": {}}}})
        );
    }

    #[test]
    fn entries_round_trip_and_malformed_ones_are_skipped() {
        let mut object = json!({"metadata": {"finalizers": ["f/a"]}, "spec": {"nodeName": "v"}});
        let difference = Comparison::between(node(), &json!({"metadata": {}, "spec": {}}), &object);
        record_update(node(), &json!({"metadata": {}, "spec": {}}), &mut object, &by("one"), &[], true);
        assert_eq!(managed_fields(&object)[0].fields, difference.written());
        object["metadata"]["managedFields"] = json!([{"operation": "Apply"}, {"fieldsV1": 3}, {}]);
        assert!(managed_fields(&object).is_empty());
    }

    #[test]
    fn removal_prunes_empty_parents() {
        let mut object = json!({"metadata": {"finalizers": ["f/a"]}, "data": {"k": "v", "l": "w"}});
        remove(&mut object, &["f:metadata".into(), "f:finalizers".into(), "v:\"f/a\"".into()]);
        remove(&mut object, &["f:data".into(), "f:k".into()]);
        assert_eq!(object, json!({"data": {"l": "w"}}));
    }
}
