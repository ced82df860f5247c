//! ServiceCIDRs: their finalizer and condition, and when a deleted one goes.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::TestCluster;
use crate::test_cluster::set_finalizers;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// The ServiceCIDRs of a cluster, and a namespace with Services.
struct ServiceCidrFixture<'w> {
    cluster: &'w TestCluster,
    ranges: Api<ServiceCIDR>,
    services: Api<Service>,
    namespace: String,
}

impl<'w> ServiceCidrFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace("ranges").await?;
        let ranges = Api::all(cluster.admin.clone());
        Ok(Self { cluster, ranges, services: cluster.api(&namespace), namespace })
    }

    fn name(&self, range: &str) -> String {
        format!("{}-{range}", self.namespace)
    }

    /// Creates a ServiceCIDR and waits until it is ready and has its finalizer.
    async fn range(&self, name: &str, cidr: &str, finalizers: &[&str]) -> anyhow::Result<()> {
        let metadata = json!({"name": self.name(name), "finalizers": finalizers});
        self.cluster.create(&self.ranges, json!({"metadata": metadata, "spec": {"cidrs": [cidr]}})).await?;
        let ready = json!(["True", "", "Kubernetes Service CIDR is ready"]);
        self.condition_becomes(name, &ready).await?;
        let there = self.ranges.get(&self.name(name)).await?.metadata.finalizers.unwrap_or_default();
        let has_all =
            finalizers.iter().chain([&FINALIZER]).all(|finalizer| there.iter().any(|one| one == finalizer));
        ensure!(has_all && there.len() == finalizers.len() + 1, "{there:?}");
        Ok(())
    }

    /// Status, reason and message of the Ready condition.
    async fn condition(&self, name: &str) -> anyhow::Result<Value> {
        let object = serde_json::to_value(self.ranges.get(&self.name(name)).await?)?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
        Ok(json!([ready["status"], ready["reason"], ready["message"]]))
    }

    async fn condition_becomes(&self, name: &str, expected: &Value) -> anyhow::Result<()> {
        let ask = async || Ok((self.condition(name).await? == *expected).then_some(()));
        self.cluster.eventually(&format!("{name} has the condition {expected}"), ask).await
    }

    async fn is_blocked(&self, name: &str) -> anyhow::Result<()> {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                       ServiceCIDR";
        self.condition_becomes(name, &json!(["False", "Terminating", message])).await
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.ranges.delete(&self.name(name), &DeleteParams::default()).await?;
        Ok(())
    }

    async fn is_gone(&self, name: &str) -> anyhow::Result<()> {
        let ask = async || Ok(self.ranges.get_opt(&self.name(name)).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("{name} is gone"), ask).await
    }

    /// Creates a Service with an address; the allocator may take a moment to observe the range.
    async fn service(&self, name: &str, address: &str) -> anyhow::Result<()> {
        let service = json!({"metadata": {"name": name},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
        let create = async || Ok(self.cluster.create(&self.services, service.clone()).await.ok());
        self.cluster.eventually("a Service", create).await?;
        let addresses: Api<IPAddress> = Api::all(self.cluster.admin.clone());
        let object = serde_json::to_value(addresses.get(address).await.context("its IPAddress")?)?;
        let parent = json!({"resource": "services", "namespace": self.namespace, "name": name});
        let is_own = ["resource", "namespace", "name"]
            .iter()
            .all(|field| object["spec"]["parentRef"][field] == parent[field]);
        ensure!(is_own, "{object}");
        Ok(())
    }
}

pub(crate) async fn service_cidr_in_use_is_kept_until_its_last_address_is_gone(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ServiceCidrFixture::create(cluster).await?;
    fixture.range("used", "172.30.1.0/24", &[]).await?;
    fixture.service("first", "172.30.1.5").await?;
    fixture.service("second", "172.30.1.6").await?;
    cluster.checkpoint("two Services have addresses").await;
    fixture.delete("used").await?;
    fixture.is_blocked("used").await?;
    fixture.services.delete("first", &DeleteParams::default()).await?;
    cluster.settle().await;
    fixture.is_blocked("used").await?;
    cluster.checkpoint("the ServiceCIDR waits for its last address").await;
    fixture.services.delete("second", &DeleteParams::default()).await?;
    fixture.is_gone("used").await
}

pub(crate) async fn nested_service_cidr_goes_and_an_equal_one_frees_another(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ServiceCidrFixture::create(cluster).await?;
    fixture.range("wide", "172.31.0.0/16", &[]).await?;
    fixture.range("narrow", "172.31.1.0/24", &[]).await?;
    fixture.service("web", "172.31.1.5").await?;
    fixture.delete("narrow").await?;
    fixture.is_gone("narrow").await?;
    fixture.delete("wide").await?;
    fixture.is_blocked("wide").await?;
    cluster.checkpoint("the nested ServiceCIDR is gone").await;
    fixture.range("equal", "172.31.0.0/16", &[]).await?;
    fixture.is_gone("wide").await?;
    cluster.checkpoint("an equal ServiceCIDR is left").await;
    fixture.delete("equal").await?;
    fixture.is_blocked("equal").await?;
    fixture.services.delete("web", &DeleteParams::default()).await?;
    fixture.is_gone("equal").await
}

pub(crate) async fn unused_service_cidr_goes_after_ten_seconds_and_keeps_foreign_finalizers(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ServiceCidrFixture::create(cluster).await?;
    fixture.range("unused", "172.29.1.0/24", &["example.com/keep"]).await?;
    let began = Instant::now();
    fixture.delete("unused").await?;
    let only_foreign = async || {
        let object = serde_json::to_value(fixture.ranges.get(&fixture.name("unused")).await?)?;
        Ok((object["metadata"]["finalizers"] == json!(["example.com/keep"])).then_some(()))
    };
    cluster.eventually("the finalizer is removed", only_foreign).await?;
    // Timestamps of the API have whole seconds.
    ensure!(began.elapsed() >= Duration::from_secs(9), "after {:?}", began.elapsed());
    let condition = fixture.condition("unused").await?;
    ensure!(condition[0] == "True", "it was never blocked: {condition}");
    cluster.checkpoint("the foreign finalizer is left").await;
    set_finalizers(&fixture.ranges, &fixture.name("unused"), &[]).await?;
    fixture.is_gone("unused").await
}
