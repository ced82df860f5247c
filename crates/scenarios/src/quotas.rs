//! ResourceQuotas: what is used, refused and freed.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
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
