//! The actual state of the world: which volumes are attached to which nodes, in use there, and reported there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::{ArcStr, AttachedVolume};
use serde_json::{Value, json};

use super::volume::{NodeName, VolumeName, VolumeSpec};

/// Volumes and where they are attached.
#[derive(Clone, Default)]
pub(super) struct ActualState {
    volumes: BTreeMap<VolumeName, ActualVolume>,
    by_node: BTreeMap<NodeName, BTreeSet<VolumeName>>,
    in_use: BTreeMap<NodeName, BTreeSet<VolumeName>>,
    /// Those of `in_use` that no kubelet has reported: they were added after the last event of their node.
    assumed: BTreeMap<NodeName, BTreeSet<VolumeName>>,
    reports: BTreeMap<NodeName, Report>,
}

/// A volume that is attached to at least one node, or may be.
#[derive(Clone)]
struct ActualVolume {
    /// What is known about it; `None` if only its name is.
    spec: Option<VolumeSpec>,
    /// The device path of whichever node came last.
    device_path: ArcStr,
    nodes: BTreeMap<NodeName, Attachment>,
}

/// A volume on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Attached for certain; otherwise an operation on it failed.
    pub(super) is_confirmed: bool,
    /// When it was first found that nothing on the node needs the volume.
    pub(super) detach_requested_at: Option<Duration>,
}

/// What `status.volumesAttached` of a node should be.
#[derive(Clone, Default)]
struct Report {
    needs_update: bool,
    volumes: BTreeSet<VolumeName>,
}

impl ActualState {
    /// Marks a volume as attached to a node and reports it there.
    pub(super) fn mark_attached(
        &mut self,
        volume: &VolumeName,
        spec: Option<VolumeSpec>,
        node: &NodeName,
        device_path: ArcStr,
    ) {
        self.mark(volume, spec, node, device_path, true);
        self.report(volume, node);
    }

    /// Marks a volume as perhaps attached to a node. A volume that is reported there stays reported.
    pub(super) fn mark_uncertain(&mut self, volume: &VolumeName, spec: Option<VolumeSpec>, node: &NodeName) {
        self.mark(volume, spec, node, ArcStr::default(), false);
    }

    fn mark(
        &mut self,
        volume: &VolumeName,
        spec: Option<VolumeSpec>,
        node: &NodeName,
        device_path: ArcStr,
        is_confirmed: bool,
    ) {
        let actual = self.volumes.entry(volume.clone()).or_insert_with(|| ActualVolume {
            spec: None,
            device_path: ArcStr::default(),
            nodes: BTreeMap::new(),
        });
        (actual.spec, actual.device_path) = (spec, device_path);
        if !actual.nodes.contains_key(node) {
            // Kubelet may mount it at once, and reports that only later.
            let is_assumption = self.in_use.entry(node.clone()).or_default().insert(volume.clone());
            if is_assumption {
                self.assumed.entry(node.clone()).or_default().insert(volume.clone());
            }
        }
        actual.nodes.entry(node.clone()).or_default().is_confirmed = is_confirmed;
        self.by_node.entry(node.clone()).or_default().insert(volume.clone());
    }

    /// Drops a volume from a node.
    pub(super) fn mark_detached(&mut self, volume: &VolumeName, node: &NodeName) {
        if let Some(actual) = self.volumes.get_mut(volume) {
            actual.nodes.remove(node);
            if actual.nodes.is_empty() {
                self.volumes.remove(volume);
            }
        }
        if let Some(volumes) = self.by_node.get_mut(node) {
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_node.remove(node);
            }
        }
        self.unreport(volume, node);
    }

    /// The state of a volume on a node; `None` if it is not attached there.
    pub(super) fn attachment(&self, volume: &VolumeName, node: &NodeName) -> Option<Attachment> {
        self.volumes.get(volume)?.nodes.get(node).copied()
    }

    /// What is known about a volume.
    pub(super) fn spec(&self, volume: &VolumeName) -> Option<&VolumeSpec> {
        self.volumes.get(volume)?.spec.as_ref()
    }

    /// Whether a volume may be attached to several nodes, as far as is known.
    pub(super) fn allows_multi_attach(&self, volume: &VolumeName) -> bool {
        self.spec(volume).is_none_or(|spec| spec.allows_multi_attach)
    }

    /// The volumes on a node.
    pub(super) fn volumes_on(&self, node: &NodeName) -> impl Iterator<Item = &VolumeName> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// The nodes that a volume is attached to, or may be.
    pub(super) fn nodes_of(&self, volume: &VolumeName) -> impl Iterator<Item = (&NodeName, &Attachment)> {
        self.volumes.get(volume).into_iter().flat_map(|actual| &actual.nodes)
    }

    /// All volumes on all nodes.
    pub(super) fn all(
        &self,
    ) -> impl Iterator<Item = (&VolumeName, Option<&VolumeSpec>, &NodeName, &Attachment)> {
        self.volumes.iter().flat_map(|(name, actual)| {
            let nodes = actual.nodes.iter();
            nodes.map(move |(node, attachment)| (name, actual.spec.as_ref(), node, attachment))
        })
    }

    /// Notes when a volume became unneeded, once, and returns that time.
    pub(super) fn request_detach(&mut self, volume: &VolumeName, node: &NodeName, now: Duration) -> Duration {
        let attachment = self.volumes.get_mut(volume).and_then(|actual| actual.nodes.get_mut(node));
        attachment.map_or(now, |attachment| *attachment.detach_requested_at.get_or_insert(now))
    }

    /// The volume is needed again.
    pub(super) fn reset_detach_request(&mut self, volume: &VolumeName, node: &NodeName) {
        if let Some(attachment) = self.volumes.get_mut(volume).and_then(|actual| actual.nodes.get_mut(node)) {
            attachment.detach_requested_at = None;
        }
    }

    /// Replaces the volumes in use on a node by what its kubelet reports.
    pub(super) fn set_in_use<'a>(&mut self, node: &NodeName, volumes: impl IntoIterator<Item = &'a ArcStr>) {
        let volumes: BTreeSet<VolumeName> = volumes.into_iter().cloned().collect();
        self.assumed.remove(node);
        if volumes.is_empty() {
            self.in_use.remove(node);
        } else {
            self.in_use.insert(node.clone(), volumes);
        }
    }

    /// Whether a node has a volume in use, or may have.
    pub(super) fn is_in_use(&self, volume: &VolumeName, node: &NodeName) -> bool {
        self.in_use.get(node).is_some_and(|volumes| volumes.contains(volume))
    }

    /// Whether a volume counts as in use on a node although its kubelet has not reported that.
    pub(super) fn is_only_assumed_in_use(&self, volume: &VolumeName, node: &NodeName) -> bool {
        self.assumed.get(node).is_some_and(|volumes| volumes.contains(volume))
    }

    /// Reports a volume that is attached to a node.
    pub(super) fn report(&mut self, volume: &VolumeName, node: &NodeName) {
        if self.attachment(volume, node).is_none() {
            return;
        }
        let report = self
            .reports
            .entry(node.clone())
            .or_insert_with(|| Report { needs_update: true, volumes: BTreeSet::new() });
        report.needs_update |= report.volumes.insert(volume.clone());
    }

    /// Reports a volume no longer.
    pub(super) fn unreport(&mut self, volume: &VolumeName, node: &NodeName) {
        if let Some(report) = self.reports.get_mut(node) {
            report.needs_update |= report.volumes.remove(volume);
        }
    }

    /// Writes the report of a node again, if there ever was one.
    pub(super) fn request_report(&mut self, node: &NodeName) {
        if let Some(report) = self.reports.get_mut(node) {
            report.needs_update = true;
        }
    }

    /// Whether the report of a node is to be written.
    pub(super) fn needs_report(&self, node: &NodeName) -> bool {
        self.reports.get(node).is_some_and(|report| report.needs_update)
    }

    /// The report of a node if it is to be written, which it then is no longer.
    pub(super) fn take_report(&mut self, node: &NodeName) -> Option<Vec<AttachedVolume>> {
        let report = self.reports.get_mut(node).filter(|report| report.needs_update)?;
        report.needs_update = false;
        let device_path = |volume: &VolumeName| {
            self.volumes.get(volume).map(|actual| actual.device_path.clone()).unwrap_or_default()
        };
        let entry =
            |volume: &VolumeName| AttachedVolume { name: volume.clone(), device_path: device_path(volume) };
        Some(report.volumes.iter().map(entry).collect())
    }
}

/// The patch of a node's status that replaces the whole list.
pub(super) fn report_patch(volumes: &[AttachedVolume]) -> Value {
    let entry = |volume: &AttachedVolume| json!({"name": volume.name, "devicePath": volume.device_path});
    let list = if volumes.is_empty() { Value::Null } else { volumes.iter().map(entry).collect() };
    json!({"status": {"volumesAttached": list}})
}
