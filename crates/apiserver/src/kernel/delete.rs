//! Delete: preconditions, then finalizers and grace period decide whether the object is removed or marked.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::custom::CLEANUP;
use super::list::ListDocument;
use super::metadata::{finalizers, is_terminating, meta, meta_str, set_meta};
use super::options::{DeleteOptions, ListOptions, PropagationPolicy};
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, Status};
use super::store::SharedObject;
use super::stored_object::StoredObject;
use super::{Document, Kernel, body, seconds};

/// Namespaces that cannot be deleted.
const UNDELETABLE_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];
/// Longest accepted grace period; a longer one could overflow the timestamp.
const GRACE_SECONDS_MAX: i64 = 100 * 365 * 24 * 3600;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The result of a delete.
pub(crate) struct Deleted {
    pub(crate) object: SharedObject,
    /// False if finalizers or a grace period keep the object.
    pub(crate) removed: bool,
}

impl Kernel {
    pub(crate) fn delete(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = DeleteOptions::parse(call)?;
        self.warn_of_orphans(call.target.resource, &options);
        let (resource, name) = (call.target.resource, call.target.name());
        let deleted = self.delete_one(resource, call.target.namespace(), name, &options, now)?;
        // An object without uid is the empty response of a dry run; it is returned as it is.
        let return_object = resource.returns_deleted || meta_str(&deleted.object, "uid").is_empty();
        if deleted.removed && !return_object {
            let mut details =
                json!({"name": name, "kind": resource.plural, "uid": meta_str(&deleted.object, "uid")});
            if !resource.group.is_empty() {
                details["group"] = json!(resource.group);
            }
            let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            return Ok(Document::json(200, &success));
        }
        let code = if !deleted.removed && options.orphan_dependents_false { 202 } else { 200 };
        Ok(self.show(call, code, &deleted.object))
    }

    pub(crate) fn delete_collection(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let ListOptions { selector, .. } = ListOptions::parse(call)?;
        let options = DeleteOptions::parse(call)?;
        let resource = call.target.resource;
        self.warn_of_orphans(resource, &options);
        let chosen: Vec<SharedObject> = self
            .store
            .values(resource, call.target.namespace.as_deref())
            .into_iter()
            .filter(|object| selector.matches(resource, object))
            .collect();
        let mut items: Vec<StoredObject> = Vec::with_capacity(chosen.len());
        for object in chosen {
            let (namespace, name) = (meta_str(&object, "namespace"), meta_str(&object, "name"));
            self.delete_one(resource, namespace, name, &options, now)?;
            items.push(StoredObject::new(resource.stored(), &object));
        }
        let revision = self.store.revision();
        Ok(ListDocument::new(resource, call, revision, &items).document(now))
    }

    /// Warns that deleting a Job orphans its pods by default.
    fn warn_of_orphans(&mut self, resource: &Resource, options: &DeleteOptions) {
        if resource.strategy == Strategy::Job && options.propagation.is_none() {
            let warning = "child pods are preserved by default when jobs are deleted; set \
                           propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                           this warning";
            self.warnings.push(warning.to_owned());
        }
    }

    pub(crate) fn delete_one(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> ApiResult<Deleted> {
        if resource.strategy == Strategy::Namespace && UNDELETABLE_NAMESPACES.contains(&name) {
            return Err(Status::forbidden(resource, name, "this namespace may not be deleted"));
        }
        let Some(live) = self.store.get(resource, namespace, name) else {
            return Err(Status::not_found(resource, name));
        };
        // Messages about events name the core group.
        check_preconditions(resource.stored(), name, &live, options)?;
        if is_noop(resource, &live, options) {
            return Ok(Deleted { object: live, removed: false });
        }
        // The first delete of a namespace only marks it as terminating.
        let only_mark = resource.strategy == Strategy::Namespace && !is_terminating(&live);
        let propagation = match options.orphan_dependents_false && only_mark {
            true => Some(PropagationPolicy::Foreground),
            false => propagation_of(resource, &live, options),
        };
        let mut remaining = remaining_finalizers(&live, propagation);
        if resource.strategy == Strategy::CustomResourceDefinition && !is_terminating(&live) {
            // It stays until its custom objects are deleted.
            remaining.retain(|finalizer| finalizer != CLEANUP);
            remaining.push(CLEANUP.to_owned());
        }
        let grace = grace_seconds(resource, &live, options);
        if remaining.is_empty() && grace == 0 && !only_mark {
            if options.resource_version.is_some() && !finalizers(&live).is_empty() {
                // kube-apiserver loses the resourceVersion precondition between the finalizer update and the removal.
                let place = (namespace, name);
                let version = ("ResourceVersion", "", meta_str(&live, "resourceVersion"));
                return Err(Status::storage_precondition(resource, place, version, options.dry_run));
            }
            if options.dry_run && is_terminating(&live) && !finalizers(&live).is_empty() {
                // For a dry run kube-apiserver returns an empty object here.
                let nothing = body::complete(resource, json!({}))?;
                return Ok(Deleted { object: Arc::new(nothing), removed: true });
            }
            return Ok(self.remove_now(resource, live, options.dry_run, now));
        }
        let marked = mark(resource, &live, &remaining, grace, now);
        if marked == *live || options.dry_run {
            return Ok(Deleted { object: Arc::new(marked), removed: false });
        }
        let event = self.store.put(resource, marked);
        Ok(Deleted { object: self.publish(&event, now), removed: false })
    }

    fn remove_now(
        &mut self,
        resource: &'static Resource,
        live: SharedObject,
        dry_run: bool,
        now: Timestamp,
    ) -> Deleted {
        // A pod is marked as terminating even without a grace period, so that watches see the deletionTimestamp
        // before DELETED.
        let marked = mark(resource, &live, &[], 0, now);
        let changed = resource.strategy == Strategy::Pod && marked != *live;
        if dry_run {
            return Deleted { object: if changed { Arc::new(marked) } else { live }, removed: true };
        }
        let live = if changed {
            let event = self.store.put(resource, marked);
            self.publish(&event, now)
        } else {
            live
        };
        let event = self.store.remove(resource, meta_str(&live, "namespace"), meta_str(&live, "name"), None);
        // Always present: the caller has just read the object.
        let object = event.map_or(live, |event| self.publish(&event, now));
        Deleted { object, removed: true }
    }
}

/// Checks the uid and resourceVersion preconditions.
pub(crate) fn check_preconditions(
    resource: &Resource,
    name: &str,
    live: &Value,
    options: &DeleteOptions,
) -> ApiResult<()> {
    for (wanted, field, what) in
        [(&options.uid, "uid", "UID"), (&options.resource_version, "resourceVersion", "ResourceVersion")]
    {
        let found = meta_str(live, field);
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            return Err(Status::delete_precondition(resource, name, (what, wanted, found)));
        }
    }
    Ok(())
}

/// Whether the object is already terminating and this delete changes nothing.
fn is_noop(resource: &Resource, live: &Value, options: &DeleteOptions) -> bool {
    if !is_terminating(live) {
        return false;
    }
    match resource.strategy {
        Strategy::Namespace => {
            live.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
        }
        // During the grace period only a shorter one changes anything; the propagation policy is fixed.
        Strategy::Pod => {
            let running = current_grace(live).unwrap_or(0);
            running > 0 && options.grace_seconds.is_none_or(|requested| requested >= running)
        }
        _ => false,
    }
}

/// The grace period of an earlier delete.
fn current_grace(live: &Value) -> Option<i64> {
    meta(live, "deletionGracePeriodSeconds").and_then(Value::as_i64).filter(|_| is_terminating(live))
}

/// The propagation policy: from the request, or the default of the kind.
fn propagation_of(resource: &Resource, live: &Value, options: &DeleteOptions) -> Option<PropagationPolicy> {
    // Events have no dependents.
    if resource.strategy == Strategy::Event {
        return Some(PropagationPolicy::Background);
    }
    // The finalizer of an earlier delete already sets the policy.
    let policy_set = finalizers(live).iter().any(|f| *f == ORPHAN || *f == FOREGROUND);
    options.propagation.or((resource.orphans_by_default && !policy_set).then_some(PropagationPolicy::Orphan))
}

/// The finalizers that remain after this delete.
fn remaining_finalizers(live: &Value, propagation: Option<PropagationPolicy>) -> Vec<String> {
    let present = finalizers(live).into_iter().map(str::to_owned);
    let Some(propagation) = propagation else {
        return present.collect();
    };
    let mut remaining: Vec<String> = present.filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    match propagation {
        PropagationPolicy::Background => {}
        PropagationPolicy::Foreground => remaining.push(FOREGROUND.to_owned()),
        PropagationPolicy::Orphan => remaining.push(ORPHAN.to_owned()),
    }
    remaining
}

/// Only pods that are assigned to a node get a grace period.
fn grace_seconds(resource: &Resource, live: &Value, options: &DeleteOptions) -> i64 {
    if resource.strategy == Strategy::Pod
        && let Some(running) = current_grace(live)
    {
        return options.grace_seconds.map_or(running, |requested| requested.clamp(0, running.max(0)));
    }
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let done = matches!(text("/status/phase"), "Succeeded" | "Failed");
    if resource.strategy != Strategy::Pod || text("/spec/nodeName").is_empty() || done {
        return 0;
    }
    let own = live.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace_seconds.or(own).unwrap_or(30).clamp(0, GRACE_SECONDS_MAX)
}

fn mark(resource: &Resource, live: &Value, remaining: &[String], grace: i64, now: Timestamp) -> Value {
    let mut marked = live.clone();
    set_meta(&mut marked, "finalizers", (!remaining.is_empty()).then(|| json!(remaining)));
    if resource.strategy == Strategy::Namespace && !is_terminating(live) {
        if let Some(status) = marked.get_mut("status").filter(|s| s.is_object()) {
            status["phase"] = json!("Terminating");
        } else {
            marked["status"] = json!({"phase": "Terminating"});
        }
        set_meta(&mut marked, "deletionTimestamp", Some(json!(seconds(now))));
        return marked;
    }
    let (at, grace) = match current_grace(live) {
        Some(running) if grace < running => shortened(live, running, grace, now),
        Some(running) => (None, running),
        None if is_terminating(live) => (None, grace),
        None => (now.checked_add(SignedDuration::from_secs(grace)).ok(), grace),
    };
    if let Some(at) = at {
        set_meta(&mut marked, "deletionTimestamp", Some(json!(seconds(at))));
    }
    set_meta(&mut marked, "deletionGracePeriodSeconds", Some(json!(grace)));
    let generation = meta(live, "generation").and_then(Value::as_i64).unwrap_or(0);
    if generation > 0 && !is_terminating(live) {
        set_meta(&mut marked, "generation", Some(json!(generation + 1)));
    }
    marked
}

/// The deletionTimestamp for a shortened grace period, which counts from the first delete, and the period. A time in
/// the past becomes `now`.
fn shortened(live: &Value, running: i64, grace: i64, now: Timestamp) -> (Option<Timestamp>, i64) {
    let end = meta_str(live, "deletionTimestamp").parse::<Timestamp>().unwrap_or(now);
    let end = end.checked_sub(SignedDuration::from_secs(running - grace)).unwrap_or(now);
    if end >= now { (Some(end), grace) } else { (Some(now), grace.min(1)) }
}
