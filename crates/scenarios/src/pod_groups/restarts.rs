//! A manager that is killed while it works on a Job with a Workload.

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{WorkloadFixture, is_gone, set_phase};
use crate::TestCluster;

/// Proves JOB-124, JOB-126.
pub(crate) async fn killed_manager_gives_a_job_one_workload_and_one_pod_group(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let plane = cluster.processes()?;
    let fixture = WorkloadFixture::begin(cluster).await?;
    let gang = json!({"schedulingPolicy": {"gang": {}}});
    fixture.create_job(json!({}), json!({"parallelism": 3, "completions": 6, "scheduling": gang})).await?;
    // As soon as the first of its objects exists: the PodGroup and the pods are still missing, or have just been created.
    cluster
        .eventually("a Workload", async || {
            Ok(fixture.workloads.list(&ListParams::default()).await?.items.into_iter().next().map(drop))
        })
        .await?;
    plane.kill_manager()?;
    plane.start_manager()?;
    let group = fixture.group_of_pods(3).await?.context("the pods name a PodGroup")?;
    for pod in fixture.pods.list(&ListParams::default()).await?.items.iter().take(2) {
        set_phase(&fixture.pods, &pod.name_any(), "Succeeded").await?;
    }
    plane.kill_manager()?;
    plane.start_manager()?;
    let complete = async || {
        for pod in fixture.pods.list(&ListParams::default()).await? {
            if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending") {
                set_phase(&fixture.pods, &pod.name_any(), "Succeeded").await?;
            }
        }
        Ok(fixture.jobs.get("j").await?.status.filter(|status| status.completion_time.is_some()))
    };
    let status = cluster.eventually("the Job is complete", complete).await?;
    ensure!(status.succeeded == Some(6), "{status:?}");
    ensure!(fixture.workloads.list(&ListParams::default()).await?.items.len() == 1);
    let groups = fixture.groups.list(&ListParams::default()).await?.items;
    ensure!(groups.len() == 1 && groups[0].name_any() == group, "{} PodGroups", groups.len());
    let pods = fixture.pods.list(&ListParams::default()).await?.items;
    ensure!(pods.len() == 6, "{} pods", pods.len());
    fixture.group_of_pods(6).await?;
    fixture.jobs.delete("j", &DeleteParams::background()).await?;
    is_gone(cluster, &fixture.groups, &group).await
}
