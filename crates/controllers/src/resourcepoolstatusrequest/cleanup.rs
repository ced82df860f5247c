//! Deletes requests that have been answered for an hour, and those without an answer for a day.

use std::time::Duration;

use keleustes_objects::{ErrorReason, ResourcePoolStatusRequest, Time};
use keleustes_plan::{NEXT_PASS, Now, OnFailure, Pass, Plan, View, Write};

use super::{COMPLETE, FAILED};

/// Delay from the end of one pass to the start of the next.
const POLLING_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How long an answered request is kept.
const ANSWERED_SECONDS: i64 = 60 * 60;
/// How long a request without status is kept.
const PENDING_SECONDS: i64 = 24 * 60 * 60;

pub(super) fn decide(view: &View<'_>, _: &Pass) -> Plan {
    let now = view.now();
    let expired = view.all::<ResourcePoolStatusRequest>().filter(|request| is_expired(request, now));
    let deletions = expired.map(|request| {
        Write::delete(&**request)
            .ignoring_errors(&[ErrorReason::NotFound])
            .on_failure(OnFailure::LogOnly)
            .because("its time to live is over")
    });
    let mut plan = Plan::none();
    plan.push_parallel(deletions.collect());
    plan.requeue_after(POLLING_INTERVAL, NEXT_PASS);
    plan
}

fn is_expired(request: &ResourcePoolStatusRequest, now: Now) -> bool {
    let created = request.meta.creation_timestamp;
    let Some(conditions) = &request.conditions else {
        return is_older(created, PENDING_SECONDS, now);
    };
    let answer =
        conditions.iter().find(|condition| condition.r#type == COMPLETE || condition.r#type == FAILED);
    let since = answer.map_or(created, |condition| condition.last_transition_time);
    is_older(since, ANSWERED_SECONDS, now)
}

/// Whether more than this time has passed. A missing time never expires.
fn is_older(since: Option<Time>, seconds: i64, now: Now) -> bool {
    let end = |since: Time| i128::from(since.plus_seconds(seconds).unix_seconds()) * 1_000_000_000;
    since.is_some_and(|since| now.wall_nanoseconds() > end(since))
}
