//! A small cluster in which nodes are reconciled step by step.

#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

mod attach;
mod detach;
mod metrics;
mod passes;
mod start;
mod volumes;

use std::time::Duration;

use keleustes_objects::{
    CsiDriver, Key, Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment,
};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Loop};
use serde_json::{Value, json};

use super::volume::attachment_name;
use super::{AttachDetachOptions, StatePass, controller};

/// The driver of all volumes here.
const DRIVER: &str = "d.io";

/// The two loops of the controller, and what they read.
struct World {
    nodes: Loop,
    claims: Loop,
    cluster: RehearsalCluster,
    /// The last resourceVersion.
    version: u32,
}

impl World {
    /// An empty cluster, before the start.
    fn empty(options: AttachDetachOptions) -> Self {
        let mut loops = controller(options).loops.into_iter();
        let (nodes, claims) = (loops.next().unwrap(), loops.next().unwrap());
        let cluster = RehearsalCluster::of(&nodes);
        Self { nodes, claims, cluster, version: 100 }
    }

    /// A started cluster with the Ready nodes `n1` and `n2` and the bound claim `c1` of volume `pv1`, which one node
    /// may have, with handle `h1`.
    fn started() -> Self {
        let mut world = Self::empty(AttachDetachOptions::default());
        world.populate_with_volume("1", json!(["ReadWriteOnce"]));
        world.start();
        world
    }

    fn populate_with_volume(&mut self, number: &str, modes: Value) {
        self.put::<Node>(node("n1"));
        self.put::<Node>(node("n2"));
        self.add_volume(number, modes);
    }

    fn add_volume(&mut self, number: &str, modes: Value) {
        self.put::<PersistentVolume>(volume(number, modes));
        self.put::<PersistentVolumeClaim>(claim(number));
    }

    fn start(&mut self) {
        self.cluster.start(&self.nodes).unwrap();
    }

    /// Adds or updates an object and returns the enqueued nodes.
    fn put<T: Kind>(&mut self, mut json: Value) -> Vec<String> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.cluster.put::<T>(&self.nodes, json)
    }

    /// Deletes an object and returns the enqueued nodes.
    fn take<T: Kind>(&mut self, key: &Key) -> Vec<String> {
        self.cluster.take::<T>(&self.nodes, key)
    }

    fn take_pod(&mut self, name: &str) -> Vec<String> {
        self.take::<Pod>(&Key::namespaced("a", name))
    }

    fn advance(&mut self, milliseconds: u64) {
        self.cluster.advance_clock(Duration::from_millis(milliseconds));
    }

    /// Reconciles a node and returns what was done, in short: `create HANDLE on NODE`, `delete HANDLE on NODE`,
    /// `report [VOLUMES]`, `get OBJECT`, events, and errors.
    fn run(&mut self, node: &str) -> Vec<String> {
        let transcript = self.cluster.reconcile(&self.nodes, Key::cluster(node));
        self.short(&transcript)
    }

    /// What is enqueued again after a reconcile of a node, and when.
    fn requeue(&mut self, node: &str) -> String {
        let transcript = self.cluster.reconcile(&self.nodes, Key::cluster(node));
        transcript.lines().find(|line| line.starts_with("requeue")).unwrap_or_default().to_owned()
    }

    fn transcript(&mut self, node: &str) -> String {
        self.cluster.reconcile(&self.nodes, Key::cluster(node))
    }

    fn populate(&mut self) -> Vec<String> {
        let transcript = self.cluster.reconcile(&self.nodes, StatePass::Populate);
        self.short(&transcript)
    }

    fn verify(&mut self) -> Vec<String> {
        let transcript = self.cluster.reconcile(&self.nodes, StatePass::Verify);
        self.short(&transcript)
    }

    fn short(&self, transcript: &str) -> Vec<String> {
        let lines =
            transcript.lines().filter(|line| !line.starts_with("measure") && !line.starts_with("requeue"));
        lines.map(short_line).collect()
    }

    /// The VolumeAttachment of a volume on a node, as the external attacher leaves it.
    fn put_attachment(&mut self, number: &str, node: &str, status: Value) -> Vec<String> {
        self.put::<VolumeAttachment>(attachment(number, node, status))
    }

    fn take_attachment(&mut self, number: &str, node: &str) -> Vec<String> {
        self.take::<VolumeAttachment>(&attachment_key(number, node))
    }

    /// Schedules a pod with a volume and lets it be attached.
    fn attached(number: &str, pod_name: &str, node: &str) -> Self {
        let mut world = Self::started();
        world.attach(number, pod_name, node);
        world
    }

    fn attach(&mut self, number: &str, pod_name: &str, node_name: &str) {
        self.put::<Pod>(pod(pod_name, node_name, number));
        let done = self.run(node_name);
        assert!(done.contains(&format!("create h{number} on {node_name}")), "{done:?}");
        self.put_attachment(number, node_name, json!({"attached": true}));
        let done = self.run(node_name);
        assert!(done.iter().any(|line| line.starts_with("report")), "{done:?}");
        self.put::<Node>(with_attached(node(node_name), &[number], &[number]));
    }

    /// The claims loop's items for an update of a claim.
    fn claim_items(&mut self, json: &Value) -> Vec<String> {
        let claim: PersistentVolumeClaim = serde_json::from_value(json.clone()).unwrap();
        let claim = std::sync::Arc::new(claim);
        self.cluster.enqueued_by(&self.claims, Change::updated(claim.clone(), claim))
    }

    fn run_claim(&mut self, key: &str) -> Vec<String> {
        let transcript = self.cluster.reconcile(&self.claims, Key::namespaced("a", key));
        transcript.lines().map(ToOwned::to_owned).collect()
    }
}

fn short_line(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let failed = line.find(" FAILED: ").map_or("", |at| &line[at..]);
    match words.as_slice() {
        [verb @ ("create" | "delete"), "volumeattachments.storage.k8s.io", name, ..] => {
            format!("{verb} {}{failed}", known_attachment(name))
        }
        ["get", "volumeattachments.storage.k8s.io", name] => format!("get {}", known_attachment(name)),
        ["patch", "nodes/status", ..] if failed.is_empty() => {
            let body: Value = serde_json::from_str(&line[line.find(": {").unwrap() + 2..]).unwrap();
            assert_eq!(body.as_object().unwrap().len(), 1, "nothing else is patched: {body}");
            let list = &body["status"]["volumesAttached"];
            let names = |list: &Vec<Value>| {
                let names: Vec<&str> = list.iter().filter_map(|entry| entry["name"].as_str()).collect();
                names.join(" ")
            };
            format!("report [{}]", list.as_array().map(names).unwrap_or_default())
        }
        ["patch", "nodes/status", ..] => format!("report{failed}"),
        _ => line.replace(" uid=u-", " "),
    }
}

/// `HANDLE on NODE` of the name of a VolumeAttachment.
fn known_attachment(name: &str) -> String {
    for node in ["n1", "n2", "n3"] {
        for number in ["1", "2", "3"] {
            if attachment_name(&format!("h{number}"), DRIVER, node) == name {
                return format!("h{number} on {node}");
            }
        }
    }
    name.to_owned()
}

fn unique(number: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^h{number}")
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "1", "annotations": {
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn with_attached(mut node: Value, attached: &[&str], in_use: &[&str]) -> Value {
    let entry = |number: &&str| json!({"name": unique(number), "devicePath": ""});
    node["status"]["volumesAttached"] = attached.iter().map(entry).collect();
    node["status"]["volumesInUse"] = in_use.iter().map(|number| json!(unique(number))).collect();
    node["metadata"]["resourceVersion"] = json!("2");
    node
}

fn not_ready(mut node: Value) -> Value {
    node["status"]["conditions"][0]["status"] = json!("Unknown");
    node["metadata"]["resourceVersion"] = json!("3");
    node
}

fn volume(number: &str, modes: Value) -> Value {
    json!({
        "metadata": {"name": format!("pv{number}"), "uid": format!("u-pv{number}"), "resourceVersion": "1"},
        "spec": {"accessModes": modes, "csi": {"driver": DRIVER, "volumeHandle": format!("h{number}")},
                 "claimRef": {"namespace": "a", "name": format!("c{number}"), "uid": format!("u-c{number}")}},
        "status": {"phase": "Bound"},
    })
}

fn claim(number: &str) -> Value {
    json!({
        "metadata": {"name": format!("c{number}"), "namespace": "a", "uid": format!("u-c{number}"), "resourceVersion": "1"},
        "spec": {"volumeName": format!("pv{number}")},
        "status": {"phase": "Bound"},
    })
}

fn pod(name: &str, node: &str, number: &str) -> Value {
    pod_in(
        "a",
        name,
        node,
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": format!("c{number}")}}]),
    )
}

fn pod_in(namespace: &str, name: &str, node: &str, volumes: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("u-{name}"), "resourceVersion": "7"},
        "spec": {"nodeName": node, "volumes": volumes},
        "status": {"phase": "Pending"},
    })
}

fn attachment_key(number: &str, node: &str) -> Key {
    Key::cluster(attachment_name(&format!("h{number}"), DRIVER, node))
}

fn attachment(number: &str, node: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": attachment_key(number, node).name, "uid": format!("u-va{number}{node}"), "resourceVersion": "1"},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": format!("pv{number}")}},
        "status": status,
    })
}

fn driver(attach_required: Value) -> Value {
    json!({"metadata": {"name": DRIVER, "uid": "u-d"}, "spec": {"attachRequired": attach_required}})
}

fn remove_driver(world: &mut World) {
    world.take::<CsiDriver>(&Key::cluster(DRIVER));
}

fn none() -> Vec<String> {
    Vec::new()
}
