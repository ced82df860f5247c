//! Patches of ownerReferences and finalizers, as strategic merge patch and as JSON merge patch.

use std::collections::BTreeSet;

use keleustes_objects::{ErrorReason, ObjectMeta, Uid};
use keleustes_plan::{
    Context, OnFailure, Outcome, PatchKind, Plan, ReconcileError, Target, Write, WriteDraft,
};
use serde_json::{Value, json};

use super::lookup::reconcile_error;

/// HTTP status for resources without strategic merge patch, such as all custom resources.
const UNSUPPORTED_MEDIA_TYPE: u16 = 415;

/// Attempts to remove a finalizer while other writers change the object.
const FINALIZER_TRIES: u32 = 4;

/// A patch of ownerReferences: a strategic merge patch, and as fallback a merge patch computed from the live
/// list.
pub(super) struct OwnerReferencesPatch {
    strategic: Write,
    merge: Write,
}

impl OwnerReferencesPatch {
    /// Removes the references to these owners.
    pub(super) fn remove_owners(target: &Target, owners: &[Uid], because: &'static str) -> Self {
        let deletions: Vec<Value> =
            owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let removed: BTreeSet<String> = owners.iter().map(Uid::to_string).collect();
        let rest = move |mut references: Vec<Value>| {
            references.retain(|one| one["uid"].as_str().is_none_or(|uid| !removed.contains(uid)));
            references
        };
        Self::new(target, &deletions, rest, because)
    }

    /// Sets `blockOwnerDeletion: false` on all references. `None` if no reference blocks.
    pub(super) fn unblock_owners(target: &Target, seen: &ObjectMeta, because: &'static str) -> Option<Self> {
        let blocking = seen.owner_references.iter().filter(|owner| owner.block_owner_deletion);
        let unblocked: Vec<Value> =
            blocking.map(|owner| json!({"uid": owner.uid, "blockOwnerDeletion": false})).collect();
        let unblock_all = |mut references: Vec<Value>| {
            references.iter_mut().for_each(|one| one["blockOwnerDeletion"] = json!(false));
            references
        };
        (!unblocked.is_empty()).then(|| Self::new(target, &unblocked, unblock_all, because))
    }

    fn new(
        target: &Target,
        strategic: &[Value],
        merge: impl Fn(Vec<Value>) -> Vec<Value> + Send + Sync + 'static,
        because: &'static str,
    ) -> Self {
        let body = json!({"metadata": {"ownerReferences": strategic}});
        let strategic = Write::patch_target(target.clone(), PatchKind::Strategic, body);
        let merge = Write::patch_metadata(target.clone(), move |metadata| {
            let old = metadata["ownerReferences"].as_array()?;
            let new = merge(old.clone());
            (new != *old).then(|| json!({"ownerReferences": or_null(new)}))
        });
        let finish = |draft: WriteDraft| draft.because(because).on_failure(OnFailure::ReturnOutcome);
        Self { strategic: finish(strategic), merge: finish(merge) }
    }

    /// Sends patches of different objects in parallel. With `ignore_not_found`, a deleted object counts as
    /// success.
    ///
    /// # Errors
    /// The first error, after all patches were sent.
    pub(super) async fn send(
        patches: Vec<Self>,
        cx: &mut Context<'_>,
        ignore_not_found: bool,
    ) -> Result<(), ReconcileError> {
        let (strategic, merge): (Vec<_>, Vec<_>) =
            patches.into_iter().map(|patch| (patch.strategic, patch.merge)).unzip();
        let failed = send_parallel(cx, strategic, ignore_not_found).await;
        let (unsupported, mut failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|(_, code, _)| *code == UNSUPPORTED_MEDIA_TYPE);
        let fallbacks = unsupported.iter().map(|(at, _, _)| merge[*at].clone()).collect();
        failed.extend(send_parallel(cx, fallbacks, ignore_not_found).await);
        failed.into_iter().next().map_or(Ok(()), |(_, _, reconcile_error)| Err(reconcile_error))
    }
}

/// Sends writes in parallel and returns those that failed: index, HTTP status and reconcile error.
async fn send_parallel(
    cx: &mut Context<'_>,
    writes: Vec<Write>,
    ignore_not_found: bool,
) -> Vec<(usize, u16, ReconcileError)> {
    let names: Vec<String> = writes.iter().map(Write::to_string).collect();
    let mut plan = Plan::none();
    plan.push_parallel(writes);
    let applied = cx.apply(plan).await;
    let failed = applied.outcomes.into_iter().enumerate().filter_map(|(at, outcome)| match outcome {
        Outcome::Failed(failure) if ignore_not_found && failure.reason == ErrorReason::NotFound => None,
        Outcome::Failed(failure) => Some((at, failure.code, reconcile_error(&names[at], &failure))),
        Outcome::NotSent => Some((at, 0, ReconcileError::because("not sent"))),
        Outcome::Done { .. } | Outcome::Unneeded => None,
    });
    // An error that keeps the whole plan from being sent applies to every write.
    failed
        .map(|(at, code, reconcile_error)| (at, code, applied.error.clone().unwrap_or(reconcile_error)))
        .collect()
}

/// Removes a finalizer and keeps the order of the others. Succeeds if the finalizer is already removed or the
/// object deleted.
pub(super) fn without_finalizer(target: &Target, finalizer: &'static str, because: &'static str) -> Write {
    let patch = Write::patch_metadata(target.clone(), move |metadata| {
        let old = metadata["finalizers"].as_array()?;
        let new: Vec<Value> = old.iter().filter(|one| **one != *finalizer).cloned().collect();
        (new.len() < old.len()).then(|| json!({"finalizers": or_null(new)}))
    });
    patch.conflict_tries(FINALIZER_TRIES).because(because)
}

/// A merge patch removes a list only with `null`.
fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}
