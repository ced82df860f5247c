//! A small cluster for runs of many reconciles: objects with resourceVersions and finalizers, a kubelet, a
//! cache that may lag, and requests that fail, get lost, or are the last one before a crash.
//!
//! It keeps its own account of the pods that lost the finalizer and whether the status listed them, and panics
//! at the first request that would lose a pod or count one twice.

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
    Action, Applied, BoxFuture, Context, Effects, FetchResult, Item, ListRequest, ListResult, Loop,
    OnFailure, Outcome, Plan, ReadRequest, ReconcileError, ReconcileIo, Step, View, Write,
};
use serde_json::{Value, json};

use super::super::indexes::Indexes;
use super::super::{JobOptions, TRACKING_FINALIZER, controller};

pub(super) struct Cluster {
    a_loop: Loop,
    caches: RehearsalCluster,
    live: BTreeMap<String, Value>,
    /// The resourceVersions that the cache has observed, by path.
    observed: BTreeMap<String, Value>,
    /// Paths of objects that the controller wrote, which the cache must observe before the next reconcile.
    own_writes: BTreeSet<String>,
    version: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) faults: Faults,
    pub(super) accounts: Accounts,
    /// The number of writes since the process started.
    pub(super) sent: u32,
    is_crashed: bool,
}

/// The injected faults.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// The percentage of writes that fail, half of them after they took effect.
    pub(super) failing: u8,
    /// The percentage of changes by other clients that the cache has not observed.
    pub(super) unobserved: u8,
    /// The process crashes at this write, before (`false`) or after it took effect.
    pub(super) crashes_at: Option<(u32, bool)>,
    /// Whether kubelets change pods during a reconcile.
    pub(super) kubelets_run: bool,
}

/// What actually happened to the pods.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) created: i32,
    pub(super) counted_succeeded: i32,
    pub(super) counted_failed: i32,
    /// Indexes with a succeeded pod whose finalizer was removed.
    pub(super) indexes: BTreeSet<i64>,
    /// Pods deleted without being counted.
    pub(super) removed: i32,
    /// Succeeded pods that did not count, because their index had already succeeded.
    pub(super) duplicates: i32,
}

impl Cluster {
    pub(super) fn new(seed: u64, job: Value) -> Self {
        let a_loop = controller(&JobOptions::default()).loops.remove(0);
        let caches = RehearsalCluster::of(&a_loop);
        let mut cluster = Self {
            a_loop,
            caches,
            live: BTreeMap::new(),
            observed: BTreeMap::new(),
            own_writes: BTreeSet::new(),
            version: 0,
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            accounts: Accounts::default(),
            sent: 0,
            is_crashed: false,
        };
        cluster.store(Job::RESOURCE.object_path(&key()), job);
        cluster
    }

    fn percent(&mut self, of_hundred: u8) -> bool {
        self.rng.u8(0..100) < of_hundred
    }

    fn store(&mut self, path: String, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.live.insert(path, object);
    }

    /// Starts a new process: without memory and with relisted caches.
    pub(super) fn restart(&mut self) {
        self.a_loop = controller(&JobOptions::default()).loops.remove(0);
        let now = self.caches.view().now().monotonic;
        self.caches = RehearsalCluster::of(&self.a_loop);
        let passed = now.saturating_sub(self.caches.view().now().monotonic);
        self.caches.advance_clock(passed);
        self.faults.crashes_at = None;
        self.observed.clear();
        (self.sent, self.is_crashed) = (0, false);
        let everything: Vec<String> = self.live.keys().cloned().collect();
        everything.iter().for_each(|path| self.observe(path));
    }

    /// Updates the cache: with all of the controller's writes, and most of the other changes.
    fn catch_up(&mut self) {
        let version =
            |path: &String| self.live.get(path).map(|object| &object["metadata"]["resourceVersion"]);
        let known = self.observed.keys().chain(self.live.keys());
        let behind = known.filter(|path| version(path) != self.observed.get(*path));
        let behind: BTreeSet<String> = behind.cloned().collect();
        for path in behind {
            if self.own_writes.contains(&path) || !self.percent(self.faults.unobserved) {
                self.observe(&path);
            }
        }
        self.own_writes.clear();
    }

    fn observe(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap();
        match self.live.get(path) {
            Some(object) => {
                self.observed.insert(path.to_owned(), object["metadata"]["resourceVersion"].clone())
            }
            None => self.observed.remove(path),
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

    /// Reconciles the Job; a process that crashed is replaced.
    pub(super) fn reconcile(&mut self) {
        self.catch_up();
        let reconciler = self.a_loop.reconciler.clone();
        let item = Item::from(key());
        let mut io = FaultyIo(self);
        let mut cx = Context::new(&mut io);
        let result = {
            let future = pin!(reconciler.reconcile_boxed(&mut cx, &item));
            match future.poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => unreachable!("no future here is pending"),
            }
        };
        // The requested requeue does not matter: the Job is always reconciled again.
        drop(result);
        if self.is_crashed {
            self.restart();
        }
    }

    pub(super) fn advance_clock(&mut self, seconds: u64) {
        self.caches.advance_clock(Duration::from_secs(seconds));
    }

    pub(super) fn job(&self) -> Job {
        serde_json::from_value(self.live[&Job::RESOURCE.object_path(&key())].clone()).unwrap()
    }

    /// A user changes the spec.
    pub(super) fn edit_spec(&mut self, field: &str, value: Value) {
        let path = Job::RESOURCE.object_path(&key());
        let mut job = self.live[&path].clone();
        job["spec"][field] = value;
        self.store(path, job);
    }

    fn pod_paths(&self) -> Vec<String> {
        self.live.keys().filter(|path| path.contains("/pods/")).cloned().collect()
    }

    /// The number of pods with the finalizer.
    pub(super) fn pods_with_finalizer(&self) -> i32 {
        let tracked = self.live.values().filter(|object| has_finalizer(object)).count();
        i32::try_from(tracked).unwrap()
    }

    /// Advances the phase of a random pod.
    pub(super) fn kubelet(&mut self, failing: u8) {
        let paths = self.pod_paths();
        if paths.is_empty() {
            return;
        }
        let path = paths[self.rng.usize(0..paths.len())].clone();
        let mut pod = self.live[&path].clone();
        let is_terminating = !pod["metadata"]["deletionTimestamp"].is_null();
        let fails = self.percent(if is_terminating { 80 } else { failing });
        let next = match pod["status"]["phase"].as_str().unwrap() {
            "Pending" if !is_terminating => "Running",
            "Pending" | "Running" if fails => "Failed",
            "Pending" | "Running" => "Succeeded",
            _ => return,
        };
        let at = self.caches.view().now().wall;
        pod["status"] = json!({"phase": next, "containerStatuses": []});
        if next != "Running" {
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": i32::from(fails), "finishedAt": at}}}]);
        }
        self.store_pod(path, pod);
    }

    /// Deletes a random pod.
    pub(super) fn evict(&mut self) {
        let paths = self.pod_paths();
        if !paths.is_empty() {
            let path = paths[self.rng.usize(0..paths.len())].clone();
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

    /// Stores a pod, or removes it if it is finished, terminating and without the finalizer.
    fn store_pod(&mut self, path: String, pod: Value) {
        let is_terminating = !pod["metadata"]["deletionTimestamp"].is_null();
        let is_finished = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap());
        if is_terminating && is_finished && !has_finalizer(&pod) {
            self.version += 1;
            self.live.remove(&path);
        } else {
            self.store(path, pod);
        }
    }

    fn send(&mut self, write: &Write) -> Outcome {
        let lost = || Outcome::Failed(ApiError::transport(ErrorReason::ConnectionLost, "lost"));
        if self.is_crashed {
            return lost();
        }
        self.sent += 1;
        if self.faults.kubelets_run && self.percent(50) {
            self.kubelet(30);
        }
        let last = self.faults.crashes_at.filter(|(at, _)| *at == self.sent);
        self.is_crashed = last.is_some();
        let fails = self.percent(self.faults.failing);
        let takes_effect = last.map_or(!fails || self.rng.bool(), |(_, takes_effect)| takes_effect);
        let outcome = if takes_effect { self.execute(write) } else { lost() };
        self.check();
        if fails || self.is_crashed {
            return lost();
        }
        if let Outcome::Done { .. } = outcome {
            let name = match &outcome {
                Outcome::Done { name, .. } => name.clone(),
                _ => write.target.key.name.clone(),
            };
            let key = Key { name, ..write.target.key.clone() };
            self.own_writes.insert(write.target.resource.object_path(&key));
        }
        outcome
    }

    fn execute(&mut self, write: &Write) -> Outcome {
        let path = write.target.resource.object_path(&write.target.key);
        let refused = |reason| Outcome::Failed(ApiError::transport(reason, "refused"));
        let done = |version: u64, name: &str| Outcome::Done {
            resource_version: ResourceVersion::from(&*version.to_string()),
            uid: Uid::default(),
            name: ArcStr::from(name),
            creation_timestamp: None,
            object: None,
        };
        let name = write.target.key.name.to_string();
        match &write.action {
            Action::Create(body) => {
                self.accounts.created += 1;
                let number = self.accounts.created;
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
                    let is_tolerated = write.ignored_errors.contains(&ErrorReason::NotFound);
                    return if is_tolerated { Outcome::done() } else { refused(ErrorReason::NotFound) };
                };
                let removed = &body["metadata"]["$deleteFromPrimitiveList/finalizers"];
                assert_eq!(
                    *removed,
                    json!([TRACKING_FINALIZER]),
                    "only finalizers are patched in these tests"
                );
                if has_finalizer(&pod) {
                    self.record_finalizer_removal(&pod, &write.because);
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
            _ => unreachable!("the Job controller sends no such write"),
        }
    }

    /// A pod whose finalizer is removed must be listed as uncounted at that moment, or must not count at all.
    fn record_finalizer_removal(&mut self, pod: &Value, because: &str) {
        let uid = Uid::from(pod["metadata"]["uid"].as_str().unwrap());
        let job = self.job();
        let listed = lists(&job);
        let index = pod["metadata"]["annotations"][super::super::COMPLETION_INDEX].as_str();
        let index: Option<i64> = index.and_then(|text| text.parse().ok());
        let completed = Indexes::parse(&job.status.completed_indexes, job.spec.completions.unwrap_or(0));
        let has_succeeded = pod["status"]["phase"] == "Succeeded";
        if because == "the pod is deleted without being counted" {
            self.accounts.removed += 1;
        } else if listed.failed.contains(&uid) {
            self.accounts.counted_failed += 1;
        } else if listed.succeeded.contains(&uid) {
            self.accounts.counted_succeeded += 1;
        } else if let Some(index) = index.filter(|index| has_succeeded && completed.contains(*index)) {
            self.accounts.duplicates += i32::from(!self.accounts.indexes.insert(index));
        } else if job.status.conditions.is_condition_true("SuccessCriteriaMet") {
            self.accounts.removed += 1; // The Job has succeeded without it.
        } else {
            panic!("the finalizer of a pod is removed that no status lists: {pod}");
        }
    }

    /// The invariants after every single request.
    fn check(&self) {
        let (job, accounts) = (self.job(), &self.accounts);
        let (status, lists) = (&job.status, lists(&job));
        let tracked = |uid: &&Uid| self.live.values().any(|pod| has_finalizer(pod) && uid_of(pod) == **uid);
        let untracked =
            |list: &[Uid]| i32::try_from(list.iter().filter(|uid| !tracked(uid)).count()).unwrap();
        assert_eq!(status.failed + untracked(&lists.failed), accounts.counted_failed, "failed");
        if job.is_indexed() {
            let completed = Indexes::parse(&status.completed_indexes, i32::MAX);
            assert_eq!(status.succeeded, completed.count(), "succeeded indexes");
            assert!(accounts.indexes.iter().all(|index| completed.contains(*index)), "an index is lost");
        } else {
            assert_eq!(
                status.succeeded + untracked(&lists.succeeded),
                accounts.counted_succeeded,
                "succeeded"
            );
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

fn has_finalizer(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER))
}

fn uid_of(object: &Value) -> Uid {
    Uid::from(object["metadata"]["uid"].as_str().unwrap())
}

fn lists(job: &Job) -> UncountedTerminatedPods {
    job.status.uncounted_terminated_pods.clone().unwrap_or_default()
}

/// The requests of a process to the cluster.
struct FaultyIo<'c>(&'c mut Cluster);

impl FaultyIo<'_> {
    fn execute(&mut self, plan: &Plan) -> Applied {
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

impl ReconcileIo for FaultyIo<'_> {
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        f(&self.0.caches.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.execute(&plan);
        Box::pin(async move { applied })
    }

    fn effects(&mut self, _: Effects) {}

    fn resource_of<'a>(&'a mut self, _: &'a TypeMeta) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        unreachable!("no resource is looked up")
    }

    fn fetch<'a>(&'a mut self, _: &'a Resource, _: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        unreachable!("Jobs are not read live in these tests")
    }

    fn fetch_metadata<'a>(&'a mut self, _: &'a Resource, _: &'a Key) -> BoxFuture<'a, FetchResult> {
        unreachable!("Jobs are not read live in these tests")
    }

    fn list<'a>(&'a mut self, _: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        unreachable!("nothing is listed live")
    }

    fn read<'a>(&'a mut self, _: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        unreachable!("only objects are read")
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        unreachable!("nothing is discovered")
    }
}
