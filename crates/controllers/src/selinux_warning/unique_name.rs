//! The unique names of volumes, by which pods are known to use the same one.
//!
//! Parity: `GetUniqueVolumeNameFromSpec`, and k8s.io/csi-translation-lib for sources that moved to CSI drivers.

use keleustes_objects::{ArcStr, InternedStr, PersistentVolume, PersistentVolumeSource};

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

/// Where a source is: in a PersistentVolume, or in a pod of this namespace as a volume of this name.
#[derive(Clone, Copy)]
pub(super) enum Holder<'a> {
    Volume(&'a PersistentVolume),
    Pod { namespace: &'a str, volume: &'a str },
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
    let in_process = |plugin: &str, name: String, supports_labels: bool| {
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
        Source::HostPath { path } => in_process("host-path", path.to_string(), false),
        Source::Nfs { server, path } => in_process("nfs", format!("{server}/{path}"), false),
        Source::Iscsi { target_portal, iqn, lun } => {
            in_process("iscsi", format!("{target_portal}:{iqn}:{lun}"), true)
        }
        Source::Fc { target_wwns, lun, wwids } => {
            let list = |names: &[ArcStr]| {
                format!("[{}]", names.iter().map(ArcStr::as_str).collect::<Vec<_>>().join(" "))
            };
            let name = match lun {
                Some(lun) if !target_wwns.is_empty() => format!("{}:{lun}", list(target_wwns)),
                _ if !wwids.is_empty() => list(wwids),
                _ => String::new(),
            };
            in_process("fc", name, true)
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
    let name = format!("kubernetes.io/csi/{driver}^{handle}");
    NamedVolume { name: name.into(), plugin: Plugin::Csi(driver.into()) }
}

/// The driver that replaced an in-tree plugin, and the handle of the volume there.
fn migrated_handle(
    source: &PersistentVolumeSource,
    holder: Holder<'_>,
) -> Result<(&'static str, String), String> {
    use PersistentVolumeSource as Source;
    Ok(match source {
        Source::AwsElasticBlockStore { volume_id } => ("ebs.csi.aws.com", ebs_handle(volume_id)?),
        Source::GcePersistentDisk { pd_name } => ("pd.csi.storage.gke.io", pd_handle(pd_name, holder)?),
        Source::Cinder { volume_id } => ("cinder.csi.openstack.org", volume_id.to_string()),
        Source::AzureDisk { disk_uri, .. } => ("disk.csi.azure.com", disk_uri.to_string()),
        Source::AzureFile { secret_name, share_name, secret_namespace } => {
            ("file.csi.azure.com", azure_file_handle(secret_name, share_name, secret_namespace, holder)?)
        }
        Source::VsphereVolume { volume_path } => ("csi.vsphere.vmware.com", volume_path.to_string()),
        Source::PortworxVolume { volume_id } => ("pxd.portworx.com", volume_id.to_string()),
        _ => return Err("the source moved to no CSI driver".to_owned()),
    })
}

/// `vol-…`, also from `aws://zone/vol-…`.
fn ebs_handle(volume_id: &str) -> Result<String, String> {
    let Some(rest) = volume_id.strip_prefix("aws://") else { return Ok(volume_id.to_owned()) };
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    if path.starts_with("vol-") && !path.contains('/') {
        return Ok(path.to_owned());
    }
    Err(format!(
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
    ))
}

fn pd_handle(name: &str, holder: Holder<'_>) -> Result<String, String> {
    const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
    let zones = match holder {
        Holder::Volume(volume) => {
            let values = ZONE_LABELS.iter().filter_map(|label| volume.meta.labels.value(label));
            values.map(|value| &**value).find(|zones| !zones.is_empty()).unwrap_or_default()
        }
        Holder::Pod { .. } => "",
    };
    if !zones.contains("__") {
        let zone = if zones.is_empty() { "UNSPECIFIED" } else { zones };
        return Ok(format!("projects/UNSPECIFIED/zones/{zone}/disks/{name}"));
    }
    let mut regions: Vec<&str> = Vec::new();
    for zone in zones.split("__") {
        match zone.rsplit_once('-') {
            Some((region, _)) if zone.matches('-').count() == 2 => regions.push(region),
            _ => {
                return Err(format!(
                    "failed to get region from zones: zone in unexpected format, expected: \
                     {{locale}}-{{region}}-{{zone}}, got: {zone}"
                ));
            }
        }
    }
    regions.dedup();
    match regions[..] {
        [region] => Ok(format!("projects/UNSPECIFIED/regions/{region}/disks/{name}")),
        _ => Err(format!(
            "failed to get region from zones: multiple or no regions gotten from zones, got: {regions:?}"
        )),
    }
}

fn azure_file_handle(
    secret: &str,
    share: &str,
    secret_namespace: &str,
    holder: Holder<'_>,
) -> Result<String, String> {
    const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
    let account = storage_account(secret).unwrap_or(secret);
    match holder {
        Holder::Pod { namespace, volume } => {
            let namespace = if namespace.is_empty() { "default" } else { namespace };
            Ok(format!("#{account}#{share}#{volume}#{namespace}"))
        }
        Holder::Volume(volume) => {
            let claim = volume.spec.claim_ref.as_ref().map_or("", |claim| claim.namespace.as_str());
            let namespace = if secret_namespace.is_empty() { claim } else { secret_namespace };
            if namespace.is_empty() {
                let message = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
                return Err(message.to_owned());
            }
            let group = volume.annotations.value(RESOURCE_GROUP).map_or("", ArcStr::as_str);
            Ok(format!("{group}#{account}#{share}#{}#{namespace}", volume.meta.key.name))
        }
    }
}

/// The account in the name of a secret, `azure-storage-account-<account>-secret`.
fn storage_account(secret: &str) -> Option<&str> {
    let (_, rest) = secret.split_once("azure-storage-account-")?;
    rest.rfind("-secret").map(|end| &rest[..end]).filter(|account| !account.is_empty())
}
