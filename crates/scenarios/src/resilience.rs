//! Crashes, restarts and pauses lose no work: whatever was requested before, during or after is done.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::DeleteParams;
use serde_json::json;

use crate::TestCluster;
use crate::tokens::{token, token_secret};

/// How long etcd is down: longer than the retries of the token controller take, and shorter than the lease
/// duration.
const ETCD_DOWN_FOR: Duration = Duration::from_secs(6);

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
