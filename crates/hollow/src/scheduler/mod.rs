//! Finds a node for each pod that waits for one: a pure stand-in for kube-scheduler.
//!
//! It heeds resources, taints, cordons, node selectors, required node affinity, required pod affinity and
//! anti-affinity, host ports and priorities as an order. It does not preempt, spread, bind volumes or
//! allocate devices.

mod fit;
mod neighbours;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{InternedStr, Key, Labels, Uid};

use self::fit::{FitError, NodeInfo};
use self::neighbours::TopologyDomains;
use crate::clock::after;
use crate::seen::{Node, Pod, PodTerms, TemplateRef};

/// The scheduler that pods ask for if they ask for none.
pub(crate) const NAME: &str = "default-scheduler";
/// With this many nodes to choose from there is no need to look at more.
const ENOUGH_NODES: usize = 100;
/// How many pods are looked at in one go, so that a flood of them does not hold up everything else.
const ROUND: usize = 64;
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(10);

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) key: Key,
    pub(crate) uid: Uid,
    pub(crate) node: Result<InternedStr, String>,
}

/// Nodes, what runs on them, and the pods that wait.
#[derive(Debug)]
pub(crate) struct Scheduler {
    nodes: BTreeMap<InternedStr, NodeInfo>,
    placed: BTreeMap<Key, AssignedPod>,
    /// Those of the placed pods that keep others away.
    assigned_with_anti_affinity: BTreeSet<Key>,
    waiting: BTreeMap<Key, Waiting>,
    /// Those of the waiting pods that look at the pods around a node.
    choosy: BTreeSet<Key>,
    /// The order in which waiting pods are looked at.
    queue: BTreeSet<(Reverse<i32>, u64, Key)>,
    /// Pods that found no node, by the time from which they may be looked at again.
    parked: BTreeSet<(Timestamp, Key)>,
    /// Whether something has happened since that could give a parked pod a node.
    parked_may_hope: bool,
    /// Templates for which there was no node, and why, as long as nothing has become free.
    hopeless: Vec<(TemplateRef, String)>,
    arrivals: u64,
    chance: fastrand::Rng,
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
struct Waiting {
    uid: Uid,
    template: TemplateRef,
    labels: Labels,
    terms: Option<Arc<PodTerms>>,
    arrival: u64,
    attempts: u32,
    parked_until: Option<Timestamp>,
}

impl Scheduler {
    pub(crate) fn new(chance: fastrand::Rng) -> Self {
        Self {
            nodes: BTreeMap::new(),
            placed: BTreeMap::new(),
            assigned_with_anti_affinity: BTreeSet::new(),
            waiting: BTreeMap::new(),
            choosy: BTreeSet::new(),
            queue: BTreeSet::new(),
            parked: BTreeSet::new(),
            parked_may_hope: false,
            hopeless: Vec::new(),
            arrivals: 0,
            chance,
        }
    }

    /// A node is new or has changed.
    pub(crate) fn observe_node(&mut self, node: &Node) {
        let info = self.nodes.entry(InternedStr::from(&*node.meta.key.name)).or_default();
        if info.observe(node) {
            self.give_hope();
        }
    }

    /// A node is gone; what ran there keeps its place until it goes as well.
    pub(crate) fn forget_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.get_mut(name) {
            info.vanish();
            if info.is_unused() {
                self.nodes.remove(name);
            }
        }
    }

    /// A pod is new or has changed.
    pub(crate) fn observe_pod(&mut self, pod: &Pod) {
        let key = &pod.meta.key;
        if pod.reported.phase.is_final() {
            self.forget_pod(key);
        } else if !pod.node.is_empty() {
            self.stop_waiting(key);
            let placed = AssignedPod {
                uid: pod.meta.uid.clone(),
                node: pod.node.clone(),
                template: pod.template.clone(),
                labels: pod.meta.labels.clone(),
                terms: pod.pod_terms.clone(),
            };
            self.place(key, placed);
        } else if pod.template.scheduler == *NAME && !pod.is_gated && pod.meta.deletion_timestamp.is_none() {
            self.await_node(pod);
        } else {
            self.stop_waiting(key);
        }
    }

    /// A pod is gone, or takes no room any more.
    pub(crate) fn forget_pod(&mut self, key: &Key) {
        self.stop_waiting(key);
        self.displace(key);
    }

    /// Whatever is not among these is gone.
    pub(crate) fn retain_pods(&mut self, there: &BTreeSet<Key>) {
        let known = self.placed.keys().chain(self.waiting.keys());
        let gone: Vec<Key> = known.filter(|key| !there.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.forget_pod(key));
    }

    /// Whatever is not among these is gone.
    pub(crate) fn retain_nodes(&mut self, there: &BTreeSet<InternedStr>) {
        self.nodes.iter_mut().filter(|(name, _)| !there.contains(*name)).for_each(|(_, info)| info.vanish());
        self.nodes.retain(|_, info| !info.is_unused());
    }

    /// A binding was refused: the pod waits again, if it is still there.
    pub(crate) fn binding_failed(&mut self, pod: &Pod) {
        self.displace(&pod.meta.key);
        self.observe_pod(pod);
    }

    /// Decides about some of the waiting pods.
    pub(crate) fn decide(&mut self, now: Timestamp) -> Vec<Verdict> {
        self.unpark(now);
        let mut verdicts = Vec::new();
        for _ in 0..ROUND {
            let Some((_, _, key)) = self.queue.pop_first() else { break };
            let Some(mut pod) = self.waiting.remove(&key) else { continue };
            let node = self.find_node(&key, &pod);
            let uid = pod.uid.clone();
            match &node {
                Ok(node) => {
                    self.choosy.remove(&key);
                    let Waiting { uid, template, labels, terms, .. } = pod;
                    self.place(&key, AssignedPod { uid, node: node.clone(), template, labels, terms });
                }
                Err(_) => {
                    let wait = RETRY_FIRST.saturating_mul(1 << pod.attempts.min(5)).min(RETRY_LONGEST);
                    pod.attempts += 1;
                    let until = after(now, wait);
                    pod.parked_until = Some(until);
                    self.parked.insert((until, key.clone()));
                    self.waiting.insert(key.clone(), pod);
                }
            }
            verdicts.push(Verdict { key, uid, node });
        }
        verdicts
    }

    /// When there is something to decide.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        if !self.queue.is_empty() {
            return Some(Timestamp::MIN);
        }
        self.parked.first().filter(|_| self.parked_may_hope).map(|(until, _)| *until)
    }

    /// Pods that have no node yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn unpark(&mut self, now: Timestamp) {
        if !self.parked_may_hope {
            return;
        }
        while let Some((until, _)) = self.parked.first()
            && *until <= now
        {
            let Some((_, key)) = self.parked.pop_first() else { break };
            if let Some(pod) = self.waiting.get_mut(&key) {
                pod.parked_until = None;
                self.queue.insert((Reverse(pod.template.priority), pod.arrival, key));
            }
        }
        self.parked_may_hope = !self.parked.is_empty();
    }

    /// Something happened that may make room.
    fn give_hope(&mut self) {
        self.hopeless.clear();
        self.parked_may_hope = !self.parked.is_empty();
    }

    fn await_node(&mut self, pod: &Pod) {
        let key = &pod.meta.key;
        if let Some(known) = self.waiting.get(key)
            && known.uid == pod.meta.uid
            && known.template == pod.template
        {
            return;
        }
        match self.placed.get(key) {
            // The watch may still show a pod as unbound that was given a node a moment ago.
            Some(placed) if placed.uid == pod.meta.uid => return,
            // It may also have been silent while one pod went and another came in its name.
            Some(_) => self.displace(key),
            None => {}
        }
        self.stop_waiting(key);
        self.arrivals += 1;
        let waiting = Waiting {
            uid: pod.meta.uid.clone(),
            template: pod.template.clone(),
            labels: pod.meta.labels.clone(),
            terms: pod.pod_terms.clone(),
            arrival: self.arrivals,
            attempts: 0,
            parked_until: None,
        };
        self.queue.insert((Reverse(pod.template.priority), self.arrivals, key.clone()));
        if waiting.terms.is_some() {
            self.choosy.insert(key.clone());
        }
        self.waiting.insert(key.clone(), waiting);
    }

    fn stop_waiting(&mut self, key: &Key) {
        if let Some(pod) = self.waiting.remove(key) {
            self.choosy.remove(key);
            self.queue.remove(&(Reverse(pod.template.priority), pod.arrival, key.clone()));
            if let Some(until) = pod.parked_until {
                self.parked.remove(&(until, key.clone()));
            }
        }
    }

    fn place(&mut self, key: &Key, placed: AssignedPod) {
        if let Some(known) = self.placed.get_mut(key)
            && known.node == placed.node
            && known.template == placed.template
        {
            (known.uid, known.labels) = (placed.uid, placed.labels);
            return;
        }
        self.displace(key);
        self.nodes.entry(placed.node.clone()).or_default().fill(&placed.template, 1);
        if placed.terms.as_ref().is_some_and(|terms| !terms.apart.is_empty()) {
            self.assigned_with_anti_affinity.insert(key.clone());
        }
        self.placed.insert(key.clone(), placed);
        if !self.choosy.is_empty() {
            self.give_hope();
        }
    }

    fn displace(&mut self, key: &Key) {
        let Some(placed) = self.placed.remove(key) else { return };
        self.assigned_with_anti_affinity.remove(key);
        if let Some(info) = self.nodes.get_mut(&placed.node) {
            info.fill(&placed.template, -1);
            if info.is_unused() {
                self.nodes.remove(&placed.node);
            }
        }
        self.give_hope();
    }

    /// The best of enough nodes, or why there is none.
    fn find_node(&mut self, key: &Key, pod: &Waiting) -> Result<InternedStr, String> {
        let stands_alone = pod.terms.is_none() && self.assigned_with_anti_affinity.is_empty();
        if stands_alone && let Some((_, why)) = self.hopeless.iter().find(|(one, _)| *one == pod.template) {
            return Err(why.clone());
        }
        let domains = TopologyDomains::around(self, key, pod);
        let mut obstacles: BTreeMap<FitError, usize> = BTreeMap::new();
        let mut best: Vec<&InternedStr> = Vec::new();
        let mut best_score = i64::MIN;
        let mut fitting = 0;
        // Starting anywhere keeps the first nodes by name from being filled first.
        let there = self.nodes.iter().filter(|(_, info)| info.is_there);
        let count = there.clone().count();
        let start = if count == 0 { 0 } else { self.chance.usize(0..count) };
        for (name, info) in there.clone().skip(start).chain(there.take(start)) {
            match info.admits(name, &pod.template).and_then(|()| domains.admit(&info.labels)) {
                Err(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
                Ok(()) => {
                    fitting += 1;
                    let score = info.score(&pod.template);
                    if score > best_score {
                        best.clear();
                        best_score = score;
                    }
                    if score == best_score {
                        best.push(name);
                    }
                    if fitting >= ENOUGH_NODES {
                        break;
                    }
                }
            }
        }
        if best.is_empty() {
            let why = explain(count, &obstacles);
            if stands_alone {
                self.hopeless.push((pod.template.clone(), why.clone()));
            }
            return Err(why);
        }
        Ok(best[self.chance.usize(0..best.len())].clone())
    }
}

/// Parity: the words of kube-scheduler, which people search for.
fn explain(nodes: usize, obstacles: &BTreeMap<FitError, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut reasons: Vec<String> =
        obstacles.iter().map(|(obstacle, count)| format!("{count} {obstacle}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}
