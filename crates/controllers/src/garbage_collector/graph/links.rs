//! Links between nodes: updated when ownerReferences change, and checked where a reference disagrees with its
//! owner.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{Key, OwnerReference, TypeMeta, Uid};
use keleustes_plan::{InvolvedObject, PlannedEvent};

use super::super::identity::Identity;
use super::slots::{Owners, Presence, Reference, SlotIndex};
use super::{Graph, GraphEffects};

impl Graph {
    /// Replaces the owner references of an object and updates the links.
    pub(super) fn update_owner_references(
        &mut self,
        at: SlotIndex,
        owners: &[OwnerReference],
        effects: &mut GraphEffects,
    ) {
        if self.references_unchanged(at, owners) {
            return;
        }
        self.enqueue_unblocked_owners(at, owners, effects);
        let new: Vec<Reference> = owners.iter().map(|owner| self.resolve_owner(at, owner, effects)).collect();
        let old = std::mem::take(&mut self.slots[at].owners);
        let mut kept = BTreeSet::new();
        for reference in &new {
            self.slots[reference.owner].dependents.insert(at);
            kept.insert(reference.owner);
        }
        self.slots[at].owners = new.into();
        self.enqueue_mismatched(at, added(&old, &self.slots[at].owners), effects);
        for reference in old.as_slice().iter().filter(|reference| !kept.contains(&reference.owner)) {
            self.remove_dependent(reference.owner, at);
        }
    }

    /// Removes a dependent from an owner.
    pub(super) fn remove_dependent(&mut self, owner: SlotIndex, dependent: SlotIndex) {
        self.slots[owner].dependents.remove(dependent);
        self.free_if_unreferenced(owner);
    }

    /// An absent slot is freed when no dependent refers to it any more.
    pub(super) fn free_if_unreferenced(&mut self, at: SlotIndex) {
        if self.slots[at].is_absent() && self.slots[at].dependents.is_empty() {
            self.slots.free_slot(at);
        }
    }

    /// Enqueues an object if one of `references` does not, or may not, match its owner. The first such
    /// reference is enough. An owner that was observed in another namespace is also reported as an event.
    pub(super) fn enqueue_mismatched<'a>(
        &self,
        at: SlotIndex,
        references: impl IntoIterator<Item = &'a Reference>,
        effects: &mut GraphEffects,
    ) {
        let dependent = &self.slots[at];
        let namespace = &dependent.key.namespace;
        for reference in references {
            let owner = &self.slots[reference.owner];
            let identity = owner.identity();
            if owner.is_absent() {
                continue;
            }
            // For a virtual owner without namespace, a namespaced dependent cannot distinguish a
            // cluster-scoped owner from one that does not exist and is referenced by a cluster-scoped object.
            let of_unknown_scope =
                !owner.is_observed() && identity.key.namespace.is_empty() && !namespace.is_empty();
            let in_other_namespace = !identity.may_own_in_namespace(namespace);
            if in_other_namespace && owner.is_observed() {
                self.record_invalid_namespace(at, reference.owner, effects);
            }
            if in_other_namespace
                || of_unknown_scope
                || !identity.matches_reference(&reference.type_meta, &reference.name, namespace)
            {
                effects.attempt_delete(dependent);
                return;
            }
        }
    }

    /// Enqueues the dependents whose references disagree with the observed owner.
    pub(super) fn enqueue_mismatched_dependents(
        &self,
        owner: SlotIndex,
        seen: &Identity,
        effects: &mut GraphEffects,
    ) {
        for at in self.slots[owner].dependents.iter() {
            if self.reference_differs(at, owner, seen) {
                if !seen.may_own_in_namespace(&self.slots[at].key.namespace) {
                    self.record_invalid_namespace(at, owner, effects);
                }
                effects.attempt_delete(&self.slots[at]);
            }
        }
    }

    /// Whether a dependent has a reference to the owner with these coordinates.
    pub(super) fn reference_matches(
        &self,
        dependent: SlotIndex,
        owner: SlotIndex,
        identity: &Identity,
    ) -> bool {
        let slot = &self.slots[dependent];
        slot.owners
            .to(owner)
            .any(|one| identity.matches_reference(&one.type_meta, &one.name, &slot.key.namespace))
    }

    /// Whether a dependent has a reference to the owner with other coordinates.
    pub(super) fn reference_differs(
        &self,
        dependent: SlotIndex,
        owner: SlotIndex,
        identity: &Identity,
    ) -> bool {
        let slot = &self.slots[dependent];
        slot.owners
            .to(owner)
            .any(|one| !identity.matches_reference(&one.type_meta, &one.name, &slot.key.namespace))
    }

    fn references_unchanged(&self, at: SlotIndex, owners: &[OwnerReference]) -> bool {
        let known = self.slots[at].owners.as_slice();
        let same = |(reference, owner): (&Reference, &OwnerReference)| {
            self.slots[reference.owner].uid == owner.uid
                && reference.name == owner.name
                && *reference.type_meta.kind() == owner.kind
                && *reference.type_meta.api_version() == owner.api_version
                && reference.blocks == owner.block_owner_deletion
        };
        known.len() == owners.len() && known.iter().zip(owners).all(same)
    }

    /// Enqueues owners that this object blocked and no longer blocks.
    fn enqueue_unblocked_owners(&self, at: SlotIndex, new: &[OwnerReference], effects: &mut GraphEffects) {
        let still_blocked: BTreeSet<&Uid> =
            new.iter().filter(|one| one.block_owner_deletion).map(|one| &one.uid).collect();
        for reference in self.slots[at].owners.as_slice().iter().filter(|reference| reference.blocks) {
            let owner = &self.slots[reference.owner];
            if !still_blocked.contains(&owner.uid) && !owner.is_absent() {
                effects.attempt_delete(owner);
            }
        }
    }

    /// Resolves a reference to its owner's slot. An unknown owner gets a virtual node, which is enqueued
    /// because it may not exist.
    fn resolve_owner(
        &mut self,
        at: SlotIndex,
        owner: &OwnerReference,
        effects: &mut GraphEffects,
    ) -> Reference {
        let type_meta = TypeMeta::new(owner.api_version.clone(), owner.kind.clone());
        let key = Key { namespace: self.slots[at].key.namespace.clone(), name: owner.name.clone() };
        let found = self.slots.find(&owner.uid);
        let owner_at = match found {
            Some(slot_at) if !self.slots[slot_at].is_absent() => slot_at,
            Some(slot_at) => {
                let slot = &mut self.slots[slot_at];
                (slot.type_meta, slot.key) = (type_meta.clone(), key);
                slot.flags.presence = Presence::Virtual;
                effects.attempt_delete(slot);
                slot_at
            }
            None => {
                let identity = Identity { type_meta: type_meta.clone(), key, uid: owner.uid.clone() };
                let slot_at = self.slots.allocate(identity, Presence::Virtual);
                effects.attempt_delete(&self.slots[slot_at]);
                slot_at
            }
        };
        // Equal names share one allocation.
        let known = &self.slots[owner_at].key.name;
        let name = if *known == owner.name { known.clone() } else { owner.name.clone() };
        Reference { name, type_meta, owner: owner_at, blocks: owner.block_owner_deletion }
    }

    fn record_invalid_namespace(&self, dependent: SlotIndex, owner: SlotIndex, effects: &mut GraphEffects) {
        let slot = &self.slots[dependent];
        let Some(reference) = slot.owners.to(owner).next() else { return };
        let namespace = &slot.key.namespace;
        let stated = Identity {
            type_meta: reference.type_meta.clone(),
            key: Key { namespace: namespace.clone(), name: reference.name.clone() },
            uid: self.slots[owner].uid.clone(),
        };
        let involved = InvolvedObject {
            api_version: slot.type_meta.api_version().to_string(),
            kind: slot.type_meta.kind().to_string(),
            namespace: namespace.to_string(),
            name: slot.key.name.to_string(),
            uid: slot.uid.clone(),
            ..InvolvedObject::default()
        };
        let message = format!("ownerRef {stated} does not exist in namespace {:?}", namespace.as_str());
        effects.events.push(PlannedEvent::warning(involved, "OwnerRefInvalidNamespace", message));
    }
}

/// The references that were added: to an owner without reference before, or a further one to the same owner. A client
/// may write tens of thousands of references, so none is searched for in a list.
fn added<'a>(old: &'a Owners, new: &'a Owners) -> impl Iterator<Item = &'a Reference> {
    let known: BTreeSet<&Reference> = old.as_slice().iter().collect();
    let known_owners: BTreeSet<SlotIndex> = known.iter().map(|reference| reference.owner).collect();
    let mut firsts = BTreeMap::new();
    for reference in new.as_slice() {
        firsts.entry(reference.owner).or_insert(reference);
    }
    new.as_slice().iter().filter(move |reference| {
        let is_first = firsts.get(&reference.owner) == Some(reference);
        !known_owners.contains(&reference.owner) || (!is_first && !known.contains(reference))
    })
}
