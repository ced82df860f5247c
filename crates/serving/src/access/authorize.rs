//! Authorization: always-allowed paths, `system:masters`, and SubjectAccessReviews for the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::api::{ApiServerClient, ReviewKind};
use super::cache::Expiring;
use super::user::{MASTERS, User};
use crate::metrics::AccessMetrics;
use crate::{AuthorizationOptions, ServingError};

const REVIEW: ReviewKind = ReviewKind {
    path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    api_version: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
};
const CACHED_REVIEWS_MAX: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
/// Longer requests are not cached: clients choose their length.
const CACHED_REQUEST_BYTES_MAX: usize = 10_000;

/// The authorization decision of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allow,
    /// No authorizer allows it.
    NoOpinion {
        reason: String,
    },
    /// An authorizer denies it.
    Deny {
        reason: String,
    },
}

/// Authorizes requests.
pub(super) struct Authorizer {
    paths: Paths,
    reviews: Option<Reviews>,
}

impl Authorizer {
    pub(super) fn new(
        options: &AuthorizationOptions,
        api: Option<ApiServerClient>,
        metrics: Arc<AccessMetrics>,
        rng: fastrand::Rng,
    ) -> Result<Self, ServingError> {
        let reviews = api.map(|api| Reviews {
            api,
            allowed_lifetime: options.allowed_cache_ttl,
            denied_lifetime: options.denied_cache_ttl,
            cached: Expiring::new(CACHED_REVIEWS_MAX),
            metrics,
            rng: Mutex::new(rng),
        });
        Ok(Self { paths: Paths::new(&options.always_allow_paths)?, reviews })
    }

    /// # Errors
    /// If the review failed.
    pub(super) async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        if user.groups.iter().any(|group| group == MASTERS) || self.paths.contain(path) {
            return Ok(Decision::Allow);
        }
        match &self.reviews {
            Some(reviews) => reviews.decide(user, verb, path).await,
            None => Ok(Decision::NoOpinion { reason: String::new() }),
        }
    }
}

/// The always-allowed paths.
struct Paths {
    exact: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl Paths {
    fn new(paths: &[String]) -> Result<Self, ServingError> {
        let (mut exact, mut prefixes) = (BTreeSet::new(), Vec::new());
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            let prefix = path.strip_suffix('*');
            if prefix.unwrap_or(path).contains('*') {
                return Err(ServingError::Option {
                    flag: "--authorization-always-allow-paths",
                    fault: format!("only trailing * allowed in {path:?}"),
                });
            }
            match prefix {
                Some(prefix) => prefixes.push(prefix.to_owned()),
                None => {
                    exact.insert(path.to_owned());
                }
            }
        }
        Ok(Self { exact, prefixes })
    }

    fn contain(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.contains(path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// Sends SubjectAccessReviews and caches their results.
struct Reviews {
    api: ApiServerClient,
    allowed_lifetime: Duration,
    denied_lifetime: Duration,
    cached: Expiring<String, ReviewStatus>,
    metrics: Arc<AccessMetrics>,
    rng: Mutex<fastrand::Rng>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewSpec<'a> {
    non_resource_attributes: Attributes<'a>,
    user: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
struct Attributes<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl Reviews {
    async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        let spec = ReviewSpec {
            non_resource_attributes: Attributes { path, verb },
            user: &user.name,
            groups: &user.groups,
            extra: &user.extra,
            uid: &user.uid,
        };
        let cache_key = serde_json::to_string(&spec).map_err(|error| error.to_string())?;
        if let Some(cached) = self.cached.get(&cache_key) {
            return cached.decision();
        }
        let response = self.api.review(&REVIEW, &spec, &self.metrics.access_reviews, &self.rng).await;
        let status: ReviewStatus = response.inspect_err(|error| {
            tracing::error!(%error, "SubjectAccessReview failed");
        })?;
        if path.len() + verb.len() <= CACHED_REQUEST_BYTES_MAX {
            let lifetime = if status.allowed { self.allowed_lifetime } else { self.denied_lifetime };
            self.cached.put(cache_key, status.clone(), lifetime);
        }
        status.decision()
    }
}

impl ReviewStatus {
    fn decision(self) -> Result<Decision, String> {
        match (self.allowed, self.denied) {
            (true, true) => Err("the review both allows and denies".to_owned()),
            (true, false) => Ok(Decision::Allow),
            (false, true) => Ok(Decision::Deny { reason: self.reason }),
            (false, false) => Ok(Decision::NoOpinion { reason: self.reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Result<Paths, ServingError> {
        Paths::new(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    /// Proves SRV-76.
    #[test]
    fn always_allowed_paths_are_exact_or_prefixes() {
        let usual = Paths::new(&AuthorizationOptions::default().always_allow_paths).unwrap();
        let rows = [("/healthz", true), ("/livez", true), ("/readyz", true), ("/healthz/", false)];
        for (path, allowed) in
            rows.into_iter().chain([("/healthz/a", false), ("/", false), ("/metrics", false)])
        {
            assert_eq!(usual.contain(path), allowed, "{path}");
        }
        let some = paths(&["metrics", "/debug/*", "/"]).unwrap();
        for (path, allowed) in
            [("/metrics", true), ("/debug/", true), ("/debug/a/b", true), ("/debug", false), ("/", true)]
        {
            assert_eq!(some.contain(path), allowed, "{path}");
        }
        assert!(paths(&["*"]).unwrap().contain("/anything"));
        let error = paths(&["/a*b"]).err().unwrap().to_string();
        assert_eq!(error, "--authorization-always-allow-paths: only trailing * allowed in \"a*b\"");
    }
}
