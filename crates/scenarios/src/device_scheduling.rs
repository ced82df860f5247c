//! A Deployment whose pods need a device: the claim is created, allocated from published slices, used and released.
//!
//! On a real control plane kube-scheduler allocates. The embedded cluster has none: there the scenario takes its part.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::heartbeats::Heartbeats;

/// A node with one device, and a class that selects it.
struct OneDevice<'w> {
    cluster: &'w TestCluster,
    /// The name of node, driver and class.
    name: String,
    namespace: String,
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
    _heartbeats: Heartbeats,
}

impl<'w> OneDevice<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("device").await?;
        let name = format!("{namespace}.example.com");
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        let node = cluster.create(&nodes, node).await?;
        let room = json!({"cpu": "8", "memory": "8Gi", "pods": "20"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "r", "message": "m"});
        let status =
            Patch::Merge(json!({"status": {"allocatable": room, "capacity": room, "conditions": [ready]}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await?;
        let heartbeats = Heartbeats::of(cluster, &[node]);
        let is_untainted = async || {
            let taints = nodes.get(&name).await?.spec.and_then(|spec| spec.taints);
            Ok(taints.is_none_or(|taints| taints.is_empty()).then_some(()))
        };
        cluster.eventually("a node without taints", is_untainted).await?;
        let classes: Api<DeviceClass> = Api::all(cluster.admin.clone());
        let selector = json!({"cel": {"expression": format!("device.driver == '{name}'")}});
        cluster
            .create(&classes, json!({"metadata": {"name": name}, "spec": {"selectors": [selector]}}))
            .await?;
        let slices: Api<ResourceSlice> = Api::all(cluster.admin.clone());
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": name, "nodeName": name, "pool": pool, "devices": [{"name": "only"}]});
        cluster.create(&slices, json!({"metadata": {"name": name}, "spec": spec})).await?;
        let templates: Api<ResourceClaimTemplate> = cluster.api(&namespace);
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": name}}]);
        let spec = json!({"spec": {"devices": {"requests": requests}}});
        cluster.create(&templates, json!({"metadata": {"name": "t"}, "spec": spec})).await?;
        let (pods, claims) = (cluster.api(&namespace), cluster.api(&namespace));
        Ok(Self { cluster, name, namespace, pods, claims, _heartbeats: heartbeats })
    }

    fn pod_spec(&self) -> Value {
        json!({
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": self.name},
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        })
    }

    /// The claim of a pod, by the name in its status.
    async fn claim_of(&self, pod: &Pod) -> anyhow::Result<Option<ResourceClaim>> {
        let status = serde_json::to_value(&self.pods.get(&pod.name_any()).await?.status)?;
        let Some(name) = status["resourceClaimStatuses"][0]["resourceClaimName"].as_str() else {
            return Ok(None);
        };
        Ok(self.claims.get_opt(name).await?)
    }

    /// The only pod whose name begins so.
    async fn pod(&self, prefix: &str) -> anyhow::Result<Pod> {
        self.cluster
            .eventually(&format!("a pod {prefix} with a claim"), async || {
                let pods = self.pods.list(&ListParams::default()).await?.items;
                let mut named = pods.into_iter().filter(|pod| pod.name_any().starts_with(prefix));
                let (Some(pod), None) = (named.next(), named.next()) else { return Ok(None) };
                Ok(self.claim_of(&pod).await?.is_some().then_some(pod))
            })
            .await
    }

    /// Allocates the device for a pod and binds it, where there is no scheduler.
    async fn stand_in_for_scheduler(&self, pod: &Pod) -> anyhow::Result<()> {
        if self.cluster.processes.is_some() {
            return Ok(());
        }
        let claim = self.claim_of(pod).await?.context("a claim")?.name_any();
        let finalizers = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
        self.claims.patch(&claim, &PatchParams::default(), &Patch::Merge(finalizers)).await?;
        let result = json!({"request": "r", "driver": self.name, "pool": self.name, "device": "only"});
        let reserved = json!([{"resource": "pods", "name": pod.name_any(), "uid": pod.uid()}]);
        let status =
            json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
        self.claims.patch_status(&claim, &PatchParams::default(), &Patch::Merge(status)).await?;
        let name = pod.name_any();
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": self.name});
        let binding: Binding = serde_json::from_value(json!({"metadata": {"name": name}, "target": target}))?;
        let _: Value =
            self.pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Waits until a pod is bound and its claim has the device and is reserved for it.
    async fn has_device(&self, pod: &Pod) -> anyhow::Result<()> {
        self.stand_in_for_scheduler(pod).await?;
        self.cluster
            .eventually(&format!("{} has the device", pod.name_any()), async || {
                let live = self.pods.get(&pod.name_any()).await?;
                let is_bound =
                    live.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.name);
                let Some(claim) = self.claim_of(pod).await? else { return Ok(None) };
                let status = serde_json::to_value(&claim.status)?;
                let device = &status["allocation"]["devices"]["results"][0]["device"];
                let is_reserved = status["reservedFor"][0]["uid"] == json!(pod.uid());
                Ok((is_bound && *device == "only" && is_reserved).then_some(()))
            })
            .await
    }

    /// Waits until the scheduler has created a claim for the extended resource of a pod, and the pod is bound.
    async fn has_extended_resource(&self, pod: &str) -> anyhow::Result<()> {
        self.cluster
            .eventually(&format!("{pod} has its extended resource"), async || {
                let live = self.pods.get(pod).await?;
                let is_bound =
                    live.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.name);
                let status = serde_json::to_value(&live.status)?;
                let claim = &status["extendedResourceClaimStatus"]["resourceClaimName"];
                let Some(claim) = claim.as_str() else { return Ok(None) };
                let Some(claim) = self.claims.get_opt(claim).await? else { return Ok(None) };
                let status = serde_json::to_value(&claim.status)?;
                let device = &status["allocation"]["devices"]["results"][0]["device"];
                let is_reserved = status["reservedFor"][0]["uid"] == json!(live.uid());
                Ok((is_bound && *device == "only" && is_reserved).then_some(()))
            })
            .await
    }

    async fn has_no_claims(&self) -> anyhow::Result<()> {
        self.cluster
            .eventually("no claim is left", async || {
                Ok(self.claims.list(&ListParams::default()).await?.items.is_empty().then_some(()))
            })
            .await
    }

    async fn clean_up(&self) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.cluster.admin.clone());
        slices.delete(&self.name, &DeleteParams::default()).await?;
        let classes: Api<DeviceClass> = Api::all(self.cluster.admin.clone());
        classes.delete(&self.name, &DeleteParams::default()).await?;
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        nodes.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Proves RCL-49, RCL-56, RCL-79.
pub(crate) async fn deployment_with_a_claim_template_uses_and_frees_a_device(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = OneDevice::begin(cluster).await?;
    let deployments: Api<Deployment> = cluster.api(&fixture.namespace);
    let labels = json!({"app": "web"});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": fixture.pod_spec()}});
    cluster.create(&deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let first = fixture.pod("web-").await?;
    fixture.has_device(&first).await?;
    cluster.checkpoint("the pod of the Deployment has the device").await;
    // The only device is taken: a second pod gets a claim and waits.
    let pod = json!({"metadata": {"name": "second"}, "spec": fixture.pod_spec()});
    cluster.create(&fixture.pods, pod).await?;
    let second = fixture.pod("second").await?;
    cluster.settle().await;
    let claim = serde_json::to_value(fixture.claim_of(&second).await?)?;
    ensure!(claim["status"]["allocation"].is_null(), "{claim}");
    cluster.checkpoint("the second pod waits for the device").await;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("web", &PatchParams::default(), &scaled).await?;
    fixture.has_device_after(&first, &second).await?;
    cluster.checkpoint("the second pod has the device").await;
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    fixture.pods.patch_status("second", &PatchParams::default(), &done).await?;
    fixture.has_no_claims().await?;
    ensure!(fixture.pods.get("second").await?.uid() == second.uid(), "the pod is kept");
    cluster.checkpoint("no claim is left").await;
    fixture.clean_up().await
}

impl OneDevice<'_> {
    /// Waits until the claim of one pod is gone, and another pod has its device.
    async fn has_device_after(&self, gone: &Pod, pod: &Pod) -> anyhow::Result<()> {
        self.cluster
            .eventually(&format!("{} and its claim are gone", gone.name_any()), async || {
                let pods = self.pods.list(&ListParams::default()).await?.items;
                let claims = self.claims.list(&ListParams::default()).await?.items;
                Ok((pods.len() == 1 && claims.len() == 1).then_some(()))
            })
            .await?;
        self.has_device(pod).await
    }
}

/// Proves RCL-5, RCL-80.
pub(crate) async fn pod_with_an_extended_resource_frees_its_device(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = OneDevice::begin(cluster).await?;
    let resource = format!("{}/gpu", fixture.name);
    let classes: Api<DeviceClass> = Api::all(cluster.admin.clone());
    let named = Patch::Merge(json!({"spec": {"extendedResourceName": resource}}));
    classes.patch(&fixture.name, &PatchParams::default(), &named).await?;
    // Until the scheduler has read the class it reports that no node has the resource.
    cluster.settle().await;
    // Each pod needs the only device.
    for name in ["first", "second"] {
        let limits = json!({"limits": {resource.as_str(): "1"}});
        let spec = json!({"containers": [{"name": "c", "image": "i", "resources": limits}]});
        cluster.create(&fixture.pods, json!({"metadata": {"name": name}, "spec": spec})).await?;
        fixture.has_extended_resource(name).await?;
        cluster.checkpoint(&format!("the {name} pod has the device")).await;
        let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        fixture.pods.patch_status(name, &PatchParams::default(), &done).await?;
        fixture.has_no_claims().await?;
        let pod = fixture.pods.get(name).await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is kept");
        cluster.checkpoint(&format!("the claim of the {name} pod is gone")).await;
    }
    fixture.clean_up().await
}
