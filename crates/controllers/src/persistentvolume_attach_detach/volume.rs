//! Volumes as the attach-detach controller names and treats them.

use std::sync::Arc;

use keleustes_objects::{ArcStr, InternedStr};
use serde_json::Value;

use super::sha256::hex_digest;
use crate::csi_translation::{CSI, csi_unique_name};

/// The name of a volume, unique in the cluster: the plugin, a slash, and the plugin's name of the volume.
pub(super) type VolumeName = ArcStr;
/// The name of a node.
pub(super) type NodeName = InternedStr;

/// The Fibre Channel plugin.
pub(super) const FC: &str = "kubernetes.io/fc";
/// The iSCSI plugin.
pub(super) const ISCSI: &str = "kubernetes.io/iscsi";

/// What is known about a volume from the pod or the PersistentVolume that refers to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VolumeSpec {
    /// Its name in events: that of the PersistentVolume, or of the volume in the pod.
    pub(super) name: ArcStr,
    /// The plugin that attaches it.
    pub(super) source: VolumeSource,
    /// Whether it was translated from an in-tree source.
    pub(super) migrated: bool,
    /// Whether it may be attached to several nodes at once.
    pub(super) allows_multi_attach: bool,
}

/// The plugin of a volume, with the plugin's name of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum VolumeSource {
    /// A CSI volume.
    Csi {
        /// The name of the driver.
        driver: InternedStr,
        /// The driver's name of the volume.
        handle: ArcStr,
        /// The spec of a migrated inline volume, which has no PersistentVolume.
        inline_spec: Option<Arc<Value>>,
    },
    /// A CSI volume that belongs to one pod; it is never attached.
    InlineCsi {
        /// The name of the driver.
        driver: InternedStr,
    },
    /// A Fibre Channel volume, which needs nothing to be attached.
    Fc(ArcStr),
    /// An iSCSI volume, which needs nothing to be attached.
    Iscsi(ArcStr),
}

impl VolumeSpec {
    /// The unique name of the volume.
    pub(super) fn unique_name(&self) -> VolumeName {
        match &self.source {
            VolumeSource::Csi { driver, handle, .. } => csi_unique_name(driver, handle),
            VolumeSource::InlineCsi { driver } => csi_unique_name(driver, ""),
            VolumeSource::Fc(name) => format!("{FC}/{name}").into(),
            VolumeSource::Iscsi(name) => format!("{ISCSI}/{name}").into(),
        }
    }

    /// The name of the plugin in metrics.
    pub(super) fn plugin_label(&self) -> String {
        match &self.source {
            VolumeSource::Csi { driver, .. } | VolumeSource::InlineCsi { driver } => {
                format!("{CSI}:{driver}")
            }
            VolumeSource::Fc(_) => FC.to_owned(),
            VolumeSource::Iscsi(_) => ISCSI.to_owned(),
        }
    }
}

/// The name of the VolumeAttachment of a CSI volume on a node.
///
/// Parity: getAttachmentName of csi_attacher.go.
pub(super) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hex_digest(format!("{handle}{driver}{node}").as_bytes()))
}

/// How a volume is detached, which its unique name suffices for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DetachTarget {
    /// By deleting the VolumeAttachment of this driver and handle.
    Csi {
        /// The name of the driver.
        driver: String,
        /// The driver's name of the volume.
        handle: String,
    },
    /// A CSI volume whose unique name does not tell driver and handle.
    MalformedCsi,
    /// Nothing is to be done.
    Nothing,
}

/// How a volume is detached; `None` if no plugin of this release knows it, so that it stays attached.
pub(super) fn detach_target(volume: &str) -> Option<DetachTarget> {
    let mut parts = volume.splitn(3, '/');
    let (vendor, plugin, name) = (parts.next()?, parts.next()?, parts.next()?);
    match format!("{vendor}/{plugin}").as_str() {
        CSI => {
            let mut parts = name.split('^');
            Some(match (parts.next(), parts.next(), parts.next()) {
                (Some(driver), Some(handle), None) => {
                    DetachTarget::Csi { driver: driver.to_owned(), handle: handle.to_owned() }
                }
                _ => DetachTarget::MalformedCsi,
            })
        }
        FC | ISCSI => Some(DetachTarget::Nothing),
        _ => None,
    }
}

/// The name of the plugin in metrics of a detach, for which the spec need not be known.
pub(super) fn plugin_label_of(volume: &str, spec: Option<&VolumeSpec>) -> String {
    let by_name = || volume.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
    spec.map_or_else(by_name, VolumeSpec::plugin_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csi(driver: &str, handle: &str) -> VolumeSpec {
        let source = VolumeSource::Csi { driver: driver.into(), handle: handle.into(), inline_spec: None };
        VolumeSpec { name: "pv".into(), source, migrated: false, allows_multi_attach: false }
    }

    /// Proves AD-24, AD-65.
    #[test]
    fn names_of_volumes_and_attachments_are_those_of_the_original() {
        assert_eq!(csi("d.io", "a/b c").unique_name().as_str(), "kubernetes.io/csi/d.io^a/b c");
        let iscsi = VolumeSpec { source: VolumeSource::Iscsi("p:i:3".into()), ..csi("", "") };
        assert_eq!(iscsi.unique_name().as_str(), "kubernetes.io/iscsi/p:i:3");
        let fc = VolumeSpec { source: VolumeSource::Fc("[w1 w2]:0".into()), ..csi("", "") };
        assert_eq!(fc.unique_name().as_str(), "kubernetes.io/fc/[w1 w2]:0");
        // The digest of `vol-1d.ion1`.
        let name = attachment_name("vol-1", "d.io", "n1");
        assert_eq!(name, format!("csi-{}", hex_digest(b"vol-1d.ion1")));
        assert_eq!(attachment_name("vol-", "1d.io", "n1"), name, "nothing separates the three parts");
        assert_ne!(attachment_name("vol-1", "d.io", "n2"), name);
    }

    /// Proves AD-79.
    #[test]
    fn the_unique_name_alone_says_how_a_volume_is_detached() {
        let csi = |driver: &str, handle: &str| {
            Some(DetachTarget::Csi { driver: driver.to_owned(), handle: handle.to_owned() })
        };
        assert_eq!(detach_target("kubernetes.io/csi/d.io^a/b"), csi("d.io", "a/b"));
        assert_eq!(detach_target("kubernetes.io/csi/d.io^"), csi("d.io", ""));
        for malformed in ["kubernetes.io/csi/d.io", "kubernetes.io/csi/d.io^a^b"] {
            assert_eq!(detach_target(malformed), Some(DetachTarget::MalformedCsi), "{malformed}");
        }
        assert_eq!(detach_target("kubernetes.io/fc/[w]:1"), Some(DetachTarget::Nothing));
        assert_eq!(detach_target("kubernetes.io/iscsi/p:i:1"), Some(DetachTarget::Nothing));
        for unknown in ["kubernetes.io/aws-ebs/vol-1", "kubernetes.io/csi", "csi", "", "//"] {
            assert_eq!(detach_target(unknown), None, "{unknown}");
        }
        assert_eq!(plugin_label_of("kubernetes.io/csi/d.io^a", None), "kubernetes.io/csi");
        assert_eq!(
            plugin_label_of("kubernetes.io/csi/d.io^a", Some(&self::csi("d.io", "a"))),
            "kubernetes.io/csi:d.io"
        );
    }
}
