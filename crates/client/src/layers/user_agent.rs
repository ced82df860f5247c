//! Sets the `User-Agent`, which audit logs show for each component.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

/// Sets the `User-Agent` of requests.
#[derive(Debug)]
pub struct UserAgent(HeaderValue);

impl UserAgent {
    /// Characters that are not valid in a header are left out.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let printable: String = text.chars().filter(|c| matches!(c, ' '..='~')).collect();
        let value = HeaderValue::from_str(&printable).unwrap_or(HeaderValue::from_static("keleustes"));
        Self(value)
    }
}

impl Middleware for UserAgent {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        mut request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        request.headers_mut().insert(USER_AGENT, self.0.clone());
        inner.oneshot(request).await
    }
}
