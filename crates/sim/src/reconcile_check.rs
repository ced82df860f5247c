//! Every storm verifies that reconciles read only kinds whose changes enqueue their items, and that they return an error if
//! their writes were not sent.
//!
//! A reconcile that reads an object, and is not run again when the object changes, decides on a state that is gone. The
//! declaration of a loop says which kinds it watches, and why others need no watch; the reads of its reconciles must
//! be among them.
//!
//! A process that loses the Lease for a moment sends nothing in the meantime. An item that is forgotten then waits for an
//! event that may never come, unless the loop is resynced soon.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keleustes_plan::{
    AnyReconciler, Applied, BoxFuture, Context, Controller, Item, KindEntry, ReconcileError, Requeue,
};
use parking_lot::Mutex;

use crate::recorder::Recorder;
use crate::wrapped_io::WrappedIo;

/// A part of the error if writes are not sent because this process does not lead.
const NOT_LEADING: &str = "does not lead any more";

/// An item of a loop that is resynced this often may be forgotten: the binder of volumes leaves a failed operation to the next
/// resync, as the original does.
const RESYNC_MAX: Duration = Duration::from_secs(60);

/// Checks the reconciles of all loops of a controller.
pub(crate) fn check_reconciles(controller: &mut Controller, recorder: &Arc<Recorder>) {
    for a_loop in &mut controller.loops {
        let covered = a_loop.reads.iter().filter(|kind| a_loop.covers_reads_of(kind)).cloned().collect();
        let reconciler = a_loop.reconciler.clone();
        let (queue, recorder, reported) = (a_loop.queue, recorder.clone(), Mutex::default());
        let is_resynced_soon = a_loop.resync_period.is_some_and(|period| period <= RESYNC_MAX);
        a_loop.reconciler =
            Arc::new(ReconcileChecker { reconciler, covered, queue, recorder, reported, is_resynced_soon });
    }
}

struct ReconcileChecker {
    reconciler: Arc<dyn AnyReconciler>,
    /// The kinds whose changes enqueue items, or need not.
    covered: Vec<KindEntry>,
    queue: &'static str,
    recorder: Arc<Recorder>,
    /// The resources that were reported, each once.
    reported: Mutex<BTreeSet<String>>,
    is_resynced_soon: bool,
}

impl ReconcileChecker {
    fn on_read(&self, kind: &KindEntry) {
        if self.covered.contains(kind) {
            return;
        }
        let resource = kind.resource().to_string();
        if self.reported.lock().insert(resource.clone()) {
            let queue = self.queue;
            self.recorder
                .report_violation(format_args!("{queue} reads {resource}, which none of its watches covers"));
        }
    }
}

impl AnyReconciler for ReconcileChecker {
    fn accepts(&self, item: &Item) -> bool {
        self.reconciler.accepts(item)
    }

    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let on_read = |kind: &KindEntry| self.on_read(kind);
            let was_refused = AtomicBool::new(false);
            let on_applied = |applied: &Applied| {
                let is_refusal =
                    applied.error.as_ref().is_some_and(|error| error.because.contains(NOT_LEADING));
                was_refused.fetch_or(is_refusal && !applied.outcomes.is_empty(), Ordering::Relaxed);
            };
            let mut io = WrappedIo {
                on_read: Some(&on_read),
                on_applied: Some(&on_applied),
                ..WrappedIo::new(cx.io())
            };
            let result = self.reconciler.reconcile_boxed(&mut Context::new(&mut io), item).await;
            let is_forgotten = result == Ok(Requeue::Forget) && !self.is_resynced_soon;
            if was_refused.into_inner() && is_forgotten {
                let queue = self.queue;
                self.recorder.report_violation(format_args!(
                    "{queue} forgets {item}, although its writes were not sent"
                ));
            }
            result
        })
    }
}
