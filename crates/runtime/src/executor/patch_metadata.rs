//! Patches metadata: reads it live, sends a merge patch computed from it, and starts over after a conflict.

use std::time::Duration;

use keleustes_client::{Call, PatchType, WriteResponse};
use keleustes_objects::{ApiError, ErrorReason, Uid};
use keleustes_plan::{PatchMetadata, Target};
use serde_json::{Value, json};

use super::Executor;

/// How long to wait before the next read after the first conflict; each further wait is longer by this
/// factor.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const WAIT_FACTOR: u32 = 5;
/// Up to this fraction is added at random, so that two writers in conflict do not stay in step.
const WAIT_JITTER: f64 = 0.1;

impl Executor {
    /// `None` if there was nothing to change, or the object does not exist.
    pub(super) async fn patch_metadata(
        &self,
        target: &Target,
        request: &PatchMetadata,
    ) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, .. } = target;
        let mut wait = FIRST_WAIT;
        for tries_left in (0..request.conflict_tries).rev() {
            let live: Value = match Call::get(resource, key).metadata_only().send(&self.client).await {
                Ok(live) => live,
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let metadata = &live["metadata"];
            if !target.allows_uid(&Uid::from(metadata["uid"].as_str().unwrap_or_default())) {
                return Ok(None);
            }
            let Some(mut fields) = (request.fields)(metadata) else { return Ok(None) };
            fields["uid"] = metadata["uid"].clone();
            fields["resourceVersion"] = metadata["resourceVersion"].clone();
            let call = Call::patch(resource, key, PatchType::Merge, &json!({"metadata": fields}));
            match self.send(&call, false).await {
                Err(failure) if failure.reason == ErrorReason::Conflict && tries_left > 0 => {
                    let jitter = self.random.lock().f64();
                    tokio::time::sleep(wait.mul_f64(1.0 + WAIT_JITTER * jitter)).await;
                    wait *= WAIT_FACTOR;
                }
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                answer => return answer.map(Some),
            }
        }
        unreachable!("the last try returns its result")
    }
}
