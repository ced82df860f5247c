//! Attaches the volumes of scheduled pods to their nodes, and detaches them when no pod needs them.
//!
//! The controller keeps two states of the world in memory. The desired one says which volume is to be attached to which
//! node, for which pods; it follows pods, claims and volumes. The actual one says what is attached where; it follows what
//! the controller has done, and is built at the start from `status.volumesAttached` of the nodes and from the
//! VolumeAttachments. A reconcile of a node compares the two: it first detaches, then attaches, then reports what is
//! attached in `status.volumesAttached`, without which kubelet mounts nothing. A CSI volume is attached by creating its
//! VolumeAttachment and detached by deleting it; the external attacher of the driver does the work.
//!
//! A volume is detached only if the node does not have it in use, by the cache and by a live read, and after the node's
//! status no longer lists it. Only two rules override that: the node is not Ready or gone for six minutes, or it is
//! tainted as out of service. A volume that only one node may have is attached only after every other node has lost it.
//! An operation that fails leaves its volume uncertain: it counts as attached until an attach or a detach succeeds.
//!
//! Parity: pkg/controller/volume/attachdetach.

mod actual;
mod claims;
mod decide;
mod desired;
mod gauges;
mod metrics;
mod operations;
mod passes;
mod reconcile;
mod resolve;
mod sha256;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod translate;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ArcStr, CsiDriver, CsiNode, Key, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodParts,
    VolumeAttachment,
};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Memory, QueueItem, View};

use self::claims::ClaimReconciler;
use self::gauges::Gauges;
use self::reconcile::NodeReconciler;
use self::state::State;
use self::volume::NodeName;
use crate::pods_by_claim::BY_CLAIM;

/// The name of the controller.
pub const NAME: &str = "persistentvolume-attach-detach-controller";

/// Options of the attach-detach controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachDetachOptions {
    /// How often it is verified that attached volumes are attached (`--attach-detach-reconcile-sync-period`).
    pub reconcile_sync_period: Duration,
    /// Whether that is never verified (`--disable-attach-detach-reconcile-sync`).
    pub disable_reconcile_sync: bool,
    /// Whether a volume on an unhealthy node is never detached by force (`--disable-force-detach-on-timeout`).
    pub disable_force_detach_on_timeout: bool,
}

impl Default for AttachDetachOptions {
    fn default() -> Self {
        Self {
            reconcile_sync_period: Duration::from_secs(60),
            disable_reconcile_sync: false,
            disable_force_detach_on_timeout: false,
        }
    }
}

/// The queue of nodes, which takes the place of the original's loop over everything every 100 ms.
const NODES_QUEUE: &str = "attachdetach_nodes";
/// The queue of claims.
const CLAIMS_QUEUE: &str = "pvcs";
/// How many nodes are reconciled at once. The original starts all operations at once.
const NODE_WORKERS: usize = 16;

/// Why a change of a claim, a volume or a driver enqueues no node.
const POPULATED: &str = "the pass over the desired state reads it again";

/// Builds the controller.
#[must_use]
pub fn controller(options: AttachDetachOptions) -> Controller {
    let state = Memory::<State>::default();
    let reconciler = NodeReconciler { state: state.clone(), options, gauges: Gauges::default() };
    let at_start = state.clone();
    let nodes = with_caches(Loop::reconciling(NODES_QUEUE, reconciler))
        .before_start(move |view| {
            at_start.with(|state| start::populate(state, view));
            Ok(Vec::new())
        })
        .enqueue_on::<Node>(node_changed(&state))
        .enqueue_on::<Pod>(pod_changed(&state))
        .enqueue_on::<VolumeAttachment>(attachment_changed)
        .reads_unwatched::<PersistentVolumeClaim>(POPULATED)
        .reads_unwatched::<PersistentVolume>(POPULATED)
        .reads_unwatched::<CsiNode>(POPULATED)
        .reads_unwatched::<CsiDriver>(POPULATED)
        .initial_item(StatePass::Populate)
        .workers(NODE_WORKERS);
    let nodes = if options.disable_reconcile_sync { nodes } else { nodes.initial_item(StatePass::Verify) };
    let claims = with_caches(Loop::reconciling(CLAIMS_QUEUE, ClaimReconciler { state }))
        .keyed_by::<PersistentVolumeClaim>()
        .enqueue_on::<PersistentVolumeClaim>(claim_changed)
        .reads_unwatched::<Node>(POPULATED)
        .reads_unwatched::<Pod>(POPULATED)
        .reads_unwatched::<PersistentVolume>(POPULATED)
        .reads_unwatched::<CsiNode>(POPULATED)
        .reads_unwatched::<CsiDriver>(POPULATED)
        .reads_unwatched::<VolumeAttachment>(POPULATED);
    Controller::new(NAME)
        .service_account("attachdetach-controller")
        .event_component("attachdetach-controller")
        .metrics(metrics::ALL)
        .may_write(&[
            Grant { group: "", resource: "nodes", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "nodes/status", verbs: &["patch", "update"] },
            Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
            Grant { group: "", resource: "persistentvolumes", verbs: &["list", "watch"] },
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
            Grant {
                group: "storage.k8s.io",
                resource: "volumeattachments",
                verbs: &["create", "delete", "get", "list", "watch"],
            },
            Grant { group: "storage.k8s.io", resource: "csidrivers", verbs: &["get", "list", "watch"] },
            Grant { group: "storage.k8s.io", resource: "csinodes", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(nodes)
        .with_loop(claims)
}

/// All seven caches must be synced: a claim or a volume that is not cached yet would make a volume look unneeded.
fn with_caches(a_loop: Loop) -> Loop {
    a_loop
        .reads::<Node>()
        .reads_pod_parts(PodParts::VOLUME_CLAIMS.and(PodParts::INLINE_VOLUMES))
        .reads::<PersistentVolumeClaim>()
        .reads::<PersistentVolume>()
        .reads::<CsiNode>()
        .reads::<CsiDriver>()
        .reads::<VolumeAttachment>()
        .reads_index(BY_CLAIM)
}

/// A pass over all nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StatePass {
    /// Over the desired state.
    Populate,
    /// Over the actual state.
    Verify,
}

impl QueueItem for StatePass {
    /// No node has an empty name.
    fn key(&self) -> Key {
        Key::default()
    }

    fn text(&self) -> String {
        let text = match self {
            Self::Populate => "pass=populate",
            Self::Verify => "pass=verify",
        };
        text.to_owned()
    }
}

fn enqueue_node(enqueue: &mut Effects, node: &str) {
    enqueue.add(Key::cluster(ArcStr::from(node)));
}

fn node_changed(
    state: &Memory<State>,
) -> impl Fn(&Change<Node>, &View<'_>, &mut Effects) + Send + Sync + 'static {
    let state = state.clone();
    move |change, _, enqueue| {
        let node = change.latest();
        let name = NodeName::from(node.meta.key.name.as_str());
        let has_work = state.with(|state| {
            if change.is_deletion() {
                state.observe_node_deletion(node);
            } else {
                // Two nodes of one name may arrive as one update.
                let is_new = change.old().is_none_or(|old| old.meta.uid != node.meta.uid);
                state.observe_node(node, is_new);
            }
            state.has_work(&name)
        });
        if has_work {
            enqueue_node(enqueue, &name);
        }
    }
}

fn pod_changed(
    state: &Memory<State>,
) -> impl Fn(&Change<Pod>, &View<'_>, &mut Effects) + Send + Sync + 'static {
    let state = state.clone();
    move |change, view, enqueue| {
        let pod: &Arc<Pod> = change.latest();
        let changed = state.with(|state| match change.is_deletion() {
            true => state.remove_pod(view, pod),
            false => state.observe_pod(view, pod),
        });
        if changed {
            enqueue_node(enqueue, &pod.node_name);
        }
    }
}

/// The node of a VolumeAttachment may wait for it.
fn attachment_changed(change: &Change<VolumeAttachment>, _: &View<'_>, enqueue: &mut Effects) {
    let node = &change.latest().node_name;
    if !node.is_empty() {
        enqueue_node(enqueue, node);
    }
}

fn claim_changed(change: &Change<PersistentVolumeClaim>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_deletion() {
        enqueue.add(&change.latest().meta.key);
    }
}
