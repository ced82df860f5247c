//! One intended change to the API: where, what, under which conditions, and why.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use keleustes_objects::{ErrorReason, FullMeta, Key, Kind, ObjectMeta, Resource, ResourceVersion, Uid};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Outcome, PlannedEvent};

/// One intended change. Built by one of the constructors, refined by the methods after them.
#[derive(Clone)]
pub struct Write {
    /// What it changes.
    pub target: Target,
    /// What it does to it.
    pub action: Action,
    /// What must hold, freshly checked, before it is sent.
    pub guard: Option<Guard>,
    /// Refusals that are as good as success.
    pub ignored_errors: &'static [ErrorReason],
    /// What any other refusal means for the rest of the plan.
    pub on_failure: OnFailure,
    /// How soon it must be known, if all it does is tell how things stand.
    pub status_urgency: Option<StatusUrgency>,
    /// Why, for whoever asks what this program did and for what reason.
    pub because: Cow<'static, str>,
    /// What people are told of what became of it.
    pub outcome_event: Option<OutcomeEventFn>,
}

/// Makes an event of what became of a write, if it is worth one.
pub type OutcomeEventFn = Arc<dyn Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync>;

/// An object that a write is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its resource.
    pub resource: Resource,
    /// Where it is. For a create the name may be empty: the server makes one up.
    pub key: Key,
    /// Which life of it is meant; empty if any.
    pub uid: Uid,
}

/// What a write does.
#[derive(Clone)]
pub enum Action {
    /// Creates the object.
    Create(Value),
    /// States the fields that this manager wants, by server-side apply, taking them from others.
    Apply {
        /// Who owns the fields.
        manager: &'static str,
        /// The fields.
        fields: Value,
    },
    /// Patches the object, or a subresource of it if one is named.
    Patch {
        /// How the body is to be read.
        form: PatchKind,
        /// The patch.
        body: Value,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
    },
    /// Reads the object afresh, changes it, and puts it back; nothing the server sent is lost on the way.
    Edit(Edit),
    /// Reads the metadata afresh and merges into it what is made of it, in that state only.
    PatchMetadata(PatchMetadata),
    /// Puts a body made from the cached object, which saves the read that an edit begins with. It must
    /// hold all metadata that the server would otherwise take for removed.
    Put {
        /// The body, `metadata.resourceVersion` included.
        body: Value,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
        /// How often a conflict is answered by reading the object and putting the same part into it.
        conflict_tries: u32,
    },
    /// Deletes the object, this life of it only.
    Delete {
        /// What becomes of the objects it owns; the server's default if unset.
        propagation: Option<PropagationPolicy>,
        /// How long it may take to end; its own wish if unset.
        grace_seconds: Option<u32>,
        /// Only in this state, if one is given.
        resource_version_precondition: Option<ResourceVersion>,
    },
    /// Deletes every object of the resource in the target's namespace, whatever life it is in. Nothing
    /// holds the item back until caches have seen it: it is for those who look at the server.
    DeleteCollection {
        /// What becomes of the objects they own; the server's default if unset.
        propagation: Option<PropagationPolicy>,
    },
}

/// How the body of a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386.
    Merge,
    /// The API's own, with merge keys.
    Strategic,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// A change to a freshly read object.
#[derive(Clone)]
pub struct Edit {
    /// Makes the change, or says why there is none to make. It sees the whole object and must be
    /// pure: after a conflict it is called again, on a newer state.
    pub change: Arc<dyn Fn(&mut Value) -> Edited + Send + Sync>,
    /// The state the decision was made on. If the object has moved on, nothing is written: the
    /// change that moved it will wake the controller again.
    pub expected_resource_version: Option<ResourceVersion>,
    /// How often a conflict is answered by reading again.
    pub conflict_tries: u32,
    /// The subresource it is put to; empty for the object itself.
    pub subresource: &'static str,
}

/// Makes of metadata the fields of it that are to be changed, if any are.
pub type MakeFields = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// A change to freshly read metadata, sent as a merge patch.
#[derive(Clone)]
pub struct PatchMetadata {
    /// Makes the fields of the metadata that are to be merged; `None` if there is nothing to change. It must
    /// be pure: after a conflict it is called again, on a newer state.
    pub fields: MakeFields,
    /// How often a conflict is answered by reading again.
    pub conflict_tries: u32,
}

/// What an [`Edit`] made of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// It is changed and wants to be written.
    Changed,
    /// There is nothing to write.
    Unneeded,
    /// The change cannot be made; trying again will not help.
    Impossible(String),
}

/// What must hold, freshly checked, before a write is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The owner still lives: same uid, no deletion asked for. Asked once per plan, however many
    /// writes depend on it, and its failure fails them all.
    RecheckOwner(Target),
}

/// What a refusal that is not tolerated means for the rest of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing after it is sent, and the item is tried again later.
    StopAndRetry,
    /// The rest is sent, and the item is tried again later.
    ContinueAndRetry,
    /// The rest is sent, and nothing is tried again.
    LogOnly,
    /// The rest is sent, and the script that asked for it looks at the outcome.
    ReturnOutcome,
}

/// How soon a write must be sent that only tells how things stand, as a status does.
///
/// Every turn tells anew what it finds, so one that is not sent costs nothing but time: the item is looked at
/// again when it may tell, and tells what holds then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusUrgency {
    /// Somebody waits for it: a goal is reached, or something is wrong.
    Immediate,
    /// At once if the item has been quiet; some time after what it told before if it has not. For steps on the way.
    Coalesce,
    /// The same turn has just changed what it tells of, and the next one will know better. It is told only if there
    /// is no end to such turns.
    Superseded,
}

impl Target {
    /// An object of a kind, as it was seen.
    pub fn of<T: Kind>(object: &T) -> Self {
        Self { resource: T::RESOURCE, key: object.key().clone(), uid: object.meta().uid.clone() }
    }

    /// An object of a resource that is only known at run time, as it was seen.
    #[must_use]
    pub fn of_resource(resource: &Resource, meta: &ObjectMeta) -> Self {
        Self { resource: resource.clone(), key: meta.key.clone(), uid: meta.uid.clone() }
    }

    /// Any life of an object.
    #[must_use]
    pub fn named<T: Kind>(key: Key) -> Self {
        Self { resource: T::RESOURCE, key, uid: Uid::default() }
    }
}

impl Write {
    /// Creates an object of a kind. Type lines are filled in here; the rest is the body's.
    #[must_use]
    pub fn create<T: Kind>(key: Key, body: Value) -> Self {
        Self::new(Target::named::<T>(key), Action::Create(body))
    }

    /// States wanted fields of an object, in the name of a field manager.
    pub fn apply<T: Kind>(object: &T, manager: &'static str, fields: Value) -> Self {
        Self::new(Target::of(object), Action::Apply { manager, fields })
    }

    /// Patches an object.
    pub fn patch<T: Kind>(object: &T, form: PatchKind, body: Value) -> Self {
        Self::patch_target(Target::of(object), form, body)
    }

    /// Reads an object afresh, changes it and puts it back.
    pub fn edit<T: Kind>(object: &T, change: impl Fn(&mut Value) -> Edited + Send + Sync + 'static) -> Self {
        let edit = Edit {
            change: Arc::new(change),
            expected_resource_version: None,
            conflict_tries: 1,
            subresource: "",
        };
        Self::new(Target::of(object), Action::Edit(edit))
    }

    /// Deletes an object: the life that was seen, and no other.
    pub fn delete<T: Kind>(object: &T) -> Self {
        Self::delete_target(Target::of(object))
    }

    /// Deletes an object of a resource that is only known at run time: the life that was seen, and no other.
    #[must_use]
    pub fn delete_target(target: Target) -> Self {
        Self::new(
            target,
            Action::Delete { propagation: None, grace_seconds: None, resource_version_precondition: None },
        )
    }

    /// Patches an object of a resource that is only known at run time.
    #[must_use]
    pub fn patch_target(target: Target, form: PatchKind, body: Value) -> Self {
        Self::new(target, Action::Patch { form, body, subresource: "" })
    }

    /// Reads the metadata of an object afresh and merges into it the fields that are made of it.
    #[must_use]
    pub fn patch_metadata(
        target: Target,
        fields: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        Self::new(
            target,
            Action::PatchMetadata(PatchMetadata { fields: Arc::new(fields), conflict_tries: 1 }),
        )
    }

    /// Deletes all objects of a resource in a namespace.
    #[must_use]
    pub fn delete_collection(resource: &Resource, namespace: &str) -> Self {
        let key = Key::namespaced(namespace, "");
        let target = Target { resource: resource.clone(), key, uid: Uid::default() };
        Self::new(target, Action::DeleteCollection { propagation: None })
    }

    /// Puts a body made from the cached object to a subresource, or to the object itself if the name is
    /// empty. Type lines are filled in here.
    pub fn put<T: Kind>(object: &T, subresource: &'static str, body: Value) -> Self {
        Self::new(Target::of(object), Action::Put { body, subresource, conflict_tries: 1 })
    }

    /// Puts a status to an object, with the rest of it as it was seen.
    ///
    /// # Panics
    /// If the status cannot be written as JSON, which only maps with keys that are no strings cannot.
    pub fn put_status<T: FullMeta>(object: &T, status: &impl Serialize) -> Self {
        Self::put(object, "status", json!({"metadata": object.full_meta_json(), "status": status}))
    }

    fn new(target: Target, action: Action) -> Self {
        Self {
            target,
            action,
            guard: None,
            ignored_errors: &[],
            on_failure: OnFailure::StopAndRetry,
            status_urgency: None,
            because: Cow::Borrowed(""),
            outcome_event: None,
        }
    }

    /// Tells people what became of it.
    #[must_use]
    pub fn record_on_outcome(
        mut self,
        report: impl Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync + 'static,
    ) -> Self {
        self.outcome_event = Some(Arc::new(report));
        self
    }

    /// Of a delete: what becomes of the objects it owns.
    #[must_use]
    pub fn propagation_policy(mut self, policy: PropagationPolicy) -> Self {
        if let Action::Delete { propagation, .. } | Action::DeleteCollection { propagation } =
            &mut self.action
        {
            *propagation = Some(policy);
        }
        self
    }

    /// Of a delete: how long it may take to end.
    #[must_use]
    pub fn grace_seconds(mut self, seconds: u32) -> Self {
        if let Action::Delete { grace_seconds, .. } = &mut self.action {
            *grace_seconds = Some(seconds);
        }
        self
    }

    /// Of a delete: only if the object is still in this state.
    #[must_use]
    pub fn resource_version_precondition(mut self, version: &ResourceVersion) -> Self {
        if let Action::Delete { resource_version_precondition, .. } = &mut self.action {
            *resource_version_precondition = Some(version.clone());
        }
        self
    }

    /// Of a patch or an edit: of this part of the object.
    #[must_use]
    pub fn on_subresource(mut self, name: &'static str) -> Self {
        match &mut self.action {
            Action::Patch { subresource, .. } | Action::Edit(Edit { subresource, .. }) => *subresource = name,
            _ => {}
        }
        self
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.because = reason.into();
        self
    }

    /// Takes these refusals for success.
    #[must_use]
    pub fn ignoring_errors(mut self, tolerated: &'static [ErrorReason]) -> Self {
        self.ignored_errors = tolerated;
        self
    }

    /// Says what any other refusal means for the rest of the plan.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Says that it only tells how things stand, and how soon that must be known.
    #[must_use]
    pub fn status_urgency(mut self, telling: StatusUrgency) -> Self {
        self.status_urgency = Some(telling);
        self
    }

    /// Demands that something holds, freshly checked, before this is sent.
    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Of an edit: writes nothing if the object has moved on since this state.
    #[must_use]
    pub fn expected_resource_version(mut self, version: &ResourceVersion) -> Self {
        if let Action::Edit(edit) = &mut self.action {
            edit.expected_resource_version = Some(version.clone());
        }
        self
    }

    /// Of an edit, an amendment or a put: answers a conflict by reading again, so many tries in all.
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

    /// The subresource it is sent to; empty for the object itself.
    #[must_use]
    pub fn subresource(&self) -> &'static str {
        match &self.action {
            Action::Patch { subresource, .. }
            | Action::Put { subresource, .. }
            | Action::Edit(Edit { subresource, .. }) => subresource,
            Action::Create(_)
            | Action::Apply { .. }
            | Action::PatchMetadata(_)
            | Action::Delete { .. }
            | Action::DeleteCollection { .. } => "",
        }
    }

    /// The verb as the API's authorizers know it.
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

/// One line for a person: the verb, the object, the reason. Bodies are left out, they may be secret.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match &self.action {
            Action::Apply { .. } => "apply",
            Action::Edit(_) => "edit",
            Action::PatchMetadata(_) => "amend",
            Action::Put { .. } => "put",
            _ => self.verb(),
        };
        let Target { resource, key, .. } = &self.target;
        if matches!(self.action, Action::DeleteCollection { .. }) {
            return write!(f, "{word} {resource} in {} because {}", key.namespace, self.because);
        }
        let slash = if self.subresource().is_empty() { "" } else { "/" };
        let part = self.subresource();
        write!(f, "{word} {resource}{slash}{part} {key} because {}", self.because)
    }
}
