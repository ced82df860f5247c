//! Checks one object: whether it may be deleted, must drop some references, or has waited long enough.

use keleustes_objects::{ErrorReason, Key, ObjectMeta, OwnerReference, TypeMeta, Uid};
use keleustes_plan::{
    BoxFuture, Context, Effects, Item, Memory, OnFailure, Outcome, Plan, PropagationPolicy, ReconcileError,
    Reconciler, Requeue, Target, Write,
};

use super::graph::{FOREGROUND, Node, ORPHAN};
use super::identity::Identity;
use super::places::{live, locate, retry};
use super::references::{Change, without_finalizer};
use super::{CHECKS, Graph, GraphEffects, VIRTUAL, item_of};

/// How often in a row something else may change between a look at an object and its deletion; then it waits its turn.
const CONFLICTS_MAX: usize = 5;

/// Works on objects that may have to go.
pub(super) struct Check {
    pub(super) memory: Memory<Graph>,
}

/// The owners of one object, by what the API says of them.
#[derive(Default)]
struct Owners {
    /// They are there.
    solid: Vec<Uid>,
    /// They do not exist.
    dangling: Vec<Uid>,
    /// They are there until their dependents are gone.
    waiting: Vec<Uid>,
}

/// What became of a deletion.
enum Deleted {
    Done,
    /// There is nothing to delete.
    Absent,
}

impl Reconciler for Check {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.check(cx, item))
    }
}

impl Check {
    async fn check(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let uid = Uid::from(&*item.key.name);
        let Some(node) = self.memory.with(|graph| graph.node(&uid)) else { return Ok(Requeue::Forget) };
        // Whoever has been seen since then is checked for reasons of its own, if at all.
        let seen_meanwhile = !item.attribute(VIRTUAL).is_empty() && !node.is_virtual;
        // Deletion has no way back: the end of the object will be seen.
        let on_its_way = node.being_deleted && !node.deleting_dependents;
        if seen_meanwhile || on_its_way {
            return Ok(Requeue::Forget);
        }
        let Some(place) = locate(cx, &node.identity).await? else { return Ok(Requeue::Forget) };
        let Some(meta) = live(cx, &place).await? else {
            self.process_virtual_delete(cx, &node.identity);
            return Ok(Requeue::Forget);
        };
        let deleted = if node.deleting_dependents {
            self.await_dependents(cx, &node, &place).await?;
            Deleted::Done
        } else {
            self.judge(cx, &node, &place, &meta).await?
        };
        match deleted {
            Deleted::Absent => {
                self.process_virtual_delete(cx, &node.identity);
                Ok(Requeue::Forget)
            }
            // It may come and go without ever being seen; then nobody else would take its node away.
            Deleted::Done if node.is_virtual => {
                Err(ReconcileError::because(format!("{} was not seen yet", node.identity)).quietly())
            }
            Deleted::Done => Ok(Requeue::Forget),
        }
    }

    fn process_virtual_delete(&self, cx: &mut Context<'_>, identity: &Identity) {
        let mut ripple = GraphEffects::default();
        self.memory.with(|graph| graph.process_virtual_delete(identity, &mut ripple));
        cx.effects(ripple.into());
    }

    /// Lets an owner go that no dependent holds any longer; else has those checked that do.
    async fn await_dependents(
        &self,
        cx: &mut Context<'_>,
        owner: &Node,
        place: &Target,
    ) -> Result<(), ReconcileError> {
        let blocking = self.memory.with(|graph| graph.blocking_dependents(&owner.identity.uid));
        if blocking.is_empty() {
            let freed = without_finalizer(place, FOREGROUND, "no dependent blocks its deletion");
            return cx.apply(Plan::of(freed)).await.all_done();
        }
        let mut stir = Effects::default();
        for dependent in blocking.iter().filter(|dependent| !dependent.deleting_dependents) {
            stir.enqueue(CHECKS, item_of(&dependent.identity.uid, dependent.is_virtual));
        }
        cx.effects(stir);
        Ok(())
    }

    /// Asks the API about the owners that an object has now, and draws the conclusion.
    async fn judge(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        place: &Target,
        meta: &ObjectMeta,
    ) -> Result<Deleted, ReconcileError> {
        if meta.owner_references.is_empty() {
            return Ok(Deleted::Done);
        }
        let Some(owners) = self.classify(cx, place, &meta.owner_references).await? else {
            return Ok(Deleted::Done);
        };
        if !owners.solid.is_empty() {
            let gone: Vec<Uid> = owners.dangling.into_iter().chain(owners.waiting).collect();
            if !gone.is_empty() {
                let because = "these owners are gone, and it has others";
                Change::send(vec![Change::removal(place, &gone, because)], cx, false).await?;
            }
            return Ok(Deleted::Done);
        }
        let dependents = self.memory.with(|graph| graph.dependents(&node.identity.uid));
        if owners.waiting.is_empty() || dependents.is_empty() {
            let policy = policy_of(meta);
            return delete(cx, place, meta, policy, "its owners are gone").await;
        }
        if dependents.iter().any(|dependent| dependent.deleting_dependents) {
            // They may wait for each other in a circle.
            let unblocking =
                Change::unblocking(place, meta, "its owner and its dependent wait for each other");
            Change::send(unblocking.into_iter().collect(), cx, false).await?;
        }
        delete(
            cx,
            place,
            meta,
            PropagationPolicy::Foreground,
            "its owner waits for it, and it has dependents",
        )
        .await
    }

    /// `None` if a cluster-scoped object refers to a namespaced owner, of which nothing follows.
    async fn classify(
        &self,
        cx: &mut Context<'_>,
        place: &Target,
        references: &[OwnerReference],
    ) -> Result<Option<Owners>, ReconcileError> {
        let mut owners = Owners::default();
        for reference in references {
            let said = Identity {
                line: TypeMeta::new(reference.api_version.clone(), reference.kind.clone()),
                key: Key { namespace: place.key.namespace.clone(), name: reference.name.clone() },
                uid: reference.uid.clone(),
            };
            let of_cluster = Identity { key: Key::cluster(reference.name.clone()), ..said.clone() };
            let is_absent_owner =
                self.memory.with(|graph| graph.is_absent_owner(&of_cluster) || graph.is_absent_owner(&said));
            if is_absent_owner {
                owners.dangling.push(said.uid);
                continue;
            }
            let Some(owner) = locate(cx, &said).await? else { return Ok(None) };
            match live(cx, &owner).await? {
                None => {
                    let absent = if owner.resource.namespaced { &said } else { &of_cluster };
                    self.memory.with(|graph| graph.record_absent_owner(absent));
                    owners.dangling.push(said.uid);
                }
                Some(meta) if meta.deletion_timestamp.is_some() && has_finalizer(&meta, FOREGROUND) => {
                    owners.waiting.push(said.uid);
                }
                Some(_) => owners.solid.push(said.uid),
            }
        }
        Ok(Some(owners))
    }
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|one| one == finalizer)
}

/// What somebody has already said about an object's dependents is respected.
fn policy_of(meta: &ObjectMeta) -> PropagationPolicy {
    if has_finalizer(meta, ORPHAN) {
        PropagationPolicy::Orphan
    } else if has_finalizer(meta, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}

/// Deletes an object in the state that was judged. If only something else than its owners has changed since, it is tried
/// again in the state of now: what is changed all the time must not escape for ever, and what was set free in the last
/// moment must.
async fn delete(
    cx: &mut Context<'_>,
    place: &Target,
    meta: &ObjectMeta,
    policy: PropagationPolicy,
    because: &'static str,
) -> Result<Deleted, ReconcileError> {
    // The graph may not have seen yet that it is going this very way.
    let is_going = policy != PropagationPolicy::Foreground || has_finalizer(meta, FOREGROUND);
    if meta.deletion_timestamp.is_some() && is_going {
        return Ok(Deleted::Done);
    }
    let write = Write::delete_target(place.clone())
        .propagation_policy(policy)
        .on_failure(OnFailure::ReturnOutcome)
        .because(because);
    let (mut version, mut tries) = (meta.resource_version.clone(), 1);
    loop {
        let sent = send(cx, write.clone().resource_version_precondition(&version)).await;
        let Err((ErrorReason::Conflict, conflict)) = sent else { return concluded(sent) };
        let Some(now) = live_or_other(cx, place).await? else { return Ok(Deleted::Absent) };
        let may_go = now.uid == place.uid
            && now.resource_version != version
            && now.owner_references == meta.owner_references;
        if !may_go || tries == CONFLICTS_MAX {
            return Err(conflict);
        }
        (version, tries) = (now.resource_version, tries + 1);
    }
}

/// What the API has at a place, whichever life it is.
async fn live_or_other(cx: &mut Context<'_>, place: &Target) -> Result<Option<ObjectMeta>, ReconcileError> {
    let found = cx.fetch_metadata(&place.resource, &place.key).await;
    let found = found.map_err(|failure| retry("reading after a conflict", &failure))?;
    Ok(found.map(|object| object.meta))
}

async fn send(cx: &mut Context<'_>, write: Write) -> Result<(), (ErrorReason, ReconcileError)> {
    let what = write.to_string();
    let applied = cx.apply(Plan::of(write)).await;
    match applied.outcomes.into_iter().next() {
        Some(Outcome::Failed(failure)) => Err((failure.reason, retry(&what, &failure))),
        Some(Outcome::NotSent) | None => {
            Err((ErrorReason::Other, applied.error.unwrap_or_else(|| ReconcileError::because("not tried"))))
        }
        Some(Outcome::Done { .. } | Outcome::Unneeded) => Ok(()),
    }
}

fn concluded(sent: Result<(), (ErrorReason, ReconcileError)>) -> Result<Deleted, ReconcileError> {
    match sent {
        Ok(()) => Ok(Deleted::Done),
        Err((ErrorReason::NotFound, _)) => Ok(Deleted::Absent),
        Err((_, retry)) => Err(retry),
    }
}
