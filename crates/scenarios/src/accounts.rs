//! Every namespace has its `default` ServiceAccount.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::TestCluster;

/// The ServiceAccount with this name, if it exists and has another UID.
pub(crate) async fn service_account_other_than(
    accounts: &Api<ServiceAccount>,
    name: &str,
    uid: Option<&str>,
) -> anyhow::Result<Option<ServiceAccount>> {
    Ok(accounts.get_opt(name).await?.filter(|account| account.metadata.uid.as_deref() != uid))
}

/// Proves SA-13, SA-14, SA-15, SA-40, SA-45.
pub(crate) async fn namespace_gets_its_default_service_account(cluster: &TestCluster) -> anyhow::Result<()> {
    for system in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let accounts = cluster.api::<ServiceAccount>(system);
        cluster.eventually(system, async || Ok(accounts.get_opt("default").await?)).await?;
    }
    let namespace = cluster.namespace("accounts").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let first = cluster
        .eventually("the default ServiceAccount", async || {
            service_account_other_than(&accounts, "default", None).await
        })
        .await?;
    ensure!(first.secrets.is_none(), "the ServiceAccount has no Secrets");
    ensure!(first.metadata.labels.is_none(), "the ServiceAccount has no labels");

    let uid = first.metadata.uid.as_deref();
    accounts.delete("default", &DeleteParams::default()).await?;
    let second = cluster
        .eventually("the recreated default ServiceAccount", async || {
            service_account_other_than(&accounts, "default", uid).await
        })
        .await?;

    cluster.create(&accounts, json!({"metadata": {"name": "other"}})).await?;
    accounts.delete("other", &DeleteParams::default()).await?;
    cluster.settle().await;
    ensure!(accounts.get_opt("other").await?.is_none(), "other ServiceAccounts are not recreated");
    ensure!(
        accounts.get("default").await?.metadata.uid == second.metadata.uid,
        "the default ServiceAccount is kept"
    );
    Ok(())
}

/// Proves SA-11, SA-22.
pub(crate) async fn terminating_namespace_gets_no_service_account(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("terminating").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    cluster.eventually("the default ServiceAccount", async || Ok(accounts.get_opt("default").await?)).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    // The namespace controller may have deleted it already.
    cluster.delete_if_exists(&accounts, "default").await?;
    let deleted = async || Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()));
    cluster.eventually("the deletion of the namespace", deleted).await
}
