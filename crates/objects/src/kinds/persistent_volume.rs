//! PersistentVolumes: what binding, reclaim, protection, expansion and attachment read.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{
    Annotations, ArcStr, InternedStr, Kind, NodeSelectorTerm, Object, ObjectMeta, Quantity, Resource, Uid,
    WireMeta,
};

/// A PersistentVolume.
///
/// Writers edit the live object, because a PUT of this projection would drop fields.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PersistentVolume {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its annotations, without kubectl's last applied configuration.
    pub annotations: Annotations,
    /// Its spec.
    pub spec: PersistentVolumeSpec,
    /// `status.phase`: `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    pub phase: InternedStr,
    /// `status.message`.
    pub message: ArcStr,
}

/// The spec of a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireSpec")]
pub struct PersistentVolumeSpec {
    /// `capacity`.
    pub capacity: ResourceList,
    /// The volume source.
    pub source: PersistentVolumeSource,
    /// `accessModes`.
    pub access_modes: Box<[InternedStr]>,
    /// `claimRef`.
    pub claim_ref: Option<ClaimReference>,
    /// `persistentVolumeReclaimPolicy`: `Retain`, `Delete` or `Recycle`.
    pub persistent_volume_reclaim_policy: InternedStr,
    /// `storageClassName`.
    pub storage_class_name: InternedStr,
    /// `volumeMode`; unset means `Filesystem`.
    pub volume_mode: Option<InternedStr>,
    /// The terms of the required node affinity; `None` if there is no such affinity.
    pub node_affinity: Option<Box<[NodeSelectorTerm]>>,
    /// `volumeAttributesClassName`; unset and empty are equal.
    pub volume_attributes_class_name: Option<InternedStr>,
}

/// `claimRef` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// The namespace of the claim.
    pub namespace: InternedStr,
    /// The name of the claim.
    pub name: ArcStr,
    /// The UID of the claim; empty if the volume is only reserved for a claim of this name.
    pub uid: Uid,
}

/// The source of a volume, as far as a controller reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The fields are those of the API.
pub enum PersistentVolumeSource {
    /// A source that no controller reads, or none.
    #[default]
    Other,
    HostPath {
        path: ArcStr,
    },
    Nfs {
        server: ArcStr,
        path: ArcStr,
    },
    Csi {
        driver: InternedStr,
        volume_handle: ArcStr,
    },
    FlexVolume {
        driver: InternedStr,
    },
    Iscsi {
        target_portal: ArcStr,
        iqn: ArcStr,
        lun: i32,
    },
    Fc {
        target_wwns: Box<[ArcStr]>,
        lun: Option<i32>,
        wwids: Box<[ArcStr]>,
    },
    AwsElasticBlockStore {
        volume_id: ArcStr,
    },
    GcePersistentDisk {
        pd_name: ArcStr,
    },
    Cinder {
        volume_id: ArcStr,
    },
    AzureDisk {
        disk_uri: ArcStr,
        kind: InternedStr,
    },
    AzureFile {
        secret_name: ArcStr,
        share_name: ArcStr,
        secret_namespace: InternedStr,
    },
    VsphereVolume {
        volume_path: ArcStr,
    },
    PortworxVolume {
        volume_id: ArcStr,
    },
}

/// Quantities by resource name, as the API server spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ResourceList(Annotations);

impl ResourceList {
    /// The text of one quantity.
    #[must_use]
    pub fn text(&self, resource: &str) -> Option<&ArcStr> {
        self.0.value(resource)
    }

    /// One quantity; `None` if it is missing or malformed.
    #[must_use]
    pub fn quantity(&self, resource: &str) -> Option<Quantity> {
        Quantity::parse(self.text(resource)?)
    }

    /// `storage`; zero if it is missing or malformed.
    #[must_use]
    pub fn storage(&self) -> Quantity {
        self.quantity("storage").unwrap_or_default()
    }

    /// All entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &(InternedStr, ArcStr)> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &PersistentVolume::RESOURCE,
        "
        spec {
            accessModes capacity persistentVolumeReclaimPolicy storageClassName volumeAttributesClassName volumeMode
            claimRef { namespace name uid }
            nodeAffinity { required }
            awsElasticBlockStore,cinder,portworxVolume { volumeID }
            azureDisk { diskURI kind }
            azureFile { secretName shareName secretNamespace }
            csi { driver volumeHandle }
            fc { targetWWNs lun wwids }
            flexVolume { driver }
            gcePersistentDisk { pdName }
            hostPath { path }
            iscsi { targetPortal iqn lun }
            nfs { server path }
            vsphereVolume { volumePath }
        }
        status { phase message }
        ",
    )
});

impl Object for PersistentVolume {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PersistentVolume {
    const RESOURCE: Resource = Resource::built_in("", "PersistentVolume");
}

impl PersistentVolume {
    /// The storage class: the beta annotation if it exists, else `spec.storageClassName`.
    ///
    /// Parity: `GetPersistentVolumeClass`.
    #[must_use]
    pub fn class(&self) -> &str {
        let annotation = self.annotations.value(super::annotations::BETA_STORAGE_CLASS);
        annotation.map_or(self.spec.storage_class_name.as_str(), ArcStr::as_str)
    }
}

/// Annotations without kubectl's last applied configuration, which is long and which no controller reads.
pub(super) fn kept_annotations(annotations: Annotations) -> Annotations {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    if annotations.value(LAST_APPLIED).is_none() {
        return annotations;
    }
    annotations.iter().filter(|(key, _)| key != LAST_APPLIED).cloned().collect()
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: PersistentVolumeSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: InternedStr,
    message: ArcStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    capacity: ResourceList,
    #[serde(deserialize_with = "null_is_empty")]
    access_modes: Box<[InternedStr]>,
    claim_ref: Option<ClaimReference>,
    persistent_volume_reclaim_policy: InternedStr,
    storage_class_name: InternedStr,
    volume_mode: Option<InternedStr>,
    node_affinity: Option<WireNodeAffinity>,
    volume_attributes_class_name: Option<InternedStr>,
    host_path: Option<WireSource>,
    nfs: Option<WireSource>,
    csi: Option<WireSource>,
    flex_volume: Option<WireSource>,
    iscsi: Option<WireSource>,
    fc: Option<WireSource>,
    aws_elastic_block_store: Option<WireSource>,
    gce_persistent_disk: Option<WireSource>,
    cinder: Option<WireSource>,
    azure_disk: Option<WireSource>,
    azure_file: Option<WireSource>,
    vsphere_volume: Option<WireSource>,
    portworx_volume: Option<WireSource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeAffinity {
    required: Option<WireNodeSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeSelector {
    #[serde(deserialize_with = "null_is_empty")]
    node_selector_terms: Box<[NodeSelectorTerm]>,
}

/// The union of the fields that are read of any source.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSource {
    path: ArcStr,
    server: ArcStr,
    driver: InternedStr,
    volume_handle: ArcStr,
    target_portal: ArcStr,
    iqn: ArcStr,
    lun: Option<i32>,
    #[serde(rename = "targetWWNs", deserialize_with = "null_is_empty")]
    target_wwns: Box<[ArcStr]>,
    #[serde(deserialize_with = "null_is_empty")]
    wwids: Box<[ArcStr]>,
    #[serde(rename = "volumeID")]
    volume_id: ArcStr,
    pd_name: ArcStr,
    #[serde(rename = "diskURI")]
    disk_uri: ArcStr,
    kind: InternedStr,
    secret_name: ArcStr,
    share_name: ArcStr,
    #[serde(deserialize_with = "null_is_default")]
    secret_namespace: InternedStr,
    volume_path: ArcStr,
}

impl WireSpec {
    fn source(&mut self) -> PersistentVolumeSource {
        first_source([
            self.host_path.take(),
            self.nfs.take(),
            self.csi.take(),
            self.flex_volume.take(),
            self.iscsi.take(),
            self.fc.take(),
            self.aws_elastic_block_store.take(),
            self.gce_persistent_disk.take(),
            self.cinder.take(),
            self.azure_disk.take(),
            self.azure_file.take(),
            self.vsphere_volume.take(),
            self.portworx_volume.take(),
        ])
    }
}

/// The source among these, in the order of [`PersistentVolumeSource`]'s wire fields; the API server accepts exactly one.
fn first_source(sources: [Option<WireSource>; 13]) -> PersistentVolumeSource {
    use PersistentVolumeSource as Source;
    const READ: [fn(WireSource) -> PersistentVolumeSource; 13] = [
        |wire| Source::HostPath { path: wire.path },
        |wire| Source::Nfs { server: wire.server, path: wire.path },
        |wire| Source::Csi { driver: wire.driver, volume_handle: wire.volume_handle },
        |wire| Source::FlexVolume { driver: wire.driver },
        |wire| Source::Iscsi {
            target_portal: wire.target_portal,
            iqn: wire.iqn,
            lun: wire.lun.unwrap_or_default(),
        },
        |wire| Source::Fc { target_wwns: wire.target_wwns, lun: wire.lun, wwids: wire.wwids },
        |wire| Source::AwsElasticBlockStore { volume_id: wire.volume_id },
        |wire| Source::GcePersistentDisk { pd_name: wire.pd_name },
        |wire| Source::Cinder { volume_id: wire.volume_id },
        |wire| Source::AzureDisk { disk_uri: wire.disk_uri, kind: wire.kind },
        |wire| Source::AzureFile {
            secret_name: wire.secret_name,
            share_name: wire.share_name,
            secret_namespace: wire.secret_namespace,
        },
        |wire| Source::VsphereVolume { volume_path: wire.volume_path },
        |wire| Source::PortworxVolume { volume_id: wire.volume_id },
    ];
    let mut candidates = sources.into_iter().zip(READ);
    candidates.find_map(|(wire, read)| wire.map(read)).unwrap_or_default()
}

impl From<WireSpec> for PersistentVolumeSpec {
    fn from(mut wire: WireSpec) -> Self {
        Self {
            source: wire.source(),
            capacity: wire.capacity,
            access_modes: wire.access_modes,
            claim_ref: wire.claim_ref,
            persistent_volume_reclaim_policy: wire.persistent_volume_reclaim_policy,
            storage_class_name: wire.storage_class_name,
            volume_mode: wire.volume_mode,
            node_affinity: wire
                .node_affinity
                .and_then(|affinity| Some(affinity.required?.node_selector_terms)),
            volume_attributes_class_name: wire.volume_attributes_class_name,
        }
    }
}

impl From<Wire> for PersistentVolume {
    fn from(mut wire: Wire) -> Self {
        let annotations = kept_annotations(std::mem::take(&mut wire.metadata.annotations));
        Self {
            meta: wire.metadata.into(),
            annotations,
            spec: wire.spec,
            phase: wire.status.phase,
            message: wire.status.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_decoded() {
        let volume: PersistentVolume = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "pv"},
            "spec": {"capacity": {"storage": "10E"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                     "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "d", "volumeHandle": "h"},
                     "claimRef": {"namespace": "a", "name": "c", "uid": "u", "fieldPath": "x"},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
            "status": {"phase": "Failed", "message": "why"},
        }))
        .unwrap();
        assert_eq!(
            (volume.class(), volume.phase.as_str(), volume.message.as_str()),
            ("fast", "Failed", "why")
        );
        assert_eq!(
            volume.spec.source,
            PersistentVolumeSource::Csi { driver: "d".into(), volume_handle: "h".into() }
        );
        assert_eq!(volume.spec.claim_ref.as_ref().map(|claim| claim.name.as_str()), Some("c"));
        assert!(volume.spec.node_affinity.is_some() && volume.spec.volume_mode.is_none());
        assert!(volume.spec.capacity.storage() > Quantity::parse("9E").unwrap());
        let bare: PersistentVolume =
            serde_json::from_str(r#"{"metadata":{"name":"c"},"spec":{"capacity":null,"claimRef":null}}"#)
                .unwrap();
        assert!(bare.spec.claim_ref.is_none() && bare.spec.source == PersistentVolumeSource::Other);
        assert_eq!(bare.spec.capacity.storage(), Quantity::default());
    }
}
