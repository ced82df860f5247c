//! One hollow node: registers, renews its lease, reports its status and hands out pod addresses, while alive.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ApiError, ArcStr, ErrorReason, InternedStr, Key, Resource, ResourceVersion, Uid};
use serde_json::{Value, json};

use crate::clock::{after, stamp};
use crate::seen::{Effect, Node, Taint};

const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
const LEASE_NAMESPACE: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The version that nodes say to run.
const VERSION: &str = "v1.37.1";

/// What all hollow nodes have in common.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) zones: usize,
    pub(crate) region: String,
    pub(crate) cpu: String,
    pub(crate) memory: String,
    pub(crate) pods: u32,
    pub(crate) extended: Vec<(String, String)>,
    pub(crate) lease_every: Duration,
    pub(crate) lease_duration: Duration,
    pub(crate) status_every: Duration,
    /// Whether nodes take off the taint that the API server gives each new node.
    pub(crate) removes_not_ready_taint: bool,
}

/// What a node wants to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The node itself.
    Register,
    /// Its lease, for the first time.
    CreateLease,
    /// Its lease, again.
    RenewLease,
    /// Labels and the whole status, over whatever is there.
    UpdateStatus,
    /// The taint of new nodes taken off.
    Untaint,
    /// That the status still holds.
    Heartbeat,
}

/// One hollow node.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) name: InternedStr,
    index: u32,
    pub(crate) is_alive: bool,
    /// The life of the Node object, once seen.
    uid: Option<Uid>,
    /// Whether a Node object was there and somebody deleted it. As a kubelet, the node does not come back
    /// by itself.
    was_deleted: bool,
    register_is_due: bool,
    restate_is_due: bool,
    /// The state of the Node object that has the taint of new nodes, and the taints it is to keep.
    untaint: Option<(ResourceVersion, Vec<Taint>)>,
    has_lease: bool,
    lease_at: Timestamp,
    status_at: Timestamp,
    /// Whether an annotation has made it fail.
    failed_by_annotation: bool,
    ready_since: Timestamp,
    addresses: Addresses,
    /// The pods that are bound to it.
    pub(crate) pods: BTreeSet<Key>,
    /// Names of attachable volumes that its pods use.
    volumes_in_use: BTreeSet<ArcStr>,
}

impl Machine {
    pub(crate) fn new(name: InternedStr, index: u32, now: Timestamp) -> Self {
        Self {
            name,
            index,
            is_alive: true,
            uid: None,
            was_deleted: false,
            register_is_due: true,
            restate_is_due: false,
            untaint: None,
            has_lease: false,
            lease_at: now,
            status_at: now,
            failed_by_annotation: false,
            ready_since: now,
            addresses: Addresses::of_node(index),
            pods: BTreeSet::new(),
            volumes_in_use: BTreeSet::new(),
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.uid.is_some()
    }

    /// The address of the node itself.
    pub(crate) fn host_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)).wrapping_add(self.index))
    }

    /// Takes in the Node object.
    pub(crate) fn observe(&mut self, node: &Node, build: &Build, chance: &mut fastrand::Rng, now: Timestamp) {
        if self.uid.as_ref() != Some(&node.meta.uid) {
            self.uid = Some(node.meta.uid.clone());
            self.was_deleted = false;
            self.lease_at = now;
            // Nodes that register together must not report together for ever after.
            self.status_at = after(now, build.status_every.mul_f64(chance.f64()));
        }
        if let Some(cidr) = Addresses::of_cidr(&node.pod_cidr) {
            self.addresses.move_to(cidr);
        }
        let is_newcomer = |taint: &&Taint| &*taint.key == NOT_READY && taint.effect == Effect::NoSchedule;
        let has_taint = node.is_ready && node.taints.iter().any(|taint| is_newcomer(&taint));
        self.untaint = (build.removes_not_ready_taint && has_taint).then(|| {
            let kept = node.taints.iter().filter(|taint| !is_newcomer(taint)).cloned().collect();
            (node.meta.resource_version.clone(), kept)
        });
        if self.failed_by_annotation != node.wants_to_fail {
            self.failed_by_annotation = node.wants_to_fail;
            if node.wants_to_fail { self.fail() } else { self.recover(now) }
        }
        if self.is_alive && !node.is_ready && !self.restate_is_due {
            self.ready_since = now;
            self.restate_is_due = true;
        }
    }

    /// The Node object is gone.
    pub(crate) fn observe_deletion(&mut self) {
        self.was_deleted = self.uid.take().is_some();
    }

    /// Falls silent.
    pub(crate) fn fail(&mut self) {
        self.is_alive = false;
    }

    /// Speaks again, as after a reboot.
    pub(crate) fn recover(&mut self, now: Timestamp) {
        self.is_alive = true;
        self.lease_at = now;
        self.register_is_due |= self.uid.is_none();
        self.restate_is_due |= self.uid.is_some();
        self.was_deleted = false;
        self.ready_since = now;
    }

    /// What is to be written now.
    pub(crate) fn need(&self, now: Timestamp) -> Option<Need> {
        if !self.is_alive || self.was_deleted {
            return None;
        }
        if self.register_is_due {
            return Some(Need::Register);
        }
        self.uid.as_ref()?;
        if self.lease_at <= now {
            return Some(if self.has_lease { Need::RenewLease } else { Need::CreateLease });
        }
        if self.restate_is_due {
            return Some(Need::UpdateStatus);
        }
        if self.untaint.is_some() {
            return Some(Need::Untaint);
        }
        (self.status_at <= now).then_some(Need::Heartbeat)
    }

    /// When something will have to be written, if nothing is needed now.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let speaks = self.is_alive && self.uid.is_some();
        speaks.then(|| self.lease_at.min(self.status_at))
    }

    /// What is needed is being written; if that fails, it is needed again after a while.
    pub(crate) fn granted(&mut self, need: Need, build: &Build, chance: &mut fastrand::Rng, now: Timestamp) {
        // A little chance, so that nodes drift apart as kubelets do.
        let mut soon = |period: Duration| after(now, period.mul_f64(1.0 + 0.04 * chance.f64()));
        match need {
            Need::Register => self.register_is_due = false,
            Need::CreateLease => {
                self.has_lease = true;
                // The first renewal comes at any time, so that the nodes spread over the period.
                self.lease_at = after(now, build.lease_every.mul_f64(chance.f64()));
            }
            Need::RenewLease => self.lease_at = soon(build.lease_every),
            Need::UpdateStatus => {
                self.restate_is_due = false;
                self.status_at = soon(build.status_every);
            }
            // If it is refused, the node has changed, and will be seen.
            Need::Untaint => self.untaint = None,
            Need::Heartbeat => self.status_at = soon(build.status_every),
        }
    }

    /// Takes back what was granted. True if the refusal tells what to do instead, at once.
    pub(crate) fn refused(&mut self, need: Need, failure: &ApiError) -> bool {
        match (need, failure.reason) {
            // Somebody, perhaps an earlier process, has registered it: it must only be brought up to date.
            (Need::Register, ErrorReason::AlreadyExists) => self.restate_is_due = true,
            (Need::RenewLease, ErrorReason::NotFound) => {
                self.has_lease = false;
                self.lease_at = Timestamp::MIN;
            }
            (Need::CreateLease, ErrorReason::AlreadyExists) => self.lease_at = Timestamp::MIN,
            // The deletion will be seen.
            (Need::UpdateStatus | Need::Heartbeat, ErrorReason::NotFound) | (Need::Untaint, _) => {}
            (need, _) => {
                match need {
                    Need::Register => self.register_is_due = true,
                    Need::CreateLease | Need::RenewLease => {
                        self.has_lease = need == Need::RenewLease;
                        self.lease_at = Timestamp::MIN;
                    }
                    Need::UpdateStatus | Need::Untaint => self.restate_is_due = true,
                    Need::Heartbeat => self.status_at = Timestamp::MIN,
                }
                return false;
            }
        }
        true
    }

    /// An address for a pod: the one it has, if it is free and of this node, or a free one.
    pub(crate) fn take_address(&mut self, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        self.addresses.take(wanted)
    }

    pub(crate) fn release_address(&mut self, address: Ipv4Addr) {
        self.addresses.release(address);
    }

    /// Tells which volumes are in use; reported if that is news.
    pub(crate) fn set_volumes_in_use(&mut self, volumes: BTreeSet<ArcStr>) -> bool {
        let is_news = self.volumes_in_use != volumes;
        self.volumes_in_use = volumes;
        self.restate_is_due |= is_news;
        is_news
    }

    /// The request that meets a need.
    pub(crate) fn call(&self, need: Need, build: &Build, now: Timestamp) -> Call {
        let node = Key::cluster(&*self.name);
        let lease = Key::namespaced(LEASE_NAMESPACE, &*self.name);
        match need {
            Need::Register => Call::create(&Node::RESOURCE, "", &self.object(build, now)),
            Need::CreateLease => Call::create(&LEASES, LEASE_NAMESPACE, &self.lease(build, now)),
            Need::RenewLease => {
                let renewal = json!({"spec": {"holderIdentity": self.name, "renewTime": micro(now)}});
                Call::patch(&LEASES, &lease, PatchType::Merge, &renewal)
            }
            Need::UpdateStatus => {
                let patch =
                    json!({"metadata": {"labels": self.labels(build)}, "status": self.status(build, now)});
                Call::patch(&Node::RESOURCE, &node, PatchType::Strategic, &patch).subresource("status")
            }
            Need::Untaint => {
                let (version, kept) = self.untaint.clone().unwrap_or_default();
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": kept}});
                Call::patch(&Node::RESOURCE, &node, PatchType::Merge, &patch)
            }
            Need::Heartbeat => {
                let alive = CONDITIONS.map(|(name, status, _, _)| {
                    json!({"type": name, "status": status, "lastHeartbeatTime": stamp(now)})
                });
                let patch = json!({"status": {"conditions": alive}});
                Call::patch(&Node::RESOURCE, &node, PatchType::Strategic, &patch).subresource("status")
            }
        }
    }

    fn object(&self, build: &Build, now: Timestamp) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": self.labels(build),
                // As by a kubelet: without it the attach-detach controller leaves the node alone.
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"providerID": format!("hollow://{}", self.name)},
            "status": self.status(build, now),
        })
    }

    fn labels(&self, build: &Build) -> Value {
        let zone = self.index as usize % build.zones.max(1);
        let letter = char::from(b'a' + u8::try_from(zone % 26).unwrap_or(0));
        let zone = if zone < 26 { letter.to_string() } else { format!("{letter}{}", zone / 26) };
        json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "hollow",
            "topology.kubernetes.io/region": build.region,
            "topology.kubernetes.io/zone": format!("{}-{zone}", build.region),
        })
    }

    fn status(&self, build: &Build, now: Timestamp) -> Value {
        let mut capacity = json!({
            "cpu": build.cpu,
            "memory": build.memory,
            "pods": build.pods.to_string(),
            "ephemeral-storage": "1Ti",
        });
        for (name, amount) in &build.extended {
            capacity[name] = json!(amount);
        }
        let conditions = CONDITIONS.map(|(name, status, reason, message)| {
            json!({"type": name, "status": status, "reason": reason, "message": message,
                   "lastHeartbeatTime": stamp(now), "lastTransitionTime": stamp(self.ready_since)})
        });
        let id = format!("{:032x}", u128::from(self.index) + 1);
        json!({
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self.host_ip()},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "hollow",
                "kernelVersion": "0.0.0-hollow",
                "containerRuntimeVersion": "hollow://0.1.0",
                "kubeletVersion": VERSION,
                "kubeProxyVersion": "",
                "machineID": id,
                "systemUUID": id,
                "bootID": id,
            },
            "volumesInUse": self.volumes_in_use,
        })
    }

    fn lease(&self, build: &Build, now: Timestamp) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": LEASE_NAMESPACE,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.uid}],
            },
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": build.lease_duration.as_secs(),
                "renewTime": micro(now),
            },
        })
    }
}

/// The conditions of a node that is well: name, status, reason, message.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// A time as leases write it.
fn micro(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// The pod addresses of one node.
#[derive(Debug)]
struct Addresses {
    network: u32,
    size: u32,
    next: u32,
    used: BTreeSet<Ipv4Addr>,
}

impl Addresses {
    /// A range that no other hollow node has, for clusters in which nobody gives nodes a range.
    fn of_node(index: u32) -> Self {
        let first = u32::from(Ipv4Addr::new(10, 128, 0, 0));
        Self { network: first.wrapping_add(index << 8), size: 256, next: 1, used: BTreeSet::new() }
    }

    fn of_cidr(cidr: &str) -> Option<(u32, u32)> {
        let (address, bits) = cidr.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
        Some((u32::from(address), 1 << (32 - bits)))
    }

    fn move_to(&mut self, (network, size): (u32, u32)) {
        if (self.network, self.size) != (network, size) {
            (self.network, self.size, self.next) = (network, size, 1);
        }
    }

    fn take(&mut self, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        if let Some(wanted) = wanted.filter(|wanted| !self.used.contains(wanted)) {
            self.used.insert(wanted);
            return Some(wanted);
        }
        // Neither the first nor the last address of a network belongs to a host. Addresses are not given
        // out again before all others were: who still remembers one must not meet another pod there.
        let hosts = self.size.saturating_sub(2);
        for _ in 0..hosts {
            let address = Ipv4Addr::from(self.network.wrapping_add(self.next));
            self.next = self.next % hosts + 1;
            if self.used.insert(address) {
                return Some(address);
            }
        }
        None
    }

    fn release(&mut self, address: Ipv4Addr) {
        self.used.remove(&address);
    }
}
