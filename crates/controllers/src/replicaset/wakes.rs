//! Which sets a change concerns: the set itself, the owner of a pod, or every set that could adopt it.

use std::time::Duration;

use keleustes_objects::{OwnerRef, Pod, Word};
use keleustes_plan::{Change, View, Wakes};

use super::Replicated;
use crate::workloads::owners::resolve;

pub(super) fn set_changed<R: Replicated>(change: &Change<R>, _: &View<'_>, wakes: &mut Wakes) {
    wakes.wake(change.either().key());
}

pub(super) fn pod_changed<R: Replicated>(change: &Change<Pod>, view: &View<'_>, wakes: &mut Wakes) {
    if change.is_resync() {
        return;
    }
    let (before, after) = (change.before(), change.after());
    if let (Some(before), Some(after)) = (before, after) {
        if looks_the_same(before, after) {
            return;
        }
        if before.meta.controller() != after.meta.controller() {
            wake_owner::<R>(before, view, wakes);
        }
    }
    let pod = change.either();
    match pod.meta.controller() {
        Some(owner) => {
            wake_owner::<R>(pod, view, wakes);
            let became_ready = before.is_some_and(|before| !before.is_ready()) && pod.is_ready();
            if became_ready && !change.is_deletion() {
                wake_when_available::<R>(&pod.meta.key.namespace, owner, view, wakes);
            }
        }
        None if change.is_deletion() || pod.is_terminating() => {}
        None => wake_adopters::<R>(pod, before.map(|before| &**before), view, wakes),
    }
}

/// Whether a set would see no difference. Kubelets write much that no set reads.
fn looks_the_same(before: &Pod, after: &Pod) -> bool {
    before.meta.labels == after.meta.labels
        && before.meta.owners == after.meta.owners
        && before.meta.uid == after.meta.uid
        && before.phase == after.phase
        && before.is_terminating() == after.is_terminating()
        && (before.is_ready(), before.ready_since()) == (after.is_ready(), after.ready_since())
}

fn wake_owner<R: Replicated>(pod: &Pod, view: &View<'_>, wakes: &mut Wakes) {
    let owner = pod.meta.controller().and_then(|owner| resolve::<R>(view, &pod.meta.key.namespace, owner));
    if let Some(owner) = owner {
        wakes.wake(owner.key());
    }
}

fn wake_when_available<R: Replicated>(
    namespace: &Word,
    owner: &OwnerRef,
    view: &View<'_>,
    wakes: &mut Wakes,
) {
    let Some(set) = resolve::<R>(view, namespace, owner) else { return };
    let seconds = u64::try_from(set.min_ready_seconds()).unwrap_or(0);
    if seconds > 0 {
        wakes.wake_after(set.key(), Duration::from_secs(seconds));
    }
}

/// Wakes every set that could adopt a pod without an owner, if it is new or its labels or owners are.
fn wake_adopters<R: Replicated>(pod: &Pod, before: Option<&Pod>, view: &View<'_>, wakes: &mut Wakes) {
    let is_news = before
        .is_none_or(|before| before.meta.labels != pod.meta.labels || before.meta.controller().is_some());
    if is_news {
        let sets = view.in_namespace::<R>(&pod.meta.key.namespace);
        sets.filter(|set| set.wants(&pod.meta.labels)).for_each(|set| wakes.wake(set.key()));
    }
}
