//! One turn of one StatefulSet.

use keleustes_objects::StatefulSetStatus;
use keleustes_plan::{BoxFuture, Context, EventNote, Involved, Item, Next, Plan, Retry, Script};

use super::facts::Facts;
use super::history::History;
use super::pods::deletion;
use super::{MAX_UNAVAILABLE, Settings, UNAVAILABLE, replicas, rolling, status};
use crate::workloads::availability;

/// Works on StatefulSets.
pub(super) struct Turns {
    pub(super) settings: Settings,
}

impl Turns {
    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Next, Retry> {
        let Some((facts, claims)) = cx.gather(|view| Facts::gather(view, item)) else {
            return Ok(Next::Done);
        };
        cx.apply(claims).await.all_done()?;
        if facts.set.spec.update_strategy.r#type == "Recreate" {
            return refuse_recreate(cx, &facts).await;
        }
        let history = match History::settle(cx, &facts).await {
            Ok(history) => history,
            Err(retry) => {
                cx.apply(History::clean_up(&facts, None)).await;
                return Err(retry);
            }
        };
        let mut said = status::of(&facts, &history);
        let done = self.work(cx, &facts, &history, &mut said).await;
        status::complete(&facts, &mut said);
        let told = cx.apply(status::plan(&facts, &said)).await;
        let cleaned = cx.apply(History::clean_up(&facts, Some(&history))).await;
        // What was not done matters more than what was not said.
        done?;
        told.all_done()?;
        cleaned.all_done()?;
        let unavailable = said.ready_replicas != said.available_replicas;
        let wanted = facts.set.spec.min_ready_seconds;
        Ok(if unavailable { availability::next(&facts.pods, wanted, facts.now) } else { Next::Done })
    }

    /// Makes, deletes and replaces pods. A set on its way out is left alone.
    async fn work(
        &self,
        cx: &mut Context<'_>,
        facts: &Facts,
        history: &History,
        said: &mut StatefulSetStatus,
    ) -> Result<(), Retry> {
        let labels = labels(facts);
        let labels = labels.each_ref().map(String::as_str);
        let most = if self.settings.heeds_max_unavailable { rolling::unavailable_max(&facts.set) } else { 1 };
        cx.measure(MAX_UNAVAILABLE.measured(&labels, most.into()));
        if facts.set.meta.deleted_at.is_some() {
            return Ok(());
        }
        let pass = replicas::pass(facts, history);
        cx.apply(pass.plan).await.all_done()?;
        if let Some(why) = pass.failure {
            return Err(Retry::because(why));
        }
        if pass.stopped {
            return Ok(());
        }
        let missing = u32::try_from(facts.unavailable()).unwrap_or(u32::MAX);
        cx.measure(UNAVAILABLE.measured(&labels, missing.into()));
        let mut plan = Plan::none();
        for pod in rolling::replaced(facts, history, self.settings.heeds_max_unavailable) {
            plan.push(deletion(&facts.set, &pod, "it is of an older revision"));
            // It may have been of neither revision; there is no such thing as fewer than none.
            said.current_replicas = (said.current_replicas - 1).max(0);
        }
        cx.apply(plan).await.all_done()
    }
}

fn labels(facts: &Facts) -> [String; 3] {
    let key = &facts.set.meta.key;
    [key.namespace.to_string(), key.name.to_string(), facts.set.spec.pod_management_policy.to_string()]
}

/// The strategy is behind a gate that this manager does not have.
async fn refuse_recreate(cx: &mut Context<'_>, facts: &Facts) -> Result<Next, Retry> {
    let message = format!(
        "statefulset {} uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled",
        facts.set.meta.key
    );
    let mut plan = Plan::none();
    plan.record(EventNote::warning(Involved::of(&*facts.set), "UnknownStrategy", message.clone()));
    cx.apply(plan).await;
    Err(Retry::because(message))
}

impl Script for Turns {
    fn sync<'a>(&'a self, cx: &'a mut Context<'_>, item: &'a Item) -> BoxFuture<'a, Result<Next, Retry>> {
        Box::pin(self.turn(cx, item))
    }
}
