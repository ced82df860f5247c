//! Scheduled evictions and when they are due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Node, Pod, Taint, Uid};
use keleustes_plan::View;

use super::no_execute;
use super::tolerance::{Tolerance, tolerance};

/// Longest requeue delay, so that no timer has to reach further.
const MAX_REQUEUE_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Pods whose toleration period is running, and pods that are being evicted.
///
/// Lost on failover: the new leader starts the full toleration period of every pod on a tainted node again,
/// so a pod may be evicted later, never earlier.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictions(BTreeMap<Key, Eviction>);

#[derive(Clone, Debug)]
struct Eviction {
    /// UID of the pod; a pod recreated with the same name is not affected.
    uid: Uid,
    /// When the toleration period ends.
    due: Duration,
    /// How long the pod tolerated the taints at the last attempt to delete it; `None` before the first.
    last_attempt: Option<Duration>,
}

impl Eviction {
    /// Whether a deletion was attempted.
    fn deletion_started(&self) -> bool {
        self.last_attempt.is_some()
    }
}

/// The decision about a pod.
#[derive(Debug)]
pub(super) struct Decision {
    /// Whether a scheduled eviction was cancelled.
    pub(super) cancelled: bool,
    /// The next step.
    pub(super) next_step: NextStep,
}

/// The next step for a pod.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Nothing until the pod or its node changes.
    Nothing,
    /// Requeue after this duration.
    Wait(Duration),
    /// Evict it.
    Evict {
        /// The pod.
        pod: Arc<Pod>,
        /// When the toleration period ended.
        due: Duration,
        /// Whether this is the first attempt.
        is_first_attempt: bool,
    },
}

impl Evictions {
    /// Whether an eviction of the pod is scheduled or in progress.
    pub(super) fn contains(&self, pod: &Key) -> bool {
        self.0.contains_key(pod)
    }

    /// Decides about a pod from the cached taints of its node.
    pub(super) fn decide(
        &mut self,
        view: &View<'_>,
        key: &Key,
        enable_comparison_operators: bool,
    ) -> Decision {
        let (pod, now) = (view.get::<Pod>(key), view.now().monotonic);
        let has_other_uid = |eviction: &Eviction| pod.is_none_or(|pod| pod.meta.uid != eviction.uid);
        let mut cancelled = self.0.get(key).is_some_and(has_other_uid) && self.cancel(key);
        let nothing = |cancelled| Decision { cancelled, next_step: NextStep::Nothing };
        let Some(pod) = pod else { return nothing(cancelled) };
        let tolerated_for = match tolerance_on(view, pod, enable_comparison_operators) {
            // The node is not cached. It had the taints when the eviction was scheduled, and no event removed
            // them.
            None if !self.contains(key) => return nothing(cancelled),
            None => Duration::MAX,
            Some(Tolerance::Forever) => {
                cancelled |= self.cancel(key);
                return nothing(cancelled);
            }
            Some(Tolerance::For(time)) => {
                // While failed deletions are retried, a longer toleration starts its own period.
                let is_longer = |eviction: &Eviction| eviction.last_attempt.is_some_and(|last| time > last);
                if self.0.get(key).is_some_and(is_longer) {
                    self.0.remove(key);
                }
                time
            }
            Some(Tolerance::None) => {
                if self.0.get(key).is_some_and(|eviction| !eviction.deletion_started()) {
                    cancelled |= self.cancel(key);
                }
                Duration::ZERO
            }
        };
        // A further taint that is tolerated for a time neither extends nor shortens a running period.
        let eviction = self.0.entry(key.clone()).or_insert_with(|| Eviction {
            uid: pod.meta.uid.clone(),
            due: now.saturating_add(tolerated_for),
            last_attempt: None,
        });
        let next_step = if eviction.due > now {
            NextStep::Wait((eviction.due - now).min(MAX_REQUEUE_DELAY))
        } else {
            let is_first_attempt = eviction.last_attempt.replace(tolerated_for).is_none();
            NextStep::Evict { pod: pod.clone(), due: eviction.due, is_first_attempt }
        };
        Decision { cancelled, next_step }
    }

    /// Drops a pod and returns whether its eviction was only scheduled.
    pub(super) fn cancel(&mut self, pod: &Key) -> bool {
        self.0.remove(pod).is_some_and(|eviction| !eviction.deletion_started())
    }
}

/// How long a pod may stay on its node; `None` if the node is not cached. An unbound pod, or one on a node
/// without `NoExecute` taints, may stay.
fn tolerance_on(view: &View<'_>, pod: &Pod, enable_comparison_operators: bool) -> Option<Tolerance> {
    if pod.node_name.is_empty() {
        return Some(Tolerance::Forever);
    }
    let node = view.get::<Node>(&Key::cluster(&*pod.node_name))?;
    let taints: Vec<&Taint> = no_execute(node).collect();
    Some(tolerance(&taints, pod.spec.tolerations(), enable_comparison_operators))
}
