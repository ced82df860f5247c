//! A claim that the pods of a PodGroup share, with the gate `DRAWorkloadResourceClaims`.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::is_gone;
use crate::TestCluster;
use crate::heartbeats::Heartbeats;

/// A PodGroup with a claim template, and its pods.
struct SharedClaim<'w> {
    cluster: &'w TestCluster,
    /// The name of the node and of the driver.
    name: String,
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
    groups: Api<PodGroup>,
    _heartbeats: Heartbeats,
}

impl<'w> SharedClaim<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("shared").await?;
        let name = format!("{namespace}.example.com");
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        let node = cluster.create(&nodes, json!({"metadata": {"name": name}})).await?;
        let ready = json!({"type": "Ready", "status": "True", "reason": "r", "message": "m"});
        let status = Patch::Merge(json!({"status": {"conditions": [ready]}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await?;
        let heartbeats = Heartbeats::of(cluster, &[node]);
        let templates: Api<ResourceClaimTemplate> = cluster.api(&namespace);
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]);
        let spec = json!({"spec": {"devices": {"requests": requests}}});
        cluster.create(&templates, json!({"metadata": {"name": "t"}, "spec": spec})).await?;
        // A manager whose cache lacks the template records an event.
        cluster.settle().await;
        let (pods, claims, groups) =
            (cluster.api(&namespace), cluster.api(&namespace), cluster.api(&namespace));
        let fixture = Self { cluster, name, pods, claims, groups, _heartbeats: heartbeats };
        let spec = json!({"schedulingPolicy": {"basic": {}}, "resourceClaims": [entry()]});
        cluster.create(&fixture.groups, json!({"metadata": {"name": "g"}, "spec": spec})).await?;
        Ok(fixture)
    }

    async fn pod(&self, name: &str) -> anyhow::Result<()> {
        let spec = json!({"nodeName": self.name, "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [entry()], "schedulingGroup": {"podGroupName": "g"}});
        self.cluster.create(&self.pods, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
    }

    /// Waits until the PodGroup and these pods name the same claim, the only one, and returns it.
    async fn recorded(&self, pods: &[&str]) -> anyhow::Result<ResourceClaim> {
        self.cluster
            .eventually("the PodGroup and its pods name the claim", async || {
                let claims = self.claims.list(&ListParams::default()).await?.items;
                let [claim] = &claims[..] else { return Ok(None) };
                let expected = json!([{"name": "gpu", "resourceClaimName": claim.name_any()}]);
                let group = serde_json::to_value(self.groups.get("g").await?)?;
                let mut statuses = vec![group["status"]["resourceClaimStatuses"].clone()];
                for pod in pods {
                    let pod = serde_json::to_value(self.pods.get(pod).await?)?;
                    statuses.push(pod["status"]["resourceClaimStatuses"].clone());
                }
                Ok(statuses.iter().all(|status| *status == expected).then(|| claim.clone()))
            })
            .await
    }

    async fn pods_become(&self, names: &[&str]) -> anyhow::Result<()> {
        let ask = async || {
            let pods = self.pods.list(&ListParams::default()).await?.items;
            let there: Vec<_> = pods.iter().map(kube::ResourceExt::name_any).collect();
            Ok((there == names).then_some(()))
        };
        self.cluster.eventually(&format!("the pods are {names:?}"), ask).await
    }
}

fn entry() -> Value {
    json!({"name": "gpu", "resourceClaimTemplateName": "t"})
}

/// Proves RCL-31, RCL-54.
pub(crate) async fn pods_of_a_group_share_its_claim_and_leave_its_tainted_device(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = SharedClaim::begin(cluster).await?;
    for name in ["one", "two"] {
        fixture.pod(name).await?;
    }
    let claim = fixture.recorded(&["one", "two"]).await?;
    let owner = claim.owner_references().first().context("an owner")?;
    ensure!((owner.kind.as_str(), owner.name.as_str()) == ("PodGroup", "g"), "{owner:?}");
    let name = claim.name_any();
    let finalizers = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    fixture.claims.patch(&name, &PatchParams::default(), &Patch::Merge(finalizers)).await?;
    let result = json!({"request": "r", "driver": fixture.name, "pool": "p", "device": "x"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    fixture.claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    // The pods are bound already, so the controller reserves the claim, for the PodGroup and not for each pod.
    let reserved = async || {
        let claim = serde_json::to_value(fixture.claims.get(&name).await?)?;
        let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let [consumer] = &reserved[..] else { return Ok(None) };
        let is_group = consumer["resource"] == "podgroups" && consumer["name"] == "g";
        Ok(is_group.then_some(()))
    };
    cluster.eventually("the claim is reserved for the PodGroup", reserved).await?;
    fixture.pods_become(&["one", "two"]).await?;
    cluster.checkpoint("the pods share the claim of their PodGroup").await;
    let rules: Api<DeviceTaintRule> = Api::all(cluster.admin.clone());
    let spec =
        json!({"deviceSelector": {"driver": fixture.name}, "taint": {"key": "hot", "effect": "NoExecute"}});
    cluster.create(&rules, json!({"metadata": {"name": fixture.name}, "spec": spec})).await?;
    fixture.pods_become(&[]).await?;
    ensure!(fixture.claims.get_opt(&name).await?.is_some(), "the claim lives as long as its PodGroup");
    cluster.checkpoint("the pods have left").await;
    rules.delete(&fixture.name, &DeleteParams::default()).await?;
    fixture.groups.delete("g", &DeleteParams::default()).await?;
    is_gone(cluster, &fixture.groups, "g").await?;
    let gone = async || Ok(fixture.claims.get_opt(&name).await?.is_none().then_some(()));
    cluster.eventually("the claim is deleted after its PodGroup", gone).await?;
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    nodes.delete(&fixture.name, &DeleteParams::default()).await?;
    Ok(())
}
