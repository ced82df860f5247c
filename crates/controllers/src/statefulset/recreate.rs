//! Deletes all pods of older revisions before any of the wanted one is made, and tells how far that is.

use keleustes_objects::{Condition, Conditions as _, FALSE, StatefulSetStatus, TRUE, Time};
use keleustes_plan::{Context, Plan, ReconcileError};

use super::facts::Facts;
use super::history::History;
use super::pods::{deletion, revision_of};
use super::replicas::push_in_batches;

const PROGRESSING: &str = "Progressing";
const IN_PROGRESS: &str = "RecreateInProgress";

/// Deletes old pods, whatever their number and state. Tells whether there are none left.
///
/// # Errors
/// If one cannot be deleted.
pub(super) async fn clear_the_way(
    cx: &mut Context<'_>,
    facts: &Facts,
    history: &History,
    said: &mut StatefulSetStatus,
) -> Result<bool, ReconcileError> {
    let is_old = |pod: &keleustes_objects::Pod| revision_of(pod) != &*history.update.name;
    if !facts.numbered().any(|pod| is_old(pod)) {
        if history.current.name != history.update.name {
            tell(said, TRUE, IN_PROGRESS, "Waiting for new-revision pods to be created", facts.now);
        }
        return Ok(true);
    }
    let going = facts.numbered().filter(|pod| is_old(pod) && !pod.is_terminating());
    let deletions: Vec<_> =
        going.map(|pod| deletion(&facts.set, pod, "it is of an older revision")).collect();
    let mut plan = Plan::none();
    push_in_batches(&mut plan, &deletions);
    cx.apply(plan).await.all_done()?;
    tell(said, TRUE, IN_PROGRESS, "Deleting old revision pods", facts.now);
    Ok(false)
}

/// Tells that it is done, if it was ever told that it was not.
pub(super) fn tell_completion(said: &mut StatefulSetStatus, now: Time) {
    if said.conditions.of_type(PROGRESSING).is_some() {
        tell(said, FALSE, "RecreateCompleted", "All pods recreated successfully", now);
    }
}

fn tell(said: &mut StatefulSetStatus, status: &str, reason: &str, message: &str, now: Time) {
    let mut news = Condition::new(PROGRESSING, status, reason, message, now);
    let Some(there) = said.conditions.iter_mut().find(|there| there.r#type == PROGRESSING) else {
        return said.conditions.push(news);
    };
    if there.status == news.status {
        news.last_transition_time = there.last_transition_time;
    }
    *there = news;
}
