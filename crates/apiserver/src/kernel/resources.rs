//! What the server knows about a kind besides its shape, and how kinds are found.

use std::collections::BTreeMap;

use serde_json::Value;

use super::status::qualified;
use super::structural::Schema;
use super::table::builtin;
use super::types::{self, Node, Struct};

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

/// Code that only one kind needs; see the modules `prepare`, `defaults` and `validation`.
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

/// Where a custom resource keeps what its scale subresource shows, as JSON pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: &'static str,
    /// Observed replicas.
    pub status_replicas: &'static str,
    /// The selector as text, or empty.
    pub selector: &'static str,
}

/// A column of a custom resource's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `date`…
    pub kind: &'static str,
    /// JSON path of the value, such as `.spec.size`.
    pub path: &'static str,
    /// 0 for columns that are always shown.
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
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for discovery.
    pub short_names: &'static [&'static str],
    /// Categories for discovery.
    pub categories: &'static [&'static str],
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
    /// Whether dependents are orphaned by a delete that does not say what to do with them.
    pub orphans_by_default: bool,
    /// Whether the whole collection may be deleted at once.
    pub delete_collection: bool,
    /// Verbs, if not the usual ones.
    pub only_verbs: Option<&'static [&'static str]>,
    /// Subresources besides status that are served.
    pub subresources: &'static [Subresource],
    /// Subresources of the real server that answer 501 here.
    pub unimplemented: &'static [&'static str],
    /// Group and plural under which objects are stored, if not the kind's own.
    pub stored_as: Option<(&'static str, &'static str)>,
    /// Where scale finds its numbers, for custom resources that have it.
    pub scale: Option<ScalePaths>,
    /// Columns of the table, for custom resources that name some.
    pub columns: &'static [PrinterColumn],
    /// What the definition of a custom resource says about it.
    pub(crate) schema: Option<&'static Schema>,
    /// Kind-specific code.
    pub strategy: Strategy,
}

/// A served subresource other than status.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Path segment.
    pub name: &'static str,
    /// Group, version and kind of the objects group_version_kind.
    pub group_version_kind: (&'static str, &'static str, &'static str),
    /// Verbs, as discovery names them.
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

    /// The shape of the kind's objects, as owners and patches see it.
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

    /// The served subresource of that name, status aside.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Verbs of the kind itself, as discovery names them.
    pub fn verbs(&self) -> Vec<&'static str> {
        if let Some(only) = self.only_verbs {
            return only.to_vec();
        }
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|v| self.delete_collection || *v != "deletecollection").collect()
    }

    /// The shape of the kind's objects.
    pub(crate) fn shape(&self) -> &'static Struct {
        types::of_kind(self.group, self.version, self.kind).unwrap_or_else(types::custom)
    }

    /// Group and plural under which objects are stored.
    pub(crate) fn storage_location(&self) -> (&'static str, &'static str) {
        self.stored_as.unwrap_or((self.group, self.plural))
    }

    /// The kind whose form objects are stored in.
    pub(crate) fn stored(&'static self) -> &'static Resource {
        let stored = |r: &&Resource| r.stored_as.is_none() && (r.group, r.plural) == self.storage_location();
        if self.stored_as.is_none() { self } else { builtin().find(stored).unwrap_or(self) }
    }

    /// Whether both kinds are views of the same objects.
    pub(crate) fn shares_storage_with(&self, other: &Resource) -> bool {
        std::ptr::eq(self, other) || self.storage_location() == other.storage_location()
    }

    /// What `object` holds for a selectable field; `None` if the kind has no such field.
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

/// The built-in kind served at that place, if any.
pub fn by_path(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    builtin().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// The built-in kind with that plural, or `plural.group`.
pub fn by_name(name: &str) -> Option<&'static Resource> {
    builtin().find(|r| named(r, name))
}

fn named(resource: &Resource, name: &str) -> bool {
    match name.split_once('.') {
        None => resource.plural == name,
        Some((plural, group)) => resource.plural == plural && resource.group == group,
    }
}

/// All kinds served now: those built in and those defined by custom resource definitions.
#[derive(Debug, Default)]
pub struct Registry {
    /// Kinds of each definition, by the definition's name.
    custom: BTreeMap<String, Vec<&'static Resource>>,
}

impl Registry {
    /// Every kind, those built in first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Resource> {
        builtin().chain(self.custom.values().flatten().copied())
    }

    /// Whether there are more than those built in.
    pub(crate) fn has_custom(&self) -> bool {
        !self.custom.is_empty()
    }

    /// The kind served at that place, if any.
    pub fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        self.all().find(|r| r.plural == plural && r.group == group && r.version == version)
    }

    /// The kind whose objects carry that `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&'static Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all().find(|r| r.kind == kind && r.group == group && r.version == version)
    }

    /// The kind with that plural, or `plural.group`.
    pub fn by_name(&self, name: &str) -> Option<&'static Resource> {
        self.all().find(|r| named(r, name))
    }

    /// Puts the kinds of a definition in force, in place of those it had.
    pub(crate) fn define(&mut self, definition: &str, kinds: Vec<&'static Resource>) {
        if kinds.is_empty() {
            self.custom.remove(definition);
        } else {
            self.custom.insert(definition.to_owned(), kinds);
        }
    }

    /// The kinds of a definition.
    pub(crate) fn defined_by(&self, definition: &str) -> &[&'static Resource] {
        self.custom.get(definition).map_or(&[], Vec::as_slice)
    }

    /// Group versions served, each once, in the order of the table.
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
    fn every_kind_is_found_by_path_kind_and_name_and_has_a_shape() {
        let registry = Registry::default();
        for resource in builtin() {
            let found = registry.by_path(resource.group, resource.version, resource.plural).unwrap();
            assert!(std::ptr::eq(found, resource));
            assert!(std::ptr::eq(
                registry.by_kind(&resource.api_version(), resource.kind).unwrap(),
                resource
            ));
            let named = by_name(&resource.qualified()).unwrap();
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
