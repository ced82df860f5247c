//! Nobody begins to lead on caches that know less than the leader before had done.
//!
//! A standby fills its caches before it leads, so that it can begin at once; but its watches may lag, and then it
//! would make again what the one before has just made. A leader that stops in order therefore leaves a note: the
//! version of the last event that each of its caches was told of, or of its own last write if that is newer. What one
//! watch tells of, every other watch of the same kind tells of too, so the next leader can wait for it, and
//! mostly need not. The version of a list is another matter: if nothing of the kind has happened since, nobody is told
//! of it for a while, so whoever is behind it does not wait but fills the cache afresh.
//!
//! Where there is no note, all caches are filled afresh from the newest state; a standby that sees the
//! lease run out begins with that as soon as the leader can have no more to say, so that it has mostly ended by then.

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

/// How long a cache may take to be told what another was told; then it is filled afresh.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// An API server gives up on a request after a minute; whatever was on its way before is done or not.
const UNSURE_FOR: Duration = Duration::from_secs(60);
/// So many deletions are remembered before those are looked for that the caches have seen.
const GONE_MANY: usize = 64;

/// How far a cache of the leader before had come.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheProgress {
    /// The last event or write, of which every watch tells.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    told: String,
    /// The last list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    listed: String,
}

/// What this process has written, as far as it matters to the next leader.
pub struct WrittenVersions {
    clocks: Clocks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest state that was written of each kind.
    newest: BTreeMap<Resource, ResourceVersion>,
    /// Objects that were gone with the answer, which tells no version.
    gone: Vec<(Resource, Key, Uid)>,
    /// When a write last failed in a way that leaves open whether it took effect.
    unsure_at: Option<Duration>,
}

impl WrittenVersions {
    /// Nothing was done yet.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self { clocks, state: Mutex::default() }
    }

    /// A write led to this state.
    pub fn record_write(&self, resource: &Resource, version: &ResourceVersion) {
        let newest = &mut self.state.lock().newest;
        match newest.get_mut(resource) {
            Some(there) if version.is_older_than(there) => {}
            Some(there) => *there = version.clone(),
            None => drop(newest.insert(resource.clone(), version.clone())),
        }
    }

    /// An object is gone.
    pub fn record_deletion(&self, caches: &Caches, resource: &Resource, key: &Key, uid: &Uid) {
        let gone = &mut self.state.lock().gone;
        if gone.len() >= GONE_MANY {
            gone.retain(|deed| is_unseen(caches, deed));
        }
        gone.push((resource.clone(), key.clone(), uid.clone()));
    }

    /// A write may or may not have taken effect.
    pub fn record_unknown_outcome(&self) {
        self.state.lock().unsure_at = Some(self.clocks.monotonic());
    }

    /// What to leave to the next leader when nothing is at work any more; nothing if there is no telling.
    #[must_use]
    pub fn handover_record(&self, caches: &Caches) -> Option<String> {
        let State { newest, gone, unsure_at } = &*self.state.lock();
        let is_unsure = unsure_at.is_some_and(|at| self.clocks.monotonic() < at + UNSURE_FOR);
        if is_unsure || gone.iter().any(|deed| is_unseen(caches, deed)) {
            return None;
        }
        let seen = |cache: &Arc<Cache>| {
            let (event, written) =
                (cache.last_event_version(), newest.get(cache.entry().resource()).cloned());
            let told = match (event, written) {
                (Some(event), Some(written)) if event.is_older_than(&written) => Some(written),
                (event, written) => event.or(written),
            };
            let text = |version: Option<ResourceVersion>| {
                version.map_or_else(String::new, |there| there.to_string())
            };
            (cache.name(), CacheProgress { told: text(told), listed: text(cache.last_list_version()) })
        };
        let seen: BTreeMap<_, _> = caches.all().iter().map(seen).collect();
        serde_json::to_string(&seen).ok()
    }
}

fn is_unseen(caches: &Caches, (resource, key, uid): &(Resource, Key, Uid)) -> bool {
    let of_kind = |cache: &&Arc<Cache>| cache.entry().resource() == resource;
    caches.all().iter().filter(of_kind).any(|cache| !cache.has_observed_deletion(key, uid))
}

impl Handover for Caches {
    fn handover_record(&self) -> Option<String> {
        self.written_versions().handover_record(self)
    }

    fn prepare_takeover(&self) {
        tracing::info!("the leader has fallen silent; the caches are filled afresh");
        for cache in self.all() {
            cache.request_relist();
        }
    }
}

/// What caches must know before anybody acts on them.
pub enum PredecessorState {
    /// There was no leader before.
    None,
    /// It told how far its caches had come.
    Recorded {
        /// By the names of caches.
        seen: BTreeMap<String, CacheProgress>,
        /// Until when a cache may come that far by itself.
        deadline: Instant,
        /// A list that was begun after this moment of the monotonic clock will do in any case.
        lists_from: Duration,
    },
    /// It told nothing. Whatever it did shows in lists that were begun after this moment.
    Unrecorded {
        /// Of the monotonic clock.
        lists_from: Duration,
    },
}

impl PredecessorState {
    /// What a leader before this moment has left.
    #[must_use]
    pub fn of(predecessor: &Predecessor, clocks: &Clocks) -> Self {
        let now = clocks.monotonic();
        match predecessor {
            Predecessor::Absent => Self::None,
            Predecessor::LeftRecord(note) => {
                serde_json::from_str(note).map_or(Self::Unrecorded { lists_from: now }, |seen| {
                    Self::Recorded { seen, deadline: Instant::now() + TOLD_WITHIN, lists_from: now }
                })
            }
            Predecessor::LeftNoRecord(moment) => Self::Unrecorded { lists_from: moment.unwrap_or(now) },
        }
    }

    /// Returns when these caches know all that the leader before can have done.
    pub async fn wait_for_caches(&self, caches: &[Arc<Cache>]) {
        join_all(caches.iter().map(|cache| self.reaches_one(cache))).await;
    }

    async fn reaches_one(&self, cache: &Cache) {
        match self {
            Self::None => {}
            Self::Unrecorded { lists_from } => cache.wait_for_list_since(*lists_from).await,
            Self::Recorded { seen, deadline, lists_from } => {
                let Some(seen) = seen.get(&cache.name()) else { return };
                if !seen.is_shown_by(cache, *deadline).await {
                    tracing::info!(cache = cache.name(), ?seen, "behind the leader before, filled afresh");
                    cache.wait_for_list_since(*lists_from).await;
                }
            }
        }
    }
}

impl CacheProgress {
    /// Whether a cache has come as far, or does so in time.
    async fn is_shown_by(&self, cache: &Cache, deadline: Instant) -> bool {
        let (told, listed) =
            (ResourceVersion::from(self.told.as_str()), ResourceVersion::from(self.listed.as_str()));
        let is_told =
            self.told.is_empty() || timeout_at(deadline, cache.wait_until_at_least(&told)).await.is_ok();
        is_told && (self.listed.is_empty() || cache.is_at_least(&listed))
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

    /// The caches of one process, filled.
    async fn caches(server: &ApiServer, faults: &Faults, clocks: &Clocks) -> (Caches, Arc<Cache>) {
        let client = kube::Client::new(faults.layer(server.clone()), "default");
        let caches = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = caches.cache(&KindEntry::of::<Namespace>());
        cache.wait_for_sync().await;
        (caches, cache)
    }

    async fn told_of(cache: &Cache, name: &str) {
        while cache.uid(&Key::cluster(name)).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends the watch after the list of so many objects, and lets none come about again.
    fn deaf(objects: usize) -> Faults {
        let faults = Faults::new();
        let after_the_list = InjectedFault::CutStream { after_events: objects + 1, cleanly: true };
        faults.add(FaultRule::new(after_the_list).target("sendInitialEvents").times(1));
        faults.add(FaultRule::new(InjectedFault::Hang).target("?resourceVersion="));
        faults
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_that_was_told_as_much_begins_at_once() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, led) = caches(&server, &Faults::new(), &clocks).await;
        let (standby, _) = caches(&server, &Faults::new(), &clocks).await;
        seed(&server, "new");
        told_of(&led, "new").await;
        let note = leader.written_versions().handover_record(&leader).unwrap();
        let (began, lists) = (Instant::now(), server.requests().len());
        catch_up(&standby, &Predecessor::LeftRecord(note), &clocks).await;
        assert!(standby.all()[0].uid(&Key::cluster("new")).is_some());
        assert!(began.elapsed() < Duration::from_millis(100));
        catch_up(&standby, &Predecessor::Absent, &clocks).await;
        let holder_writes_end_at = Predecessor::LeftNoRecord(Some(Duration::ZERO));
        catch_up(&standby, &holder_writes_end_at, &clocks).await;
        assert_eq!(server.requests().len(), lists, "nothing was listed again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_that_was_never_filled_knows_nothing() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, led) = caches(&server, &Faults::new(), &clocks).await;
        // Its first list does not come.
        let faults = Faults::new();
        faults.add(FaultRule::new(InjectedFault::Hang).target("sendInitialEvents").times(1));
        let client = kube::Client::new(faults.layer(server.clone()), "default");
        let standby = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = standby.cache(&KindEntry::of::<Namespace>());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cache.list_count(), 0);
        seed(&server, "new");
        told_of(&led, "new").await;
        catch_up(
            &standby,
            &Predecessor::LeftRecord(leader.written_versions().handover_record(&leader).unwrap()),
            &clocks,
        )
        .await;
        assert!(cache.uid(&Key::cluster("new")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_that_is_behind_a_list_does_not_wait_to_be_told() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) = caches(&server, &deaf(ApiServer::default().snapshot().len()), &clocks).await;
        seed(&server, "new");
        let (leader, led) = caches(&server, &Faults::new(), &clocks).await;
        assert_eq!(led.last_event_version(), None, "it has only listed it");
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
    async fn a_standby_that_is_behind_fills_its_caches_afresh() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, _) = caches(&server, &Faults::new(), &clocks).await;
        for (name, noted) in [("one", true), ("two", false)] {
            let (standby, cache) = caches(&server, &deaf(leader.all()[0].len()), &clocks).await;
            seed(&server, name);
            assert!(cache.uid(&Key::cluster(name)).is_none());
            told_of(&leader.all()[0], name).await;
            let note = leader.written_versions().handover_record(&leader).unwrap();
            let predecessor =
                if noted { Predecessor::LeftRecord(note) } else { Predecessor::LeftNoRecord(None) };
            catch_up(&standby, &predecessor, &clocks).await;
            assert!(cache.uid(&Key::cluster(name)).is_some(), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_for_a_cache_it_is_filled_afresh_once() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) = caches(&server, &deaf(ApiServer::default().snapshot().len()), &clocks).await;
        seed(&server, "new");
        tokio::time::advance(Duration::from_secs(1)).await;
        let (asked, legacy) =
            (server.requests().len(), PredecessorState::of(&Predecessor::LeftNoRecord(None), &clocks));
        let all = standby.all();
        tokio::join!(legacy.wait_for_caches(&all), legacy.wait_for_caches(&all));
        assert!(cache.uid(&Key::cluster("new")).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        legacy.wait_for_caches(&all).await;
        assert_eq!(server.requests().len(), asked + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_that_was_filled_since_the_leader_fell_silent_begins_at_once() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) = caches(&server, &deaf(ApiServer::default().snapshot().len()), &clocks).await;
        tokio::time::advance(Duration::from_secs(13)).await;
        let holder_writes_end_at = Some(clocks.monotonic());
        seed(&server, "last");
        standby.prepare_takeover();
        told_of(&cache, "last").await;
        let asked = server.requests().len();
        catch_up(&standby, &Predecessor::LeftNoRecord(holder_writes_end_at), &clocks).await;
        assert_eq!(server.requests().len(), asked, "nothing was listed again");

        tokio::time::advance(Duration::from_secs(60)).await;
        catch_up(&standby, &Predecessor::LeftNoRecord(Some(clocks.monotonic())), &clocks).await;
        assert!(server.requests().len() > asked, "that was another silence");
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_knows_of_own_writes_and_is_left_out_where_they_are_in_doubt() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (leader, cache) = caches(&server, &Faults::new(), &clocks).await;
        let deeds = leader.written_versions();
        let noted = |told: &str| {
            let listed = cache.last_list_version().unwrap().to_string();
            let seen = BTreeMap::from([("namespaces", CacheProgress { told: told.to_owned(), listed })]);
            serde_json::to_string(&seen).unwrap()
        };
        assert_eq!(deeds.handover_record(&leader).unwrap(), noted(""));
        deeds.record_write(&Namespace::RESOURCE, &ResourceVersion::from("1000"));
        deeds.record_write(&Namespace::RESOURCE, &ResourceVersion::from("999"));
        assert_eq!(deeds.handover_record(&leader).unwrap(), noted("1000"));

        seed(&server, "gone");
        told_of(&cache, "gone").await;
        let (key, uid) = (Key::cluster("gone"), cache.uid(&Key::cluster("gone")).unwrap());
        deeds.record_deletion(&leader, &Namespace::RESOURCE, &key, &uid);
        assert_eq!(deeds.handover_record(&leader), None, "nobody has seen it go");
        deeds.state.lock().gone.clear();

        deeds.record_unknown_outcome();
        assert_eq!(deeds.handover_record(&leader), None);
        tokio::time::advance(UNSURE_FOR).await;
        assert!(deeds.handover_record(&leader).is_some());
    }
}
