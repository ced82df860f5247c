//! Token authentication by TokenReviews, with a cache.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::api::{ApiServerClient, ReviewKind};
use super::cache::Expiring;
use super::user::User;
use crate::metrics::AccessMetrics;

const REVIEW: ReviewKind = ReviewKind {
    path: "/apis/authentication.k8s.io/v1/tokenreviews",
    api_version: "authentication.k8s.io/v1",
    kind: "TokenReview",
};
/// The timeout of one TokenReview, including retries.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
const CACHED_TOKENS_MAX: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
const INVALID: &str = "invalid bearer token";

/// The cache key of a token, from which the token cannot be recovered.
type Digest = [u8; 32];
/// The token's user, `None` if the token is invalid, or the error of the review.
type Outcome = Result<Option<Arc<User>>, Arc<str>>;

/// Authenticates tokens.
pub(super) struct Tokens {
    api: ApiServerClient,
    lifetime: Duration,
    /// Random per process, so that digests are useless to another process.
    secret: hmac::Key,
    cached: Expiring<Digest, Option<Arc<User>>>,
    /// TokenReviews in flight, shared by concurrent requests with the same token.
    in_flight: Mutex<BTreeMap<Digest, Shared<BoxFuture<'static, Outcome>>>>,
    metrics: Arc<AccessMetrics>,
    rng: Mutex<fastrand::Rng>,
}

#[derive(Serialize)]
struct ReviewSpec<'a> {
    token: &'a str,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewStatus {
    authenticated: bool,
    error: String,
    user: ReviewUser,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewUser {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl Tokens {
    pub(super) fn new(
        api: ApiServerClient,
        lifetime: Duration,
        metrics: Arc<AccessMetrics>,
        rng: fastrand::Rng,
    ) -> Result<Arc<Self>, String> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &random)
            .map_err(|_| "the system's random number generator failed".to_owned())?;
        Ok(Arc::new(Self {
            api,
            lifetime,
            secret,
            cached: Expiring::new(CACHED_TOKENS_MAX),
            in_flight: Mutex::default(),
            metrics,
            rng: Mutex::new(rng),
        }))
    }

    /// The user of the request's token; `None` without a token.
    pub(super) async fn authenticate(self: &Arc<Self>, headers: &HeaderMap) -> Result<Option<User>, String> {
        let mut failures = Vec::new();
        for token in [Ok(bearer(headers)), websocket(headers)] {
            match token {
                Ok(Some(token)) => match self.user_of(&token).await {
                    Ok(Some(user)) => return Ok(Some(User::clone(&user))),
                    Ok(None) => failures.push(INVALID.to_owned()),
                    Err(error) => failures.push(error.to_string()),
                },
                Ok(None) => {}
                Err(fault) => failures.push(fault.to_owned()),
            }
        }
        if failures.is_empty() { Ok(None) } else { Err(failures.join(", ")) }
    }

    async fn user_of(self: &Arc<Self>, token: &str) -> Outcome {
        let started_at = Instant::now();
        let digest = self.digest(token);
        if let Some(cached) = self.cached.get(&digest) {
            self.metrics.token_cache_answered("hit", started_at);
            return Ok(cached);
        }
        let review_future = {
            let mut in_flight = self.in_flight.lock();
            match in_flight.get(&digest) {
                Some(review_future) => review_future.clone(),
                None => {
                    let review_future = Arc::clone(self).start_review(digest, token.to_owned());
                    in_flight.insert(digest, review_future.clone());
                    review_future
                }
            }
        };
        let _blocked = self.metrics.token_fetch_waits("blocked");
        let outcome = review_future.await;
        self.metrics.token_cache_answered("miss", started_at);
        outcome
    }

    /// Starts a TokenReview that continues even if all waiting requests are cancelled: the next request may
    /// use its result.
    fn start_review(self: Arc<Self>, digest: Digest, token: String) -> Shared<BoxFuture<'static, Outcome>> {
        let task = tokio::spawn(async move {
            let _guard = InFlightGuard { tokens: &self, digest };
            // Another review may have ended since the cache was checked.
            if let Some(cached) = self.cached.get(&digest) {
                return Ok(cached);
            }
            let outcome = self.review(&token).await;
            if let Ok(user) = &outcome {
                self.cached.put(digest, user.clone(), self.lifetime);
            }
            outcome
        });
        async move { task.await.unwrap_or_else(|_| Err("token review failed".into())) }.boxed().shared()
    }

    async fn review(&self, token: &str) -> Outcome {
        let _in_flight = self.metrics.token_fetch_waits("in_flight");
        let spec = ReviewSpec { token };
        let call = self.api.review(&REVIEW, &spec, &self.metrics.token_reviews, &self.rng);
        let response: Result<ReviewStatus, String> = match timeout(REVIEW_TIMEOUT, call).await {
            Ok(response) => response,
            Err(_) => Err(format!("{}: no response within {REVIEW_TIMEOUT:?}", REVIEW.path)),
        };
        let outcome = match response {
            Err(error) => {
                tracing::error!(%error, "TokenReview failed");
                Err(error.into())
            }
            Ok(status) if status.authenticated => Ok(Some(Arc::new(status.user.into()))),
            Ok(status) if status.error.is_empty() => Ok(None),
            Ok(status) => Err(status.error.into()),
        };
        self.metrics.token_fetched(outcome.is_ok());
        outcome
    }

    fn digest(&self, token: &str) -> Digest {
        let tag = hmac::sign(&self.secret, token.as_bytes());
        let mut digest = Digest::default();
        // An HMAC-SHA-256 tag has 32 bytes.
        digest.copy_from_slice(tag.as_ref());
        digest
    }
}

/// Removes a TokenReview from `in_flight` when it ends or is cancelled.
struct InFlightGuard<'a> {
    tokens: &'a Tokens,
    digest: Digest,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.tokens.in_flight.lock().remove(&self.digest);
    }
}

impl From<ReviewUser> for User {
    fn from(user: ReviewUser) -> Self {
        Self {
            name: user.username,
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }
    }
}

/// The token of an `Authorization: Bearer` header; other schemes are ignored.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// The token of a browser's websocket, which can set only the `Sec-WebSocket-Protocol` header.
fn websocket(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let has = |name, wanted: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted)))
    };
    if !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return Ok(None);
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let (mut token, mut other_protocols) = (None, 0);
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(WEBSOCKET_PREFIX) else {
            other_protocols += 1;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
        let decoded = URL_SAFE_NO_PAD.decode(encoded);
        let decoded = decoded.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        let decoded = String::from_utf8(decoded).map_err(|_| "invalid base64.bearer.authorization token")?;
        token = Some(decoded);
    }
    match token.filter(|token| !token.is_empty()) {
        // The server must select one of the subprotocols, and that must not be the token.
        Some(_) if other_protocols == 0 => Err("missing additional subprotocol"),
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    /// Proves SRV-63.
    #[test]
    fn only_the_bearer_scheme_is_a_credential() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc def", Some("abc")),
            ("  BEARER abc ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic YTpi", None),
            ("abc", None),
        ] {
            assert_eq!(bearer(&headers(&[("authorization", value)])).as_deref(), token, "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn websocket_token_is_read_from_the_subprotocols() {
        let token_of = |protocols: &'static str| {
            websocket(&headers(&[
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", protocols),
            ]))
        };
        assert_eq!(token_of("base64url.bearer.authorization.k8s.io.YWJj, v4"), Ok(Some("abc".to_owned())));
        assert_eq!(token_of("v4"), Ok(None));
        assert_eq!(
            token_of("base64url.bearer.authorization.k8s.io.YWJj"),
            Err("missing additional subprotocol")
        );
        assert!(token_of("base64url.bearer.authorization.k8s.io.YWJ, v4").is_err());
        let twice =
            "base64url.bearer.authorization.k8s.io.YWJj,base64url.bearer.authorization.k8s.io.YWJj,v4";
        assert!(token_of(twice).is_err());
        let plain = headers(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj, v4")]);
        assert_eq!(websocket(&plain), Ok(None), "not a websocket request");
    }
}
