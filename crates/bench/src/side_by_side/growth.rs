//! Resource usage as a cluster grows: four sizes, each twice the one before, with a cold start at each.

use serde_json::json;

use super::bench_cluster::BenchCluster;
use super::loads::{PODS_A_NODE, create_deployments, data, keys, namespace_names, nodes_are_ready, scale};
use super::objects::{CONFIG_MAPS, create_all, create_namespaces};
use crate::requests::NAMESPACES;

/// Name prefix of these loads, followed by what grows.
pub(super) const PREFIX: &str = "growth-";

const REPLICAS: usize = 100;

/// Four sizes up to the full one.
fn sizes(cluster: &BenchCluster, full: usize) -> [usize; 4] {
    [8, 4, 2, 1].map(|part| cluster.share(full / part))
}

/// The size in a phase of such a load.
pub(super) fn size_of(phase: &str) -> Option<f64> {
    phase.split_once(' ')?.0.parse().ok()
}

/// Pods of Deployments with Services.
pub(super) async fn pods(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let sizes = sizes(cluster, 200);
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, sizes[3]);
    cluster.start_nodes(sizes[3] * REPLICAS / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    let mut created = 0;
    for (step, size) in sizes.into_iter().enumerate() {
        create_deployments(&cluster.client, &keys[created..size], REPLICAS).await?;
        created = size;
        let (phase, replicas) = (format!("{} pods", size * REPLICAS), REPLICAS + step + 1);
        cluster.cold_start(&phase, async |client| scale(client, &keys[0], replicas).await).await?;
    }
    Ok(())
}

/// Nodes without pods.
pub(super) async fn nodes(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    for size in sizes(cluster, 5000) {
        cluster.start_nodes(size, PODS_A_NODE as u32).await?;
        nodes_are_ready(&cluster.client, size).await?;
        cold_start_with_new_namespace(cluster, &format!("{size} nodes")).await?;
    }
    Ok(())
}

/// ConfigMaps that only the garbage collector watches.
pub(super) async fn objects(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let namespaces = namespace_names(20);
    create_namespaces(&cluster.client, &namespaces).await?;
    let sizes = sizes(cluster, 50_000);
    let keys = keys(&namespaces, sizes[3]);
    let mut created = 0;
    for size in sizes {
        let more = keys[created..size].iter().map(|key| (key.namespace.to_string(), data(&key.name, "data")));
        create_all(&cluster.client, &CONFIG_MAPS, more).await?;
        created = size;
        cold_start_with_new_namespace(cluster, &format!("{size} objects")).await?;
    }
    Ok(())
}

/// Starts the manager with a new namespace, whose ServiceAccount is its first work.
async fn cold_start_with_new_namespace(cluster: &mut BenchCluster, phase: &str) -> anyhow::Result<()> {
    let name = format!("new-{}", phase.replace(' ', "-"));
    let namespace = json!({"metadata": {"name": name}});
    cluster
        .cold_start(phase, async |client| create_all(client, &NAMESPACES, [(String::new(), namespace)]).await)
        .await
}
