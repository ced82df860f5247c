//! What the rest of the house must know of a kind to list, watch, cache and write it.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;

use crate::protobuf::{self, Message, NotWhole, Whole};
use crate::{Key, ObjectMeta};

/// An object as a cache keeps it.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Where the fields stand in protobuf that are read, if it may be asked for so.
    const MESSAGE: Option<&'static Message> = None;

    /// The same for a kind that keeps parts as they came, in order to write them back, and must lose nothing.
    const WHOLE: Option<&'static Whole> = None;

    /// Whether it may be asked for in protobuf.
    const SUPPORTS_PROTOBUF: bool = Self::MESSAGE.is_some() || Self::WHOLE.is_some();

    /// The metadata that every object has.
    fn meta(&self) -> &ObjectMeta;

    /// Where the object is.
    fn key(&self) -> &Key {
        &self.meta().key
    }
}

/// One object as it came from the API, not yet read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded<'a> {
    /// JSON.
    Json(&'a str),
    /// The message of a [`Message`] that the kind has.
    Protobuf(&'a [u8]),
}

/// Why an object cannot be read. Shown, it does not quote the object.
#[derive(Debug)]
pub enum DecodeError {
    /// It is no such JSON.
    Json(serde_json::Error),
    /// It is no such message.
    Protobuf(protobuf::Error),
    /// As a message it has a field that would be lost; as JSON it can be read.
    RequiresJson,
    /// It came as a message and the kind knows of none.
    NoMessage,
}

/// Says where a text stopped being what it should be. serde's own words quote the value they stumbled
/// over, which may be a secret.
#[must_use]
pub fn decode_error_without_content(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => f.write_str(&decode_error_without_content(error)),
            Self::Protobuf(error) => error.fmt(f),
            Self::RequiresJson => f.write_str("it has a field that is known in JSON only"),
            Self::NoMessage => f.write_str("protobuf was not asked for"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Encoded<'_> {
    /// Reads the object.
    ///
    /// # Errors
    /// If it is not one of that type.
    pub fn read<T: Object>(self) -> Result<T, DecodeError> {
        let bytes = match self {
            Self::Json(text) => return serde_json::from_str(text).map_err(DecodeError::Json),
            Self::Protobuf(bytes) => bytes,
        };
        match (T::MESSAGE, T::WHOLE) {
            (Some(message), _) => protobuf::from_slice(bytes, message).map_err(DecodeError::Protobuf),
            (None, Some(whole)) => {
                let json = protobuf::to_json(bytes, whole).map_err(|error| match error {
                    NotWhole::Malformed(error) => DecodeError::Protobuf(error),
                    NotWhole::Stranger => DecodeError::RequiresJson,
                })?;
                serde_json::from_str(&json).map_err(DecodeError::Json)
            }
            (None, None) => Err(DecodeError::NoMessage),
        }
    }
}

/// An object whose type tells the API resource it is of.
///
/// Two Rust types may be two projections of one resource (all of it, or only those objects that a
/// field selector lets through); each has a cache of its own.
pub trait Kind: Object {
    /// The API resource behind it.
    const RESOURCE: Resource;
    /// Which part of the resource the cache holds.
    const PROJECTION: Projection = Projection::WHOLE;
}

/// An API resource: what its URLs and its objects' type lines are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version of the group.
    pub version: Cow<'static, str>,
    /// The name in URLs.
    pub plural: Cow<'static, str>,
    /// The name in objects.
    pub kind: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A resource whose objects live in namespaces.
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

    /// A resource whose objects belong to the cluster.
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

    /// The path of all objects, or of one namespace's; no slash at the end.
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

/// `plural` or `plural.group`, the way events, errors and metrics name a resource.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Which part of a resource a cache holds, and in which representation it asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Only objects that this field selector lets through.
    pub field_selector: Option<&'static str>,
    /// Only metadata is asked for; the server sends nothing else.
    pub metadata_only: bool,
}

impl Projection {
    /// All objects of the resource, whole on the wire.
    pub const WHOLE: Self = Self { field_selector: None, metadata_only: false };
    /// All objects of the resource, metadata only on the wire.
    pub const METADATA: Self = Self { field_selector: None, metadata_only: true };

    /// Only the objects that a field selector lets through.
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
    fn decoding_errors_do_not_quote() {
        let error = serde_json::from_str::<u32>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        assert!(!decode_error_without_content(&error).contains("hunter2"));
    }
}
