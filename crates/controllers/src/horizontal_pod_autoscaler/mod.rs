//! Scales the target of a HorizontalPodAutoscaler to the size that its metrics ask for.
//!
//! Every sync period, a reconcile reads the target's Scale and passes through these modules, each of them pure:
//!
//! - `proposal` turns each metric of the spec into a request to a metrics API (`metrics_api`), and the response into a
//!   number of replicas (`calculator`);
//! - `combine` selects the largest proposal and decides what a failed metric means;
//! - `normalize` limits it: stabilization windows, scaling policies, and the bounds of the spec;
//! - `status` holds the conditions.
//!
//! `memory` holds the state between reconciles, and `reconcile` alternates deciding and applying.
//!
//! Parity: pkg/controller/podautoscaler/.

mod calculator;
mod combine;
mod mapping;
mod memory;
mod metrics;
mod metrics_api;
mod normalize;
mod proposal;
mod quantity;
mod reconcile;
mod rescale;
mod status;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

use keleustes_objects::{HorizontalPodAutoscaler, Pod, PodParts};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Memory, RateLimiter};

use memory::AutoscalerMemory;
use reconcile::AutoscalerReconciler;

/// The options of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct HorizontalPodAutoscalerOptions {
    /// The number of workers.
    pub workers: usize,
    /// The time between two reconciles of an autoscaler.
    pub sync_period: Duration,
    /// For how long the highest recommendation counts, for an autoscaler that does not set it.
    pub downscale_stabilization: Duration,
    /// By how much a metric may differ from its target, for an autoscaler that does not set it.
    pub tolerance: f64,
    /// How long after its start the CPU usage of a pod counts only under conditions.
    pub cpu_initialization_period: Duration,
    /// How long after its start a change of readiness is the initial one.
    pub initial_readiness_delay: Duration,
    /// Whether a target may be scaled from zero (gate `HPAScaleToZero`).
    pub scale_to_zero: bool,
    /// Whether changes of the generation are noticed and reported (gate `HPAGeneration`).
    pub generation: bool,
    /// Whether overlapping autoscalers are all named (gate `HPAOptimizedSelectorStore` off).
    pub name_all_overlapping: bool,
    /// Whether requests of whole pods are honored (gate `PodLevelResources`).
    pub pod_level_resources: bool,
}

impl Default for HorizontalPodAutoscalerOptions {
    fn default() -> Self {
        Self {
            workers: 5,
            sync_period: DEFAULT_SYNC_PERIOD,
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
            scale_to_zero: true,
            generation: true,
            name_all_overlapping: false,
            pod_level_resources: true,
        }
    }
}

const DEFAULT_SYNC_PERIOD: Duration = Duration::from_secs(15);

impl HorizontalPodAutoscalerOptions {
    /// The sync period; the default instead of zero, with which the original crashes at start and which would be a busy
    /// loop here.
    fn period(&self) -> Duration {
        if self.sync_period.is_zero() { DEFAULT_SYNC_PERIOD } else { self.sync_period }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: &HorizontalPodAutoscalerOptions) -> Controller {
    Controller::new("horizontal-pod-autoscaler-controller")
        .service_account("horizontal-pod-autoscaler")
        .event_component("horizontal-pod-autoscaler")
        .may_write(&[
            Grant {
                group: "autoscaling",
                resource: "horizontalpodautoscalers",
                verbs: &["get", "list", "watch"],
            },
            Grant { group: "autoscaling", resource: "horizontalpodautoscalers/status", verbs: &["update"] },
            Grant { group: "*", resource: "*/scale", verbs: &["get", "update"] },
            Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
            Grant { group: "metrics.k8s.io", resource: "pods", verbs: &["list", "watch"] },
            Grant { group: "custom.metrics.k8s.io", resource: "*", verbs: &["get", "list", "watch"] },
            Grant { group: "external.metrics.k8s.io", resource: "*", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .metrics(metrics::ALL)
        .with_loop(the_loop(options))
}

fn the_loop(options: &HorizontalPodAutoscalerOptions) -> Loop {
    let memory = Memory::<AutoscalerMemory>::default();
    let period = options.period();
    let (registry, notices_generation) = (memory.clone(), options.generation);
    // Every retry waits for exactly one period, and there is no limit over all items.
    let limiter = RateLimiter {
        base_delay: period,
        max_delay: period,
        retries_per_second: 1e9,
        retries_burst: 1_000_000_000,
    };
    Loop::reconciling("horizontalpodautoscaler", AutoscalerReconciler::new(options.clone(), memory))
        .workers(options.workers)
        .rate_limited_by(limiter)
        .resync_every(period)
        .keyed_by::<HorizontalPodAutoscaler>()
        .enqueue_on::<HorizontalPodAutoscaler>(move |change, _, queue| {
            autoscaler_changed(change, queue, &registry, notices_generation, period);
        })
        .reads_unwatched::<Pod>("every autoscaler is reconciled again after each period")
        .reads_pod_parts(PodParts::RESOURCES)
}

/// Enqueues a new autoscaler and one whose spec has changed at once, any other after one period. A deleted one is not
/// enqueued: the item that is pending for it finds it gone.
fn autoscaler_changed(
    change: &Change<HorizontalPodAutoscaler>,
    queue: &mut Effects,
    registry: &Memory<AutoscalerMemory>,
    notices_generation: bool,
    period: Duration,
) {
    let key = &change.latest().meta.key;
    let Some(new) = change.new() else {
        let registered = registry.with(|memory| {
            memory.deregister(key);
            memory.registered()
        });
        return queue.measure(metrics::autoscalers(registered));
    };
    let is_new =
        change.old().is_none_or(|old| notices_generation && old.meta.generation != new.meta.generation);
    if !is_new {
        return queue.add_after(key, period);
    }
    let registered = registry.with(|memory| {
        memory.register(key);
        memory.registered()
    });
    queue.measure(metrics::autoscalers(registered));
    queue.add(key);
}
