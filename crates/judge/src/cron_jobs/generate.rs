//! Generates lives of CronJobs from a seed.

use fastrand::Rng;
use keleustes_objects::Time;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, NANOSECONDS};

/// The days of a life.
const DAYS: i64 = 31;
const DAY: i64 = 86_400;

/// The first days of the lives, in seconds since 1970: March 1, October 15, January 31 and June 20, 2027, and February
/// 10, 2028.
const MIDNIGHTS: [i64; 5] = [1_803_859_200, 1_823_558_400, 1_801_353_600, 1_833_753_600, 1_813_449_600];

/// A CronJob, and what happens to it.
pub struct Life {
    /// Nanoseconds since 1970.
    pub start: i64,
    /// Nanoseconds since 1970.
    pub end: i64,
    /// The CronJob at its creation.
    pub cron_job: Value,
    /// What users do, and when.
    pub edits: Vec<(i64, Edit)>,
    /// When no manager runs.
    pub absences: Vec<(i64, i64)>,
    rng: Rng,
    /// The longest time that its Jobs take, in seconds.
    job_seconds: u32,
    failing_in: u32,
}

/// What a user does.
pub enum Edit {
    /// Sets a field of the spec.
    Spec(&'static str, Value),
    /// Deletes the newest Job.
    DeleteJob,
    /// Creates a Job that names the CronJob as its controller.
    ForeignJob,
}

impl Life {
    /// How many seconds the next Job takes, and how it ends.
    pub(super) fn next_job(&mut self) -> (u32, &'static str) {
        let how = if one_in(&mut self.rng, self.failing_in) { "Failed" } else { "Complete" };
        (self.rng.u32(1..=self.job_seconds), how)
    }
}

/// Generates this many lives.
#[must_use]
pub fn lives(seed: u64, number: usize) -> Vec<Life> {
    let mut rng = Rng::with_seed(seed);
    (0..number).map(|at| life(&mut rng, at)).collect()
}

fn pick<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())].clone()
}

/// Whether one in `n` is chosen.
fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(..n) == 0
}

const SCHEDULES: &[&str] = &[
    "*/30 * * * *",
    "17 * * * *",
    "*/20 8-18 * * 1-5",
    "0 */3 * * *",
    "30 2 * * *",
    "30 1,2,3 * * *",
    "0 0 * * *",
    "59 23 31 * *",
    "0 12 * * 0",
    "5 4 1,15 * 3",
    "@hourly",
    "@daily",
    "@weekly",
    "@monthly",
    "@every 47m",
    "@every 1h30m10s",
    "0 0 30 2 *",
];

/// Schedules with a few runs in a month.
const RARE: &[&str] = &[
    "30 2 * * *",
    "0 0 * * *",
    "59 23 31 * *",
    "0 12 * * 0",
    "5 4 1,15 * 3",
    "@daily",
    "@weekly",
    "@monthly",
    "0 0 30 2 *",
];

/// Zones with and without daylight saving time, and with changes at odd times.
const ZONES: &[&str] =
    &["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "UTC"];

fn schedule(rng: &mut Rng) -> Value {
    let schedule = pick(rng, SCHEDULES);
    match rng.u32(..30) {
        0 => json!("every now and then"),
        1 => json!(format!("TZ=Asia/Tokyo {schedule}")),
        _ => json!(schedule),
    }
}

fn zone(rng: &mut Rng) -> Value {
    match rng.u32(..12) {
        0 => json!("Mars/Olympus"),
        1..=5 => Value::Null,
        _ => json!(pick(rng, ZONES)),
    }
}

/// Nanoseconds of a random moment in a span of seconds.
fn moment(rng: &mut Rng, from: i64, to: i64) -> i64 {
    rng.i64(from..to) * NANOSECONDS + i64::from(rng.u32(..1000)) * 1_000_000
}

fn life(rng: &mut Rng, number: usize) -> Life {
    // Months in which clocks change are as frequent as others.
    let from = pick(rng, &MIDNIGHTS) + rng.i64(0..DAY);
    let to = from + DAYS * DAY;
    let policy = ["Allow", "Forbid", "Replace"][number % 3];
    let mut spec = json!({"schedule": schedule(rng), "concurrencyPolicy": policy,
        "jobTemplate": {"metadata": {"labels": {"app": "sum"}, "annotations": {"note": "kept"}},
            "spec": {"template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "main", "image": "example.org/sum:1"}]}}}}});
    // Without a limit, Jobs of a frequent schedule would become thousands.
    let is_rare = spec["schedule"].as_str().is_some_and(|schedule| RARE.contains(&schedule));
    let unlimited = if is_rare { Value::Null } else { json!(2) };
    for (field, choices) in [
        (
            "startingDeadlineSeconds",
            &[Value::Null, Value::Null, json!(0), json!(5), json!(200), json!(7200)][..],
        ),
        ("successfulJobsHistoryLimit", &[json!(3), json!(3), unlimited.clone(), json!(0), json!(1)]),
        ("failedJobsHistoryLimit", &[json!(1), json!(1), unlimited, json!(0), json!(4)]),
        ("suspend", &[Value::Null, json!(false)]),
    ] {
        spec[field] = pick(rng, choices);
    }
    spec["timeZone"] = zone(rng);
    let edits = (0..rng.u32(..8)).map(|_| (moment(rng, from, to), edit(rng))).collect();
    let absences = (0..rng.u32(..4)).map(|_| {
        let begin = moment(rng, from, to);
        let seconds = pick(rng, &[30, 600, 7_200, 200_000]);
        (begin, begin + rng.i64(1..seconds) * NANOSECONDS)
    });
    let absences = absences.collect();
    Life {
        start: from * NANOSECONDS,
        end: to * NANOSECONDS,
        cron_job: json!({
            "metadata": {"namespace": NAMESPACE, "name": NAME, "uid": "c1", "resourceVersion": "1",
                         "creationTimestamp": Time::from_unix_seconds(from)},
            "spec": spec,
            "status": {},
        }),
        edits,
        absences,
        rng: rng.fork(),
        job_seconds: pick(rng, &[10, 300, 3_600, 20_000, 200_000]),
        failing_in: pick(rng, &[2, 10, 1_000]),
    }
}

fn edit(rng: &mut Rng) -> Edit {
    match rng.u32(..9) {
        0 | 1 => Edit::Spec("suspend", json!(true)),
        2 | 3 => Edit::Spec("suspend", json!(false)),
        4 => Edit::Spec("schedule", schedule(rng)),
        5 => Edit::Spec("timeZone", zone(rng)),
        6 => Edit::Spec("concurrencyPolicy", json!(pick(rng, &["Allow", "Forbid", "Replace"]))),
        7 => Edit::DeleteJob,
        _ => Edit::ForeignJob,
    }
}
