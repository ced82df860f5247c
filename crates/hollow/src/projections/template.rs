//! The part of a pod that all pods of one template share; stored once.

use std::collections::BTreeMap;
use std::time::Duration;

use internment::ArcIntern;
use keleustes_objects::{InternedStr, Quantity};
use serde::Deserialize;

use super::terms::{NodeTerm, Toleration};
use crate::behaviour::Behaviour;

/// An interned template. Equal templates share one allocation, so comparing them is cheap.
pub(crate) type TemplateRef = ArcIntern<Template>;

/// The fields that pods of one owner share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    pub(crate) scheduler: InternedStr,
    pub(crate) priority: i32,
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) host_network: bool,
    pub(crate) active_deadline: Option<Duration>,
    pub(crate) grace_period: Duration,
    pub(crate) containers: Box<[Container]>,
    pub(crate) init_containers: Box<[InitContainer]>,
    /// Condition types of the readiness gates.
    pub(crate) readiness_gates: Box<[InternedStr]>,
    pub(crate) requests: Requests,
    pub(crate) node_selector: Box<[(InternedStr, InternedStr)]>,
    /// At least one of these must match the node, if `Some`.
    pub(crate) node_terms: Option<Box<[NodeTerm]>>,
    pub(crate) tolerations: Box<[Toleration]>,
    pub(crate) behaviour: Behaviour,
}

/// Restart policy of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A main container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Container {
    pub(crate) name: InternedStr,
    pub(crate) image: InternedStr,
}

/// An init container or sidecar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct InitContainer {
    pub(crate) name: InternedStr,
    pub(crate) image: InternedStr,
    /// Whether it has restart policy `Always`.
    pub(crate) is_sidecar: bool,
}

/// Amounts of resources, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Requests {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) pods: i64,
    /// All others, sorted by name.
    pub(crate) other: Vec<(InternedStr, i64)>,
}

/// A quantity in thousandths; zero if it is invalid.
pub(super) fn thousandths(amount: &str) -> i64 {
    Quantity::parse(amount).map_or(0, Quantity::milli)
}

impl Requests {
    /// Parses amounts by name; invalid ones count as zero.
    pub(crate) fn read(amounts: &BTreeMap<InternedStr, String>) -> Self {
        let mut read = Self::default();
        for (name, amount) in amounts {
            *read.amount(name) = thousandths(amount);
        }
        read
    }

    /// The amount of one resource, mutable.
    pub(crate) fn amount(&mut self, name: &InternedStr) -> &mut i64 {
        match name.as_str() {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "pods" => &mut self.pods,
            _ => {
                let at = self.other.binary_search_by(|(one, _)| one.cmp(name)).unwrap_or_else(|at| {
                    self.other.insert(at, (name.clone(), 0));
                    at
                });
                &mut self.other[at].1
            }
        }
    }

    /// The amount of a resource other than CPU, memory and pods.
    pub(crate) fn other(&self, name: &InternedStr) -> i64 {
        self.other.binary_search_by(|(one, _)| one.cmp(name)).map_or(0, |at| self.other[at].1)
    }

    /// Adds (`sign` 1) or subtracts (-1) the amounts of another.
    pub(crate) fn add(&mut self, more: &Self, sign: i64) {
        self.cpu += sign * more.cpu;
        self.memory += sign * more.memory;
        self.pods += sign * more.pods;
        for (name, amount) in &more.other {
            let sum = self.amount(name);
            *sum = sum.saturating_add(sign.saturating_mul(*amount));
        }
    }

    /// Raises each resource to the larger amount.
    pub(crate) fn raise_to(&mut self, least: &Self) {
        self.cpu = self.cpu.max(least.cpu);
        self.memory = self.memory.max(least.memory);
        self.pods = self.pods.max(least.pods);
        for (name, amount) in &least.other {
            let sum = self.amount(name);
            *sum = (*sum).max(*amount);
        }
    }
}
