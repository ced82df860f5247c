//! Stored objects: the JSON text that is sent, a tenth of the size of the parsed value.
//!
//! The selectable fields are stored beside the text, and labels are read from it without allocating a tree. A write
//! parses only the object it changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::resources::{Resource, Strategy};

/// A parsed object, shared by reference.
pub(crate) type SharedObject = Arc<Value>;

/// A stored object; clones share it.
#[derive(Clone)]
pub(crate) struct StoredObject(Arc<Inner>);

struct Inner {
    resource: &'static Resource,
    /// The object as JSON, with `apiVersion` and `kind` first.
    text: Box<str>,
    /// Offset in the text after `apiVersion` and `kind`.
    body: usize,
    /// The values of the selectable fields, in the order of the resource's table.
    fields: Box<[Box<str>]>,
    /// Kinds that are few and read with every request stay parsed; others only on request.
    value: Option<SharedObject>,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

/// Deserializes only the labels.
#[derive(Deserialize)]
struct Labelled<'a> {
    #[serde(borrow, default)]
    metadata: Labels<'a>,
}

#[derive(Deserialize, Default)]
struct Labels<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

impl StoredObject {
    /// Stores an object.
    pub(crate) fn new(resource: &'static Resource, object: &SharedObject) -> StoredObject {
        StoredObject::with_parsed(resource, object, stays_parsed(resource))
    }

    /// Stores an object together with its parsed form.
    pub(crate) fn parsed(resource: &'static Resource, object: &SharedObject) -> StoredObject {
        StoredObject::with_parsed(resource, object, true)
    }

    fn with_parsed(resource: &'static Resource, object: &SharedObject, stays_parsed: bool) -> StoredObject {
        let word = |field: &str| object.get(field).unwrap_or(&Value::Null).to_string();
        let mut text = format!("{{\"apiVersion\":{},\"kind\":{},", word("apiVersion"), word("kind"));
        let body = text.len();
        let fields = object.as_object().into_iter().flatten();
        for (name, value) in fields.filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind")) {
            if text.len() > body {
                text.push(',');
            }
            // Values always serialize.
            text.push_str(&Value::from(name.as_str()).to_string());
            text.push(':');
            text.push_str(&serde_json::to_string(value).unwrap_or_default());
        }
        text.push('}');
        let selectable = resource.selectable.iter();
        let fields = selectable.filter_map(|field| resource.field_value(field.label, object)).map(Into::into);
        let value = stays_parsed.then(|| Arc::clone(object));
        StoredObject(Arc::new(Inner { resource, body, fields: fields.collect(), text: text.into(), value }))
    }

    /// The resource of the storage version.
    pub(crate) fn resource(&self) -> &'static Resource {
        self.0.resource
    }

    /// The object, parsed.
    pub(crate) fn value(&self) -> SharedObject {
        match &self.0.value {
            Some(value) => Arc::clone(value),
            // Cannot fail: the text was serialized from a value.
            None => Arc::new(serde_json::from_str(&self.0.text).unwrap_or_default()),
        }
    }

    /// The JSON text.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// The text after the opening brace, `apiVersion` and `kind`, which items of typed lists omit.
    pub(crate) fn body(&self) -> &str {
        &self.0.text[self.0.body..]
    }

    /// The value of a selectable field, if it is known without parsing.
    pub(crate) fn field(&self, resource: &Resource, label: &str) -> Option<&str> {
        if !std::ptr::eq(resource, self.0.resource) {
            return None;
        }
        let at = resource.selectable.iter().position(|field| field.label == label)?;
        self.0.fields.get(at).map(|value| &**value)
    }

    /// Calls `read` with a lookup of the labels.
    pub(crate) fn with_labels<T>(&self, read: impl FnOnce(&dyn Fn(&str) -> Option<String>) -> T) -> T {
        let labels =
            serde_json::from_str::<Labelled<'_>>(&self.0.text).map(|l| l.metadata.labels).unwrap_or_default();
        read(&|key| labels.get(key).map(|value| value.clone().into_owned()))
    }

    /// Whether the text can be sent unchanged as this resource.
    pub(crate) fn can_be_sent_as(&self, resource: &Resource) -> bool {
        let same_version = || {
            let version = format!("{{\"apiVersion\":\"{}\"", resource.api_version());
            self.0.text.starts_with(&version)
        };
        resource.stored_as.is_none() && (!resource.is_custom() || same_version())
    }
}

fn stays_parsed(resource: &Resource) -> bool {
    matches!(
        resource.strategy,
        Strategy::Namespace
            | Strategy::Service
            | Strategy::ClusterRole
            | Strategy::Role
            | Strategy::ClusterRoleBinding
            | Strategy::CustomResourceDefinition
            | Strategy::PriorityClass
            | Strategy::StorageClass
            | Strategy::PodDisruptionBudget
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resources::by_name;
    use super::*;

    #[test]
    fn stored_object_returns_value_body_fields_and_labels() {
        let pods = by_name("pods").unwrap();
        let object = Arc::new(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"a": "b\n"}}, "spec": {"nodeName": "n"}}));
        let stored = StoredObject::new(pods, &object);
        assert_eq!(stored.value(), object);
        assert!(stored.body().starts_with("\"metadata\""));
        let map = Arc::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}));
        assert_eq!(StoredObject::new(by_name("configmaps").unwrap(), &map).body(), "\"data\":{\"a\":\"b\"}}");
        assert_eq!(stored.field(pods, "spec.nodeName"), Some("n"));
        assert_eq!(stored.field(pods, "spec.hostNetwork"), Some("false"));
        assert_eq!(stored.field(by_name("nodes").unwrap(), "spec.nodeName"), None);
        assert_eq!(stored.with_labels(|label| (label("a"), label("c"))), (Some("b\n".to_owned()), None));
    }
}
