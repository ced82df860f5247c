//! A custom kind, `Wish`, for scenarios that need one; its objects may have any fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::TestCluster;

/// The kind in one namespace.
pub(crate) struct CustomKind<'w> {
    cluster: &'w TestCluster,
    definitions: Api<CustomResourceDefinition>,
    /// A group that no other scenario uses.
    pub(crate) group: String,
    pub(crate) api: Api<DynamicObject>,
}

impl<'w> CustomKind<'w> {
    /// Defines the kind in these versions; the first is the storage version.
    pub(crate) async fn define(
        cluster: &'w TestCluster,
        namespace: &str,
        versions: &[&str],
    ) -> anyhow::Result<Self> {
        let group = format!("{namespace}.example.com");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "wishes", "singular": "wish", "kind": "Wish", "listKind": "WishList"});
        let version_list: Vec<_> = versions.iter().map(version).collect();
        let definition = json!({"metadata": {"name": format!("wishes.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": version_list}});
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        cluster.create(&definitions, definition).await?;
        let kind = GroupVersionKind::gvk(&group, versions[0], "Wish");
        let kind = ApiResource::from_gvk_with_plural(&kind, "wishes");
        let api = Api::namespaced_with(cluster.admin.clone(), namespace, &kind);
        Ok(Self { cluster, definitions, group, api })
    }

    /// Creates an object; waits until the new kind is served.
    pub(crate) async fn create(&self, metadata: Value) -> anyhow::Result<DynamicObject> {
        let object =
            json!({"apiVersion": format!("{}/v1", self.group), "kind": "Wish", "metadata": metadata});
        let create = async || Ok(Some(self.cluster.create(&self.api, object.clone()).await?));
        self.cluster.eventually("the new kind", create).await
    }

    /// Deletes the definition.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        self.definitions.delete(&format!("wishes.{}", self.group), &DeleteParams::default()).await?;
        Ok(())
    }
}
