//! Keeps its consumer told of all objects of a resource: once as a whole, then change by change.
//!
//! `kube_runtime::watcher` was looked at and does not serve: it does not tell the versions of bookmarks
//! and of the initial list, which reading one's own writes needs; it has no way from a refused streaming
//! list to a paged one; and after a lost version it cannot ask for "not older than the last seen".
//!
//! [`policy`] is the protocol without IO, [`pieces`] and [`decode`] turn bytes into objects, and
//! [`driver`] moves them.

mod backoff;
mod decode;
mod driver;
mod listing;
mod pieces;
mod policy;
#[cfg(test)]
mod tests;

use http::Method;
use keleustes_objects::{
    ApiError, DecodeError, Encoded, Key, Kind, Object, ObjectMeta, PartialObjectMeta, Projection, Resource,
    ResourceVersion,
};

pub use self::driver::Reflector;
use self::policy::Ask;
use crate::writes::{Call, METADATA, METADATA_LIST};

/// A server without protobuf, as those of custom resources and aggregated APIs are, answers with JSON.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";
const PROTOBUF_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// What to list and watch, and how to read it.
///
/// Reading goes through plain functions, so that one compiled reflector can serve objects of many types
/// behind one pointer type.
#[derive(Clone, Debug)]
pub struct ListWatch<T> {
    /// The resource.
    pub resource: Resource,
    /// Which part of it.
    pub projection: Projection,
    /// The namespace, or empty for all.
    pub namespace: String,
    /// Whether objects that are watched may come as protobuf. Lists are always JSON.
    pub accepts_protobuf: bool,
    /// Reads one object.
    pub decode: Decode<T>,
    /// Where an object's metadata is.
    pub meta: fn(&T) -> &ObjectMeta,
}

/// Reads one object.
pub type Decode<T> = fn(Encoded<'_>) -> Result<T, DecodeError>;

/// What a consumer is told, in the order in which it happened.
#[derive(Debug, PartialEq)]
pub enum Delta<T> {
    /// These are all objects; whatever else the consumer knows of is gone.
    Replace {
        /// All objects, in no order.
        objects: Vec<T>,
        /// Objects that are there but could not be read. They are not gone.
        unreadable: Vec<Key>,
        /// The version of the whole; single objects may be newer.
        version: ResourceVersion,
    },
    /// The object is new or has changed.
    Apply(T),
    /// The object is gone; this was its last state.
    Delete(T),
    /// Nothing that the consumer needs to know of happened up to this version.
    Bookmark(ResourceVersion),
}

/// Hears of what a consumer is not told.
pub trait ReflectorObserver: Send + Sync {
    /// An object could not be read and was left out; its `namespace/name`, if at least that is known.
    fn undecodable(&self, resource: &Resource, object: &str) {
        let _ = (resource, object);
    }

    /// A list or a watch failed; the reflector goes on by itself.
    fn failed(&self, resource: &Resource, failure: &ApiError) {
        let _ = (resource, failure);
    }
}

impl<T: Object> ListWatch<T> {
    /// A part of a resource, in all namespaces.
    #[must_use]
    pub fn new(resource: Resource, projection: Projection) -> Self {
        Self {
            resource,
            projection,
            namespace: String::new(),
            accepts_protobuf: T::SUPPORTS_PROTOBUF,
            decode: |object| object.read(),
            meta: T::meta,
        }
    }
}

impl<T: Kind> ListWatch<T> {
    /// All that a cache of this kind holds.
    #[must_use]
    pub fn of_kind() -> Self {
        Self::new(T::RESOURCE, T::PROJECTION)
    }
}

impl ListWatch<PartialObjectMeta> {
    /// The metadata of all objects of a resource.
    #[must_use]
    pub fn metadata_of(resource: Resource) -> Self {
        Self::new(resource, Projection::METADATA)
    }
}

impl<T> ListWatch<T> {
    /// Only what is in one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    fn call(&self, ask: &Ask) -> Call {
        let mut call = Call::raw(Method::GET, self.resource.collection_path(&self.namespace));
        if let Some(selector) = self.projection.field_selector {
            call = call.query("fieldSelector", selector);
        }
        let (version, watches) = match ask {
            Ask::List { version, .. } => (version, false),
            Ask::Stream { version, .. } | Ask::Watch { version, .. } => (version, true),
        };
        call.accept = match (self.projection.metadata_only, watches) {
            (false, true) if self.accepts_protobuf => PROTOBUF,
            (true, true) if self.accepts_protobuf => PROTOBUF_METADATA,
            (false, _) => "application/json",
            (true, false) => METADATA_LIST,
            (true, true) => METADATA,
        };
        if !version.is_empty() {
            call = call.query("resourceVersion", version);
        }
        match ask {
            Ask::List { limit, continue_token, .. } => {
                if let Some(limit) = limit {
                    call = call.query("limit", limit.to_string());
                }
                if let Some(token) = continue_token {
                    call = call.query("continue", token);
                }
                call
            }
            Ask::Stream { timeout_seconds, .. } => call
                .query("sendInitialEvents", "true")
                .query("resourceVersionMatch", "NotOlderThan")
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("timeoutSeconds", timeout_seconds.to_string()),
            Ask::Watch { timeout_seconds, .. } => call
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("timeoutSeconds", timeout_seconds.to_string()),
        }
    }
}
