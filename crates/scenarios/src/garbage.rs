//! Objects go when their owners are gone, before them, or are set free, as whoever deletes the owner says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::{Value, json};

use crate::World;
use crate::wishes::Wishes;
use crate::world::hold;

/// A namespace with an administrator in it.
struct Yard<'w> {
    world: &'w World,
    namespace: String,
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
}

impl<'w> Yard<'w> {
    async fn new(world: &'w World, prefix: &str) -> anyhow::Result<Self> {
        let namespace = world.namespace(prefix).await?;
        let (maps, secrets) = (world.api(&namespace), world.api(&namespace));
        Ok(Self { world, namespace, maps, secrets })
    }

    async fn map(&self, name: &str, owners: Value) -> anyhow::Result<ConfigMap> {
        let metadata = json!({"name": name, "ownerReferences": owners});
        self.world.create(&self.maps, json!({"metadata": metadata})).await
    }

    async fn secret(&self, name: &str, owners: Value) -> anyhow::Result<Secret> {
        let metadata = json!({"name": name, "ownerReferences": owners});
        self.world.create(&self.secrets, json!({"metadata": metadata})).await
    }

    /// Waits until the manager has seen all that is there. It takes up what happens to a kind in its order, and lets
    /// go what has no owner any more.
    async fn is_seen(&self) -> anyhow::Result<()> {
        self.secret("seen", json!([nobody()])).await?;
        self.map("seen", json!([nobody()])).await?;
        let gone = async || {
            let (secret, map) = (self.secrets.get_opt("seen").await?, self.maps.get_opt("seen").await?);
            Ok((secret.is_none() && map.is_none()).then_some(()))
        };
        self.world.eventually("all to be seen", gone).await
    }

    /// Names of Secrets and ConfigMaps, with those of their owners; a tilde for those on their way out.
    async fn there(&self) -> anyhow::Result<String> {
        let mut names = Vec::new();
        for one in self.secrets.list_metadata(&ListParams::default()).await?.items {
            names.push(told(&one));
        }
        for one in self.maps.list_metadata(&ListParams::default()).await?.items {
            names.push(told(&one));
        }
        names.retain(|name| !name.starts_with("kube-root-ca.crt"));
        names.sort();
        Ok(names.join(" "))
    }

    /// Waits until there is this and nothing else.
    async fn left(&self, expected: &str) -> anyhow::Result<()> {
        let there = async || Ok((self.there().await? == expected).then_some(()));
        let waited = self.world.eventually(&format!("{expected:?} to be left"), there).await;
        waited.with_context(|| self.namespace.clone())?;
        self.world.settle().await;
        let there = self.there().await?;
        ensure!(there == expected, "{there:?} is left, not {expected:?}");
        self.world.stand_still(&format!("{expected:?} is left")).await;
        Ok(())
    }
}

fn told(one: &impl Resource) -> String {
    let owners = one.owner_references().iter().map(|owner| format!("<{}", owner.name)).collect::<String>();
    let going = if one.meta().deletion_timestamp.is_some() { "~" } else { "" };
    format!("{going}{}{owners}", one.name_any())
}

/// References to these owners, each with whether it blocks.
fn owners<K: Resource<DynamicType = ()>>(owners: &[(&K, bool)]) -> Value {
    owners
        .iter()
        .map(|(owner, blocks)| {
            json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": owner.name_any(),
                "uid": owner.meta().uid, "blockOwnerDeletion": blocks})
        })
        .collect()
}

fn nobody() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-00000000000b"})
}

/// Proves GC-62, GC-65, GC-128.
pub(crate) async fn what_nobody_owns_any_more_goes(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "background").await?;
    let (owner, keeper) = (yard.map("owner", json!([])).await?, yard.map("keeper", json!([])).await?);
    let middle = yard.secret("middle", owners(&[(&owner, false)])).await?;
    yard.secret("last", owners(&[(&middle, true)])).await?;
    yard.secret("kept", owners(&[(&owner, true), (&keeper, false)])).await?;
    yard.secret("lost", json!([nobody()])).await?;
    let mut half = owners(&[(&keeper, false)]);
    half.as_array_mut().context("a list")?.push(nobody());
    yard.secret("half", half).await?;
    yard.left("half<keeper keeper kept<owner<keeper last<middle middle<owner owner").await?;
    yard.maps.delete("owner", &DeleteParams::background()).await?;
    yard.left("half<keeper keeper kept<keeper").await
}

/// Proves GC-38, GC-70, GC-71, GC-72, GC-129.
pub(crate) async fn dependents_go_first_in_the_foreground(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "foreground").await?;
    let (owner, keeper) = (yard.map("owner", json!([])).await?, yard.map("keeper", json!([])).await?);
    let middle = yard.secret("middle", owners(&[(&owner, true)])).await?;
    yard.secret("last", owners(&[(&middle, true)])).await?;
    yard.secret("shared", owners(&[(&owner, true), (&keeper, false)])).await?;
    hold(&yard.secrets, "last", &["example.com/hold"]).await?;
    // What is not blocking is deleted and not waited for.
    yard.secret("slow", owners(&[(&keeper, false)])).await?;
    hold(&yard.secrets, "slow", &["example.com/hold"]).await?;
    yard.maps.delete("owner", &DeleteParams::foreground()).await?;
    yard.left("keeper shared<keeper slow<keeper ~last<middle ~middle<owner ~owner").await?;
    hold(&yard.secrets, "last", &[]).await?;
    yard.left("keeper shared<keeper slow<keeper").await?;
    yard.maps.delete("keeper", &DeleteParams::foreground()).await?;
    yard.left("~slow<keeper").await?;
    hold(&yard.secrets, "slow", &[]).await?;
    yard.left("").await
}

/// Proves GC-73, GC-74.
pub(crate) async fn orphans_are_left_free(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "orphan").await?;
    let (owner, keeper) = (yard.map("owner", json!([])).await?, yard.map("keeper", json!([])).await?);
    let free = yard.secret("free", owners(&[(&owner, true)])).await?;
    yard.secret("below", owners(&[(&free, true)])).await?;
    yard.secret("shared", owners(&[(&owner, true), (&keeper, false)])).await?;
    // Whoever is seen later than the deletion is not set free.
    yard.is_seen().await?;
    yard.maps.delete("owner", &DeleteParams::orphan()).await?;
    yard.left("below<free free keeper shared<keeper").await
}

/// Proves GC-64, GC-141.
pub(crate) async fn owners_in_a_circle_go(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "circle").await?;
    let first = yard.map("first", json!([])).await?;
    let second = yard.map("second", owners(&[(&first, true)])).await?;
    let third = yard.map("third", owners(&[(&second, true)])).await?;
    let closed = Patch::Merge(json!({"metadata": {"ownerReferences": owners(&[(&third, true)])}}));
    yard.maps.patch("first", &PatchParams::default(), &closed).await?;
    yard.left("first<third second<first third<second").await?;
    yard.maps.delete("second", &DeleteParams::foreground()).await?;
    yard.left("").await
}

/// Proves GC-100, GC-101, GC-125, GC-126.
pub(crate) async fn an_owner_elsewhere_is_no_owner(world: &World) -> anyhow::Result<()> {
    let (here, there) = (Yard::new(world, "here").await?, Yard::new(world, "there").await?);
    let owner = there.map("owner", json!([])).await?;
    there.secret("good", owners(&[(&owner, false)])).await?;
    there.is_seen().await?;
    let bad = here.secret("bad", owners(&[(&owner, false)])).await?;
    let roles: Api<ClusterRole> = Api::all(world.admin.clone());
    let role = format!("{}-role", here.namespace);
    let metadata = json!({"name": role, "ownerReferences": owners(&[(&owner, false)])});
    world.create(&roles, json!({"metadata": metadata, "rules": []})).await?;
    here.left("").await?;
    there.left("good<owner owner").await?;
    ensure!(roles.get_opt(&role).await?.is_some(), "what is cluster-scoped is kept");
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let said = |namespace: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: owner, uid: {uid}] does not exist in namespace \
             {namespace:?}"
        )
    };
    for (object, namespace, home) in
        [(bad.name_any(), here.namespace.as_str(), here.namespace.as_str()), (role.clone(), "", "default")]
    {
        let events: Api<Event> = world.api(home);
        let reported = async || {
            let events = events.list(&ListParams::default()).await?.items;
            Ok(events.into_iter().find(|event| event.involved_object.name.as_ref() == Some(&object)))
        };
        let event = world.eventually(&format!("an event about {object}"), reported).await?;
        let component = event.source.and_then(|source| source.component).unwrap_or_default();
        let told = [event.type_, event.reason, event.message, Some(component)].map(Option::unwrap_or_default);
        let expected =
            ["Warning", "OwnerRefInvalidNamespace", &said(namespace), "garbage-collector-controller"];
        ensure!(told == expected, "{told:?} was told");
    }
    roles.delete(&role, &DeleteParams::default()).await?;
    Ok(())
}

/// Proves GC-93, GC-137.
pub(crate) async fn a_kind_that_comes_later_has_owners_too(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "later").await?;
    let wishes = Wishes::define(world, &yard.namespace, &["v1"]).await?;
    let wish = async |name: &str, references: Value| {
        wishes.make(json!({"name": name, "ownerReferences": references})).await
    };
    let of = |owner: &DynamicObject| {
        json!([{"apiVersion": format!("{}/v1", wishes.group), "kind": "Wish", "name": owner.name_any(),
            "uid": owner.metadata.uid, "blockOwnerDeletion": true}])
    };
    let (owner, keeper) = (wish("owner", json!([])).await?, yard.map("keeper", json!([])).await?);
    wish("custom", of(&owner)).await?;
    yard.secret("builtin", of(&owner)).await?;
    let mut two = of(&owner);
    two.as_array_mut()
        .context("a list")?
        .extend(owners(&[(&keeper, false)]).as_array().cloned().unwrap_or_default());
    wish("shared", two).await?;
    // It takes half a minute until a manager knows of the kind; what comes after these and has no owner shows it.
    wish("seen", json!([nobody()])).await?;
    let gone = async || Ok(wishes.api.get_opt("seen").await?.is_none().then_some(()));
    world.eventually("the new kind to be known", gone).await?;
    yard.is_seen().await?;
    wishes.api.delete("owner", &DeleteParams::foreground()).await?;
    yard.left("keeper").await?;
    let left = async || {
        let left = wishes.api.list(&ListParams::default()).await?.items;
        Ok((left.iter().map(told).collect::<Vec<_>>() == ["shared<keeper"]).then_some(()))
    };
    world.eventually("only the shared wish to be left", left).await?;
    yard.maps.delete("keeper", &DeleteParams::orphan()).await?;
    yard.left("").await?;
    let free = async || {
        let left = wishes.api.list(&ListParams::default()).await?.items;
        Ok((left.iter().map(told).collect::<Vec<_>>() == ["shared"]).then_some(()))
    };
    world.eventually("the shared wish to be free", free).await?;
    wishes.forget().await
}

/// Proves GC-39.
pub(crate) async fn a_killed_manager_finishes_every_deletion(world: &World) -> anyhow::Result<()> {
    let yard = Yard::new(world, "killed").await?;
    for (name, how) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
        ("orphan", DeleteParams::orphan()),
    ] {
        let owner = yard.map(name, json!([])).await?;
        for n in 0..20 {
            let dependent = yard.secret(&format!("{name}{n:02}"), owners(&[(&owner, true)])).await?;
            yard.secret(&format!("{name}{n:02}-below"), owners(&[(&dependent, true)])).await?;
        }
        yard.is_seen().await?;
        yard.maps.delete(name, &how).await?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.plane()?.kill_manager()?;
        world.plane()?.start_manager()?;
    }
    let free: Vec<_> = (0..20).map(|n| format!("orphan{n:02} orphan{n:02}-below<orphan{n:02}")).collect();
    yard.left(&free.join(" ")).await
}
