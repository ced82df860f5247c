//! The requests and responses of a mutant without the gate: its responses carry no resourceVersion that the
//! gate could wait for.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::service::Body;
use serde_json::{Value, json};

use crate::recorder::{RequestInfo, stored_object, text};

/// Adds the UID precondition to a delete. The gate remembers deleted UIDs, so this mutant strips the UID
/// from its deletes; the precondition itself is not what it is meant to miss.
pub(crate) fn with_uid_precondition(
    mut request: Request<Bytes>,
    server: &ApiServer,
    info: &RequestInfo,
) -> Request<Bytes> {
    if info.method == Method::DELETE
        && let Some(stored) = stored_object(server, info)
    {
        let mut options: Value = serde_json::from_slice(request.body()).unwrap_or_else(|_| json!({}));
        options["kind"] = json!("DeleteOptions");
        options["apiVersion"] = json!("v1");
        options["preconditions"]["uid"] = json!(text(&stored, "/metadata/uid"));
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        *request.body_mut() = Bytes::from(options.to_string());
    }
    request
}

/// The response without the resourceVersion of the write.
pub(crate) async fn without_resource_version(response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    let mut object: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Response::from_parts(parts, Body::text(Bytes::from(object.to_string())))
}
