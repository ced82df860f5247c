//! A controller acts only on caches that have observed its own earlier writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{controller_ref, is_terminating, uid};
use crate::recorder::{ObservedWrite, text};

/// How long a gate holds a key at most.
const GATE_HOLDS_FOR: Duration = Duration::from_secs(5 * 60);

/// Remembers the responses that every process instance received to its writes.
#[derive(Default)]
pub struct OwnWrites {
    /// By process instance, controller and UID.
    objects: BTreeMap<(u32, String, String), KnownObject>,
    /// By process instance, controller, path and name: the UID of the object that it created, and when.
    created: BTreeMap<(u32, String, String), (String, Duration)>,
    /// The namespaces that were ever deleted.
    deleted_namespaces: BTreeSet<String>,
}

/// What a controller knows about an object from the responses to its own writes.
#[derive(Default)]
struct KnownObject {
    resource_version: u64,
    /// The UID of its controller, once the controller has deleted it.
    deleted_for: Option<String>,
}

/// The first two read live before they write; of the others several loops, each with its own gate, change the same
/// objects, and the API server refuses the outdated write.
const EXEMPT: [&str; 9] = [
    "generic-garbage-collector",
    "namespace-controller",
    "node-controller",
    "tokens-controller",
    "resourcequota-controller",
    "persistent-volume-binder",
    "certificate-controller",
    "storage-version-migrator-controller",
    "storage-version-garbage-collector",
];

impl Checker for OwnWrites {
    fn name(&self) -> &'static str {
        "own writes"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if write.succeeded()
            && write.request.method == Method::DELETE
            && write.request.resource == "namespaces"
        {
            self.deleted_namespaces.insert(write.request.name.clone());
        }
        let is_checked =
            write.by_manager() && !write.request.is_routine() && !EXEMPT.contains(&write.component.as_str());
        if !is_checked {
            return Ok(());
        }
        match write.request.method {
            // The name of a CronJob's Job is derived from the scheduled time: after a failed status update, the second
            // create is refused and shows that the Job exists.
            Method::POST if write.component == "cronjob-controller" => Ok(()),
            Method::POST => self.created(write, server),
            Method::DELETE => self.deleted(write, server),
            _ => self.changed(write),
        }
    }
}

fn resource_version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or_default()
}

impl OwnWrites {
    fn known(&mut self, write: &ObservedWrite, uid: &str) -> &mut KnownObject {
        self.objects.entry((write.process_instance, write.component.clone(), uid.to_owned())).or_default()
    }

    /// A controller does not create an object with the same name again. Exempt are objects without a
    /// controllerRef in a namespace that was deleted: they may be created again for the new namespace of
    /// that name, because the gate does not hold a key for writes that were made for another UID. And the gate
    /// holds a key for five minutes at most: while a kind cannot be listed, its cache never shows the object.
    fn created(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let (request, name) = (&write.request, text(&write.body, "/metadata/name"));
        if name.is_empty() || !request.subresource.is_empty() {
            return Ok(());
        }
        let Some(stored) = server.object(&request.full_resource(), &request.namespace, name) else {
            return Ok(());
        };
        let key = (write.process_instance, write.component.clone(), format!("{request}{name}"));
        if write.succeeded() && !write.response_lost {
            self.created.insert(key, (uid(&stored).to_owned(), write.send_context.at));
            return Ok(());
        }
        let owner = |object: &Value| controller_ref(object).map(|owner| text(owner, "/uid").to_owned());
        let for_recreated_namespace =
            controller_ref(&write.body).is_none() && self.deleted_namespaces.contains(&request.namespace);
        let is_duplicate = write.code == 409
            && !for_recreated_namespace
            && self.created.get(&key).is_some_and(|(created, at)| {
                *created == uid(&stored) && write.send_context.at.saturating_sub(*at) < GATE_HOLDS_FOR
            })
            && owner(&stored) == owner(&write.body);
        if is_duplicate { Err(format!("created {name} a second time")) } else { Ok(()) }
    }

    /// A controller does not delete an object twice. Exempt are objects without a controllerRef and those whose
    /// owner is gone: a new owner with the old owner's name may find the object still in its cache, because the
    /// gate does not hold a key for writes that were made for another UID.
    fn deleted(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let uid = text(&write.body, "/preconditions/uid");
        if uid.is_empty() {
            return Ok(());
        }
        // Nor can the gate wait for a delete of an object that was terminating already: nothing changes.
        let gate_can_wait = |before: &Value| controller_ref(before).is_some() && !is_terminating(before);
        let before = write.before.as_deref().filter(|before| gate_can_wait(before));
        let owner = before.and_then(controller_ref).map(|owner| text(owner, "/uid").to_owned());
        let known = self.known(write, uid);
        if let Some(owner) = &known.deleted_for
            && server.snapshot().iter().any(|object| super::objects::uid(object) == owner)
        {
            return Err("deleted it a second time".to_owned());
        }
        known.deleted_for = owner.filter(|_| write.succeeded() && !write.response_lost);
        Ok(())
    }

    /// A controller does not base a write on a resourceVersion older than its own last write. Writes
    /// without a resourceVersion do not count: an adoption may be followed by another write in the same
    /// reconcile.
    fn changed(&mut self, write: &ObservedWrite) -> Result<(), String> {
        let Some(before) = &write.before else { return Ok(()) };
        let based_on = resource_version(&write.body);
        let known = self.known(write, uid(before));
        if write.succeeded() && write.after.is_none() {
            // It removed the last finalizer. The original's controllers of claims then delete what is gone.
            known.deleted_for = None;
        }
        if based_on == 0 {
            return Ok(());
        }
        // Each pod that shares a device claim has an item with its own gate, and the claim has another: the API server
        // refuses the outdated one of two writes.
        let is_shared_claim = write.request.resource == "resourceclaims" && controller_ref(before).is_none();
        if is_shared_claim && write.code == 409 {
            return Ok(());
        }
        if based_on < known.resource_version {
            let KnownObject { resource_version, .. } = known;
            return Err(format!(
                "based on resourceVersion {based_on}, older than {resource_version}, which it wrote itself"
            ));
        }
        if let Some(after) = write.after.as_ref().filter(|_| write.succeeded() && !write.response_lost) {
            known.resource_version = resource_version(after);
        }
        Ok(())
    }
}
