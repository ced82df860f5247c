//! Turns slice changes into writes: creates, then updates, then deletes.

use keleustes_objects::{ArcStr, EndpointSlice, Endpoints, Key};
use keleustes_plan::Write;
use serde_json::{Value, json};

use super::changes::{Draft, MirroredMeta, SliceChanges};
use crate::service_endpoints::{Operation, SliceWrite, slices};

pub(super) fn writes(endpoints: &Endpoints, meta: &MirroredMeta, changes: &SliceChanges) -> Vec<SliceWrite> {
    // The garbage collector deletes the slices of terminating Endpoints; new ones could be left behind.
    let creates = changes.create.iter().filter(|_| endpoints.meta.deletion_timestamp.is_none());
    let creates = creates.map(|draft| create(endpoints, meta, draft));
    let updates = changes.update.iter().map(|(slice, draft)| update(endpoints, meta, slice, draft));
    creates.chain(updates).chain(changes.delete.iter().map(|slice| delete(slice))).collect()
}

fn create(endpoints: &Endpoints, meta: &MirroredMeta, draft: &Draft) -> SliceWrite {
    let key = Key { namespace: endpoints.meta.key.namespace.clone(), name: ArcStr::default() };
    let body = body(endpoints, meta, draft);
    SliceWrite {
        operation: Operation::Create,
        write: Write::create::<EndpointSlice>(key, body)
            .because("the Endpoints have no slice for these ports"),
        error: "failed to create EndpointSlice".to_owned(),
    }
}

/// Overwrites a slice; nothing of the old content is kept.
fn update(endpoints: &Endpoints, meta: &MirroredMeta, slice: &EndpointSlice, draft: &Draft) -> SliceWrite {
    let mut body = body(endpoints, meta, draft);
    body["metadata"]["name"] = json!(slice.meta.key.name);
    body["metadata"]["uid"] = json!(slice.meta.uid);
    SliceWrite {
        operation: Operation::Update,
        write: Write::put(slice, "", body).because("the slice differs from the Endpoints"),
        error: format!("failed to update {} EndpointSlice", slice.meta.key.name),
    }
}

/// Deletes a slice that the Endpoints do not need.
fn delete(slice: &EndpointSlice) -> SliceWrite {
    SliceWrite {
        operation: Operation::Delete,
        write: Write::delete(slice).because("the Endpoints do not need the slice"),
        error: format!("failed to delete {} EndpointSlice", slice.meta.key.name),
    }
}

fn body(endpoints: &Endpoints, meta: &MirroredMeta, draft: &Draft) -> Value {
    let Key { namespace, name } = &endpoints.meta.key;
    let mut body = json!({
        "metadata": {
            "namespace": namespace,
            "labels": meta.labels,
            "annotations": meta.annotations,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Endpoints", "name": name, "uid": endpoints.meta.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": draft.address_type.as_str(),
        "endpoints": draft.endpoints,
        "ports": draft.ports,
    });
    if draft.is_new {
        body["metadata"]["generateName"] = json!(slices::generate_name(name));
    }
    body
}
