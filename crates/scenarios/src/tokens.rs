//! Token Secrets: filled, working, and gone with their account.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::World;

/// A Secret as a person writes it to get a token.
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
pub(crate) async fn a_token_secret_is_filled_works_and_goes_with_its_account(
    world: &World,
) -> anyhow::Result<()> {
    let namespace = world.namespace("tokens").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    let secrets = world.api::<Secret>(&namespace);
    let account = world.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    world.create(&secrets, token_secret("builder-token", "builder")).await?;
    world.create(&secrets, json!({"metadata": {"name": "plain"}, "stringData": {"a": "b"}})).await?;

    let token = world.eventually("the token", async || token(&secrets, "builder-token").await).await?;
    let filled = secrets.get("builder-token").await?;
    ensure!(value(&filled, "namespace").as_deref() == Some(&namespace), "the namespace is filled in");
    ensure!(
        value(&filled, "ca.crt").is_some_and(|ca| ca.contains("BEGIN CERTIFICATE")),
        "the CA is filled in"
    );
    let annotations = filled.metadata.annotations.unwrap_or_default();
    let uid = annotations.get("kubernetes.io/service-account.uid");
    ensure!(uid == account.metadata.uid.as_ref(), "the uid of the account is noted");

    if let Some(plane) = &world.plane {
        let user = plane.identify(&token).await?;
        let wanted = format!("system:serviceaccount:{namespace}:builder");
        ensure!(user.as_deref() == Some(&wanted), "the token speaks for {user:?}, not for {wanted}");
    }
    accounts.delete("builder", &DeleteParams::default()).await?;
    world
        .eventually("the end of the Secret", async || {
            Ok(secrets.get_opt("builder-token").await?.is_none().then_some(()))
        })
        .await?;
    ensure!(secrets.get_opt("plain").await?.is_some(), "other Secrets are not touched");
    if let Some(plane) = &world.plane {
        // The API server remembers for ten seconds that it has seen the token.
        let what = "the end of the token";
        world.eventually(what, async || Ok(plane.identify(&token).await?.is_none().then_some(()))).await?;
    }
    Ok(())
}

/// Proves SAT-61.
pub(crate) async fn a_token_secret_without_an_account_is_deleted(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("tokens").await?;
    let secrets = world.api::<Secret>(&namespace);
    world.create(&secrets, token_secret("orphan", "nobody")).await?;
    world
        .eventually("the end of the Secret", async || {
            Ok(secrets.get_opt("orphan").await?.is_none().then_some(()))
        })
        .await
}

/// Proves SAT-31, SAT-52.
pub(crate) async fn a_deleted_token_secret_leaves_its_account_s_list(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("tokens").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    let secrets = world.api::<Secret>(&namespace);
    let listed = json!([{"name": "kept"}, {"name": "listed"}]);
    world.create(&accounts, json!({"metadata": {"name": "builder"}, "secrets": listed})).await?;
    world.create(&secrets, token_secret("listed", "builder")).await?;
    world.eventually("the token", async || token(&secrets, "listed").await).await?;
    secrets.delete("listed", &DeleteParams::default()).await?;
    world
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
pub(crate) async fn an_emptied_token_is_minted_again(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("tokens").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    let secrets = world.api::<Secret>(&namespace);
    world.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    world.create(&secrets, token_secret("t", "builder")).await?;
    world.eventually("the token", async || token(&secrets, "t").await).await?;
    let emptied = Patch::Merge(json!({"data": {"token": null}}));
    let emptied = secrets.patch("t", &PatchParams::default(), &emptied).await?;
    let version = emptied.metadata.resource_version.context("a version")?;
    world
        .eventually("another token", async || {
            let secret = secrets.get("t").await?;
            let moved = secret.metadata.resource_version.as_ref() != Some(&version);
            Ok((moved && value(&secret, "token").is_some()).then_some(()))
        })
        .await
}
