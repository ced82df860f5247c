//! PersistentVolumes, VolumeAttachments and CSIDrivers.

use keleustes_objects::{ArcStr, InternedStr, Key, Object, ObjectMeta, Resource};
use serde::Deserialize;

use super::terms::{NodeTerm, WireNodeTerms};
use super::{WireMeta, nullable};
use crate::behaviour::VolumeBehaviour;

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireVolume")]
pub(crate) struct Volume {
    pub(crate) meta: ObjectMeta,
    /// The PersistentVolumeClaim it is bound to.
    pub(crate) claim: Option<Key>,
    /// The CSI driver and the unique volume name; `None` for volumes that are not attached.
    pub(crate) csi: Option<(InternedStr, ArcStr)>,
    /// At least one of these must match a node that uses it, if `Some`.
    pub(crate) node_terms: Option<Box<[NodeTerm]>>,
    /// How attaching and detaching it goes.
    pub(crate) behaviour: VolumeBehaviour,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireAttachment")]
pub(crate) struct Attachment {
    pub(crate) meta: ObjectMeta,
    pub(crate) node: InternedStr,
    /// The PersistentVolume.
    pub(crate) volume: ArcStr,
    pub(crate) is_attached: bool,
    /// The messages of the errors that it reports.
    pub(crate) attach_error: Option<ArcStr>,
    pub(crate) detach_error: Option<ArcStr>,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireDriver")]
pub(crate) struct CsiDriver {
    pub(crate) meta: ObjectMeta,
    /// Whether its volumes are attached before they are mounted.
    pub(crate) is_attach_required: bool,
}

impl Volume {
    pub(crate) const RESOURCE: Resource = Resource::built_in("", "PersistentVolume");
}

impl Attachment {
    pub(crate) const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "VolumeAttachment");
}

impl CsiDriver {
    pub(crate) const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "CSIDriver");
}

impl Object for CsiDriver {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
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
    #[serde(default)]
    status: VolumeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeStatus {
    #[serde(deserialize_with = "nullable")]
    phase: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    csi: Option<Csi>,
    #[serde(deserialize_with = "nullable")]
    node_affinity: VolumeNodeAffinity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeNodeAffinity {
    required: Option<WireNodeTerms>,
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
    source: AttachmentSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<ArcStr>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentStatus {
    attached: bool,
    attach_error: Option<VolumeError>,
    detach_error: Option<VolumeError>,
}

#[derive(Deserialize)]
struct WireDriver {
    metadata: WireMeta,
    #[serde(default)]
    spec: DriverSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DriverSpec {
    attach_required: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeError {
    message: ArcStr,
}

impl From<WireVolume> for Volume {
    fn from(mut wire: WireVolume) -> Self {
        let csi = wire.spec.csi;
        Self {
            meta: wire.metadata.meta(),
            // A released volume still names its claim, but a new claim of that name has another volume.
            claim: (wire.spec.claim_ref)
                .filter(|_| !matches!(wire.status.phase.as_str(), "Released" | "Failed"))
                .map(|claim| Key { namespace: claim.namespace, name: claim.name }),
            // Parity: the unique volume name of the attach-detach controller and kubelets.
            csi: csi.map(|csi| {
                let unique_name = format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle);
                (csi.driver, unique_name.into())
            }),
            node_terms: wire.spec.node_affinity.required.map(|required| required.node_selector_terms),
            behaviour: wire.metadata.annotations.volume,
        }
    }
}

impl From<WireDriver> for CsiDriver {
    fn from(mut wire: WireDriver) -> Self {
        Self { meta: wire.metadata.meta(), is_attach_required: wire.spec.attach_required.unwrap_or(true) }
    }
}

impl From<WireAttachment> for Attachment {
    fn from(mut wire: WireAttachment) -> Self {
        let message = |error: Option<VolumeError>| error.map(|error| error.message);
        Self {
            meta: wire.metadata.meta(),
            node: wire.spec.node_name,
            volume: wire.spec.source.persistent_volume_name.unwrap_or_default(),
            is_attached: wire.status.attached,
            attach_error: message(wire.status.attach_error),
            detach_error: message(wire.status.detach_error),
        }
    }
}
