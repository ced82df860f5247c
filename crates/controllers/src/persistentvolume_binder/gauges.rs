//! The gauges that count volumes and claims.
//!
//! The original computes them at every scrape. Here a reconcile refreshes them if the last refresh is some time ago, so
//! after a change they are right at the next resync at the latest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::{InternedStr, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource};
use keleustes_plan::{Context, Memory, Metric, View};

use super::metrics::{BOUND_CLAIMS, BOUND_VOLUMES, TOTAL_VOLUMES, UNBOUND_CLAIMS, UNBOUND_VOLUMES};
use super::names::{HOST_PATH, NFS};

/// The shortest time between two refreshes, which read all volumes and claims.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// What the last refresh did. A restart loses it, and the first reconcile refreshes.
#[derive(Clone, Default)]
pub(super) struct Gauges(Memory<State>);

#[derive(Clone, Default)]
struct State {
    refreshed_at: Option<Duration>,
    series: BTreeSet<Series>,
}

/// The position of a metric in [`METRICS`], and label values.
type Series = (usize, Vec<String>);

static METRICS: [&Metric; 5] =
    [&TOTAL_VOLUMES, &BOUND_VOLUMES, &UNBOUND_VOLUMES, &BOUND_CLAIMS, &UNBOUND_CLAIMS];

/// Sets the gauges unless they were set a short time ago. A series that no object is in any more is set to zero.
pub(super) fn refresh(cx: &mut Context<'_>, gauges: &Gauges) {
    let now = cx.gather(|view| view.now().monotonic);
    let is_due = gauges.0.with(|state| {
        let is_due = state.refreshed_at.is_none_or(|at| now >= at + REFRESH_INTERVAL);
        if is_due {
            state.refreshed_at = Some(now);
        }
        is_due
    });
    if !is_due {
        return;
    }
    let counts = cx.gather(count);
    let gone: Vec<Series> = gauges.0.with(|state| {
        let series = counts.keys().cloned().collect();
        let before = std::mem::replace(&mut state.series, series);
        before.into_iter().filter(|series| !counts.contains_key(series)).collect()
    });
    for ((at, labels), value) in counts.into_iter().chain(gone.into_iter().map(|series| (series, 0.0))) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        cx.measure(METRICS[at].measurement(&labels, value));
    }
}

fn count(view: &View<'_>) -> BTreeMap<Series, f64> {
    let mut counts = BTreeMap::new();
    let mut add = |at: usize, labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        *counts.entry((at, labels)).or_insert(0.0) += 1.0;
    };
    for volume in view.all::<PersistentVolume>() {
        let mode = volume.spec.volume_mode.as_ref().map_or("Filesystem", InternedStr::as_str);
        add(0, &[plugin_name(volume), mode]);
        add(if volume.phase == "Bound" { 1 } else { 2 }, &[&volume.spec.storage_class_name]);
    }
    for claim in view.all::<PersistentVolumeClaim>() {
        let attributes = claim.spec.volume_attributes_class_name.as_ref().map_or("", InternedStr::as_str);
        let labels = [claim.meta.key.namespace.as_str(), claim.class(), attributes];
        add(if claim.phase == "Bound" { 3 } else { 4 }, &labels);
    }
    counts
}

/// The in-process plugin of a volume.
fn plugin_name(volume: &PersistentVolume) -> &'static str {
    match volume.spec.source {
        PersistentVolumeSource::HostPath { .. } => HOST_PATH,
        PersistentVolumeSource::Nfs { .. } => NFS,
        _ => "N/A",
    }
}
