//! Ranges of pod addresses for nodes, by a second manager that runs only this controller.

use std::collections::BTreeSet;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::{OwnManager, TestCluster};

/// Nodes without kubelets, and a manager that gives them ranges.
struct RangeFixture<'w> {
    cluster: &'w TestCluster,
    nodes: Api<Node>,
    prefix: String,
}

impl<'w> RangeFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        // Nodes of other scenarios would take part.
        nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let none_left = async || Ok(nodes.list(&ListParams::default()).await?.items.is_empty().then_some(()));
        cluster.eventually("no node is left", none_left).await?;
        Ok(Self { cluster, prefix: cluster.namespace("ranges").await?, nodes })
    }

    async fn start_manager(&self, flags: &[&str]) -> anyhow::Result<OwnManager> {
        let mut all = vec!["--allocate-node-cidrs=true"];
        all.extend(flags);
        self.cluster.own_manager(&["node-ipam-controller"], &all).await
    }

    async fn node(&self, name: &str, ranges: &[&str]) -> anyhow::Result<()> {
        // The original takes a second range for a node that changes while it gets the first, and gives it back.
        self.cluster.settle().await;
        let mut node = json!({"metadata": {"name": format!("{}-{name}", self.prefix)}});
        if let Some(first) = ranges.first() {
            node["spec"] = json!({"podCIDR": first, "podCIDRs": ranges});
        }
        self.cluster.create(&self.nodes, node).await.map(drop)
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.nodes.delete(&format!("{}-{name}", self.prefix), &DeleteParams::default()).await?;
        Ok(())
    }

    async fn ranges(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let node = self.nodes.get(&format!("{}-{name}", self.prefix)).await?;
        let spec = node.spec.unwrap_or_default();
        let ranges = spec.pod_cidrs.unwrap_or_default();
        ensure!(spec.pod_cidr.as_ref() == ranges.first(), "podCIDR is the first of podCIDRs");
        Ok(ranges)
    }

    async fn assigned(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let ask = async || Ok(Some(self.ranges(name).await?).filter(|ranges| !ranges.is_empty()));
        self.cluster.eventually(&format!("{name} has ranges"), ask).await
    }

    /// Deletes the events of nodes that have waited: in the original, a node may wait for the second range of another.
    async fn forget_waiting(&self) -> anyhow::Result<()> {
        let waiting = ListParams::default().fields("reason=CIDRNotAvailable");
        self.cluster.api::<Event>("default").delete_collection(&DeleteParams::default(), &waiting).await?;
        Ok(())
    }

    /// Waits for an event about a node, and returns its type, message and component.
    async fn event(&self, name: &str, reason: &str) -> anyhow::Result<[String; 3]> {
        let fields = format!("involvedObject.name={}-{name},reason={reason}", self.prefix);
        let events = self.cluster.api::<Event>("default");
        let ask = async || {
            let found = events.list(&ListParams::default().fields(&fields)).await?.items.into_iter().next();
            Ok(found.map(|event| {
                let component = event.source.and_then(|source| source.component);
                [event.type_, event.message, component].map(Option::unwrap_or_default)
            }))
        };
        self.cluster.eventually(&format!("an event {reason} for {name}"), ask).await
    }
}

pub(crate) async fn nodes_beyond_the_last_range_wait_until_one_is_free(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RangeFixture::create(cluster).await?;
    let flags = ["--cluster-cidr=10.210.0.0/23,fd00:210::/62", "--service-cluster-ip-range=10.96.0.0/16"];
    let _manager = fixture.start_manager(&flags).await?;
    fixture.node("a", &[]).await?;
    ensure!(fixture.assigned("a").await? == ["10.210.0.0/24", "fd00:210::/64"]);
    fixture.node("b", &[]).await?;
    ensure!(fixture.assigned("b").await? == ["10.210.1.0/24", "fd00:210:0:1::/64"]);
    fixture.node("c", &[]).await?;
    let [kind, message, component] = fixture.event("c", "CIDRNotAvailable").await?;
    let name = format!("{}-c", fixture.prefix);
    ensure!(kind == "Normal" && component == "cidrAllocator", "{kind} {component}");
    ensure!(message == format!("Node {name} status is now: CIDRNotAvailable"), "{message}");
    ensure!(fixture.ranges("c").await?.is_empty());
    cluster.checkpoint("a node waits for a range").await;
    fixture.delete("a").await?;
    let ranges = fixture.assigned("c").await?;
    ensure!(ranges[0] == "10.210.0.0/24", "{ranges:?}");
    ensure!(fixture.ranges("b").await? == ["10.210.1.0/24", "fd00:210:0:1::/64"], "b keeps its ranges");
    cluster.checkpoint("the waiting node has ranges").await;
    fixture.delete("b").await?;
    fixture.delete("c").await
}

pub(crate) async fn existing_ranges_of_nodes_are_kept(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = RangeFixture::create(cluster).await?;
    fixture.node("old", &["10.211.1.0/26"]).await?;
    let flags = [
        "--cluster-cidr=10.211.0.0/22",
        "--node-cidr-mask-size=24",
        "--service-cluster-ip-range=10.211.0.0/24",
    ];
    let _manager = fixture.start_manager(&flags).await?;
    fixture.node("first", &[]).await?;
    let ranges = fixture.assigned("first").await?;
    ensure!(ranges == ["10.211.2.0/24"], "{ranges:?}: the others are used by Services and a node");
    fixture.node("second", &[]).await?;
    ensure!(fixture.assigned("second").await? == ["10.211.3.0/24"]);
    ensure!(fixture.ranges("old").await? == ["10.211.1.0/26"]);
    fixture.forget_waiting().await?;
    cluster.checkpoint("the old node keeps its range").await;
    fixture.delete("old").await?;
    fixture.node("third", &[]).await?;
    let names = ["first", "second", "third"];
    let mut all = BTreeSet::new();
    for name in names {
        all.extend(fixture.assigned(name).await?);
    }
    let expected = ["10.211.1.0/24", "10.211.2.0/24", "10.211.3.0/24"].map(str::to_owned);
    ensure!(all == BTreeSet::from(expected), "{all:?}");
    fixture.forget_waiting().await?;
    cluster.checkpoint("every node has its range").await;
    for name in names {
        fixture.delete(name).await?;
    }
    Ok(())
}

/// Proves IPAM-29.
pub(crate) async fn restarted_manager_continues_with_unused_ranges(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RangeFixture::create(cluster).await?;
    let flags = [
        "--cluster-cidr=fd00:212::/62,10.212.0.0/22",
        "--service-cluster-ip-range=10.212.3.0/24,fd00:212:0:3::/64",
    ];
    let ranges = |block: u8| {
        let six = if block == 0 { "fd00:212::/64".to_owned() } else { format!("fd00:212:0:{block}::/64") };
        [six, format!("10.212.{block}.0/24")]
    };
    let manager = fixture.start_manager(&flags).await?;
    fixture.node("a", &[]).await?;
    ensure!(fixture.assigned("a").await? == ranges(0), "the first range is of IPv6");
    fixture.node("b", &[]).await?;
    ensure!(fixture.assigned("b").await? == ranges(1));
    cluster.checkpoint("two nodes have ranges").await;
    drop(manager);
    fixture.delete("a").await?;
    fixture.node("c", &[]).await?;
    cluster.settle().await;
    ensure!(fixture.ranges("c").await?.is_empty(), "without a manager");
    let _manager = fixture.start_manager(&flags).await?;
    ensure!(fixture.assigned("c").await? == ranges(0), "it was freed without a manager");
    ensure!(fixture.ranges("b").await? == ranges(1), "b keeps its ranges");
    cluster.checkpoint("the new manager has assigned ranges").await;
    fixture.delete("c").await?;
    fixture.node("d", &[]).await?;
    ensure!(fixture.assigned("d").await? == ranges(2), "the freed range comes last");
    fixture.node("e", &[]).await?;
    ensure!(fixture.assigned("e").await? == ranges(0), "the last range belongs to Services");
    cluster.checkpoint("every node has two ranges").await;
    for name in ["b", "d", "e"] {
        fixture.delete(name).await?;
    }
    Ok(())
}
