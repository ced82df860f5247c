//! A new leader starts only on caches that have observed everything the previous leader wrote.
//!
//! A standby fills its caches before it leads, so that it can start immediately; but its watches may lag, and
//! then it would create again what the previous leader has just created. A leader that shuts down gracefully
//! therefore leaves a handover record: for each cache, the resourceVersion of its last watch event, or of the
//! last write of this process if that is newer. An event that one watch delivers is delivered to every other
//! watch of the same kind, so the next leader can wait for it, and mostly need not. The resourceVersion of a
//! list is different: if no object of the kind has changed since, no watch delivers anything for a while, so
//! a cache that is behind it does not wait but relists. The monitors of the garbage collector, which build its
//! graph, are treated like caches.
//!
//! A cache that has not reached the state of this leader's own predecessor is not in the record, and there is no
//! record at all while the outcome of a write is open. What is not in the record relists the newest state. A
//! standby that sees the lease expire starts that relist as soon as the leader can no longer write, so that it has
//! mostly ended when the lease is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keleustes_objects::{Key, Resource, ResourceVersion, Uid};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::caches::{Cache, Caches};
use crate::clock::Clocks;
use crate::leader::{Handover, Predecessor};
use crate::list_progress::ListProgress;
use crate::monitors::Monitors;

/// How long a cache may take to observe the recorded version; then it relists.
const WATCH_CATCH_UP_MAX: Duration = Duration::from_secs(2);
/// An API server gives up on a request after a minute; a write that was in flight before has taken effect by
/// then or never will.
const UNKNOWN_OUTCOME_FOR: Duration = Duration::from_secs(60);
/// Below this number of deletions, no search for those that the caches have observed is made.
const DELETIONS_MIN: usize = 64;

/// How far a list and watch of the previous leader was. The field names on the wire are part of the record's
/// format: a change of them needs a new number of the format.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedProgress {
    /// The last watch event or write, which every watch delivers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    last_event: String,
    /// The last list.
    last_list: String,
}

/// A list and watch that a leader acts on.
struct TrackedWatch {
    name: String,
    resource: Resource,
    progress: Arc<ListProgress>,
}

impl TrackedWatch {
    fn of_cache(cache: &Arc<Cache>) -> Self {
        let (name, resource) = (cache.name(), cache.entry().resource().clone());
        Self { name, resource, progress: cache.progress().clone() }
    }

    fn of_monitor(resource: &Resource, progress: &Arc<ListProgress>) -> Self {
        Self { name: resource.to_string(), resource: resource.clone(), progress: progress.clone() }
    }

    fn all(caches: &Caches) -> Vec<Self> {
        let mut all: Vec<_> = caches.all().iter().map(Self::of_cache).collect();
        if let Some(monitors) = caches.all_monitors() {
            let own_watches = monitors.own_watches();
            all.extend(
                own_watches.iter().map(|(resource, progress, _)| Self::of_monitor(resource, progress)),
            );
        }
        all
    }

    /// What a successor must reach; `None` before the first list.
    fn recorded_progress(&self, state: &State) -> Option<RecordedProgress> {
        let last_list = self.progress.last_list_version()?.to_string();
        let last_event = match (self.progress.last_event_version(), state.newest_of(&self.resource)) {
            (Some(event), Some(written)) if event.is_older_than(&written) => Some(written),
            (event, written) => event.or(written),
        };
        let last_event = last_event.map_or_else(String::new, |version| version.to_string());
        Some(RecordedProgress { last_event, last_list })
    }
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
    /// How many there were after the last search for those that the caches have observed.
    deletions_kept: usize,
    /// When a write last failed in a way that leaves open whether it took effect.
    unknown_outcome_at: Option<Duration>,
    /// How many writes have been sent, or are about to be, without an outcome yet.
    in_flight: usize,
    /// For each term of this process: the names of the lists and watches that have reached its predecessor's
    /// state.
    reached: Vec<BTreeSet<String>>,
}

impl State {
    /// The newest version written of a resource, through whatever API version.
    fn newest_of(&self, resource: &Resource) -> Option<ResourceVersion> {
        let is_same = |there: &Resource| (&there.group, &there.plural) == (&resource.group, &resource.plural);
        let written = self.newest.iter().filter(|(there, _)| is_same(there)).map(|(_, version)| version);
        written.reduce(|newest, other| if newest.is_older_than(other) { other } else { newest }).cloned()
    }
}

/// A write without an outcome yet. If it is dropped, its outcome stays unknown.
#[must_use]
pub struct WriteInFlight<'a> {
    written_versions: &'a WrittenVersions,
    is_finished: bool,
}

impl WriteInFlight<'_> {
    /// The outcome is known, or was recorded as unknown.
    pub fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.written_versions.record_unknown_outcome();
        }
        self.written_versions.state.lock().in_flight -= 1;
    }
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
        let State { deletions, deletions_kept, .. } = &mut *self.state.lock();
        if deletions.len() >= (2 * *deletions_kept).max(DELETIONS_MIN) {
            deletions.retain(|deletion| is_unobserved(caches, deletion));
            *deletions_kept = deletions.len();
        }
        deletions.push((resource.clone(), key.clone(), uid.clone()));
    }

    /// A write may or may not have taken effect.
    pub fn record_unknown_outcome(&self) {
        self.state.lock().unknown_outcome_at = Some(self.clocks.monotonic());
    }

    /// A write is about to be sent. Call this before the last check that this process leads: a write that passed
    /// the check is then counted when the record is taken.
    pub fn begin_write(&self) -> WriteInFlight<'_> {
        self.state.lock().in_flight += 1;
        WriteInFlight { written_versions: self, is_finished: false }
    }

    /// Whether a write has no outcome yet.
    #[must_use]
    pub fn has_write_in_flight(&self) -> bool {
        self.state.lock().in_flight > 0
    }

    /// A term begins: nothing of its predecessor's state has been reached yet. Returns when all of it has been.
    pub async fn catch_up(&self, caches: &Caches, predecessor_state: &PredecessorState) {
        let term = {
            let reached = &mut self.state.lock().reached;
            reached.push(BTreeSet::new());
            reached.len() - 1
        };
        let catch_up = |watch: TrackedWatch| async move {
            predecessor_state.wait_for_watch(&watch.name, &watch.progress).await;
            self.state.lock().reached[term].insert(watch.name);
        };
        let of_caches = join_all(caches.all().iter().map(TrackedWatch::of_cache).map(catch_up));
        let of_monitors = async {
            if let Some(monitors) = caches.all_monitors() {
                monitors.wait_for_sync().await;
            }
            let cache_names: BTreeSet<_> = caches.all().iter().map(|cache| cache.name()).collect();
            let own =
                TrackedWatch::all(caches).into_iter().filter(|watch| !cache_names.contains(&watch.name));
            join_all(own.map(catch_up)).await;
        };
        tokio::join!(of_caches, of_monitors);
    }

    /// The handover record, to be taken when this process does not lead any more; `None` if the written state is
    /// not known for certain.
    #[must_use]
    pub fn handover_record(&self, caches: &Caches) -> Option<BTreeMap<String, RecordedProgress>> {
        let state = &*self.state.lock();
        let has_unknown_outcome =
            state.unknown_outcome_at.is_some_and(|at| self.clocks.monotonic() < at + UNKNOWN_OUTCOME_FOR);
        let is_open = has_unknown_outcome || state.in_flight > 0;
        if is_open || state.deletions.iter().any(|deletion| is_unobserved(caches, deletion)) {
            return None;
        }
        let is_reached = |watch: &TrackedWatch| state.reached.iter().all(|term| term.contains(&watch.name));
        let watches = TrackedWatch::all(caches).into_iter().filter(is_reached);
        let recorded =
            watches.filter_map(|watch| Some((watch.name.clone(), watch.recorded_progress(state)?)));
        Some(recorded.collect())
    }
}

fn is_unobserved(caches: &Caches, (resource, key, uid): &(Resource, Key, Uid)) -> bool {
    let has_resource = |cache: &&Arc<Cache>| cache.entry().resource() == resource;
    caches.all().iter().filter(has_resource).any(|cache| !cache.has_observed_deletion(key, uid))
}

impl Handover for Caches {
    fn handover_record(&self) -> Option<Value> {
        serde_json::to_value(self.written_versions().handover_record(self)?).ok()
    }

    fn has_write_in_flight(&self) -> bool {
        self.written_versions().has_write_in_flight()
    }

    fn prepare_takeover(&self) {
        tracing::info!("lease not renewed, relisting caches before takeover");
        for watch in TrackedWatch::all(self) {
            watch.progress.request_relist();
        }
    }
}

/// What caches must have observed before a new leader acts on them.
pub enum PredecessorState {
    /// There was no previous leader.
    None,
    /// The previous leader left a handover record.
    Recorded {
        /// By the names of caches, and of resources that only monitors observe.
        watches: BTreeMap<String, RecordedProgress>,
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
                BTreeMap::deserialize(record).map_or(Self::Unrecorded { lists_since: now }, |watches| {
                    Self::Recorded {
                        watches,
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
        let wait = |cache: &Arc<Cache>| {
            let (name, progress) = (cache.name(), cache.progress().clone());
            async move { self.wait_for_watch(&name, &progress).await }
        };
        join_all(caches.iter().map(wait)).await;
    }

    /// The same for the lists and watches that monitors do not share with caches.
    pub async fn wait_for_monitors(&self, monitors: &Monitors) {
        let own_watches = monitors.own_watches();
        let wait = |(resource, progress, stop): &(Resource, Arc<ListProgress>, CancellationToken)| {
            let (name, progress, stop) = (resource.to_string(), progress.clone(), stop.clone());
            async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = self.wait_for_watch(&name, &progress) => {}
                }
            }
        };
        join_all(own_watches.iter().map(wait)).await;
    }

    async fn wait_for_watch(&self, name: &str, watch: &ListProgress) {
        match self {
            Self::None => {}
            Self::Unrecorded { lists_since } => watch.wait_for_list_since(*lists_since).await,
            Self::Recorded { watches, deadline, lists_since } => {
                let recorded = watches.get(name);
                let is_reached = match recorded {
                    Some(recorded) => recorded.is_reached_by(watch, *deadline).await,
                    None => false,
                };
                if !is_reached {
                    tracing::info!(name, ?recorded, "cache is behind the previous leader, relisting");
                    watch.wait_for_list_since(*lists_since).await;
                }
            }
        }
    }
}

impl RecordedProgress {
    /// Whether a list and watch is as far as the record, or gets there before the deadline.
    async fn is_reached_by(&self, watch: &ListProgress, deadline: Instant) -> bool {
        let last_event = ResourceVersion::from(self.last_event.as_str());
        let has_last_event = self.last_event.is_empty()
            || timeout_at(deadline, watch.wait_until_at_least(&last_event)).await.is_ok();
        has_last_event && watch.is_at_least(&ResourceVersion::from(self.last_list.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
    use keleustes_objects::{Kind as _, Namespace};
    use keleustes_plan::KindEntry;
    use keleustes_plan::rehearsal::rows_read;
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
        let record = leader.handover_record().unwrap();
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
        catch_up(&standby, &Predecessor::LeftRecord(leader.handover_record().unwrap()), &clocks).await;
        assert!(cache.uid(&Key::cluster("new")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn standby_behind_a_list_relists_without_waiting_for_its_watch() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (standby, cache) =
            caches(&server, &without_watch(ApiServer::default().snapshot().len()), &clocks).await;
        seed(&server, "new");
        let (leader, leader_cache) = caches(&server, &Faults::new(), &clocks).await;
        assert_eq!(leader_cache.progress().last_event_version(), None, "the leader has only listed it");
        tokio::time::advance(Duration::from_secs(1)).await;
        let began = Instant::now();
        catch_up(&standby, &Predecessor::LeftRecord(leader.handover_record().unwrap()), &clocks).await;
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
            let record = leader.handover_record().unwrap();
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
            let last_list = cache.progress().last_list_version().unwrap().to_string();
            let progress = RecordedProgress { last_event: last_event.to_owned(), last_list };
            BTreeMap::from([("namespaces".to_owned(), progress)])
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

        let in_flight = written_versions.begin_write();
        assert_eq!(written_versions.handover_record(&leader), None, "a request is in flight");
        in_flight.finish();
        assert!(written_versions.handover_record(&leader).is_some());
        drop(written_versions.begin_write());
        assert_eq!(written_versions.handover_record(&leader), None, "the response was not awaited");
    }

    /// A leader whose own cache never caught up must not vouch for its predecessor's writes.
    #[tokio::test(start_paused = true)]
    async fn second_of_two_leaders_in_a_row_records_only_what_it_has_reached() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (first, first_cache) = caches(&server, &Faults::new(), &clocks).await;
        let objects = ApiServer::default().snapshot().len();
        // Neither the watch of the second leader nor the relist that it requests brings anything.
        let no_relist = without_watch(objects);
        let (second, second_cache) = caches(&server, &no_relist, &clocks).await;
        no_relist.add(FaultRule::new(InjectedFault::Hang).target("sendInitialEvents"));
        let (third, third_cache) = caches(&server, &without_watch(objects), &clocks).await;
        seed(&server, "new");
        wait_for_object(&first_cache, "new").await;
        let record = first.handover_record().unwrap();
        let state = PredecessorState::of(&Predecessor::LeftRecord(record), &clocks);
        let catching_up = second.written_versions().catch_up(&second, &state);
        assert!(tokio::time::timeout(Duration::from_secs(20), catching_up).await.is_err());
        assert!(second_cache.uid(&Key::cluster("new")).is_none());
        let record = second.handover_record().unwrap();
        assert_eq!(record, json!({}), "the second leader has not reached the first one's record");
        catch_up(&third, &Predecessor::LeftRecord(record), &clocks).await;
        assert!(third_cache.uid(&Key::cluster("new")).is_some(), "what is not in the record is relisted");
    }

    #[tokio::test(start_paused = true)]
    async fn leader_that_has_caught_up_records_its_caches() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        let (first, first_cache) = caches(&server, &Faults::new(), &clocks).await;
        let (second, second_cache) = caches(&server, &Faults::new(), &clocks).await;
        seed(&server, "new");
        wait_for_object(&first_cache, "new").await;
        for predecessor in [
            Predecessor::Absent,
            Predecessor::LeftNoRecord(None),
            Predecessor::LeftRecord(first.handover_record().unwrap()),
        ] {
            let state = PredecessorState::of(&predecessor, &clocks);
            second.written_versions().catch_up(&second, &state).await;
            assert!(second_cache.uid(&Key::cluster("new")).is_some());
            let names: Vec<_> =
                second.written_versions().handover_record(&second).unwrap().into_keys().collect();
            assert_eq!(names, ["namespaces"], "{predecessor:?}");
        }
    }

    /// While a watch delivers nothing, no deletion is observed, and each further one must cost as little as the first.
    #[tokio::test(start_paused = true)]
    async fn deletions_that_caches_have_not_observed_are_searched_seldom() {
        let (server, clocks) = (ApiServer::default(), Clocks::new(|| 0));
        seed(&server, "there");
        let (process, cache) = caches(&server, &Faults::new(), &clocks).await;
        let (written, key) = (process.written_versions(), Key::cluster("there"));
        let uid = cache.uid(&key).unwrap();
        let delete = |uid: &Uid| written.record_deletion(&process, &Namespace::RESOURCE, &key, uid);
        let ((), rows) = rows_read(|| (0..4096).for_each(|_| delete(&uid)));
        assert!(rows < 4 * 4096, "{rows} rows read");
        assert_eq!(process.handover_record(), None);
        written.state.lock().deletions.clear();
        (0..4096).for_each(|_| delete(&Uid::from("observed")));
        assert!(written.state.lock().deletions.len() <= 2 * 4096, "observed ones are dropped");
        (0..8192).for_each(|_| delete(&Uid::from("observed")));
        assert!(written.state.lock().deletions.len() <= 2 * DELETIONS_MIN, "observed ones are dropped");
        assert!(process.handover_record().is_some());
    }

    #[test]
    fn record_of_another_format_is_ignored() {
        let clocks = Clocks::new(|| 0);
        for record in [
            json!({"pods": {"event": "7", "listed": "3"}}),
            json!({"pods": {"lastList": "3", "more": "1"}}),
            json!({"pods": "3"}),
            json!("x"),
        ] {
            let state = PredecessorState::of(&Predecessor::LeftRecord(record.clone()), &clocks);
            assert!(matches!(state, PredecessorState::Unrecorded { .. }), "{record}");
        }
    }
}
