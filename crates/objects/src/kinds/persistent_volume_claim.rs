//! PersistentVolumeClaims: metadata and phase.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::{InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PersistentVolumeClaim {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `Pending`, `Bound` or `Lost`.
    pub phase: InternedStr,
}

impl Object for PersistentVolumeClaim {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PersistentVolumeClaim {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: InternedStr,
}

impl From<Wire> for PersistentVolumeClaim {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), phase: wire.status.phase }
    }
}
