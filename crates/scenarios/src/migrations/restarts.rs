//! A manager that is killed in the middle of a migration.

use std::collections::BTreeMap;

use anyhow::ensure;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::{CLEANED_UP, MigrationFixture, SUCCEEDED, Wishes, versions};
use crate::TestCluster;

/// Enough objects that a manager is still busy with them when it is killed.
const OBJECTS: usize = 600;

impl Wishes<'_> {
    /// The resourceVersions by name.
    async fn resource_versions(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let wishes = self.api.list(&ListParams::default()).await?.items;
        let version = |wish: &kube::api::DynamicObject| wish.resource_version().unwrap_or_default();
        Ok(wishes.iter().map(|wish| (wish.name_any(), version(wish))).collect())
    }
}

/// Proves SVM-68, SVM-72.
pub(crate) async fn killed_manager_completes_a_migration_once(cluster: &TestCluster) -> anyhow::Result<()> {
    let plane = cluster.processes()?;
    let fixture = MigrationFixture::create(cluster).await?;
    let wishes = Wishes::define(&fixture).await?;
    wishes.create("nudged").await?;
    for number in 0..OBJECTS {
        wishes.create(&format!("wish-{number}")).await?;
    }
    wishes.set_versions(versions("v2")).await?;
    let before = wishes.resource_versions().await?;
    let rewritten = async || {
        let now = wishes.resource_versions().await?;
        let is_new = |(name, version): &(&String, &String)| now.get(*name) != Some(*version);
        anyhow::Ok(before.iter().filter(|(name, _)| *name != "nudged").filter(is_new).count())
    };
    fixture.migrate("killed", &wishes.group, "wishes").await?;
    let nudges = std::cell::Cell::new(0_u32);
    let kill_between = async |at_least: usize| {
        let started = async || {
            nudges.set(nudges.get() + 1);
            if nudges.get().is_multiple_of(20) {
                wishes.nudge("nudged", nudges.get()).await?;
            }
            let count = rewritten().await?;
            Ok((count > at_least).then_some(count))
        };
        fixture.patiently(&format!("more than {at_least} objects are rewritten"), started).await?;
        plane.kill_manager()?;
        let at_kill = rewritten().await?;
        ensure!(at_kill < OBJECTS, "all {at_kill} objects were rewritten before the manager was killed");
        ensure!(fixture.conditions("killed").await?.iter().all(|one| !one.starts_with("Succeeded=")));
        plane.start_manager()?;
        anyhow::Ok(at_kill)
    };
    let first = kill_between(20).await?;
    kill_between(first + 20).await?;
    let end = fixture.end("killed", async |number| wishes.nudge("nudged", 1_000 + number).await).await?;
    ensure!(end == SUCCEEDED, "{end}");
    let count = rewritten().await?;
    ensure!(count == OBJECTS, "{count} of {OBJECTS} objects were rewritten");
    // It has ended for good: another manager finds nothing to do.
    let (state, versions_then) =
        (fixture.migrations.get(&fixture.name("killed")).await?, wishes.resource_versions().await?);
    plane.kill_manager()?;
    plane.start_manager()?;
    fixture.migrate("next", &wishes.group, "wishes").await?;
    let end = fixture.end("next", async |number| wishes.nudge("nudged", 2_000 + number).await).await?;
    ensure!(end == SUCCEEDED, "{end}");
    let later = fixture.migrations.get(&fixture.name("killed")).await?;
    ensure!(later.resource_version() == state.resource_version(), "the first migration was written again");
    ensure!(fixture.conditions("killed").await?.iter().any(|one| one == CLEANED_UP));
    let mut now = wishes.resource_versions().await?;
    let mut then = versions_then;
    now.remove("nudged");
    then.remove("nudged");
    ensure!(now == then, "objects were rewritten again");
    fixture.delete("killed").await?;
    fixture.delete("next").await?;
    wishes.remove().await
}
