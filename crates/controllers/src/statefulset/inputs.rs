//! The inputs of one reconcile: a StatefulSet, its pods by ordinal, its claims and its revisions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use keleustes_objects::{
    ArcStr, ControllerRevision, Key, PersistentVolumeClaim, Pod, PodPhase, StatefulSet, Time,
};
use keleustes_plan::{Context, ReconcileError, View};

use super::claims;
use crate::workloads::adoption::{Claimed, claim, claim_if};
use crate::workloads::owners::{controlled_by, controlled_by_or_orphans, orphans};
use crate::workloads::revisions::sort_by_revision;

/// How many missing pods one reconcile considers. `spec.replicas` may be two billion, for which there is neither
/// memory nor time.
const MISSING_MAX: usize = 1000;
/// The most claims of missing pods that one reconcile looks up: nothing limits the number of claim templates either.
const CLAIMS_MAX: usize = 10_000;

pub(super) struct Inputs {
    pub(super) set: Arc<StatefulSet>,
    /// Its pods in range, by ordinal: the existing ones and the lowest missing ones.
    pub(super) replicas: BTreeMap<i32, Option<Arc<Pod>>>,
    /// How many more pods are missing; they are left to a later reconcile.
    pub(super) deferred: usize,
    /// Its pods out of range, the lowest ordinal first.
    pub(super) condemned: Vec<(i32, Arc<Pod>)>,
    /// All its pods.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Its revisions, oldest first.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// The existing claims of its pods, by name.
    pub(super) claims: BTreeMap<ArcStr, Arc<PersistentVolumeClaim>>,
    pub(super) now: Time,
}

/// The cached objects, before adoption and release.
pub(super) struct Gathered {
    set: Arc<StatefulSet>,
    pods: Claimed<Pod>,
    revisions: Claimed<ControllerRevision>,
    claims: BTreeMap<ArcStr, Arc<PersistentVolumeClaim>>,
    now: Time,
}

/// The digits of a pod's name after the StatefulSet's name.
fn digits<'a>(set: &str, pod: &'a str) -> Option<&'a str> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    Some(digits).filter(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The ordinal in a pod's name; `None` if it does not fit in 32 bits.
fn ordinal(set: &str, pod: &str) -> Option<i32> {
    digits(set, pod)?.parse().ok()
}

/// The ordinals in range. An ordinal has 32 bits.
fn ordinals(set: &StatefulSet) -> Range<i64> {
    let start = i64::from(set.spec.ordinals.start);
    start..(start + i64::from(set.spec.replicas)).min(i64::from(i32::MAX) + 1)
}

/// The lowest ordinals in range without a pod, as many as one reconcile considers.
fn lowest_missing(set: &StatefulSet, exists: impl Fn(&i32) -> bool) -> impl Iterator<Item = i32> {
    let in_range = ordinals(set).map_while(|ordinal| i32::try_from(ordinal).ok());
    let templates = set.spec.volume_claim_templates.len().max(1);
    let most = (CLAIMS_MAX / templates).clamp(1, MISSING_MAX);
    in_range.filter(move |ordinal| !exists(ordinal)).take(most)
}

impl Gathered {
    /// Reads the caches for a StatefulSet. `None` if it does not exist, or its selector is invalid.
    pub(super) fn gather(view: &View<'_>, item: &Key) -> Option<Self> {
        let set = view.get::<StatefulSet>(item)?.clone();
        let matcher = set.spec.selector.as_ref()?.matcher().ok()?;
        let (namespace, name) = (&set.meta.key.namespace, &set.meta.key.name);
        let store = view.store::<ControllerRevision>();
        // Revisions that no longer match are ignored, not released.
        let own = controlled_by(store, &*set).filter(|revision| matcher.matches(&revision.meta.labels));
        let revisions = claim(&*set, &matcher, own.chain(orphans(store, namespace)));
        let store = view.store::<Pod>();
        let ours =
            |pod: &Pod| matcher.matches(&pod.meta.labels) && digits(name, &pod.meta.key.name).is_some();
        let candidates = controlled_by_or_orphans(store, &*set);
        let pods = claim_if(&*set, None, ours, candidates);
        let claims = find_claims(view, &set, &pods.owned);
        Some(Self { pods, revisions, claims, now: view.now().wall, set })
    }

    /// Applies adoptions and releases, those of revisions first, and returns the inputs.
    ///
    /// # Errors
    /// If one of them fails; the reconcile ends then.
    pub(super) async fn settle(self, cx: &mut Context<'_>) -> Result<Inputs, ReconcileError> {
        let mut revisions = self.revisions.apply(cx).await?;
        sort_by_revision(&mut revisions);
        let pods = self.pods.apply(cx).await?;
        let Self { set, claims, now, .. } = self;
        let (range, mut existing, mut condemned) = (ordinals(&set), BTreeMap::new(), Vec::new());
        for pod in &pods {
            let Some(ordinal) = ordinal(&set.meta.key.name, &pod.meta.key.name) else { continue };
            if range.contains(&i64::from(ordinal)) {
                existing.insert(ordinal, pod.clone());
            } else {
                condemned.push((ordinal, pod.clone()));
            }
        }
        condemned.sort_by_key(|(ordinal, _)| *ordinal);
        let missing: Vec<i32> = lowest_missing(&set, |ordinal| existing.contains_key(ordinal)).collect();
        let all = usize::try_from(range.end - range.start).unwrap_or(0);
        let deferred = all.saturating_sub(existing.len() + missing.len());
        let mut replicas: BTreeMap<_, _> =
            existing.into_iter().map(|(ordinal, pod)| (ordinal, Some(pod))).collect();
        replicas.extend(missing.into_iter().map(|ordinal| (ordinal, None)));
        Ok(Inputs { set, replicas, deferred, condemned, pods, revisions, claims, now })
    }
}

/// The claims of the existing pods and of the missing ones that this reconcile considers.
fn find_claims(
    view: &View<'_>,
    set: &StatefulSet,
    pods: &[Arc<Pod>],
) -> BTreeMap<ArcStr, Arc<PersistentVolumeClaim>> {
    let ordinal_of = |pod: &Arc<Pod>| ordinal(&set.meta.key.name, &pod.meta.key.name);
    let existing: BTreeSet<i32> = pods.iter().filter_map(ordinal_of).collect();
    let templates = &set.spec.volume_claim_templates;
    let names = lowest_missing(set, |ordinal| existing.contains(ordinal))
        .chain(existing.iter().copied())
        .flat_map(|ordinal| templates.iter().map(move |template| claims::name(set, template, ordinal)));
    names
        .filter_map(|name| {
            let key = Key { namespace: set.meta.key.namespace.clone(), name };
            Some((key.name.clone(), view.get::<PersistentVolumeClaim>(&key)?.clone()))
        })
        .collect()
}

impl Inputs {
    /// The first ordinal.
    pub(super) fn start(&self) -> i32 {
        self.set.spec.ordinals.start
    }

    /// The pods that have an ordinal.
    pub(super) fn with_ordinal(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.replicas.values().flatten().chain(self.condemned.iter().map(|(_, pod)| pod))
    }

    /// Whether pods are created and deleted one after another.
    pub(super) fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    /// Whether a pod is available and not terminating.
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        !pod.is_terminating() && pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// How many pods in range are missing or unavailable.
    pub(super) fn unavailable(&self) -> usize {
        let available = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_available(pod));
        self.replicas.values().filter(|pod| !available(pod)).count() + self.deferred
    }
}

/// Whether a pod is in phase Running and its Ready condition is True.
pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running && pod.is_ready()
}
