//! Lets deciding and applying alternate, family by family, and tells what came of it.

use std::time::Duration;

use keleustes_objects::{EndpointSlice, ErrorReason, Key, Kind as _, Node, Service, Time, Uid};
use keleustes_plan::{
    Applied, BoxFuture, Context, InvolvedObject, Item, Memory, OnFailure, Outcome, Plan, PlannedEvent,
    ReconcileError, Reconciler, Requeue, View,
};

use super::endpoints::{AddressType, DesiredEndpoints};
use super::gather::{Gathered, Inputs};
use super::hints::{HintMode, hint};
use super::memory::{EndpointSliceMemory, Written};
use super::packing::SliceChanges;
use super::writes::{Operation, SliceWrite, SliceWriter, delete_unsupported_type};
use super::{EndpointSliceOptions, metrics, topology, zones_key};

/// How long changes of pods gather for each slice that a turn writes. Every write goes to every node of the
/// cluster, and pods of a large Service change faster than one write after the other can tell of it; the first
/// change after a quiet time is told at once.
const GATHERING_A_SLICE: Duration = Duration::from_millis(100);
/// How long they gather at first, however many slices a turn writes.
const GATHERING_MAX: Duration = Duration::from_millis(500);
/// How long they gather at most while there is no end to them. More often than once a second kube-proxy does not look
/// by default.
const GATHERING_IN_A_ROW_MAX: Duration = Duration::from_secs(1);

/// Works on Services, and on the zones of the cluster.
pub(super) struct EndpointSliceReconciler {
    memory: Memory<EndpointSliceMemory>,
    max_endpoints_per_slice: usize,
}

/// What went wrong in one turn.
#[derive(Default)]
struct Troubles {
    texts: Vec<String>,
    wait: Option<Duration>,
    outage: bool,
}

impl Reconciler for EndpointSliceReconciler {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}

impl EndpointSliceReconciler {
    pub(super) fn new(settings: &EndpointSliceOptions, memory: Memory<EndpointSliceMemory>) -> Self {
        Self { memory, max_endpoints_per_slice: settings.max_endpoints_per_slice }
    }

    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        if item.key == zones_key() {
            self.survey_zones(cx);
            return Ok(Requeue::Forget);
        }
        // A change of a pod may have come in while the turn before was deciding, too late to be part of it and too
        // early to wait.
        let debounce_remaining = self.debounce_remaining(cx, &item.key);
        if !debounce_remaining.is_zero() {
            return Ok(Requeue::KeepBackoff(debounce_remaining));
        }
        let result = self.service_turn(cx, &item.key).await;
        cx.measure(metrics::SYNCS.increment(&[if result.is_ok() { "success" } else { "error" }]));
        result.map(|()| Requeue::Forget)
    }

    fn debounce_remaining(&self, cx: &Context<'_>, service: &Key) -> Duration {
        let now = cx.gather(|view| view.now().monotonic);
        self.memory.with(|recall| recall.debounce_remaining(service, now))
    }

    /// Looks at the nodes, and wakes the Services whose hints do not suit them any more.
    fn survey_zones(&self, cx: &mut Context<'_>) {
        let zones = cx.gather(|view| topology::survey(view.all::<Node>()));
        for service in self.memory.with(|recall| recall.survey(zones)) {
            cx.enqueue(service);
        }
    }

    async fn service_turn(&self, cx: &mut Context<'_>, key: &Key) -> Result<(), ReconcileError> {
        let facts = match cx.gather(|view| self.gather(view, key)) {
            Gathered::Gone => {
                self.memory.with(|recall| recall.forget(key));
                self.take_stock(cx);
                return Ok(());
            }
            Gathered::Foreign => return Ok(()),
            Gathered::Ours(facts) => facts,
        };
        // Otherwise the first turn in a new process would find no zones and take away all hints.
        let wants_zones = HintMode::of(&facts.service) == HintMode::Proportional;
        if wants_zones && self.memory.with(|recall| recall.zones().is_none()) {
            self.survey_zones(cx);
        }
        let trigger_time = self.memory.with(|recall| recall.begin_turn(&facts.service));
        let families = AddressType::of(&facts.service);
        let mut troubles = Troubles::default();
        for family in &families {
            self.family_turn(cx, &facts, *family, trigger_time, &mut troubles).await;
        }
        self.delete_strangers(cx, &facts, &families, &mut troubles).await;
        troubles.tell(cx, &facts.service).await
    }

    /// Takes what there is from the caches, and notes what is not before a cache moves on.
    fn gather(&self, view: &View<'_>, key: &Key) -> Gathered {
        let gathered = Gathered::gather(view, key);
        if let Gathered::Ours(facts) = &gathered {
            self.memory.with(|recall| recall.misses(key, facts.missing_nodes()));
        }
        gathered
    }

    async fn family_turn(
        &self,
        cx: &mut Context<'_>,
        facts: &Inputs,
        family: AddressType,
        trigger_time: Option<Time>,
        troubles: &mut Troubles,
    ) {
        let service = &facts.service;
        let mut wanted = DesiredEndpoints::of(facts, family);
        troubles.texts.append(&mut wanted.complaints);
        let slices: Vec<_> =
            facts.slices.iter().filter(|slice| slice.address_type == family.as_str()).cloned().collect();
        let mut lists = SliceChanges::fit(service, family, &slices, wanted, self.max_endpoints_per_slice);
        cx.measure(metrics::number(&metrics::ADDED, &[], lists.added));
        cx.measure(metrics::number(&metrics::REMOVED, &[], lists.removed));

        let events = hint(&mut lists, service, family, &self.memory);
        let wish = HintMode::of(service);
        let distribution =
            service.traffic_distribution.as_ref().filter(|_| matches!(wish, HintMode::Close { .. }));
        self.memory.with(|recall| recall.count(&service.meta.key, lists.totals, distribution));
        self.take_stock(cx);

        let writes = SliceWriter::new(service, family, trigger_time).writes(lists);
        let changed = writes.len();
        if changed == 0 || self.apply(cx, &service.meta.key, writes, troubles).await {
            let topology = if wish == HintMode::Proportional { "Auto" } else { "Disabled" };
            let labels = [topology, distribution.map_or("", |distribution| distribution.as_str())];
            cx.measure(metrics::number(&metrics::CHANGED, &labels, changed));
        }
        record(cx, events).await;
    }

    /// Deletes slices of families that the Service does not have.
    async fn delete_strangers(
        &self,
        cx: &mut Context<'_>,
        facts: &Inputs,
        families: &[AddressType],
        troubles: &mut Troubles,
    ) {
        let is_known =
            |slice: &EndpointSlice| families.iter().any(|family| slice.address_type == family.as_str());
        let strangers = facts.slices.iter().filter(|slice| !is_known(slice));
        let writes: Vec<_> = strangers.map(|slice| delete_unsupported_type(slice)).collect();
        if !writes.is_empty() {
            for family in
                [AddressType::V4, AddressType::V6].into_iter().filter(|family| !families.contains(family))
            {
                self.memory.with(|recall| recall.remove_hint_counts(&facts.service.meta.key, family));
            }
            self.apply(cx, &facts.service.meta.key, writes, troubles).await;
        }
    }

    /// Sends writes, one after the other. Tells whether all of them were done.
    async fn apply(
        &self,
        cx: &mut Context<'_>,
        service: &Key,
        writes: Vec<SliceWrite>,
        troubles: &mut Troubles,
    ) -> bool {
        self.start_debounce(cx, service, writes.len());
        let mut all_done = true;
        for sent in writes {
            let stops = sent.write.on_failure == OnFailure::StopAndRetry;
            match self.send(cx, service, sent).await {
                Ok(()) => {}
                Err(Refused::Moot) => return false,
                Err(Refused::Trouble { text, wait, outage }) => {
                    troubles.texts.push(text);
                    troubles.wait = troubles.wait.max(wait);
                    troubles.outage |= outage;
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
        let at_first =
            GATHERING_A_SLICE.saturating_mul(u32::try_from(slices).unwrap_or(u32::MAX)).min(GATHERING_MAX);
        self.memory.with(|recall| recall.start_debounce(service, now, at_first, GATHERING_IN_A_ROW_MAX));
    }

    async fn send(&self, cx: &mut Context<'_>, service: &Key, sent: SliceWrite) -> Result<(), Refused> {
        let SliceWrite { operation, write, failed } = sent;
        let target = write.target.clone();
        let Applied { mut outcomes, error: retry } = cx.apply(Plan::of(write)).await;
        let why = match outcomes.pop() {
            Some(Outcome::Done { resource_version: version, uid, name }) => {
                cx.measure(metrics::CHANGES.increment(&[operation.as_str()]));
                let namespace = target.key.namespace.clone();
                let (slice, uid, written) = match operation {
                    Operation::Create => (Key { namespace, name }, uid, Written::State(version)),
                    Operation::Update => (target.key, target.uid, Written::State(version)),
                    Operation::Delete => (target.key, target.uid, Written::End),
                };
                self.note_own_work(cx, service, &slice, uid, written);
                return Ok(());
            }
            Some(Outcome::Failed(failure)) => {
                let is_create = operation == Operation::Create;
                if is_create && failure.reason == ErrorReason::NamespaceTerminating {
                    return Err(Refused::Moot);
                }
                failure.to_string()
            }
            // Somebody has deleted it; where its endpoints go is decided anew.
            Some(Outcome::Unneeded) => format!("{} {:?} not found", EndpointSlice::RESOURCE, target.key.name),
            Some(Outcome::NotSent) | None => {
                retry.as_ref().map_or_else(String::new, |retry| retry.because.clone())
            }
        };
        let text = format!("{failed} for Service {service}: {why}");
        let outage = retry.as_ref().is_some_and(|retry| retry.outage);
        Err(Refused::Trouble { text, wait: retry.and_then(|retry| retry.retry_after), outage })
    }

    /// Remembers what the cache is going to show as our own work, unless it does so already.
    fn note_own_work(&self, cx: &Context<'_>, service: &Key, slice: &Key, uid: Uid, written: Written) {
        let is_seen = cx.gather(|view| match (view.get::<EndpointSlice>(slice), &written) {
            (Some(there), Written::State(version)) => {
                there.meta.uid == uid && !there.meta.resource_version.is_older_than(version)
            }
            (Some(there), Written::End) => there.meta.uid != uid,
            (None, written) => *written == Written::End,
        });
        if !is_seen {
            self.memory.with(|recall| recall.wrote(service, uid, written));
        }
    }

    fn take_stock(&self, cx: &mut Context<'_>) {
        let stock = self.memory.with(|recall| metrics::stock(recall));
        stock.into_iter().for_each(|measurement| cx.measure(measurement));
    }
}

async fn record(cx: &mut Context<'_>, events: Vec<PlannedEvent>) {
    if !events.is_empty() {
        let mut plan = Plan::none();
        events.into_iter().for_each(|event| plan.record(event));
        cx.apply(plan).await;
    }
}

/// Why a write was not done.
enum Refused {
    /// The namespace is going away, which makes everything else needless.
    Moot,
    /// Something that people are told of, and that is tried again.
    Trouble { text: String, wait: Option<Duration>, outage: bool },
}

impl Troubles {
    /// Tells people what went wrong, and asks for another try.
    async fn tell(mut self, cx: &mut Context<'_>, service: &Service) -> Result<(), ReconcileError> {
        let mut seen = std::collections::BTreeSet::new();
        self.texts.retain(|text| seen.insert(text.clone()));
        let because = match &self.texts[..] {
            [] => return Ok(()),
            [text] => text.clone(),
            texts => format!("[{}]", texts.join(", ")),
        };
        let message = format!("Error updating Endpoint Slices for Service {}: {because}", service.meta.key);
        record(
            cx,
            vec![PlannedEvent::warning(InvolvedObject::of(service), "FailedToUpdateEndpointSlices", message)],
        )
        .await;
        Err(ReconcileError {
            retry_after: self.wait,
            outage: self.outage,
            ..ReconcileError::because(because)
        })
    }
}
