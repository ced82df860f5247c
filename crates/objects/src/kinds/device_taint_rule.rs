//! DeviceTaintRules: the taint that an administrator puts on devices.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, Taint, Time, WireMeta};

/// A DeviceTaintRule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct DeviceTaintRule {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.deviceSelector`; `None` selects no device.
    pub device_selector: Option<DeviceTaintSelector>,
    /// `spec.taint`.
    pub taint: Taint,
    /// `status.conditions`.
    pub conditions: Box<[RuleCondition]>,
}

/// Selects devices: each field that is set must be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceTaintSelector {
    /// The DRA driver.
    pub driver: Option<InternedStr>,
    /// The pool.
    pub pool: Option<InternedStr>,
    /// The device.
    pub device: Option<InternedStr>,
}

/// A condition of a DeviceTaintRule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleCondition {
    /// The condition type.
    pub r#type: InternedStr,
    /// `True`, `False` or `Unknown`.
    pub status: InternedStr,
    /// A CamelCase reason.
    pub reason: InternedStr,
    /// A message for people.
    pub message: ArcStr,
    /// The `metadata.generation` that it is based on.
    #[serde(deserialize_with = "null_is_default")]
    pub observed_generation: i64,
    /// When it was last written.
    pub last_transition_time: Option<Time>,
}

impl DeviceTaintSelector {
    /// Whether it selects a device.
    #[must_use]
    pub fn selects(&self, driver: &InternedStr, pool: &InternedStr, device: &InternedStr) -> bool {
        let agrees = |wanted: &Option<InternedStr>, found: &InternedStr| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        agrees(&self.driver, driver) && agrees(&self.pool, pool) && agrees(&self.device, device)
    }
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &DeviceTaintRule::RESOURCE,
        "
        spec {
            deviceSelector { driver pool device }
            taint { key value effect timeAdded }
        }
        status { conditions }
        ",
    )
});

impl Object for DeviceTaintRule {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for DeviceTaintRule {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "DeviceTaintRule");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    device_selector: Option<DeviceTaintSelector>,
    #[serde(deserialize_with = "null_is_default")]
    taint: Taint,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[RuleCondition]>,
}

impl From<Wire> for DeviceTaintRule {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            device_selector: wire.spec.device_selector,
            taint: wire.spec.taint,
            conditions: wire.status.conditions,
        }
    }
}
