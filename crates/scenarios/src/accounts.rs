//! Every namespace has its `default` account.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::World;

/// The account of a name, once it is there and is not the one with this uid.
pub(crate) async fn account_other_than(
    accounts: &Api<ServiceAccount>,
    name: &str,
    uid: Option<&str>,
) -> anyhow::Result<Option<ServiceAccount>> {
    Ok(accounts.get_opt(name).await?.filter(|account| account.metadata.uid.as_deref() != uid))
}

/// Proves SA-13, SA-14, SA-15, SA-40, SA-45.
pub(crate) async fn a_namespace_has_its_default_account(world: &World) -> anyhow::Result<()> {
    for system in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let accounts = world.api::<ServiceAccount>(system);
        world.eventually(system, async || Ok(accounts.get_opt("default").await?)).await?;
    }
    let namespace = world.namespace("accounts").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    let first = world
        .eventually("the default account", async || account_other_than(&accounts, "default", None).await)
        .await?;
    ensure!(first.secrets.is_none(), "no Secret is made for an account");
    ensure!(first.metadata.labels.is_none(), "it is bare");

    let uid = first.metadata.uid.as_deref();
    accounts.delete("default", &DeleteParams::default()).await?;
    let second =
        world.eventually("its return", async || account_other_than(&accounts, "default", uid).await).await?;

    world.create(&accounts, json!({"metadata": {"name": "other"}})).await?;
    accounts.delete("other", &DeleteParams::default()).await?;
    world.settle().await;
    ensure!(accounts.get_opt("other").await?.is_none(), "other accounts are not brought back");
    ensure!(accounts.get("default").await?.metadata.uid == second.metadata.uid, "and the default one stays");
    Ok(())
}

/// Proves SA-11, SA-22.
pub(crate) async fn a_terminating_namespace_gets_nothing(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("going").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    world.eventually("the default account", async || Ok(accounts.get_opt("default").await?)).await?;
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    // Its end may have come before.
    world.delete_if_there(&accounts, "default").await?;
    let gone = async || Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()));
    world.eventually("the end of the namespace, in which nothing is made any more", gone).await
}
