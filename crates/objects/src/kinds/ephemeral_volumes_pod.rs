//! Pods with the claim templates of their generic ephemeral volumes, complete. They are read live and never cached.

use serde::Deserialize;
use serde_json::Value;

use crate::meta::null_is_default;
use crate::{ArcStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A pod with the templates of the claims of its generic ephemeral volumes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct EphemeralVolumesPod {
    /// Its metadata.
    pub meta: ObjectMeta,
    templates: Vec<(ArcStr, Value)>,
}

impl EphemeralVolumesPod {
    /// `volumeClaimTemplate` of an ephemeral volume, as the server sent it; `null` if there is none.
    #[must_use]
    pub fn template(&self, volume: &str) -> &Value {
        let found = self.templates.iter().find(|(name, _)| *name == *volume);
        found.map_or(&Value::Null, |(_, template)| template)
    }
}

impl Object for EphemeralVolumesPod {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for EphemeralVolumesPod {
    const RESOURCE: Resource = Resource::built_in("", "Pod");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "null_is_default")]
    volumes: Vec<Volume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    name: ArcStr,
    ephemeral: Option<Ephemeral>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ephemeral {
    volume_claim_template: Value,
}

impl From<Wire> for EphemeralVolumesPod {
    fn from(wire: Wire) -> Self {
        let template = |volume: Volume| Some((volume.name, volume.ephemeral?.volume_claim_template));
        Self {
            meta: wire.metadata.into(),
            templates: wire.spec.volumes.into_iter().filter_map(template).collect(),
        }
    }
}
