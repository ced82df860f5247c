//! The latest changes of all caches, so that a view can be rewound to the moment of one of them.
//!
//! A leader makes several writes in one reconcile, and users go on. When the leader's first write is checked, later
//! changes may hide why it was made: a CronJob whose status names the Job that was created, a Deployment that is paused by
//! now. So a controller is also asked in a view without the changes that came after it, with the memory of a process that
//! starts at that moment.

use std::collections::VecDeque;
use std::time::Duration;

use keleustes_plan::{AnyChange, KindEntry};

use crate::caches::Undo;

/// How many changes are kept, and for how long.
const KEPT_MAX: usize = 5000;
const KEPT_FOR: Duration = Duration::from_secs(20);
/// How long after its first write a leader makes the last one of a reconcile.
const ONE_RECONCILE: Duration = Duration::from_secs(1);
/// How many changes are undone at most.
const UNDONE_MAX: usize = 300;

/// The latest changes, the oldest first.
#[derive(Default)]
pub(super) struct LatestChanges {
    changes: VecDeque<LatestChange>,
    last_number: u64,
}

struct LatestChange {
    at: Duration,
    number: u64,
    kind: KindEntry,
    change: AnyChange,
}

impl LatestChanges {
    /// Adds a change, and returns its number.
    pub(super) fn add(&mut self, at: Duration, kind: &KindEntry, change: &AnyChange) -> u64 {
        let is_surplus = |oldest: &LatestChange| at.saturating_sub(oldest.at) > KEPT_FOR;
        while self.changes.len() >= KEPT_MAX || self.changes.front().is_some_and(is_surplus) {
            self.changes.pop_front();
        }
        self.last_number += 1;
        let number = self.last_number;
        self.changes.push_back(LatestChange { at, number, kind: kind.clone(), change: change.clone() });
        number
    }

    /// Undoes a change with this number and what happened after it, in its namespace and outside of namespaces; also the
    /// last few changes before it, because a leader may have decided earlier, and written something else first.
    pub(super) fn rewind(&self, number: u64, kind: &KindEntry, change: &AnyChange, before: usize) -> Undo {
        let mut undo = Undo::rewinding();
        let Some(meta) = change.meta() else { return undo };
        let is_near = |other: &AnyChange| {
            let other = other.meta().map(|meta| &meta.key.namespace);
            other.is_some_and(|other| {
                other.is_empty() || meta.key.namespace.is_empty() || *other == meta.key.namespace
            })
        };
        let near = self.changes.iter().rev().filter(|one| one.number != number && is_near(&one.change));
        let (later, earlier): (Vec<_>, Vec<_>) = near.partition(|one| is_later(one, number, change));
        let mut add = |kind: &KindEntry, change: &AnyChange| {
            if let Some(meta) = change.meta() {
                undo.add_older(kind, (meta.key.clone(), change.old.clone()));
            }
        };
        later.iter().take(UNDONE_MAX).for_each(|one| add(&one.kind, &one.change));
        add(kind, change);
        // Not of the object itself: the controller that made its last change would explain this one, too.
        let at = self.changes.iter().find(|one| one.number == number).map(|one| one.at).unwrap_or_default();
        let is_recent = |one: &&&LatestChange| {
            let is_same = one.change.meta().is_some_and(|other| other.key == meta.key) && one.kind == *kind;
            !is_same && at.saturating_sub(one.at) <= ONE_RECONCILE
        };
        earlier.iter().filter(is_recent).take(before).for_each(|one| add(&one.kind, &one.change));
        undo
    }
}

/// Whether a change came after another. Watches of different kinds are not in step, but resourceVersions are. A deletion
/// has none, and counts by its arrival.
fn is_later(one: &LatestChange, number: u64, change: &AnyChange) -> bool {
    match (&change.new, &one.change.new) {
        (Some(new), Some(other)) => new.meta().resource_version.is_older_than(&other.meta().resource_version),
        _ => one.number > number,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::{Key, Kind as _, Namespace};
    use keleustes_plan::AnyObject;
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: &str) -> Option<Arc<dyn AnyObject>> {
        let json = json!({"metadata": {"name": name, "uid": "u", "resourceVersion": version}});
        Some(Arc::new(serde_json::from_value::<Namespace>(json).unwrap()))
    }

    fn version(undo: &Undo, name: &str) -> Option<Option<String>> {
        let state = undo.state(&Namespace::RESOURCE, &Key::cluster(name))?;
        Some(state.as_ref().map(|state| state.meta().resource_version.to_string()))
    }

    #[test]
    fn later_changes_are_undone_and_earlier_ones_are_not() {
        let (kind, mut latest) = (KindEntry::of::<Namespace>(), LatestChanges::default());
        let change = |old, new| AnyChange { old, new, resync: false };
        let mut add = |change: &AnyChange| latest.add(Duration::ZERO, &kind, change);
        add(&change(object("asked", "2"), object("asked", "3")));
        add(&change(object("before", "1"), object("before", "4")));
        let asked = change(object("asked", "3"), object("asked", "5"));
        let number = add(&asked);
        // It happened before, and arrives late.
        add(&change(object("late", "1"), object("late", "2")));
        add(&change(object("after", "2"), object("after", "6")));
        add(&change(object("after", "6"), object("after", "7")));
        add(&change(object("asked", "5"), object("asked", "8")));
        add(&change(object("deleted", "2"), None));
        let undo = latest.rewind(number, &kind, &asked, 0);
        assert_eq!(version(&undo, "asked"), Some(Some("3".to_owned())));
        assert_eq!(version(&undo, "after"), Some(Some("2".to_owned())));
        assert_eq!(version(&undo, "deleted"), Some(Some("2".to_owned())));
        assert_eq!((version(&undo, "before"), version(&undo, "late")), (None, None));
        let undo = latest.rewind(number, &kind, &asked, 2);
        assert_eq!(
            version(&undo, "before"),
            Some(Some("1".to_owned())),
            "what the leader may have written first"
        );
    }

    #[test]
    fn old_changes_are_forgotten() {
        let (kind, mut latest) = (KindEntry::of::<Namespace>(), LatestChanges::default());
        let change = AnyChange { old: None, new: object("a", "1"), resync: false };
        for _ in 0..2 * KEPT_MAX {
            latest.add(Duration::ZERO, &kind, &change);
        }
        assert_eq!(latest.changes.len(), KEPT_MAX);
        latest.add(KEPT_FOR * 2, &kind, &change);
        assert_eq!(latest.changes.len(), 1);
    }
}
