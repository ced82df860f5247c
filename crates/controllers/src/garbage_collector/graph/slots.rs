//! Storage of the graph: numbered slots, indexed by UID and reused when freed.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hashbrown::HashTable;
use keleustes_objects::{ArcStr, Key, TypeMeta, Uid};

use super::super::identity::Identity;

/// Index of a slot.
pub(super) type SlotIndex = u32;

/// All slots and the index from UID to slot.
#[derive(Clone)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<SlotIndex>,
    by_uid: HashTable<SlotIndex>,
    /// UIDs come from owner references that any client may write; a keyed hash keeps clients from choosing
    /// colliding ones.
    hash_key: u64,
}

/// One object with its owners and dependents.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) uid: Uid,
    pub(super) type_meta: TypeMeta,
    pub(super) key: Key,
    pub(super) owners: Owners,
    pub(super) dependents: Dependents,
    pub(super) flags: Flags,
}

/// State of the object in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Where the knowledge of the object comes from.
    pub(super) presence: Presence,
    /// The object has a deletionTimestamp, which is never removed.
    pub(super) being_deleted: bool,
    /// The object was seen in foreground deletion at some time.
    pub(super) deleting_dependents: bool,
    /// The last observed state has a deletionTimestamp and the finalizer `orphan`.
    pub(super) awaits_orphaning: bool,
    /// The last observed state is in foreground deletion and not in orphaning.
    pub(super) awaits_dependents: bool,
}

/// Where the knowledge of an object comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    /// A list or watch delivered the object.
    #[default]
    Observed,
    /// Only a dependent's owner reference names it.
    Virtual,
    /// It does not exist; dependents still refer to it.
    Absent,
}

/// One owner reference: the owner's slot and the coordinates stated by the dependent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) name: ArcStr,
    pub(super) type_meta: TypeMeta,
    pub(super) owner: SlotIndex,
    pub(super) blocks: bool,
}

/// Owner references; one or none needs no allocation.
#[derive(Clone, Default)]
pub(super) enum Owners {
    #[default]
    None,
    One(Reference),
    Many(Box<[Reference]>),
}

/// Slots of dependents, in ascending order; one or none needs no allocation.
#[derive(Clone, Default)]
pub(super) enum Dependents {
    #[default]
    None,
    One(SlotIndex),
    Many(Box<DependentSet>),
}

/// Boxed, because few objects need it and its size would count for every slot.
#[derive(Clone)]
pub(super) struct DependentSet(BTreeSet<SlotIndex>);

impl Slots {
    pub(super) fn new(hash_key: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_uid: HashTable::new(), hash_key }
    }

    /// The slot of a UID, absent ones included.
    pub(super) fn find(&self, uid: &Uid) -> Option<SlotIndex> {
        self.by_uid.find(hash(self.hash_key, uid), |&at| self[at].uid == *uid).copied()
    }

    /// Allocates a slot for a UID that has none.
    pub(super) fn allocate(&mut self, identity: Identity, presence: Presence) -> SlotIndex {
        let Identity { type_meta, key, uid } = identity;
        let hashed = hash(self.hash_key, &uid);
        let flags = Flags { presence, ..Flags::default() };
        let slot = Slot { uid, type_meta, key, owners: Owners::None, dependents: Dependents::None, flags };
        let at = match self.free.pop() {
            Some(at) => {
                self[at] = slot;
                at
            }
            None => {
                let at = SlotIndex::try_from(self.slots.len())
                    .unwrap_or_else(|_| panic!("more than 2^32 objects"));
                self.slots.push(slot);
                at
            }
        };
        let Self { slots, by_uid, hash_key, .. } = self;
        by_uid.insert_unique(hashed, at, |&at| hash(*hash_key, &slots[at as usize].uid));
        at
    }

    /// Frees a slot, unless it is already free.
    pub(super) fn free_slot(&mut self, at: SlotIndex) {
        let hashed = hash(self.hash_key, &self[at].uid);
        if let Ok(entry) = self.by_uid.find_entry(hashed, |&slot_at| slot_at == at) {
            entry.remove();
            self[at] = Slot::empty();
            self.free.push(at);
        }
    }

    /// All allocated slots, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (SlotIndex, &Slot)> {
        // Free slots are empty.
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

impl std::ops::Index<SlotIndex> for Slots {
    type Output = Slot;

    fn index(&self, at: SlotIndex) -> &Slot {
        &self.slots[at as usize]
    }
}

impl std::ops::IndexMut<SlotIndex> for Slots {
    fn index_mut(&mut self, at: SlotIndex) -> &mut Slot {
        &mut self.slots[at as usize]
    }
}

impl Slot {
    fn empty() -> Self {
        Self {
            uid: Uid::default(),
            type_meta: TypeMeta::new("", ""),
            key: Key::default(),
            owners: Owners::None,
            dependents: Dependents::None,
            flags: Flags { presence: Presence::Absent, ..Flags::default() },
        }
    }

    fn is_empty(&self) -> bool {
        self.flags.presence == Presence::Absent && self.dependents.is_empty()
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { type_meta: self.type_meta.clone(), key: self.key.clone(), uid: self.uid.clone() }
    }

    pub(super) fn is_observed(&self) -> bool {
        self.flags.presence == Presence::Observed
    }

    pub(super) fn is_absent(&self) -> bool {
        self.flags.presence == Presence::Absent
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
    pub(super) fn to(&self, owner: SlotIndex) -> impl Iterator<Item = &Reference> {
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
    pub(super) fn insert(&mut self, at: SlotIndex) {
        match self {
            Self::None => *self = Self::One(at),
            Self::One(slot_at) if *slot_at == at => {}
            Self::One(slot_at) => *self = Self::Many(Box::new(DependentSet(BTreeSet::from([*slot_at, at])))),
            Self::Many(set) => {
                set.0.insert(at);
            }
        }
    }

    pub(super) fn remove(&mut self, at: SlotIndex) {
        match self {
            Self::One(slot_at) if *slot_at == at => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::Many(set) => {
                set.0.remove(&at);
                if set.0.len() < 2 {
                    *self = set.0.first().map_or(Self::None, |&last| Self::One(last));
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SlotIndex> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(at) => (Some(*at), None),
            Self::Many(set) => (None, Some(set.0.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn to_vec(&self) -> Vec<SlotIndex> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_takes_at_most_120_bytes() {
        assert!(size_of::<Slot>() <= 120, "{} bytes", size_of::<Slot>());
        assert_eq!(size_of::<Owners>(), size_of::<Reference>(), "one reference takes no allocation");
    }

    #[test]
    fn freed_slots_are_reused_and_no_longer_found() {
        let identity = |uid: &str| Identity {
            type_meta: TypeMeta::new("v1", "Pod"),
            key: Key::namespaced("ns", "pod"),
            uid: Uid::from(uid),
        };
        let mut slots = Slots::new(7);
        let taken: Vec<_> =
            (0..1000).map(|n| slots.allocate(identity(&n.to_string()), Presence::Observed)).collect();
        assert!((0..1000).all(|n| slots.find(&Uid::from(&*n.to_string())) == Some(taken[n])));
        slots.free_slot(taken[3]);
        assert_eq!((slots.find(&Uid::from("3")), slots.len(), slots.all().count()), (None, 999, 999));
        assert_eq!(slots.allocate(identity("x"), Presence::Virtual), taken[3]);
        assert_eq!(slots.len(), 1000);
    }

    #[test]
    fn dependents_are_a_set_at_every_size() {
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
