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
}

use Shape::{Count, Flag, Inline, Map, Number, Part, Parts, Text, Texts, Time};

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
    (10, "nodeName", Text),
    (11, "hostNetwork", Flag),
    (16, "hostname", Text),
    (17, "subdomain", Text),
    (18, "affinity", Part(&AFFINITY)),
    (20, "initContainers", Parts(&CONTAINER)),
    (22, "tolerations", Parts(&TOLERATION)),
    (25, "priority", Number),
]);

static VOLUME: Message = Message(&[(1, "name", Text), (2, "", Inline(&VOLUME_SOURCE))]);

static VOLUME_SOURCE: Message = Message(&[(10, "persistentVolumeClaim", Part(&CLAIM))]);

static CLAIM: Message = Message(&[(1, "claimName", Text)]);

static CONTAINER: Message =
    Message(&[(1, "name", Text), (6, "ports", Parts(&CONTAINER_PORT)), (24, "restartPolicy", Text)]);

static CONTAINER_PORT: Message =
    Message(&[(1, "name", Text), (3, "containerPort", Number), (4, "protocol", Text)]);

static TOLERATION: Message = Message(&[
    (1, "key", Text),
    (2, "operator", Text),
    (3, "value", Text),
    (4, "effect", Text),
    (5, "tolerationSeconds", Number),
]);

static AFFINITY: Message = Message(&[(1, "nodeAffinity", Part(&NODE_AFFINITY))]);

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
    (10, "initContainerStatuses", Parts(&CONTAINER_STATUS)),
    (12, "podIPs", Parts(&POD_IP)),
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

static CONTAINER_STATUS: Message =
    Message(&[(1, "name", Text), (2, "state", Part(&CONTAINER_STATE)), (5, "restartCount", Number)]);

static CONTAINER_STATE: Message = Message(&[(3, "terminated", Part(&TERMINATED))]);

static TERMINATED: Message = Message(&[(1, "exitCode", Number), (6, "finishedAt", Time)]);
