//! The built-in kinds: group, versions and when each is served, plural and scope.
//!
//! `data/types.txt` has their fields. A kind that is not here has no `RESOURCE`: the lookup is done by the compiler.

use std::borrow::Cow;

use crate::Resource;

/// A built-in kind of Kubernetes v1.37.
#[derive(Debug)]
pub struct BuiltInKind {
    /// API group; empty for core.
    pub group: &'static str,
    /// Kind name.
    pub kind: &'static str,
    /// Kind name of lists.
    pub list_kind: &'static str,
    /// Resource name as used in paths.
    pub plural: &'static str,
    /// Lower-case singular.
    pub singular: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// The versions that this program uses, the preferred one first.
    pub versions: &'static [ServedVersion],
}

/// A version of a built-in kind, and when an API server serves it.
#[derive(Debug)]
pub struct ServedVersion {
    /// API version.
    pub name: &'static str,
    /// Whether an API server without flags serves it; others need `--runtime-config`.
    pub by_default: bool,
    /// The feature gate without which an API server does not serve it.
    pub gate: Option<&'static str>,
}

/// A version that is served by default.
const fn on(name: &'static str) -> ServedVersion {
    ServedVersion { name, by_default: true, gate: None }
}

/// A version that is served with `--runtime-config`.
const fn off(name: &'static str) -> ServedVersion {
    ServedVersion { name, by_default: false, gate: None }
}

impl ServedVersion {
    /// The same behind a feature gate.
    const fn gate(mut self, gate: &'static str) -> Self {
        self.gate = Some(gate);
        self
    }
}

macro_rules! kind {
    ($group:literal, $kind:literal, $plural:literal, $scope:ident, $versions:expr) => {{
        const SINGULAR: [u8; $kind.len()] = lower_case($kind);
        BuiltInKind {
            group: $group,
            kind: $kind,
            list_kind: concat!($kind, "List"),
            plural: $plural,
            singular: match str::from_utf8(&SINGULAR) {
                Ok(singular) => singular,
                Err(_) => panic!("a kind is ASCII"),
            },
            namespaced: matches!(Scope::$scope, Scope::Namespaced),
            versions: &$versions,
        }
    }};
}

/// The scope of a kind.
enum Scope {
    Namespaced,
    Cluster,
}

const BUNDLES: &str = "ClusterTrustBundle";

/// All built-in kinds, by group and name.
#[rustfmt::skip] // A table.
pub static BUILT_IN_KINDS: &[BuiltInKind] = &[
    kind!("", "Binding", "bindings", Namespaced, [on("v1")]),
    kind!("", "ConfigMap", "configmaps", Namespaced, [on("v1")]),
    kind!("", "Endpoints", "endpoints", Namespaced, [on("v1")]),
    kind!("", "Event", "events", Namespaced, [on("v1")]),
    kind!("", "LimitRange", "limitranges", Namespaced, [on("v1")]),
    kind!("", "Namespace", "namespaces", Cluster, [on("v1")]),
    kind!("", "Node", "nodes", Cluster, [on("v1")]),
    kind!("", "PersistentVolume", "persistentvolumes", Cluster, [on("v1")]),
    kind!("", "PersistentVolumeClaim", "persistentvolumeclaims", Namespaced, [on("v1")]),
    kind!("", "Pod", "pods", Namespaced, [on("v1")]),
    kind!("", "PodTemplate", "podtemplates", Namespaced, [on("v1")]),
    kind!("", "ReplicationController", "replicationcontrollers", Namespaced, [on("v1")]),
    kind!("", "ResourceQuota", "resourcequotas", Namespaced, [on("v1")]),
    kind!("", "Secret", "secrets", Namespaced, [on("v1")]),
    kind!("", "Service", "services", Namespaced, [on("v1")]),
    kind!("", "ServiceAccount", "serviceaccounts", Namespaced, [on("v1")]),
    kind!("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", Cluster, [on("v1")]),
    kind!("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", Cluster, [on("v1")]),
    kind!("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", Cluster, [on("v1")]),
    kind!("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Cluster, [on("v1")]),
    kind!("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", Cluster, [on("v1")]),
    kind!("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", Cluster, [on("v1")]),
    kind!("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", Cluster, [on("v1")]),
    kind!("apiregistration.k8s.io", "APIService", "apiservices", Cluster, [on("v1")]),
    kind!("apps", "ControllerRevision", "controllerrevisions", Namespaced, [on("v1")]),
    kind!("apps", "DaemonSet", "daemonsets", Namespaced, [on("v1")]),
    kind!("apps", "Deployment", "deployments", Namespaced, [on("v1")]),
    kind!("apps", "ReplicaSet", "replicasets", Namespaced, [on("v1")]),
    kind!("apps", "StatefulSet", "statefulsets", Namespaced, [on("v1")]),
    kind!("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", Cluster, [on("v1")]),
    kind!("authentication.k8s.io", "TokenReview", "tokenreviews", Cluster, [on("v1")]),
    kind!("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", Namespaced, [on("v1")]),
    kind!("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", Cluster, [on("v1")]),
    kind!("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", Cluster, [on("v1")]),
    kind!("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", Cluster, [on("v1")]),
    kind!("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", Namespaced, [on("v2"), on("v1")]),
    kind!("batch", "CronJob", "cronjobs", Namespaced, [on("v1")]),
    kind!("batch", "Job", "jobs", Namespaced, [on("v1")]),
    kind!("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", Cluster, [on("v1")]),
    kind!("certificates.k8s.io", "ClusterTrustBundle", "clustertrustbundles", Cluster, [on("v1").gate(BUNDLES), off("v1beta1").gate(BUNDLES), off("v1alpha1").gate(BUNDLES)]),
    kind!("certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", Namespaced, [on("v1").gate("PodCertificateRequest")]),
    kind!("coordination.k8s.io", "Lease", "leases", Namespaced, [on("v1")]),
    kind!("coordination.k8s.io", "LeaseCandidate", "leasecandidates", Namespaced, [off("v1beta1")]),
    kind!("discovery.k8s.io", "EndpointSlice", "endpointslices", Namespaced, [on("v1")]),
    kind!("events.k8s.io", "Event", "events", Namespaced, [on("v1")]),
    kind!("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", Cluster, [on("v1")]),
    kind!("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "prioritylevelconfigurations", Cluster, [on("v1")]),
    kind!("internal.apiserver.k8s.io", "StorageVersion", "storageversions", Cluster, [off("v1alpha1")]),
    kind!("networking.k8s.io", "IPAddress", "ipaddresses", Cluster, [on("v1")]),
    kind!("networking.k8s.io", "Ingress", "ingresses", Namespaced, [on("v1")]),
    kind!("networking.k8s.io", "IngressClass", "ingressclasses", Cluster, [on("v1")]),
    kind!("networking.k8s.io", "NetworkPolicy", "networkpolicies", Namespaced, [on("v1")]),
    kind!("networking.k8s.io", "ServiceCIDR", "servicecidrs", Cluster, [on("v1")]),
    kind!("node.k8s.io", "RuntimeClass", "runtimeclasses", Cluster, [on("v1")]),
    kind!("policy", "PodDisruptionBudget", "poddisruptionbudgets", Namespaced, [on("v1")]),
    kind!("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", Cluster, [on("v1")]),
    kind!("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", Cluster, [on("v1")]),
    kind!("rbac.authorization.k8s.io", "Role", "roles", Namespaced, [on("v1")]),
    kind!("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", Namespaced, [on("v1")]),
    kind!("resource.k8s.io", "DeviceClass", "deviceclasses", Cluster, [on("v1")]),
    kind!("resource.k8s.io", "DeviceTaintRule", "devicetaintrules", Cluster, [on("v1")]),
    kind!("resource.k8s.io", "ResourceClaim", "resourceclaims", Namespaced, [on("v1")]),
    kind!("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", Namespaced, [on("v1")]),
    kind!("resource.k8s.io", "ResourcePoolStatusRequest", "resourcepoolstatusrequests", Cluster, [off("v1alpha3")]),
    kind!("resource.k8s.io", "ResourceSlice", "resourceslices", Cluster, [on("v1")]),
    kind!("scheduling.k8s.io", "PodGroup", "podgroups", Namespaced, [off("v1beta1").gate("GenericWorkload")]),
    kind!("scheduling.k8s.io", "PriorityClass", "priorityclasses", Cluster, [on("v1")]),
    kind!("scheduling.k8s.io", "Workload", "workloads", Namespaced, [off("v1beta1").gate("GenericWorkload")]),
    kind!("storage.k8s.io", "CSIDriver", "csidrivers", Cluster, [on("v1")]),
    kind!("storage.k8s.io", "CSINode", "csinodes", Cluster, [on("v1")]),
    kind!("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", Namespaced, [on("v1")]),
    kind!("storage.k8s.io", "StorageClass", "storageclasses", Cluster, [on("v1")]),
    kind!("storage.k8s.io", "VolumeAttachment", "volumeattachments", Cluster, [on("v1")]),
    kind!("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", Cluster, [on("v1")]),
    kind!("storagemigration.k8s.io", "StorageVersionMigration", "storageversionmigrations", Cluster, [on("v1").gate("StorageVersionMigrator")]),
];

const fn lower_case<const LENGTH: usize>(kind: &str) -> [u8; LENGTH] {
    match kind.as_bytes().first_chunk() {
        Some(bytes) => {
            let mut bytes: [u8; LENGTH] = *bytes;
            bytes.make_ascii_lowercase();
            bytes
        }
        None => panic!("a kind is shorter than its length"),
    }
}

/// `==` for strings, which constants cannot use.
const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl BuiltInKind {
    /// The kind of that name. Constants use it, so that a wrong name is an error of the compiler.
    ///
    /// # Panics
    /// If there is no such kind.
    #[must_use]
    pub const fn named(group: &str, kind: &str) -> &'static Self {
        let mut at = 0;
        while at < BUILT_IN_KINDS.len() {
            let found = &BUILT_IN_KINDS[at];
            if is_equal(found.group, group) && is_equal(found.kind, kind) {
                return found;
            }
            at += 1;
        }
        panic!("no such built-in kind");
    }

    /// The version of that name.
    ///
    /// # Panics
    /// If the kind has no such version.
    #[must_use]
    pub const fn version(&self, name: &str) -> &'static ServedVersion {
        let mut at = 0;
        while at < self.versions.len() {
            let found = &self.versions[at];
            if is_equal(found.name, name) {
                return found;
            }
            at += 1;
        }
        panic!("the kind has no such version");
    }

    /// The preferred version.
    #[must_use]
    pub const fn preferred_version(&self) -> &'static ServedVersion {
        &self.versions[0]
    }
}

impl Resource {
    /// The resource of a built-in kind in its preferred version.
    ///
    /// # Panics
    /// If there is no such kind, in a constant when it is compiled.
    #[must_use]
    pub const fn built_in(group: &'static str, kind: &'static str) -> Self {
        Self::of(BuiltInKind::named(group, kind), BuiltInKind::named(group, kind).preferred_version())
    }

    /// The resource of a built-in kind in another version.
    ///
    /// # Panics
    /// If there is no such kind or version, in a constant when it is compiled.
    #[must_use]
    pub const fn built_in_version(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self::of(BuiltInKind::named(group, kind), BuiltInKind::named(group, kind).version(version))
    }

    const fn of(built_in: &'static BuiltInKind, version: &'static ServedVersion) -> Self {
        Self {
            group: Cow::Borrowed(built_in.group),
            version: Cow::Borrowed(version.name),
            plural: Cow::Borrowed(built_in.plural),
            kind: Cow::Borrowed(built_in.kind),
            namespaced: built_in.namespaced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types;

    #[test]
    fn every_kind_is_listed_once_and_has_a_type() {
        for pair in BUILT_IN_KINDS.windows(2) {
            assert!((pair[0].group, pair[0].kind) < (pair[1].group, pair[1].kind), "{:?}", pair[1]);
        }
        for one in BUILT_IN_KINDS {
            let version = one.preferred_version();
            assert!(types::of_kind(one.group, version.name, one.kind).is_some(), "{one:?}");
            assert_eq!(one.singular, one.kind.to_lowercase());
            assert_eq!(one.list_kind, format!("{}List", one.kind));
        }
    }

    #[test]
    fn resources_come_from_the_table() {
        const DEPLOYMENTS: Resource = Resource::built_in("apps", "Deployment");
        assert_eq!(DEPLOYMENTS, Resource::namespaced("apps", "v1", "deployments", "Deployment"));
        assert_eq!(Resource::built_in("", "Node"), Resource::cluster("", "v1", "nodes", "Node"));
        let beta = Resource::built_in_version("certificates.k8s.io", "v1beta1", "ClusterTrustBundle");
        assert_eq!((&*beta.version, beta.namespaced), ("v1beta1", false));
        let events = [Resource::built_in("", "Event"), Resource::built_in("events.k8s.io", "Event")];
        assert_eq!(events.map(|events| events.api_version()), ["v1", "events.k8s.io/v1"]);
    }

    #[test]
    #[should_panic(expected = "no such built-in kind")]
    fn kind_of_another_group_is_not_found() {
        let _ = BuiltInKind::named("batch", "Deployment");
    }

    #[test]
    #[should_panic(expected = "no such version")]
    fn unknown_version_is_not_found() {
        let _ = BuiltInKind::named("apps", "Deployment").version("v1beta1");
    }
}
