//! Crashes, restarts and pauses lose no work: whatever was requested before, during or after is done.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::TestCluster;
use crate::tokens::{token, token_secret};

/// How long etcd is down: longer than the retries of the token controller take, and shorter than the lease
/// duration.
const ETCD_DOWN_FOR: Duration = Duration::from_secs(6);

/// A list that takes longer than this has failed.
const LIST_WITHIN: Duration = Duration::from_secs(3);

/// Namespaces that were created at one moment, each with a ServiceAccount and a token Secret.
struct WorkBatch {
    namespaces: Vec<String>,
}

impl WorkBatch {
    /// Creates ten of them, without waiting for the results.
    async fn create(cluster: &TestCluster, when: &str) -> anyhow::Result<Self> {
        let mut namespaces = Vec::new();
        for _ in 0..10 {
            let namespace = cluster.namespace(when).await?;
            let accounts = cluster.api::<ServiceAccount>(&namespace);
            cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
            cluster.create(&cluster.api::<Secret>(&namespace), token_secret("t", "builder")).await?;
            namespaces.push(namespace);
        }
        Ok(Self { namespaces })
    }

    /// Waits until all results exist, and returns the UIDs of the default ServiceAccounts and the tokens.
    async fn wait_until_done(&self, cluster: &TestCluster) -> anyhow::Result<Vec<(String, String)>> {
        let mut seen = Vec::new();
        for namespace in &self.namespaces {
            let accounts = cluster.api::<ServiceAccount>(namespace);
            let secrets = cluster.api::<Secret>(namespace);
            let what = format!("the default ServiceAccount of {namespace}");
            let account =
                eventually_with_restarts(cluster, &what, async || Ok(accounts.get_opt("default").await?));
            let account = account.await?;
            let what = format!("the token in {namespace}");
            let token = eventually_with_restarts(cluster, &what, async || token(&secrets, "t").await).await?;
            seen.push((account.metadata.uid.context("a uid")?, token));
        }
        Ok(seen)
    }

    /// Deletes the ServiceAccounts, without waiting for the results.
    async fn delete_accounts(&self, cluster: &TestCluster) -> anyhow::Result<()> {
        for namespace in &self.namespaces {
            cluster.api::<ServiceAccount>(namespace).delete("builder", &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Waits until the token Secrets of the deleted ServiceAccounts are gone.
    async fn wait_until_tokens_deleted(&self, cluster: &TestCluster) -> anyhow::Result<()> {
        for namespace in &self.namespaces {
            let secrets = cluster.api::<Secret>(namespace);
            let what = format!("the deletion of the token Secret in {namespace}");
            let is_deleted = async || Ok(secrets.get_opt("t").await?.is_none().then_some(()));
            eventually_with_restarts(cluster, &what, is_deleted).await?;
        }
        Ok(())
    }
}

/// Waits for something, and restarts the manager if it exits meanwhile.
async fn eventually_with_restarts<T>(
    cluster: &TestCluster,
    what: &str,
    ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let ask = async || {
        cluster.processes()?.ensure_manager_runs()?;
        ask().await
    };
    cluster.eventually(what, ask).await
}

/// Creates work before, during and after the fault, and expects all of it to be done, and nothing twice.
async fn expect_no_lost_work(
    cluster: &TestCluster,
    fault: impl AsyncFnOnce(&WorkBatch) -> anyhow::Result<WorkBatch>,
) -> anyhow::Result<()> {
    let before = WorkBatch::create(cluster, "before").await?;
    let expected = before.wait_until_done(cluster).await?;
    let doomed = WorkBatch::create(cluster, "doomed").await?;
    doomed.wait_until_done(cluster).await?;
    let during = fault(&doomed).await?;
    let after = WorkBatch::create(cluster, "after").await?;
    during.wait_until_done(cluster).await?;
    after.wait_until_done(cluster).await?;
    doomed.wait_until_tokens_deleted(cluster).await?;
    ensure!(
        before.wait_until_done(cluster).await? == expected,
        "objects created before the fault are unchanged"
    );
    Ok(())
}

/// Proves SA-43, SAT-64.
pub(crate) async fn killed_manager_loses_no_work(cluster: &TestCluster) -> anyhow::Result<()> {
    let plane = cluster.processes()?;
    expect_no_lost_work(cluster, async |doomed| {
        // Killed during work, twice; then objects are created and deleted while no manager runs.
        for _ in 0..2 {
            let _unfinished = WorkBatch::create(cluster, "unfinished").await?;
            plane.kill_manager()?;
            plane.start_manager()?;
        }
        let during = WorkBatch::create(cluster, "during").await?;
        plane.kill_manager()?;
        doomed.delete_accounts(cluster).await?;
        plane.start_manager()?;
        Ok(during)
    })
    .await
}

/// Proves INF-143.
pub(crate) async fn api_server_restart_loses_no_work(cluster: &TestCluster) -> anyhow::Result<()> {
    expect_no_lost_work(cluster, async |doomed| {
        let during = WorkBatch::create(cluster, "during").await?;
        doomed.delete_accounts(cluster).await?;
        cluster.processes()?.restart_api_server()?;
        Ok(during)
    })
    .await
}

pub(crate) async fn etcd_restart_loses_no_work(cluster: &TestCluster) -> anyhow::Result<()> {
    expect_no_lost_work(cluster, async |doomed| {
        let during = WorkBatch::create(cluster, "during").await?;
        doomed.delete_accounts(cluster).await?;
        cluster.processes()?.restart_etcd(ETCD_DOWN_FOR)?;
        Ok(during)
    })
    .await
}

pub(crate) async fn manager_paused_for_a_minute_loses_no_work(cluster: &TestCluster) -> anyhow::Result<()> {
    let plane = cluster.processes()?;
    expect_no_lost_work(cluster, async |doomed| {
        let pause = plane.pause_manager(Duration::from_secs(60));
        let ask = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            doomed.delete_accounts(cluster).await?;
            WorkBatch::create(cluster, "during").await
        };
        let ((), during) = futures::try_join!(pause, ask)?;
        Ok(during)
    })
    .await
}

/// Proves GC-140, RUN-124.
pub(crate) async fn undecodable_secret_affects_only_the_token_controller(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let real = cluster.processes()?.as_real().context("a real control plane")?;
    let namespace = cluster.namespace("undecodable").await?;
    let key = format!("/registry/secrets/{namespace}/undecodable");
    real.plane().put_in_etcd(&key, b"not an object")?;
    let result = expect_pods_without_secrets(cluster, &namespace).await;
    // Other scenarios need Secrets again.
    real.plane().delete_in_etcd(&key)?;
    result?;
    let secrets = cluster.api::<Secret>(&namespace);
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    let create = async || Ok(cluster.create(&secrets, token_secret("t", "builder")).await.ok());
    cluster.eventually("a Secret, once the API server can list them", create).await?;
    let filled = async || token(&secrets, "t").await;
    cluster.eventually("the token, once Secrets can be listed", filled).await?;
    Ok(())
}

/// While Secrets cannot be listed, a restarted manager creates the pods of a Deployment and deletes garbage.
async fn expect_pods_without_secrets(cluster: &TestCluster, namespace: &str) -> anyhow::Result<()> {
    wait_until_secrets_cannot_be_listed(cluster, namespace).await?;
    cluster.processes()?.kill_manager()?;
    cluster.processes()?.start_manager()?;
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]}}}});
    cluster.create(&cluster.api::<Deployment>(namespace), deployment).await?;
    let garbage = json!({"metadata": {"name": "garbage", "ownerReferences": [{"apiVersion": "v1",
        "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-0000-0000-00000000000b"}]}});
    let maps = cluster.api::<ConfigMap>(namespace);
    cluster.create(&maps, garbage).await?;
    let pods = cluster.api::<Pod>(namespace);
    let two_pods = async || Ok((pods.list(&ListParams::default()).await?.items.len() == 2).then_some(()));
    cluster.eventually("the pods of the Deployment", two_pods).await?;
    let is_collected = async || Ok(maps.get_opt("garbage").await?.is_none().then_some(()));
    cluster.eventually("the deletion of a ConfigMap whose owner does not exist", is_collected).await?;
    ensure!(!can_list_secrets(cluster, namespace).await, "Secrets could be listed meanwhile");
    Ok(())
}

pub(crate) async fn can_list_secrets(cluster: &TestCluster, namespace: &str) -> bool {
    let secrets = cluster.api::<Secret>(namespace);
    // The API server answers 429 with Retry-After, which a client may obey for ever.
    let list = tokio::time::timeout(LIST_WITHIN, secrets.list_metadata(&ListParams::default())).await;
    matches!(list, Ok(Ok(_)))
}

pub(crate) async fn wait_until_secrets_cannot_be_listed(
    cluster: &TestCluster,
    namespace: &str,
) -> anyhow::Result<()> {
    let fails = async || Ok((!can_list_secrets(cluster, namespace).await).then_some(()));
    cluster.eventually("a failing list of Secrets", fails).await
}
