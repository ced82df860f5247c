//! A namespace as the server has it now, whole: what is put back loses nothing.

use std::collections::BTreeSet;

use keleustes_objects::{Kind, Namespace, Object, ObjectMeta, Resource, ResourceVersion, WireMeta};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Value, json};

use super::FINALIZER;

/// A namespace, freshly read.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) meta: ObjectMeta,
    body: Value,
}

impl Object for Live {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Live {
    const RESOURCE: Resource = Namespace::RESOURCE;
}

impl<'de> Deserialize<'de> for Live {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Value::deserialize(deserializer)?;
        // What a decoder says may quote the object, so it is not repeated.
        let meta: WireMeta =
            WireMeta::deserialize(&body["metadata"]).map_err(|_| D::Error::custom("no metadata"))?;
        Ok(Self { meta: ObjectMeta::from(meta), body })
    }
}

impl Live {
    /// Whether its deletion was asked for.
    pub(super) fn is_going(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// What keeps it from going, as its spec says.
    pub(super) fn finalizers(&self) -> BTreeSet<&str> {
        let listed = self.body["spec"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
        listed.iter().filter_map(Value::as_str).collect()
    }

    /// The body that marks it as going; nothing if it is not going, or is marked.
    pub(super) fn terminating(&self) -> Option<Value> {
        if !self.is_going() || self.body["status"]["phase"] == "Terminating" {
            return None;
        }
        let mut body = self.body.clone();
        body["status"]["phase"] = json!("Terminating");
        Some(body)
    }

    /// The body without our finalizer. Those of others stay, each once, in order.
    pub(super) fn finalized(&self) -> Value {
        let others: Vec<_> = self.finalizers().into_iter().filter(|name| *name != FINALIZER).collect();
        let mut spec = self.body["spec"].clone();
        spec["finalizers"] = json!(others);
        json!({"metadata": self.body["metadata"], "spec": spec})
    }

    /// The body with other conditions; nothing if they stay as they are.
    pub(super) fn with_conditions(&self, refresh: impl FnOnce(&mut Vec<Value>) -> bool) -> Option<Value> {
        let mut conditions = self.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if !refresh(&mut conditions) {
            return None;
        }
        let mut body = self.body.clone();
        body["status"]["conditions"] = Value::Array(conditions);
        Some(body)
    }

    /// The server took this body, and that was the state it led to.
    pub(super) fn became(&mut self, body: Value, version: &ResourceVersion) {
        self.body = body;
        self.body["metadata"]["resourceVersion"] = json!(version);
        self.meta.resource_version = version.clone();
    }
}
