//! Events that a controller wants people to see.

use std::collections::BTreeMap;

use keleustes_objects::{Kind, Resource, ResourceVersion, Uid};

/// An event to be recorded with the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// The object it is about.
    pub involved_object: InvolvedObject,
    /// How serious it is.
    pub event_type: EventType,
    /// One CamelCase word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Annotations of the event itself.
    pub annotations: BTreeMap<String, String>,
}

/// How serious an event is. There is no third kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventType {
    /// As the API writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object that an event is about.
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
    /// The life that is meant.
    pub uid: Uid,
    /// The state that was seen.
    pub resource_version: ResourceVersion,
    /// A part of the object; empty for all of it.
    pub field_path: String,
}

impl InvolvedObject {
    /// Refers to a cached object. Caches hold no type lines; the type knows them.
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

    /// Refers to an object of any resource.
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

impl PlannedEvent {
    /// An event of the normal course of things.
    #[must_use]
    pub fn normal(involved: InvolvedObject, reason: &str, message: impl Into<String>) -> Self {
        Self::new(involved, EventType::Normal, reason, message.into())
    }

    /// An event that somebody may want to look at.
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
