//! The gauges that count volumes.
//!
//! The original computes them at every scrape. Here a reconcile refreshes them if the last refresh is some time ago,
//! and so does the pass over all pods every minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::Pod;
use keleustes_plan::{Context, Memory, Metric, View};

use super::metrics::{TOTAL_VOLUMES, VOLUMES_IN_USE};
use super::resolve::{has_volumes, volumes_of};
use super::state::State;

/// The shortest time between two refreshes, which read all pods.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// What the last refresh did. A restart loses it, and the first reconcile refreshes.
#[derive(Clone, Default)]
pub(super) struct Gauges(Memory<Refreshed>);

#[derive(Clone, Default)]
struct Refreshed {
    at: Option<Duration>,
    series: BTreeSet<Series>,
}

/// The position of a metric in [`METRICS`], and label values.
type Series = (usize, String, String);

static METRICS: [&Metric; 2] = [&VOLUMES_IN_USE, &TOTAL_VOLUMES];

impl Gauges {
    /// Sets the gauges unless they were set a short time ago. A series that no volume is in any more is set to zero.
    pub(super) fn refresh(&self, cx: &mut Context<'_>, state: &Memory<State>) {
        let now = cx.gather(|view| view.now().monotonic);
        let is_due = self.0.with(|refreshed| {
            let is_due = refreshed.at.is_none_or(|at| now >= at + REFRESH_INTERVAL);
            if is_due {
                refreshed.at = Some(now);
            }
            is_due
        });
        if !is_due {
            return;
        }
        let counts = cx.gather(|view| state.with(|state| count(view, state)));
        let gone: Vec<Series> = self.0.with(|refreshed| {
            let before = std::mem::replace(&mut refreshed.series, counts.keys().cloned().collect());
            before.into_iter().filter(|series| !counts.contains_key(series)).collect()
        });
        for ((at, one, two), value) in counts.into_iter().chain(gone.into_iter().map(|series| (series, 0.0)))
        {
            cx.measure(METRICS[at].measurement(&[&one, &two], value));
        }
    }
}

fn count(view: &View<'_>, state: &State) -> BTreeMap<Series, f64> {
    let mut counts = BTreeMap::new();
    let mut add = |at: usize, one: &str, two: &str| {
        *counts.entry((at, one.to_owned(), two.to_owned())).or_insert(0.0) += 1.0;
    };
    for pod in view.all::<Pod>().filter(|pod| !pod.node_name.is_empty() && has_volumes(pod)) {
        volumes_of(view, pod).iter().for_each(|spec| add(0, &pod.node_name, &spec.plugin_label()));
    }
    for (_, _, desired) in state.desired.all() {
        add(1, &desired.spec.plugin_label(), "desired_state_of_world");
    }
    for spec in state.actual.all().filter_map(|(_, spec, _, _)| spec) {
        add(1, &spec.plugin_label(), "actual_state_of_world");
    }
    counts
}
