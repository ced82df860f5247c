//! Which keys changes enqueue and when, and the pods that no Job will count.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason, Job, Key, Kind, Pod};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{AnyChange, AnyObject, Change, Effects, KindEntry, Measurement};
use serde_json::{Value, json};

use super::super::orphans::SelectedPods;
use super::super::{JobOptions, controller};
use super::fixture::{JobFixture, at, job, merge, owner, pod};

/// An item, and its delay in seconds if it was added with one.
type Enqueued = (String, Option<u64>);

fn notify<T: Kind>(fixture: &JobFixture, which: usize, change: &AnyChange) -> Effects {
    let (kind, mut queue) = (KindEntry::of::<T>(), Effects::default());
    for watch in fixture.controller.loops[which].watches.iter().filter(|watch| watch.kind == kind) {
        watch.enqueue(change, &fixture.cluster.view(), &mut queue);
    }
    queue
}

/// The items that a change enqueues in a loop.
fn enqueued<T: Kind>(fixture: &JobFixture, which: usize, change: &AnyChange) -> Vec<Enqueued> {
    let items = notify::<T>(fixture, which, change).into_items().into_iter();
    items.map(|(item, delay)| (item.to_string(), delay.map(|delay| delay.as_secs()))).collect()
}

/// The metrics that a change observes in any loop: labels and value.
fn measured<T: Kind>(fixture: &JobFixture, change: &AnyChange) -> Vec<String> {
    let of_loop = |which| notify::<T>(fixture, which, change).take_measurements();
    let text = |measurement: Measurement| {
        let name = measurement.metric.name.trim_start_matches("job_controller_");
        format!("{name}{:?} {}", measurement.labels, measurement.value)
    };
    [JOBS, ORPHANS].into_iter().flat_map(of_loop).map(text).collect()
}

fn read<T: Kind>(json: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json.clone()).unwrap())
}

fn updated<T: Kind>(old: &Value, new: &Value) -> AnyChange {
    let mut store = KindEntry::of::<T>().new_store();
    let old: Arc<dyn AnyObject> = read::<T>(old);
    store.apply(old);
    let mut new = new.clone();
    new["metadata"]["resourceVersion"] = json!("9");
    let new: Arc<dyn AnyObject> = read::<T>(&new);
    store.apply(new)
}

fn added<T: Kind>(object: &Value) -> AnyChange {
    Change::added(read::<T>(object)).into()
}

fn deleted<T: Kind>(object: &Value) -> AnyChange {
    Change::deleted(read::<T>(object)).into()
}

fn with(base: &Value, more: &Value) -> Value {
    let mut object = base.clone();
    merge(&mut object, more);
    object
}

const JOBS: usize = 0;
const ORPHANS: usize = 1;

/// The original always adds Jobs with a delay, which may be zero: `workqueue_retries_total` counts them all.
fn job_after(delay: u64) -> Vec<Enqueued> {
    vec![("a/j".to_owned(), Some(delay))]
}

fn selected() -> Vec<Enqueued> {
    vec![(r#"a/ selector={"matchLabels":{"job":"j"}}"#.to_owned(), None)]
}

fn nothing() -> Vec<Enqueued> {
    Vec::new()
}

/// Proves JOB-1, JOB-2, JOB-3.
#[test]
fn both_queues_have_the_configured_workers() {
    for (options, workers) in
        [(JobOptions::default(), 5), (JobOptions { workers: 9, ..JobOptions::default() }, 9)]
    {
        let controller = controller(&options);
        assert_eq!(
            controller.loops.iter().map(|queue| queue.queue).collect::<Vec<_>>(),
            ["job", "job_orphan_pod"]
        );
        for a_loop in &controller.loops {
            assert_eq!((a_loop.workers, a_loop.max_retries), (workers, None));
            let (first, most) = (a_loop.rate_limiter.base_delay, a_loop.rate_limiter.max_delay);
            assert_eq!((first, most), (Duration::from_secs(1), Duration::from_secs(60)));
            assert!(a_loop.rate_limiter.retries_per_second > 1e5);
            let watched: Vec<_> =
                a_loop.watches.iter().map(|watch| watch.kind.resource().to_string()).collect();
            assert_eq!(watched, ["jobs.batch", "pods"]);
        }
    }
}

/// Proves JOB-4, JOB-5, JOB-6, JOB-7, JOB-8.
#[test]
fn a_job_change_enqueues_the_job_or_its_orphans() {
    let plain = job(&json!({}));
    let fixture = JobFixture::of(plain.clone());
    let jobs = |change: &AnyChange| enqueued::<Job>(&fixture, JOBS, change);
    let orphans = |change: &AnyChange| enqueued::<Job>(&fixture, ORPHANS, change);
    assert_eq!((jobs(&added::<Job>(&plain)), orphans(&added::<Job>(&plain))), (job_after(0), nothing()));
    assert_eq!((jobs(&deleted::<Job>(&plain)), orphans(&deleted::<Job>(&plain))), (job_after(0), selected()));
    let resync: AnyChange = Change::resync(read::<Job>(&plain)).into();
    assert_eq!((jobs(&resync), orphans(&resync)), (job_after(1), nothing()));
    let finished = with(&plain, &json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}));
    let change = updated::<Job>(&plain, &finished);
    assert_eq!((jobs(&change), orphans(&change)), (nothing(), selected()));
    let active = updated::<Job>(&plain, &with(&plain, &json!({"status": {"active": 1}})));
    assert_eq!((jobs(&active), orphans(&active)), (job_after(1), nothing()));
    let newer = with(&plain, &json!({"metadata": {"generation": 2}, "spec": {"parallelism": 4}}));
    assert_eq!(jobs(&updated::<Job>(&plain, &newer)), job_after(0));
    // A deadline: 12 s of 30 s have passed, or the deadline is exceeded.
    let started = with(&plain, &json!({"status": {"startTime": at(-12)}}));
    let due = |seconds: i64| {
        let limited = with(
            &started,
            &json!({"metadata": {"generation": 2}, "spec": {"activeDeadlineSeconds": seconds}}),
        );
        jobs(&updated::<Job>(&started, &limited))
    };
    assert_eq!(
        (due(30), due(5)),
        ([job_after(0), job_after(18)].concat(), [job_after(0), job_after(0)].concat())
    );
    let unstarted =
        with(&plain, &json!({"metadata": {"generation": 2}, "spec": {"activeDeadlineSeconds": 9}}));
    assert_eq!(jobs(&updated::<Job>(&plain, &unstarted)), job_after(0));
    let same = with(&started, &json!({"spec": {"activeDeadlineSeconds": 30}}));
    assert_eq!(jobs(&updated::<Job>(&same, &same)), job_after(1));
}

/// Proves JOB-4, JOB-148.
#[test]
fn a_new_job_of_another_controller_is_counted_once() {
    let external = job(&json!({"spec": {"managedBy": "example.com/other"}}));
    let fixture = JobFixture::of(external.clone());
    let measured = |change: &AnyChange| measured::<Job>(&fixture, change);
    let counted = [r#"jobs_by_external_controller_total["example.com/other"] 1"#];
    assert_eq!(measured(&added::<Job>(&external)), counted);
    let recreated = with(&external, &json!({"metadata": {"uid": "j-2"}}));
    assert_eq!(measured(&updated::<Job>(&external, &recreated)), counted);
    for own in [json!({}), json!({"spec": {"managedBy": "kubernetes.io/job-controller"}})] {
        assert_eq!(measured(&added::<Job>(&job(&own))), [""; 0]);
    }
    assert_eq!(measured(&updated::<Job>(&external, &external)), [""; 0]);
    assert_eq!(measured(&deleted::<Job>(&external)), [""; 0]);
}

/// Proves JOB-149.
#[test]
fn a_terminated_pod_with_the_finalizer_is_counted_by_its_event_without_any_job() {
    let fixture = JobFixture::of(job(&json!({})));
    let measured = |change: &AnyChange| measured::<Pod>(&fixture, change);
    let orphan = json!({"metadata": {"ownerReferences": [], "labels": null}});
    let running = pod("p", "Running", &orphan);
    let untracked = |pod: &Value| with(pod, &json!({"metadata": {"finalizers": []}}));
    let (add, delete) = (
        [r#"terminated_pods_tracking_finalizer_total["add"] 1"#],
        [r#"terminated_pods_tracking_finalizer_total["delete"] 1"#],
    );
    for phase in ["Succeeded", "Failed"] {
        let done = pod("p", phase, &orphan);
        assert_eq!(measured(&updated::<Pod>(&running, &done)), add);
        assert_eq!(measured(&added::<Pod>(&done)), add);
        assert_eq!(measured(&updated::<Pod>(&done, &untracked(&done))), delete);
        assert_eq!(measured(&deleted::<Pod>(&done)), delete);
        assert_eq!(measured(&updated::<Pod>(&done, &done)), [""; 0]);
        assert_eq!(measured(&deleted::<Pod>(&untracked(&done))), [""; 0]);
    }
    assert_eq!(measured(&added::<Pod>(&running)), [""; 0]);
    assert_eq!(measured(&deleted::<Pod>(&running)), [""; 0]);
}

/// Proves JOB-9, JOB-10, JOB-12, JOB-13, JOB-15, JOB-16.
#[test]
fn a_pod_change_enqueues_its_job_after_one_second() {
    let fixture = JobFixture::of(job(&json!({})));
    let jobs = |change: &AnyChange| enqueued::<Pod>(&fixture, JOBS, change);
    let orphans = |change: &AnyChange| enqueued::<Pod>(&fixture, ORPHANS, change);
    let running = pod("p", "Running", &json!({}));
    assert_eq!((jobs(&added::<Pod>(&running)), orphans(&added::<Pod>(&running))), (job_after(1), nothing()));
    for (field, value) in [("kind", "Other"), ("name", "k"), ("uid", "j-0")] {
        let mut other = owner();
        other[field] = json!(value);
        let other = with(&running, &json!({"metadata": {"ownerReferences": [other]}}));
        assert_eq!(jobs(&added::<Pod>(&other)), nothing(), "{field}");
        // A new controllerRef enqueues the old and the new owner.
        assert_eq!(jobs(&updated::<Pod>(&running, &other)), job_after(1), "{field}");
    }
    let terminating = with(&running, &json!({"metadata": {"deletionTimestamp": at(0)}}));
    for change in
        [added::<Pod>(&terminating), updated::<Pod>(&running, &terminating), deleted::<Pod>(&running)]
    {
        assert_eq!((jobs(&change), orphans(&change)), (job_after(1), nothing()));
    }
    let released = with(&terminating, &json!({"metadata": {"ownerReferences": []}}));
    assert_eq!(
        jobs(&updated::<Pod>(&terminating, &released)),
        job_after(1),
        "the Job need not wait for the pod any more"
    );
    let resync: AnyChange = Change::resync(read::<Pod>(&running)).into();
    assert_eq!((jobs(&resync), orphans(&resync)), (nothing(), nothing()));
    // A deleted or finished Job does not count the pod.
    let finished = job(&json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}));
    let recreated = job(&json!({"metadata": {"uid": "j-0"}}));
    let the_pod = vec![("a/p".to_owned(), None)];
    for job in [finished, recreated] {
        let fixture = JobFixture::of(job);
        for change in
            [added::<Pod>(&terminating), updated::<Pod>(&running, &terminating), deleted::<Pod>(&running)]
        {
            assert_eq!(enqueued::<Pod>(&fixture, JOBS, &change), nothing());
            assert_eq!(enqueued::<Pod>(&fixture, ORPHANS, &change), the_pod);
        }
        let untracked = with(&terminating, &json!({"metadata": {"finalizers": []}}));
        assert_eq!(enqueued::<Pod>(&fixture, ORPHANS, &updated::<Pod>(&running, &untracked)), nothing());
        assert_eq!(enqueued::<Pod>(&fixture, ORPHANS, &added::<Pod>(&running)), nothing());
    }
}

/// Proves JOB-11, JOB-14, JOB-15.
#[test]
fn an_orphaned_pod_enqueues_the_jobs_that_select_it() {
    let fixture = JobFixture::of(job(&json!({})));
    let jobs = |change: &AnyChange| enqueued::<Pod>(&fixture, JOBS, change);
    let orphans = |change: &AnyChange| enqueued::<Pod>(&fixture, ORPHANS, change);
    let the_pod = vec![("a/p".to_owned(), None)];
    let owned = pod("p", "Running", &json!({}));
    let orphan = with(&owned, &json!({"metadata": {"ownerReferences": []}}));
    let untracked = with(&orphan, &json!({"metadata": {"finalizers": []}}));
    assert_eq!(
        (jobs(&added::<Pod>(&orphan)), orphans(&added::<Pod>(&orphan))),
        (job_after(1), the_pod.clone())
    );
    assert_eq!(
        (jobs(&added::<Pod>(&untracked)), orphans(&added::<Pod>(&untracked))),
        (job_after(1), nothing())
    );
    for labels in [json!(null), json!({"job": "other"})] {
        let mut other = untracked.clone();
        other["metadata"]["labels"] = labels;
        assert_eq!(jobs(&added::<Pod>(&other)), nothing());
        assert_eq!(jobs(&updated::<Pod>(&other, &untracked)), job_after(1));
    }
    let change = updated::<Pod>(&owned, &orphan);
    assert_eq!((jobs(&change), orphans(&change)), ([job_after(1), job_after(1)].concat(), the_pod.clone()));
    let succeeded = with(&orphan, &json!({"status": {"phase": "Succeeded"}}));
    let change = updated::<Pod>(&orphan, &succeeded);
    assert_eq!((jobs(&change), orphans(&change)), (nothing(), the_pod.clone()));
    let terminating = with(&orphan, &json!({"metadata": {"deletionTimestamp": at(0)}}));
    let change = updated::<Pod>(&orphan, &terminating);
    assert_eq!((jobs(&change), orphans(&change)), (nothing(), the_pod));
    // An empty selector matches every pod with labels.
    let select_all = JobFixture::of(job(&json!({"spec": {"selector": {"matchLabels": null}}})));
    let bare = with(&untracked, &json!({"metadata": {"labels": null}}));
    assert_eq!(enqueued::<Pod>(&select_all, JOBS, &added::<Pod>(&untracked)), job_after(1));
    assert_eq!(enqueued::<Pod>(&select_all, JOBS, &added::<Pod>(&bare)), nothing());
}

/// Proves JOB-8, JOB-165.
#[test]
fn a_deleted_job_loses_its_backoff() {
    let overrides = json!({"spec": {"completions": 9}});
    let failed = json!({"status": {"containerStatuses": [
        {"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": at(-1)}}}]}});
    let mut fixture = JobFixture::of(job(&overrides)).pods([pod("f", "Failed", &failed)]);
    assert_eq!(fixture.reconcile().requeue_after(), Some("9s"));
    fixture.cluster.take::<Pod>(&fixture.controller.loops[JOBS], &Key::namespaced("a", "f"));
    assert_eq!(fixture.reconcile().requeue_after(), Some("9s"));
    enqueued::<Job>(&fixture, JOBS, &deleted::<Job>(&job(&overrides)));
    assert_eq!(fixture.reconcile().created().len(), 1);
}

/// Whether the finalizer of a pod is removed, with this Job in the cluster.
fn finalizer_is_removed(job: Option<Value>, pod: &Value) -> bool {
    let a_loop = controller(&JobOptions::default()).loops.remove(ORPHANS);
    let mut cluster = RehearsalCluster::of(&a_loop).with::<Pod>(pod.clone());
    if let Some(job) = job {
        cluster = cluster.with::<Job>(job);
    }
    let transcript = cluster.reconcile(&a_loop, Key::namespaced("a", "p"));
    let patch =
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#;
    assert!(transcript.is_empty() || transcript.contains(patch), "{transcript}");
    !transcript.is_empty()
}

/// Proves JOB-120, JOB-121, JOB-165, JOB-174.
#[test]
fn the_finalizer_of_a_pod_that_no_job_will_count_is_removed() {
    let owned = |field: &str, value: Value| {
        let mut owner = owner();
        owner[field] = value;
        pod("p", "Running", &json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let owned_by_job = pod("p", "Running", &json!({}));
    let finished = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    assert!(finalizer_is_removed(None, &pod("p", "Running", &json!({"metadata": {"ownerReferences": []}}))));
    assert!(finalizer_is_removed(None, &owned_by_job));
    assert!(finalizer_is_removed(Some(job(&json!({"metadata": {"uid": "j-2"}}))), &owned_by_job));
    assert!(finalizer_is_removed(Some(job(&finished)), &owned_by_job));
    assert!(finalizer_is_removed(Some(job(&json!({}))), &owned("controller", json!(false))));
    assert!(!finalizer_is_removed(Some(job(&json!({}))), &owned_by_job));
    assert!(!finalizer_is_removed(
        Some(job(&with(&finished, &json!({"spec": {"managedBy": "x/y"}})))),
        &owned_by_job
    ));
    assert!(!finalizer_is_removed(None, &owned("kind", json!("Other"))));
    assert!(!finalizer_is_removed(None, &owned("apiVersion", json!("batch/v2"))));
    assert!(!finalizer_is_removed(None, &pod("p", "Running", &json!({"metadata": {"finalizers": []}}))));
}

/// A pod that lost its owner references was adopted by a DaemonSet, which has deleted it.
#[test]
fn the_finalizer_of_a_terminating_pod_that_another_workload_adopted_is_removed() {
    let adopted = |api_version: &str, kind: &str, terminating: bool| {
        let mut owner = owner();
        owner["apiVersion"] = json!(api_version);
        owner["kind"] = json!(kind);
        let deletion_timestamp = terminating.then(|| at(0));
        let metadata = json!({"ownerReferences": [owner], "deletionTimestamp": deletion_timestamp});
        pod("p", "Running", &json!({"metadata": metadata}))
    };
    let workloads = [
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("v1", "ReplicationController"),
    ];
    for (api_version, kind) in workloads {
        assert!(finalizer_is_removed(None, &adopted(api_version, kind, true)), "{kind}");
        assert!(!finalizer_is_removed(None, &adopted(api_version, kind, false)), "{kind}");
    }
    // A custom controller may use the finalizer itself.
    assert!(!finalizer_is_removed(None, &adopted("example.org/v1", "DaemonSet", true)));
    assert!(!finalizer_is_removed(Some(job(&json!({}))), &adopted("batch/v1", "Job", true)));
}

/// Proves JOB-122, JOB-5, JOB-174.
#[test]
fn a_selector_item_stands_for_all_matching_pods() {
    let a_loop = controller(&JobOptions::default()).loops.remove(ORPHANS);
    let other = json!({"metadata": {"labels": {"job": "other"}}});
    let finished = job(&json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}));
    let mut cluster = RehearsalCluster::of(&a_loop).with::<Job>(finished);
    for pod in [pod("p", "Failed", &json!({})), pod("q", "Failed", &json!({})), pod("r", "Failed", &other)] {
        cluster = cluster.with::<Pod>(pod);
    }
    let elsewhere = json!({"metadata": {"namespace": "b"}});
    cluster = cluster.with::<Pod>(pod("p", "Failed", &elsewhere));
    let failure = ApiError::transport(ErrorReason::Unavailable, "refused");
    cluster = cluster.failing::<Pod>("patch", &Key::namespaced("a", "p"), failure);
    let selector = r#"{"matchLabels":{"job":"j"}}"#.to_owned();
    let item = SelectedPods { namespace: "a".into(), selector };
    let transcript = cluster.reconcile(&a_loop, item);
    let patched: Vec<&str> = transcript.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(patched[..2], ["a/p", "a/q"]);
    assert!(transcript.lines().count() == 3 && transcript.contains("retry: "), "{transcript}");
}
