//! API requests as plain data, built completely before they are sent. `Debug` and `Display` never show the
//! body.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use keleustes_objects::{
    ApiError, ErrorReason, Key, Resource, ResourceVersion, Uid, decode_error_without_content,
    encode_path_segment, escape_html, invalid_path_segment,
};
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api_error;

/// An API server times out a request after one minute, so a later response will not come.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

/// API servers store objects of a few MiB at most; a larger one comes from a broken or hostile peer.
pub(crate) const OBJECT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// An error body is read up to this size: a Status has a few hundred bytes, and more only if it quotes an object.
pub(crate) const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Accepts the metadata of one object. An aggregated API server without PartialObjectMetadata returns the
/// full object.
pub(crate) const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Accepts the metadata of a list of objects.
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One API request. `Debug` shows the length of the body, never its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query. Only the constructors write it, so that every segment is encoded.
    path: String,
    /// The query parameters, in order, unescaped.
    pub query: Vec<(&'static str, String)>,
    /// The `Accept` header.
    pub accept: &'static str,
    /// The `Content-Type` header, if there is a body.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Bytes,
    /// The object that the request addresses. A response with another object is an error.
    object: Option<Key>,
    /// Why the request cannot be sent: the path would mean another object than the caller does.
    invalid: Option<String>,
}

/// The type of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch: lists are merged by key, with `$patch` directives.
    Strategic,
    /// Server-side apply.
    Apply {
        /// The field manager.
        manager: String,
        /// Whether conflicts with other field managers are overridden.
        force: bool,
    },
}

/// Options of a delete request. By default none is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// UID precondition.
    pub uid: Option<Uid>,
    /// resourceVersion precondition.
    pub resource_version: Option<ResourceVersion>,
    /// The propagation policy for dependents.
    pub propagation_policy: Option<PropagationPolicy>,
    /// The grace period.
    pub grace_period_seconds: Option<u32>,
}

/// How a deletion propagates to the dependents of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PropagationPolicy {
    /// Dependents are orphaned.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

/// Identity and resourceVersion of the object in the response to a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteResponse {
    /// Namespace and name; the server may have generated the name.
    pub key: Key,
    /// The UID.
    pub uid: Uid,
    /// The resourceVersion after the write.
    pub resource_version: ResourceVersion,
    /// The creationTimestamp.
    pub creation_timestamp: Option<keleustes_objects::Time>,
    /// False if the response is a Status, as for an object that is removed immediately. Then
    /// `resource_version` is empty and `uid` comes from the Status details.
    pub is_object: bool,
    /// The stored object, after [`Call::send_for_object`].
    pub object: Option<Value>,
}

impl Call {
    /// A request without query and body. The path is a constant: one that contains a name is built by the
    /// constructors below, which encode it.
    #[must_use]
    pub fn raw(method: Method, path: &'static str) -> Self {
        Self::at(method, path.to_owned())
    }

    fn at(method: Method, path: String) -> Self {
        Self {
            method,
            path,
            query: Vec::new(),
            accept: "application/json",
            content_type: None,
            body: Bytes::new(),
            object: None,
            invalid: None,
        }
    }

    /// A request for one object. An empty name would make it a request for the collection, so it is refused.
    #[must_use]
    pub fn on_object(method: Method, resource: &Resource, key: &Key) -> Self {
        let mut call = Self::on_collection(method, resource, &key.namespace);
        call.path = resource.object_path(key);
        call.object = Some(key.clone());
        if key.name.is_empty() {
            call.invalid = Some("resource name may not be empty".to_owned());
        }
        call.checked("resource name", &key.name)
    }

    /// A request for a collection, in one namespace or in all if it is empty.
    fn on_collection(method: Method, resource: &Resource, namespace: &str) -> Self {
        Self::at(method, resource.collection_path(namespace))
            .checked("group", &resource.group)
            .checked("version", &resource.version)
            .checked("resource", &resource.plural)
            .checked("namespace", namespace)
    }

    /// The resources of one group and version, for discovery.
    pub(crate) fn group_version(group: &str, version: &str) -> Self {
        // The path of a collection without its last segment.
        let mut path = Resource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            plural: "".into(),
            kind: "".into(),
            namespaced: false,
        }
        .collection_path("");
        path.truncate(path.trim_end_matches('/').len());
        Self::at(Method::GET, path).checked("group", group).checked("version", version)
    }

    /// An OpenAPI v3 document, such as `apis/apps/v1`, or the index of all documents if the path is empty.
    #[must_use]
    pub fn openapi(document: &str, hash: &str) -> Self {
        let mut call = Self::at(Method::GET, "/openapi/v3".to_owned());
        for segment in document.split('/').filter(|_| !document.is_empty()) {
            call.path = format!("{}/{}", call.path, encode_path_segment(segment));
            call = call.checked("document", segment);
        }
        if !hash.is_empty() {
            call.query.push(("hash", hash.to_owned()));
        }
        call
    }

    fn checked(mut self, what: &str, segment: &str) -> Self {
        if let Some(reason) = invalid_path_segment(segment) {
            self.invalid.get_or_insert_with(|| format!("invalid {what} {segment:?}: {reason}"));
        }
        self
    }

    /// Gets one object.
    #[must_use]
    pub fn get(resource: &Resource, key: &Key) -> Self {
        Self::on_object(Method::GET, resource, key)
    }

    /// Gets a subresource of any name, or an element of an aggregated API. The response need not name the object, as
    /// the metrics of pods do not, unless the subresource is `scale`.
    #[must_use]
    pub fn read(resource: &Resource, key: &Key, subresource: &str) -> Self {
        let mut call = if key.name.is_empty() {
            Self::list(resource, &key.namespace)
        } else {
            Self::on_object(Method::GET, resource, key)
        };
        if subresource != "scale" {
            call.object = None;
        }
        if !subresource.is_empty() {
            call = call.subresource(subresource);
        }
        call
    }

    /// Lists all objects, or those of one namespace.
    #[must_use]
    pub fn list(resource: &Resource, namespace: &str) -> Self {
        Self::on_collection(Method::GET, resource, namespace)
    }

    /// Creates an object. An empty namespace is for cluster-scoped kinds.
    #[must_use]
    pub fn create(resource: &Resource, namespace: &str, object: &impl Serialize) -> Self {
        Self::on_collection(Method::POST, resource, namespace).with_body(object)
    }

    /// Updates an object (PUT).
    #[must_use]
    pub fn replace(resource: &Resource, key: &Key, object: &impl Serialize) -> Self {
        Self::on_object(Method::PUT, resource, key).with_body(object)
    }

    /// Patches an object.
    #[must_use]
    pub fn patch(resource: &Resource, key: &Key, patch: PatchType, change: &impl Serialize) -> Self {
        let mut call = Self::on_object(Method::PATCH, resource, key).with_body(change);
        call.content_type = Some(match patch {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Apply { manager, force } => {
                call.query.push(("fieldManager", manager));
                call.query.push(("force", force.to_string()));
                "application/apply-patch+yaml"
            }
        });
        call
    }

    /// Deletes an object. Without options there is no body, like in the original.
    #[must_use]
    pub fn delete(resource: &Resource, key: &Key, deletion: &DeleteOptions) -> Self {
        Self::on_object(Method::DELETE, resource, key).with_delete_options(deletion)
    }

    /// Deletes all objects of a namespace. The response lists them; only their metadata is requested.
    #[must_use]
    pub fn delete_collection(resource: &Resource, namespace: &str, deletion: &DeleteOptions) -> Self {
        let mut call = Self::on_collection(Method::DELETE, resource, namespace).with_delete_options(deletion);
        call.accept = METADATA_LIST;
        call
    }

    fn with_delete_options(self, deletion: &DeleteOptions) -> Self {
        let mut options = serde_json::Map::new();
        let mut preconditions = serde_json::Map::new();
        if let Some(uid) = &deletion.uid {
            preconditions.insert("uid".to_owned(), json!(uid));
        }
        if let Some(version) = &deletion.resource_version {
            preconditions.insert("resourceVersion".to_owned(), json!(version));
        }
        if !preconditions.is_empty() {
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
        }
        if let Some(propagation) = deletion.propagation_policy {
            options.insert("propagationPolicy".to_owned(), json!(propagation));
        }
        if let Some(seconds) = deletion.grace_period_seconds {
            options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
        }
        if options.is_empty() {
            return self;
        }
        options.insert("kind".to_owned(), json!("DeleteOptions"));
        options.insert("apiVersion".to_owned(), json!("v1"));
        self.with_body(&Value::Object(options))
    }

    /// Requests only the metadata of an object. Servers without PartialObjectMetadata return the full object.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.accept = METADATA;
        self
    }

    /// Requests only the metadata of a list's objects.
    #[must_use]
    pub fn metadata_list_only(mut self) -> Self {
        self.accept = METADATA_LIST;
        self
    }

    /// Addresses a subresource of the object, such as `status`.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.path.push('/');
        self.path.extend(encode_path_segment(name));
        self.checked("subresource", name)
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Allows the server to respond from its watch cache (`resourceVersion=0`), which may be stale.
    #[must_use]
    pub fn from_cache(self) -> Self {
        self.query("resourceVersion", "0")
    }

    /// Sets a JSON body.
    ///
    /// # Panics
    /// If the value does not serialize to JSON, which only happens for maps with keys that are not strings.
    #[must_use]
    pub fn with_body(mut self, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value)
            .expect("API objects consist of strings, numbers, lists and maps with string keys");
        self.body = Bytes::from(escape_html(text));
        self.content_type = Some("application/json");
        self
    }

    /// Sends the request and decodes the response as untyped JSON.
    ///
    /// # Errors
    /// If the request fails or the response is not a success.
    pub async fn send(&self, client: &Client) -> Result<Value, ApiError> {
        self.send_as(client).await
    }

    /// Sends the request and decodes identity and resourceVersion from the response. Only metadata is
    /// requested: a pod's metadata is a tenth of the pod, which saves encoding in the server and decoding
    /// here.
    ///
    /// # Errors
    /// If the request fails or the response is not a success.
    pub async fn send_for_metadata(&self, client: &Client) -> Result<WriteResponse, ApiError> {
        Ok(self.clone().metadata_only().send_as::<WireResponse>(client).await?.into())
    }

    /// Sends the request and decodes the stored object as well as its identity.
    ///
    /// # Errors
    /// If the request fails or the response is not a success.
    pub async fn send_for_object(&self, client: &Client) -> Result<WriteResponse, ApiError> {
        let object = self.send(client).await?;
        let undecodable = |_| unreadable_response(&format!("the response to {self} has malformed metadata"));
        let wire = WireResponse::deserialize(&object).map_err(undecodable)?;
        Ok(WriteResponse { object: Some(object), ..wire.into() })
    }

    /// Sends the request and decodes the response.
    ///
    /// # Errors
    /// If the request fails or the response is not a success; [`ErrorReason::UnreadableResponse`] if the
    /// response does not decode.
    pub async fn send_as<T: DeserializeOwned>(&self, client: &Client) -> Result<T, ApiError> {
        let text = self.send_for_bytes(client).await?;
        serde_json::from_slice(&text).map_err(|error| {
            let place = decode_error_without_content(&error);
            unreadable_response(&format!("the response to {self} cannot be decoded: {place}"))
        })
    }

    /// Sends the request and returns the response body undecoded.
    ///
    /// # Errors
    /// If the request fails, or the response is not a success or larger than 32 MiB.
    pub async fn send_for_bytes(&self, client: &Client) -> Result<Bytes, ApiError> {
        self.send_for_limited_bytes(client, OBJECT_BYTES_MAX).await
    }

    /// Like [`Self::send_for_bytes`], for a response of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If the request fails, or the response is not a success or larger.
    pub async fn send_for_limited_bytes(&self, client: &Client, bytes_max: usize) -> Result<Bytes, ApiError> {
        let answer = async {
            let body = Limited::new(self.open(client).await?.into_body(), bytes_max);
            let body = body.collect().await.map_err(|error| match error.downcast::<kube::Error>() {
                Ok(error) => api_error::from_kube(&error),
                Err(_) => unreadable_response(&format!("the response to {self} exceeds {bytes_max} bytes")),
            })?;
            Ok(body.to_bytes())
        };
        let body = self.with_timeout(answer).await?;
        self.verify_object(&body)?;
        Ok(body)
    }

    /// A response with another object than the requested one must not be taken for it: its absence, its uid and
    /// its contents say nothing about the requested object. The Status that answers a write and the responses of some
    /// subresources have no name.
    fn verify_object(&self, body: &[u8]) -> Result<(), ApiError> {
        let Some(wanted) = &self.object else { return Ok(()) };
        // A body that is not JSON is left to the caller's decoder.
        let Ok(received) = serde_json::from_slice::<WireKey>(body) else { return Ok(()) };
        let WireKey { kind, metadata: WireName { name, namespace } } = received;
        let may_lack_name = self.method == Method::POST || (kind == "Status" && self.method != Method::GET);
        let nameless = name.is_empty() && may_lack_name;
        if nameless || (name == *wanted.name && namespace == *wanted.namespace) {
            return Ok(());
        }
        Err(unreadable_response(&format!(
            "the response to {self} is about {:?} in namespace {namespace:?}, not about the requested object",
            &*name
        )))
    }

    /// Sends the request and discards the response body, which may be long.
    ///
    /// # Errors
    /// If the request fails or the response is not a success.
    pub async fn send_discarding_body(&self, client: &Client) -> Result<(), ApiError> {
        let answer = async {
            let mut body = self.open(client).await?.into_body();
            while let Some(frame) = body.frame().await {
                frame.map_err(|error| api_error::from_kube(&error))?;
            }
            Ok(())
        };
        self.with_timeout(answer).await
    }

    async fn with_timeout<T>(
        &self,
        answer: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        tokio::time::timeout(RESPONSE_TIMEOUT, answer).await.unwrap_or_else(|_| {
            Err(ApiError::transport(
                ErrorReason::ConnectionLost,
                format!("no response to {self} within {} s", RESPONSE_TIMEOUT.as_secs()),
            ))
        })
    }

    /// Sends the request and returns after the response headers; the body is not read yet.
    pub(crate) async fn open(&self, client: &Client) -> Result<Response<Body>, ApiError> {
        let response = client.send(self.request()?).await.map_err(|error| api_error::from_kube(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = beginning(body, ERROR_BYTES_MAX).await;
        Err(api_error::from_response(status.as_u16(), &parts.headers, &body))
    }

    fn request(&self) -> Result<Request<Body>, ApiError> {
        // The server would answer so, too, if the path could be written down.
        let refused = |why: &str| ApiError::from_status(400, "BadRequest", why, [], 0);
        if let Some(why) = &self.invalid {
            return Err(refused(why));
        }
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.path_and_query())
            .header(ACCEPT, self.accept);
        if let Some(content_type) = self.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        request.body(Body::from(self.body.clone())).map_err(|error| refused(&format!("{self}: {error}")))
    }

    fn path_and_query(&self) -> String {
        if self.query.is_empty() {
            return self.path.clone();
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        format!("{}?{query}", self.path)
    }
}

/// Up to `bytes_max` bytes of an error body. If there are more, or they cannot be read, the status code is enough.
async fn beginning(mut body: Body, bytes_max: usize) -> Bytes {
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(&data[..data.len().min(bytes_max - read.len())]);
        }
        if read.len() == bytes_max {
            break;
        }
    }
    read.freeze()
}

pub(crate) fn unreadable_response(message: &str) -> ApiError {
    ApiError::transport(ErrorReason::UnreadableResponse, message)
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path_and_query())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({} bytes)", self.body.len())
    }
}

/// Namespace and name of an object, borrowed where JSON has no escapes in them.
#[derive(Deserialize)]
struct WireKey<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: WireName<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
}

#[derive(Deserialize)]
struct WireResponse {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: WireIdentity,
    #[serde(default)]
    details: WireDetails,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireIdentity {
    name: keleustes_objects::ArcStr,
    namespace: keleustes_objects::InternedStr,
    uid: Uid,
    resource_version: ResourceVersion,
    creation_timestamp: Option<keleustes_objects::Time>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDetails {
    uid: Uid,
}

impl From<WireResponse> for WriteResponse {
    fn from(wire: WireResponse) -> Self {
        let is_object = wire.kind != "Status";
        Self {
            key: Key { namespace: wire.metadata.namespace, name: wire.metadata.name },
            uid: if is_object { wire.metadata.uid } else { wire.details.uid },
            resource_version: wire.metadata.resource_version,
            creation_timestamp: wire.metadata.creation_timestamp,
            is_object,
            object: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Resource {
        Resource::namespaced("", "v1", "secrets", "Secret")
    }

    #[test]
    fn debug_and_display_do_not_show_the_body() {
        let call = Call::create(&secrets(), "a", &json!({"data": {"token": "aHVudGVyMg=="}}));
        assert_eq!(call.to_string(), "POST /api/v1/namespaces/a/secrets");
        assert_eq!(format!("{call:?}"), "POST /api/v1/namespaces/a/secrets (33 bytes)");
    }

    #[test]
    fn patch_type_sets_content_type_and_query() {
        let key = Key::namespaced("a", "b");
        let merge = Call::patch(&secrets(), &key, PatchType::Merge, &json!({}));
        assert_eq!(merge.content_type, Some("application/merge-patch+json"));
        let apply = PatchType::Apply { manager: "clusterrole aggregation".to_owned(), force: true };
        let apply = Call::patch(&secrets(), &key, apply, &json!({})).subresource("status");
        assert_eq!(apply.content_type, Some("application/apply-patch+yaml"));
        assert_eq!(
            apply.to_string(),
            "PATCH /api/v1/namespaces/a/secrets/b/status?fieldManager=clusterrole+aggregation&force=true"
        );
    }

    #[test]
    fn delete_body_holds_only_the_given_options() {
        let key = Key::namespaced("a", "b");
        let plain = Call::delete(&secrets(), &key, &DeleteOptions::default());
        assert!(plain.body.is_empty() && plain.content_type.is_none());
        let guarded = DeleteOptions {
            uid: Some(Uid::from("u")),
            resource_version: Some(ResourceVersion::from("7")),
            propagation_policy: Some(PropagationPolicy::Background),
            grace_period_seconds: Some(0),
        };
        let guarded = Call::delete(&secrets(), &key, &guarded);
        let body: Value = serde_json::from_slice(&guarded.body).unwrap();
        assert_eq!(
            body,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                   "preconditions": {"uid": "u", "resourceVersion": "7"}, "propagationPolicy": "Background"})
        );
    }

    #[test]
    fn read_encodes_the_subresource_and_refuses_one_that_is_a_path() {
        let pods = Resource::namespaced("custom.metrics.k8s.io", "v1beta2", "pods", "MetricValueList");
        let all = Key::namespaced("a", "*");
        let read = Call::read(&pods, &all, "queue length?");
        assert_eq!(
            read.to_string(),
            "GET /apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/%2A/queue%20length%3F"
        );
        assert!(Call::read(&pods, &all, "../secrets").request().is_err());
    }

    #[tokio::test]
    async fn limited_read_refuses_a_larger_response() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server, "default");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "large"}, "data": {"x": "QUJD".repeat(1000)}});
        let created = Call::create(&secrets(), "default", &secret).send_for_object(&client).await.unwrap();
        assert_eq!(created.object.unwrap()["data"], secret["data"]);
        let call = Call::read(&secrets(), &Key::namespaced("default", "large"), "");
        assert!(call.send_for_limited_bytes(&client, 10_000).await.is_ok());
        let refused = call.send_for_limited_bytes(&client, 1_000).await.unwrap_err();
        assert_eq!(refused.reason, ErrorReason::UnreadableResponse);
        assert!(refused.to_string().contains("exceeds 1000 bytes"), "{refused}");
    }

    /// A server whose every response has this code and a body that never ends; counts the bytes that were read.
    fn endless(code: u16) -> (Client, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        const CHUNK: Bytes = Bytes::from_static(&[b' '; 16 * 1024]);
        let read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&read);
        let respond = move |_: Request<Body>| {
            let counter = Arc::clone(&counter);
            let chunks = futures::stream::repeat_with(move || {
                counter.fetch_add(CHUNK.len(), Ordering::Relaxed);
                Ok::<_, std::io::Error>(http_body::Frame::data(CHUNK))
            });
            let body = http_body_util::StreamBody::new(chunks);
            std::future::ready(Response::builder().status(code).body(body))
        };
        (Client::new(tower::service_fn(respond), "default"), read)
    }

    #[tokio::test]
    async fn endless_response_is_refused_after_32_mib() {
        use std::sync::atomic::Ordering;
        let key = Key::namespaced("a", "x");
        let get = Call::get(&secrets(), &key);
        let write = Call::replace(&secrets(), &key, &json!({}));
        for n in 0..5 {
            let (client, read) = endless(200);
            let result = match n {
                0 => get.send_for_bytes(&client).await.map(|_| ()),
                1 => get.send(&client).await.map(|_| ()),
                2 => write.send_for_metadata(&client).await.map(|_| ()),
                3 => write.send_for_object(&client).await.map(|_| ()),
                _ => crate::discover(&client).await.map(|_| ()),
            };
            let error = result.unwrap_err();
            assert_eq!(error.reason, ErrorReason::UnreadableResponse, "{n}: {error}");
            assert!(error.to_string().ends_with("exceeds 33554432 bytes"), "{n}: {error}");
            let responses = if n == 4 { 2 } else { 1 };
            let read = read.load(Ordering::Relaxed);
            assert!(read <= responses * (OBJECT_BYTES_MAX + 64 * 1024), "{n}: {read} bytes were read");
        }
    }

    #[tokio::test]
    async fn endless_error_body_is_read_up_to_64_kib_and_classified_by_its_code() {
        use std::sync::atomic::Ordering;
        let key = Key::namespaced("a", "x");
        let get = Call::get(&secrets(), &key);
        for n in 0..4 {
            let (client, read) = endless(500);
            let result = match n {
                0 => get.send_for_bytes(&client).await.map(|_| ()),
                1 => get.send_for_limited_bytes(&client, usize::MAX).await.map(|_| ()),
                2 => get.send_discarding_body(&client).await,
                _ => Call::replace(&secrets(), &key, &json!({})).send_for_metadata(&client).await.map(|_| ()),
            };
            let error = result.unwrap_err();
            assert!(error.code == 500 && error.is_status_reply(), "{n}: {error}");
            let read = read.load(Ordering::Relaxed);
            assert!(read <= ERROR_BYTES_MAX + 32 * 1024, "{n}: {read} bytes were read");
        }
    }

    #[test]
    fn write_response_keeps_identity_and_resource_version() {
        let read = |text: &str| WriteResponse::from(serde_json::from_str::<WireResponse>(text).unwrap());
        let object = read(
            r#"{"kind":"Secret","metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"9"}}"#,
        );
        assert!(object.is_object);
        assert_eq!(object.key, Key::namespaced("a", "x"));
        assert_eq!((object.uid, object.resource_version), (Uid::from("u"), ResourceVersion::from("9")));
        let status = read(r#"{"kind":"Status","metadata":{},"status":"Success","details":{"uid":"u"}}"#);
        assert!(!status.is_object && status.resource_version.is_empty());
        assert_eq!(status.uid, Uid::from("u"));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_create_get_patch_update_and_delete() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        let body = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"k": value}});
        let (secrets, key) = (secrets(), Key::namespaced("default", "x"));
        let created = Call::create(&secrets, "default", &body("1")).send_for_metadata(&client).await.unwrap();
        assert!(created.is_object);
        assert_eq!(created.key, key);
        let duplicate =
            Call::create(&secrets, "default", &body("1")).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(duplicate.reason, ErrorReason::AlreadyExists);

        let mut read = Call::get(&secrets, &key).from_cache().send(&client).await.unwrap();
        assert_eq!(read["metadata"]["uid"], created.uid.to_string());
        let change = json!({"metadata": {"labels": {"l": "1"}}});
        let patched =
            Call::patch(&secrets, &key, PatchType::Merge, &change).send_for_metadata(&client).await.unwrap();
        assert!(created.resource_version.is_older_than(&patched.resource_version));
        read["metadata"]["labels"] = json!({"l": "2"});
        let stale = Call::replace(&secrets, &key, &read).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(stale.reason, ErrorReason::Conflict);

        let other_uid = DeleteOptions { uid: Some(Uid::from("another")), ..DeleteOptions::default() };
        let refused = Call::delete(&secrets, &key, &other_uid).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(refused.reason, ErrorReason::Conflict);
        let same_uid = DeleteOptions { uid: Some(created.uid), ..DeleteOptions::default() };
        Call::delete(&secrets, &key, &same_uid).send_for_metadata(&client).await.unwrap();
        let not_found = Call::get(&secrets, &key).send(&client).await.unwrap_err();
        assert_eq!((not_found.reason, not_found.code), (ErrorReason::NotFound, 404));
    }

    fn roles() -> Resource {
        Resource::namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role")
    }

    #[tokio::test(start_paused = true)]
    async fn objects_with_reserved_characters_in_their_names_are_read_and_written() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        // The names that a truncated or a resolved path would reach.
        for decoy in ["a", "team"] {
            Call::create(&roles(), "default", &json!({"metadata": {"name": decoy}}))
                .send(&client)
                .await
                .unwrap();
        }
        for name in ["team#1", "a#b", "a?b", "a b", "a+b", "a&b", "\u{fc}:x", "a;b=c", "\"q\"", "a\\b", "..."]
        {
            let (key, body) = (Key::namespaced("default", name), json!({"metadata": {"name": name}}));
            let created = Call::create(&roles(), "default", &body).send_for_metadata(&client).await.unwrap();
            assert_eq!(created.key, key);
            let read = Call::get(&roles(), &key).send(&client).await.unwrap();
            assert_eq!(read["metadata"]["uid"], created.uid.to_string(), "{name}");
            let change = json!({"metadata": {"labels": {"l": "1"}}});
            let patch = Call::patch(&roles(), &key, PatchType::Merge, &change);
            assert_eq!(patch.send_for_metadata(&client).await.unwrap().uid, created.uid, "{name}");
            let deletion = DeleteOptions { uid: Some(created.uid), ..DeleteOptions::default() };
            Call::delete(&roles(), &key, &deletion).send_for_metadata(&client).await.unwrap();
            let gone = Call::get(&roles(), &key).send(&client).await.unwrap_err();
            assert_eq!(gone.reason, ErrorReason::NotFound, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_address_another_object_are_not_sent() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        for (namespace, name) in
            [("a", ""), ("a", "."), ("a", ".."), ("a", "x/../y"), ("a", "x%2Fy"), ("..", "x"), ("a/b", "x")]
        {
            let (key, deletion) = (Key::namespaced(namespace, name), DeleteOptions::default());
            let body = json!({});
            for call in [
                Call::get(&secrets(), &key),
                Call::replace(&secrets(), &key, &body),
                Call::patch(&secrets(), &key, PatchType::Merge, &body),
                Call::delete(&secrets(), &key, &deletion),
                Call::on_object(Method::POST, &secrets(), &key).subresource("token"),
            ] {
                let failure = call.send(&client).await.unwrap_err();
                assert_eq!((failure.code, failure.reason), (400, ErrorReason::Other), "{failure}");
            }
        }
        let from_discovery = Resource { plural: "../secrets".into(), ..secrets() };
        assert_eq!(Call::list(&from_discovery, "a").send(&client).await.unwrap_err().code, 400);
        let collection = Call::delete_collection(&secrets(), "a/secrets/b", &DeleteOptions::default());
        assert_eq!(collection.send(&client).await.unwrap_err().code, 400);
        assert_eq!(server.requests().len(), 0);
    }

    /// What a server that understands the path differently would return.
    #[tokio::test(start_paused = true)]
    async fn response_with_another_object_is_an_error() {
        use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
        use tower::Layer as _;
        let faults = Faults::new();
        let client = Client::new(faults.layer(ApiServer::default()), "default");
        let key = Key::namespaced("a", "x");
        for (body, accepted) in [
            (json!({"kind": "Secret", "metadata": {"namespace": "a", "name": "x"}}), true),
            (json!({"kind": "Secret", "metadata": {"namespace": "a", "name": "y"}}), false),
            (json!({"kind": "Secret", "metadata": {"namespace": "b", "name": "x"}}), false),
            (json!({"kind": "Secret", "metadata": {"name": "x"}}), false),
            (json!({"kind": "SecretList", "metadata": {}, "items": []}), false),
        ] {
            let answer = Bytes::from(body.to_string());
            faults.disable_all();
            faults.add(FaultRule::new(InjectedFault::RawBody { code: 200, body: answer }));
            for result in [
                Call::get(&secrets(), &key).send(&client).await.map(|_| ()),
                Call::get(&secrets(), &key).send_for_bytes(&client).await.map(|_| ()),
                Call::replace(&secrets(), &key, &json!({})).send_for_metadata(&client).await.map(|_| ()),
            ] {
                assert_eq!(result.is_ok(), accepted, "{body}");
                let reason = result.err().map(|failure| failure.reason);
                assert!(reason.is_none_or(|it| it == ErrorReason::UnreadableResponse), "{body}");
            }
        }
        // A Status may answer a write; it says nothing about an object that was asked for.
        faults.disable_all();
        let status = Bytes::from_static(br#"{"kind": "Status", "metadata": {}, "status": "Success"}"#);
        faults.add(FaultRule::new(InjectedFault::RawBody { code: 200, body: status }));
        Call::replace(&secrets(), &key, &json!({})).send_for_metadata(&client).await.unwrap();
        let read = Call::get(&secrets(), &key).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(read.reason, ErrorReason::UnreadableResponse);
    }

    proptest::proptest! {
        /// Whatever a name contains, its path is either refused or decodes, by the rules of URLs, to exactly the
        /// requested segments.
        #[test]
        fn path_of_any_name_decodes_to_that_name(namespace in "\\PC{0,12}", name in "[\\PC\\n\u{0}#?%/. ]{0,12}") {
            let call = Call::get(&roles(), &Key::namespaced(&*namespace, &*name));
            let Ok(request) = call.request() else {
                let refused = |text: &str| matches!(text, "." | "..") || text.contains(['/', '%']);
                proptest::prop_assert!(name.is_empty() || refused(&name) || refused(&namespace));
                return Ok(());
            };
            let uri: http::Uri = request.uri().to_string().parse().unwrap();
            proptest::prop_assert_eq!(uri.query(), None);
            // The fragment would be cut off by `Uri`: nothing may be missing.
            proptest::prop_assert_eq!(uri.path(), &call.path);
            let decode = |segment: &str| {
                let pair = format!("x={}", segment.replace('+', "%2B").replace('&', "%26"));
                form_urlencoded::parse(pair.as_bytes()).next().unwrap().1.into_owned()
            };
            let segments: Vec<_> = uri.path().split('/').skip(4).map(decode).collect();
            if namespace.is_empty() {
                proptest::prop_assert_eq!(segments, ["roles", &*name]);
            } else {
                proptest::prop_assert_eq!(segments, ["namespaces", &*namespace, "roles", &*name]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delete_collection_takes_one_request_and_discards_the_response() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        for (namespace, name) in [("default", "a"), ("default", "b"), ("kube-system", "c")] {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}});
            server.seed(secret).unwrap();
        }
        let deletion = DeleteOptions {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteOptions::default()
        };
        Call::delete_collection(&secrets(), "default", &deletion)
            .send_discarding_body(&client)
            .await
            .unwrap();
        let remaining: Vec<_> =
            server.objects("secrets").iter().map(|object| object["metadata"]["name"].clone()).collect();
        assert_eq!(remaining, ["c"]);
        let request = server.requests().pop().unwrap();
        assert_eq!(request.target, "/api/v1/namespaces/default/secrets");
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        assert_eq!(request.json(), body);
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_only_returns_partial_object_metadata() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "a"},
            "data": {"k": "aHVudGVyMg=="}});
        server.seed(secret).unwrap();
        let key = Key::namespaced("default", "a");
        let answer = Call::get(&secrets(), &key).metadata_only().send(&client).await.unwrap();
        assert_eq!((&answer["kind"], &answer["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
    }

    /// Proves RUN-34.
    #[tokio::test(start_paused = true)]
    async fn request_without_response_times_out() {
        use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
        use tower::Layer as _;
        let faults = Faults::new();
        faults.add(FaultRule::new(InjectedFault::Hang));
        let client = Client::new(faults.layer(ApiServer::default()), "default");
        let failure = Call::list(&secrets(), "").send(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::ConnectionLost);
        assert_eq!(failure.message, "no response to GET /api/v1/secrets within 90 s");
    }

    #[tokio::test(start_paused = true)]
    async fn undecodable_response_is_not_quoted() {
        use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
        use tower::Layer as _;
        let faults = Faults::new();
        let body = Bytes::from_static(b"{\"metadata\": \"hunter2\"}");
        faults.add(FaultRule::new(InjectedFault::RawBody { code: 200, body }));
        let client = Client::new(faults.layer(ApiServer::default()), "default");
        let failure = Call::list(&secrets(), "").send_for_metadata(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::UnreadableResponse);
        assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
    }
}
