//! Events of every resource that the server serves, for controllers that treat all kinds alike: the garbage
//! collector and the resourcequota controller. All observers share one list and watch per resource.

use keleustes_objects::{ApiResource, Key, ObjectMeta, Resource, ResourceVersion, TypeMeta, Uid};

use crate::{Effects, Item, Metric};

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
