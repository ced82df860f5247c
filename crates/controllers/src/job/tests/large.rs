//! A Job with many pods does not keep a worker busy.

use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use keleustes_objects::{
    ApiError, ArcStr, DiscoveredResources, Key, Pod, Resource, ResourceVersion, TypeMeta, Uid,
};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{
    Applied, BoxFuture, Context, Effects, FetchResult, Item, ListRequest, ListResult, Outcome, Plan,
    ReadRequest, ReconcileIo, View, Write,
};
use serde_json::{Value, json};

use super::fixture::{JobFixture, job, pod};
use crate::cpu_time::cpu_seconds;

/// The number of pods of a large Job.
const PODS: usize = 50_000;

/// An unoptimized build is about ten times slower than a release.
const SECONDS_MAX: f64 = if cfg!(debug_assertions) { 10.0 } else { 1.0 };

/// Answers every write with success and counts them by verb.
struct CountingIo<'c> {
    cluster: &'c RehearsalCluster,
    verbs: Vec<&'static str>,
    statuses: Vec<Value>,
}

impl CountingIo<'_> {
    fn send(&mut self, write: &Write) -> Outcome {
        self.verbs.push(write.verb());
        if let keleustes_plan::Action::Put { body, .. } = &write.action {
            self.statuses.push(body["status"].clone());
        }
        Outcome::Done {
            resource_version: ResourceVersion::from("9"),
            uid: Uid::default(),
            name: ArcStr::from("x"),
            creation_timestamp: None,
            object: None,
        }
    }
}

impl ReconcileIo for CountingIo<'_> {
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        f(&self.cluster.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let writes = plan.steps().iter().flat_map(keleustes_plan::Step::writes);
        let applied = Applied { outcomes: writes.map(|write| self.send(write)).collect(), error: None };
        Box::pin(async move { applied })
    }

    fn effects(&mut self, _: Effects) {}

    fn resource_of<'a>(&'a mut self, _: &'a TypeMeta) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        unreachable!("no resource is looked up")
    }

    fn fetch<'a>(&'a mut self, _: &'a Resource, _: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        unreachable!("Jobs are not read live")
    }

    fn fetch_metadata<'a>(&'a mut self, _: &'a Resource, _: &'a Key) -> BoxFuture<'a, FetchResult> {
        unreachable!("Jobs are not read live")
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

/// Reconciles the Job once: the verbs of the writes, the statuses, and the CPU time.
fn reconcile(fixture: &JobFixture) -> (Vec<&'static str>, Vec<Value>, f64) {
    let reconciler = fixture.controller.loops[0].reconciler.clone();
    let mut io = CountingIo { cluster: &fixture.cluster, verbs: Vec::new(), statuses: Vec::new() };
    let (item, began) = (Item::from(Key::namespaced("a", "j")), cpu_seconds());
    let Poll::Ready(result) = pin!(reconciler.reconcile_boxed(&mut Context::new(&mut io), &item))
        .poll(&mut TaskContext::from_waker(Waker::noop()))
    else {
        unreachable!("no future here is pending")
    };
    result.unwrap();
    (io.verbs, io.statuses, cpu_seconds() - began)
}

/// A Job with many pods in one phase.
fn large_job(overrides: &Value, phase: &str) -> JobFixture {
    let mut overrides = overrides.clone();
    for field in ["parallelism", "completions", "backoffLimit"] {
        overrides["spec"][field] = json!(PODS);
    }
    let template: Pod = serde_json::from_value(pod("p", phase, &json!({}))).unwrap();
    let numbered = |n: usize| {
        let mut pod = template.clone();
        pod.meta.key = Key::namespaced("a", &*format!("p{n:05}"));
        pod.meta.uid = Uid::from(&*format!("p{n:05}-1"));
        pod
    };
    let mut fixture = JobFixture::of(job(&overrides));
    fixture.cluster = fixture.cluster.with_cached_objects((0..PODS).map(numbered));
    fixture
}

fn count(verbs: &[&str], wanted: &str) -> usize {
    verbs.iter().filter(|verb| **verb == wanted).count()
}

/// A quadratic loop over 50,000 pods takes minutes.
#[test]
fn a_job_with_50000_pods_suspends_within_a_second_of_cpu_time() {
    let (verbs, statuses, seconds) = reconcile(&large_job(&json!({"spec": {"suspend": true}}), "Running"));
    assert_eq!((count(&verbs, "patch"), count(&verbs, "delete")), (PODS, PODS));
    assert_eq!((&statuses[0]["active"], &statuses[0]["failed"]), (&json!(0), &json!(0)));
    assert!(seconds < SECONDS_MAX, "{seconds} s");
}

#[test]
fn a_job_with_50000_finished_pods_counts_500_of_them_within_a_second_of_cpu_time() {
    let listed: Vec<_> = (0..400).map(|n| format!("p{n:05}-1")).collect();
    let status = json!({"status": {"uncountedTerminatedPods": {"failed": listed}}});
    let (verbs, statuses, seconds) = reconcile(&large_job(&status, "Failed"));
    assert_eq!((count(&verbs, "patch"), &statuses[1]["failed"]), (500, &json!(500)));
    assert!(seconds < SECONDS_MAX, "{seconds} s");
}
