//! The protobuf numbers of the fields that are read.
//!
//! Field numbers are part of the API: they never change, and the number of a removed field is not reused.

/// The fields of a message that are read; all others are skipped.
#[derive(Debug)]
pub struct Message(pub &'static [(u32, &'static str, Shape)]);

/// The type of a field. Servers encode unset strings and numbers as empty and zero, where JSON omits them.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A string; empty means unset.
    Text,
    /// A number that is encoded only if it is set.
    Number,
    /// A number; zero means unset.
    Count,
    /// A boolean.
    Flag,
    /// A timestamp.
    Time,
    /// A message.
    Part(&'static Message),
    /// A message whose fields JSON inlines.
    Inline(&'static Message),
    /// Repeated strings.
    Texts,
    /// Repeated messages.
    Parts(&'static Message),
    /// A map of strings.
    Map,
    /// A string that is encoded only if it is set; empty differs from unset.
    TextIfSet,
    /// A map of quantities.
    Quantities,
}

use Shape::{Count, Flag, Inline, Map, Number, Part, Parts, Quantities, Text, TextIfSet, Texts, Time};

/// `ObjectMeta`.
static META: Message = Message(&[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Count),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", Number),
    (11, "labels", Map),
    (12, "annotations", Map),
    (13, "ownerReferences", Parts(&OWNER)),
    (14, "finalizers", Texts),
]);

static OWNER: Message = Message(&[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Flag),
    (7, "blockOwnerDeletion", Flag),
]);

/// The metadata of any object.
pub static PARTIAL: Message = Message(&[(1, "metadata", Part(&META))]);

/// `metav1.Status`.
pub static STATUS: Message = Message(&[
    (2, "status", Text),
    (3, "message", Text),
    (4, "reason", Text),
    (5, "details", Part(&STATUS_DETAILS)),
    (6, "code", Count),
]);

static STATUS_DETAILS: Message = Message(&[
    (1, "name", Text),
    (2, "group", Text),
    (3, "kind", Text),
    (4, "causes", Parts(&STATUS_CAUSE)),
    (5, "retryAfterSeconds", Count),
    (6, "uid", Text),
]);

static STATUS_CAUSE: Message = Message(&[(1, "reason", Text), (2, "message", Text), (3, "field", Text)]);

/// `coordination.k8s.io/v1` Lease.
pub(crate) static LEASE: Message = Message(&[(1, "metadata", Part(&META)), (2, "spec", Part(&LEASE_SPEC))]);

static LEASE_SPEC: Message =
    Message(&[(1, "holderIdentity", Text), (2, "leaseDurationSeconds", Number), (4, "renewTime", Time)]);

/// `v1` Pod.
pub(crate) static POD: Message =
    Message(&[(1, "metadata", Part(&META)), (2, "spec", Part(&POD_SPEC)), (3, "status", Part(&POD_STATUS))]);

static POD_SPEC: Message = Message(&[
    (1, "volumes", Parts(&VOLUME)),
    (2, "containers", Parts(&CONTAINER)),
    (3, "restartPolicy", Text),
    (4, "terminationGracePeriodSeconds", Number),
    (5, "activeDeadlineSeconds", Number),
    (10, "nodeName", Text),
    (11, "hostNetwork", Flag),
    (15, "imagePullSecrets", Parts(&LOCAL_REFERENCE)),
    (16, "hostname", Text),
    (17, "subdomain", Text),
    (18, "affinity", Part(&AFFINITY)),
    (20, "initContainers", Parts(&CONTAINER)),
    (22, "tolerations", Parts(&TOLERATION)),
    (24, "priorityClassName", Text),
    (25, "priority", Number),
    (32, "overhead", Quantities),
    (34, "ephemeralContainers", Parts(&EPHEMERAL_CONTAINER)),
    (39, "resourceClaims", Parts(&POD_RESOURCE_CLAIM)),
    (40, "resources", Part(&RESOURCES)),
    (43, "schedulingGroup", Part(&Message(&[(1, "podGroupName", Text)]))),
]);

static POD_RESOURCE_CLAIM: Message =
    Message(&[(1, "name", Text), (3, "resourceClaimName", Text), (4, "resourceClaimTemplateName", Text)]);

static RESOURCE_CLAIM_STATUS: Message = Message(&[(1, "name", Text), (2, "resourceClaimName", Text)]);

static RESOURCES: Message = Message(&[(1, "limits", Quantities), (2, "requests", Quantities)]);

static VOLUME: Message = Message(&[(1, "name", Text), (2, "", Inline(&VOLUME_SOURCE))]);

static VOLUME_SOURCE: Message = Message(&[
    (3, "gcePersistentDisk", Part(&GCE_PERSISTENT_DISK)),
    (4, "awsElasticBlockStore", Part(&AWS_ELASTIC_BLOCK_STORE)),
    (6, "secret", Part(&SECRET_NAME)),
    (8, "iscsi", Part(&INLINE_ISCSI)),
    (10, "persistentVolumeClaim", Part(&CLAIM)),
    (11, "rbd", Part(&Message(&[(7, "secretRef", Part(&LOCAL_REFERENCE))]))),
    (12, "flexVolume", Part(&INLINE_FLEX)),
    (13, "cinder", Part(&INLINE_CINDER)),
    (14, "cephfs", Part(&SECRET_REF_5)),
    (17, "fc", Part(&Message(&[(1, "targetWWNs", Texts), (2, "lun", Number), (5, "wwids", Texts)]))),
    (18, "azureFile", Part(&INLINE_AZURE_FILE)),
    (20, "vsphereVolume", Part(&INLINE_VSPHERE)),
    (22, "azureDisk", Part(&INLINE_AZURE_DISK)),
    (24, "portworxVolume", Part(&INLINE_PORTWORX)),
    (25, "scaleIO", Part(&SECRET_REF_3)),
    (26, "projected", Part(&Message(&[(1, "sources", Parts(&PROJECTED_SOURCE))]))),
    (27, "storageos", Part(&SECRET_REF_5)),
    (28, "csi", Part(&INLINE_CSI)),
    (29, "ephemeral", Part(&EMPTY)),
]);

static GCE_PERSISTENT_DISK: Message =
    Message(&[(1, "pdName", Text), (2, "fsType", Text), (3, "partition", Count), (4, "readOnly", Flag)]);

static AWS_ELASTIC_BLOCK_STORE: Message =
    Message(&[(1, "volumeID", Text), (2, "fsType", Text), (3, "partition", Count), (4, "readOnly", Flag)]);

static INLINE_ISCSI: Message = Message(&[
    (1, "targetPortal", Text),
    (2, "iqn", Text),
    (3, "lun", Number),
    (10, "secretRef", Part(&LOCAL_REFERENCE)),
]);

static INLINE_FLEX: Message = Message(&[(1, "driver", Text), (3, "secretRef", Part(&LOCAL_REFERENCE))]);

static INLINE_CINDER: Message = Message(&[
    (1, "volumeID", Text),
    (2, "fsType", Text),
    (3, "readOnly", Flag),
    (4, "secretRef", Part(&LOCAL_REFERENCE)),
]);

static INLINE_AZURE_FILE: Message =
    Message(&[(1, "secretName", Text), (2, "shareName", Text), (3, "readOnly", Flag)]);

static INLINE_VSPHERE: Message =
    Message(&[(1, "volumePath", Text), (2, "fsType", Text), (3, "storagePolicyName", Text)]);

static INLINE_AZURE_DISK: Message = Message(&[
    (2, "diskURI", Text),
    (3, "cachingMode", TextIfSet),
    (4, "fsType", TextIfSet),
    (5, "readOnly", Flag),
    (6, "kind", TextIfSet),
]);

static INLINE_PORTWORX: Message =
    Message(&[(1, "volumeID", Text), (2, "fsType", Text), (3, "readOnly", Flag)]);

static INLINE_CSI: Message =
    Message(&[(1, "driver", Text), (5, "nodePublishSecretRef", Part(&LOCAL_REFERENCE))]);

/// A message of which only the presence is read.
static EMPTY: Message = Message(&[]);

static LOCAL_REFERENCE: Message = Message(&[(1, "name", Text)]);

/// A message whose first field is an inlined `LocalObjectReference`.
static INLINED_REFERENCE: Message = Message(&[(1, "", Inline(&LOCAL_REFERENCE))]);

static SECRET_NAME: Message = Message(&[(1, "secretName", Text)]);

static SECRET_REF_3: Message = Message(&[(3, "secretRef", Part(&LOCAL_REFERENCE))]);

static SECRET_REF_5: Message = Message(&[(5, "secretRef", Part(&LOCAL_REFERENCE))]);

static PROJECTED_SOURCE: Message = Message(&[(1, "secret", Part(&INLINED_REFERENCE))]);

static CLAIM: Message = Message(&[(1, "claimName", Text)]);

static CONTAINER: Message = Message(&[
    (1, "name", Text),
    (6, "ports", Parts(&CONTAINER_PORT)),
    (7, "env", Parts(&ENV_VAR)),
    (8, "resources", Part(&RESOURCES)),
    (19, "envFrom", Parts(&Message(&[(3, "secretRef", Part(&INLINED_REFERENCE))]))),
    (24, "restartPolicy", Text),
]);

static EPHEMERAL_CONTAINER: Message = Message(&[(1, "", Inline(&CONTAINER))]);

static ENV_VAR: Message =
    Message(&[(3, "valueFrom", Part(&Message(&[(4, "secretKeyRef", Part(&INLINED_REFERENCE))])))]);

static CONTAINER_PORT: Message =
    Message(&[(1, "name", Text), (3, "containerPort", Number), (4, "protocol", Text)]);

static TOLERATION: Message = Message(&[
    (1, "key", Text),
    (2, "operator", Text),
    (3, "value", Text),
    (4, "effect", Text),
    (5, "tolerationSeconds", Number),
]);

static AFFINITY: Message = Message(&[
    (1, "nodeAffinity", Part(&NODE_AFFINITY)),
    (2, "podAffinity", Part(&POD_AFFINITY)),
    (3, "podAntiAffinity", Part(&POD_AFFINITY)),
]);

static POD_AFFINITY: Message = Message(&[
    (1, "requiredDuringSchedulingIgnoredDuringExecution", Parts(&POD_AFFINITY_TERM)),
    (2, "preferredDuringSchedulingIgnoredDuringExecution", Parts(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static WEIGHTED_POD_AFFINITY_TERM: Message = Message(&[(2, "podAffinityTerm", Part(&POD_AFFINITY_TERM))]);

static POD_AFFINITY_TERM: Message =
    Message(&[(2, "namespaces", Texts), (4, "namespaceSelector", Part(&EMPTY))]);

static NODE_AFFINITY: Message =
    Message(&[(1, "requiredDuringSchedulingIgnoredDuringExecution", Part(&NODE_SELECTOR))]);

static NODE_SELECTOR: Message = Message(&[(1, "nodeSelectorTerms", Parts(&NODE_SELECTOR_TERM))]);

static NODE_SELECTOR_TERM: Message =
    Message(&[(1, "matchExpressions", Parts(&EXPRESSION)), (2, "matchFields", Parts(&EXPRESSION))]);

static EXPRESSION: Message = Message(&[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)]);

static POD_STATUS: Message = Message(&[
    (1, "phase", Text),
    (2, "conditions", Parts(&POD_CONDITION)),
    (4, "reason", Text),
    (6, "podIP", Text),
    (7, "startTime", Time),
    (8, "containerStatuses", Parts(&CONTAINER_STATUS)),
    (9, "qosClass", Text),
    (10, "initContainerStatuses", Parts(&CONTAINER_STATUS)),
    (12, "podIPs", Parts(&POD_IP)),
    (13, "ephemeralContainerStatuses", Parts(&CONTAINER_STATUS)),
    (15, "resourceClaimStatuses", Parts(&RESOURCE_CLAIM_STATUS)),
    (18, "extendedResourceClaimStatus", Part(&Message(&[(2, "resourceClaimName", Text)]))),
]);

static POD_CONDITION: Message = Message(&[
    (1, "type", Text),
    (2, "status", Text),
    (3, "lastProbeTime", Time),
    (4, "lastTransitionTime", Time),
    (5, "reason", Text),
    (6, "message", Text),
    (7, "observedGeneration", Count),
]);

static POD_IP: Message = Message(&[(1, "ip", Text)]);

static CONTAINER_STATUS: Message = Message(&[
    (1, "name", Text),
    (2, "state", Part(&CONTAINER_STATE)),
    (5, "restartCount", Number),
    (10, "allocatedResources", Quantities),
    (11, "resources", Part(&RESOURCES)),
]);

static CONTAINER_STATE: Message =
    Message(&[(1, "waiting", Part(&EMPTY)), (3, "terminated", Part(&TERMINATED))]);

static TERMINATED: Message = Message(&[(1, "exitCode", Number), (6, "finishedAt", Time)]);

/// `ResourceClaim` of resource.k8s.io/v1.
pub(crate) static RESOURCE_CLAIM: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&Message(&[(1, "devices", Part(&DEVICE_CLAIM))]))),
    (3, "status", Part(&CLAIM_STATUS)),
]);

static DEVICE_CLAIM: Message = Message(&[(1, "requests", Parts(&DEVICE_REQUEST))]);

static DEVICE_REQUEST: Message =
    Message(&[(2, "exactly", Part(&EXACT_DEVICE_REQUEST)), (3, "firstAvailable", Parts(&DEVICE_SUBREQUEST))]);

static EXACT_DEVICE_REQUEST: Message = Message(&[
    (1, "deviceClassName", Text),
    (3, "allocationMode", Text),
    (4, "count", Count),
    (5, "adminAccess", Flag),
]);

static DEVICE_SUBREQUEST: Message =
    Message(&[(2, "deviceClassName", Text), (4, "allocationMode", Text), (5, "count", Count)]);

/// `DeviceClass` of resource.k8s.io/v1.
pub(crate) static DEVICE_CLASS: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&Message(&[(4, "extendedResourceName", Text)]))),
]);

static CLAIM_STATUS: Message =
    Message(&[(1, "allocation", Part(&ALLOCATION)), (2, "reservedFor", Parts(&CONSUMER))]);

static ALLOCATION: Message =
    Message(&[(1, "devices", Part(&Message(&[(1, "results", Parts(&ALLOCATED_DEVICE))])))]);

static ALLOCATED_DEVICE: Message = Message(&[
    (2, "driver", Text),
    (3, "pool", Text),
    (4, "device", Text),
    (6, "tolerations", Parts(&TOLERATION)),
]);

static CONSUMER: Message =
    Message(&[(1, "apiGroup", Text), (3, "resource", Text), (4, "name", Text), (5, "uid", Text)]);

/// `ResourceSlice` of resource.k8s.io/v1.
pub(crate) static RESOURCE_SLICE: Message =
    Message(&[(1, "metadata", Part(&META)), (2, "spec", Part(&RESOURCE_SLICE_SPEC))]);

static RESOURCE_SLICE_SPEC: Message = Message(&[
    (1, "driver", Text),
    (2, "pool", Part(&Message(&[(1, "name", Text), (2, "generation", Count)]))),
    (6, "devices", Parts(&DEVICE)),
]);

static DEVICE: Message = Message(&[(1, "name", Text), (8, "taints", Parts(&DEVICE_TAINT))]);

static DEVICE_TAINT: Message =
    Message(&[(1, "key", Text), (2, "value", Text), (3, "effect", Text), (4, "timeAdded", Time)]);

/// `DeviceTaintRule` of resource.k8s.io/v1.
pub(crate) static DEVICE_TAINT_RULE: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&DEVICE_TAINT_RULE_SPEC)),
    (3, "status", Part(&Message(&[(1, "conditions", Parts(&CONDITION))]))),
]);

static DEVICE_TAINT_RULE_SPEC: Message =
    Message(&[(1, "deviceSelector", Part(&DEVICE_TAINT_SELECTOR)), (2, "taint", Part(&DEVICE_TAINT))]);

static DEVICE_TAINT_SELECTOR: Message =
    Message(&[(2, "driver", Text), (3, "pool", Text), (4, "device", Text)]);

/// `metav1.Condition`.
static CONDITION: Message = Message(&[
    (1, "type", Text),
    (2, "status", Text),
    (3, "observedGeneration", Count),
    (4, "lastTransitionTime", Time),
    (5, "reason", Text),
    (6, "message", Text),
]);

/// `PodGroup` of scheduling.k8s.io/v1beta1.
pub(crate) static POD_GROUP: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&POD_GROUP_SPEC)),
    (3, "status", Part(&Message(&[(2, "resourceClaimStatuses", Parts(&RESOURCE_CLAIM_STATUS))]))),
]);

static POD_GROUP_SPEC: Message = Message(&[
    (2, "workloadRef", Part(&Message(&[(1, "workloadName", Text)]))),
    (3, "schedulingPolicy", Part(&Message(&[(2, "gang", Part(&Message(&[(1, "minCount", Count)])))]))),
    (5, "resourceClaims", Parts(&POD_GROUP_RESOURCE_CLAIM)),
]);

static POD_GROUP_RESOURCE_CLAIM: Message =
    Message(&[(1, "name", Text), (2, "resourceClaimName", Text), (3, "resourceClaimTemplateName", Text)]);

static LABEL_SELECTOR: Message =
    Message(&[(1, "matchLabels", Map), (2, "matchExpressions", Parts(&EXPRESSION))]);

/// `v1` PersistentVolumeClaim.
pub(crate) static PERSISTENT_VOLUME_CLAIM: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&CLAIM_SPEC)),
    (3, "status", Part(&VOLUME_CLAIM_STATUS)),
]);

static CLAIM_SPEC: Message = Message(&[
    (1, "accessModes", Texts),
    (2, "resources", Part(&Message(&[(2, "requests", Quantities)]))),
    (3, "volumeName", Text),
    (4, "selector", Part(&LABEL_SELECTOR)),
    (5, "storageClassName", TextIfSet),
    (6, "volumeMode", TextIfSet),
    (7, "dataSource", Part(&EMPTY)),
    (9, "volumeAttributesClassName", TextIfSet),
]);

static VOLUME_CLAIM_STATUS: Message = Message(&[
    (1, "phase", Text),
    (2, "accessModes", Texts),
    (3, "capacity", Quantities),
    (4, "conditions", Parts(&CLAIM_CONDITION)),
    (5, "allocatedResources", Quantities),
    (7, "allocatedResourceStatuses", Map),
    (8, "currentVolumeAttributesClassName", TextIfSet),
    (9, "modifyVolumeStatus", Part(&MODIFY_VOLUME_STATUS)),
]);

static CLAIM_CONDITION: Message = Message(&[
    (1, "type", Text),
    (2, "status", Text),
    (3, "lastProbeTime", Time),
    (4, "lastTransitionTime", Time),
    (5, "reason", Text),
    (6, "message", Text),
]);

static MODIFY_VOLUME_STATUS: Message =
    Message(&[(1, "targetVolumeAttributesClassName", Text), (2, "status", Text)]);

/// `v1` PersistentVolume.
pub(crate) static PERSISTENT_VOLUME: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&VOLUME_SPEC)),
    (3, "status", Part(&Message(&[(1, "phase", Text), (2, "message", Text)]))),
]);

static VOLUME_SPEC: Message = Message(&[
    (1, "capacity", Quantities),
    (2, "", Inline(&PERSISTENT_VOLUME_SOURCE)),
    (3, "accessModes", Texts),
    (4, "claimRef", Part(&CLAIM_REFERENCE)),
    (5, "persistentVolumeReclaimPolicy", Text),
    (6, "storageClassName", Text),
    (8, "volumeMode", TextIfSet),
    (9, "nodeAffinity", Part(&Message(&[(1, "required", Part(&NODE_SELECTOR))]))),
    (10, "volumeAttributesClassName", TextIfSet),
]);

static PERSISTENT_VOLUME_SOURCE: Message = Message(&[
    (1, "gcePersistentDisk", Part(&Message(&[(1, "pdName", Text)]))),
    (2, "awsElasticBlockStore", Part(&VOLUME_ID)),
    (3, "hostPath", Part(&Message(&[(1, "path", Text)]))),
    (5, "nfs", Part(&Message(&[(1, "server", Text), (2, "path", Text)]))),
    (7, "iscsi", Part(&Message(&[(1, "targetPortal", Text), (2, "iqn", Text), (3, "lun", Number)]))),
    (8, "cinder", Part(&VOLUME_ID)),
    (10, "fc", Part(&Message(&[(1, "targetWWNs", Texts), (2, "lun", Number), (5, "wwids", Texts)]))),
    (12, "flexVolume", Part(&Message(&[(1, "driver", Text)]))),
    (13, "azureFile", Part(&AZURE_FILE)),
    (14, "vsphereVolume", Part(&Message(&[(1, "volumePath", Text)]))),
    (16, "azureDisk", Part(&Message(&[(2, "diskURI", Text), (6, "kind", Text)]))),
    (18, "portworxVolume", Part(&VOLUME_ID)),
    (22, "csi", Part(&Message(&[(1, "driver", Text), (2, "volumeHandle", Text)]))),
]);

static VOLUME_ID: Message = Message(&[(1, "volumeID", Text)]);

static AZURE_FILE: Message =
    Message(&[(1, "secretName", Text), (2, "shareName", Text), (4, "secretNamespace", Text)]);

static CLAIM_REFERENCE: Message = Message(&[(2, "namespace", Text), (3, "name", Text), (4, "uid", Text)]);

/// `storage.k8s.io/v1` VolumeAttachment.
pub(crate) static VOLUME_ATTACHMENT: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&VOLUME_ATTACHMENT_SPEC)),
    (3, "status", Part(&VOLUME_ATTACHMENT_STATUS)),
]);

static VOLUME_ATTACHMENT_SPEC: Message = Message(&[
    (1, "attacher", Text),
    (2, "source", Part(&Message(&[(1, "persistentVolumeName", TextIfSet)]))),
    (3, "nodeName", Text),
]);

static VOLUME_ATTACHMENT_STATUS: Message = Message(&[
    (1, "attached", Flag),
    (3, "attachError", Part(&VOLUME_ERROR)),
    (4, "detachError", Part(&VOLUME_ERROR)),
]);

static VOLUME_ERROR: Message = Message(&[(2, "message", Text)]);

/// `storage.k8s.io/v1` StorageClass.
pub(crate) static STORAGE_CLASS: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "provisioner", Text),
    (4, "reclaimPolicy", TextIfSet),
    (5, "mountOptions", Texts),
    (7, "volumeBindingMode", TextIfSet),
]);

/// `storage.k8s.io/v1` VolumeAttributesClass.
pub(crate) static VOLUME_ATTRIBUTES_CLASS: Message =
    Message(&[(1, "metadata", Part(&META)), (2, "driverName", Text)]);

/// `storage.k8s.io/v1` CSIDriver.
pub(crate) static CSI_DRIVER: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&Message(&[(1, "attachRequired", Flag), (8, "seLinuxMount", Flag)]))),
]);

/// `v1` Pod with the SELinux labels of its volumes.
pub(crate) static SELINUX_POD: Message = Message(&[
    (1, "metadata", Part(&META)),
    (2, "spec", Part(&SELINUX_POD_SPEC)),
    (3, "status", Part(&Message(&[(1, "phase", Text)]))),
]);

static SELINUX_POD_SPEC: Message = Message(&[
    (1, "volumes", Parts(&Message(&[(1, "name", Text), (2, "", Inline(&INLINE_VOLUME_SOURCE))]))),
    (2, "containers", Parts(&SELINUX_CONTAINER)),
    (14, "securityContext", Part(&POD_SECURITY_CONTEXT)),
    (20, "initContainers", Parts(&SELINUX_CONTAINER)),
    (34, "ephemeralContainers", Parts(&Message(&[(1, "", Inline(&SELINUX_CONTAINER))]))),
]);

/// The fields of a volume of a pod that name the storage behind it.
static INLINE_VOLUME_SOURCE: Message = Message(&[
    (1, "hostPath", Part(&Message(&[(1, "path", Text)]))),
    (3, "gcePersistentDisk", Part(&Message(&[(1, "pdName", Text)]))),
    (4, "awsElasticBlockStore", Part(&VOLUME_ID)),
    (7, "nfs", Part(&Message(&[(1, "server", Text), (2, "path", Text)]))),
    (8, "iscsi", Part(&Message(&[(1, "targetPortal", Text), (2, "iqn", Text), (3, "lun", Number)]))),
    (10, "persistentVolumeClaim", Part(&CLAIM)),
    (12, "flexVolume", Part(&Message(&[(1, "driver", Text)]))),
    (13, "cinder", Part(&VOLUME_ID)),
    (17, "fc", Part(&Message(&[(1, "targetWWNs", Texts), (2, "lun", Number), (5, "wwids", Texts)]))),
    (18, "azureFile", Part(&Message(&[(1, "secretName", Text), (2, "shareName", Text)]))),
    (20, "vsphereVolume", Part(&Message(&[(1, "volumePath", Text)]))),
    (22, "azureDisk", Part(&Message(&[(2, "diskURI", Text)]))),
    (24, "portworxVolume", Part(&VOLUME_ID)),
    (28, "csi", Part(&Message(&[(1, "driver", Text)]))),
    (29, "ephemeral", Part(&EMPTY)),
]);

static SELINUX_CONTAINER: Message = Message(&[
    (9, "volumeMounts", Parts(&LOCAL_REFERENCE)),
    (15, "securityContext", Part(&Message(&[(3, "seLinuxOptions", Part(&SELINUX_OPTIONS))]))),
]);

static POD_SECURITY_CONTEXT: Message =
    Message(&[(1, "seLinuxOptions", Part(&SELINUX_OPTIONS)), (13, "seLinuxChangePolicy", TextIfSet)]);

static SELINUX_OPTIONS: Message =
    Message(&[(1, "user", Text), (2, "role", Text), (3, "type", Text), (4, "level", Text)]);
