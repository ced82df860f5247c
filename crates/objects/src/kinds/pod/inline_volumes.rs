//! Inline volumes of pods whose plugin attaches volumes, or did so before its migration to CSI.

use serde::Deserialize;

use super::secrets::SecretReference;
use crate::meta::{null_is_default, null_is_empty};
use crate::{ArcStr, InternedStr, PersistentVolumeSource};

/// An inline volume, with what a VolumeAttachment says about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InlineVolume {
    /// Its name in the pod.
    pub name: InternedStr,
    /// Its source. The handle of an inline CSI volume is empty.
    pub source: PersistentVolumeSource,
    /// `fsType`.
    pub fs_type: InternedStr,
    /// `readOnly`.
    pub read_only: bool,
    /// `partition`.
    pub partition: i32,
    /// `cachingMode` of an Azure disk.
    pub caching_mode: Option<InternedStr>,
    /// `storagePolicyName` of a vSphere volume.
    pub storage_policy_name: InternedStr,
}

/// The union of the fields that are read of any inline source.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireInlineSource {
    pub(super) secret_ref: Option<SecretReference>,
    pub(super) node_publish_secret_ref: Option<SecretReference>,
    pub(super) secret_name: InternedStr,
    driver: InternedStr,
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
    #[serde(deserialize_with = "null_is_default")]
    kind: InternedStr,
    share_name: ArcStr,
    volume_path: ArcStr,
    server: ArcStr,
    path: ArcStr,
    #[serde(deserialize_with = "null_is_default")]
    fs_type: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    read_only: bool,
    #[serde(deserialize_with = "null_is_default")]
    partition: i32,
    caching_mode: Option<InternedStr>,
    storage_policy_name: InternedStr,
}

impl WireInlineSource {
    pub(super) fn volume(&self, name: InternedStr, source: PersistentVolumeSource) -> InlineVolume {
        InlineVolume {
            name,
            source,
            fs_type: self.fs_type.clone(),
            read_only: self.read_only,
            partition: self.partition,
            caching_mode: self.caching_mode.clone(),
            storage_policy_name: self.storage_policy_name.clone(),
        }
    }

    pub(super) fn azure_file(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::AzureFile {
            secret_name: ArcStr::from(&*self.secret_name),
            share_name: self.share_name.clone(),
            secret_namespace: InternedStr::default(),
        }
    }

    pub(super) fn cinder(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::Cinder { volume_id: self.volume_id.clone() }
    }

    pub(super) fn flex_volume(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::FlexVolume { driver: self.driver.clone() }
    }

    pub(super) fn iscsi(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::Iscsi {
            target_portal: self.target_portal.clone(),
            iqn: self.iqn.clone(),
            lun: self.lun.unwrap_or_default(),
        }
    }

    pub(super) fn csi(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::Csi { driver: self.driver.clone(), volume_handle: ArcStr::default() }
    }

    pub(super) fn fc(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::Fc {
            target_wwns: self.target_wwns.clone(),
            lun: self.lun,
            wwids: self.wwids.clone(),
        }
    }

    pub(super) fn aws_elastic_block_store(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::AwsElasticBlockStore { volume_id: self.volume_id.clone() }
    }

    pub(super) fn gce_persistent_disk(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::GcePersistentDisk { pd_name: self.pd_name.clone() }
    }

    pub(super) fn azure_disk(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::AzureDisk { disk_uri: self.disk_uri.clone(), kind: self.kind.clone() }
    }

    pub(super) fn vsphere_volume(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::VsphereVolume { volume_path: self.volume_path.clone() }
    }

    pub(super) fn host_path(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::HostPath { path: self.path.clone() }
    }

    pub(super) fn nfs(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::Nfs { server: self.server.clone(), path: self.path.clone() }
    }

    pub(super) fn portworx_volume(&self) -> PersistentVolumeSource {
        PersistentVolumeSource::PortworxVolume { volume_id: self.volume_id.clone() }
    }
}
