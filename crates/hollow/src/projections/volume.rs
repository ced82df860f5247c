//! PersistentVolumes and VolumeAttachments.

use keleustes_objects::{ArcStr, InternedStr, Key, Object, ObjectMeta, Resource};
use serde::Deserialize;

use super::WireMeta;

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireVolume")]
pub(crate) struct Volume {
    pub(crate) meta: ObjectMeta,
    /// The PersistentVolumeClaim it is bound to.
    pub(crate) claim: Option<Key>,
    /// The unique volume name; `None` for volumes that are not attached.
    pub(crate) unique_name: Option<ArcStr>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireAttachment")]
pub(crate) struct Attachment {
    pub(crate) meta: ObjectMeta,
    pub(crate) node: InternedStr,
    pub(crate) is_attached: bool,
}

impl Volume {
    pub(crate) const RESOURCE: Resource =
        Resource::cluster("", "v1", "persistentvolumes", "PersistentVolume");
}

impl Attachment {
    pub(crate) const RESOURCE: Resource =
        Resource::cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment");
}

impl Object for Volume {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Object for Attachment {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireVolume {
    metadata: WireMeta,
    #[serde(default)]
    spec: VolumeSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    csi: Option<Csi>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: InternedStr,
    name: ArcStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: InternedStr,
    volume_handle: ArcStr,
}

#[derive(Deserialize)]
struct WireAttachment {
    metadata: WireMeta,
    #[serde(default)]
    spec: AttachmentSpec,
    #[serde(default)]
    status: AttachmentStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpec {
    node_name: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AttachmentStatus {
    attached: bool,
}

impl From<WireVolume> for Volume {
    fn from(mut wire: WireVolume) -> Self {
        let csi = wire.spec.csi;
        Self {
            meta: wire.metadata.meta(),
            claim: wire.spec.claim_ref.map(|claim| Key { namespace: claim.namespace, name: claim.name }),
            // Parity: the unique volume name of the attach-detach controller and kubelets.
            unique_name: csi
                .map(|csi| ArcStr::from(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))),
        }
    }
}

impl From<WireAttachment> for Attachment {
    fn from(mut wire: WireAttachment) -> Self {
        Self { meta: wire.metadata.meta(), node: wire.spec.node_name, is_attached: wire.status.attached }
    }
}
