//! One planned write to the API server: its target, its body, its preconditions and its reason.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use keleustes_objects::{
    ApiError, ErrorReason, FullMeta, Key, Kind, ObjectMeta, Resource, ResourceVersion, Uid,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Outcome, PlannedEvent, Scale};

/// One planned write. A constructor sets target and action and returns a [`WriteDraft`]; [`WriteDraft::because`] makes it
/// a write that a plan accepts. The builder methods refine both.
#[derive(Clone)]
pub struct Write<R = Reason> {
    /// The object it writes.
    pub target: Target,
    /// The request.
    pub action: Action,
    /// A check against the live object of an owner before the write is sent.
    pub guard: Option<Guard>,
    /// Errors that count as success.
    pub ignored_errors: &'static [ErrorReason],
    /// What any other error means for the rest of the plan.
    pub on_failure: OnFailure,
    /// How soon it is sent, if it only writes a status; `None` for all other writes.
    pub status_urgency: Option<StatusUrgency>,
    /// The reason, for the log and for transcripts.
    pub because: R,
    /// Makes an event of the outcome.
    pub outcome_event: Option<OutcomeEventFn>,
    /// Whether the outcome contains the stored object.
    pub returns_object: bool,
    /// Patch only: the field manager; empty for the one that the server derives from the user agent.
    pub field_manager: &'static str,
}

/// A write without a reason, which no plan accepts.
///
/// ```compile_fail,E0308
/// # use keleustes_objects::{Key, Namespace};
/// # use keleustes_plan::{Plan, Write};
/// Plan::of(Write::create::<Namespace>(Key::cluster("a"), serde_json::json!({})));
/// ```
///
/// ```
/// # use keleustes_objects::{Key, Namespace};
/// # use keleustes_plan::{Plan, Write};
/// Plan::of(Write::create::<Namespace>(Key::cluster("a"), serde_json::json!({})).because("it is missing"));
/// ```
pub type WriteDraft = Write<NoReason>;

/// The reason of a write; only [`WriteDraft::because`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(Cow<'static, str>);

impl std::ops::Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Stands where a draft has no reason yet.
#[derive(Clone, Debug)]
pub struct NoReason(());

/// Makes an event of the outcome of a write, or none.
pub type OutcomeEventFn = Arc<dyn Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync>;

/// The object of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The resource of the object.
    pub resource: Resource,
    /// Namespace and name. The name is empty for a create with `generateName`.
    pub key: Key,
    /// The UID of the object; empty if it is not known.
    pub uid: Uid,
    /// What must hold for the request to take effect.
    pub precondition: Precondition,
}

/// What must hold for the request of a write to take effect. The resourceVersion of a delete or of an edit comes in
/// addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The object has the UID of the target.
    Uid,
    /// The object has the resourceVersion in the body.
    ResourceVersionInBody,
    /// There is no object of this name: it is created.
    NameIsFree,
    /// Nothing, for this reason: the request may reach another object of the same name.
    None(&'static str),
}

/// The request of a write.
#[derive(Clone)]
pub enum Action {
    /// POST: creates the object.
    Create(Value),
    /// Server-side apply with `force`.
    Apply {
        /// The field manager.
        manager: &'static str,
        /// The applied fields.
        fields: Value,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
    },
    /// PATCH of the object or of a subresource.
    Patch {
        /// The patch type of the body.
        form: PatchKind,
        /// The body.
        body: Value,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
    },
    /// GET, change, PUT: the whole live object is written back, unknown fields included.
    Edit(Edit),
    /// GET of the metadata, then a merge patch with the resourceVersion that was read as precondition.
    PatchMetadata(PatchMetadata),
    /// PUT of a body made from the cached object, without the GET of an edit. The body must hold all metadata:
    /// the server removes what a PUT leaves out.
    Put {
        /// The body, `metadata.resourceVersion` included.
        body: Value,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
        /// The number of attempts. After a conflict the object is read and the same part is written into it.
        conflict_tries: u32,
    },
    /// DELETE with the target's UID as precondition.
    Delete {
        /// The propagation policy; the server's default if unset.
        propagation: Option<PropagationPolicy>,
        /// `gracePeriodSeconds`; the object's own if unset.
        grace_seconds: Option<u32>,
        /// The resourceVersion precondition.
        resource_version_precondition: Option<ResourceVersion>,
    },
    /// DELETE of all objects of the resource in the target's namespace, without UID preconditions. The gate does not
    /// hold the item back until the caches have observed the deletions, so the controller must list live.
    DeleteCollection {
        /// The propagation policy; the server's default if unset.
        propagation: Option<PropagationPolicy>,
    },
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON merge patch, RFC 7386.
    Merge,
    /// Strategic merge patch.
    Strategic,
}

/// What the garbage collector does with the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// Deletes them after the owner.
    Background,
    /// Deletes them before the owner.
    Foreground,
    /// Removes the owner reference and keeps them.
    Orphan,
}

/// A change to the live object.
#[derive(Clone)]
pub struct Edit {
    /// Changes the live object in place. It must be pure: after a conflict it is called again with a newer
    /// state.
    pub change: Arc<dyn Fn(&mut Value) -> Edited + Send + Sync>,
    /// The resourceVersion that the decision is based on. If the live object has another one, nothing is written:
    /// the event of that change enqueues the item again.
    pub expected_resource_version: Option<ResourceVersion>,
    /// The number of attempts; each one after a conflict starts with a GET.
    pub conflict_tries: u32,
    /// The subresource of the PUT; empty for the object itself.
    pub subresource: &'static str,
}

/// Makes the merge patch of live metadata; `None` if nothing is to change.
pub type MetadataPatchFn = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// A change to live metadata, sent as a merge patch.
#[derive(Clone)]
pub struct PatchMetadata {
    /// Makes the patch of `metadata`; `None` if nothing is to change. It must be pure: after a conflict it is
    /// called again with newer metadata.
    pub fields: MetadataPatchFn,
    /// The number of attempts; each one after a conflict starts with a GET.
    pub conflict_tries: u32,
}

/// The result of the change function of an [`Edit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The object changed and is written.
    Changed,
    /// The object needs no change.
    Unneeded,
    /// The change cannot be made, and a retry would not help; the text is the reason.
    Impossible(String),
}

/// A live check before a write is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The owner exists with the same UID and without deletionTimestamp, as client-go's `RecheckDeletionTimestamp`
    /// checks it. One GET per plan serves all writes with this guard; if it fails, all of them fail.
    RecheckOwner(Target),
}

/// What an error that is not ignored means for the rest of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Sends none of the later steps and requeues the item with backoff.
    StopAndRetry,
    /// Sends the later steps and requeues the item with backoff.
    ContinueAndRetry,
    /// Sends the later steps and logs the error.
    LogOnly,
    /// Sends the later steps; the reconciler handles the outcome.
    ReturnOutcome,
}

/// How soon a status update is sent.
///
/// Every reconcile computes the whole status, so a skipped update loses nothing: the item is requeued for the time
/// at which the next update may be sent, and that update holds the status of then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusUrgency {
    /// At once: a goal is reached or a failure is reported, and clients wait for it.
    Immediate,
    /// For intermediate progress: at once if the item has had no recent status update, otherwise after the coalescing
    /// interval.
    Coalesce,
    /// The same reconcile has changed the objects that the status counts, so the next reconcile updates it. It is sent
    /// only if such reconciles do not cease.
    Superseded,
}

impl Target {
    /// A cached object, with its UID as precondition.
    pub fn of<T: Kind>(object: &T) -> Self {
        Self::of_resource(&T::RESOURCE, object.meta())
    }

    /// An object of a resource known at run time only, with its UID as precondition.
    #[must_use]
    pub fn of_resource(resource: &Resource, meta: &ObjectMeta) -> Self {
        let precondition = Precondition::Uid;
        Self { resource: resource.clone(), key: meta.key.clone(), uid: meta.uid.clone(), precondition }
    }

    /// An object whose UID is not known, so that it must have another precondition or a reason for none.
    #[must_use]
    pub fn named(resource: &Resource, key: Key, precondition: Precondition) -> Self {
        Self { resource: resource.clone(), key, uid: Uid::default(), precondition }
    }

    /// The UID that the object must have, if that is the precondition.
    #[must_use]
    pub fn expected_uid(&self) -> Option<&Uid> {
        (self.precondition == Precondition::Uid && !self.uid.is_empty()).then_some(&self.uid)
    }

    /// Whether an object with this UID may be the target.
    #[must_use]
    pub fn allows_uid(&self, uid: &Uid) -> bool {
        self.expected_uid().is_none_or(|expected| expected == uid)
    }
}

impl Write {
    /// Creates an object. The executor adds `apiVersion` and `kind` to the body.
    #[must_use]
    pub fn create<T: Kind>(key: Key, body: Value) -> WriteDraft {
        WriteDraft::new(Target::named(&T::RESOURCE, key, Precondition::NameIsFree), Action::Create(body))
    }

    /// Applies fields on behalf of a field manager. As in the original, the request has no UID; a resourceVersion among
    /// the fields is a precondition.
    pub fn apply<T: Kind>(object: &T, manager: &'static str, fields: Value) -> WriteDraft {
        let precondition = match fields.pointer("/metadata/resourceVersion") {
            Some(_) => Precondition::ResourceVersionInBody,
            None => Precondition::None("the fields of an applied configuration say nothing about the UID"),
        };
        let target = Target { precondition, ..Target::of(object) };
        WriteDraft::new(target, Action::Apply { manager, fields, subresource: "" })
    }

    /// Patches a cached object.
    pub fn patch<T: Kind>(object: &T, form: PatchKind, body: Value) -> WriteDraft {
        Self::patch_target(Target::of(object), form, body)
    }

    /// Reads the live object, changes it and writes it back.
    pub fn edit<T: Kind>(
        object: &T,
        change: impl Fn(&mut Value) -> Edited + Send + Sync + 'static,
    ) -> WriteDraft {
        let edit = Edit {
            change: Arc::new(change),
            expected_resource_version: None,
            conflict_tries: 1,
            subresource: "",
        };
        WriteDraft::new(Target::of(object), Action::Edit(edit))
    }

    /// Deletes a cached object with its UID as precondition.
    pub fn delete<T: Kind>(object: &T) -> WriteDraft {
        Self::delete_target(Target::of(object))
    }

    /// Deletes an object of a resource known at run time only, with the target's UID as precondition.
    #[must_use]
    pub fn delete_target(target: Target) -> WriteDraft {
        WriteDraft::new(
            target,
            Action::Delete { propagation: None, grace_seconds: None, resource_version_precondition: None },
        )
    }

    /// Patches an object of a resource known at run time only.
    #[must_use]
    pub fn patch_target(target: Target, form: PatchKind, body: Value) -> WriteDraft {
        WriteDraft::new(target, Action::Patch { form, body, subresource: "" })
    }

    /// Reads the live metadata of an object and patches it with what `fields` makes of it.
    #[must_use]
    pub fn patch_metadata(
        target: Target,
        fields: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> WriteDraft {
        WriteDraft::new(
            target,
            Action::PatchMetadata(PatchMetadata { fields: Arc::new(fields), conflict_tries: 1 }),
        )
    }

    /// Deletes all objects of a resource in a namespace with one request.
    #[must_use]
    pub fn delete_collection(resource: &Resource, namespace: &str) -> WriteDraft {
        let precondition = Precondition::None("every object of the collection is to be deleted");
        let target = Target::named(resource, Key::namespaced(namespace, ""), precondition);
        WriteDraft::new(target, Action::DeleteCollection { propagation: None })
    }

    /// PUTs a body made from the cached object to a subresource, or to the object if the name is empty. The executor
    /// adds `apiVersion` and `kind`.
    pub fn put<T: Kind>(object: &T, subresource: &'static str, body: Value) -> WriteDraft {
        WriteDraft::new(Target::of(object), Action::Put { body, subresource, conflict_tries: 1 })
    }

    /// PUTs a status, with the metadata of the cached object.
    ///
    /// # Panics
    /// If the status is not serializable: a map whose keys are no strings.
    pub fn put_status<T: FullMeta>(object: &T, status: &impl Serialize) -> WriteDraft {
        Self::put(object, "status", json!({"metadata": object.full_meta_json(), "status": status}))
    }

    /// PUTs the Scale of an object of any kind with another number of replicas.
    pub fn put_scale(target: Target, scale: &Scale, replicas: i32) -> WriteDraft {
        let mut body = scale.json.clone();
        body["spec"]["replicas"] = json!(replicas);
        WriteDraft::new(target, Action::Put { body, subresource: "scale", conflict_tries: 1 })
    }
}

impl WriteDraft {
    /// States the reason.
    #[must_use]
    pub fn because(self, reason: impl Into<Cow<'static, str>>) -> Write {
        let reason = Reason(reason.into());
        debug_assert!(!reason.is_empty(), "the reason of a write is a text");
        Write {
            target: self.target,
            action: self.action,
            guard: self.guard,
            ignored_errors: self.ignored_errors,
            on_failure: self.on_failure,
            status_urgency: self.status_urgency,
            because: reason,
            outcome_event: self.outcome_event,
            returns_object: self.returns_object,
            field_manager: self.field_manager,
        }
    }

    fn new(target: Target, action: Action) -> Self {
        Self {
            target,
            action,
            guard: None,
            ignored_errors: &[],
            on_failure: OnFailure::StopAndRetry,
            status_urgency: None,
            because: NoReason(()),
            outcome_event: None,
            returns_object: false,
            field_manager: "",
        }
    }
}

impl<R> Write<R> {
    /// Asks for the stored object, which a later step reads with [`Outcome::stored`]. Other writes only ask for its
    /// metadata, which is a tenth of a pod.
    #[must_use]
    pub fn returning_object(mut self) -> Self {
        self.returns_object = true;
        self
    }

    /// Patch only: names the field manager. A server-side apply names its own.
    #[must_use]
    pub fn field_manager(mut self, name: &'static str) -> Self {
        self.field_manager = name;
        self
    }

    /// Records an event that depends on the outcome.
    #[must_use]
    pub fn record_on_outcome(
        mut self,
        event: impl Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync + 'static,
    ) -> Self {
        self.outcome_event = Some(Arc::new(event));
        self
    }

    /// Delete only: sets the propagation policy.
    #[must_use]
    pub fn propagation_policy(mut self, policy: PropagationPolicy) -> Self {
        if let Action::Delete { propagation, .. } | Action::DeleteCollection { propagation } =
            &mut self.action
        {
            *propagation = Some(policy);
        }
        self
    }

    /// Delete only: sets `gracePeriodSeconds`.
    #[must_use]
    pub fn grace_seconds(mut self, seconds: u32) -> Self {
        if let Action::Delete { grace_seconds, .. } = &mut self.action {
            *grace_seconds = Some(seconds);
        }
        self
    }

    /// Delete only: adds a resourceVersion precondition.
    #[must_use]
    pub fn resource_version_precondition(mut self, resource_version: &ResourceVersion) -> Self {
        if let Action::Delete { resource_version_precondition, .. } = &mut self.action {
            *resource_version_precondition = Some(resource_version.clone());
        }
        self
    }

    /// Apply, patch and edit only: writes the subresource.
    #[must_use]
    pub fn on_subresource(mut self, name: &'static str) -> Self {
        match &mut self.action {
            Action::Apply { subresource, .. }
            | Action::Patch { subresource, .. }
            | Action::Edit(Edit { subresource, .. }) => *subresource = name,
            _ => {}
        }
        self
    }

    /// Counts these errors as success.
    #[must_use]
    pub fn ignoring_errors(mut self, tolerated: &'static [ErrorReason]) -> Self {
        self.ignored_errors = tolerated;
        self
    }

    /// Sets what any other error means for the rest of the plan.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Marks the write as a status update that may be coalesced.
    #[must_use]
    pub fn status_urgency(mut self, urgency: StatusUrgency) -> Self {
        self.status_urgency = Some(urgency);
        self
    }

    /// Adds a live check before the write is sent.
    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Edit only: writes nothing if the live object has another resourceVersion.
    #[must_use]
    pub fn expected_resource_version(mut self, resource_version: &ResourceVersion) -> Self {
        if let Action::Edit(edit) = &mut self.action {
            edit.expected_resource_version = Some(resource_version.clone());
        }
        self
    }

    /// Edit, metadata patch and PUT only: sets the number of attempts in case of conflicts.
    #[must_use]
    pub fn conflict_tries(mut self, tries: u32) -> Self {
        match &mut self.action {
            Action::Edit(Edit { conflict_tries, .. })
            | Action::PatchMetadata(PatchMetadata { conflict_tries, .. })
            | Action::Put { conflict_tries, .. } => *conflict_tries = tries.max(1),
            _ => {}
        }
        self
    }

    /// The subresource of the request; empty for the object itself.
    #[must_use]
    pub fn subresource(&self) -> &'static str {
        match &self.action {
            Action::Apply { subresource, .. }
            | Action::Patch { subresource, .. }
            | Action::Put { subresource, .. }
            | Action::Edit(Edit { subresource, .. }) => subresource,
            Action::Create(_)
            | Action::PatchMetadata(_)
            | Action::Delete { .. }
            | Action::DeleteCollection { .. } => "",
        }
    }

    /// The verb of the request, as authorizers name it.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match &self.action {
            Action::Create(_) => "create",
            Action::Apply { .. } | Action::Patch { .. } | Action::PatchMetadata(_) => "patch",
            Action::Edit(_) | Action::Put { .. } => "update",
            Action::Delete { .. } => "delete",
            Action::DeleteCollection { .. } => "deletecollection",
        }
    }
}

impl Write {
    /// What is logged and kept of a failure. The API server and its webhooks may quote the object that they refuse, so of a Secret
    /// nothing that they say is.
    #[must_use]
    pub fn failure_text(&self, failure: &ApiError) -> String {
        let resource = &self.target.resource;
        if resource.plural == "secrets" && resource.group.is_empty() {
            return format!("{:?} (message not kept, it may quote the Secret)", failure.reason);
        }
        failure.to_string()
    }
}

/// One log line: the verb, the object, the reason. Bodies are left out because they may hold secrets.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.action {
            Action::Apply { .. } => "apply",
            Action::Edit(_) => "edit",
            Action::PatchMetadata(_) => "patch",
            Action::Put { .. } => "put",
            _ => self.verb(),
        };
        let Target { resource, key, .. } = &self.target;
        if matches!(self.action, Action::DeleteCollection { .. }) {
            return write!(f, "{verb} {resource} in {} because {}", key.namespace, self.because);
        }
        let subresource = self.subresource();
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{verb} {resource}{slash}{subresource} {key} because {}", self.because)
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::Namespace;

    use super::*;

    fn namespace() -> Namespace {
        let json = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        serde_json::from_value(json).expect("a Namespace")
    }

    #[test]
    fn every_write_has_a_precondition_or_says_why_it_has_none() {
        let object = namespace();
        let of_uid = [
            Write::patch(&object, PatchKind::Merge, json!({})),
            Write::edit(&object, |_| Edited::Unneeded),
            Write::delete(&object),
            Write::put(&object, "", json!({})),
            Write::patch_metadata(Target::of(&object), |_| None),
        ];
        for write in of_uid.map(|draft| draft.because("of the test")) {
            assert_eq!((write.target.precondition, &write.target.uid), (Precondition::Uid, &object.meta.uid));
            assert_eq!(write.target.expected_uid(), Some(&object.meta.uid), "{write}");
        }
        let create = Write::create::<Namespace>(Key::cluster("a"), json!({})).because("of the test");
        assert_eq!(create.target.precondition, Precondition::NameIsFree);
        let versioned = Write::apply(&object, "me", json!({"metadata": {"resourceVersion": "7"}}));
        assert_eq!(versioned.target.precondition, Precondition::ResourceVersionInBody);
        let unguarded =
            [Write::apply(&object, "me", json!({})), Write::delete_collection(&Namespace::RESOURCE, "")];
        for draft in unguarded {
            let Precondition::None(why) = draft.target.precondition else { panic!("it has a precondition") };
            assert!(!why.is_empty());
        }
    }

    #[test]
    fn only_a_uid_precondition_refuses_another_uid() {
        let (own, other) = (Uid::from("u"), Uid::from("v"));
        let guarded = Target::of(&namespace());
        assert!(guarded.allows_uid(&own) && !guarded.allows_uid(&other));
        let by_name = Target { precondition: Precondition::None("of the test"), ..guarded };
        assert!(by_name.allows_uid(&own) && by_name.allows_uid(&other));
        assert_eq!(by_name.expected_uid(), None, "also if the UID is known");
    }

    #[test]
    fn reason_is_kept_and_shown() {
        let write = Write::delete(&namespace()).on_failure(OnFailure::LogOnly).because("it is unused");
        assert_eq!(&*write.because, "it is unused");
        assert_eq!(write.on_failure, OnFailure::LogOnly, "what was refined before stays");
        let later = write.grace_seconds(0);
        assert_eq!(later.to_string(), "delete namespaces a because it is unused");
    }
}
