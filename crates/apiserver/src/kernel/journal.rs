//! What outlives the process: every change as one entry, from which the same state is built again.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::resources::Strategy;
use super::settings::Settings;
use super::store::{Change, Event};

/// One change to keep.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// The object is like this now.
    Put {
        /// Revision of the change.
        revision: u64,
        /// The whole object.
        object: Arc<Value>,
    },
    /// The object is gone.
    Removed {
        /// Revision of the change.
        revision: u64,
        /// `apiVersion` of the object.
        api_version: String,
        /// Kind of the object.
        kind: String,
        /// Namespace, or empty.
        namespace: String,
        /// Name.
        name: String,
    },
}

impl Entry {
    /// The entry as one JSON value.
    pub fn to_value(&self) -> Value {
        match self {
            Entry::Put { revision, object } => json!({"revision": revision, "object": **object}),
            Entry::Removed { revision, api_version, kind, namespace, name } => json!({"revision": revision,
                "removed": {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}}),
        }
    }

    /// Reads an entry; `None` if the value is none.
    pub fn from_value(value: &Value) -> Option<Entry> {
        let revision = value.get("revision")?.as_u64()?;
        if let Some(object) = value.get("object").filter(|object| object.is_object()) {
            return Some(Entry::Put { revision, object: Arc::new(object.clone()) });
        }
        let text = |field: &str| Some(value.get("removed")?.get(field)?.as_str()?.to_owned());
        Some(Entry::Removed {
            revision,
            api_version: text("apiVersion")?,
            kind: text("kind")?,
            namespace: text("namespace")?,
            name: text("name")?,
        })
    }
}

impl Kernel {
    /// Notes a change if anybody wants to keep it.
    pub(crate) fn record(&mut self, event: &Event) {
        if !self.settings.journal {
            return;
        }
        let object = &event.object;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        self.journal.push(match event.change {
            Change::Deleted => Entry::Removed {
                revision: event.revision,
                api_version: text("apiVersion"),
                kind: text("kind"),
                namespace: meta_str(object, "namespace").to_owned(),
                name: meta_str(object, "name").to_owned(),
            },
            Change::Added | Change::Modified => {
                Entry::Put { revision: event.revision, object: Arc::clone(object) }
            }
        });
    }

    /// The changes since the last call, oldest first.
    pub fn take_journal(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.journal)
    }

    /// The whole state as entries, in an order in which it can be built again.
    pub fn dump(&self) -> Vec<Entry> {
        let put =
            |object: &Arc<Value>| Entry::Put { revision: self.store.revision(), object: Arc::clone(object) };
        // Definitions come first, so that their instances have a kind when they are read.
        let (definitions, others): (Vec<_>, Vec<_>) =
            self.store.all().partition(|object| object["kind"] == "CustomResourceDefinition");
        definitions.into_iter().chain(others).map(put).collect()
    }

    /// A server with the state the entries lead to. Nothing can be watched from before; entries of kinds that are
    /// no longer served are passed over, and how many is told.
    pub fn restore(
        settings: Settings,
        entries: impl IntoIterator<Item = Entry>,
        now: Timestamp,
    ) -> (Kernel, usize) {
        let journal = settings.journal;
        let mut kernel = Kernel::empty(Settings { journal: false, ..settings }, now);
        let mut passed_over = 0;
        for entry in entries {
            passed_over += usize::from(!kernel.replay(entry, now));
        }
        kernel.store.compact();
        kernel.settings.journal = journal;
        // What is there already stays; what a newer version of the program adds is made.
        kernel.bootstrap(now);
        (kernel, passed_over)
    }

    fn replay(&mut self, entry: Entry, now: Timestamp) -> bool {
        let (revision, api_version, kind) = match &entry {
            Entry::Put { revision, object } => {
                (*revision, object["apiVersion"].as_str(), object["kind"].as_str())
            }
            Entry::Removed { revision, api_version, kind, .. } => {
                (*revision, Some(api_version.as_str()), Some(kind.as_str()))
            }
        };
        let kind = kind.and_then(|kind| self.registry.by_kind(api_version?, kind));
        let Some(resource) = kind else { return false };
        match entry {
            Entry::Put { object, .. } => {
                let event = self.store.load(resource, object, revision);
                if resource.strategy == Strategy::CustomResourceDefinition {
                    self.serve_definition(&event.object);
                }
                self.time_event_of(&event, now);
            }
            Entry::Removed { namespace, name, .. } => {
                if let Some(event) = self.store.remove(resource, &namespace, &name, None)
                    && resource.strategy == Strategy::CustomResourceDefinition
                {
                    self.registry.define(meta_str(&event.object, "name"), Vec::new());
                }
                self.store.advance(revision);
            }
        }
        true
    }

    fn time_event_of(&mut self, event: &Event, now: Timestamp) {
        if event.resource.strategy == Strategy::Event {
            self.time_event(event, now);
        }
    }
}
