//! The status of a Deployment: counts and the conditions Available, Progressing and ReplicaFailure.

use std::time::Duration;

use keleustes_objects::{
    Condition, Conditions as _, Deployment, DeploymentStatus, FALSE, FullMeta as _, ReplicaSetStatus, TRUE,
    Time, UNKNOWN,
};
use keleustes_plan::{Delay, StatusUrgency, Write};
use serde_json::json;

use super::annotations::REVISION;
use super::inputs::{Inputs, sum};
use crate::workloads::status_urgency::{StatusChange, any_decreased};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const ALL_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The next status, and the revision annotation that is written with it.
pub(super) struct StatusDraft {
    pub(super) status: DeploymentStatus,
    revision: Option<String>,
    /// Whether this reconcile has created the new ReplicaSet. No other one writes so into the Progressing condition, on
    /// which the progress deadline depends.
    created: bool,
}

impl StatusDraft {
    /// Starts from the current status, and records a pause or a resume.
    pub(super) fn of(inputs: &Inputs) -> Self {
        let mut draft = Self { status: inputs.deployment.status.clone(), revision: None, created: false };
        let reason = draft.progress().map_or("", |condition| condition.reason.as_str());
        let paused = inputs.deployment.spec.paused;
        let is_news = reason != TIMED_OUT && paused != (reason == PAUSED);
        if is_news && has_deadline(&inputs.deployment) && !inputs.is_terminating() {
            let (reason, message) = match paused {
                true => (PAUSED, "Deployment is paused"),
                false => ("DeploymentResumed", "Deployment is resumed"),
            };
            draft.set(PROGRESSING, UNKNOWN, reason, message, inputs.now);
        }
        draft
    }

    fn progress(&self) -> Option<&Condition> {
        self.status.conditions.of_type(PROGRESSING)
    }

    /// Records that the new ReplicaSet existed before the Deployment had a Progressing condition.
    pub(super) fn note_found(&mut self, inputs: &Inputs) {
        let Some(new_set) = &inputs.new_set else { return };
        self.revision = new_set.annotations().value(REVISION).map(|revision| revision.to_string());
        if has_deadline(&inputs.deployment) && self.progress().is_none() {
            let message = format!("Found new replica set \"{}\"", new_set.meta.key.name);
            self.set(PROGRESSING, TRUE, "FoundNewReplicaSet", &message, inputs.now);
        }
    }

    /// Records that the new ReplicaSet was created.
    pub(super) fn note_creation(&mut self, inputs: &Inputs, name: &str, revision: i64) {
        self.revision = Some(revision.to_string());
        self.created = true;
        if has_deadline(&inputs.deployment) {
            let message = format!("Created new replica set \"{name}\"");
            self.set(PROGRESSING, TRUE, "NewReplicaSetCreated", &message, inputs.now);
        }
    }

    /// Records that the new ReplicaSet could not be created.
    pub(super) fn note_failed_creation(&mut self, inputs: &Inputs, message: &str) {
        if has_deadline(&inputs.deployment) {
            self.set(PROGRESSING, FALSE, "ReplicaSetCreateError", message, inputs.now);
        }
    }

    /// Sets the counts and the Available condition.
    pub(super) fn count(&mut self, inputs: &Inputs, count_terminating_replicas: bool) {
        let total = |number: fn(&ReplicaSetStatus) -> i32| sum(inputs.all(), |set| number(&set.status));
        let status = &mut self.status;
        status.observed_generation = inputs.deployment.meta.generation;
        status.replicas = total(|status| status.replicas);
        status.updated_replicas = inputs.new_set.as_ref().map_or(0, |new_set| new_set.status.replicas);
        status.ready_replicas = total(|status| status.ready_replicas);
        status.available_replicas = total(|status| status.available_replicas);
        status.unavailable_replicas = (inputs.total_replicas() - status.available_replicas).max(0);
        status.terminating_replicas = count_terminating_replicas.then(|| terminating(inputs)).flatten();
        let min_available = inputs.desired() - inputs.bounds().unavailable;
        if status.available_replicas >= min_available {
            let message = "Deployment has minimum availability.";
            self.set(AVAILABLE, TRUE, "MinimumReplicasAvailable", message, inputs.now);
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set(AVAILABLE, FALSE, "MinimumReplicasUnavailable", message, inputs.now);
        }
    }

    /// Sets the Progressing and ReplicaFailure conditions.
    pub(super) fn update_progressing(&mut self, inputs: &Inputs) {
        let settled = self.status.replicas == self.status.updated_replicas
            && self.progress().is_some_and(|condition| condition.reason == ALL_AVAILABLE);
        if !has_deadline(&inputs.deployment) {
            self.status.conditions.retain(|condition| condition.r#type != PROGRESSING);
        } else if !settled {
            self.update_unfinished_rollout(inputs);
        }
        let new_set_first = inputs.new_set.iter().chain(&inputs.old);
        let failure = new_set_first.filter_map(|set| set.status.conditions.of_type(REPLICA_FAILURE)).next();
        match failure.cloned() {
            Some(mut failure) => {
                failure.last_update_time = failure.last_transition_time;
                self.put(failure);
            }
            None => self.status.conditions.retain(|condition| condition.r#type != REPLICA_FAILURE),
        }
    }

    fn update_unfinished_rollout(&mut self, inputs: &Inputs) {
        let what = match &inputs.new_set {
            Some(new_set) => format!("ReplicaSet \"{}\"", new_set.meta.key.name),
            None => format!("Deployment \"{}\"", inputs.deployment.meta.key.name),
        };
        if is_complete(&inputs.deployment, &self.status) {
            let message = format!("{what} has successfully progressed.");
            self.set(PROGRESSING, TRUE, ALL_AVAILABLE, &message, inputs.now);
        } else if is_progressing(&inputs.deployment.status, &self.status) {
            let since = self
                .progress()
                .filter(|existing| existing.is_true())
                .map(|existing| existing.last_transition_time);
            self.status.conditions.retain(|condition| condition.r#type != PROGRESSING);
            let message = format!("{what} is progressing.");
            self.set(PROGRESSING, TRUE, "ReplicaSetUpdated", &message, inputs.now);
            if let (Some(since), Some(condition)) = (since, self.status.conditions.last_mut()) {
                condition.last_transition_time = since;
            }
        } else if self.has_timed_out(inputs) {
            let message = format!("{what} has timed out progressing.");
            self.set(PROGRESSING, FALSE, TIMED_OUT, &message, inputs.now);
        }
    }

    fn has_timed_out(&self, inputs: &Inputs) -> bool {
        let Some(progress) = self.progress() else { return false };
        match progress.reason.as_str() {
            TIMED_OUT => true,
            ALL_AVAILABLE => false,
            _ => self.deadline(inputs).is_some_and(|deadline| deadline < inputs.now),
        }
    }

    /// When the progress deadline passes.
    fn deadline(&self, inputs: &Inputs) -> Option<Time> {
        let seconds =
            inputs.deployment.spec.progress_deadline_seconds.filter(|_| has_deadline(&inputs.deployment))?;
        Some(self.progress()?.last_update_time?.plus_seconds(seconds.into()))
    }

    /// The requeue delay until the progress deadline has passed.
    pub(super) fn requeue_after(&self, inputs: &Inputs) -> Option<Delay> {
        if is_complete(&inputs.deployment, &self.status) || self.has_timed_out(inputs) {
            return None;
        }
        if self.progress().is_some_and(|condition| condition.reason == ALL_AVAILABLE) {
            return None;
        }
        let seconds = self.deadline(inputs)?.seconds_since(inputs.now) + 1;
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1));
        Some(Delay::of(left, "its progress deadline"))
    }

    /// Sets a condition as of now.
    fn set(&mut self, r#type: &str, status: &str, reason: &str, message: &str, now: Time) {
        let mut condition = Condition::new(r#type, status, reason, message, now);
        condition.last_update_time = Some(now);
        self.put(condition);
    }

    /// Sets a condition. One with the same status and reason is kept; one with the same status keeps its
    /// lastTransitionTime.
    fn put(&mut self, mut condition: Condition) {
        if let Some(existing) = self.status.conditions.of_type(&condition.r#type) {
            if existing.status == condition.status && existing.reason == condition.reason {
                return;
            }
            if existing.status == condition.status {
                condition.last_transition_time = existing.last_transition_time;
            }
        }
        self.status.conditions.retain(|existing| existing.r#type != condition.r#type);
        self.status.conditions.push(condition);
    }

    /// Immediate if a generation is observed for the first time, if the new ReplicaSet was created, if the rollout completes,
    /// or if a condition changes.
    pub(super) fn status_urgency(&self, inputs: &Inputs, changed_anything: bool) -> StatusUrgency {
        let (deployment, existing) = (&*inputs.deployment, &inputs.deployment.status);
        let conditions = |status: &DeploymentStatus| -> Vec<_> {
            status.conditions.iter().map(|one| (one.r#type.clone(), one.status.clone())).collect()
        };
        let is_milestone = self.created
            || self.status.observed_generation != existing.observed_generation
            || is_complete(deployment, &self.status) && !is_complete(deployment, existing)
            || conditions(&self.status) != conditions(existing);
        let counts = |status: &DeploymentStatus| {
            [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas]
        };
        let is_loss = any_decreased(counts(existing), counts(&self.status));
        StatusChange { is_milestone, is_loss, is_superseded: changed_anything }.status_urgency()
    }

    /// The status write, if anything changed.
    pub(super) fn into_write(self, inputs: &Inputs) -> Option<Write> {
        let deployment = &*inputs.deployment;
        let existing = deployment.annotations().value(REVISION).map(|revision| revision.as_str());
        let revision = self.revision.filter(|revision| existing != Some(revision.as_str()));
        if revision.is_none() && self.status == deployment.status {
            return None;
        }
        let mut metadata = deployment.full_meta_json();
        if let Some(revision) = revision {
            // Written with the status, because an update of the Deployment itself would not be limited to
            // this annotation.
            metadata["annotations"][REVISION] = json!(revision);
        }
        let body = json!({"metadata": metadata, "status": self.status});
        Some(Write::put(deployment, "status", body).because("its ReplicaSets or conditions changed"))
    }
}

/// Whether the Deployment has a progress deadline.
fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Whether a status reports that all replicas are updated and available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = deployment.spec.replicas;
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
        && status.observed_generation >= deployment.meta.generation
}

/// Whether a status shows progress compared to the previous one.
fn is_progressing(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old_ones = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    after.updated_replicas > before.updated_replicas
        || old_ones(after) < old_ones(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

/// The number of terminating pods, if every ReplicaSet reports it.
fn terminating(inputs: &Inputs) -> Option<i32> {
    let count = inputs.all().map(|set| match set.status.terminating_replicas {
        // Not yet observed by the ReplicaSet controller, so it has no pods.
        None if set.status.observed_generation == 0 => Some(0),
        count => count,
    });
    count.sum()
}
