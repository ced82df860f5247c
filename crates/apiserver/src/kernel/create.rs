//! Create: names are unique, namespaces exist and are not going away, system fields come from the server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{FieldSet, Manager, Operation, record_update};
use super::metadata::{self, is_terminating, meta_str, set_meta};
use super::options::WriteOptions;
use super::request::{Call, Target};
use super::resources::{self, Resource};
use super::status::{Outcome, Reason, Status};
use super::store::Stored;
use super::{Document, Kernel, body, seconds, strategy};

/// How often a generated name is drawn before giving up.
const NAME_DRAWS_MAX: usize = 8;

/// Who writes, for `managedFields`.
pub(crate) fn manager(
    target: &Target,
    options: &WriteOptions,
    operation: Operation,
    now: Timestamp,
) -> Manager {
    Manager {
        name: options.manager.clone(),
        operation,
        api_version: target.resource.api_version(),
        subresource: target.subresource.clone().unwrap_or_default(),
        time: seconds(now),
        fields: FieldSet::new(),
    }
}

impl Kernel {
    pub(crate) fn create(&mut self, call: &Call<'_>, now: Timestamp) -> Outcome<Document> {
        let options = WriteOptions::parse(call)?;
        let mut object = body::decode(call, options.unknown_fields)?;
        body::place(call, &mut object)?;
        let created = self.insert(&call.target, object, &options, now, None)?;
        Ok(Document::json(201, &*call.representation.of(&created)))
    }

    /// Creates `object`; `managers` are the owners of its fields when an apply creates it.
    pub(crate) fn insert(
        &mut self,
        target: &Target,
        mut object: Value,
        options: &WriteOptions,
        now: Timestamp,
        managers: Option<Vec<Manager>>,
    ) -> Outcome<Stored> {
        let resource = target.resource;
        self.admit_namespace(target, meta_str(&object, "name"))?;
        if !meta_str(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(Reason::InternalError, message));
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            set_meta(&mut object, field, None);
        }
        self.name(resource, target.namespace(), &mut object)?;
        set_meta(&mut object, "uid", Some(json!(self.chance.uid())));
        set_meta(&mut object, "creationTimestamp", Some(json!(seconds(now))));
        strategy::prepare_create(resource, &mut object);
        validate(resource, None, &object)?;
        let name = meta_str(&object, "name").to_owned();
        if self.store.get(resource, target.namespace(), &name).is_some() {
            return Err(Status::already_exists(resource, &name));
        }
        match managers {
            Some(managers) => super::fields::set_managers(&mut object, managers),
            None => {
                set_meta(&mut object, "managedFields", None);
                record_update(
                    &json!({}),
                    &mut object,
                    &manager(target, options, Operation::Update, now),
                );
            }
        }
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        let event = self.store.put(resource, object);
        Ok(self.publish(&event))
    }

    /// Draws a name if only `generateName` is given.
    fn name(&mut self, resource: &Resource, namespace: &str, object: &mut Value) -> Outcome<()> {
        let prefix = meta_str(object, "generateName").to_owned();
        if prefix.is_empty() || !meta_str(object, "name").is_empty() {
            return Ok(());
        }
        for _ in 0..NAME_DRAWS_MAX {
            let name = self.chance.name(&prefix);
            if self.store.get(resource, namespace, &name).is_none() {
                set_meta(object, "name", Some(json!(name)));
                return Ok(());
            }
        }
        Err(Status::already_exists(resource, &prefix))
    }

    /// New content needs a namespace that exists and is not being deleted.
    pub(crate) fn admit_namespace(&self, target: &Target, name: &str) -> Outcome<()> {
        if !target.resource.namespaced {
            return Ok(());
        }
        let Some(namespaces) = resources::by_path("", "v1", "namespaces") else {
            return Ok(());
        };
        match self.store.get(namespaces, "", target.namespace()) {
            None => Err(Status::not_found(namespaces, target.namespace())),
            Some(namespace) if is_terminating(namespace) => Err(Status::namespace_terminating(
                target.resource,
                name,
                target.namespace(),
            )),
            Some(_) => Ok(()),
        }
    }
}

/// All rules, common and of the kind; every broken one is told at once.
pub(crate) fn validate(resource: &Resource, old: Option<&Value>, new: &Value) -> Outcome<()> {
    let mut errors = Vec::new();
    metadata::validate(resource, new, &mut errors);
    strategy::validate(resource, old, new, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        resource.group,
        resource.kind,
        meta_str(new, "name"),
        &errors,
    ))
}
