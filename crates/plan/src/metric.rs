//! Figures that a controller tells about its work, under the names that dashboards know.

/// A family of figures. Controllers keep theirs as statics and declare them.
#[derive(Debug)]
pub struct Metric {
    /// Its full name, unique in the process.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// How far the name may be relied on, in the original's words.
    pub stability: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What kind of figure it is.
    pub metric_type: MetricType,
}

/// What kind of figure a metric is, and so what a measurement of it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricType {
    /// Measurements add up.
    Counter,
    /// The last measurement counts.
    Gauge,
    /// Measurements are counted by size.
    Histogram(Buckets),
}

/// The sizes by which a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// These bounds.
    Explicit(&'static [f64]),
    /// So many bounds, each a multiple of the one before.
    Exponential {
        /// The first bound.
        first: f64,
        /// What each is multiplied by.
        factor: f64,
        /// How many there are.
        count: u16,
    },
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// What was measured.
    pub metric: &'static Metric,
    /// The values of its labels, in the order of their names.
    pub labels: Vec<String>,
    /// The figure.
    pub value: f64,
}

impl Metric {
    /// A figure that adds up.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self::new(name, help, labels, MetricType::Counter)
    }

    /// A figure that goes up and down.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self::new(name, help, labels, MetricType::Gauge)
    }

    /// Figures counted by size.
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

    /// Promises as much as the original does: `BETA` or `STABLE` instead of `ALPHA`.
    #[must_use]
    pub const fn with_stability(mut self, stability: &'static str) -> Self {
        self.stability = stability;
        self
    }

    /// A measurement: what it does to the figure depends on the form.
    ///
    /// # Panics
    /// If there are more or fewer values than labels.
    #[must_use]
    pub fn measurement(&'static self, labels: &[&str], value: f64) -> Measurement {
        assert_eq!(labels.len(), self.labels.len(), "{} has other labels", self.name);
        Measurement { metric: self, labels: labels.iter().map(|label| (*label).to_owned()).collect(), value }
    }

    /// Counts one.
    ///
    /// # Panics
    /// If there are more or fewer values than labels.
    #[must_use]
    pub fn increment(&'static self, labels: &[&str]) -> Measurement {
        self.measurement(labels, 1.0)
    }
}

impl Buckets {
    /// The default bounds of Prometheus libraries, made for seconds.
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
