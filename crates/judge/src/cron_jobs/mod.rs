//! Lets CronJobs run through a month here, and asks the original about every reconcile on the way.
//!
//! There is one world, with a clock that is set: Jobs run for a while and succeed or fail, users edit, suspend and
//! delete, and the manager is absent for hours. Whenever the CronJob would be reconciled, both managers get the same
//! CronJob, Jobs and time; what they create, delete, write and record, and when they look again, must be equal. Then it
//! happens, and the clock moves on to what comes next.

pub mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use keleustes_controllers::cronjob::{CronJobOptions, controller};
use keleustes_objects::{CronJob, Job, Key, Time};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Loop, Requeue};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::original::Original;

use self::generate::{Edit, Life};

const NANOSECONDS: i64 = 1_000_000_000;
/// A write makes a manager look again. It must come to rest.
const RECONCILES_MAX: usize = 12;
const NAMESPACE: &str = "shop";
const NAME: &str = "sum";

/// What a manager does in one reconcile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Outcome {
    created: Vec<Value>,
    deleted: Vec<String>,
    events: Vec<String>,
    status: Option<Value>,
    /// In nanoseconds.
    requeue_after: Option<i64>,
    failed: bool,
}

impl Outcome {
    fn is_quiet(&self) -> bool {
        self.created.is_empty() && self.deleted.is_empty() && self.status.is_none()
    }
}

/// What a run compared.
#[derive(Debug, Default)]
pub struct Report {
    /// How many CronJobs ran through a month.
    pub cron_jobs: usize,
    /// How many reconciles were compared.
    pub reconciles: usize,
    /// How many Jobs were created.
    pub created: usize,
    /// How many Jobs were deleted, because they were replaced or old.
    pub deleted: usize,
    /// How many runs were missed or forbidden, or had another event.
    pub events: BTreeMap<String, usize>,
    /// One text per difference.
    pub differences: Vec<String>,
}

/// What the original does.
fn reconcile_there(original: &mut Original, world: &World) -> Result<Outcome> {
    let jobs: Vec<&Value> = world.jobs.values().map(|job| &job.object).collect();
    original.ask(&json!({"now": world.now, "cronJob": world.cron_job, "jobs": jobs}))
}

/// The CronJob, its Jobs and the time.
struct World {
    /// Nanoseconds since 1970.
    now: i64,
    cron_job: Value,
    jobs: BTreeMap<String, RunningJob>,
    version: u64,
}

struct RunningJob {
    object: Value,
    /// When it finishes, and how.
    finishes: Option<(i64, &'static str)>,
}

/// Lets CronJobs run through their lives and compares every reconcile.
///
/// # Errors
/// If the Go program fails.
pub fn compare(program: &Path, lives: Vec<Life>) -> Result<Report> {
    let zones = tempfile::tempdir()?;
    crate::cron::write_zones(zones.path())?;
    let mut command = Command::new(program);
    command.env("ZONEINFO", zones.path()).env("TZ", "UTC").stderr(Stdio::null());
    let mut original = Original::start(&mut command)?;
    let a_loop = controller(&CronJobOptions::default()).loops.remove(0);
    let mut report = Report { cron_jobs: lives.len(), ..Report::default() };
    for (number, life) in lives.into_iter().enumerate() {
        if let Some(difference) = live(&a_loop, &mut original, life, &mut report)? {
            report.differences.push(format!("CronJob {number}: {difference}"));
        }
    }
    original.end()?;
    Ok(report)
}

/// One life, until its end or the first difference.
fn live(
    a_loop: &Loop,
    original: &mut Original,
    mut life: Life,
    report: &mut Report,
) -> Result<Option<String>> {
    let (version, jobs) = (1, BTreeMap::new());
    let mut world = World { now: life.start, cron_job: life.cron_job.clone(), jobs, version };
    let mut look_again = Some(world.now);
    let mut edits: BTreeMap<i64, Edit> = std::mem::take(&mut life.edits).into_iter().collect();
    loop {
        let finishes = world.jobs.values().filter_map(|job| job.finishes).map(|(at, _)| at).min();
        let edit = edits.first_key_value().map(|(at, _)| *at);
        let Some(next) = [look_again, finishes, edit].into_iter().flatten().min() else { return Ok(None) };
        if next >= life.end {
            return Ok(None);
        }
        // While the manager is absent, the world goes on; it looks at all CronJobs when it returns.
        let absence = life.absences.iter().find(|(from, to)| (*from..*to).contains(&next));
        let is_only_look = Some(next) == look_again && finishes != Some(next) && edit != Some(next);
        world.now = next.max(world.now);
        if let Some((_, returns)) = absence {
            look_again = Some(*returns);
            if is_only_look {
                continue;
            }
        }
        world.finish_jobs();
        if let Some(edit) = edits.remove(&next) {
            world.apply_edit(edit);
        }
        if absence.is_some() {
            continue;
        }
        look_again = match reconcile_until_quiet(a_loop, original, &mut world, &mut life, report)? {
            Ok(at) => at,
            Err(difference) => return Ok(Some(difference)),
        };
    }
}

/// Reconciles until nothing is written any more; when to look again, or a difference.
fn reconcile_until_quiet(
    a_loop: &Loop,
    original: &mut Original,
    world: &mut World,
    life: &mut Life,
    report: &mut Report,
) -> Result<Result<Option<i64>, String>> {
    for _ in 0..RECONCILES_MAX {
        let (ours, theirs) = (reconcile(a_loop, world), reconcile_there(original, world)?);
        report.reconciles += 1;
        let wanted = normalized(theirs);
        if ours != wanted {
            let jobs: Vec<_> = world.jobs.values().map(|job| &job.object).collect();
            return Ok(Err(format!(
                "at {} it does\n{ours:?}\nand must do\n{wanted:?}\n{}\n{}",
                Time::from_unix_seconds(world.now / NANOSECONDS),
                world.cron_job,
                json!(jobs)
            )));
        }
        report.created += ours.created.len();
        report.deleted += ours.deleted.len();
        for event in &ours.events {
            let reason = event.split(':').next().unwrap_or_default();
            *report.events.entry(reason.to_owned()).or_default() += 1;
        }
        world.apply(&ours, life);
        if ours.is_quiet() {
            return Ok(Ok(ours.requeue_after.map(|delay| world.now.saturating_add(delay.max(1)))));
        }
        // The writes arrive a moment later.
        world.now += NANOSECONDS / 500;
    }
    Ok(Err(format!("it writes for ever: {}", world.cron_job)))
}

fn normalized(mut outcome: Outcome) -> Outcome {
    outcome.created.iter_mut().for_each(strip_empty);
    outcome.status.iter_mut().for_each(strip_empty);
    outcome.events.sort();
    outcome.deleted.sort();
    outcome
}

/// Without what is unset: Go writes some empty values.
fn strip_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(strip_empty);
            map.retain(|_, value| {
                !matches!(value, Value::Null) && *value != json!({}) && *value != json!([])
            });
        }
        Value::Array(list) => list.iter_mut().for_each(strip_empty),
        _ => {}
    }
}

/// What this program does.
fn reconcile(a_loop: &Loop, world: &World) -> Outcome {
    let key = Key::namespaced(NAMESPACE, NAME);
    // A reconcile changes the cluster, so that each of the two has its own.
    let requeue = rehearsal(a_loop, world).requeue(a_loop, key.clone());
    let delay = match &requeue {
        Ok(Requeue::After(delay) | Requeue::KeepBackoff(delay)) => Some(delay.duration),
        _ => None,
    };
    normalized(Outcome {
        requeue_after: delay.map(nanoseconds),
        failed: requeue.is_err(),
        ..outcome_of(&rehearsal(a_loop, world).reconcile(a_loop, key))
    })
}

fn rehearsal(a_loop: &Loop, world: &World) -> RehearsalCluster {
    let mut cluster = RehearsalCluster::of(a_loop).with::<CronJob>(world.cron_job.clone());
    for job in world.jobs.values() {
        cluster = cluster.with::<Job>(job.object.clone());
    }
    let wall = Time::from_unix_seconds(world.now / NANOSECONDS);
    cluster.set_wall_clock(wall, u32::try_from(world.now % NANOSECONDS).unwrap_or_default());
    cluster
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Reads a transcript.
fn outcome_of(transcript: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let body = |line: &str| -> Value {
        let body = line.split_once(": {").map(|(_, body)| format!("{{{body}"));
        body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
    };
    let on = format!(" on CronJob {NAMESPACE}/{NAME} uid=c1");
    for line in transcript.lines() {
        if line.starts_with("create jobs.batch ") {
            outcome.created.push(body(line));
        } else if let Some(deleted) = line.strip_prefix("delete jobs.batch ") {
            let name = deleted.split([' ', '/']).nth(1).unwrap_or_default();
            outcome.deleted.push(name.to_owned());
        } else if line.starts_with("put cronjobs.batch/status ") {
            outcome.status = Some(body(line)["status"].take());
        } else if let Some(event) = line.strip_prefix("event ") {
            outcome.events.push(event.replacen(&on, "", 1));
        }
    }
    outcome
}

impl World {
    fn time(&self) -> Value {
        json!(Time::from_unix_seconds(self.now / NANOSECONDS))
    }

    fn next_version(&mut self) -> Value {
        self.version += 1;
        json!(self.version.to_string())
    }

    /// Jobs whose time has come get their condition.
    fn finish_jobs(&mut self) {
        let (now, time) = (self.now, self.time());
        let mut finished = BTreeSet::new();
        for (name, job) in &mut self.jobs {
            if let Some((_, how)) = job.finishes.take_if(|(at, _)| *at <= now) {
                job.object["status"]["conditions"] = json!([{"type": how, "status": "True"}]);
                if how == "Complete" {
                    job.object["status"]["completionTime"] = time.clone();
                }
                finished.insert(name.clone());
            }
        }
        for name in finished {
            let version = self.next_version();
            if let Some(job) = self.jobs.get_mut(&name) {
                job.object["metadata"]["resourceVersion"] = version;
            }
        }
    }

    fn apply_edit(&mut self, edit: Edit) {
        match edit {
            Edit::Spec(field, value) => self.cron_job["spec"][field] = value,
            Edit::DeleteJob => {
                let _ = self.jobs.pop_last();
            }
            Edit::ForeignJob => {
                let name = format!("foreign-{}", self.version);
                let object = json!({"metadata": {"name": name}, "spec": {"template": {}}});
                self.add_job(object, None, true);
            }
        }
        self.cron_job["metadata"]["resourceVersion"] = self.next_version();
    }

    /// What was written happens.
    fn apply(&mut self, outcome: &Outcome, life: &mut Life) {
        for name in &outcome.deleted {
            self.jobs.remove(name);
        }
        for object in &outcome.created {
            let (seconds, how) = life.next_job();
            let at = self.now + i64::from(seconds) * NANOSECONDS;
            self.add_job(object.clone(), Some((at, how)), false);
        }
        if let Some(status) = &outcome.status {
            self.cron_job["status"] = status.clone();
            let listed = self.cron_job["status"]["active"].as_array_mut().into_iter().flatten();
            for entry in listed.filter(|entry| entry["uid"].is_null()) {
                // The response of a rehearsed creation has no uid.
                entry["uid"] = entry["name"].clone();
            }
            self.cron_job["metadata"]["resourceVersion"] = self.next_version();
        }
    }

    fn add_job(&mut self, mut object: Value, finishes: Option<(i64, &'static str)>, is_foreign: bool) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (version, time) = (self.next_version(), self.time());
        let metadata = &mut object["metadata"];
        metadata["namespace"] = json!(NAMESPACE);
        metadata["uid"] = json!(name);
        metadata["resourceVersion"] = version;
        metadata["creationTimestamp"] = time.clone();
        if is_foreign {
            metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": NAME,
                "uid": "c1", "controller": true}]);
        }
        object["status"] = json!({"startTime": time});
        self.jobs.insert(name, RunningJob { object, finishes });
    }
}
