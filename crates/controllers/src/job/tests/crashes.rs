//! Whatever fails, gets lost or crashes, at whatever request: no pod is lost and none counts twice.

use serde_json::{Value, json};

use super::cluster::{Cluster, Faults};

/// A Job as the server has it, with these wishes beside the usual ones.
fn job(wishes: &[(&str, Value)]) -> Value {
    let mut spec = json!({
        "parallelism": 3, "completions": 4, "backoffLimit": 3, "completionMode": "NonIndexed",
        "selector": {"matchLabels": {"job": "j"}},
        "template": {"metadata": {"labels": {"job": "j"}},
                     "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
    });
    for (field, value) in wishes {
        spec[*field] = value.clone();
    }
    json!({"metadata": {"name": "j", "namespace": "a", "uid": "j-1", "generation": 1}, "spec": spec})
}

/// The kinds of Jobs that the stories are about.
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

/// Works until the Job has ended.
fn finish(cluster: &mut Cluster, failing: u8) {
    for _ in 0..400 {
        cluster.turn();
        if cluster.job().is_finished() {
            return;
        }
        let steps = cluster.chance.u8(0..6);
        (0..steps).for_each(|_| cluster.kubelet(failing));
        cluster.pass(cluster.chance.clone().u64(1..40));
    }
    panic!("the Job does not come to its end: {:?}", cluster.job().status);
}

/// The final numbers against the books.
fn check_end(cluster: &Cluster, story: &str) {
    let (job, books) = (cluster.job(), &cluster.books);
    let (succeeded, failed) = (job.status.succeeded, job.status.failed);
    assert_eq!(failed, books.counted_failed, "{story}: failed");
    let settled = books.created - cluster.holding() - books.removed;
    if job.is_indexed() {
        assert_eq!(succeeded, i32::try_from(books.indexes.len()).unwrap(), "{story}: indexes");
        assert_eq!(succeeded + books.spare + failed, settled, "{story}: pods");
    } else {
        assert_eq!(succeeded, books.counted_succeeded, "{story}: succeeded");
        assert_eq!(succeeded + failed, settled, "{story}: pods");
    }
}

/// A run of one seed: a kind of Job, failures, staleness, evictions, suspensions and crashes by chance.
fn run(seed: u64) {
    let kinds = kinds();
    let kind = kinds[usize::try_from(seed).unwrap() % kinds.len()].clone();
    let mut cluster = Cluster::new(seed, kind);
    let failing = cluster.chance.u8(0..60);
    let suspends = cluster.chance.u8(0..4) == 0;
    for _ in 0..12 {
        let dies =
            cluster.chance.bool().then(|| (cluster.sent + cluster.chance.u32(1..9), cluster.chance.bool()));
        let (failing_writes, unseen) = (cluster.chance.u8(0..25), cluster.chance.u8(0..50));
        cluster.faults = Faults { failing: failing_writes, unseen, dies_at: dies, restless: true };
        cluster.turn();
        if cluster.job().is_finished() {
            break;
        }
        (0..cluster.chance.u8(0..4)).for_each(|_| cluster.kubelet(failing));
        if cluster.chance.u8(0..8) == 0 {
            cluster.evict();
        }
        if suspends && cluster.chance.u8(0..3) == 0 {
            let suspend = cluster.chance.bool();
            cluster.edit_spec("suspend", json!(suspend));
        }
        cluster.pass(cluster.chance.clone().u64(1..20));
    }
    cluster.faults = Faults::default();
    cluster.edit_spec("suspend", json!(false));
    finish(&mut cluster, failing);
    check_end(&cluster, &format!("seed {seed}"));
}

/// Proves JOB-107, JOB-113, JOB-114, JOB-156, JOB-164.
#[test]
fn every_pod_counts_once_whatever_happens() {
    (0..500).for_each(run);
}

#[test]
#[ignore = "takes minutes: the same as above with twenty times the seeds"]
fn every_pod_counts_once_in_ten_thousand_runs() {
    (0..10_000).for_each(run);
}

/// Proves JOB-163, JOB-164.
#[test]
fn a_crash_at_any_write_loses_no_pod_and_counts_none_twice() {
    for (number, kind) in kinds().into_iter().enumerate() {
        for takes_effect in [false, true] {
            for at in 1.. {
                let mut cluster = Cluster::new(7, kind.clone());
                cluster.faults.dies_at = Some((at, takes_effect));
                finish(&mut cluster, 30);
                check_end(&cluster, &format!("kind {number}, write {at}"));
                if cluster.faults.dies_at.is_some() {
                    break; // It came to its end with fewer writes.
                }
            }
        }
    }
}
