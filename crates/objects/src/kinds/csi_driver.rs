//! CSIDrivers: what attachment and SELinux mounts read.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::Message;
use crate::{Kind, Object, ObjectMeta, Resource, WireMeta};

/// A CSIDriver.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct CsiDriver {
    /// Its metadata; the name is that of the driver.
    pub meta: ObjectMeta,
    /// `spec.attachRequired`; the API server sets a default.
    pub attach_required: Option<bool>,
    /// Whether `spec.seLinuxMount` is `true`; unset means `false`.
    pub se_linux_mount: bool,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> =
    LazyLock::new(|| Message::of(&CsiDriver::RESOURCE, "spec { attachRequired seLinuxMount }"));

impl Object for CsiDriver {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for CsiDriver {
    const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "CSIDriver");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    attach_required: Option<bool>,
    se_linux_mount: Option<bool>,
}

impl From<Wire> for CsiDriver {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            attach_required: wire.spec.attach_required,
            se_linux_mount: wire.spec.se_linux_mount.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_decoded() {
        let read = |text: &str| -> CsiDriver { serde_json::from_str(text).unwrap() };
        let driver = read(r#"{"metadata":{"name":"d"},"spec":{"attachRequired":false,"seLinuxMount":true}}"#);
        assert_eq!((driver.attach_required, driver.se_linux_mount), (Some(false), true));
        let bare = read(r#"{"metadata":{"name":"d"},"spec":{"seLinuxMount":null}}"#);
        assert_eq!((bare.attach_required, bare.se_linux_mount), (None, false));
        assert!(!read(r#"{"metadata":{"name":"d"},"spec":null}"#).se_linux_mount);
    }
}
