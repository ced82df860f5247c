//! Required pod affinity and anti-affinity: the topology domains that a pod must or must not use.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{InternedStr, Key, Labels};

use super::fit::FitError;
use super::{AssignedPod, PendingPod, Scheduler};
use crate::projections::PodTerm;

/// Topology key and the domains (label values) it applies to.
type DomainValues = BTreeMap<InternedStr, BTreeSet<InternedStr>>;

/// Constraints from the assigned pods on a pending pod.
#[derive(Debug, Default)]
pub(super) struct TopologyDomains {
    /// For each affinity term, its topology key and the domains with a matching pod.
    affinity: Vec<(InternedStr, BTreeSet<InternedStr>)>,
    /// Domains excluded by the pod's own anti-affinity.
    anti_affinity: DomainValues,
    /// Domains excluded by the anti-affinity of assigned pods.
    existing_anti_affinity: DomainValues,
}

impl TopologyDomains {
    /// Computes the constraints; cheap if neither the pod nor an assigned pod has terms.
    pub(super) fn for_pod(scheduler: &Scheduler, key: &Key, pod: &PendingPod) -> Self {
        let mut domains = Self::default();
        for key_of_assigned in &scheduler.assigned_with_anti_affinity {
            let Some(assigned) = scheduler.assigned.get(key_of_assigned) else { continue };
            for term in assigned.terms.iter().flat_map(|terms| &*terms.anti_affinity) {
                if term.selects(key, &pod.labels) {
                    add(&mut domains.existing_anti_affinity, scheduler, assigned, &term.topology_key);
                }
            }
        }
        let Some(terms) = &pod.terms else { return domains };
        for term in &terms.anti_affinity {
            for assigned in selected(scheduler, term) {
                add(&mut domains.anti_affinity, scheduler, assigned, &term.topology_key);
            }
        }
        for term in &terms.affinity {
            let assigned = selected(scheduler, term);
            let values = assigned.filter_map(|assigned| value_of(scheduler, assigned, &term.topology_key));
            let values: BTreeSet<InternedStr> = values.collect();
            // The first pod of a group whose affinity selects itself may go anywhere.
            if values.is_empty() && term.selects(key, &pod.labels) {
                continue;
            }
            domains.affinity.push((term.topology_key.clone(), values));
        }
        domains
    }

    /// Whether a node with these labels satisfies the constraints.
    pub(super) fn check(&self, labels: &Labels) -> Result<(), FitError> {
        let is_one_of = |(key, values): (&InternedStr, &BTreeSet<InternedStr>)| {
            labels.value(key).is_some_and(|value| values.contains(value))
        };
        if !self.affinity.iter().all(|(key, values)| is_one_of((key, values))) {
            return Err(FitError::PodAffinityMismatch);
        }
        if self.anti_affinity.iter().any(is_one_of) {
            return Err(FitError::PodAntiAffinityMismatch);
        }
        if self.existing_anti_affinity.iter().any(is_one_of) {
            return Err(FitError::ExistingPodAntiAffinityMismatch);
        }
        Ok(())
    }
}

fn selected<'a>(scheduler: &'a Scheduler, term: &'a PodTerm) -> impl Iterator<Item = &'a AssignedPod> {
    let all = scheduler.assigned.iter();
    all.filter(|(key, assigned)| term.selects(key, &assigned.labels)).map(|(_, assigned)| assigned)
}

fn value_of(
    scheduler: &Scheduler,
    assigned: &AssignedPod,
    topology_key: &InternedStr,
) -> Option<InternedStr> {
    scheduler.nodes.get(&assigned.node)?.labels.value(topology_key).cloned()
}

fn add(
    domain_values: &mut DomainValues,
    scheduler: &Scheduler,
    assigned: &AssignedPod,
    topology_key: &InternedStr,
) {
    if let Some(value) = value_of(scheduler, assigned, topology_key) {
        domain_values.entry(topology_key.clone()).or_default().insert(value);
    }
}
