//! Speaks as whoever a token is for, and lets go of a token that the server no longer accepts.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use keleustes_objects::ApiError;
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

/// A bearer token, ready to be sent and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// A token that a header can hold.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// What a request says of it; marked so that nobody shows it.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Where tokens come from.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is believed to be valid.
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>>;

    /// This token was not accepted: the next one must be another.
    fn reject(&self, token: &Token);
}

/// Sends a source's token with each request.
pub struct BearerToken {
    source: Arc<dyn TokenSource>,
}

impl BearerToken {
    /// Speaks with the tokens of this source.
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
