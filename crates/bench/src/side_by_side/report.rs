//! The comparison: a table, plots, and the raw measurements.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::growth::PREFIX;
use super::plot::{Bar, Pair, bars, lines};
use super::projection;

pub(super) const OURS: &str = "ours";
pub(super) const ORIGINAL: &str = "the original";

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// The time until the load was done.
    Seconds,
    /// The time until half of the objects were done.
    Half,
    /// The time until 99 of 100 objects were done.
    NearlyAll,
    /// The time from the creation of an object until the manager creates what it needs: the median.
    ReactionHalf,
    /// The same for 99 of 100 objects.
    ReactionNearlyAll,
    /// The time until the first write other than routine ones.
    FirstWrite,
    /// The time until the first pod was created.
    FirstPod,
    /// CPU time of the manager.
    ManagerCpu,
    /// CPU time of the API server.
    ServerCpu,
    /// Write requests.
    Writes,
    /// Requests by verb.
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Get,
    List,
    /// Watches that have ended.
    Watch,
    /// Bytes that the API server sent to the manager.
    Received,
    /// The size of the program's file.
    Program,
    /// Resident memory afterwards.
    Resident,
    /// Peak resident memory.
    Peak,
}

impl Measure {
    /// The quantities that count requests of one verb.
    pub(super) const VERBS: [Self; 8] = [
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Watch,
    ];

    /// Whether it counts requests of this verb.
    pub(super) fn counts(self, verb: &str) -> bool {
        self.words().strip_prefix("requests: ") == Some(verb)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Seconds => "time until done",
            Self::Half => "time until half are done",
            Self::NearlyAll => "time until 99 % are done",
            Self::ReactionHalf => "time from an object's creation to the manager's request: median",
            Self::ReactionNearlyAll => "time from an object's creation to the manager's request: 99 %",
            Self::FirstWrite => "time until the first useful write",
            Self::FirstPod => "time until the first pod is created",
            Self::ManagerCpu => "CPU time of the manager",
            Self::ServerCpu => "CPU time of the API server",
            Self::Writes => "writes",
            Self::Create => "requests: create",
            Self::Update => "requests: update",
            Self::Patch => "requests: patch",
            Self::Delete => "requests: delete",
            Self::DeleteCollection => "requests: deletecollection",
            Self::Get => "requests: get",
            Self::List => "requests: list",
            Self::Watch => "requests: watch",
            Self::Received => "received from the API server",
            Self::Program => "size of the program",
            Self::Resident => "resident memory afterwards",
            Self::Peak => "peak resident memory",
        }
    }

    /// One word for the name of a file.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Resident => "memory",
            Self::Peak => "peak",
            Self::ManagerCpu => "processor",
            Self::FirstPod => "pod",
            _ => "start",
        }
    }

    /// The divisor for plots: MB for bytes.
    pub(super) fn unit(self) -> f64 {
        if self.is_bytes() { 1e6 } else { 1.0 }
    }

    pub(super) fn words_with_unit(self) -> String {
        format!("{}, {}", self.words(), if self.is_bytes() { "MB" } else { "s" })
    }

    /// Formats the cost of one object, given in plot units.
    pub(super) fn show_small(self, value: f64) -> String {
        if self.is_bytes() { format!("{:.0} B", value * 1e6) } else { format!("{:.0} µs", value * 1e6) }
    }

    fn is_bytes(self) -> bool {
        matches!(self, Self::Received | Self::Program | Self::Resident | Self::Peak)
    }

    /// Two or three digits, for pictures.
    fn show_briefly(self, value: f64) -> String {
        let (value, unit) = (value / self.unit(), if self.is_bytes() { "MB" } else { "s" });
        let decimals = match value {
            _ if value < 1.0 => 2,
            _ if value < 10.0 => 1,
            _ => 0,
        };
        format!("{value:.decimals$} {unit}")
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            _ if self == Self::Writes || Self::VERBS.contains(&self) => format!("{value:.0}"),
            _ if self.is_bytes() => format!("{:.1} MB", value / 1e6),
            _ => format!("{value:.2} s"),
        }
    }
}

/// One measurement of one manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) load: String,
    pub(super) phase: String,
    pub(super) measure: Measure,
    pub(super) whose: String,
    pub(super) value: f64,
}

/// All measurements of a run.
pub(super) struct Report {
    head: String,
    measurements: Vec<Measurement>,
}

/// A row of the table: the medians of all rounds.
struct Row<'a> {
    first: &'a Measurement,
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
        Ok(Self { head, measurements: Vec::new() })
    }

    pub(super) fn add(&mut self, measurements: Vec<Measurement>) {
        self.measurements.extend(measurements);
    }

    /// The table in Markdown.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{}\n\n", self.head);
        table.push_str("| load | phase | what | ours | the original | ratio |\n");
        table.push_str("| --- | --- | --- | ---: | ---: | ---: |\n");
        // Rows in which both are zero are left out.
        for Row { first, ours, original } in
            self.rows().into_iter().filter(|row| row.ours + row.original != 0.0)
        {
            let (load, phase, measure) = (&first.load, &first.phase, first.measure);
            let (what, a, b) = (measure.words(), measure.show(ours), measure.show(original));
            let ratio = ratio(ours, original).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(table, "| {load} | {phase} | {what} | {a} | {b} | {ratio} |");
        }
        table
    }

    /// Writes the table, the plots and the raw measurements into a folder.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        put("measurements.json", &serde_json::to_string_pretty(&self.measurements)?)?;
        put("table.md", &self.table())?;
        for (name, picture) in self.pictures() {
            put(&name, &picture)?;
        }
        let projected = projection::table(&self.measurements);
        if !projected.is_empty() {
            put("projection.md", &projected)?;
        }
        Ok(())
    }

    /// Measurements that were kept.
    pub(super) fn of(measurements: Vec<Measurement>) -> Self {
        Self { head: String::new(), measurements }
    }

    /// The plots, by file name.
    pub(super) fn pictures(&self) -> Vec<(String, String)> {
        let mut pictures = Vec::new();
        for (name, title, measures) in [
            ("memory.svg", "Resident memory", [Measure::Resident, Measure::Peak].as_slice()),
            ("processor.svg", "CPU time", &[Measure::ManagerCpu, Measure::ServerCpu]),
            ("requests.svg", "Requests", &[Measure::Writes, Measure::Received]),
            (
                "time.svg",
                "Time",
                &[Measure::Seconds, Measure::NearlyAll, Measure::FirstWrite, Measure::FirstPod],
            ),
        ] {
            let wanted =
                |row: &Row<'_>| !row.first.load.starts_with(PREFIX) && measures.contains(&row.first.measure);
            let bars_of: Vec<_> = self.rows().iter().filter(|row| wanted(row)).filter_map(bar).collect();
            if !bars_of.is_empty() {
                pictures
                    .push((name.to_owned(), bars(&format!("{title}, relative to the original"), &bars_of)));
            }
        }
        let plots = projection::plots(&self.measurements).into_iter();
        pictures.extend(plots.map(|(file, title, axis, both)| (file, lines(&title, axis, &both))));
        pictures
    }

    /// One quantity of one phase, ours and the original's, with its formatted values.
    pub(super) fn pair(&self, load: &str, phase: &str, measure: Measure, name: &str) -> Option<Pair> {
        let rows = self.rows();
        let wanted =
            |first: &Measurement| first.load == load && first.phase == phase && first.measure == measure;
        let row = rows.iter().find(|row| wanted(row.first))?;
        let shown = |value: f64| (value, measure.show_briefly(value));
        Some(Pair { name: name.to_owned(), ours: shown(row.ours), original: shown(row.original) })
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut order = Vec::new();
        let mut values: BTreeMap<_, [Vec<f64>; 2]> = BTreeMap::new();
        for measurement in &self.measurements {
            let row = (&measurement.load, &measurement.phase, measurement.measure);
            let both = values.entry(row).or_insert_with(|| {
                order.push(measurement);
                [Vec::new(), Vec::new()]
            });
            both[usize::from(measurement.whose != OURS)].push(measurement.value);
        }
        let row = |first: &'_ Measurement| {
            let [ours, original] = &values[&(&first.load, &first.phase, first.measure)];
            (median(ours), median(original))
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
    let Measurement { load, phase, measure, .. } = row.first;
    let ratio = ratio(row.ours, row.original)?;
    let value = format!("{} of {}", measure.show(row.ours), measure.show(row.original));
    Some(Bar { name: format!("{load}, {phase}: {}", measure.words()), ratio, value })
}

/// `None` if the original's value is zero or ours is missing.
fn ratio(ours: f64, original: f64) -> Option<f64> {
    (original > 0.0 && ours.is_finite()).then(|| ours / original)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
