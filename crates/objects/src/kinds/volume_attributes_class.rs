//! VolumeAttributesClasses: metadata and driver.

use serde::Deserialize;

use crate::protobuf::{self, Message};
use crate::{InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A VolumeAttributesClass.
///
/// Writers edit the live object, because a PUT of this projection would drop fields.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct VolumeAttributesClass {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `driverName`.
    pub driver_name: InternedStr,
}

impl Object for VolumeAttributesClass {
    const MESSAGE: Option<&'static Message> = Some(&protobuf::VOLUME_ATTRIBUTES_CLASS);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for VolumeAttributesClass {
    const RESOURCE: Resource =
        Resource::cluster("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    driver_name: InternedStr,
}

impl From<Wire> for VolumeAttributesClass {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), driver_name: wire.driver_name }
    }
}
