//! Strategic merge: lists with a merge key or of set kind merge item by item, directives delete and replace.

use serde_json::{Map, Value, json};

use super::schema::{ListKind, list_kind};

/// The directive that says what to do with the map it stands in.
const PATCH: &str = "$patch";
/// The directive that names the only fields to keep.
const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix of the directive that removes values from a list of scalars.
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
/// Prefix of the directive that orders a list; order carries no meaning in the merged lists, so it is let pass.
const SET_ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `object`; an error says what is wrong with the patch.
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        return Err("the patch is not an object".to_owned());
    };
    merge_map(object, patch, &mut Vec::new()).map(|_| ())
}

/// Returns false if the patch asks to delete the map itself.
fn merge_map<'a>(
    object: &mut Value,
    patch: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
) -> Result<bool, String> {
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
            path.push(field);
            merge_field(object, field, value, path)?;
            path.pop();
        }
    }
    Ok(true)
}

fn directive(patch: &Map<String, Value>) -> Result<Option<&str>, String> {
    match patch.get(PATCH) {
        None => Ok(None),
        Some(Value::String(word)) if matches!(word.as_str(), "delete" | "replace" | "merge") => {
            Ok(Some(word))
        }
        Some(other) => Err(format!("unrecognized directive in the patch: {other}")),
    }
}

fn merge_field<'a>(
    object: &mut Value,
    field: &str,
    value: &'a Value,
    path: &mut Vec<&'a str>,
) -> Result<(), String> {
    // The caller made `object` a map.
    let Some(map) = object.as_object_mut() else {
        return Ok(());
    };
    match value {
        Value::Null => {
            map.remove(field);
        }
        Value::Object(patch) => {
            let child = map.entry(field).or_insert(Value::Null);
            if !merge_map(child, patch, path)? {
                map.remove(field);
            }
        }
        Value::Array(patch) => {
            let child = map.entry(field).or_insert_with(|| json!([]));
            merge_list(child, patch, path)?;
        }
        scalar => {
            map.insert(field.to_owned(), scalar.clone());
        }
    }
    Ok(())
}

fn merge_list<'a>(list: &mut Value, patch: &'a [Value], path: &mut Vec<&'a str>) -> Result<(), String> {
    let kind = list_kind(path);
    if kind == ListKind::Atomic || !list.is_array() {
        *list = json!([]);
    }
    // The line above made it a list.
    let Some(items) = list.as_array_mut() else {
        return Ok(());
    };
    match kind {
        ListKind::Atomic => items.extend_from_slice(patch),
        ListKind::Set => {
            for value in patch {
                if !items.contains(value) {
                    items.push(value.clone());
                }
            }
        }
        ListKind::Keyed(fields) => {
            // Strategic merge knows one key, the first.
            let key = fields.first().copied().unwrap_or("name");
            if patch.iter().filter_map(Value::as_object).any(|i| directive(i) == Ok(Some("replace"))) {
                items.clear();
            }
            for item in patch {
                merge_item(items, item, key, path)?;
            }
        }
    }
    Ok(())
}

fn merge_item<'a>(
    items: &mut Vec<Value>,
    patch: &'a Value,
    key: &str,
    path: &mut Vec<&'a str>,
) -> Result<(), String> {
    let Some(map) = patch.as_object() else {
        return Err(format!("an item of {} is not a map", path.join(".")));
    };
    // A bare replace directive only empties the list.
    if map.len() == 1 && map.contains_key(PATCH) {
        return Ok(());
    }
    let id = map.get(key);
    // In an empty list there is nothing to tell apart; validation will find what is missing.
    if id.is_none() && !items.is_empty() {
        return Err(format!("map: {patch} does not contain declared merge key: {key}"));
    }
    let at = items.iter().position(|item| item.get(key) == id).unwrap_or_else(|| {
        items.push(Value::Null);
        items.len() - 1
    });
    if !merge_map(&mut items[at], map, path)? {
        items.remove(at);
    }
    Ok(())
}

fn delete_values(list: Option<&mut Value>, values: &Value) -> Result<(), String> {
    let Some(values) = values.as_array() else {
        return Err(format!("{DELETE_FROM} needs a list"));
    };
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

fn retain_keys(object: &mut Value, keys: &Value) -> Result<(), String> {
    let Some(keys) = keys.as_array() else {
        return Err(format!("{RETAIN_KEYS} needs a list"));
    };
    if let Some(map) = object.as_object_mut() {
        map.retain(|field, _| keys.iter().any(|k| k == field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(object: Value, patch: &Value) -> Value {
        let mut object = object;
        merge(&mut object, patch).unwrap();
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
    fn directives_replace_retain_and_delete() {
        let object = json!({"spec": {"a": 1, "b": 2}, "status": {"x": 1}, "other": {"k": 1}});
        let patch = json!({"spec": {"$patch": "replace", "c": 3}, "status": {"$patch": "delete"},
            "other": {"$retainKeys": ["l"], "l": 2}, "gone": null, "list": [1]});
        assert_eq!(merged(object, &patch), json!({"spec": {"c": 3}, "other": {"l": 2}, "list": [1]}));
    }

    #[test]
    fn malformed_patches_are_told() {
        for patch in [
            json!({"$patch": 3}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": 3}}),
            json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"name": "no uid"}]}}),
            json!({"metadata": {"ownerReferences": [3]}}),
            json!({"$retainKeys": {}}),
        ] {
            assert!(merge(&mut json!({"metadata": {"finalizers": []}}), &patch).is_err(), "{patch}");
        }
    }
}
