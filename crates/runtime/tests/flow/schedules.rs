//! CronJobs over a month of virtual time, and a thousand of them in one minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_controllers::cronjob::{self, CronJobOptions};
use keleustes_runtime::loops::RunningController;
use serde_json::{Value, json};

use crate::test_cluster::{START_NANOSECONDS, TestCluster, wait};

const HOUR: Duration = Duration::from_secs(3600);
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// A CronJob as the API server would store it: seeded objects are not defaulted, and without limits all Jobs are kept.
#[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
fn cron_job(name: &str, fields: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({"timeZone": "Etc/UTC", "jobTemplate": {"spec": {"template": template}},
        "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// Plays the Job controller: every Job takes this long.
struct Month {
    cluster: TestCluster,
    _running: RunningController,
    takes: Duration,
    /// The scheduled times of all Jobs that were seen, by CronJob.
    seen: BTreeMap<String, BTreeSet<String>>,
    /// By UID of the Job: when it was seen first, and whether it is finished.
    running_since: BTreeMap<String, tokio::time::Instant>,
    /// How many Jobs of a CronJob ran at once, at most.
    at_once: BTreeMap<String, usize>,
    names: BTreeSet<String>,
}

impl Month {
    async fn begin(cron_jobs: &[Value], takes: Duration) -> Self {
        let cluster = TestCluster::new();
        for cron_job in cron_jobs {
            cluster.server.seed(cron_job.clone()).unwrap();
        }
        let running = cluster.start(cronjob::controller(&CronJobOptions::default())).await;
        Self {
            cluster,
            _running: running,
            takes,
            seen: BTreeMap::new(),
            running_since: BTreeMap::new(),
            at_once: BTreeMap::new(),
            names: BTreeSet::new(),
        }
    }

    /// Half an hour passes, so that no look at the Jobs coincides with a scheduled time.
    async fn half_an_hour(&mut self) {
        wait(HOUR / 2).await;
        let mut active: BTreeMap<String, usize> = BTreeMap::new();
        for job in self.cluster.server.objects("jobs.batch") {
            let text =
                |pointer: &str| job.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let owner = text("/metadata/ownerReferences/0/name");
            let time = job["metadata"]["annotations"][SCHEDULED_AT].as_str().unwrap_or_default().to_owned();
            let (uid, name) = (text("/metadata/uid"), text("/metadata/name"));
            if !self.running_since.contains_key(&uid) {
                assert!(self.names.insert(name.clone()), "{name} was created twice");
                self.running_since.insert(uid.clone(), tokio::time::Instant::now());
            }
            self.seen.entry(owner.clone()).or_default().insert(time);
            if job["status"]["conditions"].is_array() {
                continue;
            }
            *active.entry(owner).or_default() += 1;
            if self.running_since[&uid].elapsed() >= self.takes {
                self.finish((*job).clone());
            }
        }
        for (owner, count) in active {
            let most = self.at_once.entry(owner).or_default();
            *most = count.max(*most);
        }
    }

    fn finish(&self, mut job: Value) {
        let now = jiff::Timestamp::from_nanosecond(i128::from(START_NANOSECONDS)).unwrap().to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        job["status"] = json!({"startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        self.cluster.server.seed(job).unwrap();
    }
}

/// The times at which a CronJob runs every six hours, of which every `step`-th runs, through January.
fn every_six_hours(step: usize) -> BTreeSet<String> {
    let start = jiff::Timestamp::from_nanosecond(i128::from(START_NANOSECONDS)).unwrap();
    let times = (1..=124).map(|n| (start + jiff::SignedDuration::from_hours(6 * n)).to_string());
    times.step_by(step).collect()
}

#[tokio::test(start_paused = true)]
async fn cron_jobs_run_through_a_month_as_their_concurrency_policy_allows() {
    let six_hours = |policy: &str, deadline: Option<u32>| json!({"schedule": "0 */6 * * *", "concurrencyPolicy": policy, "startingDeadlineSeconds": deadline});
    let cron_jobs = [
        cron_job("allow", six_hours("Allow", None)),
        cron_job("forbid", six_hours("Forbid", Some(600))),
        cron_job("replace", six_hours("Replace", None)),
    ];
    // Longer than the interval, so that runs meet.
    let mut month = Month::begin(&cron_jobs, HOUR * 7).await;
    wait(HOUR / 4).await;
    for _ in 0..31 * 24 * 2 {
        month.half_an_hour().await;
    }
    assert_eq!(month.seen["allow"], every_six_hours(1), "every time runs once");
    assert_eq!(month.seen["replace"], every_six_hours(1), "every time runs once");
    // The time at which another Job runs is beyond its deadline when that one has finished.
    assert_eq!(month.seen["forbid"], every_six_hours(2), "every other time runs once");
    assert_eq!((month.at_once["allow"], month.at_once["forbid"], month.at_once["replace"]), (2, 1, 1));
    let finished = |owner: &str| {
        let jobs = month.cluster.server.objects("jobs.batch");
        let its = jobs.iter().filter(|job| job["metadata"]["ownerReferences"][0]["name"] == owner);
        its.filter(|job| job["status"]["conditions"].is_array()).count()
    };
    assert_eq!(
        (finished("allow"), finished("forbid"), finished("replace")),
        (3, 3, 0),
        "the history is limited"
    );
}

#[tokio::test(start_paused = true)]
async fn thousand_cron_jobs_of_one_minute_run_once_each() {
    let fields = json!({"schedule": "5 * * * *"});
    let cron_jobs: Vec<Value> = (0..1000).map(|n| cron_job(&format!("c-{n:03}"), fields.clone())).collect();
    let mut month = Month::begin(&cron_jobs, HOUR * 9).await;
    wait(Duration::from_secs(5 * 60 - 1)).await;
    assert_eq!(month.cluster.server.objects("jobs.batch").len(), 0, "not before their time");
    wait(Duration::from_secs(3)).await;
    let jobs = month.cluster.server.objects("jobs.batch");
    assert_eq!(jobs.len(), 1000, "all within two seconds");
    month.half_an_hour().await;
    assert_eq!(month.seen.len(), 1000);
    assert!(month.seen.values().all(|times| times.len() == 1), "once each");
}
