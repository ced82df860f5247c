//! The links between nodes: made and cut as references come and go, questioned where they cannot be right.

use keleustes_objects::{Key, OwnerReference, TypeMeta};
use keleustes_plan::{InvolvedObject, PlannedEvent};

use super::super::identity::Identity;
use super::slots::{At, Owners, Reference, Sight};
use super::{Graph, GraphEffects};

impl Graph {
    /// Brings the references of an object, and the links they stand for, up to date.
    pub(super) fn refer(&mut self, at: At, owners: &[OwnerReference], ripple: &mut GraphEffects) {
        if self.says_the_same(at, owners) {
            return;
        }
        self.check_unblocked(at, owners, ripple);
        let new: Vec<Reference> = owners.iter().map(|owner| self.resolve(at, owner, ripple)).collect();
        let old = std::mem::take(&mut self.slots[at].owners);
        for reference in &new {
            self.slots[reference.owner].dependents.insert(at);
        }
        self.slots[at].owners = new.into();
        let new = &self.slots[at].owners;
        self.question(at, new.as_slice().iter().filter(|reference| is_added(reference, &old, new)), ripple);
        for reference in old.as_slice() {
            if self.slots[at].owners.to(reference.owner).next().is_none() {
                self.unlink(reference.owner, at);
            }
        }
    }

    /// Takes an object off the dependents of another.
    pub(super) fn unlink(&mut self, owner: At, dependent: At) {
        self.slots[owner].dependents.remove(dependent);
        self.free_if_unreferenced(owner);
    }

    /// The slot of something that is gone stays only while somebody refers to it.
    pub(super) fn free_if_unreferenced(&mut self, at: At) {
        if self.slots[at].is_absent() && self.slots[at].dependents.is_empty() {
            self.slots.free_slot(at);
        }
    }

    /// Has an object checked if one of these references of its cannot be right, or may not be. The first
    /// such reference settles it; an owner that was seen in another namespace is worth an event.
    pub(super) fn question<'a>(
        &self,
        at: At,
        references: impl IntoIterator<Item = &'a Reference>,
        ripple: &mut GraphEffects,
    ) {
        let dependent = &self.slots[at];
        let namespace = &dependent.key.namespace;
        for reference in references {
            let owner = &self.slots[reference.owner];
            let identity = owner.identity();
            if owner.is_absent() {
                continue;
            }
            // What refers to it from within a namespace cannot tell whether something that was never seen is
            // cluster-scoped, or missing and only referred to by something cluster-scoped.
            let of_unknown_scope =
                !owner.is_observed() && identity.key.namespace.is_empty() && !namespace.is_empty();
            let elsewhere = !identity.may_own_in(namespace);
            if elsewhere && owner.is_observed() {
                self.report_elsewhere(at, reference.owner, ripple);
            }
            if elsewhere
                || of_unknown_scope
                || !identity.matches_reference(&reference.line, &reference.name, namespace)
            {
                ripple.check(dependent);
                return;
            }
        }
    }

    /// Has those dependents checked that mean another object than the one that was seen.
    pub(super) fn check_mismatched_dependents(&self, owner: At, seen: &Identity, ripple: &mut GraphEffects) {
        for at in self.slots[owner].dependents.iter() {
            if self.reference_differs(at, owner, seen) {
                if !seen.may_own_in(&self.slots[at].key.namespace) {
                    self.report_elsewhere(at, owner, ripple);
                }
                ripple.check(&self.slots[at]);
            }
        }
    }

    /// Whether a dependent has a reference to an owner with these coordinates.
    pub(super) fn reference_matches(&self, dependent: At, owner: At, identity: &Identity) -> bool {
        let slot = &self.slots[dependent];
        slot.owners.to(owner).any(|one| identity.matches_reference(&one.line, &one.name, &slot.key.namespace))
    }

    /// Whether a dependent has a reference to an owner with other coordinates than these.
    pub(super) fn reference_differs(&self, dependent: At, owner: At, identity: &Identity) -> bool {
        let slot = &self.slots[dependent];
        slot.owners
            .to(owner)
            .any(|one| !identity.matches_reference(&one.line, &one.name, &slot.key.namespace))
    }

    fn says_the_same(&self, at: At, owners: &[OwnerReference]) -> bool {
        let known = self.slots[at].owners.as_slice();
        let same = |(reference, owner): (&Reference, &OwnerReference)| {
            self.slots[reference.owner].uid == owner.uid
                && reference.name == owner.name
                && *reference.line.kind() == owner.kind
                && *reference.line.api_version() == owner.api_version
                && reference.blocks == owner.block_owner_deletion
        };
        known.len() == owners.len() && known.iter().zip(owners).all(same)
    }

    /// Owners that an object kept from being deleted, and keeps no longer.
    fn check_unblocked(&self, at: At, new: &[OwnerReference], ripple: &mut GraphEffects) {
        for reference in self.slots[at].owners.as_slice().iter().filter(|reference| reference.blocks) {
            let owner = &self.slots[reference.owner];
            let still_blocks = new.iter().any(|one| one.uid == owner.uid && one.block_owner_deletion);
            if !still_blocks && !owner.is_absent() {
                ripple.check(owner);
            }
        }
    }

    /// A reference with the slot of its owner. An owner that nobody knows gets a virtual node, which is
    /// checked: whoever is referred to need not exist.
    fn resolve(&mut self, at: At, owner: &OwnerReference, ripple: &mut GraphEffects) -> Reference {
        let line = TypeMeta::new(owner.api_version.clone(), owner.kind.clone());
        let key = Key { namespace: self.slots[at].key.namespace.clone(), name: owner.name.clone() };
        let found = self.slots.find(&owner.uid);
        let owner_at = match found {
            Some(there) if !self.slots[there].is_absent() => there,
            Some(there) => {
                let slot = &mut self.slots[there];
                (slot.line, slot.key) = (line.clone(), key);
                slot.marks.sight = Sight::Virtual;
                ripple.check(slot);
                there
            }
            None => {
                let identity = Identity { line: line.clone(), key, uid: owner.uid.clone() };
                let there = self.slots.take(identity, Sight::Virtual);
                ripple.check(&self.slots[there]);
                there
            }
        };
        // One name for all who say the same.
        let known = &self.slots[owner_at].key.name;
        let name = if *known == owner.name { known.clone() } else { owner.name.clone() };
        Reference { name, line, owner: owner_at, blocks: owner.block_owner_deletion }
    }

    fn report_elsewhere(&self, dependent: At, owner: At, ripple: &mut GraphEffects) {
        let slot = &self.slots[dependent];
        let Some(reference) = slot.owners.to(owner).next() else { return };
        let namespace = &slot.key.namespace;
        let said = Identity {
            line: reference.line.clone(),
            key: Key { namespace: namespace.clone(), name: reference.name.clone() },
            uid: self.slots[owner].uid.clone(),
        };
        let involved = InvolvedObject {
            api_version: slot.line.api_version().to_string(),
            kind: slot.line.kind().to_string(),
            namespace: namespace.to_string(),
            name: slot.key.name.to_string(),
            uid: slot.uid.clone(),
            ..InvolvedObject::default()
        };
        let message = format!("ownerRef {said} does not exist in namespace {:?}", namespace.as_str());
        ripple.events.push(PlannedEvent::warning(involved, "OwnerRefInvalidNamespace", message));
    }
}

/// Whether a reference is new: to an owner that was not referred to before, or one more to the same owner.
fn is_added(reference: &Reference, old: &Owners, new: &Owners) -> bool {
    let is_first = new.to(reference.owner).next().is_some_and(|first| first == reference);
    old.to(reference.owner).next().is_none()
        || (!is_first && !old.to(reference.owner).any(|before| before == reference))
}
