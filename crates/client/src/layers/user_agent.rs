//! Tells the server which part of the manager speaks; audit logs and flow control go by it.

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
    /// Characters that no header can hold are left out.
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
