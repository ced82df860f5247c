//! Protection finalizers: an object that is in use keeps its finalizer, so that its deletion waits.

use std::sync::Arc;

use keleustes_objects::{Kind, ObjectMeta};
use keleustes_plan::{Edited, Write, WriteDraft};
use serde_json::{Value, json};

/// Whether the object waits for the finalizer to be removed: it has a deletionTimestamp and the finalizer.
pub(crate) fn is_deletion_candidate(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().any(|present| *present == finalizer)
}

/// Whether the finalizer is missing on an object without deletionTimestamp.
pub(crate) fn needs_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_none() && !meta.finalizers.iter().any(|present| *present == finalizer)
}

/// Adds the finalizer at the end of the list. A change that the cache has not seen writes nothing: its event enqueues
/// the object again, because the finalizer is still missing.
pub(crate) fn add_finalizer<T: Kind>(object: &T, finalizer: &'static str) -> Write {
    let change = move |live: &mut Value| {
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return Edited::Unneeded;
        }
        let finalizers = &mut live["metadata"]["finalizers"];
        if finalizers.is_null() {
            *finalizers = json!([]);
        }
        match finalizers.as_array_mut() {
            Some(list) if list.iter().all(|present| present != finalizer) => {
                list.push(json!(finalizer));
                Edited::Changed
            }
            _ => Edited::Unneeded,
        }
    };
    Write::edit(object, change)
        .expected_resource_version(&object.meta().resource_version)
        .because("the protection finalizer is missing")
}

/// Removes all copies of the finalizer from an object that is being deleted and, by its live state, not `in_use`. The
/// update fails if the object is not the one that was judged: a change that the cache has not seen writes nothing, and
/// its event enqueues the object again, because it still has the finalizer.
pub(crate) fn remove_finalizer<T: Kind>(
    object: &T,
    finalizer: &'static str,
    in_use: impl Fn(&Value) -> bool + Send + Sync + 'static,
) -> WriteDraft {
    let in_use = Arc::new(in_use);
    let change = move |live: &mut Value| {
        if live["metadata"]["deletionTimestamp"].is_null() || in_use(live) {
            return Edited::Unneeded;
        }
        let Some(finalizers) = live["metadata"]["finalizers"].as_array_mut() else {
            return Edited::Unneeded;
        };
        let before = finalizers.len();
        finalizers.retain(|present| present != finalizer);
        if finalizers.len() == before { Edited::Unneeded } else { Edited::Changed }
    };
    Write::edit(object, change).expected_resource_version(&object.meta().resource_version)
}
