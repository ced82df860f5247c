//! One turn of one Deployment.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, Deployment, ErrorReason, ReplicaSet, ResourceVersion, Uid};
use keleustes_plan::{
    BoxFuture, Context, InvolvedObject, Item, Outcome, Plan, PlannedEvent, ReconcileError, Reconciler,
    Requeue, View, Write,
};

use super::creation::Creation;
use super::facts::{Facts, RECREATE, ROLLING_UPDATE, desired_when_sized};
use super::revisions::next_revision;
use super::sizes::{Moves, old_pods_may_run, resized};
use super::status::{Draft, is_complete};
use super::{DeploymentOptions, cleanup, rollback};
use crate::workloads::templates::NormalizedTemplate;

/// How soon to look again where pods matter and are not known yet.
const PODS_WITHIN: Duration = Duration::from_millis(100);

/// Works on Deployments.
pub(super) struct Turns {
    pub(super) settings: DeploymentOptions,
}

/// What a turn is for.
enum Path {
    /// It is being deleted: only its status is kept.
    Leaving,
    /// It is paused, or the wanted number has changed: sizes follow, no rollout.
    Scaling,
    /// It is to go back to a revision.
    Back(i64),
    /// All old pods go before new ones come.
    Recreating,
    /// Old and new pods change places step by step.
    Rolling,
}

impl Path {
    fn of(facts: &Facts) -> Result<Self, ReconcileError> {
        let strategy = facts.deployment.spec.strategy.r#type.as_str();
        if facts.is_leaving() {
            return Ok(Self::Leaving);
        }
        if facts.deployment.spec.paused {
            return Ok(Self::Scaling);
        }
        if let Some(to) = rollback::wanted(facts) {
            return Ok(Self::Back(to));
        }
        let active = facts.all().filter(|set| set.spec.replicas > 0);
        let sized_for = |set: &Arc<ReplicaSet>| desired_when_sized(set);
        if active.filter_map(sized_for).any(|desired| desired != facts.wanted()) {
            return Ok(Self::Scaling);
        }
        match strategy {
            RECREATE => Ok(Self::Recreating),
            ROLLING_UPDATE => Ok(Self::Rolling),
            other => Err(ReconcileError::because(format!("unexpected deployment strategy type: {other}"))),
        }
    }

    /// Whether the ReplicaSet of the newest template is to be made if it is missing.
    fn makes_newest(&self, facts: &Facts) -> bool {
        match self {
            Self::Leaving | Self::Scaling => false,
            Self::Back(_) | Self::Rolling => true,
            Self::Recreating => facts.active_old().next().is_none() && !old_pods_may_run(facts),
        }
    }

    fn is_rollout(&self) -> bool {
        matches!(self, Self::Recreating | Self::Rolling)
    }
}

impl Turns {
    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        if let Some(plan) = cx.gather(|view| selecting_all(view, item)) {
            return cx.apply(plan).await.all_done().map(|()| Requeue::Forget);
        }
        let Some((deployment, claimed)) = cx.gather(|view| Facts::claim(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let sets = claimed.apply(cx).await?;
        if sets.iter().any(|set| set.meta.controller_ref().is_none()) {
            // One that was just adopted may have another size by now than the cache told; it wakes us when it is there
            // as it was adopted.
            return Ok(Requeue::Forget);
        }
        let mut facts = cx.gather(|view| Facts::gather(view, deployment, sets));
        let path = Path::of(&facts)?;
        let mut draft = Draft::of(&facts);
        let mut moves = Moves::default();
        if facts.newest.is_none() && path.makes_newest(&facts) {
            match self.make_newest(cx, &facts, &mut draft).await? {
                Some(made) => facts.newest = Some(made),
                None => return Ok(Requeue::Forget),
            }
        } else if !moves.refresh_newest(&facts) {
            draft.note_newest(&facts);
        }
        if let Path::Back(to) = path {
            return cx.apply(rollback::plan(&facts, to)).await.all_done().map(|()| Requeue::Forget);
        }
        self.move_on(cx, &facts, &path, (moves, draft)).await
    }

    /// Moves sizes a step, cleans up, and tells how things stand.
    async fn move_on(
        &self,
        cx: &mut Context<'_>,
        facts: &Facts,
        path: &Path,
        (mut moves, mut draft): (Moves, Draft),
    ) -> Result<Requeue, ReconcileError> {
        match path {
            Path::Scaling => moves.scale(facts),
            Path::Recreating => moves.recreate(facts),
            Path::Rolling => moves.roll(facts),
            Path::Leaving | Path::Back(_) => {}
        }
        let paused = facts.deployment.spec.paused && rollback::wanted(facts).is_none();
        let settled = path.is_rollout()
            && !moves.resize_any()
            && is_complete(&facts.deployment, &facts.deployment.status);
        let changed_anything = moves.resize_any();
        let mut plan = Plan::none();
        moves.push_to(&mut plan, facts);
        if settled || (paused && !facts.is_leaving()) {
            cleanup::push_to(&mut plan, facts);
        }
        draft.count(facts, self.settings.count_terminating_replicas);
        if path.is_rollout() {
            draft.judge_progress(facts);
        }
        let again = draft.look_again_after(facts).filter(|_| path.is_rollout());
        let telling = draft.telling(facts, changed_anything);
        let write = draft.into_write(facts).map(|write| write.status_urgency(telling));
        // A status that is written wakes this Deployment again; the deadline is looked at then.
        let again = again.filter(|_| write.is_none());
        write.into_iter().for_each(|write| plan.push(write));
        cx.apply(plan).await.all_done()?;
        let again = if facts.waits_for_pods { Some(PODS_WITHIN) } else { again };
        Ok(again.map_or(Requeue::Forget, Requeue::After))
    }

    /// Makes the ReplicaSet of the Deployment's template. Nothing if there is no point in going on.
    async fn make_newest(
        &self,
        cx: &mut Context<'_>,
        facts: &Facts,
        draft: &mut Draft,
    ) -> Result<Option<Arc<ReplicaSet>>, ReconcileError> {
        let creation = Creation::of(facts);
        let name = &creation.key.name;
        let mut applied = cx.apply(Plan::of(announced(facts, &creation))).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { resource_version: version, uid, .. }) => {
                draft.note_creation(facts, name, next_revision(facts));
                Ok(as_made(&creation, version, uid))
            }
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::NamespaceTerminating => Ok(None),
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::AlreadyExists => {
                self.resolve_collision(cx, facts, &creation, &failure).await
            }
            Some(Outcome::Failed(failure)) => {
                let message = format!("Failed to create new replica set \"{name}\": {}", failure.message);
                let mut draft = Draft::of(facts);
                draft.note_failed_creation(facts, &message);
                let told: Plan = draft.into_write(facts).map_or_else(Plan::none, Plan::of);
                cx.apply(told).await;
                Err(ReconcileError::from_api_error(&failure, message))
            }
            _ => Err(applied.error.unwrap_or_else(|| ReconcileError::because("the ReplicaSet was not made"))),
        }
    }

    /// The name is taken. If by the ReplicaSet that is wanted, an answer was lost or the cache is behind; if by another,
    /// the next name is tried. The server is asked: a cache may still show who had the name before.
    async fn resolve_collision(
        &self,
        cx: &mut Context<'_>,
        facts: &Facts,
        creation: &Creation,
        failure: &ApiError,
    ) -> Result<Option<Arc<ReplicaSet>>, ReconcileError> {
        let deployment = &facts.deployment;
        let Some(there) = cx.fetch::<ReplicaSet>(&creation.key).await? else {
            return Err(ReconcileError::because(format!("{}: and is gone again", failure.message)));
        };
        let ours = there.meta.controller_ref().is_some_and(|owner| owner.uid == deployment.meta.uid);
        if ours && NormalizedTemplate::of(&deployment.spec.template).semantically_equal(&there.spec.template)
        {
            return Ok(Some(Arc::new(there)));
        }
        let mut status = deployment.status.clone();
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
        let put = Write::put_status(&**deployment, &status).because("the name of its ReplicaSet is taken");
        cx.apply(Plan::of(put)).await;
        Err(ReconcileError::because(failure.message.clone()))
    }
}

/// The creation, with what people are told of it.
fn announced(facts: &Facts, creation: &Creation) -> Write {
    let (replicas, name) = (creation.replicas, creation.key.name.clone());
    let made = resized(facts, &name, 0, replicas);
    let involved = InvolvedObject::of(&*facts.deployment);
    creation.write().record_on_outcome(move |outcome| match outcome {
        Outcome::Done { .. } if replicas > 0 => Some(made.clone()),
        Outcome::Failed(failure)
            if !matches!(failure.reason, ErrorReason::AlreadyExists | ErrorReason::NamespaceTerminating) =>
        {
            let message = format!("Failed to create new replica set \"{name}\": {}", failure.message);
            Some(PlannedEvent::warning(involved.clone(), "ReplicaSetCreateError", message))
        }
        _ => None,
    })
}

/// The ReplicaSet as the cache will show it.
fn as_made(creation: &Creation, version: ResourceVersion, uid: Uid) -> Option<Arc<ReplicaSet>> {
    let mut made: ReplicaSet = serde_json::from_value(creation.body.clone()).ok()?;
    made.meta.resource_version = version;
    made.meta.uid = uid;
    Some(Arc::new(made))
}

/// A Deployment that selects everything would take all ReplicaSets of its namespace; it is told so.
fn selecting_all(view: &View<'_>, item: &Item) -> Option<Plan> {
    let deployment: &Arc<Deployment> = view.get::<Deployment>(item)?;
    deployment.spec.selector.as_ref().filter(|selector| selector.is_empty())?;
    let mut plan = Plan::none();
    let message = "This deployment is selecting all pods. A non-empty selector is required.";
    plan.record(PlannedEvent::warning(InvolvedObject::of(&**deployment), "SelectingAll", message));
    if deployment.status.observed_generation < deployment.meta.generation {
        let mut status = deployment.status.clone();
        status.observed_generation = deployment.meta.generation;
        plan.push(
            Write::put_status(&**deployment, &status)
                .on_failure(keleustes_plan::OnFailure::LogOnly)
                .because("it was looked at"),
        );
    }
    Some(plan)
}

impl Reconciler for Turns {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}
