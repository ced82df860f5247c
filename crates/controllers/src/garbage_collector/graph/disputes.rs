//! What follows when the API has no object of some coordinates: it is gone, or some reference is wrong.

use std::collections::BTreeSet;
use std::ops::Bound;

use keleustes_objects::Key;

use super::super::identity::Identity;
use super::slots::{At, Sight};
use super::{Check, Graph, GraphEffects};

impl Graph {
    /// The API was asked and has no object of this identity.
    pub(crate) fn process_virtual_delete(&mut self, identity: &Identity, ripple: &mut GraphEffects) {
        let Some(at) = self.present(&identity.uid) else { return };
        let slot = &self.slots[at];
        let is_that = slot.identity() == *identity;
        let is_virtual = slot.marks.sight == Sight::Virtual;
        let dependents = slot.dependents.to_vec();
        let doubters: Vec<At> = dependents
            .iter()
            .copied()
            .filter(|&dependent| self.reference_differs(dependent, at, identity))
            .collect();
        // What was seen is gone only if it was seen there; what was not, only if nobody says it is elsewhere.
        let is_gone = if is_virtual { doubters.is_empty() } else { is_that };
        if is_gone {
            self.remove(at, identity, ripple);
            return;
        }
        let mut believers =
            dependents.into_iter().filter(|&one| self.reference_matches(one, at, identity)).peekable();
        if believers.peek().is_some() {
            let believers: Vec<At> = believers.collect();
            self.absent.add(identity);
            self.check_all(believers.into_iter(), ripple);
        }
        if is_virtual
            && is_that
            && let Some(other) = self.alternative(at, &doubters, identity)
        {
            let slot = &mut self.slots[at];
            (slot.line, slot.key) = (other.line, other.key);
            ripple.checks.push(Check { uid: slot.uid.clone(), is_virtual, slowly: true });
        }
    }

    /// Where else somebody says that an object is: the next place after the one where it is not, and from
    /// the beginning after the last.
    fn alternative(&self, at: At, doubters: &[At], absent: &Identity) -> Option<Identity> {
        let cluster_scoped = absent.key.namespace.is_empty();
        let mut places = BTreeSet::new();
        for &doubter in doubters {
            let slot = &self.slots[doubter];
            for reference in slot.owners.to(at) {
                let mut namespace = slot.key.namespace.clone();
                // The kind was just found to have no namespaces.
                if cluster_scoped && reference.line == absent.line {
                    namespace = absent.key.namespace.clone();
                }
                places.insert(Identity {
                    line: reference.line.clone(),
                    key: Key { namespace, name: reference.name.clone() },
                    uid: absent.uid.clone(),
                });
            }
        }
        places.remove(absent);
        let next = places.range((Bound::Excluded(absent), Bound::Unbounded)).next().cloned();
        next.or_else(|| places.pop_first())
    }
}
