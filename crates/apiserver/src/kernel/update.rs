//! Update: optimistic locking, system fields, generation, no-op detection, removal with the last finalizer.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::add_default_tolerations;
use super::create::{Write, record, validate};
use super::fields::{Operation, set_managed_fields};
use super::metadata::{finalizers, is_terminating, meta, meta_str, set_meta};
use super::options::WriteOptions;
use super::quota::Charge;
use super::request::{Call, Target};
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::store::SharedObject;
use super::{Document, Kernel, body, conversion, defaults, prepare, warnings};

impl Kernel {
    pub(crate) fn update(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = WriteOptions::parse(call)?;
        let target = &call.target;
        let body::Decoded { mut object, strict_errors, has_empty_lists, type_mismatch } = body::decode(call)?;
        self.apply_field_validation(strict_errors, options.field_validation, |strict_errors| {
            body::strict_decoding_error(target.resource, strict_errors)
        })?;
        if let Some(status) = type_mismatch {
            // kube-apiserver checks the kind only after it has found the object and checked the resourceVersion.
            if status.reason == StatusReason::Invalid {
                let live = self.store.get(target.resource, target.namespace(), target.name());
                let live = live.ok_or_else(|| Status::not_found(target.resource, target.name()))?;
                check_resource_version(target, &live, &object)?;
            }
            return Err(status);
        }
        if meta_str(&object, "name").is_empty() {
            return Err(Status::name_undeterminable(target.name()));
        }
        body::check_name_and_namespace(call, &mut object)?;
        let mut object = conversion::to_storage_version(target.resource, object);
        let live = self.store.get(target.resource, target.namespace(), target.name());
        let write =
            Write { target, options: &options, now, applied: None, user: &call.user, has_empty_lists };
        let (code, stored) = match live {
            Some(live) => {
                let place = (target.namespace(), target.name());
                let (uid, stored) = (meta_str(&object, "uid"), meta_str(&live, "uid"));
                if !uid.is_empty() && uid != stored {
                    let uids = ("UID", uid, stored);
                    return Err(Status::storage_precondition(target.resource, place, uids, options.dry_run));
                }
                (200, self.replace(write, &live, object)?)
            }
            None => {
                // Some kinds can be created by an update of their status.
                let whole = matches!(target.subresource.as_deref(), None | Some("status"));
                if !target.resource.create_on_update || !whole {
                    return Err(Status::not_found(target.resource, target.name()));
                }
                let uid = meta_str(&object, "uid");
                if !uid.is_empty() {
                    let (place, uids) = ((target.namespace(), target.name()), ("UID", uid, ""));
                    return Err(Status::storage_precondition(target.resource, place, uids, options.dry_run));
                }
                check_version(meta_str(&object, "resourceVersion"))?;
                if !options.dry_run {
                    set_meta(&mut object, "resourceVersion", None);
                }
                (201, self.insert(write, object)?)
            }
        };
        Ok(self.show(call, code, &stored))
    }

    /// Replaces `live` with `new`, as far as the endpoint may change it.
    pub(crate) fn replace(
        &mut self,
        mut write: Write<'_>,
        live: &SharedObject,
        mut new: Value,
    ) -> ApiResult<SharedObject> {
        let (target, dry_run) = (write.target, write.options.dry_run);
        let resource = target.resource.stored();
        check_resource_version(target, live, &new)?;
        let subresource = target.subresource.as_deref();
        defaults::fill(resource, &mut new);
        let mut new = body::conform(resource, new)?.object;
        let operation = if write.applied.is_some() { Operation::Apply } else { Operation::Update };
        match write.applied.take() {
            Some(managers) => set_managed_fields(&mut new, managers),
            None => {
                let reset_fields = prepare::reset_fields(resource, subresource);
                record(target, live, &mut new, &write.manager(operation), reset_fields, false);
            }
        }
        // Storing an object drops empty lists; an object that is removed is not stored.
        let removed = removes_last_finalizer(resource, subresource, live, &new);
        let finish = |new| match removed {
            true => body::conform(resource, new).map(|decoded| decoded.object),
            false => body::complete(resource, new),
        };
        let mut new = finish(new)?;
        keep_system_fields(live, &mut new);
        if subresource == Some("resize") {
            self.set_limit_range_defaults(&mut new);
        }
        prepare::update(resource, subresource, live, &mut new, write.now);
        if write.has_empty_lists {
            let generation = meta(live, "generation").and_then(Value::as_i64).unwrap_or(0);
            set_meta(&mut new, "generation", Some(json!(generation + 1)));
        }
        let mut new = finish(new)?;
        if subresource.is_none() {
            if resource.strategy == Strategy::Pod {
                add_default_tolerations(&mut new["spec"]);
            }
            self.allocate(resource, Some(live), &mut new, dry_run)?;
        }
        validate(target, Some(live), &new)?;
        if subresource.is_none() {
            self.warn_about_update(resource, live, &new);
        }
        self.validate_admission_of_update(&write.by_signer(), live, &new)?;
        self.charge_quotas(&Charge::of_update(target, [live, &new], dry_run, write.now))?;
        keep_timestamps(live, &mut new);
        if !dry_run && !removed {
            set_meta(&mut new, "selfLink", None);
            conversion::name_storage_version(resource, &mut new);
        }
        let unchanged = new == **live;
        let is_noop = unchanged && !removed && !self.is_stored_without_defaults(resource, live);
        if is_noop || write.options.dry_run {
            return Ok(if unchanged { Arc::clone(live) } else { Arc::new(new) });
        }
        if removed {
            // The client gets the object it wrote; watches get the last stored state.
            let event = self.store.remove(resource, target.namespace(), target.name(), None);
            event.into_iter().for_each(|event| drop(self.publish(&event, write.now)));
            return Ok(Arc::new(new));
        }
        self.claim_address(resource, Some(live), &new, write.now);
        let event = self.store.put(resource, new);
        Ok(self.publish(&event, write.now))
    }

    /// kube-apiserver has no warnings about updates of pods.
    fn warn_about_update(&mut self, resource: &Resource, live: &SharedObject, new: &Value) {
        let is_pod = resource.strategy == Strategy::Pod;
        if !is_pod {
            self.warnings.extend(warnings::for_object(resource, Some(live), new));
        }
        // Controllers update pods often, and would be warned of what users have written.
        if !is_pod || meta(live, "annotations") != meta(new, "annotations") {
            self.warnings.extend(self.options.warn_about.into_iter().flat_map(|problems| problems(new)));
        }
    }

    /// Whether kube-apiserver has stored the object without the defaults it adds on every read. It does so on create
    /// of some kinds; the next write stores the full object even if it changes nothing.
    fn is_stored_without_defaults(&self, resource: &Resource, live: &Value) -> bool {
        let without_defaults = match resource.strategy {
            Strategy::PersistentVolumeClaim => true,
            Strategy::Job => meta(live, "labels") == live.pointer("/spec/template/metadata/labels"),
            _ => false,
        };
        without_defaults
            && self.store.is_as_created(resource, meta_str(live, "namespace"), meta_str(live, "name"))
    }
}

/// Optimistic locking: the resourceVersion in the body, if any, must be the stored one.
fn check_resource_version(target: &Target, live: &Value, new: &Value) -> ApiResult<()> {
    let (resource, name) = (target.resource, meta_str(live, "name"));
    match meta_str(new, "resourceVersion") {
        "" | "0" if resource.conditional_update => {
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
            // kube-apiserver puts the resource instead of the kind into this message.
            Err(Status::invalid(resource.group, resource.plural, name, &[error]))
        }
        "" | "0" => Ok(()),
        version if version == meta_str(live, "resourceVersion") => Ok(()),
        version => {
            check_version(version)?;
            Err(Status::modified(resource, name))
        }
    }
}

/// A resourceVersion must be a number.
fn check_version(version: &str) -> ApiResult<()> {
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
    Err(Status::new(StatusReason::Unknown, message))
}

/// Keeps the timestamps of managedFields if nothing else has changed.
fn keep_timestamps(live: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        let managers = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for manager in managers.into_iter().flatten() {
            manager.as_object_mut().and_then(|manager| manager.remove("time"));
        }
        object
    };
    if timeless(live) == timeless(new) {
        set_meta(new, "managedFields", meta(live, "managedFields").cloned());
    }
}

/// Keeps the stored values of fields that clients cannot change.
fn keep_system_fields(live: &Value, new: &mut Value) {
    let fields = ["name", "namespace", "resourceVersion", "creationTimestamp", "generation"];
    for field in fields {
        set_meta(new, field, meta(live, field).cloned());
    }
    // A patch can set the uid, and validation then rejects it as immutable; controllers rely on that 422.
    if meta_str(new, "uid").is_empty() {
        set_meta(new, "uid", meta(live, "uid").cloned());
    }
    if let Some(time) = meta(live, "deletionTimestamp") {
        set_meta(new, "deletionTimestamp", Some(time.clone()));
    }
    if meta(new, "deletionGracePeriodSeconds").is_none() {
        set_meta(new, "deletionGracePeriodSeconds", meta(live, "deletionGracePeriodSeconds").cloned());
    }
}

/// Whether the update removes the last finalizer of a terminating object.
fn removes_last_finalizer(resource: &Resource, subresource: Option<&str>, live: &Value, new: &Value) -> bool {
    // The finalizers of a namespace's spec change only through the finalize subresource.
    let source = if subresource == Some("finalize") { new } else { live };
    let grace = meta(live, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let held = resource.strategy == Strategy::Namespace
        && source.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    let keeps_stored = match subresource {
        Some("status") => prepare::status_update_keeps_metadata(resource),
        Some("resize") => true,
        _ => false,
    };
    let without_finalizers = finalizers(if keeps_stored { live } else { new }).is_empty();
    is_terminating(live) && grace == 0 && without_finalizers && !held
}
