//! CSINodes: metadata only.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::protobuf::{self, Message};
use crate::{Kind, Object, ObjectMeta, Resource, WireMeta};

/// A CSINode. No decision reads it, but the attach-detach controller starts only when it knows all of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct CsiNode {
    /// Its metadata.
    pub meta: ObjectMeta,
}

impl Object for CsiNode {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&protobuf::PARTIAL);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for CsiNode {
    const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "CSINode");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
}

impl From<Wire> for CsiNode {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into() }
    }
}
