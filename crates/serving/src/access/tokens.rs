//! Bearer tokens are shown to the API server, which says whose they are; it is asked once for a while.

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
/// The time one lookup may take, all tries together.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);
const CACHED_TOKENS_MAX: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
const INVALID: &str = "invalid bearer token";

/// Stands for a token without giving it away.
type Digest = [u8; 32];
/// Whose a token is, nobody's, or why that could not be found out.
type Outcome = Result<Option<Arc<User>>, Arc<str>>;

/// Looks tokens up.
pub(super) struct Tokens {
    api: ApiServerClient,
    lifetime: Duration,
    /// A process's own: digests of one process say nothing to another.
    secret: hmac::Key,
    known: Expiring<Digest, Option<Arc<User>>>,
    /// Lookups under way, so that many requests with one token make one.
    under_way: Mutex<BTreeMap<Digest, Shared<BoxFuture<'static, Outcome>>>>,
    metrics: Arc<AccessMetrics>,
    chance: Mutex<fastrand::Rng>,
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
        chance: fastrand::Rng,
    ) -> Result<Arc<Self>, String> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &random)
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(Arc::new(Self {
            api,
            lifetime,
            secret,
            known: Expiring::new(CACHED_TOKENS_MAX),
            under_way: Mutex::default(),
            metrics,
            chance: Mutex::new(chance),
        }))
    }

    /// The user that a request's token belongs to; `None` if it brings no token.
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
        let began = Instant::now();
        let digest = self.digest(token);
        if let Some(known) = self.known.get(&digest) {
            self.metrics.token_cache_answered("hit", began);
            return Ok(known);
        }
        let lookup = {
            let mut under_way = self.under_way.lock();
            match under_way.get(&digest) {
                Some(lookup) => lookup.clone(),
                None => {
                    let lookup = Arc::clone(self).begin(digest, token.to_owned());
                    under_way.insert(digest, lookup.clone());
                    lookup
                }
            }
        };
        let _blocked = self.metrics.token_fetch_waits("blocked");
        let outcome = lookup.await;
        self.metrics.token_cache_answered("miss", began);
        outcome
    }

    /// Begins a lookup that goes on even if all who wait for it give up: the next one may want it.
    fn begin(self: Arc<Self>, digest: Digest, token: String) -> Shared<BoxFuture<'static, Outcome>> {
        let task = tokio::spawn(async move {
            let _landing = Landing { tokens: &self, digest };
            // Another lookup may have ended since this one was found to be needed.
            if let Some(known) = self.known.get(&digest) {
                return Ok(known);
            }
            let outcome = self.look_up(&token).await;
            if let Ok(user) = &outcome {
                self.known.put(digest, user.clone(), self.lifetime);
            }
            outcome
        });
        async move { task.await.unwrap_or_else(|_| Err("looking a token up failed".into())) }.boxed().shared()
    }

    async fn look_up(&self, token: &str) -> Outcome {
        let _in_flight = self.metrics.token_fetch_waits("in_flight");
        let spec = ReviewSpec { token };
        let call = self.api.review(&REVIEW, &spec, &self.metrics.token_reviews, &self.chance);
        let answer: Result<ReviewStatus, String> = match timeout(LOOKUP_LIMIT, call).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{}: no answer within {LOOKUP_LIMIT:?}", REVIEW.path)),
        };
        let outcome = match answer {
            Err(error) => {
                tracing::error!(%error, "a token could not be reviewed");
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
        // A tag of HMAC-SHA-256 has this length.
        digest.copy_from_slice(tag.as_ref());
        digest
    }
}

/// Takes a lookup off the list however it ends.
struct Landing<'a> {
    tokens: &'a Tokens,
    digest: Digest,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.tokens.under_way.lock().remove(&self.digest);
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

/// The token of an `Authorization: Bearer` header; anything else in that header is no credential.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// The token that a browser's websocket brings in the only header it can set.
fn websocket(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let has = |name, wanted: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted)))
    };
    if !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return Ok(None);
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let (mut token, mut others) = (None, 0);
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(WEBSOCKET_PREFIX) else {
            others += 1;
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
        // The server has to name one of the protocols, and that must not be the token.
        Some(_) if others == 0 => Err("missing additional subprotocol"),
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
    fn only_a_bearer_is_a_credential() {
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
    fn a_websocket_brings_its_token_among_its_protocols() {
        let ask = |protocols: &'static str| {
            websocket(&headers(&[
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", protocols),
            ]))
        };
        assert_eq!(ask("base64url.bearer.authorization.k8s.io.YWJj, v4"), Ok(Some("abc".to_owned())));
        assert_eq!(ask("v4"), Ok(None));
        assert_eq!(ask("base64url.bearer.authorization.k8s.io.YWJj"), Err("missing additional subprotocol"));
        assert!(ask("base64url.bearer.authorization.k8s.io.YWJ, v4").is_err());
        let twice =
            "base64url.bearer.authorization.k8s.io.YWJj,base64url.bearer.authorization.k8s.io.YWJj,v4";
        assert!(ask(twice).is_err());
        let plain = headers(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj, v4")]);
        assert_eq!(websocket(&plain), Ok(None), "no websocket");
    }
}
