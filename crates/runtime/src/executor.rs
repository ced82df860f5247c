//! Carries plans out: checks what must hold, sends the writes, remembers what they led to.

mod patch_metadata;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use keleustes_client::{Call, DeleteOptions, PatchType, WriteResponse};
use keleustes_objects::{ApiError, DiscoveredResources, ErrorReason, Key, Resource, ResourceVersion, Uid};
use keleustes_plan::{
    Action, Applied, Controller, Edit, Edited, FetchResult, Grant, Guard, Item, ListRequest, ListResult,
    OnFailure, Outcome, PatchKind, Plan, PlannedEvent, PropagationPolicy, ReconcileError, Step, Target,
    Write,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::caches::{self, Caches};
use crate::clock::Clocks;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::status_coalescing::StatusCoalescer;

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
    /// The caches, which keep what the next leader must know of the writes.
    pub caches: Caches,
    /// What items have told lately, and the clock that this goes by.
    pub status_coalescer: Arc<Mutex<StatusCoalescer>>,
    /// The clocks.
    pub clocks: Clocks,
    /// Whether this process still leads. Asked before every write, so that a process that slept
    /// through its lease writes nothing on waking.
    pub is_leader: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where events go.
    pub record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
    /// Where measurements go.
    pub metrics: Metrics,
    /// How many writes of one plan may be under way at once.
    pub in_flight_max: usize,
    /// For the waits between tries after a conflict.
    pub random: Mutex<fastrand::Rng>,
}

/// How long to wait before reading again after a conflict; up to twice that, by chance.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);
const NOT_LEADING: &str = "not sent: this process does not lead any more";

impl Executor {
    /// Carries out a plan for an item.
    ///
    /// # Panics
    /// If the plan holds a write that the controller did not declare; nothing of it is sent then.
    pub async fn apply(&self, item: &Item, plan: Plan) -> Applied {
        for write in plan.steps().iter().flat_map(Step::writes) {
            self.assert_granted(write);
        }
        let mut applied =
            Applied { error: plan.error_message().map(ReconcileError::because), ..Applied::default() };
        let mut stopped = !(self.is_leader)();
        if stopped {
            applied.error = Some(ReconcileError::because(NOT_LEADING));
        } else {
            plan.events().iter().cloned().for_each(|event| (self.record)(event));
            plan.measurements().iter().for_each(|measurement| self.metrics.measure(measurement));
        }
        let guards = Guards::default();
        for step in plan.steps() {
            match step {
                _ if stopped => applied.outcomes.extend(step.writes().iter().map(|_| Outcome::NotSent)),
                Step::One(write) => {
                    let outcome = self.write(item, write, &guards).await;
                    stopped = self.note(&mut applied, write, outcome);
                }
                Step::SlowStart(writes) => {
                    stopped = self.slow_start(item, writes, &guards, &mut applied).await;
                }
                Step::Parallel(writes) => {
                    stopped = self.together(item, writes, &guards, &mut applied).await;
                }
            }
        }
        applied
    }

    /// Reads one object afresh, as JSON.
    ///
    /// # Errors
    /// If there is no answer, or one that is neither the object nor "not found".
    ///
    /// # Panics
    /// If the controller did not declare that it may.
    pub async fn fetch(&self, resource: &Resource, key: &Key) -> FetchResult {
        self.read(resource, &Call::get(resource, key)).await
    }

    /// Reads objects afresh, as many at once as may be under way: one answer for each key, in order.
    ///
    /// # Panics
    /// If the controller did not declare that it may.
    pub async fn fetch_all(&self, resource: &Resource, keys: &[Key]) -> Vec<FetchResult> {
        let asked: Vec<_> = keys.iter().map(|key| self.fetch(resource, key)).collect();
        stream::iter(asked).buffered(self.in_flight_max.max(1)).collect().await
    }

    /// Reads the metadata of one object afresh, as JSON.
    ///
    /// # Errors
    /// If there is no answer, or one that is neither the object nor "not found".
    ///
    /// # Panics
    /// If the controller did not declare that it may.
    pub async fn fetch_metadata(&self, resource: &Resource, key: &Key) -> FetchResult {
        self.read(resource, &Call::get(resource, key).metadata_only()).await
    }

    async fn read(&self, resource: &Resource, call: &Call) -> FetchResult {
        self.assert_may(resource, "get");
        match call.send_for_bytes(&self.client).await {
            Ok(bytes) => String::from_utf8(bytes.to_vec())
                .map(Some)
                .map_err(|_| ApiError::transport(ErrorReason::UnreadableResponse, "the answer is not UTF-8")),
            Err(failure) if failure.reason == ErrorReason::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Lists afresh, as many at once as may be under way: one answer for each question, in order.
    ///
    /// # Panics
    /// If the controller did not declare that it may.
    pub async fn list(&self, listings: &[ListRequest]) -> Vec<ListResult> {
        let ask = |listing: &ListRequest| {
            let ListRequest { kind, namespace, limit: at_most } = listing;
            self.assert_may(kind.resource(), "list");
            let source = caches::source(kind).in_namespace(&**namespace);
            let (client, at_most) = (self.client.clone(), *at_most);
            async move { source.list(&client, at_most).await }
        };
        let asked: Vec<_> = listings.iter().map(ask).collect();
        stream::iter(asked).buffered(self.in_flight_max.max(1)).collect().await
    }

    /// Asks the server anew what it serves.
    ///
    /// # Errors
    /// If nothing at all could be learnt.
    pub async fn discover(&self) -> Result<DiscoveredResources, ApiError> {
        keleustes_client::discover(&self.client).await
    }

    /// Sends batches of one, two, four and so on; the first with a failure is the last. Tells whether
    /// a failure stops the plan, too.
    async fn slow_start(
        &self,
        item: &Item,
        writes: &[Write],
        guards: &Guards,
        applied: &mut Applied,
    ) -> bool {
        let (mut rest, mut size, mut failed, mut stops) = (writes, 1, false, false);
        while !rest.is_empty() && !failed {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            let outcomes = join_all(batch.iter().map(|write| self.write(item, write, guards))).await;
            for (write, outcome) in batch.iter().zip(outcomes) {
                failed |= matches!(outcome, Outcome::Failed(_));
                stops |= self.note(applied, write, outcome);
            }
            rest = after;
            size = (size * 2).min(self.in_flight_max.max(1));
        }
        applied.outcomes.extend(rest.iter().map(|_| Outcome::NotSent));
        stops
    }

    /// Sends all, as many at once as may be under way. Tells whether a failure stops what comes after.
    async fn together(&self, item: &Item, writes: &[Write], guards: &Guards, applied: &mut Applied) -> bool {
        let sent: Vec<_> = writes.iter().map(|write| self.write(item, write, guards)).collect();
        let outcomes: Vec<_> = stream::iter(sent).buffered(self.in_flight_max.max(1)).collect().await;
        let notes = writes.iter().zip(outcomes).map(|(write, outcome)| self.note(applied, write, outcome));
        notes.fold(false, |stops, stopped| stops | stopped)
    }

    /// Writes an outcome down and tells whether it stops the plan.
    fn note(&self, applied: &mut Applied, write: &Write, outcome: Outcome) -> bool {
        let mut stops = false;
        if let Some(event) = write.outcome_event.as_ref().and_then(|report| report(&outcome)) {
            (self.record)(event);
        }
        match &outcome {
            Outcome::Done { .. } => tracing::debug!(controller = self.controller, "{write}"),
            Outcome::Unneeded | Outcome::NotSent => {}
            Outcome::Failed(failure) => {
                stops = write.on_failure == OnFailure::StopAndRetry;
                match write.on_failure {
                    OnFailure::ReturnOutcome => {}
                    OnFailure::LogOnly => {
                        tracing::error!(controller = self.controller, %failure, "{write}: failed, not tried again");
                    }
                    OnFailure::StopAndRetry | OnFailure::ContinueAndRetry => {
                        // The first failure is the reason; the longest wait that was asked for is kept.
                        let again = ReconcileError::from_api_error(failure, format!("{write}: {failure}"));
                        let (after, outage) = (again.retry_after, again.outage);
                        let retry = applied.error.get_or_insert(again);
                        retry.retry_after = retry.retry_after.max(after);
                        retry.outage |= outage;
                    }
                }
            }
        }
        applied.outcomes.push(outcome);
        stops
    }

    /// What a role does not grant is refused by every real cluster; here it is refused before that, in
    /// every test.
    fn assert_granted(&self, write: &Write) {
        let controller = self.controller;
        assert!(
            Controller::is_granted(self.grants, write),
            "{controller} may not {write}: its grants do not cover it"
        );
        if let Some(Guard::RecheckOwner(owner)) = &write.guard {
            self.assert_may(&owner.resource, "get");
        }
    }

    fn assert_may(&self, resource: &Resource, verb: &str) {
        let controller = self.controller;
        assert!(
            self.grants.iter().any(|grant| grant.covers(resource, "", verb)),
            "{controller} may not {verb} {resource}: its grants do not cover it"
        );
    }

    async fn write(&self, item: &Item, write: &Write, guards: &Guards) -> Outcome {
        if let Some(telling) = write.status_urgency
            && !self.status_coalescer.lock().may_write_now(&item.key, telling, self.clocks.monotonic())
        {
            return Outcome::NotSent;
        }
        if let Some(guard) = &write.guard
            && let Err(failure) = guards.check(self, guard).await
        {
            return Outcome::Failed(failure);
        }
        let result = match &write.action {
            Action::Edit(edit) => self.edit(write, edit).await,
            Action::PatchMetadata(amend) => self.amend(&write.target, amend).await,
            Action::Put { body, conflict_tries, .. } => self.put(write, body, *conflict_tries).await,
            Action::DeleteCollection { propagation } => {
                return self.delete_collection(&write.target, *propagation, write.ignored_errors).await;
            }
            _ => self.send(&call_for(write)).await.map(Some),
        };
        match result {
            Ok(Some(answer)) => {
                if write.status_urgency.is_some() {
                    self.status_coalescer.lock().record_write(&item.key, self.clocks.monotonic());
                }
                self.remember(item, write, &answer)
            }
            Ok(None) => Outcome::Unneeded,
            Err(failure) if write.ignored_errors.contains(&failure.reason) => {
                self.remember_refusal(item, write, failure.reason);
                Outcome::done()
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// The last check before anything leaves: only a leader writes.
    async fn send(&self, call: &Call) -> Result<WriteResponse, ApiError> {
        self.check_leading()?;
        let answer = call.send_for_metadata(&self.client).await;
        // Anything but a clear refusal leaves open what became of the write.
        if answer.as_ref().is_err_and(|failure| !(400..500).contains(&failure.code)) {
            self.caches.written_versions().record_unknown_outcome();
        }
        answer
    }

    fn check_leading(&self) -> Result<(), ApiError> {
        if (self.is_leader)() { Ok(()) } else { Err(ApiError::transport(ErrorReason::Other, NOT_LEADING)) }
    }

    /// The answer lists all that went; nobody needs it.
    async fn delete_collection(
        &self,
        target: &Target,
        propagation: Option<PropagationPolicy>,
        tolerated: &[ErrorReason],
    ) -> Outcome {
        let deletion =
            DeleteOptions { propagation_policy: propagation.map(on_the_wire), ..DeleteOptions::default() };
        let call = Call::delete_collection(&target.resource, &target.key.namespace, &deletion);
        let sent = match self.check_leading() {
            Ok(()) => call.send_discarding_body(&self.client).await,
            refused => refused,
        };
        match sent {
            Err(failure) if !tolerated.contains(&failure.reason) => Outcome::Failed(failure),
            _ => Outcome::done(),
        }
    }

    fn remember(&self, item: &Item, write: &Write, answer: &WriteResponse) -> Outcome {
        let target = &write.target;
        if answer.is_object {
            self.caches.written_versions().record_write(&target.resource, &answer.resource_version);
        } else {
            let uid = if target.uid.is_empty() { &answer.uid } else { &target.uid };
            self.caches.written_versions().record_deletion(&self.caches, &target.resource, &target.key, uid);
        }
        if matches!(write.action, Action::Delete { .. }) {
            self.gate.expect_deleted(item, &target.resource, &target.key, &target.uid);
        } else {
            self.gate.expect_version(item, &target.resource, &answer.resource_version);
        }
        let WriteResponse { resource_version: version, uid, key, .. } = answer.clone();
        let name = if key.name.is_empty() { target.key.name.clone() } else { key.name };
        Outcome::Done { resource_version: version, uid, name }
    }

    /// A refusal may tell that the cache is behind. Looking at it again before it has caught up would
    /// lead to the same refusal.
    fn remember_refusal(&self, item: &Item, write: &Write, reason: ErrorReason) {
        let Target { resource, key, uid } = &write.target;
        match (&write.action, reason) {
            (Action::Create(_), ErrorReason::AlreadyExists) => self.gate.expect_present(item, resource, key),
            (Action::Delete { .. }, ErrorReason::NotFound | ErrorReason::Conflict) => {
                self.gate.expect_deleted(item, resource, key, uid);
            }
            _ => {}
        }
    }

    /// Reads, changes and puts back, again after a conflict. `None` if there was nothing to write.
    async fn edit(&self, write: &Write, edit: &Edit) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, uid } = &write.target;
        for tries_left in (0..edit.conflict_tries).rev() {
            let mut live: Value = match Call::get(resource, key).send(&self.client).await {
                Ok(live) => live,
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let another_life = !uid.is_empty() && Uid::from(text("/metadata/uid")) != *uid;
            let version = ResourceVersion::from(text("/metadata/resourceVersion"));
            let moved_on = edit
                .expected_resource_version
                .as_ref()
                .is_some_and(|expected_resource_version| *expected_resource_version != version);
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
            match self.send(&to_part(Call::replace(resource, key, &live), edit.subresource)).await {
                Err(failure) if failure.reason == ErrorReason::Conflict && tries_left > 0 => {
                    self.wait_after_conflict().await;
                }
                // It went away between reading and putting back.
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                answer => return answer.map(Some),
            }
        }
        unreachable!("the last try returns whatever came of it")
    }

    /// Puts what was made from the cache. After a conflict the same part goes into the object as it is
    /// now: somebody else has changed another part of it, or the cache was behind.
    async fn put(&self, write: &Write, body: &Value, tries: u32) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, .. } = &write.target;
        let part = write.subresource();
        match self.send(&to_part(Call::replace(resource, key, &with_type(resource, body)), part)).await {
            Err(failure) if failure.reason == ErrorReason::Conflict && tries > 1 && !part.is_empty() => {}
            Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
            answer => return answer.map(Some),
        }
        self.wait_after_conflict().await;
        let wanted = body[part].clone();
        let change = move |live: &mut Value| {
            if live[part] == wanted {
                return Edited::Unneeded;
            }
            live[part] = wanted.clone();
            Edited::Changed
        };
        let edit = Edit {
            change: Arc::new(change),
            expected_resource_version: None,
            conflict_tries: tries - 1,
            subresource: part,
        };
        self.edit(write, &edit).await
    }

    async fn wait_after_conflict(&self) {
        let by_chance = self.random.lock().f64();
        tokio::time::sleep(CONFLICT_WAIT.mul_f64(1.0 + by_chance)).await;
    }
}

fn to_part(call: Call, subresource: &str) -> Call {
    if subresource.is_empty() { call } else { call.subresource(subresource) }
}

/// The request that a write comes down to. Edits and puts may need a read and are not made here.
fn call_for(write: &Write) -> Call {
    let Target { resource, key, uid } = &write.target;
    match &write.action {
        Action::Create(body) => Call::create(resource, &key.namespace, &with_type(resource, body)),
        Action::Apply { manager, fields } => {
            let mut fields = with_type(resource, fields);
            fields["metadata"]["name"] = json!(key.name);
            Call::patch(
                resource,
                key,
                PatchType::Apply { manager: (*manager).to_owned(), force: true },
                &fields,
            )
        }
        Action::Patch { form, body, subresource } => {
            let form = match form {
                PatchKind::Merge => PatchType::Merge,
                PatchKind::Strategic => PatchType::Strategic,
            };
            let mut body = body.clone();
            if !uid.is_empty() {
                // A patch of another life's uid is refused, so only the one that was seen is changed.
                body["metadata"]["uid"] = json!(uid);
            }
            to_part(Call::patch(resource, key, form, &body), subresource)
        }
        Action::Delete { propagation, grace_seconds, resource_version_precondition } => {
            let propagation = propagation.map(on_the_wire);
            let uid = (!uid.is_empty()).then(|| uid.clone());
            let (version, grace_seconds) = (resource_version_precondition.clone(), *grace_seconds);
            Call::delete(
                resource,
                key,
                &DeleteOptions {
                    uid,
                    resource_version: version,
                    propagation_policy: propagation,
                    grace_period_seconds: grace_seconds,
                },
            )
        }
        Action::Edit(_) | Action::PatchMetadata(_) | Action::Put { .. } | Action::DeleteCollection { .. } => {
            unreachable!("sent by ways of their own")
        }
    }
}

fn on_the_wire(propagation: PropagationPolicy) -> keleustes_client::PropagationPolicy {
    match propagation {
        PropagationPolicy::Background => keleustes_client::PropagationPolicy::Background,
        PropagationPolicy::Foreground => keleustes_client::PropagationPolicy::Foreground,
        PropagationPolicy::Orphan => keleustes_client::PropagationPolicy::Orphan,
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
struct Guards(tokio::sync::Mutex<Vec<(Guard, Result<(), ApiError>)>>);

impl Guards {
    async fn check(&self, executor: &Executor, guard: &Guard) -> Result<(), ApiError> {
        let mut checked = self.0.lock().await;
        if let Some((_, result)) = checked.iter().find(|(there, _)| there == guard) {
            return result.clone();
        }
        let Guard::RecheckOwner(owner) = guard;
        let result = owner_lives(executor, owner).await;
        checked.push((guard.clone(), result.clone()));
        result
    }
}

/// Reads an owner afresh: it must be the same life, and not on its way out.
async fn owner_lives(executor: &Executor, owner: &Target) -> Result<(), ApiError> {
    let Target { resource, key, uid: wanted } = owner;
    let unknown = |why: String| format!("can't recheck DeletionTimestamp: {why}");
    let live: Value = match Call::get(resource, key).send(&executor.client).await {
        Ok(live) => live,
        Err(failure) => return Err(ApiError { message: unknown(failure.to_string()), ..failure }),
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (uid, deleted_at) = (text("/metadata/uid"), text("/metadata/deletionTimestamp"));
    let gone = if Uid::from(uid) != *wanted {
        let kind = &resource.kind;
        unknown(format!("original {kind} {key} is gone: got uid {uid}, wanted {wanted}"))
    } else if !deleted_at.is_empty() {
        format!("{key} has just been deleted at {deleted_at}")
    } else {
        return Ok(());
    };
    Err(ApiError::transport(ErrorReason::Other, gone))
}
