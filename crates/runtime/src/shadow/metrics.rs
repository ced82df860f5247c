//! The metrics of shadow mode. They exist only in a process that shadows.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::comparison::Counted;

pub(super) struct ShadowMetrics {
    decisions: IntCounterVec,
    agreements: IntCounterVec,
    withdrawn: IntCounterVec,
    differences: IntCounterVec,
    foreign: IntCounterVec,
    unchecked: IntCounter,
}

impl ShadowMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let family = |name: &str, help: &str, labels: &[&str]| {
            let options = Opts::new(format!("keleustes_shadow_{name}"), format!("[ALPHA] {help}"));
            let family = IntCounterVec::new(options, labels).expect("metric names are valid");
            registry.register(Box::new(family.clone())).expect("there is one shadow in a process");
            family
        };
        let unchecked = IntCounter::new(
            "keleustes_shadow_unchecked_changes_total",
            "[ALPHA] Changes of objects that were not compared: too many at once, or another client wrote the object in the same second.",
        )
        .expect("metric names are valid");
        registry.register(Box::new(unchecked.clone())).expect("there is one shadow in a process");
        Self {
            decisions: family("decisions_total", "Writes that a controller wanted.", &["controller"]),
            agreements: family(
                "agreements_total",
                "Writes of the leader that this process would have made, too.",
                &["controller"],
            ),
            withdrawn: family(
                "withdrawn_decisions_total",
                "Decisions that disappeared without a write of the leader.",
                &["controller"],
            ),
            differences: family(
                "differences_total",
                "Writes that only this process or only the leader would make, or with another content.",
                &["controller", "kind", "known"],
            ),
            foreign: family(
                "foreign_changes_total",
                "Changes of objects of controllers by other clients.",
                &["resource"],
            ),
            unchecked,
        }
    }

    pub(super) fn count(&self, counted: &Counted) {
        match counted {
            Counted::Decision(controller) => self.decisions.with_label_values(&[*controller]).inc(),
            Counted::Agreement(controller) => self.agreements.with_label_values(&[controller.as_str()]).inc(),
            Counted::Withdrawn(controller) => self.withdrawn.with_label_values(&[*controller]).inc(),
            Counted::Difference(controller, kind, known) => {
                let kind = kind.as_str().replace(' ', "_");
                let known = if *known { "true" } else { "false" };
                self.differences.with_label_values(&[controller.as_str(), &kind, known]).inc();
            }
            Counted::Foreign(resource) => self.foreign.with_label_values(&[resource.as_str()]).inc(),
        }
    }

    pub(super) fn unchecked(&self) {
        self.unchecked.inc();
    }
}
