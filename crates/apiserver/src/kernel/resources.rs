//! The table of served kinds: every rule that differs between kinds is a word on the kind's line.

use serde_json::Value;

use super::status::qualified;

/// A field that list and watch requests may select on.
#[derive(Debug, Clone, Copy)]
pub struct SelectableField {
    /// The label used in `fieldSelector`.
    pub label: &'static str,
    /// Where the value lives in the object.
    pub pointer: &'static str,
    /// What an object without the field is taken to hold.
    pub absent: &'static str,
}

/// What happens to `status` in the body of a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusField {
    /// The kind has no status subresource.
    None,
    /// The status sent by the creator is dropped.
    ResetOnCreate,
    /// The status sent by the creator is stored (nodes register themselves with one).
    KeptOnCreate,
}

/// Which names the kind accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, the common rule.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// Anything that can be one segment of a path.
    PathSegment,
}

/// Code that only one kind needs; see the `strategy` module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is the kind of the same name.
pub enum Strategy {
    Plain,
    Namespace,
    Secret,
    ConfigMap,
    Event,
    Pod,
    Lease,
    ClusterRole,
    ClusterRoleBinding,
    ReplicaSet,
    Deployment,
}

/// One served kind.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Resource name as used in paths.
    pub plural: &'static str,
    /// Lower-case singular.
    pub singular: &'static str,
    /// Kind name.
    pub kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for discovery.
    pub short_names: &'static [&'static str],
    /// Categories for discovery.
    pub categories: &'static [&'static str],
    /// Top-level fields besides apiVersion, kind and metadata.
    pub fields: &'static [&'static str],
    /// Status subresource and how create treats it.
    pub status: StatusField,
    /// Whether `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// Fields usable in field selectors besides name and namespace.
    pub selectable: &'static [SelectableField],
    /// Rule for object names.
    pub names: NameRule,
    /// Whether PUT without a resourceVersion is refused.
    pub conditional_update: bool,
    /// Whether PUT to a missing object creates it.
    pub create_on_update: bool,
    /// Whether an immediate delete answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Whether the whole collection may be deleted at once.
    pub delete_collection: bool,
    /// Subresources besides status that are served.
    pub subresources: &'static [Subresource],
    /// Subresources of the real server that answer 501 here.
    pub unimplemented: &'static [&'static str],
    /// Kind-specific code.
    pub strategy: Strategy,
}

/// A served subresource other than status.
#[derive(Debug)]
pub struct Subresource {
    /// Path segment.
    pub name: &'static str,
    /// Group, version and kind of the objects exchanged.
    pub exchanged: (&'static str, &'static str, &'static str),
    /// Verbs, as discovery names them.
    pub verbs: &'static [&'static str],
}

impl Resource {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
    ) -> Resource {
        Resource {
            group,
            version,
            plural,
            singular,
            kind,
            namespaced: true,
            short_names: &[],
            categories: &[],
            fields: &["spec", "status"],
            status: StatusField::None,
            generation: false,
            selectable: &[],
            names: NameRule::Subdomain,
            conditional_update: false,
            create_on_update: false,
            returns_deleted: false,
            delete_collection: true,
            subresources: &[],
            unimplemented: &[],
            strategy: Strategy::Plain,
        }
    }

    const fn core(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
        Resource::new("", "v1", plural, singular, kind)
    }

    const fn apps(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
        let mut resource = Resource::new("apps", "v1", plural, singular, kind);
        resource.categories = &["all"];
        resource.unimplemented = &["scale"];
        resource.status = StatusField::ResetOnCreate;
        resource.generation = true;
        resource
    }

    const fn rbac(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
        let mut resource = Resource::new("rbac.authorization.k8s.io", "v1", plural, singular, kind);
        resource.names = NameRule::PathSegment;
        resource.create_on_update = true;
        resource.namespaced = false;
        resource
    }

    /// `apiVersion` of the kind's objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as messages name the resource.
    pub fn qualified(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// Whether the kind has a status subresource.
    pub fn has_status(&self) -> bool {
        self.status != StatusField::None
    }

    /// The served subresource of that name, status aside.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Verbs of the kind itself, as discovery names them.
    pub fn verbs(&self) -> Vec<&'static str> {
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|v| self.delete_collection || *v != "deletecollection").collect()
    }

    /// What `object` holds for a selectable field; `None` if the kind has no such field.
    pub(crate) fn field_value(&self, label: &str, object: &Value) -> Option<String> {
        let (pointer, absent) = match label {
            "metadata.name" => ("/metadata/name", ""),
            "metadata.namespace" if self.namespaced => ("/metadata/namespace", ""),
            _ => self.selectable.iter().find(|f| f.label == label).map(|f| (f.pointer, f.absent))?,
        };
        Some(match object.pointer(pointer) {
            None | Some(Value::Null) => absent.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }
}

const fn field(label: &'static str, pointer: &'static str) -> SelectableField {
    SelectableField { label, pointer, absent: "" }
}

const POD_FIELDS: &[SelectableField] = &[
    field("spec.nodeName", "/spec/nodeName"),
    field("spec.restartPolicy", "/spec/restartPolicy"),
    field("spec.schedulerName", "/spec/schedulerName"),
    field("spec.serviceAccountName", "/spec/serviceAccountName"),
    SelectableField { label: "spec.hostNetwork", pointer: "/spec/hostNetwork", absent: "false" },
    field("status.phase", "/status/phase"),
    field("status.podIP", "/status/podIP"),
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
    Subresource { name: "finalize", exchanged: ("", "v1", "Namespace"), verbs: &["update"] };

const TOKEN: Subresource = Subresource {
    name: "token",
    exchanged: ("authentication.k8s.io", "v1", "TokenRequest"),
    verbs: &["create"],
};

/// All served kinds, in the order discovery shows them.
pub static RESOURCES: &[Resource] = &[
    Resource {
        short_names: &["cm"],
        fields: &["data", "binaryData", "immutable"],
        strategy: Strategy::ConfigMap,
        ..Resource::core("configmaps", "configmap", "ConfigMap")
    },
    Resource {
        short_names: &["ev"],
        fields: &[
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "series",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ],
        selectable: EVENT_FIELDS,
        create_on_update: true,
        strategy: Strategy::Event,
        ..Resource::core("events", "event", "Event")
    },
    Resource {
        namespaced: false,
        short_names: &["ns"],
        status: StatusField::ResetOnCreate,
        names: NameRule::Label,
        selectable: &[field("status.phase", "/status/phase")],
        returns_deleted: true,
        delete_collection: false,
        subresources: &[FINALIZE],
        strategy: Strategy::Namespace,
        ..Resource::core("namespaces", "namespace", "Namespace")
    },
    Resource {
        namespaced: false,
        short_names: &["no"],
        status: StatusField::KeptOnCreate,
        selectable: &[SelectableField {
            label: "spec.unschedulable",
            pointer: "/spec/unschedulable",
            absent: "false",
        }],
        unimplemented: &["proxy"],
        ..Resource::core("nodes", "node", "Node")
    },
    Resource {
        short_names: &["po"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        selectable: POD_FIELDS,
        returns_deleted: true,
        unimplemented: &[
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
            "proxy",
            "resize",
        ],
        strategy: Strategy::Pod,
        ..Resource::core("pods", "pod", "Pod")
    },
    Resource {
        fields: &["data", "stringData", "type", "immutable"],
        selectable: &[field("type", "/type")],
        strategy: Strategy::Secret,
        ..Resource::core("secrets", "secret", "Secret")
    },
    Resource {
        short_names: &["sa"],
        fields: &["secrets", "imagePullSecrets", "automountServiceAccountToken"],
        returns_deleted: true,
        subresources: &[TOKEN],
        ..Resource::core("serviceaccounts", "serviceaccount", "ServiceAccount")
    },
    Resource {
        short_names: &["deploy"],
        strategy: Strategy::Deployment,
        ..Resource::apps("deployments", "deployment", "Deployment")
    },
    Resource {
        short_names: &["rs"],
        selectable: &[SelectableField { label: "status.replicas", pointer: "/status/replicas", absent: "0" }],
        strategy: Strategy::ReplicaSet,
        ..Resource::apps("replicasets", "replicaset", "ReplicaSet")
    },
    Resource {
        fields: &["spec"],
        conditional_update: true,
        create_on_update: true,
        strategy: Strategy::Lease,
        ..Resource::new("coordination.k8s.io", "v1", "leases", "lease", "Lease")
    },
    Resource {
        fields: &["subjects", "roleRef"],
        strategy: Strategy::ClusterRoleBinding,
        ..Resource::rbac("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
    },
    Resource {
        fields: &["rules", "aggregationRule"],
        strategy: Strategy::ClusterRole,
        ..Resource::rbac("clusterroles", "clusterrole", "ClusterRole")
    },
];

/// Groups whose review requests the real server answers and this one does not.
pub(crate) const UNIMPLEMENTED_GROUPS: &[&str] = &["authentication.k8s.io", "authorization.k8s.io"];

/// The kind served at that place, if any.
pub fn by_path(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The kind whose objects carry that `apiVersion` and `kind`.
pub fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
}

/// The kind with that plural, or `plural.group`.
pub fn by_name(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.plural == name || r.qualified() == name)
}

/// Group versions served, each once, in table order.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut seen = Vec::new();
    for resource in RESOURCES {
        if !seen.contains(&(resource.group, resource.version)) {
            seen.push((resource.group, resource.version));
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_is_found_by_path_kind_and_name() {
        for resource in RESOURCES {
            let found = by_path(resource.group, resource.version, resource.plural).unwrap();
            assert!(std::ptr::eq(found, resource));
            assert!(std::ptr::eq(by_kind(&resource.api_version(), resource.kind).unwrap(), resource));
            assert!(std::ptr::eq(by_name(&resource.qualified()).unwrap(), resource));
        }
    }

    #[test]
    fn absent_selectable_fields_have_the_zero_value_of_their_type() {
        let nodes = by_name("nodes").unwrap();
        assert_eq!(nodes.field_value("spec.unschedulable", &json!({})).unwrap(), "false");
        assert_eq!(
            nodes.field_value("spec.unschedulable", &json!({"spec":{"unschedulable":true}})).unwrap(),
            "true"
        );
        assert_eq!(nodes.field_value("metadata.namespace", &json!({})), None);
    }
}
