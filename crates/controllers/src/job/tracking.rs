//! Counts every pod once: a pod keeps its finalizer until the status says that it is about to be counted,
//! and leaves that list only when the finalizer is off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{ErrorReason, JobStatus, Pod, PodPhase, Uid};
use keleustes_plan::{OnFailure, PatchKind, Plan, Write};
use serde_json::json;

use super::failure_policy::FailurePolicyAction;
use super::verdict::JobVerdict;
use super::view::{JobView, Member};
use super::{TRACKING_FINALIZER, status};

/// The most pods that one turn counts, so that a status stays small and no Job starves others.
const UNCOUNTED_MAX: usize = 500;

/// What a turn counts.
pub(super) struct Counted {
    /// The status to be written before anybody is let go.
    pub(super) status: JobStatus,
    /// The pods to be let go after that.
    pub(super) pods_to_untrack: Vec<Arc<Pod>>,
    /// Pods that hold the finalizer.
    pub(super) holding: BTreeSet<Uid>,
    /// Whether there are more pods to count than one turn does.
    pub(super) is_partial: bool,
    /// How many of them a rule of the failure policy fitted, by its action.
    pub(super) by_policy: BTreeMap<FailurePolicyAction, i32>,
}

/// Counts the pods that have ended, on top of a status.
pub(super) fn count(facts: &JobView, mut status: JobStatus, end: Option<&JobVerdict>) -> Counted {
    let held = || facts.members.iter().filter(|member| member.held);
    let holding: BTreeSet<Uid> = held().map(|member| member.pod.meta.uid.clone()).collect();
    settle(&mut status, &holding);
    let mut counted = Counted {
        status,
        pods_to_untrack: Vec::new(),
        holding,
        is_partial: false,
        by_policy: BTreeMap::new(),
    };
    let mut members: Vec<&Member> = held().collect();
    if facts.job.is_indexed() {
        members.sort_by_key(|member| member.index);
    }
    let mut new_indexes = BTreeSet::new();
    for member in members {
        if !may_be_released(facts, member, end) {
            continue;
        }
        counted.pods_to_untrack.push(member.pod.clone());
        counted.count_one(facts, member, end, &mut new_indexes);
        let uncounted = counted.status.uncounted_terminated_pods.get_or_insert_default();
        if new_indexes.len() + uncounted.succeeded.len() + uncounted.failed.len() >= UNCOUNTED_MAX {
            counted.is_partial = true;
            break;
        }
    }
    counted.tell_indexes(facts);
    if let Some(end) = end {
        let interim = end.interim(facts.now);
        if !status::has_interim_condition(&counted.status, &interim) {
            status::set(&mut counted.status.conditions, interim);
        }
    }
    counted
}

/// Whether a pod need not be kept any longer.
fn may_be_released(facts: &JobView, member: &Member, end: Option<&JobVerdict>) -> bool {
    let is_over = facts.job.meta.deletion_timestamp.is_some() || end.is_some();
    is_over
        || member.pod.phase == PodPhase::Succeeded
        || (facts.is_failed(&member.pod) && !facts.awaits_replacement(member))
}

impl Counted {
    fn count_one(
        &mut self,
        facts: &JobView,
        member: &Member,
        end: Option<&JobVerdict>,
        new_indexes: &mut BTreeSet<i64>,
    ) {
        let uid = &member.pod.meta.uid;
        let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
        if uncounted.failed.contains(uid) {
            return;
        }
        let fails_with_job = end.is_some_and(|end| !end.is_success);
        if member.pod.phase == PodPhase::Succeeded {
            match &facts.indexes {
                // An index cannot be counted twice, so its pods need no list.
                Some(indexes) => {
                    let index = facts.index_in_range(member);
                    new_indexes.extend(index.filter(|index| !indexes.counted.has(*index)));
                }
                None if uncounted.succeeded.contains(uid) => {}
                None => uncounted.succeeded.push(uid.clone()),
            }
        } else if (facts.is_failed(&member.pod) || fails_with_job) && facts.is_in_range(member) {
            let judgement = facts.judgement(&member.pod);
            if let Some(action) = judgement.action {
                *self.by_policy.entry(action).or_default() += 1;
            }
            if judgement.counts() {
                uncounted.failed.push(uid.clone());
            }
        }
    }

    fn tell_indexes(&mut self, facts: &JobView) {
        let Some(indexes) = &facts.indexes else { return };
        self.status.succeeded = indexes.succeeded.count();
        self.status.completed_indexes = indexes.succeeded.to_string().into();
        self.status.failed_indexes = indexes.failed.as_ref().map(|failed| failed.to_string().into());
    }

    /// Takes the finalizers off.
    pub(super) fn remove_finalizers(&self) -> Plan {
        let mut plan = Plan::none();
        let release = |pod: &Arc<Pod>| release(pod, "its Job has counted it");
        plan.push_parallel(self.pods_to_untrack.iter().map(release).collect());
        plan
    }
}

/// Moves pods that have lost the finalizer from the lists into the counters.
pub(super) fn settle(status: &mut JobStatus, holding: &BTreeSet<Uid>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    for (list, counter) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let before = list.len();
        list.retain(|uid| holding.contains(uid));
        *counter += i32::try_from(before - list.len()).unwrap_or(i32::MAX);
    }
}

/// Whether nobody is left on the lists.
pub(super) fn is_settled(status: &JobStatus) -> bool {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.is_none_or(|uncounted| uncounted.succeeded.is_empty() && uncounted.failed.is_empty())
}

/// Takes the finalizer off a pod.
pub(super) fn release(pod: &Pod, because: &'static str) -> Write {
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    Write::patch(pod, PatchKind::Strategic, body)
        .ignoring_errors(&[ErrorReason::NotFound])
        .on_failure(OnFailure::ContinueAndRetry)
        .because(because)
}
