//! Assigns pods to nodes: a pure stand-in for kube-scheduler.
//!
//! It supports resource requests, taints, cordoned nodes, node selectors, required node affinity, required
//! pod affinity and anti-affinity, host ports, claims, and priority as queue order. It does not preempt, spread
//! topologies, bind claims to existing volumes or allocate devices.

mod fit;
mod inter_pod_affinity;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{InternedStr, Key, Labels, Uid};

use self::fit::{FitError, NodeInfo};
use self::inter_pod_affinity::TopologyDomains;
use crate::claims::{ClaimDemands, Claims};
use crate::clock::after;
use crate::projections::{Node, Pod, PodClaim, PodTerms, TemplateRef};

/// The `schedulerName` it handles.
pub(crate) const NAME: &str = "default-scheduler";
/// Scoring stops after this many feasible nodes.
const MAX_FEASIBLE_NODES: usize = 100;
/// Pods per round, so that a burst of pods does not delay everything else.
const PODS_PER_ROUND: usize = 64;
const BACKOFF_BASE: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A scheduling decision for a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SchedulingDecision {
    pub(crate) key: Key,
    pub(crate) uid: Uid,
    pub(crate) node: Result<InternedStr, String>,
    /// The claims that are bound before the pod, and whether they were annotated with the node.
    pub(crate) claims: Vec<(Key, bool)>,
}

/// Nodes, the pods assigned to them, and the pending pods.
#[derive(Debug)]
pub(crate) struct Scheduler {
    nodes: BTreeMap<InternedStr, NodeInfo>,
    assigned: BTreeMap<Key, AssignedPod>,
    /// Assigned pods with anti-affinity.
    assigned_with_anti_affinity: BTreeSet<Key>,
    pending: BTreeMap<Key, PendingPod>,
    /// Pending pods with affinity or anti-affinity.
    pending_with_affinity: BTreeSet<Key>,
    /// Pending pods in scheduling order: priority, then arrival.
    active_queue: BTreeSet<(Reverse<i32>, u64, Key)>,
    /// Unschedulable pods by the end of their backoff.
    unschedulable: BTreeSet<(Timestamp, Key)>,
    /// Whether a cluster event occurred that may make an unschedulable pod schedulable.
    retry_unschedulable: bool,
    /// Templates without a feasible node, and the message, until the next cluster event.
    failed_templates: Vec<(TemplateRef, String)>,
    arrivals: u64,
    rng: fastrand::Rng,
}

#[derive(Debug)]
struct AssignedPod {
    uid: Uid,
    node: InternedStr,
    template: TemplateRef,
    labels: Labels,
    terms: Option<Arc<PodTerms>>,
}

#[derive(Debug)]
struct PendingPod {
    uid: Uid,
    template: TemplateRef,
    labels: Labels,
    terms: Option<Arc<PodTerms>>,
    claims: Box<[PodClaim]>,
    arrival: u64,
    attempts: u32,
    unschedulable_until: Option<Timestamp>,
}

impl Scheduler {
    pub(crate) fn new(rng: fastrand::Rng) -> Self {
        Self {
            nodes: BTreeMap::new(),
            assigned: BTreeMap::new(),
            assigned_with_anti_affinity: BTreeSet::new(),
            pending: BTreeMap::new(),
            pending_with_affinity: BTreeSet::new(),
            active_queue: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            retry_unschedulable: false,
            failed_templates: Vec::new(),
            arrivals: 0,
            rng,
        }
    }

    /// Applies an added or updated node.
    pub(crate) fn observe_node(&mut self, node: &Node) {
        let info = self.nodes.entry(InternedStr::from(&*node.meta.key.name)).or_default();
        if info.observe(node) {
            self.on_cluster_event();
        }
    }

    /// Applies a deleted node; its pods keep their resources until they are deleted.
    pub(crate) fn forget_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.get_mut(name) {
            info.mark_deleted();
            if info.is_unused() {
                self.nodes.remove(name);
            }
        }
    }

    /// Applies an added or updated pod.
    pub(crate) fn observe_pod(&mut self, pod: &Pod) {
        let key = &pod.meta.key;
        if pod.status.phase.is_final() {
            self.forget_pod(key);
        } else if !pod.node.is_empty() {
            self.remove_pending(key);
            let assigned = AssignedPod {
                uid: pod.meta.uid.clone(),
                node: pod.node.clone(),
                template: pod.template.clone(),
                labels: pod.meta.labels.clone(),
                terms: pod.pod_terms.clone(),
            };
            self.assign(key, assigned);
        } else if pod.template.scheduler == *NAME && !pod.is_gated && pod.meta.deletion_timestamp.is_none() {
            self.add_pending(pod);
        } else {
            self.remove_pending(key);
        }
    }

    /// Applies a deleted or terminal pod.
    pub(crate) fn forget_pod(&mut self, key: &Key) {
        self.remove_pending(key);
        self.unassign(key);
    }

    /// Removes the pods that are not in `there`.
    pub(crate) fn retain_pods(&mut self, there: &BTreeSet<Key>) {
        let known = self.assigned.keys().chain(self.pending.keys());
        let deleted: Vec<Key> = known.filter(|key| !there.contains(*key)).cloned().collect();
        deleted.iter().for_each(|key| self.forget_pod(key));
    }

    /// Removes the nodes that are not in `there`.
    pub(crate) fn retain_nodes(&mut self, there: &BTreeSet<InternedStr>) {
        self.nodes
            .iter_mut()
            .filter(|(name, _)| !there.contains(*name))
            .for_each(|(_, info)| info.mark_deleted());
        self.nodes.retain(|_, info| !info.is_unused());
    }

    /// A binding failed: the pod is pending again, if it still exists.
    pub(crate) fn binding_failed(&mut self, pod: &Pod) {
        self.unassign(&pod.meta.key);
        self.observe_pod(pod);
    }

    /// Schedules up to [`PODS_PER_ROUND`] pending pods.
    pub(crate) fn decide(&mut self, claims: &Claims, now: Timestamp) -> Vec<SchedulingDecision> {
        self.move_to_active_queue(now);
        let mut decisions = Vec::new();
        for _ in 0..PODS_PER_ROUND {
            let Some((_, _, key)) = self.active_queue.pop_first() else { break };
            let Some(mut pod) = self.pending.remove(&key) else { continue };
            let demands = claims.demands(&key.namespace, &pod.claims);
            let node = self.find_node(&key, &pod, demands.as_ref());
            let delayed = demands.map_or_else(|_| Vec::new(), |demands| demands.delayed);
            let uid = pod.uid.clone();
            match &node {
                Ok(node) => {
                    self.pending_with_affinity.remove(&key);
                    let PendingPod { uid, template, labels, terms, .. } = pod;
                    self.assign(&key, AssignedPod { uid, node: node.clone(), template, labels, terms });
                }
                Err(_) => {
                    let wait = BACKOFF_BASE.saturating_mul(1 << pod.attempts.min(5)).min(BACKOFF_MAX);
                    pod.attempts += 1;
                    let until = after(now, wait);
                    pod.unschedulable_until = Some(until);
                    self.unschedulable.insert((until, key.clone()));
                    self.pending.insert(key.clone(), pod);
                }
            }
            let claims = delayed.into_iter().map(|claim| (claim, false)).collect();
            decisions.push(SchedulingDecision { key, uid, node, claims });
        }
        decisions
    }

    /// When the scheduler must run next.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        if !self.active_queue.is_empty() {
            return Some(Timestamp::MIN);
        }
        self.unschedulable.first().filter(|_| self.retry_unschedulable).map(|(until, _)| *until)
    }

    /// Number of pending pods.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    fn move_to_active_queue(&mut self, now: Timestamp) {
        if !self.retry_unschedulable {
            return;
        }
        while let Some((until, _)) = self.unschedulable.first()
            && *until <= now
        {
            let Some((_, key)) = self.unschedulable.pop_first() else { break };
            if let Some(pod) = self.pending.get_mut(&key) {
                pod.unschedulable_until = None;
                self.active_queue.insert((Reverse(pod.template.priority), pod.arrival, key));
            }
        }
        self.retry_unschedulable = !self.unschedulable.is_empty();
    }

    /// A claim, class or volume has changed.
    pub(crate) fn on_claim_event(&mut self) {
        if self.pending.values().any(|pod| !pod.claims.is_empty()) {
            self.on_cluster_event();
        }
    }

    /// A cluster event may have made pods schedulable.
    fn on_cluster_event(&mut self) {
        self.failed_templates.clear();
        self.retry_unschedulable = !self.unschedulable.is_empty();
    }

    fn add_pending(&mut self, pod: &Pod) {
        let key = &pod.meta.key;
        if let Some(known) = self.pending.get(key)
            && known.uid == pod.meta.uid
            && known.template == pod.template
        {
            return;
        }
        match self.assigned.get(key) {
            // The watch may not have delivered the binding of the previous round yet.
            Some(assigned) if assigned.uid == pod.meta.uid => return,
            // The watch may have skipped the deletion and recreation of the pod.
            Some(_) => self.unassign(key),
            None => {}
        }
        self.remove_pending(key);
        self.arrivals += 1;
        let pending = PendingPod {
            uid: pod.meta.uid.clone(),
            template: pod.template.clone(),
            labels: pod.meta.labels.clone(),
            terms: pod.pod_terms.clone(),
            claims: pod.claims.clone(),
            arrival: self.arrivals,
            attempts: 0,
            unschedulable_until: None,
        };
        self.active_queue.insert((Reverse(pod.template.priority), self.arrivals, key.clone()));
        if pending.terms.is_some() {
            self.pending_with_affinity.insert(key.clone());
        }
        self.pending.insert(key.clone(), pending);
    }

    fn remove_pending(&mut self, key: &Key) {
        if let Some(pod) = self.pending.remove(key) {
            self.pending_with_affinity.remove(key);
            self.active_queue.remove(&(Reverse(pod.template.priority), pod.arrival, key.clone()));
            if let Some(until) = pod.unschedulable_until {
                self.unschedulable.remove(&(until, key.clone()));
            }
        }
    }

    fn assign(&mut self, key: &Key, assigned: AssignedPod) {
        if let Some(known) = self.assigned.get_mut(key)
            && known.node == assigned.node
            && known.template == assigned.template
        {
            (known.uid, known.labels) = (assigned.uid, assigned.labels);
            return;
        }
        self.unassign(key);
        self.nodes.entry(assigned.node.clone()).or_default().add_requests(&assigned.template, 1);
        if assigned.terms.as_ref().is_some_and(|terms| !terms.anti_affinity.is_empty()) {
            self.assigned_with_anti_affinity.insert(key.clone());
        }
        self.assigned.insert(key.clone(), assigned);
        if !self.pending_with_affinity.is_empty() {
            self.on_cluster_event();
        }
    }

    fn unassign(&mut self, key: &Key) {
        let Some(assigned) = self.assigned.remove(key) else { return };
        self.assigned_with_anti_affinity.remove(key);
        if let Some(info) = self.nodes.get_mut(&assigned.node) {
            info.add_requests(&assigned.template, -1);
            if info.is_unused() {
                self.nodes.remove(&assigned.node);
            }
        }
        self.on_cluster_event();
    }

    /// The best of the feasible nodes, or the message why there is none.
    fn find_node(
        &mut self,
        key: &Key,
        pod: &PendingPod,
        demands: Result<&ClaimDemands<'_>, &String>,
    ) -> Result<InternedStr, String> {
        let depends_on_template_alone =
            pod.terms.is_none() && pod.claims.is_empty() && self.assigned_with_anti_affinity.is_empty();
        if depends_on_template_alone
            && let Some((_, message)) = self.failed_templates.iter().find(|(one, _)| *one == pod.template)
        {
            return Err(message.clone());
        }
        let domains = TopologyDomains::for_pod(self, key, pod);
        let mut fit_errors: BTreeMap<FitError, usize> = BTreeMap::new();
        let mut best: Vec<&InternedStr> = Vec::new();
        let mut best_score = i64::MIN;
        let mut feasible = 0;
        // A random start keeps the first nodes by name from being filled first.
        let present = self.nodes.iter().filter(|(_, info)| info.exists);
        let count = present.clone().count();
        let demands = match demands {
            Ok(demands) => demands,
            Err(_) if count == 0 => return Err(fit_error_message(0, &fit_errors)),
            Err(problem) => return Err(format!("0/{count} nodes are available: {problem}.")),
        };
        let start = if count == 0 { 0 } else { self.rng.usize(0..count) };
        for (name, info) in present.clone().skip(start).chain(present.take(start)) {
            let fits = info.check(name, &pod.template).and_then(|()| domains.check(&info.labels));
            match fits.and_then(|()| Ok(demands.check(name, &info.labels)?)) {
                Err(fit_error) => *fit_errors.entry(fit_error).or_default() += 1,
                Ok(()) => {
                    feasible += 1;
                    let score = info.score(&pod.template);
                    if score > best_score {
                        best.clear();
                        best_score = score;
                    }
                    if score == best_score {
                        best.push(name);
                    }
                    if feasible >= MAX_FEASIBLE_NODES {
                        break;
                    }
                }
            }
        }
        if best.is_empty() {
            let message = fit_error_message(count, &fit_errors);
            if depends_on_template_alone {
                self.failed_templates.push((pod.template.clone(), message.clone()));
            }
            return Err(message);
        }
        Ok(best[self.rng.usize(0..best.len())].clone())
    }
}

/// Parity: the message of kube-scheduler, which users search for.
fn fit_error_message(nodes: usize, fit_errors: &BTreeMap<FitError, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut reasons: Vec<String> =
        fit_errors.iter().map(|(fit_error, count)| format!("{count} {fit_error}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}
