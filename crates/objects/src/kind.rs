//! The traits of cached kinds, and the API resources behind them.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;

use crate::protobuf::{self, FullMessage, Message, TranscodeError};
use crate::{Key, ObjectMeta};

/// An object as a cache keeps it.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// The protobuf fields that are read, for a kind that is requested as protobuf and decoded directly.
    const MESSAGE: Option<&'static Message> = None;

    /// All protobuf fields, for a kind that is transcoded to JSON because parts of it are written back unchanged.
    const WHOLE: Option<&'static FullMessage> = None;

    /// Whether the kind is requested as protobuf.
    const SUPPORTS_PROTOBUF: bool = Self::MESSAGE.is_some() || Self::WHOLE.is_some();

    /// The metadata.
    fn meta(&self) -> &ObjectMeta;

    /// Namespace and name.
    fn key(&self) -> &Key {
        &self.meta().key
    }
}

/// One encoded object from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded<'a> {
    /// JSON.
    Json(&'a str),
    /// The protobuf message, without the `runtime.Unknown` envelope.
    Protobuf(&'a [u8]),
}

/// Why an object cannot be decoded. Its `Display` does not quote the object.
#[derive(Debug)]
pub enum DecodeError {
    /// Invalid JSON of the kind.
    Json(serde_json::Error),
    /// Invalid protobuf of the kind.
    Protobuf(protobuf::Error),
    /// The message has a field unknown to the schema, which transcoding would lose. The caller requests JSON.
    RequiresJson,
    /// A protobuf message of a kind that is not requested as protobuf.
    NoMessage,
}

/// The position of a decoding error without serde's message, which quotes the value and so may leak a secret.
#[must_use]
pub fn decode_error_without_content(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => f.write_str(&decode_error_without_content(error)),
            Self::Protobuf(error) => error.fmt(f),
            Self::RequiresJson => f.write_str("the message has an unknown field, request JSON"),
            Self::NoMessage => f.write_str("unexpected protobuf: the kind has no schema"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Encoded<'_> {
    /// Decodes the object.
    ///
    /// # Errors
    /// If it is not of that type.
    pub fn read<T: Object>(self) -> Result<T, DecodeError> {
        let bytes = match self {
            Self::Json(text) => return serde_json::from_str(text).map_err(DecodeError::Json),
            Self::Protobuf(bytes) => bytes,
        };
        match (T::MESSAGE, T::WHOLE) {
            (Some(message), _) => protobuf::from_slice(bytes, message).map_err(DecodeError::Protobuf),
            (None, Some(message)) => {
                let json = protobuf::to_json(bytes, message).map_err(|error| match error {
                    TranscodeError::Malformed(error) => DecodeError::Protobuf(error),
                    TranscodeError::UnknownField => DecodeError::RequiresJson,
                })?;
                serde_json::from_str(&json).map_err(DecodeError::Json)
            }
            (None, None) => Err(DecodeError::NoMessage),
        }
    }
}

/// A Rust type of one API resource.
///
/// Two Rust types may be projections of the same resource, for example all objects and those that match a field
/// selector; each has its own cache.
pub trait Kind: Object {
    /// The API resource.
    const RESOURCE: Resource;
    /// The part of the resource that the cache holds.
    const PROJECTION: Projection = Projection::WHOLE;
}

/// An API resource with its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version of the group.
    pub version: Cow<'static, str>,
    /// The plural name in URLs.
    pub plural: Cow<'static, str>,
    /// `kind` of its objects.
    pub kind: Cow<'static, str>,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

impl Resource {
    /// A namespaced resource.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            namespaced: true,
        }
    }

    /// A cluster-scoped resource.
    #[must_use]
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        let mut resource = Self::namespaced(group, version, plural, kind);
        resource.namespaced = false;
        resource
    }

    /// `group/version`, or `version` alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection, in one namespace or in all if it is empty; without a trailing slash.
    #[must_use]
    pub fn collection_path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let api_version = self.api_version();
        if namespace.is_empty() {
            format!("{root}/{api_version}/{}", self.plural)
        } else {
            format!("{root}/{api_version}/namespaces/{namespace}/{}", self.plural)
        }
    }

    /// The path of one object.
    #[must_use]
    pub fn object_path(&self, key: &Key) -> String {
        format!("{}/{}", self.collection_path(&key.namespace), key.name)
    }
}

/// `plural` or `plural.group`, as events, errors and metrics name a resource.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// The part of a resource that a cache holds, and the representation it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The field selector of list and watch.
    pub field_selector: Option<&'static str>,
    /// Whether the cache requests `PartialObjectMetadata`.
    pub metadata_only: bool,
}

impl Projection {
    /// All objects of the resource, complete.
    pub const WHOLE: Self = Self { field_selector: None, metadata_only: false };
    /// All objects of the resource, metadata only.
    pub const METADATA: Self = Self { field_selector: None, metadata_only: true };

    /// Only objects that match a field selector.
    #[must_use]
    pub const fn selected(field_selector: &'static str) -> Self {
        Self { field_selector: Some(field_selector), metadata_only: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_api_conventions() {
        let secrets = Resource::namespaced("", "v1", "secrets", "Secret");
        assert_eq!(secrets.collection_path(""), "/api/v1/secrets");
        assert_eq!(secrets.object_path(&Key::namespaced("a", "b")), "/api/v1/namespaces/a/secrets/b");
        let roles = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
        assert_eq!(
            roles.object_path(&Key::cluster("x")),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/x"
        );
        assert_eq!(roles.to_string(), "clusterroles.rbac.authorization.k8s.io");
    }

    #[test]
    fn decoding_errors_do_not_quote_the_object() {
        let error = serde_json::from_str::<u32>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        assert!(!decode_error_without_content(&error).contains("hunter2"));
    }
}
