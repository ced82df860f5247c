//! The I/O of a rehearsal: reads come from its in-memory objects, writes change them and go to the transcript.

use std::fmt::Write as _;

use keleustes_objects::{
    ApiError, ArcStr, DiscoveredResources, Encoded, ErrorReason, Key, Resource, ResourceVersion, TypeMeta,
    Uid,
};
use serde_json::Value;

use super::RehearsalCluster;
use crate::{
    Action, Applied, BoxFuture, Edited, Effects, EnqueuedItem, FetchResult, Item, ListRequest, ListResult,
    Measurement, OnFailure, Outcome, PatchMetadata, Plan, PlannedEvent, ReconcileError, ReconcileIo, Step,
    Target, View, Write,
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
        for measurement in plan.measurements() {
            self.write_measurement(measurement);
        }
        for event in plan.events() {
            self.write_event(event);
        }
        let mut stopped = false;
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
                applied.error.get_or_insert_with(|| ReconcileError::because(failure.to_string()));
            }
        }
        if let Some(event) = write.outcome_event.as_ref().and_then(|event| event(&outcome)) {
            self.write_event(&event);
        }
        applied.outcomes.push(outcome);
        stops
    }

    fn write_event(&mut self, event: &PlannedEvent) {
        let (kind, reason, message) = (event.event_type.as_str(), &event.reason, &event.message);
        let _ = writeln!(self.transcript, "event {kind} {reason}: {message}");
    }

    fn write_measurement(&mut self, measurement: &Measurement) {
        let Measurement { metric, labels, value } = measurement;
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
                let _ = writeln!(self.transcript, "{write} (refused, which is fine: {failure})");
                return Outcome::done();
            }
            (Some(failure), Action::Put { .. }) if failure.reason == ErrorReason::NotFound => {
                let _ = writeln!(self.transcript, "{write} (gone)");
                return Outcome::Unneeded;
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
            Ok(note) => (note, success_of(write)),
            Err(failure) => (format!(" FAILED: {failure}"), Outcome::Failed(failure)),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
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
        let ListRequest { kind, namespace, limit } = request;
        let path = kind.resource().collection_path(namespace);
        let at_most = limit.map_or(String::new(), |limit| format!("at most {limit} of "));
        let _ = writeln!(self.transcript, "list {at_most}{} in {namespace}", kind.resource());
        if let Some(failure) = self.cluster.next_failure("list", &path) {
            return Err(failure);
        }
        let paths = self.cluster.paths_below(&path).into_iter();
        let texts = paths.map(|path| self.cluster.live[&path].to_string());
        let decode = |text: String| (kind.decode())(Encoded::Json(&text)).expect("a well-formed object");
        Ok(texts.map(decode).take(limit.map_or(usize::MAX, |limit| limit as usize)).collect())
    }

    fn edit(&mut self, write: &Write, edit: &crate::Edit, path: &str) -> Outcome {
        let Some(live) = self.cluster.live.get_mut(path) else {
            let _ = writeln!(self.transcript, "{write} (gone)");
            return Outcome::Unneeded;
        };
        let live_version =
            ResourceVersion::from(live["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        if edit.expected_resource_version.as_ref().is_some_and(|expected| *expected != live_version) {
            let _ = writeln!(self.transcript, "{write} (moved on)");
            return Outcome::Unneeded;
        }
        let old = live.clone();
        let (note, outcome) = match (edit.change)(live) {
            Edited::Changed if *live == old => {
                unreachable!("an edit returned Changed for an unchanged object")
            }
            Edited::Changed => {
                let (uid, name) = (Uid::default(), write.target.key.name.clone());
                (String::new(), Outcome::Done { resource_version: live_version, uid, name })
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
        if fields.is_some() { success_of(write) } else { Outcome::Unneeded }
    }
}

impl ReconcileIo for RehearsalIo<'_> {
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        f(&self.cluster.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.apply_now(&plan);
        Box::pin(async move { applied })
    }

    fn measure(&mut self, measurement: Measurement) {
        self.write_measurement(&measurement);
    }

    fn enqueue(&mut self, item: Item) {
        let _ = writeln!(self.transcript, "wake {item}");
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

    fn effects(&mut self, effects: Effects) {
        for EnqueuedItem { queue, item, rate_limited } in effects.enqueued {
            let slowly = if rate_limited { " slowly" } else { "" };
            let _ = writeln!(self.transcript, "wake {item} of {queue}{slowly}");
        }
        effects.events.iter().for_each(|event| self.write_event(event));
    }

    fn list<'a>(&'a mut self, requests: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        let results = requests.iter().map(|request| self.list_now(request)).collect();
        Box::pin(async move { results })
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

/// The outcome of a successful write. A generated name ends in `new`.
fn success_of(write: &Write) -> Outcome {
    let name = match &write.action {
        Action::Create(body) if write.target.key.name.is_empty() => {
            ArcStr::from(format!("{}new", body["metadata"]["generateName"].as_str().unwrap_or_default()))
        }
        _ => write.target.key.name.clone(),
    };
    Outcome::Done { resource_version: ResourceVersion::default(), uid: Uid::default(), name }
}
