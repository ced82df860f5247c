//! Turns slice changes into writes: creates, then updates, then deletes.

use std::sync::Arc;

use keleustes_objects::{ArcStr, EndpointSlice, FullMeta as _, Key, Labels, Service, Time};
use keleustes_plan::{OnFailure, Write};
use serde_json::{Value, json};

use super::labels;
use super::packing::{Draft, SliceChanges, is_owned};
use crate::service_endpoints::{AddressType, LAST_CHANGE_TRIGGER_TIME, Operation, SliceWrite, slices};

/// Builds the writes of one Service and address type.
pub(super) struct SliceWriter<'s> {
    service: &'s Service,
    address_type: AddressType,
    labels: Labels,
    trigger_time: Option<Time>,
}

impl<'s> SliceWriter<'s> {
    pub(super) fn new(service: &'s Service, address_type: AddressType, trigger_time: Option<Time>) -> Self {
        Self { service, address_type, labels: labels::desired(service), trigger_time }
    }

    pub(super) fn writes(&self, mut changes: SliceChanges) -> Vec<SliceWrite> {
        changes.update.retain(|draft| !self.is_unchanged(draft));
        let mut reused = self.reuse(&mut changes);
        // The garbage collector deletes the slices of a terminating Service; new ones could be left behind.
        if self.service.meta.deletion_timestamp.is_some() {
            changes.create.clear();
        }
        let creates = changes.create.iter().map(|draft| self.create(draft));
        let updates = changes.update.iter().map(|draft| self.update(draft));
        let mut writes: Vec<_> = creates.chain(updates).collect();
        writes.append(&mut reused);
        writes.extend(changes.delete.iter().map(|slice| delete(slice)));
        writes
    }

    /// Hints may come out unchanged, and a new trigger time alone does not justify a write.
    fn is_unchanged(&self, draft: &Draft) -> bool {
        draft.origin.as_ref().is_some_and(|slice| {
            *slice.endpoints == *draft.endpoints
                && *slice.ports == *draft.ports
                && slice.meta.labels == self.labels
        })
    }

    /// Reuses slices to delete for slices to create: one write instead of two, and the endpoints of the
    /// Service are never absent in between.
    fn reuse(&self, changes: &mut SliceChanges) -> Vec<SliceWrite> {
        let (mut reused, mut deleted) = (Vec::new(), Vec::new());
        for slice in changes.delete.drain(..) {
            let fits =
                is_owned(&slice, &self.service.meta.uid) && slice.address_type == self.address_type.as_str();
            match if fits { changes.create.pop() } else { None } {
                Some(draft) => reused.push(self.replace(&slice, &draft)),
                None => deleted.push(slice),
            }
        }
        changes.delete = deleted;
        reused
    }

    fn create(&self, draft: &Draft) -> SliceWrite {
        let key = Key { namespace: self.service.meta.key.namespace.clone(), name: ArcStr::default() };
        let body = self.body(self.new_metadata(), draft);
        let write = Write::create::<EndpointSlice>(key, body).because(draft.because);
        SliceWrite { operation: Operation::Create, write, error: "failed to create EndpointSlice".to_owned() }
    }

    /// Overwrites an old slice with a new one under the same name; nothing of the old one is kept.
    fn replace(&self, old: &Arc<EndpointSlice>, draft: &Draft) -> SliceWrite {
        let mut metadata = self.new_metadata();
        metadata["name"] = json!(old.meta.key.name);
        metadata["uid"] = json!(old.meta.uid);
        update(old, self.body(metadata, draft), draft.because)
    }

    fn update(&self, draft: &Draft) -> SliceWrite {
        let Some(slice) = &draft.origin else { unreachable!("an updated slice exists") };
        let mut metadata = slice.full_meta_json();
        metadata["labels"] = json!(self.labels);
        update(slice, self.body(metadata, draft), draft.because)
    }

    fn new_metadata(&self) -> Value {
        let Key { namespace, name } = &self.service.meta.key;
        json!({
            "generateName": slices::generate_name(name),
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
            (Some(time), _) => metadata["annotations"][LAST_CHANGE_TRIGGER_TIME] = json!(time),
            (None, Some(annotations)) => {
                annotations.remove(LAST_CHANGE_TRIGGER_TIME);
            }
            (None, None) => {}
        }
        json!({
            "metadata": metadata,
            "addressType": self.address_type.as_str(),
            "endpoints": draft.endpoints,
            "ports": draft.ports,
        })
    }
}

fn update(slice: &EndpointSlice, body: Value, because: &'static str) -> SliceWrite {
    let error = format!("failed to update {} EndpointSlice", slice.meta.key.name);
    SliceWrite { operation: Operation::Update, write: Write::put(slice, "", body).because(because), error }
}

fn delete(slice: &EndpointSlice) -> SliceWrite {
    let error = format!("failed to delete {} EndpointSlice", slice.meta.key.name);
    SliceWrite {
        operation: Operation::Delete,
        write: Write::delete(slice).because("the slice is not needed any more"),
        error,
    }
}

/// Deletes a slice of an address type that its Service does not have. These deletes are independent: a
/// failed one does not stop the others.
pub(super) fn delete_unsupported_type(slice: &EndpointSlice) -> SliceWrite {
    let write = Write::delete(slice).because("the Service does not have this address type");
    SliceWrite {
        operation: Operation::Delete,
        write: write.on_failure(OnFailure::ContinueAndRetry),
        error: format!("error deleting {} EndpointSlice", slice.meta.key.name),
    }
}
