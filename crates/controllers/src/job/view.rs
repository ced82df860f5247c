//! The inputs of a reconcile: a Job, its pods, and their counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{ArcStr, Job, Key, Pod, PodPhase, Time, Uid, UncountedTerminatedPods};
use keleustes_plan::{Context, Memory, ReconcileError, View};

use super::backoff::{BackoffRecord, finished_at};
use super::failure_policy::{FailurePolicyMatch, match_failure_policy};
use super::indexes::Indexes;
use super::memory::JobMemory;
use super::{JobOptions, TRACKING_FINALIZER, has_tracking_finalizer, is_tracked_or_adopted};
use crate::workloads::adoption::{Claimed, claim_if};
use crate::workloads::owners::controlled_by_or_orphans;

/// What the caches hold for a key.
pub(super) enum Gathered {
    /// The Job is deleted or finished.
    NotFoundOrFinished,
    /// Another controller manages the Job (`spec.managedBy`).
    ManagedExternally,
    /// The completion mode is unknown.
    UnknownCompletionMode(Arc<Job>),
    /// The selector is missing or invalid.
    InvalidSelector(Arc<Job>),
    /// The Job must be reconciled, after its pods are claimed.
    Reconcile(GatheredJob),
}

/// A Job and the pods to claim.
pub(super) struct GatheredJob {
    pub(super) job: Arc<Job>,
    pods: Claimed<Pod>,
    now: Time,
}

/// A Job, its pods, and their counts.
pub(super) struct JobView {
    pub(super) job: Arc<Job>,
    /// Its pods, including those just adopted.
    pub(super) members: Vec<Member>,
    /// Pods that the status lists as uncounted.
    pub(super) uncounted: UncountedPods,
    pub(super) now: Time,
    /// When the Job started; now, if this reconcile starts it.
    pub(super) start_time: Option<Time>,
    /// The number of succeeded pods, or of succeeded indexes of an Indexed Job.
    pub(super) succeeded: i32,
    /// The number of failures that count towards the backoff limit.
    pub(super) failed: i32,
    /// The failures since the last success, including those that this reconcile counts.
    pub(super) backoff: BackoffRecord,
    /// The indexes of an Indexed Job.
    pub(super) indexes: Option<IndexView>,
    /// The PodGroup of new pods.
    pub(super) pod_group: Option<ArcStr>,
}

/// The pods that the status lists as uncounted.
pub(super) struct UncountedPods {
    pub(super) succeeded: BTreeSet<Uid>,
    pub(super) failed: BTreeSet<Uid>,
}

impl UncountedPods {
    fn of(job: &Job) -> Self {
        let lists = job.status.uncounted_terminated_pods.as_ref();
        let set = |list: fn(&UncountedTerminatedPods) -> &Vec<Uid>| {
            lists.map(list).into_iter().flatten().cloned().collect()
        };
        Self { succeeded: set(|lists| &lists.succeeded), failed: set(|lists| &lists.failed) }
    }
}

/// The states of the indexes of an Indexed Job.
pub(super) struct IndexView {
    /// Succeeded indexes according to the status.
    pub(super) previously_succeeded: Indexes,
    /// Succeeded indexes, including those of pods not counted yet.
    pub(super) succeeded: Indexes,
    /// Failed indexes, with a backoff limit per index only.
    pub(super) failed: Option<Indexes>,
    /// With a backoff limit per index: the failed pod to replace, by index. It keeps its finalizer until the
    /// replacement exists.
    pub(super) pods_to_replace: BTreeMap<i64, Arc<Pod>>,
}

#[derive(Clone)]
pub(super) struct Member {
    pub(super) pod: Arc<Pod>,
    /// Whether it has the tracking finalizer and so is not counted for good. An earlier removal that the
    /// cache does not show yet is taken into account.
    pub(super) has_tracking_finalizer: bool,
    /// Its completion index.
    pub(super) index: Option<i64>,
}

impl Gathered {
    pub(super) fn gather(view: &View<'_>, item: &Key, options: &JobOptions) -> Self {
        let Some(job) = view.get::<Job>(item) else { return Self::NotFoundOrFinished };
        if options.is_managed_externally(job) {
            return Self::ManagedExternally;
        }
        if job.is_finished() {
            return Self::NotFoundOrFinished;
        }
        if !job.is_indexed() && !["NonIndexed", ""].contains(&&*job.spec.completion_mode) {
            return Self::UnknownCompletionMode(job.clone());
        }
        let selector = job.spec.selector.as_ref().and_then(|selector| selector.matcher().ok());
        let Some(selector) = selector else {
            return Self::InvalidSelector(job.clone());
        };
        let candidates = controlled_by_or_orphans(view.store::<Pod>(), &**job);
        let matches = |pod: &Pod| selector.matches(&pod.meta.labels);
        let pods = claim_if(&**job, Some(TRACKING_FINALIZER), matches, candidates);
        Self::Reconcile(GatheredJob { job: job.clone(), pods, now: view.now().wall })
    }
}

impl GatheredJob {
    /// Adopts and releases pods.
    ///
    /// # Errors
    /// If one of the writes fails.
    pub(super) async fn claim_pods(
        self,
        cx: &mut Context<'_>,
        memory: &Memory<JobMemory>,
    ) -> Result<JobView, ReconcileError> {
        let Self { job, pods, now } = self;
        let (pods, meta) = (pods.apply(cx).await?, &job.meta);
        // A pod that was just adopted got the finalizer with the adoption, even if it was removed before.
        let shows_finalizer =
            |pod: &&Arc<Pod>| has_tracking_finalizer(pod) && pod.meta.controller_ref().is_some();
        let shown: BTreeSet<Uid> =
            pods.iter().filter(shows_finalizer).map(|pod| pod.meta.uid.clone()).collect();
        let removed = memory.with(|memory| memory.finalizer_removed(&meta.key, &shown));
        let member = |pod: Arc<Pod>| {
            let has_tracking_finalizer = is_tracked_or_adopted(&pod) && !removed.contains(&pod.meta.uid);
            Member { has_tracking_finalizer, index: index_of(&pod), pod }
        };
        let members = pods.into_iter().map(member).collect();
        let previous = memory.with(|memory| memory.backoff(&meta.key, &meta.uid));
        Ok(JobView::of(job, members, previous, now))
    }
}

impl JobView {
    fn of(job: Arc<Job>, members: Vec<Member>, previous: BackoffRecord, now: Time) -> Self {
        let uncounted = UncountedPods::of(&job);
        let starts = job.status.start_time.is_none() && !job.spec.suspend;
        let start_time = if starts { Some(now) } else { job.status.start_time };
        let (succeeded, failed, backoff) = (0, 0, previous);
        let (indexes, pod_group) = (None, None);
        let mut inputs =
            Self { job, members, uncounted, now, start_time, succeeded, failed, backoff, indexes, pod_group };
        inputs.count(previous);
        if inputs.job.is_indexed() {
            let indexes = IndexView::of(&inputs);
            inputs.succeeded = indexes.succeeded.count();
            inputs.indexes = Some(indexes);
        }
        inputs
    }

    /// Counts pods that the status has counted, lists as uncounted, or does not contain yet.
    fn count(&mut self, previous: BackoffRecord) {
        let is_new = |member: &&Member, listed: &BTreeSet<Uid>| {
            member.has_tracking_finalizer
                && !listed.contains(&member.pod.meta.uid)
                && self.is_in_range(member)
        };
        let listed_failed = &self.uncounted.failed;
        let succeeded = |member: &&Member| {
            // A pod that is listed as failed stays failed, so that no pod is counted as both.
            member.pod.phase == PodPhase::Succeeded
                && is_new(member, &self.uncounted.succeeded)
                && !listed_failed.contains(&member.pod.meta.uid)
        };
        let failed = |member: &&Member| self.is_failed(&member.pod) && is_new(member, listed_failed);
        let counts = |member: &&Member| self.failure_policy_match(&member.pod).counts_as_failure();
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let pods = || self.members.iter();
        let new_succeeded = pods().filter(succeeded).count();
        let new_failed = pods().filter(failed).filter(counts).count();
        let status = &self.job.status;
        let (known_succeeded, known_failed) = (status.succeeded, status.failed);
        let backoff = previous.with_finished_pods(
            pods().filter(succeeded).map(|member| &*member.pod),
            pods().filter(failed).map(|member| &*member.pod),
        );
        self.succeeded = known_succeeded + number(new_succeeded) + number(self.uncounted.succeeded.len());
        self.failed = known_failed + number(new_failed) + number(self.uncounted.failed.len());
        self.backoff = backoff;
    }

    /// The number of indexes of an Indexed Job; meaningless for other Jobs.
    pub(super) fn completions(&self) -> i32 {
        self.job.spec.completions.unwrap_or(0)
    }

    /// Whether a pod can be counted: a pod of an Indexed Job needs a valid index.
    pub(super) fn is_in_range(&self, member: &Member) -> bool {
        !self.job.is_indexed() || self.index_in_range(member).is_some()
    }

    /// The pod's index, if it is below the number of completions.
    pub(super) fn index_in_range(&self, member: &Member) -> Option<i64> {
        member.index.filter(|index| *index < i64::from(self.completions()))
    }

    /// Whether `podReplacementPolicy` is Failed: terminating pods are replaced only after they finish.
    pub(super) fn only_replace_failed_pods(&self) -> bool {
        self.job.spec.pod_replacement_policy == *"Failed"
    }

    /// Whether a pod counts as failed.
    pub(super) fn is_failed(&self, pod: &Pod) -> bool {
        let is_terminating = pod.is_terminating() && pod.phase != PodPhase::Succeeded;
        pod.phase == PodPhase::Failed || (is_terminating && !self.only_replace_failed_pods())
    }

    /// The matching rule of the pod failure policy for a failed pod.
    pub(super) fn failure_policy_match(&self, pod: &Pod) -> FailurePolicyMatch {
        match_failure_policy(self.job.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Pods that are neither finished nor terminating.
    pub(super) fn active(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.pod.is_active())
    }

    /// Pods that are terminating and not finished.
    pub(super) fn terminating(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.pod.is_terminating() && !member.pod.is_terminal())
    }

    /// Marks pods whose finalizer has been removed.
    pub(super) fn mark_finalizer_removed(&mut self, pods: &[Arc<Pod>]) {
        let removed: BTreeSet<&Uid> = pods.iter().map(|pod| &pod.meta.uid).collect();
        for member in &mut self.members {
            member.has_tracking_finalizer &= !removed.contains(&member.pod.meta.uid);
        }
    }

    /// Whether a failed pod is kept until its replacement exists, whose annotations continue its failure
    /// count.
    pub(super) fn awaits_replacement(&self, member: &Member) -> bool {
        let kept = self.indexes.as_ref().zip(member.index);
        let kept = kept.and_then(|(indexes, index)| indexes.pods_to_replace.get(&index));
        kept.is_some_and(|kept| kept.meta.uid == member.pod.meta.uid)
    }
}

impl IndexView {
    fn of(inputs: &JobView) -> Self {
        let (status, completions) = (&inputs.job.status, inputs.completions());
        let tracked = || inputs.members.iter().filter(|member| member.has_tracking_finalizer);
        let previously_succeeded = Indexes::parse(&status.completed_indexes, completions);
        // The index of a pod that was listed as failed and then exited with 0 has succeeded as well.
        let succeeded = tracked().filter(|member| member.pod.phase == PodPhase::Succeeded);
        let succeeded =
            previously_succeeded.with(succeeded.filter_map(|member| inputs.index_in_range(member)));
        let failed = inputs.job.spec.backoff_limit_per_index.map(|limit| {
            let previously_failed =
                Indexes::parse(status.failed_indexes.as_deref().unwrap_or(""), completions);
            let failed = tracked().filter(|member| fails_index(inputs, &member.pod, limit));
            previously_failed.with(failed.filter_map(|member| inputs.index_in_range(member)))
        });
        let mut indexes = Self { previously_succeeded, succeeded, failed, pods_to_replace: BTreeMap::new() };
        indexes.find_pods_to_replace(inputs);
        indexes
    }

    /// Finds, for each index that needs a new pod, the failed pod with the most failures.
    fn find_pods_to_replace(&mut self, inputs: &JobView) {
        let Some(failed) = &self.failed else { return };
        let active: BTreeSet<i64> = inputs.active().filter_map(|member| member.index).collect();
        let needs_no_pod =
            |index: i64| self.succeeded.contains(index) || failed.contains(index) || active.contains(&index);
        for member in inputs
            .members
            .iter()
            .filter(|member| member.has_tracking_finalizer && inputs.is_failed(&member.pod))
        {
            let Some(index) = inputs.index_in_range(member).filter(|index| !needs_no_pod(*index)) else {
                continue;
            };
            let kept = self.pods_to_replace.get(&index);
            let supersedes = |kept: &Arc<Pod>| {
                total_failures(kept) <= total_failures(&member.pod)
                    && finished_at(&member.pod) >= finished_at(kept)
            };
            if kept.is_none_or(supersedes) {
                self.pods_to_replace.insert(index, member.pod.clone());
            }
        }
    }
}

/// Whether a pod is the last failure that its index's backoff limit allows.
fn fails_index(inputs: &JobView, pod: &Pod, limit: i32) -> bool {
    if !inputs.is_failed(pod) {
        return false;
    }
    let policy_match = inputs.failure_policy_match(pod);
    let fails_immediately =
        policy_match.action == Some(super::failure_policy::FailurePolicyAction::FailIndex);
    fails_immediately || (policy_match.counts_as_failure() && counted_failures(pod) >= limit)
}

/// The completion index in the pod's annotation.
fn index_of(pod: &Pod) -> Option<i64> {
    pod.completion_index()?.parse().ok().filter(|index| *index >= 0)
}

/// The failure count in the pod's annotation: failures of its index before this pod, without ignored ones.
pub(super) fn counted_failures(pod: &Pod) -> i32 {
    parse_count(pod.index_failure_count())
}

/// The ignored failures of the pod's index before this pod.
pub(super) fn ignored_failures(pod: &Pod) -> i32 {
    parse_count(pod.index_ignored_failure_count())
}

/// All failures of the pod's index before this pod.
pub(super) fn total_failures(pod: &Pod) -> i32 {
    counted_failures(pod).saturating_add(ignored_failures(pod))
}

/// A count from an annotation. A malformed or negative value is zero.
fn parse_count(text: Option<&str>) -> i32 {
    text.and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}
