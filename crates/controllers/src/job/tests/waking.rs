//! Whom changes wake and when, and what becomes of pods that no Job will count.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason, Job, Key, Kind, Pod};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{AnyChange, AnyObject, Change, Enqueue, Item, KindEntry};
use serde_json::{Value, json};

use super::super::{JobOptions, controller};
use super::stage::{Stage, at, job, merge, owner, pod};

/// The items that a change wakes in a loop, with their delays in seconds.
fn woken<T: Kind>(stage: &Stage, which: usize, change: &AnyChange) -> Vec<(String, u64)> {
    let (kind, mut wakes) = (KindEntry::of::<T>(), Enqueue::default());
    for watch in stage.controller.loops[which].watches.iter().filter(|watch| watch.kind == kind) {
        watch.enqueue(change, &stage.world.view(), &mut wakes);
    }
    wakes.into_items().into_iter().map(|(item, delay)| (item.to_string(), delay.as_secs())).collect()
}

fn read<T: Kind>(json: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json.clone()).unwrap())
}

fn updated<T: Kind>(before: &Value, after: &Value) -> AnyChange {
    let mut table = KindEntry::of::<T>().new_store();
    let before: Arc<dyn AnyObject> = read::<T>(before);
    table.apply(before);
    let mut after = after.clone();
    after["metadata"]["resourceVersion"] = json!("9");
    let after: Arc<dyn AnyObject> = read::<T>(&after);
    table.apply(after)
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

fn the_job(delay: u64) -> Vec<(String, u64)> {
    vec![("a/j".to_owned(), delay)]
}

fn selected() -> Vec<(String, u64)> {
    vec![(r#"a/ selector={"matchLabels":{"job":"j"}}"#.to_owned(), 0)]
}

fn nobody() -> Vec<(String, u64)> {
    Vec::new()
}

/// Proves JOB-1, JOB-2, JOB-3.
#[test]
fn two_queues_with_as_many_workers_as_told() {
    for (settings, workers) in
        [(JobOptions::default(), 5), (JobOptions { workers: 9, ..JobOptions::default() }, 9)]
    {
        let controller = controller(&settings);
        assert_eq!(controller.loops.iter().map(|it| it.queue).collect::<Vec<_>>(), ["job", "job_orphan_pod"]);
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
fn a_job_wakes_itself_or_its_orphans() {
    let plain = job(&json!({}));
    let stage = Stage::of(plain.clone());
    let jobs = |change: &AnyChange| woken::<Job>(&stage, JOBS, change);
    let orphans = |change: &AnyChange| woken::<Job>(&stage, ORPHANS, change);
    assert_eq!((jobs(&added::<Job>(&plain)), orphans(&added::<Job>(&plain))), (the_job(0), nobody()));
    assert_eq!((jobs(&deleted::<Job>(&plain)), orphans(&deleted::<Job>(&plain))), (the_job(0), selected()));
    let resync: AnyChange = Change::resync(read::<Job>(&plain)).into();
    assert_eq!((jobs(&resync), orphans(&resync)), (the_job(1), nobody()));
    let finished = with(&plain, &json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}));
    let change = updated::<Job>(&plain, &finished);
    assert_eq!((jobs(&change), orphans(&change)), (nobody(), selected()));
    let active = updated::<Job>(&plain, &with(&plain, &json!({"status": {"active": 1}})));
    assert_eq!((jobs(&active), orphans(&active)), (the_job(1), nobody()));
    let newer = with(&plain, &json!({"metadata": {"generation": 2}, "spec": {"parallelism": 4}}));
    assert_eq!(jobs(&updated::<Job>(&plain, &newer)), the_job(0));
    // A deadline: 12 s of 30 s are over, or more than all.
    let started = with(&plain, &json!({"status": {"startTime": at(-12)}}));
    let due = |seconds: i64| {
        let limited = with(
            &started,
            &json!({"metadata": {"generation": 2}, "spec": {"activeDeadlineSeconds": seconds}}),
        );
        jobs(&updated::<Job>(&started, &limited))
    };
    assert_eq!((due(30), due(5)), ([the_job(0), the_job(18)].concat(), [the_job(0), the_job(0)].concat()));
    let unstarted =
        with(&plain, &json!({"metadata": {"generation": 2}, "spec": {"activeDeadlineSeconds": 9}}));
    assert_eq!(jobs(&updated::<Job>(&plain, &unstarted)), the_job(0));
    let same = with(&started, &json!({"spec": {"activeDeadlineSeconds": 30}}));
    assert_eq!(jobs(&updated::<Job>(&same, &same)), the_job(1));
}

/// Proves JOB-4, JOB-148, JOB-149.
#[test]
fn what_is_seen_outside_of_turns_is_told_by_the_next() {
    let mut stage = Stage::of(job(&json!({"spec": {"managedBy": "example.com/other"}})));
    woken::<Job>(&stage, JOBS, &added::<Job>(&job(&json!({"spec": {"managedBy": "example.com/other"}}))));
    woken::<Job>(
        &stage,
        JOBS,
        &added::<Job>(&job(&json!({"spec": {"managedBy": "kubernetes.io/job-controller"}}))),
    );
    let (running, done) = (pod("p", "Running", &json!({})), pod("p", "Failed", &json!({})));
    let free = with(&done, &json!({"metadata": {"finalizers": [], "ownerReferences": []}}));
    for change in [
        added::<Pod>(&running),
        updated::<Pod>(&running, &done),
        updated::<Pod>(&done, &free),
        deleted::<Pod>(&free),
        added::<Pod>(&done),
        deleted::<Pod>(&done),
    ] {
        woken::<Pod>(&stage, JOBS, &change);
    }
    let turn = stage.turn();
    assert_eq!(turn.measured("jobs_by_external_controller_total"), ["example.com/other} 1"]);
    assert_eq!(turn.measured("terminated_pods_tracking_finalizer_total"), ["add} 2", "delete} 2"]);
    assert_eq!(stage.turn().0, "");
}

/// Proves JOB-9, JOB-10, JOB-12, JOB-13, JOB-15, JOB-16.
#[test]
fn a_pod_wakes_its_job_a_second_later() {
    let stage = Stage::of(job(&json!({})));
    let jobs = |change: &AnyChange| woken::<Pod>(&stage, JOBS, change);
    let orphans = |change: &AnyChange| woken::<Pod>(&stage, ORPHANS, change);
    let running = pod("p", "Running", &json!({}));
    assert_eq!((jobs(&added::<Pod>(&running)), orphans(&added::<Pod>(&running))), (the_job(1), nobody()));
    for (field, value) in [("kind", "Other"), ("name", "k"), ("uid", "j-0")] {
        let mut other = owner();
        other[field] = json!(value);
        let other = with(&running, &json!({"metadata": {"ownerReferences": [other]}}));
        assert_eq!(jobs(&added::<Pod>(&other)), nobody(), "{field}");
        // One that changes hands wakes both.
        assert_eq!(jobs(&updated::<Pod>(&running, &other)), the_job(1), "{field}");
    }
    let going = with(&running, &json!({"metadata": {"deletionTimestamp": at(0)}}));
    for change in [added::<Pod>(&going), updated::<Pod>(&running, &going), deleted::<Pod>(&running)] {
        assert_eq!((jobs(&change), orphans(&change)), (the_job(1), nobody()));
    }
    let taken = with(&going, &json!({"metadata": {"ownerReferences": []}}));
    assert_eq!(jobs(&updated::<Pod>(&going, &taken)), the_job(1), "it need not wait for it any more");
    let resync: AnyChange = Change::resync(read::<Pod>(&running)).into();
    assert_eq!((jobs(&resync), orphans(&resync)), (nobody(), nobody()));
    // Of a Job that is gone or over nobody is left to count it.
    let finished = job(&json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}));
    let gone = job(&json!({"metadata": {"uid": "j-0"}}));
    let the_pod = vec![("a/p".to_owned(), 0)];
    for job in [finished, gone] {
        let stage = Stage::of(job);
        for change in [added::<Pod>(&going), updated::<Pod>(&running, &going), deleted::<Pod>(&running)] {
            assert_eq!(woken::<Pod>(&stage, JOBS, &change), nobody());
            assert_eq!(woken::<Pod>(&stage, ORPHANS, &change), the_pod);
        }
        let free = with(&going, &json!({"metadata": {"finalizers": []}}));
        assert_eq!(woken::<Pod>(&stage, ORPHANS, &updated::<Pod>(&running, &free)), nobody());
        assert_eq!(woken::<Pod>(&stage, ORPHANS, &added::<Pod>(&running)), nobody());
    }
}

/// Proves JOB-11, JOB-14, JOB-15.
#[test]
fn a_pod_that_nobody_manages_wakes_whoever_selects_it() {
    let stage = Stage::of(job(&json!({})));
    let jobs = |change: &AnyChange| woken::<Pod>(&stage, JOBS, change);
    let orphans = |change: &AnyChange| woken::<Pod>(&stage, ORPHANS, change);
    let the_pod = vec![("a/p".to_owned(), 0)];
    let managed = pod("p", "Running", &json!({}));
    let alone = with(&managed, &json!({"metadata": {"ownerReferences": []}}));
    let free = with(&alone, &json!({"metadata": {"finalizers": []}}));
    assert_eq!((jobs(&added::<Pod>(&alone)), orphans(&added::<Pod>(&alone))), (the_job(1), the_pod.clone()));
    assert_eq!((jobs(&added::<Pod>(&free)), orphans(&added::<Pod>(&free))), (the_job(1), nobody()));
    for labels in [json!(null), json!({"job": "other"})] {
        let mut other = free.clone();
        other["metadata"]["labels"] = labels;
        assert_eq!(jobs(&added::<Pod>(&other)), nobody());
        assert_eq!(jobs(&updated::<Pod>(&other, &free)), the_job(1));
    }
    let change = updated::<Pod>(&managed, &alone);
    assert_eq!((jobs(&change), orphans(&change)), ([the_job(1), the_job(1)].concat(), the_pod.clone()));
    let ready = with(&alone, &json!({"status": {"phase": "Succeeded"}}));
    let change = updated::<Pod>(&alone, &ready);
    assert_eq!((jobs(&change), orphans(&change)), (nobody(), the_pod.clone()));
    let going = with(&alone, &json!({"metadata": {"deletionTimestamp": at(0)}}));
    let change = updated::<Pod>(&alone, &going);
    assert_eq!((jobs(&change), orphans(&change)), (nobody(), the_pod));
    // A selector without a word selects everything that has labels.
    let open = Stage::of(job(&json!({"spec": {"selector": {"matchLabels": null}}})));
    let bare = with(&free, &json!({"metadata": {"labels": null}}));
    assert_eq!(woken::<Pod>(&open, JOBS, &added::<Pod>(&free)), the_job(1));
    assert_eq!(woken::<Pod>(&open, JOBS, &added::<Pod>(&bare)), nobody());
}

/// Proves JOB-8, JOB-165.
#[test]
fn a_job_that_goes_takes_its_back_off_with_it() {
    let wish = json!({"spec": {"completions": 9}});
    let failed = json!({"status": {"containerStatuses": [
        {"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": at(-1)}}}]}});
    let mut stage = Stage::of(job(&wish)).pods([pod("f", "Failed", &failed)]);
    assert_eq!(stage.turn().revisit(), Some("9s"));
    stage.world.take::<Pod>(&stage.controller.loops[JOBS], &Key::namespaced("a", "f"));
    assert_eq!(stage.turn().revisit(), Some("9s"));
    woken::<Job>(&stage, JOBS, &deleted::<Job>(&job(&wish)));
    assert_eq!(stage.turn().created().len(), 1);
}

/// What becomes of one orphan, with this Job beside it.
fn is_let_go(job: Option<Value>, pod: &Value) -> bool {
    let a_loop = controller(&JobOptions::default()).loops.remove(ORPHANS);
    let mut world = RehearsalCluster::of(&a_loop).with::<Pod>(pod.clone());
    if let Some(job) = job {
        world = world.with::<Job>(job);
    }
    let minutes = world.reconcile(&a_loop, Key::namespaced("a", "p"));
    let patch =
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#;
    assert!(minutes.is_empty() || minutes.contains(patch), "{minutes}");
    !minutes.is_empty()
}

/// Proves JOB-120, JOB-121, JOB-165, JOB-174.
#[test]
fn a_pod_that_no_job_will_count_is_let_go() {
    let owned = |field: &str, value: Value| {
        let mut owner = owner();
        owner[field] = value;
        pod("p", "Running", &json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let mine = pod("p", "Running", &json!({}));
    let finished = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    assert!(is_let_go(None, &pod("p", "Running", &json!({"metadata": {"ownerReferences": []}}))));
    assert!(is_let_go(None, &mine));
    assert!(is_let_go(Some(job(&json!({"metadata": {"uid": "j-2"}}))), &mine));
    assert!(is_let_go(Some(job(&finished)), &mine));
    assert!(is_let_go(Some(job(&json!({}))), &owned("controller", json!(false))));
    assert!(!is_let_go(Some(job(&json!({}))), &mine));
    assert!(!is_let_go(Some(job(&with(&finished, &json!({"spec": {"managedBy": "x/y"}})))), &mine));
    assert!(!is_let_go(None, &owned("kind", json!("Other"))));
    assert!(!is_let_go(None, &owned("apiVersion", json!("batch/v2"))));
    assert!(!is_let_go(None, &pod("p", "Running", &json!({"metadata": {"finalizers": []}}))));
}

/// Proves JOB-122, JOB-5, JOB-174.
#[test]
fn a_selector_stands_for_all_pods_that_it_selects() {
    let a_loop = controller(&JobOptions::default()).loops.remove(ORPHANS);
    let other = json!({"metadata": {"labels": {"job": "other"}}});
    let finished = job(&json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}));
    let mut world = RehearsalCluster::of(&a_loop).with::<Job>(finished);
    for pod in [pod("p", "Failed", &json!({})), pod("q", "Failed", &json!({})), pod("r", "Failed", &other)] {
        world = world.with::<Pod>(pod);
    }
    let elsewhere = json!({"metadata": {"namespace": "b"}});
    world = world.with::<Pod>(pod("p", "Failed", &elsewhere));
    let failure = ApiError::transport(ErrorReason::Unavailable, "refused");
    world = world.failing::<Pod>("patch", &Key::namespaced("a", "p"), failure);
    let item =
        Item::from(Key::namespaced("a", "")).with_attribute("selector", r#"{"matchLabels":{"job":"j"}}"#);
    let minutes = world.reconcile(&a_loop, item);
    let patched: Vec<&str> = minutes.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(patched[..2], ["a/p", "a/q"]);
    assert!(minutes.lines().count() == 3 && minutes.contains("retry: "), "{minutes}");
}
