//! The one list of flags. Parsing, help, completion, the man page and the reference page all derive from it.

mod generic;
mod nodes;
mod observing;
mod own;
mod serving;
mod storage;
mod workloads;

use crate::flag::{Flag, Group};

/// The original's groups, in the order of its help text.
pub const GROUPS: &[Group] = &[
    group("Debugging", generic::DEBUGGING),
    group("Leader-migration", generic::LEADER_MIGRATION),
    group("Generic", generic::GENERIC),
    group("Secure serving", serving::SECURE_SERVING),
    group("Authentication", serving::AUTHENTICATION),
    group("Authorization", serving::AUTHORIZATION),
    group("Persistentvolume-attach-detach-controller", storage::ATTACH_DETACH),
    group("Certificatesigningrequest-signing-controller", nodes::CSR_SIGNING),
    group("Deployment-controller", workloads::DEPLOYMENT),
    group("Disruption-controller", workloads::DISRUPTION),
    group("Device-taint-eviction-controller", workloads::DEVICE_TAINT_EVICTION),
    group("Resourceclaim-controller", workloads::RESOURCE_CLAIM),
    group("Statefulset-controller", workloads::STATEFUL_SET),
    group("Daemonset-controller", workloads::DAEMON_SET),
    group("Endpoints-controller", workloads::ENDPOINTS),
    group("Endpointslice-controller", workloads::ENDPOINT_SLICE),
    group("Endpointslice-mirroring-controller", workloads::ENDPOINT_SLICE_MIRRORING),
    group("Ephemeral-volume-controller", storage::EPHEMERAL_VOLUME),
    group("Garbage-collector-controller", workloads::GARBAGE_COLLECTOR),
    group("Horizontal-pod-autoscaler-controller", workloads::HORIZONTAL_POD_AUTOSCALER),
    group("Job-controller", workloads::JOB),
    group("Cronjob-controller", workloads::CRON_JOB),
    group("Legacy-serviceaccount-token-cleaner-controller", nodes::LEGACY_TOKEN_CLEANER),
    group("Namespace-controller", workloads::NAMESPACE),
    group("Node-ipam-controller", nodes::NODE_IPAM),
    group("Node-lifecycle-controller", nodes::NODE_LIFECYCLE),
    group("Persistentvolume-binder-controller", storage::VOLUME_BINDER),
    group("Pod-garbage-collector-controller", workloads::POD_GARBAGE_COLLECTOR),
    group("Replicaset-controller", workloads::REPLICA_SET),
    group("Replicationcontroller-controller", workloads::REPLICATION_CONTROLLER),
    group("Resourcequota-controller", workloads::RESOURCE_QUOTA),
    group("Serviceaccount-controller", nodes::SERVICE_ACCOUNT),
    group("Ttl-after-finished-controller", workloads::TTL_AFTER_FINISHED),
    group("Validatingadmissionpolicy-status-controller", workloads::VALIDATING_ADMISSION_POLICY_STATUS),
    group("Metrics", observing::METRICS),
    group("Logs", observing::LOGS),
    group("Misc", generic::MISC),
    group("Global", generic::GLOBAL),
];

/// The flags that the original does not have.
pub const OWN: Group = group("Keleustes", own::OWN);

const fn group(title: &'static str, flags: &'static [Flag]) -> Group {
    Group { title, flags }
}

/// All groups: this program's own, and then those of the original.
pub fn groups() -> impl Iterator<Item = &'static Group> {
    std::iter::once(&OWN).chain(GROUPS)
}

/// All flags, deprecated ones included, in the order of the groups.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    groups().flat_map(|group| group.flags)
}

/// Whether the original does not have this flag.
pub(crate) fn is_own(name: &str) -> bool {
    OWN.flags.iter().any(|flag| flag.name == name)
}
