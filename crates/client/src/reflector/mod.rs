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
    ApiError, Decoder, Key, Kind, Object, ObjectMeta, PartialObjectMeta, PodParts, Projection, Resource,
    ResourceVersion, Uid,
};

pub use self::driver::Reflector;
pub use self::listing::ListPage;
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
    /// The label selector of live lists; empty for all objects.
    pub label_selector: String,
    /// The field selector of live lists; empty for all objects.
    pub field_selector: String,
    /// Whether watches may use protobuf. Lists always use JSON.
    pub accepts_protobuf: bool,
    /// Decodes objects.
    pub decoder: Decoder<T>,
    /// Returns an object's metadata.
    pub meta: fn(&T) -> &ObjectMeta,
}

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

/// Receives notifications about what the consumer does not see.
pub trait ReflectorObserver: Send + Sync {
    /// The API server has accepted a list or watch; its objects may take long to arrive.
    fn accepted(&self) {}

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
    /// A projection of a resource, in the namespace of the projection or in all.
    #[must_use]
    pub fn new(resource: Resource, projection: Projection) -> Self {
        Self {
            resource,
            namespace: projection.namespace.to_owned(),
            label_selector: String::new(),
            field_selector: String::new(),
            projection,
            accepts_protobuf: T::SUPPORTS_PROTOBUF,
            decoder: Decoder::new(T::read_parts, PodParts::ALL),
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

    /// Restricts the list to objects that both selectors select, each as the API writes it; an empty one selects all.
    ///
    /// # Panics
    /// If both the projection and the caller select by fields.
    #[must_use]
    pub fn selecting(mut self, label_selector: impl Into<String>, field_selector: impl Into<String>) -> Self {
        (self.label_selector, self.field_selector) = (label_selector.into(), field_selector.into());
        let selects_twice = self.projection.field_selector.is_some() && !self.field_selector.is_empty();
        assert!(!selects_twice, "the kind's projection selects by fields already");
        self
    }

    fn call(&self, request: &ReflectorRequest) -> Call {
        let mut call = Call::list(&self.resource, &self.namespace);
        let projected = self.projection.field_selector.unwrap_or_default();
        for (name, selector) in [
            ("fieldSelector", projected),
            ("labelSelector", &self.label_selector),
            ("fieldSelector", &self.field_selector),
        ] {
            if !selector.is_empty() {
                call = call.query(name, selector);
            }
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
