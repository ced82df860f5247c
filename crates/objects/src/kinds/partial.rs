//! Metadata of objects of any kind.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::protobuf::{self, Message};
use crate::{Object, ObjectMeta, WireMeta};

/// The metadata of an object of any kind. Its cache knows the resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PartialObjectMeta {
    /// The metadata.
    pub meta: ObjectMeta,
}

impl Object for PartialObjectMeta {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&protobuf::PARTIAL);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
}

impl From<Wire> for PartialObjectMeta {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into() }
    }
}
