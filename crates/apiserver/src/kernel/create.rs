//! Create: names are unique, the namespace exists and is not terminating, the server sets system fields.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{
    FieldSet, ManagedFieldsEntry, Operation, ResetFields, record_scale, record_update, set_managed_fields,
};
use super::metadata::{self, is_terminating, meta, meta_str, set_meta};
use super::options::WriteOptions;
use super::quota::Charge;
use super::request::{Call, Target};
use super::resources::{self, NameRule, Resource, Strategy};
use super::signers::SignerWrite;
use super::status::{ApiResult, Status, StatusReason};
use super::store::SharedObject;
use super::users::User;
use super::{Document, Kernel, body, conversion, defaults, prepare, seconds, validation, warnings};

/// Attempts to generate an unused name.
const NAME_DRAWS_MAX: usize = 8;

/// The parameters of a write.
pub(crate) struct Write<'a> {
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    pub(crate) now: Timestamp,
    /// The managedFields after an apply; for other writes they are computed.
    pub(crate) applied: Option<Vec<ManagedFieldsEntry>>,
    pub(crate) user: &'a User,
    /// Whether the spec has empty lists, which count as a change of the object.
    pub(crate) has_empty_lists: bool,
}

impl Write<'_> {
    /// What the admission of signers needs to know.
    pub(crate) fn by_signer(&self) -> SignerWrite<'_> {
        SignerWrite { target: self.target, user: self.user, now: self.now }
    }

    /// The writer's entry in `managedFields`, without fields.
    pub(crate) fn manager(&self, operation: Operation) -> ManagedFieldsEntry {
        let scales = self.target.subresource.as_deref() == Some("scale");
        ManagedFieldsEntry {
            name: self.options.field_manager.clone(),
            operation,
            api_version: self.target.resource.api_version(),
            subresource: self.target.subresource.clone().unwrap_or_default(),
            // Entries for the scale subresource have no timestamp.
            time: if scales { String::new() } else { seconds(self.now) },
            fields: FieldSet::new(),
        }
    }
}

impl Kernel {
    pub(crate) fn create(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = WriteOptions::parse(call)?;
        let resource = call.target.resource;
        let body::Decoded { mut object, strict_errors, type_mismatch, .. } = body::decode(call)?;
        self.apply_field_validation(strict_errors, options.field_validation, |strict_errors| {
            body::strict_decoding_error(resource, strict_errors)
        })?;
        type_mismatch.map_or(Ok(()), Err)?;
        body::check_name_and_namespace(call, &mut object)?;
        remove_server_fields(&mut object);
        let object = conversion::to_storage_version(call.target.resource, object);
        let write = Write {
            target: &call.target,
            options: &options,
            now,
            applied: None,
            user: &call.user,
            has_empty_lists: false,
        };
        let created = self.insert(write, object)?;
        Ok(self.show(call, 201, &created))
    }

    /// Stores a new object.
    pub(crate) fn insert(&mut self, mut write: Write<'_>, mut object: Value) -> ApiResult<SharedObject> {
        let target = write.target;
        let resource = target.resource.stored();
        self.admit_namespace(target, meta_str(&object, "name"))?;
        let labels = meta(&object, "labels").and_then(Value::as_object);
        let unlabelled = resource.strategy == Strategy::Job && labels.is_none_or(serde_json::Map::is_empty);
        defaults::fill(resource, &mut object);
        let by = write.manager(Operation::Update);
        match write.applied.take() {
            Some(managers) => set_managed_fields(&mut object, managers),
            None => own_all_fields(target, &mut object, &by),
        }
        remove_server_fields(&mut object);
        self.admit(resource, &mut object)?;
        self.name(resource, target.namespace(), &mut object)?;
        // Again: some defaults depend on the generated name.
        defaults::fill(resource, &mut object);
        set_meta(&mut object, "uid", Some(json!(self.random.uid())));
        set_meta(&mut object, "creationTimestamp", Some(json!(seconds(write.now))));
        prepare::create(resource, &mut object, write.user, write.now);
        if unlabelled {
            // The labels of the pod template, including those just added to it.
            let labels = object.pointer("/spec/template/metadata/labels").cloned();
            set_meta(&mut object, "labels", labels);
        }
        let mut object = body::complete(resource, object)?;
        // A Service created through its status gets no addresses.
        if target.subresource.is_none() {
            self.allocate(resource, None, &mut object, write.options.dry_run)?;
        }
        validate(target, None, &object)?;
        self.warnings.extend(warnings::for_object(resource, None, &object));
        self.warnings.extend(self.options.warn_about.into_iter().flat_map(|problems| problems(&object)));
        self.validate_admission(resource, &object)?;
        self.check_signer_of_create(&write.by_signer(), &object)?;
        // Last, and before storage finds out whether the name is taken: what is charged too much, the controller corrects.
        self.charge_quotas(&Charge {
            resource,
            subresource: target.subresource.as_deref(),
            old: None,
            new: &object,
            dry_run: write.options.dry_run,
            now: write.now,
        })?;
        let version: u64 = meta_str(&object, "resourceVersion").parse().unwrap_or(0);
        // kube-apiserver checks this in the storage layer, which a dry run does not reach.
        if version > 0 && !write.options.dry_run {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(StatusReason::Unknown, message));
        }
        let name = meta_str(&object, "name").to_owned();
        if let Some(live) = self.store.get(resource, target.namespace(), &name) {
            let terminating = is_terminating(&live);
            if !meta_str(&object, "generateName").is_empty() {
                return Err(Status::name_taken(resource, &name, terminating));
            }
            return Err(Status::already_exists(target.resource, &name, terminating));
        }
        if write.options.dry_run {
            return Ok(Arc::new(object));
        }
        self.claim_address(resource, None, &object, write.now);
        conversion::name_storage_version(resource, &mut object);
        let event = self.store.put(resource, object);
        Ok(self.publish(&event, write.now))
    }

    /// Generates a name if only `generateName` is set.
    fn name(&mut self, resource: &Resource, namespace: &str, object: &mut Value) -> ApiResult<()> {
        let prefix = meta_str(object, "generateName").to_owned();
        if !meta_str(object, "name").is_empty() {
            return Ok(());
        }
        if prefix.is_empty() {
            if resource.strategy == Strategy::LimitRange {
                set_meta(object, "name", Some(json!(self.random.uid())));
            }
            return Ok(());
        }
        if resource.names == NameRule::IpAddress {
            set_meta(object, "name", Some(json!(prefix)));
            return Ok(());
        }
        for _ in 0..NAME_DRAWS_MAX {
            let name = self.random.name(&prefix);
            if self.store.stored(resource, namespace, &name).is_none() {
                set_meta(object, "name", Some(json!(name)));
                return Ok(());
            }
        }
        Err(Status::name_taken(resource, &prefix, false))
    }

    /// NamespaceLifecycle: the namespace must exist and must not be terminating.
    pub(crate) fn admit_namespace(&self, target: &Target, name: &str) -> ApiResult<()> {
        if !target.resource.namespaced {
            return Ok(());
        }
        let Some(namespaces) = resources::by_path("", "v1", "namespaces") else {
            return Ok(());
        };
        match self.store.get(namespaces, "", target.namespace()) {
            None => Err(Status::not_found(namespaces, target.namespace())),
            Some(namespace) if is_terminating(&namespace) => {
                Err(Status::namespace_terminating(target.resource, name, target.namespace()))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Removes fields that only the server sets.
fn remove_server_fields(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        set_meta(object, field, None);
    }
}

/// Makes the creator the owner of all fields except the reset fields.
fn own_all_fields(target: &Target, object: &mut Value, by: &ManagedFieldsEntry) {
    let resource = target.resource.stored();
    set_meta(object, "managedFields", None);
    let reset_fields = prepare::reset_fields(resource, target.subresource.as_deref());
    record(target, &body::zero(resource), object, by, reset_fields, true);
}

/// Records ownership in the field names of the written version.
pub(crate) fn record(
    target: &Target,
    old: &Value,
    new: &mut Value,
    by: &ManagedFieldsEntry,
    reset_fields: ResetFields,
    is_new: bool,
) {
    let written = target.resource;
    if target.subresource.is_some() && !is_new {
        // A write to a subresource cannot set managedFields.
        set_meta(new, "managedFields", meta(old, "managedFields").cloned());
    }
    if target.subresource.as_deref() == Some("scale") {
        let pointer = written.scale.map_or("/spec/replicas", |paths| paths.spec_replicas);
        return record_scale(old, new, by, pointer);
    }
    let node = written.node();
    if written.stored_as.is_none() {
        return record_update(node, old, new, by, reset_fields, is_new);
    }
    // This version has other field names than the storage version.
    let served =
        |object: &Value| Value::clone(&conversion::to_served_version(written, &Arc::new(object.clone())));
    let mut view = served(new);
    let before = if is_new { body::zero(written) } else { served(old) };
    record_update(node, &before, &mut view, by, reset_fields, is_new);
    set_meta(new, "managedFields", meta(&view, "managedFields").cloned());
}

/// Common and kind-specific validation; all errors are reported at once.
pub(crate) fn validate(target: &Target, old: Option<&Value>, new: &Value) -> ApiResult<()> {
    let resource = target.resource.stored();
    let (view, subresource) = (target.resource.stored_as.is_some(), target.subresource.as_deref());
    let mut errors = Vec::new();
    validation::validate(resource, view, subresource, old, new, &mut errors);
    // For these kinds kube-apiserver validates the metadata of a new object only if nothing else is wrong.
    let late =
        resource.strategy == Strategy::PodDisruptionBudget || (resource.strategy == Strategy::Event && !view);
    let last = late && !errors.is_empty() && old.is_none();
    match old.filter(|_| !last) {
        None if last => {}
        Some(old) => {
            metadata::validate_update(resource, old, new, &mut errors);
            if resource.names == NameRule::IpAddress && subresource.is_none() {
                // Updates of this kind are also validated like new objects.
                metadata::validate(resource, new, &mut errors);
            }
        }
        None => metadata::validate(resource, new, &mut errors),
    }
    if resource.strategy == Strategy::Event && !view {
        // Core events are not checked for unknown finalizers.
        errors.retain(|error| !error.field().starts_with("metadata.finalizers["));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(resource.group, resource.kind, meta_str(new, "name"), &errors))
}
