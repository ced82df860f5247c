//! The journal: every change as one entry, from which the state can be restored.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Kernel;
use super::kernel_options::KernelOptions;
use super::metadata::meta_str;
use super::resources::Strategy;
use super::store::{self, Change, Event};
use super::stored_object::StoredObject;

/// One change.
#[derive(Debug, Clone)]
pub enum JournalEntry {
    /// The object was created or updated.
    Put {
        /// Revision of the change.
        revision: u64,
        /// The full object.
        object: ObjectText,
    },
    /// The object was removed.
    Removed {
        /// Revision of the change.
        revision: u64,
        /// The removed object.
        object: ObjectIdentity,
    },
}

/// An object as JSON text.
#[derive(Debug, Clone)]
pub struct ObjectText(Source);

#[derive(Debug, Clone)]
enum Source {
    Stored(StoredObject),
    Read(Box<str>),
}

impl ObjectText {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Source::Stored(stored) => stored.text(),
            Source::Read(text) => text,
        }
    }
}

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectIdentity {
    /// `apiVersion` of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    revision: u64,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    removed: Option<ObjectIdentity>,
}

impl JournalEntry {
    /// The entry as one line of JSON, without the newline.
    pub fn to_line(&self) -> String {
        match self {
            JournalEntry::Put { revision, object } => {
                format!("{{\"revision\":{revision},\"object\":{}}}", object.as_str())
            }
            JournalEntry::Removed { revision, object } => {
                json!({"revision": revision, "removed": object}).to_string()
            }
        }
    }

    /// Parses a line; `None` if it is not an entry.
    pub fn from_line(line: &str) -> Option<JournalEntry> {
        let Line { revision, object, removed } = serde_json::from_str(line).ok()?;
        match (object, removed) {
            (Some(object), _) => {
                Some(JournalEntry::Put { revision, object: ObjectText(Source::Read(object.get().into())) })
            }
            (None, Some(object)) => Some(JournalEntry::Removed { revision, object }),
            (None, None) => None,
        }
    }

    /// Revision of the change.
    pub fn revision(&self) -> u64 {
        match self {
            JournalEntry::Put { revision, .. } | JournalEntry::Removed { revision, .. } => *revision,
        }
    }
}

impl Kernel {
    /// Appends a change to the journal, if the journal is enabled.
    pub(crate) fn record(&mut self, event: &Event) {
        if !self.options.journal {
            return;
        }
        let revision = event.revision;
        self.journal.push(match event.change {
            Change::Deleted => {
                let object = event.object();
                let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
                let object = ObjectIdentity {
                    api_version: text("apiVersion"),
                    kind: text("kind"),
                    namespace: meta_str(object, "namespace").to_owned(),
                    name: meta_str(object, "name").to_owned(),
                };
                JournalEntry::Removed { revision, object }
            }
            Change::Added | Change::Modified => {
                JournalEntry::Put { revision, object: ObjectText(Source::Stored(event.stored.clone())) }
            }
        });
    }

    /// The changes since the last call, oldest first.
    pub fn take_journal(&mut self) -> Vec<JournalEntry> {
        std::mem::take(&mut self.journal)
    }

    /// The full state as entries, in an order in which it can be restored.
    pub fn dump(&self) -> Vec<JournalEntry> {
        let revision = self.store.revision();
        let put = |stored: &StoredObject| JournalEntry::Put {
            revision,
            object: ObjectText(Source::Stored(stored.clone())),
        };
        // CRDs come first, so that the kinds of their custom objects exist when those are restored.
        let (definitions, others): (Vec<&StoredObject>, Vec<&StoredObject>) = self
            .store
            .all_stored()
            .partition(|stored| stored.resource().strategy == Strategy::CustomResourceDefinition);
        definitions.into_iter().chain(others).map(put).collect()
    }

    /// A kernel with the state of the entries, and the number of entries skipped because their kind is no longer
    /// served. No history is restored: watches cannot start at an earlier revision.
    pub fn restore(
        options: KernelOptions,
        entries: impl IntoIterator<Item = JournalEntry>,
        now: Timestamp,
    ) -> (Kernel, usize) {
        let journal = options.journal;
        let mut kernel = Kernel::empty(KernelOptions { journal: false, ..options }, now);
        let mut skipped = 0;
        for entry in entries {
            skipped += usize::from(!kernel.replay(entry, now));
        }
        kernel.store.compact();
        kernel.options.journal = journal;
        // Keeps existing objects and creates those that a newer version of the program adds.
        kernel.bootstrap(now);
        (kernel, skipped)
    }

    fn replay(&mut self, entry: JournalEntry, now: Timestamp) -> bool {
        match entry {
            JournalEntry::Put { revision, object } => {
                let Ok(object) = serde_json::from_str::<Value>(object.as_str()).map(Arc::new) else {
                    return false;
                };
                let text = |field: &str| object[field].as_str().unwrap_or_default();
                let Some(resource) = self.registry.by_kind(text("apiVersion"), text("kind")) else {
                    return false;
                };
                self.store.load(resource, &object, revision);
                match resource.strategy {
                    Strategy::CustomResourceDefinition => self.serve_crd(&object),
                    Strategy::Event => {
                        let key = store::key(meta_str(&object, "namespace"), meta_str(&object, "name"));
                        self.set_event_deadline(&key, false, now);
                    }
                    _ => {}
                }
            }
            JournalEntry::Removed { revision, object: removed } => {
                let Some(resource) = self.registry.by_kind(&removed.api_version, &removed.kind) else {
                    return false;
                };
                if let Some(event) = self.store.remove(resource, &removed.namespace, &removed.name, None)
                    && resource.strategy == Strategy::CustomResourceDefinition
                {
                    self.registry.define(meta_str(event.object(), "name"), Vec::new());
                }
                self.store.advance(revision);
            }
        }
        true
    }
}
