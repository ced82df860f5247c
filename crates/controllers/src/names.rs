//! The names of all controllers of the original, in its order of starting, whether they are written yet
//! or not.

/// A controller that the original has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamController {
    /// Its canonical name.
    pub name: &'static str,
    /// Its older name; empty if it never had one.
    pub alias: &'static str,
    /// Whether it runs without being named.
    pub default: DefaultState,
    /// The feature gates that must be on for it to run.
    pub gates: &'static [&'static str],
}

/// Whether a controller runs without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultState {
    /// It does.
    Enabled,
    /// It must be named.
    Disabled,
}

/// All names.
pub const UPSTREAM_CONTROLLERS: [UpstreamController; 49] = [
    known("serviceaccount-token-controller", "serviceaccount-token", DefaultState::Enabled),
    known("endpoints-controller", "endpoint", DefaultState::Enabled),
    known("endpointslice-controller", "endpointslice", DefaultState::Enabled),
    known("endpointslice-mirroring-controller", "endpointslicemirroring", DefaultState::Enabled),
    known("replicationcontroller-controller", "replicationcontroller", DefaultState::Enabled),
    known("pod-garbage-collector-controller", "podgc", DefaultState::Enabled),
    known("resourcequota-controller", "resourcequota", DefaultState::Enabled),
    known("namespace-controller", "namespace", DefaultState::Enabled),
    known("serviceaccount-controller", "serviceaccount", DefaultState::Enabled),
    known("garbage-collector-controller", "garbagecollector", DefaultState::Enabled),
    known("daemonset-controller", "daemonset", DefaultState::Enabled),
    known("job-controller", "job", DefaultState::Enabled),
    known("deployment-controller", "deployment", DefaultState::Enabled),
    known("replicaset-controller", "replicaset", DefaultState::Enabled),
    known("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", DefaultState::Enabled),
    known("disruption-controller", "disruption", DefaultState::Enabled),
    known("statefulset-controller", "statefulset", DefaultState::Enabled),
    known("cronjob-controller", "cronjob", DefaultState::Enabled),
    known("certificatesigningrequest-signing-controller", "csrsigning", DefaultState::Enabled),
    known("certificatesigningrequest-approving-controller", "csrapproving", DefaultState::Enabled),
    known("certificatesigningrequest-cleaner-controller", "csrcleaner", DefaultState::Enabled),
    known("podcertificaterequest-cleaner-controller", "", DefaultState::Enabled)
        .behind(&["PodCertificateRequest"]),
    known("ttl-controller", "ttl", DefaultState::Enabled),
    known("bootstrap-signer-controller", "bootstrapsigner", DefaultState::Disabled),
    known("token-cleaner-controller", "tokencleaner", DefaultState::Disabled),
    known("node-ipam-controller", "nodeipam", DefaultState::Enabled),
    known("node-lifecycle-controller", "nodelifecycle", DefaultState::Enabled),
    known("taint-eviction-controller", "", DefaultState::Enabled)
        .behind(&["SeparateTaintEvictionController"]),
    known("device-taint-eviction-controller", "", DefaultState::Enabled)
        .behind(&["DynamicResourceAllocation", "DRADeviceTaints"]),
    known("persistentvolume-binder-controller", "persistentvolume-binder", DefaultState::Enabled),
    known("persistentvolume-attach-detach-controller", "attachdetach", DefaultState::Enabled),
    known("persistentvolume-expander-controller", "persistentvolume-expander", DefaultState::Enabled),
    known("clusterrole-aggregation-controller", "clusterrole-aggregation", DefaultState::Enabled),
    known("persistentvolumeclaim-protection-controller", "pvc-protection", DefaultState::Enabled),
    known("persistentvolume-protection-controller", "pv-protection", DefaultState::Enabled),
    known("podgroup-protection-controller", "", DefaultState::Enabled).behind(&["GenericWorkload"]),
    known("ttl-after-finished-controller", "ttl-after-finished", DefaultState::Enabled),
    known("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", DefaultState::Enabled),
    known("kube-apiserver-serving-clustertrustbundle-publisher-controller", "", DefaultState::Enabled)
        .behind(&["ClusterTrustBundle"]),
    known("ephemeral-volume-controller", "ephemeral-volume", DefaultState::Enabled),
    known("storageversion-garbage-collector-controller", "storage-version-gc", DefaultState::Enabled)
        .behind(&["APIServerIdentity", "StorageVersionAPI"]),
    known("resourceclaim-controller", "resource-claim-controller", DefaultState::Enabled)
        .behind(&["DynamicResourceAllocation"]),
    known("resourcepoolstatusrequest-controller", "", DefaultState::Enabled)
        .behind(&["DRAResourcePoolStatus"]),
    known(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        DefaultState::Enabled,
    ),
    known("validatingadmissionpolicy-status-controller", "", DefaultState::Enabled),
    known("volumeattributesclass-protection-controller", "", DefaultState::Enabled)
        .behind(&["VolumeAttributesClass"]),
    known("service-cidr-controller", "", DefaultState::Enabled).behind(&["MultiCIDRServiceAllocator"]),
    known("storage-version-migrator-controller", "svm", DefaultState::Enabled)
        .behind(&["StorageVersionMigrator", "InformerResourceVersion"]),
    known("selinux-warning-controller", "", DefaultState::Disabled).behind(&["SELinuxChangePolicy"]),
];

const fn known(name: &'static str, alias: &'static str, default: DefaultState) -> UpstreamController {
    UpstreamController { name, alias, default, gates: &[] }
}

impl UpstreamController {
    const fn behind(self, gates: &'static [&'static str]) -> Self {
        Self { gates, ..self }
    }
}

/// The controller of this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static UpstreamController> {
    UPSTREAM_CONTROLLERS.iter().find(|known| !name.is_empty() && (known.name == name || known.alias == name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{ControllersOptions, all_controllers};

    /// Proves RUN-60, RUN-61.
    #[test]
    fn no_name_is_taken_twice_and_every_controller_is_known_by_its_names() {
        let aliases = UPSTREAM_CONTROLLERS.iter().map(|known| known.alias).filter(|alias| !alias.is_empty());
        let names: Vec<_> = UPSTREAM_CONTROLLERS.iter().map(|known| known.name).chain(aliases).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for controller in all_controllers(&ControllersOptions::default()) {
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
