//! The state of the world at the start: what nodes report, what VolumeAttachments exist, what pods need.
//!
//! Parity: populateActualStateOfWorld, processVolumeAttachments and populateDesiredStateOfWorld.

use keleustes_objects::{ArcStr, Key, Node, PersistentVolume, Pod, VolumeAttachment};
use keleustes_plan::View;

use super::resolve::{attachable_volumes_of, is_attachable, spec_of};
use super::state::State;
use super::volume::NodeName;

/// Builds the state from the caches.
pub(super) fn populate(state: &mut State, view: &View<'_>) {
    for node in view.all::<Node>() {
        let name = NodeName::from(node.meta.key.name.as_str());
        for volume in &node.volumes_attached {
            state.actual.mark_attached(&volume.name, None, &name, volume.device_path.clone());
        }
        state.observe_node(node, false);
        state.nodes_at_start.insert(name, node.meta.resource_version.clone());
    }
    for attachment in view.all::<VolumeAttachment>() {
        add_attachment(state, view, attachment);
    }
    for pod in view.all::<Pod>() {
        state.observe_pod(view, pod);
        replace_unknown_specs(state, view, pod);
    }
}

/// A VolumeAttachment whose volume no node reports may or may not be attached.
fn add_attachment(state: &mut State, view: &View<'_>, attachment: &VolumeAttachment) {
    let Some(name) = &attachment.persistent_volume_name else { return };
    let volume = view.get::<PersistentVolume>(&Key::cluster(name.clone()));
    let Some(spec) = volume.and_then(|volume| spec_of(volume)) else { return };
    if !spec.migrated && !is_attachable(view, &spec) {
        return;
    }
    let volume = spec.unique_name();
    if state.actual.attachment(&volume, &attachment.node_name).is_none() {
        state.actual.mark_uncertain(&volume, Some(spec), &attachment.node_name);
    }
}

/// What a node reports is only a name. The pods say what it is, also those that do not need it any more.
fn replace_unknown_specs(state: &mut State, view: &View<'_>, pod: &Pod) {
    let Some(node) = view.get::<Node>(&Key::cluster(ArcStr::from(pod.node_name.as_str()))) else { return };
    for spec in attachable_volumes_of(view, pod) {
        let volume = spec.unique_name();
        let is_attached = state
            .actual
            .attachment(&volume, &pod.node_name)
            .is_some_and(|attachment| attachment.is_confirmed);
        let reported = node.volumes_attached.iter().find(|reported| reported.name == volume);
        if let Some(reported) = reported.filter(|_| is_attached) {
            let device_path = reported.device_path.clone();
            state.actual.mark_attached(&volume, Some(spec), &pod.node_name, device_path);
        }
    }
}
