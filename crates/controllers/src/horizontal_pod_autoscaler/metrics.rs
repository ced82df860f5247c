//! The controller's metrics.

use std::time::Duration;

use keleustes_plan::{Buckets, Measurement, Metric};

const BUCKETS: Buckets = Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 };

static RECONCILIATIONS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "Number of reconciles by what they did to the target (scale_up, scale_down or none) and their error (spec, internal or \
     none).",
    &["action", "error"],
)
.with_stability("BETA");

static RECONCILIATION_DURATION: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "The duration of reconciles by what they did to the target (scale_up, scale_down or none) and their error (spec, \
     internal or none).",
    &["action", "error"],
    BUCKETS,
)
.with_stability("BETA");

static METRIC_COMPUTATIONS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "Number of computed metrics by what they propose (scale_up, scale_down or none), their error (spec, internal or none) \
     and their type in the spec.",
    &["action", "error", "metric_type"],
)
.with_stability("BETA");

static METRIC_COMPUTATION_DURATION: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "The time to compute a metric, by what it proposes (scale_up, scale_down or none), its error (spec, internal or none) \
     and its type in the spec.",
    &["action", "error", "metric_type"],
    BUCKETS,
)
.with_stability("BETA");

static AUTOSCALERS: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "The number of HorizontalPodAutoscalers that the controller knows.",
    &[],
);

static DESIRED_REPLICAS: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "The number of replicas that a HorizontalPodAutoscaler wants.",
    &["namespace", "hpa_name"],
);

pub(super) const ALL: [&Metric; 6] = [
    &RECONCILIATIONS,
    &RECONCILIATION_DURATION,
    &METRIC_COMPUTATIONS,
    &METRIC_COMPUTATION_DURATION,
    &AUTOSCALERS,
    &DESIRED_REPLICAS,
];

/// What a reconcile did, or a metric proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    None,
    ScaleUp,
    ScaleDown,
}

impl Act {
    /// The change between two sizes.
    pub(super) fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::ScaleUp,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
        }
    }
}

/// The label of an error: whether the spec is at fault.
fn error_label(error: Option<bool>) -> &'static str {
    match error {
        None => "none",
        Some(true) => "spec",
        Some(false) => "internal",
    }
}

/// A finished reconcile; `error` says whether the spec is at fault.
pub(super) fn reconciliation(act: Act, error: Option<bool>, took: Duration) -> [Measurement; 2] {
    let labels = [act.label(), error_label(error)];
    [RECONCILIATIONS.increment(&labels), RECONCILIATION_DURATION.measurement(&labels, took.as_secs_f64())]
}

/// A computed metric; `error` says whether the spec is at fault.
pub(super) fn computation(act: Act, error: Option<bool>, r#type: &str, took: Duration) -> [Measurement; 2] {
    let act = if error.is_some() { Act::None } else { act };
    let labels = [act.label(), error_label(error), r#type];
    [
        METRIC_COMPUTATIONS.increment(&labels),
        METRIC_COMPUTATION_DURATION.measurement(&labels, took.as_secs_f64()),
    ]
}

/// The number of known autoscalers.
#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^52 objects")]
pub(super) fn autoscalers(number: usize) -> Measurement {
    AUTOSCALERS.measurement(&[], number as f64)
}

/// The size that an autoscaler wants.
pub(super) fn desired_replicas(namespace: &str, name: &str, replicas: i32) -> Measurement {
    DESIRED_REPLICAS.measurement(&[namespace, name], f64::from(replicas))
}
