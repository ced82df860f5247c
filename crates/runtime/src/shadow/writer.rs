//! Takes the place of the executor in a reconcile of a shadow: notes what a plan would write, and sends nothing.

use keleustes_client::Call;
use keleustes_objects::{ErrorReason, Key, Kind as _, Namespace, ResourceVersion, Uid};
use keleustes_plan::{
    Action, Applied, Edit, Edited, Outcome, PatchMetadata, Plan, ReconcileError, StatusUrgency, Step, Target,
    Write,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::comparison::Wanted;
use super::effect::WriteEffect;
use crate::executor::Executor;

/// The plan with which a reconcile ended, if it ended with one.
#[derive(Default)]
pub(crate) struct ShadowWriter(Mutex<Option<Vec<Wanted>>>);

impl ShadowWriter {
    /// Whether the reconcile has planned writes, and so has ended.
    pub(crate) fn has_planned(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The writes of the plan.
    pub(crate) fn take(&self) -> Vec<Wanted> {
        self.0.lock().take().unwrap_or_default()
    }

    /// Notes the writes of a plan. If there are any, the future does not resolve: what the reconcile does after them
    /// depends on their outcomes.
    pub(crate) async fn apply(&self, executor: &Executor, plan: Plan) -> Applied {
        let writes: Vec<&Write> = plan.steps().iter().flat_map(Step::writes).collect();
        writes.iter().for_each(|write| executor.assert_granted(write));
        plan.measurements().iter().for_each(|measurement| executor.metrics.measure(measurement));
        let (mut wanted, mut outcomes, mut is_uncertain) = (Vec::new(), Vec::new(), false);
        for write in writes {
            match need(executor, write).await {
                Need::Wanted => {
                    let effect = WriteEffect::of(write, &|target| owner_of(executor, target));
                    wanted.push(Wanted { effect, because: write.because.to_string() });
                }
                Need::StoresNothing => is_uncertain = true,
                Need::Superseded => outcomes.push(Outcome::NotSent),
                Need::Unneeded => outcomes.push(Outcome::Unneeded),
            }
        }
        if wanted.is_empty() && !is_uncertain {
            let error = plan.error_message().map(ReconcileError::because);
            return Applied { outcomes, error };
        }
        *self.0.lock() = Some(wanted);
        std::future::pending().await
    }
}

/// What a planned write means.
enum Need {
    /// It would be sent.
    Wanted,
    /// The API server stores nothing: it is a question, or a creation that is refused. There is nothing to compare.
    StoresNothing,
    /// It is a status that the next reconcile writes.
    Superseded,
    /// The live object needs no write.
    Unneeded,
}

async fn need(executor: &Executor, write: &Write) -> Need {
    if matches!(&*write.target.resource.group, "authorization.k8s.io" | "authentication.k8s.io") {
        return Need::StoresNothing;
    }
    if matches!(write.action, Action::Create(_)) && !namespace_accepts(executor, &write.target.key.namespace)
    {
        return Need::StoresNothing;
    }
    if write.status_urgency == Some(StatusUrgency::Superseded) {
        return Need::Superseded;
    }
    let is_needed = match &write.action {
        Action::Edit(edit) => edit_is_needed(executor, &write.target, edit).await,
        Action::PatchMetadata(patch) => patch_is_needed(executor, &write.target, patch).await,
        // A shorter grace period would change a terminating object.
        Action::Delete { grace_seconds: None, .. } => !is_terminating(executor, &write.target),
        _ => true,
    };
    if is_needed { Need::Wanted } else { Need::Unneeded }
}

/// Whether objects can be created in a namespace: it exists and does not terminate. If namespaces are not cached, they can.
fn namespace_accepts(executor: &Executor, namespace: &str) -> bool {
    let Some(cache) = executor.caches.unfiltered_cache(&Namespace::RESOURCE) else { return true };
    let found = cache.object(&Key::cluster(namespace));
    let is_active = found.is_some_and(|found| found.meta().deletion_timestamp.is_none());
    namespace.is_empty() || cache.list_count() == 0 || is_active
}

/// Whether an edit would change the live object. If it cannot be read, the decision stands.
async fn edit_is_needed(executor: &Executor, target: &Target, edit: &Edit) -> bool {
    let mut live: Value = match Call::get(&target.resource, &target.key).send(&executor.client).await {
        Ok(live) => live,
        Err(failure) => return failure.reason != ErrorReason::NotFound,
    };
    let version = ResourceVersion::from(live["metadata"]["resourceVersion"].as_str().unwrap_or_default());
    let is_stale = edit.expected_resource_version.as_ref().is_some_and(|expected| *expected != version);
    !is_stale && has_uid(&live["metadata"], target) && (edit.change)(&mut live) == Edited::Changed
}

async fn patch_is_needed(executor: &Executor, target: &Target, patch: &PatchMetadata) -> bool {
    let call = Call::get(&target.resource, &target.key).metadata_only();
    match call.send(&executor.client).await {
        Ok(live) => has_uid(&live["metadata"], target) && (patch.fields)(&live["metadata"]).is_some(),
        Err(failure) => failure.reason != ErrorReason::NotFound,
    }
}

fn has_uid(metadata: &Value, target: &Target) -> bool {
    target.allows_uid(&Uid::from(metadata["uid"].as_str().unwrap_or_default()))
}

fn is_terminating(executor: &Executor, target: &Target) -> bool {
    let cached =
        executor.caches.unfiltered_cache(&target.resource).and_then(|cache| cache.object(&target.key));
    cached.is_some_and(|cached| {
        let meta = cached.meta();
        meta.deletion_timestamp.is_some() && (target.uid.is_empty() || meta.uid == target.uid)
    })
}

/// The controller that owns a cached object.
fn owner_of(executor: &Executor, target: &Target) -> Option<Uid> {
    let object = executor.caches.unfiltered_cache(&target.resource)?.object(&target.key)?;
    object.meta().controller_ref().map(|owner| owner.uid.clone())
}
