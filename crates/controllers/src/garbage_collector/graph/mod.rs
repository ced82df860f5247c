//! The ownership graph: one small node per object, linked to its owners and dependents, and the work that a
//! change to it enqueues.
//!
//! Nodes are keyed by UID. An owner that was not observed yet has a *virtual* node, built from a dependent's
//! owner reference, until the owner is observed or a live read shows that it does not exist. A deleted owner
//! keeps an *absent* slot while a dependent refers to it, so that links never have to be searched; the
//! accessors treat it as not existing.
//!
//! Invariant: an object is among the dependents of a slot exactly when its ownerReferences contain that
//! slot's UID. The graph sends no requests; the work it finds is returned in [`GraphEffects`].

mod dump;
mod links;
mod slots;
#[cfg(test)]
pub(super) mod test_graph;
mod virtual_delete;
mod work;

use std::collections::BTreeSet;

use keleustes_objects::{Key, ObjectMeta, TypeMeta, Uid};
use keleustes_plan::PlannedEvent;

pub(super) use self::dump::{GraphDump, Vertex};
use self::slots::{Dependents, Flags, Owners, Presence, Slot, SlotIndex, Slots};
use super::absent_owner_cache::AbsentOwnerCache;
use super::identity::Identity;

/// Finalizer of foreground deletion: the object is kept until its blocking dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of orphaning: the object is kept until no dependent refers to it.
pub(crate) const ORPHAN: &str = "orphan";

/// All objects and their owner references.
#[derive(Clone)]
pub struct Graph {
    slots: Slots,
    absent_owners: AbsentOwnerCache,
}

/// The items and events that a change to the graph produces.
#[derive(Default)]
pub struct GraphEffects {
    pub(crate) attempts_to_delete: Vec<DeleteAttempt>,
    pub(crate) attempts_to_orphan: Vec<Uid>,
    pub(crate) events: Vec<PlannedEvent>,
}

/// An item for the `attempt_to_delete` queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeleteAttempt {
    pub(crate) uid: Uid,
    /// The node is virtual.
    pub(crate) is_virtual: bool,
    /// The item is added with the rate limiter's backoff.
    pub(crate) rate_limited: bool,
}

/// A copy of one node for the reconcilers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) being_deleted: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) is_virtual: bool,
}

impl Graph {
    /// An empty graph. `hash_key` is secret, so that clients cannot choose UIDs whose hashes collide.
    #[must_use]
    pub fn new(hash_key: u64) -> Self {
        Self { slots: Slots::new(hash_key), absent_owners: AbsentOwnerCache::default() }
    }

    /// Number of nodes, virtual ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.all().filter(|(_, slot)| !slot.is_absent()).count()
    }

    /// Whether the graph has no slot at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Applies an add or update event.
    pub fn apply_update(&mut self, type_meta: &TypeMeta, meta: &ObjectMeta, effects: &mut GraphEffects) {
        // An object without UID can neither be deleted with a precondition nor be an owner.
        if meta.uid.is_empty() {
            return;
        }
        let is_new = self.slots.find(&meta.uid).is_none_or(|at| self.slots[at].is_absent());
        let at = self.observe_slot(type_meta, meta, effects);
        self.update_owner_references(at, &meta.owner_references, effects);
        self.update_deletion_flags(at, meta, is_new, effects);
    }

    /// Applies a delete event.
    pub fn apply_delete(&mut self, type_meta: &TypeMeta, meta: &ObjectMeta, effects: &mut GraphEffects) {
        if self.existing_slot(&meta.uid).is_some() {
            let at = self.observe_slot(type_meta, meta, effects);
            let identity =
                Identity { type_meta: type_meta.clone(), key: meta.key.clone(), uid: meta.uid.clone() };
            self.remove(at, &identity, effects);
        }
    }

    /// Applies a complete list of one kind: observed objects that are missing from it are deleted, except
    /// `unreadable` ones, which exist but could not be decoded. All versions of a kind count as one kind,
    /// because the server's preferred version can change.
    pub fn apply_list<'a>(
        &mut self,
        type_meta: &TypeMeta,
        metas: impl Iterator<Item = &'a ObjectMeta>,
        unreadable: &[Key],
        effects: &mut GraphEffects,
    ) {
        let mut seen = BTreeSet::new();
        for meta in metas {
            self.apply_update(type_meta, meta, effects);
            seen.extend(self.slots.find(&meta.uid));
        }
        let is_deleted = |(at, slot): &(SlotIndex, &Slot)| {
            slot.is_observed()
                && slot.type_meta.kind() == type_meta.kind()
                && slot.type_meta.group() == type_meta.group()
                && !seen.contains(at)
                && !unreadable.contains(&slot.key)
        };
        let deleted: Vec<SlotIndex> = self.slots.all().filter(is_deleted).map(|(at, _)| at).collect();
        for at in deleted {
            let identity = self.slots[at].identity();
            self.remove(at, &identity, effects);
        }
    }

    /// Enqueues all work in progress, as if every object had just been observed: a new leader has kept the
    /// graph without acting on it until now.
    pub fn requeue_all(&self, effects: &mut GraphEffects) {
        for (at, slot) in self.slots.all() {
            let Flags { presence, awaits_orphaning, awaits_dependents, .. } = slot.flags;
            match presence {
                Presence::Absent => self.attempt_delete_all(slot.dependents.iter(), effects),
                Presence::Virtual => effects.attempt_delete(slot),
                Presence::Observed if awaits_orphaning => effects.attempts_to_orphan.push(slot.uid.clone()),
                Presence::Observed if awaits_dependents => {
                    self.attempt_delete_all(slot.dependents.iter().chain([at]), effects);
                }
                Presence::Observed => {}
            }
            self.enqueue_mismatched(at, slot.owners.as_slice(), effects);
        }
    }

    /// The node of a UID; `None` if it is absent.
    pub(crate) fn node(&self, uid: &Uid) -> Option<Node> {
        Some(self.slots[self.existing_slot(uid)?].node())
    }

    /// The dependents of an owner.
    pub(crate) fn dependents(&self, uid: &Uid) -> Vec<Node> {
        let dependents = self.existing_slot(uid).map(|at| &self.slots[at].dependents);
        dependents.into_iter().flat_map(Dependents::iter).map(|at| self.slots[at].node()).collect()
    }

    /// The dependents with `blockOwnerDeletion: true` for this owner.
    pub(crate) fn blocking_dependents(&self, uid: &Uid) -> Vec<Node> {
        let Some(owner) = self.existing_slot(uid) else { return Vec::new() };
        let dependents = self.slots[owner].dependents.iter().map(|at| &self.slots[at]);
        let blocking = dependents.filter(|slot| slot.owners.to(owner).any(|reference| reference.blocks));
        blocking.map(Slot::node).collect()
    }

    /// Whether an owner is known not to exist. An absent slot knows it as long as a dependent refers to it;
    /// without the slots, thousands of owners that are deleted at once would evict each other from the
    /// 500-entry cache, and each dependent would cost one more live read.
    pub(crate) fn is_absent_owner(&mut self, identity: &Identity) -> bool {
        let slot = self.slots.find(&identity.uid).map(|at| &self.slots[at]);
        let is_absent_slot = slot.is_some_and(|slot| slot.is_absent() && slot.identity() == *identity);
        is_absent_slot || self.absent_owners.has(identity)
    }

    /// Records in the cache that an owner does not exist.
    pub(crate) fn record_absent_owner(&mut self, identity: &Identity) {
        self.absent_owners.add(identity);
    }

    fn existing_slot(&self, uid: &Uid) -> Option<SlotIndex> {
        self.slots.find(uid).filter(|&at| !self.slots[at].is_absent())
    }

    /// The slot of an observed object. If its coordinates came from an owner reference before, dependents
    /// whose references disagree are enqueued.
    fn observe_slot(
        &mut self,
        type_meta: &TypeMeta,
        meta: &ObjectMeta,
        effects: &mut GraphEffects,
    ) -> SlotIndex {
        let identity =
            Identity { type_meta: type_meta.clone(), key: meta.key.clone(), uid: meta.uid.clone() };
        let Some(at) = self.slots.find(&meta.uid) else {
            return self.slots.allocate(identity, Presence::Observed);
        };
        let slot = &mut self.slots[at];
        if !slot.is_observed() {
            let coordinates_matched = slot.flags.presence == Presence::Virtual && slot.identity() == identity;
            // The references share the virtual node's name; keeping it drops the equal string that was just
            // decoded.
            if slot.key != identity.key {
                slot.key = identity.key.clone();
            }
            slot.flags.presence = Presence::Observed;
            if !coordinates_matched {
                self.enqueue_mismatched_dependents(at, &identity, effects);
            }
        }
        // The server may prefer another version by now and no longer serve the first one.
        self.slots[at].type_meta = identity.type_meta;
        at
    }

    /// Updates the deletion flags and enqueues the orphaning or foreground deletion that starts.
    fn update_deletion_flags(
        &mut self,
        at: SlotIndex,
        meta: &ObjectMeta,
        is_new: bool,
        effects: &mut GraphEffects,
    ) {
        let is_terminating = meta.deletion_timestamp.is_some();
        let waits_with =
            |finalizer: &str| is_terminating && meta.finalizers.iter().any(|one| one == finalizer);
        let (orphaning, foreground) = (waits_with(ORPHAN), waits_with(FOREGROUND));
        let slot = &mut self.slots[at];
        let before = slot.flags;
        // While dependents are orphaned, none of them may be deleted.
        let awaits_dependents = foreground && !orphaning;
        slot.flags = Flags {
            being_deleted: before.being_deleted || is_terminating,
            deleting_dependents: before.deleting_dependents || awaits_dependents || (is_new && foreground),
            awaits_orphaning: orphaning,
            awaits_dependents,
            ..before
        };
        if orphaning && !before.awaits_orphaning {
            effects.attempts_to_orphan.push(slot.uid.clone());
        } else if awaits_dependents && !before.awaits_dependents {
            self.attempt_delete_all(self.slots[at].dependents.iter().chain([at]), effects);
        }
    }

    /// Removes an object. Its dependents may have to be deleted, and its owners may be waiting for it.
    fn remove(&mut self, at: SlotIndex, identity: &Identity, effects: &mut GraphEffects) {
        let owners = std::mem::replace(&mut self.slots[at].owners, Owners::None);
        let dependents = self.slots[at].dependents.to_vec();
        if !dependents.is_empty() {
            self.absent_owners.add(identity);
        }
        self.attempt_delete_all(dependents.into_iter().filter(|dependent| *dependent != at), effects);
        let slot = &mut self.slots[at];
        slot.flags = Flags { presence: Presence::Absent, ..Flags::default() };
        // The absent slot takes the identity that is known not to exist, not the one from the latest owner
        // reference.
        if slot.identity() != *identity {
            (slot.type_meta, slot.key) = (identity.type_meta.clone(), identity.key.clone());
        }
        for reference in owners.as_slice() {
            let owner = &self.slots[reference.owner];
            if !owner.is_absent() && owner.flags.deleting_dependents {
                effects.attempt_delete(owner);
            }
            self.remove_dependent(reference.owner, at);
        }
        self.free_if_unreferenced(at);
    }

    fn attempt_delete_all(&self, slots: impl Iterator<Item = SlotIndex>, effects: &mut GraphEffects) {
        slots.for_each(|at| effects.attempt_delete(&self.slots[at]));
    }
}

impl GraphEffects {
    fn attempt_delete(&mut self, slot: &Slot) {
        let is_virtual = slot.flags.presence == Presence::Virtual;
        self.attempts_to_delete.push(DeleteAttempt {
            uid: slot.uid.clone(),
            is_virtual,
            rate_limited: false,
        });
    }
}

impl Slot {
    fn node(&self) -> Node {
        Node {
            identity: self.identity(),
            being_deleted: self.flags.being_deleted,
            deleting_dependents: self.flags.deleting_dependents,
            is_virtual: self.flags.presence == Presence::Virtual,
        }
    }
}

#[cfg(test)]
mod tests;
