//! Names of volumes: the CSI drivers that replaced in-tree plugins, the handles that volumes have there, and unique names.
//!
//! Parity: k8s.io/csi-translation-lib, and `GetVolumeName` of the plugins of CSI, Fibre Channel and iSCSI.

use std::collections::BTreeSet;

use keleustes_objects::{ArcStr, InternedStr, PersistentVolume, PersistentVolumeSource};

/// The CSI plugin.
pub(crate) const CSI: &str = "kubernetes.io/csi";

const EBS: &str = "ebs.csi.aws.com";
const GCE_PD: &str = "pd.csi.storage.gke.io";
const CINDER: &str = "cinder.csi.openstack.org";
const AZURE_DISK: &str = "disk.csi.azure.com";
const AZURE_FILE: &str = "file.csi.azure.com";
const VSPHERE: &str = "csi.vsphere.vmware.com";
const PORTWORX: &str = "pxd.portworx.com";

/// In-tree plugins with their CSI drivers. Migration is always on.
const MIGRATED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", EBS),
    ("kubernetes.io/gce-pd", GCE_PD),
    ("kubernetes.io/cinder", CINDER),
    ("kubernetes.io/azure-disk", AZURE_DISK),
    ("kubernetes.io/azure-file", AZURE_FILE),
    ("kubernetes.io/vsphere-volume", VSPHERE),
    ("kubernetes.io/portworx-volume", PORTWORX),
];

const UNSPECIFIED: &str = "UNSPECIFIED";
const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const RESOURCE_GROUP_ANNOTATION: &str = "kubernetes.io/azure-file-resource-group";

/// Where a source is: in a PersistentVolume, or in a pod of this namespace as a volume of this name.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    Volume(&'a PersistentVolume),
    Pod { namespace: &'a str, volume: &'a str },
}

/// The CSI driver of a migrated in-tree plugin.
pub(crate) fn driver_of_plugin(plugin: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(in_tree, _)| *in_tree == plugin).map(|(_, driver)| *driver)
}

/// The in-tree plugin of a volume source and the CSI driver that replaced it; `None` if the source is not migrated.
pub(crate) fn plugin_and_driver(source: &PersistentVolumeSource) -> Option<(&'static str, &'static str)> {
    use PersistentVolumeSource as Source;
    let driver = match source {
        Source::AwsElasticBlockStore { .. } => EBS,
        Source::GcePersistentDisk { .. } => GCE_PD,
        Source::Cinder { .. } => CINDER,
        Source::AzureDisk { .. } => AZURE_DISK,
        Source::AzureFile { .. } => AZURE_FILE,
        Source::VsphereVolume { .. } => VSPHERE,
        Source::PortworxVolume { .. } => PORTWORX,
        Source::Other
        | Source::HostPath { .. }
        | Source::Nfs { .. }
        | Source::Csi { .. }
        | Source::FlexVolume { .. }
        | Source::Iscsi { .. }
        | Source::Fc { .. } => return None,
    };
    MIGRATED.iter().copied().find(|(_, of_plugin)| *of_plugin == driver)
}

/// The driver that replaced an in-tree plugin, and the handle of the volume there.
///
/// # Errors
/// If the source cannot be translated, with the original's message.
pub(crate) fn migrated_handle(
    source: &PersistentVolumeSource,
    holder: Holder<'_>,
) -> Result<(&'static str, ArcStr), String> {
    use PersistentVolumeSource as Source;
    let Some((_, driver)) = plugin_and_driver(source) else {
        return Err("the source moved to no CSI driver".to_owned());
    };
    let handle = match source {
        Source::AwsElasticBlockStore { volume_id } => ebs_handle(volume_id)?,
        Source::GcePersistentDisk { pd_name } => gce_handle(pd_name, holder)?,
        Source::AzureDisk { disk_uri, kind } => azure_disk_handle(disk_uri, kind)?,
        Source::AzureFile { secret_name, share_name, secret_namespace } => {
            azure_file_handle(secret_name, share_name, secret_namespace, holder)?
        }
        Source::Cinder { volume_id } | Source::PortworxVolume { volume_id } => volume_id.clone(),
        Source::VsphereVolume { volume_path } => volume_path.clone(),
        _ => return Err("the source moved to no CSI driver".to_owned()),
    };
    Ok((driver, handle))
}

/// The unique name of a CSI volume.
pub(crate) fn csi_unique_name(driver: &str, handle: &str) -> ArcStr {
    format!("{CSI}/{driver}^{handle}").into()
}

/// The plugin's name of an iSCSI volume.
pub(crate) fn iscsi_name(target_portal: &str, iqn: &str, lun: i32) -> ArcStr {
    format!("{target_portal}:{iqn}:{lun}").into()
}

/// The plugin's name of a Fibre Channel volume; Go prints a list of strings in brackets, without commas.
pub(crate) fn fc_name(target_wwns: &[ArcStr], lun: Option<i32>, wwids: &[ArcStr]) -> Option<ArcStr> {
    let list = |names: &[ArcStr]| {
        let names: Vec<&str> = names.iter().map(ArcStr::as_str).collect();
        format!("[{}]", names.join(" "))
    };
    match (target_wwns, lun) {
        ([_, ..], Some(lun)) => Some(format!("{}:{lun}", list(target_wwns)).into()),
        _ if !wwids.is_empty() => Some(list(wwids).into()),
        _ => None,
    }
}

/// `vol-x` of `aws://ZONE/vol-x`; any other id is the handle as it is.
fn ebs_handle(volume_id: &ArcStr) -> Result<ArcStr, String> {
    let Some(rest) = volume_id.strip_prefix("aws://") else { return Ok(volume_id.clone()) };
    let path = rest.find('/').map_or("", |slash| &rest[slash..]);
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if path.strip_prefix("vol-").is_some_and(|name| !name.contains('/')) {
        return Ok(path.into());
    }
    Err(format!(
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
    ))
}

fn gce_handle(pd_name: &str, holder: Holder<'_>) -> Result<ArcStr, String> {
    let zones = match holder {
        Holder::Volume(volume) => {
            let label = |key: &&str| volume.meta.labels.value(key).filter(|value| !value.is_empty());
            ZONE_LABELS.iter().find_map(label).map_or("", InternedStr::as_str)
        }
        Holder::Pod { .. } => "",
    };
    let place = match zones.split("__").collect::<Vec<_>>()[..] {
        [] | [""] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        ref several => format!("regions/{}", gce_region(several)?),
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{pd_name}").into())
}

/// The region of all zones.
fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let [locale, region, _] = zone.split('-').collect::<Vec<_>>()[..] else {
            return Err(format!(
                "failed to get region from zones: zone in unexpected format, expected: \
                 {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    // Go prints a set as a map of empty structs.
    let several = || regions.iter().map(|region| format!("{region}:{{}}")).collect::<Vec<_>>().join(" ");
    match regions.first() {
        Some(region) if regions.len() == 1 => Ok(region.clone()),
        _ => Err(format!(
            "failed to get region from zones: multiple or no regions gotten from zones, got: map[{}]",
            several()
        )),
    }
}

fn azure_disk_handle(disk_uri: &ArcStr, kind: &str) -> Result<ArcStr, String> {
    if kind.is_empty() || kind.eq_ignore_ascii_case("Managed") {
        return Ok(disk_uri.clone());
    }
    Err(format!("kind({kind}) is not supported in csi migration"))
}

fn azure_file_handle(
    secret: &str,
    share: &str,
    secret_namespace: &str,
    holder: Holder<'_>,
) -> Result<ArcStr, String> {
    let (group, name, namespace) = match holder {
        Holder::Pod { namespace, volume } => {
            ("", volume, if namespace.is_empty() { "default" } else { namespace })
        }
        Holder::Volume(volume) => {
            let claim = volume.spec.claim_ref.as_ref().map_or("", |claim| claim.namespace.as_str());
            let namespace = if secret_namespace.is_empty() { claim } else { secret_namespace };
            if namespace.is_empty() {
                let message = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
                return Err(message.to_owned());
            }
            let group = volume.annotations.value(RESOURCE_GROUP_ANNOTATION).map_or("", ArcStr::as_str);
            (group, volume.meta.key.name.as_str(), namespace)
        }
    };
    let account = storage_account(secret).unwrap_or(secret);
    Ok(format!("{group}#{account}#{share}#{name}#{namespace}").into())
}

/// The account in the name of a Secret, `azure-storage-account-<account>-secret`.
fn storage_account(secret: &str) -> Option<&str> {
    let (_, rest) = secret.split_once("azure-storage-account-")?;
    rest.rfind("-secret").map(|end| &rest[..end]).filter(|account| !account.is_empty())
}
