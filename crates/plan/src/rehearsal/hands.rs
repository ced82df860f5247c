//! The hands of a rehearsal: what a script asks for is found in a world of tables, what it does is written down.

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

/// The hands of a rehearsal: they change the live objects of a world and keep minutes.
pub(super) struct Rehearsing<'w> {
    pub(super) world: &'w mut RehearsalCluster,
    pub(super) transcript: String,
}

impl Rehearsing<'_> {
    fn carry_out(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        if let Some(complaint) = plan.error_message() {
            applied.error = Some(ReconcileError::because(complaint));
        }
        for measurement in plan.measurements() {
            self.note_measurement(measurement);
        }
        for event in plan.events() {
            self.note_event(event);
        }
        let mut stopped = false;
        for step in plan.steps() {
            let mut ended = stopped;
            for batch in batches(step) {
                let mut failed = false;
                for write in batch {
                    let outcome = if ended { Outcome::NotSent } else { self.write(write) };
                    failed |= matches!(outcome, Outcome::Failed(_));
                    stopped |= self.note_outcome(&mut applied, write, outcome);
                }
                ended |= failed;
            }
        }
        applied
    }

    /// Writes an outcome down and tells whether it stops the plan.
    fn note_outcome(&mut self, applied: &mut Applied, write: &Write, outcome: Outcome) -> bool {
        let mut stops = false;
        if let Outcome::Failed(failure) = &outcome {
            stops = write.on_failure == OnFailure::StopAndRetry;
            if !matches!(write.on_failure, OnFailure::LogOnly | OnFailure::ReturnOutcome) {
                applied.error.get_or_insert_with(|| ReconcileError::because(failure.to_string()));
            }
        }
        if let Some(event) = write.outcome_event.as_ref().and_then(|report| report(&outcome)) {
            self.note_event(&event);
        }
        applied.outcomes.push(outcome);
        stops
    }

    fn note_event(&mut self, event: &PlannedEvent) {
        let (kind, reason, message) = (event.event_type.as_str(), &event.reason, &event.message);
        let _ = writeln!(self.transcript, "event {kind} {reason}: {message}");
    }

    fn note_measurement(&mut self, measurement: &Measurement) {
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
        if let Some(failure) = write.guard.as_ref().and_then(|guard| self.world.objection(guard)) {
            let _ = writeln!(self.transcript, "{write} FAILED: {failure}");
            return Outcome::Failed(failure);
        }
        let refused = self.world.refusal(write.verb(), &path);
        let result = match (refused, &write.action) {
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
            (None, Action::PatchMetadata(amend)) => return self.amend(write, amend, &path),
            (None, Action::Delete { propagation, resource_version_precondition, .. }) => {
                self.world.delete(&path);
                let policy = propagation.map_or(String::new(), |policy| format!(" ({policy:?})"));
                let state = resource_version_precondition
                    .as_ref()
                    .map_or(String::new(), |version| format!(" at {version}"));
                Ok(format!("{policy}{state}"))
            }
            (None, Action::DeleteCollection { .. }) => {
                self.world.paths_below(&path).iter().for_each(|path| self.world.delete(path));
                Ok(String::new())
            }
        };
        let (note, outcome) = match result {
            Ok(note) => (note, done_with(write)),
            Err(failure) => (format!(" FAILED: {failure}"), Outcome::Failed(failure)),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }

    fn fetch_one(&mut self, resource: &Resource, key: &Key) -> FetchResult {
        let path = resource.object_path(key);
        let _ = writeln!(self.transcript, "get {resource} {key}");
        match self.world.refusal("get", &path) {
            Some(failure) => Err(failure),
            None => Ok(self.world.live.get(&path).map(Value::to_string)),
        }
    }

    fn list_one(&mut self, listing: &ListRequest) -> ListResult {
        let ListRequest { kind, namespace, limit: at_most } = listing;
        let path = kind.resource().collection_path(namespace);
        let some = at_most.map_or(String::new(), |number| format!("at most {number} of "));
        let _ = writeln!(self.transcript, "list {some}{} in {namespace}", kind.resource());
        if let Some(failure) = self.world.refusal("list", &path) {
            return Err(failure);
        }
        let paths = self.world.paths_below(&path).into_iter();
        let texts = paths.map(|path| self.world.live[&path].to_string());
        let decode = |text: String| (kind.decode())(Encoded::Json(&text)).expect("a well-formed object");
        Ok(texts.map(decode).take(at_most.map_or(usize::MAX, |number| number as usize)).collect())
    }

    fn edit(&mut self, write: &Write, edit: &crate::Edit, path: &str) -> Outcome {
        let Some(live) = self.world.live.get_mut(path) else {
            let _ = writeln!(self.transcript, "{write} (gone)");
            return Outcome::Unneeded;
        };
        let live_version =
            ResourceVersion::from(live["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        if edit
            .expected_resource_version
            .as_ref()
            .is_some_and(|expected_resource_version| *expected_resource_version != live_version)
        {
            let _ = writeln!(self.transcript, "{write} (moved on)");
            return Outcome::Unneeded;
        }
        let before = live.clone();
        let (note, outcome) = match (edit.change)(live) {
            Edited::Changed if *live == before => unreachable!("an edit said it changed what it left alone"),
            Edited::Changed => {
                let (uid, name) = (Uid::default(), write.target.key.name.clone());
                (String::new(), Outcome::Done { resource_version: live_version, uid, name })
            }
            Edited::Unneeded => (" (unneeded)".to_owned(), Outcome::Unneeded),
            Edited::Impossible(why) => (format!(" (impossible: {why})"), Outcome::Unneeded),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }
}

impl Rehearsing<'_> {
    fn amend(&mut self, write: &Write, amend: &PatchMetadata, path: &str) -> Outcome {
        let Target { uid, .. } = &write.target;
        let live = self.world.live.get(path).map(|object| &object["metadata"]);
        let live = live.filter(|metadata| Uid::from(metadata["uid"].as_str().unwrap_or_default()) == *uid);
        let fields = live.and_then(|metadata| (amend.fields)(metadata));
        let note = fields.as_ref().map_or_else(|| " (unneeded)".to_owned(), |fields| format!(": {fields}"));
        let _ = writeln!(self.transcript, "{write}{note}");
        if fields.is_some() { done_with(write) } else { Outcome::Unneeded }
    }
}

impl ReconcileIo for Rehearsing<'_> {
    fn with_view(&self, eye: &mut dyn FnMut(&View<'_>)) {
        eye(&self.world.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.carry_out(&plan);
        Box::pin(async move { applied })
    }

    fn measure(&mut self, measurement: Measurement) {
        self.note_measurement(&measurement);
    }

    fn enqueue(&mut self, item: Item) {
        let _ = writeln!(self.transcript, "wake {item}");
    }

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        let answers = keys.iter().map(|key| self.fetch_one(resource, key)).collect();
        Box::pin(async move { answers })
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        let answer = self.fetch_one(resource, key);
        Box::pin(async move { answer })
    }

    fn resource_of<'a>(
        &'a mut self,
        line: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        let served = self.world.discovered.clone().map(|discovered| {
            let resources = discovered.resources.into_iter().map(|one| one.resource);
            resources.into_iter().find(|resource| TypeMeta::of(resource) == *line)
        });
        Box::pin(async move { served })
    }

    fn effects(&mut self, stir: Effects) {
        for EnqueuedItem { queue, item, rate_limited: slowly } in stir.enqueued {
            let slowly = if slowly { " slowly" } else { "" };
            let _ = writeln!(self.transcript, "wake {item} of {queue}{slowly}");
        }
        stir.events.iter().for_each(|event| self.note_event(event));
    }

    fn list<'a>(&'a mut self, listings: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        let answers = listings.iter().map(|listing| self.list_one(listing)).collect();
        Box::pin(async move { answers })
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        self.transcript.push_str("discover\n");
        let discovered = self.world.discovered.clone();
        Box::pin(async move { discovered })
    }
}

/// The writes of a step that are sent at once.
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

/// What the server would answer; a name it chose ends in `-new`.
fn done_with(write: &Write) -> Outcome {
    let name = match &write.action {
        Action::Create(body) if write.target.key.name.is_empty() => {
            ArcStr::from(format!("{}new", body["metadata"]["generateName"].as_str().unwrap_or_default()))
        }
        _ => write.target.key.name.clone(),
    };
    Outcome::Done { resource_version: ResourceVersion::default(), uid: Uid::default(), name }
}
