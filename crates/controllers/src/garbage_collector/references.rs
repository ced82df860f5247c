//! The writes that change owner references and finalizers, in both forms that servers understand.

use keleustes_objects::{ErrorReason, ObjectMeta, Uid};
use keleustes_plan::{Context, OnFailure, Outcome, PatchKind, Plan, ReconcileError, Target, Write};
use serde_json::{Value, json};

use super::places::retry;

/// What a server answers that cannot read a strategic merge patch, as for all custom resources.
const UNSUPPORTED_MEDIA_TYPE: u16 = 415;

/// How often taking off a finalizer is tried when others keep changing the object.
const FINALIZER_TRIES: u32 = 4;

/// A change to references: short for servers that can merge lists, and made from the live list for others.
pub(super) struct Change {
    short: Write,
    whole: Write,
}

impl Change {
    /// Takes references to these owners away.
    pub(super) fn removal(target: &Target, owners: &[Uid], because: &'static str) -> Self {
        let deletions: Vec<Value> =
            owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let gone: Vec<String> = owners.iter().map(Uid::to_string).collect();
        let rest = move |mut references: Vec<Value>| {
            references.retain(|one| !gone.iter().any(|uid| one["uid"] == **uid));
            references
        };
        Self::new(target, &deletions, rest, because)
    }

    /// Lets no owner wait for this object any longer. `None` if none does.
    pub(super) fn unblocking(target: &Target, seen: &ObjectMeta, because: &'static str) -> Option<Self> {
        let blocking = seen.owner_references.iter().filter(|owner| owner.block_owner_deletion);
        let freed: Vec<Value> =
            blocking.map(|owner| json!({"uid": owner.uid, "blockOwnerDeletion": false})).collect();
        let free = |mut references: Vec<Value>| {
            references.iter_mut().for_each(|one| one["blockOwnerDeletion"] = json!(false));
            references
        };
        (!freed.is_empty()).then(|| Self::new(target, &freed, free, because))
    }

    fn new(
        target: &Target,
        short: &[Value],
        whole: impl Fn(Vec<Value>) -> Vec<Value> + Send + Sync + 'static,
        because: &'static str,
    ) -> Self {
        let body = json!({"metadata": {"ownerReferences": short}});
        let short = Write::patch_target(target.clone(), PatchKind::Strategic, body);
        let whole = Write::patch_metadata(target.clone(), move |metadata| {
            let before = metadata["ownerReferences"].as_array()?;
            let after = whole(before.clone());
            (after != *before).then(|| json!({"ownerReferences": or_null(after)}))
        });
        let tell = |write: Write| write.because(because).on_failure(OnFailure::ReturnOutcome);
        Self { short: tell(short), whole: tell(whole) }
    }

    /// Sends changes of different objects at once. One whose object is gone counts as done if `gone_is_fine`.
    ///
    /// # Errors
    /// The first failure, after all have been tried.
    pub(super) async fn send(
        changes: Vec<Self>,
        cx: &mut Context<'_>,
        gone_is_fine: bool,
    ) -> Result<(), ReconcileError> {
        let (short, whole): (Vec<_>, Vec<_>) =
            changes.into_iter().map(|change| (change.short, change.whole)).unzip();
        let failed = send_together(cx, short, gone_is_fine).await;
        let (unsupported, mut failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|(_, code, _)| *code == UNSUPPORTED_MEDIA_TYPE);
        let again = unsupported.iter().map(|(at, _, _)| whole[*at].clone()).collect();
        failed.extend(send_together(cx, again, gone_is_fine).await);
        failed.into_iter().next().map_or(Ok(()), |(_, _, retry)| Err(retry))
    }
}

/// Sends writes and tells which failed, with the status and the reason to try again.
async fn send_together(
    cx: &mut Context<'_>,
    writes: Vec<Write>,
    gone_is_fine: bool,
) -> Vec<(usize, u16, ReconcileError)> {
    let names: Vec<String> = writes.iter().map(Write::to_string).collect();
    let mut plan = Plan::none();
    plan.push_parallel(writes);
    let applied = cx.apply(plan).await;
    let failed = applied.outcomes.into_iter().enumerate().filter_map(|(at, outcome)| match outcome {
        Outcome::Failed(failure) if gone_is_fine && failure.reason == ErrorReason::NotFound => None,
        Outcome::Failed(failure) => Some((at, failure.code, retry(&names[at], &failure))),
        Outcome::NotSent => Some((at, 0, ReconcileError::because("not tried"))),
        Outcome::Done { .. } | Outcome::Unneeded => None,
    });
    // What keeps a whole plan from being sent is told once for all.
    failed.map(|(at, code, retry)| (at, code, applied.error.clone().unwrap_or(retry))).collect()
}

/// Takes a finalizer off an object; others stay in their order. Done, too, if it is off or the object gone.
pub(super) fn without_finalizer(target: &Target, finalizer: &'static str, because: &'static str) -> Write {
    let amended = Write::patch_metadata(target.clone(), move |metadata| {
        let before = metadata["finalizers"].as_array()?;
        let after: Vec<Value> = before.iter().filter(|one| **one != *finalizer).cloned().collect();
        (after.len() < before.len()).then(|| json!({"finalizers": or_null(after)}))
    });
    amended.conflict_tries(FINALIZER_TRIES).because(because)
}

/// A merge patch removes a list only by `null`.
fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}
