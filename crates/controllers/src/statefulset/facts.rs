//! What a turn is about: a StatefulSet, its pods by number, its claims and its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{
    ControllerRevision, Key, PersistentVolumeClaim, Pod, PodPhase, StatefulSet, Text, Time,
};
use keleustes_plan::{Item, Plan, View};

use super::claims;
use crate::workloads::claims::{claim, claim_if};
use crate::workloads::owners::{managed_by, orphans};
use crate::workloads::revisions::sort;

pub(super) struct Facts {
    pub(super) set: Arc<StatefulSet>,
    /// Its pods in range, by number.
    pub(super) replicas: BTreeMap<i32, Option<Arc<Pod>>>,
    /// Its pods out of range, by number.
    pub(super) condemned: BTreeMap<i32, Arc<Pod>>,
    /// All its pods.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Its history, oldest first.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// The claims of its pods that there are, by name.
    pub(super) claims: BTreeMap<Text, Arc<PersistentVolumeClaim>>,
    pub(super) now: Time,
}

/// The number in the name of a pod of this set, if the name has the right form.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

impl Facts {
    /// The facts, and the adoptions and releases that come first. Nothing if there is no such set, or its
    /// selector makes no sense.
    pub(super) fn gather(view: &View<'_>, item: &Item) -> Option<(Self, Plan)> {
        let set = view.get::<StatefulSet>(item)?.clone();
        let matcher = set.spec.selector.as_ref()?.matcher().ok()?;
        let (namespace, uid, name) = (&set.meta.key.namespace, &set.meta.uid, &set.meta.key.name);
        let table = view.table::<ControllerRevision>();
        // Revisions that stop matching are not let go; they are just not looked at.
        let own = managed_by(table, uid).filter(|revision| matcher.matches(&revision.meta.labels));
        let mut revisions = claim(&*set, &matcher, own.chain(orphans(table, namespace)));
        let table = view.table::<Pod>();
        let ours = |pod: &Pod| matcher.matches(&pod.meta.labels) && is_named_after(name, &pod.meta.key.name);
        let candidates = managed_by(table, uid).chain(orphans(table, namespace));
        let mut pods = claim_if(&*set, None, ours, candidates);
        let mut plan = Plan::none();
        plan.push_together(revisions.take_writes());
        plan.push_together(pods.take_writes());
        let mut revisions = revisions.mine;
        sort(&mut revisions);
        let mut facts = Self {
            replicas: BTreeMap::new(),
            condemned: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods: pods.mine,
            now: view.now().wall,
            revisions,
            set,
        };
        facts.number_pods();
        facts.find_claims(view);
        Some((facts, plan))
    }

    /// Where numbers begin.
    pub(super) fn start(&self) -> i32 {
        self.set.spec.ordinals.start
    }

    fn number_pods(&mut self) {
        let end = self.start().saturating_add(self.set.spec.replicas);
        self.replicas = (self.start()..end).map(|number| (number, None)).collect();
        for pod in &self.pods {
            let Some(number) = ordinal(&self.set.meta.key.name, &pod.meta.key.name) else { continue };
            match self.replicas.get_mut(&number) {
                Some(slot) => *slot = Some(pod.clone()),
                None => drop(self.condemned.insert(number, pod.clone())),
            }
        }
    }

    fn find_claims(&mut self, view: &View<'_>) {
        let numbers: Vec<i32> = self.replicas.keys().chain(self.condemned.keys()).copied().collect();
        for (number, template) in numbers
            .iter()
            .flat_map(|number| self.set.spec.volume_claim_templates.iter().map(move |t| (number, t)))
        {
            let name = claims::name(&self.set, template, *number);
            let key = Key { namespace: self.set.meta.key.namespace.clone(), name };
            if let Some(claim) = view.get::<PersistentVolumeClaim>(&key) {
                self.claims.insert(key.name, claim.clone());
            }
        }
    }

    /// Whether pods come and go one after another.
    pub(super) fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    /// Whether a pod has been ready for long enough and is to stay.
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        !pod.is_terminating() && pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// How many pods in range are missing or not available.
    pub(super) fn unavailable(&self) -> usize {
        let available = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_available(pod));
        self.replicas.values().filter(|pod| !available(pod)).count()
    }
}

/// Whether a name has the form that the names of a set's pods have, whatever the number.
fn is_named_after(set: &str, pod: &str) -> bool {
    let digits = pod.strip_prefix(set).and_then(|rest| rest.strip_prefix('-'));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Whether a pod's containers run and it says that it is ready.
pub(super) fn runs_and_is_ready(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running && pod.is_ready()
}
