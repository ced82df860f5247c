//! Metrics of caches: the observed resourceVersion and how long the delivery of a change takes.

use std::time::Duration;

use keleustes_objects::{Resource, ResourceVersion};
use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, Registry};

use super::{gauges, histograms};

/// The name under which the original's typed informers appear.
const INFORMERS: &str = "kube-controller-manager";
const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(super) struct Families {
    queued: GaugeVec,
    latency: HistogramVec,
    version: GaugeVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let labels = &["name", "group", "version", "resource"];
        Self {
            queued: gauges(
                registry,
                "informer_queued_items",
                "Objects read from the API and not yet delivered to event handlers.",
                labels,
            ),
            latency: histograms(
                registry,
                (
                    "informer_processing_latency_seconds",
                    "Time from reading a change until all event handlers have processed it.",
                ),
                labels,
                &LATENCY_BUCKETS,
            ),
            version: gauges(
                registry,
                "informer_store_resource_version",
                "The last 15 digits of the resourceVersion that a cache has observed.",
                labels,
            ),
        }
    }

    pub(super) fn of(&self, resource: &Resource) -> CacheMetrics {
        // The original builds plurals of kinds in its own way, and calls ingresses `ingresss`.
        let plural = format!("{}s", resource.kind.to_lowercase());
        let labels = [INFORMERS, &resource.group, &resource.version, &plural];
        CacheMetrics {
            queued: self.queued.with_label_values(&labels),
            latency: self.latency.with_label_values(&labels),
            version: self.version.with_label_values(&labels),
        }
    }
}

/// The metrics of one cache.
#[derive(Clone)]
pub struct CacheMetrics {
    queued: Gauge,
    latency: Histogram,
    version: Gauge,
}

impl CacheMetrics {
    /// This many objects have been read and are about to be delivered. Nothing is read while others are
    /// delivered, so there is no queue behind them.
    pub(crate) fn reading(&self, objects: usize) {
        #[expect(clippy::cast_precision_loss, reason = "no list is that long")]
        self.queued.set(objects as f64);
    }

    /// The objects have been delivered, if there were any, and the cache is at this resourceVersion.
    pub(crate) fn observe_delivery(&self, version: &ResourceVersion, took: Option<Duration>) {
        self.queued.set(0.0);
        if let Some(took) = took {
            self.latency.observe(took.as_secs_f64());
        }
        self.version.set(version.gauge());
    }
}
