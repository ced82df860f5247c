//! ResourceSlices: the devices of a pool and their taints.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{InternedStr, Kind, Object, ObjectMeta, Projection, Resource, Taint, WireMeta};

/// A ResourceSlice. A pool has up to thousands of devices, of which only names and taints are kept.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ResourceSlice {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.driver`.
    pub driver: InternedStr,
    /// `spec.pool.name`.
    pub pool: InternedStr,
    /// `spec.pool.generation`: the slices of the highest one describe the pool.
    pub pool_generation: i64,
    /// `spec.devices`.
    pub devices: Box<[Device]>,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its name in the pool.
    pub name: InternedStr,
    /// Its taints.
    #[serde(deserialize_with = "null_is_empty")]
    pub taints: Box<[Taint]>,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &ResourceSlice::RESOURCE,
        "
        spec {
            driver
            devices { name taints { key value effect timeAdded } }
            pool { name generation }
        }
        ",
    )
});

impl Object for ResourceSlice {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ResourceSlice {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "ResourceSlice");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    driver: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    pool: WirePool,
    #[serde(deserialize_with = "null_is_empty")]
    devices: Box<[Device]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePool {
    name: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    generation: i64,
}

impl From<Wire> for ResourceSlice {
    fn from(wire: Wire) -> Self {
        let WireSpec { driver, pool, devices } = wire.spec;
        Self {
            meta: wire.metadata.into(),
            driver,
            pool: pool.name,
            pool_generation: pool.generation,
            devices,
        }
    }
}
