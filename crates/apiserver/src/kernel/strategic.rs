//! Strategic merge patch: lists with a merge key and sets merge item by item; directives delete and replace.

use serde_json::{Map, Value, json};

use super::types::{Merge, Node};

/// The directive for the map that contains it.
const PATCH: &str = "$patch";
/// The directive with the only fields to keep.
const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix of the directive that removes values from a list of scalars.
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
/// Prefix of the directive that orders a list.
const SET_ORDER: &str = "$setElementOrder/";

/// Why a patch is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatchError {
    /// The client gets 400.
    Malformed(&'static str),
    /// kube-apiserver reports this error as 500.
    Unexpected(String),
}

type Merged<T> = Result<T, PatchError>;

const MALFORMED_VALUES: PatchError = PatchError::Malformed("invalid patch format of primitive list");
const MALFORMED_KEYS: PatchError = PatchError::Malformed("invalid patch format of retainKeys");

/// Merges `patch` into `object`.
pub(crate) fn merge(node: Node, object: &mut Value, patch: &Value) -> Merged<()> {
    let Some(patch) = patch.as_object() else {
        return Err(PatchError::Malformed("invalid JSON document"));
    };
    merge_map(node, object, patch).map(|_| ())
}

/// A value as Go's %v prints it.
fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => go_print_map(map),
        other => other.to_string(),
    }
}

fn go_print_map(map: &Map<String, Value>) -> String {
    let pairs: Vec<String> = map.iter().map(|(name, value)| format!("{name}:{}", go_print(value))).collect();
    format!("map[{}]", pairs.join(" "))
}

/// Returns false if the patch deletes the map itself.
fn merge_map(node: Node, object: &mut Value, patch: &Map<String, Value>) -> Merged<bool> {
    match directive(patch)? {
        Some("delete") => return Ok(false),
        Some("replace") => *object = json!({}),
        _ => {}
    }
    if !object.is_object() {
        *object = json!({});
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(DELETE_FROM) {
            delete_values(object.get_mut(list), value)?;
        } else if field == RETAIN_KEYS {
            retain_keys(object, value)?;
        } else if field != PATCH && !field.starts_with(SET_ORDER) {
            let wanted = patch.get(&format!("{SET_ORDER}{field}")).and_then(Value::as_array);
            merge_field(node.field(field), object, field, value, wanted)?;
        }
    }
    Ok(true)
}

fn directive(patch: &Map<String, Value>) -> Merged<Option<&str>> {
    match patch.get(PATCH) {
        None => Ok(None),
        Some(Value::String(word)) if matches!(word.as_str(), "delete" | "replace" | "merge") => {
            Ok(Some(word))
        }
        Some(Value::String(other)) => Err(PatchError::Unexpected(format!(
            "unknown patch type: {other} in map: {}",
            go_print_map(patch)
        ))),
        Some(_) => Err(PatchError::Unexpected(format!("invalid value for special key: {PATCH}"))),
    }
}

fn merge_field(
    node: Node,
    object: &mut Value,
    field: &str,
    value: &Value,
    wanted: Option<&Vec<Value>>,
) -> Merged<()> {
    // The caller has made `object` a map.
    let Some(map) = object.as_object_mut() else {
        return Ok(());
    };
    match value {
        Value::Null => {
            map.remove(field);
        }
        // Without a map to replace, kube-apiserver sets nothing.
        Value::Object(patch) if !map.contains_key(field) && patch.contains_key(PATCH) => {
            directive(patch)?;
        }
        Value::Object(_) if node.is_replaced() => {
            map.insert(field.to_owned(), value.clone());
        }
        Value::Object(patch) => {
            let child = map.entry(field).or_insert(Value::Null);
            if node.is_any()
                && let Some(conflicting) = patch.iter().find(|(name, value)| {
                    let there = child.get(name.as_str());
                    there.is_some_and(|there| there.is_object() == value.is_object() && !is_plain(there))
                })
            {
                let message = "unable to find api field in struct RawExtension for the json field";
                return Err(PatchError::Unexpected(format!("{message} {:?}", conflicting.0)));
            }
            if !merge_map(node, child, patch)? {
                map.remove(field);
            }
        }
        Value::Array(patch) => {
            let known = map.contains_key(field);
            let child = map.entry(field).or_insert_with(|| json!([]));
            match child.as_array_mut() {
                Some(items) if !known && matches!(node.merge(), Merge::By(_)) && !has_directives(patch) => {
                    // The field is new: items with the same merge key are not merged.
                    for item in patch {
                        items.push(apply_to_nothing(node.item(), item)?);
                    }
                }
                _ => merge_list(node, child, patch, wanted)?,
            }
        }
        scalar => {
            map.insert(field.to_owned(), scalar.clone());
        }
    }
    Ok(())
}

/// Whether an item of the list is a directive.
fn has_directives(patch: &[Value]) -> bool {
    patch.iter().any(|item| item.get(PATCH).is_some())
}

/// The patch applied to nothing.
fn apply_to_nothing(node: Node, patch: &Value) -> Merged<Value> {
    let mut value = patch.clone();
    if let Some(map) = patch.as_object() {
        value = json!({});
        merge_map(node, &mut value, map)?;
    }
    Ok(value)
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn merge_list(node: Node, list: &mut Value, patch: &[Value], wanted: Option<&Vec<Value>>) -> Merged<()> {
    let merge = node.merge();
    if merge == Merge::Replace || !list.is_array() {
        *list = json!([]);
    }
    // The line above has made it a list.
    let Some(items) = list.as_array_mut() else {
        return Ok(());
    };
    let server = items.clone();
    match merge {
        Merge::Replace => {
            items.extend_from_slice(patch);
            return Ok(());
        }
        Merge::Values => {
            for value in patch {
                if !items.contains(value) {
                    items.push(value.clone());
                }
            }
        }
        Merge::By(key) => {
            if patch.iter().filter_map(Value::as_object).any(|i| directive(i) == Ok(Some("replace"))) {
                items.clear();
            }
            for item in patch {
                merge_item(node.item(), items, item, key)?;
            }
        }
    }
    order(items, &server, wanted.map_or(patch, Vec::as_slice), &|a, b| match merge {
        Merge::By(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        _ => a == b,
    });
    Ok(())
}

fn merge_item(node: Node, items: &mut Vec<Value>, patch: &Value, key: &str) -> Merged<()> {
    let Some(map) = patch.as_object() else {
        let found = if patch.is_string() { "string" } else { "number" };
        return Err(PatchError::Unexpected(format!("expected a map, but received a {found}")));
    };
    // A bare replace directive only empties the list.
    if map.len() == 1 && map.contains_key(PATCH) {
        return Ok(());
    }
    let id = map.get(key);
    // In an empty list no merge key is needed; validation reports a missing one.
    if id.is_none() && !items.is_empty() {
        let message = format!("map: {} does not contain declared merge key: {key}", go_print(patch));
        return Err(PatchError::Unexpected(message));
    }
    let at = items.iter().position(|item| item.get(key) == id).unwrap_or_else(|| {
        items.push(Value::Null);
        items.len() - 1
    });
    if !merge_map(node, &mut items[at], map)? {
        items.remove(at);
    }
    Ok(())
}

/// Orders a merged list: items in the patch are in the patch's order; items only on the server stay before the first
/// patched item that they preceded.
fn order(items: &mut Vec<Value>, server: &[Value], patch: &[Value], same: &dyn Fn(&Value, &Value) -> bool) {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, unnamed): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| place(patch, item).is_some());
    named.sort_by_key(|item| place(patch, item));
    let (mut named, mut unnamed) = (named.into_iter().peekable(), unnamed.into_iter().peekable());
    while let (Some(next), Some(mine)) = (named.peek(), unnamed.peek()) {
        let first =
            matches!((place(server, mine), place(server, next)), (Some(mine), Some(next)) if mine < next);
        items.extend(if first { unnamed.next() } else { named.next() });
    }
    items.extend(named);
    items.extend(unnamed);
}

fn delete_values(list: Option<&mut Value>, values: &Value) -> Merged<()> {
    let Some(values) = values.as_array() else {
        return Err(MALFORMED_VALUES);
    };
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

fn retain_keys(object: &mut Value, keys: &Value) -> Merged<()> {
    let Some(keys) = keys.as_array() else {
        return Err(MALFORMED_KEYS);
    };
    if let Some(map) = object.as_object_mut() {
        map.retain(|field, _| keys.iter().any(|k| k == field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node::Struct(super::super::types::of_kind("", "v1", "Pod").unwrap())
    }

    fn merged(object: Value, patch: &Value) -> Value {
        let mut object = object;
        merge(node(), &mut object, patch).unwrap();
        object
    }

    #[test]
    fn owners_merge_by_uid() {
        let object =
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}});
        let patch = json!({"metadata": {"ownerReferences": [
            {"$patch": "delete", "uid": "1"}, {"uid": "2", "controller": true}, {"uid": "3", "name": "c"}]}});
        let owners = &merged(object, &patch)["metadata"]["ownerReferences"];
        assert_eq!(
            *owners,
            json!([{"uid": "2", "name": "b", "controller": true}, {"uid": "3", "name": "c"}])
        );
    }

    #[test]
    fn finalizers_are_a_set_with_deletions() {
        let object = json!({"metadata": {"finalizers": ["x/a", "x/b"]}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["x/a"],
            "$setElementOrder/finalizers": ["x/b", "x/c"],
            "finalizers": ["x/b", "x/c"]}});
        assert_eq!(merged(object, &patch)["metadata"]["finalizers"], json!(["x/b", "x/c"]));
    }

    #[test]
    fn lists_are_ordered_as_the_patch_says() {
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "mine"}, {"name": "b"}]}});
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
            "containers": [{"name": "new", "image": "i"}]}});
        let names: Vec<Value> = merged(object, &patch)["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].clone())
            .collect();
        assert_eq!(names, ["mine", "b", "new", "a"]);
        let object = json!({"spec": {"containers": [{"name": "a"}]}});
        let patch = json!({"spec": {"containers": [{"name": "new"}]}});
        assert_eq!(merged(object, &patch)["spec"]["containers"][0]["name"], "new");
    }

    #[test]
    fn directives_replace_retain_and_delete() {
        let object = json!({"spec": {"a": 1, "b": 2}, "status": {"x": 1}, "other": {"k": 1}});
        let patch = json!({"spec": {"$patch": "replace", "c": 3}, "status": {"$patch": "delete"},
            "other": {"$retainKeys": ["l"], "l": 2}, "gone": null, "list": [1]});
        assert_eq!(merged(object, &patch), json!({"spec": {"c": 3}, "other": {"l": 2}, "list": [1]}));
    }

    #[test]
    fn new_list_is_not_merged() {
        let patch =
            json!({"spec": {"containers": [{"name": "c", "image": null}, {"name": "c", "tty": true}]}});
        let merged = merged(json!({"spec": {}}), &patch);
        assert_eq!(merged["spec"]["containers"], json!([{"name": "c"}, {"name": "c", "tty": true}]));
    }

    #[test]
    fn malformed_patches_are_rejected() {
        for patch in [
            json!({"$patch": 3}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": 3}}),
            json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"name": "no uid"}]}}),
            json!({"metadata": {"ownerReferences": [3]}}),
            json!({"$retainKeys": {}}),
        ] {
            let mut object = json!({"metadata": {"finalizers": [], "ownerReferences": [{"uid": "0"}]}});
            assert!(merge(node(), &mut object, &patch).is_err(), "{patch}");
        }
    }
}
