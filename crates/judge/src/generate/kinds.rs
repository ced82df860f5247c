//! The kinds of the sequences: a valid object of each, and valid and invalid changes to it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::sequence::{Edit, NAMESPACE, NETWORK};

/// One kind of `data/kinds.json`.
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
    /// Whether it is cluster-scoped.
    #[serde(default, rename = "cluster")]
    pub(super) cluster_scoped: bool,
    /// Whether the server itself changes stored objects in the background; such kinds are only created with
    /// dryRun.
    #[serde(default, rename = "dry")]
    pub(super) dry_run_only: bool,
    /// Whether the server generates a name for an object without one; its position in a list is random, so
    /// that it is only created with dryRun.
    #[serde(default, rename = "drawn")]
    pub(super) generates_name: bool,
    /// Whether it affects other kinds, so that it must be the only kind of a sequence.
    #[serde(default, rename = "alone")]
    pub(super) exclusive: bool,
    /// The name of the only object, where the kind prescribes it.
    pub(super) name: Option<String>,
    /// A valid object without type and metadata.
    object: Value,
    /// Changes: a pointer, and values to choose from. The first value is valid; null removes the field.
    edits: Vec<Vec<Value>>,
    /// The same for the status; empty if there is no status subresource.
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

/// Valid and invalid changes of the metadata.
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
    ["/metadata/generateName", "gen0-"],
    ["/unheardOf", 1],
    ["/metadata/unheardOf", "x"]
]"#;

/// Reads the table.
///
/// # Panics
/// If the embedded table is malformed; a test reads it.
#[must_use]
pub(super) fn all() -> Vec<Kind> {
    // Embedded in the program and read by a test.
    serde_json::from_str(include_str!("../../data/kinds.json")).expect("the table of kinds")
}

/// Changes that can be made to any object.
///
/// # Panics
/// As [`all`].
#[must_use]
pub(super) fn metadata_edits() -> Vec<Vec<Value>> {
    // Embedded in the program and read by a test.
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

    /// The path of the collection over all namespaces.
    #[must_use]
    pub(super) fn all_namespaces_path(&self) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        format!("{root}/{}/{}", self.version, self.resource)
    }

    /// Path of the collection.
    #[must_use]
    pub(super) fn collection_path(&self) -> String {
        if self.cluster_scoped {
            return self.all_namespaces_path();
        }
        let all_namespaces_path = self.all_namespaces_path();
        let (root, resource) = all_namespaces_path.rsplit_once('/').unwrap_or_default();
        format!("{root}/namespaces/{NAMESPACE}/{resource}")
    }

    /// The name of the object with that letter.
    #[must_use]
    pub(super) fn object_name(&self, letter: &str) -> String {
        match &self.name {
            Some(name) => name.clone(),
            // The letters are hexadecimal digits.
            None if self.kind == "IPAddress" => format!("{NETWORK}::{letter}"),
            None if self.cluster_scoped => format!("{NAMESPACE}-{letter}"),
            None => letter.to_owned(),
        }
    }

    /// A valid object.
    #[must_use]
    pub(super) fn valid_object(&self, name: &str) -> Value {
        let mut object = self.minimal_object(name);
        object["metadata"]["labels"] = json!({"judge": NAMESPACE, "app": "a"});
        for (field, value) in self.object.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }

    /// An object with type and name only.
    #[must_use]
    pub(super) fn minimal_object(&self, name: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.kind, "metadata": {"name": name}})
    }

    /// Where the spec of a pod is.
    #[must_use]
    pub(super) fn pod_spec(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            "Pod" => Some("/spec"),
            "PodTemplate" => Some("/template/spec"),
            "CronJob" => Some("/spec/jobTemplate/spec/template/spec"),
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
                Some("/spec/template/spec")
            }
            _ => None,
        }
    }

    /// Whether there is a status subresource.
    #[must_use]
    pub(super) fn has_status(&self) -> bool {
        !self.status.is_empty()
    }

    /// A change of the object.
    pub(super) fn edit(&self, rng: &mut fastrand::Rng) -> Edit {
        choose(&self.edits, rng)
    }

    /// A change of the status.
    pub(super) fn status_edit(&self, rng: &mut fastrand::Rng) -> Edit {
        choose(&self.status, rng)
    }
}

/// One of the changes, in 55 of 100 cases with its first, valid value.
pub(super) fn choose(edits: &[Vec<Value>], rng: &mut fastrand::Rng) -> Edit {
    let Some([pointer, values @ ..]) = rng.choice(edits).map(Vec::as_slice) else {
        return Edit { pointer: "/metadata/labels/none".to_owned(), value: None };
    };
    let at = if rng.u8(..100) < 55 { 0 } else { rng.usize(..values.len()) };
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
    fn tables_can_be_read_and_every_edit_has_a_value() {
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
