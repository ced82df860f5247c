//! The TTL of nodes.

use anyhow::ensure;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::services::ServiceFixture;

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Proves TTL-10, TTL-11, TTL-24, TTL-28.
pub(crate) async fn nodes_have_their_ttl(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    let name = fixture.node("z1");
    let ttl_is_zero = async || {
        let node = fixture.nodes.get(&name).await?;
        let ttl = node.annotations().get(TTL).cloned();
        Ok((ttl.as_deref() == Some("0")).then_some(node))
    };
    cluster.eventually("the TTL", ttl_is_zero).await?;
    let annotations = json!({TTL: "99", "note": "kept"});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    fixture.nodes.patch(&name, &PatchParams::default(), &patch).await?;
    let node = cluster.eventually("the TTL again", ttl_is_zero).await?;
    ensure!(node.annotations().get("note").is_some_and(|note| note == "kept"), "{:?}", node.annotations());
    fixture.clean_up().await
}

/// Nodes without kubelets, and no other ones.
struct TtlFixture<'w> {
    cluster: &'w TestCluster,
    nodes: Api<Node>,
    prefix: String,
}

impl<'w> TtlFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let fixture =
            Self { cluster, prefix: cluster.namespace("ttl").await?, nodes: Api::all(cluster.admin.clone()) };
        fixture.delete_all().await?;
        Ok(fixture)
    }

    /// Deletes all nodes, as those of other scenarios would be counted, too.
    async fn delete_all(&self) -> anyhow::Result<()> {
        self.nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let none_left =
            async || Ok(self.nodes.list(&ListParams::default()).await?.items.is_empty().then_some(()));
        self.cluster.eventually("no node is left", none_left).await
    }

    fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    async fn node(&self, name: &str, annotations: Value) -> anyhow::Result<()> {
        let node = json!({"metadata": {"name": self.name(name), "annotations": annotations}});
        self.cluster.create(&self.nodes, node).await.map(drop)
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.nodes.delete(&self.name(name), &DeleteParams::default()).await?;
        Ok(())
    }

    async fn patch(&self, name: &str, metadata: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.nodes.patch(&self.name(name), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a node has this TTL, and nothing else of its annotations has changed.
    async fn annotations_become(&self, name: &str, wanted: Value) -> anyhow::Result<()> {
        let ask = async || {
            let found = json!(self.nodes.get(&self.name(name)).await?.annotations());
            if found == wanted { Ok(Some(())) } else { anyhow::bail!("{found}") }
        };
        self.cluster.eventually(&format!("{name} has {wanted}"), ask).await
    }

    /// Changes all nodes, which is when the TTL of each is noticed, and waits until it is this one.
    async fn all_become(&self, step: &str, ttl: &str) -> anyhow::Result<()> {
        let nodes = self.nodes.list_metadata(&ListParams::default()).await?.items;
        let touch = Patch::Merge(json!({"metadata": {"labels": {"step": step}}}));
        try_join_all(nodes.iter().map(async |node| {
            self.nodes.patch(&node.name_any(), &PatchParams::default(), &touch).await.map(drop)
        }))
        .await?;
        let all_have_it = async || {
            let nodes = self.nodes.list_metadata(&ListParams::default()).await?.items;
            let others =
                nodes.iter().filter(|node| node.annotations().get(TTL).is_none_or(|found| found != ttl));
            match others.count() {
                0 => Ok(Some(())),
                count => anyhow::bail!("{count} of {} nodes have another", nodes.len()),
            }
        };
        self.cluster.eventually(&format!("all nodes have the TTL {ttl}"), all_have_it).await
    }
}

/// Proves TTL-10, TTL-12, TTL-23, TTL-24, TTL-28.
pub(crate) async fn changed_ttl_of_a_node_is_restored(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = TtlFixture::create(cluster).await?;
    fixture.node("new", json!({"note": "kept"})).await?;
    fixture.annotations_become("new", json!({"note": "kept", TTL: "0"})).await?;
    fixture.node("odd", json!({TTL: "soon"})).await?;
    fixture.annotations_become("odd", json!({TTL: "0"})).await?;
    fixture.node("same", json!({TTL: "00"})).await?;
    for (value, other) in [(Value::Null, "removed"), (json!("15"), "changed"), (json!(""), "emptied")] {
        fixture.patch("new", json!({"annotations": {TTL: value, "note": other}})).await?;
        fixture.annotations_become("new", json!({"note": other, TTL: "0"})).await?;
    }
    fixture.node("late", json!({TTL: "300"})).await?;
    fixture.annotations_become("late", json!({TTL: "0"})).await?;
    cluster.settle().await;
    fixture.annotations_become("same", json!({TTL: "00"})).await?;
    cluster.checkpoint("every node has its TTL").await;
    fixture.delete_all().await
}

/// Proves TTL-7, TTL-8, TTL-9, TTL-13.
pub(crate) async fn ttl_grows_beyond_a_hundred_nodes_and_shrinks_below_ninety(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = TtlFixture::create(cluster).await?;
    let names: Vec<_> = (0..100).map(|n| format!("n{n:02}")).collect();
    try_join_all(names.iter().map(|name| fixture.node(name, Value::Null))).await?;
    fixture.all_become("hundred", "0").await?;
    fixture.node("last", Value::Null).await?;
    fixture.annotations_become("last", json!({TTL: "15"})).await?;
    fixture.all_become("more", "15").await?;
    cluster.checkpoint("a hundred and one nodes").await;
    fixture.delete("last").await?;
    try_join_all(names[90..].iter().map(|name| fixture.delete(name))).await?;
    // The deletions must be seen before the others change, and the changes before the TTL is read.
    cluster.settle().await;
    fixture.all_become("ninety", "15").await?;
    cluster.settle().await;
    fixture.annotations_become("n00", json!({TTL: "15"})).await?;
    cluster.checkpoint("ninety nodes").await;
    fixture.delete("n89").await?;
    cluster.settle().await;
    fixture.all_become("fewer", "0").await?;
    fixture.delete_all().await
}
