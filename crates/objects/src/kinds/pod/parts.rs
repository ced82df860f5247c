//! The parts of a pod: groups of fields that few controllers read, kept only if an enabled controller reads them.

use std::fmt;
use std::sync::OnceLock;

use crate::protobuf::Message;
use crate::{Kind as _, Pod};

/// A set of parts of a pod. Every pod has the fields that belong to no part.
///
/// The fields of a part are read by methods, which panic if the part is not kept: an empty value would look like a pod
/// that has no such field, and a controller could delete what the pod uses.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PodParts(u16);

impl PodParts {
    /// No part.
    pub const NONE: Self = Self(0);
    /// The names of the Secrets that it refers to.
    pub const SECRET_NAMES: Self = Self(1);
    /// Requests, limits and overhead, what container statuses report about them, and the other fields from which
    /// quotas and autoscalers compute: those of quota scopes, and the start time.
    pub const RESOURCES: Self = Self(1 << 1);
    /// The inline volumes of plugins that attach volumes.
    pub const INLINE_VOLUMES: Self = Self(1 << 2);
    /// The PersistentVolumeClaims that it names, and its generic ephemeral volumes.
    pub const VOLUME_CLAIMS: Self = Self(1 << 3);
    /// The ResourceClaims of its spec and its status.
    pub const RESOURCE_CLAIMS: Self = Self(1 << 4);
    /// The name of its PodGroup.
    pub const POD_GROUP: Self = Self(1 << 5);
    /// What the endpoints of Services publish: IP addresses, hostname, subdomain and ports.
    pub const ENDPOINTS: Self = Self(1 << 6);
    /// Its tolerations.
    pub const TOLERATIONS: Self = Self(1 << 7);
    /// The SELinux labels of its volumes.
    pub const SELINUX: Self = Self(1 << 8);
    /// All parts.
    pub const ALL: Self = Self((1 << PARTS.len()) - 1);

    /// These and other parts.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The parts that are in both sets.
    #[must_use]
    pub const fn intersection(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether all of these parts are in the set.
    #[must_use]
    pub const fn contains(self, parts: Self) -> bool {
        self.0 & parts.0 == parts.0
    }

    /// Whether at least one of these parts is in the set.
    #[must_use]
    pub const fn intersects(self, parts: Self) -> bool {
        self.0 & parts.0 != 0
    }

    /// Panics unless the part is in the set, which has been kept of a pod.
    #[track_caller]
    pub(super) fn require(self, part: Self) {
        assert!(self.contains(part), "{part:?} of a pod is read without being declared");
    }

    /// Panics unless at least one of the parts is in the set, which has been kept of a pod.
    #[track_caller]
    pub(super) fn require_any(self, parts: Self) {
        assert!(self.intersects(parts), "{parts:?} of a pod is read without being declared");
    }

    /// The protobuf fields that are read of a pod of which these parts are kept.
    pub(super) fn message(self) -> &'static Message {
        static MESSAGES: [OnceLock<Message>; 1 << PARTS.len()] =
            [const { OnceLock::new() }; 1 << PARTS.len()];
        MESSAGES[usize::from(self.0)].get_or_init(|| Message::of_all(&Pod::RESOURCE, &self.fields()))
    }

    /// The fields that are read of a pod of which these parts are kept.
    pub(super) fn fields(self) -> Vec<&'static str> {
        let parts = PARTS.iter().filter(|(part, ..)| self.contains(*part));
        std::iter::once(COMMON_FIELDS).chain(parts.map(|(.., fields)| *fields)).collect()
    }
}

/// The names of the parts, joined by `|`.
impl fmt::Debug for PodParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PARTS.iter().filter(|(part, ..)| self.contains(*part)).map(|(_, name, _)| *name);
        let names: Vec<_> = names.collect();
        f.write_str(if names.is_empty() { "NONE" } else { "" })?;
        f.write_str(&names.join("|"))
    }
}

/// The fields that belong to no part.
const COMMON_FIELDS: &str = "
    spec {
        nodeName
        affinity { nodeAffinity { requiredDuringSchedulingIgnoredDuringExecution } }
        initContainers { name restartPolicy }
    }
    status {
        phase reason
        conditions { type status lastProbeTime lastTransitionTime reason message observedGeneration }
        containerStatuses,initContainerStatuses {
            name restartCount state { waiting { } terminated { exitCode finishedAt } }
        }
        ephemeralContainerStatuses { state { waiting { } terminated { } } }
    }";

/// Each part with its name and its fields. A field may be in several parts.
const PARTS: [(PodParts, &str, &str); 9] = [
    (
        PodParts::SECRET_NAMES,
        "SECRET_NAMES",
        "spec {
            containers,initContainers,ephemeralContainers {
                env { valueFrom { secretKeyRef { name } } }
                envFrom { secretRef { name } }
            }
            imagePullSecrets { name }
            volumes {
                azureFile,secret { secretName }
                cephfs,cinder,flexVolume,iscsi,rbd,scaleIO,storageos { secretRef { name } }
                csi { nodePublishSecretRef { name } }
                projected { sources { secret { name } } }
            }
        }",
    ),
    (
        PodParts::RESOURCES,
        "RESOURCES",
        "spec {
            activeDeadlineSeconds overhead priorityClassName
            affinity {
                podAffinity,podAntiAffinity {
                    requiredDuringSchedulingIgnoredDuringExecution { namespaces namespaceSelector { } }
                    preferredDuringSchedulingIgnoredDuringExecution { podAffinityTerm { namespaces namespaceSelector { } } }
                }
            }
            containers,initContainers { name restartPolicy resources { limits requests } }
            resources { limits requests }
        }
        status {
            qosClass startTime
            containerStatuses,initContainerStatuses { name allocatedResources resources { limits requests } }
        }",
    ),
    (
        PodParts::INLINE_VOLUMES,
        "INLINE_VOLUMES",
        "spec { volumes {
            name
            awsElasticBlockStore { volumeID fsType partition readOnly }
            azureDisk { diskURI cachingMode fsType readOnly kind }
            azureFile { secretName shareName readOnly }
            cinder { volumeID fsType readOnly }
            csi { driver }
            fc { targetWWNs lun wwids }
            flexVolume { driver }
            gcePersistentDisk { pdName fsType partition readOnly }
            iscsi { targetPortal iqn lun }
            portworxVolume { volumeID fsType readOnly }
            vsphereVolume { volumePath fsType storagePolicyName }
        } }",
    ),
    (
        PodParts::VOLUME_CLAIMS,
        "VOLUME_CLAIMS",
        "spec { volumes { name ephemeral { } persistentVolumeClaim { claimName } } }",
    ),
    (
        PodParts::RESOURCE_CLAIMS,
        "RESOURCE_CLAIMS",
        "spec { resourceClaims { name resourceClaimName resourceClaimTemplateName } }
        status {
            extendedResourceClaimStatus { resourceClaimName }
            resourceClaimStatuses { name resourceClaimName }
        }",
    ),
    (PodParts::POD_GROUP, "POD_GROUP", "spec { schedulingGroup { podGroupName } }"),
    (
        PodParts::ENDPOINTS,
        "ENDPOINTS",
        "spec {
            hostname subdomain
            containers,initContainers { name restartPolicy ports { name containerPort protocol } }
        }
        status { podIP podIPs { ip } }",
    ),
    (PodParts::TOLERATIONS, "TOLERATIONS", "spec { tolerations }"),
    (
        PodParts::SELINUX,
        "SELINUX",
        "spec {
            containers,initContainers,ephemeralContainers {
                securityContext { seLinuxOptions }
                volumeMounts { name }
            }
            securityContext { seLinuxOptions seLinuxChangePolicy }
            volumes {
                name
                awsElasticBlockStore,cinder,portworxVolume { volumeID }
                azureDisk { diskURI kind }
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
        }",
    ),
];
