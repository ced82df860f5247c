//! Pods leave tainted devices unless their claim tolerates the taint.
//!
//! The scenarios play the scheduler and the DRA driver: they bind pods and allocate claims.

mod tolerations;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

pub(crate) use tolerations::{
    admin_access_does_not_keep_a_pod_on_a_tainted_device, device_taints_without_effect_evict_nothing,
    pods_leave_tainted_devices_after_their_toleration_seconds,
};

/// Two bound pods, `plain` and `tolerant`, each with an allocated claim of its name for the devices `x` and `y`. Only the
/// second claim tolerates taints.
struct DeviceFixture<'w> {
    cluster: &'w TestCluster,
    /// A name that no other scenario uses; also that of the driver.
    driver: String,
    pods: Api<Pod>,
}

impl<'w> DeviceFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("devices").await?;
        let fixture =
            Self { cluster, driver: format!("{namespace}.example.com"), pods: cluster.api(&namespace) };
        let claims: Api<ResourceClaim> = cluster.api(&namespace);
        let forever = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        for (name, device, tolerations) in [("plain", "x", json!([])), ("tolerant", "y", forever)] {
            let requests = json!([{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]);
            cluster
                .create(
                    &claims,
                    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}),
                )
                .await?;
            let spec = json!({"nodeName": "n", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]});
            let pod =
                cluster.create(&fixture.pods, json!({"metadata": {"name": name}, "spec": spec})).await?;
            let result = json!({"request": "r", "driver": fixture.driver, "pool": "p", "device": device,
                "tolerations": tolerations});
            let status = json!({"status": {"allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": pod.uid()}]}});
            claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        cluster.settle().await;
        ensure!(fixture.pod_names().await? == ["plain", "tolerant"]);
        Ok(fixture)
    }

    async fn pod_names(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.pods.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect())
    }

    /// Waits until only the tolerant pod is left, and makes sure that it stays.
    async fn plain_pod_leaves(&self) -> anyhow::Result<()> {
        self.cluster
            .eventually("only the tolerant pod is left", async || {
                Ok((self.pod_names().await? == ["tolerant"]).then_some(()))
            })
            .await?;
        self.cluster.settle().await;
        ensure!(self.pod_names().await? == ["tolerant"]);
        Ok(())
    }
}

/// Waits until the condition of a rule has this reason, and returns its message.
async fn condition_becomes(
    cluster: &TestCluster,
    rules: &Api<DeviceTaintRule>,
    name: &str,
    reason: &str,
) -> anyhow::Result<String> {
    cluster
        .eventually(&format!("the rule is reported as {reason}"), async || {
            let status = serde_json::to_value(rules.get(name).await?.status)?;
            let condition = &status["conditions"][0];
            let message = condition["message"].as_str().unwrap_or_default().to_owned();
            Ok((condition["reason"] == reason).then_some(message))
        })
        .await
}

/// Proves DTE-5, DTE-12, DTE-47.
pub(crate) async fn device_taint_rule_evicts_pods_that_do_not_tolerate_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DeviceFixture::begin(cluster).await?;
    let rules: Api<DeviceTaintRule> = Api::all(cluster.admin.clone());
    let name = &fixture.driver;
    let rule = |effect: &str| -> Value {
        json!({"deviceSelector": {"driver": name}, "taint": {"key": "k", "value": "v", "effect": effect}})
    };
    cluster.create(&rules, json!({"metadata": {"name": name}, "spec": rule("None")})).await?;
    let message = condition_becomes(cluster, &rules, name, "NoEffect").await?;
    let expected = "0 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if";
    ensure!(message.starts_with(expected), "{message}");
    ensure!(fixture.pod_names().await? == ["plain", "tolerant"]);
    cluster.checkpoint("the rule has no effect").await;
    let effective = Patch::Merge(json!({"spec": {"taint": {"effect": "NoExecute"}}}));
    rules.patch(name, &PatchParams::default(), &effective).await?;
    fixture.plain_pod_leaves().await?;
    let message = condition_becomes(cluster, &rules, name, "Completed").await?;
    ensure!(message == "1 pod evicted since starting the controller.", "{message}");
    cluster.checkpoint("the rule has evicted a pod").await;
    rules.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Proves DTE-1, DTE-12.
pub(crate) async fn tainted_slice_evicts_pods_that_do_not_tolerate_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DeviceFixture::begin(cluster).await?;
    let slices: Api<ResourceSlice> = Api::all(cluster.admin.clone());
    let name = &fixture.driver;
    let devices = |effect: &str| {
        let device = |name: &str| json!({"name": name, "taints": [{"key": "k", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]});
        json!([device("x"), device("y")])
    };
    let spec = json!({"driver": name, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "allNodes": true, "devices": devices("NoSchedule")});
    cluster.create(&slices, json!({"metadata": {"name": name}, "spec": spec})).await?;
    cluster.settle().await;
    ensure!(fixture.pod_names().await? == ["plain", "tolerant"]);
    cluster.checkpoint("the taints keep no pod from running").await;
    let patch = Patch::Merge(json!({"spec": {"devices": devices("NoExecute")}}));
    slices.patch(name, &PatchParams::default(), &patch).await.context("tainting the devices")?;
    fixture.plain_pod_leaves().await?;
    cluster.checkpoint("the taints have evicted a pod").await;
    slices.delete(name, &DeleteParams::default()).await?;
    Ok(())
}
