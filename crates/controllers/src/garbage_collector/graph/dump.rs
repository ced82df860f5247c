//! Copies nodes and edges out of the graph for the debug page.

use std::collections::BTreeSet;

use keleustes_objects::{Key, Uid};

use super::super::identity::Identity;
use super::Graph;
use super::slots::{Presence, Slot};

/// Nodes and the references between them, unordered.
pub(crate) struct GraphDump {
    pub(crate) vertices: Vec<Vertex>,
    /// Pairs of dependent and owner.
    pub(crate) edges: Vec<(Uid, Uid)>,
}

/// One node.
pub(crate) struct Vertex {
    pub(crate) identity: Identity,
    /// A dependent refers to it, and it does not exist.
    pub(crate) is_missing: bool,
    pub(crate) being_deleted: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) is_virtual: bool,
}

impl Graph {
    /// The selected nodes that have owners or dependents.
    pub(crate) fn dump(&self, selected: impl Fn(&Uid) -> bool) -> GraphDump {
        let mut dump = GraphDump { vertices: Vec::new(), edges: Vec::new() };
        let slots = self.slots.all().map(|(_, slot)| slot).filter(|slot| selected(&slot.uid));
        for slot in slots {
            let owners = slot.owners.as_slice();
            if slot.dependents.is_empty() && owners.is_empty() {
                continue;
            }
            dump.vertices.push(self.vertex(slot));
            let to = owners.iter().map(|reference| self.slots[reference.owner].uid.clone());
            dump.edges.extend(to.map(|owner| (slot.uid.clone(), owner)));
        }
        dump
    }

    /// All UIDs reachable from `uids` through owners and dependents.
    pub(crate) fn uids_connected_to(&self, uids: &[Uid]) -> BTreeSet<Uid> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<_> = uids.iter().filter_map(|uid| self.slots.find(uid)).collect();
        while let Some(at) = open.pop() {
            let slot = &self.slots[at];
            if reached.insert(slot.uid.clone()) {
                open.extend(slot.owners.as_slice().iter().map(|reference| reference.owner));
                open.extend(slot.dependents.iter());
            }
        }
        reached
    }

    fn vertex(&self, slot: &Slot) -> Vertex {
        let is_missing = slot.is_absent();
        Vertex {
            identity: if is_missing { self.identity_from_reference(slot) } else { slot.identity() },
            is_missing,
            being_deleted: slot.flags.being_deleted,
            deleting_dependents: slot.flags.deleting_dependents,
            is_virtual: slot.flags.presence == Presence::Virtual,
        }
    }

    /// An absent owner is shown as the first dependent's reference describes it.
    fn identity_from_reference(&self, slot: &Slot) -> Identity {
        let dependent = slot.dependents.iter().next().map(|at| &self.slots[at]);
        let owners = dependent.map(|dependent| dependent.owners.as_slice()).unwrap_or_default();
        let reference = owners.iter().find(|reference| self.slots[reference.owner].uid == slot.uid);
        reference.map_or_else(
            || slot.identity(),
            |reference| Identity {
                type_meta: reference.type_meta.clone(),
                key: Key::cluster(reference.name.clone()),
                uid: slot.uid.clone(),
            },
        )
    }
}
