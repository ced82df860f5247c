//! What a soak has measured and found: a table, a picture, and the data that both are made of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::convergence::Outcome;
use crate::side_by_side::plot::{Line, lines};

/// The name of the data in the output folder and in docs/data.
pub(crate) const DATA: &str = "soak.json";
/// The name of the picture in the output folder and in docs/pictures.
pub(crate) const PICTURE: &str = "soak-memory.svg";

/// Memory is judged from this many minutes after the start of a process.
const WARM_UP_MINUTES: f64 = 10.0;
/// It is flat if the line through all samples rises by no more than this share of its mean.
const RISE_MAX: f64 = 0.1;
const MEGABYTE: f64 = 1024.0 * 1024.0;

/// The memory of one process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Which of the two managers: 0 or 1.
    pub(super) manager: usize,
    /// The process: it changes with every restart.
    pub(super) pid: u32,
    /// Minutes since the start of the soak.
    pub(super) minutes: f64,
    /// Resident memory in MiB.
    pub(super) resident: f64,
    /// Its peak since the start of the process, in MiB.
    pub(super) peak: f64,
}

impl Sample {
    /// A sample from numbers of bytes.
    pub(super) fn of_bytes(manager: usize, pid: u32, minutes: f64, resident: f64, peak: f64) -> Self {
        // An hour has many samples.
        let round = |value: f64| (value * 100.0).round() / 100.0;
        let [minutes, resident, peak] = [minutes, resident / MEGABYTE, peak / MEGABYTE].map(round);
        Self { manager, pid, minutes, resident, peak }
    }
}

/// All data of a soak.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(super) minutes: f64,
    /// In MiB.
    pub(super) memory_limit: f64,
    /// Whether the kernel enforced it.
    pub(super) limit_enforced: bool,
    pub(super) samples: Vec<Sample>,
    /// What happened how often.
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) outcomes: Vec<Outcome>,
    /// Unexpected exits, and what else must not happen.
    pub(super) violations: Vec<String>,
}

/// The memory of a process after its warm-up.
struct Flatness {
    name: String,
    mean: f64,
    peak: f64,
    /// By how much the line through the samples rises from its first to its last; none if they are too few.
    rise: Option<f64>,
}

impl Report {
    /// Counts something.
    pub(super) fn count(&mut self, what: impl Into<String>, times: u64) {
        *self.counts.entry(what.into()).or_default() += times;
    }

    /// Everything that is wrong.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = self.violations.clone();
        for process in self.processes() {
            if process.peak > self.memory_limit {
                problems.push(format!("{}: its memory reached {:.1} MiB", process.name, process.peak));
            }
            if let Some(rise) = process.rise.filter(|rise| *rise > process.mean * RISE_MAX) {
                problems.push(format!(
                    "{}: its memory is not flat: {rise:.1} MiB more at the end, of {:.1} MiB",
                    process.name, process.mean
                ));
            }
        }
        let late = self.outcomes.iter().filter(|outcome| outcome.seconds.is_none());
        problems.extend(late.map(|outcome| format!("{}: {}", outcome.checker, outcome.violation)));
        problems
    }

    /// Each process, in the order of their starts.
    fn processes(&self) -> Vec<Flatness> {
        let mut by_process: BTreeMap<(usize, u32), Vec<Sample>> = BTreeMap::new();
        for sample in &self.samples {
            by_process.entry((sample.manager, sample.pid)).or_default().push(*sample);
        }
        let mut processes: Vec<_> = by_process.into_values().collect();
        processes.sort_by(|one, other| one[0].minutes.total_cmp(&other[0].minutes));
        processes.iter().map(|samples| flatness(samples)).collect()
    }

    /// The table.
    pub(super) fn table(&self) -> String {
        let enforced = if self.limit_enforced { "enforced by a control group" } else { "measured" };
        let mut text = format!(
            "{} minutes, memory limit {} MiB ({enforced})\n\n| what | value |\n| --- | ---: |\n",
            self.minutes, self.memory_limit
        );
        for (what, times) in &self.counts {
            let _ = writeln!(text, "| {what} | {times} |");
        }
        text += "\n| process | mean memory, MiB | peak, MiB | rise after ten minutes, MiB |\n| --- | ---: | ---: | ---: |\n";
        for process in self.processes() {
            let rise = process.rise.map_or("too short".to_owned(), |rise| format!("{rise:+.1}"));
            let _ =
                writeln!(text, "| {} | {:.1} | {:.1} | {rise} |", process.name, process.mean, process.peak);
        }
        text += "\n| checker | satisfied after the faults, s |\n| --- | ---: |\n";
        for outcome in &self.outcomes {
            let seconds = outcome.seconds.map_or("never".to_owned(), |seconds| format!("{seconds:.0}"));
            let _ = writeln!(text, "| {} | {seconds} |", outcome.checker);
        }
        text
    }

    /// The memory of both managers over time, and the limit.
    pub(crate) fn picture(&self) -> String {
        let points = |manager: usize| {
            let samples = self.samples.iter().filter(move |sample| sample.manager == manager);
            samples.map(|sample| (sample.minutes, sample.resident)).collect()
        };
        let end = self.samples.last().map_or(self.minutes, |sample| sample.minutes);
        lines(
            "Resident memory of two managers under faults, MiB",
            "minutes",
            &[
                Line { name: "manager a".to_owned(), points: points(0) },
                Line { name: "manager b".to_owned(), points: points(1) },
                Line {
                    name: "limit".to_owned(),
                    points: vec![(0.0, self.memory_limit), (end, self.memory_limit)],
                },
            ],
        )
    }

    /// Writes data, table and picture to a folder.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(DATA), serde_json::to_string(self)? + "\n")?;
        fs::write(folder.join("soak.md"), self.table())?;
        fs::write(folder.join(PICTURE), self.picture())?;
        Ok(())
    }
}

/// The samples are of one process, in order.
fn flatness(samples: &[Sample]) -> Flatness {
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    let warm: Vec<_> =
        samples.iter().filter(|sample| sample.minutes >= first.minutes + WARM_UP_MINUTES).collect();
    let mean_of = |samples: &[&Sample], of: fn(&Sample) -> f64| {
        samples.iter().map(|sample| of(sample)).sum::<f64>() / samples.len() as f64
    };
    let all: Vec<_> = samples.iter().collect();
    let mean = mean_of(if warm.is_empty() { &all } else { &warm }, |sample| sample.resident);
    // Least squares; fewer minutes say nothing about an hour.
    let rise = (warm.len() > 2 && last.minutes - warm[0].minutes >= WARM_UP_MINUTES).then(|| {
        let middle = mean_of(&warm, |sample| sample.minutes);
        let [mut together, mut spread] = [0.0, 0.0];
        for sample in &warm {
            together += (sample.minutes - middle) * (sample.resident - mean);
            spread += (sample.minutes - middle).powi(2);
        }
        together / spread * (last.minutes - warm[0].minutes)
    });
    let name = format!(
        "manager {}, minutes {:.0} to {:.0}",
        ["a", "b"][first.manager % 2],
        first.minutes,
        last.minutes
    );
    Flatness { name, mean, peak: last.peak, rise }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(resident: impl Fn(f64) -> f64) -> Report {
        let sample = |manager, minutes: u32| {
            let minutes = f64::from(minutes);
            let resident = resident(minutes);
            Sample { manager, pid: 7, minutes, resident, peak: resident }
        };
        let samples = (0..=60).flat_map(|minutes| [sample(0, minutes), sample(1, minutes)]).collect();
        Report { minutes: 60.0, memory_limit: 64.0, samples, ..Report::default() }
    }

    #[test]
    fn growth_after_the_warm_up_is_a_problem_and_growth_before_it_is_not() {
        assert_eq!(report(|minutes| 20.0 + minutes.min(10.0)).problems(), Vec::<String>::new());
        let leak = report(|minutes| 20.0 + minutes / 5.0).problems();
        assert_eq!(leak.len(), 2, "{leak:?}");
        assert!(
            leak[0].starts_with("manager a, minutes 0 to 60: its memory is not flat: 10.0 MiB"),
            "{leak:?}"
        );
    }

    #[test]
    fn a_peak_above_the_limit_is_a_problem() {
        let mut over = report(|_| 30.0);
        over.samples.last_mut().unwrap().peak = 65.0;
        assert_eq!(over.problems(), ["manager b, minutes 0 to 60: its memory reached 65.0 MiB"]);
    }

    #[test]
    fn a_checker_that_is_never_satisfied_is_a_problem() {
        let mut late = report(|_| 30.0);
        let outcome = |seconds, violation: &str| Outcome {
            checker: "job-controller".to_owned(),
            seconds,
            violation: violation.to_owned(),
        };
        late.outcomes = vec![outcome(Some(3.0), ""), outcome(None, "has not finished")];
        assert_eq!(late.problems(), ["job-controller: has not finished"]);
        assert!(late.table().contains("| job-controller | never |"), "{}", late.table());
    }

    #[test]
    fn a_short_soak_is_not_judged_for_flatness() {
        let mut short = report(|minutes| 20.0 + minutes);
        short.samples.retain(|sample| sample.minutes < 15.0);
        assert_eq!(short.problems(), Vec::<String>::new());
        assert!(short.table().contains("too short"), "{}", short.table());
    }
}
