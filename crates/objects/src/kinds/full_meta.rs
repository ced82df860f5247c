//! Macros for kinds that hold all metadata because they are updated with a PUT.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::{Annotations, WireMeta};

/// An object with spec and status as decoded.
#[derive(Deserialize)]
#[serde(bound = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>")]
pub(super) struct WireSpecStatus<S, T> {
    pub(super) metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) spec: S,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) status: T,
}

/// Implements [`crate::FullMeta`] for a kind with the fields `meta` and `extra_meta`.
macro_rules! impl_full_meta {
    ($name:ident $(, $message:ident)?) => {
        impl crate::Object for $name {
            $(const WHOLE: Option<&'static std::sync::LazyLock<crate::protobuf::FullMessage>> = Some(&$message);)?

            fn meta(&self) -> &crate::ObjectMeta {
                &self.meta
            }
        }

        impl crate::FullMeta for $name {
            fn extra_meta(&self) -> &crate::ExtraMeta {
                &self.extra_meta
            }
        }
    };
}

/// Declares a kind with spec and status from its name, spec, status, resource and optional protobuf message.
macro_rules! spec_status_kind {
    ($(#[$doc:meta])* $name:ident, $spec:ident, $status:ident, $resource:expr $(, $message:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(from = "Wire")]
        pub struct $name {
            /// The metadata.
            pub meta: crate::ObjectMeta,
            /// The metadata beyond `meta`.
            pub extra_meta: crate::ExtraMeta,
            /// The desired state.
            pub spec: $spec,
            /// The observed state.
            pub status: $status,
        }

        type Wire = crate::kinds::full_meta::WireSpecStatus<$spec, $status>;

        crate::kinds::full_meta::impl_full_meta!($name $(, $message)?);

        impl crate::Kind for $name {
            const RESOURCE: crate::Resource = $resource;
        }

        impl From<Wire> for $name {
            fn from(wire: Wire) -> Self {
                let (meta, extra_meta) = wire.metadata.split();
                Self { meta, extra_meta, spec: wire.spec, status: wire.status }
            }
        }
    };
}

pub(super) use {impl_full_meta, spec_status_kind};
