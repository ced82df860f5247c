//! The part of a pod that all pods of one template have in common; held once for all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use internment::ArcIntern;
use keleustes_objects::{InternedStr, Quantity};
use serde::Deserialize;

use super::terms::{NodeTerm, Toleration};
use crate::behaviour::Behaviour;

/// A shared template. Equal templates are one allocation, so comparing two costs nothing.
pub(crate) type TemplateRef = ArcIntern<Template>;

/// What pods of one owner have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    pub(crate) scheduler: InternedStr,
    pub(crate) priority: i32,
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) host_network: bool,
    pub(crate) active_for_max: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) containers: Box<[Container]>,
    pub(crate) init_containers: Box<[InitContainer]>,
    /// Conditions of others that readiness waits for.
    pub(crate) readiness_gates: Box<[InternedStr]>,
    pub(crate) requests: Requests,
    pub(crate) node_selector: Box<[(InternedStr, InternedStr)]>,
    /// Any of these must fit the node, if there are any demands.
    pub(crate) node_terms: Option<Box<[NodeTerm]>>,
    pub(crate) tolerations: Box<[Toleration]>,
    pub(crate) behaviour: Behaviour,
}

/// What happens when a container has exited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A container that the pod is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Container {
    pub(crate) name: InternedStr,
    pub(crate) image: InternedStr,
}

/// A container that runs before those, or from before them until after them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct InitContainer {
    pub(crate) name: InternedStr,
    pub(crate) image: InternedStr,
    /// Whether it keeps running beside the containers of the pod.
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

/// An amount in thousandths; what is none counts as nothing.
pub(super) fn thousandths(amount: &str) -> i64 {
    Quantity::parse(amount).map_or(0, Quantity::milli)
}

impl Requests {
    /// Reads amounts by name; what is no amount counts as nothing.
    pub(crate) fn read(amounts: &BTreeMap<InternedStr, String>) -> Self {
        let mut read = Self::default();
        for (name, amount) in amounts {
            *read.amount(name) = thousandths(amount);
        }
        read
    }

    /// The amount of one resource, to be changed.
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

    /// The amount of a resource that is neither of the usual three.
    pub(crate) fn other(&self, name: &InternedStr) -> i64 {
        self.other.binary_search_by(|(one, _)| one.cmp(name)).map_or(0, |at| self.other[at].1)
    }

    /// Adds the amounts of another, or takes them away.
    pub(crate) fn add(&mut self, more: &Self, sign: i64) {
        self.cpu += sign * more.cpu;
        self.memory += sign * more.memory;
        self.pods += sign * more.pods;
        for (name, amount) in &more.other {
            let sum = self.amount(name);
            *sum = sum.saturating_add(sign.saturating_mul(*amount));
        }
    }

    /// Takes the larger amount of each resource.
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
