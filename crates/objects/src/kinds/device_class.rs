//! DeviceClasses: the extended resource that they stand for.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::{self, Message};
use crate::{InternedStr, Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// A DeviceClass.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct DeviceClass {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `extendedResourceName`; empty if it is not set.
    pub extended_resource_name: InternedStr,
}

impl Object for DeviceClass {
    const MESSAGE: Option<&'static Message> = Some(&protobuf::DEVICE_CLASS);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for DeviceClass {
    const RESOURCE: Resource = Resource::cluster("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "null_is_default")]
    extended_resource_name: InternedStr,
}

impl From<Wire> for DeviceClass {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), extended_resource_name: wire.spec.extended_resource_name }
    }
}
