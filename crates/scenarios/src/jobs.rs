//! Jobs count every pod of theirs once, and say how they ended.
//!
//! No kubelet works here: the scenarios end pods themselves, so that the numbers are known.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::World;

/// A Job in a namespace of its own.
struct Played<'w> {
    world: &'w World,
    jobs: Api<Job>,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl<'w> Played<'w> {
    async fn begin(world: &'w World, wishes: Value) -> anyhow::Result<Self> {
        let namespace = world.inhabited_namespace("jobs").await?;
        let containers = json!([{"name": "c", "image": "i"}]);
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        for (field, value) in wishes.as_object().context("wishes are an object")? {
            spec[field] = value.clone();
        }
        let (jobs, pods) = (world.api::<Job>(&namespace), world.api::<Pod>(&namespace));
        world.create(&jobs, json!({"metadata": {"name": "j"}, "spec": spec})).await?;
        Ok(Self { world, jobs, pods, events: world.api(&namespace) })
    }

    /// Waits until the Job has so many pods, sorted by name.
    async fn pods(&self, count: usize) -> anyhow::Result<Vec<Pod>> {
        let what = format!("{count} pods");
        let mut pods = self
            .world
            .eventually(&what, async || {
                let pods = self.pods.list(&ListParams::default()).await?.items;
                Ok((pods.len() == count).then_some(pods))
            })
            .await?;
        pods.sort_by_key(kube::ResourceExt::name_any);
        Ok(pods)
    }

    /// Ends a pod as a kubelet would.
    async fn end(&self, pod: &Pod, phase: &str) -> anyhow::Result<()> {
        self.tell(pod, json!({"phase": phase})).await
    }

    /// Says something of a pod as a kubelet would.
    async fn tell(&self, pod: &Pod, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the status says this, field by field.
    async fn says(&self, wanted: Value) -> anyhow::Result<()> {
        let wanted = wanted.as_object().context("a status is an object")?;
        self.world
            .eventually(&format!("a status with {wanted:?}"), async || {
                let status = serde_json::to_value(self.jobs.get("j").await?.status)?;
                let number = |value: &Value| if value.is_null() { json!(0) } else { value.clone() };
                let says = |(field, value): (&String, &Value)| {
                    number(&status[field]) == *value || status[field] == *value
                };
                Ok(wanted.iter().all(says).then_some(()))
            })
            .await
    }

    /// Waits until these conditions are there, in this order: type, status, reason.
    async fn ends(&self, wanted: &[[&str; 3]]) -> anyhow::Result<()> {
        self.world
            .eventually(&format!("conditions {wanted:?}"), async || {
                let conditions = self.jobs.get("j").await?.status.and_then(|status| status.conditions);
                let told = |one: &k8s_openapi::api::batch::v1::JobCondition| {
                    [one.type_.clone(), one.status.clone(), one.reason.clone().unwrap_or_default()]
                };
                let there: Vec<_> = conditions.unwrap_or_default().iter().map(told).collect();
                Ok((there == wanted).then_some(()))
            })
            .await?;
        self.world.stand_still(&format!("conditions are {wanted:?}")).await;
        Ok(())
    }

    /// Waits until the Job's events have had these reasons, so many of each, and no others.
    async fn told(&self, wanted: &[(&str, i32)]) -> anyhow::Result<()> {
        if self.world.plane.is_none() {
            return Ok(()); // The embedded world keeps no events.
        }
        self.world
            .eventually(&format!("events {wanted:?}"), async || {
                let mut there = std::collections::BTreeMap::<String, i32>::new();
                for event in self.events.list(&ListParams::default()).await?.items {
                    if event.involved_object.kind.as_deref() == Some("Job") {
                        *there.entry(event.reason.unwrap_or_default()).or_default() +=
                            event.count.unwrap_or(1);
                    }
                }
                let wanted: std::collections::BTreeMap<_, _> =
                    wanted.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
                Ok((there == wanted).then_some(()))
            })
            .await
    }

    async fn nobody_is_held(&self) -> anyhow::Result<()> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let held: Vec<_> = pods.iter().filter(|pod| !pod.finalizers().is_empty()).collect();
        ensure!(held.is_empty(), "pods still hold finalizers: {held:?}");
        Ok(())
    }

    async fn change(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.jobs.patch("j", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn suspend(&self, suspend: bool) -> anyhow::Result<()> {
        self.change(json!({"suspend": suspend})).await
    }
}

pub(crate) async fn a_job_counts_its_pods_and_completes(world: &World) -> anyhow::Result<()> {
    let played = Played::begin(world, json!({"completions": 3, "parallelism": 2})).await?;
    let first = played.pods(2).await?;
    played.says(json!({"active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}})).await?;
    played.end(&first[0], "Succeeded").await?;
    played.says(json!({"active": 2, "succeeded": 1})).await?;
    world.stand_still("one has succeeded").await;
    for pod in played.pods(3).await?.iter().filter(|pod| pod.name_any() != first[0].name_any()) {
        played.end(pod, "Succeeded").await?;
    }
    let reached = "CompletionsReached";
    played.ends(&[["SuccessCriteriaMet", "True", reached], ["Complete", "True", reached]]).await?;
    let end = json!({"active": 0, "ready": 0, "terminating": 0, "succeeded": 3, "failed": 0, "uncountedTerminatedPods": {}});
    played.says(end).await?;
    played.nobody_is_held().await?;
    played.told(&[("SuccessfulCreate", 3), ("Completed", 1)]).await
}

pub(crate) async fn a_failed_pod_ends_a_job_without_patience(world: &World) -> anyhow::Result<()> {
    let played = Played::begin(world, json!({"completions": 3, "parallelism": 3, "backoffLimit": 0})).await?;
    let pods = played.pods(3).await?;
    played.end(&pods[0], "Succeeded").await?;
    played.says(json!({"succeeded": 1})).await?;
    world.stand_still("one has succeeded").await;
    played.end(&pods[1], "Failed").await?;
    let exceeded = "BackoffLimitExceeded";
    played.ends(&[["FailureTarget", "True", exceeded], ["Failed", "True", exceeded]]).await?;
    // The third was deleted before it had a chance, and counts as failed.
    let end = json!({"active": 0, "ready": 0, "terminating": 0, "succeeded": 1, "failed": 2, "uncountedTerminatedPods": {}});
    played.says(end).await?;
    played.pods(2).await?;
    played.nobody_is_held().await?;
    played.told(&[("SuccessfulCreate", 3), ("SuccessfulDelete", 1), (exceeded, 1)]).await
}

pub(crate) async fn indexes_fail_and_succeed_one_by_one(world: &World) -> anyhow::Result<()> {
    let wishes =
        json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    let played = Played::begin(world, wishes).await?;
    for (index, pod) in played.pods(4).await?.iter().enumerate() {
        let name = "batch.kubernetes.io/job-completion-index";
        let index = index.to_string();
        ensure!(pod.labels().get(name) == Some(&index) && pod.annotations().get(name) == Some(&index));
        ensure!(pod.name_any().starts_with(&format!("j-{index}-")));
        let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
        ensure!(hostname == Some(format!("j-{index}").as_str()));
        played.end(pod, if index == "2" { "Failed" } else { "Succeeded" }).await?;
    }
    let failed = "FailedIndexes";
    played.ends(&[["FailureTarget", "True", failed], ["Failed", "True", failed]]).await?;
    played
        .says(json!({"succeeded": 3, "failed": 1, "completedIndexes": "0,1,3", "failedIndexes": "2"}))
        .await?;
    played.nobody_is_held().await?;
    played.told(&[("SuccessfulCreate", 4), (failed, 1)]).await
}

pub(crate) async fn a_suspended_job_has_no_pods(world: &World) -> anyhow::Result<()> {
    let played = Played::begin(world, json!({"completions": 2, "parallelism": 2, "suspend": true})).await?;
    played.ends(&[["Suspended", "True", "JobSuspended"]]).await?;
    played.says(json!({"active": 0, "startTime": null})).await?;
    played.suspend(false).await?;
    played.pods(2).await?;
    played.ends(&[["Suspended", "False", "JobResumed"]]).await?;
    played.suspend(true).await?;
    played.ends(&[["Suspended", "True", "JobSuspended"]]).await?;
    played.pods(0).await?;
    played.says(json!({"active": 0, "failed": 0, "terminating": 0, "startTime": null})).await?;
    played.suspend(false).await?;
    for pod in played.pods(2).await? {
        played.end(&pod, "Succeeded").await?;
    }
    played.says(json!({"succeeded": 2, "failed": 0})).await?;
    let told = [
        ("Suspended", 2),
        ("Resumed", 2),
        ("SuccessfulCreate", 4),
        ("SuccessfulDelete", 2),
        ("Completed", 1),
    ];
    played.told(&told).await
}

pub(crate) async fn a_pod_s_failure_is_judged_by_the_job_s_rules(world: &World) -> anyhow::Result<()> {
    let rules = json!([
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
    ]);
    let wishes =
        json!({"completions": 2, "parallelism": 2, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    let played = Played::begin(world, wishes).await?;
    let first = played.pods(2).await?;
    let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "Sunk"});
    played.tell(&first[0], json!({"phase": "Failed", "conditions": [disrupted]})).await?;
    let second = played.pods(3).await?;
    played.says(json!({"active": 2, "failed": 0, "uncountedTerminatedPods": {}})).await?;
    world.stand_still("one that was disrupted is replaced").await;

    let wrong = second.iter().find(|pod| pod.uid() == first[1].uid()).context("the other pod")?;
    let ended = json!({"name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 42}}});
    played.tell(wrong, json!({"phase": "Failed", "containerStatuses": [ended]})).await?;
    let judged = "PodFailurePolicy";
    played.ends(&[["FailureTarget", "True", judged], ["Failed", "True", judged]]).await?;
    played.nobody_is_held().await
}

pub(crate) async fn one_index_can_be_enough(world: &World) -> anyhow::Result<()> {
    let wishes = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "1"}]}});
    let played = Played::begin(world, wishes).await?;
    let pods = played.pods(3).await?;
    played.end(&pods[0], "Succeeded").await?;
    played.says(json!({"succeeded": 1, "completedIndexes": "0"})).await?;
    world.stand_still("one has succeeded that is not enough").await;
    played.end(&pods[1], "Succeeded").await?;
    let enough = "SuccessPolicy";
    played.ends(&[["SuccessCriteriaMet", "True", enough], ["Complete", "True", enough]]).await?;
    played.says(json!({"active": 0, "terminating": 0, "succeeded": 2, "completedIndexes": "0,1"})).await?;
    played.nobody_is_held().await
}

pub(crate) async fn a_job_shrinks_grows_and_runs_out_of_time(world: &World) -> anyhow::Result<()> {
    let played = Played::begin(world, json!({"completions": 5, "parallelism": 3})).await?;
    played.pods(3).await?;
    played.change(json!({"parallelism": 1})).await?;
    played.pods(1).await?;
    played.says(json!({"active": 1, "terminating": 0, "failed": 0})).await?;
    world.stand_still("it has shrunk").await;
    played.change(json!({"parallelism": 2})).await?;
    played.pods(2).await?;
    played.says(json!({"active": 2})).await?;
    world.stand_still("it has grown").await;
    played.change(json!({"activeDeadlineSeconds": 1})).await?;
    let late = "DeadlineExceeded";
    played.ends(&[["FailureTarget", "True", late], ["Failed", "True", late]]).await?;
    played.pods(0).await?;
    played.says(json!({"active": 0, "terminating": 0, "failed": 2})).await
}

pub(crate) async fn a_killed_manager_counts_no_pod_twice(world: &World) -> anyhow::Result<()> {
    let plane = world.plane()?;
    let played =
        Played::begin(world, json!({"completions": 60, "parallelism": 60, "backoffLimit": 100})).await?;
    let pods = played.pods(60).await?;
    for (number, pod) in pods.iter().enumerate() {
        played.end(pod, "Succeeded").await?;
        if number % 20 == 15 {
            plane.kill_manager()?;
            plane.start_manager()?;
        }
    }
    played.says(json!({"succeeded": 60, "failed": 0, "active": 0, "uncountedTerminatedPods": {}})).await?;
    let reached = "CompletionsReached";
    played.ends(&[["SuccessCriteriaMet", "True", reached], ["Complete", "True", reached]]).await?;
    played.nobody_is_held().await
}
