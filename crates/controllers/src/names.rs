//! The names of all controllers of the original, in its order of starting, whether they are written yet
//! or not.

/// A controller that the original has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its canonical name.
    pub name: &'static str,
    /// Its older name; empty if it never had one.
    pub alias: &'static str,
    /// Whether it runs without being named.
    pub default: Default,
    /// The feature gates that must be on for it to run.
    pub gates: &'static [&'static str],
}

/// Whether a controller runs without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// It does.
    On,
    /// It must be named.
    Disabled,
}

/// All names.
pub const UPSTREAM_CONTROLLERS: [Known; 49] = [
    known("serviceaccount-token-controller", "serviceaccount-token", Default::On),
    known("endpoints-controller", "endpoint", Default::On),
    known("endpointslice-controller", "endpointslice", Default::On),
    known("endpointslice-mirroring-controller", "endpointslicemirroring", Default::On),
    known("replicationcontroller-controller", "replicationcontroller", Default::On),
    known("pod-garbage-collector-controller", "podgc", Default::On),
    known("resourcequota-controller", "resourcequota", Default::On),
    known("namespace-controller", "namespace", Default::On),
    known("serviceaccount-controller", "serviceaccount", Default::On),
    known("garbage-collector-controller", "garbagecollector", Default::On),
    known("daemonset-controller", "daemonset", Default::On),
    known("job-controller", "job", Default::On),
    known("deployment-controller", "deployment", Default::On),
    known("replicaset-controller", "replicaset", Default::On),
    known("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", Default::On),
    known("disruption-controller", "disruption", Default::On),
    known("statefulset-controller", "statefulset", Default::On),
    known("cronjob-controller", "cronjob", Default::On),
    known("certificatesigningrequest-signing-controller", "csrsigning", Default::On),
    known("certificatesigningrequest-approving-controller", "csrapproving", Default::On),
    known("certificatesigningrequest-cleaner-controller", "csrcleaner", Default::On),
    known("podcertificaterequest-cleaner-controller", "", Default::On).behind(&["PodCertificateRequest"]),
    known("ttl-controller", "ttl", Default::On),
    known("bootstrap-signer-controller", "bootstrapsigner", Default::Disabled),
    known("token-cleaner-controller", "tokencleaner", Default::Disabled),
    known("node-ipam-controller", "nodeipam", Default::On),
    known("node-lifecycle-controller", "nodelifecycle", Default::On),
    known("taint-eviction-controller", "", Default::On).behind(&["SeparateTaintEvictionController"]),
    known("device-taint-eviction-controller", "", Default::On)
        .behind(&["DynamicResourceAllocation", "DRADeviceTaints"]),
    known("persistentvolume-binder-controller", "persistentvolume-binder", Default::On),
    known("persistentvolume-attach-detach-controller", "attachdetach", Default::On),
    known("persistentvolume-expander-controller", "persistentvolume-expander", Default::On),
    known("clusterrole-aggregation-controller", "clusterrole-aggregation", Default::On),
    known("persistentvolumeclaim-protection-controller", "pvc-protection", Default::On),
    known("persistentvolume-protection-controller", "pv-protection", Default::On),
    known("podgroup-protection-controller", "", Default::On).behind(&["GenericWorkload"]),
    known("ttl-after-finished-controller", "ttl-after-finished", Default::On),
    known("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", Default::On),
    known("kube-apiserver-serving-clustertrustbundle-publisher-controller", "", Default::On)
        .behind(&["ClusterTrustBundle"]),
    known("ephemeral-volume-controller", "ephemeral-volume", Default::On),
    known("storageversion-garbage-collector-controller", "storage-version-gc", Default::On)
        .behind(&["APIServerIdentity", "StorageVersionAPI"]),
    known("resourceclaim-controller", "resource-claim-controller", Default::On)
        .behind(&["DynamicResourceAllocation"]),
    known("resourcepoolstatusrequest-controller", "", Default::On).behind(&["DRAResourcePoolStatus"]),
    known(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        Default::On,
    ),
    known("validatingadmissionpolicy-status-controller", "", Default::On),
    known("volumeattributesclass-protection-controller", "", Default::On).behind(&["VolumeAttributesClass"]),
    known("service-cidr-controller", "", Default::On).behind(&["MultiCIDRServiceAllocator"]),
    known("storage-version-migrator-controller", "svm", Default::On)
        .behind(&["StorageVersionMigrator", "InformerResourceVersion"]),
    known("selinux-warning-controller", "", Default::Disabled).behind(&["SELinuxChangePolicy"]),
];

const fn known(name: &'static str, alias: &'static str, default: Default) -> Known {
    Known { name, alias, default, gates: &[] }
}

impl Known {
    const fn behind(self, gates: &'static [&'static str]) -> Self {
        Self { gates, ..self }
    }
}

/// The controller of this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static Known> {
    UPSTREAM_CONTROLLERS.iter().find(|known| !name.is_empty() && (known.name == name || known.alias == name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Settings, all};

    /// Proves RUN-60, RUN-61.
    #[test]
    fn no_name_is_taken_twice_and_every_controller_is_known_by_its_names() {
        let aliases = UPSTREAM_CONTROLLERS.iter().map(|known| known.alias).filter(|alias| !alias.is_empty());
        let names: Vec<_> = UPSTREAM_CONTROLLERS.iter().map(|known| known.name).chain(aliases).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for controller in all(&Settings::default()) {
            let known = find(controller.name).unwrap_or_else(|| panic!("{} is not known", controller.name));
            assert!(controller.aliases.iter().all(|alias| *alias == known.alias), "{}", controller.name);
        }
        for known in &UPSTREAM_CONTROLLERS {
            let plain = known.name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(plain && known.name.ends_with("-controller"), "{}", known.name);
        }
        assert_eq!(find("serviceaccount"), find("serviceaccount-controller"));
        assert_eq!(find(""), None);
    }
}
