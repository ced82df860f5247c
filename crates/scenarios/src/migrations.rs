//! StorageVersionMigrations: a custom resource with a new storage version, a built-in kind, an unknown one, and two of
//! the same resource. And StorageVersions that name API servers which do not exist.

mod restarts;

use std::cell::Cell;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

pub(crate) use restarts::killed_manager_completes_a_migration_once;

/// StorageVersionMigrations of one scenario.
struct MigrationFixture<'w> {
    cluster: &'w TestCluster,
    migrations: Api<DynamicObject>,
    namespace: String,
}

const SUCCEEDED: &str = "Succeeded=True StorageVersionMigrationSucceeded: Migration completed";
const CLEANED_UP: &str = "Running=False MigrationCompleted: Migration completed";

impl<'w> MigrationFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let kind = GroupVersionKind::gvk("storagemigration.k8s.io", "v1", "StorageVersionMigration");
        let migrations = cluster.dynamic(&ApiResource::from_gvk(&kind));
        Ok(Self { cluster, migrations, namespace: cluster.namespace("migrations").await? })
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    async fn migrate(&self, name: &str, group: &str, resource: &str) -> anyhow::Result<()> {
        let migration = json!({
            "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
            "metadata": {"name": self.name(name)},
            "spec": {"resource": {"group": group, "resource": resource}},
        });
        self.cluster.create(&self.migrations, migration).await.map(drop)
    }

    /// `type=status reason: message` of each condition.
    async fn conditions(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let migration = self.migrations.get(&self.name(name)).await?;
        let conditions = migration.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().map(describe).collect())
    }

    /// Waits until a migration has ended and is cleaned up, and returns its last condition. `nudge` writes an object of
    /// the resource: without it, the manager learns only from the next bookmark that it has observed all objects.
    async fn end(
        &self,
        name: &str,
        nudge: impl AsyncFn(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let polls = Cell::new(0_u32);
        let ask = async || {
            polls.set(polls.get() + 1);
            if polls.get().is_multiple_of(20) {
                nudge(polls.get()).await?;
            }
            let conditions = self.conditions(name).await?;
            let is_over = conditions.iter().any(|one| one == CLEANED_UP);
            Ok(conditions.into_iter().find(|one| is_over && !one.starts_with("Running=")))
        };
        self.patiently(&format!("the migration {name} has ended"), ask).await
    }

    /// Polls three times as long as usual: a resource has a minute to appear, and failed attempts are retried with
    /// backoff.
    async fn patiently<T>(
        &self,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        for _ in 0..2 {
            if let Ok(answer) = self.cluster.eventually(what, &ask).await {
                return Ok(answer);
            }
        }
        self.cluster.eventually(what, ask).await
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.migrations.delete(&self.name(name), &DeleteParams::default()).await?;
        Ok(())
    }
}

fn describe(condition: &Value) -> String {
    let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    format!("{}={} {}: {}", of("type"), of("status"), of("reason"), of("message"))
}

/// A custom kind, `Wish`, whose storage version can be changed.
struct Wishes<'w> {
    fixture: &'w MigrationFixture<'w>,
    definitions: Api<DynamicObject>,
    /// The objects, in the version v2.
    api: Api<DynamicObject>,
    group: String,
}

impl<'w> Wishes<'w> {
    async fn define(fixture: &'w MigrationFixture<'w>) -> anyhow::Result<Self> {
        let group = format!("{}.example.com", fixture.namespace);
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions = fixture.cluster.dynamic(&ApiResource::from_gvk(&kind));
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v2", "Wish"), "wishes");
        let api = Api::namespaced_with(fixture.cluster.admin.clone(), &fixture.namespace, &kind);
        let wishes = Self { fixture, definitions, api, group };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": wishes.name()},
            "spec": {"group": wishes.group, "scope": "Namespaced", "versions": versions("v1"),
                     "names": {"plural": "wishes", "singular": "wish", "kind": "Wish", "listKind": "WishList"}},
        });
        fixture.cluster.create(&wishes.definitions, definition).await?;
        Ok(wishes)
    }

    fn name(&self) -> String {
        format!("wishes.{}", self.group)
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let wish =
            json!({"apiVersion": format!("{}/v2", self.group), "kind": "Wish", "metadata": {"name": name}});
        let create = async || Ok(self.fixture.cluster.create(&self.api, wish.clone()).await.ok());
        self.fixture.cluster.eventually("the new kind", create).await.map(drop)
    }

    /// resourceVersion and generation of an object.
    async fn state(&self, name: &str) -> anyhow::Result<(String, i64)> {
        let metadata = self.api.get(name).await?.metadata;
        Ok((metadata.resource_version.unwrap_or_default(), metadata.generation.unwrap_or_default()))
    }

    /// Writes the object of this name.
    async fn nudge(&self, name: &str, number: u32) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"annotations": {"nudged": number.to_string()}}});
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Removes the traces of how often an object was written, which differs between any two runs.
    async fn forget_nudges(&self, name: &str) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"annotations": {"nudged": null}}});
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn set_versions(&self, versions: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": {"versions": versions}});
        self.definitions.patch(&self.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// `status.storedVersions`, and the condition `StorageMigrating`.
    async fn status(&self) -> anyhow::Result<(Value, String)> {
        let status = self.definitions.get(&self.name()).await?.data["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let migrating = conditions.iter().find(|one| one["type"] == "StorageMigrating").map(describe);
        Ok((status["storedVersions"].clone(), migrating.unwrap_or_default()))
    }

    async fn remove(self) -> anyhow::Result<()> {
        self.definitions.delete(&self.name(), &DeleteParams::default()).await?;
        Ok(())
    }
}

fn versions(storage: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str| json!({"name": name, "served": true, "storage": name == storage, "schema": schema});
    json!([version("v1"), version("v2")])
}

/// Proves SVM-50, SVM-60.
pub(crate) async fn custom_resource_is_migrated_to_its_new_storage_version(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = MigrationFixture::create(cluster).await?;
    let wishes = Wishes::define(&fixture).await?;
    for name in ["a", "b", "nudged"] {
        wishes.create(name).await?;
    }
    wishes.set_versions(versions("v2")).await?;
    let (stored, _) = wishes.status().await?;
    ensure!(stored == json!(["v1", "v2"]), "{stored}");
    let only_v2 = json!([versions("v2")[1]]);
    ensure!(wishes.set_versions(only_v2.clone()).await.is_err(), "objects are stored in v1");
    let before = (wishes.state("a").await?, wishes.state("b").await?);
    fixture.migrate("first", &wishes.group, "wishes").await?;
    let end = fixture.end("first", async |number| wishes.nudge("nudged", number).await).await?;
    ensure!(end == SUCCEEDED, "{end}");
    let message = "The migration has succeeded and the stored versions have been updated";
    let expected = (json!(["v2"]), format!("StorageMigrating=False MigrationSucceeded: {message}"));
    let status = wishes.status().await?;
    ensure!(status == expected, "{status:?}");
    let after = (wishes.state("a").await?, wishes.state("b").await?);
    ensure!(before.0.0 != after.0.0 && before.1.0 != after.1.0, "not rewritten: {before:?} {after:?}");
    ensure!((before.0.1, before.1.1) == (after.0.1, after.1.1), "the generation changed");
    wishes.forget_nudges("nudged").await?;
    cluster.checkpoint("the objects are migrated").await;
    // The migration of objects that are in the storage version already changes nothing.
    fixture.migrate("second", &wishes.group, "wishes").await?;
    let end = fixture.end("second", async |number| wishes.nudge("nudged", number).await).await?;
    ensure!(end == SUCCEEDED, "{end}");
    let again = (wishes.state("a").await?, wishes.state("b").await?);
    ensure!(after == again, "rewritten for nothing: {after:?} {again:?}");
    ensure!(wishes.status().await? == expected, "the stored versions are trimmed again");
    wishes.set_versions(only_v2).await.context("no object is stored in v1 any more")?;
    wishes.state("a").await?;
    wishes.forget_nudges("nudged").await?;
    cluster.checkpoint("the second migration has changed nothing").await;
    fixture.delete("first").await?;
    fixture.delete("second").await?;
    wishes.remove().await
}

pub(crate) async fn built_in_objects_are_migrated_without_change(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = MigrationFixture::create(cluster).await?;
    let roles: Api<Role> = cluster.api(&fixture.namespace);
    let names = ["system:controller:some-one", "nudged"];
    for name in names {
        cluster.create(&roles, json!({"metadata": {"name": name}, "rules": []})).await?;
    }
    let before = roles.get(names[0]).await?;
    fixture.migrate("roles", "rbac.authorization.k8s.io", "roles").await?;
    let nudge = async |number: u32| {
        let patch = json!({"metadata": {"annotations": {"nudged": number.to_string()}}});
        roles.patch("nudged", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    };
    let end = fixture.end("roles", nudge).await?;
    ensure!(end == SUCCEEDED, "{end}");
    ensure!(roles.get(names[0]).await?.metadata == before.metadata, "the object changed");
    // It shows how often it was written.
    roles.delete("nudged", &DeleteParams::default()).await?;
    cluster.checkpoint("the Roles are migrated").await;
    fixture.delete("roles").await
}

/// Proves SVM-22, SVM-61, SVM-74.
pub(crate) async fn migration_of_an_unknown_resource_fails(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = MigrationFixture::create(cluster).await?;
    fixture.migrate("unknown", &fixture.namespace, "nopes").await?;
    // A second one of the same resource waits, and is then too old to be given time.
    fixture.migrate("waiting", &fixture.namespace, "nopes").await?;
    let failed = "Failed=True StorageVersionMigrationFailed: resource does not exist in discovery";
    let overlap = Cell::new(false);
    let ask = async || {
        // The second one is read first: what it shows then must be allowed later, too.
        let (second, first) = (fixture.conditions("waiting").await?, fixture.conditions("unknown").await?);
        let is_first_over = first.iter().any(|one| one == CLEANED_UP);
        overlap.set(overlap.get() || !second.is_empty() && !is_first_over);
        Ok(first.into_iter().find(|one| is_first_over && one == failed))
    };
    fixture.patiently("the first migration has failed", ask).await?;
    ensure!(!overlap.get(), "the second migration did not wait for the first");
    let end = fixture.end("waiting", async |_| Ok(())).await?;
    ensure!(end == failed, "{end}");
    cluster.checkpoint("both migrations have failed").await;
    fixture.delete("unknown").await?;
    fixture.delete("waiting").await
}

/// StorageVersions, which are served on request only, and a manager whose gates are on.
pub(crate) async fn records_of_vanished_api_servers_are_removed(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("versions").await?;
    let kind = GroupVersionKind::gvk("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion");
    let versions = cluster.dynamic(&ApiResource::from_gvk(&kind));
    let leases: Api<Lease> = cluster.api("kube-system");
    let server = |name: &str| format!("{namespace}-{name}");
    for name in ["one", "two", "three"] {
        create_identity_lease(cluster, &server(name)).await?;
    }
    let name = format!("{namespace}.wishes");
    let record = |id: &str, version: &str| json!({"apiServerID": id, "encodingVersion": version, "decodableVersions": ["v1", "v2"]});
    let records = json!([
        record(&server("one"), "v1"),
        record(&server("two"), "v2"),
        record(&server("three"), "v2"),
        record(&server("gone"), "v2")
    ]);
    let object = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name}, "spec": {}});
    cluster.create(&versions, object).await?;
    let status = json!({"status": {"storageVersions": records}});
    versions.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    let servers = async || {
        let Some(version) = versions.get_opt(&name).await? else { return Ok::<_, anyhow::Error>(None) };
        let status = version.data["status"].clone();
        let ids = status["storageVersions"].as_array().cloned().unwrap_or_default();
        let ids: Vec<_> =
            ids.iter().map(|record| record["apiServerID"].as_str().unwrap_or_default().to_owned()).collect();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        Ok(Some((
            ids,
            status["commonEncodingVersion"].clone(),
            conditions.iter().map(describe).collect::<Vec<_>>(),
        )))
    };
    cluster.settle().await;
    let untouched = servers().await?.context("the StorageVersion exists")?;
    ensure!(untouched.0.len() == 4, "without its gate the controller does not run: {untouched:?}");
    let _manager = start_collector(cluster, &namespace)?;
    let condition = |status: &str, set: &str| {
        format!(
            "AllEncodingVersionsEqual={status} CommonEncodingVersion{}: Common encoding version {set}",
            if set == "set" { "Set" } else { "Unset" }
        )
    };
    let ids = |names: &[&str]| names.iter().map(|name| server(name)).collect::<Vec<_>>();
    let differ = (ids(&["one", "two", "three"]), Value::Null, vec![condition("False", "unset")]);
    let becomes = async |expected: Option<(Vec<String>, Value, Vec<String>)>| {
        let ask = async || Ok((servers().await? == expected).then_some(()));
        cluster.eventually(&format!("the records are {expected:?}"), ask).await
    };
    becomes(Some(differ)).await?;
    cluster.checkpoint("the API servers encode differently").await;
    leases.delete(&server("one"), &DeleteParams::default()).await?;
    becomes(Some((ids(&["two", "three"]), json!("v2"), vec![condition("True", "set")]))).await?;
    cluster.checkpoint("the API servers encode in the same version").await;
    leases.delete(&server("two"), &DeleteParams::default()).await?;
    leases.delete(&server("three"), &DeleteParams::default()).await?;
    becomes(None).await
}

/// The role of the collector's service account exists only if the API server's gate is on, too.
///
/// Proves SVGC-3, SVGC-8.
pub(crate) async fn collector_of_storage_versions_writes_with_its_own_role(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    const COLLECTOR: &str = "system:serviceaccount:kube-system:storage-version-garbage-collector";
    let namespace = cluster.namespace("versions").await?;
    let kind = GroupVersionKind::gvk("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion");
    let versions = cluster.dynamic(&ApiResource::from_gvk(&kind));
    let alive = format!("{namespace}-alive");
    create_identity_lease(cluster, &alive).await?;
    let record = |id: &str| json!({"apiServerID": id, "encodingVersion": "v1", "decodableVersions": ["v1"]});
    let (shared, left) = (format!("{namespace}.shared"), format!("{namespace}.left"));
    for (name, records) in [(&shared, vec![record(&alive), record("gone")]), (&left, vec![record("gone")])] {
        let object = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": name}, "spec": {}});
        cluster.create(&versions, object).await?;
        let status = json!({"status": {"storageVersions": records, "commonEncodingVersion": "v1"}});
        versions.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    let plane = cluster.real()?.plane();
    let mark = plane.audit_mark()?;
    let controllers = ["storageversion-garbage-collector-controller"];
    let _manager = cluster.own_manager(&controllers, &["--feature-gates=StorageVersionAPI=true"]).await?;
    let are_collected = async || {
        let kept = versions.get(&shared).await?.data["status"]["storageVersions"].clone();
        let is_collected =
            kept.as_array().is_some_and(|kept| kept.len() == 1 && kept[0]["apiServerID"] == *alive);
        Ok((is_collected && versions.get_opt(&left).await?.is_none()).then_some(()))
    };
    cluster.eventually("the records of the vanished API server are gone", are_collected).await?;
    let requests = async || {
        let entries = plane.audit_since(mark)?.into_iter().filter(|entry| entry.user == COLLECTOR);
        let entries: Vec<_> = entries.collect();
        let writes = entries.iter().filter(|entry| entry.is_write()).count();
        Ok((writes >= 2).then_some(entries))
    };
    let requests = cluster.eventually("both writes are in the audit log", requests).await?;
    let written = |verb: &str, name: &str, subresource: &str| {
        requests.iter().any(|entry| {
            let Some(object) = entry.object.as_ref().filter(|_| entry.code == 200) else { return false };
            (&*entry.verb, &*object.name, &*object.subresource) == (verb, name, subresource)
        })
    };
    let refused: Vec<_> = requests.iter().filter(|entry| entry.code == 403).map(|entry| &entry.uri).collect();
    ensure!(refused.is_empty(), "refused: {refused:?}");
    ensure!(written("update", &shared, "status") && written("delete", &left, ""), "{requests:?}");
    cluster.checkpoint("the records are gone").await;
    versions.delete(&shared, &DeleteParams::default()).await?;
    cluster.api::<Lease>("kube-system").delete(&alive, &DeleteParams::default()).await?;
    Ok(())
}

/// Creates the Lease of an API server that does not exist. It is far from expiry: the API server deletes expired ones.
async fn create_identity_lease(cluster: &TestCluster, name: &str) -> anyhow::Result<()> {
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 36000, "renewTime": "2099-01-01T00:00:00.000000Z"});
    let lease = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    cluster.create(&cluster.api::<Lease>("kube-system"), lease).await.map(drop)
}

/// Starts a second manager that runs only this controller, with its gates on.
fn start_collector(cluster: &TestCluster, prefix: &str) -> anyhow::Result<keleustes_control_plane::Process> {
    let real = cluster.real()?;
    let user = format!("{prefix}-manager");
    let kubeconfig = real.plane().kubeconfig_for(&user, Some("system:masters"))?;
    let flags = [
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        "--controllers=storageversion-garbage-collector-controller".to_owned(),
        "--feature-gates=StorageVersionAPI=true".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    real.manager().start_with(real.plane(), &user, &flags)
}
