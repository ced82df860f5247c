//! The explanation of one object, as it is sent and printed.

use keleustes_objects::{Key, Resource};
use keleustes_plan::{EventType, PlannedEvent, Write};
use serde::Serialize;

use super::diagnosis::Finding;
use crate::journal::JournalEntry;

/// Why an object is as it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The version of this format.
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// The object.
    pub object: ObjectName,
    /// Whether the API server has it.
    pub exists: bool,
    /// One or two words: `as wanted`, `changing`, `waiting`, `blocked`, `not found`.
    pub state: &'static str,
    /// Why it is not as wanted, the most likely cause first.
    pub causes: Vec<Cause>,
    /// The process that explains.
    pub manager: ManagerState,
    /// What each controller that handles the object wants, and what it waits for.
    pub controllers: Vec<ControllerExplanation>,
    /// The owners, the closest first.
    pub owners: Vec<ObjectLine>,
    /// The objects below it.
    pub dependents: Vec<ObjectLine>,
    /// How many more dependents there are.
    pub dependents_not_shown: usize,
    /// The latest decisions about it, the newest first.
    pub decisions: Vec<JournalEntry>,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    pub(super) fn new(resource: &Resource, key: &Key) -> Self {
        Self {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }

    /// As kubectl prints it: `deployment/web`.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The object responsible.
    pub object: ObjectName,
    /// How it is reached from the explained object, that object first.
    pub path: Vec<String>,
    /// What is wrong with it.
    pub text: String,
    /// How many objects of the same kind have the same cause.
    pub count: usize,
}

/// The process that explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagerState {
    /// Whether it leads. A standby knows what it would do, but not what the leader did and waits for.
    pub leads: bool,
    /// The holder of the Lease, if it could be read.
    pub leader: Option<String>,
}

/// What one controller wants of the object, and what it waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerExplanation {
    /// Its name.
    pub controller: &'static str,
    /// Its queue.
    pub queue: &'static str,
    /// The item that it reconciles for the object.
    pub item: String,
    /// The writes it would send now.
    pub writes: Vec<WantedWrite>,
    /// How many more there are.
    pub writes_not_shown: usize,
    /// The events it would record now.
    pub events: Vec<WantedEvent>,
    /// The error it would end with now.
    pub error: Option<String>,
    /// Why none of this could be computed.
    pub not_computed: Option<String>,
    /// What it waits for.
    pub waiting: Vec<String>,
}

impl ControllerExplanation {
    /// Whether it wants nothing and waits for nothing.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.writes.is_empty()
            && self.events.is_empty()
            && self.error.is_none()
            && self.not_computed.is_none()
            && self.waiting.is_empty()
    }
}

/// A write that a controller would send. Bodies are left out because they may hold what the reader may not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedWrite {
    /// The verb, such as `create`.
    pub verb: &'static str,
    /// The resource, with its subresource.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty if the server generates it.
    pub name: String,
    /// Why.
    pub because: String,
}

impl WantedWrite {
    pub(super) fn of(write: &Write) -> Self {
        let (resource, subresource) = (&write.target.resource, write.subresource());
        let slash = if subresource.is_empty() { "" } else { "/" };
        Self {
            verb: write.verb(),
            resource: format!("{resource}{slash}{subresource}"),
            namespace: write.target.key.namespace.to_string(),
            name: write.target.key.name.to_string(),
            because: write.because.to_string(),
        }
    }

    /// One line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { verb, resource, name, because, .. } = self;
        let name = match (name.as_str(), *verb) {
            ("", "deletecollection") => "of the namespace",
            ("", _) => "with a generated name",
            (name, _) => name,
        };
        format!("{verb} {resource} {name} because {because}")
    }
}

/// An event that a controller would record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedEvent {
    /// Whether it is a warning.
    pub warning: bool,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl WantedEvent {
    pub(super) fn of(event: &PlannedEvent) -> Self {
        Self {
            warning: event.event_type == EventType::Warning,
            reason: event.reason.clone(),
            message: event.message.clone(),
        }
    }
}

/// One owner or dependent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectLine {
    /// The object.
    pub object: ObjectName,
    /// How far it is from the explained object.
    pub depth: usize,
    /// What there is to say about it, the most important first.
    pub findings: Vec<Finding>,
}
