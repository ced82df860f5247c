//! Crashes, restarts and pauses lose nothing: what was asked for before, during and after comes about.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::DeleteParams;
use serde_json::json;

use crate::World;
use crate::tokens::{token, token_secret};

/// How long etcd is away: longer than the retries of a token take, and less than a lease lasts.
const ETCD_AWAY: Duration = Duration::from_secs(6);

/// What somebody asked of the cluster at one moment: namespaces, each with an account and its token.
struct Request {
    namespaces: Vec<String>,
}

impl Request {
    /// Asks for a handful of everything, without waiting for any of it.
    async fn make(world: &World, when: &str) -> anyhow::Result<Self> {
        let mut namespaces = Vec::new();
        for _ in 0..10 {
            let namespace = world.namespace(when).await?;
            let accounts = world.api::<ServiceAccount>(&namespace);
            world.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
            world.create(&world.api::<Secret>(&namespace), token_secret("t", "builder")).await?;
            namespaces.push(namespace);
        }
        Ok(Self { namespaces })
    }

    /// Waits until all of it is there, and tells the uids of the default accounts and the tokens.
    async fn fulfilled(&self, world: &World) -> anyhow::Result<Vec<(String, String)>> {
        let mut seen = Vec::new();
        for namespace in &self.namespaces {
            let accounts = world.api::<ServiceAccount>(namespace);
            let secrets = world.api::<Secret>(namespace);
            let what = format!("the default account of {namespace}");
            let account = under_supervision(world, &what, async || Ok(accounts.get_opt("default").await?));
            let account = account.await?;
            let what = format!("the token in {namespace}");
            let token = under_supervision(world, &what, async || token(&secrets, "t").await).await?;
            seen.push((account.metadata.uid.context("a uid")?, token));
        }
        Ok(seen)
    }

    /// Deletes the accounts, without waiting for what must follow.
    async fn withdraw(&self, world: &World) -> anyhow::Result<()> {
        for namespace in &self.namespaces {
            world.api::<ServiceAccount>(namespace).delete("builder", &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Waits until the tokens of the deleted accounts are gone.
    async fn withdrawn(&self, world: &World) -> anyhow::Result<()> {
        for namespace in &self.namespaces {
            let secrets = world.api::<Secret>(namespace);
            let what = format!("the end of the token in {namespace}");
            let is_gone = async || Ok(secrets.get_opt("t").await?.is_none().then_some(()));
            under_supervision(world, &what, is_gone).await?;
        }
        Ok(())
    }
}

/// Waits for something, and starts the manager again if it ends by itself meanwhile.
async fn under_supervision<T>(
    world: &World,
    what: &str,
    look: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let look = async || {
        world.plane()?.revive_manager()?;
        look().await
    };
    world.eventually(what, look).await
}

/// Asks before the accident, during it and after it, and expects all of it, with nothing done twice.
async fn survive(
    world: &World,
    accident: impl AsyncFnOnce(&Request) -> anyhow::Result<Request>,
) -> anyhow::Result<()> {
    let before = Request::make(world, "before").await?;
    let had = before.fulfilled(world).await?;
    let leaving = Request::make(world, "leaving").await?;
    leaving.fulfilled(world).await?;
    let during = accident(&leaving).await?;
    let after = Request::make(world, "after").await?;
    during.fulfilled(world).await?;
    after.fulfilled(world).await?;
    leaving.withdrawn(world).await?;
    ensure!(before.fulfilled(world).await? == had, "what was there before the accident is still the same");
    Ok(())
}

/// Proves SA-43, SAT-64.
pub(crate) async fn a_killed_manager_loses_nothing(world: &World) -> anyhow::Result<()> {
    let plane = world.plane()?;
    survive(world, async |leaving| {
        // Killed in the middle of work, twice; then things are asked for and deleted while none runs.
        for _ in 0..2 {
            let _unfinished = Request::make(world, "unfinished").await?;
            plane.kill_manager()?;
            plane.start_manager()?;
        }
        let during = Request::make(world, "during").await?;
        plane.kill_manager()?;
        leaving.withdraw(world).await?;
        plane.start_manager()?;
        Ok(during)
    })
    .await
}

/// Proves INF-143.
pub(crate) async fn an_api_server_restart_loses_nothing(world: &World) -> anyhow::Result<()> {
    survive(world, async |leaving| {
        let during = Request::make(world, "during").await?;
        leaving.withdraw(world).await?;
        world.plane()?.restart_api_server()?;
        Ok(during)
    })
    .await
}

pub(crate) async fn an_etcd_restart_loses_nothing(world: &World) -> anyhow::Result<()> {
    survive(world, async |leaving| {
        let during = Request::make(world, "during").await?;
        leaving.withdraw(world).await?;
        world.plane()?.restart_etcd(ETCD_AWAY)?;
        Ok(during)
    })
    .await
}

pub(crate) async fn a_pause_of_a_minute_loses_nothing(world: &World) -> anyhow::Result<()> {
    let plane = world.plane()?;
    survive(world, async |leaving| {
        let pause = plane.pause_manager(Duration::from_secs(60));
        let ask = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            leaving.withdraw(world).await?;
            Request::make(world, "during").await
        };
        let ((), during) = futures::try_join!(pause, ask)?;
        Ok(during)
    })
    .await
}
