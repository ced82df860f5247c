//! ServiceAccounts: metadata and listed Secrets.

use serde::Deserialize;

use crate::meta::null_is_empty;
use crate::{ArcStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ServiceAccount {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The names in `secrets`.
    pub secrets: Box<[ArcStr]>,
}

impl Object for ServiceAccount {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ServiceAccount {
    const RESOURCE: Resource = Resource::built_in("", "ServiceAccount");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_empty")]
    secrets: Box<[Reference]>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    name: ArcStr,
}

impl From<Wire> for ServiceAccount {
    fn from(wire: Wire) -> Self {
        let secrets = wire.secrets.into_iter().map(|reference| reference.name).collect();
        Self { meta: wire.metadata.into(), secrets }
    }
}
