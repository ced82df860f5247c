//! Reconciles Endpoints: mirrors them, or deletes their slices if they are not to be mirrored.

use std::sync::Arc;

use keleustes_objects::{EndpointSlice, Endpoints, ErrorReason, Key, Service};
use keleustes_plan::{
    Applied, Context, InvolvedObject, Memory, OnFailure, Outcome, Plan, PlannedEvent, ReconcileError,
    Reconciler, Requeue, View, Write,
};

use super::changes::{MirroredMeta, SliceChanges};
use super::desired::Desired;
use super::memory::MirroringMemory;
use super::writes::writes;
use super::{BY_ENDPOINTS, EndpointSliceMirroringOptions, is_mirrorable, metrics};
use crate::service_endpoints::{OwnWrite, SliceWrite, SliceWriteError, WrittenSlice, is_observed};

/// Reconciles Endpoints.
pub(super) struct MirroringReconciler {
    memory: Memory<MirroringMemory>,
    max_endpoints_per_subset: usize,
}

/// What the caches hold for a key.
struct Inputs {
    /// The Endpoints, if they are to be mirrored.
    endpoints: Option<Arc<Endpoints>>,
    /// The mirrored slices, sorted by name.
    slices: Vec<Arc<EndpointSlice>>,
}

impl Inputs {
    fn gather(view: &View<'_>, key: &Key) -> Self {
        let service = view.get::<Service>(key).filter(|service| service.selector.is_none());
        let endpoints =
            view.get::<Endpoints>(key).filter(|endpoints| service.is_some() && is_mirrorable(endpoints));
        let slices = view.store::<EndpointSlice>().by_index(&BY_ENDPOINTS, &key.to_string());
        Self { endpoints: endpoints.cloned(), slices: slices.cloned().collect() }
    }
}

impl Reconciler for MirroringReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let started_at = cx.gather(|view| view.now().monotonic);
        let result = self.sync(cx, item).await;
        let took = cx.gather(|view| view.now().monotonic).saturating_sub(started_at);
        cx.measure(metrics::SYNC_DURATION.measurement(&[], took.as_secs_f64()));
        result.map(|()| Requeue::Forget)
    }
}

impl MirroringReconciler {
    pub(super) fn new(options: &EndpointSliceMirroringOptions, memory: Memory<MirroringMemory>) -> Self {
        Self { memory, max_endpoints_per_subset: options.max_endpoints_per_subset }
    }

    async fn sync(&self, cx: &mut Context<'_>, key: &Key) -> Result<(), ReconcileError> {
        self.memory.with(|memory| memory.begin_sync(key));
        let Inputs { endpoints, slices } = cx.gather(|view| Inputs::gather(view, key));
        match endpoints {
            Some(endpoints) => self.mirror(cx, &endpoints, &slices).await,
            None => self.clean_up(cx, key, &slices).await,
        }
    }

    async fn mirror(
        &self,
        cx: &mut Context<'_>,
        endpoints: &Endpoints,
        slices: &[Arc<EndpointSlice>],
    ) -> Result<(), ReconcileError> {
        let key = &endpoints.meta.key;
        let desired = Desired::of(endpoints, self.max_endpoints_per_subset);
        cx.measure(metrics::number(&metrics::SKIPPED, desired.skipped));
        self.record_skipped(cx, endpoints, &desired).await;
        let meta = MirroredMeta::of(endpoints);
        let changes = SliceChanges::of(endpoints, &meta, slices, desired, self.max_endpoints_per_subset);
        cx.measure(metrics::number(&metrics::ADDED, changes.added));
        cx.measure(metrics::number(&metrics::UPDATED, changes.updated));
        cx.measure(metrics::number(&metrics::REMOVED, changes.removed));
        self.memory.with(|memory| memory.set_totals(key, changes.totals));
        self.observe_totals(cx);
        for write in writes(endpoints, &meta, &changes) {
            if !self.send(cx, key, write).await? {
                break;
            }
        }
        Ok(())
    }

    /// Records an event for addresses that are left out.
    async fn record_skipped(&self, cx: &mut Context<'_>, endpoints: &Endpoints, desired: &Desired) {
        let Desired { invalid, skipped, .. } = desired;
        let mut plan = Plan::none();
        if *invalid > 0 {
            let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            plan.record(PlannedEvent::warning(InvolvedObject::of(endpoints), "InvalidIPAddress", message));
        }
        if skipped > invalid {
            let message = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped",
                self.max_endpoints_per_subset
            );
            let reason = "TooManyAddressesToMirror";
            plan.record(PlannedEvent::warning(InvolvedObject::of(endpoints), reason, message));
        }
        if !plan.is_none() {
            cx.apply(plan).await;
        }
    }

    /// Sends a write. Returns whether the next one may be sent: in a terminating namespace nothing can be created.
    async fn send(&self, cx: &mut Context<'_>, key: &Key, write: SliceWrite) -> Result<bool, ReconcileError> {
        let WrittenSlice { operation, unobserved } = match write.send(cx, &format!("Endpoints {key}")).await {
            Ok(written) => written,
            Err(SliceWriteError::NamespaceTerminating) => return Ok(false),
            Err(SliceWriteError::Retry(error)) => return Err(error),
        };
        cx.measure(metrics::CHANGES.increment(&[operation.as_str()]));
        if let Some((uid, written)) = unobserved {
            self.memory.with(|memory| memory.record_write(key, uid, written));
        }
        Ok(true)
    }

    /// Deletes all mirrored slices of Endpoints that are not to be mirrored. A failed deletion stops no other one.
    async fn clean_up(
        &self,
        cx: &mut Context<'_>,
        key: &Key,
        slices: &[Arc<EndpointSlice>],
    ) -> Result<(), ReconcileError> {
        self.memory.with(|memory| memory.forget(key));
        self.observe_totals(cx);
        if slices.is_empty() {
            return Ok(());
        }
        let mut plan = Plan::none();
        let each = |slice: &Arc<EndpointSlice>| {
            Write::delete(&**slice)
                .ignoring_errors(&[ErrorReason::NotFound])
                .on_failure(OnFailure::ReturnOutcome)
                .because("the Endpoints are not mirrored")
        };
        plan.push_parallel(slices.iter().map(each).collect());
        let Applied { outcomes, error } = cx.apply(plan).await;
        let mut failures = Vec::new();
        for (slice, outcome) in slices.iter().zip(outcomes) {
            let (key_of_slice, uid) = (&slice.meta.key, &slice.meta.uid);
            match outcome {
                Outcome::Failed(failure) => failures.push(failure),
                _ if cx.gather(|view| is_observed(view, key_of_slice, uid, &OwnWrite::Deleted)) => {}
                _ => self.memory.with(|memory| memory.record_write(key, uid.clone(), OwnWrite::Deleted)),
            }
        }
        let Some(first) = failures.first() else { return error.map_or(Ok(()), Err) };
        let (failed, all) = (failures.len(), slices.len());
        let because = format!(
            "error(s) deleting {failed}/{all} EndpointSlices for {key} Endpoints, including: {first}"
        );
        Err(ReconcileError::from_api_error(first, because))
    }

    fn observe_totals(&self, cx: &mut Context<'_>) {
        let totals = self.memory.with(|memory| memory.totals());
        metrics::totals(totals).into_iter().for_each(|measurement| cx.measure(measurement));
    }
}
