//! Answers each ResourcePoolStatusRequest once, with the device counts of the pools of a driver, and deletes old requests.
//!
//! The answer is computed from the ResourceSlices, ResourceClaims and DeviceTaintRules of the caches when the request is
//! reconciled, and never changes afterwards. A pool of which slices are missing keeps its request from being answered; after
//! five retries the request waits for its next update or resync, or for its deletion after a day.
//!
//! The controller runs with the feature gate `DRAResourcePoolStatus`, which is off by default. An API server that does not
//! serve one of the kinds only keeps this controller from starting.
//!
//! Parity: pkg/controller/resourcepoolstatusrequest.

mod cleanup;
mod metrics;
mod partitions;
mod pools;
mod shareable;
#[cfg(test)]
mod tests;

use std::time::Duration;

use keleustes_objects::{DeviceTaintRule, Key, PoolClaim, PoolSlice, ResourcePoolStatusRequest};
use keleustes_plan::{
    Change, Context, Controller, Edited, Effects, Grant, Loop, Outcome, Pass, Plan, ReconcileError,
    Reconciler, Requeue, View, Write,
};
use serde_json::{Value, json};

use self::pools::PoolAnswer;

/// Options of the controller of pool status requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePoolStatusOptions {
    /// The feature gate `DRAResourcePoolStatus`.
    pub enabled: bool,
    /// The feature gate `DRADeviceTaintRules`: rules make devices unavailable.
    pub enable_taint_rules: bool,
}

impl Default for ResourcePoolStatusOptions {
    fn default() -> Self {
        Self { enabled: false, enable_taint_rules: true }
    }
}

/// The condition of an answered request.
const COMPLETE: &str = "Complete";
/// The condition of a request whose answer could not be computed. Only the original writes it.
const FAILED: &str = "Failed";
/// How many pools a status lists if the request sets no limit.
const LIMIT_DEFAULT: i32 = 100;
/// Why a change of a pool enqueues no request.
const ANSWERED_ONCE: &str = "a request is answered once, with the state of that moment";
/// The name of a request is tried six times.
const MAX_RETRIES: u32 = 5;

/// Builds the controller, if its feature gate is enabled.
#[must_use]
pub fn controller_if_enabled(options: ResourcePoolStatusOptions) -> Option<Controller> {
    options.enabled.then(|| controller(options))
}

fn controller(options: ResourcePoolStatusOptions) -> Controller {
    let mut answering = Loop::reconciling("resourcepoolstatusrequest", Answering { options })
        .keyed_by::<ResourcePoolStatusRequest>()
        .enqueue_on::<ResourcePoolStatusRequest>(request_changed)
        .reads_unwatched::<PoolSlice>(ANSWERED_ONCE)
        .reads_unwatched::<PoolClaim>(ANSWERED_ONCE)
        .max_retries(MAX_RETRIES);
    let mut cleaning = Loop::deciding("resourcepoolstatusrequest_cleanup", cleanup::decide)
        .reads::<ResourcePoolStatusRequest>()
        .reads::<PoolSlice>()
        .reads::<PoolClaim>()
        .initial_item(Pass);
    if options.enable_taint_rules {
        answering = answering.reads_unwatched::<DeviceTaintRule>(ANSWERED_ONCE);
        cleaning = cleaning.reads::<DeviceTaintRule>();
    }
    Controller::new("resourcepoolstatusrequest-controller")
        .service_account("resourcepoolstatusrequest-controller")
        .may_write(GRANTS)
        .metrics([&metrics::PROCESSED, &metrics::ERRORS, &metrics::DURATION])
        .with_loop(answering)
        .with_loop(cleaning)
}

const GROUP: &str = "resource.k8s.io";

const GRANTS: &[Grant] = &[
    Grant {
        group: GROUP,
        resource: "resourcepoolstatusrequests",
        verbs: &["get", "list", "watch", "delete"],
    },
    Grant { group: GROUP, resource: "resourcepoolstatusrequests/status", verbs: &["update", "patch"] },
    Grant { group: GROUP, resource: "resourceslices", verbs: &["get", "list", "watch"] },
    Grant { group: GROUP, resource: "resourceclaims", verbs: &["get", "list", "watch"] },
    Grant { group: GROUP, resource: "devicetaintrules", verbs: &["get", "list", "watch"] },
    Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
    Grant { group: "events.k8s.io", resource: "events", verbs: &["create", "patch", "update"] },
];

fn request_changed(change: &Change<ResourcePoolStatusRequest>, _: &View<'_>, enqueue: &mut Effects) {
    if let Some(request) = change.new().filter(|request| request.conditions.is_none()) {
        enqueue.add(&request.meta.key);
    }
}

struct Answering {
    options: ResourcePoolStatusOptions,
}

impl Reconciler for Answering {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let begun = monotonic(cx);
        let answer = cx.gather(|view| {
            let request = view.get::<ResourcePoolStatusRequest>(item)?.clone();
            if request.conditions.is_some() {
                return None;
            }
            let pools = pools::of_request(view, &request, self.options.enable_taint_rules);
            Some(answer(&request, pools, view).map(|status| (request, status)))
        });
        let Some(answer) = answer else { return Ok(Requeue::Forget) };
        let (request, status) = answer?;
        let applied = cx.apply(Plan::of(write(&request, status))).await;
        let driver = &[request.driver.as_str()];
        let sent = applied
            .outcomes
            .first()
            .filter(|outcome| matches!(outcome, Outcome::Done { .. } | Outcome::Failed(_)));
        if let Some(outcome) = sent {
            if matches!(outcome, Outcome::Failed(_)) {
                cx.measure(metrics::ERRORS.increment(driver));
            }
            cx.measure(metrics::PROCESSED.increment(driver));
            let seconds = monotonic(cx).saturating_sub(begun).as_secs_f64();
            cx.measure(metrics::DURATION.measurement(driver, seconds));
        }
        applied.all_done().map(|()| Requeue::Forget)
    }
}

fn monotonic(cx: &Context<'_>) -> Duration {
    cx.gather(|view| view.now().monotonic)
}

/// The status of a request, or an error if a listed pool is incomplete.
fn answer(
    request: &ResourcePoolStatusRequest,
    pools: Vec<PoolAnswer>,
    view: &View<'_>,
) -> Result<Value, ReconcileError> {
    let pool_count = pools.len();
    let limit = usize::try_from(request.limit.unwrap_or(LIMIT_DEFAULT)).unwrap_or_default();
    let listed: Vec<PoolAnswer> = pools.into_iter().take(limit).collect();
    if listed.iter().any(|pool| pool.is_incomplete) {
        return Err(ReconcileError::because("incomplete pools detected, requeueing"));
    }
    let flawed = listed.iter().filter(|pool| pool.has_validation_error()).count();
    let mut message = format!("Calculated status for {} pools", listed.len());
    if flawed > 0 {
        message = format!("{message} ({flawed} incomplete)");
    }
    let mut status = json!({
        "poolCount": pool_count,
        "conditions": [{
            "type": COMPLETE,
            "status": "True",
            "lastTransitionTime": view.now().wall,
            "reason": "CalculationComplete",
            "message": message,
        }],
    });
    if !listed.is_empty() {
        status["pools"] = listed.into_iter().map(|pool| pool.status).collect();
    }
    Ok(status)
}

/// Writes the status of a request that has none. If the request is not the one that was answered, nothing is written:
/// the event of the change enqueues it again as long as it has no status.
fn write(request: &ResourcePoolStatusRequest, status: Value) -> Write {
    let change = move |live: &mut Value| {
        if !live["status"].is_null() {
            return Edited::Unneeded;
        }
        live["status"] = status.clone();
        Edited::Changed
    };
    Write::edit(request, change)
        .on_subresource("status")
        .expected_resource_version(&request.meta.resource_version)
        .because("the pools were counted")
}
