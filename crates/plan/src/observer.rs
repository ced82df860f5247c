//! Events of every resource that the server serves, for controllers that treat all kinds alike: the garbage
//! collector and the resourcequota controller. All observers share one list and watch per resource.

use std::time::Duration;

use keleustes_objects::{ApiResource, Key, ObjectMeta, Resource, ResourceVersion, TypeMeta, Uid};

use crate::{Item, Metric, PlannedEvent};

/// Receives the list and watch events of every deletable resource, metadata only.
///
/// Its methods change nothing but the controller's own [`Memory`](crate::Memory). They must be fast, because they
/// run on the task that reads the watch. A standby observes too; its effects are dropped, and
/// [`Observer::on_start_leading`] makes up for them.
pub trait Observer: Send + Sync {
    /// The `name` label of the workqueue metrics that count the events; `None` if they are not counted.
    fn queue(&self) -> Option<&'static str>;
    /// Counts failures to discover the resources or to sync their monitors.
    fn failures(&self) -> Option<&'static Metric>;
    /// Whether the loops of the controller start only when all observed resources have been listed. A controller that
    /// asks for the state of single monitors need not wait for the others.
    fn delays_start(&self) -> bool {
        true
    }
    /// Whether this observer does not observe a resource, which can be listed, watched and deleted.
    fn ignores(&self, resource: &ApiResource) -> bool;
    /// The resource is observed from now on, and a list follows.
    fn on_resource(&self, _resource: &Resource) {}
    /// A list: `metas` are all objects of the resource except those in `unreadable`, which exist but could not be
    /// decoded.
    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], effects: &mut Effects);
    /// An object was added or updated.
    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects);
    /// An object was deleted; `meta` is its last state.
    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects);
    /// This process becomes the leader, and effects take effect from now on. Enqueues all outstanding work.
    fn on_start_leading(&self, effects: &mut Effects);
    /// What the controller has to do with one object, for an explanation. Changes nothing.
    fn work_for(&self, _uid: &Uid) -> ObservedWork {
        ObservedWork::default()
    }
}

/// What a controller with an observer has to do with one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedWork {
    /// The queues and items whose reconcile is about the object, if it may lead to a write.
    pub items: Vec<(&'static str, Item)>,
    /// What their reconcile waits for.
    pub waits_for: Vec<String>,
    /// Some of the objects that depend on it, of any kind.
    pub dependents: Vec<(TypeMeta, Key)>,
}

/// How far the monitor of one resource is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorState {
    /// The resource has no monitor: it cannot be listed, watched and deleted, no observer observes it, or it is not
    /// discovered yet.
    Missing,
    /// The first list has not been delivered yet.
    Listing,
    /// All changes up to this resourceVersion have been delivered, be it by a list, an event or a bookmark.
    Reached(ResourceVersion),
}

/// Effects of a watch event or a reconcile beyond its own item: items of any queue of the controller, and events.
#[derive(Default)]
pub struct Effects {
    /// The items to enqueue.
    pub enqueued: Vec<EnqueuedItem>,
    /// The events to record, in order.
    pub events: Vec<PlannedEvent>,
}

/// An item for one of the controller's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnqueuedItem {
    /// The name of the queue.
    pub queue: &'static str,
    /// The item.
    pub item: Item,
    /// Whether it is added with backoff, as client-go's `AddRateLimited` does.
    pub rate_limited: bool,
    /// Added only after this delay, as client-go's `AddAfter` does; zero adds it at once.
    pub delay: Duration,
}

impl Effects {
    /// Enqueues an item now.
    pub fn enqueue(&mut self, queue: &'static str, item: impl Into<Item>) {
        self.enqueue_after(queue, item, Duration::ZERO);
    }

    /// Enqueues an item after a delay.
    pub fn enqueue_after(&mut self, queue: &'static str, item: impl Into<Item>, delay: Duration) {
        self.enqueued.push(EnqueuedItem { queue, item: item.into(), rate_limited: false, delay });
    }

    /// Enqueues an item with backoff, as if its reconcile had failed.
    pub fn enqueue_rate_limited(&mut self, queue: &'static str, item: impl Into<Item>) {
        let delay = Duration::ZERO;
        self.enqueued.push(EnqueuedItem { queue, item: item.into(), rate_limited: true, delay });
    }
}
