//! Where the nodes of the graph are: numbered slots, found by uid, and given back when they are empty.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hashbrown::HashTable;
use keleustes_objects::{ArcStr, Key, TypeMeta, Uid};

use super::super::identity::Identity;

/// The number of a slot.
pub(super) type At = u32;

/// All slots, and the way from a uid to its slot.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<At>,
    by_uid: HashTable<At>,
    /// Uids come from references that anybody may write; without a secret in the hash, somebody could choose
    /// them so that they all collide.
    hash_key: u64,
}

/// One object, as far as its owners and dependents are concerned.
pub(super) struct Slot {
    pub(super) uid: Uid,
    pub(super) line: TypeMeta,
    pub(super) key: Key,
    pub(super) owners: Owners,
    pub(super) dependents: Dependents,
    pub(super) marks: Marks,
}

/// What is known of the object in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// What kind of knowledge it is.
    pub(super) sight: Sight,
    /// Its deletion has been asked for. There is no way back from there.
    pub(super) being_deleted: bool,
    /// Its deletion has been asked for in the foreground at some time.
    pub(super) deleting_dependents: bool,
    /// In the state that was last seen it waits for its dependents to be orphaned.
    pub(super) awaits_orphaning: bool,
    /// In the state that was last seen it waits for its dependents to be deleted.
    pub(super) awaits_dependents: bool,
}

/// Where the knowledge of an object comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sight {
    /// It was seen.
    #[default]
    Observed,
    /// A dependent says that it is there.
    Virtual,
    /// It is gone, or never was; dependents still refer to it.
    Absent,
}

/// One owner reference: the owner's slot, and the coordinates it is said to have.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) name: ArcStr,
    pub(super) line: TypeMeta,
    pub(super) owner: At,
    pub(super) blocks: bool,
}

/// Owner references. Most objects have one or none, which takes no allocation.
#[derive(Default)]
pub(super) enum Owners {
    #[default]
    None,
    One(Reference),
    Many(Box<[Reference]>),
}

/// Slots of dependents, in order. Most objects have one or none, which takes no allocation.
#[derive(Default)]
pub(super) enum Dependents {
    #[default]
    None,
    One(At),
    Many(Box<Crowd>),
}

/// Behind a pointer, because few objects need it and all would pay for its size.
pub(super) struct Crowd(BTreeSet<At>);

impl Slots {
    pub(super) fn new(hash_key: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_uid: HashTable::new(), hash_key }
    }

    /// The slot of a uid, absent ones among them.
    pub(super) fn find(&self, uid: &Uid) -> Option<At> {
        self.by_uid.find(hash(self.hash_key, uid), |&at| self[at].uid == *uid).copied()
    }

    /// Takes a slot for a uid that has none.
    pub(super) fn take(&mut self, identity: Identity, sight: Sight) -> At {
        let Identity { line, key, uid } = identity;
        let hashed = hash(self.hash_key, &uid);
        let marks = Marks { sight, ..Marks::default() };
        let slot = Slot { uid, line, key, owners: Owners::None, dependents: Dependents::None, marks };
        let at = match self.free.pop() {
            Some(at) => {
                self[at] = slot;
                at
            }
            None => {
                let at = At::try_from(self.slots.len()).unwrap_or_else(|_| panic!("four billion objects"));
                self.slots.push(slot);
                at
            }
        };
        let Self { slots, by_uid, hash_key, .. } = self;
        by_uid.insert_unique(hashed, at, |&at| hash(*hash_key, &slots[at as usize].uid));
        at
    }

    /// Gives a slot back, if it is not given back already.
    pub(super) fn free_slot(&mut self, at: At) {
        let hashed = hash(self.hash_key, &self[at].uid);
        if let Ok(entry) = self.by_uid.find_entry(hashed, |&there| there == at) {
            entry.remove();
            self[at] = Slot::empty();
            self.free.push(at);
        }
    }

    /// All slots that are taken, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (At, &Slot)> {
        // Slots given back have no uid.
        (0..).zip(&self.slots).filter(|(_, slot)| !slot.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn hash(key: u64, uid: &Uid) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(key);
    uid.hash(&mut hasher);
    hasher.finish()
}

impl std::ops::Index<At> for Slots {
    type Output = Slot;

    fn index(&self, at: At) -> &Slot {
        &self.slots[at as usize]
    }
}

impl std::ops::IndexMut<At> for Slots {
    fn index_mut(&mut self, at: At) -> &mut Slot {
        &mut self.slots[at as usize]
    }
}

impl Slot {
    fn empty() -> Self {
        Self {
            uid: Uid::default(),
            line: TypeMeta::new("", ""),
            key: Key::default(),
            owners: Owners::None,
            dependents: Dependents::None,
            marks: Marks { sight: Sight::Absent, ..Marks::default() },
        }
    }

    fn is_empty(&self) -> bool {
        self.marks.sight == Sight::Absent && self.dependents.is_empty()
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { line: self.line.clone(), key: self.key.clone(), uid: self.uid.clone() }
    }

    pub(super) fn is_observed(&self) -> bool {
        self.marks.sight == Sight::Observed
    }

    pub(super) fn is_absent(&self) -> bool {
        self.marks.sight == Sight::Absent
    }
}

impl Owners {
    pub(super) fn as_slice(&self) -> &[Reference] {
        match self {
            Self::None => &[],
            Self::One(reference) => std::slice::from_ref(reference),
            Self::Many(references) => references,
        }
    }

    /// The references to one owner.
    pub(super) fn to(&self, owner: At) -> impl Iterator<Item = &Reference> {
        self.as_slice().iter().filter(move |reference| reference.owner == owner)
    }
}

impl From<Vec<Reference>> for Owners {
    fn from(mut references: Vec<Reference>) -> Self {
        match references.len() {
            0 => Self::None,
            1 => references.pop().map_or(Self::None, Self::One),
            _ => Self::Many(references.into()),
        }
    }
}

impl Dependents {
    pub(super) fn insert(&mut self, at: At) {
        match self {
            Self::None => *self = Self::One(at),
            Self::One(there) if *there == at => {}
            Self::One(there) => *self = Self::Many(Box::new(Crowd(BTreeSet::from([*there, at])))),
            Self::Many(crowd) => {
                crowd.0.insert(at);
            }
        }
    }

    pub(super) fn remove(&mut self, at: At) {
        match self {
            Self::One(there) if *there == at => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::Many(crowd) => {
                crowd.0.remove(&at);
                if crowd.0.len() < 2 {
                    *self = crowd.0.first().map_or(Self::None, |&last| Self::One(last));
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = At> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(at) => (Some(*at), None),
            Self::Many(crowd) => (None, Some(crowd.0.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn to_vec(&self) -> Vec<At> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 120, "{} bytes", size_of::<Slot>());
        assert_eq!(size_of::<Owners>(), size_of::<Reference>(), "one reference takes no allocation");
    }

    #[test]
    fn slots_given_back_are_taken_again_and_found_no_more() {
        let identity = |uid: &str| Identity {
            line: TypeMeta::new("v1", "Pod"),
            key: Key::namespaced("ns", "pod"),
            uid: Uid::from(uid),
        };
        let mut slots = Slots::new(7);
        let taken: Vec<_> =
            (0..1000).map(|n| slots.take(identity(&n.to_string()), Sight::Observed)).collect();
        assert!((0..1000).all(|n| slots.find(&Uid::from(&*n.to_string())) == Some(taken[n])));
        slots.free_slot(taken[3]);
        assert_eq!((slots.find(&Uid::from("3")), slots.len(), slots.all().count()), (None, 999, 999));
        assert_eq!(slots.take(identity("x"), Sight::Virtual), taken[3]);
        assert_eq!(slots.len(), 1000);
    }

    #[test]
    fn dependents_stay_a_set_however_many_there_are() {
        let mut dependents = Dependents::None;
        for (insert, at, expected) in [
            (true, 5, vec![5]),
            (true, 5, vec![5]),
            (true, 3, vec![3, 5]),
            (true, 9, vec![3, 5, 9]),
            (false, 7, vec![3, 5, 9]),
            (false, 5, vec![3, 9]),
            (false, 9, vec![3]),
            (false, 9, vec![3]),
            (false, 3, vec![]),
        ] {
            if insert {
                dependents.insert(at);
            } else {
                dependents.remove(at);
            }
            assert_eq!(dependents.to_vec(), expected);
        }
        assert!(dependents.is_empty());
    }
}
