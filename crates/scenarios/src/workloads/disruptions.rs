//! PodDisruptionBudgets count their pods, and evictions respect them.

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{WorkloadFixture, condition, template};
use crate::TestCluster;

/// `expected, desired, healthy, allowed` of a status.
type Numbers = [i64; 4];

struct BudgetFixture<'w> {
    workloads: WorkloadFixture<'w>,
    budgets: Api<PodDisruptionBudget>,
    /// Of a client that does not repeat refused evictions by itself.
    evictions: Api<Pod>,
}

impl<'w> BudgetFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let workloads = WorkloadFixture::create(cluster, "budgets").await?;
        let budgets = cluster.api(&workloads.name);
        let client = match cluster.real() {
            Ok(real) => crate::real::client_without_retries(real.plane()).await?,
            Err(_) => cluster.admin.clone(),
        };
        let evictions = Api::namespaced(client, &workloads.name);
        Ok(Self { workloads, budgets, evictions })
    }

    /// Creates a budget of the pods with `app=web`.
    async fn budget(&self, name: &str, mut spec: Value) -> anyhow::Result<()> {
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        self.workloads.cluster.create(&self.budgets, budget).await.map(drop)
    }

    async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.budgets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn status(&self, name: &str) -> anyhow::Result<Value> {
        let budget = self.budgets.get(name).await?;
        let mut status = serde_json::to_value(&budget.status)?;
        let is_current = status["observedGeneration"].as_i64() == budget.metadata.generation;
        status["isCurrent"] = json!(is_current);
        Ok(status)
    }

    /// Waits until a budget has these numbers for its newest spec, and no granted evictions.
    async fn numbers_become(&self, name: &str, numbers: Numbers) -> anyhow::Result<()> {
        let ask = async || {
            let status = self.status(name).await?;
            let fields = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"];
            let found = fields.map(|field| status[field].as_i64().unwrap_or_default());
            let allowed = if numbers[3] > 0 { "True SufficientPods" } else { "False InsufficientPods" };
            let granted = status["disruptedPods"].as_object().is_none_or(serde_json::Map::is_empty);
            let is_settled = status["isCurrent"] == true && granted;
            let is_right = found == numbers && condition(&status, "DisruptionAllowed") == allowed;
            if is_settled && is_right { Ok(Some(())) } else { bail!("{status}") }
        };
        self.workloads.cluster.eventually(&format!("{name} has {numbers:?}"), ask).await
    }

    /// Evicts a pod, or returns the code and the cause of the refusal.
    async fn evict(&self, pod: &str) -> anyhow::Result<Result<(), (u16, String)>> {
        match self.evictions.evict(pod, &EvictParams::default()).await {
            Ok(_) => Ok(Ok(())),
            Err(kube::Error::Api(status)) => {
                let json = serde_json::to_value(&*status)?;
                let cause = json["details"]["causes"][0]["message"].as_str().unwrap_or(&status.message);
                Ok(Err((status.code, cause.to_owned())))
            }
            Err(error) => Err(error).context("evicting a pod"),
        }
    }

    /// Evicts a pod as a drain does: again and again while its budget refuses.
    async fn drain(&self, pod: &str) -> anyhow::Result<()> {
        let ask = async || match self.evict(pod).await? {
            Ok(()) => Ok(Some(())),
            Err((429, _)) => Ok(None),
            Err(refused) => bail!("{refused:?}"),
        };
        self.workloads.cluster.eventually(&format!("the eviction of {pod}"), ask).await
    }

    /// Waits for this number of pods, and makes all of them ready.
    async fn ready_pods(&self, count: usize) -> anyhow::Result<Vec<Pod>> {
        let pods = self.workloads.active_pods_become(count).await?;
        for pod in pods.iter().filter(|pod| !super::is_ready(pod)) {
            self.workloads.mark_ready(pod).await?;
        }
        Ok(pods)
    }

    /// A ready pod with `app=web` and this controller, if any.
    async fn pod(&self, name: &str, controller: Option<Value>) -> anyhow::Result<()> {
        let mut pod = template("v1");
        pod["metadata"]["name"] = json!(name);
        if let Some(controller) = controller {
            pod["metadata"]["ownerReferences"] = json!([controller]);
        }
        let pod: Pod = self.workloads.cluster.create(&self.workloads.pods, pod).await?;
        self.workloads.mark_ready(&pod).await
    }
}

fn refused(cause: &str) -> Result<(), (u16, String)> {
    Err((429, cause.to_owned()))
}

/// Proves PDB-13, PDB-35, PDB-39, PDB-98.
pub(crate) async fn drain_waits_for_the_disruption_budget(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    let sets = &fixture.workloads.sets;
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")});
    cluster.create(sets, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let pods = fixture.ready_pods(2).await?;
    let [first, second] = [pods[0].name_any(), pods[1].name_any()];
    fixture.budget("web", json!({"minAvailable": 2})).await?;
    fixture.numbers_become("web", [2, 2, 2, 0]).await?;
    let answer = fixture.evict(&first).await?;
    let cause = "The disruption budget web needs 2 healthy pods and has 2 currently";
    ensure!(answer == refused(cause), "{answer:?}");
    cluster.checkpoint("the eviction is refused").await;

    // A third pod makes room for one eviction at a time.
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sets.patch("web", &PatchParams::default(), &three).await?;
    fixture.ready_pods(3).await?;
    fixture.numbers_become("web", [3, 2, 3, 1]).await?;
    fixture.drain(&first).await?;
    fixture.workloads.active_pods_become(3).await?;
    fixture.numbers_become("web", [3, 2, 2, 0]).await?;
    let answer = fixture.evict(&second).await?;
    ensure!(answer == refused(cause), "before the replacement is ready: {answer:?}");
    fixture.ready_pods(3).await?;
    fixture.drain(&second).await?;
    fixture.ready_pods(3).await?;
    fixture.numbers_become("web", [3, 2, 3, 1]).await?;
    let names: Vec<_> =
        fixture.workloads.active_pods().await?.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(!names.contains(&first) && !names.contains(&second), "{names:?}");
    let settled = async || {
        let status = sets.get("web").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(3)).then_some(()))
    };
    cluster.eventually("the ReplicaSet", settled).await?;
    cluster.checkpoint("both pods are replaced").await;
    Ok(())
}

/// Proves PDB-17, PDB-19, PDB-22, PDB-56, PDB-71.
pub(crate) async fn percent_budget_follows_its_deployment(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    let deployments = &fixture.workloads.deployments;
    let spec =
        json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")});
    cluster.create(deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let available = async |count: i32| {
        let ask = async || {
            let status = deployments.get("web").await?.status.unwrap_or_default();
            Ok((status.available_replicas == Some(count)).then_some(()))
        };
        cluster.eventually(&format!("{count} available replicas"), ask).await
    };
    fixture.ready_pods(3).await?;
    available(3).await?;
    fixture.budget("web", json!({"maxUnavailable": "30%"})).await?;
    fixture.numbers_become("web", [3, 2, 3, 1]).await?;
    cluster.checkpoint("one of three").await;
    let seven = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments.patch("web", &PatchParams::default(), &seven).await?;
    fixture.ready_pods(7).await?;
    available(7).await?;
    fixture.numbers_become("web", [7, 4, 7, 3]).await?;
    cluster.checkpoint("three of seven").await;
    fixture.patch("web", json!({"spec": {"maxUnavailable": null, "minAvailable": "34%"}})).await?;
    fixture.numbers_become("web", [7, 3, 7, 4]).await?;
    cluster.checkpoint("all but three of seven").await;
    Ok(())
}

/// Defines a kind `Gadget` with a scale in a group of its own, and creates `gadgets/g` with ten replicas.
async fn gadget(cluster: &TestCluster, namespace: &str) -> anyhow::Result<(Api<DynamicObject>, Value)> {
    let group = format!("{namespace}.example.com");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema,
        "subresources": {"status": {}, "scale": scale}});
    let names =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"});
    let definition = json!({"metadata": {"name": format!("gadgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    cluster.create(&definitions, definition).await?;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Gadget"), "gadgets");
    let gadgets: Api<DynamicObject> = Api::namespaced_with(cluster.admin.clone(), namespace, &kind);
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"replicas": 10}});
    let create = async || Ok(Some(cluster.create(&gadgets, object.clone()).await?));
    let created = cluster.eventually("the new kind", create).await?;
    let owner = json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "name": "g", "uid": created.uid(),
        "controller": true});
    Ok((gadgets, owner))
}

/// Proves PDB-9, PDB-29, PDB-74, PDB-99.
pub(crate) async fn budget_counts_the_scale_of_a_custom_resource(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    let namespace = &fixture.workloads.name;
    let (gadgets, owner) = gadget(cluster, namespace).await?;
    for number in 0..4 {
        fixture.pod(&format!("g-{number}"), Some(owner.clone())).await?;
    }
    // The original discovers a new kind after up to half a minute, and calculates again at the next event only.
    let discovered = async || {
        cluster.delete_if_exists(&fixture.budgets, "web").await?;
        fixture.budget("web", json!({"maxUnavailable": 5})).await?;
        cluster.settle().await;
        let status = fixture.status("web").await?;
        Ok((condition(&status, "DisruptionAllowed") == "False InsufficientPods").then_some(()))
    };
    cluster.eventually("a budget that is calculated", discovered).await?;
    fixture.numbers_become("web", [10, 5, 4, 0]).await?;
    let failures = ListParams::default().fields("reason=CalculateExpectedPodCountFailed");
    cluster.api::<Event>(namespace).delete_collection(&DeleteParams::default(), &failures).await?;
    cluster.checkpoint("four of ten").await;
    // A change of the scale alone changes nothing.
    let six = Patch::Merge(json!({"spec": {"replicas": 6}}));
    gadgets.patch("g", &PatchParams::default(), &six).await?;
    cluster.settle().await;
    fixture.numbers_become("web", [10, 5, 4, 0]).await?;
    fixture.patch("web", json!({"metadata": {"labels": {"touched": "yes"}}})).await?;
    fixture.numbers_become("web", [6, 1, 4, 3]).await?;
    cluster.checkpoint("four of six").await;
    // Without the kind the budget fails with an error that depends on how old each manager's discovery is.
    cluster.delete_if_exists(&fixture.budgets, "web").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    definitions.delete(&format!("gadgets.{namespace}.example.com"), &DeleteParams::default()).await?;
    Ok(())
}

/// Proves PDB-30, PDB-33, PDB-40, PDB-75, PDB-86.
pub(crate) async fn budget_that_cannot_be_calculated_allows_no_eviction(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    let maps = cluster.api::<ConfigMap>(&fixture.workloads.name);
    let map = cluster.create(&maps, json!({"metadata": {"name": "owner"}})).await?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": map.uid(), "controller": true});
    fixture.pod("p", Some(owner)).await?;
    fixture.budget("web", json!({"maxUnavailable": 1})).await?;
    let error = "configmaps does not implement the scale subresource";
    let failed = async || {
        let status = fixture.status("web").await?;
        let is_right = condition(&status, "DisruptionAllowed") == "False SyncFailed"
            && status["conditions"][0]["message"] == error;
        if is_right { Ok(Some(())) } else { bail!("{status}") }
    };
    cluster.eventually("the failure", failed).await?;
    let is_right = |messages: &[String]| {
        let expected = format!(
            "CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: {error}"
        );
        messages.contains(&expected)
    };
    fixture.workloads.events_become("PodDisruptionBudget", is_right).await?;
    // Not current yet: a failed sync does not count as an observed generation.
    let answer = fixture.evict("p").await?;
    ensure!(
        answer == refused("The disruption budget web is still being processed by the server."),
        "{answer:?}"
    );
    cluster.checkpoint("the sync failed").await;

    fixture.patch("web", json!({"spec": {"maxUnavailable": null, "minAvailable": 1}})).await?;
    fixture.numbers_become("web", [1, 1, 1, 0]).await?;
    // Neither budget may be charged while two of them select the pod.
    fixture.budget("other", json!({"minAvailable": 0})).await?;
    fixture.numbers_become("other", [1, 0, 1, 1]).await?;
    let answer = fixture.evict("p").await?;
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    ensure!(answer == Err((500, message.to_owned())), "{answer:?}");
    cluster.checkpoint("two budgets").await;
    cluster.delete_if_exists(&fixture.budgets, "web").await?;
    fixture.drain("p").await?;
    fixture.workloads.active_pods_become(0).await?;
    Ok(())
}

/// Proves PDB-23, PDB-36, PDB-50, PDB-52, PDB-57, PDB-62, PDB-83, PDB-95.
pub(crate) async fn evictions_that_never_happen_are_forgotten(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    fixture.pod("p", None).await?;
    let conditions = json!([
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
         "message": "Eviction API: evicting", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    let patch = Patch::Merge(
        json!({"status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "conditions": conditions}}),
    );
    fixture.workloads.pods.patch_status("p", &PatchParams::default(), &patch).await?;
    let reset = async || {
        let pod = serde_json::to_value(fixture.workloads.pods.get("p").await?)?;
        let status = pod["status"].clone();
        Ok((condition(&status, "DisruptionTarget") == "False ").then_some(status))
    };
    let status = cluster.eventually("the reset condition", reset).await?;
    ensure!(status["podIP"] == "10.0.0.7" && status["phase"] == "Running", "{status}");
    let types: Vec<_> =
        status["conditions"].as_array().into_iter().flatten().map(|one| &one["type"]).collect();
    ensure!(types == ["DisruptionTarget", "Ready"], "{types:?}");
    let target = &status["conditions"][0];
    ensure!(
        target["message"].is_null() && target["lastTransitionTime"] != "2020-01-01T00:00:00Z",
        "{target}"
    );
    fixture.budget("web", json!({"maxUnavailable": 1})).await?;
    fixture.numbers_become("web", [0, 0, 1, 0]).await?;
    let granted = Patch::Merge(
        json!({"status": {"disruptedPods": {"p": "2020-01-01T00:00:00Z", "q": "2020-01-01T00:00:00Z"}}}),
    );
    fixture.budgets.patch_status("web", &PatchParams::default(), &granted).await?;
    fixture.numbers_become("web", [0, 0, 1, 0]).await?;
    let namespace = &fixture.workloads.name;
    let event =
        format!("NotDeleted Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
    fixture.workloads.events_become("Pod", |messages| messages.contains(&event)).await?;
    let unmanaged = |messages: &[String]| {
        messages.iter().any(|message| message.starts_with("UnmanagedPods Pods selected"))
    };
    fixture.workloads.events_become("PodDisruptionBudget", unmanaged).await?;
    cluster.checkpoint("nothing is disrupted").await;
    Ok(())
}

/// Both values of `unhealthyPodEvictionPolicy`.
pub(crate) async fn unready_pods_are_evicted_as_the_budget_says(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = BudgetFixture::create(cluster).await?;
    for name in ["ready-a", "ready-b", "unready-c", "unready-d"] {
        fixture.pod(name, None).await?;
    }
    let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"});
    let unready = Patch::Merge(json!({"status": {"conditions": [unready]}}));
    for name in ["unready-c", "unready-d"] {
        fixture.workloads.pods.patch_status(name, &PatchParams::default(), &unready).await?;
    }
    let refused_with = |needed: u8| {
        refused(&format!("The disruption budget web needs {needed} healthy pods and has 2 currently"))
    };
    fixture
        .budget("web", json!({"minAvailable": 3, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}))
        .await?;
    fixture.numbers_become("web", [4, 3, 2, 0]).await?;
    for name in ["ready-a", "unready-c"] {
        let answer = fixture.evict(name).await?;
        ensure!(answer == refused_with(3), "{name} of a disrupted application: {answer:?}");
    }
    cluster.checkpoint("too few pods are healthy").await;
    fixture.patch("web", json!({"spec": {"minAvailable": 2}})).await?;
    fixture.numbers_become("web", [4, 2, 2, 0]).await?;
    let answer = fixture.evict("ready-a").await?;
    ensure!(answer == refused_with(2), "{answer:?}");
    let answer = fixture.evict("unready-c").await?;
    ensure!(answer == Ok(()), "enough others are healthy: {answer:?}");
    fixture.numbers_become("web", [3, 2, 2, 0]).await?;
    cluster.checkpoint("an unready pod is evicted").await;
    let always = json!({"spec": {"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    fixture.patch("web", always).await?;
    fixture.numbers_become("web", [3, 3, 2, 0]).await?;
    let answer = fixture.evict("ready-a").await?;
    ensure!(answer == refused_with(3), "{answer:?}");
    let answer = fixture.evict("unready-d").await?;
    ensure!(answer == Ok(()), "an unready pod has no clients: {answer:?}");
    fixture.numbers_become("web", [2, 3, 2, 0]).await?;
    let names: Vec<_> =
        fixture.workloads.active_pods().await?.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(names == ["ready-a", "ready-b"], "{names:?}");
    cluster.checkpoint("both are evicted").await;
    Ok(())
}
