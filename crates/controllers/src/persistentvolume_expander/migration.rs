//! The CSI drivers that replaced in-tree volume plugins.
//!
//! Parity: k8s.io/csi-translation-lib.

use keleustes_objects::PersistentVolumeSource;

/// The in-tree plugin of a volume source and the CSI driver that replaced it.
pub(super) fn driver_of(source: &PersistentVolumeSource) -> Option<(&'static str, &'static str)> {
    use PersistentVolumeSource as Source;
    match source {
        Source::AwsElasticBlockStore { .. } => Some(("kubernetes.io/aws-ebs", "ebs.csi.aws.com")),
        Source::GcePersistentDisk { .. } => Some(("kubernetes.io/gce-pd", "pd.csi.storage.gke.io")),
        Source::Cinder { .. } => Some(("kubernetes.io/cinder", "cinder.csi.openstack.org")),
        Source::AzureDisk { .. } => Some(("kubernetes.io/azure-disk", "disk.csi.azure.com")),
        Source::AzureFile { .. } => Some(("kubernetes.io/azure-file", "file.csi.azure.com")),
        Source::VsphereVolume { .. } => Some(("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com")),
        Source::PortworxVolume { .. } => Some(("kubernetes.io/portworx-volume", "pxd.portworx.com")),
        Source::Other
        | Source::HostPath { .. }
        | Source::Nfs { .. }
        | Source::Csi { .. }
        | Source::FlexVolume { .. }
        | Source::Iscsi { .. }
        | Source::Fc { .. } => None,
    }
}
