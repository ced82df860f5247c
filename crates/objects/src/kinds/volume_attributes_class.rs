//! VolumeAttributesClasses: metadata and driver.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::protobuf::Message;
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

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> =
    LazyLock::new(|| Message::of(&VolumeAttributesClass::RESOURCE, "driverName"));

impl Object for VolumeAttributesClass {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for VolumeAttributesClass {
    const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "VolumeAttributesClass");
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
