//! Reconciles one autoscaler: reads the target's Scale and the metrics, writes the size and the status.

use std::sync::Arc;

use keleustes_objects::{
    ApiError, DiscoveredResources, FALSE, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Key,
    MetricSpec, MetricStatus, Pod, Quantity, TRUE, TextSelector,
};
use keleustes_plan::{
    Context, EventType, InvolvedObject, Memory, Now, OnFailure, Outcome, Plan, PlannedEvent, ReconcileError,
    Reconciler, Requeue, Write,
};

use super::calculator::{Pods, Tolerances};
use super::combine::{SyncError, combine};
use super::memory::AutoscalerMemory;
use super::metrics::Act;
use super::normalize::Behavior;
use super::proposal::{Circumstances, MetricFailure, Proposal, Source};
use super::rescale::{self, Course, Desired};
use super::status::{self, ABLE_TO_SCALE, SCALING_ACTIVE};
use super::target::{self, ScaleTarget};
use super::{HorizontalPodAutoscalerOptions, metrics, metrics_api};

pub(super) struct AutoscalerReconciler {
    options: HorizontalPodAutoscalerOptions,
    memory: Memory<AutoscalerMemory>,
}

/// A reconcile under way.
pub(super) struct Sync {
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    /// The new status.
    pub(super) status: HorizontalPodAutoscalerStatus,
    pub(super) now: Now,
    act: Act,
}

type Discovery = Result<Arc<DiscoveredResources>, ApiError>;

impl Sync {
    pub(super) fn set_condition(&mut self, r#type: &str, status: &str, because: (&str, &str)) {
        status::set_condition(&mut self.status.conditions, r#type, status, because, self.now.wall);
    }

    fn key(&self) -> &Key {
        &self.autoscaler.meta.key
    }

    /// Sets everything but the last scale time and the conditions again.
    fn set_sizes(
        &mut self,
        options: &HorizontalPodAutoscalerOptions,
        current: i32,
        desired: i32,
        metrics: Vec<MetricStatus>,
    ) {
        self.status.current_replicas = current;
        self.status.desired_replicas = desired;
        self.status.current_metrics = metrics;
        self.status.observed_generation = options.generation.then_some(self.autoscaler.meta.generation);
    }

    /// The target in error texts.
    fn reference(&self) -> String {
        let target = &self.autoscaler.spec.scale_target_ref;
        format!("{}/{}/{}", target.kind, self.key().namespace, target.name)
    }

    fn warn(&self, cx: &mut Context<'_>, reason: &str, message: impl Into<String>) {
        self.record(cx, EventType::Warning, reason, message.into());
    }

    fn record(&self, cx: &mut Context<'_>, event_type: EventType, reason: &str, message: String) {
        let event = match event_type {
            EventType::Normal => PlannedEvent::normal(InvolvedObject::of(&*self.autoscaler), reason, message),
            EventType::Warning => {
                PlannedEvent::warning(InvolvedObject::of(&*self.autoscaler), reason, message)
            }
        };
        cx.record(event);
    }
}

impl Reconciler for AutoscalerReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let gathered =
            cx.gather(|view| Some((view.get::<HorizontalPodAutoscaler>(item)?.clone(), view.now())));
        let Some((autoscaler, now)) = gathered else {
            self.memory.with(|memory| memory.forget(item));
            return Ok(Requeue::Forget);
        };
        let mut sync = Sync { status: autoscaler.status.clone(), autoscaler, now, act: Act::None };
        let result = self.sync(cx, &mut sync).await;
        let took = elapsed(cx, now);
        let error = result.as_ref().err().map(|error| error.is_spec);
        metrics::reconciliation(sync.act, error, took).into_iter().for_each(|measured| cx.measure(measured));
        match result {
            Ok(()) => Ok(Requeue::after(self.options.period(), "the next sync period")),
            Err(error) => Err(ReconcileError::because(error.message)),
        }
    }
}

impl AutoscalerReconciler {
    pub(super) fn new(options: HorizontalPodAutoscalerOptions, memory: Memory<AutoscalerMemory>) -> Self {
        Self { options, memory }
    }

    async fn sync(&self, cx: &mut Context<'_>, sync: &mut Sync) -> Result<(), SyncError> {
        let discovery = cx.cached_discovery().await;
        let mut target = match target::read(cx, &sync.autoscaler, &discovery).await {
            Ok(target) => target,
            Err(error) => return self.no_scale(cx, sync, error).await,
        };
        let able = ("SucceededGetScale", "the HPA controller was able to get the target's current scale");
        sync.set_condition(ABLE_TO_SCALE, TRUE, able);
        let current = target.scale.spec_replicas;
        let (key, now) = (sync.key().clone(), sync.now.monotonic);
        self.memory.with(|memory| memory.history(&key).record_initial(current, now));
        let (desired, statuses, error) = match rescale::course(&sync.autoscaler, &self.options, current) {
            Course::Disabled => {
                let because =
                    ("ScalingDisabled", "scaling is disabled since the replica count of the target is zero");
                sync.set_condition(SCALING_ACTIVE, FALSE, because);
                if !self.options.scale_to_zero {
                    status::remove_scaled_to_zero(&mut sync.status.conditions);
                }
                (Desired { replicas: 0, reason: String::new() }, Vec::new(), None)
            }
            Course::Correct(replicas, reason) => {
                (Desired { replicas, reason: reason.to_owned() }, Vec::new(), None)
            }
            Course::Metrics => self.by_metrics(cx, sync, &target, &discovery).await?,
        };
        self.scale(cx, sync, &mut target, desired, statuses).await?;
        error.map_or(Ok(()), Err)
    }

    /// The Scale cannot be read: only that is reported, and the rest of the status is kept.
    async fn no_scale(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        error: SyncError,
    ) -> Result<(), SyncError> {
        sync.warn(cx, "FailedGetScale", &*error.message);
        let message =
            format!("the HPA controller was unable to get the target's current scale: {}", error.message);
        sync.set_condition(ABLE_TO_SCALE, FALSE, ("FailedGetScale", &message));
        self.write_status(cx, sync).await.ok();
        let message =
            format!("failed to query scale subresource for {}: {}", sync.reference(), error.message);
        Err(SyncError { message, ..error })
    }

    /// The size that the metrics ask for, their values, and the error of those that failed.
    async fn by_metrics(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        target: &ScaleTarget,
        discovery: &Discovery,
    ) -> Result<(Desired, Vec<MetricStatus>, Option<SyncError>), SyncError> {
        let current = target.scale.spec_replicas;
        if let Err(error) = self.check_selector(cx, sync, &target.selector) {
            return self.no_proposal(cx, sync, current, Vec::new(), error).await;
        }
        let mut proposals = Vec::new();
        let autoscaler = sync.autoscaler.clone();
        for spec in &autoscaler.spec.metrics {
            let start = cx.gather(|view| view.now());
            let proposal = self.propose(cx, sync, spec, target, &target.selector, discovery).await;
            let replicas = proposal.as_ref().map_or(0, |proposal| proposal.replicas);
            let act = Act::between(autoscaler.status.current_replicas, replicas);
            let error = proposal.as_ref().err().map(|failure| failure.is_spec);
            let took = elapsed(cx, start);
            let measured = metrics::computation(act, error, &spec.r#type, took);
            measured.into_iter().for_each(|measured| cx.measure(measured));
            if let Err(failure) = &proposal {
                sync.warn(cx, failure.reason, &*failure.message);
            }
            proposals.push(proposal);
        }
        let combined = combine(proposals, current);
        let (proposal, name) = match combined.best {
            Ok(best) => best,
            Err(failure) => {
                if let Some(failure) = failure {
                    let message =
                        format!("the HPA was unable to compute the replica count: {}", failure.message);
                    sync.set_condition(SCALING_ACTIVE, FALSE, (failure.reason, &message));
                }
                let error = combined.error.unwrap_or_else(|| SyncError::internal(""));
                return self.no_proposal(cx, sync, current, combined.statuses, error).await;
            }
        };
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        sync.set_condition(SCALING_ACTIVE, TRUE, ("ValidMetricFound", &message));
        let key = sync.key().clone();
        let desired = self.memory.with(|memory| {
            rescale::normalize(sync, &self.options, memory.history(&key), (proposal, &name), current)
        });
        Ok((desired, combined.statuses, combined.error))
    }

    /// No metric decides: the target keeps its size.
    async fn no_proposal<T>(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        current: i32,
        statuses: Vec<MetricStatus>,
        error: SyncError,
    ) -> Result<T, SyncError> {
        let desired = sync.status.desired_replicas;
        sync.set_sizes(&self.options, current, desired, statuses);
        self.write_status(cx, sync).await.ok();
        sync.warn(cx, "FailedComputeMetricsReplicas", &*error.message);
        let reference = sync.reference();
        let message = format!(
            "failed to compute desired number of replicas based on listed metrics for {reference}: {}",
            error.message
        );
        Err(SyncError { message, ..error })
    }

    /// Parses and stores the selector, and checks that no other autoscaler selects one of its pods.
    fn check_selector(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        selector: &TextSelector,
    ) -> Result<(), SyncError> {
        let text = selector.to_string();
        if text.is_empty() {
            let message = "selector is required";
            sync.warn(cx, "SelectorRequired", message);
            let because = ("InvalidSelector", "the HPA target's scale is missing a selector");
            sync.set_condition(SCALING_ACTIVE, FALSE, because);
            return Err(SyncError::internal(message));
        }
        let key = sync.key().clone();
        let pods = selected_pods(cx, &key, selector);
        let overlapping = self.memory.with(|memory| {
            if !memory.store_selector(&key, selector) {
                return None;
            }
            Some(memory.selecting(&key.namespace, &pods).into_iter().cloned().collect::<Vec<_>>())
        });
        let Some(mut overlapping) = overlapping else {
            return Err(SyncError::internal(format!("HPA {key} was deleted during reconciliation")));
        };
        if overlapping.len() <= 1 {
            return Ok(());
        }
        if !self.options.name_all_overlapping {
            let other = overlapping.iter().find(|other| **other != key).cloned();
            overlapping = std::iter::once(key).chain(other).collect();
            overlapping.sort();
        }
        let names: Vec<_> = overlapping.iter().map(Key::to_string).collect();
        let message = format!(
            "pods by selector {text} are controlled by more than one HPA (e.g. [{}])",
            names.join(" ")
        );
        Err(refuse(cx, sync, "AmbiguousSelector", message))
    }

    /// The proposal of one metric.
    #[expect(clippy::too_many_arguments, reason = "each is an input of one step")]
    async fn propose(
        &self,
        cx: &mut Context<'_>,
        sync: &Sync,
        spec: &MetricSpec,
        target: &ScaleTarget,
        selector: &TextSelector,
        discovery: &Discovery,
    ) -> Result<Proposal, MetricFailure> {
        let (source, key) = (Source::of(spec)?, sync.key());
        let none = Arc::default();
        let discovered = discovery.as_ref().unwrap_or(&none);
        let request = source.request(discovered, &key.namespace, selector)?;
        let response = cx.read(&request).await;
        let response = response.map_err(|error| metrics_api::describe(&request, &error));
        let response = response.map_err(|error| source.unreadable(&key.namespace, &error))?;
        let pods = selected_pods(cx, key, selector);
        let nanoseconds =
            |duration: std::time::Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
        let pods = Pods {
            pods: &pods,
            now: cx.gather(|view| view.now()).wall_nanoseconds(),
            cpu_initialization_period: nanoseconds(self.options.cpu_initialization_period),
            initial_readiness_delay: nanoseconds(self.options.initial_readiness_delay),
            pod_level_resources: self.options.pod_level_resources,
        };
        let circumstances = Circumstances {
            namespace: &key.namespace,
            spec_replicas: target.scale.spec_replicas,
            status_replicas: target.scale.status_replicas,
            tolerances: self.tolerances(&sync.autoscaler),
        };
        source.propose(response.as_deref().unwrap_or_default(), &pods, &circumstances)
    }

    fn tolerances(&self, autoscaler: &HorizontalPodAutoscaler) -> Tolerances {
        let behavior = autoscaler.spec.behavior.as_ref();
        let (up, down) = (
            behavior.and_then(|one| one.scale_up.as_ref()),
            behavior.and_then(|one| one.scale_down.as_ref()),
        );
        let tolerance = |rules: Option<&keleustes_objects::ScalingRules>| {
            let text = rules.and_then(|rules| rules.tolerance.as_ref());
            text.and_then(|text| Quantity::approximate_float(text)).unwrap_or(self.options.tolerance)
        };
        Tolerances { down: tolerance(down), up: tolerance(up) }
    }

    /// Writes the size if it has changed, then the status.
    async fn scale(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        target: &mut ScaleTarget,
        desired: Desired,
        statuses: Vec<MetricStatus>,
    ) -> Result<(), SyncError> {
        let (current, Desired { replicas, reason }) = (target.scale.spec_replicas, desired);
        if replicas != current {
            if let Err(error) = target::update(cx, target, replicas).await {
                let message = format!("New size: {replicas}; reason: {reason}; error: {error}");
                sync.warn(cx, "FailedRescale", message);
                let message = format!("the HPA controller was unable to update the target scale: {error}");
                sync.set_condition(ABLE_TO_SCALE, FALSE, ("FailedUpdateScale", &message));
                let kept = sync.status.desired_replicas;
                sync.set_sizes(&self.options, current, kept, statuses);
                self.write_status(cx, sync).await.ok();
                return Err(SyncError::internal(format!("failed to rescale {}: {error}", sync.reference())));
            }
            self.note_rescale(cx, sync, current, replicas, &reason);
        }
        sync.set_sizes(&self.options, current, replicas, statuses);
        let key = sync.key();
        cx.measure(metrics::desired_replicas(&key.namespace, &key.name, replicas));
        self.write_status(cx, sync).await
    }

    /// Reports and remembers a change of the size.
    fn note_rescale(&self, cx: &mut Context<'_>, sync: &mut Sync, current: i32, replicas: i32, reason: &str) {
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        sync.set_condition(ABLE_TO_SCALE, TRUE, ("SucceededRescale", &message));
        let message = format!("New size: {replicas}; reason: {reason}");
        sync.record(cx, EventType::Normal, "SuccessfulRescale", message);
        let now = cx.gather(|view| view.now());
        if let Some(behavior) = &sync.autoscaler.spec.behavior {
            let behavior = Behavior::of(behavior, self.options.downscale_stabilization);
            self.memory.with(|memory| {
                memory.history(sync.key()).record_scale(&behavior, current, replicas, now.monotonic);
            });
        }
        rescale::note_scaled(sync, &self.options, current, replicas);
        sync.status.last_scale_time = Some(now.wall);
        sync.act = Act::between(current, replicas);
    }

    /// Writes the status, unless the cached one is the same.
    async fn write_status(&self, cx: &mut Context<'_>, sync: &Sync) -> Result<(), SyncError> {
        if sync.status == sync.autoscaler.status {
            return Ok(());
        }
        let write = Write::put_status(&*sync.autoscaler, &sync.status)
            .on_failure(OnFailure::ReturnOutcome)
            .because("its metrics, its target or its conditions have changed");
        let error = match cx.apply(Plan::of(write)).await.outcomes.pop() {
            Some(Outcome::Failed(error)) => error.to_string(),
            Some(Outcome::Unneeded) => {
                format!("horizontalpodautoscalers.autoscaling {:?} not found", sync.key().name.as_str())
            }
            _ => return Ok(()),
        };
        sync.warn(cx, "FailedUpdateStatus", &*error);
        Err(SyncError::internal(format!("failed to update status for {}: {error}", sync.key().name)))
    }
}

/// Reports a selector that cannot be used.
fn refuse(cx: &mut Context<'_>, sync: &mut Sync, reason: &'static str, message: String) -> SyncError {
    sync.warn(cx, reason, &*message);
    sync.set_condition(SCALING_ACTIVE, FALSE, (reason, &message));
    SyncError::internal(message)
}

/// The pods of the namespace that the selector matches, the client that owns them.
fn selected_pods(cx: &Context<'_>, key: &Key, selector: &TextSelector) -> Vec<Arc<Pod>> {
    cx.gather(|view| {
        let pods = view.in_namespace::<Pod>(&key.namespace);
        pods.filter(|pod| selector.matches(&pod.meta.labels)).cloned().collect()
    })
}

fn elapsed(cx: &Context<'_>, since: Now) -> std::time::Duration {
    cx.gather(|view| view.now()).monotonic.saturating_sub(since.monotonic)
}
