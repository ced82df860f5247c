//! The traits of cached kinds, and the API resources behind them.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::protobuf::{self, FullMessage, Message, TranscodeError};
use crate::{Key, ObjectMeta, PodParts};

/// An object as a cache keeps it.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// The protobuf fields that are read, for a kind that is requested as protobuf and decoded directly.
    const MESSAGE: Option<&'static LazyLock<Message>> = None;

    /// All protobuf fields, for a kind that is transcoded to JSON because parts of it are written back unchanged.
    const WHOLE: Option<&'static LazyLock<FullMessage>> = None;

    /// Whether the kind is requested as protobuf.
    const SUPPORTS_PROTOBUF: bool = Self::MESSAGE.is_some() || Self::WHOLE.is_some();

    /// Decodes an object and keeps only some of its parts. Pods alone are divided into parts.
    ///
    /// # Errors
    /// If it is not of this type.
    fn read_parts(object: Encoded<'_>, _pod_parts: PodParts) -> Result<Self, DecodeError> {
        object.read()
    }

    /// A copy that keeps only some of the parts; `None` if the type is not divided into parts.
    fn with_parts(&self, _pod_parts: PodParts) -> Option<Self> {
        None
    }

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

/// Decodes objects of one type, with the parts that are kept of each.
#[derive(Debug)]
pub struct Decoder<T> {
    read: fn(Encoded<'_>, PodParts) -> Result<T, DecodeError>,
    pod_parts: PodParts,
}

impl<T> Clone for Decoder<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Decoder<T> {}

impl<T> Decoder<T> {
    /// A decoder that keeps these parts of each object.
    #[must_use]
    pub const fn new(read: fn(Encoded<'_>, PodParts) -> Result<T, DecodeError>, pod_parts: PodParts) -> Self {
        Self { read, pod_parts }
    }

    /// The parts of pods that it keeps.
    #[must_use]
    pub const fn pod_parts(&self) -> PodParts {
        self.pod_parts
    }

    /// The same decoder, which keeps these parts.
    #[must_use]
    pub const fn keeping(mut self, pod_parts: PodParts) -> Self {
        self.pod_parts = pod_parts;
        self
    }

    /// Decodes one object.
    ///
    /// # Errors
    /// If it is not of that type.
    pub fn decode(&self, object: Encoded<'_>) -> Result<T, DecodeError> {
        (self.read)(object, self.pod_parts)
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

    /// The path of the collection, in one namespace or in all if it is empty; percent-encoded, without a
    /// trailing slash.
    #[must_use]
    pub fn collection_path(&self, namespace: &str) -> String {
        let (version, plural) = (encode_path_segment(&self.version), encode_path_segment(&self.plural));
        let api_version = if self.group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{}/{version}", encode_path_segment(&self.group))
        };
        if namespace.is_empty() {
            format!("{api_version}/{plural}")
        } else {
            format!("{api_version}/namespaces/{}/{plural}", encode_path_segment(namespace))
        }
    }

    /// The path of one object, percent-encoded. A name that [`invalid_path_segment`] refuses has a path, too, but
    /// a server may understand it as the path of another object.
    #[must_use]
    pub fn object_path(&self, key: &Key) -> String {
        format!("{}/{}", self.collection_path(&key.namespace), encode_path_segment(&key.name))
    }
}

/// The ASCII characters that are escaped in a path segment, as in Go's `url.URL.EscapedPath`: RBAC names with colons stay readable.
const ESCAPED_IN_PATHS: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// A segment of a path, percent-encoded.
pub fn encode_path_segment(segment: &str) -> PercentEncode<'_> {
    utf8_percent_encode(segment, &ESCAPED_IN_PATHS)
}

/// Why a name cannot be one segment of a path, however it is encoded: servers resolve `.` and `..` and split at
/// encoded slashes.
///
/// Parity: `IsValidPathSegmentName` of client-go.
#[must_use]
pub fn invalid_path_segment(segment: &str) -> Option<&'static str> {
    match segment {
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        _ if segment.contains('/') => Some("may not contain '/'"),
        _ if segment.contains('%') => Some("may not contain '%'"),
        _ => None,
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
    /// The namespace of list and watch; empty for all namespaces.
    pub namespace: &'static str,
    /// The field selector of list and watch.
    pub field_selector: Option<&'static str>,
    /// Whether the cache requests `PartialObjectMetadata`.
    pub metadata_only: bool,
    /// Whether an API server need not serve the resource. Only the controllers that read such a kind wait for its
    /// cache.
    pub optional: bool,
}

impl Projection {
    /// All objects of the resource, complete.
    pub const WHOLE: Self =
        Self { namespace: "", field_selector: None, metadata_only: false, optional: false };
    /// All objects of the resource, metadata only.
    pub const METADATA: Self = Self { metadata_only: true, ..Self::WHOLE };

    /// Only objects that match a field selector.
    #[must_use]
    pub const fn selected(field_selector: &'static str) -> Self {
        Self { field_selector: Some(field_selector), ..Self::WHOLE }
    }

    /// The same projection of one namespace.
    #[must_use]
    pub const fn in_namespace(mut self, namespace: &'static str) -> Self {
        self.namespace = namespace;
        self
    }

    /// The same projection of a resource that an API server need not serve.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
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
    fn names_are_escaped_in_paths_as_go_escapes_them() {
        let roles = Resource::namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role");
        let path = |name: &str| {
            let path = roles.object_path(&Key::namespaced("a", name));
            path.strip_prefix("/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/").unwrap().to_owned()
        };
        assert_eq!(path("team#1"), "team%231");
        assert_eq!(path("a?b"), "a%3Fb");
        assert_eq!(path("a b"), "a%20b");
        assert_eq!(path("\u{fc}:x"), "%C3%BC:x");
        assert_eq!(path("system:controller:job-controller"), "system:controller:job-controller");
        assert_eq!(path("$&+,;=@-_.~"), "$&+,;=@-_.~");
        assert_eq!(path("a/../b%2e"), "a%2F..%2Fb%252e");
        assert_eq!(path("!*'()\"<>[]{}|\\^`\n"), "%21%2A%27%28%29%22%3C%3E%5B%5D%7B%7D%7C%5C%5E%60%0A");
        assert_eq!(roles.collection_path("a?b"), "/apis/rbac.authorization.k8s.io/v1/namespaces/a%3Fb/roles");
        let from_discovery = Resource { plural: "x?y".into(), group: "g#h".into(), ..roles };
        assert_eq!(from_discovery.collection_path(""), "/apis/g%23h/v1/x%3Fy");
    }

    #[test]
    fn names_that_no_encoding_protects_are_refused() {
        assert_eq!(invalid_path_segment("."), Some("may not be '.'"));
        assert_eq!(invalid_path_segment(".."), Some("may not be '..'"));
        assert_eq!(invalid_path_segment("a/b"), Some("may not contain '/'"));
        assert_eq!(invalid_path_segment("a%2Fb"), Some("may not contain '%'"));
        for valid in ["a", "...", "a..b", "a#b", "a?b", "a b", "\u{fc}:x", "&", ""] {
            assert_eq!(invalid_path_segment(valid), None, "{valid}");
        }
    }

    #[test]
    fn decoding_errors_do_not_quote_the_object() {
        let error = serde_json::from_str::<u32>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        assert!(!decode_error_without_content(&error).contains("hunter2"));
    }
}
