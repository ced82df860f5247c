//! What a turn is about: a Deployment and its ReplicaSets, the newest one told from the old ones.

use std::sync::Arc;

use keleustes_objects::{Annotations, Deployment, FullMeta as _, Pod, ReplicaSet, Time};
use keleustes_plan::{Item, Store, View};

use super::annotations;
use super::bounds::Bounds;
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::owners::{controlled_by, orphans};
use crate::workloads::templates::NormalizedTemplate;

/// All old pods go before new ones come.
pub(super) const RECREATE: &str = "Recreate";
/// Old and new pods change places step by step.
pub(super) const ROLLING_UPDATE: &str = "RollingUpdate";

pub(super) struct Inputs {
    pub(super) deployment: Arc<Deployment>,
    /// The ReplicaSet of the Deployment's template, if there is one.
    pub(super) new_set: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
    /// Whether a pod of an old ReplicaSet has not ended yet, as far as is known.
    pub(super) has_running_old_pods: bool,
    /// Whether that matters and is not known yet.
    pub(super) needs_pod_cache: bool,
    pub(super) now: Time,
}

impl Inputs {
    /// Which ReplicaSets a Deployment claims. Nothing if there is no Deployment, or none that selects
    /// anything in particular.
    pub(super) fn claim(view: &View<'_>, item: &Item) -> Option<(Arc<Deployment>, Claimed<ReplicaSet>)> {
        let deployment = view.get::<Deployment>(item)?.clone();
        let selector = deployment.spec.selector.as_ref()?.matcher().ok()?;
        let (table, meta) = (view.store::<ReplicaSet>(), &deployment.meta);
        let candidates = controlled_by(table, &meta.uid).chain(orphans(table, &meta.key.namespace));
        let claimed = claim(&*deployment, &selector, candidates);
        Some((deployment, claimed))
    }

    /// The facts about a Deployment and the ReplicaSets that are its own.
    pub(super) fn gather(view: &View<'_>, deployment: Arc<Deployment>, sets: Vec<Arc<ReplicaSet>>) -> Self {
        let mut old = sets;
        old.sort_by(|one, other| by_creation(one).cmp(&by_creation(other)));
        let meaning = NormalizedTemplate::of(&deployment.spec.template);
        let same = |set: &Arc<ReplicaSet>| meaning.semantically_equal(&set.spec.template);
        let new_set = old.iter().position(same).map(|at| old.remove(at));
        let recreates = deployment.spec.strategy.r#type == RECREATE;
        let pods = view.store_if_synced::<Pod>();
        let runs = |pods: &Store<Pod>, set: &ReplicaSet| {
            controlled_by(pods, &set.meta.uid).any(|pod| !pod.is_terminal())
        };
        let has_running_old_pods = recreates && pods.is_none_or(|pods| old.iter().any(|set| runs(pods, set)));
        let needs_pod_cache = recreates && pods.is_none();
        Self { deployment, new_set, old, has_running_old_pods, needs_pod_cache, now: view.now().wall }
    }

    /// All ReplicaSets, the old ones first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new_set)
    }

    /// The old ones that want pods, oldest first.
    pub(super) fn active_old(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().filter(|set| set.spec.replicas > 0)
    }

    /// How many pods are wanted in all.
    pub(super) fn desired(&self) -> i32 {
        self.deployment.spec.replicas
    }

    /// How many pods all ReplicaSets together ask for.
    pub(super) fn total_replicas(&self) -> i32 {
        sum(self.all(), |set| set.spec.replicas)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds::of(&self.deployment.spec)
    }

    /// Whether the Deployment is on its way out.
    pub(super) fn is_terminating(&self) -> bool {
        self.deployment.meta.deletion_timestamp.is_some()
    }
}

/// The order of birth.
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

/// A number that an annotation holds; nothing if there is none or it is no number.
pub(super) fn number(annotations: &Annotations, key: &str) -> Option<i64> {
    annotations.value(key)?.parse().ok()
}

/// How many pods the Deployment wanted when this ReplicaSet was last sized.
pub(super) fn desired_annotation(set: &ReplicaSet) -> Option<i32> {
    let desired = number(set.annotations(), annotations::DESIRED_REPLICAS)?;
    i32::try_from(desired).ok().filter(|desired| *desired >= 0)
}
