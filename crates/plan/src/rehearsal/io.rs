//! The I/O of a rehearsal: reads come from its in-memory objects, writes change them and go to the transcript.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ApiError, ArcStr, DiscoveredResources, Encoded, ErrorReason, Key, Resource, ResourceVersion, Time,
    TypeMeta, Uid,
};
use serde_json::Value;

use super::RehearsalCluster;
use crate::{
    Action, Applied, BoxFuture, Edited, Effects, EnqueueTiming, EnqueuedItem, FetchResult, ListRequest,
    ListResult, Measurement, MetadataPage, MonitorState, OnFailure, Outcome, PageRequest, PatchMetadata,
    Plan, PlannedEvent, ReadRequest, ReconcileError, ReconcileIo, Step, Target, View, Write,
};

/// Applies plans to the live objects of a [`RehearsalCluster`] and writes the transcript.
pub(super) struct RehearsalIo<'c> {
    pub(super) cluster: &'c mut RehearsalCluster,
    pub(super) transcript: String,
}

impl RehearsalIo<'_> {
    fn apply_now(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        if let Some(message) = plan.error_message() {
            applied.error = Some(ReconcileError::because(message));
        }
        let mut stopped = !self.cluster.leads;
        if stopped {
            applied.error = Some(ReconcileError::because("not sent: this process does not lead any more"));
        } else {
            plan.measurements().iter().for_each(|measurement| self.write_measurement(measurement));
            plan.events().iter().for_each(|event| self.write_event(event));
        }
        for step in plan.steps() {
            let mut ended = stopped;
            for batch in batches(step) {
                let mut failed = false;
                for write in batch {
                    let outcome = if ended { Outcome::NotSent } else { self.write(write) };
                    failed |= matches!(outcome, Outcome::Failed(_));
                    stopped |= self.record_outcome(&mut applied, write, outcome);
                }
                ended |= failed;
            }
        }
        applied
    }

    /// Records an outcome and returns whether it stops the plan.
    fn record_outcome(&mut self, applied: &mut Applied, write: &Write, outcome: Outcome) -> bool {
        let mut stops = false;
        if let Outcome::Failed(failure) = &outcome {
            stops = write.on_failure == OnFailure::StopAndRetry;
            if !matches!(write.on_failure, OnFailure::LogOnly | OnFailure::ReturnOutcome) {
                applied.error.get_or_insert_with(|| ReconcileError::from_write(write, failure));
            }
        }
        if let Some(event) = write.outcome_event.as_ref().and_then(|event| event(&outcome)) {
            self.write_event(&event);
        }
        applied.outcomes.push(outcome);
        stops
    }

    fn write_event(&mut self, event: &PlannedEvent) {
        let _ = writeln!(self.transcript, "event {event}");
    }

    pub(super) fn write_measurement(&mut self, measurement: &Measurement) {
        let Measurement { metric, labels, value, is_removal } = measurement;
        let value = if *is_removal { "removed".to_owned() } else { value.to_string() };
        let _ = writeln!(self.transcript, "measure {}{{{}}} {value}", metric.name, labels.join(","));
    }

    fn write(&mut self, write: &Write) -> Outcome {
        let path = match &write.action {
            Action::DeleteCollection { .. } => {
                write.target.resource.collection_path(&write.target.key.namespace)
            }
            _ => write.target.resource.object_path(&write.target.key),
        };
        if let Some(failure) = write.guard.as_ref().and_then(|guard| self.cluster.guard_failure(guard)) {
            let _ = writeln!(self.transcript, "{write} FAILED: {failure}");
            return Outcome::Failed(failure);
        }
        let failure = self.cluster.next_failure(write.verb(), &path);
        let result = match (failure, &write.action) {
            (Some(failure), _) if write.ignored_errors.contains(&failure.reason) => {
                let _ = writeln!(self.transcript, "{write} (ignored: {failure})");
                return Outcome::done();
            }
            (Some(failure), Action::Put { .. }) if failure.reason == ErrorReason::NotFound => {
                let _ = writeln!(self.transcript, "{write} (gone)");
                return Outcome::Unneeded;
            }
            (Some(failure), Action::Put { body, subresource, conflict_tries })
                if failure.reason == ErrorReason::Conflict
                    && *conflict_tries > 1
                    && !subresource.is_empty() =>
            {
                let _ = writeln!(self.transcript, "{write} FAILED: {failure}");
                return self.put_to_live(write, &body[*subresource], *conflict_tries - 1, &path);
            }
            (Some(failure), _) => Err(failure),
            (
                None,
                Action::Create(body)
                | Action::Apply { fields: body, .. }
                | Action::Patch { body, .. }
                | Action::Put { body, .. },
            ) => Ok(format!(": {body}")),
            (None, Action::Edit(edit)) => return self.edit(write, edit, &path),
            (None, Action::PatchMetadata(patch)) => return self.patch_metadata(write, patch, &path),
            (None, Action::Delete { propagation, resource_version_precondition, .. }) => {
                self.cluster.delete(&path);
                let policy = propagation.map_or(String::new(), |policy| format!(" ({policy:?})"));
                let state = resource_version_precondition
                    .as_ref()
                    .map_or(String::new(), |version| format!(" at {version}"));
                Ok(format!("{policy}{state}"))
            }
            (None, Action::DeleteCollection { .. }) => {
                self.cluster.paths_below(&path).iter().for_each(|path| self.cluster.delete(path));
                Ok(String::new())
            }
        };
        let (note, outcome) = match result {
            Ok(note) => {
                let stored = self.cluster.next_stored(write.verb(), &path);
                (note, with_stored(success_of(write, self.cluster.now.wall), write, stored))
            }
            Err(failure) => (format!(" FAILED: {failure}"), Outcome::Failed(failure)),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }

    /// Puts a subresource into the live object after a conflict, as the executor does.
    fn put_to_live(&mut self, write: &Write, wanted: &Value, tries: u32, path: &str) -> Outcome {
        let (Target { resource, key, uid, .. }, part) = (&write.target, write.subresource());
        for tries_left in (0..tries).rev() {
            let live = match self.get(resource, key) {
                Ok(live) => live.and_then(|live| serde_json::from_str::<Value>(&live).ok()),
                Err(failure) => return Outcome::Failed(failure),
            };
            let is_same =
                |live: &Value| Uid::from(live["metadata"]["uid"].as_str().unwrap_or_default()) == *uid;
            let Some(mut live) = live.filter(is_same) else {
                let _ = writeln!(self.transcript, "{write} (gone)");
                return Outcome::Unneeded;
            };
            if live[part] == *wanted {
                let _ = writeln!(self.transcript, "{write} (unneeded)");
                return Outcome::Unneeded;
            }
            live[part] = wanted.clone();
            let Some(failure) = self.cluster.next_failure(write.verb(), path) else {
                let _ = writeln!(self.transcript, "{write}: {live}");
                self.cluster.live.insert(path.to_owned(), live);
                return success_of(write, self.cluster.now.wall);
            };
            let _ = writeln!(self.transcript, "{write} FAILED: {failure}");
            if failure.reason != ErrorReason::Conflict || tries_left == 0 {
                return Outcome::Failed(failure);
            }
        }
        unreachable!("a write with a second attempt has at least one left")
    }

    fn get(&mut self, resource: &Resource, key: &Key) -> FetchResult {
        let path = resource.object_path(key);
        let _ = writeln!(self.transcript, "get {resource} {key}");
        match self.cluster.next_failure("get", &path) {
            Some(failure) => Err(failure),
            None => Ok(self.cluster.live.get(&path).map(Value::to_string)),
        }
    }

    fn list_now(&mut self, request: &ListRequest) -> ListResult {
        let ListRequest { kind, namespace, limit, label_selector, field_selector } = request;
        let path = kind.resource().collection_path(namespace);
        let at_most = limit.map_or(String::new(), |limit| format!("at most {limit} of "));
        let mut selected = String::new();
        for (name, selector) in [("labels", label_selector), ("fields", field_selector)] {
            if !selector.is_empty() {
                let _ = write!(selected, " with {name} {selector}");
            }
        }
        let _ = writeln!(self.transcript, "list {at_most}{} in {namespace}{selected}", kind.resource());
        if let Some(failure) = self.cluster.next_failure("list", &path) {
            return Err(failure);
        }
        let paths = self.cluster.paths_below(&path).into_iter();
        let selected = paths.filter(|path| {
            let object = &self.cluster.live[path];
            selects_labels(label_selector, object) && selects_fields(field_selector, object)
        });
        let texts = selected.map(|path| self.cluster.live[&path].to_string());
        let decode =
            |text: String| kind.decoder().decode(Encoded::Json(&text)).expect("a well-formed object");
        Ok(texts.map(decode).take(limit.map_or(usize::MAX, |limit| limit as usize)).collect())
    }

    /// The token of a page is the number of objects before it.
    fn page_now(&mut self, request: &PageRequest) -> Result<MetadataPage, ApiError> {
        let PageRequest { resource, namespace, limit, continue_token } = request;
        let at_most = limit.map_or(String::new(), |limit| format!(" of at most {limit}"));
        let after = continue_token.as_ref().map_or(String::new(), |token| format!(" after {token}"));
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let _ = writeln!(self.transcript, "page{at_most} {resource}{place}{after}");
        if let Some(failure) = self.cluster.next_failure("list", &resource.collection_path(namespace)) {
            return Err(failure);
        }
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = |object: &Value| Key::namespaced(&*text(object, "namespace"), &*text(object, "name"));
        let listed: Vec<&Value> = (self.cluster.live.iter())
            .filter(|(path, object)| {
                **path == resource.object_path(&key(object))
                    && (namespace.is_empty() || text(object, "namespace") == *namespace)
            })
            .map(|(_, object)| object)
            .collect();
        let start = continue_token.as_ref().map_or(0, |token| token.parse().expect("a token of a page"));
        let end = limit.map_or(listed.len(), |limit| listed.len().min(start + limit as usize));
        let decode =
            |object: &&Value| serde_json::from_value((*object).clone()).expect("a well-formed object");
        Ok(MetadataPage {
            resource_version: self.cluster.list_version.clone(),
            continue_token: (end < listed.len()).then(|| end.to_string()),
            objects: listed[start..end].iter().map(decode).collect(),
        })
    }

    fn edit(&mut self, write: &Write, edit: &crate::Edit, path: &str) -> Outcome {
        let Some(live) = self.cluster.live.get_mut(path) else {
            let _ = writeln!(self.transcript, "{write} (gone)");
            return Outcome::Unneeded;
        };
        let live_version =
            ResourceVersion::from(live["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        if edit.expected_resource_version.as_ref().is_some_and(|expected| *expected != live_version) {
            let _ = writeln!(self.transcript, "{write} (resourceVersion changed)");
            return Outcome::Unneeded;
        }
        let old = live.clone();
        let (note, outcome) = match (edit.change)(live) {
            Edited::Changed if *live == old => {
                unreachable!("an edit returned Changed for an unchanged object")
            }
            Edited::Changed => {
                let (uid, name) = (Uid::default(), write.target.key.name.clone());
                let done = Outcome::Done {
                    resource_version: live_version,
                    uid,
                    name,
                    creation_timestamp: None,
                    object: write.returns_object.then(|| Arc::new(live.clone())),
                };
                (String::new(), done)
            }
            Edited::Unneeded => (" (unneeded)".to_owned(), Outcome::Unneeded),
            Edited::Impossible(reason) => (format!(" (impossible: {reason})"), Outcome::Unneeded),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }
}

impl RehearsalIo<'_> {
    fn patch_metadata(&mut self, write: &Write, patch: &PatchMetadata, path: &str) -> Outcome {
        let Target { uid, .. } = &write.target;
        let live = self.cluster.live.get(path).map(|object| &object["metadata"]);
        let live = live.filter(|metadata| Uid::from(metadata["uid"].as_str().unwrap_or_default()) == *uid);
        let fields = live.and_then(|metadata| (patch.fields)(metadata));
        let note = fields.as_ref().map_or_else(|| " (unneeded)".to_owned(), |fields| format!(": {fields}"));
        let _ = writeln!(self.transcript, "{write}{note}");
        if fields.is_some() { success_of(write, self.cluster.now.wall) } else { Outcome::Unneeded }
    }
}

impl ReconcileIo for RehearsalIo<'_> {
    fn may_change_host(&self) -> bool {
        self.cluster.leads
    }

    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        f(&self.cluster.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.apply_now(&plan);
        Box::pin(async move { applied })
    }

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        let results = keys.iter().map(|key| self.get(resource, key)).collect();
        Box::pin(async move { results })
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        let result = self.get(resource, key);
        Box::pin(async move { result })
    }

    fn resource_of<'a>(
        &'a mut self,
        kind: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        let served = self.cluster.discovery.clone().map(|discovery| {
            let resources = discovery.resources.into_iter().map(|served| served.resource);
            resources.into_iter().find(|resource| TypeMeta::of(resource) == *kind)
        });
        Box::pin(async move { served })
    }

    fn effects(&mut self, mut effects: Effects) {
        for EnqueuedItem { queue, item, timing } in effects.take_enqueued() {
            let queue = queue.map_or_else(String::new, |queue| format!(" in {queue}"));
            let timing = match timing {
                EnqueueTiming::Now => String::new(),
                EnqueueTiming::After(delay) => format!(" after {delay:?}"),
                EnqueueTiming::RateLimited => " rate limited".to_owned(),
            };
            let _ = writeln!(self.transcript, "enqueue {item}{queue}{timing}");
        }
        effects.take_measurements().iter().for_each(|measurement| self.write_measurement(measurement));
        effects.take_events().iter().for_each(|event| self.write_event(event));
    }

    fn list<'a>(&'a mut self, requests: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        let results = requests.iter().map(|request| self.list_now(request)).collect();
        Box::pin(async move { results })
    }

    fn read<'a>(&'a mut self, request: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        let (verb, path) = (request.verb(), request.path());
        let query: Vec<_> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let _ = writeln!(self.transcript, "{verb} {path}{query}");
        let result = match self.cluster.next_failure(verb, &path) {
            Some(failure) => Err(failure),
            None => Ok(self.cluster.live.get(&path).map(Value::to_string)),
        };
        let result = match result {
            Ok(None) if request.not_found_is_error => {
                let message = "the server could not find the requested resource";
                Err(ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, message) })
            }
            result => result,
        };
        let too_large = |json: &String| json.len() > request.bytes_max;
        let result = match result {
            Ok(Some(json)) if too_large(&json) => {
                Err(ApiError::transport(ErrorReason::UnreadableResponse, "the response is too large"))
            }
            result => result,
        };
        Box::pin(async move { result })
    }

    fn list_page<'a>(
        &'a mut self,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<MetadataPage, ApiError>> {
        let page = self.page_now(request);
        Box::pin(async move { page })
    }

    fn monitor<'a>(&'a mut self, resource: &'a Resource, _wait: Duration) -> BoxFuture<'a, MonitorState> {
        let state = self.cluster.monitors.get(resource).cloned().unwrap_or(MonitorState::Missing);
        Box::pin(async move { state })
    }

    fn read_openapi<'a>(&'a mut self, document: &'a str, _: &'a str) -> BoxFuture<'a, FetchResult> {
        let path =
            if document.is_empty() { "/openapi/v3".to_owned() } else { format!("/openapi/v3/{document}") };
        let _ = writeln!(self.transcript, "get {path}");
        let result = match self.cluster.next_failure("get", &path) {
            Some(failure) => Err(failure),
            None => Ok(self.cluster.live.get(&path).map(Value::to_string)),
        };
        Box::pin(async move { result })
    }

    fn cached_discovery(&mut self) -> BoxFuture<'_, Result<Arc<DiscoveredResources>, ApiError>> {
        let discovery = self.cluster.discovery.clone().map(Arc::new);
        Box::pin(async move { discovery })
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        self.transcript.push_str("discover\n");
        let discovery = self.cluster.discovery.clone();
        Box::pin(async move { discovery })
    }
}

/// The batches of a step; the writes of a batch are sent concurrently.
fn batches(step: &Step) -> Vec<&[Write]> {
    let (mut rest, mut batches) = (step.writes(), Vec::new());
    let mut size = if matches!(step, Step::SlowStart(_)) { 1 } else { rest.len() };
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(size.min(rest.len()));
        batches.push(batch);
        (rest, size) = (after, size * 2);
    }
    batches
}

/// The outcome of a successful write at this time. A generated name ends in `new`.
fn success_of(write: &Write, now: Time) -> Outcome {
    let name = match &write.action {
        Action::Create(body) if write.target.key.name.is_empty() => {
            ArcStr::from(format!("{}new", body["metadata"]["generateName"].as_str().unwrap_or_default()))
        }
        _ => write.target.key.name.clone(),
    };
    let creation_timestamp = matches!(write.action, Action::Create(_)).then_some(now);
    Outcome::Done {
        resource_version: ResourceVersion::default(),
        uid: Uid::default(),
        name,
        creation_timestamp,
        object: None,
    }
}

/// Adds the stored object to the outcome of a write that asks for it: the one that the test set, or the body.
fn with_stored(mut outcome: Outcome, write: &Write, stored: Option<Value>) -> Outcome {
    if let Outcome::Done { object, .. } = &mut outcome
        && write.returns_object
    {
        let body = match &write.action {
            Action::Create(body) | Action::Put { body, .. } => Some(body.clone()),
            _ => None,
        };
        *object = stored.or(body).map(Arc::new);
    }
    outcome
}

/// Whether a label selector that consists of equality requirements selects an object.
fn selects_labels(selector: &str, object: &Value) -> bool {
    let holds = |(key, value): (&str, &str)| object["metadata"]["labels"][key] == value;
    requirements(selector).all(holds)
}

/// Whether a field selector that consists of equality requirements selects an object. An absent field is empty.
fn selects_fields(selector: &str, object: &Value) -> bool {
    let holds = |(path, value): (&str, &str)| {
        let field = path.split('.').fold(object, |object, name| &object[name]);
        field.as_str().unwrap_or_default() == value
    };
    requirements(selector).all(holds)
}

fn requirements(selector: &str) -> impl Iterator<Item = (&str, &str)> {
    selector.split(',').filter(|one| !one.is_empty()).map(|requirement| {
        requirement.split_once('=').expect("the rehearsal knows equality requirements only")
    })
}
