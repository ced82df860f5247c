//! ConfigMaps and Secrets: only the names of their entries.

use std::collections::BTreeMap;

use keleustes_objects::{ArcStr, Object, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{WireMeta, nullable};

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub(crate) struct ConfigMap {
    pub(crate) meta: ObjectMeta,
    pub(crate) entries: Box<[ArcStr]>,
}

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub(crate) struct Secret {
    pub(crate) meta: ObjectMeta,
    pub(crate) entries: Box<[ArcStr]>,
}

impl ConfigMap {
    pub(crate) const RESOURCE: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
}

impl Secret {
    pub(crate) const RESOURCE: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
}

impl Object for ConfigMap {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Object for Secret {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "nullable")]
    data: BTreeMap<ArcStr, IgnoredAny>,
    #[serde(default, deserialize_with = "nullable")]
    binary_data: BTreeMap<ArcStr, IgnoredAny>,
}

impl Wire {
    fn entries(self) -> Box<[ArcStr]> {
        self.data.into_keys().chain(self.binary_data.into_keys()).collect()
    }
}

impl From<Wire> for ConfigMap {
    fn from(mut wire: Wire) -> Self {
        Self { meta: wire.metadata.meta(), entries: wire.entries() }
    }
}

impl From<Wire> for Secret {
    fn from(mut wire: Wire) -> Self {
        Self { meta: wire.metadata.meta(), entries: wire.entries() }
    }
}
