//! Keeps the graph in line with what is seen of all objects.

use keleustes_objects::{Key, Meta, Resource, TypeMeta};
use keleustes_plan::{Effects, Memory, Metric, Observer};

use super::{CHANGES, Graph, GraphEffects, SYNC_ERRORS};

/// Observes everything but events, which are many, short-lived, and own nothing.
pub(super) struct Everything {
    pub(super) memory: Memory<Graph>,
}

impl Everything {
    fn change(&self, stir: &mut Effects, change: impl FnOnce(&mut Graph, &mut GraphEffects)) {
        let mut ripple = GraphEffects::default();
        self.memory.with(|graph| change(graph, &mut ripple));
        let Effects { woken, events } = ripple.into();
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

    fn saw_all(&self, resource: &Resource, metas: &[&Meta], unreadable: &[Key], stir: &mut Effects) {
        let line = TypeMeta::of(resource);
        self.change(stir, |graph, ripple| graph.saw_all(&line, metas.iter().copied(), unreadable, ripple));
    }

    fn saw(&self, resource: &Resource, meta: &Meta, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.saw(&TypeMeta::of(resource), meta, ripple));
    }

    fn lost(&self, resource: &Resource, meta: &Meta, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.lost(&TypeMeta::of(resource), meta, ripple));
    }

    fn begin(&self, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.requeue_all(ripple));
    }
}
