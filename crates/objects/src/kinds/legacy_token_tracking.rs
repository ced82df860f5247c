//! The ConfigMap in which the API server records since when it tracks the use of legacy tokens.

use serde::Deserialize;

use crate::{Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// The ConfigMap `kube-system/kube-apiserver-legacy-service-account-token-tracking`. It is only read live.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct LegacyTokenTracking {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Data `since`, a date.
    pub since: Option<String>,
}

impl LegacyTokenTracking {
    /// Its name; its namespace is kube-system.
    pub const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
}

impl Object for LegacyTokenTracking {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for LegacyTokenTracking {
    const RESOURCE: Resource = Resource::built_in("", "ConfigMap");
    const PROJECTION: Projection =
        Projection::selected("metadata.name=kube-apiserver-legacy-service-account-token-tracking")
            .in_namespace("kube-system");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    since: Option<String>,
}

impl From<Wire> for LegacyTokenTracking {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), since: wire.data.and_then(|data| data.since) }
    }
}
