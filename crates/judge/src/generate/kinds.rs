//! The kinds that sequences are about: a good object of each, and what may be changed about it, for better or worse.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::sequence::{Edit, NAMESPACE};

/// One kind, as `data/kinds.json` has it.
#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    /// API group; empty for core.
    pub(super) group: String,
    /// API version.
    #[serde(default = "v1")]
    pub(super) version: String,
    /// Plural, as in paths.
    pub(super) resource: String,
    /// Kind.
    pub(super) kind: String,
    /// Whether objects live outside of namespaces.
    #[serde(default)]
    pub(super) cluster: bool,
    /// Whether the server itself acts on stored objects, at a time of its own; these are only tried, not stored.
    #[serde(default)]
    pub(super) dry: bool,
    /// Whether the server draws a name for an object without one; that stands anywhere in a list, and is only tried.
    #[serde(default)]
    pub(super) drawn: bool,
    /// Whether it changes what becomes of other kinds, and so stays by itself.
    #[serde(default)]
    pub(super) alone: bool,
    /// The name of the only object, where the kind prescribes it.
    pub(super) name: Option<String>,
    /// A good object, without types and metadata.
    object: Value,
    /// Changes: a pointer, and values to choose from. The first is a good one, null removes.
    edits: Vec<Vec<Value>>,
    /// The same for the status; none if there is no such subresource.
    #[serde(default)]
    status: Vec<Vec<Value>>,
    /// Field selectors.
    #[serde(default)]
    pub(super) fields: Vec<String>,
    /// Subresources besides status.
    #[serde(default)]
    pub(super) subresources: Vec<String>,
}

fn v1() -> String {
    "v1".to_owned()
}

/// Changes of the metadata, good and bad.
const METADATA: &str = r#"[
    ["/metadata/labels/tier", "front", "back", null, "Bad value!", 5],
    ["/metadata/labels/app", "a", "b"],
    ["/metadata/labels/bad key", "x"],
    ["/metadata/labels/example.com~1long", "x", "Bad/value"],
    ["/metadata/labels", null, {}],
    ["/metadata/annotations/note", "n", "m", "", null, 7],
    ["/metadata/annotations/Bad Key", "x"],
    ["/metadata/annotations", {"a": "b"}, null],
    ["/metadata/finalizers", ["example.com/f"], ["example.com/f", "example.com/g"], [], null, ["plain"]],
    ["/metadata/finalizers", ["example.com/f"], ["foregroundDeletion"], ["orphan", "example.com/f"]],
    ["/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}], null,
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}],
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1", "controller": true, "blockOwnerDeletion": true}],
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1", "controller": true}, {"apiVersion": "v1", "kind": "Secret", "name": "o", "uid": "u-2", "controller": true}],
        [{"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u-1"}]],
    ["/metadata/creationTimestamp", "2020-01-02T03:04:05Z", null],
    ["/metadata/deletionTimestamp", "2020-01-02T03:04:05Z"],
    ["/metadata/deletionGracePeriodSeconds", 5],
    ["/metadata/generation", 7],
    ["/metadata/selfLink", "/x"],
    ["/metadata/managedFields", [], null],
    ["/metadata/generateName", "x-"],
    ["/unheardOf", 1],
    ["/metadata/unheardOf", "x"]
]"#;

/// Reads the table.
///
/// # Panics
/// If the table, which is part of the program, is malformed; a test reads it.
#[must_use]
pub(super) fn all() -> Vec<Kind> {
    // A part of the program, read by a test.
    serde_json::from_str(include_str!("../../data/kinds.json")).expect("the table of kinds")
}

/// Changes that can be made to any object.
///
/// # Panics
/// As [`all`].
#[must_use]
pub(super) fn metadata_edits() -> Vec<Vec<Value>> {
    // A part of the program, read by a test.
    serde_json::from_str(METADATA).expect("the list of edits")
}

impl Kind {
    /// `apiVersion` of objects.
    #[must_use]
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `resource.group`.
    #[must_use]
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Path of the collection over all namespaces.
    #[must_use]
    pub(super) fn everywhere(&self) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        format!("{root}/{}/{}", self.version, self.resource)
    }

    /// Path of the collection.
    #[must_use]
    pub(super) fn collection(&self) -> String {
        if self.cluster {
            return self.everywhere();
        }
        let everywhere = self.everywhere();
        let (root, resource) = everywhere.rsplit_once('/').unwrap_or_default();
        format!("{root}/namespaces/{NAMESPACE}/{resource}")
    }

    /// What an object of that letter is called.
    #[must_use]
    pub(super) fn object_name(&self, letter: &str) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None if self.cluster => format!("{NAMESPACE}-{letter}"),
            None => letter.to_owned(),
        }
    }

    /// A good object.
    #[must_use]
    pub(super) fn good(&self, name: &str) -> Value {
        let mut object = self.bare(name);
        object["metadata"]["labels"] = json!({"judge": NAMESPACE, "app": "a"});
        for (field, value) in self.object.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }

    /// Types and name alone.
    #[must_use]
    pub(super) fn bare(&self, name: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.kind, "metadata": {"name": name}})
    }

    /// Whether there is a status subresource to ask for.
    #[must_use]
    pub(super) fn has_status(&self) -> bool {
        !self.status.is_empty()
    }

    /// A change of the object.
    pub(super) fn edit(&self, chance: &mut fastrand::Rng) -> Edit {
        choose(&self.edits, chance)
    }

    /// A change of the status.
    pub(super) fn status_edit(&self, chance: &mut fastrand::Rng) -> Edit {
        choose(&self.status, chance)
    }
}

/// One of the changes, more often than not with its first, good value.
pub(super) fn choose(edits: &[Vec<Value>], chance: &mut fastrand::Rng) -> Edit {
    let Some([pointer, values @ ..]) = chance.choice(edits).map(Vec::as_slice) else {
        return Edit { pointer: "/metadata/labels/none".to_owned(), value: None };
    };
    let at = if chance.u8(..100) < 55 { 0 } else { chance.usize(..values.len()) };
    let value = values[at].clone();
    Edit {
        pointer: pointer.as_str().unwrap_or_default().to_owned(),
        value: Some(value).filter(|v| !v.is_null()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_can_be_read_and_every_edit_has_a_value() {
        let kinds = all();
        assert!(kinds.len() > 40);
        for edit in
            kinds.iter().flat_map(|kind| kind.edits.iter().chain(&kind.status)).chain(&metadata_edits())
        {
            assert!(
                edit.len() > 1 && edit[0].as_str().is_some_and(|pointer| pointer.starts_with('/')),
                "{edit:?}"
            );
        }
    }
}
