//! Live reads beyond objects of known kinds: subresources of any kind, and aggregated APIs.

use std::collections::BTreeMap;

use keleustes_objects::{Key, LabelSelector, Resource, TextSelector, encode_path_segment};
use serde::Deserialize;
use serde_json::{Value, json};

/// A response of one of our own servers is smaller than this.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// A live read of something that is not an object of a known kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The resource, in the group and version that are requested.
    pub resource: Resource,
    /// Namespace and name; a read without a name is a list.
    pub key: Key,
    /// The subresource; empty for none. In the custom metrics API it is the name of a metric.
    pub subresource: String,
    /// The query parameters, unescaped.
    pub query: Vec<(&'static str, String)>,
    /// The read fails if the response is larger: the server behind an aggregated API may be anybody's.
    pub bytes_max: usize,
    /// Whether "not found" is an error with the server's message instead of `None`.
    pub not_found_is_error: bool,
}

impl ReadRequest {
    /// Gets a subresource of one object.
    #[must_use]
    pub fn subresource(resource: &Resource, key: &Key, subresource: impl Into<String>) -> Self {
        Self {
            resource: resource.clone(),
            key: key.clone(),
            subresource: subresource.into(),
            query: Vec::new(),
            bytes_max: RESPONSE_BYTES_MAX,
            not_found_is_error: false,
        }
    }

    /// Reports "not found" as an error, for callers that show the server's message.
    #[must_use]
    pub fn not_found_as_error(mut self) -> Self {
        self.not_found_is_error = true;
        self
    }

    /// Limits the size of the response.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Lists a collection of one namespace, or of the cluster if it is empty.
    #[must_use]
    pub fn collection(resource: &Resource, namespace: &str) -> Self {
        Self::subresource(resource, &Key::namespaced(namespace, ""), "")
    }

    /// Adds a query parameter, unless the value is empty.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.query.push((name, value));
        }
        self
    }

    /// The verb that a role must grant.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        if self.key.name.is_empty() { "list" } else { "get" }
    }

    /// The path without the query, for messages and tests.
    #[must_use]
    pub fn path(&self) -> String {
        let path = if self.key.name.is_empty() {
            self.resource.collection_path(&self.key.namespace)
        } else {
            self.resource.object_path(&self.key)
        };
        if self.subresource.is_empty() {
            path
        } else {
            format!("{path}/{}", encode_path_segment(&self.subresource))
        }
    }
}

/// A Scale of `autoscaling/v1`: how many replicas an object of any kind wants and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub spec_replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`, as the API writes it; empty if there is none.
    pub selector: String,
    /// The object as it was read, to be written back with another number of replicas.
    pub json: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireScale {
    spec: WireScaleSpec,
    status: WireScaleStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireScaleSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireScaleStatus {
    replicas: Option<i32>,
    selector: Option<WireSelector>,
    target_selector: Option<String>,
}

/// `status.selector`: a text in autoscaling/v1, and labels in extensions/v1beta1, apps/v1beta1 and apps/v1beta2, where a
/// selector with other requirements is in `status.targetSelector`.
#[derive(Deserialize)]
#[serde(untagged)]
enum WireSelector {
    Text(String),
    Labels(BTreeMap<String, String>),
}

impl WireScaleStatus {
    /// The selector as text; `None` if its labels are none.
    fn selector(self) -> Option<String> {
        if let Some(text) = self.target_selector.filter(|text| !text.is_empty()) {
            return Some(text);
        }
        match self.selector {
            None => Some(String::new()),
            Some(WireSelector::Text(text)) => Some(text),
            Some(WireSelector::Labels(labels)) => {
                let selector = LabelSelector::deserialize(json!({"matchLabels": labels})).ok()?;
                TextSelector::of(Some(&selector)).ok().map(|selector| selector.to_string())
            }
        }
    }
}

impl Scale {
    /// Reads a Scale; `None` if it is none.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(json).ok().filter(Value::is_object)?;
        let wire = WireScale::deserialize(&json).ok()?;
        Some(Self {
            spec_replicas: wire.spec.replicas.unwrap_or_default(),
            status_replicas: wire.status.replicas.unwrap_or_default(),
            selector: wire.status.selector()?,
            json,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_without_fields_has_no_replicas() {
        let scale = Scale::from_json(r#"{"kind": "Scale", "metadata": {"name": "a"}}"#).unwrap();
        assert_eq!((scale.spec_replicas, scale.status_replicas, &*scale.selector), (0, 0, ""));
        let scale = Scale::from_json(
            r#"{"spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=web"}}"#,
        );
        let scale = scale.unwrap();
        assert_eq!((scale.spec_replicas, scale.status_replicas, &*scale.selector), (3, 2, "app=web"));
        // Versions before autoscaling/v1 have the labels, and a text in another field.
        let selector =
            |status: &str| Scale::from_json(&format!(r#"{{"status": {status}}}"#)).map(|one| one.selector);
        assert_eq!(selector(r#"{"selector": {"b": "2", "a": "1"}}"#).as_deref(), Some("a=1,b=2"));
        let both = r#"{"selector": {"a": "1"}, "targetSelector": "a in (1,2)"}"#;
        assert_eq!(selector(both).as_deref(), Some("a in (1,2)"));
        assert_eq!(selector(r#"{"selector": {}, "targetSelector": ""}"#).as_deref(), Some(""));
        assert_eq!(selector(r#"{"selector": null}"#).as_deref(), Some(""));
        assert_eq!(selector(r#"{"selector": {"a": "1,b=2"}}"#), None, "this is no value of a label");
        assert_eq!(Scale::from_json("[]"), None);
        assert_eq!(Scale::from_json(r#"{"spec": {"replicas": "many"}}"#), None);
    }

    #[test]
    fn read_without_a_name_is_a_list() {
        let pods = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");
        let list = ReadRequest::collection(&pods, "a").query("labelSelector", "app=web").query("x", "");
        assert_eq!(
            (list.verb(), list.path().as_str()),
            ("list", "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods")
        );
        assert_eq!(list.query, [("labelSelector", "app=web".to_owned())]);
        let one = ReadRequest::subresource(&pods, &Key::namespaced("a", "b"), "scale");
        assert_eq!(
            (one.verb(), one.path().as_str()),
            ("get", "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods/b/scale")
        );
    }
}
