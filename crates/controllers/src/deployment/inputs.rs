//! The inputs of one reconcile: a Deployment, its new ReplicaSet and its old ReplicaSets.

use std::sync::Arc;

use keleustes_objects::{Annotations, Deployment, FullMeta as _, Key, Pod, ReplicaSet, Time};
use keleustes_plan::{Store, View};

use super::annotations;
use super::bounds::Bounds;
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::owners::{controlled_by, controlled_by_or_orphans};
use crate::workloads::templates::NormalizedTemplate;

/// All old pods are deleted before new ones are created.
pub(super) const RECREATE: &str = "Recreate";
/// Old pods are replaced by new ones step by step.
pub(super) const ROLLING_UPDATE: &str = "RollingUpdate";

pub(super) struct Inputs {
    pub(super) deployment: Arc<Deployment>,
    /// The ReplicaSet with the Deployment's template, if there is one.
    pub(super) new_set: Option<Arc<ReplicaSet>>,
    /// All other ReplicaSets, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
    /// Whether an old ReplicaSet has a pod that is not terminal, or may have one because the pod cache is not
    /// synced.
    pub(super) has_running_old_pods: bool,
    /// Whether the strategy needs the pod cache and it is not synced.
    pub(super) needs_pod_cache: bool,
    pub(super) now: Time,
}

impl Inputs {
    /// The Deployment and the ReplicaSets that it claims. `None` if there is no Deployment, or its selector
    /// is missing or invalid.
    pub(super) fn claim(view: &View<'_>, item: &Key) -> Option<(Arc<Deployment>, Claimed<ReplicaSet>)> {
        let deployment = view.get::<Deployment>(item)?.clone();
        let selector = deployment.spec.selector.as_ref()?.matcher().ok()?;
        let candidates = controlled_by_or_orphans(view.store::<ReplicaSet>(), &*deployment);
        let claimed = claim(&*deployment, &selector, candidates);
        Some((deployment, claimed))
    }

    /// The inputs for a Deployment and the ReplicaSets that it controls.
    pub(super) fn gather(view: &View<'_>, deployment: Arc<Deployment>, sets: Vec<Arc<ReplicaSet>>) -> Self {
        let mut old = sets;
        old.sort_by(|one, other| by_creation(one).cmp(&by_creation(other)));
        let meaning = NormalizedTemplate::of(&deployment.spec.template);
        let same = |set: &Arc<ReplicaSet>| meaning.semantically_equal(&set.spec.template);
        let new_set = old.iter().position(same).map(|at| old.remove(at));
        let recreates = deployment.spec.strategy.r#type == RECREATE;
        let pods = view.store_if_synced::<Pod>();
        let runs =
            |pods: &Store<Pod>, set: &ReplicaSet| controlled_by(pods, set).any(|pod| !pod.is_terminal());
        let has_running_old_pods = recreates && pods.is_none_or(|pods| old.iter().any(|set| runs(pods, set)));
        let needs_pod_cache = recreates && pods.is_none();
        Self { deployment, new_set, old, has_running_old_pods, needs_pod_cache, now: view.now().wall }
    }

    /// All ReplicaSets, the old ones first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new_set)
    }

    /// Old ReplicaSets with replicas, oldest first.
    pub(super) fn active_old(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().filter(|set| set.spec.replicas > 0)
    }

    /// `spec.replicas` of the Deployment.
    pub(super) fn desired(&self) -> i32 {
        self.deployment.spec.replicas
    }

    /// The sum of `spec.replicas` of all ReplicaSets.
    pub(super) fn total_replicas(&self) -> i32 {
        sum(self.all(), |set| set.spec.replicas)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds::of(&self.deployment.spec)
    }

    /// Whether the Deployment has a deletionTimestamp.
    pub(super) fn is_terminating(&self) -> bool {
        self.deployment.meta.deletion_timestamp.is_some()
    }
}

/// Sort key: creation time, then name.
pub(super) fn by_creation(set: &ReplicaSet) -> (Option<Time>, &str) {
    (set.meta.creation_timestamp, &set.meta.key.name)
}

/// The sum of a number over ReplicaSets.
pub(super) fn sum<'a>(
    sets: impl Iterator<Item = &'a Arc<ReplicaSet>>,
    number: impl Fn(&ReplicaSet) -> i32,
) -> i32 {
    sets.map(|set| number(set)).fold(0, i32::saturating_add)
}

/// An integer annotation; `None` if it is missing or not an integer.
pub(super) fn number(annotations: &Annotations, key: &str) -> Option<i64> {
    annotations.value(key)?.parse().ok()
}

/// The desired-replicas annotation: the Deployment's replicas when this ReplicaSet was last resized.
pub(super) fn desired_annotation(set: &ReplicaSet) -> Option<i32> {
    let desired = number(set.annotations(), annotations::DESIRED_REPLICAS)?;
    i32::try_from(desired).ok().filter(|desired| *desired >= 0)
}
