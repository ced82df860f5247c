//! ResourceClaims are created from templates, and released when their consumers are done.
//!
//! The scenarios play the scheduler: they allocate claims and reserve them. Their pods name another scheduler, so that
//! a running one leaves them alone.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

/// A namespace with template `t`.
struct ClaimFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    claims: Api<ResourceClaim>,
    pods: Api<Pod>,
}

impl<'w> ClaimFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("claims").await?;
        let (claims, pods) = (cluster.api(&namespace), cluster.api(&namespace));
        let fixture = Self { cluster, namespace, claims, pods };
        let templates: Api<ResourceClaimTemplate> = cluster.api(&fixture.namespace);
        let spec = json!({"metadata": {"labels": {"from": "template"}, "annotations": {"kept": "too"}}, "spec": claim_spec()});
        cluster.create(&templates, json!({"metadata": {"name": "t"}, "spec": spec})).await?;
        Ok(fixture)
    }

    async fn pod(&self, name: &str, entry: Value) -> anyhow::Result<Pod> {
        let pod = json!({"metadata": {"name": name}, "spec": pod_spec(entry)});
        self.cluster.create(&self.pods, pod).await
    }

    /// Waits until there are this many claims.
    async fn claims(&self, count: usize) -> anyhow::Result<Vec<ResourceClaim>> {
        self.cluster
            .eventually(&format!("{count} ResourceClaims"), async || {
                let claims = self.claims.list(&ListParams::default()).await?.items;
                Ok((claims.len() == count).then_some(claims))
            })
            .await
    }

    /// Waits until the only pod's status names the only claim, and returns both.
    async fn recorded(&self) -> anyhow::Result<(Pod, ResourceClaim)> {
        self.cluster
            .eventually("the name of the claim in the pod's status", async || {
                let (pods, claims) = (
                    self.pods.list(&ListParams::default()).await?.items,
                    self.claims.list(&ListParams::default()).await?.items,
                );
                let ([pod], [claim]) = (&pods[..], &claims[..]) else { return Ok(None) };
                let status = serde_json::to_value(&pod.status)?;
                let expected = json!([{"name": "gpu", "resourceClaimName": claim.name_any()}]);
                Ok((status["resourceClaimStatuses"] == expected).then(|| (pod.clone(), claim.clone())))
            })
            .await
    }

    /// Allocates a claim and reserves it for these pods, as the scheduler does.
    async fn allocate(&self, claim: &str, consumers: &[&Pod]) -> anyhow::Result<()> {
        let finalizers = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
        self.claims.patch(claim, &PatchParams::default(), &Patch::Merge(finalizers)).await?;
        let reserved: Vec<_> = consumers
            .iter()
            .map(|pod| json!({"resource": "pods", "name": pod.name_any(), "uid": pod.uid()}))
            .collect();
        let result = json!({"request": "r", "driver": "driver.example.com", "pool": "p", "device": "x"});
        let status =
            json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
        self.claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Waits until a claim is reserved for these pods only, and returns it.
    async fn reserved_for(&self, claim: &str, names: &[&str]) -> anyhow::Result<Value> {
        self.cluster
            .eventually(&format!("{claim} reserved for {names:?}"), async || {
                let claim = serde_json::to_value(self.claims.get(claim).await?)?;
                let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
                let there: Vec<_> =
                    reserved.iter().filter_map(|consumer| consumer["name"].as_str()).collect();
                Ok((there == names).then(|| claim.clone()))
            })
            .await
    }
}

fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]}})
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
fn pod_spec(entry: Value) -> Value {
    json!({
        "schedulerName": "scenario",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [entry],
    })
}

fn from_template() -> Value {
    json!({"name": "gpu", "resourceClaimTemplateName": "t"})
}

/// Proves RCL-49, RCL-55, RCL-74.
pub(crate) async fn claims_of_a_deployment_are_created_recorded_and_released(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ClaimFixture::begin(cluster).await?;
    let deployments: Api<Deployment> = cluster.api(&fixture.namespace);
    let labels = json!({"app": "web"});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec(from_template())}});
    cluster.create(&deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let (pod, claim) = fixture.recorded().await?;
    let meta = &claim.metadata;
    let owner = &meta.owner_references.as_ref().context("an owner")?[0];
    ensure!((owner.kind.as_str(), &owner.uid) == ("Pod", pod.metadata.uid.as_ref().context("a UID")?));
    let annotations = meta.annotations.as_ref().context("annotations")?;
    ensure!(annotations["kept"] == "too" && annotations["resource.kubernetes.io/pod-claim-name"] == "gpu");
    ensure!(meta.labels.as_ref().context("labels")?["from"] == "template");
    ensure!(meta.generate_name.as_deref() == Some(&*format!("{}-gpu-", pod.name_any())));
    fixture.allocate(&claim.name_any(), &[&pod]).await?;
    cluster.settle().await;
    fixture.reserved_for(&claim.name_any(), &[&pod.name_any()]).await?;
    cluster.checkpoint("the claim is allocated").await;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("web", &PatchParams::default(), &scaled).await?;
    fixture.claims(0).await?;
    Ok(())
}

/// Proves RCL-79.
pub(crate) async fn completed_pod_releases_its_generated_claim(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ClaimFixture::begin(cluster).await?;
    fixture.pod("once", from_template()).await?;
    let (pod, claim) = fixture.recorded().await?;
    fixture.allocate(&claim.name_any(), &[&pod]).await?;
    cluster.settle().await;
    ensure!(fixture.claims(1).await?[0].uid() == claim.uid());
    cluster.checkpoint("the claim of the pod is allocated").await;
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    fixture.pods.patch_status("once", &PatchParams::default(), &done).await?;
    // The claim goes while the pod stays, and no other one is created for it.
    fixture.claims(0).await?;
    cluster.settle().await;
    fixture.claims(0).await?;
    ensure!(fixture.pods.get("once").await?.uid() == pod.uid());
    Ok(())
}

/// Proves RCL-110, RCL-111.
pub(crate) async fn user_claim_is_deallocated_after_its_last_consumer(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ClaimFixture::begin(cluster).await?;
    cluster.create(&fixture.claims, json!({"metadata": {"name": "mine"}, "spec": claim_spec()})).await?;
    let entry = || json!({"name": "gpu", "resourceClaimName": "mine"});
    let (one, two) = (fixture.pod("one", entry()).await?, fixture.pod("two", entry()).await?);
    fixture.allocate("mine", &[&one, &two]).await?;
    cluster.settle().await;
    fixture.reserved_for("mine", &["one", "two"]).await?;
    fixture.pods.delete("one", &DeleteParams::default()).await?;
    let claim = fixture.reserved_for("mine", &["two"]).await?;
    ensure!(claim["status"]["allocation"].is_object(), "{claim}");
    cluster.checkpoint("one consumer is left").await;
    let done = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    fixture.pods.patch_status("two", &PatchParams::default(), &done).await?;
    let claim = fixture.reserved_for("mine", &[]).await?;
    ensure!(claim["status"]["allocation"].is_null(), "{claim}");
    cluster
        .eventually("the finalizer is removed", async || {
            Ok(fixture.claims.get("mine").await?.finalizers().is_empty().then_some(()))
        })
        .await?;
    cluster.checkpoint("the claim is deallocated").await;
    // Deleted by its user while it is used again: it stays until the consumer is gone.
    let three = fixture.pod("three", entry()).await?;
    fixture.allocate("mine", &[&three]).await?;
    fixture.claims.delete("mine", &DeleteParams::default()).await?;
    cluster.settle().await;
    fixture.reserved_for("mine", &["three"]).await?;
    cluster.checkpoint("the deleted claim is in use").await;
    fixture.pods.delete("three", &DeleteParams::default()).await?;
    fixture.claims(0).await?;
    Ok(())
}
