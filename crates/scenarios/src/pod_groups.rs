//! PodGroups, Workloads of Jobs and pool status requests, with their feature gates.

mod claims;
mod restarts;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest;
use k8s_openapi::api::scheduling::v1beta1::{PodGroup, Workload};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

pub(crate) use claims::pods_of_a_group_share_its_claim_and_leave_its_tainted_device;
pub(crate) use restarts::killed_manager_gives_a_job_one_workload_and_one_pod_group;

const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

/// A bound pod in the phase `Running` that refers to a PodGroup. There is no kubelet: it runs until the scenario ends it.
async fn running_pod(cluster: &TestCluster, pods: &Api<Pod>, name: &str, group: &str) -> anyhow::Result<()> {
    let spec = json!({"schedulerName": "scenario", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": group}});
    cluster.create(pods, json!({"metadata": {"name": name}, "spec": spec})).await?;
    set_phase(pods, name, "Running").await
}

async fn set_phase(pods: &Api<Pod>, name: &str, phase: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn create_group(cluster: &TestCluster, groups: &Api<PodGroup>, name: &str) -> anyhow::Result<()> {
    let spec = json!({"schedulingPolicy": {"basic": {}}});
    let group = cluster.create(groups, json!({"metadata": {"name": name}, "spec": spec})).await?;
    ensure!(group.finalizers().iter().any(|one| one == PROTECTION), "the API server protects it");
    Ok(())
}

async fn is_gone(cluster: &TestCluster, groups: &Api<PodGroup>, name: &str) -> anyhow::Result<()> {
    let gone = async || Ok(groups.get_opt(name).await?.is_none().then_some(()));
    cluster.eventually(&format!("PodGroup {name} is gone"), gone).await
}

/// Proves PGP-9, PGP-10, PGP-12.
pub(crate) async fn pod_group_is_deleted_after_its_last_active_pod(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace_with_service_account("groups").await?;
    let (pods, groups) = (cluster.api::<Pod>(&namespace), cluster.api::<PodGroup>(&namespace));
    create_group(cluster, &groups, "g").await?;
    create_group(cluster, &groups, "unused").await?;
    for name in ["one", "two"] {
        running_pod(cluster, &pods, name, "g").await?;
    }
    // The PodGroup of this name in another namespace has no pods.
    let other: Api<PodGroup> = cluster.api(&cluster.namespace("groups").await?);
    create_group(cluster, &other, "g").await?;
    for (groups, name) in [(&groups, "g"), (&groups, "unused"), (&other, "g")] {
        groups.delete(name, &DeleteParams::default()).await?;
    }
    is_gone(cluster, &groups, "unused").await?;
    is_gone(cluster, &other, "g").await?;
    cluster.settle().await;
    ensure!(groups.get("g").await?.finalizers() == [PROTECTION]);
    set_phase(&pods, "one", "Succeeded").await?;
    cluster.settle().await;
    ensure!(groups.get("g").await?.finalizers() == [PROTECTION], "the second pod runs");
    cluster.checkpoint("one pod is left").await;
    pods.delete("two", &DeleteParams::default()).await?;
    is_gone(cluster, &groups, "g").await
}

/// Proves PGP-8, PGP-32.
pub(crate) async fn foreign_finalizer_of_a_pod_group_is_kept(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace_with_service_account("groups").await?;
    let (pods, groups) = (cluster.api::<Pod>(&namespace), cluster.api::<PodGroup>(&namespace));
    create_group(cluster, &groups, "g").await?;
    crate::test_cluster::set_finalizers(&groups, "g", &["example.com/a", PROTECTION, "example.com/b"])
        .await?;
    running_pod(cluster, &pods, "done", "g").await?;
    set_phase(&pods, "done", "Failed").await?;
    cluster.settle().await;
    ensure!(groups.get("g").await?.finalizers().len() == 3, "it is not deleted yet");
    groups.delete("g", &DeleteParams::default()).await?;
    let released = async || {
        let group = groups.get("g").await?;
        Ok((group.finalizers() == ["example.com/a", "example.com/b"]).then_some(()))
    };
    cluster.eventually("only the foreign finalizers are left", released).await?;
    cluster.checkpoint("the foreign finalizers are left").await;
    crate::test_cluster::set_finalizers(&groups, "g", &[]).await?;
    is_gone(cluster, &groups, "g").await
}

/// A Job with its scheduling objects, in a namespace of its own.
struct WorkloadFixture<'w> {
    cluster: &'w TestCluster,
    jobs: Api<Job>,
    pods: Api<Pod>,
    workloads: Api<Workload>,
    groups: Api<PodGroup>,
}

impl<'w> WorkloadFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("gangs").await?;
        Ok(Self {
            cluster,
            jobs: cluster.api(&namespace),
            pods: cluster.api(&namespace),
            workloads: cluster.api(&namespace),
            groups: cluster.api(&namespace),
        })
    }

    async fn create_job(&self, mut metadata: Value, fields: Value) -> anyhow::Result<()> {
        metadata["name"] = json!("j");
        let containers = json!([{"name": "c", "image": "i"}]);
        let mut spec = json!({"template": {"spec": {"schedulerName": "scenario", "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0, "containers": containers}}});
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.cluster.create(&self.jobs, json!({"metadata": metadata, "spec": spec})).await.map(drop)
    }

    /// Waits until the Job has this number of pods, which all name the same PodGroup, and returns its name.
    async fn group_of_pods(&self, count: usize) -> anyhow::Result<Option<String>> {
        let pods = self
            .cluster
            .eventually(&format!("{count} pods"), async || {
                let pods = self.pods.list(&ListParams::default()).await?.items;
                Ok((pods.len() == count).then_some(pods))
            })
            .await?;
        let group_of = |pod: &Pod| pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.clone();
        let first = pods.first().and_then(group_of);
        ensure!(pods.iter().all(|pod| group_of(pod) == first), "all pods have the same PodGroup");
        Ok(first)
    }

    /// Waits until the gang of the Job's Workload and PodGroup has this size.
    async fn gang_has(&self, size: i64) -> anyhow::Result<()> {
        self.cluster
            .eventually(&format!("a gang of {size}"), async || {
                let workloads =
                    serde_json::to_value(self.workloads.list(&ListParams::default()).await?.items)?;
                let groups = serde_json::to_value(self.groups.list(&ListParams::default()).await?.items)?;
                let policy = &workloads[0]["spec"]["podGroupTemplates"][0]["schedulingPolicy"];
                let sizes = [policy, &groups[0]["spec"]["schedulingPolicy"]]
                    .map(|policy| &policy["gang"]["minCount"]);
                Ok(sizes.iter().all(|found| **found == json!(size)).then_some(()))
            })
            .await
    }

    async fn patch_job(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.jobs.patch("j", &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Proves JOB-124, JOB-126, JOB-129, JOB-130.
pub(crate) async fn job_gets_a_workload_and_a_pod_group(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::begin(cluster).await?;
    fixture.create_job(json!({}), json!({"parallelism": 2, "completions": 2})).await?;
    let group = fixture.group_of_pods(2).await?.context("the pods name a PodGroup")?;
    let workloads = fixture.workloads.list(&ListParams::default()).await?.items;
    let [workload] = &workloads[..] else { anyhow::bail!("{} Workloads", workloads.len()) };
    let job = fixture.jobs.get("j").await?;
    ensure!(workload.owner_references()[0].uid == job.uid().context("a UID")?);
    let spec = serde_json::to_value(&workload.spec)?;
    ensure!(spec["controllerRef"] == json!({"apiGroup": "batch", "kind": "Job", "name": "j"}), "{spec}");
    ensure!(spec["podGroupTemplates"][0]["name"] == "j-pgt-0", "{spec}");
    ensure!(group.starts_with(&format!("{}-j-pgt-0-", workload.name_any())), "{group}");
    let groups = fixture.groups.list(&ListParams::default()).await?.items;
    ensure!(groups.len() == 1 && groups[0].name_any() == group);
    let owners: Vec<_> = groups[0].owner_references().iter().map(|owner| owner.kind.as_str()).collect();
    ensure!(owners == ["Job", "Workload"], "{owners:?}");
    cluster.checkpoint("the pods have a PodGroup").await;
    for pod in fixture.pods.list(&ListParams::default()).await? {
        set_phase(&fixture.pods, &pod.name_any(), "Succeeded").await?;
    }
    cluster
        .eventually("the Job is complete", async || {
            Ok(fixture.jobs.get("j").await?.status.and_then(|status| status.completion_time))
        })
        .await?;
    fixture.jobs.delete("j", &DeleteParams::background()).await?;
    is_gone(cluster, &fixture.groups, &group).await
}

/// Proves JOB-125, JOB-128.
pub(crate) async fn gang_of_a_job_is_resized_suspended_and_resumed(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::begin(cluster).await?;
    let gang = json!({"schedulingPolicy": {"gang": {}}});
    fixture.create_job(json!({}), json!({"parallelism": 2, "completions": 6, "scheduling": gang})).await?;
    let group = fixture.group_of_pods(2).await?.context("the pods name a PodGroup")?;
    fixture.gang_has(2).await?;
    fixture.patch_job(json!({"parallelism": 3})).await?;
    fixture.gang_has(3).await?;
    ensure!(fixture.group_of_pods(3).await?.as_ref() == Some(&group));
    cluster.checkpoint("the gang has grown").await;
    fixture.patch_job(json!({"suspend": true})).await?;
    fixture.group_of_pods(0).await?;
    // Resumed before its status says that it is suspended, a Job was never suspended.
    cluster
        .eventually("the status says that the Job is suspended", async || {
            let conditions = fixture.jobs.get("j").await?.status.and_then(|status| status.conditions);
            let mut suspended = conditions.into_iter().flatten().filter(|one| one.type_ == "Suspended");
            Ok(suspended.next().filter(|condition| condition.status == "True").map(drop))
        })
        .await?;
    fixture.patch_job(json!({"suspend": false})).await?;
    ensure!(fixture.group_of_pods(3).await?.as_ref() == Some(&group), "the same PodGroup after a suspension");
    ensure!(fixture.workloads.list(&ListParams::default()).await?.items.len() == 1);
    ensure!(fixture.groups.list(&ListParams::default()).await?.items.len() == 1);
    cluster.checkpoint("the Job is resumed").await;
    fixture.jobs.delete("j", &DeleteParams::background()).await?;
    is_gone(cluster, &fixture.groups, &group).await
}

/// Proves JOB-130.
pub(crate) async fn delegated_job_uses_the_workload_of_its_controller(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::begin(cluster).await?;
    let namespace = fixture.jobs.namespace().context("a namespace")?.to_owned();
    let teams: Api<k8s_openapi::api::core::v1::ConfigMap> = cluster.api(&namespace);
    let team = cluster.create(&teams, json!({"metadata": {"name": "team"}})).await?;
    let templates = json!([
        {"name": "leader", "schedulingPolicy": {"basic": {}}},
        {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}},
    ]);
    let reference = json!({"apiGroup": "example.com", "kind": "Team", "name": "team"});
    let spec = json!({"controllerRef": reference, "podGroupTemplates": templates});
    cluster.create(&fixture.workloads, json!({"metadata": {"name": "team"}, "spec": spec})).await?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "team", "uid": team.uid(), "controller": true});
    let annotations = json!({"scheduling.k8s.io/group-template-name": "workers"});
    // The Workload names another controller: the pods have no group.
    fixture
        .create_job(
            json!({"ownerReferences": [owner], "annotations": annotations}),
            json!({"parallelism": 2}),
        )
        .await?;
    ensure!(fixture.group_of_pods(2).await?.is_none());
    ensure!(fixture.groups.list(&ListParams::default()).await?.items.is_empty());
    cluster.checkpoint("the pods have no PodGroup").await;
    fixture.jobs.delete("j", &DeleteParams::background()).await?;
    fixture.group_of_pods(0).await?;
    let reference = json!({"apiGroup": "", "kind": "ConfigMap", "name": "team"});
    let spec = json!({"controllerRef": reference, "podGroupTemplates": spec["podGroupTemplates"]});
    cluster.create(&fixture.workloads, json!({"metadata": {"name": "ours"}, "spec": spec})).await?;
    cluster.settle().await;
    fixture
        .create_job(
            json!({"ownerReferences": [owner], "annotations": annotations}),
            json!({"parallelism": 2}),
        )
        .await?;
    let group = fixture.group_of_pods(2).await?.context("the pods name a PodGroup")?;
    let group = fixture.groups.get(&group).await?;
    let reference = serde_json::to_value(&group.spec)?["workloadRef"].clone();
    ensure!(reference == json!({"workloadName": "ours", "templateName": "workers"}), "{reference}");
    let owners: Vec<_> = group.owner_references().iter().map(|owner| owner.kind.as_str()).collect();
    ensure!(owners == ["Job"], "{owners:?}");
    ensure!(fixture.workloads.list(&ListParams::default()).await?.items.len() == 2, "no Workload of the Job");
    cluster.checkpoint("the pods have a PodGroup of the template").await;
    fixture.jobs.delete("j", &DeleteParams::background()).await?;
    is_gone(cluster, &fixture.groups, &group.name_any()).await
}

/// Slices of a driver that no other scenario has, and requests about it.
struct PoolFixture<'w> {
    cluster: &'w TestCluster,
    driver: String,
    slices: Api<ResourceSlice>,
    requests: Api<ResourcePoolStatusRequest>,
}

impl<'w> PoolFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<(Self, String)> {
        let namespace = cluster.namespace("pools").await?;
        let (slices, requests) = (Api::all(cluster.admin.clone()), Api::all(cluster.admin.clone()));
        Ok((Self { cluster, driver: format!("{namespace}.example.com"), slices, requests }, namespace))
    }

    async fn slice(&self, name: &str, pool: &str, count: i64, devices: Value) -> anyhow::Result<()> {
        let spec = json!({"driver": self.driver, "allNodes": true, "devices": devices,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count}});
        let name = format!("{}-{name}", self.driver);
        self.cluster.create(&self.slices, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
    }

    async fn request(&self, name: &str) -> anyhow::Result<String> {
        let name = format!("{}-{name}", self.driver);
        let request = json!({"metadata": {"name": name}, "spec": {"driver": self.driver}});
        self.cluster.create(&self.requests, request).await?;
        Ok(name)
    }

    /// Waits for the status of a request.
    async fn answer(&self, name: &str) -> anyhow::Result<Value> {
        self.cluster
            .eventually(&format!("the answer to {name}"), async || {
                let request = serde_json::to_value(self.requests.get(name).await?)?;
                Ok(Some(request["status"].clone()).filter(Value::is_object))
            })
            .await
    }

    async fn clean_up(&self) -> anyhow::Result<()> {
        for slice in self.slices.list(&ListParams::default()).await? {
            if slice.name_any().starts_with(&self.driver) {
                self.slices.delete(&slice.name_any(), &DeleteParams::default()).await?;
            }
        }
        for request in self.requests.list(&ListParams::default()).await? {
            if request.name_any().starts_with(&self.driver) {
                self.requests.delete(&request.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}

/// Proves RPSR-9, RPSR-15, RPSR-17, RPSR-18, RPSR-79.
pub(crate) async fn pool_status_request_is_answered_once(cluster: &TestCluster) -> anyhow::Result<()> {
    let (fixture, namespace) = PoolFixture::begin(cluster).await?;
    let tainted = json!({"name": "c", "taints": [{"key": "k", "effect": "NoSchedule"}]});
    fixture.slice("s1", "p", 1, json!([{"name": "a"}, {"name": "b"}, tainted, {"name": "d"}])).await?;
    fixture.slice("s2", "q", 1, json!([{"name": "a"}])).await?;
    let claims: Api<ResourceClaim> = cluster.api(&namespace);
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
    cluster.create(&claims, claim).await?;
    let result = json!({"request": "r", "driver": fixture.driver, "pool": "p", "device": "a"});
    let status = Patch::Merge(json!({"status": {"allocation": {"devices": {"results": [result]}}}}));
    claims.patch_status("c", &PatchParams::default(), &status).await?;
    let rules: Api<DeviceTaintRule> = Api::all(cluster.admin.clone());
    let selector = json!({"driver": fixture.driver, "pool": "p", "device": "d"});
    let spec = json!({"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}});
    cluster.create(&rules, json!({"metadata": {"name": fixture.driver}, "spec": spec})).await?;
    cluster.settle().await;
    let name = fixture.request("one").await?;
    let status = fixture.answer(&name).await?;
    let pools = status["pools"].as_array().context("pools")?;
    ensure!(status["poolCount"] == 2 && pools.len() == 2, "{status}");
    let counts = |pool: &Value| {
        ["totalDevices", "allocatedDevices", "unavailableDevices", "availableDevices"]
            .map(|field| pool[field].as_i64().unwrap_or(-1))
    };
    ensure!(counts(&pools[0]) == [4, 1, 2, 1] && counts(&pools[1]) == [1, 0, 0, 1], "{status}");
    ensure!(pools[0]["resourceSliceCount"] == 1 && pools[0]["generation"] == 1, "{status}");
    let condition = &status["conditions"][0];
    ensure!(condition["type"] == "Complete" && condition["reason"] == "CalculationComplete", "{status}");
    ensure!(condition["message"] == "Calculated status for 2 pools", "{status}");
    // Another slice changes nothing in the answer; a new request counts it.
    fixture.slice("s3", "r", 1, json!([{"name": "a"}])).await?;
    cluster.settle().await;
    ensure!(fixture.answer(&name).await? == status);
    let second = fixture.request("two").await?;
    ensure!(fixture.answer(&second).await?["poolCount"] == 3);
    cluster.checkpoint("both requests are answered").await;
    rules.delete(&fixture.driver, &DeleteParams::default()).await?;
    fixture.clean_up().await
}

/// Proves RPSR-6, RPSR-60.
pub(crate) async fn incomplete_pool_keeps_its_request_without_answer(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (fixture, _) = PoolFixture::begin(cluster).await?;
    fixture.slice("s1", "p", 2, json!([{"name": "a"}])).await?;
    fixture.slice("s2", "q", 1, json!([{"name": "a"}])).await?;
    cluster.settle().await;
    let name = fixture.request("one").await?;
    // All retries end within 155 ms.
    for _ in 0..3 {
        cluster.settle().await;
    }
    ensure!(fixture.requests.get(&name).await?.status.is_none(), "one pool is incomplete");
    fixture.slice("s3", "p", 2, json!([{"name": "b"}])).await?;
    cluster.settle().await;
    ensure!(fixture.requests.get(&name).await?.status.is_none(), "a slice does not wake the request");
    cluster.checkpoint("the request has no answer").await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"again": "please"}}}));
    fixture.requests.patch(&name, &PatchParams::default(), &labels).await?;
    let status = fixture.answer(&name).await?;
    ensure!(status["pools"][0]["totalDevices"] == 2, "{status}");
    cluster.checkpoint("the request is answered").await;
    fixture.clean_up().await
}
