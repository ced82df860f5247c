//! One hollow node: registers, renews its Lease, reports its status and assigns pod IPs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ApiError, ArcStr, ErrorReason, InternedStr, Key, Resource, ResourceVersion, Uid};
use serde_json::{Value, json};

use crate::clock::{after, stamp};
use crate::projections::{Effect, Node, Taint};

const LEASES: Resource = Resource::built_in("coordination.k8s.io", "Lease");
const LEASE_NAMESPACE: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The kubelet version that nodes report.
const VERSION: &str = "v1.37.1";

/// Configuration of all hollow nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodeConfig {
    pub(crate) zones: usize,
    pub(crate) region: String,
    pub(crate) cpu: String,
    pub(crate) memory: String,
    pub(crate) pods: u32,
    pub(crate) extended: Vec<(String, String)>,
    pub(crate) lease_interval: Duration,
    pub(crate) lease_duration: Duration,
    pub(crate) status_every: Duration,
    /// Whether nodes remove the taint that the API server adds to new nodes.
    pub(crate) removes_not_ready_taint: bool,
}

/// The next write of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeWrite {
    /// Create the Node.
    Register,
    /// Create the Lease.
    CreateLease,
    /// Renew the Lease.
    RenewLease,
    /// Patch labels and the whole status.
    UpdateStatus,
    /// Remove the `not-ready` taint.
    RemoveTaint,
    /// Patch the heartbeat times.
    Heartbeat,
}

/// One hollow node.
#[derive(Debug)]
pub(crate) struct HollowNode {
    pub(crate) name: InternedStr,
    index: u32,
    pub(crate) is_alive: bool,
    /// UID of the Node object, once observed.
    uid: Option<Uid>,
    /// Whether the Node object was deleted. Like a kubelet, the hollow node does not register again by
    /// itself.
    was_deleted: bool,
    registration_due: bool,
    status_update_due: bool,
    /// The resourceVersion of the Node with the `not-ready` taint, and the taints to keep.
    taint_removal: Option<(ResourceVersion, Vec<Taint>)>,
    has_lease: bool,
    lease_at: Timestamp,
    status_at: Timestamp,
    /// Whether the annotation `failed` is set.
    failed_by_annotation: bool,
    ready_since: Timestamp,
    addresses: Addresses,
    /// The pods bound to it.
    pub(crate) pods: BTreeSet<Key>,
    /// Unique names of the attachable volumes in use.
    volumes_in_use: BTreeSet<ArcStr>,
    /// Unique names of the attached volumes, as its status lists them.
    pub(crate) volumes_attached: BTreeSet<ArcStr>,
}

impl HollowNode {
    pub(crate) fn new(name: InternedStr, index: u32, now: Timestamp) -> Self {
        Self {
            name,
            index,
            is_alive: true,
            uid: None,
            was_deleted: false,
            registration_due: true,
            status_update_due: false,
            taint_removal: None,
            has_lease: false,
            lease_at: now,
            status_at: now,
            failed_by_annotation: false,
            ready_since: now,
            addresses: Addresses::of_node(index),
            pods: BTreeSet::new(),
            volumes_in_use: BTreeSet::new(),
            volumes_attached: BTreeSet::new(),
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.uid.is_some()
    }

    /// The IP of the node.
    pub(crate) fn host_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)).wrapping_add(self.index))
    }

    /// Applies an observed Node object.
    pub(crate) fn observe(
        &mut self,
        node: &Node,
        node_config: &NodeConfig,
        rng: &mut fastrand::Rng,
        now: Timestamp,
    ) {
        if self.uid.as_ref() != Some(&node.meta.uid) {
            self.uid = Some(node.meta.uid.clone());
            self.was_deleted = false;
            self.lease_at = now;
            // Random phase, so that nodes registered together do not report together.
            self.status_at = after(now, node_config.status_every.mul_f64(rng.f64()));
        }
        self.volumes_attached.clone_from(&node.volumes_attached);
        if let Some(cidr) = Addresses::of_cidr(&node.pod_cidr) {
            self.addresses.move_to(cidr);
        }
        let is_not_ready_taint =
            |taint: &&Taint| &*taint.key == NOT_READY && taint.effect == Effect::NoSchedule;
        let has_taint = node.is_ready && node.taints.iter().any(|taint| is_not_ready_taint(&taint));
        self.taint_removal = (node_config.removes_not_ready_taint && has_taint).then(|| {
            let kept = node.taints.iter().filter(|taint| !is_not_ready_taint(taint)).cloned().collect();
            (node.meta.resource_version.clone(), kept)
        });
        if self.failed_by_annotation != node.is_failed {
            self.failed_by_annotation = node.is_failed;
            if node.is_failed { self.fail() } else { self.recover(now) }
        }
        if self.is_alive && !node.is_ready && !self.status_update_due {
            self.ready_since = now;
            self.status_update_due = true;
        }
    }

    /// The Node object was deleted.
    pub(crate) fn observe_deletion(&mut self) {
        self.was_deleted = self.uid.take().is_some();
    }

    /// Stops all writes.
    pub(crate) fn fail(&mut self) {
        self.is_alive = false;
    }

    /// Resumes writes, as after a reboot.
    pub(crate) fn recover(&mut self, now: Timestamp) {
        self.is_alive = true;
        self.lease_at = now;
        self.registration_due |= self.uid.is_none();
        self.status_update_due |= self.uid.is_some();
        self.was_deleted = false;
        self.ready_since = now;
    }

    /// The write that is due now.
    pub(crate) fn next_write(&self, now: Timestamp) -> Option<NodeWrite> {
        if !self.is_alive || self.was_deleted {
            return None;
        }
        if self.registration_due {
            return Some(NodeWrite::Register);
        }
        self.uid.as_ref()?;
        if self.lease_at <= now {
            return Some(if self.has_lease { NodeWrite::RenewLease } else { NodeWrite::CreateLease });
        }
        if self.status_update_due {
            return Some(NodeWrite::UpdateStatus);
        }
        if self.taint_removal.is_some() {
            return Some(NodeWrite::RemoveTaint);
        }
        (self.status_at <= now).then_some(NodeWrite::Heartbeat)
    }

    /// When the next write is due, if none is due now.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let is_active = self.is_alive && self.uid.is_some();
        is_active.then(|| self.lease_at.min(self.status_at))
    }

    /// Records that a write is sent; if it fails, it becomes due again.
    pub(crate) fn mark_sent(
        &mut self,
        write: NodeWrite,
        node_config: &NodeConfig,
        rng: &mut fastrand::Rng,
        now: Timestamp,
    ) {
        // 4% jitter, so that nodes drift apart as kubelets do.
        let mut next_in = |period: Duration| after(now, period.mul_f64(1.0 + 0.04 * rng.f64()));
        match write {
            NodeWrite::Register => self.registration_due = false,
            NodeWrite::CreateLease => {
                self.has_lease = true;
                // The first renewal is at a random time, so that the nodes spread over the interval.
                self.lease_at = after(now, node_config.lease_interval.mul_f64(rng.f64()));
            }
            NodeWrite::RenewLease => self.lease_at = next_in(node_config.lease_interval),
            NodeWrite::UpdateStatus => {
                self.status_update_due = false;
                self.status_at = next_in(node_config.status_every);
            }
            // If the patch fails, the Node has changed and its watch event follows.
            NodeWrite::RemoveTaint => self.taint_removal = None,
            NodeWrite::Heartbeat => self.status_at = next_in(node_config.status_every),
        }
    }

    /// Reverts [`HollowNode::mark_sent`] after an error. Returns true if the error determines the next write,
    /// which is then due immediately.
    pub(crate) fn on_write_failed(&mut self, write: NodeWrite, error: &ApiError) -> bool {
        match (write, error.reason) {
            // The Node exists, perhaps from an earlier process: its status must be updated.
            (NodeWrite::Register, ErrorReason::AlreadyExists) => self.status_update_due = true,
            (NodeWrite::RenewLease, ErrorReason::NotFound) => {
                self.has_lease = false;
                self.lease_at = Timestamp::MIN;
            }
            (NodeWrite::CreateLease, ErrorReason::AlreadyExists) => self.lease_at = Timestamp::MIN,
            // The watch delivers the deletion.
            (NodeWrite::UpdateStatus | NodeWrite::Heartbeat, ErrorReason::NotFound)
            | (NodeWrite::RemoveTaint, _) => {}
            (write, _) => {
                match write {
                    NodeWrite::Register => self.registration_due = true,
                    NodeWrite::CreateLease | NodeWrite::RenewLease => {
                        self.has_lease = write == NodeWrite::RenewLease;
                        self.lease_at = Timestamp::MIN;
                    }
                    NodeWrite::UpdateStatus | NodeWrite::RemoveTaint => self.status_update_due = true,
                    NodeWrite::Heartbeat => self.status_at = Timestamp::MIN,
                }
                return false;
            }
        }
        true
    }

    /// An IP for a pod: the wanted one if it is free, otherwise any free one.
    pub(crate) fn take_address(&mut self, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        self.addresses.take(wanted)
    }

    pub(crate) fn release_address(&mut self, address: Ipv4Addr) {
        self.addresses.release(address);
    }

    /// Sets the volumes in use; returns whether they changed, which triggers a status update.
    pub(crate) fn set_volumes_in_use(&mut self, volumes: BTreeSet<ArcStr>) -> bool {
        let changed = self.volumes_in_use != volumes;
        self.volumes_in_use = volumes;
        self.status_update_due |= changed;
        changed
    }

    /// The request of a write.
    pub(crate) fn call(&self, write: NodeWrite, node_config: &NodeConfig, now: Timestamp) -> Call {
        let node = Key::cluster(&*self.name);
        let lease = Key::namespaced(LEASE_NAMESPACE, &*self.name);
        match write {
            NodeWrite::Register => Call::create(&Node::RESOURCE, "", &self.object(node_config, now)),
            NodeWrite::CreateLease => Call::create(&LEASES, LEASE_NAMESPACE, &self.lease(node_config, now)),
            NodeWrite::RenewLease => {
                let renewal = json!({"spec": {"holderIdentity": self.name, "renewTime": micro(now)}});
                Call::patch(&LEASES, &lease, PatchType::Merge, &renewal)
            }
            NodeWrite::UpdateStatus => {
                let patch = json!({"metadata": {"labels": self.labels(node_config)}, "status": self.status(node_config, now)});
                Call::patch(&Node::RESOURCE, &node, PatchType::Strategic, &patch).subresource("status")
            }
            NodeWrite::RemoveTaint => {
                let (version, kept) = self.taint_removal.clone().unwrap_or_default();
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": kept}});
                Call::patch(&Node::RESOURCE, &node, PatchType::Merge, &patch)
            }
            NodeWrite::Heartbeat => {
                let alive = CONDITIONS.map(|(name, status, _, _)| {
                    json!({"type": name, "status": status, "lastHeartbeatTime": stamp(now)})
                });
                let patch = json!({"status": {"conditions": alive}});
                Call::patch(&Node::RESOURCE, &node, PatchType::Strategic, &patch).subresource("status")
            }
        }
    }

    fn object(&self, node_config: &NodeConfig, now: Timestamp) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": self.labels(node_config),
                // As set by a kubelet: without it the attach-detach controller ignores the node.
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"providerID": format!("hollow://{}", self.name)},
            "status": self.status(node_config, now),
        })
    }

    fn labels(&self, node_config: &NodeConfig) -> Value {
        let zone = self.index as usize % node_config.zones.max(1);
        let letter = char::from(b'a' + u8::try_from(zone % 26).unwrap_or(0));
        let zone = if zone < 26 { letter.to_string() } else { format!("{letter}{}", zone / 26) };
        json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "hollow",
            "topology.kubernetes.io/region": node_config.region,
            "topology.kubernetes.io/zone": format!("{}-{zone}", node_config.region),
        })
    }

    fn status(&self, node_config: &NodeConfig, now: Timestamp) -> Value {
        let mut capacity = json!({
            "cpu": node_config.cpu,
            "memory": node_config.memory,
            "pods": node_config.pods.to_string(),
            "ephemeral-storage": "1Ti",
        });
        for (name, amount) in &node_config.extended {
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

    fn lease(&self, node_config: &NodeConfig, now: Timestamp) -> Value {
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
                "leaseDurationSeconds": node_config.lease_duration.as_secs(),
                "renewTime": micro(now),
            },
        })
    }
}

/// The conditions of a healthy node: type, status, reason, message.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// A time in MicroTime format.
fn micro(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// The pod IPs of one node.
#[derive(Debug)]
struct Addresses {
    network: u32,
    size: u32,
    next: u32,
    used: BTreeSet<Ipv4Addr>,
}

impl Addresses {
    /// A range unique among hollow nodes, for clusters without IPAM.
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
        // The first and last address of a network are reserved. Addresses are reused as late as possible, so
        // that stale endpoints do not reach another pod.
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
