//! The fields of the transcoded kinds, as of v1.37.
//!
//! Field numbers are part of the API: they never change. A scenario reads objects in both encodings from a real server
//! and compares them.

use super::Field::{
    Bool, BoolSet, Inline, Int, IntOrString, IntSet, Ints, Map, Part, Parts, Quantities, Quantity, Skipped, Text, TextSet,
    Texts, Time,
};
use super::FullMessage;

static OWNER_REFERENCE: FullMessage = FullMessage(&[
    (1, "kind", TextSet), (3, "name", TextSet), (4, "uid", Text), (5, "apiVersion", TextSet),
    (6, "controller", BoolSet), (7, "blockOwnerDeletion", BoolSet),
]);

/// The server restores the skipped fields on a PUT.
static OBJECT_META: FullMessage = FullMessage(&[
    (1, "name", Text), (2, "generateName", Text), (3, "namespace", Text), (4, "selfLink", Skipped), (5, "uid", Text),
    (6, "resourceVersion", Text), (7, "generation", Int), (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time), (10, "deletionGracePeriodSeconds", IntSet), (11, "labels", Map),
    (12, "annotations", Map), (13, "ownerReferences", Parts(&OWNER_REFERENCE)), (14, "finalizers", Texts),
    (17, "managedFields", Skipped),
]);

/// Metadata inside an object, such as that of a pod template; all of it is kept.
static INNER_META: FullMessage = FullMessage(&[
    (1, "name", Text), (2, "generateName", Text), (3, "namespace", Text), (4, "selfLink", Text), (5, "uid", Text),
    (6, "resourceVersion", Text), (7, "generation", Int), (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time), (10, "deletionGracePeriodSeconds", IntSet), (11, "labels", Map),
    (12, "annotations", Map), (13, "ownerReferences", Parts(&OWNER_REFERENCE)), (14, "finalizers", Texts),
]);

static LABEL_SELECTOR_REQUIREMENT: FullMessage = FullMessage(&[
    (1, "key", TextSet), (2, "operator", TextSet), (3, "values", Texts),
]);

static LABEL_SELECTOR: FullMessage = FullMessage(&[
    (1, "matchLabels", Map), (2, "matchExpressions", Parts(&LABEL_SELECTOR_REQUIREMENT)),
]);

static HOST_PATH_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "path", TextSet), (2, "type", TextSet)]);

static EMPTY_DIR_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "medium", Text), (2, "sizeLimit", Quantity), (3, "mode", IntSet),
]);

static GCE_PERSISTENT_DISK_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "pdName", TextSet), (2, "fsType", Text), (3, "partition", Int), (4, "readOnly", Bool),
]);

static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "volumeID", TextSet), (2, "fsType", Text), (3, "partition", Int), (4, "readOnly", Bool),
]);

static GIT_REPO_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "repository", TextSet), (2, "revision", Text), (3, "directory", Text),
]);

static KEY_TO_PATH: FullMessage = FullMessage(&[
    (1, "key", TextSet), (2, "path", TextSet), (3, "mode", IntSet), (4, "user", IntSet),
]);

static SECRET_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "secretName", Text), (2, "items", Parts(&KEY_TO_PATH)), (3, "defaultMode", IntSet), (4, "optional", BoolSet),
    (5, "defaultUser", IntSet),
]);

static NFS_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "server", TextSet), (2, "path", TextSet), (3, "readOnly", Bool)]);

static LOCAL_OBJECT_REFERENCE: FullMessage = FullMessage(&[(1, "name", Text)]);

static ISCSI_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "targetPortal", TextSet), (2, "iqn", TextSet), (3, "lun", IntSet), (4, "iscsiInterface", Text),
    (5, "fsType", Text), (6, "readOnly", Bool), (7, "portals", Texts), (8, "chapAuthDiscovery", Bool),
    (10, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)), (11, "chapAuthSession", Bool), (12, "initiatorName", TextSet),
]);

static GLUSTERFS_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "endpoints", TextSet), (2, "path", TextSet), (3, "readOnly", Bool),
]);

static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "claimName", TextSet), (2, "readOnly", Bool)]);

static RBD_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "monitors", Texts), (2, "image", TextSet), (3, "fsType", Text), (4, "pool", Text), (5, "user", Text),
    (6, "keyring", Text), (7, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)), (8, "readOnly", Bool),
]);

static FLEX_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "driver", TextSet), (2, "fsType", Text), (3, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)),
    (4, "readOnly", Bool), (5, "options", Map),
]);

static CINDER_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "volumeID", TextSet), (2, "fsType", Text), (3, "readOnly", Bool),
    (4, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)),
]);

static CEPH_FS_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "monitors", Texts), (2, "path", Text), (3, "user", Text), (4, "secretFile", Text),
    (5, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)), (6, "readOnly", Bool),
]);

static FLOCKER_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "datasetName", Text), (2, "datasetUUID", Text)]);

static OBJECT_FIELD_SELECTOR: FullMessage = FullMessage(&[(1, "apiVersion", Text), (2, "fieldPath", TextSet)]);

static RESOURCE_FIELD_SELECTOR: FullMessage = FullMessage(&[
    (1, "containerName", Text), (2, "resource", TextSet), (3, "divisor", Quantity),
]);

static DOWNWARD_API_VOLUME_FILE: FullMessage = FullMessage(&[
    (1, "path", TextSet), (2, "fieldRef", Part(&OBJECT_FIELD_SELECTOR)),
    (3, "resourceFieldRef", Part(&RESOURCE_FIELD_SELECTOR)), (4, "mode", IntSet), (5, "user", IntSet),
]);

static DOWNWARD_API_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "items", Parts(&DOWNWARD_API_VOLUME_FILE)), (2, "defaultMode", IntSet), (3, "defaultUser", IntSet),
]);

static FC_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "targetWWNs", Texts), (2, "lun", IntSet), (3, "fsType", Text), (4, "readOnly", Bool), (5, "wwids", Texts),
]);

static AZURE_FILE_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "secretName", TextSet), (2, "shareName", TextSet), (3, "readOnly", Bool),
]);

static CONFIG_MAP_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "items", Parts(&KEY_TO_PATH)), (3, "defaultMode", IntSet),
    (4, "optional", BoolSet), (5, "defaultUser", IntSet),
]);

static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "volumePath", TextSet), (2, "fsType", Text), (3, "storagePolicyName", Text), (4, "storagePolicyID", Text),
]);

static QUOBYTE_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "registry", TextSet), (2, "volume", TextSet), (3, "readOnly", Bool), (4, "user", Text), (5, "group", Text),
    (6, "tenant", Text),
]);

static AZURE_DISK_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "diskName", TextSet), (2, "diskURI", TextSet), (3, "cachingMode", TextSet), (4, "fsType", TextSet),
    (5, "readOnly", BoolSet), (6, "kind", TextSet),
]);

static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "pdID", TextSet), (2, "fsType", Text)]);

static SECRET_PROJECTION: FullMessage = FullMessage(&[
    (1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "items", Parts(&KEY_TO_PATH)), (4, "optional", BoolSet),
]);

static DOWNWARD_API_PROJECTION: FullMessage = FullMessage(&[(1, "items", Parts(&DOWNWARD_API_VOLUME_FILE))]);

static CONFIG_MAP_PROJECTION: FullMessage = FullMessage(&[
    (1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "items", Parts(&KEY_TO_PATH)), (4, "optional", BoolSet),
]);

static SERVICE_ACCOUNT_TOKEN_PROJECTION: FullMessage = FullMessage(&[
    (1, "audience", Text), (2, "expirationSeconds", IntSet), (3, "path", TextSet), (4, "user", IntSet),
]);

static CLUSTER_TRUST_BUNDLE_PROJECTION: FullMessage = FullMessage(&[
    (1, "name", TextSet), (2, "signerName", TextSet), (3, "labelSelector", Part(&LABEL_SELECTOR)),
    (4, "path", TextSet), (5, "optional", BoolSet), (6, "user", IntSet),
]);

static POD_CERTIFICATE_PROJECTION: FullMessage = FullMessage(&[
    (1, "signerName", Text), (2, "keyType", Text), (3, "maxExpirationSeconds", IntSet),
    (4, "credentialBundlePath", Text), (5, "keyPath", Text), (6, "certificateChainPath", Text),
    (7, "userAnnotations", Map), (8, "user", IntSet),
]);

static VOLUME_PROJECTION: FullMessage = FullMessage(&[
    (1, "secret", Part(&SECRET_PROJECTION)), (2, "downwardAPI", Part(&DOWNWARD_API_PROJECTION)),
    (3, "configMap", Part(&CONFIG_MAP_PROJECTION)),
    (4, "serviceAccountToken", Part(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    (5, "clusterTrustBundle", Part(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    (6, "podCertificate", Part(&POD_CERTIFICATE_PROJECTION)),
]);

static PROJECTED_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "sources", Parts(&VOLUME_PROJECTION)), (2, "defaultMode", IntSet), (3, "defaultUser", IntSet),
]);

static PORTWORX_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "volumeID", TextSet), (2, "fsType", Text), (3, "readOnly", Bool)]);

static SCALE_IO_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "gateway", TextSet), (2, "system", TextSet), (3, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)),
    (4, "sslEnabled", Bool), (5, "protectionDomain", Text), (6, "storagePool", Text), (7, "storageMode", Text),
    (8, "volumeName", Text), (9, "fsType", Text), (10, "readOnly", Bool),
]);

static STORAGE_OS_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "volumeName", Text), (2, "volumeNamespace", Text), (3, "fsType", Text), (4, "readOnly", Bool),
    (5, "secretRef", Part(&LOCAL_OBJECT_REFERENCE)),
]);

static CSI_VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "driver", TextSet), (2, "readOnly", BoolSet), (3, "fsType", TextSet), (4, "volumeAttributes", Map),
    (5, "nodePublishSecretRef", Part(&LOCAL_OBJECT_REFERENCE)),
]);

static VOLUME_RESOURCE_REQUIREMENTS: FullMessage = FullMessage(&[(1, "limits", Quantities), (2, "requests", Quantities)]);

static TYPED_LOCAL_OBJECT_REFERENCE: FullMessage = FullMessage(&[
    (1, "apiGroup", TextSet), (2, "kind", TextSet), (3, "name", TextSet),
]);

static TYPED_OBJECT_REFERENCE: FullMessage = FullMessage(&[
    (1, "apiGroup", TextSet), (2, "kind", TextSet), (3, "name", TextSet), (4, "namespace", TextSet),
]);

static PERSISTENT_VOLUME_CLAIM_SPEC: FullMessage = FullMessage(&[
    (1, "accessModes", Texts), (2, "resources", Part(&VOLUME_RESOURCE_REQUIREMENTS)), (3, "volumeName", Text),
    (4, "selector", Part(&LABEL_SELECTOR)), (5, "storageClassName", TextSet), (6, "volumeMode", TextSet),
    (7, "dataSource", Part(&TYPED_LOCAL_OBJECT_REFERENCE)), (8, "dataSourceRef", Part(&TYPED_OBJECT_REFERENCE)),
    (9, "volumeAttributesClassName", TextSet),
]);

static PERSISTENT_VOLUME_CLAIM_TEMPLATE: FullMessage = FullMessage(&[
    (1, "metadata", Part(&INNER_META)), (2, "spec", Part(&PERSISTENT_VOLUME_CLAIM_SPEC)),
]);

static EPHEMERAL_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "volumeClaimTemplate", Part(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))]);

static IMAGE_VOLUME_SOURCE: FullMessage = FullMessage(&[(1, "reference", Text), (2, "pullPolicy", Text)]);

static VOLUME_SOURCE: FullMessage = FullMessage(&[
    (1, "hostPath", Part(&HOST_PATH_VOLUME_SOURCE)), (2, "emptyDir", Part(&EMPTY_DIR_VOLUME_SOURCE)),
    (3, "gcePersistentDisk", Part(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    (4, "awsElasticBlockStore", Part(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    (5, "gitRepo", Part(&GIT_REPO_VOLUME_SOURCE)), (6, "secret", Part(&SECRET_VOLUME_SOURCE)),
    (7, "nfs", Part(&NFS_VOLUME_SOURCE)), (8, "iscsi", Part(&ISCSI_VOLUME_SOURCE)),
    (9, "glusterfs", Part(&GLUSTERFS_VOLUME_SOURCE)),
    (10, "persistentVolumeClaim", Part(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    (11, "rbd", Part(&RBD_VOLUME_SOURCE)), (12, "flexVolume", Part(&FLEX_VOLUME_SOURCE)),
    (13, "cinder", Part(&CINDER_VOLUME_SOURCE)), (14, "cephfs", Part(&CEPH_FS_VOLUME_SOURCE)),
    (15, "flocker", Part(&FLOCKER_VOLUME_SOURCE)), (16, "downwardAPI", Part(&DOWNWARD_API_VOLUME_SOURCE)),
    (17, "fc", Part(&FC_VOLUME_SOURCE)), (18, "azureFile", Part(&AZURE_FILE_VOLUME_SOURCE)),
    (19, "configMap", Part(&CONFIG_MAP_VOLUME_SOURCE)),
    (20, "vsphereVolume", Part(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)), (21, "quobyte", Part(&QUOBYTE_VOLUME_SOURCE)),
    (22, "azureDisk", Part(&AZURE_DISK_VOLUME_SOURCE)),
    (23, "photonPersistentDisk", Part(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    (24, "portworxVolume", Part(&PORTWORX_VOLUME_SOURCE)), (25, "scaleIO", Part(&SCALE_IO_VOLUME_SOURCE)),
    (26, "projected", Part(&PROJECTED_VOLUME_SOURCE)), (27, "storageos", Part(&STORAGE_OS_VOLUME_SOURCE)),
    (28, "csi", Part(&CSI_VOLUME_SOURCE)), (29, "ephemeral", Part(&EPHEMERAL_VOLUME_SOURCE)),
    (30, "image", Part(&IMAGE_VOLUME_SOURCE)),
]);

static VOLUME: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "", Inline(&VOLUME_SOURCE))]);

static CONTAINER_PORT: FullMessage = FullMessage(&[
    (1, "name", Text), (2, "hostPort", Int), (3, "containerPort", IntSet), (4, "protocol", Text), (5, "hostIP", Text),
]);

static CONFIG_MAP_ENV_SOURCE: FullMessage = FullMessage(&[(1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "optional", BoolSet)]);

static SECRET_ENV_SOURCE: FullMessage = FullMessage(&[(1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "optional", BoolSet)]);

static ENV_FROM_SOURCE: FullMessage = FullMessage(&[
    (1, "prefix", Text), (2, "configMapRef", Part(&CONFIG_MAP_ENV_SOURCE)),
    (3, "secretRef", Part(&SECRET_ENV_SOURCE)),
]);

static CONFIG_MAP_KEY_SELECTOR: FullMessage = FullMessage(&[
    (1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "key", TextSet), (3, "optional", BoolSet),
]);

static SECRET_KEY_SELECTOR: FullMessage = FullMessage(&[
    (1, "", Inline(&LOCAL_OBJECT_REFERENCE)), (2, "key", TextSet), (3, "optional", BoolSet),
]);

static FILE_KEY_SELECTOR: FullMessage = FullMessage(&[
    (1, "volumeName", TextSet), (2, "path", TextSet), (3, "key", TextSet), (4, "optional", BoolSet),
]);

static ENV_VAR_SOURCE: FullMessage = FullMessage(&[
    (1, "fieldRef", Part(&OBJECT_FIELD_SELECTOR)), (2, "resourceFieldRef", Part(&RESOURCE_FIELD_SELECTOR)),
    (3, "configMapKeyRef", Part(&CONFIG_MAP_KEY_SELECTOR)), (4, "secretKeyRef", Part(&SECRET_KEY_SELECTOR)),
    (5, "fileKeyRef", Part(&FILE_KEY_SELECTOR)),
]);

static ENV_VAR: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "value", Text), (3, "valueFrom", Part(&ENV_VAR_SOURCE))]);

static RESOURCE_CLAIM: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "request", Text)]);

static RESOURCE_REQUIREMENTS: FullMessage = FullMessage(&[
    (1, "limits", Quantities), (2, "requests", Quantities), (3, "claims", Parts(&RESOURCE_CLAIM)),
]);

static CONTAINER_RESIZE_POLICY: FullMessage = FullMessage(&[(1, "resourceName", TextSet), (2, "restartPolicy", TextSet)]);

static CONTAINER_RESTART_RULE_ON_EXIT_CODES: FullMessage = FullMessage(&[(1, "operator", Text), (2, "values", Ints)]);

static CONTAINER_RESTART_RULE: FullMessage = FullMessage(&[
    (1, "action", Text), (2, "exitCodes", Part(&CONTAINER_RESTART_RULE_ON_EXIT_CODES)),
]);

static VOLUME_MOUNT: FullMessage = FullMessage(&[
    (1, "name", TextSet), (2, "readOnly", Bool), (3, "mountPath", TextSet), (4, "subPath", Text),
    (5, "mountPropagation", TextSet), (6, "subPathExpr", Text), (7, "recursiveReadOnly", TextSet),
    (8, "bindMountOptions", Texts),
]);

static VOLUME_DEVICE: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "devicePath", TextSet)]);

static EXEC_ACTION: FullMessage = FullMessage(&[(1, "command", Texts)]);

static HTTP_HEADER: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "value", TextSet)]);

static HTTP_GET_ACTION: FullMessage = FullMessage(&[
    (1, "path", Text), (2, "port", IntOrString), (3, "host", Text), (4, "scheme", Text),
    (5, "httpHeaders", Parts(&HTTP_HEADER)), (6, "protocol", TextSet),
]);

static TCP_SOCKET_ACTION: FullMessage = FullMessage(&[(1, "port", IntOrString), (2, "host", Text)]);

static GRPC_ACTION: FullMessage = FullMessage(&[(1, "port", IntSet), (2, "service", TextSet), (3, "mode", TextSet)]);

static PROBE_HANDLER: FullMessage = FullMessage(&[
    (1, "exec", Part(&EXEC_ACTION)), (2, "httpGet", Part(&HTTP_GET_ACTION)),
    (3, "tcpSocket", Part(&TCP_SOCKET_ACTION)), (4, "grpc", Part(&GRPC_ACTION)),
]);

static PROBE: FullMessage = FullMessage(&[
    (1, "", Inline(&PROBE_HANDLER)), (2, "initialDelaySeconds", Int), (3, "timeoutSeconds", Int),
    (4, "periodSeconds", Int), (5, "successThreshold", Int), (6, "failureThreshold", Int),
    (7, "terminationGracePeriodSeconds", IntSet),
]);

static SLEEP_ACTION: FullMessage = FullMessage(&[(1, "seconds", IntSet)]);

static LIFECYCLE_HANDLER: FullMessage = FullMessage(&[
    (1, "exec", Part(&EXEC_ACTION)), (2, "httpGet", Part(&HTTP_GET_ACTION)),
    (3, "tcpSocket", Part(&TCP_SOCKET_ACTION)), (4, "sleep", Part(&SLEEP_ACTION)),
]);

static LIFECYCLE: FullMessage = FullMessage(&[
    (1, "postStart", Part(&LIFECYCLE_HANDLER)), (2, "preStop", Part(&LIFECYCLE_HANDLER)), (3, "stopSignal", TextSet),
]);

static CAPABILITIES: FullMessage = FullMessage(&[(1, "add", Texts), (2, "drop", Texts)]);

static SE_LINUX_OPTIONS: FullMessage = FullMessage(&[
    (1, "user", Text), (2, "role", Text), (3, "type", Text), (4, "level", Text),
]);

static WINDOWS_SECURITY_CONTEXT_OPTIONS: FullMessage = FullMessage(&[
    (1, "gmsaCredentialSpecName", TextSet), (2, "gmsaCredentialSpec", TextSet), (3, "runAsUserName", TextSet),
    (4, "hostProcess", BoolSet),
]);

static SECCOMP_PROFILE: FullMessage = FullMessage(&[(1, "type", TextSet), (2, "localhostProfile", TextSet)]);

static APP_ARMOR_PROFILE: FullMessage = FullMessage(&[(1, "type", TextSet), (2, "localhostProfile", TextSet)]);

static SECURITY_CONTEXT: FullMessage = FullMessage(&[
    (1, "capabilities", Part(&CAPABILITIES)), (2, "privileged", BoolSet),
    (3, "seLinuxOptions", Part(&SE_LINUX_OPTIONS)), (4, "runAsUser", IntSet), (5, "runAsNonRoot", BoolSet),
    (6, "readOnlyRootFilesystem", BoolSet), (7, "allowPrivilegeEscalation", BoolSet), (8, "runAsGroup", IntSet),
    (9, "procMount", TextSet), (10, "windowsOptions", Part(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    (11, "seccompProfile", Part(&SECCOMP_PROFILE)), (12, "appArmorProfile", Part(&APP_ARMOR_PROFILE)),
]);

static CONTAINER: FullMessage = FullMessage(&[
    (1, "name", TextSet), (2, "image", Text), (3, "command", Texts), (4, "args", Texts), (5, "workingDir", Text),
    (6, "ports", Parts(&CONTAINER_PORT)), (7, "env", Parts(&ENV_VAR)), (8, "resources", Part(&RESOURCE_REQUIREMENTS)),
    (9, "volumeMounts", Parts(&VOLUME_MOUNT)), (10, "livenessProbe", Part(&PROBE)),
    (11, "readinessProbe", Part(&PROBE)), (12, "lifecycle", Part(&LIFECYCLE)), (13, "terminationMessagePath", Text),
    (14, "imagePullPolicy", Text), (15, "securityContext", Part(&SECURITY_CONTEXT)), (16, "stdin", Bool),
    (17, "stdinOnce", Bool), (18, "tty", Bool), (19, "envFrom", Parts(&ENV_FROM_SOURCE)),
    (20, "terminationMessagePolicy", Text), (21, "volumeDevices", Parts(&VOLUME_DEVICE)),
    (22, "startupProbe", Part(&PROBE)), (23, "resizePolicy", Parts(&CONTAINER_RESIZE_POLICY)),
    (24, "restartPolicy", TextSet), (25, "restartPolicyRules", Parts(&CONTAINER_RESTART_RULE)),
]);

/// It has the fields of a container under the same numbers.
static EPHEMERAL_CONTAINER: FullMessage = FullMessage(&[(1, "", Inline(&CONTAINER)), (2, "targetContainerName", Text)]);

static SYSCTL: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "value", TextSet)]);

static POD_SECURITY_CONTEXT: FullMessage = FullMessage(&[
    (1, "seLinuxOptions", Part(&SE_LINUX_OPTIONS)), (2, "runAsUser", IntSet), (3, "runAsNonRoot", BoolSet),
    (4, "supplementalGroups", Ints), (5, "fsGroup", IntSet), (6, "runAsGroup", IntSet),
    (7, "sysctls", Parts(&SYSCTL)), (8, "windowsOptions", Part(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    (9, "fsGroupChangePolicy", TextSet), (10, "seccompProfile", Part(&SECCOMP_PROFILE)),
    (11, "appArmorProfile", Part(&APP_ARMOR_PROFILE)), (12, "supplementalGroupsPolicy", TextSet),
    (13, "seLinuxChangePolicy", TextSet),
]);

static NODE_SELECTOR_REQUIREMENT: FullMessage = FullMessage(&[
    (1, "key", TextSet), (2, "operator", TextSet), (3, "values", Texts),
]);

static NODE_SELECTOR_TERM: FullMessage = FullMessage(&[
    (1, "matchExpressions", Parts(&NODE_SELECTOR_REQUIREMENT)), (2, "matchFields", Parts(&NODE_SELECTOR_REQUIREMENT)),
]);

static NODE_SELECTOR: FullMessage = FullMessage(&[(1, "nodeSelectorTerms", Parts(&NODE_SELECTOR_TERM))]);

static PREFERRED_SCHEDULING_TERM: FullMessage = FullMessage(&[
    (1, "weight", IntSet), (2, "preference", Part(&NODE_SELECTOR_TERM)),
]);

static NODE_AFFINITY: FullMessage = FullMessage(&[
    (1, "requiredDuringSchedulingIgnoredDuringExecution", Part(&NODE_SELECTOR)),
    (2, "preferredDuringSchedulingIgnoredDuringExecution", Parts(&PREFERRED_SCHEDULING_TERM)),
]);

static POD_AFFINITY_TERM: FullMessage = FullMessage(&[
    (1, "labelSelector", Part(&LABEL_SELECTOR)), (2, "namespaces", Texts), (3, "topologyKey", TextSet),
    (4, "namespaceSelector", Part(&LABEL_SELECTOR)), (5, "matchLabelKeys", Texts), (6, "mismatchLabelKeys", Texts),
]);

static WEIGHTED_POD_AFFINITY_TERM: FullMessage = FullMessage(&[
    (1, "weight", IntSet), (2, "podAffinityTerm", Part(&POD_AFFINITY_TERM)),
]);

static POD_AFFINITY: FullMessage = FullMessage(&[
    (1, "requiredDuringSchedulingIgnoredDuringExecution", Parts(&POD_AFFINITY_TERM)),
    (2, "preferredDuringSchedulingIgnoredDuringExecution", Parts(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static POD_ANTI_AFFINITY: FullMessage = FullMessage(&[
    (1, "requiredDuringSchedulingIgnoredDuringExecution", Parts(&POD_AFFINITY_TERM)),
    (2, "preferredDuringSchedulingIgnoredDuringExecution", Parts(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static AFFINITY: FullMessage = FullMessage(&[
    (1, "nodeAffinity", Part(&NODE_AFFINITY)), (2, "podAffinity", Part(&POD_AFFINITY)),
    (3, "podAntiAffinity", Part(&POD_ANTI_AFFINITY)),
]);

static TOLERATION: FullMessage = FullMessage(&[
    (1, "key", Text), (2, "operator", Text), (3, "value", Text), (4, "effect", Text),
    (5, "tolerationSeconds", IntSet),
]);

static HOST_ALIAS: FullMessage = FullMessage(&[(1, "ip", TextSet), (2, "hostnames", Texts)]);

static POD_DNS_CONFIG_OPTION: FullMessage = FullMessage(&[(1, "name", Text), (2, "value", TextSet)]);

static POD_DNS_CONFIG: FullMessage = FullMessage(&[
    (1, "nameservers", Texts), (2, "searches", Texts), (3, "options", Parts(&POD_DNS_CONFIG_OPTION)),
]);

static POD_READINESS_GATE: FullMessage = FullMessage(&[(1, "conditionType", TextSet)]);

static TOPOLOGY_SPREAD_CONSTRAINT: FullMessage = FullMessage(&[
    (1, "maxSkew", IntSet), (2, "topologyKey", TextSet), (3, "whenUnsatisfiable", TextSet),
    (4, "labelSelector", Part(&LABEL_SELECTOR)), (5, "minDomains", IntSet), (6, "nodeAffinityPolicy", TextSet),
    (7, "nodeTaintsPolicy", TextSet), (8, "matchLabelKeys", Texts),
]);

static POD_OS: FullMessage = FullMessage(&[(1, "name", TextSet)]);

static POD_SCHEDULING_GATE: FullMessage = FullMessage(&[(1, "name", TextSet)]);

static POD_RESOURCE_CLAIM: FullMessage = FullMessage(&[
    (1, "name", TextSet), (3, "resourceClaimName", TextSet), (4, "resourceClaimTemplateName", TextSet),
]);

static POD_SCHEDULING_GROUP: FullMessage = FullMessage(&[(1, "podGroupName", TextSet)]);

static EVICTION_RESPONDER: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "priority", IntSet)]);

static POD_SPEC: FullMessage = FullMessage(&[
    (1, "volumes", Parts(&VOLUME)), (2, "containers", Parts(&CONTAINER)), (3, "restartPolicy", Text),
    (4, "terminationGracePeriodSeconds", IntSet), (5, "activeDeadlineSeconds", IntSet), (6, "dnsPolicy", Text),
    (7, "nodeSelector", Map), (8, "serviceAccountName", Text), (9, "serviceAccount", Text), (10, "nodeName", Text),
    (11, "hostNetwork", Bool), (12, "hostPID", Bool), (13, "hostIPC", Bool),
    (14, "securityContext", Part(&POD_SECURITY_CONTEXT)), (15, "imagePullSecrets", Parts(&LOCAL_OBJECT_REFERENCE)),
    (16, "hostname", Text), (17, "subdomain", Text), (18, "affinity", Part(&AFFINITY)), (19, "schedulerName", Text),
    (20, "initContainers", Parts(&CONTAINER)), (21, "automountServiceAccountToken", BoolSet),
    (22, "tolerations", Parts(&TOLERATION)), (23, "hostAliases", Parts(&HOST_ALIAS)), (24, "priorityClassName", Text),
    (25, "priority", IntSet), (26, "dnsConfig", Part(&POD_DNS_CONFIG)), (27, "shareProcessNamespace", BoolSet),
    (28, "readinessGates", Parts(&POD_READINESS_GATE)), (29, "runtimeClassName", TextSet),
    (30, "enableServiceLinks", BoolSet), (31, "preemptionPolicy", TextSet), (32, "overhead", Quantities),
    (33, "topologySpreadConstraints", Parts(&TOPOLOGY_SPREAD_CONSTRAINT)),
    (34, "ephemeralContainers", Parts(&EPHEMERAL_CONTAINER)), (35, "setHostnameAsFQDN", BoolSet),
    (36, "os", Part(&POD_OS)), (37, "hostUsers", BoolSet), (38, "schedulingGates", Parts(&POD_SCHEDULING_GATE)),
    (39, "resourceClaims", Parts(&POD_RESOURCE_CLAIM)), (40, "resources", Part(&RESOURCE_REQUIREMENTS)),
    (41, "hostnameOverride", TextSet), (43, "schedulingGroup", Part(&POD_SCHEDULING_GROUP)),
    (44, "evictionResponders", Parts(&EVICTION_RESPONDER)),
]);

static POD_TEMPLATE_SPEC: FullMessage = FullMessage(&[(1, "metadata", Part(&INNER_META)), (2, "spec", Part(&POD_SPEC))]);

static REPLICA_SET_SPEC: FullMessage = FullMessage(&[
    (1, "replicas", IntSet), (2, "selector", Part(&LABEL_SELECTOR)), (3, "template", Part(&POD_TEMPLATE_SPEC)),
    (4, "minReadySeconds", Int),
]);

static REPLICA_SET_CONDITION: FullMessage = FullMessage(&[
    (1, "type", TextSet), (2, "status", TextSet), (3, "lastTransitionTime", Time), (4, "reason", Text),
    (5, "message", Text),
]);

static REPLICA_SET_STATUS: FullMessage = FullMessage(&[
    (1, "replicas", IntSet), (2, "fullyLabeledReplicas", Int), (3, "observedGeneration", Int),
    (4, "readyReplicas", Int), (5, "availableReplicas", Int), (6, "conditions", Parts(&REPLICA_SET_CONDITION)),
    (7, "terminatingReplicas", IntSet),
]);

pub(crate) static REPLICA_SET: FullMessage = FullMessage(&[
    (1, "metadata", Part(&OBJECT_META)), (2, "spec", Part(&REPLICA_SET_SPEC)),
    (3, "status", Part(&REPLICA_SET_STATUS)),
]);

static ROLLING_UPDATE_DEPLOYMENT: FullMessage = FullMessage(&[(1, "maxUnavailable", IntOrString), (2, "maxSurge", IntOrString)]);

static DEPLOYMENT_STRATEGY: FullMessage = FullMessage(&[
    (1, "type", Text), (2, "rollingUpdate", Part(&ROLLING_UPDATE_DEPLOYMENT)),
]);

static DEPLOYMENT_SPEC: FullMessage = FullMessage(&[
    (1, "replicas", IntSet), (2, "selector", Part(&LABEL_SELECTOR)), (3, "template", Part(&POD_TEMPLATE_SPEC)),
    (4, "strategy", Part(&DEPLOYMENT_STRATEGY)), (5, "minReadySeconds", Int), (6, "revisionHistoryLimit", IntSet),
    (7, "paused", Bool), (9, "progressDeadlineSeconds", IntSet),
]);

static DEPLOYMENT_CONDITION: FullMessage = FullMessage(&[
    (1, "type", TextSet), (2, "status", TextSet), (4, "reason", Text), (5, "message", Text),
    (6, "lastUpdateTime", Time), (7, "lastTransitionTime", Time),
]);

static DEPLOYMENT_STATUS: FullMessage = FullMessage(&[
    (1, "observedGeneration", Int), (2, "replicas", Int), (3, "updatedReplicas", Int), (4, "availableReplicas", Int),
    (5, "unavailableReplicas", Int), (6, "conditions", Parts(&DEPLOYMENT_CONDITION)), (7, "readyReplicas", Int),
    (8, "collisionCount", IntSet), (9, "terminatingReplicas", IntSet),
]);

pub(crate) static DEPLOYMENT: FullMessage = FullMessage(&[
    (1, "metadata", Part(&OBJECT_META)), (2, "spec", Part(&DEPLOYMENT_SPEC)), (3, "status", Part(&DEPLOYMENT_STATUS)),
]);

static TAINT: FullMessage = FullMessage(&[(1, "key", TextSet), (2, "value", Text), (3, "effect", TextSet), (4, "timeAdded", Time)]);

/// The fields of a Node that are read, and its conditions, which are written back.
static NODE_SPEC: FullMessage = FullMessage(&[
    (1, "podCIDR", Skipped), (2, "externalID", Skipped), (3, "providerID", Skipped), (4, "unschedulable", Bool),
    (5, "taints", Parts(&TAINT)), (6, "configSource", Skipped), (7, "podCIDRs", Skipped),
    (8, "podPreemptionPolicy", Skipped),
]);

static NODE_CONDITION: FullMessage = FullMessage(&[
    (1, "type", TextSet), (2, "status", TextSet), (3, "lastHeartbeatTime", Time), (4, "lastTransitionTime", Time),
    (5, "reason", Text), (6, "message", Text),
]);

static NODE_STATUS: FullMessage = FullMessage(&[
    (1, "capacity", Skipped), (2, "allocatable", Quantities), (3, "phase", Skipped),
    (4, "conditions", Parts(&NODE_CONDITION)), (5, "addresses", Skipped), (6, "daemonEndpoints", Skipped),
    (7, "nodeInfo", Skipped), (8, "images", Skipped), (9, "volumesInUse", Skipped), (10, "volumesAttached", Skipped),
    (11, "config", Skipped), (12, "runtimeHandlers", Skipped), (13, "features", Skipped),
    (14, "declaredFeatures", Skipped),
]);

pub(crate) static NODE: FullMessage = FullMessage(&[
    (1, "metadata", Part(&OBJECT_META)), (2, "spec", Part(&NODE_SPEC)), (3, "status", Part(&NODE_STATUS)),
]);

static OBJECT_REFERENCE: FullMessage = FullMessage(&[
    (1, "kind", Text), (2, "namespace", Text), (3, "name", Text), (4, "uid", Text), (5, "apiVersion", Text),
    (6, "resourceVersion", Text), (7, "fieldPath", Text),
]);

static ENDPOINT_CONDITIONS: FullMessage = FullMessage(&[
    (1, "ready", BoolSet), (2, "serving", BoolSet), (3, "terminating", BoolSet),
]);

/// A zone or a node in a hint.
static NAMED: FullMessage = FullMessage(&[(1, "name", TextSet)]);

static ENDPOINT_HINTS: FullMessage = FullMessage(&[(1, "forZones", Parts(&NAMED)), (2, "forNodes", Parts(&NAMED))]);

static ENDPOINT: FullMessage = FullMessage(&[
    (1, "addresses", Texts), (2, "conditions", Part(&ENDPOINT_CONDITIONS)), (3, "hostname", TextSet),
    (4, "targetRef", Part(&OBJECT_REFERENCE)), (5, "deprecatedTopology", Map), (6, "nodeName", TextSet),
    (7, "zone", TextSet), (8, "hints", Part(&ENDPOINT_HINTS)),
]);

static ENDPOINT_PORT: FullMessage = FullMessage(&[
    (1, "name", TextSet), (2, "protocol", TextSet), (3, "port", IntSet), (4, "appProtocol", TextSet),
]);

/// `discovery.k8s.io/v1` EndpointSlice.
pub(crate) static ENDPOINT_SLICE: FullMessage = FullMessage(&[
    (1, "metadata", Part(&OBJECT_META)), (2, "endpoints", Parts(&ENDPOINT)), (3, "ports", Parts(&ENDPOINT_PORT)),
    (4, "addressType", TextSet),
]);
