//! Which pods are to go, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Node, Pod, Taint, Uid};
use keleustes_plan::View;

use super::no_execute;
use super::tolerance::{Tolerance, tolerance};

/// Nobody waits longer than this without being looked at again, so no timer has to reach further.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The pods that wait for their time to be over, and those that are being evicted.
///
/// With the process all of it is lost: in the next one every pod on a tainted node is given its full time
/// once more. That is later than it was told, never earlier.
#[derive(Debug, Default)]
pub(super) struct Evictions(BTreeMap<Key, Eviction>);

#[derive(Debug)]
struct Eviction {
    /// The life that is meant. One that takes its name later has done nothing.
    uid: Uid,
    /// When its time is over.
    due: Duration,
    /// Whether it was tried to delete the pod; not if it still waits.
    deletion_started: bool,
}

/// What is to be done about a pod.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Whether a wait ended without an eviction.
    pub(super) cancelled: bool,
    /// What follows.
    pub(super) then: Then,
}

/// What is to be done about a pod.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing, until something changes.
    Rest,
    /// Nothing yet.
    Wait(Duration),
    /// It goes.
    Evict {
        /// The pod.
        pod: Arc<Pod>,
        /// Since when it should have gone.
        due: Duration,
        /// Whether this is the first try.
        is_first_try: bool,
    },
}

impl Evictions {
    /// Whether a pod waits or is being evicted.
    pub(super) fn knows(&self, pod: &Key) -> bool {
        self.0.contains_key(pod)
    }

    /// Decides about a pod by its node's taints as they are now.
    pub(super) fn judge(&mut self, view: &View<'_>, key: &Key, enable_comparison_operators: bool) -> Verdict {
        let (pod, now) = (view.get::<Pod>(key), view.now().monotonic);
        let another_life = |there: &Eviction| pod.is_none_or(|pod| pod.meta.uid != there.uid);
        let mut cancelled = self.0.get(key).is_some_and(another_life) && self.cancel(key);
        let rest = |cancelled| Verdict { cancelled, then: Then::Rest };
        let Some(pod) = pod else { return rest(cancelled) };
        let due_after = match tolerance_on(view, pod, enable_comparison_operators) {
            // The node is not there. Its taints were, when the pod began to wait, and nobody took them back.
            None if !self.knows(key) => return rest(cancelled),
            None => Duration::MAX,
            Some(Tolerance::Forever) => {
                cancelled |= self.cancel(key);
                return rest(cancelled);
            }
            Some(Tolerance::For(time)) => time,
            Some(Tolerance::None) => {
                if self.0.get(key).is_some_and(|there| !there.deletion_started) {
                    cancelled |= self.cancel(key);
                }
                Duration::ZERO
            }
        };
        // Who waits already neither gains nor loses by another taint that is tolerated for a time.
        let eviction = self.0.entry(key.clone()).or_insert_with(|| Eviction {
            uid: pod.meta.uid.clone(),
            due: now.saturating_add(due_after),
            deletion_started: false,
        });
        let then = if eviction.due > now {
            Then::Wait((eviction.due - now).min(LONGEST_WAIT))
        } else {
            let is_first_try = !std::mem::replace(&mut eviction.deletion_started, true);
            Then::Evict { pod: pod.clone(), due: eviction.due, is_first_try }
        };
        Verdict { cancelled, then }
    }

    /// Forgets a pod, and tells whether it was still waiting.
    pub(super) fn cancel(&mut self, pod: &Key) -> bool {
        self.0.remove(pod).is_some_and(|eviction| !eviction.deletion_started)
    }
}

/// For how long a pod may stay where it is; nothing is known if its node is not cached. A pod that is not
/// bound, or whose node has no such taint, may stay.
fn tolerance_on(view: &View<'_>, pod: &Pod, enable_comparison_operators: bool) -> Option<Tolerance> {
    if pod.node_name.is_empty() {
        return Some(Tolerance::Forever);
    }
    let node = view.get::<Node>(&Key::cluster(&*pod.node_name))?;
    let taints: Vec<&Taint> = no_execute(node).collect();
    Some(tolerance(&taints, &pod.spec.tolerations, enable_comparison_operators))
}
