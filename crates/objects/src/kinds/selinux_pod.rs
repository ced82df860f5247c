//! Pods with the SELinux labels of their volumes. Only a process that runs the selinux-warning controller caches them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::persistent_volume::{PersistentVolumeSource, WireSource, first_source};
use super::pod::PodPhase;
use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{ArcStr, Interned, InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A pod with the SELinux labels of its volumes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct SelinuxPod {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `status.phase`.
    pub phase: PodPhase,
    /// The fields of its spec that are read; pods of a template share them unless they have claims of their own.
    pub spec: Interned<SelinuxPodSpec>,
}

/// The fields of a pod spec that decide the SELinux labels of its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelinuxPodSpec {
    /// `securityContext.seLinuxChangePolicy`.
    pub change_policy: Option<InternedStr>,
    /// The volumes in order, without those that can neither conflict nor fail to be resolved.
    pub volumes: Box<[SelinuxVolume]>,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelinuxVolume {
    /// Its name in the pod.
    pub name: InternedStr,
    /// Its source.
    pub source: SelinuxVolumeSource,
    /// Whether a container mounts it as a file system.
    pub is_mounted: bool,
    /// The different labels of the containers that mount it; a container without SELinux options has none.
    pub labels: BTreeSet<ArcStr>,
}

/// The source of a volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SelinuxVolumeSource {
    /// The claim of this name.
    Claim(ArcStr),
    /// The claim of a generic ephemeral volume.
    EphemeralClaim,
    /// A source in the pod itself.
    Inline(PersistentVolumeSource),
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &SelinuxPod::RESOURCE,
        "
        spec {
            containers,initContainers,ephemeralContainers {
                securityContext { seLinuxOptions }
                volumeMounts { name }
            }
            securityContext { seLinuxOptions seLinuxChangePolicy }
            volumes {
                name
                awsElasticBlockStore,cinder,portworxVolume { volumeID }
                azureDisk { diskURI }
                azureFile { secretName shareName }
                csi,flexVolume { driver }
                ephemeral { }
                fc { targetWWNs lun wwids }
                gcePersistentDisk { pdName }
                hostPath { path }
                iscsi { targetPortal iqn lun }
                nfs { server path }
                persistentVolumeClaim { claimName }
                vsphereVolume { volumePath }
            }
        }
        status { phase }
        ",
    )
});

impl Object for SelinuxPod {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for SelinuxPod {
    const RESOURCE: Resource = Resource::built_in("", "Pod");
}

impl SelinuxPod {
    /// The claim of one of its volumes.
    #[must_use]
    pub fn claim_of(&self, volume: &SelinuxVolume) -> Option<ArcStr> {
        match &volume.source {
            SelinuxVolumeSource::Claim(claim) => Some(claim.clone()),
            SelinuxVolumeSource::EphemeralClaim => {
                Some(ArcStr::from(format!("{}-{}", self.meta.key.name, volume.name)))
            }
            SelinuxVolumeSource::Inline(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "null_is_empty")]
    volumes: Box<[WireVolume]>,
    #[serde(deserialize_with = "null_is_empty")]
    containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_empty")]
    init_containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_empty")]
    ephemeral_containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_default")]
    security_context: WireSecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    #[serde(deserialize_with = "null_is_empty")]
    volume_mounts: Box<[WireMount]>,
    #[serde(deserialize_with = "null_is_default")]
    security_context: WireSecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMount {
    name: InternedStr,
}

/// The security context of a pod or a container.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSecurityContext {
    se_linux_options: Option<WireOptions>,
    se_linux_change_policy: Option<InternedStr>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct WireOptions {
    user: ArcStr,
    role: ArcStr,
    r#type: ArcStr,
    level: ArcStr,
}

impl WireOptions {
    /// The fields as they are given: defaults of a node's operating system are not known here.
    fn label(&self) -> ArcStr {
        let label = format!("{}:{}:{}:{}", self.user, self.role, self.r#type, self.level);
        if label == ":::" { ArcStr::default() } else { ArcStr::from(label) }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: InternedStr,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<IgnoredAny>,
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
struct WireClaim {
    claim_name: ArcStr,
}

impl WireVolume {
    fn source(self) -> SelinuxVolumeSource {
        if self.ephemeral.is_some() {
            return SelinuxVolumeSource::EphemeralClaim;
        }
        if let Some(claim) = self.persistent_volume_claim.filter(|claim| !claim.claim_name.is_empty()) {
            return SelinuxVolumeSource::Claim(claim.claim_name);
        }
        SelinuxVolumeSource::Inline(first_source([
            self.host_path,
            self.nfs,
            self.csi,
            self.flex_volume,
            self.iscsi,
            self.fc,
            self.aws_elastic_block_store,
            self.gce_persistent_disk,
            self.cinder,
            self.azure_disk,
            self.azure_file,
            self.vsphere_volume,
            self.portworx_volume,
        ]))
    }
}

impl SelinuxVolume {
    fn matters(&self) -> bool {
        match &self.source {
            SelinuxVolumeSource::Claim(_) | SelinuxVolumeSource::EphemeralClaim => true,
            // A source that no plugin knows is read only for its labels.
            SelinuxVolumeSource::Inline(PersistentVolumeSource::Other) => self.labels.len() > 1,
            SelinuxVolumeSource::Inline(_) => self.is_mounted,
        }
    }
}

impl From<WireSpec> for SelinuxPodSpec {
    fn from(wire: WireSpec) -> Self {
        let containers = [wire.init_containers, wire.containers, wire.ephemeral_containers];
        let pod_options = wire.security_context.se_linux_options;
        let mounts: Vec<(InternedStr, Option<ArcStr>)> = containers
            .into_iter()
            .flatten()
            .flat_map(|container| {
                // The options of a container replace those of the pod as a whole.
                let options = container.security_context.se_linux_options.or_else(|| pod_options.clone());
                let label = options.map(|options| options.label());
                container.volume_mounts.into_iter().map(move |mount| (mount.name, label.clone()))
            })
            .collect();
        let volume = |wire: WireVolume| {
            let own = || mounts.iter().filter(|(name, _)| *name == wire.name);
            let (is_mounted, labels) =
                (own().next().is_some(), own().filter_map(|(_, label)| label.clone()).collect());
            SelinuxVolume { name: wire.name.clone(), is_mounted, labels, source: wire.source() }
        };
        Self {
            change_policy: wire.security_context.se_linux_change_policy,
            volumes: wire.volumes.into_iter().map(volume).filter(SelinuxVolume::matters).collect(),
        }
    }
}

impl From<Wire> for SelinuxPod {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            phase: PodPhase::from(wire.status.phase.as_str()),
            spec: Interned::new(wire.spec.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: &serde_json::Value) -> SelinuxPod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn volumes_that_cannot_conflict_are_not_kept() {
        let spec = json!({
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                        {"name": "disk", "nfs": {"server": "s", "path": "/"}}, {"name": "two", "configMap": {}}],
            "securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}},
            "containers": [{"volumeMounts": [{"name": "two"}, {"name": "tmp"}]},
                           {"volumeMounts": [{"name": "two"}], "securityContext": {"seLinuxOptions": {"user": "u"}}}],
        });
        let pod = read(&spec);
        let names: Vec<_> = pod.spec.volumes.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["data", "two"]);
        assert_eq!(pod.spec.volumes[1].labels, [":::s0:c1,c2".into(), "u:::".into()].into());
        assert!(!pod.spec.volumes[0].is_mounted);
        assert!(Interned::eq(&pod.spec, &read(&spec).spec), "pods of a template share it");
        let bare = read(
            &json!({"volumes": null, "securityContext": null, "containers": [{"securityContext": null}]}),
        );
        assert!(bare.spec.volumes.is_empty() && bare.spec.change_policy.is_none());
    }
}
