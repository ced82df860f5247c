//! When ready pods become available.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Availability, Pod, Time};
use keleustes_plan::Requeue;

/// When to requeue because a pod becomes available; after `minReadySeconds` if no ready pod has a transition
/// time.
pub(crate) fn requeue_when_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Time) -> Requeue {
    if min_ready_seconds <= 0 {
        return Requeue::Forget;
    }
    let due = pods.iter().filter_map(|pod| match pod.availability(min_ready_seconds, now) {
        Availability::At(due) => Some(due.seconds_since(now)),
        Availability::Now | Availability::No => None,
    });
    let seconds = due.min().unwrap_or_else(|| min_ready_seconds.into());
    Requeue::after(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)), "minReadySeconds of its pods")
}
