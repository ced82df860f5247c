//! Jobs count each of their pods once, and report how they finished.
//!
//! There is no kubelet: the scenarios finish the pods themselves, so that all counts are known.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

/// A Job in its own namespace.
struct JobFixture<'w> {
    cluster: &'w TestCluster,
    jobs: Api<Job>,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl<'w> JobFixture<'w> {
    async fn begin(cluster: &'w TestCluster, spec_fields: Value) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("jobs").await?;
        let containers = json!([{"name": "c", "image": "i"}]);
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        for (field, value) in spec_fields.as_object().context("the spec fields are an object")? {
            spec[field] = value.clone();
        }
        let (jobs, pods) = (cluster.api::<Job>(&namespace), cluster.api::<Pod>(&namespace));
        cluster.create(&jobs, json!({"metadata": {"name": "j"}, "spec": spec})).await?;
        Ok(Self { cluster, jobs, pods, events: cluster.api(&namespace) })
    }

    /// Waits until the Job has this number of pods, and returns them sorted by name.
    async fn pods(&self, count: usize) -> anyhow::Result<Vec<Pod>> {
        let what = format!("{count} pods");
        let mut pods = self
            .cluster
            .eventually(&what, async || {
                let pods = self.pods.list(&ListParams::default()).await?.items;
                Ok((pods.len() == count).then_some(pods))
            })
            .await?;
        pods.sort_by_key(kube::ResourceExt::name_any);
        Ok(pods)
    }

    /// Sets the phase of a pod, as a kubelet would.
    async fn finish_pod(&self, pod: &Pod, phase: &str) -> anyhow::Result<()> {
        self.set_pod_status(pod, json!({"phase": phase})).await
    }

    /// Sets the status of a pod, as a kubelet would.
    async fn set_pod_status(&self, pod: &Pod, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the status has these fields.
    async fn status_becomes(&self, wanted: Value) -> anyhow::Result<()> {
        let wanted = wanted.as_object().context("a status is an object")?;
        self.cluster
            .eventually(&format!("a status with {wanted:?}"), async || {
                let status = serde_json::to_value(self.jobs.get("j").await?.status)?;
                let number = |value: &Value| if value.is_null() { json!(0) } else { value.clone() };
                let matches = |(field, value): (&String, &Value)| {
                    number(&status[field]) == *value || status[field] == *value
                };
                Ok(wanted.iter().all(matches).then_some(()))
            })
            .await
    }

    /// Waits until the conditions are these, in this order: type, status, reason.
    async fn conditions_become(&self, wanted: &[[&str; 3]]) -> anyhow::Result<()> {
        self.cluster
            .eventually(&format!("conditions {wanted:?}"), async || {
                let conditions = self.jobs.get("j").await?.status.and_then(|status| status.conditions);
                let triple = |one: &k8s_openapi::api::batch::v1::JobCondition| {
                    [one.type_.clone(), one.status.clone(), one.reason.clone().unwrap_or_default()]
                };
                let there: Vec<_> = conditions.unwrap_or_default().iter().map(triple).collect();
                Ok((there == wanted).then_some(()))
            })
            .await?;
        self.cluster.checkpoint(&format!("conditions are {wanted:?}")).await;
        Ok(())
    }

    /// Waits until the Job's events have these reasons, with these counts, and no others.
    async fn events_become(&self, wanted: &[(&str, i32)]) -> anyhow::Result<()> {
        self.cluster
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

    async fn no_pod_has_finalizers(&self) -> anyhow::Result<()> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let with_finalizers: Vec<_> = pods.iter().filter(|pod| !pod.finalizers().is_empty()).collect();
        ensure!(with_finalizers.is_empty(), "pods still hold finalizers: {with_finalizers:?}");
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

pub(crate) async fn job_counts_its_pods_and_completes(cluster: &TestCluster) -> anyhow::Result<()> {
    let job = JobFixture::begin(cluster, json!({"completions": 3, "parallelism": 2})).await?;
    let first = job.pods(2).await?;
    job.status_becomes(json!({"active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}))
        .await?;
    job.finish_pod(&first[0], "Succeeded").await?;
    job.status_becomes(json!({"active": 2, "succeeded": 1})).await?;
    cluster.checkpoint("one pod has succeeded").await;
    for pod in job.pods(3).await?.iter().filter(|pod| pod.name_any() != first[0].name_any()) {
        job.finish_pod(pod, "Succeeded").await?;
    }
    let reached = "CompletionsReached";
    job.conditions_become(&[["SuccessCriteriaMet", "True", reached], ["Complete", "True", reached]]).await?;
    let last = json!({"active": 0, "ready": 0, "terminating": 0, "succeeded": 3, "failed": 0, "uncountedTerminatedPods": {}});
    job.status_becomes(last).await?;
    job.no_pod_has_finalizers().await?;
    job.events_become(&[("SuccessfulCreate", 3), ("Completed", 1)]).await
}

/// A controllerRef is meant for the namespace of its object: finished pods elsewhere that name the Job are not counted.
pub(crate) async fn job_ignores_pods_of_another_namespace_that_name_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let job =
        JobFixture::begin(cluster, json!({"completions": 2, "parallelism": 1, "backoffLimit": 1})).await?;
    let own = job.pods(1).await?;
    job.status_becomes(json!({"active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}))
        .await?;
    let elsewhere = cluster.namespace_with_service_account("elsewhere").await?;
    let strangers = cluster.api::<Pod>(&elsewhere);
    for (name, phase) in [("s1", "Succeeded"), ("s2", "Succeeded"), ("f1", "Failed"), ("f2", "Failed")] {
        let metadata = json!({"name": name, "labels": own[0].labels(), "ownerReferences": own[0].owner_references(),
            "finalizers": ["batch.kubernetes.io/job-tracking", "example.com/hold"]});
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        cluster.create(&strangers, json!({"metadata": metadata, "spec": spec})).await?;
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        strangers.patch_status(name, &PatchParams::default(), &patch).await?;
    }
    // The garbage collector deletes them, and no controller counts them first.
    let released = async || {
        let pods = strangers.list(&ListParams::default()).await?.items;
        let is_released = |pod: &Pod| pod.finalizers() == ["example.com/hold"];
        Ok((pods.len() == 4 && pods.iter().all(is_released)).then_some(()))
    };
    cluster.eventually("the tracking finalizers to be removed", released).await?;
    cluster.settle().await;
    cluster.settle().await;
    job.status_becomes(json!({"active": 1, "succeeded": 0, "failed": 0, "conditions": null})).await?;
    ensure!(job.pods(1).await?[0].uid() == own[0].uid(), "the Job's own pod was replaced");
    for name in ["s1", "s2", "f1", "f2"] {
        crate::test_cluster::set_finalizers(&strangers, name, &[]).await?;
    }
    job.finish_pod(&own[0], "Succeeded").await?;
    job.status_becomes(json!({"active": 1, "succeeded": 1, "failed": 0})).await?;
    job.events_become(&[("SuccessfulCreate", 2)]).await
}

pub(crate) async fn job_with_backoff_limit_zero_fails_with_its_first_failed_pod(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let job =
        JobFixture::begin(cluster, json!({"completions": 3, "parallelism": 3, "backoffLimit": 0})).await?;
    let pods = job.pods(3).await?;
    job.finish_pod(&pods[0], "Succeeded").await?;
    job.status_becomes(json!({"succeeded": 1})).await?;
    cluster.checkpoint("one pod has succeeded").await;
    job.finish_pod(&pods[1], "Failed").await?;
    let exceeded = "BackoffLimitExceeded";
    job.conditions_become(&[["FailureTarget", "True", exceeded], ["Failed", "True", exceeded]]).await?;
    // The third pod was deleted while it was active, and counts as failed.
    let last = json!({"active": 0, "ready": 0, "terminating": 0, "succeeded": 1, "failed": 2, "uncountedTerminatedPods": {}});
    job.status_becomes(last).await?;
    job.pods(2).await?;
    job.no_pod_has_finalizers().await?;
    job.events_become(&[("SuccessfulCreate", 3), ("SuccessfulDelete", 1), (exceeded, 1)]).await
}

pub(crate) async fn indexed_job_fails_and_succeeds_per_index(cluster: &TestCluster) -> anyhow::Result<()> {
    let spec_fields =
        json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    let job = JobFixture::begin(cluster, spec_fields).await?;
    for (index, pod) in job.pods(4).await?.iter().enumerate() {
        let name = "batch.kubernetes.io/job-completion-index";
        let index = index.to_string();
        ensure!(pod.labels().get(name) == Some(&index) && pod.annotations().get(name) == Some(&index));
        ensure!(pod.name_any().starts_with(&format!("j-{index}-")));
        let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
        ensure!(hostname == Some(format!("j-{index}").as_str()));
        job.finish_pod(pod, if index == "2" { "Failed" } else { "Succeeded" }).await?;
    }
    let failed = "FailedIndexes";
    job.conditions_become(&[["FailureTarget", "True", failed], ["Failed", "True", failed]]).await?;
    job.status_becomes(
        json!({"succeeded": 3, "failed": 1, "completedIndexes": "0,1,3", "failedIndexes": "2"}),
    )
    .await?;
    job.no_pod_has_finalizers().await?;
    job.events_become(&[("SuccessfulCreate", 4), (failed, 1)]).await
}

pub(crate) async fn suspended_job_has_no_pods(cluster: &TestCluster) -> anyhow::Result<()> {
    let job =
        JobFixture::begin(cluster, json!({"completions": 2, "parallelism": 2, "suspend": true})).await?;
    job.conditions_become(&[["Suspended", "True", "JobSuspended"]]).await?;
    job.status_becomes(json!({"active": 0, "startTime": null})).await?;
    job.suspend(false).await?;
    job.pods(2).await?;
    job.conditions_become(&[["Suspended", "False", "JobResumed"]]).await?;
    job.suspend(true).await?;
    job.conditions_become(&[["Suspended", "True", "JobSuspended"]]).await?;
    job.pods(0).await?;
    job.status_becomes(json!({"active": 0, "failed": 0, "terminating": 0, "startTime": null})).await?;
    job.suspend(false).await?;
    for pod in job.pods(2).await? {
        job.finish_pod(&pod, "Succeeded").await?;
    }
    job.status_becomes(json!({"succeeded": 2, "failed": 0})).await?;
    let events = [
        ("Suspended", 2),
        ("Resumed", 2),
        ("SuccessfulCreate", 4),
        ("SuccessfulDelete", 2),
        ("Completed", 1),
    ];
    job.events_become(&events).await
}

pub(crate) async fn pod_failure_policy_is_applied(cluster: &TestCluster) -> anyhow::Result<()> {
    let rules = json!([
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
    ]);
    let spec_fields =
        json!({"completions": 2, "parallelism": 2, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    let job = JobFixture::begin(cluster, spec_fields).await?;
    let first = job.pods(2).await?;
    let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "Sunk"});
    job.set_pod_status(&first[0], json!({"phase": "Failed", "conditions": [disrupted]})).await?;
    let second = job.pods(3).await?;
    job.status_becomes(json!({"active": 2, "failed": 0, "uncountedTerminatedPods": {}})).await?;
    cluster.checkpoint("the disrupted pod is replaced").await;

    let wrong = second.iter().find(|pod| pod.uid() == first[1].uid()).context("the other pod")?;
    let ended = json!({"name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 42}}});
    job.set_pod_status(wrong, json!({"phase": "Failed", "containerStatuses": [ended]})).await?;
    let judged = "PodFailurePolicy";
    job.conditions_become(&[["FailureTarget", "True", judged], ["Failed", "True", judged]]).await?;
    job.no_pod_has_finalizers().await
}

pub(crate) async fn success_policy_completes_a_job_early(cluster: &TestCluster) -> anyhow::Result<()> {
    let spec_fields = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "1"}]}});
    let job = JobFixture::begin(cluster, spec_fields).await?;
    let pods = job.pods(3).await?;
    job.finish_pod(&pods[0], "Succeeded").await?;
    job.status_becomes(json!({"succeeded": 1, "completedIndexes": "0"})).await?;
    cluster.checkpoint("one index has succeeded, not the required one").await;
    job.finish_pod(&pods[1], "Succeeded").await?;
    let enough = "SuccessPolicy";
    job.conditions_become(&[["SuccessCriteriaMet", "True", enough], ["Complete", "True", enough]]).await?;
    job.status_becomes(json!({"active": 0, "terminating": 0, "succeeded": 2, "completedIndexes": "0,1"}))
        .await?;
    job.no_pod_has_finalizers().await
}

pub(crate) async fn job_follows_parallelism_and_active_deadline(cluster: &TestCluster) -> anyhow::Result<()> {
    let job = JobFixture::begin(cluster, json!({"completions": 5, "parallelism": 3})).await?;
    job.pods(3).await?;
    job.change(json!({"parallelism": 1})).await?;
    job.pods(1).await?;
    job.status_becomes(json!({"active": 1, "terminating": 0, "failed": 0})).await?;
    cluster.checkpoint("parallelism is lower").await;
    job.change(json!({"parallelism": 2})).await?;
    job.pods(2).await?;
    job.status_becomes(json!({"active": 2})).await?;
    cluster.checkpoint("parallelism is higher").await;
    job.change(json!({"activeDeadlineSeconds": 1})).await?;
    let late = "DeadlineExceeded";
    job.conditions_become(&[["FailureTarget", "True", late], ["Failed", "True", late]]).await?;
    job.pods(0).await?;
    job.status_becomes(json!({"active": 0, "terminating": 0, "failed": 2})).await
}

pub(crate) async fn killed_manager_counts_no_job_pod_twice(cluster: &TestCluster) -> anyhow::Result<()> {
    let plane = cluster.processes()?;
    let job = JobFixture::begin(cluster, json!({"completions": 60, "parallelism": 60, "backoffLimit": 100}))
        .await?;
    let pods = job.pods(60).await?;
    for (number, pod) in pods.iter().enumerate() {
        job.finish_pod(pod, "Succeeded").await?;
        if number % 20 == 15 {
            plane.kill_manager()?;
            plane.start_manager()?;
        }
    }
    job.status_becomes(json!({"succeeded": 60, "failed": 0, "active": 0, "uncountedTerminatedPods": {}}))
        .await?;
    let reached = "CompletionsReached";
    job.conditions_become(&[["SuccessCriteriaMet", "True", reached], ["Complete", "True", reached]]).await?;
    job.no_pod_has_finalizers().await
}
