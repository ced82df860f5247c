//! Running pods on tainted devices: tolerationSeconds, taints that are removed in time, adminAccess and the effect `None`.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use keleustes_hollow::{Hollow, HollowHandle};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::condition_becomes;
use crate::TestCluster;

/// A hollow node with pods, each with a claim and a device of its name in the slice of one pool.
struct RunningPods<'w> {
    cluster: &'w TestCluster,
    /// A name that no other scenario uses; also that of driver and slice.
    driver: String,
    namespace: String,
    node: String,
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
    slices: Api<ResourceSlice>,
    _hollow: HollowHandle,
}

/// A pod and how its claim is allocated.
struct DeviceUser {
    name: &'static str,
    tolerations: Value,
    admin_access: bool,
}

fn tolerating(name: &'static str, seconds: Option<u32>) -> DeviceUser {
    let toleration = json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    DeviceUser { name, tolerations: json!([toleration]), admin_access: false }
}

fn plain(name: &'static str) -> DeviceUser {
    DeviceUser { name, tolerations: json!([]), admin_access: false }
}

impl<'w> RunningPods<'w> {
    async fn begin(cluster: &'w TestCluster, users: &[DeviceUser]) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("tolerations").await?;
        let hollow = Hollow::builder(cluster.admin.clone())
            .nodes(1)
            .name_prefix(format!("{namespace}-"))
            .leases(Duration::from_secs(5), Duration::from_secs(40))
            .start();
        let fixture = Self {
            cluster,
            driver: format!("{namespace}.example.com"),
            node: format!("{namespace}-0"),
            pods: cluster.api(&namespace),
            claims: cluster.api(&namespace),
            slices: Api::all(cluster.admin.clone()),
            namespace,
            _hollow: hollow,
        };
        fixture.node_is_ready().await?;
        if users.iter().any(|user| user.admin_access) {
            let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
            let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
            namespaces.patch(&fixture.namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
        }
        for user in users {
            fixture.start(user).await?;
        }
        let names: Vec<_> = users.iter().map(|user| user.name).collect();
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": fixture.driver, "pool": pool, "allNodes": true,
            "devices": devices(&names, None)});
        cluster.create(&fixture.slices, json!({"metadata": {"name": fixture.driver}, "spec": spec})).await?;
        fixture.pods_become(&names).await?;
        Ok(fixture)
    }

    async fn node_is_ready(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        let ask = async || {
            let node = serde_json::to_value(nodes.get(&self.node).await?)?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let is_untainted = node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
            Ok((is_ready && is_untainted).then_some(()))
        };
        self.cluster.eventually("the node is ready and untainted", ask).await
    }

    /// Creates the claim and the pod of a user, and allocates the device of its name, as the scheduler does.
    async fn start(&self, user: &DeviceUser) -> anyhow::Result<()> {
        let name = user.name;
        let mut exactly = json!({"deviceClassName": "class.example.com"});
        let mut result = json!({"request": "r", "driver": self.driver, "pool": "p", "device": name,
            "tolerations": user.tolerations});
        if user.admin_access {
            (exactly["adminAccess"], result["adminAccess"]) = (json!(true), json!(true));
        }
        let requests = json!([{"name": "r", "exactly": exactly}]);
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        self.cluster.create(&self.claims, claim).await?;
        let spec = json!({"nodeName": self.node, "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]});
        let pod = self.cluster.create(&self.pods, json!({"metadata": {"name": name}, "spec": spec})).await?;
        let status = json!({"status": {"allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod.uid()}]}});
        self.claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// The names of the pods that are not terminating, and whether all of them run.
    async fn running(&self) -> anyhow::Result<(Vec<String>, bool)> {
        let mut pods = self.pods.list(&ListParams::default()).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let all_run = pods.iter().all(|pod| phase(pod).as_deref() == Some("Running"));
        Ok((pods.iter().map(kube::ResourceExt::name_any).collect(), all_run))
    }

    /// Waits until exactly these pods, sorted by name, are there and run.
    async fn pods_become(&self, names: &[&str]) -> anyhow::Result<()> {
        let ask = async || {
            let (there, all_run) = self.running().await?;
            Ok((there == names && all_run).then_some(()))
        };
        self.cluster.eventually(&format!("the pods {names:?} run"), ask).await
    }

    /// Makes sure that exactly these pods stay.
    async fn pods_stay(&self, names: &[&str]) -> anyhow::Result<()> {
        self.cluster.settle().await;
        let (there, _) = self.running().await?;
        ensure!(there == names, "{there:?}");
        Ok(())
    }

    /// Gives all devices in the slice a taint with this effect, or none.
    async fn taint(&self, names: &[&str], effect: Option<&str>) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"devices": devices(names, effect)}}));
        self.slices.patch(&self.driver, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for an event of the controller about a pod.
    async fn event(&self, pod: &str, message: &str) -> anyhow::Result<()> {
        let events: Api<Event> = self.cluster.api(&self.namespace);
        let ask = async || {
            let events = events.list(&ListParams::default()).await?.items;
            let is_it = |event: &Event| {
                event.involved_object.name.as_deref() == Some(pod)
                    && event.reason.as_deref() == Some("DeviceTaintManagerEviction")
                    && event.message.as_deref() == Some(message)
            };
            Ok(events.iter().any(is_it).then_some(()))
        };
        self.cluster.eventually(&format!("the event {message:?} of {pod}"), ask).await
    }

    async fn end(self) -> anyhow::Result<()> {
        self.slices.delete(&self.driver, &DeleteParams::default()).await?;
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        nodes.delete(&self.node, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The devices of these names. The API server sets the time of their taint.
fn devices(names: &[&str], effect: Option<&str>) -> Value {
    let taints: Vec<_> =
        effect.iter().map(|effect| json!({"key": "hot", "value": "90", "effect": effect})).collect();
    names.iter().map(|name| json!({"name": name, "taints": taints})).collect()
}

/// Proves DTE-12, DTE-13, DTE-62.
pub(crate) async fn pods_leave_tainted_devices_after_their_toleration_seconds(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let all = ["brief", "forever", "patient", "plain"];
    let users = [
        tolerating("brief", Some(8)),
        tolerating("forever", None),
        tolerating("patient", Some(3600)),
        plain("plain"),
    ];
    let fixture = RunningPods::begin(cluster, &users).await?;
    let tainted = Instant::now();
    fixture.taint(&all, Some("NoExecute")).await?;
    fixture.pods_become(&["brief", "forever", "patient"]).await?;
    fixture.event("plain", "Marking for deletion").await?;
    fixture.pods_become(&["forever", "patient"]).await?;
    // The time of a taint has no fractions.
    ensure!(tainted.elapsed() >= Duration::from_secs(7), "evicted after {:?}", tainted.elapsed());
    fixture.pods_stay(&["forever", "patient"]).await?;
    fixture.taint(&all, None).await?;
    fixture.event("patient", "Cancelling deletion").await?;
    fixture.pods_stay(&["forever", "patient"]).await?;
    cluster.checkpoint("the devices are not tainted any more").await;
    fixture.end().await
}

/// Proves DTE-101.
pub(crate) async fn admin_access_does_not_keep_a_pod_on_a_tainted_device(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let admin = |user: DeviceUser| DeviceUser { admin_access: true, ..user };
    let users = [admin(plain("monitor")), admin(tolerating("tolerant", None)), plain("user")];
    let fixture = RunningPods::begin(cluster, &users).await?;
    let rules: Api<DeviceTaintRule> = Api::all(cluster.admin.clone());
    let rule = |device: &str| {
        let selector = json!({"driver": fixture.driver, "pool": "p", "device": device});
        let name = format!("{}-{device}", fixture.driver);
        let spec = json!({"deviceSelector": selector, "taint": {"key": "hot", "effect": "NoExecute"}});
        (name.clone(), json!({"metadata": {"name": name}, "spec": spec}))
    };
    let mut names = Vec::new();
    for (device, left) in
        [("tolerant", &["monitor", "tolerant", "user"][..]), ("monitor", &["tolerant", "user"])]
    {
        let (name, rule) = rule(device);
        cluster.create(&rules, rule).await?;
        names.push(name);
        fixture.pods_become(left).await?;
        fixture.pods_stay(left).await?;
    }
    let message = condition_becomes(cluster, &rules, &names[1], "Completed").await?;
    ensure!(message == "1 pod evicted since starting the controller.", "{message}");
    condition_becomes(cluster, &rules, &names[0], "NotStarted").await?;
    cluster.checkpoint("the pod with adminAccess is evicted").await;
    for name in &names {
        rules.delete(name, &DeleteParams::default()).await?;
    }
    fixture.end().await
}

/// Proves DTE-1, DTE-47, DTE-50.
pub(crate) async fn device_taints_without_effect_evict_nothing(cluster: &TestCluster) -> anyhow::Result<()> {
    let all = ["brief", "plain"];
    let fixture = RunningPods::begin(cluster, &[tolerating("brief", Some(5)), plain("plain")]).await?;
    for effect in ["None", "NoSchedule"] {
        fixture.taint(&all, Some(effect)).await?;
        fixture.pods_stay(&all).await?;
    }
    let rules: Api<DeviceTaintRule> = Api::all(cluster.admin.clone());
    let name = &fixture.driver;
    let spec =
        json!({"deviceSelector": {"driver": name, "pool": "p"}, "taint": {"key": "hot", "effect": "None"}});
    cluster.create(&rules, json!({"metadata": {"name": name}, "spec": spec})).await?;
    let message = condition_becomes(cluster, &rules, name, "NoEffect").await?;
    let expected = "2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if";
    ensure!(message.starts_with(expected), "{message}");
    fixture.pods_stay(&all).await?;
    let patch = Patch::Merge(json!({"spec": {"taint": {"effect": "NoSchedule"}}}));
    rules.patch(name, &PatchParams::default(), &patch).await?;
    let message = condition_becomes(cluster, &rules, name, "OtherEffect").await?;
    ensure!(message == "Eviction only happens for the NoExecute effect.", "{message}");
    fixture.pods_stay(&all).await?;
    cluster.checkpoint("no pod is evicted").await;
    rules.delete(name, &DeleteParams::default()).await?;
    fixture.end().await
}
