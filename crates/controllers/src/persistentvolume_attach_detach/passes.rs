//! The periodic passes: pods against the desired state, VolumeAttachments against the actual state.

use std::collections::BTreeSet;
use std::time::Duration;

use keleustes_objects::{Key, VolumeAttachment};
use keleustes_plan::{Context, NEXT_PASS, Requeue, View};

use super::metrics::STORAGE_OPERATION_SECONDS;
use super::reconcile::{NodeReconciler, enqueue_nodes};
use super::resolve::is_attachable;
use super::state::State;
use super::volume::{NodeName, VolumeName, VolumeSource, attachment_name};

/// The time between two passes over the desired state.
const POPULATE_PERIOD: Duration = Duration::from_secs(60);
/// The least time between two passes that add all pods.
const ADD_PODS_PERIOD: Duration = Duration::from_secs(180);

/// An attached volume, and what the cache says about its VolumeAttachment.
struct Verified {
    node: NodeName,
    volume: VolumeName,
    attachment: Key,
    /// `None` if the VolumeAttachment is not cached.
    is_attached: Option<bool>,
}

impl NodeReconciler {
    /// Removes pods that are gone from the desired state and, less often, adds all that are there. Watch events do both
    /// at once; the passes repair what they could not resolve.
    pub(super) fn populate(&self, cx: &mut Context<'_>) -> Requeue {
        let changed = cx.gather(|view| self.state.with(|state| populate(state, view)));
        enqueue_nodes(cx, &changed);
        self.gauges.refresh(cx, &self.state);
        Requeue::after(POPULATE_PERIOD, NEXT_PASS)
    }

    /// Drops volumes whose VolumeAttachment is gone or not attached any more, so that they are attached again,
    /// to the same node or to one that waits for them.
    ///
    /// Parity: VerifyVolumesAreAttached of the operation executor, VolumesAreAttached of the CSI attacher.
    pub(super) async fn verify(&self, cx: &mut Context<'_>) -> Requeue {
        let period = self.options.reconcile_sync_period;
        let (began, due) = cx.gather(|view| {
            let now = view.now().monotonic;
            (now, self.state.with(|state| state.next_verification(now, period)))
        });
        if let Some(wait) = due {
            return Requeue::after(wait, NEXT_PASS);
        }
        let entries = cx.gather(|view| self.state.with(|state| attached_volumes(state, view)));
        let nodes: BTreeSet<NodeName> = entries.iter().map(|entry| entry.node.clone()).collect();
        let uncached: Vec<Key> = entries
            .iter()
            .filter(|entry| entry.is_attached.is_none())
            .map(|entry| entry.attachment.clone())
            .collect();
        let mut live = if uncached.is_empty() {
            Vec::new().into_iter()
        } else {
            cx.fetch_all::<VolumeAttachment>(&uncached).await.into_iter()
        };
        let mut changed = BTreeSet::new();
        for entry in entries {
            let from_server = || live.next().and_then(|found| found.ok()?.map(|found| found.attached));
            if entry.is_attached.or_else(from_server).unwrap_or(false) {
                continue;
            }
            let waiting = self.state.with(|state| {
                let was_dropped = drop_unattached(state, &entry);
                was_dropped.then(|| state.nodes_waiting_for(&entry.volume, &entry.node, None))
            });
            if let Some(waiting) = waiting {
                changed.extend(waiting);
                changed.insert(entry.node);
            }
        }
        let now = cx.gather(|view| view.now().monotonic);
        for _ in nodes {
            let labels = ["<n/a>", "verify_volumes_are_attached_per_node", "success", "false"];
            let seconds = now.saturating_sub(began).as_secs_f64();
            cx.measure(STORAGE_OPERATION_SECONDS.measurement(&labels, seconds));
        }
        enqueue_nodes(cx, &changed);
        Requeue::after(period, NEXT_PASS)
    }
}

fn populate(state: &mut State, view: &View<'_>) -> BTreeSet<NodeName> {
    let now = view.now().monotonic;
    let mut changed = state.remove_stale_pods(view);
    if state.pods_added_at.is_none_or(|at| now >= at + ADD_PODS_PERIOD) {
        state.pods_added_at = Some(now);
        changed.extend(state.add_all_pods(view));
    }
    changed
}

/// The volumes that are attached for certain and whose VolumeAttachment is known.
fn attached_volumes(state: &State, view: &View<'_>) -> Vec<Verified> {
    let verified = state.actual.all().filter_map(|(volume, spec, node, attachment)| {
        let spec = spec.filter(|spec| attachment.is_confirmed && is_attachable(view, spec))?;
        let VolumeSource::Csi { driver, handle, .. } = &spec.source else { return None };
        let key = Key::cluster(attachment_name(handle, driver, node));
        let is_attached = view.get::<VolumeAttachment>(&key).map(|found| found.attached);
        Some(Verified { node: node.clone(), volume: volume.clone(), attachment: key, is_attached })
    });
    verified.collect()
}

/// Drops a volume that is not attached, unless an operation on it has been started since.
fn drop_unattached(state: &mut State, entry: &Verified) -> bool {
    let is_confirmed =
        state.actual.attachment(&entry.volume, &entry.node).is_some_and(|attachment| attachment.is_confirmed);
    if !is_confirmed || state.operations.is_running(&entry.volume, &entry.node) {
        return false;
    }
    state.actual.mark_detached(&entry.volume, &entry.node);
    true
}
