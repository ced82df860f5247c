//! The table columns of each kind: JSON pointers, and functions where a pointer does not suffice.
//!
//! Parity: the printers of pkg/printers/internalversion in Kubernetes v1.37.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::resources::Resource;
use super::{cells, pods};

/// The source of a cell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// The object's name.
    Name,
    /// Time since creation.
    Age,
    /// Time of creation.
    Created,
    /// The value at the pointer, or this text.
    At(&'static str, &'static str),
    /// The number at the pointer, or 0.
    Number(&'static str),
    /// Whether the value at the pointer is true.
    Flag(&'static str),
    /// The number of items or entries at the pointer.
    Count(&'static str),
    /// The result of the function.
    Call(fn(&Value, Timestamp) -> Value),
    /// The value at the JSON path of a custom resource, as this type.
    Path(&'static str, &'static str),
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    priority: i64,
    pub(super) source: Source,
}

impl Column {
    pub(super) fn definition(&self) -> Value {
        let format = match (self.name, self.source) {
            ("Name", Source::Name | Source::Call(_)) | ("Attacher", _) => "name",
            _ => "",
        };
        json!({"name": self.name, "type": self.kind, "format": format, "description": "", "priority": self.priority})
    }
}

const fn text(name: &'static str, source: Source) -> Column {
    Column { name, kind: "string", priority: 0, source }
}

const fn wide(name: &'static str, source: Source) -> Column {
    Column { name, kind: "string", priority: 1, source }
}

const fn number(name: &'static str, pointer: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0, source: Source::Number(pointer) }
}

const fn count(name: &'static str, pointer: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0, source: Source::Count(pointer) }
}

const fn flag(name: &'static str, pointer: &'static str) -> Column {
    Column { name, kind: "boolean", priority: 0, source: Source::Flag(pointer) }
}

const NAME: Column = text("Name", Source::Name);
const AGE: Column = text("Age", Source::Age);
const CREATED: Column = Column { name: "Created At", kind: "date", priority: 0, source: Source::Created };
const CONTAINERS: Column = wide("Containers", Source::Call(cells::containers));
const IMAGES: Column = wide("Images", Source::Call(cells::images));
const SELECTOR: Column = wide("Selector", Source::Call(cells::selector));

/// The columns of a kind; by default name and creation time.
pub(super) fn of(resource: &Resource) -> Vec<Column> {
    if resource.is_custom() {
        let mut columns = vec![NAME];
        if resource.columns.is_empty() {
            columns.push(Column { kind: "date", ..AGE });
        }
        columns.extend(resource.columns.iter().map(|column| Column {
            name: column.name,
            kind: column.kind,
            priority: column.priority,
            source: Source::Path(column.path, column.kind),
        }));
        return columns;
    }
    let core = KINDS.iter().find(|(kind, _)| *kind == resource.kind);
    core.map_or_else(|| vec![NAME, CREATED], |(_, columns)| columns.to_vec())
}

const WEBHOOKS: &[Column] = &[NAME, count("Webhooks", "/webhooks"), AGE];
const BINDING: &[Column] = &[
    NAME,
    text("Role", Source::Call(cells::role)),
    AGE,
    wide("Users", Source::Call(cells::users)),
    wide("Groups", Source::Call(cells::groups)),
    wide("ServiceAccounts", Source::Call(cells::accounts)),
];
const POLICY_BINDING: &[Column] = &[
    NAME,
    text("PolicyName", Source::At("/spec/policyName", "")),
    text("ParamRef", Source::Call(cells::param_ref)),
    AGE,
];

static KINDS: &[(&str, &[Column])] = &[
    ("ConfigMap", &[NAME, text("Data", Source::Call(cells::data)), AGE]),
    ("Endpoints", &[NAME, text("Endpoints", Source::Call(cells::endpoints)), AGE]),
    (
        "Event",
        &[
            text("Last Seen", Source::Call(cells::last_seen)),
            text("Type", Source::At("/type", "")),
            text("Reason", Source::At("/reason", "")),
            text("Object", Source::Call(cells::involved)),
            wide("Subobject", Source::At("/involvedObject/fieldPath", "")),
            wide("Source", Source::Call(cells::event_source)),
            text("Message", Source::Call(cells::message)),
            wide("First Seen", Source::Call(cells::first_seen)),
            wide("Count", Source::Call(cells::event_count)),
            wide("Name", Source::Name),
        ],
    ),
    ("Namespace", &[NAME, text("Status", Source::At("/status/phase", "")), AGE]),
    (
        "Node",
        &[
            NAME,
            text("Status", Source::Call(cells::node_status)),
            text("Roles", Source::Call(cells::node_roles)),
            AGE,
            text("Version", Source::At("/status/nodeInfo/kubeletVersion", "")),
            wide("Internal-IP", Source::Call(cells::internal_address)),
            wide("External-IP", Source::Call(cells::external_address)),
            wide("OS-Image", Source::Call(cells::os_image)),
            wide("Kernel-Version", Source::Call(cells::kernel_version)),
            wide("Container-Runtime", Source::Call(cells::container_runtime)),
        ],
    ),
    (
        "PersistentVolumeClaim",
        &[
            NAME,
            text("Status", Source::Call(cells::claim_status)),
            text("Volume", Source::At("/spec/volumeName", "")),
            text("Capacity", Source::Call(cells::claim_capacity)),
            text("Access Modes", Source::Call(cells::claim_modes)),
            text("StorageClass", Source::At("/spec/storageClassName", "")),
            text("VolumeAttributesClass", Source::At("/spec/volumeAttributesClassName", "<unset>")),
            AGE,
            wide("VolumeMode", Source::At("/spec/volumeMode", "<unset>")),
        ],
    ),
    (
        "PersistentVolume",
        &[
            NAME,
            text("Capacity", Source::At("/spec/capacity/storage", "")),
            text("Access Modes", Source::Call(cells::volume_modes)),
            text("Reclaim Policy", Source::At("/spec/persistentVolumeReclaimPolicy", "")),
            text("Status", Source::Call(cells::claim_status)),
            text("Claim", Source::Call(cells::volume_claim)),
            text("StorageClass", Source::At("/spec/storageClassName", "")),
            text("VolumeAttributesClass", Source::At("/spec/volumeAttributesClassName", "<unset>")),
            text("Reason", Source::At("/status/reason", "")),
            AGE,
            wide("VolumeMode", Source::At("/spec/volumeMode", "<unset>")),
        ],
    ),
    ("ServiceAccount", &[NAME, AGE]),
    (
        "Pod",
        &[
            NAME,
            text("Ready", Source::Call(pods::ready)),
            text("Status", Source::Call(pods::status)),
            text("Restarts", Source::Call(pods::restarts)),
            AGE,
            wide("IP", Source::At("/status/podIP", "<none>")),
            wide("Node", Source::At("/spec/nodeName", "<none>")),
            wide("Nominated Node", Source::At("/status/nominatedNodeName", "<none>")),
            wide("Readiness Gates", Source::Call(pods::gates)),
        ],
    ),
    (
        "PodTemplate",
        &[
            NAME,
            text("Containers", Source::Call(cells::containers)),
            text("Images", Source::Call(cells::images)),
            text("Pod Labels", Source::Call(cells::template_labels)),
        ],
    ),
    (
        "ReplicationController",
        &[
            NAME,
            number("Desired", "/spec/replicas"),
            number("Current", "/status/replicas"),
            number("Ready", "/status/readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", Source::Call(cells::plain_selector)),
        ],
    ),
    (
        "ResourceQuota",
        &[
            NAME,
            text("Request", Source::Call(cells::quota_requests)),
            text("Limit", Source::Call(cells::quota_limits)),
            AGE,
        ],
    ),
    ("Secret", &[NAME, text("Type", Source::At("/type", "")), text("Data", Source::Count("/data")), AGE]),
    (
        "Service",
        &[
            NAME,
            text("Type", Source::At("/spec/type", "")),
            text("Cluster-IP", Source::At("/spec/clusterIP", "<none>")),
            text("External-IP", Source::Call(cells::external_ip)),
            text("Port(s)", Source::Call(cells::service_ports)),
            AGE,
            wide("Selector", Source::Call(cells::plain_selector)),
        ],
    ),
    (
        "ControllerRevision",
        &[
            NAME,
            text("Controller", Source::Call(cells::controller)),
            text("Revision", Source::Number("/revision")),
            AGE,
        ],
    ),
    (
        "DaemonSet",
        &[
            NAME,
            number("Desired", "/status/desiredNumberScheduled"),
            number("Current", "/status/currentNumberScheduled"),
            number("Ready", "/status/numberReady"),
            number("Up-to-date", "/status/updatedNumberScheduled"),
            number("Available", "/status/numberAvailable"),
            text("Node Selector", Source::Call(cells::node_selector)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        "Deployment",
        &[
            NAME,
            text("Ready", Source::Call(cells::ready_of_desired)),
            text("Up-to-date", Source::Number("/status/updatedReplicas")),
            text("Available", Source::Number("/status/availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        "ReplicaSet",
        &[
            NAME,
            number("Desired", "/spec/replicas"),
            number("Current", "/status/replicas"),
            number("Ready", "/status/readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    ("StatefulSet", &[NAME, text("Ready", Source::Call(cells::ready_of_desired)), AGE, CONTAINERS, IMAGES]),
    (
        "APIService",
        &[
            NAME,
            text("Service", Source::Call(cells::backing_service)),
            text("Available", Source::Call(cells::available)),
            AGE,
        ],
    ),
    (
        "HorizontalPodAutoscaler",
        &[
            NAME,
            text("Reference", Source::Call(cells::scale_target)),
            text("Targets", Source::Call(cells::scale_metrics)),
            text("MinPods", Source::Call(cells::min_pods)),
            text("MaxPods", Source::Number("/spec/maxReplicas")),
            text("Replicas", Source::Number("/status/currentReplicas")),
            AGE,
        ],
    ),
    (
        "Job",
        &[
            NAME,
            text("Status", Source::Call(cells::job_status)),
            text("Completions", Source::Call(cells::completions)),
            text("Duration", Source::Call(cells::job_duration)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        "CronJob",
        &[
            NAME,
            text("Schedule", Source::At("/spec/schedule", "")),
            text("Timezone", Source::At("/spec/timeZone", "<none>")),
            Column { kind: "boolean", ..text("Suspend", Source::Call(cells::suspended)) },
            count("Active", "/status/active"),
            text("Last Schedule", Source::Call(cells::last_schedule)),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", Source::Call(cells::job_selector)),
        ],
    ),
    (
        "CertificateSigningRequest",
        &[
            NAME,
            AGE,
            text("SignerName", Source::At("/spec/signerName", "<none>")),
            text("Requestor", Source::At("/spec/username", "")),
            text("RequestedDuration", Source::Call(cells::requested_duration)),
            text("Condition", Source::Call(cells::request_condition)),
        ],
    ),
    ("ClusterTrustBundle", &[NAME, text("SignerName", Source::At("/spec/signerName", "<none>"))]),
    (
        "PodCertificateRequest",
        &[
            NAME,
            text("PodName", Source::At("/spec/podName", "")),
            text("ServiceAccountName", Source::At("/spec/serviceAccountName", "")),
            text("NodeName", Source::At("/spec/nodeName", "")),
            text("SignerName", Source::At("/spec/signerName", "")),
            text("State", Source::Call(cells::pod_request_state)),
            text("UnverifiedUserAnnotations", Source::Call(cells::pod_request_annotations)),
        ],
    ),
    (
        "IngressClass",
        &[
            NAME,
            text("Controller", Source::At("/spec/controller", "")),
            text("Parameters", Source::Call(cells::class_parameters)),
            AGE,
        ],
    ),
    (
        "Ingress",
        &[
            NAME,
            text("Class", Source::At("/spec/ingressClassName", "<none>")),
            text("Hosts", Source::Call(cells::hosts)),
            text("Address", Source::Call(cells::ingress_address)),
            text("Ports", Source::Call(cells::ingress_ports)),
            AGE,
        ],
    ),
    ("IPAddress", &[NAME, text("ParentRef", Source::Call(cells::parent)), AGE]),
    ("NetworkPolicy", &[NAME, text("Pod-Selector", Source::Call(cells::pod_selector)), AGE]),
    ("ServiceCIDR", &[NAME, text("CIDRs", Source::Call(cells::ranges)), AGE]),
    (
        "PodDisruptionBudget",
        &[
            NAME,
            text("Min Available", Source::Call(cells::min_available)),
            text("Max Unavailable", Source::Call(cells::max_unavailable)),
            number("Allowed Disruptions", "/status/disruptionsAllowed"),
            AGE,
        ],
    ),
    ("ClusterRoleBinding", BINDING),
    ("RoleBinding", BINDING),
    (
        "CSIDriver",
        &[
            NAME,
            flag("AttachRequired", "/spec/attachRequired"),
            flag("PodInfoOnMount", "/spec/podInfoOnMount"),
            flag("StorageCapacity", "/spec/storageCapacity"),
            text("TokenRequests", Source::Call(cells::token_requests)),
            flag("RequiresRepublish", "/spec/requiresRepublish"),
            text("Modes", Source::Call(cells::volume_lifecycle_modes)),
            AGE,
        ],
    ),
    ("CSINode", &[NAME, count("Drivers", "/spec/drivers"), AGE]),
    (
        "StorageClass",
        &[
            text("Name", Source::Call(cells::class_name)),
            text("Provisioner", Source::At("/provisioner", "")),
            text("ReclaimPolicy", Source::At("/reclaimPolicy", "Delete")),
            text("VolumeBindingMode", Source::At("/volumeBindingMode", "Immediate")),
            text("AllowVolumeExpansion", Source::Flag("/allowVolumeExpansion")),
            AGE,
        ],
    ),
    (
        "VolumeAttachment",
        &[
            NAME,
            text("Attacher", Source::At("/spec/attacher", "")),
            text("PV", Source::At("/spec/source/persistentVolumeName", "")),
            text("Node", Source::At("/spec/nodeName", "")),
            flag("Attached", "/status/attached"),
            AGE,
        ],
    ),
    ("VolumeAttributesClass", &[NAME, text("DriverName", Source::At("/driverName", "")), AGE]),
    ("MutatingWebhookConfiguration", WEBHOOKS),
    ("ValidatingWebhookConfiguration", WEBHOOKS),
    (
        "ValidatingAdmissionPolicy",
        &[
            NAME,
            count("Validations", "/spec/validations"),
            text("ParamKind", Source::Call(cells::param_kind)),
            AGE,
        ],
    ),
    (
        "MutatingAdmissionPolicy",
        &[
            NAME,
            count("Mutations", "/spec/mutations"),
            text("ParamKind", Source::Call(cells::param_kind)),
            AGE,
        ],
    ),
    ("ValidatingAdmissionPolicyBinding", POLICY_BINDING),
    ("MutatingAdmissionPolicyBinding", POLICY_BINDING),
    (
        "PriorityClass",
        &[
            NAME,
            number("Value", "/value"),
            flag("Global-Default", "/globalDefault"),
            AGE,
            text("PreemptionPolicy", Source::At("/preemptionPolicy", "")),
        ],
    ),
    ("Lease", &[NAME, text("Holder", Source::At("/spec/holderIdentity", "")), AGE]),
    ("RuntimeClass", &[NAME, text("Handler", Source::At("/handler", "")), AGE]),
    (
        "EndpointSlice",
        &[
            NAME,
            text("AddressType", Source::At("/addressType", "")),
            text("Ports", Source::Call(cells::slice_ports)),
            text("Endpoints", Source::Call(cells::slice_endpoints)),
            AGE,
        ],
    ),
    ("DeviceClass", &[NAME, AGE]),
    ("ResourceClaim", &[NAME, text("State", Source::Call(cells::claim_state)), AGE]),
    ("ResourceClaimTemplate", &[NAME, AGE]),
    (
        "ResourceSlice",
        &[
            NAME,
            text("Node", Source::At("/spec/nodeName", "<unset>")),
            text("Driver", Source::At("/spec/driver", "")),
            text("Pool", Source::At("/spec/pool/name", "")),
            AGE,
        ],
    ),
    (
        "CustomResourceDefinition",
        &[
            NAME,
            text("Scope", Source::At("/spec/scope", "")),
            text("Versions", Source::Call(cells::versions)),
            CREATED,
            wide("Group", Source::At("/spec/group", "")),
            wide("Kind", Source::At("/spec/names/kind", "")),
            wide("ShortNames", Source::Call(cells::short_names)),
            Column { kind: "boolean", ..wide("Established", Source::Call(cells::established)) },
        ],
    ),
    (
        "FlowSchema",
        &[
            NAME,
            text("PriorityLevel", Source::At("/spec/priorityLevelConfiguration/name", "")),
            text("MatchingPrecedence", Source::Number("/spec/matchingPrecedence")),
            text("DistinguisherMethod", Source::At("/spec/distinguisherMethod/type", "<none>")),
            AGE,
            text("MissingPL", Source::Call(cells::missing_level)),
        ],
    ),
    (
        "PriorityLevelConfiguration",
        &[
            NAME,
            text("Type", Source::At("/spec/type", "")),
            text("NominalConcurrencyShares", Source::At("/spec/limited/nominalConcurrencyShares", "<none>")),
            text("Queues", Source::At("/spec/limited/limitResponse/queuing/queues", "<none>")),
            text("HandSize", Source::At("/spec/limited/limitResponse/queuing/handSize", "<none>")),
            text(
                "QueueLengthLimit",
                Source::At("/spec/limited/limitResponse/queuing/queueLengthLimit", "<none>"),
            ),
            AGE,
        ],
    ),
    (
        "DeviceTaintRule",
        &[
            NAME,
            text("Key", Source::At("/spec/taint/key", "")),
            text("Value", Source::At("/spec/taint/value", "")),
            text("Effect", Source::At("/spec/taint/effect", "")),
            text("TimeAdded", Source::Call(cells::taint_age)),
            AGE,
        ],
    ),
    (
        "StorageVersionMigration",
        &[
            // Unlike elsewhere, this column has no format.
            text("Name", Source::At("/metadata/name", "")),
            text("Resource", Source::Call(cells::migrated_resource)),
            text("Status", Source::Call(cells::migration_status)),
        ],
    ),
];
