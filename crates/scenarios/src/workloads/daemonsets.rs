//! DaemonSets run one pod on each eligible node, and roll node by node.
//!
//! There is no kubelet. The affinity of a pod names its node; where it matters that the pod is bound, the
//! scenario binds it.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{WorkloadFixture, image, is_ready, template};
use crate::TestCluster;

/// Three nodes, and a DaemonSet `web` that selects only them.
struct DaemonSetFixture<'w> {
    workloads: WorkloadFixture<'w>,
    daemon_sets: Api<DaemonSet>,
    nodes: Api<Node>,
}

const NODES: usize = 3;

impl<'w> DaemonSetFixture<'w> {
    /// Creates the nodes, some of them tainted.
    async fn create(cluster: &'w TestCluster, prefix: &str, tainted: &[usize]) -> anyhow::Result<Self> {
        let workloads = WorkloadFixture::create(cluster, prefix).await?;
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        for at in 0..NODES {
            let taints = if tainted.contains(&at) { dedicated("NoSchedule") } else { json!([]) };
            let name = format!("{}-{at}", workloads.name);
            let labels = json!({"fleet": workloads.name});
            let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
            cluster.create(&nodes, node).await?;
        }
        Ok(Self { daemon_sets: cluster.api(&workloads.name), nodes, workloads })
    }

    fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.workloads.name)
    }

    /// The nodes send no heartbeats, so that the pods must tolerate it.
    fn template(&self, image: &str) -> Value {
        let silent = ["not-ready", "unreachable"].map(|state| format!("node.kubernetes.io/{state}"));
        let mut template = template(image);
        template["spec"]["terminationGracePeriodSeconds"] = json!(0);
        template["spec"]["tolerations"] = silent.map(|key| json!({"key": key, "operator": "Exists"})).into();
        template["spec"]["nodeSelector"] = json!({"fleet": self.workloads.name});
        template
    }

    async fn start(&self, rolling: Value) -> anyhow::Result<()> {
        self.start_with(json!({"type": "RollingUpdate", "rollingUpdate": rolling})).await
    }

    async fn start_with(&self, strategy: Value) -> anyhow::Result<()> {
        let daemon_set = json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "template": self.template("v1"),
                "updateStrategy": strategy, "revisionHistoryLimit": 1,
            },
        });
        self.workloads.cluster.create(&self.daemon_sets, daemon_set).await?;
        Ok(())
    }

    async fn change_image(&self, image: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"template": self.template(image)}}));
        self.daemon_sets.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn change_node(&self, at: usize, patch: Value) -> anyhow::Result<()> {
        self.nodes.patch(&self.node(at), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The images of the pods, by target node.
    fn images(&self, pods: &[Pod]) -> anyhow::Result<BTreeMap<usize, Vec<String>>> {
        let mut images = BTreeMap::<_, Vec<_>>::new();
        for pod in pods {
            let target = target_node(pod)?;
            let at = (0..NODES).find(|at| self.node(*at) == target).context("a node of the fleet")?;
            images.entry(at).or_default().push(image(pod));
        }
        images.values_mut().for_each(|images| images.sort());
        Ok(images)
    }

    /// Waits until each of these nodes, and no other, has a bound pod.
    async fn runs_on(&self, wanted: &[usize]) -> anyhow::Result<()> {
        let wanted: BTreeMap<_, _> = wanted.iter().map(|at| (*at, vec!["v1".to_owned()])).collect();
        let ask = async || {
            let pods = self.workloads.active_pods().await?;
            let mut all_are_there = true;
            for pod in &pods {
                all_are_there &= self.bind(pod).await?;
            }
            Ok((all_are_there && self.images(&pods)? == wanted).then_some(()))
        };
        self.workloads.cluster.eventually(&format!("pods on {wanted:?}"), ask).await
    }

    /// Binds a pod to its target node; returns whether it was bound already.
    async fn bind(&self, pod: &Pod) -> anyhow::Result<bool> {
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            return Ok(true);
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any(), "uid": pod.uid()},
            "target": {"kind": "Node", "name": target_node(pod)?},
        });
        let (pods, name) = (&self.workloads.pods, pod.name_any());
        let _: Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
        Ok(false)
    }

    /// Waits for these counts in the status.
    async fn status_becomes(&self, desired: i32, misscheduled: i32) -> anyhow::Result<()> {
        let ask = async || {
            let status = self.daemon_sets.get("web").await?.status.unwrap_or_default();
            let found = (status.desired_number_scheduled, status.number_misscheduled);
            Ok((found == (desired, misscheduled)).then_some(()))
        };
        let what = format!("{desired} scheduled, {misscheduled} misscheduled");
        self.workloads.cluster.eventually(&what, ask).await?;
        self.workloads.cluster.checkpoint(&what).await;
        Ok(())
    }

    /// Marks one pod after the other ready until the rollout is complete. At every check at least
    /// `ready_min` pods are ready, and at most `unready_max` are not.
    async fn roll(&self, ready_min: usize, unready_max: usize) -> anyhow::Result<()> {
        let ask = async || {
            let pods = self.workloads.active_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if ready < ready_min || pods.len() - ready > unready_max {
                return Ok(Some(Err(format!("{ready} of {} pods are ready", pods.len()))));
            }
            if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                self.workloads.mark_ready(pod).await?;
            }
            let daemon_set = self.daemon_sets.get("web").await?;
            let status = daemon_set.status.unwrap_or_default();
            let all = Some(status.desired_number_scheduled);
            let done = status.observed_generation == daemon_set.metadata.generation
                && [status.updated_number_scheduled, status.number_available] == [all; 2]
                && pods.len() == NODES;
            Ok(done.then_some(Ok(())))
        };
        self.workloads.cluster.eventually("the end of a rollout", ask).await?.map_err(anyhow::Error::msg)?;
        self.workloads.cluster.checkpoint("the rollout is complete").await;
        Ok(())
    }

    async fn clean_up(self) -> anyhow::Result<()> {
        self.workloads.cluster.checkpoint("the end of the scenario").await;
        // A reconcile that is still due would delete the pods of nodes that are gone, in one of two clusters.
        self.workloads.cluster.settle().await;
        for at in 0..NODES {
            self.nodes.delete(&self.node(at), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn dedicated(effect: &str) -> Value {
    json!([{"key": "example.com/dedicated", "effect": effect}])
}

/// The node that the affinity of a pod names.
fn target_node(pod: &Pod) -> anyhow::Result<String> {
    let at = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
              /nodeSelectorTerms/0/matchFields/0/values/0";
    let pod = serde_json::to_value(pod)?;
    Ok(pod.pointer(at).and_then(Value::as_str).context("the pod has no node affinity")?.to_owned())
}

/// Proves DS-13, DS-14, DS-29, DS-36, DS-42, DS-43, DS-80, DS-89, DS-100, DS-101, DS-102, DS-103.
pub(crate) async fn daemon_set_runs_on_eligible_nodes(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = DaemonSetFixture::create(cluster, "placing", &[1]).await?;
    fixture.start(json!({"maxUnavailable": 1})).await?;
    fixture.runs_on(&[0, 2]).await?;
    fixture.status_becomes(2, 0).await?;
    fixture.change_node(1, json!({"spec": {"taints": []}})).await?;
    fixture.runs_on(&[0, 1, 2]).await?;
    fixture.status_becomes(3, 0).await?;

    // A NoSchedule taint keeps existing pods, a NoExecute taint does not. Neither manager reconciles a
    // DaemonSet for the former alone, so an annotation change triggers it.
    fixture.change_node(0, json!({"spec": {"taints": dedicated("NoSchedule")}})).await?;
    let nudges = Cell::new(0);
    let misplaced = async || {
        nudges.set(nudges.get() + 1);
        let nudge = json!({"metadata": {"annotations": {"example.com/looks": nudges.get().to_string()}}});
        let daemon_set =
            fixture.daemon_sets.patch("web", &PatchParams::default(), &Patch::Merge(nudge)).await?;
        Ok(daemon_set.status.filter(|status| status.number_misscheduled == 1))
    };
    let status = cluster.eventually("one pod is misscheduled", misplaced).await?;
    ensure!(status.desired_number_scheduled == 2, "{status:?}");
    fixture.runs_on(&[0, 1, 2]).await?;
    fixture.change_node(0, json!({"spec": {"taints": dedicated("NoExecute")}})).await?;
    fixture.runs_on(&[1, 2]).await?;
    fixture.status_becomes(2, 0).await?;
    fixture.change_node(2, json!({"metadata": {"labels": {"fleet": "another"}}})).await?;
    fixture.runs_on(&[1]).await?;
    fixture.status_becomes(1, 0).await?;

    // DaemonSet pods tolerate a cordon.
    fixture.change_node(1, json!({"spec": {"unschedulable": true}})).await?;
    let pods = fixture.workloads.active_pods_become(1).await?;
    fixture.workloads.pods.delete(&pods[0].name_any(), &DeleteParams::default()).await?;
    let replaced = async || {
        let now = fixture.workloads.active_pods().await?;
        Ok((now.len() == 1 && now[0].uid() != pods[0].uid()).then_some(()))
    };
    cluster.eventually("another pod", replaced).await?;
    let is_right = |messages: &[String]| {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        // Taint eviction may delete a pod before this controller does.
        count("SuccessfulCreate Created pod: web-") == 4
            && (1..=2).contains(&count("SuccessfulDelete Deleted pod: web-"))
    };
    fixture.workloads.events_become("DaemonSet", is_right).await?;
    fixture.clean_up().await
}

/// Proves DS-38, DS-59, DS-62, DS-74, DS-83.
pub(crate) async fn daemon_set_rolls_node_by_node(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = DaemonSetFixture::create(cluster, "by-node", &[]).await?;
    fixture.start(json!({"maxUnavailable": 1})).await?;
    fixture.roll(0, NODES).await?;
    fixture.change_image("v2").await?;
    fixture.roll(NODES - 1, 1).await?;
    let revision_map = |numbers: [(i64, &str); 2]| numbers.map(|(at, image)| (at, image.to_owned())).into();
    let revisions = fixture.workloads.revisions().await?;
    ensure!(revisions == revision_map([(1, "v1"), (2, "v2")]), "{revisions:?}");
    for pod in fixture.workloads.active_pods().await? {
        let labels = pod.labels();
        ensure!(labels.get("pod-template-generation").is_some_and(|number| number == "2"), "{labels:?}");
        ensure!(labels.contains_key("controller-revision-hash"), "{labels:?}");
    }
    // Rolling back reuses the old revision.
    fixture.change_image("v1").await?;
    fixture.roll(NODES - 1, 1).await?;
    let revisions = fixture.workloads.revisions().await?;
    ensure!(revisions == revision_map([(2, "v2"), (3, "v1")]), "{revisions:?}");
    fixture.clean_up().await
}

/// Proves DS-48, DS-49, DS-66, DS-67.
pub(crate) async fn daemon_set_surges(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = DaemonSetFixture::create(cluster, "surging", &[]).await?;
    fixture.start(json!({"maxSurge": 1, "maxUnavailable": 0})).await?;
    fixture.roll(0, NODES).await?;
    fixture.change_image("v2").await?;
    // The new pod runs beside the old one until it is ready, on one node at a time.
    let surplus = async || {
        let mut images: Vec<_> =
            fixture.images(&fixture.workloads.active_pods().await?)?.into_values().collect();
        images.sort();
        Ok((images == [vec!["v1"], vec!["v1"], vec!["v1", "v2"]]).then_some(()))
    };
    cluster.eventually("one surplus", surplus).await?;
    cluster.settle().await;
    cluster.eventually("one surplus still", surplus).await?;
    cluster.checkpoint("one surplus").await;
    fixture.roll(NODES, 1).await?;
    let images: Vec<_> = fixture.images(&fixture.workloads.active_pods().await?)?.into_values().collect();
    ensure!(images == vec![vec!["v2"]; NODES], "{images:?}");
    fixture.clean_up().await
}

pub(crate) async fn daemon_set_updates_on_delete(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = DaemonSetFixture::create(cluster, "daemon-hand", &[]).await?;
    fixture.start_with(json!({"type": "OnDelete"})).await?;
    fixture.roll(0, NODES).await?;
    for image in ["v2", "v3"] {
        fixture.change_image(image).await?;
        let unmoved = async || {
            let status = fixture.daemon_sets.get("web").await?.status.unwrap_or_default();
            Ok((status.updated_number_scheduled.unwrap_or(0) == 0).then_some(()))
        };
        cluster.eventually("the observed change", unmoved).await?;
        cluster.checkpoint("no pod is replaced automatically").await;
        for pod in fixture.workloads.active_pods().await? {
            fixture.workloads.pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        fixture.roll(0, NODES).await?;
    }
    // revisionHistoryLimit 1 keeps one old revision.
    let revision_map: BTreeMap<_, _> =
        [(2, "v2"), (3, "v3")].map(|(at, image)| (at, image.to_owned())).into();
    let only = async || Ok((fixture.workloads.revisions().await? == revision_map).then_some(()));
    cluster.eventually("the first revision is deleted", only).await?;
    fixture.clean_up().await
}
