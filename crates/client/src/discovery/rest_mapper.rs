//! Maps kinds to resources and resources to kinds, from a cached discovery document.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ApiResource, DiscoveredResources, discover, group_version};

/// An older discovery document is fetched again before it is used.
const MAX_AGE: Duration = Duration::from_secs(30);
/// After a miss or a failed fetch, discovery is repeated at most this often: an unknown kind may be new, and
/// a failed server may have recovered.
const MISS_AGE: Duration = Duration::from_secs(5);

/// A REST mapper that fetches discovery on demand. Clones share the cache.
#[derive(Clone)]
pub struct RestMapper {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    max_age: Duration,
    cache: Mutex<Cache>,
    /// Held during a fetch, so that concurrent callers wait and share its result.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Cache {
    discovered: Option<Arc<DiscoveredResources>>,
    /// When discovery was last fetched, successfully or not.
    fetched_at: Option<Instant>,
    failure: Option<ApiError>,
}

impl RestMapper {
    /// A mapper with an empty cache.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with_max_age(client, MAX_AGE)
    }

    /// A mapper whose cache expires after `max_age` instead of 30 seconds.
    #[must_use]
    pub fn with_max_age(client: Client, max_age: Duration) -> Self {
        let shared =
            Shared { client, max_age, cache: Mutex::default(), fetching: tokio::sync::Mutex::new(()) };
        Self { shared: Arc::new(shared) }
    }

    /// The resource of a kind, in the given version or in the preferred version that serves it.
    ///
    /// # Errors
    /// If the group version's discovery failed, so that the mapping may exist.
    pub async fn mapping_for_kind(
        &self,
        group: &str,
        version: Option<&str>,
        kind: &str,
    ) -> Result<Option<ApiResource>, ApiError> {
        self.find(group, version, |candidate| candidate.resource.kind == kind).await
    }

    /// The resource with this plural name, in the given version or in the preferred version that serves it.
    ///
    /// # Errors
    /// If the group version's discovery failed, so that the mapping may exist.
    pub async fn mapping_for_resource(
        &self,
        group: &str,
        version: Option<&str>,
        plural: &str,
    ) -> Result<Option<ApiResource>, ApiError> {
        self.find(group, version, |candidate| candidate.resource.plural == plural).await
    }

    /// All resources that the API server serves.
    ///
    /// # Errors
    /// If discovery never succeeded. After a later failure the cached document stays in use, see
    /// [`RestMapper::last_failure`].
    pub async fn all(&self) -> Result<Arc<DiscoveredResources>, ApiError> {
        self.discovery_not_older_than(self.shared.max_age).await
    }

    /// Expires the cache, so that the next use fetches discovery again.
    pub fn invalidate(&self) {
        self.shared.cache.lock().fetched_at = None;
    }

    /// The error of the last fetch, if it failed.
    #[must_use]
    pub fn last_failure(&self) -> Option<ApiError> {
        self.shared.cache.lock().failure.clone()
    }

    async fn find(
        &self,
        group: &str,
        version: Option<&str>,
        matches: impl Fn(&ApiResource) -> bool,
    ) -> Result<Option<ApiResource>, ApiError> {
        let mut discovered = self.all().await?;
        let mut found = lookup(&discovered, group, version, &matches);
        if found.is_none() {
            discovered = self.discovery_not_older_than(self.shared.max_age.min(MISS_AGE)).await?;
            found = lookup(&discovered, group, version, &matches);
        }
        match found {
            None => error_if_it_may_exist(&discovered, group, version).map_or(Ok(None), Err),
            found => Ok(found),
        }
    }

    async fn discovery_not_older_than(&self, age: Duration) -> Result<Arc<DiscoveredResources>, ApiError> {
        let called_at = Instant::now();
        {
            let cache = self.shared.cache.lock();
            let is_partial = cache.discovered.as_ref().is_some_and(|known| known.root_failure().is_some());
            let has_failed = cache.failure.is_some() || is_partial;
            let age = if has_failed { age.min(MISS_AGE) } else { age };
            if let Some(discovered) = &cache.discovered
                && cache.fetched_at.is_some_and(|fetched_at| fetched_at.elapsed() < age)
            {
                return Ok(Arc::clone(discovered));
            }
        }
        let _fetching = self.shared.fetching.lock().await;
        if let Some(outcome) = self.fetched_since(called_at) {
            return outcome;
        }
        let discovered = discover(&self.shared.client).await;
        let mut cache = self.shared.cache.lock();
        cache.fetched_at = Some(Instant::now());
        match discovered {
            Ok(discovered) => {
                if let Some(failure) = discovered.root_failure() {
                    tracing::warn!(error = %failure, "discovery failed in part");
                }
                cache.failure = None;
                let discovered = with_failed_roots_of(discovered, cache.discovered.as_deref());
                Ok(Arc::clone(cache.discovered.insert(Arc::new(discovered))))
            }
            Err(failure) => {
                tracing::warn!(error = %failure, "discovery failed");
                cache.failure = Some(failure.clone());
                cache.discovered.clone().ok_or(failure)
            }
        }
    }

    /// The result of a fetch that another caller finished while this one waited.
    fn fetched_since(&self, called_at: Instant) -> Option<Result<Arc<DiscoveredResources>, ApiError>> {
        let cache = self.shared.cache.lock();
        cache.fetched_at.filter(|&fetched_at| fetched_at > called_at)?;
        match &cache.discovered {
            Some(discovered) => Some(Ok(Arc::clone(discovered))),
            None => cache.failure.clone().map(Err),
        }
    }
}

/// Adds the resources of a root that failed from the document before: a server that responds with an error has not
/// stopped to serve nearly all of its groups.
fn with_failed_roots_of(
    mut discovered: DiscoveredResources,
    earlier: Option<&DiscoveredResources>,
) -> DiscoveredResources {
    let Some(earlier) = earlier else { return discovered };
    for root in ["api", "apis"] {
        let belongs = |group: &str| group.is_empty() == (root == "api");
        if !discovered.failed.contains_key(root) {
            continue;
        }
        let resources = earlier.resources.iter().filter(|one| belongs(&one.resource.group));
        discovered.resources.extend(resources.cloned());
        discovered.versions.extend(earlier.versions.iter().filter(|one| belongs(&one.group)).cloned());
    }
    discovered
}

fn lookup(
    discovered: &DiscoveredResources,
    group: &str,
    version: Option<&str>,
    matches: impl Fn(&ApiResource) -> bool,
) -> Option<ApiResource> {
    let candidates = discovered.resources.iter().filter(|candidate| {
        candidate.resource.group == group
            && version.is_none_or(|version| candidate.resource.version == version)
            && matches(candidate)
    });
    // Not every resource of a group is served in the preferred version; then the first version that serves it
    // is used.
    candidates.min_by_key(|candidate| !candidate.preferred).cloned()
}

/// The error to return if the mapping may exist in a group version whose discovery failed.
fn error_if_it_may_exist(
    discovered: &DiscoveredResources,
    group: &str,
    version: Option<&str>,
) -> Option<ApiError> {
    let root = if group.is_empty() { "api" } else { "apis" };
    let (name, reason) = discovered.failed.iter().find(|(name, _)| match version {
        _ if name.as_str() == root => true,
        Some(version) => **name == group_version(group, version),
        None if group.is_empty() => !name.contains('/') && name.as_str() != "apis",
        None => name.strip_prefix(group).is_some_and(|rest| rest.starts_with('/')),
    })?;
    Some(ApiError::transport(
        ErrorReason::Unavailable,
        format!("unable to retrieve the server APIs of {name}: {reason}"),
    ))
}
