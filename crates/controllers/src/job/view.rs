//! What a turn is about: a Job, its pods, and what they come to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{Job, Pod, PodPhase, Time, Uid, UncountedTerminatedPods};
use keleustes_plan::{Context, Item, Memory, ReconcileError, View};

use super::backoff::{BackoffRecord, finished_at};
use super::failure_policy::{FailurePolicyMatch, judge};
use super::indexes::Indexes;
use super::memory::JobMemory;
use super::{TRACKING_FINALIZER, has_tracking_finalizer, is_managed_externally, is_tracked_or_adopted};
use crate::workloads::adoption::{Claimed, claim_if};
use crate::workloads::owners::{controlled_by, orphans};

/// What is to be done about a Job.
pub(super) enum Gathered {
    /// Nothing any more: it is gone, or over.
    Over,
    /// Nothing: somebody else cares for it.
    Foreign,
    /// Nothing, because it asks for something that is not known.
    Strange(Arc<Job>),
    /// Nothing until its selector makes sense.
    Stuck(&'static str),
    /// A turn. The adoptions and releases come first.
    Turn(GatheredJob),
}

/// A Job and the pods that are to be its own.
pub(super) struct GatheredJob {
    pub(super) job: Arc<Job>,
    pods: Claimed<Pod>,
    now: Time,
}

/// A Job, its pods, and what they come to.
pub(super) struct JobView {
    pub(super) job: Arc<Job>,
    /// Its pods, those just adopted among them.
    pub(super) members: Vec<Member>,
    /// Pods that the status is about to count.
    pub(super) uncounted: UncountedTerminatedPods,
    pub(super) now: Time,
    /// When it was started; now, if it starts with this turn.
    pub(super) start_time: Option<Time>,
    /// How many pods, or indexes, have succeeded so far.
    pub(super) succeeded: i32,
    /// How many failures there were so far that count.
    pub(super) failed: i32,
    /// The failures since the last success, those that this turn sees among them.
    pub(super) backoff: BackoffRecord,
    /// Of an Indexed Job: what became of its indexes.
    pub(super) indexes: Option<IndexView>,
}

/// What became of the indexes of a Job.
pub(super) struct IndexView {
    /// Those that the status knows to have succeeded.
    pub(super) counted: Indexes,
    /// Those that have succeeded so far.
    pub(super) succeeded: Indexes,
    /// Those that have failed so far, if indexes fail one by one.
    pub(super) failed: Option<Indexes>,
    /// If indexes fail one by one: the failed pod to be replaced, by index.
    pub(super) replaced: BTreeMap<i64, Arc<Pod>>,
}

/// A pod of a Job.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) pod: Arc<Pod>,
    /// Whether it holds the finalizer: it is not counted for good.
    pub(super) held: bool,
    /// The index that it works on.
    pub(super) index: Option<i64>,
}

impl Gathered {
    pub(super) fn gather(view: &View<'_>, item: &Item) -> Self {
        let Some(job) = view.get::<Job>(item) else { return Self::Over };
        if is_managed_externally(job) {
            return Self::Foreign;
        }
        if job.is_finished() {
            return Self::Over;
        }
        if !job.is_indexed() && !["NonIndexed", ""].contains(&&*job.spec.completion_mode) {
            return Self::Strange(job.clone());
        }
        let selector = job.spec.selector.as_ref().and_then(|selector| selector.matcher().ok());
        let Some(selector) = selector else { return Self::Stuck("its selector makes no sense") };
        let (table, meta) = (view.store::<Pod>(), &job.meta);
        let candidates = controlled_by(table, &meta.uid).chain(orphans(table, &meta.key.namespace));
        let matches = |pod: &Pod| selector.matches(&pod.meta.labels);
        let pods = claim_if(&**job, Some(TRACKING_FINALIZER), matches, candidates);
        Self::Turn(GatheredJob { job: job.clone(), pods, now: view.now().wall })
    }
}

impl GatheredJob {
    /// Carries out the adoptions and releases. What is left is what the turn is about.
    ///
    /// # Errors
    /// If one of them fails.
    pub(super) async fn settle(
        self,
        cx: &mut Context<'_>,
        memory: &Memory<JobMemory>,
    ) -> Result<JobView, ReconcileError> {
        let Self { job, pods, now } = self;
        let (pods, meta) = (pods.apply(cx).await?, &job.meta);
        // Who was just adopted has got it anew.
        let shows = |pod: &&Arc<Pod>| has_tracking_finalizer(pod) && pod.meta.controller_ref().is_some();
        let shown: BTreeSet<Uid> = pods.iter().filter(shows).map(|pod| pod.meta.uid.clone()).collect();
        let released = memory.with(|memory| memory.released(&meta.key, &shown));
        let member = |pod: Arc<Pod>| {
            let held = is_tracked_or_adopted(&pod) && !released.contains(&pod.meta.uid);
            Member { held, index: index_of(&pod), pod }
        };
        let members = pods.into_iter().map(member).collect();
        let before = memory.with(|memory| memory.backoff(&meta.key, &meta.uid));
        Ok(JobView::of(job, members, before, now))
    }
}

impl JobView {
    fn of(job: Arc<Job>, members: Vec<Member>, before: BackoffRecord, now: Time) -> Self {
        let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let starts = job.status.start_time.is_none() && !job.spec.suspend;
        let start_time = if starts { Some(now) } else { job.status.start_time };
        let (succeeded, failed, backoff) = (0, 0, before);
        let mut facts =
            Self { job, members, uncounted, now, start_time, succeeded, failed, backoff, indexes: None };
        facts.count(before);
        if facts.job.is_indexed() {
            let indexes = IndexView::of(&facts);
            facts.succeeded = indexes.succeeded.count();
            facts.indexes = Some(indexes);
        }
        facts
    }

    /// Counts what the status has counted, what it is about to count, and what it has not seen.
    fn count(&mut self, before: BackoffRecord) {
        let is_new = |member: &&Member, listed: &[Uid]| {
            member.held && !listed.contains(&member.pod.meta.uid) && self.is_in_range(member)
        };
        let failed_before = &self.uncounted.failed;
        let succeeded = |member: &&Member| {
            // Who was taken for failed stays so.
            member.pod.phase == PodPhase::Succeeded
                && is_new(member, &self.uncounted.succeeded)
                && !failed_before.contains(&member.pod.meta.uid)
        };
        let failed = |member: &&Member| self.is_failed(&member.pod) && is_new(member, failed_before);
        let counts = |member: &&Member| self.judgement(&member.pod).counts();
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let pods = || self.members.iter();
        let new_succeeded = pods().filter(succeeded).count();
        let new_failed = pods().filter(failed).filter(counts).count();
        let status = &self.job.status;
        let (known_succeeded, known_failed) = (status.succeeded, status.failed);
        let backoff = before.after(
            pods().filter(succeeded).map(|member| &*member.pod),
            pods().filter(failed).map(|member| &*member.pod),
        );
        self.succeeded = known_succeeded + number(new_succeeded) + number(self.uncounted.succeeded.len());
        self.failed = known_failed + number(new_failed) + number(self.uncounted.failed.len());
        self.backoff = backoff;
    }

    /// How many indexes there are; of no meaning without indexes.
    pub(super) fn completions(&self) -> i32 {
        self.job.spec.completions.unwrap_or(0)
    }

    /// Whether a pod can be counted: those of an Indexed Job must work on an index it has.
    pub(super) fn is_in_range(&self, member: &Member) -> bool {
        !self.job.is_indexed() || self.index_in_range(member).is_some()
    }

    /// The index of a pod, if the Job has it.
    pub(super) fn index_in_range(&self, member: &Member) -> Option<i64> {
        member.index.filter(|index| *index < i64::from(self.completions()))
    }

    /// Whether pods are replaced only once they have ended.
    pub(super) fn only_replace_failed_pods(&self) -> bool {
        self.job.spec.pod_replacement_policy == *"Failed"
    }

    /// Whether a pod is taken for failed.
    pub(super) fn is_failed(&self, pod: &Pod) -> bool {
        let is_going = pod.is_terminating() && pod.phase != PodPhase::Succeeded;
        pod.phase == PodPhase::Failed || (is_going && !self.only_replace_failed_pods())
    }

    /// What the Job's policy says of a failed pod.
    pub(super) fn judgement(&self, pod: &Pod) -> FailurePolicyMatch {
        judge(self.job.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Pods that have neither ended nor are to be deleted.
    pub(super) fn active(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.pod.is_active())
    }

    /// Pods that are to be deleted and have not ended.
    pub(super) fn terminating(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.pod.is_terminating() && !member.pod.is_terminal())
    }

    /// Notes that pods have lost the finalizer.
    pub(super) fn let_go(&mut self, pods: &[Arc<Pod>]) {
        for member in &mut self.members {
            member.held &= pods.iter().all(|pod| pod.meta.uid != member.pod.meta.uid);
        }
    }

    /// Whether a failed pod is kept until its replacement, which must know how often its index failed.
    pub(super) fn awaits_replacement(&self, member: &Member) -> bool {
        let kept = self.indexes.as_ref().zip(member.index);
        let kept = kept.and_then(|(indexes, index)| indexes.replaced.get(&index));
        kept.is_some_and(|kept| kept.meta.uid == member.pod.meta.uid)
    }
}

impl IndexView {
    fn of(facts: &JobView) -> Self {
        let (status, completions) = (&facts.job.status, facts.completions());
        let held = || facts.members.iter().filter(|member| member.held);
        let counted = Indexes::parse(&status.completed_indexes, completions);
        // Who was taken for failed stays so: a pod is never counted as both.
        let is_listed = |member: &&Member| facts.uncounted.failed.contains(&member.pod.meta.uid);
        let succeeded = held().filter(|member| member.pod.phase == PodPhase::Succeeded && !is_listed(member));
        let succeeded = counted.with(succeeded.filter_map(|member| facts.index_in_range(member)));
        let failed = facts.job.spec.backoff_limit_per_index.map(|limit| {
            let before = Indexes::parse(status.failed_indexes.as_deref().unwrap_or(""), completions);
            let failed = held().filter(|member| fails_index(facts, &member.pod, limit));
            before.with(failed.filter_map(|member| facts.index_in_range(member)))
        });
        let mut indexes = Self { counted, succeeded, failed, replaced: BTreeMap::new() };
        indexes.find_replaced(facts);
        indexes
    }

    /// Finds, for each index that waits for a new pod, the failed one with the most failures behind it.
    fn find_replaced(&mut self, facts: &JobView) {
        let Some(failed) = &self.failed else { return };
        let active: BTreeSet<i64> = facts.active().filter_map(|member| member.index).collect();
        let is_settled =
            |index: i64| self.succeeded.has(index) || failed.has(index) || active.contains(&index);
        for member in facts.members.iter().filter(|member| member.held && facts.is_failed(&member.pod)) {
            let Some(index) = facts.index_in_range(member).filter(|index| !is_settled(*index)) else {
                continue;
            };
            let kept = self.replaced.get(&index);
            let outdoes = |kept: &Arc<Pod>| {
                failures_of(kept) <= failures_of(&member.pod) && finished_at(&member.pod) >= finished_at(kept)
            };
            if kept.is_none_or(outdoes) {
                self.replaced.insert(index, member.pod.clone());
            }
        }
    }
}

/// Whether a pod is the last failure that its index may have.
fn fails_index(facts: &JobView, pod: &Pod, limit: i32) -> bool {
    if !facts.is_failed(pod) {
        return false;
    }
    let judgement = facts.judgement(pod);
    let fails_at_once = judgement.action == Some(super::failure_policy::FailurePolicyAction::FailIndex);
    fails_at_once || (judgement.counts() && counted_failures(pod) >= limit)
}

/// The index that a pod says it works on.
fn index_of(pod: &Pod) -> Option<i64> {
    pod.completion_index()?.parse().ok().filter(|index| *index >= 0)
}

/// How often the index of a pod had failed when the pod was made, not counting what policy ignores.
pub(super) fn counted_failures(pod: &Pod) -> i32 {
    number(pod.index_failure_count())
}

/// How often failures of the index of a pod had been ignored when the pod was made.
pub(super) fn ignored_failures(pod: &Pod) -> i32 {
    number(pod.index_ignored_failure_count())
}

/// How often the index of a pod had failed when the pod was made.
pub(super) fn failures_of(pod: &Pod) -> i32 {
    counted_failures(pod).saturating_add(ignored_failures(pod))
}

/// A count as a pod tells it. What makes no sense is no failure.
fn number(text: Option<&str>) -> i32 {
    text.and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}
