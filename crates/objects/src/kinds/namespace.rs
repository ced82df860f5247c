//! Namespaces: phase, finalizers and deletion conditions.

use serde::Deserialize;

use super::full_meta::impl_full_meta;
use crate::meta::{ExtraMeta, null_is_default, null_is_empty};
use crate::{Annotations, Condition, InternedStr, Kind, ObjectMeta, Resource, WireMeta};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Namespace {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `spec.finalizers`, which the namespace controller removes once the content is deleted; not
    /// `metadata.finalizers`.
    pub spec_finalizers: Box<[InternedStr]>,
    /// `Active`, `Terminating`, or empty before the server has set it.
    pub phase: InternedStr,
    /// The conditions that report the progress of its deletion.
    pub conditions: Box<[Condition]>,
}

impl_full_meta!(Namespace);

impl Kind for Namespace {
    const RESOURCE: Resource = Resource::built_in("", "Namespace");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "null_is_empty")]
    finalizers: Box<[InternedStr]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
}

impl From<Wire> for Namespace {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self {
            meta,
            extra_meta,
            spec_finalizers: wire.spec.finalizers,
            phase: wire.status.phase,
            conditions: wire.status.conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_decoded() {
        let namespace: Namespace = serde_json::from_str(
            r#"{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x/y"]},
                "spec":{"finalizers":["kubernetes"]},
                "status":{"phase":"Terminating","conditions":[{"type":"NamespaceContentRemaining","status":"True"}]}}"#,
        )
        .unwrap();
        assert_eq!(
            (&*namespace.spec_finalizers, &*namespace.meta.finalizers),
            (&["kubernetes".into()][..], &["x/y".into()][..])
        );
        assert_eq!((namespace.phase.as_str(), namespace.conditions.len()), ("Terminating", 1));
    }
}
