//! Whether a pod fits on a node, and how well.

use std::fmt;

use keleustes_objects::{InternedStr, Labels};

use crate::seen::{Effect, Node, Requests, Taint, Template, Toleration};

/// What a pod is taken to need that does not say, so that such pods spread as well. Parity: kube-scheduler.
const USUAL_CPU: i64 = 100;
const USUAL_MEMORY: i64 = 200 * 1024 * 1024 * 1000;
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// A node and what runs on it.
#[derive(Debug, Default)]
pub(super) struct NodeInfo {
    /// Whether there is a Node object.
    pub(super) is_there: bool,
    pub(super) labels: Labels,
    unschedulable: bool,
    taints: Box<[Taint]>,
    allocatable: Requests,
    used: Requests,
    /// Like `used`, with the usual needs of pods that state none.
    weight: (i64, i64),
    pods: usize,
}

/// Why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FitError {
    Unschedulable,
    Tainted,
    NodeAffinityMismatch,
    TooManyPods,
    HostPortConflict,
    Insufficient(InternedStr),
    PodAntiAffinityMismatch,
    ExistingPodAntiAffinityMismatch,
    PodAffinityMismatch,
}

impl NodeInfo {
    /// Takes in a node. True if pods that did not fit may fit now.
    pub(super) fn observe(&mut self, node: &Node) -> bool {
        let is_news = !self.is_there
            || self.unschedulable != node.unschedulable
            || self.taints != node.taints
            || self.labels != node.meta.labels
            || self.allocatable != node.allocatable;
        if is_news {
            self.is_there = true;
            self.unschedulable = node.unschedulable;
            self.taints.clone_from(&node.taints);
            self.labels = node.meta.labels.clone();
            self.allocatable = node.allocatable.clone();
        }
        is_news
    }

    /// The Node object is gone.
    pub(super) fn vanish(&mut self) {
        self.is_there = false;
    }

    /// Whether nothing is left to remember.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_there && self.pods == 0
    }

    /// Adds a pod, or takes one away.
    pub(super) fn fill(&mut self, template: &Template, sign: i64) {
        self.used.add(&template.requests, sign);
        let (cpu, memory) = weight(&template.requests);
        self.weight.0 += sign * cpu;
        self.weight.1 += sign * memory;
        self.pods = self.pods.saturating_add_signed(if sign > 0 { 1 } else { -1 });
    }

    /// Whether a pod may run here, as far as node and pod alone can tell.
    pub(super) fn admits(&self, name: &InternedStr, template: &Template) -> Result<(), FitError> {
        if self.unschedulable && !tolerated(&unschedulable(), &template.tolerations) {
            return Err(FitError::Unschedulable);
        }
        let repels = |taint: &&Taint| matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute);
        if !self.taints.iter().filter(repels).all(|taint| tolerated(taint, &template.tolerations)) {
            return Err(FitError::Tainted);
        }
        let selected =
            template.node_selector.iter().all(|(key, value)| self.labels.value(key) == Some(value));
        let terms = template.node_terms.as_deref();
        if !selected || terms.is_some_and(|terms| !terms.iter().any(|term| term.fits(name, &self.labels))) {
            return Err(FitError::NodeAffinityMismatch);
        }
        self.has_room(&template.requests)
    }

    fn has_room(&self, wanted: &Requests) -> Result<(), FitError> {
        let (has, used) = (&self.allocatable, &self.used);
        if used.pods + wanted.pods > has.pods {
            return Err(FitError::TooManyPods);
        }
        if wanted.cpu > 0 && used.cpu + wanted.cpu > has.cpu {
            return Err(FitError::Insufficient(InternedStr::from("cpu")));
        }
        if wanted.memory > 0 && used.memory + wanted.memory > has.memory {
            return Err(FitError::Insufficient(InternedStr::from("memory")));
        }
        for (name, amount) in wanted.other.iter().filter(|(_, amount)| *amount > 0) {
            if name.starts_with(Requests::HOST_PORT) {
                if used.other(name) > 0 {
                    return Err(FitError::HostPortConflict);
                }
            } else if used.other(name).saturating_add(*amount) > has.other(name) {
                return Err(FitError::Insufficient(name.clone()));
            }
        }
        Ok(())
    }

    /// How much would be left, in percent of processor and memory.
    pub(super) fn score(&self, template: &Template) -> i64 {
        let (cpu, memory) = weight(&template.requests);
        let left = |has: i64, used: i64| if has <= 0 { 0 } else { (has - used).max(0) / (has / 100).max(1) };
        left(self.allocatable.cpu, self.weight.0 + cpu)
            + left(self.allocatable.memory, self.weight.1 + memory)
    }
}

fn weight(requests: &Requests) -> (i64, i64) {
    let or_usual = |amount: i64, usual: i64| if amount == 0 { usual } else { amount };
    (or_usual(requests.cpu, USUAL_CPU), or_usual(requests.memory, USUAL_MEMORY))
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

fn unschedulable() -> Taint {
    Taint { key: InternedStr::from(UNSCHEDULABLE_TAINT), effect: Effect::NoSchedule, ..Taint::default() }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::NodeAffinityMismatch => "node(s) didn't match Pod's node affinity/selector",
            Self::TooManyPods => "Too many pods",
            Self::HostPortConflict => "node(s) didn't have free ports for the requested pod ports",
            Self::Insufficient(name) => return write!(f, "Insufficient {name}"),
            Self::PodAntiAffinityMismatch => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingPodAntiAffinityMismatch => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
            Self::PodAffinityMismatch => "node(s) didn't match pod affinity rules",
        })
    }
}
