//! The resource names of quotas, and which evaluator computes each of them.

use super::DeviceClasses;

/// The kinds whose usage is more than their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evaluator {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// PersistentVolumeClaims.
    PersistentVolumeClaims,
    /// ResourceClaims.
    ResourceClaims,
}

const PODS: [&str; 11] = [
    "count/pods",
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

const SERVICES: [&str; 4] = ["count/services", "services", "services.loadbalancers", "services.nodeports"];

const PERSISTENT_VOLUME_CLAIMS: [&str; 3] =
    ["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"];

pub(super) const STORAGE_CLASS_INFIX: &str = ".storageclass.storage.k8s.io/";
pub(super) const DEVICES_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
pub(super) const REQUESTS: &str = "requests.";
pub(super) const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

impl Evaluator {
    /// All of them, in the order in which their usage is computed.
    pub const ALL: [Self; 4] =
        [Self::Pods, Self::Services, Self::PersistentVolumeClaims, Self::ResourceClaims];

    /// The API group and the plural name of its resource.
    #[must_use]
    pub fn group_resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Pods => ("", "pods"),
            Self::Services => ("", "services"),
            Self::PersistentVolumeClaims => ("", "persistentvolumeclaims"),
            Self::ResourceClaims => ("resource.k8s.io", "resourceclaims"),
        }
    }

    /// The evaluator of a resource; `None` if its objects are only counted.
    #[must_use]
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.group_resource() == (group, plural))
    }

    /// Whether it computes the usage of this name.
    #[must_use]
    pub fn matches(self, name: &str, classes: &DeviceClasses) -> bool {
        match self {
            Self::Pods => {
                PODS.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || is_extended_resource_of_quota(name)
            }
            Self::Services => SERVICES.contains(&name),
            Self::PersistentVolumeClaims => {
                PERSISTENT_VOLUME_CLAIMS.contains(&name)
                    || name.ends_with(".storageclass.storage.k8s.io/persistentvolumeclaims")
                    || name.ends_with(".storageclass.storage.k8s.io/requests.storage")
            }
            Self::ResourceClaims => {
                name == "count/resourceclaims.resource.k8s.io"
                    || name.ends_with(DEVICES_SUFFIX)
                    || is_extended_resource_of_quota(name)
                        && name.strip_prefix(REQUESTS).is_some_and(|resource| classes.provide(resource))
            }
        }
    }
}

/// Whether quotas know the name as the requests of an extended resource, or of the devices of one class.
fn is_extended_resource_of_quota(name: &str) -> bool {
    let Some(resource) = name.strip_prefix(REQUESTS) else { return false };
    is_not_native(name) || resource.starts_with(DEVICE_CLASS_PREFIX)
}

/// Whether a resource name has a domain other than that of Kubernetes.
fn is_not_native(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// Whether containers can request it as an extended resource, or as devices of one class.
pub(super) fn is_extended_resource(name: &str) -> bool {
    // The name must still be valid with the prefix that it has in a quota.
    let domain = name.split('/').next().map_or(0, str::len);
    let fits = REQUESTS.len() + domain <= 253;
    is_not_native(name) && !name.starts_with(REQUESTS) && fits || name.starts_with(DEVICE_CLASS_PREFIX)
}

/// The name by which the objects of a resource are counted: `count/deployments.apps`, `count/secrets`.
#[must_use]
pub fn object_count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// The older name by which the objects of a few core resources are also counted.
#[must_use]
pub fn object_count_alias<'a>(group: &str, plural: &'a str) -> Option<&'a str> {
    let has_alias = matches!(plural, "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets");
    (group.is_empty() && has_alias).then_some(plural)
}

/// Whether no quota counts the objects of a resource: they are events, or not stored at all.
#[must_use]
pub fn is_ignored_by_quota(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(plural, "bindings" | "componentstatuses" | "events"),
        "events.k8s.io" => plural == "events",
        "authentication.k8s.io" => matches!(plural, "tokenreviews" | "selfsubjectreviews"),
        "authorization.k8s.io" => matches!(
            plural,
            "subjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectrulesreviews"
        ),
        _ => false,
    }
}
