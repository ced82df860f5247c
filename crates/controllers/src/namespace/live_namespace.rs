//! A namespace from a live read, with all fields, so that an update loses nothing.

use std::collections::BTreeSet;

use keleustes_objects::{Kind, Namespace, Object, ObjectMeta, Resource, ResourceVersion, WireMeta};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Value, json};

use super::FINALIZER;

/// A namespace from a live read.
#[derive(Clone, Debug)]
pub(super) struct LiveNamespace {
    pub(super) meta: ObjectMeta,
    body: Value,
}

impl Object for LiveNamespace {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for LiveNamespace {
    const RESOURCE: Resource = Namespace::RESOURCE;
}

impl<'de> Deserialize<'de> for LiveNamespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Value::deserialize(deserializer)?;
        // The decoder's error may quote the object, so it is not repeated.
        let meta: WireMeta =
            WireMeta::deserialize(&body["metadata"]).map_err(|_| D::Error::custom("no metadata"))?;
        Ok(Self { meta: ObjectMeta::from(meta), body })
    }
}

impl LiveNamespace {
    /// Whether it has a deletionTimestamp.
    pub(super) fn is_terminating(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// The finalizers in its spec.
    pub(super) fn finalizers(&self) -> BTreeSet<&str> {
        let finalizers = self.body["spec"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
        finalizers.iter().filter_map(Value::as_str).collect()
    }

    /// The body with phase `Terminating`; `None` if it is not terminating or already has the phase.
    pub(super) fn with_terminating_phase(&self) -> Option<Value> {
        if !self.is_terminating() || self.body["status"]["phase"] == "Terminating" {
            return None;
        }
        let mut body = self.body.clone();
        body["status"]["phase"] = json!("Terminating");
        Some(body)
    }

    /// The body without the finalizer `kubernetes`; other finalizers are kept once each, in order.
    pub(super) fn without_finalizer(&self) -> Value {
        let others: Vec<_> = self.finalizers().into_iter().filter(|name| *name != FINALIZER).collect();
        let mut spec = self.body["spec"].clone();
        spec["finalizers"] = json!(others);
        json!({"metadata": self.body["metadata"], "spec": spec})
    }

    /// The body with updated conditions; `None` if they do not change.
    pub(super) fn with_conditions(&self, update: impl FnOnce(&mut Vec<Value>) -> bool) -> Option<Value> {
        let mut conditions = self.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if !update(&mut conditions) {
            return None;
        }
        let mut body = self.body.clone();
        body["status"]["conditions"] = Value::Array(conditions);
        Some(body)
    }

    /// Records that the server accepted this body and returned this resourceVersion.
    pub(super) fn set_written(&mut self, body: Value, version: &ResourceVersion) {
        self.body = body;
        self.body["metadata"]["resourceVersion"] = json!(version);
        self.meta.resource_version = version.clone();
    }
}
