//! A kind of their own for scenarios that need one: wishes, which may hold anything.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::World;

/// The kind as it is served in one namespace.
pub(crate) struct Wishes<'w> {
    world: &'w World,
    definitions: Api<CustomResourceDefinition>,
    /// A group that no other scenario has.
    pub(crate) group: String,
    pub(crate) api: Api<DynamicObject>,
}

impl<'w> Wishes<'w> {
    /// Defines the kind in versions of which the first is stored.
    pub(crate) async fn define(world: &'w World, namespace: &str, versions: &[&str]) -> anyhow::Result<Self> {
        let group = format!("{namespace}.example.com");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "wishes", "singular": "wish", "kind": "Wish", "listKind": "WishList"});
        let versions_told: Vec<_> = versions.iter().map(version).collect();
        let definition = json!({"metadata": {"name": format!("wishes.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions_told}});
        let definitions: Api<CustomResourceDefinition> = Api::all(world.admin.clone());
        world.create(&definitions, definition).await?;
        let kind = GroupVersionKind::gvk(&group, versions[0], "Wish");
        let kind = ApiResource::from_gvk_with_plural(&kind, "wishes");
        let api = Api::namespaced_with(world.admin.clone(), namespace, &kind);
        Ok(Self { world, definitions, group, api })
    }

    /// Makes a wish, as soon as the kind is served, which is a moment after it was accepted.
    pub(crate) async fn make(&self, metadata: Value) -> anyhow::Result<DynamicObject> {
        let wish = json!({"apiVersion": format!("{}/v1", self.group), "kind": "Wish", "metadata": metadata});
        let create = async || Ok(Some(self.world.create(&self.api, wish.clone()).await?));
        self.world.eventually("the new kind", create).await
    }

    /// Takes the kind away again.
    pub(crate) async fn forget(self) -> anyhow::Result<()> {
        self.definitions.delete(&format!("wishes.{}", self.group), &DeleteParams::default()).await?;
        Ok(())
    }
}
