//! The unique names of volumes, by which pods are known to use the same one.
//!
//! Parity: `GetUniqueVolumeNameFromSpec`.

use keleustes_objects::{ArcStr, InternedStr, PersistentVolumeSource};

use crate::csi_translation::{Holder, csi_unique_name, fc_name, iscsi_name, migrated_handle};

/// A volume with its unique name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedVolume {
    /// `plugin/name`.
    pub(super) name: ArcStr,
    /// What mounts it.
    pub(super) plugin: Plugin,
}

/// What mounts a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plugin {
    /// An in-process plugin that mounts with labels, or one that does not.
    InProcess { supports_labels: bool },
    /// The CSI driver of this name.
    Csi(InternedStr),
}

/// The unique name of a source; `None` if no plugin knows the source.
///
/// # Errors
/// If the source has no name.
pub(super) fn unique_name(
    source: &PersistentVolumeSource,
    holder: Holder<'_>,
) -> Result<Option<NamedVolume>, String> {
    use PersistentVolumeSource as Source;
    let in_process = |plugin: &str, name: &str, supports_labels: bool| {
        if name.is_empty() {
            return Err("failed to GetVolumeName from volumePlugin".to_owned());
        }
        let plugin_and_name = format!("kubernetes.io/{plugin}/{name}");
        Ok(Some(NamedVolume { name: plugin_and_name.into(), plugin: Plugin::InProcess { supports_labels } }))
    };
    match source {
        // Parity: the original knows FlexVolume drivers that are installed on its host. None of them mounts with labels,
        // so their volumes conflict with nothing.
        Source::Other | Source::FlexVolume { .. } => Ok(None),
        Source::HostPath { path } => in_process("host-path", path, false),
        Source::Nfs { server, path } => in_process("nfs", &format!("{server}/{path}"), false),
        Source::Iscsi { target_portal, iqn, lun } => {
            in_process("iscsi", &iscsi_name(target_portal, iqn, *lun), true)
        }
        Source::Fc { target_wwns, lun, wwids } => {
            in_process("fc", &fc_name(target_wwns, *lun, wwids).unwrap_or_default(), true)
        }
        Source::Csi { .. } if matches!(holder, Holder::Pod { .. }) => {
            Err("failed to GetVolumeName from volumePlugin: the CSI volume is inline and has no handle"
                .to_owned())
        }
        Source::Csi { driver, volume_handle } => Ok(Some(csi(driver.as_str(), volume_handle))),
        migrated => {
            let (driver, handle) = migrated_handle(migrated, holder)?;
            Ok(Some(csi(driver, &handle)))
        }
    }
}

fn csi(driver: &str, handle: &str) -> NamedVolume {
    NamedVolume { name: csi_unique_name(driver, handle), plugin: Plugin::Csi(driver.into()) }
}
