//! The metrics of the runtime, under the names and labels that the original's dashboards know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_client::{ObservedRequest, RequestObserver};
use keleustes_objects::{Resource, Version};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};

pub use crate::queue::Running;

/// All metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    queue_adds: IntCounterVec,
    queue_retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    running: RunningWork,
    store_version: GaugeVec,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    throttled: HistogramVec,
    panics: IntCounterVec,
    undecodable: IntCounterVec,
    held_back: IntCounterVec,
    leading: GaugeVec,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A new set in a registry of its own.
    #[must_use]
    pub fn new() -> Self {
        let powers_of_ten: Vec<f64> = (0..10).map(|power| 1e-8 * 10_f64.powi(power)).collect();
        let latency = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
        let sizes: Vec<f64> =
            [64, 256, 512, 1024, 4096, 16384, 65536, 262_144, 1_048_576, 4_194_304, 16_777_216]
                .map(f64::from)
                .into();
        let (name, informer) = (&["name"], &["name", "group", "version", "resource"]);
        let (verb_host, code) = (&["verb", "host"], &["code", "method", "host"]);
        let families = Families {
            registry: Registry::new(),
            queue_adds: counters("workqueue_adds_total", "Items added to the queue.", name),
            queue_retries: counters(
                "workqueue_retries_total",
                "Items added to the queue with a delay.",
                name,
            ),
            queue_duration: histograms(
                "workqueue_queue_duration_seconds",
                "How long items waited in the queue.",
                name,
                &powers_of_ten,
            ),
            work_duration: histograms(
                "workqueue_work_duration_seconds",
                "How long work on an item took.",
                name,
                &powers_of_ten,
            ),
            running: RunningWork::new(),
            store_version: gauges(
                "informer_store_resource_version",
                "The last 15 digits of the version that a cache has come to.",
                informer,
            ),
            requests: counters("rest_client_requests_total", "Requests by method, host and answer.", code),
            request_duration: histograms(
                "rest_client_request_duration_seconds",
                "How long the server took to answer.",
                verb_host,
                &latency,
            ),
            request_size: histograms(
                "rest_client_request_size_bytes",
                "Size of requests.",
                verb_host,
                &sizes,
            ),
            response_size: histograms(
                "rest_client_response_size_bytes",
                "Size of answers.",
                verb_host,
                &sizes,
            ),
            throttled: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "How long requests were held back by our own rate limit.",
                verb_host,
                &latency,
            ),
            panics: counters(
                "keleustes_sync_panics_total",
                "Decisions or wake-ups that ended in a panic and were contained.",
                &["controller"],
            ),
            undecodable: counters(
                "keleustes_undecodable_objects_total",
                "Objects that could not be read and were left out of the caches.",
                &["group", "resource"],
            ),
            held_back: counters(
                "keleustes_stale_cache_holds_total",
                "Times an item was held back until a cache had seen the item's own writes.",
                &["controller"],
            ),
            leading: gauges(
                "leader_election_master_status",
                "1 while this process leads, 0 while not.",
                name,
            ),
        };
        families.register();
        Self(Arc::new(families))
    }

    /// The registry, for whoever serves or extends it.
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
        let families = &self.0;
        QueueMetrics {
            name,
            adds: families.queue_adds.with_label_values(&[name]),
            retries: families.queue_retries.with_label_values(&[name]),
            waited: families.queue_duration.with_label_values(&[name]),
            worked: families.work_duration.with_label_values(&[name]),
            running: families.running.clone(),
        }
    }

    /// Notes the version that a cache has come to.
    pub fn store_version(&self, resource: &Resource, version: &Version) {
        let labels = ["kube-controller-manager", &resource.group, &resource.version, &resource.plural];
        self.0.store_version.with_label_values(&labels).set(version.gauge());
    }

    /// Counts a contained panic.
    pub fn panicked(&self, controller: &str) {
        self.0.panics.with_label_values(&[controller]).inc();
    }

    /// Counts an object that could not be read.
    pub fn undecodable(&self, resource: &Resource) {
        self.0.undecodable.with_label_values(&[&*resource.group, &*resource.plural]).inc();
    }

    /// Notes whether this process leads.
    pub fn leading(&self, lease_name: &str, leading: bool) {
        self.0.leading.with_label_values(&[lease_name]).set(f64::from(u8::from(leading)));
    }

    /// Counts an item held back by the read-your-own-writes gate.
    pub fn held_back(&self, controller: &str) {
        self.0.held_back.with_label_values(&[controller]).inc();
    }
}

impl Families {
    fn register(&self) {
        let families: [Box<dyn Collector>; 15] = [
            Box::new(self.queue_adds.clone()),
            Box::new(self.queue_retries.clone()),
            Box::new(self.queue_duration.clone()),
            Box::new(self.work_duration.clone()),
            Box::new(self.running.clone()),
            Box::new(self.store_version.clone()),
            Box::new(self.requests.clone()),
            Box::new(self.request_duration.clone()),
            Box::new(self.request_size.clone()),
            Box::new(self.response_size.clone()),
            Box::new(self.throttled.clone()),
            Box::new(self.panics.clone()),
            Box::new(self.undecodable.clone()),
            Box::new(self.held_back.clone()),
            Box::new(self.leading.clone()),
        ];
        for family in families {
            self.registry.register(family).expect("names in this file are unique");
        }
    }
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("names in this file are valid")
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect("names in this file are valid")
}

fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    HistogramVec::new(options, labels).expect("names in this file are valid")
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

    /// Asks this for the state of the queue at every scrape, until it has none to give.
    pub(crate) fn watch(&self, running: impl Fn() -> Option<Running> + Send + Sync + 'static) {
        self.running.probes.lock().entry(self.name).or_default().push(Box::new(running));
    }
}

type Probe = Box<dyn Fn() -> Option<Running> + Send + Sync>;

/// The gauges that show work under way. They are read off the queues at the moment of the scrape,
/// which is fresher than any timer and costs an idle process nothing.
#[derive(Clone)]
struct RunningWork {
    probes: Arc<Mutex<BTreeMap<&'static str, Vec<Probe>>>>,
    depth: GaugeVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
}

impl RunningWork {
    fn new() -> Self {
        Self {
            probes: Arc::default(),
            depth: gauges("workqueue_depth", "Items that want work.", &["name"]),
            unfinished: gauges(
                "workqueue_unfinished_work_seconds",
                "Seconds of work that has begun and not ended. Large values mean stuck workers.",
                &["name"],
            ),
            longest: gauges(
                "workqueue_longest_running_processor_seconds",
                "Seconds the longest piece of work has taken so far.",
                &["name"],
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
            let mut sum = Running::default();
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

#[expect(clippy::cast_precision_loss, reason = "sizes of requests are far below 2^52")]
impl RequestObserver for Metrics {
    fn observed(&self, request: &ObservedRequest) {
        let (method, host) = (request.method.as_str(), &*request.host);
        let code = request.code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let families = &self.0;
        families.requests.with_label_values(&[code.as_str(), method, host]).inc();
        families.request_duration.with_label_values(&[method, host]).observe(request.duration.as_secs_f64());
        families.request_size.with_label_values(&[method, host]).observe(request.request_bytes as f64);
        if let Some(bytes) = request.response_bytes {
            families.response_size.with_label_values(&[method, host]).observe(bytes as f64);
        }
    }

    fn throttled(&self, method: &http::Method, host: &str, waited: Duration) {
        self.0.throttled.with_label_values(&[method.as_str(), host]).observe(waited.as_secs_f64());
    }
}
