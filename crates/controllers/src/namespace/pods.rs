//! A pod reduced to its termination grace period.

use keleustes_objects::{InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};
use serde::Deserialize;

/// A pod reduced to its termination grace period.
#[derive(Deserialize)]
#[serde(from = "WirePod")]
pub(super) struct Pod {
    meta: ObjectMeta,
    /// `terminationGracePeriodSeconds`; zero if the pod is terminal.
    pub(super) grace_seconds: u64,
}

impl Object for Pod {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Pod {
    const RESOURCE: Resource = Resource::built_in("", "Pod");
}

#[derive(Deserialize)]
struct WirePod {
    metadata: WireMeta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: InternedStr,
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let is_terminal = wire.status.phase == "Succeeded" || wire.status.phase == "Failed";
        let grace = wire.spec.termination_grace_period_seconds.filter(|_| !is_terminal);
        Self { meta: wire.metadata.into(), grace_seconds: grace.unwrap_or_default().max(0).cast_unsigned() }
    }
}
