//! Deletes dependents whose owners no longer exist, completes foreground deletion, and orphans dependents.
//!
//! The graph builder (an observer of every resource) keeps a graph of all objects and their owner references.
//! A change to the graph enqueues nodes on two queues. `attempt_to_delete` checks whether an object must be
//! deleted or may lose its finalizer `foregroundDeletion`; `attempt_to_orphan` removes an owner with the
//! finalizer `orphan` from the ownerReferences of its dependents. The graph only selects candidates: before
//! the garbage collector deletes an object, it reads the object and each of its owners live, and the DELETE
//! carries the UID and resourceVersion that were read as preconditions.
//!
//! The graph is in-memory state and is lost on failover. The new leader rebuilds it from lists, and
//! [`Graph::requeue_all`] enqueues every deletion that is still in progress, so a restart in the middle of a
//! deletion completes it.
//!
//! Parity: pkg/controller/garbagecollector.

mod absent_owner_cache;
mod attempt_to_delete;
mod attempt_to_orphan;
mod dot;
mod graph;
mod graph_builder;
mod identity;
mod lookup;
mod references;

use keleustes_objects::{Key, Uid};
use keleustes_plan::{Controller, DebugPage, Effects, Grant, Loop, Memory, Metric, QpsMultiplier, QueueItem};

pub use graph::{Graph, GraphEffects};

use self::attempt_to_delete::AttemptToDelete;
use self::attempt_to_orphan::AttemptToOrphan;
use self::graph_builder::GraphBuilder;

/// Options of the garbage collector.
#[derive(Clone, Debug)]
pub struct GarbageCollectorOptions {
    /// Whether the controller runs at all (`--enable-garbage-collector`).
    pub enabled: bool,
    /// Workers per queue (`--concurrent-gc-syncs`).
    pub workers: usize,
    /// Secret key of the hash over UIDs.
    pub hash_key: u64,
}

impl Default for GarbageCollectorOptions {
    fn default() -> Self {
        Self { enabled: true, workers: 20, hash_key: 0 }
    }
}

const ATTEMPT_TO_DELETE: &str = "garbage_collector_attempt_to_delete";
const ATTEMPT_TO_ORPHAN: &str = "garbage_collector_attempt_to_orphan";
const GRAPH_CHANGES: &str = "garbage_collector_graph_changes";

static SYNC_ERRORS: Metric = Metric::counter(
    "garbagecollector_controller_resources_sync_error_total",
    "Number of garbage collector resources sync errors",
    &[],
);

/// The controller, or `None` if it is disabled; then no graph is kept either.
pub(crate) fn controller_if_enabled(options: &GarbageCollectorOptions) -> Option<Controller> {
    options.enabled.then(|| controller(options))
}

/// Builds the controller.
#[must_use]
pub fn controller(options: &GarbageCollectorOptions) -> Controller {
    let memory = Memory::new(Graph::new(options.hash_key));
    let debug_graph = memory.clone();
    Controller::new("garbage-collector-controller")
        .service_account("generic-garbage-collector")
        .event_component("garbage-collector-controller")
        .may_write(&[Grant {
            group: "*",
            resource: "*",
            verbs: &["get", "list", "watch", "patch", "update", "delete"],
        }])
        .qps_multiplier(QpsMultiplier { qps: 2, burst: 1 })
        .metrics([&SYNC_ERRORS])
        .observer(GraphBuilder { memory: memory.clone() })
        .debug_handler(move |path, query| debug_page(&debug_graph, path, query))
        .with_loop(
            Loop::reconciling(ATTEMPT_TO_DELETE, AttemptToDelete { memory: memory.clone() })
                .workers(options.workers),
        )
        .with_loop(Loop::reconciling(ATTEMPT_TO_ORPHAN, AttemptToOrphan { memory }).workers(options.workers))
}

/// Serves the graph in DOT format at `graph`: the whole graph, or the parts connected to the `uid`
/// parameters.
fn debug_page(memory: &Memory<Graph>, path: &str, query: &[(String, String)]) -> Option<DebugPage> {
    if path != "graph" {
        return None;
    }
    let uids: Vec<Uid> =
        query.iter().filter(|(name, _)| name == "uid").map(|(_, uid)| Uid::from(uid.as_str())).collect();
    let dump = memory.with(|graph| dot::select(graph, &uids));
    Some(DebugPage { content_type: "text/vnd.graphviz", body: dot::to_dot(&dump) })
}

/// The queue item of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeItem {
    uid: Uid,
    /// Whether it was enqueued while its node was virtual.
    is_virtual: bool,
}

impl QueueItem for NodeItem {
    fn key(&self) -> Key {
        Key::cluster(self.uid.to_string())
    }

    fn text(&self) -> String {
        format!("{}{}", self.uid, if self.is_virtual { " virtual=true" } else { "" })
    }
}

impl From<GraphEffects> for Effects {
    fn from(graph_effects: GraphEffects) -> Self {
        let mut effects = Self::default();
        graph_effects.events.into_iter().for_each(|event| effects.record(event));
        for attempt in graph_effects.attempts_to_delete {
            let item = NodeItem { uid: attempt.uid.clone(), is_virtual: attempt.is_virtual };
            if attempt.rate_limited {
                effects.enqueue_rate_limited(ATTEMPT_TO_DELETE, item);
            } else {
                effects.enqueue(ATTEMPT_TO_DELETE, item);
            }
        }
        for uid in &graph_effects.attempts_to_orphan {
            effects.enqueue(ATTEMPT_TO_ORPHAN, NodeItem { uid: uid.clone(), is_virtual: false });
        }
        effects
    }
}

#[cfg(test)]
mod tests;
