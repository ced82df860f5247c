//! Asks for JSON instead of protobuf (`--kube-api-content-type=application/json`).

use std::sync::Arc;

use http::header::ACCEPT;
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Removes protobuf from the media types that requests accept; each such request also accepts JSON.
#[derive(Debug)]
pub struct JsonOnly;

impl Middleware for JsonOnly {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        mut request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        if let Some(accept) = request.headers().get(ACCEPT).and_then(without_protobuf) {
            request.headers_mut().insert(ACCEPT, accept);
        }
        inner.oneshot(request).await
    }
}

/// The header without protobuf; `None` if it stays as it is.
fn without_protobuf(accept: &HeaderValue) -> Option<HeaderValue> {
    let accept = accept.to_str().ok()?;
    let kept: Vec<_> =
        accept.split(',').map(str::trim).filter(|media_type| !media_type.starts_with(PROTOBUF)).collect();
    let kept = kept.join(",");
    if kept.is_empty() || !accept.contains(PROTOBUF) { None } else { HeaderValue::from_str(&kept).ok() }
}
