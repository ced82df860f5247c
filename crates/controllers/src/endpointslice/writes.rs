//! Turns what is to become of slices into writes: creates, then updates, then deletes.

use std::sync::Arc;

use keleustes_objects::{ArcStr, EndpointSlice, FullMeta as _, Key, Labels, Service, Time};
use keleustes_plan::{OnFailure, Write};
use serde_json::{Value, json};

use super::endpoints::AddressType;
use super::labels;
use super::packing::{Draft, SliceChanges, is_owned};

/// When the oldest change happened that a write is about; the difference to when nodes have acted on it is
/// what people measure.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The longest name of an object.
const NAME_MAX: usize = 253;

/// One write and what is to be known about it afterwards.
pub(super) struct SliceWrite {
    pub(super) operation: Operation,
    pub(super) write: Write,
    /// What to say if it fails.
    pub(super) failed: String,
}

/// What a write does to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// As metrics say it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Makes the writes of one Service and one family.
pub(super) struct SliceWriter<'s> {
    service: &'s Service,
    family: AddressType,
    labels: Labels,
    trigger_time: Option<Time>,
}

impl<'s> SliceWriter<'s> {
    pub(super) fn new(service: &'s Service, family: AddressType, trigger_time: Option<Time>) -> Self {
        Self { service, family, labels: labels::wanted(service), trigger_time }
    }

    /// Makes the writes.
    pub(super) fn writes(&self, mut lists: SliceChanges) -> Vec<SliceWrite> {
        lists.update.retain(|draft| !self.says_nothing_new(draft));
        let mut recycled = self.recycle(&mut lists);
        // A Service on its way out takes its slices along; new ones could be left behind.
        if self.service.meta.deletion_timestamp.is_some() {
            lists.create.clear();
        }
        let creates = lists.create.iter().map(|draft| self.create(draft));
        let updates = lists.update.iter().map(|draft| self.update(draft));
        let mut writes: Vec<_> = creates.chain(updates).collect();
        writes.append(&mut recycled);
        writes.extend(lists.delete.iter().map(|slice| delete(slice)));
        writes
    }

    /// Hints may come out as they were; the time of a change alone is no reason to tell every node.
    fn says_nothing_new(&self, draft: &Draft) -> bool {
        draft.origin.as_ref().is_some_and(|slice| {
            *slice.endpoints == *draft.endpoints
                && *slice.ports == *draft.ports
                && slice.meta.labels == self.labels
        })
    }

    /// Turns slices to be deleted into those to be created: one write instead of two, and no moment in which
    /// the endpoints of a Service are nowhere.
    fn recycle(&self, lists: &mut SliceChanges) -> Vec<SliceWrite> {
        let (mut recycled, mut deleted) = (Vec::new(), Vec::new());
        for slice in lists.delete.drain(..) {
            let fits = is_owned(&slice, &self.service.meta.uid) && slice.address_type == self.family.as_str();
            match if fits { lists.create.pop() } else { None } {
                Some(draft) => recycled.push(self.replace(&slice, &draft)),
                None => deleted.push(slice),
            }
        }
        lists.delete = deleted;
        recycled
    }

    fn create(&self, draft: &Draft) -> SliceWrite {
        let key = Key { namespace: self.service.meta.key.namespace.clone(), name: ArcStr::default() };
        let body = self.body(self.new_metadata(), draft);
        let write = Write::create::<EndpointSlice>(key, body).because(draft.because);
        SliceWrite {
            operation: Operation::Create,
            write,
            failed: "failed to create EndpointSlice".to_owned(),
        }
    }

    /// Writes a new slice under the name of an old one, of which nothing stays.
    fn replace(&self, old: &Arc<EndpointSlice>, draft: &Draft) -> SliceWrite {
        let mut metadata = self.new_metadata();
        metadata["name"] = json!(old.meta.key.name);
        metadata["uid"] = json!(old.meta.uid);
        update(old, self.body(metadata, draft), draft.because)
    }

    fn update(&self, draft: &Draft) -> SliceWrite {
        let Some(slice) = &draft.origin else { unreachable!("what is updated is there") };
        let mut metadata = slice.full_meta_json();
        metadata["labels"] = json!(self.labels);
        update(slice, self.body(metadata, draft), draft.because)
    }

    fn new_metadata(&self) -> Value {
        let Key { namespace, name } = &self.service.meta.key;
        let dash = if name.len() < NAME_MAX { "-" } else { "" };
        json!({
            "generateName": format!("{name}{dash}"),
            "namespace": namespace,
            "labels": self.labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": name, "uid": self.service.meta.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    }

    fn body(&self, mut metadata: Value, draft: &Draft) -> Value {
        match (&self.trigger_time, metadata.get_mut("annotations").and_then(Value::as_object_mut)) {
            (Some(time), _) => metadata["annotations"][TRIGGER_TIME] = json!(time),
            (None, Some(annotations)) => {
                annotations.remove(TRIGGER_TIME);
            }
            (None, None) => {}
        }
        json!({
            "metadata": metadata,
            "addressType": self.family.as_str(),
            "endpoints": draft.endpoints,
            "ports": draft.ports,
        })
    }
}

fn update(slice: &EndpointSlice, body: Value, because: &'static str) -> SliceWrite {
    let failed = format!("failed to update {} EndpointSlice", slice.meta.key.name);
    SliceWrite { operation: Operation::Update, write: Write::put(slice, "", body).because(because), failed }
}

fn delete(slice: &EndpointSlice) -> SliceWrite {
    let failed = format!("failed to delete {} EndpointSlice", slice.meta.key.name);
    SliceWrite {
        operation: Operation::Delete,
        write: Write::delete(slice).because("its endpoints are gone"),
        failed,
    }
}

/// Deletes a slice of a type that its Service does not have. Such slices have nothing to do with each other, so
/// each is tried.
pub(super) fn delete_unsupported_type(slice: &EndpointSlice) -> SliceWrite {
    let write = Write::delete(slice).because("its Service has no addresses of its type");
    SliceWrite {
        operation: Operation::Delete,
        write: write.on_failure(OnFailure::ContinueAndRetry),
        failed: format!("error deleting {} EndpointSlice", slice.meta.key.name),
    }
}
