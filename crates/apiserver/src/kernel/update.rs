//! Update: optimistic locking, fields the server keeps, generation, no-op detection and removal with the last finalizer.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::create::{Write, validate};
use super::fields::{Manager, Operation, record_update, set_managers, stamp};
use super::metadata::{finalizers, is_terminating, meta, meta_str, set_meta};
use super::options::WriteOptions;
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{FieldError, Outcome, Status};
use super::store::Stored;
use super::types::Node;
use super::{Document, Kernel, apply, body, defaults, prepare, views};

impl Kernel {
    pub(crate) fn update(&mut self, call: &Call<'_>, now: Timestamp) -> Outcome<Document> {
        let options = WriteOptions::parse(call)?;
        let target = &call.target;
        let mut object = body::decode(call, options.unknown_fields)?;
        if meta_str(&object, "name").is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                target.name()
            )));
        }
        body::place(call, &mut object)?;
        let object = views::stored_form(target.resource, object);
        let live = self.store.get(target.resource, target.namespace(), target.name());
        let write = Write { target, options: &options, now, applied: None, user: &call.user };
        let (code, stored) = match live {
            Some(live) => (200, self.replace(write, &live, object)?),
            None if target.resource.create_on_update && target.subresource.is_none() => {
                let uid = meta_str(&object, "uid");
                if !uid.is_empty() {
                    return Err(Status::precondition(target.resource, target.name(), "UID", uid, ""));
                }
                if !meta_str(&object, "resourceVersion").is_empty() {
                    return Err(Status::not_found(target.resource, target.name()));
                }
                (201, self.insert(write, object)?)
            }
            None => return Err(Status::not_found(target.resource, target.name())),
        };
        Ok(self.show(call, code, &stored))
    }

    /// Replaces `live` by `new`, as far as the target lets it.
    pub(crate) fn replace(&mut self, write: Write<'_>, live: &Stored, mut new: Value) -> Outcome<Stored> {
        let target = write.target;
        let resource = target.resource.stored();
        lock(resource, live, &new)?;
        keep_system_fields(live, &mut new);
        let subresource = target.subresource.as_deref();
        defaults::fill(resource, &mut new);
        prepare::update(resource, subresource, live, &mut new, write.now);
        let mut new = body::complete(resource, new)?;
        let operation = if write.applied.is_some() { Operation::Apply } else { Operation::Update };
        let by = write.manager(operation);
        match write.applied {
            Some(managers) => set_managers(&mut new, managers),
            None => record_update(Node::Struct(resource.shape()), live, &mut new, &by, false),
        }
        self.allocate(resource, Some(live), &mut new, write.options.dry_run, write.now)?;
        validate(resource, subresource, Some(live), &new)?;
        let unchanged = new == **live;
        let gone = is_released(resource, live, &new);
        if (unchanged && !gone) || write.options.dry_run {
            return Ok(if unchanged { Arc::clone(live) } else { Arc::new(new) });
        }
        // An apply that only gives or takes ownership leaves no time.
        if operation == Operation::Apply && !same_to_owners(live, &new, &by) {
            stamp(&mut new, &by);
        }
        let event = if gone {
            self.store.remove(resource, target.namespace(), target.name(), Some(new))
        } else {
            Some(self.store.put(resource, new))
        };
        match event {
            Some(event) => Ok(self.publish(&event, write.now)),
            None => Err(Status::not_found(resource, target.name())),
        }
    }
}

/// Whether nothing has changed that somebody owns.
fn same_to_owners(live: &Value, new: &Value, by: &Manager) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        set_meta(&mut object, "managedFields", None);
        apply::forget_last_applied(&mut object, by);
        object
    };
    without(live) == without(new)
}

/// The resourceVersion and uid in the body, if any, must be those stored.
pub(crate) fn lock(resource: &Resource, live: &Value, new: &Value) -> Outcome<()> {
    let name = meta_str(live, "name");
    let (uid, stored) = (meta_str(new, "uid"), meta_str(live, "uid"));
    if !uid.is_empty() && uid != stored {
        return Err(Status::precondition(resource, name, "UID", uid, stored));
    }
    match meta_str(new, "resourceVersion") {
        "" | "0" if resource.conditional_update => {
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
            Err(Status::invalid(resource.group, resource.kind, name, &[error]))
        }
        "" | "0" => Ok(()),
        version if version == meta_str(live, "resourceVersion") => Ok(()),
        version if version.parse::<u64>().is_err() => {
            let error =
                FieldError::invalid("metadata.resourceVersion", &json!(version), "must be an integer");
            Err(Status::invalid(resource.group, resource.kind, name, &[error]))
        }
        _ => Err(Status::modified(resource, name)),
    }
}

/// What no client can change is taken over from the stored object.
fn keep_system_fields(live: &Value, new: &mut Value) {
    let kept = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ];
    for field in kept {
        set_meta(new, field, meta(live, field).cloned());
    }
    if meta_str(new, "generateName").is_empty() {
        set_meta(new, "generateName", meta(live, "generateName").cloned());
    }
}

/// Whether the update removes the last thing that kept a deleted object in being.
fn is_released(resource: &Resource, live: &Value, new: &Value) -> bool {
    let grace = meta(live, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let held = resource.strategy == Strategy::Namespace
        && new.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    is_terminating(live) && grace == 0 && finalizers(new).is_empty() && !held
}
