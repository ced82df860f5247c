//! Claims objects for a controller: keeps the objects that it controls, adopts matching orphans and releases
//! objects that no longer match.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{ErrorReason, Kind, Matcher};
use keleustes_plan::{Context, Guard, OnFailure, Outcome, PatchKind, Plan, ReconcileError, Target, Write};
use serde_json::json;

use super::owners::{controller_ref, is_controlled_by};

/// The result of a claim.
pub(crate) struct Claimed<T> {
    /// The objects that the owner controls, in the order given. Includes the orphans that it is about to
    /// adopt.
    pub(crate) owned: Vec<Arc<T>>,
    /// Adoptions and releases. They are applied first: if one fails, the reconcile stops.
    writes: Vec<Write>,
}

impl<T> Claimed<T> {
    /// A plan that starts with the adoptions and releases.
    pub(crate) fn plan(&mut self) -> Plan {
        let mut plan = Plan::none();
        plan.push_parallel(self.take_writes());
        plan
    }

    /// Applies the adoptions and releases, and returns the objects that the owner controls afterwards. An
    /// orphan whose adoption returned NotFound is not among them.
    ///
    /// # Errors
    /// If a write failed. All of them are sent in any case.
    pub(crate) async fn apply(mut self, cx: &mut Context<'_>) -> Result<Vec<Arc<T>>, ReconcileError>
    where
        T: Kind,
    {
        let targets: Vec<_> = self.writes.iter().map(|write| write.target.uid.clone()).collect();
        let applied = cx.apply(self.plan()).await;
        let outcomes = targets.into_iter().zip(&applied.outcomes);
        let not_found: BTreeSet<_> =
            outcomes.filter(|(_, outcome)| **outcome == Outcome::done()).map(|(uid, _)| uid).collect();
        applied.all_done()?;
        self.owned.retain(|object| !not_found.contains(&object.meta().uid));
        Ok(self.owned)
    }

    /// The adoptions and releases, for a caller that applies them together with other writes.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
}

/// Claims objects for an owner by a selector on their labels.
pub(crate) fn claim<'a, O: Kind, T: Kind>(
    owner: &O,
    selector: &Matcher,
    candidates: impl Iterator<Item = &'a Arc<T>>,
) -> Claimed<T> {
    claim_if(owner, None, |object| selector.matches(&object.meta().labels), candidates)
}

/// Claims objects for an owner: releases controlled objects that do not match and adopts matching orphans. If
/// a finalizer is given, an adoption adds it and a release removes it.
pub(crate) fn claim_if<'a, O: Kind, T: Kind>(
    owner: &O,
    finalizer: Option<&'static str>,
    matches: impl Fn(&T) -> bool,
    candidates: impl Iterator<Item = &'a Arc<T>>,
) -> Claimed<T> {
    let (owner_meta, is_terminating) = (owner.meta(), owner.meta().deletion_timestamp.is_some());
    let mut claimed = Claimed { owned: Vec::new(), writes: Vec::new() };
    for object in candidates {
        let meta = object.meta();
        match meta.controller_ref() {
            // The references of another namespace may name any UID.
            Some(_) if !is_controlled_by(meta, owner) => {}
            Some(_) if matches(object) => claimed.owned.push(object.clone()),
            // A terminating owner adopts and releases nothing: its dependents are left to the garbage
            // collector.
            Some(_) if is_terminating => {}
            Some(_) => claimed.writes.push(release(owner, finalizer, &**object)),
            None => {
                let can_be_adopted =
                    meta.deletion_timestamp.is_none() && meta.key.namespace == owner_meta.key.namespace;
                if !is_terminating && can_be_adopted && matches(object) {
                    claimed.writes.push(adopt(owner, finalizer, &**object));
                    claimed.owned.push(object.clone());
                }
            }
        }
    }
    claimed
}

fn adopt<O: Kind, T: Kind>(owner: &O, finalizer: Option<&'static str>, object: &T) -> Write {
    let mut body = json!({"metadata": {"ownerReferences": [controller_ref::<O>(owner.meta())]}});
    if let Some(finalizer) = finalizer {
        body["metadata"]["finalizers"] = json!([finalizer]);
    }
    Write::patch(object, PatchKind::Strategic, body)
        // The cache may be stale: an owner that was deleted in the meantime must not adopt anything.
        .guarded(Guard::RecheckOwner(Target::of(owner)))
        .ignoring_errors(&[ErrorReason::NotFound])
        .on_failure(OnFailure::StopAndRetry)
        .because("it matches the selector and has no controllerRef")
}

fn release<O: Kind, T: Kind>(owner: &O, finalizer: Option<&'static str>, object: &T) -> Write {
    let owner_meta = &owner.meta().uid;
    let mut body = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner_meta}]}});
    if let Some(finalizer) = finalizer {
        body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    Write::patch(object, PatchKind::Strategic, body)
        // The object was deleted or has already been released.
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Invalid])
        .on_failure(OnFailure::StopAndRetry)
        .because("it does not match the selector any more")
}
