//! Brings watch events, time and answers together into requests; holds no clock and does no IO.
//!
//! Whatever may have something to write is a [`Who`]. At most one request of each is under way, and its
//! body is made when its turn comes, so what changed several times while others were written is written once.

mod outbox;
#[cfg(test)]
mod tests;
mod timers;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use http::Method;
use jiff::Timestamp;
use keleustes_client::{Call, DeleteOptions, PatchType, WriteResponse};
use keleustes_objects::{ApiError, ArcStr, ErrorReason, InternedStr, Key, Object as _, Uid};
use serde_json::json;

use self::outbox::Outbox;
use self::timers::Timers;
use self::volumes::Volumes;
use crate::clock::stamp;
use crate::kubelet::{Life, Place, PodDefaults, Want};
use crate::machine::{Build, Machine, Need};
use crate::scheduler::{Scheduler, Verdict};
use crate::seen::{Node, Pod};

/// Whatever writes: a node, a pod on it, the scheduler about a pod, or a storage driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Node(InternedStr),
    Pod(Key),
    Placement(Key),
    Attachment(ArcStr),
}

/// How many there are, and what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Hollow nodes that are registered.
    pub nodes: usize,
    /// Pods on hollow nodes.
    pub pods: usize,
    /// Those of them whose containers run.
    pub running: usize,
    /// Pods that the scheduler has no node for yet.
    pub waiting: usize,
    /// Requests that succeeded.
    pub writes: u64,
    /// Requests that did not; some failures are expected and tell what to do next.
    pub failures: u64,
}

/// All hollow nodes, the pods on them, and the scheduler.
#[derive(Debug)]
pub(crate) struct Engine {
    build: Build,
    pod_defaults: PodDefaults,
    seed: u64,
    machines: BTreeMap<InternedStr, Machine>,
    pods: BTreeMap<Key, PodRecord>,
    scheduler: Option<Scheduler>,
    /// What the scheduler has decided and nobody has written yet.
    verdicts: BTreeMap<Key, Verdict>,
    /// Pods without a node, as last seen.
    unbound: BTreeMap<Key, Pod>,
    /// The scheduler decides nothing before it knows all nodes and pods.
    nodes_are_known: bool,
    pods_are_known: bool,
    volumes: Volumes,
    outbox: Outbox,
    timers: Timers,
    chance: fastrand::Rng,
    writes: u64,
    failures: u64,
}

/// A pod on one of our nodes.
#[derive(Debug)]
struct PodRecord {
    uid: Uid,
    node: InternedStr,
    life: Life,
    ip: Option<Ipv4Addr>,
    /// Whether it still holds its address and its volumes.
    holds: bool,
    claims: Box<[ArcStr]>,
}

/// What was sent, so that the answer can be understood.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    Node(Need),
    Pod(Uid, Want),
    Placement(Verdict),
    Attachment(InternedStr),
}

impl Engine {
    pub(crate) fn new(
        names: impl Iterator<Item = String>,
        build: Build,
        pod_defaults: PodDefaults,
        with_scheduler: bool,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let scheduler = with_scheduler.then(|| Scheduler::new(chance.fork()));
        let names = names.enumerate().map(|(index, name)| {
            let name = InternedStr::from(name.as_str());
            (name.clone(), Machine::new(name, u32::try_from(index).unwrap_or(u32::MAX), now))
        });
        let mut engine = Self {
            build,
            pod_defaults,
            seed,
            machines: names.collect(),
            pods: BTreeMap::new(),
            scheduler,
            verdicts: BTreeMap::new(),
            unbound: BTreeMap::new(),
            nodes_are_known: false,
            pods_are_known: false,
            volumes: Volumes::default(),
            outbox: Outbox::default(),
            timers: Timers::default(),
            chance,
            writes: 0,
            failures: 0,
        };
        for name in engine.machines.keys().cloned().collect::<Vec<_>>() {
            engine.look_at(&Who::Node(name), now);
        }
        engine
    }

    /// These are all pods.
    pub(crate) fn replace_pods(&mut self, pods: Vec<Pod>, now: Timestamp) {
        let there: BTreeSet<Key> = pods.iter().map(|pod| pod.key().clone()).collect();
        let known = self.pods.keys().chain(self.unbound.keys());
        let gone: Vec<Key> = known.filter(|key| !there.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.forget_pod(key, now));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.retain_pods(&there);
        }
        self.pods_are_known = true;
        for pod in pods {
            self.observe_pod(pod, now);
        }
    }

    /// A pod is new or has changed.
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
        self.verdicts.remove(&key);
        self.live(&pod, now);
        self.look_at(&Who::Pod(key), now);
    }

    /// A pod is gone.
    pub(crate) fn forget_pod(&mut self, key: &Key, now: Timestamp) {
        self.drop_record(key, now);
        self.unbound.remove(key);
        self.verdicts.remove(key);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_pod(key);
        }
        self.look_at(&Who::Pod(key.clone()), now);
        self.look_at(&Who::Placement(key.clone()), now);
    }

    /// These are all nodes.
    pub(crate) fn replace_nodes(&mut self, nodes: &[Node], now: Timestamp) {
        let there: BTreeSet<InternedStr> =
            nodes.iter().map(|node| InternedStr::from(&*node.meta.key.name)).collect();
        let ours: Vec<InternedStr> =
            self.machines.keys().filter(|name| !there.contains(*name)).cloned().collect();
        ours.iter().for_each(|name| self.forget_node(name, now));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.retain_nodes(&there);
        }
        nodes.iter().for_each(|node| self.observe_node(node, now));
        self.nodes_are_known |= self.machines.is_empty();
    }

    /// A node is new or has changed.
    pub(crate) fn observe_node(&mut self, node: &Node, now: Timestamp) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.observe_node(node);
        }
        let name = InternedStr::from(&*node.meta.key.name);
        if let Some(machine) = self.machines.get_mut(&name) {
            let was_alive = machine.is_alive;
            machine.observe(node, &self.build, &mut self.chance, now);
            let changed = machine.is_alive != was_alive;
            self.look_at(&Who::Node(name.clone()), now);
            if changed {
                self.look_at_pods_of(&name, now);
            }
        }
        // Pods that come while nodes still register would all be given to the first ones.
        let all_registered = || self.machines.values().all(Machine::is_registered);
        self.nodes_are_known = self.nodes_are_known || all_registered();
    }

    /// A node is gone.
    pub(crate) fn forget_node(&mut self, name: &InternedStr, now: Timestamp) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_node(name);
        }
        if let Some(machine) = self.machines.get_mut(name) {
            machine.observe_deletion();
            self.look_at(&Who::Node(name.clone()), now);
        }
    }

    /// Makes a node fall silent. False if it is none of ours.
    pub(crate) fn fail_node(&mut self, name: &str, now: Timestamp) -> bool {
        self.turn_node(name, now, |machine| machine.fail())
    }

    /// Makes a node speak again. False if it is none of ours.
    pub(crate) fn recover_node(&mut self, name: &str, now: Timestamp) -> bool {
        self.turn_node(name, now, |machine| machine.recover(now))
    }

    fn turn_node(&mut self, name: &str, now: Timestamp, turn: impl FnOnce(&mut Machine)) -> bool {
        let Some(machine) = self.machines.get_mut(name) else { return false };
        turn(machine);
        let name = machine.name.clone();
        self.look_at(&Who::Node(name.clone()), now);
        self.look_at_pods_of(&name, now);
        true
    }

    fn look_at_pods_of(&mut self, name: &InternedStr, now: Timestamp) {
        let pods = self.machines.get(name).map(|machine| machine.pods.clone());
        for key in pods.into_iter().flatten() {
            self.look_at(&Who::Pod(key), now);
        }
    }

    /// When [`Engine::tick`] is to be called.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let scheduler = self.scheduler.as_ref().filter(|_| self.may_schedule()).and_then(Scheduler::due);
        [self.timers.first(), scheduler].into_iter().flatten().min()
    }

    /// Lets happen what is due.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        while let Some(who) = self.timers.pop_due(now) {
            self.look_at(&who, now);
        }
        if !self.may_schedule() {
            return;
        }
        let Some(scheduler) = &mut self.scheduler else { return };
        if scheduler.due().is_some_and(|due| due <= now) {
            for verdict in scheduler.decide(now) {
                let who = Who::Placement(verdict.key.clone());
                self.verdicts.insert(verdict.key.clone(), verdict);
                self.look_at(&who, now);
            }
        }
    }

    fn may_schedule(&self) -> bool {
        self.nodes_are_known && self.pods_are_known
    }

    /// The next request, if there is one to be sent.
    pub(crate) fn next_call(&mut self, now: Timestamp) -> Option<(Who, Call)> {
        while let Some(who) = self.outbox.pop() {
            if let Some((sent, call)) = self.grant(&who, now) {
                self.outbox.sent(who.clone(), sent);
                self.set_timer(&who, now);
                return Some((who, call));
            }
        }
        None
    }

    /// The answer to a request has come, or will not come.
    pub(crate) fn answered(&mut self, who: &Who, answer: &Result<WriteResponse, ApiError>, now: Timestamp) {
        let Some(sent) = self.outbox.answered(who) else { return };
        match answer {
            Ok(answer) => {
                self.writes += 1;
                self.outbox.calm(who);
                if let (Who::Pod(key), Sent::Pod(uid, Want::Status)) = (who, sent)
                    && let Some(record) = self.pods.get_mut(key).filter(|record| record.uid == uid)
                {
                    record.life.settled(&answer.resource_version);
                }
            }
            Err(failure) => {
                self.failures += 1;
                self.take_back(who, sent, failure, now);
            }
        }
        self.look_at(who, now);
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            nodes: self.machines.values().filter(|machine| machine.is_registered()).count(),
            pods: self.pods.len(),
            running: self.pods.values().filter(|record| record.life.is_running()).count(),
            waiting: self.scheduler.as_ref().map_or(0, Scheduler::waiting),
            writes: self.writes,
            failures: self.failures,
        }
    }

    /// Takes in a pod that is bound to one of our nodes; others are none of our business.
    fn live(&mut self, pod: &Pod, now: Timestamp) {
        let Some(machine) = self.machines.get_mut(&pod.node) else { return };
        let key = pod.key();
        if let Some(record) = self.pods.get_mut(key) {
            record.life.observe(pod, &self.pod_defaults, now);
            return;
        }
        for unreadable in &pod.template.behaviour.unreadable {
            tracing::warn!(pod = %key, annotation = %unreadable, "an annotation says nothing that is understood");
        }
        // By name, not by turn: what happens to one pod does not hang on how many came before it.
        let mut chance = fastrand::Rng::with_seed(self.seed ^ fingerprint(key));
        let life = Life::of(pod, &self.pod_defaults, &mut chance, now);
        let holds = !life.has_ended();
        let ip = match (pod.template.host_network, holds) {
            (true, _) => Some(machine.host_ip()),
            (false, true) => machine.take_address(pod.reported.pod_ip.parse().ok()),
            (false, false) => None,
        };
        machine.pods.insert(key.clone());
        let (uid, node, claims) = (pod.meta.uid.clone(), pod.node.clone(), pod.claims.clone());
        self.pods.insert(key.clone(), PodRecord { uid, node, life, ip, holds, claims });
        if holds {
            self.use_claims(key, &pod.node, &pod.claims, now);
        }
    }

    fn drop_record(&mut self, key: &Key, now: Timestamp) {
        let Some(record) = self.pods.remove(key) else { return };
        if let Some(machine) = self.machines.get_mut(&record.node) {
            machine.pods.remove(key);
        }
        if record.holds {
            self.release(key, &record.node, record.ip, &record.claims, now);
        }
        self.outbox.calm(&Who::Pod(key.clone()));
    }

    /// Gives back what a pod held.
    fn release(
        &mut self,
        key: &Key,
        node: &InternedStr,
        ip: Option<Ipv4Addr>,
        claims: &[ArcStr],
        now: Timestamp,
    ) {
        if let (Some(ip), Some(machine)) = (ip, self.machines.get_mut(node)) {
            machine.release_address(ip);
        }
        self.drop_claims(key, node, claims, now);
    }

    /// Asks somebody whether there is something to write, and when to ask again.
    fn look_at(&mut self, who: &Who, now: Timestamp) {
        if let Who::Pod(key) = who {
            self.advance(key, now);
        }
        let wants = match who {
            Who::Node(name) => self.machines.get(name).is_some_and(|machine| machine.need(now).is_some()),
            Who::Pod(key) => self.speaking(key).is_some_and(|record| record.life.want().is_some()),
            Who::Placement(key) => self.verdicts.contains_key(key),
            Who::Attachment(name) => self.awaits_attachment(name),
        };
        if wants {
            self.outbox.push(who, now);
        }
        self.set_timer(who, now);
    }

    fn advance(&mut self, key: &Key, now: Timestamp) {
        if self.speaking(key).is_none() {
            return;
        }
        let Some(record) = self.pods.get_mut(key) else { return };
        record.life.advance(&self.pod_defaults, now);
        if record.life.has_ended() && record.holds {
            record.holds = false;
            let (node, ip, claims) = (record.node.clone(), record.ip, record.claims.clone());
            self.release(key, &node, ip, &claims, now);
        }
    }

    fn set_timer(&mut self, who: &Who, now: Timestamp) {
        let due = match who {
            Who::Node(name) => self.machines.get(name).and_then(Machine::due),
            Who::Pod(key) => self.speaking(key).and_then(|record| record.life.due(&self.pod_defaults, now)),
            Who::Placement(_) | Who::Attachment(_) => None,
        };
        // Who is queued or waits for an answer is looked at then; who failed is looked at when calm again.
        let due = match self.outbox.patience(who) {
            Some(until) if until > now => Some(until),
            _ => due.filter(|due| *due > now),
        };
        self.timers.set(who, due);
    }

    /// A pod whose node is alive.
    fn speaking(&self, key: &Key) -> Option<&PodRecord> {
        let record = self.pods.get(key)?;
        self.machines.get(&record.node).filter(|machine| machine.is_alive).map(|_| record)
    }

    /// Turns what somebody wants into a request; nothing if it is not wanted any more.
    fn grant(&mut self, who: &Who, now: Timestamp) -> Option<(Sent, Call)> {
        match who {
            Who::Node(name) => {
                let machine = self.machines.get_mut(name)?;
                let need = machine.need(now)?;
                let call = machine.call(need, &self.build, now);
                machine.granted(need, &self.build, &mut self.chance, now);
                Some((Sent::Node(need), call))
            }
            Who::Pod(key) => {
                let want = self.speaking(key)?.life.want()?;
                let record = self.pods.get_mut(key)?;
                let host_ip = self.machines.get(&record.node)?.host_ip();
                let place = Place { key, uid: &record.uid, host_ip, pod_ip: record.ip };
                let call = pod_call(&place, want, &record.life);
                record.life.granted(want);
                Some((Sent::Pod(record.uid.clone(), want), call))
            }
            Who::Placement(key) => {
                let verdict = self.verdicts.remove(key)?;
                let pod = self.unbound.get(key).filter(|pod| pod.meta.uid == verdict.uid)?;
                let call = placement_call(&verdict, pod, now)?;
                Some((Sent::Placement(verdict), call))
            }
            Who::Attachment(name) => {
                self.grant_attachment(name).map(|(node, call)| (Sent::Attachment(node), call))
            }
        }
    }

    /// Undoes what a refused request was taken to have done.
    fn take_back(&mut self, who: &Who, sent: Sent, failure: &ApiError, now: Timestamp) {
        let is_settled = match (who, sent) {
            (Who::Node(name), Sent::Node(need)) => {
                self.machines.get_mut(name).is_none_or(|machine| machine.refused(need, failure))
            }
            (Who::Pod(key), Sent::Pod(uid, want)) => match self.pods.get_mut(key) {
                // A pod that is gone, or is another by now, is dropped when the watch tells.
                Some(record) if record.uid == uid && failure.reason != ErrorReason::NotFound => {
                    record.life.on_write_failed(want);
                    false
                }
                _ => true,
            },
            (Who::Placement(key), Sent::Placement(verdict)) => {
                self.unplace(key, &verdict);
                failure.reason == ErrorReason::NotFound
            }
            (Who::Attachment(name), Sent::Attachment(node)) => {
                let is_gone = failure.reason == ErrorReason::NotFound;
                if !is_gone {
                    self.await_attachment(name, node);
                }
                is_gone
            }
            _ => true,
        };
        if is_settled {
            self.outbox.calm(who);
            return;
        }
        let until = self.outbox.fail(who, failure, &mut self.chance, now);
        tracing::debug!(?who, %failure, retry_at = %until, "a write failed");
    }

    /// The scheduler must think again about a pod whose binding was refused.
    fn unplace(&mut self, key: &Key, verdict: &Verdict) {
        if let (Some(scheduler), Ok(_)) = (&mut self.scheduler, &verdict.node) {
            match self.unbound.get(key) {
                Some(pod) => scheduler.binding_failed(pod),
                None => scheduler.forget_pod(key),
            }
        }
    }
}

fn pod_call(place: &Place<'_>, want: Want, life: &Life) -> Call {
    match want {
        Want::Status => Call::patch(&Pod::RESOURCE, place.key, PatchType::Strategic, &life.patch(place))
            .subresource("status"),
        Want::Delete => {
            let deletion = DeleteOptions {
                uid: Some(place.uid.clone()),
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            Call::delete(&Pod::RESOURCE, place.key, &deletion)
        }
    }
}

/// The request that carries out a verdict; none if the pod says it already.
fn placement_call(verdict: &Verdict, pod: &Pod, now: Timestamp) -> Option<Call> {
    let key = &verdict.key;
    let message = match &verdict.node {
        Ok(node) => {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": verdict.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let call = Call::on_object(Method::POST, &Pod::RESOURCE, key).subresource("binding");
            return Some(call.with_body(&binding));
        }
        Err(message) => message,
    };
    let known = pod.reported.condition("PodScheduled");
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
    let patch = json!({"metadata": {"uid": verdict.uid}, "status": {"conditions": [condition]}});
    Some(Call::patch(&Pod::RESOURCE, key, PatchType::Strategic, &patch).subresource("status"))
}

/// FNV-1a of a key.
fn fingerprint(key: &Key) -> u64 {
    let bytes = key.namespace.bytes().chain([b'/']).chain(key.name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
