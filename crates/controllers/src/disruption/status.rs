//! The status of a budget from its pods, its granted evictions and the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{
    ArcStr, Condition, Conditions as _, FALSE, Pod, PodDisruptionBudget, PodDisruptionBudgetStatus, TRUE,
    Time,
};
use keleustes_plan::Now;

use super::DELETION_TIMEOUT;
use super::counts::PodCounts;

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";
const SUFFICIENT_PODS: &str = "SufficientPods";
const INSUFFICIENT_PODS: &str = "InsufficientPods";
const SYNC_FAILED: &str = "SyncFailed";

/// The granted evictions of a budget whose pods are not terminating yet.
#[derive(Debug, Default)]
pub(super) struct GrantedEvictions {
    /// Those that are at most two minutes old, by the name of the pod.
    pub(super) pending: BTreeMap<ArcStr, Option<Time>>,
    /// The pods of the older ones.
    pub(super) overdue: Vec<Arc<Pod>>,
    /// When the first of the pending ones becomes two minutes old.
    pub(super) recheck_at: Option<Time>,
}

impl GrantedEvictions {
    /// The evictions of `status.disruptedPods` that the pods do not show yet. Entries are compared with pods by name only.
    pub(super) fn of(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Now) -> Self {
        let mut granted = Self::default();
        for pod in pods.iter().filter(|pod| !pod.is_terminating()) {
            let name = &pod.meta.key.name;
            let Some(at) = budget.status.disrupted_pods.get(name) else { continue };
            // The server writes a zero time as null; it is long past.
            match at.map(deadline) {
                Some(deadline) if nanoseconds(deadline) >= now.wall_nanoseconds() => {
                    granted.pending.insert(name.clone(), *at);
                    granted.recheck_at = Some(granted.recheck_at.map_or(deadline, |at| at.min(deadline)));
                }
                _ => granted.overdue.push(pod.clone()),
            }
        }
        granted
    }

    /// Whether the pod of this name is about to be deleted. An eviction exactly two minutes old is kept in the status, but
    /// its pod counts again.
    fn is_pending(&self, name: &ArcStr, now: Now) -> bool {
        let granted_at = self.pending.get(name).copied().flatten();
        granted_at.is_some_and(|at| nanoseconds(deadline(at)) > now.wall_nanoseconds())
    }
}

fn deadline(granted_at: Time) -> Time {
    granted_at.plus_seconds(DELETION_TIMEOUT.as_secs().cast_signed())
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.unix_seconds()) * 1_000_000_000
}

/// The number of pods that are ready, not terminating and not about to be.
pub(super) fn healthy(pods: &[Arc<Pod>], granted: &GrantedEvictions, now: Now) -> i32 {
    let is_healthy = |pod: &&Arc<Pod>| {
        !pod.is_terminating() && pod.is_ready() && !granted.is_pending(&pod.meta.key.name, now)
    };
    i32::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i32::MAX)
}

/// The status that a budget should have; `None` if it has it.
pub(super) fn needed(
    budget: &PodDisruptionBudget,
    counts: PodCounts,
    current_healthy: i32,
    disrupted_pods: BTreeMap<ArcStr, Option<Time>>,
    now: Now,
) -> Option<PodDisruptionBudgetStatus> {
    let old = &budget.status;
    let PodCounts { expected, desired_healthy } = counts;
    // A budget without pods allows nothing, so that its first pods are protected before the next reconcile.
    let spare = current_healthy.saturating_sub(desired_healthy).max(0);
    let disruptions_allowed = if expected <= 0 { 0 } else { spare };
    let mut new = PodDisruptionBudgetStatus {
        observed_generation: budget.meta.generation,
        disrupted_pods,
        disruptions_allowed,
        current_healthy,
        desired_healthy,
        expected_pods: expected,
        conditions: old.conditions.clone(),
        unknown: old.unknown.clone(),
    };
    let (status, reason) =
        if disruptions_allowed > 0 { (TRUE, SUFFICIENT_PODS) } else { (FALSE, INSUFFICIENT_PODS) };
    let condition = old.conditions.of_type(DISRUPTION_ALLOWED);
    // The message, the time and the generation of the condition do not count.
    if new == *old
        && condition.is_some_and(|condition| condition.status == status && condition.reason == reason)
    {
        return None;
    }
    set_condition(&mut new, status, reason, "", now.wall);
    Some(new)
}

/// The status that allows no disruption because of an error. All numbers but one, and the generation, stay: they are not
/// calculated from this spec.
pub(super) fn fail_safe(budget: &PodDisruptionBudget, error: &str, now: Now) -> PodDisruptionBudgetStatus {
    let mut status = PodDisruptionBudgetStatus { disruptions_allowed: 0, ..budget.status.clone() };
    set_condition(&mut status, FALSE, SYNC_FAILED, error, now.wall);
    status
}

/// Sets the condition as apimachinery's `SetStatusCondition` does; the others stay.
fn set_condition(
    budget: &mut PodDisruptionBudgetStatus,
    status: &str,
    reason: &str,
    message: &str,
    now: Time,
) {
    let observed_generation = Some(budget.observed_generation);
    let found = budget.conditions.iter_mut().find(|condition| condition.r#type == DISRUPTION_ALLOWED);
    let Some(condition) = found else {
        let condition = Condition::new(DISRUPTION_ALLOWED, status, reason, message, now);
        budget.conditions.push(Condition { observed_generation, ..condition });
        return;
    };
    if condition.status != status {
        condition.status = status.into();
        condition.last_transition_time = Some(now);
    }
    condition.reason = reason.into();
    condition.message = message.into();
    condition.observed_generation = observed_generation;
}
