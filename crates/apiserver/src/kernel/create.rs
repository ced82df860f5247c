//! Create: names are unique, namespaces exist and are not going away, system fields come from the server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{FieldSet, Manager, Operation, record_update, set_managers};
use super::metadata::{self, is_terminating, meta_str, set_meta};
use super::options::WriteOptions;
use super::request::{Call, Target};
use super::resources::{self, Resource, Strategy};
use super::status::{Outcome, Reason, Status};
use super::store::Stored;
use super::types::Node;
use super::users::User;
use super::{Document, Kernel, body, defaults, prepare, seconds, validation, views};

/// How often a generated name is drawn before giving up.
const NAME_DRAWS_MAX: usize = 8;

/// Who writes where, when and how.
pub(crate) struct Write<'a> {
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    pub(crate) now: Timestamp,
    /// The owners of the fields after an apply; an update finds them out by itself.
    pub(crate) applied: Option<Vec<Manager>>,
    pub(crate) user: &'a User,
}

impl Write<'_> {
    /// The writer's entry in `managedFields`, owning nothing yet.
    pub(crate) fn manager(&self, operation: Operation) -> Manager {
        Manager {
            name: self.options.manager.clone(),
            operation,
            api_version: self.target.resource.api_version(),
            subresource: self.target.subresource.clone().unwrap_or_default(),
            time: seconds(self.now),
            fields: FieldSet::new(),
        }
    }
}

impl Kernel {
    pub(crate) fn create(&mut self, call: &Call<'_>, now: Timestamp) -> Outcome<Document> {
        let options = WriteOptions::parse(call)?;
        let mut object = body::decode(call, options.unknown_fields)?;
        body::place(call, &mut object)?;
        let object = views::stored_form(call.target.resource, object);
        let write = Write { target: &call.target, options: &options, now, applied: None, user: &call.user };
        let created = self.insert(write, object)?;
        Ok(self.show(call, 201, &created))
    }

    /// Stores a new object.
    pub(crate) fn insert(&mut self, write: Write<'_>, mut object: Value) -> Outcome<Stored> {
        let target = write.target;
        let resource = target.resource.stored();
        self.admit_namespace(target, meta_str(&object, "name"))?;
        if !meta_str(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(Reason::Unknown, message));
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            set_meta(&mut object, field, None);
        }
        defaults::fill(resource, &mut object);
        let by = write.manager(Operation::Update);
        match write.applied {
            Some(managers) => set_managers(&mut object, managers),
            None => own_first(resource, &mut object, &by),
        }
        self.admit(resource, &mut object)?;
        self.name(resource, target.namespace(), &mut object)?;
        set_meta(&mut object, "uid", Some(json!(self.chance.uid())));
        set_meta(&mut object, "creationTimestamp", Some(json!(seconds(write.now))));
        prepare::create(resource, &mut object, write.user, write.now);
        let mut object = body::complete(resource, object)?;
        validate(resource, None, None, &object)?;
        let name = meta_str(&object, "name").to_owned();
        if let Some(live) = self.store.get(resource, target.namespace(), &name) {
            return Err(Status::already_exists(resource, &name, is_terminating(&live)));
        }
        self.allocate(resource, None, &mut object, write.options.dry_run, write.now)?;
        if write.options.dry_run {
            return Ok(Arc::new(object));
        }
        let event = self.store.put(resource, object);
        Ok(self.publish(&event, write.now))
    }

    /// Draws a name if only `generateName` is given.
    fn name(&mut self, resource: &Resource, namespace: &str, object: &mut Value) -> Outcome<()> {
        let prefix = meta_str(object, "generateName").to_owned();
        if prefix.is_empty() || !meta_str(object, "name").is_empty() {
            return Ok(());
        }
        for _ in 0..NAME_DRAWS_MAX {
            let name = self.chance.name(&prefix);
            if self.store.kept(resource, namespace, &name).is_none() {
                set_meta(object, "name", Some(json!(name)));
                return Ok(());
            }
        }
        Err(Status::already_exists(resource, &prefix, false))
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
            Some(namespace) if is_terminating(&namespace) => {
                Err(Status::namespace_terminating(target.resource, name, target.namespace()))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Fields the main resource's writers have no say in.
pub(crate) fn nobodys(resource: &Resource) -> &'static [&'static str] {
    match resource.strategy {
        Strategy::CertificateSigningRequest => &["spec", "status"],
        _ if resource.has_status() => &["status"],
        _ => &[],
    }
}

/// The writer of a new object owns everything in it but what it has no say in: its status, and of a certificate
/// request also who asks and for what, which can never be changed.
fn own_first(resource: &Resource, object: &mut Value, by: &Manager) {
    set_meta(object, "managedFields", None);
    let mut zero = body::zero(resource);
    let mut aside = Vec::new();
    for field in nobodys(resource) {
        zero.as_object_mut().and_then(|map| map.remove(*field));
        let value = object.as_object_mut().and_then(|map| map.remove(*field));
        aside.extend(value.map(|value| (*field, value)));
    }
    record_update(Node::Struct(resource.shape()), &zero, object, by, true);
    for (field, value) in aside {
        object[field] = value;
    }
}

/// All rules, common and of the kind; every broken one is told at once.
pub(crate) fn validate(
    resource: &Resource,
    subresource: Option<&str>,
    old: Option<&Value>,
    new: &Value,
) -> Outcome<()> {
    let mut errors = Vec::new();
    metadata::validate(resource, new, &mut errors);
    validation::validate(resource, subresource, old, new, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(resource.group, resource.kind, meta_str(new, "name"), &errors))
}
