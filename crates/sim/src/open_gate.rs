//! What a mutant without a gate sends and hears: its answers tell no state that caches could be waited for with.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::service::Body;
use serde_json::{Value, json};

use crate::witness::{Route, looked_up, text};

/// The request with the life that it means. The gate remembers lives that were deleted, so a mutant without one
/// names none; but it is not to miss more than that.
pub(crate) fn with_life(mut request: Request<Bytes>, server: &ApiServer, route: &Route) -> Request<Bytes> {
    if route.method == Method::DELETE
        && let Some(there) = looked_up(server, route)
    {
        let mut options: Value = serde_json::from_slice(request.body()).unwrap_or_else(|_| json!({}));
        options["kind"] = json!("DeleteOptions");
        options["apiVersion"] = json!("v1");
        options["preconditions"]["uid"] = json!(text(&there, "/metadata/uid"));
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        *request.body_mut() = Bytes::from(options.to_string());
    }
    request
}

/// The answer without the state that the write led to.
pub(crate) async fn without_state(answer: Response<Body>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    let mut told: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    if let Some(metadata) = told["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Response::from_parts(parts, Body::text(Bytes::from(told.to_string())))
}
