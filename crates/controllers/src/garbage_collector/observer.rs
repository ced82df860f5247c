//! Keeps the graph in line with what is seen of all objects.

use keleustes_objects::{Key, Meta, Resource, TypeLine};
use keleustes_plan::{Memory, Metric, Observer, Stir};

use super::{CHANGES, Graph, Ripple, SYNC_ERRORS};

/// Observes everything but events, which are many, short-lived, and own nothing.
pub(super) struct Everything {
    pub(super) memory: Memory<Graph>,
}

impl Everything {
    fn change(&self, stir: &mut Stir, change: impl FnOnce(&mut Graph, &mut Ripple)) {
        let mut ripple = Ripple::default();
        self.memory.with(|graph| change(graph, &mut ripple));
        let Stir { woken, events } = ripple.into();
        stir.woken.extend(woken);
        stir.events.extend(events);
    }
}

impl Observer for Everything {
    fn queue(&self) -> &'static str {
        CHANGES
    }

    fn failures(&self) -> &'static Metric {
        &SYNC_ERRORS
    }

    fn ignores(&self, resource: &Resource) -> bool {
        resource.plural == "events" && (resource.group.is_empty() || resource.group == "events.k8s.io")
    }

    fn saw_all(&self, resource: &Resource, metas: &[&Meta], unreadable: &[Key], stir: &mut Stir) {
        let line = TypeLine::of(resource);
        self.change(stir, |graph, ripple| graph.saw_all(&line, metas.iter().copied(), unreadable, ripple));
    }

    fn saw(&self, resource: &Resource, meta: &Meta, stir: &mut Stir) {
        self.change(stir, |graph, ripple| graph.saw(&TypeLine::of(resource), meta, ripple));
    }

    fn lost(&self, resource: &Resource, meta: &Meta, stir: &mut Stir) {
        self.change(stir, |graph, ripple| graph.lost(&TypeLine::of(resource), meta, ripple));
    }

    fn begin(&self, stir: &mut Stir) {
        self.change(stir, |graph, ripple| graph.rouse(ripple));
    }
}
