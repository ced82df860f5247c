//! Events that a controller records.

use std::collections::BTreeMap;
use std::fmt;

use keleustes_objects::{Kind, Resource, ResourceVersion, Uid};

/// An Event that the recorder sends to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// `involvedObject`.
    pub involved_object: InvolvedObject,
    /// `type`.
    pub event_type: EventType,
    /// `reason`: one CamelCase word.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// Annotations of the Event.
    pub annotations: BTreeMap<String, String>,
}

/// The type of an Event. The API knows no third one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl EventType {
    /// The API's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object an Event refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvolvedObject {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: Uid,
    /// The resourceVersion of the cached object.
    pub resource_version: ResourceVersion,
    /// A field of the object; empty for the whole object.
    pub field_path: String,
}

impl InvolvedObject {
    /// A reference to a cached object.
    pub fn of<T: Kind>(object: &T) -> Self {
        let (meta, resource) = (object.meta(), T::RESOURCE);
        Self::named(
            &resource,
            &meta.key.namespace,
            &meta.key.name,
            meta.uid.clone(),
            meta.resource_version.clone(),
        )
    }

    /// A reference to an object of any resource.
    #[must_use]
    pub fn named(
        resource: &Resource,
        namespace: &str,
        name: &str,
        uid: Uid,
        version: ResourceVersion,
    ) -> Self {
        Self {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid,
            resource_version: version,
            field_path: String::new(),
        }
    }
}

/// `TYPE REASON on KIND NAMESPACE/NAME uid=UID: MESSAGE`.
impl fmt::Display for PlannedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { involved_object, event_type, reason, message, .. } = self;
        write!(f, "{} {reason} on {involved_object}: {message}", event_type.as_str())
    }
}

/// `KIND NAMESPACE/NAME uid=UID`.
impl fmt::Display for InvolvedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, uid, .. } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {namespace}{slash}{name} uid={uid}")
    }
}

impl PlannedEvent {
    /// An event of type `Normal`.
    #[must_use]
    pub fn normal(involved: InvolvedObject, reason: &str, message: impl Into<String>) -> Self {
        Self::new(involved, EventType::Normal, reason, message.into())
    }

    /// An event of type `Warning`.
    #[must_use]
    pub fn warning(involved: InvolvedObject, reason: &str, message: impl Into<String>) -> Self {
        Self::new(involved, EventType::Warning, reason, message.into())
    }

    fn new(involved: InvolvedObject, kind: EventType, reason: &str, message: String) -> Self {
        Self {
            involved_object: involved,
            event_type: kind,
            reason: reason.to_owned(),
            message,
            annotations: BTreeMap::new(),
        }
    }
}
