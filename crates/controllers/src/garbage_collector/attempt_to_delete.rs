//! Reconciles `attempt_to_delete`: deletes an object without solid owners, removes dangling owner references,
//! or completes foreground deletion.

use keleustes_objects::{ErrorReason, Key, ObjectMeta, OwnerReference, TypeMeta, Uid};
use keleustes_plan::{
    Context, Effects, Memory, OnFailure, Outcome, Plan, PropagationPolicy, ReconcileError, Reconciler,
    Requeue, Target, Write,
};

use super::graph::{FOREGROUND, Node, ORPHAN};
use super::identity::Identity;
use super::lookup::{get_live, reconcile_error, resolve_target};
use super::references::{OwnerReferencesPatch, without_finalizer};
use super::{ATTEMPT_TO_DELETE, Graph, GraphEffects, NodeItem};

/// Maximum DELETE attempts in one reconcile while unrelated writers change the object; after that the item is
/// requeued.
const CONFLICTS_MAX: usize = 5;

/// The reconciler of the `attempt_to_delete` queue.
pub(super) struct AttemptToDelete {
    pub(super) memory: Memory<Graph>,
}

/// The owners of one object, classified by live reads. Parity: classifyReferences.
#[derive(Default)]
struct Owners {
    /// UIDs of owners that exist and are not waiting for their dependents.
    solid: Vec<Uid>,
    /// UIDs of owners that do not exist.
    dangling: Vec<Uid>,
    /// UIDs of owners in foreground deletion, which wait for their dependents to be deleted.
    waiting_for_dependents: Vec<Uid>,
}

/// The result of a deletion attempt.
enum Deleted {
    Done,
    /// The API server has no object with this UID.
    Absent,
}

impl Reconciler<NodeItem> for AttemptToDelete {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &NodeItem) -> Result<Requeue, ReconcileError> {
        let Some(node) = self.memory.with(|graph| graph.node(&item.uid)) else { return Ok(Requeue::Forget) };
        // The object was observed since it was enqueued as virtual; if it must be checked, it was enqueued
        // again.
        let observed_since = item.is_virtual && !node.is_virtual;
        // A deletionTimestamp is never removed, so the watch will deliver the deletion.
        let is_terminating = node.being_deleted && !node.deleting_dependents;
        if observed_since || is_terminating {
            return Ok(Requeue::Forget);
        }
        let Some(target) = resolve_target(cx, &node.identity).await? else { return Ok(Requeue::Forget) };
        let Some(meta) = get_live(cx, &target).await? else {
            self.process_virtual_delete(cx, &node.identity);
            return Ok(Requeue::Forget);
        };
        let deleted = if node.deleting_dependents {
            self.process_deleting_dependents(cx, &node, &target).await?;
            Deleted::Done
        } else {
            self.attempt_to_delete_item(cx, &node, &target, &meta).await?
        };
        match deleted {
            Deleted::Absent => {
                self.process_virtual_delete(cx, &node.identity);
                Ok(Requeue::Forget)
            }
            // The object may be created and deleted without any watch event; then only this item can remove
            // its virtual node from the graph.
            Deleted::Done if node.is_virtual => {
                Err(ReconcileError::because(format!("{} has not been observed yet", node.identity)).quietly())
            }
            Deleted::Done => Ok(Requeue::Forget),
        }
    }
}

impl AttemptToDelete {
    fn process_virtual_delete(&self, cx: &mut Context<'_>, identity: &Identity) {
        let mut graph_effects = GraphEffects::default();
        self.memory.with(|graph| graph.process_virtual_delete(identity, &mut graph_effects));
        cx.effects(graph_effects.into());
    }

    /// Removes `foregroundDeletion` from an owner without blocking dependents; otherwise enqueues the
    /// blocking ones. Parity: processDeletingDependentsItem.
    async fn process_deleting_dependents(
        &self,
        cx: &mut Context<'_>,
        owner: &Node,
        target: &Target,
    ) -> Result<(), ReconcileError> {
        let blocking = self.memory.with(|graph| graph.blocking_dependents(&owner.identity.uid));
        if blocking.is_empty() {
            let write = without_finalizer(target, FOREGROUND, "no dependent blocks its deletion");
            return cx.apply(Plan::of(write)).await.all_done();
        }
        let mut effects = Effects::default();
        for dependent in blocking.iter().filter(|dependent| !dependent.deleting_dependents) {
            let uid = dependent.identity.uid.clone();
            effects.enqueue(ATTEMPT_TO_DELETE, NodeItem { uid, is_virtual: dependent.is_virtual });
        }
        cx.effects(effects);
        Ok(())
    }

    /// Reads the current owners of an object live and deletes or patches the object accordingly. Parity:
    /// attemptToDeleteItem.
    async fn attempt_to_delete_item(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        target: &Target,
        meta: &ObjectMeta,
    ) -> Result<Deleted, ReconcileError> {
        if meta.owner_references.is_empty() {
            return Ok(Deleted::Done);
        }
        let Some(owners) = self.classify(cx, target, &meta.owner_references).await? else {
            return Ok(Deleted::Done);
        };
        if !owners.solid.is_empty() {
            let stale: Vec<Uid> = owners.dangling.into_iter().chain(owners.waiting_for_dependents).collect();
            if !stale.is_empty() {
                let because =
                    "these owners no longer exist or wait for their dependents, and it has a solid owner";
                OwnerReferencesPatch::send(
                    vec![OwnerReferencesPatch::remove_owners(target, &stale, because)],
                    cx,
                    false,
                )
                .await?;
            }
            return Ok(Deleted::Done);
        }
        let dependents = self.memory.with(|graph| graph.dependents(&node.identity.uid));
        if owners.waiting_for_dependents.is_empty() || dependents.is_empty() {
            let policy = policy_of(meta);
            return delete(cx, target, meta, policy, "it has no solid owner").await;
        }
        if dependents.iter().any(|dependent| dependent.deleting_dependents) {
            // Owner and dependent may both be in foreground deletion and block each other.
            let patch = OwnerReferencesPatch::unblock_owners(
                target,
                meta,
                "its owner and its dependent block each other's deletion",
            );
            OwnerReferencesPatch::send(patch.into_iter().collect(), cx, false).await?;
        }
        delete(
            cx,
            target,
            meta,
            PropagationPolicy::Foreground,
            "its owner is in foreground deletion, and it has dependents",
        )
        .await
    }

    /// `None` if a cluster-scoped object refers to a namespaced owner: such a reference cannot be resolved.
    async fn classify(
        &self,
        cx: &mut Context<'_>,
        target: &Target,
        references: &[OwnerReference],
    ) -> Result<Option<Owners>, ReconcileError> {
        let mut owners = Owners::default();
        for reference in references {
            let identity = Identity {
                type_meta: TypeMeta::new(reference.api_version.clone(), reference.kind.clone()),
                key: Key { namespace: target.key.namespace.clone(), name: reference.name.clone() },
                uid: reference.uid.clone(),
            };
            let cluster_identity = Identity { key: Key::cluster(reference.name.clone()), ..identity.clone() };
            let is_absent_owner = self
                .memory
                .with(|graph| graph.is_absent_owner(&cluster_identity) || graph.is_absent_owner(&identity));
            if is_absent_owner {
                owners.dangling.push(identity.uid);
                continue;
            }
            let Some(owner) = resolve_target(cx, &identity).await? else { return Ok(None) };
            match get_live(cx, &owner).await? {
                None => {
                    let absent = if owner.resource.namespaced { &identity } else { &cluster_identity };
                    self.memory.with(|graph| graph.record_absent_owner(absent));
                    owners.dangling.push(identity.uid);
                }
                Some(meta) if meta.deletion_timestamp.is_some() && has_finalizer(&meta, FOREGROUND) => {
                    owners.waiting_for_dependents.push(identity.uid);
                }
                Some(_) => owners.solid.push(identity.uid),
            }
        }
        Ok(Some(owners))
    }
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|one| one == finalizer)
}

/// Keeps the propagation policy that the object's finalizers already express.
fn policy_of(meta: &ObjectMeta) -> PropagationPolicy {
    if has_finalizer(meta, ORPHAN) {
        PropagationPolicy::Orphan
    } else if has_finalizer(meta, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}

/// Deletes an object with the UID and resourceVersion of the live read as preconditions. If a conflict is
/// caused by a change that leaves the ownerReferences as they were, the delete is retried with the new
/// resourceVersion: an object that is updated constantly must still be deleted, and one that was orphaned or
/// adopted in the meantime must not be.
async fn delete(
    cx: &mut Context<'_>,
    target: &Target,
    meta: &ObjectMeta,
    policy: PropagationPolicy,
    because: &'static str,
) -> Result<Deleted, ReconcileError> {
    // The graph may not have observed yet that this deletion is already in progress.
    let in_progress = policy != PropagationPolicy::Foreground || has_finalizer(meta, FOREGROUND);
    if meta.deletion_timestamp.is_some() && in_progress {
        return Ok(Deleted::Done);
    }
    let write = Write::delete_target(target.clone())
        .propagation_policy(policy)
        .on_failure(OnFailure::ReturnOutcome)
        .because(because);
    let (mut version, mut tries) = (meta.resource_version.clone(), 1);
    loop {
        let sent = send(cx, write.clone().resource_version_precondition(&version)).await;
        let Err((ErrorReason::Conflict, conflict)) = sent else { return concluded(sent) };
        let Some(latest) = get_any_uid(cx, target).await? else { return Ok(Deleted::Absent) };
        let may_retry = latest.uid == target.uid
            && latest.resource_version != version
            && latest.owner_references == meta.owner_references;
        if !may_retry || tries == CONFLICTS_MAX {
            return Err(conflict);
        }
        (version, tries) = (latest.resource_version, tries + 1);
    }
}

/// Reads the object of this name live, whatever its UID.
async fn get_any_uid(cx: &mut Context<'_>, target: &Target) -> Result<Option<ObjectMeta>, ReconcileError> {
    let found = cx.fetch_metadata(&target.resource, &target.key).await;
    let found = found.map_err(|failure| reconcile_error("reading after a conflict", &failure))?;
    Ok(found.map(|object| object.meta))
}

async fn send(cx: &mut Context<'_>, write: Write) -> Result<(), (ErrorReason, ReconcileError)> {
    let description = write.to_string();
    let applied = cx.apply(Plan::of(write)).await;
    match applied.outcomes.into_iter().next() {
        Some(Outcome::Failed(failure)) => Err((failure.reason, reconcile_error(&description, &failure))),
        Some(Outcome::NotSent) | None => {
            Err((ErrorReason::Other, applied.error.unwrap_or_else(|| ReconcileError::because("not sent"))))
        }
        Some(Outcome::Done { .. } | Outcome::Unneeded) => Ok(()),
    }
}

fn concluded(sent: Result<(), (ErrorReason, ReconcileError)>) -> Result<Deleted, ReconcileError> {
    match sent {
        Ok(()) => Ok(Deleted::Done),
        Err((ErrorReason::NotFound, _)) => Ok(Deleted::Absent),
        Err((_, reconcile_error)) => Err(reconcile_error),
    }
}
