//! Which budgets a change of a pod enqueues.

use keleustes_objects::{Object as _, Pod, PodDisruptionBudget};
use keleustes_plan::{Change, Effects, View};

use super::events;

/// Enqueues the budgets that select a pod by its current labels.
///
/// The original enqueues an arbitrary one of them if there are several. A fixed choice would leave the status of the
/// others outdated for ever, so all are enqueued; the event names the first.
pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
    let pod = change.latest();
    let budgets = view.in_namespace::<PodDisruptionBudget>(&pod.meta.key.namespace);
    let selecting = budgets.filter(|budget| budget.spec.selector.selects(&pod.meta.labels) == Ok(true));
    let selecting: Vec<_> = selecting.collect();
    if let [first, _, ..] = selecting[..] {
        enqueue.record(events::multiple_budgets(pod, first));
    }
    selecting.into_iter().for_each(|budget| enqueue.add(budget.key().clone()));
}
