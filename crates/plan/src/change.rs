//! What happened to one object, and whom that wakes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, Key, Object};

/// What happened to one object of a kind: the state before, the state after, or both.
pub struct Change<T> {
    old: Option<Arc<T>>,
    new: Option<Arc<T>>,
    resync: bool,
}

impl<T: Object> Change<T> {
    /// It appeared.
    #[must_use]
    pub fn added(new: Arc<T>) -> Self {
        Self::between(None, new)
    }

    /// It is gone; this was its last known state.
    #[must_use]
    pub fn deleted(last: Arc<T>) -> Self {
        Self { old: Some(last), new: None, resync: false }
    }

    /// It is as it was, and is shown again so that nobody has to rely on never missing anything.
    #[must_use]
    pub fn resync(object: Arc<T>) -> Self {
        Self { old: Some(object.clone()), new: Some(object), resync: true }
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

    /// The state before, if there was one.
    #[must_use]
    pub fn old(&self) -> Option<&Arc<T>> {
        self.old.as_ref()
    }

    /// The state after, if there is one.
    #[must_use]
    pub fn new(&self) -> Option<&Arc<T>> {
        self.new.as_ref()
    }

    /// The newest state that is known.
    #[must_use]
    pub fn latest(&self) -> &Arc<T> {
        match (&self.new, &self.old) {
            (Some(object), _) | (None, Some(object)) => object,
            (None, None) => unreachable!("every constructor gives at least one state"),
        }
    }

    /// Both states, the old one first: whoever depends on what an object points to wants to hear of
    /// where it pointed before, too.
    pub fn old_and_new(&self) -> impl Iterator<Item = &Arc<T>> {
        let new = if self.resync { None } else { self.new.as_ref() };
        self.old.iter().chain(new)
    }

    /// Whether the object is gone.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.new.is_none()
    }

    /// Whether nothing happened and the object is only shown again.
    #[must_use]
    pub fn is_resync(&self) -> bool {
        self.resync
    }
}

/// What a queue holds and a controller is asked about: a key, and facts that the cache may have
/// forgotten by the time the key's turn comes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// What it is about.
    pub key: Key,
    facts: Vec<(&'static str, ArcStr)>,
}

impl Item {
    /// Adds a fact.
    #[must_use]
    pub fn with_attribute(mut self, name: &'static str, fact: impl Into<ArcStr>) -> Self {
        self.facts.push((name, fact.into()));
        self
    }

    /// A fact; empty if it was not given.
    #[must_use]
    pub fn attribute(&self, name: &str) -> &str {
        self.facts.iter().find(|(there, _)| *there == name).map_or("", |(_, fact)| fact.as_str())
    }
}

/// An item stands for its key wherever only the key matters.
impl std::ops::Deref for Item {
    type Target = Key;

    fn deref(&self) -> &Key {
        &self.key
    }
}

impl From<Key> for Item {
    fn from(key: Key) -> Self {
        Self { key, facts: Vec::new() }
    }
}

impl From<&Key> for Item {
    fn from(key: &Key) -> Self {
        key.clone().into()
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.facts.iter().try_for_each(|(name, fact)| write!(f, " {name}={fact}"))
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Collects the items that a change wakes.
#[derive(Default)]
pub struct Enqueue {
    items: Vec<(Item, Duration)>,
}

impl Enqueue {
    /// Enqueue an item now.
    pub fn add(&mut self, item: impl Into<Item>) {
        self.items.push((item.into(), Duration::ZERO));
    }

    /// Enqueue an item after a while.
    pub fn add_after(&mut self, item: impl Into<Item>, delay: Duration) {
        self.items.push((item.into(), delay));
    }

    /// What was collected, in order.
    #[must_use]
    pub fn into_items(self) -> Vec<(Item, Duration)> {
        self.items
    }
}
