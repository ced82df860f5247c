//! What all kinds have in common that hold a wish and a status and are written back whole.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::{Annotations, WireMeta};

/// Such an object on the wire.
#[derive(Deserialize)]
#[serde(bound = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>")]
pub(super) struct WireWhole<S, T> {
    pub(super) metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) spec: S,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) status: T,
}

/// Says that a kind keeps all metadata, in its fields `meta` and `rest`.
macro_rules! keeps_whole_meta {
    ($name:ident $(, $whole:expr)?) => {
        impl crate::Object for $name {
            $(const WHOLE: Option<&'static crate::protobuf::Whole> = Some($whole);)?

            fn meta(&self) -> &crate::ObjectMeta {
                &self.meta
            }
        }

        impl crate::FullMeta for $name {
            fn meta_rest(&self) -> &crate::MetaRest {
                &self.rest
            }
        }
    };
}

/// Declares such a kind from its name, its wish, its status, its resource, and its message if that is known.
macro_rules! whole_kind {
    ($(#[$doc:meta])* $name:ident, $spec:ident, $status:ident, $resource:expr $(, $whole:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(from = "Wire")]
        pub struct $name {
            /// Its metadata.
            pub meta: crate::ObjectMeta,
            /// The rest of its metadata.
            pub rest: crate::MetaRest,
            /// What is wanted.
            pub spec: $spec,
            /// What is.
            pub status: $status,
        }

        type Wire = crate::kinds::whole::WireWhole<$spec, $status>;

        crate::kinds::whole::keeps_whole_meta!($name $(, $whole)?);

        impl crate::Kind for $name {
            const RESOURCE: crate::Resource = $resource;
        }

        impl From<Wire> for $name {
            fn from(wire: Wire) -> Self {
                let (meta, rest) = wire.metadata.whole();
                Self { meta, rest, spec: wire.spec, status: wire.status }
            }
        }
    };
}

pub(super) use {keeps_whole_meta, whole_kind};
