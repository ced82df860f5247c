//! Hears of every object of every kind, whatever the server serves: for controllers to which all kinds
//! are alike.

use keleustes_objects::{Key, ObjectMeta, Resource};

use crate::{Item, Metric, PlannedEvent};

/// Hears of every object of every resource that can be watched and deleted.
///
/// Its functions are pure but for the controller's own [`Memory`](crate::Memory), and quick: they run where
/// the wire is read. A standby observes, too; what is stirred up then is dropped, and
/// [`Observer::begin`] makes up for it.
pub trait Observer: Send + Sync {
    /// The name under which changes are counted, as if they went through a queue.
    fn queue(&self) -> &'static str;
    /// Counts the times that it could not be found out, or kept up with, what there is to observe.
    fn failures(&self) -> &'static Metric;
    /// Whether objects of a resource are of no interest.
    fn ignores(&self, resource: &Resource) -> bool;
    /// These are all objects of a resource, but for those that are there and could not be read.
    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], stir: &mut Effects);
    /// An object is new or has changed.
    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects);
    /// An object is gone; this was its last state.
    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects);
    /// From now on, what is stirred up is worked on. Tells all that is still to be done.
    fn on_start_leading(&self, stir: &mut Effects);
}

/// What something stirs up beyond the item at hand: items of any queue of the controller, and events.
#[derive(Default)]
pub struct Effects {
    /// Items that want work.
    pub enqueued: Vec<EnqueuedItem>,
    /// Events, in order.
    pub events: Vec<PlannedEvent>,
}

/// An item that wants work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnqueuedItem {
    /// The queue it goes to.
    pub queue: &'static str,
    /// The item.
    pub item: Item,
    /// Not now, but ever more slowly, as if it had failed.
    pub rate_limited: bool,
}

impl Effects {
    /// Enqueue an item now.
    pub fn enqueue(&mut self, queue: &'static str, item: impl Into<Item>) {
        self.enqueued.push(EnqueuedItem { queue, item: item.into(), rate_limited: false });
    }

    /// Enqueue an item ever more slowly, as if it had failed.
    pub fn enqueue_rate_limited(&mut self, queue: &'static str, item: impl Into<Item>) {
        self.enqueued.push(EnqueuedItem { queue, item: item.into(), rate_limited: true });
    }
}
