//! Keeps the graph in line with what is seen of all objects.

use keleustes_objects::{Key, ObjectMeta, Resource, TypeMeta};
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
        let Effects { enqueued: woken, events } = ripple.into();
        stir.enqueued.extend(woken);
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

    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], stir: &mut Effects) {
        let line = TypeMeta::of(resource);
        self.change(stir, |graph, ripple| graph.apply_list(&line, metas.iter().copied(), unreadable, ripple));
    }

    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.apply_update(&TypeMeta::of(resource), meta, ripple));
    }

    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.apply_delete(&TypeMeta::of(resource), meta, ripple));
    }

    fn on_start_leading(&self, stir: &mut Effects) {
        self.change(stir, |graph, ripple| graph.requeue_all(ripple));
    }
}
