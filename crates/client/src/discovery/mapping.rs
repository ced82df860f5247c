//! Maps kinds to resources and back, as the server serves them now or did a moment ago.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ApiResource, DiscoveredResources, discover, group_version};

/// What was learnt longer ago than this is asked for again before it is used.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Something unknown may be new, and a server that was away may be back: either is asked for again, but
/// not more often than this.
const MISS_AGE: Duration = Duration::from_secs(5);

/// What a server serves, asked for when it is needed. Clones share what they learn.
#[derive(Clone)]
pub struct RestMapper {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    max_age: Duration,
    known: Mutex<Known>,
    /// Held while the server is asked, so that callers who come meanwhile wait and share the answer.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    discovered: Option<Arc<DiscoveredResources>>,
    /// When the server was last asked, successfully or not.
    asked_at: Option<Instant>,
    failure: Option<ApiError>,
}

impl RestMapper {
    /// A mapping that knows nothing yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with_max_age(client, MAX_AGE)
    }

    /// A mapping that asks again after another time than 30 seconds.
    #[must_use]
    pub fn with_max_age(client: Client, max_age: Duration) -> Self {
        let shared = Shared { client, max_age, known: Mutex::default(), asking: tokio::sync::Mutex::new(()) };
        Self { shared: Arc::new(shared) }
    }

    /// The resource of a kind, in a version or in the preferred one that has it.
    ///
    /// # Errors
    /// If it cannot be known whether there is one.
    pub async fn mapping_for_kind(
        &self,
        group: &str,
        version: Option<&str>,
        kind: &str,
    ) -> Result<Option<ApiResource>, ApiError> {
        self.find(group, version, |one| one.resource.kind == kind).await
    }

    /// The same by the name in URLs.
    ///
    /// # Errors
    /// If it cannot be known whether there is one.
    pub async fn mapping_for_resource(
        &self,
        group: &str,
        version: Option<&str>,
        plural: &str,
    ) -> Result<Option<ApiResource>, ApiError> {
        self.find(group, version, |one| one.resource.plural == plural).await
    }

    /// All that is served.
    ///
    /// # Errors
    /// If it was never learnt. Later failures leave what was learnt before in use, see
    /// [`RestMapper::last_failure`].
    pub async fn all(&self) -> Result<Arc<DiscoveredResources>, ApiError> {
        self.not_older_than(self.shared.max_age).await
    }

    /// Forgets when the server was last asked, so that the next use asks again.
    pub fn invalidate(&self) {
        self.shared.known.lock().asked_at = None;
    }

    /// Why the last try to ask the server failed, if it did.
    #[must_use]
    pub fn last_failure(&self) -> Option<ApiError> {
        self.shared.known.lock().failure.clone()
    }

    async fn find(
        &self,
        group: &str,
        version: Option<&str>,
        wanted: impl Fn(&ApiResource) -> bool,
    ) -> Result<Option<ApiResource>, ApiError> {
        let mut discovered = self.all().await?;
        let mut found = lookup(&discovered, group, version, &wanted);
        if found.is_none() {
            discovered = self.not_older_than(self.shared.max_age.min(MISS_AGE)).await?;
            found = lookup(&discovered, group, version, &wanted);
        }
        match found {
            None => might_exist(&discovered, group, version).map_or(Ok(None), Err),
            found => Ok(found),
        }
    }

    async fn not_older_than(&self, age: Duration) -> Result<Arc<DiscoveredResources>, ApiError> {
        let called_at = Instant::now();
        {
            let known = self.shared.known.lock();
            let age = if known.failure.is_some() { age.min(MISS_AGE) } else { age };
            if let Some(discovered) = &known.discovered
                && known.asked_at.is_some_and(|asked_at| asked_at.elapsed() < age)
            {
                return Ok(Arc::clone(discovered));
            }
        }
        let _asking = self.shared.asking.lock().await;
        if let Some(outcome) = self.outcome_since(called_at) {
            return outcome;
        }
        let discovered = discover(&self.shared.client).await;
        let mut known = self.shared.known.lock();
        known.asked_at = Some(Instant::now());
        match discovered {
            Ok(discovered) => {
                known.failure = None;
                Ok(Arc::clone(known.discovered.insert(Arc::new(discovered))))
            }
            Err(failure) => {
                tracing::warn!(%failure, "discovery failed");
                known.failure = Some(failure.clone());
                known.discovered.clone().ok_or(failure)
            }
        }
    }

    /// What came of it if somebody else asked while this caller waited.
    fn outcome_since(&self, called_at: Instant) -> Option<Result<Arc<DiscoveredResources>, ApiError>> {
        let known = self.shared.known.lock();
        known.asked_at.filter(|&asked_at| asked_at > called_at)?;
        match &known.discovered {
            Some(discovered) => Some(Ok(Arc::clone(discovered))),
            None => known.failure.clone().map(Err),
        }
    }
}

fn lookup(
    discovered: &DiscoveredResources,
    group: &str,
    version: Option<&str>,
    wanted: impl Fn(&ApiResource) -> bool,
) -> Option<ApiResource> {
    let candidates = discovered.resources.iter().filter(|one| {
        one.resource.group == group
            && version.is_none_or(|version| one.resource.version == version)
            && wanted(one)
    });
    // Not every resource of a group is in the preferred version; then the first that has it will do.
    candidates.min_by_key(|one| !one.preferred).cloned()
}

/// Whether what was not found may be among what could not be learnt.
fn might_exist(discovered: &DiscoveredResources, group: &str, version: Option<&str>) -> Option<ApiError> {
    let root = if group.is_empty() { "api" } else { "apis" };
    let (name, why) = discovered.failed.iter().find(|(name, _)| match version {
        _ if name.as_str() == root => true,
        Some(version) => **name == group_version(group, version),
        None if group.is_empty() => !name.contains('/') && name.as_str() != "apis",
        None => name.strip_prefix(group).is_some_and(|rest| rest.starts_with('/')),
    })?;
    Some(ApiError::transport(
        ErrorReason::Unavailable,
        format!("unable to retrieve the server APIs of {name}: {why}"),
    ))
}
