//! The SELinux labels of a pod's volumes.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{ArcStr, InternedStr, PersistentVolumeSource, Pod};

/// The fields of a pod spec that decide the SELinux labels of its volumes. Pods of a template share them: the names of
/// their claims are not here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelinuxSpec {
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
    /// A claim that the pod names.
    Claim,
    /// The claim of a generic ephemeral volume.
    EphemeralClaim,
    /// A source in the pod itself.
    Inline(PersistentVolumeSource),
}

impl Pod {
    /// The claim of one of its volumes; part [`super::PodParts::VOLUME_CLAIMS`].
    #[must_use]
    pub fn claim_of(&self, volume: &SelinuxVolume) -> Option<ArcStr> {
        match volume.source {
            SelinuxVolumeSource::Claim => self.pvc_of_volume(&volume.name).cloned(),
            SelinuxVolumeSource::EphemeralClaim => {
                Some(ArcStr::from(format!("{}-{}", self.meta.key.name, volume.name)))
            }
            SelinuxVolumeSource::Inline(_) => None,
        }
    }
}

impl SelinuxVolume {
    fn matters(&self) -> bool {
        match &self.source {
            SelinuxVolumeSource::Claim | SelinuxVolumeSource::EphemeralClaim => true,
            // A source that no plugin knows is read only for its labels.
            SelinuxVolumeSource::Inline(PersistentVolumeSource::Other) => self.labels.len() > 1,
            SelinuxVolumeSource::Inline(_) => self.is_mounted,
        }
    }
}

impl SelinuxSpec {
    /// What follows from the security context of a pod, its containers with their mounts, and its volumes.
    pub(super) fn new<'w>(
        pod: &WireSecurityContext,
        containers: impl Iterator<Item = (&'w WireSecurityContext, &'w [WireMount])>,
        volumes: impl Iterator<Item = (InternedStr, SelinuxVolumeSource)>,
    ) -> Self {
        let mounts: Vec<(&InternedStr, Option<ArcStr>)> = containers
            .flat_map(|(container, mounts)| {
                // The options of a container replace those of the pod as a whole.
                let options = container.se_linux_options.as_ref().or(pod.se_linux_options.as_ref());
                let label = options.map(WireOptions::label);
                mounts.iter().map(move |mount| (&mount.name, label.clone()))
            })
            .collect();
        let volume = |(name, source): (InternedStr, SelinuxVolumeSource)| {
            let own = || mounts.iter().filter(|(mounted, _)| **mounted == name);
            let labels = own().filter_map(|(_, label)| label.clone()).collect();
            SelinuxVolume { is_mounted: own().next().is_some(), labels, source, name }
        };
        Self {
            change_policy: pod.se_linux_change_policy.clone(),
            volumes: volumes.map(volume).filter(SelinuxVolume::matters).collect(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMount {
    name: InternedStr,
}

/// The security context of a pod or a container.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireSecurityContext {
    se_linux_options: Option<WireOptions>,
    se_linux_change_policy: Option<InternedStr>,
}

#[derive(Default, Deserialize)]
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
