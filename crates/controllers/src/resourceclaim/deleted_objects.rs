//! The UIDs of pods and PodGroups that were seen to be deleted.

use std::collections::{BTreeSet, VecDeque};

use keleustes_objects::Uid;

/// How many UIDs are remembered.
const CAPACITY: usize = 500;

/// The UIDs of deleted consumers, which saves a live read for each of their reservations.
///
/// Lost on failover: the new leader reads a consumer live that its cache does not hold.
#[derive(Clone, Debug, Default)]
pub(super) struct DeletedObjects {
    uids: BTreeSet<Uid>,
    /// Oldest first.
    order: VecDeque<Uid>,
}

impl DeletedObjects {
    pub(super) fn add(&mut self, uid: &Uid) {
        if uid.is_empty() || !self.uids.insert(uid.clone()) {
            return;
        }
        self.order.push_back(uid.clone());
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_five_hundred_uids_are_remembered() {
        let mut deleted = DeletedObjects::default();
        let uid = |number: usize| Uid::from(format!("u{number}").as_str());
        (0..=CAPACITY).for_each(|number| deleted.add(&uid(number)));
        assert!(!deleted.contains(&uid(0)) && deleted.contains(&uid(1)) && deleted.contains(&uid(CAPACITY)));
        deleted.add(&uid(1));
        assert_eq!(deleted.order.len(), CAPACITY);
    }
}
