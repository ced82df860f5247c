//! The graph builder: applies every watch event to the graph.

use keleustes_objects::{ApiResource, Key, ObjectMeta, Resource, TypeMeta, Uid};
use keleustes_plan::{Effects, Memory, Metric, ObservedWork, Observer};

use super::{GRAPH_CHANGES, Graph, GraphEffects, SYNC_ERRORS};

/// Observes every resource except events, which are numerous, short-lived, and own nothing.
pub(super) struct GraphBuilder {
    pub(super) memory: Memory<Graph>,
}

impl GraphBuilder {
    fn apply(&self, effects: &mut Effects, change: impl FnOnce(&mut Graph, &mut GraphEffects)) {
        let mut graph_effects = GraphEffects::default();
        self.memory.with(|graph| change(graph, &mut graph_effects));
        effects.extend(graph_effects.into());
    }
}

impl Observer for GraphBuilder {
    fn queue(&self) -> Option<&'static str> {
        Some(GRAPH_CHANGES)
    }

    fn failures(&self) -> Option<&'static Metric> {
        Some(&SYNC_ERRORS)
    }

    fn ignores(&self, resource: &ApiResource) -> bool {
        let resource = &resource.resource;
        resource.plural == "events" && (resource.group.is_empty() || resource.group == "events.k8s.io")
    }

    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], effects: &mut Effects) {
        let type_meta = TypeMeta::of(resource);
        self.apply(effects, |graph, graph_effects| {
            graph.apply_list(&type_meta, metas.iter().copied(), unreadable, graph_effects);
        });
    }

    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        self.apply(effects, |graph, graph_effects| {
            graph.apply_update(&TypeMeta::of(resource), meta, graph_effects);
        });
    }

    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        self.apply(effects, |graph, graph_effects| {
            graph.apply_delete(&TypeMeta::of(resource), meta, graph_effects);
        });
    }

    fn on_start_leading(&self, effects: &mut Effects) {
        self.apply(effects, |graph, graph_effects| graph.requeue_all(graph_effects));
    }

    fn work_for(&self, uid: &Uid) -> ObservedWork {
        self.memory.with(|graph| graph.work_for(uid))
    }
}
