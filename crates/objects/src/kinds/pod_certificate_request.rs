//! PodCertificateRequests: metadata only.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::protobuf::{self, Message};
use crate::{Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// A PodCertificateRequest. API servers before v1.37 do not serve version v1, and a feature gate switches it off.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PodCertificateRequest {
    /// Its metadata.
    pub meta: ObjectMeta,
}

impl Object for PodCertificateRequest {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&protobuf::PARTIAL);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PodCertificateRequest {
    const RESOURCE: Resource = Resource::built_in("certificates.k8s.io", "PodCertificateRequest");
    const PROJECTION: Projection = Projection::METADATA.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
}

impl From<Wire> for PodCertificateRequest {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into() }
    }
}
