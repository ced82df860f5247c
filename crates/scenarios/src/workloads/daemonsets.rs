//! DaemonSets run one pod on each node that takes it, and roll node by node.
//!
//! No kubelet runs the pods. The node a pod is meant for is told by its affinity; where it matters that it is
//! there, the scenario binds it.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Yard, image, is_ready, template};
use crate::World;

/// Three nodes, and a DaemonSet `web` that is meant for them alone.
struct Fleet<'w> {
    yard: Yard<'w>,
    daemons: Api<DaemonSet>,
    nodes: Api<Node>,
}

const NODES: usize = 3;

impl<'w> Fleet<'w> {
    /// Nodes of which some are tainted from the start.
    async fn gather(world: &'w World, prefix: &str, tainted: &[usize]) -> anyhow::Result<Self> {
        let yard = Yard::open(world, prefix).await?;
        let nodes: Api<Node> = Api::all(world.admin.clone());
        for at in 0..NODES {
            let taints = if tainted.contains(&at) { dedicated("NoSchedule") } else { json!([]) };
            let name = format!("{}-{at}", yard.name);
            let labels = json!({"fleet": yard.name});
            let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
            world.create(&nodes, node).await?;
        }
        Ok(Self { daemons: world.api(&yard.name), nodes, yard })
    }

    fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.yard.name)
    }

    /// Nobody plays the nodes, so pods tolerate that these are silent.
    fn template(&self, image: &str) -> Value {
        let silent = ["not-ready", "unreachable"].map(|state| format!("node.kubernetes.io/{state}"));
        let mut template = template(image);
        template["spec"]["terminationGracePeriodSeconds"] = json!(0);
        template["spec"]["tolerations"] = silent.map(|key| json!({"key": key, "operator": "Exists"})).into();
        template["spec"]["nodeSelector"] = json!({"fleet": self.yard.name});
        template
    }

    async fn start(&self, rolling: Value) -> anyhow::Result<()> {
        self.start_with(json!({"type": "RollingUpdate", "rollingUpdate": rolling})).await
    }

    async fn start_with(&self, strategy: Value) -> anyhow::Result<()> {
        let daemon = json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "template": self.template("v1"),
                "updateStrategy": strategy, "revisionHistoryLimit": 1,
            },
        });
        self.yard.world.create(&self.daemons, daemon).await?;
        Ok(())
    }

    async fn change_image(&self, image: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"template": self.template(image)}}));
        self.daemons.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn change_node(&self, at: usize, patch: Value) -> anyhow::Result<()> {
        self.nodes.patch(&self.node(at), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The images that are meant to run, by node.
    fn images(&self, pods: &[Pod]) -> anyhow::Result<BTreeMap<usize, Vec<String>>> {
        let mut images = BTreeMap::<_, Vec<_>>::new();
        for pod in pods {
            let meant = target(pod)?;
            let at = (0..NODES).find(|at| self.node(*at) == meant).context("a node of the fleet")?;
            images.entry(at).or_default().push(image(pod));
        }
        images.values_mut().for_each(|images| images.sort());
        Ok(images)
    }

    /// Waits until a pod is on each of these nodes, and on no other.
    async fn runs_on(&self, wanted: &[usize]) -> anyhow::Result<()> {
        let wanted: BTreeMap<_, _> = wanted.iter().map(|at| (*at, vec!["v1".to_owned()])).collect();
        let ask = async || {
            let pods = self.yard.active_pods().await?;
            let mut all_are_there = true;
            for pod in &pods {
                all_are_there &= self.bind(pod).await?;
            }
            Ok((all_are_there && self.images(&pods)? == wanted).then_some(()))
        };
        self.yard.world.eventually(&format!("pods on {wanted:?}"), ask).await
    }

    /// Binds a pod to the node that it is meant for; tells whether it was already.
    async fn bind(&self, pod: &Pod) -> anyhow::Result<bool> {
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            return Ok(true);
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any(), "uid": pod.uid()},
            "target": {"kind": "Node", "name": target(pod)?},
        });
        let (pods, name) = (&self.yard.pods, pod.name_any());
        let _: Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
        Ok(false)
    }

    /// Waits until so many nodes want a pod, and so many have one that they should not have.
    async fn says(&self, desired: i32, misscheduled: i32) -> anyhow::Result<()> {
        let ask = async || {
            let status = self.daemons.get("web").await?.status.unwrap_or_default();
            let told = (status.desired_number_scheduled, status.number_misscheduled);
            Ok((told == (desired, misscheduled)).then_some(()))
        };
        let what = format!("{desired} wanted, {misscheduled} misplaced");
        self.yard.world.eventually(&what, ask).await?;
        self.yard.world.stand_still(&what).await;
        Ok(())
    }

    /// Lets one pod after the other become ready until all is done. At every look at least so many are
    /// ready, and at most so many are not.
    async fn roll(&self, ready_min: usize, unready_max: usize) -> anyhow::Result<()> {
        let ask = async || {
            let pods = self.yard.active_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if ready < ready_min || pods.len() - ready > unready_max {
                return Ok(Some(Err(format!("{ready} of {} pods are ready", pods.len()))));
            }
            if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                self.yard.say_ready(pod).await?;
            }
            let daemon = self.daemons.get("web").await?;
            let status = daemon.status.unwrap_or_default();
            let all = Some(status.desired_number_scheduled);
            let done = status.observed_generation == daemon.metadata.generation
                && [status.updated_number_scheduled, status.number_available] == [all; 2]
                && pods.len() == NODES;
            Ok(done.then_some(Ok(())))
        };
        self.yard.world.eventually("the end of a rollout", ask).await?.map_err(anyhow::Error::msg)?;
        self.yard.world.stand_still("the rollout is over").await;
        Ok(())
    }

    async fn scatter(self) -> anyhow::Result<()> {
        self.yard.world.stand_still("all is done").await;
        for at in 0..NODES {
            self.nodes.delete(&self.node(at), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn dedicated(effect: &str) -> Value {
    json!([{"key": "example.com/dedicated", "effect": effect}])
}

/// The node a pod is meant for.
fn target(pod: &Pod) -> anyhow::Result<String> {
    let at = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
              /nodeSelectorTerms/0/matchFields/0/values/0";
    let pod = serde_json::to_value(pod)?;
    Ok(pod.pointer(at).and_then(Value::as_str).context("no node is named")?.to_owned())
}

/// Proves DS-13, DS-14, DS-29, DS-36, DS-42, DS-43, DS-80, DS-89, DS-100, DS-101, DS-102, DS-103.
pub(crate) async fn a_daemon_runs_where_it_may(world: &World) -> anyhow::Result<()> {
    let fleet = Fleet::gather(world, "placing", &[1]).await?;
    fleet.start(json!({"maxUnavailable": 1})).await?;
    fleet.runs_on(&[0, 2]).await?;
    fleet.says(2, 0).await?;
    fleet.change_node(1, json!({"spec": {"taints": []}})).await?;
    fleet.runs_on(&[0, 1, 2]).await?;
    fleet.says(3, 0).await?;

    // What is there may stay where nothing new may come, but not where nothing may be.
    // Neither manager looks at a DaemonSet for the first alone, so something else makes them.
    fleet.change_node(0, json!({"spec": {"taints": dedicated("NoSchedule")}})).await?;
    let looks = Cell::new(0);
    let misplaced = async || {
        looks.set(looks.get() + 1);
        let nudge = json!({"metadata": {"annotations": {"example.com/looks": looks.get().to_string()}}});
        let daemon = fleet.daemons.patch("web", &PatchParams::default(), &Patch::Merge(nudge)).await?;
        Ok(daemon.status.filter(|status| status.number_misscheduled == 1))
    };
    let status = world.eventually("one is misplaced", misplaced).await?;
    ensure!(status.desired_number_scheduled == 2, "{status:?}");
    fleet.runs_on(&[0, 1, 2]).await?;
    fleet.change_node(0, json!({"spec": {"taints": dedicated("NoExecute")}})).await?;
    fleet.runs_on(&[1, 2]).await?;
    fleet.says(2, 0).await?;
    fleet.change_node(2, json!({"metadata": {"labels": {"fleet": "another"}}})).await?;
    fleet.runs_on(&[1]).await?;
    fleet.says(1, 0).await?;

    // A cordon is for others.
    fleet.change_node(1, json!({"spec": {"unschedulable": true}})).await?;
    let pods = fleet.yard.active_pods_become(1).await?;
    fleet.yard.pods.delete(&pods[0].name_any(), &DeleteParams::default()).await?;
    let replaced = async || {
        let now = fleet.yard.active_pods().await?;
        Ok((now.len() == 1 && now[0].uid() != pods[0].uid()).then_some(()))
    };
    world.eventually("another pod", replaced).await?;
    let is_right = |messages: &[String]| {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        // What has to leave a node at once may also be deleted by somebody else.
        count("SuccessfulCreate Created pod: web-") == 4
            && (1..=2).contains(&count("SuccessfulDelete Deleted pod: web-"))
    };
    fleet.yard.told("DaemonSet", is_right).await?;
    fleet.scatter().await
}

/// Proves DS-38, DS-59, DS-62, DS-74, DS-83.
pub(crate) async fn a_daemon_rolls_node_by_node(world: &World) -> anyhow::Result<()> {
    let fleet = Fleet::gather(world, "by-node", &[]).await?;
    fleet.start(json!({"maxUnavailable": 1})).await?;
    fleet.roll(0, NODES).await?;
    fleet.change_image("v2").await?;
    fleet.roll(NODES - 1, 1).await?;
    let told = |numbers: [(i64, &str); 2]| numbers.map(|(at, image)| (at, image.to_owned())).into();
    let revisions = fleet.yard.revisions().await?;
    ensure!(revisions == told([(1, "v1"), (2, "v2")]), "{revisions:?}");
    for pod in fleet.yard.active_pods().await? {
        let labels = pod.labels();
        ensure!(labels.get("pod-template-generation").is_some_and(|number| number == "2"), "{labels:?}");
        ensure!(labels.contains_key("controller-revision-hash"), "{labels:?}");
    }
    // Back: what is remembered is used.
    fleet.change_image("v1").await?;
    fleet.roll(NODES - 1, 1).await?;
    let revisions = fleet.yard.revisions().await?;
    ensure!(revisions == told([(2, "v2"), (3, "v1")]), "{revisions:?}");
    fleet.scatter().await
}

/// Proves DS-48, DS-49, DS-66, DS-67.
pub(crate) async fn a_daemon_surges(world: &World) -> anyhow::Result<()> {
    let fleet = Fleet::gather(world, "surging", &[]).await?;
    fleet.start(json!({"maxSurge": 1, "maxUnavailable": 0})).await?;
    fleet.roll(0, NODES).await?;
    fleet.change_image("v2").await?;
    // The new one stands beside the old one until it is ready, on one node at a time.
    let surplus = async || {
        let mut images: Vec<_> = fleet.images(&fleet.yard.active_pods().await?)?.into_values().collect();
        images.sort();
        Ok((images == [vec!["v1"], vec!["v1"], vec!["v1", "v2"]]).then_some(()))
    };
    world.eventually("one surplus", surplus).await?;
    world.settle().await;
    world.eventually("one surplus still", surplus).await?;
    world.stand_still("one surplus").await;
    fleet.roll(NODES, 1).await?;
    let images: Vec<_> = fleet.images(&fleet.yard.active_pods().await?)?.into_values().collect();
    ensure!(images == vec![vec!["v2"]; NODES], "{images:?}");
    fleet.scatter().await
}

pub(crate) async fn a_daemon_changes_by_hand(world: &World) -> anyhow::Result<()> {
    let fleet = Fleet::gather(world, "daemon-hand", &[]).await?;
    fleet.start_with(json!({"type": "OnDelete"})).await?;
    fleet.roll(0, NODES).await?;
    for image in ["v2", "v3"] {
        fleet.change_image(image).await?;
        let unmoved = async || {
            let status = fleet.daemons.get("web").await?.status.unwrap_or_default();
            Ok((status.updated_number_scheduled.unwrap_or(0) == 0).then_some(()))
        };
        world.eventually("word of the change", unmoved).await?;
        world.stand_still("nothing moves by itself").await;
        for pod in fleet.yard.active_pods().await? {
            fleet.yard.pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        fleet.roll(0, NODES).await?;
    }
    // One revision is remembered beside the one that is there.
    let told: BTreeMap<_, _> = [(2, "v2"), (3, "v3")].map(|(at, image)| (at, image.to_owned())).into();
    let only = async || Ok((fleet.yard.revisions().await? == told).then_some(()));
    world.eventually("the first revision is forgotten", only).await?;
    fleet.scatter().await
}
