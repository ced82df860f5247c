//! SubjectAccessReviews, which are created and answered in one request and never stored.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::{Kind, Object, ObjectMeta, Resource, WireMeta};

/// A SubjectAccessReview with its answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct SubjectAccessReview {
    /// Its metadata, which is empty.
    pub meta: ObjectMeta,
    /// `status.allowed`.
    pub allowed: bool,
}

impl Object for SubjectAccessReview {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for SubjectAccessReview {
    const RESOURCE: Resource = Resource::built_in("authorization.k8s.io", "SubjectAccessReview");
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_default")]
    allowed: bool,
}

impl From<Wire> for SubjectAccessReview {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), allowed: wire.status.allowed }
    }
}
