//! Which owners are enqueued for a change of a dependent: its old controller, its new controller and, if it
//! is an orphan, every owner that could adopt it.

use std::time::Duration;

use keleustes_objects::{
    DaemonSet, Deployment, Kind, LabelSelector, Labels, Matcher, ObjectMeta, Pod, ReplicaSet,
    ReplicationController, StatefulSet,
};
use keleustes_plan::{Change, Effects, View};

use super::owners::resolve;

/// A kind that selects its dependents by labels.
pub(crate) trait HasSelector: Kind {
    /// The selector. `None` if it is empty, missing or invalid.
    fn selector(&self) -> Option<Matcher>;
    /// How long a pod must be ready to be available.
    fn min_ready_seconds(&self) -> i32;

    /// Whether the selector matches these labels. An object without labels is never selected.
    fn selects(&self, labels: &Labels) -> bool {
        !labels.is_empty() && self.selector().is_some_and(|selector| selector.matches(labels))
    }
}

/// For the kinds whose selector is a `LabelSelector`.
macro_rules! impl_has_selector {
    ($($kind:ty),*) => {$(
        impl HasSelector for $kind {
            fn selector(&self) -> Option<Matcher> {
                self.spec.selector.as_ref().filter(|selector| !selector.is_empty())?.matcher().ok()
            }

            fn min_ready_seconds(&self) -> i32 {
                self.spec.min_ready_seconds
            }
        }
    )*};
}

impl_has_selector!(DaemonSet, Deployment, ReplicaSet, StatefulSet);

impl HasSelector for ReplicationController {
    fn selector(&self) -> Option<Matcher> {
        let labels = Some(&self.spec.selector).filter(|labels| !labels.is_empty())?;
        LabelSelector::of_labels(labels.clone()).matcher().ok()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds
    }
}

/// Enqueues the object itself for every change.
pub(crate) fn enqueue_self<O: Kind>(change: &Change<O>, _: &View<'_>, enqueue: &mut Effects) {
    enqueue.add(change.latest().key());
}

/// Enqueues the old and the new controller of a changed object. If the object is an orphan that is new,
/// relabelled or just released, enqueues every owner that could adopt it.
pub(crate) fn enqueue_owners<O: HasSelector, T: Kind>(
    change: &Change<T>,
    view: &View<'_>,
    enqueue: &mut Effects,
) {
    if change.is_unchanged() {
        return;
    }
    let (old, meta) = (change.old().map(|old| old.meta()), change.latest().meta());
    if let Some(old) = old.filter(|old| old.controller_ref() != meta.controller_ref()) {
        enqueue_owner::<O>(old, view, enqueue);
    }
    if meta.controller_ref().is_some() {
        enqueue_owner::<O>(meta, view, enqueue);
    } else if !change.is_deletion() && meta.deletion_timestamp.is_none() {
        let may_be_adopted_now =
            old.is_none_or(|old| old.labels != meta.labels || old.controller_ref().is_some());
        let all = view.in_namespace::<O>(&meta.key.namespace).filter(|_| may_be_adopted_now);
        all.filter(|owner| owner.selects(&meta.labels)).for_each(|owner| enqueue.add(owner.key()));
    }
}

/// Enqueues the owner of a pod that has just become ready for the moment at which the pod becomes available,
/// plus a margin.
pub(crate) fn enqueue_when_available<O: HasSelector>(
    change: &Change<Pod>,
    margin: Duration,
    view: &View<'_>,
    enqueue: &mut Effects,
) {
    let (Some(old), Some(pod)) = (change.old(), change.new()) else { return };
    let Some(owner) = pod.meta.controller_ref().filter(|_| !old.is_ready() && pod.is_ready()) else {
        return;
    };
    let Some(owner) = resolve::<O>(view, &pod.meta.key.namespace, owner) else { return };
    let seconds = u64::try_from(owner.min_ready_seconds()).unwrap_or(0);
    if seconds > 0 {
        enqueue.add_after(owner.key(), Duration::from_secs(seconds) + margin);
    }
}

fn enqueue_owner<O: Kind>(meta: &ObjectMeta, view: &View<'_>, enqueue: &mut Effects) {
    let owner = meta.controller_ref().and_then(|owner| resolve::<O>(view, &meta.key.namespace, owner));
    if let Some(owner) = owner {
        enqueue.add(owner.key());
    }
}
