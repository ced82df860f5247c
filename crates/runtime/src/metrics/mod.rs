//! The metrics of the runtime, under the names and labels of the original.

mod caches;
mod connections;
mod declared;
mod queues;
mod requests;

use std::sync::Arc;

use keleustes_objects::Resource;
use keleustes_plan::{KindEntry, Measurement, Metric};
use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};

pub use self::caches::CacheMetrics;
pub use self::queues::QueueMetrics;
pub use crate::queue::QueueSnapshot;

/// All metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    caches: caches::Families,
    connections: connections::Families,
    queues: queues::Families,
    requests: requests::Families,
    panics: IntCounterVec,
    undecodable: IntCounterVec,
    held_back: IntCounterVec,
    leading: GaugeVec,
    slow_path: IntCounterVec,
    measured: declared::Families,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A new set in its own registry.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let families = Families {
            caches: caches::Families::new(&registry),
            connections: connections::Families::new(&registry),
            queues: queues::Families::new(&registry),
            requests: requests::Families::new(&registry),
            panics: counters(
                &registry,
                "keleustes_sync_panics_total",
                "Panics of reconciles, event handlers or caches that were contained.",
                &["controller"],
            ),
            undecodable: counters(
                &registry,
                "keleustes_undecodable_objects_total",
                "Objects that could not be decoded and were left out of the caches.",
                &["group", "resource"],
            ),
            held_back: counters(
                &registry,
                "keleustes_stale_cache_holds_total",
                "Times an item was held back until a cache had observed the item's own writes.",
                &["controller"],
            ),
            leading: gauges(
                &registry,
                "leader_election_master_status",
                "1 while this process leads, 0 while not.",
                &["name"],
            ),
            slow_path: counters(
                &registry,
                "leader_election_slowpath_total",
                "Renewals of the lease that had to read it first.",
                &["name"],
            ),
            measured: declared::Families::default(),
            registry,
        };
        Self(Arc::new(families))
    }

    /// The registry, to be served or extended.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// All metrics as Prometheus text.
    #[must_use]
    pub fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }

    /// The metrics of one queue. Queues of one name share them.
    #[must_use]
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        self.0.queues.of(name)
    }

    /// The metrics of one cache. Metadata-only caches have none, as with the original: they would be mixed up
    /// with those of the full objects.
    #[must_use]
    pub fn cache(&self, entry: &KindEntry) -> Option<CacheMetrics> {
        (!entry.projection().metadata_only).then(|| self.0.caches.of(entry.resource()))
    }

    /// The metrics of an observed resource without a cache. The original caches full objects of every kind
    /// that it has a Go type for, and exposes metrics of them; other kinds have none.
    #[must_use]
    pub(crate) fn observed(&self, resource: &Resource) -> Option<CacheMetrics> {
        let is_typed = match &*resource.group {
            "apiextensions.k8s.io" | "apiregistration.k8s.io" => false,
            group => !group.contains('.') || group.ends_with(".k8s.io"),
        };
        is_typed.then(|| self.0.caches.of(resource))
    }

    /// Registers a metric of a controller. Controllers may share one.
    pub fn declare(&self, metric: &'static Metric) {
        self.0.measured.declare(&self.0.registry, metric);
    }

    /// Observes a measurement of a declared metric.
    ///
    /// # Panics
    /// If the metric was not declared.
    pub fn measure(&self, measurement: &Measurement) {
        self.0.measured.measure(measurement);
    }

    /// Exposes the panics of a controller, none so far: an alert on an increase overlooks a series that begins with 1.
    pub fn expose_panics(&self, controller: &str) {
        self.0.panics.with_label_values(&[controller]);
    }

    /// Counts a contained panic.
    pub fn panicked(&self, controller: &str) {
        self.0.panics.with_label_values(&[controller]).inc();
    }

    /// Exposes the unreadable objects of a resource, none so far, as [`Metrics::expose_panics`] does with panics.
    pub fn expose_undecodable(&self, resource: &Resource) {
        self.0.undecodable.with_label_values(&[&*resource.group, &*resource.plural]);
    }

    /// Removes the count of a resource that is not served any more.
    pub fn forget_undecodable(&self, resource: &Resource) {
        // An error says that there is none.
        let _ = self.0.undecodable.remove_label_values(&[&*resource.group, &*resource.plural]);
    }

    /// Counts an object that could not be read.
    pub fn undecodable(&self, resource: &Resource) {
        self.0.undecodable.with_label_values(&[&*resource.group, &*resource.plural]).inc();
    }

    /// Sets whether this process leads.
    pub fn leading(&self, lease_name: &str, leading: bool) {
        self.0.leading.with_label_values(&[lease_name]).set(f64::from(u8::from(leading)));
    }

    /// Counts a renewal of the lease that had to read it first.
    pub fn slow_path(&self, lease_name: &str) {
        self.0.slow_path.with_label_values(&[lease_name]).inc();
    }

    /// Counts an item held back by the read-your-own-writes gate.
    pub fn held_back(&self, controller: &str) {
        self.0.held_back.with_label_values(&[controller]).inc();
    }
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family =
        IntCounterVec::new(Opts::new(name, stability(name, help)), labels).expect("metric names are valid");
    registered(registry, family)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let family =
        GaugeVec::new(Opts::new(name, stability(name, help)), labels).expect("metric names are valid");
    registered(registry, family)
}

fn histograms(
    registry: &Registry,
    (name, help): (&str, &str),
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    let options = HistogramOpts::new(name, stability(name, help)).buckets(buckets.to_vec());
    let family = HistogramVec::new(options, labels).expect("metric names are valid");
    registered(registry, family)
}

/// Prefixes the help with the stability level of the original: BETA for work queues, ALPHA for the rest.
fn stability(name: &str, help: &str) -> String {
    let level = if name.starts_with("workqueue_") { "BETA" } else { "ALPHA" };
    format!("[{level}] {help}")
}

fn registered<T: Collector + Clone + 'static>(registry: &Registry, family: T) -> T {
    registry.register(Box::new(family.clone())).expect("metric names are unique");
    family
}
