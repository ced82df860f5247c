//! What the controller knows: desired state, actual state and operations, and how events change them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::{Node, Pod, ResourceVersion};
use keleustes_plan::View;

use super::actual::ActualState;
use super::desired::DesiredState;
use super::operations::Operations;
use super::resolve::{attachable_volumes_of, has_volumes, is_attachable};
use super::volume::{NodeName, VolumeName, VolumeSpec};

/// The state of one process. A restart loses it: it is built again from nodes, VolumeAttachments and pods, running
/// operations are resumed from the VolumeAttachments, and the six minutes before a forced detach begin again.
#[derive(Clone, Default)]
pub(super) struct State {
    /// What is to be attached.
    pub(super) desired: DesiredState,
    /// What is attached.
    pub(super) actual: ActualState,
    /// What is being attached and detached.
    pub(super) operations: Operations,
    /// The nodes as they were at the start. The event that delivers them once more says nothing new.
    pub(super) nodes_at_start: BTreeMap<NodeName, ResourceVersion>,
    /// When all pods were last added.
    pub(super) pods_added_at: Option<Duration>,
    /// When attached volumes are verified next; `None` until the first period begins.
    pub(super) verification_due_at: Option<Duration>,
}

impl State {
    /// Adds the volumes of a pod, or removes them if it is terminated. Returns whether the volumes of its node changed.
    ///
    /// Parity: podAdd, podUpdate and ProcessPodVolumes.
    pub(super) fn observe_pod(&mut self, view: &View<'_>, pod: &Pod) -> bool {
        if pod.is_terminated() { self.remove_pod(view, pod) } else { self.add_pod(view, pod) }
    }

    /// Adds the volumes of a pod.
    pub(super) fn add_pod(&mut self, view: &View<'_>, pod: &Pod) -> bool {
        if !self.concerns(pod) {
            return false;
        }
        let mut changed = false;
        for spec in attachable_volumes_of(view, pod) {
            changed |= self.desired.add_pod(&pod.node_name, pod, spec);
        }
        changed
    }

    /// Removes the volumes of a pod, as far as they can still be resolved.
    pub(super) fn remove_pod(&mut self, view: &View<'_>, pod: &Pod) -> bool {
        if !self.concerns(pod) {
            return false;
        }
        let mut changed = false;
        for spec in attachable_volumes_of(view, pod) {
            changed |= self.desired.remove_pod(&pod.node_name, &spec.unique_name(), &pod.meta.uid);
        }
        changed
    }

    fn concerns(&self, pod: &Pod) -> bool {
        !pod.node_name.is_empty() && has_volumes(pod) && self.desired.manages(&pod.node_name)
    }

    /// Takes over what a node says about itself.
    pub(super) fn observe_node(&mut self, node: &Node, is_new: bool) {
        let name = NodeName::from(node.meta.key.name.as_str());
        if self.nodes_at_start.remove(&name).is_some_and(|version| version == node.meta.resource_version) {
            return;
        }
        if node.has_managed_attachments {
            self.desired.add_node(&name);
        }
        self.actual.set_in_use(&name, &node.volumes_in_use);
        if is_new {
            self.actual.request_report(&name);
        }
    }

    /// A node was deleted; `last` is its last state.
    pub(super) fn observe_node_deletion(&mut self, last: &Node) {
        let name = NodeName::from(last.meta.key.name.as_str());
        self.nodes_at_start.remove(&name);
        self.desired.remove_node(&name);
        self.actual.set_in_use(&name, &last.volumes_in_use);
    }

    /// Whether a node has anything to reconcile.
    pub(super) fn has_work(&self, node: &NodeName) -> bool {
        self.desired.volumes_on(node).next().is_some()
            || self.actual.volumes_on(node).next().is_some()
            || self.actual.needs_report(node)
    }

    /// Removes pods that are gone, replaced or terminated, and volumes that are not attachable any more. Returns the nodes
    /// on which something changed.
    ///
    /// Parity: findAndRemoveDeletedPods.
    pub(super) fn remove_stale_pods(&mut self, view: &View<'_>) -> BTreeSet<NodeName> {
        let is_stale = |pod: &super::desired::PodReference| {
            view.get::<Pod>(&pod.key)
                .is_none_or(|cached| cached.meta.uid != pod.uid || cached.is_terminated())
        };
        let mut stale = Vec::new();
        for (node, volume, desired) in self.desired.all() {
            let attachable = is_attachable(view, &desired.spec);
            let pods = desired.pods.values().filter(|pod| !attachable || is_stale(pod));
            stale.extend(pods.map(|pod| (node.clone(), volume.clone(), pod.uid.clone())));
        }
        let remove = |(node, volume, pod): (NodeName, VolumeName, _)| {
            self.desired.remove_pod(&node, &volume, &pod).then_some(node)
        };
        stale.into_iter().filter_map(remove).collect()
    }

    /// Adds the volumes of all pods. Returns the nodes on which something changed.
    ///
    /// Parity: findAndAddActivePods.
    pub(super) fn add_all_pods(&mut self, view: &View<'_>) -> BTreeSet<NodeName> {
        let active = view.all::<Pod>().filter(|pod| !pod.is_terminated());
        active.filter(|pod| self.add_pod(view, pod)).map(|pod| pod.node_name.clone()).collect()
    }

    /// How long the next verification has to wait; `None` if it is due. The first is due one period after the start.
    pub(super) fn next_verification(&mut self, now: Duration, period: Duration) -> Option<Duration> {
        let due = *self.verification_due_at.get_or_insert(now + period);
        if now < due {
            return Some(due - now);
        }
        self.verification_due_at = Some(now + period);
        None
    }

    /// The other nodes that may be waiting because `node` had a volume, or because an operation on it was
    /// running there; `ended` is the spec of that operation. If all specs of the volume allow several nodes,
    /// there are none. If one does not, those with another spec may be waiting as well: two PersistentVolumes
    /// with one handle are one volume, and their access modes may differ.
    pub(super) fn nodes_waiting_for(
        &self,
        volume: &VolumeName,
        node: &NodeName,
        ended: Option<&VolumeSpec>,
    ) -> BTreeSet<NodeName> {
        let is_exclusive = |spec: &VolumeSpec| !spec.allows_multi_attach;
        let may_block = ended.is_some_and(is_exclusive)
            || self.actual.spec(volume).is_some_and(is_exclusive)
            || self.desired.nodes_of(volume).any(|(_, desired)| is_exclusive(&desired.spec));
        if !may_block {
            return BTreeSet::new();
        }
        let mut nodes: BTreeSet<NodeName> =
            self.desired.nodes_of(volume).map(|(other, _)| other.clone()).collect();
        nodes.extend(self.actual.nodes_of(volume).map(|(other, _)| other.clone()));
        nodes.remove(node);
        nodes
    }
}
