//! Patches in all four formats.

use http::Method;
use serde_json::{Map, Value, json};

use super::{Making, ask, edited};
use crate::sequence::{Content, Edit, steps};

/// Fields by which the items of a list may be told apart.
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

impl Making<'_> {
    pub(super) fn patch(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        if kind.dry {
            return self.create();
        }
        let mut edits = self.edits(kind);
        if edits.is_empty() && self.often(80) {
            edits.push(kind.edit(&mut self.chance));
        }
        let path = self.path(object);
        self.patch_at(object, &path, "", &edits);
    }

    /// A patch of an object, or of a part of it, that makes these changes.
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
            "patch-json" => self.operations(object, edits),
            "patch-merge" => self.merge(object, edits, false),
            "patch-strategic" => self.merge(object, edits, true),
            _ => self.applied(object, edits),
        };
        let mut asked = ask(Method::PATCH, path, Content::Json(content));
        asked.content_type = content_type;
        asked.query = self.write_options(false);
        if verb == "apply" {
            asked.query.retain(|(name, _)| *name != "fieldManager");
            if self.often(95) {
                asked.query.push(("fieldManager", self.one_of(&["m1", "m1", "m2"]).to_owned()));
            }
            if self.often(35) {
                asked.query.push(("force", self.one_of(&["true", "true", "false"]).to_owned()));
            }
        }
        self.push_sub(verb, object, part, asked);
    }

    fn operations(&mut self, object: usize, edits: &[Edit]) -> Value {
        let mut operations = Vec::new();
        if self.often(15)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            operations.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        }
        for edit in edits {
            operations.push(match &edit.value {
                Some(value) => {
                    let op = self.one_of(&["add", "add", "add", "replace", "test"]);
                    json!({"op": op, "path": edit.pointer, "value": value})
                }
                None => json!({"op": "remove", "path": edit.pointer}),
            });
        }
        if self.often(5) {
            operations.push(
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
        Value::Array(operations)
    }

    /// A document with nothing but the changes.
    fn merge(&mut self, object: usize, edits: &[Edit], strategic: bool) -> Value {
        let (kind, name) = (self.objects[object].kind, self.objects[object].name.clone());
        let good = kind.good(&name);
        let mut patch = json!({});
        for edit in edits {
            weave(&mut patch, &good, edit, strategic);
        }
        if self.often(12)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        if self.often(6)
            && let Some(uid) = self.reference(object, "/metadata/uid")
        {
            patch["metadata"]["uid"] = json!(uid);
        }
        if strategic && self.often(12) {
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

    /// An object to apply: all of it, or only what is changed.
    fn applied(&mut self, object: usize, edits: &[Edit]) -> Value {
        let (kind, name) = (self.objects[object].kind, self.objects[object].name.clone());
        let good = kind.good(&name);
        if self.often(50) {
            return edited(good, edits);
        }
        let mut applied = kind.bare(&name);
        for edit in edits.iter().filter(|edit| edit.value.is_some()) {
            weave(&mut applied, &good, edit, true);
        }
        if self.often(8) {
            let fault = self.one_of(&["/kind", "/apiVersion", "/metadata/name"]);
            Edit { pointer: fault.to_owned(), value: None }.make(&mut applied);
        }
        applied
    }
}

/// Puts a change where it belongs in a document of changes. A list on the way appears with the one item concerned, told
/// apart by its keys, if lists are merged, and whole otherwise.
fn weave(patch: &mut Value, good: &Value, edit: &Edit, merged: bool) {
    let steps = steps(&edit.pointer);
    let (mut at, mut model) = (patch, good);
    let mut way = String::new();
    for (index, step) in steps.iter().enumerate() {
        way = format!("{way}/{}", step.replace('~', "~0").replace('/', "~1"));
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
    fn changes_are_woven_through_lists() {
        let good = json!({"spec": {"containers": [{"name": "main", "image": "i", "tty": true}]}});
        let edit = Edit { pointer: "/spec/containers/0/image".to_owned(), value: Some(json!("j")) };
        let mut patch = json!({});
        weave(&mut patch, &good, &edit, true);
        assert_eq!(patch, json!({"spec": {"containers": [{"name": "main", "image": "j"}]}}));
        let mut patch = json!({});
        weave(&mut patch, &good, &edit, false);
        assert_eq!(patch, json!({"spec": {"containers": [{"name": "main", "image": "j", "tty": true}]}}));
    }
}
