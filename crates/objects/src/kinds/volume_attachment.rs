//! VolumeAttachments: which volume is to be attached to which node, and what the external attacher reports.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::Message;
use crate::{ArcStr, InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A VolumeAttachment. Controllers create and delete it; only the external attacher updates it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct VolumeAttachment {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.attacher`, the name of the CSI driver.
    pub attacher: InternedStr,
    /// `spec.nodeName`.
    pub node_name: InternedStr,
    /// `spec.source.persistentVolumeName`; `None` for an inline volume.
    pub persistent_volume_name: Option<ArcStr>,
    /// `status.attached`.
    pub attached: bool,
    /// The message of `status.attachError`.
    pub attach_error: Option<ArcStr>,
    /// The message of `status.detachError`.
    pub detach_error: Option<ArcStr>,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &VolumeAttachment::RESOURCE,
        "
        spec { attacher nodeName source { persistentVolumeName } }
        status { attached attachError,detachError { message } }
        ",
    )
});

impl Object for VolumeAttachment {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for VolumeAttachment {
    const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "VolumeAttachment");
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
    attacher: InternedStr,
    node_name: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    source: WireSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSource {
    persistent_volume_name: Option<ArcStr>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_default")]
    attached: bool,
    attach_error: Option<WireError>,
    detach_error: Option<WireError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireError {
    #[serde(deserialize_with = "null_is_default")]
    message: ArcStr,
}

impl From<Wire> for VolumeAttachment {
    fn from(wire: Wire) -> Self {
        let message = |error: Option<WireError>| error.map(|error| error.message);
        Self {
            meta: wire.metadata.into(),
            attacher: wire.spec.attacher,
            node_name: wire.spec.node_name,
            persistent_volume_name: wire.spec.source.persistent_volume_name,
            attached: wire.status.attached,
            attach_error: message(wire.status.attach_error),
            detach_error: message(wire.status.detach_error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_is_decoded() {
        let attachment: VolumeAttachment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "csi-1"},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": true, "attachError": {"message": "why", "time": "2026-01-01T00:00:00Z"}},
        }))
        .unwrap();
        assert_eq!((attachment.attacher.as_str(), attachment.node_name.as_str()), ("d", "n"));
        assert_eq!(attachment.persistent_volume_name.as_deref(), Some("pv"));
        assert!(attachment.attached && attachment.detach_error.is_none());
        assert_eq!(attachment.attach_error.as_deref(), Some("why"));
        let inline: VolumeAttachment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "csi-2"}, "status": null,
            "spec": {"source": {"inlineVolumeSpec": {"csi": {}}, "persistentVolumeName": null}},
        }))
        .unwrap();
        assert!(!inline.attached && inline.persistent_volume_name.is_none());
    }
}
