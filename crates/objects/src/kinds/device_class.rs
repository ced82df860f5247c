//! DeviceClasses: the extended resource that they stand for.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::Message;
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

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> =
    LazyLock::new(|| Message::of(&DeviceClass::RESOURCE, "spec { extendedResourceName }"));

impl Object for DeviceClass {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for DeviceClass {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "DeviceClass");
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
