//! The properties of the built-in kinds beyond those that `objects` states: what the API server does with each.

mod core;
mod gated;
mod groups;
pub(crate) mod metrics;

use keleustes_objects::{BuiltInKind, ServedVersion};

use super::resources::{NameRule, Resource, SelectableField, StatusField, Strategy, Subresource};

impl Resource {
    /// A built-in kind in its preferred version, with the usual properties.
    const fn built_in(group: &'static str, kind: &'static str) -> Resource {
        let built_in = BuiltInKind::named(group, kind);
        Resource::of(built_in, built_in.preferred_version())
    }

    /// A built-in kind in another version.
    const fn built_in_version(group: &'static str, version: &'static str, kind: &'static str) -> Resource {
        let built_in = BuiltInKind::named(group, kind);
        Resource::of(built_in, built_in.version(version))
    }

    const fn of(built_in: &'static BuiltInKind, version: &'static ServedVersion) -> Resource {
        let BuiltInKind { group, plural, singular, kind, list_kind, .. } = *built_in;
        let mut resource = Resource::new(group, version.name, plural, singular, kind, list_kind);
        resource.namespaced = built_in.namespaced;
        resource.gated = !version.by_default;
        resource
    }

    /// A namespaced kind with the usual properties.
    pub(crate) const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
        list_kind: &'static str,
    ) -> Resource {
        Resource {
            group,
            version,
            plural,
            singular,
            kind,
            list_kind,
            namespaced: true,
            short_names: &[],
            categories: &[],
            status: StatusField::None,
            generation: false,
            selectable: &[],
            names: NameRule::Subdomain,
            conditional_update: false,
            create_on_update: false,
            returns_deleted: false,
            orphans_by_default: false,
            delete_collection: true,
            only_verbs: None,
            subresources: &[],
            unimplemented: &[],
            stored_as: None,
            storage_version: "",
            gated: false,
            scale: None,
            columns: &[],
            schema: None,
            strategy: Strategy::Plain,
        }
    }
}

pub(super) const fn field(label: &'static str, pointer: &'static str) -> SelectableField {
    SelectableField { label, pointer, absent: "" }
}

pub(super) const fn zero(
    label: &'static str,
    pointer: &'static str,
    absent: &'static str,
) -> SelectableField {
    SelectableField { label, pointer, absent }
}

const READ_WRITE: &[&str] = &["get", "patch", "update"];

pub(crate) const SCALE: Subresource =
    Subresource { name: "scale", group_version_kind: ("autoscaling", "v1", "Scale"), verbs: READ_WRITE };

/// All built-in kinds, in the order of discovery.
pub(super) fn builtin() -> impl Iterator<Item = &'static Resource> {
    core::KINDS.iter().chain(groups::KINDS)
}

/// Kinds of the metrics APIs, for servers with a source of metrics.
pub(super) fn metrics_kinds() -> impl Iterator<Item = &'static Resource> {
    metrics::KINDS.iter()
}

/// Kinds that are served only on request.
pub(super) fn gated() -> impl Iterator<Item = &'static Resource> {
    gated::KINDS.iter()
}
