//! Dependents are deleted after their owners, before them, or orphaned, as the propagation policy of the
//! delete says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::custom_kind::CustomKind;
use crate::test_cluster::set_finalizers;

/// A namespace with ConfigMaps and Secrets that own each other.
struct OwnerFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
}

impl<'w> OwnerFixture<'w> {
    async fn new(cluster: &'w TestCluster, prefix: &str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace(prefix).await?;
        let (maps, secrets) = (cluster.api(&namespace), cluster.api(&namespace));
        Ok(Self { cluster, namespace, maps, secrets })
    }

    async fn map(&self, name: &str, owners: Value) -> anyhow::Result<ConfigMap> {
        let metadata = json!({"name": name, "ownerReferences": owners});
        self.cluster.create(&self.maps, json!({"metadata": metadata})).await
    }

    async fn secret(&self, name: &str, owners: Value) -> anyhow::Result<Secret> {
        let metadata = json!({"name": name, "ownerReferences": owners});
        self.cluster.create(&self.secrets, json!({"metadata": metadata})).await
    }

    /// Waits until the manager has observed all objects so far: events of a kind arrive in order, so that
    /// it has when it deletes a later object with a missing owner.
    async fn wait_until_observed(&self) -> anyhow::Result<()> {
        self.secret("seen", json!([missing_owner()])).await?;
        self.map("seen", json!([missing_owner()])).await?;
        let deleted = async || {
            let (secret, map) = (self.secrets.get_opt("seen").await?, self.maps.get_opt("seen").await?);
            Ok((secret.is_none() && map.is_none()).then_some(()))
        };
        self.cluster.eventually("all objects to be observed", deleted).await
    }

    /// Names of Secrets and ConfigMaps with `<` and the names of their owners; a leading `~` means
    /// terminating.
    async fn listing(&self) -> anyhow::Result<String> {
        let mut names = Vec::new();
        for one in self.secrets.list_metadata(&ListParams::default()).await?.items {
            names.push(describe(&one));
        }
        for one in self.maps.list_metadata(&ListParams::default()).await?.items {
            names.push(describe(&one));
        }
        names.retain(|name| !name.starts_with("kube-root-ca.crt"));
        names.sort();
        Ok(names.join(" "))
    }

    /// Waits until exactly these objects are left.
    async fn expect_left(&self, expected: &str) -> anyhow::Result<()> {
        let reached = async || Ok((self.listing().await? == expected).then_some(()));
        let waited = self.cluster.eventually(&format!("only {expected:?} to be left"), reached).await;
        waited.with_context(|| self.namespace.clone())?;
        self.cluster.settle().await;
        let there = self.listing().await?;
        ensure!(there == expected, "{there:?} is left, not {expected:?}");
        // Where two clusters are compared, the generated name of the namespace differs.
        let left = expected.replace(&self.namespace, "NAMESPACE");
        self.cluster.checkpoint(&format!("{left:?} is left")).await;
        Ok(())
    }
}

fn describe(one: &impl Resource) -> String {
    let owners = one.owner_references().iter().map(|owner| format!("<{}", owner.name)).collect::<String>();
    let marker = if one.meta().deletion_timestamp.is_some() { "~" } else { "" };
    format!("{marker}{}{owners}", one.name_any())
}

/// Owner references, each with its blockOwnerDeletion.
fn owners<K: Resource<DynamicType = ()>>(owners: &[(&K, bool)]) -> Value {
    owners
        .iter()
        .map(|(owner, blocks)| {
            json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": owner.name_any(),
                "uid": owner.meta().uid, "blockOwnerDeletion": blocks})
        })
        .collect()
}

fn missing_owner() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-0000-0000-00000000000b"})
}

/// Proves GC-62, GC-65, GC-128.
pub(crate) async fn objects_without_existing_owners_are_deleted(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "background").await?;
    let (owner, keeper) = (fixture.map("owner", json!([])).await?, fixture.map("keeper", json!([])).await?);
    let middle = fixture.secret("middle", owners(&[(&owner, false)])).await?;
    fixture.secret("last", owners(&[(&middle, true)])).await?;
    fixture.secret("kept", owners(&[(&owner, true), (&keeper, false)])).await?;
    fixture.secret("lost", json!([missing_owner()])).await?;
    let mut half = owners(&[(&keeper, false)]);
    half.as_array_mut().context("a list")?.push(missing_owner());
    fixture.secret("half", half).await?;
    fixture.expect_left("half<keeper keeper kept<owner<keeper last<middle middle<owner owner").await?;
    fixture.maps.delete("owner", &DeleteParams::background()).await?;
    fixture.expect_left("half<keeper keeper kept<keeper").await
}

/// Names of RBAC objects may contain what means something else in a URL unless it is escaped.
pub(crate) async fn dependents_of_owners_with_reserved_characters_in_their_names_are_kept(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "reserved").await?;
    let roles: Api<Role> = cluster.api(&fixture.namespace);
    let leaving = fixture.map("leaving", json!([])).await?;
    for (index, name) in ["a#b", "a?b", "a b", "\u{fc}:x"].into_iter().enumerate() {
        let role = cluster.create(&roles, json!({"metadata": {"name": name}})).await?;
        let mut both = owners(&[(&leaving, false)]);
        both.as_array_mut()
            .context("a list")?
            .extend(owners(&[(&role, false)]).as_array().cloned().unwrap_or_default());
        fixture.secret(&format!("s{index}"), both).await?;
        fixture.map(&format!("m{index}"), owners(&[(&role, false)])).await?;
    }
    // The same for owners without a namespace, whose names must be unique in the cluster.
    let cluster_roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let prefix = &fixture.namespace;
    for (index, name) in ["a#b", "a?b", "a b", "\u{fc}:x"].into_iter().enumerate() {
        let metadata = json!({"name": format!("{prefix}-{name}"), "labels": {"scenario": prefix}});
        let role = cluster.create(&cluster_roles, json!({"metadata": metadata, "rules": []})).await?;
        fixture.map(&format!("c{index}"), owners(&[(&role, false)])).await?;
    }
    fixture.wait_until_observed().await?;
    fixture.maps.delete("leaving", &DeleteParams::background()).await?;
    let of_roles = "m0<a#b m1<a?b m2<a b m3<\u{fc}:x s0<a#b s1<a?b s2<a b s3<\u{fc}:x";
    let of_cluster_roles = format!("c0<{prefix}-a#b c1<{prefix}-a?b c2<{prefix}-a b c3<{prefix}-\u{fc}:x");
    fixture.expect_left(&format!("{of_cluster_roles} {of_roles}")).await?;
    roles.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    fixture.expect_left(&of_cluster_roles).await?;
    // By label, because the client of this test does not escape names.
    let labelled = ListParams::default().labels(&format!("scenario={prefix}"));
    cluster_roles.delete_collection(&DeleteParams::background(), &labelled).await?;
    fixture.expect_left("").await
}

/// Proves GC-38, GC-70, GC-71, GC-72, GC-129.
pub(crate) async fn foreground_deletion_deletes_dependents_first(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "foreground").await?;
    let (owner, keeper) = (fixture.map("owner", json!([])).await?, fixture.map("keeper", json!([])).await?);
    let middle = fixture.secret("middle", owners(&[(&owner, true)])).await?;
    fixture.secret("last", owners(&[(&middle, true)])).await?;
    fixture.secret("shared", owners(&[(&owner, true), (&keeper, false)])).await?;
    set_finalizers(&fixture.secrets, "last", &["example.com/hold"]).await?;
    // A dependent without blockOwnerDeletion is deleted but not waited for.
    fixture.secret("slow", owners(&[(&keeper, false)])).await?;
    set_finalizers(&fixture.secrets, "slow", &["example.com/hold"]).await?;
    fixture.maps.delete("owner", &DeleteParams::foreground()).await?;
    fixture.expect_left("keeper shared<keeper slow<keeper ~last<middle ~middle<owner ~owner").await?;
    set_finalizers(&fixture.secrets, "last", &[]).await?;
    fixture.expect_left("keeper shared<keeper slow<keeper").await?;
    fixture.maps.delete("keeper", &DeleteParams::foreground()).await?;
    fixture.expect_left("~slow<keeper").await?;
    set_finalizers(&fixture.secrets, "slow", &[]).await?;
    fixture.expect_left("").await
}

/// Proves GC-73, GC-74.
pub(crate) async fn orphaned_dependents_are_kept_without_owner_reference(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "orphan").await?;
    let (owner, keeper) = (fixture.map("owner", json!([])).await?, fixture.map("keeper", json!([])).await?);
    let free = fixture.secret("free", owners(&[(&owner, true)])).await?;
    fixture.secret("below", owners(&[(&free, true)])).await?;
    fixture.secret("shared", owners(&[(&owner, true), (&keeper, false)])).await?;
    // A dependent that is observed after the deletion is not orphaned.
    fixture.wait_until_observed().await?;
    fixture.maps.delete("owner", &DeleteParams::orphan()).await?;
    fixture.expect_left("below<free free keeper shared<keeper").await
}

/// Proves GC-64, GC-141.
pub(crate) async fn owner_cycle_is_deleted(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "circle").await?;
    let first = fixture.map("first", json!([])).await?;
    let second = fixture.map("second", owners(&[(&first, true)])).await?;
    let third = fixture.map("third", owners(&[(&second, true)])).await?;
    let cycle = Patch::Merge(json!({"metadata": {"ownerReferences": owners(&[(&third, true)])}}));
    fixture.maps.patch("first", &PatchParams::default(), &cycle).await?;
    fixture.expect_left("first<third second<first third<second").await?;
    fixture.maps.delete("second", &DeleteParams::foreground()).await?;
    fixture.expect_left("").await
}

/// Proves GC-100, GC-101, GC-125, GC-126.
pub(crate) async fn owner_in_another_namespace_is_reported_as_invalid(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (here, there) =
        (OwnerFixture::new(cluster, "here").await?, OwnerFixture::new(cluster, "there").await?);
    let owner = there.map("owner", json!([])).await?;
    there.secret("good", owners(&[(&owner, false)])).await?;
    there.wait_until_observed().await?;
    let bad = here.secret("bad", owners(&[(&owner, false)])).await?;
    let roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let role = format!("{}-role", here.namespace);
    let metadata = json!({"name": role, "ownerReferences": owners(&[(&owner, false)])});
    cluster.create(&roles, json!({"metadata": metadata, "rules": []})).await?;
    here.expect_left("").await?;
    there.expect_left("good<owner owner").await?;
    ensure!(roles.get_opt(&role).await?.is_some(), "cluster-scoped objects are kept");
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let message = |namespace: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: owner, uid: {uid}] does not exist in namespace \
             {namespace:?}"
        )
    };
    for (object, namespace, home) in
        [(bad.name_any(), here.namespace.as_str(), here.namespace.as_str()), (role.clone(), "", "default")]
    {
        let events: Api<Event> = cluster.api(home);
        let reported = async || {
            let events = events.list(&ListParams::default()).await?.items;
            Ok(events.into_iter().find(|event| event.involved_object.name.as_ref() == Some(&object)))
        };
        let event = cluster.eventually(&format!("an event about {object}"), reported).await?;
        let component = event.source.and_then(|source| source.component).unwrap_or_default();
        let found =
            [event.type_, event.reason, event.message, Some(component)].map(Option::unwrap_or_default);
        let expected =
            ["Warning", "OwnerRefInvalidNamespace", &message(namespace), "garbage-collector-controller"];
        ensure!(found == expected, "the event is {found:?}");
    }
    roles.delete(&role, &DeleteParams::default()).await?;
    Ok(())
}

/// Proves GC-93, GC-137.
pub(crate) async fn kind_defined_later_is_garbage_collected(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "later").await?;
    let custom = CustomKind::define(cluster, &fixture.namespace, &["v1"]).await?;
    let create = async |name: &str, references: Value| {
        custom.create(json!({"name": name, "ownerReferences": references})).await
    };
    let of = |owner: &DynamicObject| {
        json!([{"apiVersion": format!("{}/v1", custom.group), "kind": "Wish", "name": owner.name_any(),
            "uid": owner.metadata.uid, "blockOwnerDeletion": true}])
    };
    let (owner, keeper) = (create("owner", json!([])).await?, fixture.map("keeper", json!([])).await?);
    create("custom", of(&owner)).await?;
    fixture.secret("builtin", of(&owner)).await?;
    let mut two = of(&owner);
    two.as_array_mut()
        .context("a list")?
        .extend(owners(&[(&keeper, false)]).as_array().cloned().unwrap_or_default());
    create("shared", two).await?;
    // It takes up to half a minute until a manager discovers the kind; an object without an existing owner
    // shows it.
    create("seen", json!([missing_owner()])).await?;
    let deleted = async || Ok(custom.api.get_opt("seen").await?.is_none().then_some(()));
    cluster.eventually("the new kind to be observed", deleted).await?;
    fixture.wait_until_observed().await?;
    custom.api.delete("owner", &DeleteParams::foreground()).await?;
    fixture.expect_left("keeper").await?;
    let left = async || {
        let left = custom.api.list(&ListParams::default()).await?.items;
        Ok((left.iter().map(describe).collect::<Vec<_>>() == ["shared<keeper"]).then_some(()))
    };
    cluster.eventually("only the shared object to be left", left).await?;
    fixture.maps.delete("keeper", &DeleteParams::orphan()).await?;
    fixture.expect_left("").await?;
    let free = async || {
        let left = custom.api.list(&ListParams::default()).await?.items;
        Ok((left.iter().map(describe).collect::<Vec<_>>() == ["shared"]).then_some(()))
    };
    cluster.eventually("the shared object without owners", free).await?;
    custom.remove().await
}

/// Proves GC-39.
pub(crate) async fn killed_manager_finishes_every_deletion(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = OwnerFixture::new(cluster, "killed").await?;
    for (name, propagation) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
        ("orphan", DeleteParams::orphan()),
    ] {
        let owner = fixture.map(name, json!([])).await?;
        for n in 0..20 {
            let dependent = fixture.secret(&format!("{name}{n:02}"), owners(&[(&owner, true)])).await?;
            fixture.secret(&format!("{name}{n:02}-below"), owners(&[(&dependent, true)])).await?;
        }
        fixture.wait_until_observed().await?;
        fixture.maps.delete(name, &propagation).await?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        cluster.processes()?.kill_manager()?;
        cluster.processes()?.start_manager()?;
    }
    let free: Vec<_> = (0..20).map(|n| format!("orphan{n:02} orphan{n:02}-below<orphan{n:02}")).collect();
    fixture.expect_left(&free.join(" ")).await
}
