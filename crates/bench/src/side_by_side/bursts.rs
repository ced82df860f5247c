//! Memory after bursts: what a manager keeps when the work is done, next to what the same objects cost after a start.

use std::time::Duration;

use keleustes_objects::Key;

use super::bench_cluster::BenchCluster;
use super::loads::{PODS_A_NODE, create_deployments, keys, namespace_names, scale, wait_until_empty};
use super::objects::{PODS, create_namespaces, delete_all};
use crate::requests::NAMESPACES;

/// A burst should leave no trace after this long.
const REST: Duration = Duration::from_secs(60);

const REPLICAS: usize = 100;

/// 5,000 pods are created, then half of their namespaces are deleted; after each, a minute of rest and a cold start.
pub(super) async fn bursts(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(50).max(2);
    let namespaces = namespace_names(10);
    let keys = keys(&namespaces, count);
    cluster.start_nodes(count * REPLICAS / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster.phase("create", async |client| create_deployments(client, &keys, REPLICAS).await).await?;
    rest(cluster, "a minute after the creation").await?;
    let Some(kept) = keys.iter().find(|key| *key.namespace == *namespaces[0]) else { return Ok(()) };
    cluster.cold_start("start with all pods", async |client| scale(client, kept, REPLICAS + 1).await).await?;
    cluster
        .phase("delete half of the namespaces", async |client| {
            let half = &namespaces[namespaces.len() / 2..];
            delete_all(client, &NAMESPACES, half.iter().map(|name| Key::cluster(name.as_str()))).await?;
            wait_until_empty(client, &PODS, half).await
        })
        .await?;
    rest(cluster, "a minute after the deletion").await?;
    cluster
        .cold_start("start with half of the pods", async |client| scale(client, kept, REPLICAS + 2).await)
        .await
}

async fn rest(cluster: &mut BenchCluster, phase: &str) -> anyhow::Result<()> {
    cluster
        .phase(phase, async |_| {
            tokio::time::sleep(REST).await;
            Ok(Vec::new())
        })
        .await
}
