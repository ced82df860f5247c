//! Reconciles Services: decides and applies for each address type, and reports errors.

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Key, Node, Service, Time};
use keleustes_plan::{
    Context, Delay, InvolvedObject, Memory, ObjectOr, OnFailure, Plan, PlannedEvent, ReconcileError,
    Reconciler, Requeue, View,
};

use super::endpoints::DesiredEndpoints;
use super::gather::{Gathered, Inputs};
use super::hints::{HintMode, set_hints};
use super::memory::EndpointSliceMemory;
use super::packing::SliceChanges;
use super::writes::{SliceWriter, delete_unsupported_type};
use super::{EndpointSliceOptions, Zones, metrics, topology};
use crate::service_endpoints::{AddressType, SliceWrite, SliceWriteError, WrittenSlice};

/// Reconciles Services, and the zones of the cluster.
pub(super) struct EndpointSliceReconciler {
    memory: Memory<EndpointSliceMemory>,
    max_endpoints_per_slice: usize,
}

/// The errors of one reconcile.
#[derive(Default)]
struct SyncErrors {
    messages: Vec<String>,
    retry_after: Option<Duration>,
    outage: bool,
}

impl Reconciler<ObjectOr<Zones>> for EndpointSliceReconciler {
    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &ObjectOr<Zones>,
    ) -> Result<Requeue, ReconcileError> {
        let ObjectOr::Object(service) = item else {
            self.update_zones(cx);
            return Ok(Requeue::Forget);
        };
        // A pod change during the previous reconcile came too late for that reconcile and was enqueued
        // before its debounce interval started.
        let debounce_remaining = self.debounce_remaining(cx, service);
        if !debounce_remaining.is_zero() {
            return Ok(Requeue::KeepBackoff(Delay::of(debounce_remaining, "more changes of its pods")));
        }
        let result = self.sync_service(cx, service).await;
        cx.measure(metrics::SYNCS.increment(&[if result.is_ok() { "success" } else { "error" }]));
        result.map(|()| Requeue::Forget)
    }
}

impl EndpointSliceReconciler {
    pub(super) fn new(options: &EndpointSliceOptions, memory: Memory<EndpointSliceMemory>) -> Self {
        Self { memory, max_endpoints_per_slice: options.max_endpoints_per_slice }
    }

    fn debounce_remaining(&self, cx: &Context<'_>, service: &Key) -> Duration {
        let now = cx.gather(|view| view.now().monotonic);
        self.memory.with(|memory| memory.debounce_remaining(service, now))
    }

    /// Computes the CPU ratios of the zones from the nodes, and enqueues the Services whose hints overload a
    /// zone.
    fn update_zones(&self, cx: &mut Context<'_>) {
        let zones = cx.gather(|view| topology::zone_cpu_ratios(view.all::<Node>()));
        for service in self.memory.with(|memory| memory.set_zones(zones)) {
            cx.enqueue(service);
        }
    }

    async fn sync_service(&self, cx: &mut Context<'_>, key: &Key) -> Result<(), ReconcileError> {
        let inputs = match cx.gather(|view| self.gather(view, key)) {
            Gathered::NotFound => {
                self.memory.with(|memory| memory.forget(key));
                self.observe_totals(cx);
                return Ok(());
            }
            Gathered::NotManaged => return Ok(()),
            Gathered::Managed(inputs) => inputs,
        };
        // Without this, the first reconcile of a new process would find no zones and remove all hints.
        let needs_zones = HintMode::of(&inputs.service) == HintMode::Proportional;
        if needs_zones && self.memory.with(|memory| memory.zones().is_none()) {
            self.update_zones(cx);
        }
        let trigger_time = self.memory.with(|memory| memory.begin_sync(&inputs.service, inputs.pods()));
        let address_types = AddressType::of(&inputs.service);
        self.forget_unsupported_hints(&inputs, &address_types);
        let mut errors = SyncErrors::default();
        for address_type in &address_types {
            self.sync_address_type(cx, &inputs, *address_type, trigger_time, &mut errors).await;
        }
        self.delete_unsupported_types(cx, &inputs, &address_types, &mut errors).await;
        errors.report(cx, &inputs.service).await
    }

    /// Reads the caches, and records missing nodes before the caches change.
    fn gather(&self, view: &View<'_>, key: &Key) -> Gathered {
        let gathered = Gathered::gather(view, key);
        if let Gathered::Managed(inputs) = &gathered {
            self.memory.with(|memory| memory.set_missing_nodes(key, inputs.missing_nodes()));
        }
        gathered
    }

    async fn sync_address_type(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        address_type: AddressType,
        trigger_time: Option<Time>,
        errors: &mut SyncErrors,
    ) {
        let service = &inputs.service;
        let mut desired = DesiredEndpoints::of(inputs, address_type);
        errors.messages.append(&mut desired.errors);
        let slices: Vec<_> = inputs
            .slices
            .iter()
            .filter(|slice| slice.address_type == address_type.as_str())
            .cloned()
            .collect();
        let mut changes =
            SliceChanges::pack(service, address_type, &slices, desired, self.max_endpoints_per_slice);
        cx.measure(metrics::number(&metrics::ADDED, &[], changes.added));
        cx.measure(metrics::number(&metrics::REMOVED, &[], changes.removed));

        let events = set_hints(&mut changes, service, address_type, &self.memory);
        let hint_mode = HintMode::of(service);
        let distribution = service
            .traffic_distribution
            .as_ref()
            .filter(|_| matches!(hint_mode, HintMode::PreferClose { .. }));
        self.memory.with(|memory| memory.set_totals(&service.meta.key, changes.totals, distribution));
        self.observe_totals(cx);

        let writes = SliceWriter::new(service, address_type, trigger_time).writes(changes);
        let write_count = writes.len();
        if write_count == 0 || self.apply(cx, &service.meta.key, writes, errors).await {
            let topology = if hint_mode == HintMode::Proportional { "Auto" } else { "Disabled" };
            let labels = [topology, distribution.map_or("", |distribution| distribution.as_str())];
            cx.measure(metrics::number(&metrics::CHANGED, &labels, write_count));
        }
        record(cx, events).await;
    }

    /// Forgets hints of address types that the Service does not have any more, before those of the others are set: all share
    /// the state that says whether the Service has hints.
    fn forget_unsupported_hints(&self, inputs: &Inputs, address_types: &[AddressType]) {
        if inputs.slices.iter().all(|slice| is_supported(slice, address_types)) {
            return;
        }
        let lost = [AddressType::Ipv4, AddressType::Ipv6];
        for address_type in lost.into_iter().filter(|address_type| !address_types.contains(address_type)) {
            self.memory.with(|memory| memory.remove_hint_counts(&inputs.service.meta.key, address_type));
        }
    }

    /// Deletes slices of address types that the Service does not have.
    async fn delete_unsupported_types(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        address_types: &[AddressType],
        errors: &mut SyncErrors,
    ) {
        let unsupported = inputs.slices.iter().filter(|slice| !is_supported(slice, address_types));
        let writes: Vec<_> = unsupported.map(|slice| delete_unsupported_type(slice)).collect();
        if !writes.is_empty() {
            self.apply(cx, &inputs.service.meta.key, writes, errors).await;
        }
    }

    /// Sends writes one after the other. Returns whether all of them succeeded.
    async fn apply(
        &self,
        cx: &mut Context<'_>,
        service: &Key,
        writes: Vec<SliceWrite>,
        errors: &mut SyncErrors,
    ) -> bool {
        self.start_debounce(cx, service, writes.len());
        let mut all_done = true;
        for sent in writes {
            let stops = sent.write.on_failure == OnFailure::StopAndRetry;
            match self.send(cx, service, sent).await {
                Ok(()) => {}
                Err(SliceWriteError::NamespaceTerminating) => return false,
                Err(SliceWriteError::Retry(error)) => {
                    errors.messages.push(error.because);
                    errors.retry_after = errors.retry_after.max(error.retry_after);
                    errors.outage |= error.outage;
                    all_done = false;
                    if stops {
                        break;
                    }
                }
            }
        }
        all_done
    }

    fn start_debounce(&self, cx: &Context<'_>, service: &Key, slices: usize) {
        let now = cx.gather(|view| view.now().monotonic);
        self.memory.with(|memory| memory.start_debounce(service, now, slices));
    }

    /// Sends a write and remembers it until the cache shows it.
    async fn send(
        &self,
        cx: &mut Context<'_>,
        service: &Key,
        write: SliceWrite,
    ) -> Result<(), SliceWriteError> {
        let WrittenSlice { operation, unobserved } = write.send(cx, &format!("Service {service}")).await?;
        cx.measure(metrics::CHANGES.increment(&[operation.as_str()]));
        if let Some((uid, written)) = unobserved {
            self.memory.with(|memory| memory.record_write(service, uid, written));
        }
        Ok(())
    }

    fn observe_totals(&self, cx: &mut Context<'_>) {
        let totals = self.memory.with(|memory| metrics::totals(memory));
        totals.into_iter().for_each(|measurement| cx.measure(measurement));
    }
}

fn is_supported(slice: &EndpointSlice, address_types: &[AddressType]) -> bool {
    address_types.iter().any(|address_type| slice.address_type == address_type.as_str())
}

async fn record(cx: &mut Context<'_>, events: Vec<PlannedEvent>) {
    if !events.is_empty() {
        let mut plan = Plan::none();
        events.into_iter().for_each(|event| plan.record(event));
        cx.apply(plan).await;
    }
}

impl SyncErrors {
    /// Records an event for the errors and returns them, so that the Service is retried.
    async fn report(mut self, cx: &mut Context<'_>, service: &Service) -> Result<(), ReconcileError> {
        let mut seen = std::collections::BTreeSet::new();
        self.messages.retain(|text| seen.insert(text.clone()));
        let because = match &self.messages[..] {
            [] => return Ok(()),
            [text] => text.clone(),
            messages => format!("[{}]", messages.join(", ")),
        };
        let message = format!("Error updating Endpoint Slices for Service {}: {because}", service.meta.key);
        record(
            cx,
            vec![PlannedEvent::warning(InvolvedObject::of(service), "FailedToUpdateEndpointSlices", message)],
        )
        .await;
        Err(ReconcileError {
            retry_after: self.retry_after,
            outage: self.outage,
            ..ReconcileError::because(because)
        })
    }
}
