//! The report of a shadow: for programs as JSON, for people as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::Shadow;
use super::comparison::{Counts, Difference, ForeignChange};
use super::known::LIMITS;

/// What a shadow has seen since its start.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// `shadow.keleustes.dev/v1alpha1`.
    pub api_version: &'static str,
    /// `ShadowReport`.
    pub kind: &'static str,
    /// When the shadow started, in milliseconds since 1970.
    pub started_unix_milliseconds: i64,
    /// For how long it has been running, in seconds.
    pub running_seconds: u64,
    /// After which time a decision that the leader has not made is a difference, in seconds.
    pub window_seconds: u64,
    /// The leader that is shadowed, if the Lease could be read.
    pub leader: Option<String>,
    /// All controllers together.
    pub total: Counts,
    /// Every controller that decided something.
    pub controllers: Vec<ControllerReport>,
    /// Differences that are not listed as known, the newest first.
    pub differences: Vec<Difference>,
    /// Known differences, the newest first.
    pub known_differences: Vec<Difference>,
    /// Changes of objects of controllers by other clients, the newest first.
    pub foreign_changes: Vec<ForeignChange>,
    /// Changes that were not compared, because there were too many at once, or another client wrote the object in the
    /// same second.
    pub unchecked_changes: u64,
    /// Decisions and differences that did not fit into memory.
    pub not_kept: u64,
    /// What is not compared.
    pub limits: Vec<Limit>,
}

/// The counts of one controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerReport {
    /// Its name.
    pub name: String,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Decisions that the leader has not made yet.
    pub pending: usize,
}

/// Something that is not compared.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// What.
    pub what: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Shadow {
    /// The report, with the holder of the Lease if it is known.
    #[must_use]
    pub fn report(&self, leader: Option<String>) -> ShadowReport {
        let (now, comparison) = (self.now(), self.0.comparison.lock());
        let controllers: Vec<_> = comparison
            .counts()
            .iter()
            .map(|(name, counts)| ControllerReport {
                name: name.clone(),
                counts: *counts,
                pending: comparison.pending_of(name),
            })
            .collect();
        let mut total = Counts::default();
        for Counts { decisions, agreements, withdrawn, differences, known_differences } in
            controllers.iter().map(|controller| controller.counts)
        {
            total.decisions += decisions;
            total.agreements += agreements;
            total.withdrawn += withdrawn;
            total.differences += differences;
            total.known_differences += known_differences;
        }
        let mut differences: Vec<_> = comparison.differences().cloned().collect();
        differences.reverse();
        let (known_differences, differences) =
            differences.into_iter().partition(|difference| difference.known.is_some());
        let mut foreign_changes: Vec<_> = comparison.foreign_changes().cloned().collect();
        foreign_changes.reverse();
        ShadowReport {
            api_version: "shadow.keleustes.dev/v1alpha1",
            kind: "ShadowReport",
            started_unix_milliseconds: self.0.started.unix_milliseconds,
            running_seconds: now.monotonic.saturating_sub(self.0.started.monotonic).as_secs(),
            window_seconds: self.0.window.as_secs(),
            leader,
            total,
            controllers,
            differences,
            known_differences,
            foreign_changes,
            unchecked_changes: *self.0.unchecked.lock(),
            not_kept: comparison.not_kept,
            limits: LIMITS.iter().map(|&(what, reason)| Limit { what, reason }).collect(),
        }
    }
}

impl ShadowReport {
    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_head(&mut text);
        self.write_controllers(&mut text);
        write_differences(&mut text, "Differences", &self.differences);
        write_differences(&mut text, "Known differences", &self.known_differences);
        self.write_foreign_changes(&mut text);
        text
    }

    fn write_head(&self, text: &mut String) {
        let Self { running_seconds: seconds, window_seconds, total, .. } = self;
        let leader = self.leader.as_deref().unwrap_or("unknown");
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let _ = writeln!(text, "Leader:       {leader}");
        let _ = writeln!(text, "Running for:  {hours}h{minutes:02}m{:02}s", seconds % 60);
        let _ = writeln!(text, "Window:       {window_seconds}s");
        let _ = writeln!(
            text,
            "Result:       {} agreements, {} differences, {} known differences, {} changes by other clients",
            total.agreements,
            total.differences,
            total.known_differences,
            self.foreign_changes.len()
        );
        if self.unchecked_changes + self.not_kept > 0 {
            let (unchecked, not_kept) = (self.unchecked_changes, self.not_kept);
            let _ = writeln!(
                text,
                "Not compared: {unchecked} changes (too fast, or two authors in one second), {not_kept} did not fit"
            );
        }
    }

    fn write_controllers(&self, text: &mut String) {
        let mut rows = vec![
            ["CONTROLLER", "DECISIONS", "AGREEMENTS", "WITHDRAWN", "PENDING", "DIFFERENCES", "KNOWN"]
                .map(str::to_owned),
        ];
        for ControllerReport { name, counts, pending } in &self.controllers {
            let Counts { decisions, agreements, withdrawn, differences, known_differences } = counts;
            let numbers =
                [*decisions, *agreements, *withdrawn, *pending as u64, *differences, *known_differences];
            let mut row = std::array::from_fn(|column| match column {
                0 => name.clone(),
                column => numbers[column - 1].to_string(),
            });
            row[0].clone_from(name);
            rows.push(row);
        }
        let _ = writeln!(text);
        for row in &rows {
            let widths =
                (0..row.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
            let cells: Vec<_> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("   ").trim_end());
        }
    }

    fn write_foreign_changes(&self, text: &mut String) {
        if self.foreign_changes.is_empty() {
            return;
        }
        let _ = writeln!(text, "\nChanges by other clients:");
        for change in &self.foreign_changes {
            let ForeignChange { verb, resource, namespace, name, by, expected, unix_milliseconds } = change;
            let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
            let _ = writeln!(
                text,
                "  {} {verb} {resource} {}{by}",
                time(*unix_milliseconds),
                at(namespace, name)
            );
            for line in expected {
                let _ = writeln!(text, "    expected: {line}");
            }
        }
    }
}

fn write_differences(text: &mut String, title: &str, differences: &[Difference]) {
    if differences.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    for difference in differences {
        let Difference { kind, controller, verb, resource, namespace, name, reason, count, .. } = difference;
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        let resolved = if difference.resolved { ", no longer wanted" } else { "" };
        let _ = writeln!(
            text,
            "  {} {}: {controller}: {verb} {resource} {}{times}{resolved}",
            time(difference.last_unix_milliseconds),
            kind.as_str(),
            at(namespace, name)
        );
        let _ = writeln!(text, "    {reason}");
        if let Some(known) = difference.known {
            let _ = writeln!(text, "    known: {known}");
        }
    }
}

fn at(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn time(unix_milliseconds: i64) -> String {
    let second = jiff::Timestamp::from_second(unix_milliseconds.div_euclid(1000)).unwrap_or_default();
    second.to_string()
}
