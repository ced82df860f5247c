//! IPAddresses: metadata only, as the name is the address.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::protobuf::{self, Message};
use crate::{Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// An IPAddress, which the API server creates for every cluster IP of a Service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct IpAddress {
    /// Its metadata.
    pub meta: ObjectMeta,
}

impl Object for IpAddress {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&protobuf::PARTIAL);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for IpAddress {
    const RESOURCE: Resource = Resource::built_in("networking.k8s.io", "IPAddress");
    const PROJECTION: Projection = Projection::METADATA;
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
}

impl From<Wire> for IpAddress {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into() }
    }
}
