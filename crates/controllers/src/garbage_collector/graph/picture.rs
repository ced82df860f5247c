//! What a person may see of the graph.

use std::collections::BTreeSet;

use keleustes_objects::{Key, Uid};

use super::super::identity::Identity;
use super::Graph;
use super::slots::{Sight, Slot};

/// Nodes and the references between them, in no order.
pub(crate) struct GraphDump {
    pub(crate) vertices: Vec<Vertex>,
    /// From dependents to owners.
    pub(crate) edges: Vec<(Uid, Uid)>,
}

/// One node.
pub(crate) struct Vertex {
    pub(crate) identity: Identity,
    /// Somebody refers to it, and it is not there.
    pub(crate) is_missing: bool,
    pub(crate) being_deleted: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) is_virtual: bool,
}

impl Graph {
    /// The nodes of these uids that have owners or dependents.
    pub(crate) fn picture(&self, wanted: impl Fn(&Uid) -> bool) -> GraphDump {
        let mut picture = GraphDump { vertices: Vec::new(), edges: Vec::new() };
        let slots = self.slots.all().map(|(_, slot)| slot).filter(|slot| wanted(&slot.uid));
        for slot in slots {
            let owners = slot.owners.as_slice();
            if slot.dependents.is_empty() && owners.is_empty() {
                continue;
            }
            picture.vertices.push(self.vertex(slot));
            let to = owners.iter().map(|reference| self.slots[reference.owner].uid.clone());
            picture.edges.extend(to.map(|owner| (slot.uid.clone(), owner)));
        }
        picture
    }

    /// All that can be reached from these uids, up and down.
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
            identity: if is_missing { self.said_of(slot) } else { slot.identity() },
            is_missing,
            being_deleted: slot.marks.being_deleted,
            deleting_dependents: slot.marks.deleting_dependents,
            is_virtual: slot.marks.sight == Sight::Virtual,
        }
    }

    /// What is missing is what somebody says of it.
    fn said_of(&self, slot: &Slot) -> Identity {
        let dependent = slot.dependents.iter().next().map(|at| &self.slots[at]);
        let owners = dependent.map(|dependent| dependent.owners.as_slice()).unwrap_or_default();
        let said = owners.iter().find(|reference| self.slots[reference.owner].uid == slot.uid);
        said.map_or_else(
            || slot.identity(),
            |reference| Identity {
                line: reference.line.clone(),
                key: Key::cluster(reference.name.clone()),
                uid: slot.uid.clone(),
            },
        )
    }
}
