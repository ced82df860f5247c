//! Token Secrets are filled, their tokens work, and they are deleted with their ServiceAccount.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

/// A token Secret as a user writes it.
pub(crate) fn token_secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    })
}

/// A value of a Secret, if it is there and not empty.
fn value(secret: &Secret, name: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(name)?.0;
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
}

/// The token of a Secret, once it is filled.
pub(crate) async fn token(secrets: &Api<Secret>, name: &str) -> anyhow::Result<Option<String>> {
    Ok(secrets.get(name).await.ok().and_then(|secret| value(&secret, "token")))
}

/// Proves SAT-34, SAT-60, SAT-66.
pub(crate) async fn token_secret_is_filled_and_deleted_with_its_service_account(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("tokens").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let secrets = cluster.api::<Secret>(&namespace);
    let account = cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    cluster.create(&secrets, token_secret("builder-token", "builder")).await?;
    cluster.create(&secrets, json!({"metadata": {"name": "plain"}, "stringData": {"a": "b"}})).await?;

    let token = cluster.eventually("the token", async || token(&secrets, "builder-token").await).await?;
    let filled = secrets.get("builder-token").await?;
    ensure!(value(&filled, "namespace").as_deref() == Some(&namespace), "the namespace is filled in");
    ensure!(
        value(&filled, "ca.crt").is_some_and(|ca| ca.contains("BEGIN CERTIFICATE")),
        "the CA is filled in"
    );
    let annotations = filled.metadata.annotations.unwrap_or_default();
    let uid = annotations.get("kubernetes.io/service-account.uid");
    ensure!(uid == account.metadata.uid.as_ref(), "the UID of the ServiceAccount is annotated");

    if let Some(plane) = &cluster.processes {
        let user = plane.identify(&token).await?;
        let wanted = format!("system:serviceaccount:{namespace}:builder");
        ensure!(user.as_deref() == Some(&wanted), "the token authenticates as {user:?}, not as {wanted}");
    }
    accounts.delete("builder", &DeleteParams::default()).await?;
    cluster
        .eventually("the deletion of the Secret", async || {
            Ok(secrets.get_opt("builder-token").await?.is_none().then_some(()))
        })
        .await?;
    ensure!(secrets.get_opt("plain").await?.is_some(), "other Secrets are not touched");
    if let Some(plane) = &cluster.processes {
        // The API server caches token authentication for ten seconds.
        let what = "the revocation of the token";
        cluster.eventually(what, async || Ok(plane.identify(&token).await?.is_none().then_some(()))).await?;
    }
    Ok(())
}

/// The annotation is chosen by a user who may write the Secret; it must not reach another ServiceAccount.
pub(crate) async fn token_secret_gets_no_token_of_a_service_account_it_does_not_name(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("tokens").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let secrets = cluster.api::<Secret>(&namespace);
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    let other = "../../kube-system/serviceaccounts/default";
    for (name, account) in [("dots", "x/../builder"), ("elsewhere", other), ("percent", "builder%3Fx")] {
        cluster.create(&secrets, token_secret(name, account)).await?;
    }
    for (name, account) in [("query", "builder?x"), ("fragment", "builder#x")] {
        cluster.create(&secrets, token_secret(name, account)).await?;
        let deleted = async || Ok(secrets.get_opt(name).await?.is_none().then_some(()));
        cluster.eventually("the deletion of the Secret", deleted).await?;
    }
    cluster.create(&secrets, token_secret("own", "builder")).await?;
    cluster.eventually("the token", async || token(&secrets, "own").await).await?;
    cluster.settle().await;
    for name in ["dots", "elsewhere", "percent"] {
        ensure!(token(&secrets, name).await?.is_none(), "{name} has a token");
    }
    Ok(())
}

/// Proves SAT-61.
pub(crate) async fn token_secret_without_service_account_is_deleted(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("tokens").await?;
    let secrets = cluster.api::<Secret>(&namespace);
    cluster.create(&secrets, token_secret("orphan", "absent")).await?;
    cluster
        .eventually("the deletion of the Secret", async || {
            Ok(secrets.get_opt("orphan").await?.is_none().then_some(()))
        })
        .await
}

/// Proves SAT-31, SAT-52.
pub(crate) async fn deleted_token_secret_is_removed_from_its_service_account(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("tokens").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let secrets = cluster.api::<Secret>(&namespace);
    let listed = json!([{"name": "kept"}, {"name": "listed"}]);
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}, "secrets": listed})).await?;
    cluster.create(&secrets, token_secret("listed", "builder")).await?;
    cluster.eventually("the token", async || token(&secrets, "listed").await).await?;
    secrets.delete("listed", &DeleteParams::default()).await?;
    cluster
        .eventually("a shorter list", async || {
            let names: Vec<_> = accounts
                .get("builder")
                .await?
                .secrets
                .unwrap_or_default()
                .into_iter()
                .filter_map(|s| s.name)
                .collect();
            Ok((names == ["kept"]).then_some(()))
        })
        .await
}

/// Proves SAT-65.
pub(crate) async fn emptied_token_secret_is_refilled(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("tokens").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let secrets = cluster.api::<Secret>(&namespace);
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    cluster.create(&secrets, token_secret("t", "builder")).await?;
    cluster.eventually("the token", async || token(&secrets, "t").await).await?;
    let emptied = Patch::Merge(json!({"data": {"token": null}}));
    let emptied = secrets.patch("t", &PatchParams::default(), &emptied).await?;
    let version = emptied.metadata.resource_version.context("a version")?;
    cluster
        .eventually("another token", async || {
            let secret = secrets.get("t").await?;
            let changed = secret.metadata.resource_version.as_ref() != Some(&version);
            Ok((changed && value(&secret, "token").is_some()).then_some(()))
        })
        .await
}
