//! Who owns whom: one small node per object of the cluster, linked both ways, and what a change to it
//! sets in motion.
//!
//! A node is found by uid. Owners that nobody has seen yet have a *virtual* node, made of what a
//! dependent says about them, until they are seen or known not to exist. An owner that is gone keeps an
//! *absent* slot for as long as somebody refers to it, so that a link never has to be searched for; to
//! everybody outside it does not exist.
//!
//! Invariant: an object is among the dependents of a slot exactly when its references name that slot's
//! uid. Nothing here asks the API: what has to be asked is handed on in a [`GraphEffects`].

mod disputes;
mod links;
mod picture;
mod slots;
#[cfg(test)]
pub(super) mod story;

use std::collections::BTreeSet;

use keleustes_objects::{Key, ObjectMeta, TypeMeta, Uid};
use keleustes_plan::PlannedEvent;

pub(super) use self::picture::{GraphDump, Vertex};
use self::slots::{At, Dependents, Marks, Owners, Sight, Slot, Slots};
use super::absent::Absent;
use super::identity::Identity;

/// Keeps an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Keeps an object until its dependents no longer refer to it.
pub(crate) const ORPHAN: &str = "orphan";

/// All objects and their owners.
pub struct Graph {
    slots: Slots,
    absent: Absent,
}

/// What a change to the graph sets in motion.
#[derive(Default)]
pub struct GraphEffects {
    pub(crate) checks: Vec<Check>,
    pub(crate) attempts_to_orphan: Vec<Uid>,
    pub(crate) events: Vec<PlannedEvent>,
}

/// A node that may have to be deleted, or to let go of a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) uid: Uid,
    /// Nobody has seen it yet.
    pub(crate) is_virtual: bool,
    /// It is checked ever more slowly.
    pub(crate) slowly: bool,
}

/// One object, as those see it who act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) being_deleted: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) is_virtual: bool,
}

impl Graph {
    /// A graph of nothing. The key is a secret that keeps others from choosing uids that collide.
    #[must_use]
    pub fn new(hash_key: u64) -> Self {
        Self { slots: Slots::new(hash_key), absent: Absent::default() }
    }

    /// How many objects are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.all().filter(|(_, slot)| !slot.is_absent()).count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// An object was seen.
    pub fn apply_update(&mut self, line: &TypeMeta, meta: &ObjectMeta, ripple: &mut GraphEffects) {
        // What has no uid cannot be deleted safely, nor be an owner.
        if meta.uid.is_empty() {
            return;
        }
        let is_new = self.slots.find(&meta.uid).is_none_or(|at| self.slots[at].is_absent());
        let at = self.reveal(line, meta, ripple);
        self.refer(at, &meta.owner_references, ripple);
        self.note_deletion(at, meta, is_new, ripple);
    }

    /// An object was seen to go.
    pub fn apply_delete(&mut self, line: &TypeMeta, meta: &ObjectMeta, ripple: &mut GraphEffects) {
        if self.present(&meta.uid).is_some() {
            let at = self.reveal(line, meta, ripple);
            let identity = Identity { line: line.clone(), key: meta.key.clone(), uid: meta.uid.clone() };
            self.remove(at, &identity, ripple);
        }
    }

    /// These are all objects of a kind; others that were seen before are gone, except those that are there
    /// but could not be read. Versions of one kind are one kind: the server may prefer another one now.
    pub fn apply_list<'a>(
        &mut self,
        line: &TypeMeta,
        metas: impl Iterator<Item = &'a ObjectMeta>,
        unreadable: &[Key],
        ripple: &mut GraphEffects,
    ) {
        let mut seen = BTreeSet::new();
        for meta in metas {
            self.apply_update(line, meta, ripple);
            seen.extend(self.slots.find(&meta.uid));
        }
        let is_gone = |(at, slot): &(At, &Slot)| {
            slot.is_observed()
                && slot.line.kind() == line.kind()
                && slot.line.group() == line.group()
                && !seen.contains(at)
                && !unreadable.contains(&slot.key)
        };
        let gone: Vec<At> = self.slots.all().filter(is_gone).map(|(at, _)| at).collect();
        for at in gone {
            let identity = self.slots[at].identity();
            self.remove(at, &identity, ripple);
        }
    }

    /// Everything that still has to be set in motion, as if all had just been seen. For whoever has only
    /// watched so far and has to act from now on.
    pub fn requeue_all(&self, ripple: &mut GraphEffects) {
        for (at, slot) in self.slots.all() {
            let Marks { sight, awaits_orphaning, awaits_dependents, .. } = slot.marks;
            match sight {
                Sight::Absent => self.check_all(slot.dependents.iter(), ripple),
                Sight::Virtual => ripple.check(slot),
                Sight::Observed if awaits_orphaning => ripple.attempts_to_orphan.push(slot.uid.clone()),
                Sight::Observed if awaits_dependents => {
                    self.check_all(slot.dependents.iter().chain([at]), ripple);
                }
                Sight::Observed => {}
            }
            self.question(at, slot.owners.as_slice(), ripple);
        }
    }

    /// An object of the graph.
    pub(crate) fn node(&self, uid: &Uid) -> Option<Node> {
        Some(self.slots[self.present(uid)?].node())
    }

    /// The objects that refer to one as their owner.
    pub(crate) fn dependents(&self, uid: &Uid) -> Vec<Node> {
        let dependents = self.present(uid).map(|at| &self.slots[at].dependents);
        dependents.into_iter().flat_map(Dependents::iter).map(|at| self.slots[at].node()).collect()
    }

    /// Those of them that the deletion of the owner in the foreground waits for.
    pub(crate) fn blocking_dependents(&self, uid: &Uid) -> Vec<Node> {
        let Some(owner) = self.present(uid) else { return Vec::new() };
        let dependents = self.slots[owner].dependents.iter().map(|at| &self.slots[at]);
        let blocking = dependents.filter(|slot| slot.owners.to(owner).any(|reference| reference.blocks));
        blocking.map(Slot::node).collect()
    }

    /// Whether an owner is known not to exist. A slot of an owner that is gone knows it as well as the memory of such
    /// owners does, and for as long as somebody refers to it: thousands of owners that go at once would push each other
    /// out of that memory, and the API be asked about each of them once more for each of their dependents.
    pub(crate) fn is_absent_owner(&mut self, identity: &Identity) -> bool {
        let slot = self.slots.find(&identity.uid).map(|at| &self.slots[at]);
        let has_gone = slot.is_some_and(|slot| slot.is_absent() && slot.identity() == *identity);
        has_gone || self.absent.has(identity)
    }

    /// Remembers that an owner does not exist.
    pub(crate) fn record_absent_owner(&mut self, identity: &Identity) {
        self.absent.add(identity);
    }

    fn present(&self, uid: &Uid) -> Option<At> {
        self.slots.find(uid).filter(|&at| !self.slots[at].is_absent())
    }

    /// The slot of an object that was just seen. If its coordinates were only guessed before, those who
    /// refer to it by others are questioned.
    fn reveal(&mut self, line: &TypeMeta, meta: &ObjectMeta, ripple: &mut GraphEffects) -> At {
        let identity = Identity { line: line.clone(), key: meta.key.clone(), uid: meta.uid.clone() };
        let Some(at) = self.slots.find(&meta.uid) else {
            return self.slots.take(identity, Sight::Observed);
        };
        let slot = &mut self.slots[at];
        if !slot.is_observed() {
            let was_right = slot.marks.sight == Sight::Virtual && slot.identity() == identity;
            // References share the name of what was guessed; the equal one that was just read is let go.
            if slot.key != identity.key {
                slot.key = identity.key.clone();
            }
            slot.marks.sight = Sight::Observed;
            if !was_right {
                self.check_mismatched_dependents(at, &identity, ripple);
            }
        }
        // The server may prefer another version by now, and have given up the one that was seen first.
        self.slots[at].line = identity.line;
        at
    }

    /// Follows an object on its way out.
    fn note_deletion(&mut self, at: At, meta: &ObjectMeta, is_new: bool, ripple: &mut GraphEffects) {
        let is_deleted = meta.deletion_timestamp.is_some();
        let waits_with = |finalizer: &str| is_deleted && meta.finalizers.iter().any(|one| one == finalizer);
        let (orphaning, foreground) = (waits_with(ORPHAN), waits_with(FOREGROUND));
        let slot = &mut self.slots[at];
        let before = slot.marks;
        // While dependents are being orphaned, nobody may start to delete them.
        let awaits_dependents = foreground && !orphaning;
        slot.marks = Marks {
            being_deleted: before.being_deleted || is_deleted,
            deleting_dependents: before.deleting_dependents || awaits_dependents || (is_new && foreground),
            awaits_orphaning: orphaning,
            awaits_dependents,
            ..before
        };
        if orphaning && !before.awaits_orphaning {
            ripple.attempts_to_orphan.push(slot.uid.clone());
        } else if awaits_dependents && !before.awaits_dependents {
            self.check_all(self.slots[at].dependents.iter().chain([at]), ripple);
        }
    }

    /// Takes an object out. Its dependents may have to follow, and its owners may have waited for it.
    fn remove(&mut self, at: At, identity: &Identity, ripple: &mut GraphEffects) {
        let owners = std::mem::replace(&mut self.slots[at].owners, Owners::None);
        let dependents = self.slots[at].dependents.to_vec();
        if !dependents.is_empty() {
            self.absent.add(identity);
        }
        self.check_all(dependents.into_iter().filter(|dependent| *dependent != at), ripple);
        let slot = &mut self.slots[at];
        slot.marks = Marks { sight: Sight::Absent, ..Marks::default() };
        // From now on it stands for what is known to be gone, not for what somebody may have guessed since.
        if slot.identity() != *identity {
            (slot.line, slot.key) = (identity.line.clone(), identity.key.clone());
        }
        for reference in owners.as_slice() {
            let owner = &self.slots[reference.owner];
            if !owner.is_absent() && owner.marks.deleting_dependents {
                ripple.check(owner);
            }
            self.unlink(reference.owner, at);
        }
        self.free_if_unreferenced(at);
    }

    fn check_all(&self, slots: impl Iterator<Item = At>, ripple: &mut GraphEffects) {
        slots.for_each(|at| ripple.check(&self.slots[at]));
    }
}

impl GraphEffects {
    fn check(&mut self, slot: &Slot) {
        let is_virtual = slot.marks.sight == Sight::Virtual;
        self.checks.push(Check { uid: slot.uid.clone(), is_virtual, slowly: false });
    }
}

impl Slot {
    fn node(&self) -> Node {
        Node {
            identity: self.identity(),
            being_deleted: self.marks.being_deleted,
            deleting_dependents: self.marks.deleting_dependents,
            is_virtual: self.marks.sight == Sight::Virtual,
        }
    }
}

#[cfg(test)]
mod tests;
