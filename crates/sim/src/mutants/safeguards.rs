//! Removes one safeguard from a controller and leaves the rest as it ships.
//!
//! The mutation sits between the decision and the executor: it strips the safeguard from every planned
//! write. Removals are counted, because a safeguard that no write of the controller uses cannot be missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keleustes_objects::Uid;
use keleustes_plan::{
    Action, AnyReconciler, BoxFuture, Context, Controller, Edited, Item, Plan, Precondition, ReconcileError,
    Requeue, Write,
};
use serde_json::Value;

use crate::wrapped_io::WrappedIo;

/// A safeguard of planned writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// The owner is read live before a write in its name.
    OwnerRecheck,
    /// A write carries the UID of its target.
    UidPrecondition,
    /// A write carries the resourceVersion that the decision was based on.
    ResourceVersionPrecondition,
    /// A key waits until the caches have observed the writes of its last reconcile.
    Gate,
}

impl Safeguard {
    /// All safeguards.
    pub const ALL: [Self; 4] =
        [Self::OwnerRecheck, Self::UidPrecondition, Self::ResourceVersionPrecondition, Self::Gate];

    /// Strips the safeguard from a write; returns whether the write had it.
    fn remove_from(self, write: &mut Write) -> bool {
        match (self, &mut write.action) {
            (Self::OwnerRecheck, _) => write.guard.take().is_some(),
            // Server-side apply names no UID.
            (Self::UidPrecondition, Action::Apply { .. }) => false,
            (Self::Gate, Action::Delete { .. }) | (Self::UidPrecondition, _) => {
                if let Action::Put { body, .. } = &mut write.action {
                    remove_metadata_field(body, "uid");
                }
                let had_uid = !write.target.uid.is_empty();
                write.target.uid = Uid::default();
                if had_uid {
                    write.target.precondition = Precondition::None("the safeguard is removed");
                }
                had_uid
            }
            (Self::ResourceVersionPrecondition, Action::Delete { resource_version_precondition, .. }) => {
                resource_version_precondition.take().is_some()
            }
            (Self::ResourceVersionPrecondition, Action::Put { body, .. } | Action::Patch { body, .. }) => {
                remove_resource_version(body)
            }
            (Self::ResourceVersionPrecondition, Action::Edit(edit)) => {
                edit.expected_resource_version = None;
                let change = edit.change.clone();
                edit.change = Arc::new(move |live| {
                    let edited = change(live);
                    if edited == Edited::Changed {
                        remove_resource_version(live);
                    }
                    edited
                });
                true
            }
            // `without_gate` strips the resourceVersion from the response.
            (Self::Gate, _) => true,
            (Self::ResourceVersionPrecondition, _) => false,
        }
    }
}

/// Removes the resourceVersion from a body; returns whether it was there.
fn remove_resource_version(body: &mut Value) -> bool {
    remove_metadata_field(body, "resourceVersion")
}

/// Removes a metadata field from a body; returns whether it was there.
fn remove_metadata_field(body: &mut Value, field: &str) -> bool {
    let metadata = body.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.is_some_and(|metadata| metadata.remove(field).is_some())
}

/// Strips a safeguard from all loops of a controller, and counts the removals.
pub fn remove_safeguard(controller: &mut Controller, safeguard: Safeguard, removals: &Arc<AtomicU64>) {
    for controller_loop in &mut controller.loops {
        let remover = SafeguardRemover { safeguard, removals: removals.clone() };
        let reconciler = controller_loop.reconciler.clone();
        controller_loop.reconciler = Arc::new(UnsafeReconciler { reconciler, remover });
    }
}

/// Strips the safeguard from plans before the executor sees them.
#[derive(Clone)]
struct SafeguardRemover {
    safeguard: Safeguard,
    removals: Arc<AtomicU64>,
}

impl SafeguardRemover {
    fn strip(&self, mut plan: Plan) -> Plan {
        let removals = plan.writes_mut().filter_map(|write| self.safeguard.remove_from(write).then_some(1));
        self.removals.fetch_add(removals.sum(), Ordering::Relaxed);
        plan
    }
}

struct UnsafeReconciler {
    reconciler: Arc<dyn AnyReconciler>,
    remover: SafeguardRemover,
}

impl AnyReconciler for UnsafeReconciler {
    fn accepts(&self, item: &Item) -> bool {
        self.reconciler.accepts(item)
    }

    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let strip = |plan| self.remover.strip(plan);
            let mut io = WrappedIo { edit_plan: Some(&strip), ..WrappedIo::new(cx.io()) };
            self.reconciler.reconcile_boxed(&mut Context::new(&mut io), item).await
        })
    }
}
