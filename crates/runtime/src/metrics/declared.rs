//! The metrics that controllers declare themselves.

use std::collections::BTreeMap;

use keleustes_plan::{Measurement, Metric, MetricType};
use parking_lot::RwLock;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry};

use super::registered;

/// Declared metrics, by name.
#[derive(Default)]
pub(super) struct Families(RwLock<BTreeMap<&'static str, Family>>);

enum Family {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl Families {
    pub(super) fn declare(&self, registry: &Registry, metric: &'static Metric) {
        self.0.write().entry(metric.name).or_insert_with(|| Family::new(registry, metric));
    }

    pub(super) fn measure(&self, measurement: &Measurement) {
        let Measurement { metric, labels, value, is_removal } = measurement;
        let families = self.0.read();
        let family = families.get(metric.name);
        let family = family.unwrap_or_else(|| panic!("{} is observed without being declared", metric.name));
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        if *is_removal {
            family.remove(&labels);
            return;
        }
        match family {
            Family::Counter(counter) => counter.with_label_values(&labels).inc_by(*value),
            Family::Gauge(gauge) => gauge.with_label_values(&labels).set(*value),
            Family::Histogram(histogram) => histogram.with_label_values(&labels).observe(*value),
        }
    }
}

impl Family {
    fn new(registry: &Registry, metric: &'static Metric) -> Self {
        let help = format!("[{}] {}", metric.stability, metric.help);
        let (options, labels) = (Opts::new(metric.name, help), metric.labels);
        let family = match metric.metric_type {
            MetricType::Counter => CounterVec::new(options, labels).map(Self::Counter),
            MetricType::Gauge => GaugeVec::new(options, labels).map(Self::Gauge),
            MetricType::Histogram(buckets) => {
                let options = HistogramOpts::from(options).buckets(buckets.bounds());
                HistogramVec::new(options, labels).map(Self::Histogram)
            }
        };
        let family = family.unwrap_or_else(|error| panic!("{} cannot be a metric: {error}", metric.name));
        match &family {
            Self::Counter(counter) => drop(registered(registry, counter.clone())),
            Self::Gauge(gauge) => drop(registered(registry, gauge.clone())),
            Self::Histogram(histogram) => drop(registered(registry, histogram.clone())),
        }
        // A metric without labels is present from the start, at zero.
        if labels.is_empty() {
            family.initialize();
        }
        family
    }

    /// Removes a series.
    fn remove(&self, labels: &[&str]) {
        // The error says that there is no such series.
        let _ = match self {
            Self::Counter(counter) => counter.remove_label_values(labels),
            Self::Gauge(gauge) => gauge.remove_label_values(labels),
            Self::Histogram(histogram) => histogram.remove_label_values(labels),
        };
    }

    fn initialize(&self) {
        match self {
            Self::Counter(counter) => drop(counter.with_label_values::<&str>(&[])),
            Self::Gauge(gauge) => drop(gauge.with_label_values::<&str>(&[])),
            Self::Histogram(histogram) => drop(histogram.with_label_values::<&str>(&[])),
        }
    }
}

#[cfg(test)]
mod tests {
    use keleustes_plan::Buckets;

    use crate::metrics::Metrics;

    use super::*;

    static COUNTED: Metric = Metric::counter("counted_total", "Counts.", &["by"]);
    static LEVEL: Metric = Metric::gauge("level", "A level.", &[]);
    static SIZES: Metric =
        Metric::histogram("sizes", "Sizes.", &[], Buckets::Exponential { first: 1.0, factor: 2.0, count: 3 });

    #[test]
    fn declared_metrics_are_exposed_in_prometheus_text() {
        let metrics = Metrics::new();
        for metric in [&COUNTED, &LEVEL, &SIZES, &COUNTED] {
            metrics.declare(metric);
        }
        assert!(metrics.text().contains("\nlevel 0\n"), "a metric without labels is present from the start");
        metrics.measure(&COUNTED.increment(&["x"]));
        metrics.measure(&COUNTED.increment(&["x"]));
        metrics.measure(&LEVEL.measurement(&[], 7.0));
        metrics.measure(&SIZES.measurement(&[], 3.0));
        let text = metrics.text();
        for line in ["counted_total{by=\"x\"} 2\n", "\nlevel 7\n", "sizes_bucket{le=\"4\"} 1\n"] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(text.contains("# HELP level [ALPHA] A level.\n"));
    }

    #[test]
    fn a_removed_series_is_not_exposed() {
        let metrics = Metrics::new();
        metrics.declare(&COUNTED);
        metrics.measure(&COUNTED.increment(&["x"]));
        metrics.measure(&COUNTED.increment(&["y"]));
        metrics.measure(&COUNTED.removal(&["x"]));
        metrics.measure(&COUNTED.removal(&["z"]));
        let text = metrics.text();
        assert!(text.contains("counted_total{by=\"y\"} 1\n") && !text.contains("by=\"x\""), "{text}");
    }
}
