//! A small cluster for stories of many turns: objects with versions and finalizers, a kubelet, a cache that may
//! be behind, and requests that fail, get lost, or are the last that a process sends.
//!
//! It keeps its own books of who lost the finalizer and whether a status had listed him, and stops a run at
//! the first request that would lose a pod or count one twice.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use keleustes_objects::{
    ApiError, ArcStr, Conditions as _, DiscoveredResources, ErrorReason, Job, Key, Kind, Pod, Resource,
    ResourceVersion, TypeMeta, Uid, UncountedTerminatedPods,
};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{
    Action, Applied, BoxFuture, Context, Effects, FetchResult, Item, ListRequest, ListResult, Loop, LoopKind,
    Measurement, OnFailure, Outcome, Plan, ReconcileError, ReconcileIo, Step, View, Write,
};
use serde_json::{Value, json};

use super::super::indexes::Indexes;
use super::super::{JobOptions, TRACKING_FINALIZER, controller};

pub(super) struct Cluster {
    a_loop: Loop,
    caches: RehearsalCluster,
    live: BTreeMap<String, Value>,
    /// What the cache has seen: versions by path.
    shown: BTreeMap<String, Value>,
    /// Paths of objects that the cache must see before the next turn, because we wrote them and know it.
    ours: BTreeSet<String>,
    version: u64,
    pub(super) chance: fastrand::Rng,
    pub(super) faults: Faults,
    pub(super) books: Books,
    /// Writes sent since the process began.
    pub(super) sent: u32,
    is_dead: bool,
}

/// What goes wrong.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// Of a hundred writes, how many fail, half of them after they took effect.
    pub(super) failing: u8,
    /// Of a hundred pods and Jobs that others changed, how many the cache has not seen.
    pub(super) unseen: u8,
    /// The process dies with this write, before (`false`) or after it took effect.
    pub(super) dies_at: Option<(u32, bool)>,
    /// Whether kubelets work while a turn is under way.
    pub(super) restless: bool,
}

/// What really happened to pods.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) created: i32,
    pub(super) counted_succeeded: i32,
    pub(super) counted_failed: i32,
    /// Indexes with a succeeded pod that was let go.
    pub(super) indexes: BTreeSet<i64>,
    /// Removed on purpose, without being counted.
    pub(super) removed: i32,
    /// Let go for nothing: their index was counted already.
    pub(super) spare: i32,
}

impl Cluster {
    pub(super) fn new(seed: u64, job: Value) -> Self {
        let a_loop = controller(&JobOptions::default()).loops.remove(0);
        let caches = RehearsalCluster::of(&a_loop);
        let mut cluster = Self {
            a_loop,
            caches,
            live: BTreeMap::new(),
            shown: BTreeMap::new(),
            ours: BTreeSet::new(),
            version: 0,
            chance: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            books: Books::default(),
            sent: 0,
            is_dead: false,
        };
        cluster.store(Job::RESOURCE.object_path(&key()), job);
        cluster
    }

    fn percent(&mut self, of_hundred: u8) -> bool {
        self.chance.u8(0..100) < of_hundred
    }

    fn store(&mut self, path: String, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.live.insert(path, object);
    }

    /// A new process: nothing is remembered, and the caches are filled afresh.
    pub(super) fn restart(&mut self) {
        self.a_loop = controller(&JobOptions::default()).loops.remove(0);
        let now = self.caches.view().now().monotonic;
        self.caches = RehearsalCluster::of(&self.a_loop);
        let passed = now.saturating_sub(self.caches.view().now().monotonic);
        self.caches.advance_clock(passed);
        self.faults.dies_at = None;
        self.shown.clear();
        (self.sent, self.is_dead) = (0, false);
        let everything: Vec<String> = self.live.keys().cloned().collect();
        everything.iter().for_each(|path| self.show(path));
    }

    /// Lets the cache see what we wrote, and most of what others did.
    fn catch_up(&mut self) {
        let version =
            |path: &String| self.live.get(path).map(|object| &object["metadata"]["resourceVersion"]);
        let known = self.shown.keys().chain(self.live.keys());
        let behind = known.filter(|path| version(path) != self.shown.get(*path));
        let behind: BTreeSet<String> = behind.cloned().collect();
        for path in behind {
            if self.ours.contains(&path) || !self.percent(self.faults.unseen) {
                self.show(&path);
            }
        }
        self.ours.clear();
    }

    fn show(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap();
        match self.live.get(path) {
            Some(object) => self.shown.insert(path.to_owned(), object["metadata"]["resourceVersion"].clone()),
            None => self.shown.remove(path),
        };
        match self.live.get(path) {
            Some(job) if path.contains("/jobs/") => {
                self.caches.put::<Job>(&self.a_loop, job.clone());
            }
            Some(pod) => {
                self.caches.put::<Pod>(&self.a_loop, pod.clone());
            }
            None => {
                self.caches.take::<Pod>(&self.a_loop, &Key::namespaced("a", name));
            }
        }
    }

    /// One turn of the Job; a process that died in it is replaced.
    pub(super) fn turn(&mut self) {
        self.catch_up();
        let LoopKind::Reconcile(script) = &self.a_loop.loop_kind else { unreachable!("it is a script") };
        let script = script.clone();
        let item = Item::from(key());
        let mut hands = Sending(self);
        let mut cx = Context::new(&mut hands);
        let result = {
            let future = pin!(script.reconcile(&mut cx, &item));
            match future.poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => unreachable!("nothing here waits"),
            }
        };
        // What the turn wants next does not matter: it is always asked again.
        drop(result);
        if self.is_dead {
            self.restart();
        }
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.caches.advance_clock(Duration::from_secs(seconds));
    }

    pub(super) fn job(&self) -> Job {
        serde_json::from_value(self.live[&Job::RESOURCE.object_path(&key())].clone()).unwrap()
    }

    /// A user changes the wish.
    pub(super) fn edit_spec(&mut self, field: &str, value: Value) {
        let path = Job::RESOURCE.object_path(&key());
        let mut job = self.live[&path].clone();
        job["spec"][field] = value;
        self.store(path, job);
    }

    fn pod_paths(&self) -> Vec<String> {
        self.live.keys().filter(|path| path.contains("/pods/")).cloned().collect()
    }

    /// How many pods hold the finalizer.
    pub(super) fn holding(&self) -> i32 {
        let held = self.live.values().filter(|object| is_tracked_or_adopted(object)).count();
        i32::try_from(held).unwrap()
    }

    /// Some pod goes a step on its way.
    pub(super) fn kubelet(&mut self, failing: u8) {
        let paths = self.pod_paths();
        if paths.is_empty() {
            return;
        }
        let path = paths[self.chance.usize(0..paths.len())].clone();
        let mut pod = self.live[&path].clone();
        let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
        let bad = self.percent(if is_going { 80 } else { failing });
        let next = match pod["status"]["phase"].as_str().unwrap() {
            "Pending" if !is_going => "Running",
            "Pending" | "Running" if bad => "Failed",
            "Pending" | "Running" => "Succeeded",
            _ => return,
        };
        let at = self.caches.view().now().wall;
        pod["status"] = json!({"phase": next, "containerStatuses": []});
        if next != "Running" {
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": i32::from(bad), "finishedAt": at}}}]);
        }
        self.store_pod(path, pod);
    }

    /// Somebody deletes some pod.
    pub(super) fn evict(&mut self) {
        let paths = self.pod_paths();
        if !paths.is_empty() {
            let path = paths[self.chance.usize(0..paths.len())].clone();
            self.delete(&path);
        }
    }

    fn delete(&mut self, path: &str) {
        let mut pod = self.live[path].clone();
        if pod["metadata"]["deletionTimestamp"].is_null() {
            pod["metadata"]["deletionTimestamp"] = json!(self.caches.view().now().wall);
            self.store_pod(path.to_owned(), pod);
        }
    }

    /// Stores a pod, unless nothing keeps it any longer.
    fn store_pod(&mut self, path: String, pod: Value) {
        let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
        let has_ended = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap());
        if is_going && has_ended && !is_tracked_or_adopted(&pod) {
            self.version += 1;
            self.live.remove(&path);
        } else {
            self.store(path, pod);
        }
    }

    fn send(&mut self, write: &Write) -> Outcome {
        let lost = || Outcome::Failed(ApiError::transport(ErrorReason::ConnectionLost, "lost"));
        if self.is_dead {
            return lost();
        }
        self.sent += 1;
        if self.faults.restless && self.percent(50) {
            self.kubelet(30);
        }
        let last = self.faults.dies_at.filter(|(at, _)| *at == self.sent);
        self.is_dead = last.is_some();
        let fails = self.percent(self.faults.failing);
        let takes_effect = last.map_or(!fails || self.chance.bool(), |(_, takes_effect)| takes_effect);
        let outcome = if takes_effect { self.carry_out(write) } else { lost() };
        self.check();
        if fails || self.is_dead {
            return lost();
        }
        if let Outcome::Done { .. } = outcome {
            let name = match &outcome {
                Outcome::Done { name, .. } => name.clone(),
                _ => write.target.key.name.clone(),
            };
            let key = Key { name, ..write.target.key.clone() };
            self.ours.insert(write.target.resource.object_path(&key));
        }
        outcome
    }

    fn carry_out(&mut self, write: &Write) -> Outcome {
        let path = write.target.resource.object_path(&write.target.key);
        let refused = |reason| Outcome::Failed(ApiError::transport(reason, "refused"));
        let done = |version: u64, name: &str| Outcome::Done {
            resource_version: ResourceVersion::from(&*version.to_string()),
            uid: Uid::default(),
            name: ArcStr::from(name),
        };
        let name = write.target.key.name.to_string();
        match &write.action {
            Action::Create(body) => {
                self.books.created += 1;
                let number = self.books.created;
                let name = format!("{}{number}", body["metadata"]["generateName"].as_str().unwrap());
                let mut pod = body.clone();
                pod["metadata"]["name"] = json!(name);
                pod["metadata"]["namespace"] = json!("a");
                pod["metadata"]["uid"] = json!(format!("pod-{number}"));
                pod["status"] = json!({"phase": "Pending"});
                self.store(Pod::RESOURCE.object_path(&Key::namespaced("a", &*name)), pod);
                done(self.version, &name)
            }
            Action::Patch { body, .. } => {
                let Some(pod) = self.live.get(&path).cloned() else {
                    let is_fine = write.ignored_errors.contains(&ErrorReason::NotFound);
                    return if is_fine { Outcome::done() } else { refused(ErrorReason::NotFound) };
                };
                let freed = &body["metadata"]["$deleteFromPrimitiveList/finalizers"];
                assert_eq!(*freed, json!([TRACKING_FINALIZER]), "nothing else is patched in these stories");
                if is_tracked_or_adopted(&pod) {
                    self.note_release(&pod, &write.because);
                }
                let mut pod = pod;
                pod["metadata"]["finalizers"] = json!([]);
                self.store_pod(path, pod);
                done(self.version, &name)
            }
            Action::Delete { .. } => {
                if self.live.contains_key(&path) {
                    self.delete(&path);
                }
                done(self.version, &name)
            }
            Action::Put { body, .. } => {
                let mut job = self.live[&path].clone();
                if body["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"] {
                    return refused(ErrorReason::Conflict);
                }
                job["status"] = body["status"].clone();
                self.store(path, job);
                done(self.version, &name)
            }
            _ => unreachable!("Jobs need no such write"),
        }
    }

    /// Whoever is let go must be listed at that moment, or be of no number at all.
    fn note_release(&mut self, pod: &Value, because: &str) {
        let uid = Uid::from(pod["metadata"]["uid"].as_str().unwrap());
        let job = self.job();
        let listed = lists(&job);
        let index = pod["metadata"]["annotations"][super::super::COMPLETION_INDEX].as_str();
        let index: Option<i64> = index.and_then(|text| text.parse().ok());
        let completed = Indexes::parse(&job.status.completed_indexes, job.spec.completions.unwrap_or(0));
        let has_succeeded = pod["status"]["phase"] == "Succeeded";
        if because == "it is not to be counted" {
            self.books.removed += 1;
        } else if listed.failed.contains(&uid) {
            self.books.counted_failed += 1;
        } else if listed.succeeded.contains(&uid) {
            self.books.counted_succeeded += 1;
        } else if let Some(index) = index.filter(|index| has_succeeded && completed.has(*index)) {
            self.books.spare += i32::from(!self.books.indexes.insert(index));
        } else if job.status.conditions.is_condition_true("SuccessCriteriaMet") {
            self.books.removed += 1; // The Job has succeeded without it.
        } else {
            panic!("a pod is let go that no status lists: {pod}");
        }
    }

    /// What must hold after every single request.
    fn check(&self) {
        let (job, books) = (self.job(), &self.books);
        let (status, lists) = (&job.status, lists(&job));
        let held =
            |uid: &&Uid| self.live.values().any(|pod| is_tracked_or_adopted(pod) && uid_of(pod) == **uid);
        let free = |list: &[Uid]| i32::try_from(list.iter().filter(|uid| !held(uid)).count()).unwrap();
        assert_eq!(status.failed + free(&lists.failed), books.counted_failed, "failed");
        if job.is_indexed() {
            let completed = Indexes::parse(&status.completed_indexes, i32::MAX);
            assert_eq!(status.succeeded, completed.count(), "succeeded indexes");
            assert!(books.indexes.iter().all(|index| completed.has(*index)), "an index is lost");
        } else {
            assert_eq!(status.succeeded + free(&lists.succeeded), books.counted_succeeded, "succeeded");
        }
        assert!(status.ready.unwrap_or(0) <= status.active, "more ready than active");
        let both = lists.succeeded.iter().chain(&lists.failed);
        let distinct: BTreeSet<&Uid> = both.clone().collect();
        assert_eq!(distinct.len(), both.count(), "listed twice");
    }
}

pub(super) fn key() -> Key {
    Key::namespaced("a", "j")
}

fn is_tracked_or_adopted(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|held| held.iter().any(|it| it == TRACKING_FINALIZER))
}

fn uid_of(object: &Value) -> Uid {
    Uid::from(object["metadata"]["uid"].as_str().unwrap())
}

fn lists(job: &Job) -> UncountedTerminatedPods {
    job.status.uncounted_terminated_pods.clone().unwrap_or_default()
}

/// The hands of a process in the cluster.
struct Sending<'c>(&'c mut Cluster);

impl Sending<'_> {
    fn carry_out(&mut self, plan: &Plan) -> Applied {
        let mut applied =
            Applied { error: plan.error_message().map(ReconcileError::because), ..Applied::default() };
        let mut stopped = false;
        for step in plan.steps() {
            let mut failed_in_step = false;
            for write in step.writes() {
                let skips = stopped || (failed_in_step && matches!(step, Step::SlowStart(_)));
                let outcome = if skips { Outcome::NotSent } else { self.0.send(write) };
                if let Outcome::Failed(failure) = &outcome {
                    failed_in_step = true;
                    applied.error.get_or_insert_with(|| ReconcileError::because(failure.to_string()));
                    stopped |= write.on_failure == OnFailure::StopAndRetry && matches!(step, Step::One(_));
                }
                applied.outcomes.push(outcome);
            }
        }
        applied
    }
}

impl ReconcileIo for Sending<'_> {
    fn with_view(&self, eye: &mut dyn FnMut(&View<'_>)) {
        eye(&self.0.caches.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.carry_out(&plan);
        Box::pin(async move { applied })
    }

    fn measure(&mut self, _: Measurement) {}

    fn enqueue(&mut self, _: Item) {}

    fn effects(&mut self, _: Effects) {}

    fn resource_of<'a>(&'a mut self, _: &'a TypeMeta) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        unreachable!("nothing is looked up")
    }

    fn fetch<'a>(&'a mut self, _: &'a Resource, _: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        unreachable!("Jobs are not read afresh in these stories")
    }

    fn fetch_metadata<'a>(&'a mut self, _: &'a Resource, _: &'a Key) -> BoxFuture<'a, FetchResult> {
        unreachable!("Jobs are not read afresh in these stories")
    }

    fn list<'a>(&'a mut self, _: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        unreachable!("nothing is listed afresh")
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        unreachable!("nothing is discovered")
    }
}
