//! What the status of a Deployment says: counts, whether enough pods are available, whether it gets on.

use std::time::Duration;

use keleustes_objects::{
    Condition, Conditions as _, Deployment, DeploymentStatus, FALSE, FullMeta as _, ReplicaSetStatus, TRUE,
    Time, UNKNOWN,
};
use keleustes_plan::{StatusUrgency, Write};
use serde_json::json;

use super::annotations::REVISION;
use super::facts::{Facts, sum};
use crate::workloads::status_urgency::StatusChange;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const ALL_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// A status in the making, and the revision that goes with it.
pub(super) struct Draft {
    pub(super) status: DeploymentStatus,
    revision: Option<String>,
}

impl Draft {
    /// Begins with what the status says now, and with a pause or its end if there is one.
    pub(super) fn of(facts: &Facts) -> Self {
        let mut draft = Self { status: facts.deployment.status.clone(), revision: None };
        let reason = draft.progress().map_or("", |condition| condition.reason.as_str());
        let paused = facts.deployment.spec.paused;
        let is_news = reason != TIMED_OUT && paused != (reason == PAUSED);
        if is_news && has_deadline(&facts.deployment) && !facts.is_leaving() {
            let (reason, message) = match paused {
                true => (PAUSED, "Deployment is paused"),
                false => ("DeploymentResumed", "Deployment is resumed"),
            };
            draft.set(PROGRESSING, UNKNOWN, reason, message, facts.now);
        }
        draft
    }

    fn progress(&self) -> Option<&Condition> {
        self.status.conditions.of_type(PROGRESSING)
    }

    /// The newest ReplicaSet was there before the Deployment knew.
    pub(super) fn note_newest(&mut self, facts: &Facts) {
        let Some(newest) = &facts.newest else { return };
        self.revision = newest.annotations().value(REVISION).map(|revision| revision.to_string());
        if has_deadline(&facts.deployment) && self.progress().is_none() {
            let message = format!("Found new replica set \"{}\"", newest.meta.key.name);
            self.set(PROGRESSING, TRUE, "FoundNewReplicaSet", &message, facts.now);
        }
    }

    /// The newest ReplicaSet was just made.
    pub(super) fn note_creation(&mut self, facts: &Facts, name: &str, revision: i64) {
        self.revision = Some(revision.to_string());
        if has_deadline(&facts.deployment) {
            let message = format!("Created new replica set \"{name}\"");
            self.set(PROGRESSING, TRUE, "NewReplicaSetCreated", &message, facts.now);
        }
    }

    /// The newest ReplicaSet could not be made.
    pub(super) fn note_failed_creation(&mut self, facts: &Facts, message: &str) {
        if has_deadline(&facts.deployment) {
            self.set(PROGRESSING, FALSE, "ReplicaSetCreateError", message, facts.now);
        }
    }

    /// Counts pods, and says whether enough are available.
    pub(super) fn count(&mut self, facts: &Facts, count_terminating_replicas: bool) {
        let total = |number: fn(&ReplicaSetStatus) -> i32| sum(facts.all(), |set| number(&set.status));
        let status = &mut self.status;
        status.observed_generation = facts.deployment.meta.generation;
        status.replicas = total(|status| status.replicas);
        status.updated_replicas = facts.newest.as_ref().map_or(0, |newest| newest.status.replicas);
        status.ready_replicas = total(|status| status.ready_replicas);
        status.available_replicas = total(|status| status.available_replicas);
        status.unavailable_replicas = (facts.asked_for() - status.available_replicas).max(0);
        status.terminating_replicas = count_terminating_replicas.then(|| terminating(facts)).flatten();
        let least = facts.wanted() - facts.bounds().unavailable;
        if status.available_replicas >= least {
            let message = "Deployment has minimum availability.";
            self.set(AVAILABLE, TRUE, "MinimumReplicasAvailable", message, facts.now);
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set(AVAILABLE, FALSE, "MinimumReplicasUnavailable", message, facts.now);
        }
    }

    /// Says whether the rollout gets on, and what keeps pods from being made.
    pub(super) fn judge_progress(&mut self, facts: &Facts) {
        let settled = self.status.replicas == self.status.updated_replicas
            && self.progress().is_some_and(|condition| condition.reason == ALL_AVAILABLE);
        if !has_deadline(&facts.deployment) {
            self.status.conditions.retain(|condition| condition.r#type != PROGRESSING);
        } else if !settled {
            self.judge_unsettled(facts);
        }
        let newest_first = facts.newest.iter().chain(&facts.old);
        let failure = newest_first.filter_map(|set| set.status.conditions.of_type(REPLICA_FAILURE)).next();
        match failure.cloned() {
            Some(mut failure) => {
                failure.last_update_time = failure.last_transition_time;
                self.put(failure);
            }
            None => self.status.conditions.retain(|condition| condition.r#type != REPLICA_FAILURE),
        }
    }

    fn judge_unsettled(&mut self, facts: &Facts) {
        let what = match &facts.newest {
            Some(newest) => format!("ReplicaSet \"{}\"", newest.meta.key.name),
            None => format!("Deployment \"{}\"", facts.deployment.meta.key.name),
        };
        if is_complete(&facts.deployment, &self.status) {
            let message = format!("{what} has successfully progressed.");
            self.set(PROGRESSING, TRUE, ALL_AVAILABLE, &message, facts.now);
        } else if got_on(&facts.deployment.status, &self.status) {
            let since =
                self.progress().filter(|there| there.is_true()).map(|there| there.last_transition_time);
            self.status.conditions.retain(|condition| condition.r#type != PROGRESSING);
            let message = format!("{what} is progressing.");
            self.set(PROGRESSING, TRUE, "ReplicaSetUpdated", &message, facts.now);
            if let (Some(since), Some(condition)) = (since, self.status.conditions.last_mut()) {
                condition.last_transition_time = since;
            }
        } else if self.has_timed_out(facts) {
            let message = format!("{what} has timed out progressing.");
            self.set(PROGRESSING, FALSE, TIMED_OUT, &message, facts.now);
        }
    }

    fn has_timed_out(&self, facts: &Facts) -> bool {
        let Some(progress) = self.progress() else { return false };
        match progress.reason.as_str() {
            TIMED_OUT => true,
            ALL_AVAILABLE => false,
            _ => self.deadline(facts).is_some_and(|deadline| deadline < facts.now),
        }
    }

    /// When the rollout will have stood still for too long.
    fn deadline(&self, facts: &Facts) -> Option<Time> {
        let seconds =
            facts.deployment.spec.progress_deadline_seconds.filter(|_| has_deadline(&facts.deployment))?;
        Some(self.progress()?.last_update_time?.plus_seconds(seconds.into()))
    }

    /// When to look again because the deadline will have passed without anything else happening.
    pub(super) fn look_again_after(&self, facts: &Facts) -> Option<Duration> {
        if is_complete(&facts.deployment, &self.status) || self.has_timed_out(facts) {
            return None;
        }
        if self.progress().is_some_and(|condition| condition.reason == ALL_AVAILABLE) {
            return None;
        }
        let seconds = self.deadline(facts)?.seconds_since(facts.now) + 1;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1)))
    }

    /// Sets a condition as of now.
    fn set(&mut self, r#type: &str, status: &str, reason: &str, message: &str, now: Time) {
        let mut condition = Condition::new(r#type, status, reason, message, now);
        condition.last_update_time = Some(now);
        self.put(condition);
    }

    /// Puts a condition in. One that says the same already is left alone; one that only changes its reason
    /// keeps the time of its last transition.
    fn put(&mut self, mut condition: Condition) {
        if let Some(there) = self.status.conditions.of_type(&condition.r#type) {
            if there.status == condition.status && there.reason == condition.reason {
                return;
            }
            if there.status == condition.status {
                condition.last_transition_time = there.last_transition_time;
            }
        }
        self.status.conditions.retain(|there| there.r#type != condition.r#type);
        self.status.conditions.push(condition);
    }

    /// How soon the status must be known: at once if a wish of the user is seen or fulfilled, or if the Deployment
    /// is in another condition than before.
    pub(super) fn telling(&self, facts: &Facts, changed_anything: bool) -> StatusUrgency {
        let (deployment, there) = (&*facts.deployment, &facts.deployment.status);
        let conditions = |status: &DeploymentStatus| -> Vec<_> {
            status.conditions.iter().map(|one| (one.r#type.clone(), one.status.clone())).collect()
        };
        let is_milestone = self.status.observed_generation != there.observed_generation
            || is_complete(deployment, &self.status) && !is_complete(deployment, there)
            || conditions(&self.status) != conditions(there);
        StatusChange { is_milestone, is_superseded: changed_anything }.status_urgency()
    }

    /// The write, if there is anything to write.
    pub(super) fn into_write(self, facts: &Facts) -> Option<Write> {
        let deployment = &*facts.deployment;
        let there = deployment.annotations().value(REVISION).map(|revision| revision.as_str());
        let revision = self.revision.filter(|revision| there != Some(revision.as_str()));
        if revision.is_none() && self.status == deployment.status {
            return None;
        }
        let mut metadata = deployment.full_meta_json();
        if let Some(revision) = revision {
            // Written with the status, because through the object itself it would count as a new wish.
            metadata["annotations"][REVISION] = json!(revision);
        }
        let body = json!({"metadata": metadata, "status": self.status});
        Some(Write::put(deployment, "status", body).because("its ReplicaSets tell something new"))
    }
}

/// A Deployment that does not want to wait for ever.
fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Whether a status says that the newest template has all the pods, and all are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.meta.generation
}

/// Whether a status is a step further than the one before.
fn got_on(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old_ones = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    after.updated_replicas > before.updated_replicas
        || old_ones(after) < old_ones(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

/// How many pods are on their way out, if every ReplicaSet tells.
fn terminating(facts: &Facts) -> Option<i32> {
    let told = facts.all().map(|set| match set.status.terminating_replicas {
        // Nobody has looked at it yet, so it has no pods.
        None if set.status.observed_generation == 0 => Some(0),
        told => told,
    });
    told.sum()
}
