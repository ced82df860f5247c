//! Carries plans out: checks what must hold, sends the writes, remembers what they led to.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keleustes_client::{Answer, Call, Deletion, Patch};
use keleustes_objects::{Failure, Key, Reason, Resource, Uid, Version};
use keleustes_plan::{
    Action, Applied, Controller, Edit, Edited, EventNote, Grant, Guard, OnFailure, Outcome, PatchForm, Plan,
    Propagation, Retry, Step, Target, Write,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::gate::Gate;

/// Carries out the plans of one loop.
pub struct Executor {
    /// The controller, for messages.
    pub controller: &'static str,
    /// What it may write.
    pub grants: &'static [Grant],
    /// With whose credentials.
    pub client: kube::Client,
    /// Where successful writes are remembered.
    pub gate: Arc<Gate>,
    /// Whether this process still leads. Asked before every write, so that a process that slept
    /// through its lease writes nothing on waking.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where events go.
    pub record: Arc<dyn Fn(EventNote) + Send + Sync>,
    /// How many writes of one plan may be under way at once.
    pub in_flight_max: usize,
    /// For the waits between tries after a conflict.
    pub chance: Mutex<fastrand::Rng>,
}

/// How long to wait before reading again after a conflict; up to twice that, by chance.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);

impl Executor {
    /// Carries out a plan for the item with this key.
    pub async fn apply(&self, key: &Key, plan: Plan) -> Applied {
        let mut applied = Applied { retry: plan.complaint().map(Retry::because), ..Applied::default() };
        for event in plan.events() {
            (self.record)(event.clone());
        }
        let guards = Guards::default();
        let mut stopped = false;
        for step in plan.steps() {
            match step {
                _ if stopped => applied.outcomes.extend(step_writes(step).iter().map(|_| Outcome::NotTried)),
                Step::One(write) => {
                    let outcome = self.write(key, write, &guards).await;
                    stopped = self.note(&mut applied, write, outcome);
                }
                Step::SlowStart(writes) => {
                    stopped = self.slow_start(key, writes, &guards, &mut applied).await;
                }
            }
        }
        applied
    }

    /// Reads one object afresh, as JSON.
    ///
    /// # Errors
    /// If there is no answer, or one that is neither the object nor "not found".
    pub async fn fetch(&self, resource: &Resource, key: &Key) -> Result<Option<String>, Failure> {
        match Call::get(resource, key).send_text(&self.client).await {
            Ok(bytes) => String::from_utf8(bytes.to_vec())
                .map(Some)
                .map_err(|_| Failure::transport(Reason::Unreadable, "the answer is not UTF-8")),
            Err(failure) if failure.reason == Reason::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends batches of one, two, four and so on; the first with a failure is the last.
    async fn slow_start(&self, key: &Key, writes: &[Write], guards: &Guards, applied: &mut Applied) -> bool {
        let mut rest = writes;
        let mut batch_size = 1;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_size.min(rest.len()).min(self.in_flight_max));
            let outcomes = join_all(batch.iter().map(|write| self.write(key, write, guards))).await;
            rest = after;
            let mut failed = false;
            for (write, outcome) in batch.iter().zip(outcomes) {
                failed |= matches!(outcome, Outcome::Failed(_));
                self.note(applied, write, outcome);
            }
            if failed {
                applied.outcomes.extend(rest.iter().map(|_| Outcome::NotTried));
                return true;
            }
            batch_size *= 2;
        }
        false
    }

    /// Writes an outcome down and tells whether it stops the plan.
    fn note(&self, applied: &mut Applied, write: &Write, outcome: Outcome) -> bool {
        let mut stops = false;
        match &outcome {
            Outcome::Done { .. } => tracing::debug!(controller = self.controller, "{write}"),
            Outcome::Unneeded | Outcome::NotTried => {}
            Outcome::Failed(failure) => {
                stops = write.on_failure == OnFailure::StopAndRetry;
                if write.on_failure == OnFailure::LogOnly {
                    tracing::error!(controller = self.controller, %failure, "{write}: failed, not tried again");
                } else {
                    let retry = Retry { because: format!("{write}: {failure}"), after: failure.retry_after };
                    applied.retry.get_or_insert(retry);
                }
            }
        }
        applied.outcomes.push(outcome);
        stops
    }

    async fn write(&self, key: &Key, write: &Write, guards: &Guards) -> Outcome {
        assert!(
            Controller::is_granted(self.grants, write),
            "{} may not {write}: its grants do not cover it",
            self.controller
        );
        if let Some(guard) = &write.guard
            && let Err(failure) = guards.check(self, guard).await
        {
            return Outcome::Failed(failure);
        }
        let result = match &write.action {
            Action::Edit(edit) => self.edit(write, edit).await,
            _ => self.send(&call_for(write)).await.map(Some),
        };
        match result {
            Ok(Some(answer)) => self.remember(key, write, &answer),
            Ok(None) => Outcome::Unneeded,
            Err(failure) if write.tolerated.contains(&failure.reason) => {
                Outcome::Done { version: Version::default(), uid: Uid::default() }
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// The last check before anything leaves: only a leader writes.
    async fn send(&self, call: &Call) -> Result<Answer, Failure> {
        if !(self.leads)() {
            return Err(Failure::transport(Reason::Other, "not sent: this process does not lead any more"));
        }
        call.send_for_answer(&self.client).await
    }

    fn remember(&self, key: &Key, write: &Write, answer: &Answer) -> Outcome {
        let target = &write.target;
        if matches!(write.action, Action::Delete { .. }) {
            self.gate.deleted(key, &target.resource, &target.key, &target.uid);
        } else {
            self.gate.wrote(key, &target.resource, &answer.version);
        }
        Outcome::Done { version: answer.version.clone(), uid: answer.uid.clone() }
    }

    /// Reads, changes and puts back, again after a conflict. `None` if there was nothing to write.
    async fn edit(&self, write: &Write, edit: &Edit) -> Result<Option<Answer>, Failure> {
        let Target { resource, key, uid } = &write.target;
        for tries_left in (0..edit.conflict_tries).rev() {
            let mut live: Value = match Call::get(resource, key).send(&self.client).await {
                Ok(live) => live,
                Err(failure) if failure.reason == Reason::NotFound => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let another_life = !uid.is_empty() && Uid::from(text("/metadata/uid")) != *uid;
            let version = Version::from(text("/metadata/resourceVersion"));
            let moved_on = edit.decided_on.as_ref().is_some_and(|decided_on| *decided_on != version);
            if another_life || moved_on {
                return Ok(None);
            }
            match (edit.change)(&mut live) {
                Edited::Changed => {}
                Edited::Unneeded => return Ok(None),
                Edited::Impossible(why) => {
                    tracing::error!(controller = self.controller, "{write}: {why}");
                    return Ok(None);
                }
            }
            match self.send(&Call::replace(resource, key, &live)).await {
                Err(failure) if failure.reason == Reason::Conflict && tries_left > 0 => {
                    let by_chance = self.chance.lock().f64();
                    tokio::time::sleep(CONFLICT_WAIT.mul_f64(1.0 + by_chance)).await;
                }
                answer => return answer.map(Some),
            }
        }
        unreachable!("the last try returns whatever came of it")
    }
}

fn step_writes(step: &Step) -> &[Write] {
    match step {
        Step::One(write) => std::slice::from_ref(&**write),
        Step::SlowStart(writes) => writes,
    }
}

/// The request that a write comes down to. Edits need a read first and are not made here.
fn call_for(write: &Write) -> Call {
    let Target { resource, key, uid } = &write.target;
    match &write.action {
        Action::Create(body) => Call::create(resource, &key.namespace, &with_type(resource, body)),
        Action::Apply { manager, fields } => {
            let mut fields = with_type(resource, fields);
            fields["metadata"]["name"] = json!(key.name);
            Call::patch(resource, key, Patch::Apply { manager: (*manager).to_owned(), force: true }, &fields)
        }
        Action::Patch { form, body, subresource } => {
            let form = match form {
                PatchForm::Merge => Patch::Merge,
                PatchForm::Strategic => Patch::Strategic,
            };
            let call = Call::patch(resource, key, form, body);
            if subresource.is_empty() { call } else { call.subresource(subresource) }
        }
        Action::Delete { propagation } => {
            let propagation = propagation.map(|propagation| match propagation {
                Propagation::Background => keleustes_client::Propagation::Background,
                Propagation::Foreground => keleustes_client::Propagation::Foreground,
                Propagation::Orphan => keleustes_client::Propagation::Orphan,
            });
            let uid = (!uid.is_empty()).then(|| uid.clone());
            Call::delete(resource, key, &Deletion { uid, propagation, ..Deletion::default() })
        }
        Action::Edit(_) => unreachable!("edits are read first"),
    }
}

fn with_type(resource: &Resource, body: &Value) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = json!(resource.api_version());
    body["kind"] = json!(resource.kind);
    body
}

/// The guards of one plan: each is checked once, however many writes depend on it.
#[derive(Default)]
struct Guards(tokio::sync::Mutex<Vec<(Guard, Result<(), Failure>)>>);

impl Guards {
    async fn check(&self, executor: &Executor, guard: &Guard) -> Result<(), Failure> {
        let mut checked = self.0.lock().await;
        if let Some((_, result)) = checked.iter().find(|(there, _)| there == guard) {
            return result.clone();
        }
        let Guard::OwnerLives(owner) = guard;
        let result = owner_lives(executor, owner).await;
        checked.push((guard.clone(), result.clone()));
        result
    }
}

/// Reads an owner afresh: it must be the same life, and not on its way out.
async fn owner_lives(executor: &Executor, owner: &Target) -> Result<(), Failure> {
    let refuse = |message: String| Err(Failure::transport(Reason::Other, message));
    let live: Value = match Call::get(&owner.resource, &owner.key).send(&executor.client).await {
        Ok(live) => live,
        Err(failure) => {
            return Err(Failure {
                message: format!("can't recheck DeletionTimestamp: {failure}"),
                ..failure
            });
        }
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (uid, deleted_at) = (text("/metadata/uid"), text("/metadata/deletionTimestamp"));
    if Uid::from(uid) != owner.uid {
        let Target { resource, key, uid: wanted } = owner;
        return refuse(format!("original {} {key} is gone: got uid {uid}, wanted {wanted}", resource.kind));
    }
    if !deleted_at.is_empty() {
        return refuse(format!("{} has just been deleted at {deleted_at}", owner.key));
    }
    Ok(())
}
