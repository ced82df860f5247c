//! The fields of the transcoded kinds, as of v1.37.
//!
//! Field numbers are part of the API: they never change. A scenario reads objects in both encodings from a real server
//! and compares them. The schema of a pod template is not here: it is derived from the table of its Go types.

use super::Field::{
    Bool, BoolSet, Int, IntOrString, IntSet, Map, Part, Parts, PodTemplate, Quantities, Skipped, Text, TextSet, Texts, Time,
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

static LABEL_SELECTOR_REQUIREMENT: FullMessage = FullMessage(&[
    (1, "key", TextSet), (2, "operator", TextSet), (3, "values", Texts),
]);

static LABEL_SELECTOR: FullMessage = FullMessage(&[
    (1, "matchLabels", Map), (2, "matchExpressions", Parts(&LABEL_SELECTOR_REQUIREMENT)),
]);

static REPLICA_SET_SPEC: FullMessage = FullMessage(&[
    (1, "replicas", IntSet), (2, "selector", Part(&LABEL_SELECTOR)), (3, "template", PodTemplate),
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
    (1, "replicas", IntSet), (2, "selector", Part(&LABEL_SELECTOR)), (3, "template", PodTemplate),
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
    (1, "podCIDR", Text), (2, "externalID", Skipped), (3, "providerID", Skipped), (4, "unschedulable", Bool),
    (5, "taints", Parts(&TAINT)), (6, "configSource", Skipped), (7, "podCIDRs", Texts),
    (8, "podPreemptionPolicy", Skipped),
]);

static NODE_CONDITION: FullMessage = FullMessage(&[
    (1, "type", TextSet), (2, "status", TextSet), (3, "lastHeartbeatTime", Time), (4, "lastTransitionTime", Time),
    (5, "reason", Text), (6, "message", Text),
]);

static ATTACHED_VOLUME: FullMessage = FullMessage(&[(1, "name", TextSet), (2, "devicePath", TextSet)]);

static NODE_STATUS: FullMessage = FullMessage(&[
    (1, "capacity", Skipped), (2, "allocatable", Quantities), (3, "phase", Skipped),
    (4, "conditions", Parts(&NODE_CONDITION)), (5, "addresses", Skipped), (6, "daemonEndpoints", Skipped),
    (7, "nodeInfo", Skipped), (8, "images", Skipped), (9, "volumesInUse", Texts),
    (10, "volumesAttached", Parts(&ATTACHED_VOLUME)),
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

static ENDPOINT_ADDRESS: FullMessage = FullMessage(&[
    (1, "ip", TextSet), (2, "targetRef", Part(&OBJECT_REFERENCE)), (3, "hostname", Text), (4, "nodeName", TextSet),
]);

static SUBSET_PORT: FullMessage = FullMessage(&[
    (1, "name", Text), (2, "port", IntSet), (3, "protocol", Text), (4, "appProtocol", TextSet),
]);

static ENDPOINT_SUBSET: FullMessage = FullMessage(&[
    (1, "addresses", Parts(&ENDPOINT_ADDRESS)), (2, "notReadyAddresses", Parts(&ENDPOINT_ADDRESS)),
    (3, "ports", Parts(&SUBSET_PORT)),
]);

/// `v1` Endpoints.
pub(crate) static ENDPOINTS: FullMessage = FullMessage(&[
    (1, "metadata", Part(&OBJECT_META)), (2, "subsets", Parts(&ENDPOINT_SUBSET)),
]);
