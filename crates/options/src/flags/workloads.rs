//! Flags of the controllers of workloads, Services and related objects.

use crate::flag::FlagDefault::{Bool, Float64, Int32};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const SLICES: &[&str] = &["endpointslice-controller"];
const MIRRORING: &[&str] = &["endpointslice-mirroring-controller"];
const COLLECTOR: &[&str] = &["garbage-collector-controller"];
const AUTOSCALER: &[&str] = &["horizontal-pod-autoscaler-controller"];

const fn duration(name: &'static str, seconds: i64, help: &'static str) -> Flag {
    flag(name, FlagDefault::Duration(go_text::GoDuration::seconds(seconds)), help)
}

pub(super) const DEPLOYMENT: &[Flag] =
    &[flag("concurrent-deployment-syncs", Int32(5), "How many Deployments are handled at a time.")
        .of(&["deployment-controller"])];

pub(super) const DISRUPTION: &[Flag] =
    &[flag("concurrent-disruption-syncs", Int32(1), "How many PodDisruptionBudgets are handled at a time.")
        .of(&["disruption-controller"])];

pub(super) const DEVICE_TAINT_EVICTION: &[Flag] = &[flag(
    "concurrent-device-taint-eviction-syncs",
    Int32(8),
    "How many pods are evicted and taint rules updated at a time. At least 1.",
)
.of(&["device-taint-eviction-controller"])];

pub(super) const RESOURCE_CLAIM: &[Flag] = &[flag(
    "concurrent-resourceclaim-syncs",
    Int32(50),
    "How many ResourceClaims are made or removed at a time. At least 1.",
)
.of(&["resourceclaim-controller"])];

pub(super) const STATEFUL_SET: &[Flag] = &[flag(
    "concurrent-statefulset-syncs",
    Int32(5),
    "How many StatefulSets are handled at a time. At least 1.",
)
.of(&["statefulset-controller"])];

pub(super) const DAEMON_SET: &[Flag] =
    &[flag("concurrent-daemonset-syncs", Int32(2), "How many DaemonSets are handled at a time. At least 1.")
        .of(&["daemonset-controller"])];

pub(super) const ENDPOINTS: &[Flag] = &[
    flag("concurrent-endpoint-syncs", Int32(5), "How many Services get their Endpoints at a time.")
        .of(&["endpoints-controller"]),
    duration(
        "endpoint-updates-batch-period",
        0,
        "How long to wait for more changes before Endpoints are written.",
    )
    .of(&["endpoints-controller"]),
];

pub(super) const ENDPOINT_SLICE: &[Flag] = &[
    flag(
        "concurrent-service-endpoint-syncs",
        Int32(5),
        "How many Services get their EndpointSlices at a time, 1 to 50.",
    )
    .of(SLICES),
    duration(
        "endpointslice-updates-batch-period",
        0,
        "How long to wait for more changes before EndpointSlices are written.",
    )
    .of(SLICES),
    flag("max-endpoints-per-slice", Int32(100), "How many endpoints one EndpointSlice holds, 1 to 1000.")
        .of(SLICES),
];

pub(super) const ENDPOINT_SLICE_MIRRORING: &[Flag] = &[
    flag(
        "mirroring-concurrent-service-endpoint-syncs",
        Int32(5),
        "How many Endpoints are mirrored at a time, 1 to 50.",
    )
    .of(MIRRORING),
    duration(
        "mirroring-endpointslice-updates-batch-period",
        0,
        "How long to wait for more changes before mirrored EndpointSlices are written.",
    )
    .of(MIRRORING),
    flag(
        "mirroring-max-endpoints-per-subset",
        Int32(1000),
        "How many endpoints of one subset are mirrored, 1 to 1000.",
    )
    .of(MIRRORING),
];

pub(super) const GARBAGE_COLLECTOR: &[Flag] = &[
    flag("concurrent-gc-syncs", Int32(20), "How many objects are judged and collected at a time.")
        .of(COLLECTOR),
    flag(
        "enable-garbage-collector",
        Bool(true),
        "Collect objects whose owners are gone. Must agree with the flag of the same name of the API server.",
    )
    .of(COLLECTOR),
];

pub(super) const HORIZONTAL_POD_AUTOSCALER: &[Flag] = &[
    flag(
        "concurrent-horizontal-pod-autoscaler-syncs",
        Int32(5),
        "How many autoscalers are handled at a time. At least 1.",
    )
    .of(AUTOSCALER),
    duration(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        300,
        "How long after its start a pod's CPU samples may be passed over.",
    )
    .of(AUTOSCALER),
    duration(
        "horizontal-pod-autoscaler-downscale-stabilization",
        300,
        "Never go below the highest recommendation of this last stretch of time.",
    )
    .of(AUTOSCALER),
    duration(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        30,
        "How long after its start changes of a pod's readiness count as its first.",
    )
    .of(AUTOSCALER),
    duration("horizontal-pod-autoscaler-sync-period", 15, "Pause between two looks at each autoscaler.")
        .of(AUTOSCALER),
    flag(
        "horizontal-pod-autoscaler-tolerance",
        Float64(0.1),
        "How far from 1 the ratio of wanted to actual metrics must be to scale at all.",
    )
    .of(AUTOSCALER),
];

pub(super) const JOB: &[Flag] =
    &[flag("concurrent-job-syncs", Int32(5), "How many Jobs are handled at a time. At least 1.")
        .of(&["job-controller"])];

pub(super) const CRON_JOB: &[Flag] =
    &[flag("concurrent-cron-job-syncs", Int32(5), "How many CronJobs are handled at a time. At least 1.")
        .of(&["cronjob-controller"])];

pub(super) const NAMESPACE: &[Flag] = &[
    flag("concurrent-namespace-syncs", Int32(10), "How many namespaces are emptied at a time.")
        .of(&["namespace-controller"]),
    duration("namespace-sync-period", 300, "Pause between two looks at all namespaces.")
        .of(&["namespace-controller"]),
];

pub(super) const POD_GARBAGE_COLLECTOR: &[Flag] = &[flag(
    "terminated-pod-gc-threshold",
    Int32(12500),
    "How many finished pods may stay before the oldest are removed; 0 or less keeps all.",
)
.of(&["pod-garbage-collector-controller"])];

pub(super) const REPLICA_SET: &[Flag] =
    &[flag("concurrent-replicaset-syncs", Int32(5), "How many ReplicaSets are handled at a time.")
        .of(&["replicaset-controller"])];

pub(super) const REPLICATION_CONTROLLER: &[Flag] =
    &[flag("concurrent-rc-syncs", Int32(5), "How many ReplicationControllers are handled at a time.")
        .of(&["replicationcontroller-controller"])];

pub(super) const RESOURCE_QUOTA: &[Flag] = &[
    flag("concurrent-resource-quota-syncs", Int32(5), "How many ResourceQuotas are handled at a time.")
        .of(&["resourcequota-controller"]),
    duration("resource-quota-sync-period", 300, "Pause between two full counts of what quotas limit.")
        .of(&["resourcequota-controller"]),
];

pub(super) const TTL_AFTER_FINISHED: &[Flag] =
    &[flag("concurrent-ttl-after-finished-syncs", Int32(5), "How many finished Jobs are handled at a time.")
        .of(&["ttl-after-finished-controller"])];

pub(super) const VALIDATING_ADMISSION_POLICY_STATUS: &[Flag] = &[flag(
    "concurrent-validating-admission-policy-status-syncs",
    Int32(5),
    "How many ValidatingAdmissionPolicies are checked at a time.",
)
.of(&["validatingadmissionpolicy-status-controller"])];
