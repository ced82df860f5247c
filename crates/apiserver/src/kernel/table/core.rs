//! The kinds of the core group.

use super::super::resources::{NameRule, Resource, SelectableField, StatusField, Strategy, Subresource};
use super::{READ_WRITE, SCALE, field, zero};

const POD_FIELDS: &[SelectableField] = &[
    field("spec.nodeName", "/spec/nodeName"),
    field("spec.restartPolicy", "/spec/restartPolicy"),
    field("spec.schedulerName", "/spec/schedulerName"),
    field("spec.serviceAccountName", "/spec/serviceAccountName"),
    zero("spec.hostNetwork", "/spec/hostNetwork", "false"),
    field("status.phase", "/status/phase"),
    field("status.podIP", "/status/podIP"),
    field("status.podIPs", "/status/podIPs/0/ip"),
    field("status.nominatedNodeName", "/status/nominatedNodeName"),
];

const EVENT_FIELDS: &[SelectableField] = &[
    field("involvedObject.kind", "/involvedObject/kind"),
    field("involvedObject.namespace", "/involvedObject/namespace"),
    field("involvedObject.name", "/involvedObject/name"),
    field("involvedObject.uid", "/involvedObject/uid"),
    field("involvedObject.apiVersion", "/involvedObject/apiVersion"),
    field("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
    field("involvedObject.fieldPath", "/involvedObject/fieldPath"),
    field("reason", "/reason"),
    field("reportingComponent", "/reportingComponent"),
    field("source", "/source/component"),
    field("type", "/type"),
];

const FINALIZE: Subresource =
    Subresource { name: "finalize", group_version_kind: ("", "v1", "Namespace"), verbs: &["update"] };

const TOKEN: Subresource = Subresource {
    name: "token",
    group_version_kind: ("authentication.k8s.io", "v1", "TokenRequest"),
    verbs: &["create"],
};

const BINDING: Subresource =
    Subresource { name: "binding", group_version_kind: ("", "v1", "Binding"), verbs: &["create"] };

const EVICTION: Subresource =
    Subresource { name: "eviction", group_version_kind: ("policy", "v1", "Eviction"), verbs: &["create"] };

const RESIZE: Subresource =
    Subresource { name: "resize", group_version_kind: ("", "v1", "Pod"), verbs: READ_WRITE };

pub(super) static KINDS: &[Resource] = &[
    Resource { only_verbs: Some(&["create"]), ..Resource::built_in("", "Binding") },
    Resource { short_names: &["cm"], strategy: Strategy::ConfigMap, ..Resource::built_in("", "ConfigMap") },
    Resource {
        short_names: &["ep"],
        create_on_update: true,
        strategy: Strategy::Endpoints,
        ..Resource::built_in("", "Endpoints")
    },
    Resource {
        short_names: &["ev"],
        selectable: EVENT_FIELDS,
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::Event,
        ..Resource::built_in("", "Event")
    },
    Resource {
        short_names: &["limits"],
        create_on_update: true,
        strategy: Strategy::LimitRange,
        ..Resource::built_in("", "LimitRange")
    },
    Resource {
        short_names: &["ns"],
        status: StatusField::ResetOnCreate,
        selectable: &[field("status.phase", "/status/phase")],
        names: NameRule::Label,
        returns_deleted: true,
        delete_collection: false,
        subresources: &[FINALIZE],
        strategy: Strategy::Namespace,
        ..Resource::built_in("", "Namespace")
    },
    Resource {
        short_names: &["no"],
        status: StatusField::KeptOnCreate,
        selectable: &[zero("spec.unschedulable", "/spec/unschedulable", "false")],
        unimplemented: &["proxy"],
        strategy: Strategy::Node,
        ..Resource::built_in("", "Node")
    },
    Resource {
        short_names: &["pvc"],
        status: StatusField::ResetOnCreate,
        returns_deleted: true,
        strategy: Strategy::PersistentVolumeClaim,
        ..Resource::built_in("", "PersistentVolumeClaim")
    },
    Resource {
        short_names: &["pv"],
        status: StatusField::ResetOnCreate,
        returns_deleted: true,
        strategy: Strategy::PersistentVolume,
        ..Resource::built_in("", "PersistentVolume")
    },
    Resource {
        short_names: &["po"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        selectable: POD_FIELDS,
        returns_deleted: true,
        subresources: &[BINDING, EVICTION, RESIZE],
        unimplemented: &["attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy"],
        strategy: Strategy::Pod,
        ..Resource::built_in("", "Pod")
    },
    Resource {
        generation: true,
        returns_deleted: true,
        strategy: Strategy::PodTemplate,
        ..Resource::built_in("", "PodTemplate")
    },
    Resource {
        short_names: &["rc"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        selectable: &[zero("status.replicas", "/status/replicas", "0")],
        orphans_by_default: true,
        subresources: &[SCALE],
        strategy: Strategy::ReplicationController,
        ..Resource::built_in("", "ReplicationController")
    },
    Resource {
        short_names: &["quota"],
        status: StatusField::ResetOnCreate,
        returns_deleted: true,
        strategy: Strategy::ResourceQuota,
        ..Resource::built_in("", "ResourceQuota")
    },
    Resource {
        selectable: &[field("type", "/type")],
        strategy: Strategy::Secret,
        ..Resource::built_in("", "Secret")
    },
    Resource {
        short_names: &["sa"],
        returns_deleted: true,
        subresources: &[TOKEN],
        ..Resource::built_in("", "ServiceAccount")
    },
    Resource {
        short_names: &["svc"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        selectable: &[field("spec.clusterIP", "/spec/clusterIP"), field("spec.type", "/spec/type")],
        names: NameRule::Label,
        create_on_update: true,
        returns_deleted: true,
        unimplemented: &["proxy"],
        strategy: Strategy::Service,
        ..Resource::built_in("", "Service")
    },
];
