//! Reconciles one Deployment.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, Deployment, ErrorReason, Key, ReplicaSet, ResourceVersion, Uid};
use keleustes_plan::{
    Context, Delay, InvolvedObject, Outcome, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue, View,
    Write,
};

use super::creation::NewReplicaSet;
use super::inputs::{Inputs, RECREATE, ROLLING_UPDATE, desired_annotation};
use super::revisions::next_revision;
use super::sizes::{ReplicaSetChanges, old_pods_may_run, resized};
use super::status::{StatusDraft, is_complete};
use super::{DeploymentOptions, cleanup, rollback};
use crate::workloads::templates::NormalizedTemplate;

/// The requeue delay while the pod cache is needed and not synced.
const POD_CACHE_POLL: Duration = Duration::from_millis(100);

/// Reconciles Deployments.
pub(super) struct DeploymentReconciler {
    pub(super) options: DeploymentOptions,
}

/// What one reconcile does.
enum Operation {
    /// The Deployment is terminating: only its status is updated.
    Terminating,
    /// It is paused or `spec.replicas` has changed: ReplicaSets are resized without a rollout.
    Scaling,
    /// Its template is set back to that of a revision.
    Rollback(i64),
    /// All old pods are deleted before new ones are created.
    Recreating,
    /// Old pods are replaced by new ones step by step.
    Rolling,
}

impl Operation {
    fn of(inputs: &Inputs) -> Result<Self, ReconcileError> {
        let strategy = inputs.deployment.spec.strategy.r#type.as_str();
        if inputs.is_terminating() {
            return Ok(Self::Terminating);
        }
        if inputs.deployment.spec.paused {
            return Ok(Self::Scaling);
        }
        if let Some(to) = rollback::desired(inputs) {
            return Ok(Self::Rollback(to));
        }
        let active = inputs.all().filter(|set| set.spec.replicas > 0);
        let sized_for = |set: &Arc<ReplicaSet>| desired_annotation(set);
        if active.filter_map(sized_for).any(|desired| desired != inputs.desired()) {
            return Ok(Self::Scaling);
        }
        match strategy {
            RECREATE => Ok(Self::Recreating),
            ROLLING_UPDATE => Ok(Self::Rolling),
            other => Err(ReconcileError::because(format!("unexpected deployment strategy type: {other}"))),
        }
    }

    /// Whether a missing new ReplicaSet is created.
    fn creates_new_set(&self, inputs: &Inputs) -> bool {
        match self {
            Self::Terminating | Self::Scaling => false,
            Self::Rollback(_) | Self::Rolling => true,
            Self::Recreating => inputs.active_old().next().is_none() && !old_pods_may_run(inputs),
        }
    }

    fn is_rollout(&self) -> bool {
        matches!(self, Self::Recreating | Self::Rolling)
    }
}

impl DeploymentReconciler {
    /// Resizes ReplicaSets by one step, deletes old ones and writes the status.
    async fn scale_and_update_status(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        operation: &Operation,
        (mut changes, mut draft): (ReplicaSetChanges, StatusDraft),
    ) -> Result<Requeue, ReconcileError> {
        match operation {
            Operation::Scaling => changes.scale(inputs),
            Operation::Recreating => changes.recreate(inputs),
            Operation::Rolling => changes.roll(inputs),
            Operation::Terminating | Operation::Rollback(_) => {}
        }
        let paused = inputs.deployment.spec.paused && rollback::desired(inputs).is_none();
        let settled = operation.is_rollout()
            && !changes.resizes_any()
            && is_complete(&inputs.deployment, &inputs.deployment.status);
        let changed_anything = changes.resizes_any();
        let mut plan = Plan::none();
        changes.push_to(&mut plan, inputs);
        if settled || (paused && !inputs.is_terminating()) {
            cleanup::push_to(&mut plan, inputs);
        }
        draft.count(inputs, self.options.count_terminating_replicas);
        if operation.is_rollout() {
            draft.update_progressing(inputs);
        }
        let requeue_after = draft.requeue_after(inputs).filter(|_| operation.is_rollout());
        let status_urgency = draft.status_urgency(inputs, changed_anything);
        let write = draft.into_write(inputs).map(|write| write.status_urgency(status_urgency));
        // A status write enqueues this Deployment again, and the deadline is checked then.
        let requeue_after = requeue_after.filter(|_| write.is_none());
        write.into_iter().for_each(|write| plan.push(write));
        cx.apply(plan).await.all_done()?;
        let requeue_after =
            inputs.needs_pod_cache.then(|| Delay::of(POD_CACHE_POLL, "the cache of pods")).or(requeue_after);
        Ok(Requeue::after_any(requeue_after))
    }

    /// Creates the new ReplicaSet. `None` if the reconcile ends here without an error.
    async fn create_new_set(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        draft: &mut StatusDraft,
    ) -> Result<Option<Arc<ReplicaSet>>, ReconcileError> {
        let creation = NewReplicaSet::of(inputs);
        let name = &creation.key.name;
        let mut applied = cx.apply(Plan::of(creation_with_event(inputs, &creation))).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { resource_version: version, uid, .. }) => {
                draft.note_creation(inputs, name, next_revision(inputs));
                Ok(created_set(&creation, version, uid))
            }
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::NamespaceTerminating => Ok(None),
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::AlreadyExists => {
                self.resolve_collision(cx, inputs, &creation, &failure).await
            }
            Some(Outcome::Failed(failure)) => {
                let message = format!("Failed to create new replica set \"{name}\": {}", failure.message);
                let mut draft = StatusDraft::of(inputs);
                draft.note_failed_creation(inputs, &message);
                let status_plan: Plan = draft.into_write(inputs).map_or_else(Plan::none, Plan::of);
                cx.apply(status_plan).await;
                Err(ReconcileError::from_api_error(&failure, message))
            }
            _ => Err(applied
                .error
                .unwrap_or_else(|| ReconcileError::because("the ReplicaSet was not created"))),
        }
    }

    /// Handles AlreadyExists. If the existing ReplicaSet is the desired one, a response was lost or the cache
    /// is stale; otherwise the collision count is incremented. Reads live: the cache may still show a
    /// previous object of that name.
    async fn resolve_collision(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        creation: &NewReplicaSet,
        failure: &ApiError,
    ) -> Result<Option<Arc<ReplicaSet>>, ReconcileError> {
        let deployment = &inputs.deployment;
        let Some(existing) = cx.fetch::<ReplicaSet>(&creation.key).await? else {
            return Err(ReconcileError::because(format!("{}: but it was not found", failure.message)));
        };
        let ours = existing.meta.controller_ref().is_some_and(|owner| owner.uid == deployment.meta.uid);
        if ours
            && NormalizedTemplate::of(&deployment.spec.template).semantically_equal(&existing.spec.template)
        {
            return Ok(Some(Arc::new(existing)));
        }
        let mut status = deployment.status.clone();
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
        let put =
            Write::put_status(&**deployment, &status).because("the name of its ReplicaSet is already used");
        cx.apply(Plan::of(put)).await;
        Err(ReconcileError::because(failure.message.clone()))
    }
}

/// The creation, with its event.
fn creation_with_event(inputs: &Inputs, creation: &NewReplicaSet) -> Write {
    let (replicas, name) = (creation.replicas, creation.key.name.clone());
    let created = resized(inputs, &name, 0, replicas);
    let involved = InvolvedObject::of(&*inputs.deployment);
    creation.write().record_on_outcome(move |outcome| match outcome {
        Outcome::Done { .. } if replicas > 0 => Some(created.clone()),
        Outcome::Failed(failure)
            if !matches!(failure.reason, ErrorReason::AlreadyExists | ErrorReason::NamespaceTerminating) =>
        {
            let message = format!("Failed to create new replica set \"{name}\": {}", failure.message);
            Some(PlannedEvent::warning(involved.clone(), "ReplicaSetCreateError", message))
        }
        _ => None,
    })
}

/// The created ReplicaSet as the cache will show it.
fn created_set(creation: &NewReplicaSet, version: ResourceVersion, uid: Uid) -> Option<Arc<ReplicaSet>> {
    let mut created: ReplicaSet = serde_json::from_value(creation.body.clone()).ok()?;
    created.meta.resource_version = version;
    created.meta.uid = uid;
    Some(Arc::new(created))
}

/// A Deployment whose selector is empty would claim all ReplicaSets of its namespace; it gets a warning event
/// instead.
fn selects_everything(view: &View<'_>, item: &Key) -> Option<Plan> {
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
                .because("its generation was observed"),
        );
    }
    Some(plan)
}

impl Reconciler for DeploymentReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        if let Some(plan) = cx.gather(|view| selects_everything(view, item)) {
            return cx.apply(plan).await.all_done().map(|()| Requeue::Forget);
        }
        let Some((deployment, claimed)) = cx.gather(|view| Inputs::claim(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let sets = claimed.apply(cx).await?;
        if sets.iter().any(|set| set.meta.controller_ref().is_none()) {
            // The live size of a ReplicaSet that was just adopted may differ from the cached one. Its watch
            // event enqueues the Deployment again.
            return Ok(Requeue::Forget);
        }
        let mut inputs = cx.gather(|view| Inputs::gather(view, deployment, sets));
        let operation = Operation::of(&inputs)?;
        let mut draft = StatusDraft::of(&inputs);
        let mut changes = ReplicaSetChanges::default();
        if inputs.new_set.is_none() && operation.creates_new_set(&inputs) {
            match self.create_new_set(cx, &inputs, &mut draft).await? {
                Some(created) => inputs.new_set = Some(created),
                None => return Ok(Requeue::Forget),
            }
        } else if !changes.refresh_new_set(&inputs) {
            draft.note_found(&inputs);
        }
        if let Operation::Rollback(to) = operation {
            if !changes.is_empty() {
                // The revision of the new ReplicaSet counts for the rollback. Its watch event enqueues the
                // Deployment again.
                let mut plan = Plan::none();
                changes.push_to(&mut plan, &inputs);
                return cx.apply(plan).await.all_done().map(|()| Requeue::Forget);
            }
            return cx.apply(rollback::plan(&inputs, to)).await.all_done().map(|()| Requeue::Forget);
        }
        self.scale_and_update_status(cx, &inputs, &operation, (changes, draft)).await
    }
}
