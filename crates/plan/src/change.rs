//! A change of one cached object.

use std::sync::Arc;

use keleustes_objects::Object;

/// A change of one cached object: its old state, its new state, or both.
pub struct Change<T> {
    old: Option<Arc<T>>,
    new: Option<Arc<T>>,
    resync: bool,
}

impl<T: Object> Change<T> {
    /// The object was added.
    #[must_use]
    pub fn added(new: Arc<T>) -> Self {
        Self::between(None, new)
    }

    /// The object was deleted; `last` is its last known state.
    #[must_use]
    pub fn deleted(last: Arc<T>) -> Self {
        Self { old: Some(last), new: None, resync: false }
    }

    /// A resync of an unchanged object, which makes up for events that a controller handled wrongly.
    #[must_use]
    pub fn resync(object: Arc<T>) -> Self {
        Self { old: Some(object.clone()), new: Some(object), resync: true }
    }

    /// A list or a watch event delivered the object again, unchanged. A key that was dropped gets another chance.
    #[must_use]
    pub fn unchanged(object: Arc<T>) -> Self {
        Self { old: Some(object.clone()), new: Some(object), resync: false }
    }

    /// The object was updated.
    #[must_use]
    pub fn updated(old: Arc<T>, new: Arc<T>) -> Self {
        Self::between(Some(old), new)
    }

    pub(crate) fn between(old: Option<Arc<T>>, new: Arc<T>) -> Self {
        Self { old, new: Some(new), resync: false }
    }

    pub(crate) fn from_parts(old: Option<Arc<T>>, new: Option<Arc<T>>, resync: bool) -> Self {
        Self { old, new, resync }
    }

    pub(crate) fn into_parts(self) -> (Option<Arc<T>>, Option<Arc<T>>, bool) {
        (self.old, self.new, self.resync)
    }

    /// The old state; `None` for an addition.
    #[must_use]
    pub fn old(&self) -> Option<&Arc<T>> {
        self.old.as_ref()
    }

    /// The new state; `None` for a deletion.
    #[must_use]
    #[allow(clippy::new_ret_no_self)] // Named after the second argument of client-go's `OnUpdate`.
    pub fn new(&self) -> Option<&Arc<T>> {
        self.new.as_ref()
    }

    /// The latest known state: the new one, or the last one of a deleted object.
    #[must_use]
    pub fn latest(&self) -> &Arc<T> {
        match (&self.new, &self.old) {
            (Some(object), _) | (None, Some(object)) => object,
            (None, None) => unreachable!("every constructor sets at least one state"),
        }
    }

    /// Both states, the old one first: when a reference changes, the old and the new referent are enqueued. An unchanged
    /// object yields its only state once.
    pub fn old_and_new(&self) -> impl Iterator<Item = &Arc<T>> {
        let new = if self.is_unchanged() { None } else { self.new.as_ref() };
        self.old.iter().chain(new)
    }

    /// Whether the object was deleted.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.new.is_none()
    }

    /// Whether this is a resync of an unchanged object. Only handlers without a resync period of their own ignore it,
    /// and with it no relist; those that are about changes ask for [`Change::is_unchanged`].
    #[must_use]
    pub fn is_resync(&self) -> bool {
        self.resync
    }

    /// Whether the object is the same as before: a resync, or delivered again by a list.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.old.as_ref().zip(self.new.as_ref()).is_some_and(|(old, new)| Arc::ptr_eq(old, new))
    }
}
