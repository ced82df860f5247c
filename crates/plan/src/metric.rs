//! Controller metrics, under the names of the original.

/// A metric family. Controllers hold theirs as statics and declare them.
#[derive(Debug)]
pub struct Metric {
    /// The full name, unique in the process.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The stability level, as in the original: `ALPHA`, `BETA` or `STABLE`.
    pub stability: &'static str,
    /// The label names.
    pub labels: &'static [&'static str],
    /// The metric type.
    pub metric_type: MetricType,
}

/// The type of a metric, which decides what a measurement does to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricType {
    /// Adds the value.
    Counter,
    /// Sets the value.
    Gauge,
    /// Counts the value in its bucket.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// These bounds.
    Explicit(&'static [f64]),
    /// Bounds that grow by a constant factor.
    Exponential {
        /// The first bound.
        first: f64,
        /// The factor from one bound to the next.
        factor: f64,
        /// The number of bounds.
        count: u16,
    },
}

/// One measurement of a metric.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The metric.
    pub metric: &'static Metric,
    /// The label values, in the order of the label names.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
    /// Whether the series with these label values is removed instead; the value does not matter then.
    pub is_removal: bool,
}

impl Metric {
    /// A counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self::new(name, help, labels, MetricType::Counter)
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self::new(name, help, labels, MetricType::Gauge)
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: Buckets,
    ) -> Self {
        Self::new(name, help, labels, MetricType::Histogram(buckets))
    }

    const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        form: MetricType,
    ) -> Self {
        Self { name, help, stability: "ALPHA", labels, metric_type: form }
    }

    /// Sets the stability level to `BETA` or `STABLE` instead of `ALPHA`.
    #[must_use]
    pub const fn with_stability(mut self, stability: &'static str) -> Self {
        self.stability = stability;
        self
    }

    /// A measurement of this value; the metric type decides what it does.
    ///
    /// # Panics
    /// If the number of label values differs from the number of label names.
    #[must_use]
    pub fn measurement(&'static self, labels: &[&str], value: f64) -> Measurement {
        assert_eq!(labels.len(), self.labels.len(), "wrong number of label values for {}", self.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Measurement { metric: self, labels, value, is_removal: false }
    }

    /// Removes the series with these label values, for a metric whose series come and go with what they describe.
    ///
    /// # Panics
    /// If the number of label values differs from the number of label names.
    #[must_use]
    pub fn removal(&'static self, labels: &[&str]) -> Measurement {
        Measurement { is_removal: true, ..self.measurement(labels, 0.0) }
    }

    /// Adds one to a counter.
    ///
    /// # Panics
    /// If the number of label values differs from the number of label names.
    #[must_use]
    pub fn increment(&'static self, labels: &[&str]) -> Measurement {
        self.measurement(labels, 1.0)
    }
}

impl Buckets {
    /// `prometheus.DefBuckets`, for durations in seconds.
    pub const SECONDS: Self =
        Self::Explicit(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

    /// The bounds, smallest first.
    #[must_use]
    pub fn bounds(self) -> Vec<f64> {
        match self {
            Self::Explicit(bounds) => bounds.to_vec(),
            Self::Exponential { first, factor, count } => {
                (0..count).map(|at| first * factor.powi(i32::from(at))).collect()
            }
        }
    }
}
