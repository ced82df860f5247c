//! A scenario ends in the same objects with either manager, or the difference is listed.
//!
//! Two clusters run it at once, each on its own control plane. At every checkpoint of the scenario and at
//! its end both clusters are read until they are equal, or until neither changes any more. A scenario that
//! fails or ends in a difference is repeated once in new namespaces: only fields that differ in both runs count.
//! Accepted differences are in `docs/differences/controllers.md`.

mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use futures::future::LocalBoxFuture;
use keleustes_objects::matches_wildcard;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use self::snapshot::ClusterReader;
use crate::accepted::Accepted;
use crate::real::{Manager, RealCluster};
use crate::test_cluster::Checkpoint;
use crate::{GROUPS, Group, RunsOn, Scenario, TestCluster};

/// How long both clusters must be unchanged before a difference counts; longer than any retry delay of the
/// original that matters here.
const SETTLED_AFTER: Duration = Duration::from_secs(90);
/// After this time a difference counts even if the clusters still change.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How often both clusters are read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A cluster with our manager, and one with the original.
pub struct TestClusterPair {
    ours: TestCluster,
    original: TestCluster,
    accepted: Accepted,
    played: BTreeSet<&'static str>,
}

impl TestClusterPair {
    /// Starts both for a group of scenarios.
    ///
    /// # Errors
    /// If anything does not start.
    pub async fn start(group: &Group, ours: Manager, flags: &[&str]) -> anyhow::Result<Self> {
        let mut clusters = Vec::new();
        for manager in [ours, Manager::Original] {
            clusters.push(RealCluster::start(group, manager, flags)?.into_test_cluster().await?);
        }
        let [ours, original] =
            <[TestCluster; 2]>::try_from(clusters).map_err(|_| anyhow::anyhow!("two clusters"))?;
        let accepted = Accepted::read("controllers.md")?;
        Ok(Self { ours, original, accepted, played: BTreeSet::new() })
    }

    /// The cluster with our manager.
    #[must_use]
    pub fn ours(&self) -> &TestCluster {
        &self.ours
    }

    /// Whether a scenario can be compared: the original must be able to run it.
    #[must_use]
    pub fn can_run(scenario: &Scenario) -> bool {
        matches!(scenario.runs_on, RunsOn::Anywhere | RunsOn::Slow | RunsOn::RealCluster)
    }

    /// Runs a scenario in both clusters and compares them; repeats it once if they differ.
    ///
    /// # Errors
    /// If it fails in one of them or leaves differences that are not listed, twice.
    pub async fn play(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        self.played.insert(scenario.name);
        let first = self.play_once(scenario).await;
        match &first {
            Ok(lines) if lines.is_empty() => return Ok(()),
            Ok(lines) => println!("again   {}: not equal{}", scenario.name, list_lines(lines)),
            Err(error) => println!("again   {}: {error:#}", scenario.name),
        }
        self.clean_up().await?;
        let second = self.play_once(scenario).await;
        if !second.as_ref().is_ok_and(BTreeSet::is_empty) {
            self.clean_up().await?;
        }
        let mut lines = second?;
        if let Ok(first) = first {
            let places: BTreeSet<&str> = first.iter().map(|line| place(line)).collect();
            lines.retain(|line| places.contains(place(line)));
        }
        ensure!(lines.is_empty(), "not equal, twice (- the original, + ours){}", list_lines(&lines));
        Ok(())
    }

    /// Removes what an aborted scenario left behind.
    async fn clean_up(&self) -> anyhow::Result<()> {
        self.ours.clean_up().await?;
        self.original.clean_up().await
    }

    /// The unlisted differing lines at the first checkpoint that has any; then what the aborted scenario has created
    /// is deleted, so that it can be repeated.
    async fn play_once(&self, scenario: &Scenario) -> anyhow::Result<BTreeSet<String>> {
        let mut ours = Side::begin(scenario, &self.ours).await?;
        let mut original = Side::begin(scenario, &self.original).await?;
        let result = self.play_side_by_side(scenario, &mut ours, &mut original).await;
        if !result.as_ref().is_ok_and(BTreeSet::is_empty) {
            drop((ours.play, original.play));
            tokio::try_join!(ours.reader.delete_new_objects(), original.reader.delete_new_objects())?;
        }
        result
    }

    async fn play_side_by_side(
        &self,
        scenario: &Scenario,
        ours: &mut Side<'_>,
        original: &mut Side<'_>,
    ) -> anyhow::Result<BTreeSet<String>> {
        let mut is_over = false;
        let (mut checkpoints, mut lines) = (0, 0);
        while !is_over {
            let (here, there) = tokio::join!(ours.next(), original.next());
            let what = match (&here, &there) {
                (Progress::Checkpoint(here), Progress::Checkpoint(there)) if here.what == there.what => {
                    here.what.clone()
                }
                (Progress::End(Ok(())), Progress::End(Ok(()))) => {
                    is_over = true;
                    "the end".to_owned()
                }
                _ => bail!("ours: {}; the original: {}", here.describe(), there.describe()),
            };
            let snapshots = self.settled(scenario, ours, original).await?;
            (checkpoints, lines) = (checkpoints + 1, lines + snapshots.original.len());
            self.save(&format!("{}: {what}", scenario.name), &snapshots)?;
            let unlisted = self.accepted.unlisted(scenario.name, &snapshots.differing);
            if !unlisted.is_empty() {
                return Ok(unlisted.into_iter().map(|line| format!("{what}: {line}")).collect());
            }
        }
        println!("        {lines} lines compared at {checkpoints} checkpoints");
        Ok(BTreeSet::new())
    }

    /// The state of both clusters once they are equal, or once neither changes any more.
    async fn settled(
        &self,
        scenario: &Scenario,
        ours: &Side<'_>,
        original: &Side<'_>,
    ) -> anyhow::Result<Snapshots> {
        let began = Instant::now();
        let (mut last, mut changed_at) = (None, began);
        loop {
            let (here, there) = tokio::try_join!(ours.reader.lines(), original.reader.lines())?;
            let snapshots = Snapshots { differing: difference(&there, &here), ours: here, original: there };
            if last.as_ref() != Some(&snapshots) {
                changed_at = Instant::now();
            }
            let is_settled = changed_at.elapsed() > SETTLED_AFTER || began.elapsed() > SETTLE_TIMEOUT;
            if is_settled || self.accepted.allows(scenario.name, &snapshots.differing) {
                return Ok(snapshots);
            }
            last = Some(snapshots);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Appends the state to files in the folder `KELEUSTES_LOGS`, for reading.
    fn save(&self, checkpoint_name: &str, snapshots: &Snapshots) -> anyhow::Result<()> {
        let Some(folder) = std::env::var_os("KELEUSTES_LOGS").map(PathBuf::from) else { return Ok(()) };
        for (name, lines) in
            [("states-ours.txt", &snapshots.ours), ("states-original.txt", &snapshots.original)]
        {
            let mut file = OpenOptions::new().create(true).append(true).open(folder.join(name))?;
            writeln!(file, "{checkpoint_name}\n  {}", lines.join("\n  "))?;
        }
        Ok(())
    }

    /// Rows of the list that no scenario needed, although all scenarios they apply to were run.
    #[must_use]
    pub fn stale(&self) -> Vec<String> {
        let all_played = |row: &str| {
            let all = GROUPS.iter().flat_map(|group| group.scenarios);
            let mut shown = all.filter(|one| Self::can_run(one) && matches_wildcard(row, one.name));
            shown.all(|one| self.played.contains(one.name))
        };
        self.accepted.stale(all_played)
    }
}

/// The state of both clusters at one checkpoint, line by line.
#[derive(PartialEq)]
struct Snapshots {
    ours: Vec<String>,
    original: Vec<String>,
    /// Lines that only one of them has: `- ` for the original, `+ ` for ours.
    differing: Vec<String>,
}

/// A line without its value: checkpoint, side, object and field. A difference in the same place of both runs counts even
/// if its value is another each time. An event is its own place.
fn place(line: &str) -> &str {
    let value = line.find(" .").and_then(|field| Some(field + 1 + line[field + 1..].find(' ')?));
    value.filter(|_| !line.contains(" event on ")).map_or(line, |value| &line[..value])
}

/// The lines as an indented list.
fn list_lines(lines: &BTreeSet<String>) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

/// A scenario in one of the clusters.
struct Side<'w> {
    reader: ClusterReader<'w>,
    play: LocalBoxFuture<'w, anyhow::Result<()>>,
    checkpoints: UnboundedReceiver<Checkpoint>,
}

/// The next checkpoint of a scenario, or its end.
enum Progress {
    Checkpoint(Checkpoint),
    End(anyhow::Result<()>),
}

impl Progress {
    fn describe(&self) -> String {
        match self {
            Self::Checkpoint(stop) => stop.what.clone(),
            Self::End(Ok(())) => "the end".to_owned(),
            Self::End(Err(error)) => format!("{error:#}"),
        }
    }
}

impl<'w> Side<'w> {
    async fn begin(scenario: &Scenario, cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let reader = ClusterReader::begin(cluster).await?;
        let checkpoints = cluster.observe_checkpoints();
        Ok(Self { reader, play: (scenario.play)(cluster), checkpoints })
    }

    async fn next(&mut self) -> Progress {
        tokio::select! {
            biased;
            Some(stop) = self.checkpoints.recv() => Progress::Checkpoint(stop),
            end = &mut self.play => Progress::End(end),
        }
    }
}

/// The lines that only one of two lists has: `- ` for the first, `+ ` for the second.
fn difference(first: &[String], second: &[String]) -> Vec<String> {
    let mut surplus = BTreeMap::<&str, isize>::new();
    first.iter().for_each(|line| *surplus.entry(line).or_default() += 1);
    second.iter().for_each(|line| *surplus.entry(line).or_default() -= 1);
    let list_lines = |(line, count): (&str, isize)| {
        let side = if count > 0 { '-' } else { '+' };
        std::iter::repeat_n(format!("{side} {line}"), count.unsigned_abs())
    };
    surplus.into_iter().flat_map(list_lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_a_difference_has_no_value() {
        let field = "the end: - PersistentVolume v .spec.hostPath.path \"/a b\"";
        assert_eq!(place(field), "the end: - PersistentVolume v .spec.hostPath.path");
        let element = "the end: + Pod p .status.conditions[] {\"type\":\"Ready\"}";
        assert_eq!(place(element), "the end: + Pod p .status.conditions[]");
        let event = "the end: + event on Pod p: Normal Reason: see .spec of it (by c)";
        assert_eq!(place(event), event);
    }

    #[test]
    fn repeated_lines_are_counted() {
        let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(difference(&lines("a b b c"), &lines("a b c d")), ["- b", "+ d"]);
        assert_eq!(difference(&lines("a b"), &lines("a b")), [""; 0]);
        assert_eq!(difference(&lines(""), &lines("a a")), ["+ a", "+ a"]);
    }
}
