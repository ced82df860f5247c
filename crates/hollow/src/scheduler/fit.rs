//! Filters and scores nodes for a pod.

use std::fmt;

use keleustes_objects::{InternedStr, Labels};

use crate::claims::ClaimConflict;
use crate::projections::{Effect, Node, Requests, Taint, Template, Toleration};

/// Default requests for scoring pods without requests, so that they spread as well. Parity: kube-scheduler.
const DEFAULT_CPU_REQUEST: i64 = 100;
const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024 * 1000;
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// A node and the requests of its pods.
#[derive(Debug, Default)]
pub(super) struct NodeInfo {
    /// Whether the Node object exists.
    pub(super) exists: bool,
    pub(super) labels: Labels,
    unschedulable: bool,
    taints: Box<[Taint]>,
    allocatable: Requests,
    used: Requests,
    /// Like `used`, with default requests for pods without.
    scored_requests: (i64, i64),
    pods: usize,
}

/// Why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FitError {
    Unschedulable,
    UntoleratedTaint,
    NodeAffinityMismatch,
    TooManyPods,
    HostPortConflict,
    Insufficient(InternedStr),
    PodAntiAffinityMismatch,
    ExistingPodAntiAffinityMismatch,
    PodAffinityMismatch,
    VolumeNodeAffinityMismatch,
    NoVolumeToBind,
}

impl From<ClaimConflict> for FitError {
    fn from(conflict: ClaimConflict) -> Self {
        match conflict {
            ClaimConflict::NodeAffinity => Self::VolumeNodeAffinityMismatch,
            ClaimConflict::NothingToBind => Self::NoVolumeToBind,
        }
    }
}

impl NodeInfo {
    /// Applies a node. Returns true if pods that did not fit may fit now.
    pub(super) fn observe(&mut self, node: &Node) -> bool {
        let changed = !self.exists
            || self.unschedulable != node.unschedulable
            || self.taints != node.taints
            || self.labels != node.meta.labels
            || self.allocatable != node.allocatable;
        if changed {
            self.exists = true;
            self.unschedulable = node.unschedulable;
            self.taints.clone_from(&node.taints);
            self.labels = node.meta.labels.clone();
            self.allocatable = node.allocatable.clone();
        }
        changed
    }

    /// The Node object was deleted.
    pub(super) fn mark_deleted(&mut self) {
        self.exists = false;
    }

    /// Whether neither Node object nor pods are left.
    pub(super) fn is_unused(&self) -> bool {
        !self.exists && self.pods == 0
    }

    /// Adds (`sign` 1) or removes (-1) the requests of a pod.
    pub(super) fn add_requests(&mut self, template: &Template, sign: i64) {
        self.used.add(&template.requests, sign);
        let (cpu, memory) = scored_requests(&template.requests);
        self.scored_requests.0 += sign * cpu;
        self.scored_requests.1 += sign * memory;
        self.pods = self.pods.saturating_add_signed(if sign > 0 { 1 } else { -1 });
    }

    /// Whether a pod fits, as far as node and pod alone decide.
    pub(super) fn check(&self, name: &InternedStr, template: &Template) -> Result<(), FitError> {
        if self.unschedulable && !tolerated(&unschedulable(), &template.tolerations) {
            return Err(FitError::Unschedulable);
        }
        let prevents_scheduling =
            |taint: &&Taint| matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute);
        if !self
            .taints
            .iter()
            .filter(prevents_scheduling)
            .all(|taint| tolerated(taint, &template.tolerations))
        {
            return Err(FitError::UntoleratedTaint);
        }
        let selected =
            template.node_selector.iter().all(|(key, value)| self.labels.value(key) == Some(value));
        let terms = template.node_terms.as_deref();
        if !selected || terms.is_some_and(|terms| !terms.iter().any(|term| term.matches(name, &self.labels)))
        {
            return Err(FitError::NodeAffinityMismatch);
        }
        self.check_resources(&template.requests)
    }

    fn check_resources(&self, wanted: &Requests) -> Result<(), FitError> {
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

    /// The remaining CPU and memory in percent, summed.
    pub(super) fn score(&self, template: &Template) -> i64 {
        let (cpu, memory) = scored_requests(&template.requests);
        let left = |has: i64, used: i64| if has <= 0 { 0 } else { (has - used).max(0) / (has / 100).max(1) };
        left(self.allocatable.cpu, self.scored_requests.0 + cpu)
            + left(self.allocatable.memory, self.scored_requests.1 + memory)
    }
}

fn scored_requests(requests: &Requests) -> (i64, i64) {
    let or_default = |amount: i64, default: i64| if amount == 0 { default } else { amount };
    (or_default(requests.cpu, DEFAULT_CPU_REQUEST), or_default(requests.memory, DEFAULT_MEMORY_REQUEST))
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
            Self::UntoleratedTaint => "node(s) had untolerated taint(s)",
            Self::NodeAffinityMismatch => "node(s) didn't match Pod's node affinity/selector",
            Self::TooManyPods => "Too many pods",
            Self::HostPortConflict => "node(s) didn't have free ports for the requested pod ports",
            Self::Insufficient(name) => return write!(f, "Insufficient {name}"),
            Self::PodAntiAffinityMismatch => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingPodAntiAffinityMismatch => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
            Self::PodAffinityMismatch => "node(s) didn't match pod affinity rules",
            Self::VolumeNodeAffinityMismatch => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolumeToBind => "node(s) didn't find available persistent volumes to bind",
        })
    }
}
