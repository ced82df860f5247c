//! Faults and crashes at any request: no pod is lost and no pod counts twice.

use serde_json::{Value, json};

use super::cluster::{Cluster, Faults};

/// A Job with these overrides of the default spec.
fn job(overrides: &[(&str, Value)]) -> Value {
    let mut spec = json!({
        "parallelism": 3, "completions": 4, "backoffLimit": 3, "completionMode": "NonIndexed",
        "selector": {"matchLabels": {"job": "j"}},
        "template": {"metadata": {"labels": {"job": "j"}},
                     "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
    });
    for (field, value) in overrides {
        spec[*field] = value.clone();
    }
    json!({"metadata": {"name": "j", "namespace": "a", "uid": "j-1", "generation": 1}, "spec": spec})
}

/// The kinds of Jobs that the tests run.
fn kinds() -> Vec<Value> {
    let indexed = ("completionMode", json!("Indexed"));
    let huge = ("backoffLimit", json!(i32::MAX));
    vec![
        job(&[]),
        job(&[("completions", Value::Null)]),
        job(std::slice::from_ref(&indexed)),
        job(&[indexed.clone(), huge, ("backoffLimitPerIndex", json!(1))]),
        job(&[("podReplacementPolicy", json!("Failed"))]),
        job(&[("activeDeadlineSeconds", json!(60))]),
        job(&[indexed, ("successPolicy", json!({"rules": [{"succeededCount": 2}]}))]),
    ]
}

/// Reconciles until the Job has finished.
fn finish(cluster: &mut Cluster, failing: u8) {
    for _ in 0..400 {
        cluster.reconcile();
        if cluster.job().is_finished() {
            return;
        }
        let steps = cluster.rng.u8(0..6);
        (0..steps).for_each(|_| cluster.kubelet(failing));
        cluster.advance_clock(cluster.rng.clone().u64(1..40));
    }
    panic!("the Job does not finish: {:?}", cluster.job().status);
}

/// Compares the final status with the accounts.
fn check_final_status(cluster: &Cluster, run_name: &str) {
    let (job, accounts) = (cluster.job(), &cluster.accounts);
    let (succeeded, failed) = (job.status.succeeded, job.status.failed);
    assert_eq!(failed, accounts.counted_failed, "{run_name}: failed");
    let settled = accounts.created - cluster.pods_with_finalizer() - accounts.removed;
    if job.is_indexed() {
        assert_eq!(succeeded, i32::try_from(accounts.indexes.len()).unwrap(), "{run_name}: indexes");
        assert_eq!(succeeded + accounts.duplicates + failed, settled, "{run_name}: pods");
    } else {
        assert_eq!(succeeded, accounts.counted_succeeded, "{run_name}: succeeded");
        assert_eq!(succeeded + failed, settled, "{run_name}: pods");
    }
}

/// One run: a kind of Job with random failures, stale caches, evictions, suspensions and crashes.
fn run(seed: u64) {
    let kinds = kinds();
    let kind = kinds[usize::try_from(seed).unwrap() % kinds.len()].clone();
    let mut cluster = Cluster::new(seed, kind);
    let failing = cluster.rng.u8(0..60);
    let suspends = cluster.rng.u8(0..4) == 0;
    for _ in 0..12 {
        let crashes_at =
            cluster.rng.bool().then(|| (cluster.sent + cluster.rng.u32(1..9), cluster.rng.bool()));
        let (failing_writes, unobserved) = (cluster.rng.u8(0..25), cluster.rng.u8(0..50));
        cluster.faults = Faults { failing: failing_writes, unobserved, crashes_at, kubelets_run: true };
        cluster.reconcile();
        if cluster.job().is_finished() {
            break;
        }
        (0..cluster.rng.u8(0..4)).for_each(|_| cluster.kubelet(failing));
        if cluster.rng.u8(0..8) == 0 {
            cluster.evict();
        }
        if suspends && cluster.rng.u8(0..3) == 0 {
            let suspend = cluster.rng.bool();
            cluster.edit_spec("suspend", json!(suspend));
        }
        cluster.advance_clock(cluster.rng.clone().u64(1..20));
    }
    cluster.faults = Faults::default();
    cluster.edit_spec("suspend", json!(false));
    finish(&mut cluster, failing);
    check_final_status(&cluster, &format!("seed {seed}"));
}

/// Proves JOB-107, JOB-113, JOB-114, JOB-156, JOB-164.
#[test]
fn every_pod_counts_once_under_random_faults() {
    (0..500).for_each(run);
}

#[test]
#[ignore = "takes minutes: the test above with twenty times the seeds"]
fn every_pod_counts_once_in_ten_thousand_runs() {
    (0..10_000).for_each(run);
}

/// Proves JOB-163, JOB-164.
#[test]
fn a_crash_at_any_write_loses_no_pod_and_counts_no_pod_twice() {
    for (number, kind) in kinds().into_iter().enumerate() {
        for takes_effect in [false, true] {
            for at in 1.. {
                let mut cluster = Cluster::new(7, kind.clone());
                cluster.faults.crashes_at = Some((at, takes_effect));
                finish(&mut cluster, 30);
                check_final_status(&cluster, &format!("kind {number}, write {at}"));
                if cluster.faults.crashes_at.is_some() {
                    break; // The Job finished with fewer writes.
                }
            }
        }
    }
}
