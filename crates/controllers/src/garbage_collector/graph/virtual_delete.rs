//! Virtual deletes: a live read found no object with some coordinates, so the owner is deleted or a reference
//! is wrong. Parity: processGraphChanges, virtual delete events.

use std::collections::BTreeSet;
use std::ops::Bound;

use keleustes_objects::Key;

use super::super::identity::Identity;
use super::slots::{Presence, SlotIndex};
use super::{DeleteAttempt, Graph, GraphEffects};

impl Graph {
    /// A live read found no object with this identity.
    pub(crate) fn process_virtual_delete(&mut self, identity: &Identity, effects: &mut GraphEffects) {
        let Some(at) = self.existing_slot(&identity.uid) else { return };
        let slot = &self.slots[at];
        let same_identity = slot.identity() == *identity;
        let is_virtual = slot.flags.presence == Presence::Virtual;
        let dependents = slot.dependents.to_vec();
        let mismatched: Vec<SlotIndex> = dependents
            .iter()
            .copied()
            .filter(|&dependent| self.reference_differs(dependent, at, identity))
            .collect();
        // An observed object is deleted only if it was observed with these coordinates; a virtual one only if
        // no dependent states other coordinates.
        let is_deleted = if is_virtual { mismatched.is_empty() } else { same_identity };
        if is_deleted {
            self.remove(at, identity, effects);
            return;
        }
        let mut matching =
            dependents.into_iter().filter(|&one| self.reference_matches(one, at, identity)).peekable();
        if matching.peek().is_some() {
            let matching: Vec<SlotIndex> = matching.collect();
            self.absent_owners.add(identity);
            self.attempt_delete_all(matching.into_iter(), effects);
        }
        if is_virtual
            && same_identity
            && let Some(other) = self.alternative_identity(at, &mismatched, identity)
        {
            let slot = &mut self.slots[at];
            (slot.type_meta, slot.key) = (other.type_meta, other.key);
            effects.attempts_to_delete.push(DeleteAttempt {
                uid: slot.uid.clone(),
                is_virtual,
                rate_limited: true,
            });
        }
    }

    /// The next coordinates, after the absent ones in order and then from the start, that a dependent states
    /// for this UID. Parity: getAlternateOwnerIdentity.
    fn alternative_identity(
        &self,
        at: SlotIndex,
        mismatched: &[SlotIndex],
        absent: &Identity,
    ) -> Option<Identity> {
        let cluster_scoped = absent.key.namespace.is_empty();
        let mut candidates = BTreeSet::new();
        for &dependent in mismatched {
            let slot = &self.slots[dependent];
            for reference in slot.owners.to(at) {
                let mut namespace = slot.key.namespace.clone();
                // This kind is known to be cluster-scoped.
                if cluster_scoped && reference.type_meta == absent.type_meta {
                    namespace = absent.key.namespace.clone();
                }
                candidates.insert(Identity {
                    type_meta: reference.type_meta.clone(),
                    key: Key { namespace, name: reference.name.clone() },
                    uid: absent.uid.clone(),
                });
            }
        }
        candidates.remove(absent);
        let next = candidates.range((Bound::Excluded(absent), Bound::Unbounded)).next().cloned();
        next.or_else(|| candidates.pop_first())
    }
}
