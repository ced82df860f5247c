//! Namespaces: their name and phase.

use serde::Deserialize;

use crate::{Kind, Meta, Object, Resource, WireMeta, Word};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Namespace {
    /// Its metadata.
    pub meta: Meta,
    /// `Active`, `Terminating`, or empty before the server has set it.
    pub phase: Word,
}

impl Object for Namespace {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Kind for Namespace {
    const RESOURCE: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Word,
}

impl From<Wire> for Namespace {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), phase: wire.status.phase }
    }
}
