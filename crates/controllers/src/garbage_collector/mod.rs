//! Deletes objects whose owners are all gone, has owners wait for their dependents, or sets these free.
//!
//! An observer keeps a graph of all objects and their owners. A change to it sets nodes in motion, on two
//! queues. One checks whether an object may be deleted or may let go of its finalizer
//! `foregroundDeletion`; the other takes an owner with the finalizer `orphan` off its dependents. The graph
//! only says where to look: before anything is deleted, the API is asked about the object and each of its
//! owners, and the delete names the life and the state that was seen.
//!
//! The graph is memory that a failover loses. It is made anew from what the server lists, and
//! [`Graph::requeue_all`] sets everything in motion again that was under way, so a restart in the middle of a
//! deletion finishes it.
//!
//! Parity: pkg/controller/garbagecollector.

mod absent;
mod check;
mod dot;
mod graph;
mod identity;
mod observer;
mod orphan;
mod places;
mod references;

use keleustes_objects::Uid;
use keleustes_plan::{Controller, DebugPage, Effects, Grant, Item, Loop, Memory, Metric, QpsMultiplier};

pub use graph::{Graph, GraphEffects};

use self::check::Check;
use self::observer::Everything;
use self::orphan::Orphan;

/// What the controller needs to be told.
#[derive(Clone, Debug)]
pub struct GarbageCollectorOptions {
    /// Whether it runs at all.
    pub enabled: bool,
    /// How many objects are checked, and how many owners set their dependents free, at once.
    pub workers: usize,
    /// A secret by which uids are hashed.
    pub hash_key: u64,
}

impl Default for GarbageCollectorOptions {
    fn default() -> Self {
        Self { enabled: true, workers: 20, hash_key: 0 }
    }
}

const CHECKS: &str = "garbage_collector_attempt_to_delete";
const ORPHANINGS: &str = "garbage_collector_attempt_to_orphan";
const CHANGES: &str = "garbage_collector_graph_changes";

static SYNC_ERRORS: Metric = Metric::counter(
    "garbagecollector_controller_resources_sync_error_total",
    "Number of garbage collector resources sync errors",
    &[],
);

/// The controller, unless it is switched off: then nobody keeps a graph.
pub(crate) fn controller_if_enabled(settings: &GarbageCollectorOptions) -> Option<Controller> {
    settings.enabled.then(|| controller(settings))
}

/// The controller.
#[must_use]
pub fn controller(settings: &GarbageCollectorOptions) -> Controller {
    let memory = Memory::new(Graph::new(settings.hash_key));
    let shown = memory.clone();
    Controller::new("garbage-collector-controller")
        .also_known_as(&["garbagecollector"])
        .service_account("generic-garbage-collector")
        .event_component("garbage-collector-controller")
        .may_write(&[Grant {
            group: "*",
            resource: "*",
            verbs: &["get", "list", "watch", "patch", "update", "delete"],
        }])
        .qps_multiplier(QpsMultiplier { qps: 2, burst: 1 })
        .metrics([&SYNC_ERRORS])
        .observer(Everything { memory: memory.clone() })
        .debug_handler(move |path, query| show(&shown, path, query))
        .with_loop(Loop::reconciling(CHECKS, Check { memory: memory.clone() }).workers(settings.workers))
        .with_loop(Loop::reconciling(ORPHANINGS, Orphan { memory }).workers(settings.workers))
}

/// The graph as a picture, at `graph`; all of it, or what is connected with some uids.
fn show(memory: &Memory<Graph>, path: &str, query: &[(String, String)]) -> Option<DebugPage> {
    if path != "graph" {
        return None;
    }
    let uids: Vec<Uid> =
        query.iter().filter(|(name, _)| name == "uid").map(|(_, uid)| Uid::from(uid.as_str())).collect();
    let picture = memory.with(|graph| dot::picture(graph, &uids));
    Some(DebugPage { content_type: "text/vnd.graphviz", body: dot::draw(&picture) })
}

/// Marks an item that was queued when nobody had seen its object yet.
const VIRTUAL: &str = "virtual";

/// The item of a node.
fn item_of(uid: &Uid, is_virtual: bool) -> Item {
    let item = Item::from(keleustes_objects::Key::cluster(uid.to_string()));
    if is_virtual { item.with_attribute(VIRTUAL, "true") } else { item }
}

impl From<GraphEffects> for Effects {
    fn from(ripple: GraphEffects) -> Self {
        let mut stir = Self { events: ripple.events, ..Self::default() };
        for check in ripple.checks {
            let item = item_of(&check.uid, check.is_virtual);
            if check.slowly { stir.enqueue_rate_limited(CHECKS, item) } else { stir.enqueue(CHECKS, item) }
        }
        ripple.attempts_to_orphan.iter().for_each(|uid| stir.enqueue(ORPHANINGS, item_of(uid, false)));
        stir
    }
}

#[cfg(test)]
mod tests;
