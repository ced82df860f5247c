//! Metrics of work queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, exponential_buckets,
};

use super::{QueueSnapshot, counters, histograms, registered, stability};

pub(super) struct Families {
    adds: IntCounterVec,
    retries: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    running: RunningWork,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        // Multiplied up, not computed: the original's bounds carry the resulting rounding errors, and rules
        // name them.
        let powers_of_ten = exponential_buckets(1e-8, 10.0, 10).expect("a start and a factor that grow");
        let name = &["name"];
        Self {
            adds: counters(registry, "workqueue_adds_total", "Items added to the queue.", name),
            retries: counters(
                registry,
                "workqueue_retries_total",
                "Items added to the queue with a delay.",
                name,
            ),
            waited: histograms(
                registry,
                ("workqueue_queue_duration_seconds", "How long items waited in the queue."),
                name,
                &powers_of_ten,
            ),
            worked: histograms(
                registry,
                ("workqueue_work_duration_seconds", "How long work on an item took."),
                name,
                &powers_of_ten,
            ),
            running: registered(registry, RunningWork::new()),
        }
    }

    pub(super) fn of(&self, name: &'static str) -> QueueMetrics {
        QueueMetrics {
            name,
            adds: self.adds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            waited: self.waited.with_label_values(&[name]),
            worked: self.worked.with_label_values(&[name]),
            running: self.running.clone(),
        }
    }
}

/// The metrics of one queue.
#[derive(Clone)]
pub struct QueueMetrics {
    name: &'static str,
    adds: IntCounter,
    retries: IntCounter,
    waited: Histogram,
    worked: Histogram,
    running: RunningWork,
}

impl QueueMetrics {
    pub(crate) fn added(&self) {
        self.adds.inc();
    }

    pub(crate) fn added_many(&self, items: usize) {
        self.adds.inc_by(items as u64);
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    pub(crate) fn taken(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    pub(crate) fn worked(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }

    /// Calls `running` for the state of the queue at every scrape, until it returns `None`.
    pub(crate) fn watch(&self, running: impl Fn() -> Option<QueueSnapshot> + Send + Sync + 'static) {
        self.running.probes.lock().entry(self.name).or_default().push(Box::new(running));
    }
}

type Probe = Box<dyn Fn() -> Option<QueueSnapshot> + Send + Sync>;

/// The gauges of running work. They are read from the queues at the time of the scrape, which is more current
/// than a timer and costs an idle process nothing.
#[derive(Clone)]
struct RunningWork {
    probes: Arc<Mutex<BTreeMap<&'static str, Vec<Probe>>>>,
    depth: GaugeVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
}

impl RunningWork {
    fn new() -> Self {
        // Registered as one collector, because their values are computed together.
        let gauges = |name, help| {
            GaugeVec::new(Opts::new(name, stability(name, help)), &["name"]).expect("metric names are valid")
        };
        Self {
            probes: Arc::default(),
            depth: gauges("workqueue_depth", "Items that need processing."),
            unfinished: gauges(
                "workqueue_unfinished_work_seconds",
                "Seconds of processing that has begun and not ended. Large values mean stuck workers.",
            ),
            longest: gauges(
                "workqueue_longest_running_processor_seconds",
                "Seconds the longest running item has been processed so far.",
            ),
        }
    }
}

impl Collector for RunningWork {
    fn desc(&self) -> Vec<&Desc> {
        [&self.depth, &self.unfinished, &self.longest].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (name, probes) in &mut *self.probes.lock() {
            let mut sum = QueueSnapshot::default();
            probes.retain(|probe| {
                let Some(running) = probe() else { return false };
                sum.depth += running.depth;
                sum.unfinished_seconds += running.unfinished_seconds;
                sum.longest_seconds = sum.longest_seconds.max(running.longest_seconds);
                true
            });
            #[expect(clippy::cast_precision_loss, reason = "no queue is that deep")]
            self.depth.with_label_values(&[name]).set(sum.depth as f64);
            self.unfinished.with_label_values(&[name]).set(sum.unfinished_seconds);
            self.longest.with_label_values(&[name]).set(sum.longest_seconds);
        }
        [&self.depth, &self.unfinished, &self.longest].into_iter().flat_map(Collector::collect).collect()
    }
}
