//! Changes to ReplicaSets, collected so that each ReplicaSet is patched once: size, annotations,
//! minReadySeconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{FullMeta as _, ReplicaSet};
use keleustes_plan::{InvolvedObject, Outcome, PatchKind, Plan, PlannedEvent, Write};
use serde_json::json;

use super::annotations;
use super::inputs::{Inputs, ROLLING_UPDATE, desired_annotation, number};
use super::proportions::{Part, spread};
use super::revisions::{missing_annotations, next_revision, size_annotations};
use super::rolling::{Size, new_set_target, old_targets};

/// All changes of one reconcile, in the order in which they were decided.
#[derive(Default)]
pub(super) struct ReplicaSetChanges(Vec<ReplicaSetChange>);

struct ReplicaSetChange {
    set: Arc<ReplicaSet>,
    size: Option<i32>,
    annotations: BTreeMap<String, String>,
    min_ready_seconds: Option<i32>,
}

impl ReplicaSetChanges {
    /// Whether no ReplicaSet changes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any ReplicaSet is resized.
    pub(super) fn resizes_any(&self) -> bool {
        self.0.iter().any(|change| change.size.is_some())
    }

    fn of(&mut self, set: &Arc<ReplicaSet>) -> &mut ReplicaSetChange {
        let at = self.0.iter().position(|change| change.set.meta.uid == set.meta.uid);
        let at = at.unwrap_or_else(|| {
            self.0.push(ReplicaSetChange {
                set: set.clone(),
                size: None,
                annotations: BTreeMap::new(),
                min_ready_seconds: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Updates the annotations and minReadySeconds of the new ReplicaSet. Returns whether anything had to be
    /// updated.
    pub(super) fn refresh_new_set(&mut self, inputs: &Inputs) -> bool {
        let Some(new_set) = &inputs.new_set else { return false };
        let (missing, has_valid_revision) =
            missing_annotations(&inputs.deployment, new_set, next_revision(inputs));
        let desired = inputs.deployment.spec.min_ready_seconds;
        let min_ready_seconds = Some(desired).filter(|desired| *desired != new_set.spec.min_ready_seconds);
        // The original reports no change for an invalid revision, but writes what it copied with any other change.
        if (missing.is_empty() || !has_valid_revision) && min_ready_seconds.is_none() {
            return false;
        }
        let change = self.of(new_set);
        change.annotations.extend(missing);
        change.min_ready_seconds = min_ready_seconds;
        true
    }

    /// Resizes a ReplicaSet.
    fn resize(&mut self, inputs: &Inputs, set: &Arc<ReplicaSet>, size: i32) {
        if set.spec.replicas != size {
            let change = self.of(set);
            change.size = Some(size);
            change.annotations.extend(size_annotations(inputs));
        }
    }

    /// Updates the desired-replicas and max-replicas annotations, even if the size stays.
    fn update_size_annotations(&mut self, inputs: &Inputs, set: &Arc<ReplicaSet>) {
        let existing = |key: &str| set.annotations().value(key).map_or("", |value| value.as_str());
        let outdated = size_annotations(inputs).into_iter().filter(|(key, value)| existing(key) != value);
        let outdated: Vec<_> = outdated.collect();
        if !outdated.is_empty() {
            self.of(set).annotations.extend(outdated);
        }
    }

    /// For strategy Recreate: scales the old ReplicaSets to 0, then the new one to the desired replicas.
    pub(super) fn recreate(&mut self, inputs: &Inputs) {
        if inputs.active_old().next().is_some() {
            inputs.active_old().for_each(|set| self.resize(inputs, set, 0));
        } else if let Some(new_set) = inputs.new_set.as_ref().filter(|_| !old_pods_may_run(inputs)) {
            self.resize(inputs, new_set, inputs.desired());
        }
    }

    /// One step of a rolling update. If the new ReplicaSet is resized, the old ones wait for the next
    /// reconcile.
    pub(super) fn roll(&mut self, inputs: &Inputs) {
        let Some(new_set) = &inputs.new_set else { return };
        let (desired, bounds) = (inputs.desired(), inputs.bounds());
        let target = new_set_target(desired, bounds.surge, new_set.spec.replicas, inputs.total_replicas());
        if target != new_set.spec.replicas {
            self.resize(inputs, new_set, target);
            return;
        }
        let old: Vec<_> = inputs.active_old().cloned().collect();
        let size =
            |set: &ReplicaSet| Size { replicas: set.spec.replicas, available: set.status.available_replicas };
        let sizes: Vec<_> = old.iter().map(|set| size(set)).collect();
        let targets = old_targets(desired, bounds.unavailable, size(new_set), &sizes);
        for (set, target) in old.iter().zip(targets) {
            self.resize(inputs, set, target);
        }
    }

    /// Follows a change of `spec.replicas`, or scales a paused Deployment, without a rollout.
    pub(super) fn scale(&mut self, inputs: &Inputs) {
        let active: Vec<_> = inputs.all().filter(|set| set.spec.replicas > 0).cloned().collect();
        if let [] | [_] = active[..] {
            let latest = inputs.new_set.as_ref().or(inputs.old.last());
            if let Some(set) = active.first().or(latest) {
                self.resize(inputs, set, inputs.desired());
            }
        } else if inputs.new_set.as_ref().is_some_and(|new_set| is_saturated(inputs, new_set)) {
            inputs.active_old().for_each(|set| self.resize(inputs, set, 0));
        } else if inputs.deployment.spec.strategy.r#type == ROLLING_UPDATE {
            self.scale_in_proportion(inputs, &active);
        }
    }

    fn scale_in_proportion(&mut self, inputs: &Inputs, active: &[Arc<ReplicaSet>]) {
        let part = |set: &Arc<ReplicaSet>| {
            let before = number(set.annotations(), annotations::MAX_REPLICAS);
            let before = before.and_then(|before| i32::try_from(before).ok()).filter(|before| *before > 0);
            before.unwrap_or(inputs.deployment.status.replicas)
        };
        let parts: Vec<_> = active
            .iter()
            .map(|set| Part {
                size: set.spec.replicas,
                previous_max: part(set),
                created_at: set.meta.creation_timestamp,
                name: &set.meta.key.name,
            })
            .collect();
        for (at, size) in spread(&parts, inputs.desired(), inputs.bounds().surge) {
            self.resize(inputs, &active[at], size);
            self.update_size_annotations(inputs, &active[at]);
        }
    }

    /// Adds the writes to a plan.
    pub(super) fn push_to(self, plan: &mut Plan, inputs: &Inputs) {
        for change in self.0 {
            plan.push(change.into_write(inputs));
        }
    }
}

impl ReplicaSetChange {
    fn into_write(self, inputs: &Inputs) -> Write {
        let Self { set, size, annotations, min_ready_seconds } = self;
        let mut body =
            json!({"metadata": {"resourceVersion": set.meta.resource_version, "annotations": annotations}});
        if let Some(size) = size {
            body["spec"]["replicas"] = json!(size);
        }
        if let Some(seconds) = min_ready_seconds {
            body["spec"]["minReadySeconds"] = json!(seconds);
        }
        let because = match size {
            Some(size) if size > set.spec.replicas => "the Deployment scales it up",
            Some(_) => "the Deployment scales it down",
            None => "its annotations or minReadySeconds are outdated",
        };
        let write = Write::patch(&*set, PatchKind::Merge, body).because(because);
        let Some(size) = size else { return write };
        let event = resized(inputs, &set.meta.key.name, set.spec.replicas, size);
        write.record_on_outcome(move |outcome| matches!(outcome, Outcome::Done { .. }).then(|| event.clone()))
    }
}

/// The event for a resize.
pub(super) fn resized(inputs: &Inputs, set: &str, from: i32, to: i32) -> PlannedEvent {
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
    PlannedEvent::normal(InvolvedObject::of(&*inputs.deployment), "ScalingReplicaSet", message)
}

/// Whether the new ReplicaSet has all desired replicas and all are available.
fn is_saturated(inputs: &Inputs, new_set: &ReplicaSet) -> bool {
    let desired = inputs.desired();
    new_set.spec.replicas == desired
        && desired_annotation(new_set) == Some(desired)
        && new_set.status.available_replicas == desired
}

/// Whether a pod of an old template may still run.
pub(super) fn old_pods_may_run(inputs: &Inputs) -> bool {
    inputs.has_running_old_pods || inputs.old.iter().any(|set| set.status.replicas > 0)
}
