//! The revision history of a DaemonSet: finds or creates the ControllerRevision of the current template, and
//! deletes the oldest ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{ArcStr, ControllerRevision, DaemonSet, ErrorReason, Key};
use keleustes_plan::{Context, Outcome, PatchKind, Plan, ReconcileError, Write};
use serde_json::json;

use super::inputs::Inputs;
use super::pods::REVISION_HASH;
use crate::workloads::revisions::{RevisionData, renumber, sort_by_revision};

/// The history of one reconcile.
pub(super) struct History {
    /// The hash label of the current revision.
    pub(super) hash: String,
    /// All other revisions, oldest first.
    old: Vec<Arc<ControllerRevision>>,
}

/// The hash label of a revision; its name if it has none.
fn hash_of(revision: &ControllerRevision) -> &str {
    revision.meta.labels.value(REVISION_HASH).map_or(&revision.meta.key.name, |hash| hash.as_str())
}

impl History {
    /// Finds or creates the revision of the current template, and gives it the highest number.
    pub(super) async fn construct(cx: &mut Context<'_>, inputs: &Inputs) -> Result<Self, ReconcileError> {
        let data = RevisionData::of(&inputs.set.spec.template);
        let mut revisions = inputs.revisions.clone();
        sort_by_revision(&mut revisions);
        let mut plan = Plan::none();
        for revision in
            revisions.iter().filter(|revision| revision.meta.labels.value(REVISION_HASH).is_none())
        {
            let label = json!({"metadata": {"labels": {REVISION_HASH: revision.meta.key.name}}});
            plan.push(
                Write::patch(&**revision, PatchKind::Merge, label)
                    .because("the revision has no controller-revision-hash label"),
            );
        }
        let (mut current, old): (Vec<_>, Vec<_>) =
            revisions.into_iter().partition(|revision| data.equals_data_of(revision));
        let number = old.last().map_or(0, |revision| revision.revision) + 1;
        let Some(kept) = current.pop() else {
            cx.apply(plan).await.all_done()?;
            return Ok(Self { hash: Self::create_revision(cx, inputs, &data, number).await?, old });
        };
        let hash = hash_of(&kept).to_owned();
        deduplicate(&mut plan, inputs, &hash, &current);
        if kept.revision < number {
            plan.push(renumber(&kept, number));
        }
        cx.apply(plan).await.all_done()?;
        Ok(Self { hash, old })
    }

    /// Creates the revision of the current template. Returns its hash label.
    async fn create_revision(
        cx: &mut Context<'_>,
        inputs: &Inputs,
        data: &RevisionData,
        number: i64,
    ) -> Result<String, ReconcileError> {
        let set = &inputs.set;
        let hash = set.spec.template.pod_template_hash(set.status.collision_count);
        let name = ArcStr::from(format!("{}-{hash}", set.meta.key.name));
        let key = Key { namespace: set.meta.key.namespace.clone(), name };
        let labels = set.spec.template.labels().with(REVISION_HASH, &*hash);
        let create = data.creation(&**set, &key, &labels, number);
        let mut applied = cx.apply(Plan::of(create)).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { .. }) => Ok(hash),
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::AlreadyExists => {
                match cx.fetch::<ControllerRevision>(&key).await? {
                    Some(existing) if data.equals_data_of(&existing) => Ok(hash_of(&existing).to_owned()),
                    Some(_) => Err(increment_collision_count(cx, set, failure.message).await?),
                    // It was deleted in the meantime, so the name is free again.
                    None => Err(ReconcileError::because(format!("controllerrevisions.apps {key} not found"))),
                }
            }
            _ => {
                Err(applied.error.unwrap_or_else(|| ReconcileError::because("the revision was not created")))
            }
        }
    }

    /// Deletes the oldest revisions beyond revisionHistoryLimit, except those that a pod belongs to.
    pub(super) fn clean_up(&self, inputs: &Inputs) -> Plan {
        let mut plan = Plan::none();
        let limit = inputs.set.spec.revision_history_limit.unwrap_or(i32::MAX);
        let excess = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        // Terminated pods count as well, pods without a node do not.
        let used_hashes: BTreeSet<&str> = inputs
            .pods
            .iter()
            .filter(|pod| pod.target_node().is_some())
            .filter_map(|pod| pod.meta.labels.value(REVISION_HASH))
            .map(|hash| hash.as_str())
            .collect();
        for revision in
            self.old.iter().filter(|revision| !used_hashes.contains(hash_of(revision))).take(excess)
        {
            let delete =
                Write::delete(&**revision).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
            plan.push(delete.because("the revision exceeds revisionHistoryLimit"));
        }
        plan
    }
}

/// Deduplicates revisions with equal data: pods are relabelled to the kept revision, the others are deleted.
fn deduplicate(plan: &mut Plan, inputs: &Inputs, hash: &str, others: &[Arc<ControllerRevision>]) {
    if others.is_empty() {
        return;
    }
    for pod in inputs.pods.iter().filter(|pod| !super::pods::has_hash(pod, hash)) {
        let label = json!({"metadata": {"labels": {REVISION_HASH: hash}}});
        let write = Write::patch(&**pod, PatchKind::Merge, label).ignoring_errors(&[ErrorReason::NotFound]);
        plan.push(write.because("its revision is a duplicate"));
    }
    for revision in others {
        let delete =
            Write::delete(&**revision).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
        plan.push(delete.because("the revision is a duplicate"));
    }
}

/// A revision with another template has the name: increments collisionCount, so that the next reconcile uses
/// another name.
async fn increment_collision_count(
    cx: &mut Context<'_>,
    set: &DaemonSet,
    because: String,
) -> Result<ReconcileError, ReconcileError> {
    let live = cx.fetch::<DaemonSet>(&set.meta.key).await?;
    let count = set.status.collision_count;
    if let Some(live) =
        live.filter(|live| live.meta.uid == set.meta.uid && live.status.collision_count == count)
    {
        let mut status = live.status.clone();
        status.collision_count = Some(count.unwrap_or(0).saturating_add(1));
        let put = Write::put_status(&live, &status).because("the revision name collides");
        cx.apply(Plan::of(put)).await.all_done()?;
    }
    Ok(ReconcileError::because(because))
}
