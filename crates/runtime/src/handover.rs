//! A new leader starts only on caches that have observed everything the previous leader wrote.
//!
//! A standby fills its caches before it leads, so that it can start immediately; but its watches may lag, and
//! then it would create again what the previous leader has just created. A leader that shuts down gracefully
//! therefore leaves a handover record: for each cache, the resourceVersion of its last watch event, or of the
//! last write of this process if that is newer. An event that one watch delivers is delivered to every other
//! watch of the same kind, so the next leader can wait for it, and mostly need not. The resourceVersion of a
//! list is different: if no object of the kind has changed since, no watch delivers anything for a while, so
//! a cache that is behind it does not wait but relists.
//!
//! Without a handover record, all caches relist the newest state. A standby that sees the lease expire starts
//! that relist as soon as the leader can no longer write, so that it has mostly ended when the lease is
//! taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keleustes_objects::{Key, Resource, ResourceVersion, Uid};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::caches::{Cache, Caches};
use crate::clock::Clocks;
use crate::leader::{Handover, Predecessor};

/// How long a cache may take to observe the recorded version; then it relists.
const WATCH_CATCH_UP_MAX: Duration = Duration::from_secs(2);
/// An API server gives up on a request after a minute; a write that was in flight before has taken effect by
/// then or never will.
const UNKNOWN_OUTCOME_FOR: Duration = Duration::from_secs(60);
/// From this number of deletions on, those that the caches have observed are dropped.
const DELETIONS_KEPT: usize = 64;

/// How far a cache of the previous leader was. The field names on the wire are part of the record's format.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheProgress {
    /// The last watch event or write, which every watch delivers.
    #[serde(rename = "told", default, skip_serializing_if = "String::is_empty")]
    last_event: String,
    /// The last list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    listed: String,
}

/// The resourceVersions that this process has written, for the handover record.
pub struct WrittenVersions {
    clocks: Clocks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest resourceVersion that was written of each resource.
    newest: BTreeMap<Resource, ResourceVersion>,
    /// Objects that were deleted immediately; the response has no resourceVersion.
    deletions: Vec<(Resource, Key, Uid)>,
    /// When a write last failed in a way that leaves open whether it took effect.
    unknown_outcome_at: Option<Duration>,
}

impl WrittenVersions {
    /// Nothing was written yet.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self { clocks, state: Mutex::default() }
    }

    /// A write returned this resourceVersion.
    pub fn record_write(&self, resource: &Resource, version: &ResourceVersion) {
        let newest = &mut self.state.lock().newest;
        match newest.get_mut(resource) {
            Some(newest_version) if version.is_older_than(newest_version) => {}
            Some(newest_version) => *newest_version = version.clone(),
            None => drop(newest.insert(resource.clone(), version.clone())),
        }
    }

    /// An object was deleted.
    pub fn record_deletion(&self, caches: &Caches, resource: &Resource, key: &Key, uid: &Uid) {
        let deletions = &mut self.state.lock().deletions;
        if deletions.len() >= DELETIONS_KEPT {
            deletions.retain(|deletion| is_unobserved(caches, deletion));
        }
        deletions.push((resource.clone(), key.clone(), uid.clone()));
    }

    /// A write may or may not have taken effect.
    pub fn record_unknown_outcome(&self) {
        self.state.lock().unknown_outcome_at = Some(self.clocks.monotonic());
    }

    /// The handover record, to be taken when no controller runs any more; `None` if the written state is not
    /// known for certain.
    #[must_use]
    pub fn handover_record(&self, caches: &Caches) -> Option<String> {
        let State { newest, deletions, unknown_outcome_at } = &*self.state.lock();
        let has_unknown_outcome =
            unknown_outcome_at.is_some_and(|at| self.clocks.monotonic() < at + UNKNOWN_OUTCOME_FOR);
        if has_unknown_outcome || deletions.iter().any(|deletion| is_unobserved(caches, deletion)) {
            return None;
        }
        let progress = |cache: &Arc<Cache>| {
            let (event, written) =
                (cache.last_event_version(), newest.get(cache.entry().resource()).cloned());
            let last_event = match (event, written) {
                (Some(event), Some(written)) if event.is_older_than(&written) => Some(written),
                (event, written) => event.or(written),
            };
            let text = |version: Option<ResourceVersion>| {
                version.map_or_else(String::new, |version| version.to_string())
            };
            (
                cache.name(),
                CacheProgress { last_event: text(last_event), listed: text(cache.last_list_version()) },
            )
        };
        let progress: BTreeMap<_, _> = caches.all().iter().map(progress).collect();
        serde_json::to_string(&progress).ok()
    }
}

fn is_unobserved(caches: &Caches, (resource, key, uid): &(Resource, Key, Uid)) -> bool {
    let has_resource = |cache: &&Arc<Cache>| cache.entry().resource() == resource;
    caches.all().iter().filter(has_resource).any(|cache| !cache.has_observed_deletion(key, uid))
}

impl Handover for Caches {
    fn handover_record(&self) -> Option<String> {
        self.written_versions().handover_record(self)
    }

    fn prepare_takeover(&self) {
        tracing::info!("lease not renewed, relisting caches before takeover");
        for cache in self.all() {
            cache.request_relist();
        }
    }
}

/// What caches must have observed before a new leader acts on them.
pub enum PredecessorState {
    /// There was no previous leader.
    None,
    /// The previous leader left a handover record.
    Recorded {
        /// By the names of caches.
        progress: BTreeMap<String, CacheProgress>,
        /// Until when a cache may reach the record by its watch.
        deadline: Instant,
        /// A list requested at this monotonic time or later is new enough in any case.
        lists_since: Duration,
    },
    /// The previous leader left no record. Lists requested at this time or later show everything it wrote.
    Unrecorded {
        /// Monotonic time.
        lists_since: Duration,
    },
}

impl PredecessorState {
    /// What the predecessor left, as of now.
    #[must_use]
    pub fn of(predecessor: &Predecessor, clocks: &Clocks) -> Self {
        let now = clocks.monotonic();
        match predecessor {
            Predecessor::Absent => Self::None,
            Predecessor::LeftRecord(record) => {
                serde_json::from_str(record).map_or(Self::Unrecorded { lists_since: now }, |progress| {
                    Self::Recorded {
                        progress,
                        deadline: Instant::now() + WATCH_CATCH_UP_MAX,
                        lists_since: now,
                    }
                })
            }
            Predecessor::LeftNoRecord(moment) => Self::Unrecorded { lists_since: moment.unwrap_or(now) },
        }
    }

    /// Returns when these caches have observed all that the previous leader can have written.
    pub async fn wait_for_caches(&self, caches: &[Arc<Cache>]) {
        join_all(caches.iter().map(|cache| self.wait_for_cache(cache))).await;
    }

    async fn wait_for_cache(&self, cache: &Cache) {
        match self {
            Self::None => {}
            Self::Unrecorded { lists_since } => cache.wait_for_list_since(*lists_since).await,
            Self::Recorded { progress, deadline, lists_since } => {
                let Some(progress) = progress.get(&cache.name()) else { return };
                if !progress.is_reached_by(cache, *deadline).await {
                    tracing::info!(
                        cache = cache.name(),
                        ?progress,
                        "cache is behind the previous leader, relisting"
                    );
                    cache.wait_for_list_since(*lists_since).await;
                }
            }
        }
    }
}

impl CacheProgress {
    /// Whether a cache is as far as the record, or gets there before the deadline.
    async fn is_reached_by(&self, cache: &Cache, deadline: Instant) -> bool {
        let (last_event, listed) =
            (ResourceVersion::from(self.last_event.as_str()), ResourceVersion::from(self.listed.as_str()));
        let has_last_event = self.last_event.is_empty()
            || timeout_at(deadline, cache.wait_until_at_least(&last_event)).await.is_ok();
        has_last_event && (self.listed.is_empty() || cache.is_at_least(&listed))
    }
}

#[cfg(test)]
mod tests {
    use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
    use keleustes_objects::{Kind as _, Namespace};
    use keleustes_plan::KindEntry;
    use serde_json::json;
    use tower::Layer as _;

    use super::*;
    use crate::clock::Random;
    use crate::metrics::Metrics;

    async fn catch_up(caches: &Caches, predecessor: &Predecessor, clocks: &Clocks) {
        PredecessorState::of(predecessor, clocks).wait_for_caches(&caches.all()).await;
    }

    fn seed(server: &ApiServer, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        server.seed(namespace).unwrap();
    }

    /// The synced caches of one process.
    async fn caches(server: &ApiServer, faults: &Faults, clocks: &Clocks) -> (Caches, Arc<Cache>) {
        let client = kube::Client::new(faults.layer(server.clone()), "default");
        let caches = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = caches.cache(&KindEntry::of::<Namespace>());
        cache.wait_for_sync().await;
        (caches, cache)
    }

    async fn wait_for_object(cache: &Cache, name: &str) {
        while cache.uid(&Key::cluster(name)).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends the watch after a list of this many objects, and lets no watch be opened again.
    fn without_watch(objects: usize) -> Faults {
        let faults = Faults::new();
        let after_the_list = InjectedFault::CutStream { after_events: objects + 1, cleanly: true };
        faults.add(FaultRule::new(after_the_list).target("sendInitialEvents").times(1));
        faults.add(FaultRule::new(InjectedFault::Hang).target("?resourceVersion="));
        faults
    }

    #[tokio::test(start_paused = true)]
    async fn standby_whose_watch_is_current_starts_immediately() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, leader_cache) = caches(&server, &Faults::new(), &clocks).await;
        let (standby, _) = caches(&server, &Faults::new(), &clocks).await;
        seed(&server, "new");
        wait_for_object(&leader_cache, "new").await;
        let record = leader.written_versions().handover_record(&leader).unwrap();
        let (began, lists) = (Instant::now(), server.requests().len());
        catch_up(&standby, &Predecessor::LeftRecord(record), &clocks).await;
        assert!(standby.all()[0].uid(&Key::cluster("new")).is_some());
        assert!(began.elapsed() < Duration::from_millis(100));
        catch_up(&standby, &Predecessor::Absent, &clocks).await;
        let holder_writes_end_at = Predecessor::LeftNoRecord(Some(Duration::ZERO));
        catch_up(&standby, &holder_writes_end_at, &clocks).await;
        assert_eq!(server.requests().len(), lists, "no relist");
    }

    #[tokio::test(start_paused = true)]
    async fn standby_that_never_synced_relists() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, leader_cache) = caches(&server, &Faults::new(), &clocks).await;
        // Its first list does not come.
        let faults = Faults::new();
        faults.add(FaultRule::new(InjectedFault::Hang).target("sendInitialEvents").times(1));
        let client = kube::Client::new(faults.layer(server.clone()), "default");
        let standby = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = standby.cache(&KindEntry::of::<Namespace>());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cache.list_count(), 0);
        seed(&server, "new");
        wait_for_object(&leader_cache, "new").await;
        catch_up(
            &standby,
            &Predecessor::LeftRecord(leader.written_versions().handover_record(&leader).unwrap()),
            &clocks,
        )
        .await;
        assert!(cache.uid(&Key::cluster("new")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn standby_behind_a_list_relists_without_waiting_for_its_watch() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) =
            caches(&server, &without_watch(ApiServer::default().snapshot().len()), &clocks).await;
        seed(&server, "new");
        let (leader, leader_cache) = caches(&server, &Faults::new(), &clocks).await;
        assert_eq!(leader_cache.last_event_version(), None, "the leader has only listed it");
        tokio::time::advance(Duration::from_secs(1)).await;
        let began = Instant::now();
        catch_up(
            &standby,
            &Predecessor::LeftRecord(leader.written_versions().handover_record(&leader).unwrap()),
            &clocks,
        )
        .await;
        assert!(cache.uid(&Key::cluster("new")).is_some());
        assert!(began.elapsed() < Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn standby_that_is_behind_relists() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, _) = caches(&server, &Faults::new(), &clocks).await;
        for (name, has_record) in [("one", true), ("two", false)] {
            let (standby, cache) = caches(&server, &without_watch(leader.all()[0].len()), &clocks).await;
            seed(&server, name);
            assert!(cache.uid(&Key::cluster(name)).is_none());
            wait_for_object(&leader.all()[0], name).await;
            let record = leader.written_versions().handover_record(&leader).unwrap();
            let predecessor =
                if has_record { Predecessor::LeftRecord(record) } else { Predecessor::LeftNoRecord(None) };
            catch_up(&standby, &predecessor, &clocks).await;
            assert!(cache.uid(&Key::cluster(name)).is_some(), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cache_relists_once_for_many_waiters() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) =
            caches(&server, &without_watch(ApiServer::default().snapshot().len()), &clocks).await;
        seed(&server, "new");
        tokio::time::advance(Duration::from_secs(1)).await;
        let (requests_before, predecessor_state) =
            (server.requests().len(), PredecessorState::of(&Predecessor::LeftNoRecord(None), &clocks));
        let all = standby.all();
        tokio::join!(predecessor_state.wait_for_caches(&all), predecessor_state.wait_for_caches(&all));
        assert!(cache.uid(&Key::cluster("new")).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        predecessor_state.wait_for_caches(&all).await;
        assert_eq!(server.requests().len(), requests_before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn standby_that_relisted_since_the_last_renewal_starts_immediately() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) =
            caches(&server, &without_watch(ApiServer::default().snapshot().len()), &clocks).await;
        tokio::time::advance(Duration::from_secs(13)).await;
        let holder_writes_end_at = Some(clocks.monotonic());
        seed(&server, "last");
        standby.prepare_takeover();
        wait_for_object(&cache, "last").await;
        let requests_before = server.requests().len();
        catch_up(&standby, &Predecessor::LeftNoRecord(holder_writes_end_at), &clocks).await;
        assert_eq!(server.requests().len(), requests_before, "no relist");

        tokio::time::advance(Duration::from_secs(60)).await;
        catch_up(&standby, &Predecessor::LeftNoRecord(Some(clocks.monotonic())), &clocks).await;
        assert!(server.requests().len() > requests_before, "the lease expired a second time");
    }

    #[tokio::test(start_paused = true)]
    async fn record_includes_own_writes_and_is_omitted_when_an_outcome_is_unknown() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, cache) = caches(&server, &Faults::new(), &clocks).await;
        let written_versions = leader.written_versions();
        let expected_record = |last_event: &str| {
            let listed = cache.last_list_version().unwrap().to_string();
            let progress =
                BTreeMap::from([("namespaces", CacheProgress { last_event: last_event.to_owned(), listed })]);
            serde_json::to_string(&progress).unwrap()
        };
        assert_eq!(written_versions.handover_record(&leader).unwrap(), expected_record(""));
        written_versions.record_write(&Namespace::RESOURCE, &ResourceVersion::from("1000"));
        written_versions.record_write(&Namespace::RESOURCE, &ResourceVersion::from("999"));
        assert_eq!(written_versions.handover_record(&leader).unwrap(), expected_record("1000"));

        seed(&server, "deleted");
        wait_for_object(&cache, "deleted").await;
        let (key, uid) = (Key::cluster("deleted"), cache.uid(&Key::cluster("deleted")).unwrap());
        written_versions.record_deletion(&leader, &Namespace::RESOURCE, &key, &uid);
        assert_eq!(written_versions.handover_record(&leader), None, "no cache has observed the deletion");
        written_versions.state.lock().deletions.clear();

        written_versions.record_unknown_outcome();
        assert_eq!(written_versions.handover_record(&leader), None);
        tokio::time::advance(UNKNOWN_OUTCOME_FOR).await;
        assert!(written_versions.handover_record(&leader).is_some());
    }
}
