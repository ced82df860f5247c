//! Patches in all four formats.

use http::Method;
use serde_json::{Map, Value, json};

use super::{SequenceBuilder, ask, edited};
use crate::sequence::{Content, Edit, steps};

/// Merge keys of lists.
const KEYS: &[&str] = &[
    "name",
    "containerPort",
    "port",
    "protocol",
    "ip",
    "uid",
    "type",
    "key",
    "mountPath",
    "effect",
    "topologyKey",
    "whenUnsatisfiable",
];

impl SequenceBuilder<'_> {
    pub(super) fn patch(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        if kind.dry_run_only {
            return self.create();
        }
        let mut edits = self.edits(kind);
        if edits.is_empty() && self.percent_chance(80) {
            edits.push(kind.edit(&mut self.rng));
        }
        let path = self.path(object);
        self.patch_at(object, &path, "", &edits);
    }

    /// Adds a patch of an object or a subresource with these changes.
    pub(super) fn patch_at(&mut self, object: usize, path: &str, part: &str, edits: &[Edit]) {
        let (verb, content_type) = self.one_of(&[
            ("patch-json", "application/json-patch+json"),
            ("patch-merge", "application/merge-patch+json"),
            ("patch-strategic", "application/strategic-merge-patch+json"),
            ("patch-strategic", "application/strategic-merge-patch+json"),
            ("apply", "application/apply-patch+yaml"),
            ("apply", "application/apply-patch+yaml"),
        ]);
        let content = match verb {
            "patch-json" => self.json_patch(object, edits),
            "patch-merge" => self.merge_document(object, edits, false),
            "patch-strategic" => self.merge_document(object, edits, true),
            _ => self.apply_document(object, edits),
        };
        let mut request = ask(Method::PATCH, path, Content::Json(content));
        request.content_type = content_type;
        request.query = self.write_options(false);
        if verb == "apply" {
            request.query.retain(|(name, _)| *name != "fieldManager");
            if self.percent_chance(95) {
                request.query.push(("fieldManager", self.one_of(&["m1", "m1", "m2"]).to_owned()));
            }
            if self.percent_chance(35) {
                request.query.push(("force", self.one_of(&["true", "true", "false"]).to_owned()));
            }
        }
        self.push_sub(verb, object, part, request);
    }

    fn json_patch(&mut self, object: usize, edits: &[Edit]) -> Value {
        let mut json_patch = Vec::new();
        if self.percent_chance(15)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            json_patch.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        }
        for edit in edits {
            json_patch.push(match &edit.value {
                Some(value) => {
                    let op = self.one_of(&["add", "add", "add", "replace", "test"]);
                    json!({"op": op, "path": edit.pointer, "value": value})
                }
                None => json!({"op": "remove", "path": edit.pointer}),
            });
        }
        if self.percent_chance(5) {
            json_patch.push(
                self.one_of(&[
                    r#"{"op": "copy", "from": "/metadata/labels/app", "path": "/metadata/labels/copy"}"#,
                    r#"{"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/moved"}"#,
                    r#"{"op": "odd", "path": "/metadata"}"#,
                    r#"{"op": "replace", "path": "metadata", "value": 1}"#,
                    r#"{"op": "remove", "path": "/metadata/labels/nothing"}"#,
                    r#"{"op": "add", "path": "/nothing/below", "value": 1}"#,
                ])
                .parse()
                .unwrap_or_default(),
            );
        }
        Value::Array(json_patch)
    }

    /// A merge patch with only the changes.
    fn merge_document(&mut self, object: usize, edits: &[Edit], strategic: bool) -> Value {
        let (kind, name) = (self.objects[object].kind, self.objects[object].name.clone());
        let valid_object = kind.valid_object(&name);
        let mut patch = json!({});
        for edit in edits {
            insert_edit(&mut patch, &valid_object, edit, strategic);
        }
        if self.percent_chance(12)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        if self.percent_chance(6)
            && let Some(uid) = self.reference(object, "/metadata/uid")
        {
            patch["metadata"]["uid"] = json!(uid);
        }
        if strategic && self.percent_chance(12) {
            let directive: Value = self.one_of(&[
                r#"{"metadata": {"labels": {"$patch": "replace", "only": "this"}}}"#,
                r#"{"metadata": {"annotations": {"$patch": "delete"}}}"#,
                r#"{"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/f"]}}"#,
                r#"{"metadata": {"finalizers": ["example.com/h"], "$setElementOrder/finalizers": ["example.com/h", "example.com/f"]}}"#,
                r#"{"metadata": {"ownerReferences": [{"uid": "u-1", "$patch": "delete"}]}}"#,
                r#"{"metadata": {"ownerReferences": [{"uid": "u-3", "apiVersion": "v1", "kind": "Pod", "name": "x"}]}}"#,
                r#"{"metadata": {"ownerReferences": [{"name": "no uid"}]}}"#,
                r#"{"$patch": "odd"}"#,
            ]).parse().unwrap_or_default();
            merge_into(&mut patch, directive);
        }
        patch
    }

    /// An object to apply: complete, or only the changed fields.
    fn apply_document(&mut self, object: usize, edits: &[Edit]) -> Value {
        let (kind, name) = (self.objects[object].kind, self.objects[object].name.clone());
        let valid_object = kind.valid_object(&name);
        if self.percent_chance(50) {
            return edited(valid_object, edits);
        }
        let mut apply_document = kind.minimal_object(&name);
        for edit in edits.iter().filter(|edit| edit.value.is_some()) {
            insert_edit(&mut apply_document, &valid_object, edit, true);
        }
        if self.percent_chance(8) {
            let missing = self.one_of(&["/kind", "/apiVersion", "/metadata/name"]);
            Edit { pointer: missing.to_owned(), value: None }.make(&mut apply_document);
        }
        apply_document
    }
}

/// Inserts a change into a patch document. A list on the way contains only the changed item with its merge
/// keys if lists are merged, and all items otherwise.
fn insert_edit(patch: &mut Value, valid_object: &Value, edit: &Edit, merged: bool) {
    let steps = steps(&edit.pointer);
    let (mut at, mut model) = (patch, valid_object);
    let mut pointer = String::new();
    for (index, step) in steps.iter().enumerate() {
        pointer = format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"));
        let last = index + 1 == steps.len();
        if let Some(list) = model.as_array() {
            let place = step.parse::<usize>().unwrap_or(0);
            if last {
                *at = json!([edit.value]);
                return;
            }
            let item = list.get(place).cloned().unwrap_or_default();
            if !at.is_array() {
                *at = if merged { json!([keys_of(&item)]) } else { Value::Array(list.clone()) };
            }
            let Some(next) = at.get_mut(if merged { 0 } else { place }) else { return };
            at = next;
            model = &list[place.min(list.len().saturating_sub(1))];
            continue;
        }
        if !at.is_object() {
            *at = json!({});
        }
        if last {
            at[step.as_str()] = edit.value.clone().unwrap_or(Value::Null);
            return;
        }
        at = &mut at[step.as_str()];
        model = &model[step.as_str()];
    }
}

fn keys_of(item: &Value) -> Value {
    let keys = item.as_object().into_iter().flatten().filter(|(name, _)| KEYS.contains(&name.as_str()));
    Value::Object(keys.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

fn merge_into(document: &mut Value, more: Value) {
    match (document, more) {
        (Value::Object(document), Value::Object(more)) => {
            for (name, value) in more {
                merge_into(document.entry(name).or_insert(Value::Null), value);
            }
        }
        (document, more) => *document = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_inside_lists_keep_the_merge_keys() {
        let valid_object = json!({"spec": {"containers": [{"name": "main", "image": "i", "tty": true}]}});
        let edit = Edit { pointer: "/spec/containers/0/image".to_owned(), value: Some(json!("j")) };
        let mut patch = json!({});
        insert_edit(&mut patch, &valid_object, &edit, true);
        assert_eq!(patch, json!({"spec": {"containers": [{"name": "main", "image": "j"}]}}));
        let mut patch = json!({});
        insert_edit(&mut patch, &valid_object, &edit, false);
        assert_eq!(patch, json!({"spec": {"containers": [{"name": "main", "image": "j", "tty": true}]}}));
    }
}
