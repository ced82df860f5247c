//! Amends metadata: reads it afresh, merges what is made of it, and begins again if it has moved on.

use std::time::Duration;

use keleustes_client::{Call, PatchType, WriteResponse};
use keleustes_objects::{ApiError, ErrorReason, Uid};
use keleustes_plan::{PatchMetadata, Target};
use serde_json::{Value, json};

use super::Executor;

/// How long to wait before reading again after the first conflict, and how much longer after each more.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const WAIT_FACTOR: u32 = 5;
/// Up to this part is added by chance, so that two who are in each other's way do not stay so.
const WAIT_JITTER: f64 = 0.1;

impl Executor {
    /// `None` if there was nothing to change, or nothing to change it on.
    pub(super) async fn amend(
        &self,
        target: &Target,
        amend: &PatchMetadata,
    ) -> Result<Option<WriteResponse>, ApiError> {
        let Target { resource, key, uid } = target;
        let mut wait = FIRST_WAIT;
        for tries_left in (0..amend.conflict_tries).rev() {
            let live: Value = match Call::get(resource, key).metadata_only().send(&self.client).await {
                Ok(live) => live,
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let metadata = &live["metadata"];
            if !uid.is_empty() && Uid::from(metadata["uid"].as_str().unwrap_or_default()) != *uid {
                return Ok(None);
            }
            let Some(mut fields) = (amend.fields)(metadata) else { return Ok(None) };
            fields["uid"] = metadata["uid"].clone();
            fields["resourceVersion"] = metadata["resourceVersion"].clone();
            let call = Call::patch(resource, key, PatchType::Merge, &json!({"metadata": fields}));
            match self.send(&call).await {
                Err(failure) if failure.reason == ErrorReason::Conflict && tries_left > 0 => {
                    let by_chance = self.random.lock().f64();
                    tokio::time::sleep(wait.mul_f64(1.0 + WAIT_JITTER * by_chance)).await;
                    wait *= WAIT_FACTOR;
                }
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(None),
                answer => return answer.map(Some),
            }
        }
        unreachable!("the last try returns whatever came of it")
    }
}
