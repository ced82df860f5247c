//! Executes plans: checks grants and guards, sends the writes, and reports them to the gate.

mod patch_metadata;
mod unknown_outcome;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use keleustes_client::{Call, DeleteOptions, ListPage, ListWatch, PatchType, WriteResponse};
use keleustes_objects::{ApiError, DiscoveredResources, ErrorReason, Key, Resource, ResourceVersion, Uid};
use keleustes_plan::{
    Action, Applied, Controller, Edit, Edited, FetchResult, Grant, Guard, Item, ListRequest, ListResult,
    MetadataPage, OnFailure, Outcome, PageRequest, PatchKind, Plan, PlannedEvent, PropagationPolicy,
    ReadRequest, ReconcileError, Step, Target, Write,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::caches::{self, Caches};
use crate::clock::Clocks;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::status_coalescing::StatusCoalescer;

pub use self::unknown_outcome::UnknownWrites;

/// The documents of the API server have up to three megabytes.
const OPENAPI_BYTES_MAX: usize = 64 << 20;

/// Executes the plans of one loop.
pub struct Executor {
    /// The controller's name, for logs.
    pub controller: &'static str,
    /// What the controller may read live and write.
    pub grants: &'static [Grant],
    /// The client with the controller's credentials.
    pub client: kube::Client,
    /// Holds the key back until the caches have observed its writes.
    pub gate: Arc<Gate>,
    /// The writes whose outcome must be found out before their key is reconciled again.
    pub unknown_writes: UnknownWrites,
    /// The caches, which keep the written resourceVersions for the handover record.
    pub caches: Caches,
    /// Coalesces status writes.
    pub status_coalescer: Arc<Mutex<StatusCoalescer>>,
    /// The clocks.
    pub clocks: Clocks,
    /// Whether this process still leads. Checked before every write, so that a process that was suspended
    /// past its lease writes nothing when it resumes.
    pub is_leader: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Records events.
    pub record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
    /// Observes measurements.
    pub metrics: Metrics,
    /// How many writes of one plan may be in flight at once.
    pub in_flight_max: usize,
    /// Holds the latest writes and events.
    pub journal: Journal,
    /// Randomness for the waits after conflicts.
    pub random: Mutex<fastrand::Rng>,
}

/// How long to wait before reading again after a conflict; up to twice that, at random.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);
/// Also part of event messages that report a failed write.
const NOT_LEADING: &str = "not sent: this process does not lead any more";

impl Executor {
    /// Executes a plan for an item.
    ///
    /// # Panics
    /// If the plan holds a write that the controller's grants do not cover; none of its writes is sent then.
    pub async fn apply(&self, item: &Item, plan: Plan) -> Applied {
        for write in plan.steps().iter().flat_map(Step::writes) {
            self.assert_granted(write);
        }
        let mut applied =
            Applied { error: plan.error_message().map(ReconcileError::because), ..Applied::default() };
        let mut stopped = !(self.is_leader)();
        if stopped {
            applied.error = Some(ReconcileError::from_api_error(&not_leading(), NOT_LEADING));
        } else {
            for event in plan.events() {
                self.record_event(item, event.clone());
            }
            plan.measurements().iter().for_each(|measurement| self.metrics.measure(measurement));
        }
        let guards = Guards::default();
        for step in plan.steps() {
            match step {
                _ if stopped => applied.outcomes.extend(step.writes().iter().map(|_| Outcome::NotSent)),
                Step::One(write) => {
                    let outcome = self.write(item, write, &guards).await;
                    stopped = self.record_outcome(item, &mut applied, write, outcome);
                }
                Step::SlowStart(writes) => {
                    stopped = self.slow_start(item, writes, &guards, &mut applied).await;
                }
                Step::Parallel(writes) => {
                    stopped = self.parallel(item, writes, &guards, &mut applied).await;
                }
            }
        }
        applied
    }

    /// Reads one object live, as JSON.
    ///
    /// # Errors
    /// If there is no response, or one that is neither the object nor "not found".
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn fetch(&self, resource: &Resource, key: &Key) -> FetchResult {
        self.read(resource, &Call::get(resource, key)).await
    }

    /// Reads objects live, with up to `in_flight_max` requests at once: one result for each key, in order.
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn fetch_all(&self, resource: &Resource, keys: &[Key]) -> Vec<FetchResult> {
        let requests: Vec<_> = keys.iter().map(|key| self.fetch(resource, key)).collect();
        stream::iter(requests).buffered(self.in_flight_max.max(1)).collect().await
    }

    /// Reads the metadata of one object live, as JSON.
    ///
    /// # Errors
    /// If there is no response, or one that is neither the object nor "not found".
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn fetch_metadata(&self, resource: &Resource, key: &Key) -> FetchResult {
        self.read(resource, &Call::get(resource, key).metadata_only()).await
    }

    async fn read(&self, resource: &Resource, call: &Call) -> FetchResult {
        self.assert_may(resource, "get");
        decode_read(call.send_for_bytes(&self.client).await)
    }

    /// Lists live, with up to `in_flight_max` requests at once: one result for each request, in order.
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn list(&self, listings: &[ListRequest]) -> Vec<ListResult> {
        let list_one = |listing: &ListRequest| {
            let ListRequest { kind, namespace, limit: at_most, label_selector, field_selector } = listing;
            self.assert_may(kind.resource(), "list");
            let source = caches::source(kind).in_namespace(&**namespace);
            let source = source.selecting(label_selector, field_selector);
            let (client, at_most) = (self.client.clone(), *at_most);
            async move { source.list(&client, at_most).await }
        };
        let requests: Vec<_> = listings.iter().map(list_one).collect();
        stream::iter(requests).buffered(self.in_flight_max.max(1)).collect().await
    }

    /// Reads what is not an object of a known kind, as JSON.
    ///
    /// # Errors
    /// If there is no response, or one that is larger than allowed or neither a success nor "not found".
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn read_any(&self, request: &ReadRequest) -> FetchResult {
        let ReadRequest { resource, key, subresource, query, bytes_max, not_found_is_error } = request;
        self.assert_may_read(resource, subresource, request.verb());
        let mut call = Call::read(resource, key, subresource);
        call.query = query.clone();
        match call.send_for_limited_bytes(&self.client, *bytes_max).await {
            Err(failure) if failure.reason == ErrorReason::NotFound && *not_found_is_error => Err(failure),
            response => decode_read(response),
        }
    }

    /// Lists one page of the live metadata of a resource.
    ///
    /// # Errors
    /// If the request fails, or an object cannot be decoded.
    ///
    /// # Panics
    /// If the controller's grants do not cover it.
    pub async fn list_page(&self, request: &PageRequest) -> Result<MetadataPage, ApiError> {
        let PageRequest { resource, namespace, limit, continue_token } = request;
        self.assert_may(resource, "list");
        let source = ListWatch::metadata_of(resource.clone()).in_namespace(namespace);
        let page = source.list_page(&self.client, *limit, continue_token.clone()).await?;
        let ListPage { resource_version, objects, next } = page;
        Ok(MetadataPage { resource_version, continue_token: next, objects })
    }

    /// Reads an OpenAPI v3 document, which every authenticated user may do.
    ///
    /// # Errors
    /// If the request fails or the response is too large.
    pub async fn read_openapi(&self, document: &str, hash: &str) -> FetchResult {
        let call = Call::openapi(document, hash);
        decode_read(call.send_for_limited_bytes(&self.client, OPENAPI_BYTES_MAX).await)
    }

    /// Runs API discovery.
    ///
    /// # Errors
    /// If nothing at all could be discovered.
    pub async fn discover(&self) -> Result<DiscoveredResources, ApiError> {
        keleustes_client::discover(&self.client).await
    }

    /// Sends batches of 1, 2, 4 and so on; a batch with a failure is the last one. Returns whether a failure
    /// stops the plan, too.
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
                stops |= self.record_outcome(item, applied, write, outcome);
            }
            rest = after;
            size = (size * 2).min(self.in_flight_max.max(1));
        }
        applied.outcomes.extend(rest.iter().map(|_| Outcome::NotSent));
        stops
    }

    /// Sends all writes, with up to `in_flight_max` at once. Returns whether a failure stops the plan.
    async fn parallel(&self, item: &Item, writes: &[Write], guards: &Guards, applied: &mut Applied) -> bool {
        let sent: Vec<_> = writes.iter().map(|write| self.write(item, write, guards)).collect();
        let outcomes: Vec<_> = stream::iter(sent).buffered(self.in_flight_max.max(1)).collect().await;
        let results = writes
            .iter()
            .zip(outcomes)
            .map(|(write, outcome)| self.record_outcome(item, applied, write, outcome));
        results.fold(false, |stops, stopped| stops | stopped)
    }

    fn record_event(&self, item: &Item, event: PlannedEvent) {
        self.journal.record_event(self.controller, item, &event);
        (self.record)(event);
    }

    /// Adds an outcome to `applied` and returns whether it stops the plan.
    fn record_outcome(&self, item: &Item, applied: &mut Applied, write: &Write, outcome: Outcome) -> bool {
        let mut stops = false;
        self.journal.record_write(self.controller, item, write, &outcome);
        if let Some(event) = write.outcome_event.as_ref().and_then(|report| report(&outcome)) {
            self.record_event(item, event);
        }
        match &outcome {
            Outcome::Done { .. } => tracing::debug!(controller = self.controller, "{write}"),
            Outcome::Unneeded | Outcome::NotSent => {}
            Outcome::Failed(failure) => {
                stops = write.on_failure == OnFailure::StopAndRetry;
                match write.on_failure {
                    OnFailure::ReturnOutcome => {}
                    OnFailure::LogOnly => {
                        let failure = write.failure_text(failure);
                        tracing::error!(
                            controller = self.controller,
                            failure,
                            "{write}: failed, will not be retried"
                        );
                    }
                    OnFailure::StopAndRetry | OnFailure::ContinueAndRetry => {
                        // The first failure is the reason; the longest Retry-After is kept.
                        let again = ReconcileError::from_write(write, failure);
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

    /// A real cluster's RBAC would refuse what the role does not grant; this assertion makes every test
    /// refuse it, too.
    pub(crate) fn assert_granted(&self, write: &Write) {
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
        self.assert_may_read(resource, "", verb);
    }

    fn assert_may_read(&self, resource: &Resource, subresource: &str, verb: &str) {
        let controller = self.controller;
        assert!(
            self.grants.iter().any(|grant| grant.covers(resource, subresource, verb)),
            "{controller} may not {verb} {resource} {subresource}: its grants do not cover it"
        );
    }

    async fn write(&self, item: &Item, write: &Write, guards: &Guards) -> Outcome {
        if let Some(urgency) = write.status_urgency
            && !self.status_coalescer.lock().may_write_now(item.key(), urgency, self.clocks.monotonic())
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
            Action::PatchMetadata(patch_metadata) => self.patch_metadata(&write.target, patch_metadata).await,
            Action::Put { body, conflict_tries, .. } => self.put(write, body, *conflict_tries).await,
            Action::DeleteCollection { propagation } => {
                return self.delete_collection(&write.target, *propagation, write.ignored_errors).await;
            }
            _ => self.send(&call_for(write), write.returns_object).await.map(Some),
        };
        match result {
            Ok(Some(answer)) => {
                if write.status_urgency.is_some() {
                    self.status_coalescer.lock().record_write(item.key(), self.clocks.monotonic());
                }
                self.record_success(item, write, answer)
            }
            Ok(None) => Outcome::Unneeded,
            Err(failure) if write.ignored_errors.contains(&failure.reason) => {
                self.expect_after_error(item, write, failure.reason);
                Outcome::done()
            }
            Err(failure) => {
                if failure.may_have_taken_effect() {
                    self.record_unknown_write(item, write);
                }
                Outcome::Failed(failure)
            }
        }
    }

    /// The last check before a request is sent: only a leader writes.
    async fn send(&self, call: &Call, returns_object: bool) -> Result<WriteResponse, ApiError> {
        let written_versions = self.caches.written_versions();
        let in_flight = written_versions.begin_write();
        let answer = match self.check_leading() {
            Ok(()) if returns_object => call.send_for_object(&self.client).await,
            Ok(()) => call.send_for_metadata(&self.client).await,
            Err(refused) => {
                in_flight.finish();
                return Err(refused);
            }
        };
        if answer.as_ref().is_err_and(ApiError::may_have_taken_effect) {
            written_versions.record_unknown_outcome();
        }
        in_flight.finish();
        answer
    }

    fn check_leading(&self) -> Result<(), ApiError> {
        if (self.is_leader)() { Ok(()) } else { Err(not_leading()) }
    }

    /// The response lists all deleted objects; it is not read, and a lost one does not hold the item back: there is no
    /// object whose state would show the outcome. The namespace controller, the only one that deletes collections,
    /// lists each of them live before it deletes anything and before it removes the finalizer.
    async fn delete_collection(
        &self,
        target: &Target,
        propagation: Option<PropagationPolicy>,
        tolerated: &[ErrorReason],
    ) -> Outcome {
        let deletion = DeleteOptions {
            propagation_policy: propagation.map(delete_propagation),
            ..DeleteOptions::default()
        };
        let call = Call::delete_collection(&target.resource, &target.key.namespace, &deletion);
        let written_versions = self.caches.written_versions();
        let in_flight = written_versions.begin_write();
        let sent = match self.check_leading() {
            Ok(()) => {
                // Which objects were deleted, and at which resourceVersions, is not known.
                written_versions.record_unknown_outcome();
                call.send_discarding_body(&self.client).await
            }
            refused => refused,
        };
        in_flight.finish();
        match sent {
            Err(failure) if !tolerated.contains(&failure.reason) => Outcome::Failed(failure),
            _ => Outcome::done(),
        }
    }

    fn record_success(&self, item: &Item, write: &Write, answer: WriteResponse) -> Outcome {
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
        let WriteResponse { resource_version: version, uid, key, creation_timestamp, object, .. } = answer;
        let name = if key.name.is_empty() { target.key.name.clone() } else { key.name };
        Outcome::Done {
            resource_version: version,
            uid,
            name,
            creation_timestamp,
            object: object.map(Arc::new),
        }
    }

    /// A tolerated error may show that the cache is stale. A reconcile before the cache has caught up would
    /// lead to the same error.
    fn expect_after_error(&self, item: &Item, write: &Write, reason: ErrorReason) {
        let Target { resource, key, uid, .. } = &write.target;
        match (&write.action, reason) {
            (Action::Create(_), ErrorReason::AlreadyExists) => self.gate.expect_present(item, resource, key),
            // The object may exist with another resourceVersion.
            (Action::Delete { resource_version_precondition: Some(_), .. }, ErrorReason::Conflict) => {}
            (Action::Delete { .. }, ErrorReason::NotFound | ErrorReason::Conflict) => {
                self.gate.expect_deleted(item, resource, key, uid);
            }
            _ => {}
        }
    }

    /// Reads, changes and updates the object, again after a conflict. `None` if there was nothing to write.
    async fn edit(&self, write: &Write, edit: &Edit) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, .. } = &write.target;
        for tries_left in (0..edit.conflict_tries).rev() {
            let mut live: Value = match Call::get(resource, key).send(&self.client).await {
                Ok(live) => live,
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let uid_changed = !write.target.allows_uid(&Uid::from(text("/metadata/uid")));
            let version = ResourceVersion::from(text("/metadata/resourceVersion"));
            let is_stale = edit
                .expected_resource_version
                .as_ref()
                .is_some_and(|expected_resource_version| *expected_resource_version != version);
            if uid_changed || is_stale {
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
            let call = with_subresource(Call::replace(resource, key, &live), edit.subresource);
            match self.send(&call, write.returns_object).await {
                Err(failure) if failure.reason == ErrorReason::Conflict && tries_left > 0 => {
                    self.wait_after_conflict().await;
                }
                // It was deleted between the read and the update.
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                answer => return answer.map(Some),
            }
        }
        unreachable!("the last try returns its result")
    }

    /// Updates an object with a body computed from the cache. After a conflict, the same part is put into the
    /// live object: another client has changed another part of it, or the cache was stale.
    async fn put(&self, write: &Write, body: &Value, tries: u32) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, .. } = &write.target;
        let part = write.subresource();
        // A Scale has its own kind, which it was read with, and its absence is an error.
        let is_scale = part == "scale";
        let body_with_type = if is_scale { body.clone() } else { with_type(resource, body) };
        let call = with_subresource(Call::replace(resource, key, &body_with_type), part);
        match self.send(&call, write.returns_object).await {
            Err(failure) if failure.reason == ErrorReason::Conflict && tries > 1 && !part.is_empty() => {}
            Err(failure) if failure.reason == ErrorReason::NotFound && !is_scale => return Ok(None),
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
        let jitter = self.random.lock().f64();
        tokio::time::sleep(CONFLICT_WAIT.mul_f64(1.0 + jitter)).await;
    }
}

/// Like a refused connection: nothing was sent that would have to be looked up, and the item is not to blame. It
/// is reconciled again, because a late renewal may let this process lead on.
fn not_leading() -> ApiError {
    ApiError::transport(ErrorReason::ConnectionRefused, NOT_LEADING)
}

fn decode_read(response: Result<Bytes, ApiError>) -> FetchResult {
    match response {
        Ok(bytes) => String::from_utf8(bytes.to_vec())
            .map(Some)
            .map_err(|_| ApiError::transport(ErrorReason::UnreadableResponse, "the answer is not UTF-8")),
        Err(failure) if failure.reason == ErrorReason::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn with_subresource(call: Call, subresource: &str) -> Call {
    if subresource.is_empty() { call } else { call.subresource(subresource) }
}

/// The request of a write. Actions that may need a read first are not handled here.
fn call_for(write: &Write) -> Call {
    let Target { resource, key, .. } = &write.target;
    match &write.action {
        Action::Create(body) => Call::create(resource, &key.namespace, &with_type(resource, body)),
        Action::Apply { manager, fields, subresource } => {
            let mut fields = with_type(resource, fields);
            fields["metadata"]["name"] = json!(key.name);
            let form = PatchType::Apply { manager: (*manager).to_owned(), force: true };
            with_subresource(Call::patch(resource, key, form, &fields), subresource)
        }
        Action::Patch { form, body, subresource } => {
            let form = match form {
                PatchKind::Merge => PatchType::Merge,
                PatchKind::Strategic => PatchType::Strategic,
            };
            let mut body = body.clone();
            if let Some(uid) = write.target.expected_uid() {
                // The API server refuses a patch that changes the UID, so this acts as a UID precondition.
                body["metadata"]["uid"] = json!(uid);
            }
            let call = Call::patch(resource, key, form, &body);
            let call = match write.field_manager {
                "" => call,
                manager => call.query("fieldManager", manager),
            };
            with_subresource(call, subresource)
        }
        Action::Delete { propagation, grace_seconds, resource_version_precondition } => {
            let propagation = propagation.map(delete_propagation);
            let uid = write.target.expected_uid().cloned();
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
            unreachable!("sent by their own methods")
        }
    }
}

fn delete_propagation(propagation: PropagationPolicy) -> keleustes_client::PropagationPolicy {
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
        let result = recheck_owner(executor, owner).await;
        checked.push((guard.clone(), result.clone()));
        result
    }
}

/// Reads an owner live: it must have the expected UID and no deletionTimestamp.
async fn recheck_owner(executor: &Executor, owner: &Target) -> Result<(), ApiError> {
    let Target { resource, key, uid: wanted, .. } = owner;
    let unknown = |why: String| format!("can't recheck DeletionTimestamp: {why}");
    let live: Value = match Call::get(resource, key).send(&executor.client).await {
        Ok(live) => live,
        Err(failure) => return Err(ApiError { message: unknown(failure.to_string()), ..failure }),
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (uid, deletion_timestamp) = (text("/metadata/uid"), text("/metadata/deletionTimestamp"));
    let message = if Uid::from(uid) != *wanted {
        let kind = &resource.kind;
        unknown(format!("original {kind} {key} is gone: got uid {uid}, wanted {wanted}"))
    } else if !deletion_timestamp.is_empty() {
        format!("{key} has just been deleted at {deletion_timestamp}")
    } else {
        return Ok(());
    };
    Err(ApiError::transport(ErrorReason::Other, message))
}
