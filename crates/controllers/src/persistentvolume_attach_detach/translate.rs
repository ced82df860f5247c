//! Translation of volumes of migrated in-tree plugins to CSI, as far as attaching them depends on it.
//!
//! Parity: k8s.io/csi-translation-lib.

use std::sync::Arc;

use keleustes_objects::{ArcStr, InlineVolume, InternedStr, PersistentVolume, PersistentVolumeSource};
use serde_json::{Value, json};

use super::resolve::allows_multi_attach;
use super::volume::{VolumeSource, VolumeSpec};
use crate::csi_translation::{Holder, migrated_handle};

/// The CSI volume of a PersistentVolume with a migrated source; `None` if it cannot be translated.
pub(super) fn volume(volume: &PersistentVolume) -> Option<VolumeSpec> {
    let source = &volume.spec.source;
    let (driver, handle) = migrated_handle(source, Holder::Volume(volume)).ok()?;
    let modes = match source {
        PersistentVolumeSource::GcePersistentDisk { .. } => gce_access_modes(&volume.spec.access_modes),
        _ => volume.spec.access_modes.to_vec(),
    };
    Some(VolumeSpec {
        name: volume.meta.key.name.clone(),
        source: VolumeSource::Csi { driver: driver.into(), handle, inline_spec: None },
        migrated: true,
        allows_multi_attach: allows_multi_attach(&modes),
    })
}

/// The parts of a translated inline volume that differ between plugins.
struct Inline {
    driver: &'static str,
    handle: ArcStr,
    /// The made-up name of the PersistentVolume.
    name: ArcStr,
    access_mode: &'static str,
    has_fs_type: bool,
    has_read_only: bool,
    attributes: Value,
    /// The name of the Secret for staging.
    stage_secret: Option<ArcStr>,
}

/// The CSI volume of an inline volume with a migrated source; `None` if it cannot be translated.
pub(super) fn inline_volume(volume: &InlineVolume, namespace: &str) -> Option<VolumeSpec> {
    let inline = inline_parts(volume, namespace)?;
    let spec = inline_spec(volume, &inline, namespace);
    let modes = [InternedStr::from(inline.access_mode)];
    Some(VolumeSpec {
        name: inline.name,
        source: VolumeSource::Csi {
            driver: inline.driver.into(),
            handle: inline.handle,
            inline_spec: Some(Arc::new(spec)),
        },
        migrated: true,
        allows_multi_attach: allows_multi_attach(&modes),
    })
}

fn inline_parts(volume: &InlineVolume, namespace: &str) -> Option<Inline> {
    use PersistentVolumeSource as Source;
    let holder = Holder::Pod { namespace, volume: &volume.name };
    let (driver, handle) = migrated_handle(&volume.source, holder).ok()?;
    let by_read_only = if volume.read_only { "ReadOnlyMany" } else { "ReadWriteOnce" };
    let parts = |name: &str| Inline {
        driver,
        handle: handle.clone(),
        name: format!("{driver}-{name}").into(),
        access_mode: "ReadWriteOnce",
        has_fs_type: true,
        has_read_only: true,
        attributes: json!({}),
        stage_secret: None,
    };
    Some(match &volume.source {
        Source::AwsElasticBlockStore { .. } => {
            Inline { attributes: json!({"partition": volume.partition.to_string()}), ..parts(&handle) }
        }
        Source::GcePersistentDisk { pd_name } => {
            let partition = if volume.partition == 0 { String::new() } else { volume.partition.to_string() };
            let attributes = json!({"partition": partition});
            Inline { attributes, access_mode: by_read_only, ..parts(pd_name) }
        }
        Source::Cinder { volume_id } => parts(volume_id),
        Source::AzureDisk { disk_uri, .. } => {
            Inline { attributes: azure_disk_attributes(volume), name: disk_uri.clone(), ..parts("") }
        }
        Source::AzureFile { secret_name, share_name, .. } => Inline {
            name: handle.clone(),
            access_mode: "ReadWriteMany",
            has_fs_type: false,
            attributes: json!({"sharename": share_name}),
            stage_secret: Some(secret_name.clone()),
            ..parts("")
        },
        Source::VsphereVolume { volume_path } => {
            let mut attributes = json!({});
            if !volume.storage_policy_name.is_empty() {
                attributes["storagepolicyname"] = json!(volume.storage_policy_name);
            }
            Inline { attributes, has_read_only: false, ..parts(volume_path) }
        }
        Source::PortworxVolume { volume_id } => {
            Inline { access_mode: by_read_only, has_read_only: false, ..parts(volume_id) }
        }
        _ => return None,
    })
}

fn azure_disk_attributes(volume: &InlineVolume) -> Value {
    let mut attributes = json!({"kind": "Managed"});
    if let Some(mode) = volume.caching_mode.as_ref().filter(|mode| !mode.is_empty()) {
        attributes["cachingmode"] = json!(mode);
    }
    if !volume.fs_type.is_empty() {
        attributes["fstype"] = json!(volume.fs_type);
    }
    attributes
}

/// `inlineVolumeSpec` of the VolumeAttachment.
fn inline_spec(volume: &InlineVolume, inline: &Inline, namespace: &str) -> Value {
    let mut csi = json!({"driver": inline.driver, "volumeHandle": inline.handle});
    if inline.has_fs_type && !volume.fs_type.is_empty() {
        csi["fsType"] = json!(volume.fs_type);
    }
    if inline.has_read_only && volume.read_only {
        csi["readOnly"] = json!(true);
    }
    if inline.attributes.as_object().is_some_and(|attributes| !attributes.is_empty()) {
        csi["volumeAttributes"] = inline.attributes.clone();
    }
    if let Some(secret) = &inline.stage_secret {
        csi["nodeStageSecretRef"] = json!({"name": secret, "namespace": namespace});
    }
    json!({"csi": csi, "accessModes": [inline.access_mode], "volumeMode": "Filesystem"})
}

/// Access modes with which the in-tree plugin attached a disk.
fn gce_access_modes(modes: &[InternedStr]) -> Vec<InternedStr> {
    if modes.is_empty() {
        return Vec::new();
    }
    let has = |wanted: &str| modes.iter().any(|mode| *mode == wanted);
    let read_only = has("ReadOnlyMany") && !has("ReadWriteOnce") && !has("ReadWriteMany");
    vec![if read_only { "ReadOnlyMany".into() } else { "ReadWriteOnce".into() }]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

    use keleustes_objects::Pod;

    use super::*;

    const EBS: &str = "ebs.csi.aws.com";
    const GCE_PD: &str = "pd.csi.storage.gke.io";
    const CINDER: &str = "cinder.csi.openstack.org";
    const AZURE_DISK: &str = "disk.csi.azure.com";
    const AZURE_FILE: &str = "file.csi.azure.com";
    const VSPHERE: &str = "csi.vsphere.vmware.com";
    const PORTWORX: &str = "pxd.portworx.com";

    fn pv(json: Value) -> PersistentVolume {
        serde_json::from_value(json).unwrap()
    }

    /// Driver, handle, and whether several nodes may attach it.
    fn translated(meta: Value, spec: Value) -> Option<(String, String, bool)> {
        let mut json = json!({"metadata": meta, "spec": spec});
        json["metadata"]["name"] = json!("pv1");
        let spec = volume(&pv(json))?;
        assert_eq!((spec.name.as_str(), spec.migrated), ("pv1", true), "it keeps its name");
        let VolumeSource::Csi { driver, handle, inline_spec: None } = &spec.source else {
            panic!("no CSI volume")
        };
        Some((driver.to_string(), handle.to_string(), spec.allows_multi_attach))
    }

    fn of(spec: Value) -> Option<(String, String, bool)> {
        translated(json!({}), spec)
    }

    fn is(driver: &str, handle: &str, multi: bool) -> Option<(String, String, bool)> {
        Some((driver.to_owned(), handle.to_owned(), multi))
    }

    /// Proves AD-22, AD-110, AD-111.
    #[test]
    fn volumes_of_migrated_plugins_become_csi_volumes() {
        let rwo = json!(["ReadWriteOnce"]);
        let ebs = |id: &str| of(json!({"accessModes": rwo, "awsElasticBlockStore": {"volumeID": id}}));
        assert_eq!(ebs("vol-1"), is(EBS, "vol-1", false));
        assert_eq!(ebs("aws://us-east-1a/vol-1"), is(EBS, "vol-1", false));
        assert_eq!(ebs("aws:///vol-1"), is(EBS, "vol-1", false));
        assert_eq!(ebs("aws://us-east-1a/disk-1"), None);
        assert_eq!(ebs("aws://us-east-1a/vol-1/x"), None);
        assert_eq!(ebs("odd"), is(EBS, "odd", false), "other ids are taken as they are");
        assert_eq!(of(json!({"accessModes": rwo, "cinder": {"volumeID": "c"}})), is(CINDER, "c", false));
        assert_eq!(
            of(json!({"accessModes": rwo, "vsphereVolume": {"volumePath": "[d] v"}})),
            is(VSPHERE, "[d] v", false)
        );
        assert_eq!(
            of(json!({"accessModes": ["ReadWriteMany"], "portworxVolume": {"volumeID": "p"}})),
            is(PORTWORX, "p", true)
        );
        let disk =
            |kind: Value| of(json!({"accessModes": rwo, "azureDisk": {"diskURI": "/u", "kind": kind}}));
        assert_eq!(disk(Value::Null), is(AZURE_DISK, "/u", false));
        assert_eq!(disk(json!("Managed")), is(AZURE_DISK, "/u", false));
        assert_eq!(disk(json!("Shared")), None);
        assert_eq!(of(json!({"hostPath": {"path": "/x"}})), None);
    }

    /// Proves AD-112, AD-113.
    #[test]
    fn handle_of_a_gce_disk_depends_on_the_zones() {
        let handle = |labels: Value| {
            translated(json!({"labels": labels}), json!({"gcePersistentDisk": {"pdName": "d"}}))
                .map(|(_, handle, _)| handle)
        };
        let expected = |place: &str| Some(format!("projects/UNSPECIFIED/{place}/disks/d"));
        let (beta, stable) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        assert_eq!(handle(json!({})), expected("zones/UNSPECIFIED"));
        assert_eq!(handle(json!({stable: "us-a-1"})), expected("zones/us-a-1"));
        assert_eq!(handle(json!({stable: "us-a-1", beta: "us-b-1"})), expected("zones/us-b-1"));
        assert_eq!(handle(json!({stable: "us-a-1", beta: ""})), expected("zones/us-a-1"));
        assert_eq!(handle(json!({stable: "us-a-1__us-a-2"})), expected("regions/us-a"));
        assert_eq!(handle(json!({stable: "us-a-1__us-b-2"})), None, "two regions");
        assert_eq!(handle(json!({stable: "us-a-1__us-a"})), None, "not three parts");
    }

    /// Proves AD-114.
    #[test]
    fn access_modes_of_a_gce_disk_decide_about_several_nodes() {
        let multi = |modes: Value| {
            of(json!({"accessModes": modes, "gcePersistentDisk": {"pdName": "d"}})).map(|(_, _, multi)| multi)
        };
        assert_eq!(multi(json!(["ReadWriteMany"])), Some(false), "counts as ReadWriteOnce");
        assert_eq!(multi(json!(["ReadOnlyMany", "ReadWriteOnce"])), Some(false));
        assert_eq!(multi(json!(["ReadOnlyMany"])), Some(true));
        assert_eq!(multi(json!(["ReadWriteOncePod"])), Some(false));
        assert_eq!(multi(Value::Null), Some(true), "none stays none");
    }

    /// Proves AD-115.
    #[test]
    fn handle_of_an_azure_file_share_has_five_parts() {
        let share = |secret: &str, namespace: Value, claim: Value, annotations: Value| {
            let source = json!({"secretName": secret, "shareName": "s", "secretNamespace": namespace});
            translated(
                json!({"annotations": annotations}),
                json!({"azureFile": source, "claimRef": claim, "accessModes": ["ReadWriteMany"]}),
            )
            .map(|(_, handle, _)| handle)
        };
        let secret = "azure-storage-account-acc-secret";
        let group = json!({"kubernetes.io/azure-file-resource-group": "rg"});
        assert_eq!(share(secret, json!("ns"), Value::Null, group).unwrap(), "rg#acc#s#pv1#ns");
        let claim = json!({"namespace": "of-claim", "name": "c"});
        assert_eq!(share("other", Value::Null, claim, json!({})).unwrap(), "#other#s#pv1#of-claim");
        assert_eq!(share("other", Value::Null, Value::Null, json!({})), None, "no namespace");
    }

    fn inline(volume: Value) -> VolumeSpec {
        let mut volume = volume;
        volume["name"] = json!("v");
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"volumes": [volume]}}))
                .unwrap();
        inline_volume(&pod.spec.inline_volumes()[0], "ns").unwrap()
    }

    fn inline_json(volume: Value) -> (String, Value) {
        let spec = inline(volume);
        let VolumeSource::Csi { inline_spec: Some(json), .. } = &spec.source else { panic!("no spec") };
        (spec.name.to_string(), (**json).clone())
    }

    fn spec(csi: Value, mode: &str) -> Value {
        json!({"csi": csi, "accessModes": [mode], "volumeMode": "Filesystem"})
    }

    /// Proves AD-67, AD-110, AD-116, AD-151, AD-152.
    #[test]
    fn inline_volumes_become_specs_of_persistent_volumes() {
        let (once, read_only_many) = ("ReadWriteOnce", "ReadOnlyMany");
        let ebs = inline_json(
            json!({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1", "fsType": "ext4", "readOnly": true}}),
        );
        assert_eq!(ebs.0, "ebs.csi.aws.com-vol-1");
        assert_eq!(
            ebs.1,
            spec(
                json!({"driver": EBS, "volumeHandle": "vol-1", "fsType": "ext4", "readOnly": true,
                        "volumeAttributes": {"partition": "0"}}),
                once
            )
        );
        let gce =
            inline_json(json!({"gcePersistentDisk": {"pdName": "d", "partition": 2, "readOnly": true}}));
        assert_eq!(gce.0, "pd.csi.storage.gke.io-d");
        assert_eq!(
            gce.1,
            spec(
                json!({"driver": GCE_PD, "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                        "readOnly": true, "volumeAttributes": {"partition": "2"}}),
                read_only_many
            )
        );
        let gce = inline_json(json!({"gcePersistentDisk": {"pdName": "d"}})).1;
        assert_eq!(
            (&gce["csi"]["volumeAttributes"]["partition"], &gce["accessModes"][0]),
            (&json!(""), &json!(once))
        );
        let cinder = inline_json(json!({"cinder": {"volumeID": "c", "fsType": "xfs"}}));
        assert_eq!(cinder.0, "cinder.csi.openstack.org-c");
        assert_eq!(cinder.1, spec(json!({"driver": CINDER, "volumeHandle": "c", "fsType": "xfs"}), once));
        let disk =
            inline_json(json!({"azureDisk": {"diskURI": "/u", "cachingMode": "None", "fsType": "ext4"}}));
        assert_eq!(disk.0, "/u");
        assert_eq!(
            disk.1,
            spec(
                json!({"driver": AZURE_DISK, "volumeHandle": "/u", "fsType": "ext4",
                        "volumeAttributes": {"kind": "Managed", "cachingmode": "None", "fstype": "ext4"}}),
                once
            )
        );
        let file = inline_json(json!({"azureFile": {"secretName": "s", "shareName": "f", "readOnly": true}}));
        assert_eq!(file.0, "#s#f#v#ns");
        assert_eq!(
            file.1,
            spec(
                json!({"driver": AZURE_FILE, "volumeHandle": "#s#f#v#ns", "readOnly": true,
                        "volumeAttributes": {"sharename": "f"},
                        "nodeStageSecretRef": {"name": "s", "namespace": "ns"}}),
                "ReadWriteMany"
            )
        );
    }

    /// Proves AD-151, AD-152.
    #[test]
    fn inline_volumes_of_vendors_become_specs_of_persistent_volumes() {
        let vsphere =
            inline_json(json!({"vsphereVolume": {"volumePath": "[d] v", "storagePolicyName": "gold"}}));
        assert_eq!(vsphere.0, "csi.vsphere.vmware.com-[d] v");
        assert_eq!(
            vsphere.1,
            spec(
                json!({"driver": VSPHERE, "volumeHandle": "[d] v",
                        "volumeAttributes": {"storagepolicyname": "gold"}}),
                "ReadWriteOnce"
            )
        );
        let portworx = inline_json(json!({"portworxVolume": {"volumeID": "p", "readOnly": true}}));
        assert_eq!(portworx.0, "pxd.portworx.com-p");
        assert_eq!(portworx.1, spec(json!({"driver": PORTWORX, "volumeHandle": "p"}), "ReadOnlyMany"));
        assert!(inline(json!({"portworxVolume": {"volumeID": "p", "readOnly": true}})).allows_multi_attach);
        assert!(!inline(json!({"cinder": {"volumeID": "c"}})).allows_multi_attach);
    }
}
