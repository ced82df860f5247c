//! The revisions of a StatefulSet: the update revision, the current revision and the ones to delete.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{ArcStr, ControllerRevision, ErrorReason, Key, PodTemplate, StatefulSet};
use keleustes_plan::{Context, Outcome, Plan, ReconcileError, Write};

use super::inputs::Inputs;
use super::pods::revision_of;
use crate::workloads::revisions::{RevisionData, equal_with_defaults, renumber, template_from_data};
use crate::workloads::templates::NormalizedTemplate;

/// A label of revisions. Nothing reads it.
const HASH: &str = "controller.kubernetes.io/hash";
/// How many bytes of the StatefulSet's name go into the name of a revision.
const NAME_MAX: usize = 223;

/// A revision as one reconcile needs it.
#[derive(Clone)]
pub(super) struct Revision {
    pub(super) name: ArcStr,
    /// The pod template of the revision.
    pub(super) template: PodTemplate,
}

/// The two revisions of a StatefulSet's pods.
pub(super) struct History {
    /// The revision of the pods before the last change.
    pub(super) current: Revision,
    /// The revision of the current template.
    pub(super) update: Revision,
    /// The collision count.
    pub(super) collisions: i32,
}

impl History {
    /// Finds the update revision, or creates it.
    pub(super) async fn settle(
        cx: &mut Context<'_>,
        inputs: &Inputs,
        semantic_revision_comparison: bool,
    ) -> Result<Self, ReconcileError> {
        let set = &inputs.set;
        let data = RevisionData::with_float64_numbers(&set.spec.template);
        let mut collisions = set.status.collision_count.unwrap_or(0);
        let number = inputs.revisions.last().map_or(0, |revision| revision.revision) + 1;
        let name = match find(inputs, &data, semantic_revision_comparison) {
            Found::Newest(name) => name,
            Found::Older(revision) => {
                cx.apply(Plan::of(renumber(&revision, number))).await.all_done()?;
                revision.meta.key.name.clone()
            }
            Found::Nothing => create_revision(cx, set, &data, number, &mut collisions).await?,
        };
        let update = Revision { name, template: set.spec.template.clone() };
        let current =
            inputs.revisions.iter().find(|existing| *existing.meta.key.name == *set.status.current_revision);
        let current = current.map(|existing| Revision {
            name: existing.meta.key.name.clone(),
            template: template_from_data(existing.data.as_str()).unwrap_or_else(|| set.spec.template.clone()),
        });
        Ok(Self { current: current.unwrap_or_else(|| update.clone()), update, collisions })
    }

    /// Deletes the oldest revisions beyond the limit, except those in use.
    pub(super) fn clean_up(inputs: &Inputs, history: Option<&Self>) -> Plan {
        let mut plan = Plan::none();
        let Ok(limit) = usize::try_from(inputs.set.spec.revision_history_limit.unwrap_or(-1)) else {
            return plan;
        };
        let mut live: BTreeSet<&str> = inputs.pods.iter().map(|pod| revision_of(pod)).collect();
        live.extend(history.iter().flat_map(|history| [&*history.current.name, &*history.update.name]));
        let unused = inputs.revisions.iter().filter(|revision| !live.contains(&*revision.meta.key.name));
        let unused: Vec<_> = unused.collect();
        for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
            let delete =
                Write::delete(&***revision).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
            plan.push(delete.because("it exceeds revisionHistoryLimit"));
        }
        plan
    }
}

enum Found {
    Newest(ArcStr),
    Older(Arc<ControllerRevision>),
    Nothing,
}

/// Finds the revision of the template.
///
/// None is created for a template that has not changed since this program or the original last observed it, even
/// if an upgraded API server shows it with other defaults. An API server does not raise the generation for another
/// spelling of the same quantity, though, for which the original creates a revision.
fn find(inputs: &Inputs, data: &RevisionData, semantic_revision_comparison: bool) -> Found {
    let set = &inputs.set;
    let Some(newest) = inputs.revisions.last() else { return Found::Nothing };
    if data.equals_data_of(newest) {
        return Found::Newest(newest.meta.key.name.clone());
    }
    if let Some(older) = inputs.revisions.iter().rev().find(|revision| data.equals_data_of(revision)) {
        return Found::Older(older.clone());
    }
    if !semantic_revision_comparison {
        return Found::Nothing;
    }
    let seen = set.meta.generation == set.status.observed_generation;
    let recorded =
        inputs.revisions.iter().find(|existing| *existing.meta.key.name == *set.status.update_revision);
    if let Some(recorded) = recorded.filter(|recorded| seen && !is_respelled(&set.spec.template, recorded)) {
        return Found::Newest(recorded.meta.key.name.clone());
    }
    let same = equal_with_defaults(&set.spec.template, newest);
    if same { Found::Newest(newest.meta.key.name.clone()) } else { Found::Nothing }
}

/// Whether a revision has the values of a template. Its data is known to differ.
fn is_respelled(template: &PodTemplate, revision: &ControllerRevision) -> bool {
    template_from_data(revision.data.as_str())
        .is_some_and(|existing| NormalizedTemplate::of(template).semantically_equal(&existing))
}

/// Creates the revision of the template and returns its name.
async fn create_revision(
    cx: &mut Context<'_>,
    set: &StatefulSet,
    data: &RevisionData,
    number: i64,
    collisions: &mut i32,
) -> Result<ArcStr, ReconcileError> {
    let labels = set.spec.template.labels().with(HASH, &*data.hash(*collisions));
    let name = &set.meta.key.name;
    let prefix = &name[..name.floor_char_boundary(NAME_MAX)];
    loop {
        let name = ArcStr::from(format!("{prefix}-{}", data.hash(*collisions)));
        let key = Key { namespace: set.meta.key.namespace.clone(), name };
        let create = data.creation(set, &key, &labels, number);
        let mut applied = cx.apply(Plan::of(create)).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { .. }) => return Ok(key.name),
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::AlreadyExists => {}
            _ => {
                return Err(applied
                    .error
                    .unwrap_or_else(|| ReconcileError::because("the revision was not created")));
            }
        }
        let existing = cx.fetch::<ControllerRevision>(&key).await?;
        if existing.is_some_and(|existing| data.equals_data_of(&existing)) {
            return Ok(key.name);
        }
        // The collision count is exhausted.
        let next = collisions.checked_add(1);
        *collisions =
            next.ok_or_else(|| ReconcileError::because(format!("the name {} is taken", key.name)))?;
    }
}
