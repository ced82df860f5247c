//! Changes to ReplicaSets, gathered so that each is written once: its size, what it remembers, how long its
//! pods must be ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{FullMeta as _, ReplicaSet};
use keleustes_plan::{InvolvedObject, Outcome, PatchKind, Plan, PlannedEvent, Write};
use serde_json::json;

use super::annotations;
use super::facts::{Facts, ROLLING_UPDATE, desired_when_sized, number};
use super::proportions::{Part, spread};
use super::revisions::{missing_annotations, next_revision, size_annotations};
use super::rolling::{Size, newest_target, old_targets};

/// All changes of a turn, in the order in which they were decided.
#[derive(Default)]
pub(super) struct Moves(Vec<Move>);

struct Move {
    set: Arc<ReplicaSet>,
    size: Option<i32>,
    annotations: BTreeMap<String, String>,
    min_ready_seconds: Option<i32>,
}

impl Moves {
    /// Whether any ReplicaSet gets another size.
    pub(super) fn resize_any(&self) -> bool {
        self.0.iter().any(|change| change.size.is_some())
    }

    fn of(&mut self, set: &Arc<ReplicaSet>) -> &mut Move {
        let at = self.0.iter().position(|change| change.set.meta.uid == set.meta.uid);
        let at = at.unwrap_or_else(|| {
            self.0.push(Move {
                set: set.clone(),
                size: None,
                annotations: BTreeMap::new(),
                min_ready_seconds: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Brings what the newest ReplicaSet remembers up to date. Tells whether there was anything to bring.
    pub(super) fn refresh_newest(&mut self, facts: &Facts) -> bool {
        let Some(newest) = &facts.newest else { return false };
        let missing = missing_annotations(&facts.deployment, newest, next_revision(facts));
        let wanted = facts.deployment.spec.min_ready_seconds;
        let min_ready_seconds = Some(wanted).filter(|wanted| *wanted != newest.spec.min_ready_seconds);
        if missing.is_empty() && min_ready_seconds.is_none() {
            return false;
        }
        let change = self.of(newest);
        change.annotations.extend(missing);
        change.min_ready_seconds = min_ready_seconds;
        true
    }

    /// Gives a ReplicaSet another size.
    fn resize(&mut self, facts: &Facts, set: &Arc<ReplicaSet>, size: i32) {
        if set.spec.replicas != size {
            let change = self.of(set);
            change.size = Some(size);
            change.annotations.extend(size_annotations(facts));
        }
    }

    /// Lets a ReplicaSet remember what the Deployment wants now, whatever its size.
    fn remember(&mut self, facts: &Facts, set: &Arc<ReplicaSet>) {
        let there = |key: &str| set.annotations().value(key).map_or("", |value| value.as_str());
        let news = size_annotations(facts).into_iter().filter(|(key, value)| there(key) != value);
        let news: Vec<_> = news.collect();
        if !news.is_empty() {
            self.of(set).annotations.extend(news);
        }
    }

    /// The newest as large as the Deployment wants, and no old one left; for Deployments that replace all
    /// pods at once.
    pub(super) fn recreate(&mut self, facts: &Facts) {
        if facts.active_old().next().is_some() {
            facts.active_old().for_each(|set| self.resize(facts, set, 0));
        } else if let Some(newest) = facts.newest.as_ref().filter(|_| !old_pods_may_run(facts)) {
            self.resize(facts, newest, facts.wanted());
        }
    }

    /// One step of a rolling update. If the newest is resized, the old ones wait for the next turn.
    pub(super) fn roll(&mut self, facts: &Facts) {
        let Some(newest) = &facts.newest else { return };
        let (wanted, bounds) = (facts.wanted(), facts.bounds());
        let target = newest_target(wanted, bounds.surge, newest.spec.replicas, facts.asked_for());
        if target != newest.spec.replicas {
            self.resize(facts, newest, target);
            return;
        }
        let old: Vec<_> = facts.active_old().cloned().collect();
        let size =
            |set: &ReplicaSet| Size { asked: set.spec.replicas, available: set.status.available_replicas };
        let sizes: Vec<_> = old.iter().map(|set| size(set)).collect();
        let targets = old_targets(wanted, bounds.unavailable, size(newest), &sizes);
        for (set, target) in old.iter().zip(targets) {
            self.resize(facts, set, target);
        }
    }

    /// Follows a change of the wanted number, or what a paused Deployment wants, without rolling.
    pub(super) fn scale(&mut self, facts: &Facts) {
        let active: Vec<_> = facts.all().filter(|set| set.spec.replicas > 0).cloned().collect();
        if let [] | [_] = active[..] {
            let newest_of_all = facts.newest.as_ref().or(facts.old.last());
            if let Some(set) = active.first().or(newest_of_all) {
                self.resize(facts, set, facts.wanted());
            }
        } else if facts.newest.as_ref().is_some_and(|newest| is_saturated(facts, newest)) {
            facts.active_old().for_each(|set| self.resize(facts, set, 0));
        } else if facts.deployment.spec.strategy.r#type == ROLLING_UPDATE {
            self.scale_in_proportion(facts, &active);
        }
    }

    fn scale_in_proportion(&mut self, facts: &Facts, active: &[Arc<ReplicaSet>]) {
        let part = |set: &Arc<ReplicaSet>| {
            let before = number(set.annotations(), annotations::MAX_REPLICAS);
            let before = before.and_then(|before| i32::try_from(before).ok()).filter(|before| *before > 0);
            before.unwrap_or(facts.deployment.status.replicas)
        };
        let parts: Vec<_> = active
            .iter()
            .map(|set| Part {
                size: set.spec.replicas,
                allowed_before: part(set),
                created_at: set.meta.creation_timestamp,
                name: &set.meta.key.name,
            })
            .collect();
        for (at, size) in spread(&parts, facts.wanted(), facts.bounds().surge) {
            self.resize(facts, &active[at], size);
            self.remember(facts, &active[at]);
        }
    }

    /// Adds the writes to a plan.
    pub(super) fn push_to(self, plan: &mut Plan, facts: &Facts) {
        for change in self.0 {
            plan.push(change.into_write(facts));
        }
    }
}

impl Move {
    fn into_write(self, facts: &Facts) -> Write {
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
            Some(size) if size > set.spec.replicas => "the rollout has room for more of it",
            Some(_) => "the rollout needs fewer of it",
            None => "what it remembers of the Deployment is old",
        };
        let write = Write::patch(&*set, PatchKind::Merge, body).because(because);
        let Some(size) = size else { return write };
        let event = resized(facts, &set.meta.key.name, set.spec.replicas, size);
        write.record_on_outcome(move |outcome| matches!(outcome, Outcome::Done { .. }).then(|| event.clone()))
    }
}

/// Tells people that a ReplicaSet gets another size.
pub(super) fn resized(facts: &Facts, set: &str, from: i32, to: i32) -> PlannedEvent {
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
    PlannedEvent::normal(InvolvedObject::of(&*facts.deployment), "ScalingReplicaSet", message)
}

/// Whether the newest has all the pods that are wanted, and all are available.
fn is_saturated(facts: &Facts, newest: &ReplicaSet) -> bool {
    let wanted = facts.wanted();
    newest.spec.replicas == wanted
        && desired_when_sized(newest) == Some(wanted)
        && newest.status.available_replicas == wanted
}

/// Whether a pod of the old template may still run.
pub(super) fn old_pods_may_run(facts: &Facts) -> bool {
    facts.old_pods_run || facts.old.iter().any(|set| set.status.replicas > 0)
}
