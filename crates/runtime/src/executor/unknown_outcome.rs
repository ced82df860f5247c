//! Finds out whether a write without a readable response took effect, before its key is reconciled again.
//!
//! A reconcile that follows such a write would decide on caches that may lack it: a Deployment that has scaled up a
//! ReplicaSet, and does not know it, creates another one. So the object is read live first. If it exists, the key is
//! held until the caches have reached its resourceVersion, which a watch event brings; if it does not, until the
//! caches have observed that.
//!
//! The read is a list of metadata, restricted to the object, with the credentials of the caches: most controllers'
//! roles grant no `get`, but every resource that a loop reads can be listed. Upstream's expectations keep a key for
//! five minutes after a create that timed out, and not at all after other failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use keleustes_client::Call;
use keleustes_objects::{Key, ResourceVersion};
use keleustes_plan::{Action, Item, ReconcileError, Target, Write};
use parking_lot::Mutex;
use serde_json::Value;

use super::Executor;
use crate::gate::HOLD_MAX;

/// How many outcomes of one key are looked up at once: a failed batch of deletions has thousands.
const LOOKUPS_AT_ONCE: usize = 8;

/// The writes of one loop whose outcome is unknown, by the key of the item.
#[derive(Default)]
pub struct UnknownWrites(Mutex<BTreeMap<Key, Vec<Arc<UnknownWrite>>>>);

/// A write that may or may not have taken effect.
#[derive(Debug)]
struct UnknownWrite {
    target: Target,
    /// The prefix and the label selector of an object whose name the API server generates.
    generated: Option<(String, String)>,
    failed_at: Duration,
}

impl UnknownWrite {
    /// Whether the same list shows the outcome of both.
    fn is_looked_up_like(&self, other: &Self) -> bool {
        self.target == other.target && self.generated == other.generated
    }
}

impl Executor {
    /// Remembers a write whose outcome is unknown, if the loop reads the resource.
    pub(super) fn record_unknown_write(&self, item: &Item, write: &Write) {
        if !self.gate.reads(&write.target.resource) {
            return;
        }
        let generated = match &write.action {
            Action::Create(body) if write.target.key.name.is_empty() => {
                let prefix = body["metadata"]["generateName"].as_str().unwrap_or_default();
                Some((prefix.to_owned(), label_selector(&body["metadata"]["labels"])))
            }
            _ => None,
        };
        let unknown =
            UnknownWrite { target: write.target.clone(), generated, failed_at: self.clocks.monotonic() };
        let mut all = self.unknown_writes.0.lock();
        let of_key = all.entry(item.key().clone()).or_default();
        if unknown.generated.is_some() {
            // One list shows the outcome of a whole batch.
            of_key.retain(|earlier| !earlier.is_looked_up_like(&unknown));
        }
        of_key.push(Arc::new(unknown));
    }

    /// Reads the targets of the item's writes whose outcome is unknown, and lets the gate wait for what is found.
    ///
    /// # Errors
    /// If a target cannot be read; the item must not be reconciled then.
    pub async fn resolve_unknown_writes(&self, item: &Item) -> Result<(), ReconcileError> {
        let Some(unknown) = self.unknown_writes.0.lock().get(item.key()).cloned() else { return Ok(()) };
        let lookups: Vec<_> = unknown.iter().map(|write| self.resolve(item, write)).collect();
        let mut lookups = stream::iter(lookups).buffered(LOOKUPS_AT_ONCE);
        let (mut looked_up, mut result) = (0, Ok(()));
        // A failure is the last one: an API server that is away does not get thousands of requests.
        while let Some(outcome) = lookups.next().await {
            result = outcome;
            if result.is_err() {
                break;
            }
            looked_up += 1;
        }
        // Another item of this key may have added to them meanwhile.
        let mut all = self.unknown_writes.0.lock();
        if let Some(left) = all.get_mut(item.key()) {
            left.retain(|write| !unknown[..looked_up].iter().any(|resolved| Arc::ptr_eq(resolved, write)));
            if left.is_empty() {
                all.remove(item.key());
            }
        }
        result
    }

    async fn resolve(&self, item: &Item, write: &UnknownWrite) -> Result<(), ReconcileError> {
        if self.clocks.monotonic() >= write.failed_at + HOLD_MAX {
            return Ok(());
        }
        let Target { resource, key, uid, .. } = &write.target;
        let list = Call::list(resource, &key.namespace).metadata_list_only();
        let list = match &write.generated {
            Some((_, labels)) if labels.is_empty() => list,
            Some((_, labels)) => list.query("labelSelector", labels.clone()),
            None => list.query("fieldSelector", format!("metadata.name={}", key.name)),
        };
        let found = match list.send(self.caches.client()).await {
            Ok(found) => found,
            Err(failure) => {
                let why = format!("the outcome of a write to {resource} {key} is unknown: {failure}");
                return Err(ReconcileError::from_api_error(&failure, why));
            }
        };
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let is_candidate = |object: &&Value| {
            write.generated.as_ref().is_none_or(|(prefix, _)| text(object, "generateName") == *prefix)
        };
        let mut is_present = false;
        for object in found["items"].as_array().into_iter().flatten().filter(is_candidate) {
            is_present = true;
            let version = ResourceVersion::from(text(object, "resourceVersion").as_str());
            self.gate.expect_version(item, resource, &version);
        }
        if !is_present && write.generated.is_none() && !uid.is_empty() {
            self.gate.expect_deleted(item, resource, key, uid);
        }
        Ok(())
    }
}

/// A selector for these labels.
fn label_selector(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let terms: Vec<_> =
        labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_names_all_labels() {
        assert_eq!(label_selector(&json!({"a": "b", "c/d": ""})), "a=b,c/d=");
        assert_eq!(label_selector(&Value::Null), "");
    }
}
