//! Which parts of the cluster a pod must go to, or stay out of, for the pods that run there.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{InternedStr, Key, Labels};

use super::fit::FitError;
use super::{AssignedPod, Scheduler, Waiting};
use crate::seen::PodTerm;

/// Parts of the cluster: the label that parts it, and its values there.
type Parts = BTreeMap<InternedStr, BTreeSet<InternedStr>>;

/// What the placed pods mean for one that waits.
#[derive(Debug, Default)]
pub(super) struct TopologyDomains {
    /// For each demand for company, where it is met.
    together: Vec<(InternedStr, BTreeSet<InternedStr>)>,
    /// Where pods are that this one avoids.
    apart: Parts,
    /// Where pods are that avoid this one.
    unwelcome: Parts,
}

impl TopologyDomains {
    /// Looks at the placed pods; costs nothing if neither they nor this pod have demands.
    pub(super) fn around(scheduler: &Scheduler, key: &Key, pod: &Waiting) -> Self {
        let mut domains = Self::default();
        for keeper in &scheduler.assigned_with_anti_affinity {
            let Some(placed) = scheduler.placed.get(keeper) else { continue };
            for term in placed.terms.iter().flat_map(|terms| &*terms.apart) {
                if term.selects(key, &pod.labels) {
                    add(&mut domains.unwelcome, scheduler, placed, &term.topology_key);
                }
            }
        }
        let Some(terms) = &pod.terms else { return domains };
        for term in &terms.apart {
            for placed in selected(scheduler, term) {
                add(&mut domains.apart, scheduler, placed, &term.topology_key);
            }
        }
        for term in &terms.together {
            let placed = selected(scheduler, term);
            let values = placed.filter_map(|placed| value_of(scheduler, placed, &term.topology_key));
            let values: BTreeSet<InternedStr> = values.collect();
            // The first of a group that wants to be together may go anywhere.
            if values.is_empty() && term.selects(key, &pod.labels) {
                continue;
            }
            domains.together.push((term.topology_key.clone(), values));
        }
        domains
    }

    /// Whether a node with these labels will do.
    pub(super) fn admit(&self, labels: &Labels) -> Result<(), FitError> {
        let is_one_of = |(key, values): (&InternedStr, &BTreeSet<InternedStr>)| {
            labels.value(key).is_some_and(|value| values.contains(value))
        };
        if !self.together.iter().all(|(key, values)| is_one_of((key, values))) {
            return Err(FitError::PodAffinityMismatch);
        }
        if self.apart.iter().any(is_one_of) {
            return Err(FitError::PodAntiAffinityMismatch);
        }
        if self.unwelcome.iter().any(is_one_of) {
            return Err(FitError::ExistingPodAntiAffinityMismatch);
        }
        Ok(())
    }
}

fn selected<'a>(scheduler: &'a Scheduler, term: &'a PodTerm) -> impl Iterator<Item = &'a AssignedPod> {
    let all = scheduler.placed.iter();
    all.filter(|(key, placed)| term.selects(key, &placed.labels)).map(|(_, placed)| placed)
}

fn value_of(scheduler: &Scheduler, placed: &AssignedPod, topology_key: &InternedStr) -> Option<InternedStr> {
    scheduler.nodes.get(&placed.node)?.labels.value(topology_key).cloned()
}

fn add(parts: &mut Parts, scheduler: &Scheduler, placed: &AssignedPod, topology_key: &InternedStr) {
    if let Some(value) = value_of(scheduler, placed, topology_key) {
        parts.entry(topology_key.clone()).or_default().insert(value);
    }
}
