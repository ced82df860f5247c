//! How the two compare: a table, plots, and the raw figures to make others of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::growth::pods_of;
use super::plot::{Bar, Line, bars, lines};

const OURS: &str = "ours";
const ORIGINAL: &str = "the original";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// The time until everything was as it was to be.
    Seconds,
    /// The time until half of the objects were.
    Half,
    /// The time until 99 of 100 were.
    NearlyAll,
    /// The time until the first write that does something for users.
    FirstWrite,
    /// Processor time of the manager.
    ManagerCpu,
    /// Processor time of the API server.
    ServerCpu,
    /// Requests that change something.
    Writes,
    /// Requests that do not.
    Reads,
    /// The size of the program's file.
    Program,
    /// Resident memory afterwards.
    Resident,
    /// The most resident memory meanwhile.
    Peak,
}

impl Measure {
    fn words(self) -> &'static str {
        match self {
            Self::Seconds => "time until done",
            Self::Half => "time until half are done",
            Self::NearlyAll => "time until 99 % are done",
            Self::FirstWrite => "time until the first useful write",
            Self::ManagerCpu => "processor time of the manager",
            Self::ServerCpu => "processor time of the API server",
            Self::Writes => "writes",
            Self::Reads => "reads",
            Self::Program => "size of the program",
            Self::Resident => "resident memory afterwards",
            Self::Peak => "most resident memory",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Writes | Self::Reads => format!("{value:.0}"),
            Self::Program | Self::Resident | Self::Peak => format!("{:.1} MB", value / 1e6),
            _ => format!("{value:.2} s"),
        }
    }
}

/// One measurement of one manager.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) load: String,
    pub(super) phase: String,
    pub(super) measure: Measure,
    pub(super) whose: String,
    pub(super) value: f64,
}

/// Everything that was measured in a run.
pub(super) struct Report {
    head: String,
    figures: Vec<Figure>,
}

/// A row of the table: the middle of all rounds of each.
struct Row<'a> {
    first: &'a Figure,
    ours: f64,
    original: f64,
}

impl Report {
    pub(super) fn new(percent: usize) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism()?;
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = memory.lines().next().and_then(|line| line.split_whitespace().nth(1));
        let memory = memory.and_then(|kilobytes| kilobytes.parse::<f64>().ok()).unwrap_or(0.0) / 1e6;
        let head = format!(
            "{percent} % of the full loads, on {cores} cores and {memory:.0} GB that everything shares: etcd, the API \
             server, the nodes and the manager."
        );
        Ok(Self { head, figures: Vec::new() })
    }

    pub(super) fn add(&mut self, figures: Vec<Figure>) {
        self.figures.extend(figures);
    }

    /// The table in Markdown.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{}\n\n", self.head);
        table.push_str("| load | phase | what | ours | the original | ratio |\n");
        table.push_str("| --- | --- | --- | ---: | ---: | ---: |\n");
        for Row { first, ours, original } in self.rows() {
            let (load, phase, measure) = (&first.load, &first.phase, first.measure);
            let (what, a, b) = (measure.words(), measure.show(ours), measure.show(original));
            let ratio = ratio(ours, original).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(table, "| {load} | {phase} | {what} | {a} | {b} | {ratio} |");
        }
        table
    }

    /// Writes the table, the plots and the raw figures into a folder.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        put("figures.json", &serde_json::to_string_pretty(&self.figures)?)?;
        put("table.md", &self.table())?;
        for (name, title, measures) in [
            ("memory.svg", "Resident memory", [Measure::Resident, Measure::Peak].as_slice()),
            ("processor.svg", "Processor time", &[Measure::ManagerCpu, Measure::ServerCpu]),
            ("requests.svg", "Requests", &[Measure::Writes, Measure::Reads]),
            ("time.svg", "Time", &[Measure::Seconds, Measure::NearlyAll, Measure::FirstWrite]),
        ] {
            let wanted = |row: &Row<'_>| row.first.load != "growth" && measures.contains(&row.first.measure);
            let bars_of: Vec<_> = self.rows().iter().filter(|row| wanted(row)).filter_map(bar).collect();
            if !bars_of.is_empty() {
                put(name, &bars(&format!("{title}: this manager as a part of the original"), &bars_of))?;
            }
        }
        for (name, title, measure) in [
            ("growth-memory.svg", "Resident memory after a cold start, MB", Measure::Resident),
            ("growth-peak.svg", "Most resident memory of a cold start, MB", Measure::Peak),
            ("growth-processor.svg", "Processor time of a cold start, s", Measure::ManagerCpu),
            ("growth-start.svg", "Cold start to the first useful write, s", Measure::FirstWrite),
        ] {
            let both = [OURS, ORIGINAL].map(|whose| self.growth(whose, measure));
            if both.iter().any(|line| !line.points.is_empty()) {
                put(name, &lines(title, "pods", &both))?;
            }
        }
        Ok(())
    }

    /// How something grows with the number of pods.
    fn growth(&self, whose: &str, measure: Measure) -> Line {
        let figures = self
            .figures
            .iter()
            .filter(|figure| figure.load == "growth" && figure.whose == whose && figure.measure == measure);
        let unit = if matches!(measure, Measure::Resident | Measure::Peak) { 1e6 } else { 1.0 };
        let points = figures.filter_map(|figure| Some((pods_of(&figure.phase)?, figure.value / unit)));
        Line { name: whose.to_owned(), points: points.collect() }
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut order = Vec::new();
        let mut values: BTreeMap<_, [Vec<f64>; 2]> = BTreeMap::new();
        for figure in &self.figures {
            let row = (&figure.load, &figure.phase, figure.measure);
            let both = values.entry(row).or_insert_with(|| {
                order.push(figure);
                [Vec::new(), Vec::new()]
            });
            both[usize::from(figure.whose != OURS)].push(figure.value);
        }
        let row = |first: &'_ Figure| {
            let [ours, original] = &values[&(&first.load, &first.phase, first.measure)];
            (middle(ours), middle(original))
        };
        order
            .into_iter()
            .map(|first| {
                let (ours, original) = row(first);
                Row { first, ours, original }
            })
            .collect()
    }
}

fn bar(row: &Row<'_>) -> Option<Bar> {
    let Figure { load, phase, measure, .. } = row.first;
    let ratio = ratio(row.ours, row.original)?;
    let value = format!("{} of {}", measure.show(row.ours), measure.show(row.original));
    Some(Bar { name: format!("{load}, {phase}: {}", measure.words()), ratio, value })
}

/// Nothing where nobody could tell the two apart.
fn ratio(ours: f64, original: f64) -> Option<f64> {
    (original > 0.0 && ours.is_finite()).then(|| ours / original)
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
