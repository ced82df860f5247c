//! Counts every pod once: a pod keeps its finalizer until the status lists it as uncounted, and leaves that
//! list only after the finalizer is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{ErrorReason, JobStatus, Pod, PodPhase, Uid};
use keleustes_plan::{OnFailure, PatchKind, Plan, Write};
use serde_json::json;

use super::failure_policy::FailurePolicyAction;
use super::verdict::JobVerdict;
use super::view::{JobView, Member};
use super::{TRACKING_FINALIZER, status};

/// The maximum number of pods that one reconcile counts. It bounds the size of the status, and a large Job
/// does not block other Jobs.
const UNCOUNTED_MAX: usize = 500;

/// The pods that one reconcile counts.
pub(super) struct Counted {
    /// The status to write before any finalizer is removed.
    pub(super) status: JobStatus,
    /// The pods whose finalizers are removed after that write.
    pub(super) pods_to_untrack: Vec<Arc<Pod>>,
    /// Pods that have the finalizer.
    pub(super) uids_with_finalizer: BTreeSet<Uid>,
    /// Whether more pods must be counted than one reconcile counts.
    pub(super) is_partial: bool,
    /// The number of failures that a rule of the failure policy matched, by action.
    pub(super) failures_by_policy_action: BTreeMap<FailurePolicyAction, i32>,
}

/// Counts finished pods, starting from this status.
pub(super) fn count(inputs: &JobView, mut status: JobStatus, verdict: Option<&JobVerdict>) -> Counted {
    let tracked = || inputs.members.iter().filter(|member| member.has_tracking_finalizer);
    let uids_with_finalizer: BTreeSet<Uid> = tracked().map(|member| member.pod.meta.uid.clone()).collect();
    count_pods_without_finalizer(&mut status, &uids_with_finalizer);
    let mut counted = Counted {
        status,
        pods_to_untrack: Vec::new(),
        uids_with_finalizer,
        is_partial: false,
        failures_by_policy_action: BTreeMap::new(),
    };
    let mut members: Vec<&Member> = tracked().collect();
    if inputs.job.is_indexed() {
        members.sort_by_key(|member| member.index);
    }
    let mut new_indexes = BTreeSet::new();
    for member in members {
        if !may_remove_finalizer(inputs, member, verdict) {
            continue;
        }
        counted.pods_to_untrack.push(member.pod.clone());
        counted.count_pod(inputs, member, verdict, &mut new_indexes);
        let uncounted = counted.status.uncounted_terminated_pods.get_or_insert_default();
        if new_indexes.len() + uncounted.succeeded.len() + uncounted.failed.len() >= UNCOUNTED_MAX {
            counted.is_partial = true;
            break;
        }
    }
    counted.set_indexes(inputs);
    if let Some(verdict) = verdict {
        let interim = verdict.interim(inputs.now);
        if !status::has_interim_condition(&counted.status, &interim) {
            status::set(&mut counted.status.conditions, interim);
        }
    }
    counted
}

/// Whether the finalizer of a pod may be removed.
fn may_remove_finalizer(inputs: &JobView, member: &Member, verdict: Option<&JobVerdict>) -> bool {
    let is_finishing = inputs.job.meta.deletion_timestamp.is_some() || verdict.is_some();
    is_finishing
        || member.pod.phase == PodPhase::Succeeded
        || (inputs.is_failed(&member.pod) && !inputs.awaits_replacement(member))
}

impl Counted {
    fn count_pod(
        &mut self,
        inputs: &JobView,
        member: &Member,
        verdict: Option<&JobVerdict>,
        new_indexes: &mut BTreeSet<i64>,
    ) {
        let uid = &member.pod.meta.uid;
        let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
        if inputs.uncounted.failed.contains(uid) {
            return;
        }
        let fails_with_job = verdict.is_some_and(|verdict| !verdict.is_success);
        if member.pod.phase == PodPhase::Succeeded {
            match &inputs.indexes {
                // `status.completedIndexes` is a set, so pods of an index cannot be counted twice and need
                // no list.
                Some(indexes) => {
                    let index = inputs.index_in_range(member);
                    new_indexes.extend(index.filter(|index| !indexes.previously_succeeded.contains(*index)));
                }
                None if inputs.uncounted.succeeded.contains(uid) => {}
                None => uncounted.succeeded.push(uid.clone()),
            }
        } else if (inputs.is_failed(&member.pod) || fails_with_job) && inputs.is_in_range(member) {
            let policy_match = inputs.failure_policy_match(&member.pod);
            if let Some(action) = policy_match.action {
                *self.failures_by_policy_action.entry(action).or_default() += 1;
            }
            if policy_match.counts_as_failure() {
                uncounted.failed.push(uid.clone());
            }
        }
    }

    fn set_indexes(&mut self, inputs: &JobView) {
        let Some(indexes) = &inputs.indexes else { return };
        self.status.succeeded = indexes.succeeded.count();
        self.status.completed_indexes = indexes.succeeded.to_string().into();
        self.status.failed_indexes = indexes.failed.as_ref().map(|failed| failed.to_string().into());
    }

    pub(super) fn remove_finalizers(&self) -> Plan {
        let mut plan = Plan::none();
        let remove = |pod: &Arc<Pod>| remove_tracking_finalizer(pod, "the Job status counts the pod");
        plan.push_parallel(self.pods_to_untrack.iter().map(remove).collect());
        plan
    }
}

/// Moves pods without the finalizer from the uncounted lists to the counters.
pub(super) fn count_pods_without_finalizer(status: &mut JobStatus, uids_with_finalizer: &BTreeSet<Uid>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    for (list, counter) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let listed = list.len();
        list.retain(|uid| uids_with_finalizer.contains(uid));
        *counter += i32::try_from(listed - list.len()).unwrap_or(i32::MAX);
    }
}

/// Whether the uncounted lists are empty.
pub(super) fn has_no_uncounted_pods(status: &JobStatus) -> bool {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.is_none_or(|uncounted| uncounted.succeeded.is_empty() && uncounted.failed.is_empty())
}

/// Removes the tracking finalizer from a pod.
pub(super) fn remove_tracking_finalizer(pod: &Pod, because: &'static str) -> Write {
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    Write::patch(pod, PatchKind::Strategic, body)
        .ignoring_errors(&[ErrorReason::NotFound])
        .on_failure(OnFailure::ContinueAndRetry)
        .because(because)
}
