//! Turns watch events, time and responses into requests; has no clock and does no IO.
//!
//! Whatever may have a write to send is a [`Writer`]. Each has at most one request in flight, and its body is
//! built when it is sent, so that several changes in the meantime are written once.

mod input;
mod mounts;
#[cfg(test)]
mod tests;
mod timers;
mod volumes;
mod write_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use http::Method;
use jiff::Timestamp;
use keleustes_client::{Call, DeleteOptions, PatchType, WriteResponse};
use keleustes_objects::{ApiError, ArcStr, ErrorReason, InternedStr, Key, Object as _, Uid};
use serde_json::json;

pub(crate) use self::input::Input;
use self::mounts::Mounts;
use self::timers::Timers;
use self::volumes::Volumes;
use self::write_queue::WriteQueue;
use crate::claims::{BindStep, Claims};
use crate::clock::stamp;
use crate::hollow_node::{HollowNode, NodeConfig, NodeWrite};
use crate::kubelet::{PodDefaults, PodLifecycle, PodPlacement, PodWrite};
use crate::projections::{Node, Pod, PodClaim, PodConfig};
use crate::scheduler::{Scheduler, SchedulingDecision};

/// A source of writes: a node, a pod on it, failed mounts of the pod, the scheduler for a pod, or the CSI driver for
/// an attachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Writer {
    Node(InternedStr),
    Pod(Key),
    FailedMount(Key),
    Scheduling(Key),
    Attachment(ArcStr),
}

/// Counts of nodes, pods and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HollowStats {
    /// Registered hollow nodes.
    pub nodes: usize,
    /// Pods on hollow nodes.
    pub pods: usize,
    /// Pods on hollow nodes with running containers.
    pub running: usize,
    /// Pods that the scheduler has not assigned yet.
    pub pending: usize,
    /// Successful requests.
    pub writes: u64,
    /// Failed requests; some failures are expected, such as AlreadyExists.
    pub failures: u64,
}

/// All hollow nodes, the pods on them, and the scheduler.
#[derive(Debug)]
pub(crate) struct Engine {
    node_config: NodeConfig,
    pod_defaults: PodDefaults,
    seed: u64,
    hollow_nodes: BTreeMap<InternedStr, HollowNode>,
    pods: BTreeMap<Key, PodRecord>,
    scheduler: Option<Scheduler>,
    /// Scheduling decisions that were not sent yet.
    decisions: BTreeMap<Key, SchedulingDecision>,
    /// Unbound pods, as last observed.
    unbound: BTreeMap<Key, Pod>,
    /// The scheduler starts when all nodes and pods are known.
    nodes_synced: bool,
    pods_synced: bool,
    claims: Claims,
    volumes: Volumes,
    mounts: Mounts,
    write_queue: WriteQueue,
    timers: Timers,
    rng: fastrand::Rng,
    writes: u64,
    failures: u64,
}

/// A pod on a hollow node.
#[derive(Debug)]
struct PodRecord {
    uid: Uid,
    node: InternedStr,
    lifecycle: PodLifecycle,
    ip: Option<Ipv4Addr>,
    /// Whether it still holds its IP and its volumes.
    holds_resources: bool,
    claims: Box<[PodClaim]>,
    configs: Box<[PodConfig]>,
}

/// A request in flight, needed to interpret its response.
#[derive(Clone, Debug)]
pub(crate) enum InFlightWrite {
    Node(NodeWrite),
    Pod(Uid, PodWrite),
    FailedMount,
    /// A claim is annotated with the node of a pod.
    NodeSelection,
    Scheduling(SchedulingDecision),
    Attachment,
}

impl Engine {
    pub(crate) fn new(
        names: impl Iterator<Item = String>,
        node_config: NodeConfig,
        pod_defaults: PodDefaults,
        with_scheduler: bool,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let scheduler = with_scheduler.then(|| Scheduler::new(rng.fork()));
        let names = names.enumerate().map(|(index, name)| {
            let name = InternedStr::from(name.as_str());
            (name.clone(), HollowNode::new(name, u32::try_from(index).unwrap_or(u32::MAX), now))
        });
        let mut engine = Self {
            node_config,
            pod_defaults,
            seed,
            hollow_nodes: names.collect(),
            pods: BTreeMap::new(),
            scheduler,
            decisions: BTreeMap::new(),
            unbound: BTreeMap::new(),
            nodes_synced: false,
            pods_synced: false,
            claims: Claims::default(),
            volumes: Volumes::default(),
            mounts: Mounts::default(),
            write_queue: WriteQueue::default(),
            timers: Timers::default(),
            rng,
            writes: 0,
            failures: 0,
        };
        for name in engine.hollow_nodes.keys().cloned().collect::<Vec<_>>() {
            engine.update_queue(&Writer::Node(name), now);
        }
        engine
    }

    /// Applies a complete list of pods.
    pub(crate) fn replace_pods(&mut self, pods: Vec<Pod>, now: Timestamp) {
        let current: BTreeSet<Key> = pods.iter().map(|pod| pod.key().clone()).collect();
        let known = self.pods.keys().chain(self.unbound.keys());
        let deleted: Vec<Key> = known.filter(|key| !current.contains(*key)).cloned().collect();
        deleted.iter().for_each(|key| self.forget_pod(key, now));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.retain_pods(&current);
        }
        self.pods_synced = true;
        for pod in pods {
            self.observe_pod(pod, now);
        }
    }

    /// Applies an added or updated pod.
    pub(crate) fn observe_pod(&mut self, pod: Pod, now: Timestamp) {
        let key = pod.key().clone();
        if self.pods.get(&key).is_some_and(|record| record.uid != pod.meta.uid || record.node != pod.node) {
            self.drop_record(&key, now);
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.observe_pod(&pod);
        }
        if pod.node.is_empty() {
            self.unbound.insert(key, pod);
            return;
        }
        self.unbound.remove(&key);
        self.decisions.remove(&key);
        self.track_pod(&pod, now);
        self.update_queue(&Writer::Pod(key), now);
    }

    /// Applies a deleted pod.
    pub(crate) fn forget_pod(&mut self, key: &Key, now: Timestamp) {
        self.drop_record(key, now);
        self.unbound.remove(key);
        self.decisions.remove(key);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_pod(key);
        }
        self.update_queue(&Writer::Pod(key.clone()), now);
        self.update_queue(&Writer::Scheduling(key.clone()), now);
    }

    /// Applies a complete list of nodes.
    pub(crate) fn replace_nodes(&mut self, nodes: &[Node], now: Timestamp) {
        let current: BTreeSet<InternedStr> =
            nodes.iter().map(|node| InternedStr::from(&*node.meta.key.name)).collect();
        let ours: Vec<InternedStr> =
            self.hollow_nodes.keys().filter(|name| !current.contains(*name)).cloned().collect();
        ours.iter().for_each(|name| self.forget_node(name, now));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.retain_nodes(&current);
        }
        nodes.iter().for_each(|node| self.observe_node(node, now));
        self.nodes_synced |= self.hollow_nodes.is_empty();
    }

    /// Applies an added or updated node.
    pub(crate) fn observe_node(&mut self, node: &Node, now: Timestamp) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.observe_node(node);
        }
        let name = InternedStr::from(&*node.meta.key.name);
        if let Some(hollow_node) = self.hollow_nodes.get_mut(&name) {
            let was_alive = hollow_node.is_alive;
            let attaches = hollow_node.volumes_attached != node.volumes_attached;
            hollow_node.observe(node, &self.node_config, &mut self.rng, now);
            let changed = hollow_node.is_alive != was_alive || attaches;
            self.update_queue(&Writer::Node(name.clone()), now);
            if changed {
                self.update_queue_of_pods(&name, now);
            }
        }
        // The scheduler waits for all nodes; otherwise the first registered ones would get all pods.
        let all_registered = || self.hollow_nodes.values().all(HollowNode::is_registered);
        self.nodes_synced = self.nodes_synced || all_registered();
    }

    /// Applies a deleted node.
    pub(crate) fn forget_node(&mut self, name: &InternedStr, now: Timestamp) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_node(name);
        }
        if let Some(hollow_node) = self.hollow_nodes.get_mut(name) {
            hollow_node.observe_deletion();
            self.update_queue(&Writer::Node(name.clone()), now);
        }
    }

    /// Fails a node. Returns false if it is no hollow node.
    pub(crate) fn fail_node(&mut self, name: &str, now: Timestamp) -> bool {
        self.change_node(name, now, |hollow_node| hollow_node.fail())
    }

    /// Recovers a node. Returns false if it is no hollow node.
    pub(crate) fn recover_node(&mut self, name: &str, now: Timestamp) -> bool {
        self.change_node(name, now, |hollow_node| hollow_node.recover(now))
    }

    fn change_node(&mut self, name: &str, now: Timestamp, change: impl FnOnce(&mut HollowNode)) -> bool {
        let Some(hollow_node) = self.hollow_nodes.get_mut(name) else { return false };
        change(hollow_node);
        let name = hollow_node.name.clone();
        self.update_queue(&Writer::Node(name.clone()), now);
        self.update_queue_of_pods(&name, now);
        true
    }

    fn update_queue_of_pods(&mut self, name: &InternedStr, now: Timestamp) {
        let pods = self.hollow_nodes.get(name).map(|hollow_node| hollow_node.pods.clone());
        for key in pods.into_iter().flatten() {
            self.update_queue(&Writer::Pod(key), now);
        }
    }

    /// When [`Engine::tick`] must be called next.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let scheduler = self.scheduler.as_ref().filter(|_| self.may_schedule()).and_then(Scheduler::due);
        [self.timers.first(), scheduler].into_iter().flatten().min()
    }

    /// Processes the timers that are due and runs the scheduler.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        while let Some(writer) = self.timers.pop_due(now) {
            self.update_queue(&writer, now);
        }
        if !self.may_schedule() {
            return;
        }
        let Some(scheduler) = &mut self.scheduler else { return };
        if scheduler.due().is_some_and(|due| due <= now) {
            for decision in scheduler.decide(&self.claims, now) {
                let writer = Writer::Scheduling(decision.key.clone());
                self.decisions.insert(decision.key.clone(), decision);
                self.update_queue(&writer, now);
            }
        }
    }

    fn may_schedule(&self) -> bool {
        self.nodes_synced && self.pods_synced && self.claims.are_ready()
    }

    /// The next request to send.
    pub(crate) fn next_call(&mut self, now: Timestamp) -> Option<(Writer, Call)> {
        while let Some(writer) = self.write_queue.pop() {
            if let Some((sent, call)) = self.build_call(&writer, now) {
                self.write_queue.sent(writer.clone(), sent);
                self.set_timer(&writer, now);
                return Some((writer, call));
            }
        }
        None
    }

    /// Handles the response, or the error, of a request.
    pub(crate) fn on_response(
        &mut self,
        writer: &Writer,
        response: &Result<WriteResponse, ApiError>,
        now: Timestamp,
    ) {
        let Some(sent) = self.write_queue.take_in_flight(writer) else { return };
        match response {
            Ok(response) => {
                self.writes += 1;
                self.write_queue.reset_backoff(writer);
                if let (Writer::Pod(key), InFlightWrite::Pod(uid, PodWrite::Status)) = (writer, sent)
                    && let Some(record) = self.pods.get_mut(key).filter(|record| record.uid == uid)
                {
                    record.lifecycle.on_written(&response.resource_version);
                }
            }
            Err(failure) => {
                self.failures += 1;
                self.handle_failure(writer, sent, failure, now);
            }
        }
        self.update_queue(writer, now);
    }

    pub(crate) fn stats(&self) -> HollowStats {
        HollowStats {
            nodes: self.hollow_nodes.values().filter(|hollow_node| hollow_node.is_registered()).count(),
            pods: self.pods.len(),
            running: self.pods.values().filter(|record| record.lifecycle.is_running()).count(),
            pending: self.scheduler.as_ref().map_or(0, Scheduler::pending),
            writes: self.writes,
            failures: self.failures,
        }
    }

    /// Tracks a pod that is bound to a hollow node; ignores others.
    fn track_pod(&mut self, pod: &Pod, now: Timestamp) {
        let Some(hollow_node) = self.hollow_nodes.get_mut(&pod.node) else { return };
        let key = pod.key();
        if let Some(record) = self.pods.get_mut(key) {
            record.lifecycle.observe(pod, &self.pod_defaults, now);
            return;
        }
        for annotation in &pod.template.behaviour.invalid_annotations {
            tracing::warn!(pod = %key, annotation = %annotation, "ignoring invalid annotation");
        }
        // Seeded by name, so that the behaviour of a pod does not depend on the number of pods before it.
        let mut rng = fastrand::Rng::with_seed(self.seed ^ fnv1a(key));
        // Whether it waits is checked before it starts.
        let lifecycle = PodLifecycle::of(pod, &self.pod_defaults, true, &mut rng, now);
        let holds_resources = !lifecycle.has_terminated();
        let ip = match (pod.template.host_network, holds_resources) {
            (true, _) => Some(hollow_node.host_ip()),
            (false, true) => hollow_node.take_address(pod.status.pod_ip.parse().ok()),
            (false, false) => None,
        };
        hollow_node.pods.insert(key.clone());
        let (uid, node) = (pod.meta.uid.clone(), pod.node.clone());
        let (claims, configs) = (pod.claims.clone(), pod.configs.clone());
        self.pods
            .insert(key.clone(), PodRecord { uid, node, lifecycle, ip, holds_resources, claims, configs });
        if holds_resources {
            self.use_claims(key, &pod.node, &pod.claims, now);
        }
    }

    fn drop_record(&mut self, key: &Key, now: Timestamp) {
        let Some(record) = self.pods.remove(key) else { return };
        self.mounts.forget(key);
        if let Some(hollow_node) = self.hollow_nodes.get_mut(&record.node) {
            hollow_node.pods.remove(key);
        }
        if record.holds_resources {
            self.release(key, &record.node, record.ip, &record.claims, now);
        }
        self.write_queue.reset_backoff(&Writer::Pod(key.clone()));
    }

    /// Releases the IP and the volumes of a pod.
    fn release(
        &mut self,
        key: &Key,
        node: &InternedStr,
        ip: Option<Ipv4Addr>,
        claims: &[PodClaim],
        now: Timestamp,
    ) {
        if let (Some(ip), Some(hollow_node)) = (ip, self.hollow_nodes.get_mut(node)) {
            hollow_node.release_address(ip);
        }
        self.drop_claims(key, node, claims, now);
    }

    /// Queues a writer if it has a write due, and sets its timer.
    fn update_queue(&mut self, writer: &Writer, now: Timestamp) {
        if let Writer::Pod(key) = writer {
            self.advance(key, now);
            if self.mounts.due(key).is_some() {
                self.update_queue(&Writer::FailedMount(key.clone()), now);
            }
        }
        let has_write = match writer {
            Writer::Node(name) => {
                self.hollow_nodes.get(name).is_some_and(|hollow_node| hollow_node.next_write(now).is_some())
            }
            Writer::Pod(key) => {
                self.active_record(key).is_some_and(|record| record.lifecycle.next_write().is_some())
            }
            Writer::FailedMount(key) => {
                self.active_record(key).is_some() && self.mounts.due(key).is_some_and(|due| due <= now)
            }
            Writer::Scheduling(key) => {
                self.decisions.get(key).is_some_and(|decision| self.bind_step(decision) != BindStep::Wait)
            }
            Writer::Attachment(name) => self.volumes.attacher.due(name).is_some_and(|due| due <= now),
        };
        if has_write {
            self.write_queue.push(writer, now);
        }
        self.set_timer(writer, now);
    }

    fn advance(&mut self, key: &Key, now: Timestamp) {
        if self.active_record(key).is_none() {
            return;
        }
        let Some(record) = self.pods.get_mut(key) else { return };
        if let Some(hollow_node) = self.hollow_nodes.get(&record.node) {
            let attached = &hollow_node.volumes_attached;
            let waits = match record.lifecycle.is_creating() {
                true => {
                    self.mounts.wait_reason(&self.claims, &self.volumes, &key.namespace, record, attached)
                }
                false => None,
            };
            record.lifecycle.wait_for_volumes(waits.is_some(), now);
            self.mounts.note(key, waits, now);
        }
        record.lifecycle.advance(&self.pod_defaults, now);
        if record.lifecycle.has_terminated() && record.holds_resources {
            record.holds_resources = false;
            let (node, ip, claims) = (record.node.clone(), record.ip, record.claims.clone());
            self.release(key, &node, ip, &claims, now);
        }
    }

    fn set_timer(&mut self, writer: &Writer, now: Timestamp) {
        let due = match writer {
            Writer::Node(name) => self.hollow_nodes.get(name).and_then(HollowNode::due),
            Writer::Pod(key) => {
                self.active_record(key).and_then(|record| record.lifecycle.due(&self.pod_defaults, now))
            }
            Writer::FailedMount(key) => self.active_record(key).and_then(|_| self.mounts.due(key)),
            Writer::Attachment(name) => self.volumes.attacher.due(name),
            Writer::Scheduling(_) => None,
        };
        // A writer in flight is checked again when its response arrives, a failed one at the end of its
        // backoff.
        let due = match self.write_queue.backoff_end(writer) {
            Some(until) if until > now => Some(until),
            _ => due.filter(|due| *due > now),
        };
        self.timers.set(writer, due);
    }

    /// The record of a pod whose node is not failed.
    fn active_record(&self, key: &Key) -> Option<&PodRecord> {
        let record = self.pods.get(key)?;
        self.hollow_nodes.get(&record.node).filter(|hollow_node| hollow_node.is_alive).map(|_| record)
    }

    /// Builds the request of a writer; `None` if nothing is due any more.
    fn build_call(&mut self, writer: &Writer, now: Timestamp) -> Option<(InFlightWrite, Call)> {
        match writer {
            Writer::Node(name) => {
                let hollow_node = self.hollow_nodes.get_mut(name)?;
                let write = hollow_node.next_write(now)?;
                let call = hollow_node.call(write, &self.node_config, now);
                hollow_node.mark_sent(write, &self.node_config, &mut self.rng, now);
                Some((InFlightWrite::Node(write), call))
            }
            Writer::Pod(key) => {
                let write = self.active_record(key)?.lifecycle.next_write()?;
                let record = self.pods.get_mut(key)?;
                let host_ip = self.hollow_nodes.get(&record.node)?.host_ip();
                let placement = PodPlacement { key, uid: &record.uid, host_ip, pod_ip: record.ip };
                let call = pod_call(&placement, write, &record.lifecycle);
                record.lifecycle.mark_sent(write);
                Some((InFlightWrite::Pod(record.uid.clone(), write), call))
            }
            Writer::FailedMount(key) => {
                self.active_record(key)?;
                let call = self.mounts.call(key, self.pods.get(key)?, now)?;
                Some((InFlightWrite::FailedMount, call))
            }
            Writer::Scheduling(key) => self.build_scheduling_call(key, now),
            Writer::Attachment(name) => {
                self.volumes.attacher.call(name, now).map(|call| (InFlightWrite::Attachment, call))
            }
        }
    }

    /// The next request for a scheduling decision: claims are annotated with the node before the pod is bound.
    fn build_scheduling_call(&mut self, key: &Key, now: Timestamp) -> Option<(InFlightWrite, Call)> {
        let step = self.bind_step(self.decisions.get(key)?);
        match step {
            BindStep::Wait => None,
            BindStep::Failed => {
                self.give_up_binding(key);
                None
            }
            BindStep::Select(claim) => {
                let decision = self.decisions.get_mut(key)?;
                let call = self.claims.select_node(&claim, decision.node.as_ref().ok()?)?;
                let annotated = decision.claims.iter_mut().filter(|(one, _)| *one == claim);
                annotated.for_each(|(_, was_selected)| *was_selected = true);
                Some((InFlightWrite::NodeSelection, call))
            }
            BindStep::Done => {
                let decision = self.decisions.remove(key)?;
                let pod = self.unbound.get(key).filter(|pod| pod.meta.uid == decision.uid)?;
                let call = scheduling_call(&decision, pod, now)?;
                Some((InFlightWrite::Scheduling(decision), call))
            }
        }
    }

    fn bind_step(&self, decision: &SchedulingDecision) -> BindStep {
        let node = decision.node.as_ref();
        node.map_or(BindStep::Done, |node| self.claims.bind_step(&decision.claims, node))
    }

    /// The claims of a pod cannot be bound for its node: it is scheduled again.
    fn give_up_binding(&mut self, key: &Key) {
        if let Some(decision) = self.decisions.remove(key) {
            self.return_to_scheduler(key, &decision);
        }
    }

    /// Reverts the state change of a failed request and sets the backoff.
    fn handle_failure(&mut self, writer: &Writer, sent: InFlightWrite, failure: &ApiError, now: Timestamp) {
        let is_resolved = match (writer, sent) {
            (Writer::Node(name), InFlightWrite::Node(write)) => self
                .hollow_nodes
                .get_mut(name)
                .is_none_or(|hollow_node| hollow_node.on_write_failed(write, failure)),
            (Writer::Pod(key), InFlightWrite::Pod(uid, write)) => match self.pods.get_mut(key) {
                // A deleted or recreated pod is dropped by its watch event.
                Some(record) if record.uid == uid && failure.reason != ErrorReason::NotFound => {
                    record.lifecycle.on_write_failed(write);
                    false
                }
                _ => true,
            },
            (Writer::Scheduling(key), InFlightWrite::Scheduling(decision)) => {
                self.return_to_scheduler(key, &decision);
                failure.reason == ErrorReason::NotFound
            }
            (Writer::Scheduling(key), InFlightWrite::NodeSelection) => {
                self.give_up_binding(key);
                failure.reason == ErrorReason::NotFound
            }
            (Writer::Attachment(name), InFlightWrite::Attachment) => {
                let is_gone = failure.reason == ErrorReason::NotFound;
                // Also after a conflict: a proxy may have refused it, and then no watch event brings a newer state.
                if !is_gone {
                    self.volumes.attacher.on_failed(name);
                }
                is_gone
            }
            _ => true,
        };
        if is_resolved {
            self.write_queue.reset_backoff(writer);
            return;
        }
        let until = self.write_queue.record_failure(writer, failure, &mut self.rng, now);
        tracing::debug!(?writer, %failure, retry_at = %until, "write failed, backing off");
    }

    /// Returns a pod whose binding failed to the scheduler.
    fn return_to_scheduler(&mut self, key: &Key, decision: &SchedulingDecision) {
        if let (Some(scheduler), Ok(_)) = (&mut self.scheduler, &decision.node) {
            match self.unbound.get(key) {
                Some(pod) => scheduler.binding_failed(pod),
                None => scheduler.forget_pod(key),
            }
        }
    }
}

fn pod_call(placement: &PodPlacement<'_>, write: PodWrite, lifecycle: &PodLifecycle) -> Call {
    match write {
        PodWrite::Status => {
            Call::patch(&Pod::RESOURCE, placement.key, PatchType::Strategic, &lifecycle.patch(placement))
                .subresource("status")
        }
        PodWrite::Delete => {
            let deletion = DeleteOptions {
                uid: Some(placement.uid.clone()),
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            Call::delete(&Pod::RESOURCE, placement.key, &deletion)
        }
    }
}

/// The request for a scheduling decision; `None` if the pod's condition already says so.
fn scheduling_call(decision: &SchedulingDecision, pod: &Pod, now: Timestamp) -> Option<Call> {
    let key = &decision.key;
    let message = match &decision.node {
        Ok(node) => {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": decision.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let call = Call::on_object(Method::POST, &Pod::RESOURCE, key).subresource("binding");
            return Some(call.with_body(&binding));
        }
        Err(message) => message,
    };
    let known = pod.status.condition("PodScheduled");
    if known.is_some_and(|known| &*known.status == "False" && *known.message == **message) {
        return None;
    }
    let since = known.filter(|known| &*known.status == "False").and_then(|known| known.last_transition_time);
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": since.unwrap_or(stamp(now)),
        "observedGeneration": pod.generation,
    });
    let patch = json!({"metadata": {"uid": decision.uid}, "status": {"conditions": [condition]}});
    Some(Call::patch(&Pod::RESOURCE, key, PatchType::Strategic, &patch).subresource("status"))
}

/// FNV-1a of a key.
fn fnv1a(key: &Key) -> u64 {
    let bytes = key.namespace.bytes().chain([b'/']).chain(key.name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
