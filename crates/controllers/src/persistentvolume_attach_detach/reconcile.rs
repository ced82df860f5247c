//! Reconciles a node: ends operations, detaches, attaches, and reports what is attached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, ErrorReason, Key, Node, VolumeAttachment};
use keleustes_plan::{
    Context, Memory, ObjectOr, OnFailure, Outcome, PatchKind, Plan, PlannedEvent, ReconcileError, Reconciler,
    Requeue, View, Write,
};
use keleustes_x509::quoted;
use serde_json::{Value, json};

use super::actual::report_patch;
use super::decide::{
    AttachStep, DetachStep, FAILED_ATTACH_VOLUME, UncertainAttachment, begin_attaches, begin_detaches,
    finished, next_wakeup,
};
use super::gauges::Gauges;
use super::metrics::{FORCED_DETACHES, STORAGE_OPERATION_SECONDS};
use super::operations::{OperationKind, Running, Waiting};
use super::state::State;
use super::volume::{DetachTarget, NodeName, VolumeName, VolumeSource, attachment_name, plugin_label_of};
use super::{AttachDetachOptions, StatePass};

/// Reconciles nodes, and runs the periodic passes over all of them.
#[derive(Clone)]
pub(super) struct NodeReconciler {
    /// What is known.
    pub(super) state: Memory<State>,
    /// The options.
    pub(super) options: AttachDetachOptions,
    /// The gauges.
    pub(super) gauges: Gauges,
}

impl Reconciler<ObjectOr<StatePass>> for NodeReconciler {
    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &ObjectOr<StatePass>,
    ) -> Result<Requeue, ReconcileError> {
        match item {
            ObjectOr::Other(StatePass::Populate) => Ok(self.populate(cx)),
            ObjectOr::Other(StatePass::Verify) => Ok(self.verify(cx).await),
            ObjectOr::Object(node) => {
                let result = self.reconcile_node(cx, &NodeName::from(node.name.as_str())).await;
                self.gauges.refresh(cx, &self.state);
                result
            }
        }
    }
}

impl NodeReconciler {
    async fn reconcile_node(&self, cx: &mut Context<'_>, node: &NodeName) -> Result<Requeue, ReconcileError> {
        let ended = cx.gather(|view| self.state.with(|state| finished(state, view, node)));
        for operation in ended {
            self.complete(cx, node, &operation.volume, operation.result).await;
        }
        let reported = self.detach_unwanted(cx, node).await;
        self.attach_wanted(cx, node).await;
        match reported {
            Ok(()) => self.report(cx, node).await?,
            Err(error) => return Err(error),
        }
        let wakeup = cx.gather(|view| {
            self.state.with(|state| {
                // Another event may have changed what is wanted in the meantime; it has enqueued the node.
                next_wakeup(state, view, node, self.options)
            })
        });
        let reason = "the deadline or the backoff of an attachment";
        Ok(wakeup.map_or(Requeue::Forget, |wait| Requeue::after(wait, reason)))
    }

    /// Detaches what no pod on the node needs, after the node's status no longer lists it.
    async fn detach_unwanted(&self, cx: &mut Context<'_>, node: &NodeName) -> Result<(), ReconcileError> {
        let begin =
            |view: &View<'_>| self.state.with(|state| begin_detaches(state, view, node, self.options));
        let steps = cx.gather(begin);
        if steps.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.report(cx, node).await {
            self.state.with(|state| {
                for step in &steps {
                    state.operations.cancel(&step.volume, node);
                    state.actual.report(&step.volume, node);
                }
            });
            return Err(error);
        }
        for label in steps.iter().filter_map(|step| step.forced) {
            cx.measure(FORCED_DETACHES.increment(&[label]));
        }
        let steps = self.verify_safe_to_detach(cx, node, steps).await;
        self.detach(cx, node, steps).await;
        Ok(())
    }

    /// Asks the API server whether the node has volumes in use, and fails the detaches of those that it has. The
    /// others are returned.
    async fn verify_safe_to_detach(
        &self,
        cx: &mut Context<'_>,
        node: &NodeName,
        steps: Vec<DetachStep>,
    ) -> Vec<DetachStep> {
        let (forced, unforced): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.forced.is_some());
        if unforced.is_empty() {
            return forced;
        }
        let live = cx.fetch::<Node>(&Key::cluster(ArcStr::from(node.as_str()))).await;
        let mut safe = forced;
        for step in unforced {
            let error = match &live {
                Ok(None) => None,
                Ok(Some(live)) => live
                    .volumes_in_use
                    .contains(&step.volume)
                    .then(|| "volume is still in use by node, according to Node status".to_owned()),
                Err(error) => Some(format!("failed fetching node from API server: {}", error.because)),
            };
            match error {
                Some(error) => self.complete(cx, node, &step.volume, Err(error)).await,
                None => safe.push(step),
            }
        }
        safe
    }

    /// Deletes VolumeAttachments.
    async fn detach(&self, cx: &mut Context<'_>, node: &NodeName, steps: Vec<DetachStep>) {
        let (mut attachments, mut writes) = (Vec::new(), Vec::new());
        for step in steps {
            let (driver, handle) = match step.target {
                DetachTarget::Csi { driver, handle } => (driver, handle),
                DetachTarget::Nothing => {
                    self.complete(cx, node, &step.volume, Ok(())).await;
                    continue;
                }
                DetachTarget::MalformedCsi => {
                    let error = "volumeName missing expected data".to_owned();
                    self.complete(cx, node, &step.volume, Err(error)).await;
                    continue;
                }
            };
            let name = attachment_name(&handle, &driver, node);
            match self.attachment(cx, &name).await {
                Ok(Some(attachment)) => {
                    let because = format!("no pod on node {node} needs volume {}", step.volume);
                    writes.push(
                        Write::delete(&*attachment)
                            .ignoring_errors(&[ErrorReason::NotFound])
                            .on_failure(OnFailure::ReturnOutcome)
                            .because(because),
                    );
                    attachments.push((step.volume, name, handle));
                }
                Ok(None) => self.complete(cx, node, &step.volume, Ok(())).await,
                Err(error) => self.complete(cx, node, &step.volume, Err(delete_error(&name, &error))).await,
            }
        }
        let mut plan = Plan::none();
        plan.push_parallel(writes);
        let outcomes = cx.apply(plan).await.outcomes;
        let now = cx.gather(|view| view.now().monotonic);
        for ((volume, name, handle), outcome) in attachments.into_iter().zip(outcomes) {
            match outcome_error(&outcome) {
                Some(error) => {
                    self.complete(cx, node, &volume, Err(delete_error(&name, &error))).await;
                }
                None => self.wait(node, &volume, name, handle, now),
            }
        }
    }

    /// A VolumeAttachment, from the cache or else from the API server: every deletion carries its UID.
    async fn attachment(
        &self,
        cx: &mut Context<'_>,
        name: &str,
    ) -> Result<Option<Arc<VolumeAttachment>>, String> {
        let key = Key::cluster(name);
        if let Some(attachment) = cx.gather(|view| view.get::<VolumeAttachment>(&key).cloned()) {
            return Ok(Some(attachment));
        }
        let live = cx.fetch::<VolumeAttachment>(&key).await;
        live.map(|live| live.map(Arc::new)).map_err(|error| error.because)
    }

    /// Attaches what pods on the node need.
    async fn attach_wanted(&self, cx: &mut Context<'_>, node: &NodeName) {
        let begin = |view: &View<'_>| self.state.with(|state| begin_attaches(state, view, node));
        let (steps, events, enqueued) = cx.gather(begin);
        record(cx, events).await;
        enqueue_nodes(cx, &enqueued);
        let (mut attachments, mut writes) = (Vec::new(), Vec::new());
        for step in steps {
            if step.is_unattachable {
                self.fail_unattachable(cx, node, &step).await;
                continue;
            }
            if !self.is_free_elsewhere(cx, &step).await {
                self.state.with(|state| state.operations.cancel(&step.volume, node));
                continue;
            }
            let VolumeSource::Csi { driver, handle, inline_spec } = &step.spec.source else {
                self.complete(cx, node, &step.volume, Ok(())).await;
                continue;
            };
            let name = attachment_name(handle, driver, node);
            let key = Key::cluster(name.as_str());
            if !cx.gather(|view| view.get::<VolumeAttachment>(&key).is_some()) {
                let body = attachment_body(&name, node, driver, inline_spec.as_deref(), &step.spec.name);
                let because = format!("a pod on node {node} needs volume {}", step.volume);
                let create = Write::create::<VolumeAttachment>(key, body)
                    .ignoring_errors(&[ErrorReason::AlreadyExists])
                    .on_failure(OnFailure::ReturnOutcome)
                    .because(because);
                writes.push(create);
                attachments.push((step.volume.clone(), name, handle.to_string(), true));
            } else {
                attachments.push((step.volume.clone(), name, handle.to_string(), false));
            }
        }
        let mut plan = Plan::none();
        plan.push_parallel(writes);
        let mut outcomes = cx.apply(plan).await.outcomes.into_iter();
        let now = cx.gather(|view| view.now().monotonic);
        for (volume, name, handle, is_created) in attachments {
            let outcome = if is_created { outcomes.next() } else { None };
            match outcome.as_ref().and_then(outcome_error) {
                Some(error) => {
                    let error = format!("kubernetes.io/csi: attacher.Attach failed: {error}");
                    self.complete(cx, node, &volume, Err(error)).await;
                }
                None => self.wait(node, &volume, name, handle, now),
            }
        }
    }

    /// Whether no other node has a volume that only one may have, or may get it, by a live read of the VolumeAttachments
    /// about which nothing is certain. The nodes of those that no pod needs are enqueued, so that they lose it.
    async fn is_free_elsewhere(&self, cx: &mut Context<'_>, step: &AttachStep) -> bool {
        if step.uncertain_elsewhere.is_empty() {
            return true;
        }
        let keys: Vec<Key> = step.uncertain_elsewhere.iter().map(|uncertain| uncertain.key.clone()).collect();
        let found = cx.fetch_all::<VolumeAttachment>(&keys).await;
        let blocks = |(uncertain, found): (&UncertainAttachment, _)| match found {
            Ok(None) => None,
            Ok(Some(found)) => (!uncertain.leaves_volume_free(&found)).then(|| uncertain.node.clone()),
            Err(_) => Some(uncertain.node.clone()),
        };
        let blocked: BTreeSet<NodeName> =
            step.uncertain_elsewhere.iter().zip(found).filter_map(blocks).collect();
        enqueue_nodes(cx, &blocked);
        blocked.is_empty()
    }

    /// The driver of a volume does not attach volumes any more.
    async fn fail_unattachable(&self, cx: &mut Context<'_>, node: &NodeName, step: &AttachStep) {
        let now = cx.gather(|view| view.now().monotonic);
        let running = self.state.with(|state| state.operations.complete(&step.volume, node, false, now));
        let Some(running) = running else { return };
        measure_operation(cx, &step.volume, &running, false, now);
        let name = quoted(&step.spec.name);
        let message = format!("AttachVolume.FindAttachablePluginBySpec failed for volume {name} ");
        let event = |pod: &super::desired::PodReference| {
            PlannedEvent::warning(pod.involved(), FAILED_ATTACH_VOLUME, message.clone())
        };
        record(cx, running.pods.iter().map(event).collect()).await;
    }

    fn wait(&self, node: &NodeName, volume: &VolumeName, attachment: String, handle: String, now: Duration) {
        let waiting = Waiting { attachment, handle, since: now };
        self.state.with(|state| state.operations.wait(volume, node, waiting));
    }

    /// Ends an operation: changes the actual state, records events and enqueues the nodes that wait for it.
    async fn complete(
        &self,
        cx: &mut Context<'_>,
        node: &NodeName,
        volume: &VolumeName,
        result: Result<(), String>,
    ) {
        let now = cx.gather(|view| view.now().monotonic);
        let completed = self.state.with(|state| {
            let running = state.operations.complete(volume, node, result.is_ok(), now)?;
            let spec = running.spec.clone();
            match (running.kind, result.is_ok()) {
                (OperationKind::Attach, true) => {
                    state.actual.mark_attached(volume, spec, node, ArcStr::default());
                }
                (OperationKind::Detach, true) => state.actual.mark_detached(volume, node),
                (_, false) => state.actual.mark_uncertain(volume, spec, node),
            }
            let waiting = state.nodes_waiting_for(volume, node, running.spec.as_ref());
            Some((running, waiting))
        });
        let Some((running, waiting)) = completed else { return };
        enqueue_nodes(cx, &waiting);
        measure_operation(cx, volume, &running, result.is_ok(), now);
        record(cx, attach_events(&running, &result)).await;
    }

    /// Writes the list of attached volumes to the status of the node, if it has changed.
    pub(super) async fn report(&self, cx: &mut Context<'_>, node: &NodeName) -> Result<(), ReconcileError> {
        let Some(volumes) = self.state.with(|state| state.actual.take_report(node)) else { return Ok(()) };
        let key = Key::cluster(ArcStr::from(node.as_str()));
        // A node that does not exist has no status; when it is added, its volumes are reported again.
        let Some(cached) = cx.gather(|view| view.get::<Node>(&key).cloned()) else { return Ok(()) };
        let mut reported = cached.volumes_attached.to_vec();
        reported.sort_by(|one, other| one.name.cmp(&other.name));
        if reported == volumes {
            return Ok(());
        }
        let write = Write::patch(&*cached, PatchKind::Strategic, report_patch(&volumes))
            .on_subresource("status")
            .because("the volumes attached to the node have changed");
        let applied = cx.apply(Plan::of(write)).await;
        if applied.error.is_some() {
            self.state.with(|state| state.actual.request_report(node));
        }
        applied.all_done()
    }
}

fn attachment_body(name: &str, node: &str, driver: &str, inline_spec: Option<&Value>, volume: &str) -> Value {
    let source = match inline_spec {
        Some(spec) => json!({"inlineVolumeSpec": spec}),
        None => json!({"persistentVolumeName": volume}),
    };
    json!({
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": source},
    })
}

fn delete_error(name: &str, error: &str) -> String {
    format!("kubernetes.io/csi: detacher.Detach failed to delete VolumeAttachment [{name}]: {error}")
}

/// The error of a write that was not done, for whatever reason.
fn outcome_error(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done { .. } | Outcome::Unneeded => None,
        Outcome::Failed(error) => Some(error.to_string()),
        Outcome::NotSent => Some("the request was not sent".to_owned()),
    }
}

/// The events about the result of an attach. A detach has none.
fn attach_events(running: &Running, result: &Result<(), String>) -> Vec<PlannedEvent> {
    let Some(spec) = running.spec.as_ref().filter(|_| running.kind == OperationKind::Attach) else {
        return Vec::new();
    };
    let name = quoted(&spec.name);
    let event = |pod: &super::desired::PodReference| match result {
        Ok(()) => {
            let message = format!("AttachVolume.Attach succeeded for volume {name} ");
            PlannedEvent::normal(pod.involved(), "SuccessfulAttachVolume", message)
        }
        Err(error) => {
            let message = format!("AttachVolume.Attach failed for volume {name} : {error}");
            PlannedEvent::warning(pod.involved(), FAILED_ATTACH_VOLUME, message)
        }
    };
    running.pods.iter().map(event).collect()
}

fn measure_operation(
    cx: &mut Context<'_>,
    volume: &VolumeName,
    running: &Running,
    succeeded: bool,
    now: Duration,
) {
    let plugin = plugin_label_of(volume, running.spec.as_ref());
    let migrated = running.spec.as_ref().is_some_and(|spec| spec.migrated);
    let status = if succeeded { "success" } else { "fail-unknown" };
    let labels = [plugin.as_str(), running.kind.label(), status, if migrated { "true" } else { "false" }];
    let seconds = now.saturating_sub(running.started_at).as_secs_f64();
    cx.measure(STORAGE_OPERATION_SECONDS.measurement(&labels, seconds));
}

async fn record(cx: &mut Context<'_>, events: Vec<PlannedEvent>) {
    if events.is_empty() {
        return;
    }
    let mut plan = Plan::none();
    events.into_iter().for_each(|event| plan.record(event));
    // A plan without writes cannot fail.
    let _ = cx.apply(plan).await;
}

/// Enqueues nodes.
pub(super) fn enqueue_nodes(cx: &mut Context<'_>, nodes: &BTreeSet<NodeName>) {
    nodes.iter().for_each(|node| cx.enqueue(Key::cluster(ArcStr::from(node.as_str()))));
}
