//! Requests as plain data: built completely before anything is sent, shown without what they carry.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use keleustes_objects::{
    ApiError, ErrorReason, Key, Resource, ResourceVersion, Uid, decode_error_without_content, escape_html,
};
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure;

/// An API server gives up on a request after a minute; an answer later than this will not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// The metadata of one object. An aggregated API server may not know of partial objects; the whole ones
/// do as well.
pub(crate) const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The metadata of many objects.
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One request. `Debug` and `Display` tell how long its body is, never what it says.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, in order, not yet escaped.
    pub query: Vec<(&'static str, String)>,
    /// The media types that are understood.
    pub accept: &'static str,
    /// The media type of the body, if there is one.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Bytes,
}

/// How the body of a patch is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations (RFC 6902).
    Json,
    /// Fields to set, `null` to remove (RFC 7386).
    Merge,
    /// Like [`Patch::Merge`], with lists merged by key and `$patch` directives.
    Strategic,
    /// The fields that the manager wants to own.
    Apply {
        /// Who owns them.
        manager: String,
        /// Whether fields of other managers are taken over.
        force: bool,
    },
}

/// What a deletion asks for; by default everything is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Only this life of the object.
    pub uid: Option<Uid>,
    /// Only this state of the object.
    pub resource_version: Option<ResourceVersion>,
    /// What becomes of objects that it owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// How long the object may take to end.
    pub grace_period_seconds: Option<u32>,
}

/// What becomes of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PropagationPolicy {
    /// They lose their owner.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// What is kept of the object that a write answers with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteResponse {
    /// Where the object is; the server may have chosen the name.
    pub key: Key,
    /// Its life.
    pub uid: Uid,
    /// Its state after the write.
    pub resource_version: ResourceVersion,
    /// False if only a Status came, as for an object that a deletion removed at once; then there is no
    /// version, and the uid is the one the Status names.
    pub is_object: bool,
}

impl Call {
    /// A call without query and body.
    #[must_use]
    pub fn raw(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            accept: "application/json",
            content_type: None,
            body: Bytes::new(),
        }
    }

    /// Reads one object.
    #[must_use]
    pub fn get(resource: &Resource, key: &Key) -> Self {
        Self::raw(Method::GET, resource.object_path(key))
    }

    /// Reads all objects, or those of one namespace.
    #[must_use]
    pub fn list(resource: &Resource, namespace: &str) -> Self {
        Self::raw(Method::GET, resource.collection_path(namespace))
    }

    /// Creates an object in a namespace, or in none.
    #[must_use]
    pub fn create(resource: &Resource, namespace: &str, object: &impl Serialize) -> Self {
        Self::raw(Method::POST, resource.collection_path(namespace)).with_body(object)
    }

    /// Writes a whole object over the one that is there.
    #[must_use]
    pub fn replace(resource: &Resource, key: &Key, object: &impl Serialize) -> Self {
        Self::raw(Method::PUT, resource.object_path(key)).with_body(object)
    }

    /// Changes parts of an object.
    #[must_use]
    pub fn patch(resource: &Resource, key: &Key, patch: PatchType, change: &impl Serialize) -> Self {
        let mut call = Self::raw(Method::PATCH, resource.object_path(key)).with_body(change);
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

    /// Deletes an object. Nothing asked for means no body at all, as from the original.
    #[must_use]
    pub fn delete(resource: &Resource, key: &Key, deletion: &DeleteOptions) -> Self {
        let call = Self::raw(Method::DELETE, resource.object_path(key));
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
            return call;
        }
        options.insert("kind".to_owned(), json!("DeleteOptions"));
        options.insert("apiVersion".to_owned(), json!("v1"));
        call.with_body(&Value::Object(options))
    }

    /// Deletes all objects of a namespace. The answer lists them; only their metadata is asked for.
    #[must_use]
    pub fn delete_collection(resource: &Resource, namespace: &str, deletion: &DeleteOptions) -> Self {
        let mut call =
            Self::delete(resource, &Key { namespace: namespace.into(), name: "".into() }, deletion);
        call.path = resource.collection_path(namespace);
        call.accept = METADATA_LIST;
        call
    }

    /// Asks for the metadata of an object only. Servers that cannot give it alone give the whole.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.accept = METADATA;
        self
    }

    /// Turns a call on an object into one on a part of it, such as `status`.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.path.push('/');
        self.path.push_str(name);
        self
    }

    /// Adds to the query.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Lets the server answer a read from its cache, which may be old.
    #[must_use]
    pub fn from_cache(self) -> Self {
        self.query("resourceVersion", "0")
    }

    /// Sets a JSON body.
    ///
    /// # Panics
    /// If the value cannot be written as JSON, which only maps with keys that are no strings cannot.
    #[must_use]
    pub fn with_body(mut self, value: &impl Serialize) -> Self {
        let text =
            serde_json::to_string(value).expect("API objects are made of strings, numbers, lists and maps");
        self.body = Bytes::from(escape_html(text));
        self.content_type = Some("application/json");
        self
    }

    /// Sends the call and reads the answer as JSON of any shape.
    ///
    /// # Errors
    /// Whatever kept the call from succeeding.
    pub async fn send(&self, client: &Client) -> Result<Value, ApiError> {
        self.send_as(client).await
    }

    /// Sends the call and keeps of the answer what tells the new state of the object. No more than that
    /// is asked for: a pod's metadata is a tenth of the pod, to be written there and read here.
    ///
    /// # Errors
    /// Whatever kept the call from succeeding.
    pub async fn send_for_metadata(&self, client: &Client) -> Result<WriteResponse, ApiError> {
        Ok(self.clone().metadata_only().send_as::<WireAnswer>(client).await?.into())
    }

    /// Sends the call and decodes the answer.
    ///
    /// # Errors
    /// Whatever kept the call from succeeding; [`Reason::Unreadable`] if the answer is something else.
    pub async fn send_as<T: DeserializeOwned>(&self, client: &Client) -> Result<T, ApiError> {
        let text = self.send_for_bytes(client).await?;
        serde_json::from_slice(&text).map_err(|error| {
            let place = decode_error_without_content(&error);
            unreadable(&format!("the answer to {self} cannot be read: {place}"))
        })
    }

    /// Sends the call and hands out the answer as it came.
    ///
    /// # Errors
    /// Whatever kept the call from succeeding.
    pub async fn send_for_bytes(&self, client: &Client) -> Result<Bytes, ApiError> {
        let answer = async {
            let response = self.open(client).await?;
            let body = response.into_body().collect().await;
            Ok(body.map_err(|error| failure::of(&error))?.to_bytes())
        };
        self.in_time(answer).await
    }

    /// Sends the call and lets the answer run by unread: it may be long, and only that it came matters.
    ///
    /// # Errors
    /// Whatever kept the call from succeeding.
    pub async fn send_discarding_body(&self, client: &Client) -> Result<(), ApiError> {
        let answer = async {
            let mut body = self.open(client).await?.into_body();
            while let Some(frame) = body.frame().await {
                frame.map_err(|error| failure::of(&error))?;
            }
            Ok(())
        };
        self.in_time(answer).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
            Err(ApiError::transport(
                ErrorReason::ConnectionLost,
                format!("no answer to {self} within {} s", ANSWER_WITHIN.as_secs()),
            ))
        })
    }

    /// Sends the call and waits only for the head of the answer; the body is still to be read.
    pub(crate) async fn open(&self, client: &Client) -> Result<Response<Body>, ApiError> {
        let response = client.send(self.request()?).await.map_err(|error| failure::of(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        // If the words of a refusal get lost on the way, the code still tells enough.
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(failure::of_answer(status.as_u16(), &parts.headers, &body))
    }

    fn request(&self) -> Result<Request<Body>, ApiError> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.path_and_query())
            .header(ACCEPT, self.accept);
        if let Some(content_type) = self.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        request
            .body(Body::from(self.body.clone()))
            // Only a name that no object can have makes a path that is no URL.
            .map_err(|error| ApiError::from_status(400, "Invalid", &format!("{self}: {error}"), [], 0))
    }

    fn path_and_query(&self) -> String {
        if self.query.is_empty() {
            return self.path.clone();
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        format!("{}?{query}", self.path)
    }
}

pub(crate) fn unreadable(message: &str) -> ApiError {
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

#[derive(Deserialize)]
struct WireAnswer {
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
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDetails {
    uid: Uid,
}

impl From<WireAnswer> for WriteResponse {
    fn from(wire: WireAnswer) -> Self {
        let is_object = wire.kind != "Status";
        Self {
            key: Key { namespace: wire.metadata.namespace, name: wire.metadata.name },
            uid: if is_object { wire.metadata.uid } else { wire.details.uid },
            resource_version: wire.metadata.resource_version,
            is_object,
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
    fn calls_are_shown_without_what_they_carry() {
        let call = Call::create(&secrets(), "a", &json!({"data": {"token": "aHVudGVyMg=="}}));
        assert_eq!(call.to_string(), "POST /api/v1/namespaces/a/secrets");
        assert_eq!(format!("{call:?}"), "POST /api/v1/namespaces/a/secrets (33 bytes)");
    }

    #[test]
    fn patches_say_how_they_are_read() {
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
    fn deletions_ask_only_for_what_was_asked() {
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
    fn answers_keep_identity_and_state() {
        let read = |text: &str| WriteResponse::from(serde_json::from_str::<WireAnswer>(text).unwrap());
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
    async fn a_server_does_what_calls_say() {
        let server = keleustes_apiserver::ApiServer::default();
        let client = Client::new(server.clone(), "default");
        let body = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"k": value}});
        let (secrets, key) = (secrets(), Key::namespaced("default", "x"));
        let created = Call::create(&secrets, "default", &body("1")).send_for_metadata(&client).await.unwrap();
        assert!(created.is_object);
        assert_eq!(created.key, key);
        let again =
            Call::create(&secrets, "default", &body("1")).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(again.reason, ErrorReason::AlreadyExists);

        let mut read = Call::get(&secrets, &key).from_cache().send(&client).await.unwrap();
        assert_eq!(read["metadata"]["uid"], created.uid.to_string());
        let change = json!({"metadata": {"labels": {"l": "1"}}});
        let patched =
            Call::patch(&secrets, &key, PatchType::Merge, &change).send_for_metadata(&client).await.unwrap();
        assert!(created.resource_version.is_older_than(&patched.resource_version));
        read["metadata"]["labels"] = json!({"l": "2"});
        let stale = Call::replace(&secrets, &key, &read).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(stale.reason, ErrorReason::Conflict);

        let other_life = DeleteOptions { uid: Some(Uid::from("another")), ..DeleteOptions::default() };
        let refused = Call::delete(&secrets, &key, &other_life).send_for_metadata(&client).await.unwrap_err();
        assert_eq!(refused.reason, ErrorReason::Conflict);
        let this_life = DeleteOptions { uid: Some(created.uid), ..DeleteOptions::default() };
        Call::delete(&secrets, &key, &this_life).send_for_metadata(&client).await.unwrap();
        let gone = Call::get(&secrets, &key).send(&client).await.unwrap_err();
        assert_eq!((gone.reason, gone.code), (ErrorReason::NotFound, 404));
    }

    #[tokio::test(start_paused = true)]
    async fn a_collection_goes_with_one_call_and_its_long_answer_is_not_read() {
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
        let left: Vec<_> =
            server.objects("secrets").iter().map(|one| one["metadata"]["name"].clone()).collect();
        assert_eq!(left, ["c"]);
        let request = server.requests().pop().unwrap();
        assert_eq!(request.target, "/api/v1/namespaces/default/secrets");
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        assert_eq!(request.json(), body);
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_comes_alone() {
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
    async fn an_answer_that_never_comes_is_not_waited_for_forever() {
        use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
        use tower::Layer as _;
        let faults = Faults::new();
        faults.add(FaultRule::new(InjectedFault::Hang));
        let client = Client::new(faults.layer(ApiServer::default()), "default");
        let failure = Call::list(&secrets(), "").send(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::ConnectionLost);
        assert_eq!(failure.message, "no answer to GET /api/v1/secrets within 90 s");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_cannot_be_read_is_not_quoted() {
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
