//! Lists and watches one resource and passes its objects on as deltas: first all objects, then single
//! changes.
//!
//! `kube_runtime::watcher` does not fit: it does not expose the resourceVersion of bookmarks and of the
//! initial list, which read-your-own-writes needs; it does not fall back from a refused streaming list to a
//! paged one; and after a 410 it cannot list with "not older than the last resourceVersion".
//!
//! [`policy`] is the protocol without IO, [`framing`] and [`decode`] turn bytes into objects, and [`driver`]
//! does the IO.

mod backoff;
mod decode;
mod driver;
mod framing;
mod listing;
mod policy;
#[cfg(test)]
mod tests;

use keleustes_objects::{
    ApiError, DecodeError, Encoded, Key, Kind, Object, ObjectMeta, PartialObjectMeta, Projection, Resource,
    ResourceVersion, Uid,
};

pub use self::driver::Reflector;
use self::policy::ReflectorRequest;
use crate::call::{Call, METADATA, METADATA_LIST};

/// Servers without protobuf, such as those of custom resources and aggregated APIs, respond with JSON.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";
const PROTOBUF_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// What to list and watch, and how to decode it.
///
/// Decoding goes through function pointers, so that one monomorphized reflector can serve many types behind
/// one pointer type.
#[derive(Clone, Debug)]
pub struct ListWatch<T> {
    /// The resource.
    pub resource: Resource,
    /// The projection: selector, and whether only metadata is requested.
    pub projection: Projection,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// Whether watches may use protobuf. Lists always use JSON.
    pub accepts_protobuf: bool,
    /// Decodes one object.
    pub decode: Decode<T>,
    /// Returns an object's metadata.
    pub meta: fn(&T) -> &ObjectMeta,
}

/// Decodes one object.
pub type Decode<T> = fn(Encoded<'_>) -> Result<T, DecodeError>;

/// A change for the consumer, in the order of the watch.
#[derive(Debug, PartialEq)]
pub enum Delta<T> {
    /// All objects; every other object of the consumer was deleted.
    Replace {
        /// All objects, unordered.
        objects: Vec<T>,
        /// Objects that exist but could not be decoded. They are not deleted.
        unreadable: Vec<Key>,
        /// The resourceVersion of the list; single objects may be newer.
        version: ResourceVersion,
    },
    /// The object was created or updated.
    Apply(T),
    /// The object was deleted; this was its last state.
    Delete(T),
    /// The object was deleted, and its last state cannot be decoded.
    DeleteKey {
        /// Namespace and name.
        key: Key,
        /// The UID.
        uid: Uid,
        /// The resourceVersion of the deletion.
        version: ResourceVersion,
    },
    /// The consumer is synced up to this resourceVersion.
    Bookmark(ResourceVersion),
}

/// Receives notifications about errors that the consumer does not see.
pub trait ReflectorObserver: Send + Sync {
    /// An object could not be decoded and was skipped; `object` is its `namespace/name`, or empty if unknown.
    fn undecodable(&self, resource: &Resource, object: &str) {
        let _ = (resource, object);
    }

    /// A list or watch failed; the reflector retries by itself.
    fn failed(&self, resource: &Resource, failure: &ApiError) {
        let _ = (resource, failure);
    }
}

impl<T: Object> ListWatch<T> {
    /// A projection of a resource, in all namespaces.
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
    /// The resource and projection of a kind's cache.
    #[must_use]
    pub fn of_kind() -> Self {
        Self::new(T::RESOURCE, T::PROJECTION)
    }
}

impl ListWatch<PartialObjectMeta> {
    /// Only the metadata of a resource.
    #[must_use]
    pub fn metadata_of(resource: Resource) -> Self {
        Self::new(resource, Projection::METADATA)
    }
}

impl<T> ListWatch<T> {
    /// Restricts the list and watch to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    fn call(&self, request: &ReflectorRequest) -> Call {
        let mut call = Call::list(&self.resource, &self.namespace);
        if let Some(selector) = self.projection.field_selector {
            call = call.query("fieldSelector", selector);
        }
        let (version, is_watch) = match request {
            ReflectorRequest::List { version, .. } => (version, false),
            ReflectorRequest::WatchList { version, .. } | ReflectorRequest::Watch { version, .. } => {
                (version, true)
            }
        };
        call.accept = match (self.projection.metadata_only, is_watch) {
            (false, true) if self.accepts_protobuf => PROTOBUF,
            (true, true) if self.accepts_protobuf => PROTOBUF_METADATA,
            (false, _) => "application/json",
            (true, false) => METADATA_LIST,
            (true, true) => METADATA,
        };
        if !version.is_empty() {
            call = call.query("resourceVersion", version);
        }
        match request {
            ReflectorRequest::List { limit, continue_token, .. } => {
                if let Some(limit) = limit {
                    call = call.query("limit", limit.to_string());
                }
                if let Some(token) = continue_token {
                    call = call.query("continue", token);
                }
                call
            }
            ReflectorRequest::WatchList { timeout_seconds, .. } => call
                .query("sendInitialEvents", "true")
                .query("resourceVersionMatch", "NotOlderThan")
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("timeoutSeconds", timeout_seconds.to_string()),
            ReflectorRequest::Watch { timeout_seconds, .. } => call
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("timeoutSeconds", timeout_seconds.to_string()),
        }
    }
}
