//! The desired state of the world: which volumes are to be attached to which nodes, and for which pods.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{Key, Kind as _, Pod, ResourceVersion, Uid};
use keleustes_plan::InvolvedObject;

use super::volume::{NodeName, VolumeName, VolumeSpec};

/// Managed nodes, their volumes, and the pods that use them.
#[derive(Clone, Default)]
pub(super) struct DesiredState {
    nodes: BTreeMap<NodeName, BTreeMap<VolumeName, DesiredVolume>>,
    by_volume: BTreeMap<VolumeName, BTreeSet<NodeName>>,
}

/// A volume that is to be attached to a node.
#[derive(Clone)]
pub(super) struct DesiredVolume {
    /// What the first pod says about it.
    pub(super) spec: VolumeSpec,
    /// The pods that use it on this node.
    pub(super) pods: BTreeMap<Uid, PodReference>,
    /// Whether an event has reported to its pods that another node has it.
    pub(super) multi_attach_reported: bool,
}

/// A pod as it was when its volumes were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodReference {
    /// Namespace and name.
    pub(super) key: Key,
    /// The UID.
    pub(super) uid: Uid,
    resource_version: ResourceVersion,
}

impl PodReference {
    pub(super) fn of(pod: &Pod) -> Self {
        Self {
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.clone(),
            resource_version: pod.meta.resource_version.clone(),
        }
    }

    /// The pod as the object of an event.
    pub(super) fn involved(&self) -> InvolvedObject {
        let (uid, version) = (self.uid.clone(), self.resource_version.clone());
        InvolvedObject::named(&Pod::RESOURCE, &self.key.namespace, &self.key.name, uid, version)
    }
}

impl DesiredState {
    /// Manages a node from now on.
    pub(super) fn add_node(&mut self, node: &NodeName) {
        self.nodes.entry(node.clone()).or_default();
    }

    /// Whether a node is managed.
    pub(super) fn manages(&self, node: &NodeName) -> bool {
        self.nodes.contains_key(node)
    }

    /// Manages a deleted node no longer, unless volumes are to be attached to it.
    pub(super) fn remove_node(&mut self, node: &NodeName) {
        if self.nodes.get(node).is_some_and(BTreeMap::is_empty) {
            self.nodes.remove(node);
        }
    }

    /// Adds a pod that uses a volume. Returns whether anything changed; nothing does on a node that is not managed.
    pub(super) fn add_pod(&mut self, node: &NodeName, pod: &Pod, spec: VolumeSpec) -> bool {
        let Some(volumes) = self.nodes.get_mut(node) else { return false };
        let name = spec.unique_name();
        self.by_volume.entry(name.clone()).or_default().insert(node.clone());
        let volume = volumes.entry(name).or_insert_with(|| DesiredVolume {
            spec,
            pods: BTreeMap::new(),
            multi_attach_reported: false,
        });
        if volume.pods.contains_key(&pod.meta.uid) {
            return false;
        }
        volume.pods.insert(pod.meta.uid.clone(), PodReference::of(pod));
        true
    }

    /// Removes a pod that used a volume. Returns whether the volume is no longer wanted.
    pub(super) fn remove_pod(&mut self, node: &NodeName, volume: &VolumeName, pod: &Uid) -> bool {
        let Some(volumes) = self.nodes.get_mut(node) else { return false };
        let Some(desired) = volumes.get_mut(volume) else { return false };
        desired.pods.remove(pod);
        if !desired.pods.is_empty() {
            return false;
        }
        volumes.remove(volume);
        if let Some(nodes) = self.by_volume.get_mut(volume) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.by_volume.remove(volume);
            }
        }
        true
    }

    /// Whether a volume is to be attached to a node.
    pub(super) fn wants(&self, node: &NodeName, volume: &VolumeName) -> bool {
        self.nodes.get(node).is_some_and(|volumes| volumes.contains_key(volume))
    }

    /// The volumes of a node.
    pub(super) fn volumes_on(&self, node: &NodeName) -> impl Iterator<Item = (&VolumeName, &DesiredVolume)> {
        self.nodes.get(node).into_iter().flatten()
    }

    pub(super) fn volume_mut(&mut self, node: &NodeName, volume: &VolumeName) -> Option<&mut DesiredVolume> {
        self.nodes.get_mut(node)?.get_mut(volume)
    }

    /// The nodes that a volume is to be attached to.
    pub(super) fn nodes_of(&self, volume: &VolumeName) -> impl Iterator<Item = (&NodeName, &DesiredVolume)> {
        let nodes = self.by_volume.get(volume).into_iter().flatten();
        nodes.filter_map(|node| Some((node, self.nodes.get(node)?.get(volume)?)))
    }

    /// All volumes on all nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeName, &VolumeName, &DesiredVolume)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(node, volumes)| volumes.iter().map(move |(name, volume)| (node, name, volume)))
    }
}
