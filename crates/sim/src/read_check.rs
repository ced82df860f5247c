//! Every storm verifies that reconciles read only kinds whose changes enqueue their items.
//!
//! A reconcile that reads an object, and is not run again when the object changes, decides on a state that is gone. The
//! declaration of a loop says which kinds it watches, and why others need no watch; the reads of its reconciles must
//! be among them.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_plan::{
    AnyReconciler, Context, Controller, Item, KindEntry, ReconcileError, Reconciler, Requeue,
};
use parking_lot::Mutex;

use crate::recorder::Recorder;
use crate::wrapped_io::WrappedIo;

/// Checks the reads of all loops of a controller.
pub(crate) fn check_reads(controller: &mut Controller, recorder: &Arc<Recorder>) {
    for a_loop in &mut controller.loops {
        let covered = a_loop.reads.iter().filter(|kind| a_loop.covers_reads_of(kind)).cloned().collect();
        let reconciler = a_loop.reconciler.clone();
        let (queue, recorder) = (a_loop.queue, recorder.clone());
        a_loop.reconciler =
            Arc::new(ReadChecker { reconciler, covered, queue, recorder, reported: Mutex::default() });
    }
}

struct ReadChecker {
    reconciler: Arc<dyn AnyReconciler>,
    /// The kinds whose changes enqueue items, or need not.
    covered: Vec<KindEntry>,
    queue: &'static str,
    recorder: Arc<Recorder>,
    /// The resources that were reported, each once.
    reported: Mutex<BTreeSet<String>>,
}

impl ReadChecker {
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

impl Reconciler for ReadChecker {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let on_read = |kind: &KindEntry| self.on_read(kind);
        let mut io = WrappedIo { on_read: Some(&on_read), ..WrappedIo::new(cx.io()) };
        self.reconciler.reconcile_boxed(&mut Context::new(&mut io), item).await
    }
}
