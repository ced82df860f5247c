//! The history of a DaemonSet's template: finds or makes the revision of the newest, and lets the oldest go.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{ArcStr, ControllerRevision, DaemonSet, ErrorReason, Key};
use keleustes_plan::{Context, Outcome, PatchKind, Plan, ReconcileError, Write};
use serde_json::json;

use super::inputs::Inputs;
use super::pods::REVISION_HASH;
use crate::workloads::revisions::{RevisionData, renumber, sort_by_revision};
use crate::workloads::templates::pod_template_hash;

/// The history as a turn sees it.
pub(super) struct History {
    /// The label of the newest revision.
    pub(super) hash: String,
    /// All other revisions, oldest first.
    old: Vec<Arc<ControllerRevision>>,
}

/// The label of a revision; one without goes by its name.
fn hash_of(revision: &ControllerRevision) -> &str {
    revision.meta.labels.value(REVISION_HASH).map_or(&revision.meta.key.name, |hash| hash.as_str())
}

impl History {
    /// Finds the revision of the newest template, or makes it, and puts the numbers in order.
    pub(super) async fn settle(cx: &mut Context<'_>, facts: &Inputs) -> Result<Self, ReconcileError> {
        let data = RevisionData::of(&facts.set.spec.template);
        let mut revisions = facts.revisions.clone();
        sort_by_revision(&mut revisions);
        let mut plan = Plan::none();
        for revision in
            revisions.iter().filter(|revision| revision.meta.labels.value(REVISION_HASH).is_none())
        {
            let label = json!({"metadata": {"labels": {REVISION_HASH: revision.meta.key.name}}});
            plan.push(
                Write::patch(&**revision, PatchKind::Merge, label).because("it has no label to be known by"),
            );
        }
        let (mut current, old): (Vec<_>, Vec<_>) =
            revisions.into_iter().partition(|revision| data.equals_data_of(revision));
        let number = old.last().map_or(0, |revision| revision.revision) + 1;
        let Some(kept) = current.pop() else {
            cx.apply(plan).await.all_done()?;
            return Ok(Self { hash: Self::make(cx, facts, &data, number).await?, old });
        };
        let hash = hash_of(&kept).to_owned();
        unite(&mut plan, facts, &hash, &current);
        if kept.revision < number {
            plan.push(renumber(&kept, number));
        }
        cx.apply(plan).await.all_done()?;
        Ok(Self { hash, old })
    }

    /// Makes the revision of the newest template and tells its label.
    async fn make(
        cx: &mut Context<'_>,
        facts: &Inputs,
        data: &RevisionData,
        number: i64,
    ) -> Result<String, ReconcileError> {
        let set = &facts.set;
        let hash = pod_template_hash(&set.spec.template, set.status.collision_count);
        let name = ArcStr::from(format!("{}-{hash}", set.meta.key.name));
        let key = Key { namespace: set.meta.key.namespace.clone(), name };
        let labels = set.spec.template.labels().with(REVISION_HASH, &*hash);
        let create = data.creation(&**set, &key, &labels, number);
        let mut applied = cx.apply(Plan::of(create)).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { .. }) => Ok(hash),
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::AlreadyExists => {
                let there = cx.fetch::<ControllerRevision>(&key).await?;
                match there.filter(|there| data.equals_data_of(there)) {
                    Some(there) => Ok(hash_of(&there).to_owned()),
                    None => Err(count_collision(cx, set, failure.message).await?),
                }
            }
            _ => Err(applied.error.unwrap_or_else(|| ReconcileError::because("the revision was not made"))),
        }
    }

    /// Deletes the oldest revisions beyond the limit, but none that a pod is of.
    pub(super) fn clean_up(&self, facts: &Inputs) -> Plan {
        let mut plan = Plan::none();
        let limit = facts.set.spec.revision_history_limit.unwrap_or(i32::MAX);
        let excess = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let alive: BTreeSet<&str> = facts
            .pods
            .iter()
            .filter_map(|pod| pod.meta.labels.value(REVISION_HASH))
            .map(|hash| hash.as_str())
            .collect();
        for revision in self.old.iter().filter(|revision| !alive.contains(hash_of(revision))).take(excess) {
            let delete =
                Write::delete(&**revision).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
            plan.push(delete.because("it is older than the history that is kept"));
        }
        plan
    }
}

/// Makes one revision of several that say the same: pods change over to the one that is kept, the others go.
fn unite(plan: &mut Plan, facts: &Inputs, hash: &str, others: &[Arc<ControllerRevision>]) {
    if others.is_empty() {
        return;
    }
    for pod in facts.pods.iter().filter(|pod| !super::pods::has_hash(pod, hash)) {
        let label = json!({"metadata": {"labels": {REVISION_HASH: hash}}});
        let write = Write::patch(&**pod, PatchKind::Merge, label).ignoring_errors(&[ErrorReason::NotFound]);
        plan.push(write.because("another revision says the same as its own"));
    }
    for revision in others {
        let delete =
            Write::delete(&**revision).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
        plan.push(delete.because("another revision says the same"));
    }
}

/// The name of the revision is taken by another template: the next turn takes another name.
async fn count_collision(
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
        let put = Write::put_status(&live, &status).because("the name of its revision is taken");
        cx.apply(Plan::of(put)).await.all_done()?;
    }
    Ok(ReconcileError::because(because))
}
