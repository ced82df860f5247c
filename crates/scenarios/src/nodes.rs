//! Nodes that stop sending heartbeats, recover, are deleted or tainted, and the pods on them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use keleustes_hollow::{Hollow, HollowHandle};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::TestCluster;
use crate::heartbeats::Heartbeats;
use crate::test_cluster::set_finalizers;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A few nodes, and a namespace with pods on them.
struct NodeFixture<'w> {
    cluster: &'w TestCluster,
    count: usize,
    nodes: Api<Node>,
    pods: Api<Pod>,
    namespace: String,
}

impl<'w> NodeFixture<'w> {
    async fn new(cluster: &'w TestCluster, prefix: &str, count: usize) -> anyhow::Result<Self> {
        let namespace = cluster.namespace(prefix).await?;
        let nodes = Api::all(cluster.admin.clone());
        Ok(Self { cluster, count, nodes, pods: cluster.api(&namespace), namespace })
    }

    fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.namespace)
    }

    /// Starts hollow nodes, and waits until all of them are ready and untainted.
    async fn start_nodes(&self) -> anyhow::Result<HollowHandle> {
        let hollow = Hollow::builder(self.cluster.admin.clone())
            .nodes(self.count)
            .name_prefix(format!("{}-", self.namespace))
            .leases(Duration::from_secs(5), Duration::from_secs(40))
            .start();
        for at in 0..self.count {
            self.node_becomes(at, "True", &[]).await?;
        }
        Ok(hollow)
    }

    /// Waits until a node has this Ready status and exactly these taints, written `key:effect`.
    async fn node_becomes(&self, at: usize, ready: &str, taints: &[&str]) -> anyhow::Result<()> {
        self.node_becomes_one_of(at, ready, &[taints]).await
    }

    /// As [`Self::node_becomes`], with several accepted sets of taints.
    async fn node_becomes_one_of(&self, at: usize, ready: &str, taints: &[&[&str]]) -> anyhow::Result<()> {
        let name = self.node(at);
        let ask = async || {
            let node = serde_json::to_value(self.nodes.get(&name).await?)?;
            let there = taints_of(&node);
            let is_so =
                condition(&node, "Ready")["status"] == ready && taints.iter().any(|set| there == **set);
            Ok(is_so.then_some(()))
        };
        self.cluster.eventually(&format!("{name} is {ready} with one of {taints:?}"), ask).await
    }

    /// Creates a pod bound to a node.
    async fn pod(&self, name: &str, at: usize, tolerations: Value) -> anyhow::Result<Value> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node(at), "tolerations": tolerations, "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
            },
        });
        // Pods are rejected until the namespace has its ServiceAccount.
        let create = async || Ok(self.cluster.create(&self.pods, pod.clone()).await.map(Some)?);
        Ok(serde_json::to_value(self.cluster.eventually("a pod", create).await?)?)
    }

    /// Waits until a pod has this Ready status.
    async fn pod_readiness_becomes(&self, name: &str, ready: &str) -> anyhow::Result<Value> {
        let ask = async || {
            let pod = serde_json::to_value(self.pods.get(name).await?)?;
            Ok((condition(&pod, "Ready")["status"] == ready).then_some(pod))
        };
        self.cluster.eventually(&format!("{name} has Ready={ready}"), ask).await
    }

    async fn pod_is_deleted(&self, name: &str) -> anyhow::Result<()> {
        let ask = async || Ok(self.pods.get_opt(name).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("{name} is deleted"), ask).await
    }

    /// Checks that a pod has the same UID as before and is not terminating.
    async fn is_kept(&self, before: &Value) -> anyhow::Result<()> {
        let name = before["metadata"]["name"].as_str().context("a name")?;
        let now = serde_json::to_value(self.pods.get(name).await?)?;
        let (uid, deletion) = ("/metadata/uid", "/metadata/deletionTimestamp");
        ensure!(now.pointer(uid) == before.pointer(uid), "{name} has another UID");
        ensure!(now.pointer(deletion).is_none(), "{name} is terminating");
        Ok(())
    }

    async fn set_taints(&self, at: usize, taints: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        self.nodes.patch(&self.node(at), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Messages of the events about a pod.
    async fn event_messages(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let events: Api<Event> = self.cluster.api(&self.namespace);
        let of = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        Ok(events.list(&of).await?.items.into_iter().filter_map(|event| event.message).collect())
    }

    async fn clear(self) -> anyhow::Result<()> {
        self.cluster.checkpoint("the end of the scenario").await;
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

/// Tolerations of an unreachable or not ready node for this number of seconds.
fn tolerates_for(seconds: u32) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!([toleration(UNREACHABLE), toleration(NOT_READY)])
}

/// One of four nodes fails, then all of them, then all recover.
///
/// Proves NLC-24, NLC-34, NLC-36, NLC-43, NLC-45, NLC-52, NLC-59, NLC-61, TE-21, TE-34, TE-40.
pub(crate) async fn pods_leave_lost_nodes_unless_all_nodes_are_lost(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = NodeFixture::new(cluster, "lost", 4).await?;
    delete_other_ready_nodes(&fixture).await?;
    let hollow = fixture.start_nodes().await?;
    fixture.pod("short", 0, tolerates_for(2)).await?;
    let long = fixture.pod("long", 0, tolerates_for(300)).await?;
    // The original may add the taint to one more node at the moment the last one fails.
    let exact_taints = !cluster.runs_original() && !cluster.is_compared();
    let elsewhere = fixture.pod("elsewhere", 1, tolerates_for(if exact_taints { 30 } else { 600 })).await?;
    for name in ["short", "long", "elsewhere"] {
        fixture.pod_readiness_becomes(name, "True").await?;
    }
    hollow.fail_node(&fixture.node(0)).await;
    // The node monitor grace period is 50 s, of which 40 s are waited here, before the cluster's timeout
    // applies.
    tokio::time::sleep(Duration::from_secs(40)).await;
    fixture.node_becomes(0, "Unknown", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await?;
    let marked = fixture.pod_readiness_becomes("long", "False").await?;
    ensure!(marked["status"]["phase"] == "Running", "the phase is not changed");
    let short = cluster
        .eventually("the pod with the short toleration is deleted", async || {
            let pod = serde_json::to_value(fixture.pods.get("short").await?)?;
            Ok(pod.pointer("/metadata/deletionTimestamp").is_some().then_some(pod))
        })
        .await?;
    let target = condition(&short, "DisruptionTarget");
    ensure!(target["reason"] == "DeletionByTaintManager", "the DisruptionTarget condition: {target}");
    fixture.is_kept(&long).await?;
    fixture.is_kept(&elsewhere).await?;
    cluster.checkpoint("one node is unreachable").await;

    // All nodes are unreachable: NoExecute taints are removed, and no pod is evicted.
    for at in 1..4 {
        hollow.fail_node(&fixture.node(at)).await;
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let (none, one) = (["unreachable:NoSchedule"], ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    let accepted: &[&[&str]] = if exact_taints { &[&none] } else { &[&none, &one] };
    for at in 0..4 {
        fixture.node_becomes_one_of(at, "Unknown", accepted).await?;
    }
    tokio::time::sleep(Duration::from_secs(35)).await;
    fixture.is_kept(&long).await?;
    fixture.is_kept(&elsewhere).await?;
    cluster.checkpoint("all nodes are unreachable").await;

    for at in 0..4 {
        hollow.recover_node(&fixture.node(at)).await;
    }
    for at in 0..4 {
        fixture.node_becomes(at, "True", &[]).await?;
    }
    fixture.pod_is_deleted("short").await?;
    for pod in [&long, &elsewhere] {
        fixture.is_kept(pod).await?;
    }
    fixture.pod_readiness_becomes("long", "True").await?;
    fixture.pod_readiness_becomes("elsewhere", "True").await?;
    hollow.stop().await;
    fixture.clear().await
}

/// Other ready nodes would count as reachable.
async fn delete_other_ready_nodes(fixture: &NodeFixture<'_>) -> anyhow::Result<()> {
    let nodes = fixture.nodes.list(&ListParams::default()).await?;
    for node in nodes.items {
        let node = serde_json::to_value(node)?;
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if condition(&node, "Ready")["status"] == "True" {
            fixture.nodes.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Proves TE-18, TE-19, TE-21, TE-33, TE-34, TE-40, TE-41.
pub(crate) async fn pods_are_evicted_after_their_toleration_seconds(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = NodeFixture::new(cluster, "tainted", 1).await?;
    let hollow = fixture.start_nodes().await?;
    let tolerates = |seconds: Option<u32>| json!([{"key": "gale", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    fixture.pod("at-once", 0, json!([])).await?;
    fixture.pod("soon", 0, tolerates(Some(3))).await?;
    let in_time = fixture.pod("in-time", 0, tolerates(Some(3600))).await?;
    let forever = fixture.pod("forever", 0, tolerates(None)).await?;
    let tainted = Instant::now();
    fixture.set_taints(0, json!([{"key": "gale", "effect": "NoExecute"}])).await?;
    fixture.pod_is_deleted("at-once").await?;
    fixture.pod_is_deleted("soon").await?;
    ensure!(tainted.elapsed() >= Duration::from_secs(3), "the pod was evicted too early");
    fixture.is_kept(&in_time).await?;
    fixture.set_taints(0, json!([])).await?;
    if cluster.processes.is_some() {
        cluster
            .eventually("an event for the cancelled eviction", async || {
                let messages = fixture.event_messages("in-time").await?;
                let wanted = format!("Cancelling deletion of Pod {}/in-time", fixture.namespace);
                Ok(messages.contains(&wanted).then_some(()))
            })
            .await?;
        let messages = fixture.event_messages("at-once").await?;
        let wanted = format!("Marking for deletion Pod {}/at-once", fixture.namespace);
        ensure!(messages.contains(&wanted), "{messages:?}");
    }
    fixture.is_kept(&in_time).await?;
    fixture.is_kept(&forever).await?;
    hollow.stop().await;
    fixture.clear().await
}

/// Proves PGC-20, PGC-23, PGC-24, PGC-30.
pub(crate) async fn pods_of_a_vanished_node_are_deleted(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = NodeFixture::new(cluster, "vanished", 1).await?;
    let hollow = fixture.start_nodes().await?;
    fixture.pod("orphan", 0, json!([])).await?;
    fixture.pod_readiness_becomes("orphan", "True").await?;
    cluster.checkpoint("the pod runs").await;
    // The finalizer keeps it readable after the delete.
    set_finalizers(&fixture.pods, "orphan", &["example.com/hold"]).await?;
    hollow.stop().await;
    let lost = Instant::now();
    fixture.nodes.delete(&fixture.node(0), &DeleteParams::default()).await?;
    // Pod garbage collection runs every 20 s and quarantines a missing node for 40 s.
    let orphan = cluster
        .eventually("the orphaned pod is deleted", async || {
            let pod = serde_json::to_value(fixture.pods.get("orphan").await?)?;
            Ok(pod.pointer("/metadata/deletionTimestamp").is_some().then_some(pod))
        })
        .await?;
    ensure!(lost.elapsed() >= Duration::from_secs(40), "the quarantine is 40 s");
    ensure!(orphan["status"]["phase"] == "Failed", "the phase is set to Failed");
    let target = condition(&orphan, "DisruptionTarget");
    ensure!(target["reason"] == "DeletionByPodGC" && target["status"] == "True", "{target}");
    cluster.checkpoint("the orphaned pod is terminating").await;
    set_finalizers(&fixture.pods, "orphan", &[]).await?;
    fixture.pod_is_deleted("orphan").await?;
    fixture.clear().await
}

/// Proves PGC-15, PGC-17.
pub(crate) async fn out_of_service_node_loses_its_terminating_pods(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = NodeFixture::new(cluster, "out", 1).await?;
    // This node has no kubelet: it is not ready, and pods on it never finish.
    cluster.create(&fixture.nodes, json!({"metadata": {"name": fixture.node(0)}})).await?;
    let everything = json!([{"operator": "Exists"}]);
    fixture.pod("stuck", 0, everything.clone()).await?;
    let other = fixture.pod("other", 0, everything).await?;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    fixture.nodes.patch_status(&fixture.node(0), &PatchParams::default(), &Patch::Merge(status)).await?;
    fixture.pods.delete("stuck", &DeleteParams::default()).await?;
    cluster.settle().await;
    ensure!(fixture.pods.get_opt("stuck").await?.is_some(), "the pod is kept while its kubelet may run it");
    let taint = json!({"spec": {"taints": [
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
    ]}});
    fixture.nodes.patch(&fixture.node(0), &PatchParams::default(), &Patch::Merge(taint)).await?;
    fixture.pod_is_deleted("stuck").await?;
    fixture.is_kept(&other).await?;
    fixture.clear().await
}

/// Proves NLC-49, NLC-51, NLC-52, NLC-53.
pub(crate) async fn node_conditions_become_taints(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = NodeFixture::new(cluster, "pressed", 1).await?;
    let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "riscv64"});
    let node = json!({"metadata": {"name": fixture.node(0), "labels": labels}});
    let _heartbeats = Heartbeats::of(cluster, &[cluster.create(&fixture.nodes, node).await?]);
    let set_conditions = async |conditions: Value| {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        fixture.nodes.patch_status(&fixture.node(0), &PatchParams::default(), &patch).await
    };
    let ready = json!({"type": "Ready", "status": "True"});
    set_conditions(json!([ready, {"type": "MemoryPressure", "status": "True"}])).await?;
    fixture.node_becomes(0, "True", &["memory-pressure:NoSchedule"]).await?;
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    fixture.nodes.patch(&fixture.node(0), &PatchParams::default(), &cordon(true)).await?;
    fixture.node_becomes(0, "True", &["memory-pressure:NoSchedule", "unschedulable:NoSchedule"]).await?;
    cluster.checkpoint("the node has memory pressure").await;
    set_conditions(json!([ready, {"type": "MemoryPressure", "status": "False"}])).await?;
    fixture.nodes.patch(&fixture.node(0), &PatchParams::default(), &cordon(false)).await?;
    fixture.node_becomes(0, "True", &[]).await?;
    cluster
        .eventually("the beta labels are set", async || {
            let labels = fixture.nodes.get(&fixture.node(0)).await?.metadata.labels.unwrap_or_default();
            let value = |name: &str| labels.get(name).map(String::as_str);
            let both = (value("beta.kubernetes.io/os"), value("beta.kubernetes.io/arch"));
            Ok((both == (Some("linux"), Some("riscv64"))).then_some(()))
        })
        .await?;
    fixture.clear().await
}
