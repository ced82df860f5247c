//! Nodes that fall silent, come back, vanish and are tainted, and what becomes of their pods.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use keleustes_hollow::{Hollow, HollowHandle};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::World;
use crate::heartbeats::Heartbeats;
use crate::world::hold;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A few nodes, and pods on them in a namespace of their own.
struct Field<'w> {
    world: &'w World,
    count: usize,
    nodes: Api<Node>,
    pods: Api<Pod>,
    namespace: String,
}

impl<'w> Field<'w> {
    async fn new(world: &'w World, prefix: &str, count: usize) -> anyhow::Result<Self> {
        let namespace = world.namespace(prefix).await?;
        let nodes = Api::all(world.admin.clone());
        Ok(Self { world, count, nodes, pods: world.api(&namespace), namespace })
    }

    fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.namespace)
    }

    /// Plays the nodes, and waits until all of them can be used.
    async fn play(&self) -> anyhow::Result<HollowHandle> {
        let hollow = Hollow::builder(self.world.admin.clone())
            .nodes(self.count)
            .name_prefix(format!("{}-", self.namespace))
            .leases(Duration::from_secs(5), Duration::from_secs(40))
            .start();
        for at in 0..self.count {
            self.reaches(at, "True", &[]).await?;
        }
        Ok(hollow)
    }

    /// Waits until a node says this of itself and has these taints and no others, written `key:effect`.
    async fn reaches(&self, at: usize, ready: &str, taints: &[&str]) -> anyhow::Result<()> {
        self.reaches_one_of(at, ready, &[taints]).await
    }

    /// As [`Self::reaches`], where several sets of taints are right.
    async fn reaches_one_of(&self, at: usize, ready: &str, taints: &[&[&str]]) -> anyhow::Result<()> {
        let name = self.node(at);
        let ask = async || {
            let node = serde_json::to_value(self.nodes.get(&name).await?)?;
            let there = taints_of(&node);
            let is_so =
                condition(&node, "Ready")["status"] == ready && taints.iter().any(|set| there == **set);
            Ok(is_so.then_some(()))
        };
        self.world.eventually(&format!("{name} is {ready} with one of {taints:?}"), ask).await
    }

    /// A pod on a node. It tolerates a lost node for so long.
    async fn pod(&self, name: &str, at: usize, tolerations: Value) -> anyhow::Result<Value> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node(at), "tolerations": tolerations, "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
            },
        });
        // Until the namespace has its account, pods are refused.
        let create = async || Ok(self.world.create(&self.pods, pod.clone()).await.map(Some)?);
        Ok(serde_json::to_value(self.world.eventually("a pod", create).await?)?)
    }

    /// Waits until a pod says this of itself.
    async fn pod_says(&self, name: &str, ready: &str) -> anyhow::Result<Value> {
        let ask = async || {
            let pod = serde_json::to_value(self.pods.get(name).await?)?;
            Ok((condition(&pod, "Ready")["status"] == ready).then_some(pod))
        };
        self.world.eventually(&format!("{name} says {ready}"), ask).await
    }

    async fn pod_is_gone(&self, name: &str) -> anyhow::Result<()> {
        let ask = async || Ok(self.pods.get_opt(name).await?.is_none().then_some(()));
        self.world.eventually(&format!("{name} is gone"), ask).await
    }

    /// Makes sure that a pod is the one it was, and is not on its way out.
    async fn stays(&self, before: &Value) -> anyhow::Result<()> {
        let name = before["metadata"]["name"].as_str().context("a name")?;
        let now = serde_json::to_value(self.pods.get(name).await?)?;
        let (uid, going) = ("/metadata/uid", "/metadata/deletionTimestamp");
        ensure!(now.pointer(uid) == before.pointer(uid), "{name} is another one");
        ensure!(now.pointer(going).is_none(), "{name} is on its way out");
        Ok(())
    }

    async fn set_taints(&self, at: usize, taints: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        self.nodes.patch(&self.node(at), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Messages of the events on a pod.
    async fn told_of(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let events: Api<Event> = self.world.api(&self.namespace);
        let of = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        Ok(events.list(&of).await?.items.into_iter().filter_map(|event| event.message).collect())
    }

    async fn clear(self) -> anyhow::Result<()> {
        self.world.stand_still("all is done").await;
        for at in 0..self.count {
            let _ = self.nodes.delete(&self.node(at), &DeleteParams::default()).await;
        }
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete_collection(&now, &ListParams::default()).await?;
        Ok(())
    }
}

fn condition(object: &Value, name: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == name).unwrap_or_default()
}

/// Taints as `key:effect`, sorted, without the common prefix.
fn taints_of(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().replace("node.kubernetes.io/", "");
    let mut taints: Vec<String> =
        all.iter().map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect();
    taints.sort();
    taints
}

/// Tolerates a lost node for so many seconds.
fn for_seconds(seconds: u32) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!([toleration(UNREACHABLE), toleration(NOT_READY)])
}

/// One of four nodes falls silent, then all of them do, then all come back.
///
/// Proves NLC-24, NLC-34, NLC-36, NLC-43, NLC-45, NLC-52, NLC-59, NLC-61, TE-21, TE-34, TE-40.
pub(crate) async fn lost_nodes_are_left_and_a_lost_cluster_is_not(world: &World) -> anyhow::Result<()> {
    let field = Field::new(world, "lost", 4).await?;
    no_other_node_is_ready(&field).await?;
    let hollow = field.play().await?;
    field.pod("hasty", 0, for_seconds(2)).await?;
    let patient = field.pod("patient", 0, for_seconds(300)).await?;
    // If the original is about to taint a node in the moment in which all are lost, that one keeps its taint.
    let is_strict = !world.runs_original() && !world.is_compared();
    let elsewhere = field.pod("elsewhere", 1, for_seconds(if is_strict { 30 } else { 600 })).await?;
    for name in ["hasty", "patient", "elsewhere"] {
        field.pod_says(name, "True").await?;
    }
    hollow.fail_node(&field.node(0)).await;
    // A node may be silent for 50 s, of which this world's patience is not to know.
    tokio::time::sleep(Duration::from_secs(40)).await;
    field.reaches(0, "Unknown", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await?;
    let marked = field.pod_says("patient", "False").await?;
    ensure!(marked["status"]["phase"] == "Running", "its phase is not ours to tell");
    let hasty = world
        .eventually("hasty is asked to go", async || {
            let pod = serde_json::to_value(field.pods.get("hasty").await?)?;
            Ok(pod.pointer("/metadata/deletionTimestamp").is_some().then_some(pod))
        })
        .await?;
    let target = condition(&hasty, "DisruptionTarget");
    ensure!(target["reason"] == "DeletionByTaintManager", "it says why it goes: {target}");
    field.stays(&patient).await?;
    field.stays(&elsewhere).await?;
    world.stand_still("one node is lost").await;

    // Now nobody answers. Nothing says that a node is lost any more, and nobody is evicted.
    for at in 1..4 {
        hollow.fail_node(&field.node(at)).await;
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let (none, one) = (["unreachable:NoSchedule"], ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    let right: &[&[&str]] = if is_strict { &[&none] } else { &[&none, &one] };
    for at in 0..4 {
        field.reaches_one_of(at, "Unknown", right).await?;
    }
    tokio::time::sleep(Duration::from_secs(35)).await;
    field.stays(&patient).await?;
    field.stays(&elsewhere).await?;
    world.stand_still("all nodes are lost").await;

    for at in 0..4 {
        hollow.recover_node(&field.node(at)).await;
    }
    for at in 0..4 {
        field.reaches(at, "True", &[]).await?;
    }
    field.pod_is_gone("hasty").await?;
    for pod in [&patient, &elsewhere] {
        field.stays(pod).await?;
    }
    field.pod_says("patient", "True").await?;
    field.pod_says("elsewhere", "True").await?;
    hollow.stop().await;
    field.clear().await
}

/// Whether all nodes are lost depends on all that there are.
async fn no_other_node_is_ready(field: &Field<'_>) -> anyhow::Result<()> {
    let nodes = field.nodes.list(&ListParams::default()).await?;
    for node in nodes.items {
        let node = serde_json::to_value(node)?;
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if condition(&node, "Ready")["status"] == "True" {
            field.nodes.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Proves TE-18, TE-19, TE-21, TE-33, TE-34, TE-40, TE-41.
pub(crate) async fn pods_leave_a_tainted_node_in_their_time(world: &World) -> anyhow::Result<()> {
    let field = Field::new(world, "tainted", 1).await?;
    let hollow = field.play().await?;
    let tolerates = |seconds: Option<u32>| json!([{"key": "gale", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    field.pod("at-once", 0, json!([])).await?;
    field.pod("soon", 0, tolerates(Some(3))).await?;
    let in_time = field.pod("in-time", 0, tolerates(Some(3600))).await?;
    let forever = field.pod("forever", 0, tolerates(None)).await?;
    let tainted = Instant::now();
    field.set_taints(0, json!([{"key": "gale", "effect": "NoExecute"}])).await?;
    field.pod_is_gone("at-once").await?;
    field.pod_is_gone("soon").await?;
    ensure!(tainted.elapsed() >= Duration::from_secs(3), "it went before its time");
    field.stays(&in_time).await?;
    field.set_taints(0, json!([])).await?;
    if world.plane.is_some() {
        world
            .eventually("the wait ends with an event", async || {
                let told = field.told_of("in-time").await?;
                let wanted = format!("Cancelling deletion of Pod {}/in-time", field.namespace);
                Ok(told.contains(&wanted).then_some(()))
            })
            .await?;
        let told = field.told_of("at-once").await?;
        let wanted = format!("Marking for deletion Pod {}/at-once", field.namespace);
        ensure!(told.contains(&wanted), "{told:?}");
    }
    field.stays(&in_time).await?;
    field.stays(&forever).await?;
    hollow.stop().await;
    field.clear().await
}

/// Proves PGC-20, PGC-23, PGC-24, PGC-30.
pub(crate) async fn pods_of_a_vanished_node_go(world: &World) -> anyhow::Result<()> {
    let field = Field::new(world, "vanished", 1).await?;
    let hollow = field.play().await?;
    field.pod("orphan", 0, json!([])).await?;
    field.pod_says("orphan", "True").await?;
    world.stand_still("the pod runs").await;
    // Held, so that it can still be seen when it is deleted.
    hold(&field.pods, "orphan", &["example.com/hold"]).await?;
    hollow.stop().await;
    let lost = Instant::now();
    field.nodes.delete(&field.node(0), &DeleteParams::default()).await?;
    // Up to 20 s until the loss is noticed, and 40 s of quarantine.
    let orphan = world
        .eventually("the orphan is deleted", async || {
            let pod = serde_json::to_value(field.pods.get("orphan").await?)?;
            Ok(pod.pointer("/metadata/deletionTimestamp").is_some().then_some(pod))
        })
        .await?;
    ensure!(lost.elapsed() >= Duration::from_secs(40), "a node may come back");
    ensure!(orphan["status"]["phase"] == "Failed", "nobody else can say what became of it");
    let target = condition(&orphan, "DisruptionTarget");
    ensure!(target["reason"] == "DeletionByPodGC" && target["status"] == "True", "{target}");
    world.stand_still("the orphan has been told of its end").await;
    hold(&field.pods, "orphan", &[]).await?;
    field.pod_is_gone("orphan").await?;
    field.clear().await
}

/// Proves PGC-15, PGC-17.
pub(crate) async fn a_node_out_of_service_holds_no_pod(world: &World) -> anyhow::Result<()> {
    let field = Field::new(world, "out", 1).await?;
    // Nobody plays this node: it says that it is not ready, and nothing on it ever ends.
    world.create(&field.nodes, json!({"metadata": {"name": field.node(0)}})).await?;
    let everything = json!([{"operator": "Exists"}]);
    field.pod("stuck", 0, everything.clone()).await?;
    let other = field.pod("other", 0, everything).await?;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    field.nodes.patch_status(&field.node(0), &PatchParams::default(), &Patch::Merge(status)).await?;
    field.pods.delete("stuck", &DeleteParams::default()).await?;
    world.settle().await;
    ensure!(field.pods.get_opt("stuck").await?.is_some(), "its kubelet may still have it");
    let taint = json!({"spec": {"taints": [
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
    ]}});
    field.nodes.patch(&field.node(0), &PatchParams::default(), &Patch::Merge(taint)).await?;
    field.pod_is_gone("stuck").await?;
    field.stays(&other).await?;
    field.clear().await
}

/// Proves NLC-49, NLC-51, NLC-52, NLC-53.
pub(crate) async fn conditions_of_a_node_become_taints(world: &World) -> anyhow::Result<()> {
    let field = Field::new(world, "pressed", 1).await?;
    let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "riscv64"});
    let node = json!({"metadata": {"name": field.node(0), "labels": labels}});
    let _alive = Heartbeats::of(world, &[world.create(&field.nodes, node).await?]);
    let says = async |conditions: Value| {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        field.nodes.patch_status(&field.node(0), &PatchParams::default(), &patch).await
    };
    let ready = json!({"type": "Ready", "status": "True"});
    says(json!([ready, {"type": "MemoryPressure", "status": "True"}])).await?;
    field.reaches(0, "True", &["memory-pressure:NoSchedule"]).await?;
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    field.nodes.patch(&field.node(0), &PatchParams::default(), &cordon(true)).await?;
    field.reaches(0, "True", &["memory-pressure:NoSchedule", "unschedulable:NoSchedule"]).await?;
    world.stand_still("the node is pressed").await;
    says(json!([ready, {"type": "MemoryPressure", "status": "False"}])).await?;
    field.nodes.patch(&field.node(0), &PatchParams::default(), &cordon(false)).await?;
    field.reaches(0, "True", &[]).await?;
    world
        .eventually("labels have their old names", async || {
            let labels = field.nodes.get(&field.node(0)).await?.metadata.labels.unwrap_or_default();
            let value = |name: &str| labels.get(name).map(String::as_str);
            let both = (value("beta.kubernetes.io/os"), value("beta.kubernetes.io/arch"));
            Ok((both == (Some("linux"), Some("riscv64"))).then_some(()))
        })
        .await?;
    field.clear().await
}
