//! When pods that are ready will have been so for long enough.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Availability, Pod, Time};
use keleustes_plan::Requeue;

/// When to look again because a pod will have been ready for long enough; after the whole time if none
/// says since when it is ready.
pub(crate) fn requeue_when_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Time) -> Requeue {
    if min_ready_seconds <= 0 {
        return Requeue::Forget;
    }
    let due = pods.iter().filter_map(|pod| match pod.availability(min_ready_seconds, now) {
        Availability::At(due) => Some(due.seconds_since(now)),
        Availability::Now | Availability::No => None,
    });
    let seconds = due.min().unwrap_or_else(|| min_ready_seconds.into());
    Requeue::After(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
