//! Authenticates requests with a bearer token and rejects a token after a 401.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use keleustes_objects::ApiError;
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

/// A bearer token as a header value; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// `None` if the token is not a valid header value.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// The `Authorization` header value, marked as sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A source of tokens.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that has not expired, as far as is known.
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>>;

    /// The server responded with 401 to this token: the next one must be new.
    fn reject(&self, token: &Token);
}

/// Sets the `Authorization` header of each request.
pub struct BearerToken {
    source: Arc<dyn TokenSource>,
}

impl BearerToken {
    /// Uses the tokens of this source.
    #[must_use]
    pub fn new(source: Arc<dyn TokenSource>) -> Self {
        Self { source }
    }
}

impl Middleware for BearerToken {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        mut request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let token = self.source.token().await?;
        request.headers_mut().insert(AUTHORIZATION, token.header());
        let response = inner.oneshot(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.source.reject(&token);
        }
        Ok(response)
    }
}
