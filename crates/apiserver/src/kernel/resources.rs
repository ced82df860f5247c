//! The properties of each kind besides its type, and the registry of kinds.

use std::collections::BTreeMap;

use serde_json::Value;

use super::status::qualified;
use super::structural::Schema;
use super::table::{builtin, gated, metrics_kinds};
use super::types::{self, Node, Struct};

/// A field that list and watch requests may select on.
#[derive(Debug, Clone, Copy)]
pub struct SelectableField {
    /// The label used in `fieldSelector`.
    pub label: &'static str,
    /// JSON pointer to the value.
    pub pointer: &'static str,
    /// The value for an object without the field.
    pub absent: &'static str,
}

/// How create treats `status` in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusField {
    /// The kind has no status subresource.
    None,
    /// The client's status is dropped.
    ResetOnCreate,
    /// The client's status is stored (nodes register with one).
    KeptOnCreate,
}

/// The rule for object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, the usual rule.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// A path segment.
    PathSegment,
    /// An IP address in canonical form; nothing is appended to a `generateName`.
    IpAddress,
}

/// Selects the kind-specific code in the modules `prepare`, `defaults` and `validation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is the kind of the same name.
pub enum Strategy {
    Plain,
    Custom,
    Namespace,
    Secret,
    ConfigMap,
    Endpoints,
    Event,
    LimitRange,
    Pod,
    PodTemplate,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicationController,
    ResourceQuota,
    Service,
    Lease,
    ClusterRole,
    Role,
    ClusterRoleBinding,
    ControllerRevision,
    ReplicaSet,
    Deployment,
    DaemonSet,
    StatefulSet,
    Job,
    CronJob,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    CertificateSigningRequest,
    EndpointSlice,
    Ingress,
    NetworkPolicy,
    StorageClass,
    CsiDriver,
    VolumeAttachment,
    VolumeAttributesClass,
    Webhooks,
    AdmissionPolicy,
    CustomResourceDefinition,
    ApiService,
    PriorityClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    FlowSchema,
    PriorityLevelConfiguration,
}

/// The fields behind the scale subresource of a custom resource, as JSON pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas.
    pub spec_replicas: &'static str,
    /// Observed replicas.
    pub status_replicas: &'static str,
    /// The selector in text form, or empty.
    pub selector: &'static str,
}

/// A printer column of a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `date`…
    pub kind: &'static str,
    /// JSON path of the value, such as `.spec.size`.
    pub path: &'static str,
    /// 0 for columns that are always printed.
    pub priority: i64,
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
    /// Kind name of lists.
    pub list_kind: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Short names for discovery.
    pub short_names: &'static [&'static str],
    /// Categories for discovery.
    pub categories: &'static [&'static str],
    /// Whether there is a status subresource, and how create treats the status.
    pub status: StatusField,
    /// Whether spec changes increase `metadata.generation`.
    pub generation: bool,
    /// Fields usable in field selectors besides name and namespace.
    pub selectable: &'static [SelectableField],
    /// The rule for object names.
    pub names: NameRule,
    /// Whether PUT without a resourceVersion is rejected.
    pub conditional_update: bool,
    /// Whether PUT to a missing object creates it.
    pub create_on_update: bool,
    /// Whether an immediate delete returns the object instead of a Status.
    pub returns_deleted: bool,
    /// Whether a delete without propagation policy orphans dependents.
    pub orphans_by_default: bool,
    /// Whether deletecollection is supported.
    pub delete_collection: bool,
    /// The verbs, if not the usual ones.
    pub only_verbs: Option<&'static [&'static str]>,
    /// Supported subresources besides status.
    pub subresources: &'static [Subresource],
    /// Subresources of kube-apiserver that return 501 here.
    pub unimplemented: &'static [&'static str],
    /// Group and plural of the storage version, if it is another resource.
    pub stored_as: Option<(&'static str, &'static str)>,
    /// The version in which a custom resource is stored; empty for built-in kinds.
    pub storage_version: &'static str,
    /// Whether the kind is only served with [`super::KernelOptions::gated_kinds`].
    pub gated: bool,
    /// The fields of the scale subresource, for custom resources that have one.
    pub scale: Option<ScalePaths>,
    /// Printer columns, for custom resources that define some.
    pub columns: &'static [PrinterColumn],
    /// The structural schema of a custom resource.
    pub(crate) schema: Option<&'static Schema>,
    /// Selects kind-specific code.
    pub strategy: Strategy,
}

/// A supported subresource other than status.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Path segment.
    pub name: &'static str,
    /// Group, version and kind of the subresource's objects.
    pub group_version_kind: (&'static str, &'static str, &'static str),
    /// Verbs in discovery.
    pub verbs: &'static [&'static str],
}

impl Resource {
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

    /// The root of the type, for managedFields and patches.
    pub(crate) fn node(&self) -> Node {
        self.schema.map_or_else(|| Node::Struct(self.shape()), Schema::node)
    }

    /// Whether the kind has a status subresource.
    pub fn has_status(&self) -> bool {
        self.status != StatusField::None
    }

    /// Whether the kind comes from a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        self.strategy == Strategy::Custom
    }

    /// The supported subresource of that name, status excluded.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The verbs of the resource itself, as in discovery.
    pub fn verbs(&self) -> Vec<&'static str> {
        if let Some(only) = self.only_verbs {
            return only.to_vec();
        }
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|v| self.delete_collection || *v != "deletecollection").collect()
    }

    /// The type of the kind's objects.
    pub(crate) fn shape(&self) -> &'static Struct {
        types::of_kind(self.group, self.version, self.kind).unwrap_or_else(types::custom)
    }

    /// Group and plural under which objects are stored.
    pub(crate) fn storage_location(&self) -> (&'static str, &'static str) {
        self.stored_as.unwrap_or((self.group, self.plural))
    }

    /// The resource of the storage version.
    pub(crate) fn stored(&'static self) -> &'static Resource {
        let stored = |r: &&Resource| r.stored_as.is_none() && (r.group, r.plural) == self.storage_location();
        if self.stored_as.is_none() { self } else { builtin().find(stored).unwrap_or(self) }
    }

    /// Whether both resources serve the same stored objects.
    pub(crate) fn shares_storage_with(&self, other: &Resource) -> bool {
        std::ptr::eq(self, other) || self.storage_location() == other.storage_location()
    }

    /// The value of a selectable field; `None` if the kind has no such field.
    pub(crate) fn field_value(&self, label: &str, object: &Value) -> Option<String> {
        let (pointer, absent) = match label {
            "metadata.name" => ("/metadata/name", ""),
            "metadata.namespace" if self.namespaced || self.selectable.is_empty() => {
                ("/metadata/namespace", "")
            }
            _ => self.selectable.iter().find(|f| f.label == label).map(|f| (f.pointer, f.absent))?,
        };
        Some(match object.pointer(pointer) {
            None | Some(Value::Null) => absent.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }
}

/// The built-in resource at that path, if any.
pub fn by_path(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    builtin().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// The built-in resource with that plural, or `plural.group`.
pub fn by_name(name: &str) -> Option<&'static Resource> {
    builtin().find(|r| named(r, name))
}

fn named(resource: &Resource, name: &str) -> bool {
    match name.split_once('.') {
        None => resource.plural == name,
        Some((plural, group)) => resource.plural == plural && resource.group == group,
    }
}

/// All served resources: built-in and custom ones.
#[derive(Debug, Default)]
pub struct Registry {
    /// Resources of each CRD, by the CRD's name.
    custom: BTreeMap<String, Vec<&'static Resource>>,
    /// Whether built-in kinds behind feature gates that are off by default are served.
    serves_gated: bool,
    /// Whether the metrics APIs are served.
    serves_metrics: bool,
}

impl Registry {
    /// The built-in resources, with or without those behind feature gates.
    pub(crate) fn new(serves_gated: bool) -> Registry {
        Registry { serves_gated, ..Registry::default() }
    }

    /// The same with the metrics APIs.
    pub(crate) fn with_metrics(self, serves_metrics: bool) -> Registry {
        Registry { serves_metrics, ..self }
    }

    /// All resources, built-in ones first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Resource> {
        builtin()
            .filter(|resource| self.serves_gated || !resource.gated)
            .chain(gated().filter(|_| self.serves_gated))
            .chain(metrics_kinds().filter(|_| self.serves_metrics))
            .chain(self.custom.values().flatten().copied())
    }

    /// Whether there are custom resources, or other ones that are off by default.
    pub(crate) fn has_more_than_usual(&self) -> bool {
        self.serves_gated || self.serves_metrics || !self.custom.is_empty()
    }

    /// The resource at that path, if any.
    pub fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        self.all().find(|r| r.plural == plural && r.group == group && r.version == version)
    }

    /// The resource whose objects have that `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&'static Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all().find(|r| r.kind == kind && r.group == group && r.version == version)
    }

    /// The resource with that plural, or `plural.group`.
    pub fn by_name(&self, name: &str) -> Option<&'static Resource> {
        self.all().find(|r| named(r, name))
    }

    /// Replaces the resources of a CRD.
    pub(crate) fn define(&mut self, definition: &str, kinds: Vec<&'static Resource>) {
        if kinds.is_empty() {
            self.custom.remove(definition);
        } else {
            self.custom.insert(definition.to_owned(), kinds);
        }
    }

    /// The resources of a CRD.
    pub(crate) fn defined_by(&self, definition: &str) -> &[&'static Resource] {
        self.custom.get(definition).map_or(&[], Vec::as_slice)
    }

    /// The served group versions, each once, in the order of the table.
    pub(crate) fn group_versions(&self) -> Vec<(&'static str, &'static str)> {
        let mut seen = Vec::new();
        for resource in self.all() {
            if !seen.contains(&(resource.group, resource.version)) {
                seen.push((resource.group, resource.version));
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_is_found_by_path_kind_and_name_and_has_a_type() {
        let registry = Registry::new(true);
        assert!(Registry::default().by_name("storageversions").is_none(), "gated kinds are off by default");
        for resource in builtin().chain(gated()) {
            let found = registry.by_path(resource.group, resource.version, resource.plural).unwrap();
            assert!(std::ptr::eq(found, resource));
            assert!(std::ptr::eq(
                registry.by_kind(&resource.api_version(), resource.kind).unwrap(),
                resource
            ));
            let named = registry.by_name(&resource.qualified()).unwrap();
            assert!(std::ptr::eq(named, resource.stored()) || resource.stored_as.is_some(), "{named:?}");
            assert!(!resource.shape().preserves_unknown_fields, "{} has no shape", resource.kind);
            assert_eq!(resource.list_kind, format!("{}List", resource.kind));
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
