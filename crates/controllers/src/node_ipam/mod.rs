//! Gives every node its own range of pod addresses out of the cluster CIDRs.
//!
//! Each cluster CIDR is divided into blocks of equal size. A node without `spec.podCIDRs` gets the next free block of
//! each; a node that has ranges keeps them. A deleted node's blocks become free again. Service ranges are left out.
//!
//! Parity: pkg/controller/nodeipam/.

mod allocator;
mod bitmap;
mod cidr_set;
mod configuration;
mod metrics;

use std::sync::Arc;

use keleustes_objects::{ApiError, Key, Kind as _, Node, ResourceVersion};
use keleustes_plan::{
    Change, ConstructionError, Context, Controller, Effects, Grant, InvolvedObject, Loop, Measurement,
    Memory, OnFailure, Outcome, PatchKind, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue, View,
    Write,
};
use serde_json::json;

pub use self::configuration::NodeIpamOptions;

use self::allocator::Allocator;
use crate::cidr::Cidr;

/// The canonical name.
pub(crate) const NAME: &str = "node-ipam-controller";

/// Nodes that are assigned ranges at the same time.
const WORKERS: usize = 30;

/// How often a patch is sent before its blocks are given back.
const PATCH_TRIES: u32 = 3;

/// Builds the controller; `None` without `--allocate-node-cidrs`.
///
/// # Errors
/// If the flags do not describe ranges that can be divided.
pub fn controller(options: &NodeIpamOptions) -> Result<Option<Controller>, ConstructionError> {
    if !options.allocate_node_cidrs {
        return Ok(None);
    }
    let configuration =
        configuration::read(options).map_err(|message| ConstructionError { controller: NAME, message })?;
    let controller = Controller::new(NAME)
        .service_account("node-controller")
        .event_component("cidrAllocator")
        .may_write(&[Grant { group: "", resource: "nodes", verbs: &["list", "watch", "patch"] }])
        .metrics(metrics::ALL)
        .with_loop(the_loop(Allocator::new(configuration)));
    Ok(Some(controller))
}

fn the_loop(allocator: Allocator) -> Loop {
    let allocator = Memory::new(allocator);
    let (starting, observing) = (allocator.clone(), allocator.clone());
    Loop::reconciling("cidrallocator_node", NodeIpamReconciler { allocator })
        .workers(WORKERS)
        .keyed_by::<Node>()
        .enqueue_on::<Node>(move |change, _, enqueue| {
            observing.with(|allocator| node_changed(allocator, change, enqueue));
        })
        .before_start(move |view| {
            starting.with(|allocator| allocator.start(view.all::<Node>().map(|node| &**node)))
        })
}

/// Releases the ranges of a deleted node and marks those of any other at once; a reconcile reports what is wrong with
/// them. A node that was deleted and created again between two lists counts as deleted.
fn node_changed(allocator: &mut Allocator, change: &Change<Node>, enqueue: &mut Effects) {
    let mut measurements = Vec::new();
    let uid = change.new().map(|node| &node.meta.uid);
    if let Some(gone) = change.old().filter(|old| uid != Some(&old.meta.uid)) {
        measurements.extend(allocator.release(gone).measurements);
    }
    if let Some(node) = change.new() {
        if !node.pod_cidrs.is_empty() {
            measurements.extend(allocator.settle(node));
            measurements.extend(allocator.occupy(node).measurements);
        }
        enqueue.add(&node.meta.key);
    }
    measurements.into_iter().for_each(|measurement| enqueue.measure(measurement));
}

struct NodeIpamReconciler {
    allocator: Memory<Allocator>,
}

/// What a node needs.
enum Decision {
    /// It has ranges, which are marked now; or it is terminating or gone.
    Settled(allocator::Marked),
    /// There is no free block.
    Exhausted(Arc<Node>, allocator::Exhausted),
    /// It gets these blocks.
    Assign(Arc<Node>, Vec<Cidr>, Vec<Measurement>),
}

impl Reconciler for NodeIpamReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        // Reading the node and taking its blocks happen under one view, so no other client's range is overlooked.
        match cx.gather(|view| self.allocator.with(|allocator| decide(allocator, view, item))) {
            Decision::Settled(marked) => {
                marked.measurements.into_iter().for_each(|measurement| cx.measure(measurement));
                marked.error.map_or(Ok(Requeue::Forget), |error| Err(ReconcileError::because(error)))
            }
            Decision::Exhausted(node, exhausted) => {
                exhausted.measurements.into_iter().for_each(|measurement| cx.measure(measurement));
                let mut plan = Plan::none();
                plan.record(status_event(&node, "CIDRNotAvailable"));
                cx.apply(plan).await.all_done()?;
                Err(ReconcileError::because(exhausted.message))
            }
            Decision::Assign(node, blocks, measurements) => {
                measurements.into_iter().for_each(|measurement| cx.measure(measurement));
                self.assign(cx, &node, &blocks).await
            }
        }
    }
}

impl NodeIpamReconciler {
    /// Writes the blocks to the node. They stay reserved until the node is observed with them.
    async fn assign(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        blocks: &[Cidr],
    ) -> Result<Requeue, ReconcileError> {
        let mut failures = Vec::new();
        for _ in 0..PATCH_TRIES {
            let mut applied = cx.apply(Plan::of(patch(node, blocks))).await;
            match applied.outcomes.pop() {
                Some(Outcome::Failed(failure)) => failures.push(failure),
                _ => return applied.all_done().map(|()| Requeue::Forget),
            }
        }
        let mut plan = Plan::none();
        plan.record(status_event(node, "CIDRAssignmentFailed"));
        // Blocks that the node may have got stay reserved for it: no other node gets them.
        if !failures.iter().any(ApiError::may_have_taken_effect) {
            let released = self.allocator.with(|allocator| allocator.cancel(node));
            released.into_iter().for_each(|measurement| plan.measure(measurement));
        }
        cx.apply(plan).await.all_done()?;
        let Some(failure) = failures.pop() else { return Ok(Requeue::Forget) };
        Err(ReconcileError::from_api_error(&failure, format!("failed to patch node CIDR: {failure}")))
    }
}

fn decide(allocator: &mut Allocator, view: &View<'_>, item: &Key) -> Decision {
    let node = view.get::<Node>(item).filter(|node| node.meta.deletion_timestamp.is_none());
    let Some(node) = node else { return Decision::Settled(allocator::Marked::default()) };
    if !node.pod_cidrs.is_empty() {
        return Decision::Settled(allocator.occupy(node));
    }
    match allocator.allocate(node) {
        Ok((blocks, measurements)) => Decision::Assign(node.clone(), blocks, measurements),
        Err(exhausted) => Decision::Exhausted(node.clone(), exhausted),
    }
}

fn patch(node: &Node, blocks: &[Cidr]) -> Write {
    let ranges: Vec<_> = blocks.iter().map(ToString::to_string).collect();
    let body = json!({"spec": {"podCIDR": ranges.first(), "podCIDRs": ranges}});
    Write::patch(node, PatchKind::Strategic, body)
        .on_failure(OnFailure::ReturnOutcome)
        .because("the node has no range of pod addresses")
}

fn status_event(node: &Node, reason: &str) -> PlannedEvent {
    let (name, uid) = (&node.meta.key.name, node.meta.uid.clone());
    let involved = InvolvedObject::named(&Node::RESOURCE, "", name, uid, ResourceVersion::default());
    PlannedEvent::normal(involved, reason, format!("Node {name} status is now: {reason}"))
}

#[cfg(test)]
mod tests;
