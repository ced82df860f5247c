//! Decides what happens to the target before metrics are asked for, and after they have been.

use keleustes_objects::{Conditions as _, FALSE, HorizontalPodAutoscaler, TRUE};

use super::HorizontalPodAutoscalerOptions;
use super::normalize::{Behavior, History, Proposed};
use super::reconcile::Sync;
use super::status::{ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_LIMITED, was_scaled_to_zero};

/// What is known about the size before metrics are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The metrics decide.
    Metrics,
    /// The size is outside the bounds: it is corrected without metrics, policies or windows.
    Correct(i32, &'static str),
    /// Someone else has scaled the target to zero.
    Disabled,
}

const ABOVE_MAX: &str = "Current number of replicas above Spec.MaxReplicas";
const BELOW_MIN: &str = "Current number of replicas below Spec.MinReplicas";

/// A size and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub(super) replicas: i32,
    pub(super) reason: String,
}

/// `spec.minReplicas` with its default.
pub(super) fn min_replicas(autoscaler: &HorizontalPodAutoscaler) -> i32 {
    autoscaler.spec.min_replicas.unwrap_or(1)
}

fn has_object_or_external(autoscaler: &HorizontalPodAutoscaler) -> bool {
    autoscaler.spec.metrics.iter().any(|metric| metric.r#type == "Object" || metric.r#type == "External")
}

/// Whether the controller has scaled the target to zero and may scale it from there.
fn scaled_to_zero(autoscaler: &HorizontalPodAutoscaler, options: &HorizontalPodAutoscalerOptions) -> bool {
    options.scale_to_zero && was_scaled_to_zero(&autoscaler.status.conditions)
}

/// Decides whether metrics are needed.
pub(super) fn course(
    autoscaler: &HorizontalPodAutoscaler,
    options: &HorizontalPodAutoscalerOptions,
    current: i32,
) -> Course {
    let (min, max) = (min_replicas(autoscaler), autoscaler.spec.max_replicas);
    if current == 0 {
        let may = scaled_to_zero(autoscaler, options) && (min != 0 || has_object_or_external(autoscaler));
        return if may { Course::Metrics } else { Course::Disabled };
    }
    if current > max {
        Course::Correct(max, ABOVE_MAX)
    } else if current < min {
        Course::Correct(min, BELOW_MIN)
    } else {
        Course::Metrics
    }
}

/// Limits the proposal of the metrics, and sets the conditions that say so.
pub(super) fn normalize(
    sync: &mut Sync,
    options: &HorizontalPodAutoscalerOptions,
    history: &mut History,
    (proposal, metric): (i32, &str),
    current: i32,
) -> Desired {
    let (min, desired) = (min_replicas(&sync.autoscaler), proposal.max(0));
    let mut reason = match desired.cmp(&current) {
        // A metric that proposes nothing above zero is not named.
        std::cmp::Ordering::Greater => format!("{metric} above target"),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    let proposed = Proposed { current, desired, min, max: sync.autoscaler.spec.max_replicas };
    let (window, now) = (options.downscale_stabilization, sync.now.monotonic);
    let normalized = match &sync.autoscaler.spec.behavior {
        None => history.normalize(proposed, window, now),
        Some(behavior) => history.normalize_with(proposed, &Behavior::of(behavior, window), now),
    };
    sync.set_condition(ABLE_TO_SCALE, TRUE, normalized.able_to_scale);
    sync.set_condition(SCALING_LIMITED, if normalized.is_limited { TRUE } else { FALSE }, normalized.limited);
    let mut replicas = normalized.desired;
    if current == 0 && min != 0 && scaled_to_zero(&sync.autoscaler, options) && replicas < min {
        replicas = min;
        if reason.is_empty() {
            BELOW_MIN.clone_into(&mut reason);
        }
    }
    Desired { replicas, reason }
}

/// Sets the condition that remembers who has scaled the target to zero, after every change of its size.
pub(super) fn note_scaled(
    sync: &mut Sync,
    options: &HorizontalPodAutoscalerOptions,
    current: i32,
    desired: i32,
) {
    if !options.scale_to_zero {
        return super::status::remove_scaled_to_zero(&mut sync.status.conditions);
    }
    let autoscaler = &sync.autoscaler;
    let is_own =
        current > 0 && desired == 0 && min_replicas(autoscaler) == 0 && has_object_or_external(autoscaler);
    if is_own {
        let because = ("ScaledToZero", "the HPA controller scaled the workload to zero");
        sync.set_condition(SCALED_TO_ZERO, TRUE, because);
    } else {
        let because = ("NotScaledToZero", "the HPA controller did not scale the workload to zero");
        sync.set_condition(SCALED_TO_ZERO, FALSE, because);
    }
    debug_assert!(sync.status.conditions.of_type(SCALED_TO_ZERO).is_some());
}
