//! The names of all controllers of the original (upstream's kube-controller-manager), in start order, whether
//! they are implemented here or not.

/// A controller of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamController {
    /// Canonical name.
    pub name: &'static str,
    /// Deprecated alias; empty if there is none.
    pub alias: &'static str,
    /// Whether it runs without being named in `--controllers`.
    pub default: DefaultState,
    /// Feature gates that must all be enabled for it to run.
    pub gates: &'static [&'static str],
}

/// Whether a controller runs without being named in `--controllers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultState {
    /// It runs by default.
    Enabled,
    /// It must be named.
    Disabled,
}

/// All controllers.
pub const UPSTREAM_CONTROLLERS: [UpstreamController; 49] = [
    controller("serviceaccount-token-controller", "serviceaccount-token", DefaultState::Enabled),
    controller("endpoints-controller", "endpoint", DefaultState::Enabled),
    controller("endpointslice-controller", "endpointslice", DefaultState::Enabled),
    controller("endpointslice-mirroring-controller", "endpointslicemirroring", DefaultState::Enabled),
    controller("replicationcontroller-controller", "replicationcontroller", DefaultState::Enabled),
    controller("pod-garbage-collector-controller", "podgc", DefaultState::Enabled),
    controller("resourcequota-controller", "resourcequota", DefaultState::Enabled),
    controller("namespace-controller", "namespace", DefaultState::Enabled),
    controller("serviceaccount-controller", "serviceaccount", DefaultState::Enabled),
    controller("garbage-collector-controller", "garbagecollector", DefaultState::Enabled),
    controller("daemonset-controller", "daemonset", DefaultState::Enabled),
    controller("job-controller", "job", DefaultState::Enabled),
    controller("deployment-controller", "deployment", DefaultState::Enabled),
    controller("replicaset-controller", "replicaset", DefaultState::Enabled),
    controller("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", DefaultState::Enabled),
    controller("disruption-controller", "disruption", DefaultState::Enabled),
    controller("statefulset-controller", "statefulset", DefaultState::Enabled),
    controller("cronjob-controller", "cronjob", DefaultState::Enabled),
    controller("certificatesigningrequest-signing-controller", "csrsigning", DefaultState::Enabled),
    controller("certificatesigningrequest-approving-controller", "csrapproving", DefaultState::Enabled),
    controller("certificatesigningrequest-cleaner-controller", "csrcleaner", DefaultState::Enabled),
    controller("podcertificaterequest-cleaner-controller", "", DefaultState::Enabled)
        .behind_gates(&["PodCertificateRequest"]),
    controller("ttl-controller", "ttl", DefaultState::Enabled),
    controller("bootstrap-signer-controller", "bootstrapsigner", DefaultState::Disabled),
    controller("token-cleaner-controller", "tokencleaner", DefaultState::Disabled),
    controller("node-ipam-controller", "nodeipam", DefaultState::Enabled),
    controller("node-lifecycle-controller", "nodelifecycle", DefaultState::Enabled),
    controller("taint-eviction-controller", "", DefaultState::Enabled)
        .behind_gates(&["SeparateTaintEvictionController"]),
    controller("device-taint-eviction-controller", "", DefaultState::Enabled)
        .behind_gates(&["DynamicResourceAllocation", "DRADeviceTaints"]),
    controller("persistentvolume-binder-controller", "persistentvolume-binder", DefaultState::Enabled),
    controller("persistentvolume-attach-detach-controller", "attachdetach", DefaultState::Enabled),
    controller("persistentvolume-expander-controller", "persistentvolume-expander", DefaultState::Enabled),
    controller("clusterrole-aggregation-controller", "clusterrole-aggregation", DefaultState::Enabled),
    controller("persistentvolumeclaim-protection-controller", "pvc-protection", DefaultState::Enabled),
    controller("persistentvolume-protection-controller", "pv-protection", DefaultState::Enabled),
    controller("podgroup-protection-controller", "", DefaultState::Enabled)
        .behind_gates(&["GenericWorkload"]),
    controller("ttl-after-finished-controller", "ttl-after-finished", DefaultState::Enabled),
    controller("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", DefaultState::Enabled),
    controller("kube-apiserver-serving-clustertrustbundle-publisher-controller", "", DefaultState::Enabled)
        .behind_gates(&["ClusterTrustBundle"]),
    controller("ephemeral-volume-controller", "ephemeral-volume", DefaultState::Enabled),
    controller("storageversion-garbage-collector-controller", "storage-version-gc", DefaultState::Enabled)
        .behind_gates(&["APIServerIdentity", "StorageVersionAPI"]),
    controller("resourceclaim-controller", "resource-claim-controller", DefaultState::Enabled)
        .behind_gates(&["DynamicResourceAllocation"]),
    controller("resourcepoolstatusrequest-controller", "", DefaultState::Enabled)
        .behind_gates(&["DRAResourcePoolStatus"]),
    controller(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        DefaultState::Enabled,
    ),
    controller("validatingadmissionpolicy-status-controller", "", DefaultState::Enabled),
    controller("volumeattributesclass-protection-controller", "", DefaultState::Enabled)
        .behind_gates(&["VolumeAttributesClass"]),
    controller("service-cidr-controller", "", DefaultState::Enabled)
        .behind_gates(&["MultiCIDRServiceAllocator"]),
    controller("storage-version-migrator-controller", "svm", DefaultState::Enabled)
        .behind_gates(&["StorageVersionMigrator", "InformerResourceVersion"]),
    controller("selinux-warning-controller", "", DefaultState::Disabled)
        .behind_gates(&["SELinuxChangePolicy"]),
];

const fn controller(name: &'static str, alias: &'static str, default: DefaultState) -> UpstreamController {
    UpstreamController { name, alias, default, gates: &[] }
}

impl UpstreamController {
    const fn behind_gates(self, gates: &'static [&'static str]) -> Self {
        Self { gates, ..self }
    }
}

/// The controller with this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static UpstreamController> {
    UPSTREAM_CONTROLLERS
        .iter()
        .find(|listed| !name.is_empty() && (listed.name == name || listed.alias == name))
}

/// The aliases of a controller.
#[cfg(test)]
pub(crate) fn aliases_of(name: &str) -> &'static [&'static str] {
    let listed = find(name).unwrap_or_else(|| panic!("{name} is not listed"));
    if listed.alias.is_empty() { &[] } else { std::slice::from_ref(&listed.alias) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{ControllersOptions, all_controllers};

    /// Proves RUN-60, RUN-61.
    #[test]
    fn controller_names_are_unique_and_every_implemented_controller_is_listed() {
        let aliases =
            UPSTREAM_CONTROLLERS.iter().map(|listed| listed.alias).filter(|alias| !alias.is_empty());
        let names: Vec<_> = UPSTREAM_CONTROLLERS.iter().map(|listed| listed.name).chain(aliases).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for controller in all_controllers(&ControllersOptions::default()) {
            let listed = find(controller.name).unwrap_or_else(|| panic!("{} is not listed", controller.name));
            assert_eq!(listed.name, controller.name, "its alias is listed instead");
        }
        for listed in &UPSTREAM_CONTROLLERS {
            let plain = listed.name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(plain && listed.name.ends_with("-controller"), "{}", listed.name);
        }
        assert_eq!(find("serviceaccount"), find("serviceaccount-controller"));
        assert_eq!(find(""), None);
    }
}
