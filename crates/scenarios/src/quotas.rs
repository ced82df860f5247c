//! ResourceQuotas: what is used, refused and freed.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::custom_kind::CustomKind;

/// A namespace with quotas.
struct QuotaFixture<'w> {
    cluster: &'w TestCluster,
    name: String,
    quotas: Api<ResourceQuota>,
}

impl<'w> QuotaFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let name = cluster.namespace("quotas").await?;
        Ok(Self { cluster, quotas: cluster.api(&name), name })
    }

    /// Creates a quota and waits until its usage is published and the API server has noticed.
    async fn quota(&self, name: &str, spec: Value, used: Value) -> anyhow::Result<()> {
        self.cluster.create(&self.quotas, json!({"metadata": {"name": name}, "spec": spec})).await?;
        self.used_becomes(name, used).await?;
        self.cluster.settle().await;
        Ok(())
    }

    async fn used(&self, name: &str) -> anyhow::Result<Value> {
        let status = self.quotas.get(name).await?.status.unwrap_or_default();
        Ok(json!(status.used.unwrap_or_default()))
    }

    async fn used_becomes(&self, name: &str, wanted: Value) -> anyhow::Result<()> {
        let ask = async || Ok((self.used(name).await? == wanted).then_some(()));
        let last = self.cluster.eventually(&format!("{wanted} is used of quota {name}"), ask).await;
        match last {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("{} is used", self.used(name).await?))),
        }
    }

    /// A pod without a node. The service account of the namespace may not exist yet.
    async fn pod(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let mut pod =
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "none"}]}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        let pods = self.cluster.api::<Pod>(&self.name);
        let create = async || Ok(self.cluster.create(&pods, pod.clone()).await.ok().map(drop));
        self.cluster.eventually(&format!("pod {name}"), create).await
    }
}

/// Containers with a CPU request.
fn with_cpu(cpu: &str) -> Value {
    json!([{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}])
}

/// The message of a refused request.
fn refusal<T>(result: anyhow::Result<T>) -> anyhow::Result<String> {
    let Err(error) = result else { anyhow::bail!("it was not refused") };
    let status = error.downcast_ref::<kube::Error>().context("an API error")?;
    let kube::Error::Api(status) = status else { anyhow::bail!("{error}") };
    ensure!(status.code == 403, "{status:?}");
    Ok(status.message.clone())
}

/// Proves RQ-11.
pub(crate) async fn custom_resources_use_up_a_quota_and_free_it(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let kind = CustomKind::define(cluster, &fixture.name, &["v1"]).await?;
    kind.create(json!({"name": "first"})).await?;
    let name = format!("count/wishes.{}", kind.group);
    let hard = json!({name.clone(): "1"});
    // A quota gets no usage of a kind that is not monitored yet, and none is enqueued when it is: only a new one is.
    let counted = async || {
        match fixture.quotas.get_opt("wishes").await? {
            Some(quota) => {
                let status = quota.status.unwrap_or_default();
                if status.used.is_some_and(|used| used.contains_key(&name)) {
                    return Ok(Some(()));
                }
                if status.hard.is_some() {
                    fixture.quotas.delete("wishes", &DeleteParams::default()).await?;
                }
            }
            None => {
                let quota = json!({"metadata": {"name": "wishes"}, "spec": {"hard": hard}});
                cluster.create(&fixture.quotas, quota).await?;
            }
        }
        Ok(None)
    };
    cluster.eventually("the custom kind is counted", counted).await?;
    fixture.used_becomes("wishes", json!({name.clone(): "1"})).await?;
    cluster.settle().await;
    let second =
        json!({"apiVersion": format!("{}/v1", kind.group), "kind": "Wish", "metadata": {"name": "second"}});
    let message = refusal(cluster.create(&kind.api, second).await)?;
    let expected = format!("exceeded quota: wishes, requested: {name}=1, used: {name}=1, limited: {name}=1");
    ensure!(message.ends_with(&expected), "{message}");
    cluster.checkpoint("the quota is used up").await;
    kind.api.delete("first", &DeleteParams::default()).await?;
    fixture.used_becomes("wishes", json!({name.clone(): "0"})).await?;
    cluster.settle().await;
    kind.create(json!({"name": "third"})).await?;
    fixture.used_becomes("wishes", json!({name: "1"})).await?;
    cluster.checkpoint("it was freed and used again").await;
    fixture.quotas.delete("wishes", &DeleteParams::default()).await?;
    kind.remove().await
}

pub(crate) async fn scopes_select_the_pods_of_a_quota(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let class = format!("{}-high", fixture.name);
    let classes: Api<PriorityClass> = Api::all(cluster.admin.clone());
    cluster.create(&classes, json!({"metadata": {"name": class}, "value": 1000})).await?;
    let scoped = |scope: &str| json!({"hard": {"pods": "10"}, "scopes": [scope]});
    let none = json!({"pods": "0"});
    for (name, scope) in
        [("best-effort", "BestEffort"), ("terminating", "Terminating"), ("lasting", "NotTerminating")]
    {
        fixture.quota(name, scoped(scope), none.clone()).await?;
    }
    let selector =
        json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [class]}]});
    let high = json!({"hard": {"pods": "10", "cpu": "2", "count/pods": "10"}, "scopeSelector": selector});
    fixture.quota("high", high, json!({"count/pods": "0", "cpu": "0", "pods": "0"})).await?;
    fixture.pod("plain", json!({})).await?;
    fixture.pod("short", json!({"activeDeadlineSeconds": 3600})).await?;
    fixture.pod("urgent", json!({"priorityClassName": class, "containers": with_cpu("1500m")})).await?;
    for (name, used) in [("best-effort", "2"), ("terminating", "1"), ("lasting", "2")] {
        fixture.used_becomes(name, json!({"pods": used})).await?;
    }
    fixture.used_becomes("high", json!({"count/pods": "1", "cpu": "1500m", "pods": "1"})).await?;
    cluster.checkpoint("every pod is in its scopes").await;
    // A finished pod frees what it used, but is still an object.
    let pods = cluster.api::<Pod>(&fixture.name);
    let finished = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("urgent", &PatchParams::default(), &finished).await?;
    fixture.used_becomes("high", json!({"count/pods": "1", "cpu": "0", "pods": "0"})).await?;
    fixture.used_becomes("lasting", json!({"pods": "1"})).await?;
    cluster.checkpoint("a pod has finished").await;
    for name in ["plain", "short", "urgent"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    }
    for name in ["best-effort", "terminating", "lasting"] {
        fixture.used_becomes(name, none.clone()).await?;
    }
    fixture.used_becomes("high", json!({"count/pods": "0", "cpu": "0", "pods": "0"})).await?;
    classes.delete(&class, &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn services_and_volume_claims_use_a_quota(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let ports = json!({"services": "5", "services.nodeports": "2", "services.loadbalancers": "1"});
    let no_ports = json!({"services": "0", "services.nodeports": "0", "services.loadbalancers": "0"});
    fixture.quota("ports", json!({"hard": ports}), no_ports.clone()).await?;
    let fast = "fast.storageclass.storage.k8s.io/requests.storage";
    let hard = json!({"requests.storage": "10Gi", fast: "2Gi", "persistentvolumeclaims": "5"});
    fixture
        .quota(
            "volumes",
            json!({"hard": hard}),
            json!({"requests.storage": "0", fast: "0", "persistentvolumeclaims": "0"}),
        )
        .await?;
    let services = cluster.api::<Service>(&fixture.name);
    let service = |name: &str, kind: &str| {
        json!({"metadata": {"name": name}, "spec": {"type": kind, "selector": {"app": name},
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
    };
    let mut open = service("open", "NodePort");
    // Otherwise the API server draws them at random.
    open["spec"]["ports"][0]["nodePort"] = json!(30717);
    open["spec"]["ports"][1]["nodePort"] = json!(30718);
    cluster.create(&services, open).await?;
    let message = refusal(cluster.create(&services, service("more", "NodePort")).await)?;
    let expected = "exceeded quota: ports, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=2";
    ensure!(message.ends_with(expected), "{message}");
    fixture
        .used_becomes(
            "ports",
            json!({"services": "1", "services.nodeports": "2", "services.loadbalancers": "0"}),
        )
        .await?;
    let claims = cluster.api::<PersistentVolumeClaim>(&fixture.name);
    let claim = |name: &str, class: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}}}})
    };
    cluster.create(&claims, claim("slow", "slow", "4Gi")).await?;
    cluster.create(&claims, claim("fast", "fast", "1536Mi")).await?;
    let message = refusal(cluster.create(&claims, claim("large", "fast", "1Gi")).await)?;
    ensure!(message.contains("exceeded quota: volumes"), "{message}");
    let used = json!({"requests.storage": "5632Mi", fast: "1536Mi", "persistentvolumeclaims": "2"});
    fixture.used_becomes("volumes", used).await?;
    cluster.checkpoint("ports and storage are used").await;
    let closed = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    services.patch("open", &PatchParams::default(), &closed).await?;
    fixture
        .used_becomes(
            "ports",
            json!({"services": "1", "services.nodeports": "0", "services.loadbalancers": "0"}),
        )
        .await?;
    services.delete("open", &DeleteParams::default()).await?;
    fixture.used_becomes("ports", no_ports).await
}

pub(crate) async fn changed_limits_of_a_quota_are_published(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    fixture
        .quota(
            "limits",
            json!({"hard": {"pods": "2", "services": "1"}}),
            json!({"pods": "0", "services": "0"}),
        )
        .await?;
    fixture.pod("one", json!({"containers": with_cpu("250m")})).await?;
    fixture.pod("two", json!({"containers": with_cpu("500m")})).await?;
    fixture.used_becomes("limits", json!({"pods": "2", "services": "0"})).await?;
    let set = async |hard: Value| -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"hard": hard}}));
        fixture.quotas.patch("limits", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    // Fewer pods than there are, CPU, no Services, and a resource that nothing computes.
    set(json!({"pods": "1", "services": null, "requests.cpu": "4", "count/unheard-of.example.com": "3"}))
        .await?;
    fixture.used_becomes("limits", json!({"pods": "2", "requests.cpu": "750m"})).await?;
    let status = fixture.quotas.get("limits").await?.status.unwrap_or_default();
    let hard = json!(status.hard.unwrap_or_default());
    ensure!(hard == json!({"pods": "1", "requests.cpu": "4", "count/unheard-of.example.com": "3"}), "{hard}");
    cluster.checkpoint("the limits have changed").await;
    let unknown = json!({"metadata": {"name": "bad"}, "spec": {"hard": {"unheard-of": "1"}}});
    ensure!(cluster.create(&fixture.quotas, unknown).await.is_err(), "a name without a domain");
    let malformed = json!({"metadata": {"name": "bad"}, "spec": {"hard": {"count/unheard-of.example.com": "1500m", "pods": "-1"}}});
    ensure!(cluster.create(&fixture.quotas, malformed).await.is_err(), "a negative limit");
    Ok(())
}

/// Proves RQ-32, RQ-46, RQ-50, RQ-104.
pub(crate) async fn resized_pods_and_runtime_overhead_use_a_quota(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let class = format!("{}-heavy", fixture.name);
    let classes: Api<RuntimeClass> = Api::all(cluster.admin.clone());
    let overhead = json!({"podFixed": {"cpu": "250m"}});
    cluster
        .create(&classes, json!({"metadata": {"name": class}, "handler": "none", "overhead": overhead}))
        .await?;
    let cpu = |used: &str| json!({"requests.cpu": used});
    fixture.quota("cpu", json!({"hard": {"requests.cpu": "2"}}), cpu("0")).await?;
    fixture.pod("heavy", json!({"runtimeClassName": class, "containers": with_cpu("500m")})).await?;
    fixture.used_becomes("cpu", cpu("750m")).await?;
    fixture.pod("resized", json!({"containers": with_cpu("500m")})).await?;
    fixture.used_becomes("cpu", cpu("1250m")).await?;
    cluster.checkpoint("two pods").await;

    let pods = cluster.api::<Pod>(&fixture.name);
    let resize = async |cpu: &str| {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let patch = Patch::Strategic(json!({"spec": {"containers": [container]}}));
        pods.patch_subresource("resize", "resized", &PatchParams::default(), &patch).await
    };
    let report = async |cpu: &str| -> anyhow::Result<()> {
        let status = json!({"name": "c", "image": "none", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}});
        let patch = Patch::Merge(json!({"status": {"phase": "Running", "containerStatuses": [status]}}));
        pods.patch_status("resized", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    // Only a container that was reported before can report other resources.
    report("500m").await?;
    let message = refusal(resize("1500m").await.map_err(anyhow::Error::from))?;
    let expected =
        "exceeded quota: cpu, requested: requests.cpu=1, used: requests.cpu=1250m, limited: requests.cpu=2";
    ensure!(message.ends_with(expected), "{message}");
    resize("1250m").await.context("a pod that grows to the limit")?;
    fixture.used_becomes("cpu", cpu("2")).await?;
    cluster.checkpoint("the quota is used up").await;
    // A pod that shrinks frees nothing until its node reports what the container really has.
    resize("250m").await.context("a pod that shrinks")?;
    cluster.settle().await;
    fixture.used_becomes("cpu", cpu("2")).await?;
    report("1").await?;
    fixture.used_becomes("cpu", cpu("1750m")).await?;
    report("250m").await?;
    fixture.used_becomes("cpu", cpu("1")).await?;
    cluster.checkpoint("the resize is complete").await;
    pods.delete("heavy", &DeleteParams::default().grace_period(0)).await?;
    fixture.used_becomes("cpu", cpu("250m")).await?;
    classes.delete(&class, &DeleteParams::default()).await?;
    Ok(())
}

/// Proves RQ-54, RQ-65, RQ-66.
pub(crate) async fn classes_of_pods_and_volume_claims_are_scopes(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let selector = |scope: &str, operator: &str, values: Value| {
        let mut expression = json!({"scopeName": scope, "operator": operator});
        if !values.is_null() {
            expression["values"] = values;
        }
        json!({"matchExpressions": [expression]})
    };
    let class = format!("{}-urgent", fixture.name);
    let priorities: Api<PriorityClass> = Api::all(cluster.admin.clone());
    cluster.create(&priorities, json!({"metadata": {"name": class}, "value": 1000})).await?;
    let pods_with = |operator: &str, values: Value, count: &str| json!({"hard": {"pods": count}, "scopeSelector": selector("PriorityClass", operator, values)});
    let used = |pods: &str| json!({"pods": pods});
    fixture.quota("urgent", pods_with("In", json!([class]), "1"), used("0")).await?;
    fixture.quota("others", pods_with("NotIn", json!([class]), "9"), used("0")).await?;
    fixture.quota("any", pods_with("Exists", Value::Null, "9"), used("0")).await?;
    fixture.pod("first", json!({"priorityClassName": class})).await?;
    fixture.pod("plain", json!({})).await?;
    let pods = cluster.api::<Pod>(&fixture.name);
    let second = json!({"metadata": {"name": "second"}, "spec": {"priorityClassName": class,
        "containers": [{"name": "c", "image": "none"}]}});
    let message = refusal(cluster.create(&pods, second).await)?;
    let expected = "exceeded quota: urgent, requested: pods=1, used: pods=1, limited: pods=1";
    ensure!(message.ends_with(expected), "{message}");
    for name in ["urgent", "others", "any"] {
        fixture.used_becomes(name, used("1")).await?;
    }

    let claims = cluster.api::<PersistentVolumeClaim>(&fixture.name);
    let gold = selector("VolumeAttributesClass", "In", json!(["gold"]));
    let storage =
        |claims: &str, size: &str| json!({"persistentvolumeclaims": claims, "requests.storage": size});
    fixture
        .quota("gold", json!({"hard": storage("2", "3Gi"), "scopeSelector": gold}), storage("0", "0"))
        .await?;
    let claim = |name: &str, class: Value, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "volumeAttributesClassName": class, "resources": {"requests": {"storage": size}}}})
    };
    cluster.create(&claims, claim("gold", json!("gold"), "1Gi")).await?;
    cluster.create(&claims, claim("plain", Value::Null, "2Gi")).await?;
    cluster.create(&claims, claim("silver", json!("silver"), "2Gi")).await?;
    let message = refusal(cluster.create(&claims, claim("large", json!("gold"), "2560Mi")).await)?;
    let expected = "exceeded quota: gold, requested: requests.storage=2560Mi, used: requests.storage=1Gi, limited: requests.storage=3Gi";
    ensure!(message.ends_with(expected), "{message}");
    fixture.used_becomes("gold", storage("1", "1Gi")).await?;
    cluster.checkpoint("every object is in its scopes").await;
    // A volume that has the class already counts, too.
    let current = Patch::Merge(json!({"status": {"currentVolumeAttributesClassName": "gold"}}));
    claims.patch_status("silver", &PatchParams::default(), &current).await?;
    fixture.used_becomes("gold", storage("2", "3Gi")).await?;
    cluster.checkpoint("a volume has another class").await;
    priorities.delete(&class, &DeleteParams::default()).await?;
    Ok(())
}

/// Proves RQ-67, RQ-68, RQ-69.
pub(crate) async fn resource_claims_use_the_devices_of_a_quota(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = QuotaFixture::create(cluster).await?;
    let (count, fast, slow) = (
        "count/resourceclaims.resource.k8s.io",
        "fast.deviceclass.resource.k8s.io/devices",
        "slow.deviceclass.resource.k8s.io/devices",
    );
    let used =
        |claims: &str, of_fast: &str, of_slow: &str| json!({count: claims, fast: of_fast, slow: of_slow});
    fixture.quota("devices", json!({"hard": used("3", "3", "40")}), used("0", "0", "0")).await?;
    let claims = cluster.api::<ResourceClaim>(&fixture.name);
    let claim = |name: &str, request: Value| json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
    let exactly = |class: &str, count: i64| json!({"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}});
    cluster.create(&claims, claim("two", exactly("fast", 2))).await?;
    let message = refusal(cluster.create(&claims, claim("more", exactly("fast", 2))).await)?;
    let expected = format!("exceeded quota: devices, requested: {fast}=2, used: {fast}=2, limited: {fast}=3");
    ensure!(message.ends_with(&expected), "{message}");
    let all = json!({"name": "r", "exactly": {"deviceClassName": "slow", "allocationMode": "All"}});
    cluster.create(&claims, claim("all", all)).await?;
    let either = json!({"name": "r", "firstAvailable": [
        {"name": "a", "deviceClassName": "fast", "allocationMode": "ExactCount", "count": 1},
        {"name": "b", "deviceClassName": "slow", "allocationMode": "ExactCount", "count": 2},
    ]});
    cluster.create(&claims, claim("either", either)).await?;
    fixture.used_becomes("devices", used("3", "3", "34")).await?;
    cluster.checkpoint("the devices are used up").await;
    let message = refusal(cluster.create(&claims, claim("fourth", exactly("other", 1))).await)?;
    ensure!(message.contains(&format!("requested: {count}=1")), "{message}");
    for name in ["two", "all"] {
        claims.delete(name, &DeleteParams::default()).await?;
    }
    fixture.used_becomes("devices", used("1", "1", "2")).await?;
    cluster.checkpoint("devices are freed").await;
    Ok(())
}
