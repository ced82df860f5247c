//! What the manager costs as a cluster grows: four sizes, each twice the one before, and a cold start at each.

use serde_json::json;

use super::loads::{PODS_A_NODE, create_deployments, data, keys, nodes_are_ready, scale, spaces};
use super::objects::{CONFIG_MAPS, create_all, make_namespaces};
use super::stage::Stage;
use crate::requests::NAMESPACES;

/// The loads of this room are called so, and then what grows.
pub(super) const PREFIX: &str = "growth-";

const REPLICAS: usize = 100;

/// Four sizes up to the full one.
fn sizes(stage: &Stage, full: usize) -> [usize; 4] {
    [8, 4, 2, 1].map(|part| stage.share(full / part))
}

/// How large what grows was in a phase of such a load.
pub(super) fn size_of(phase: &str) -> Option<f64> {
    phase.split_once(' ')?.0.parse().ok()
}

/// Pods of Deployments behind Services.
pub(super) async fn pods(stage: &mut Stage) -> anyhow::Result<()> {
    let sizes = sizes(stage, 200);
    let namespaces = spaces(20);
    let keys = keys(&namespaces, sizes[3]);
    stage.join_nodes(sizes[3] * REPLICAS / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    make_namespaces(&stage.client, &namespaces).await?;
    let mut made = 0;
    for (step, size) in sizes.into_iter().enumerate() {
        create_deployments(&stage.client, &keys[made..size], REPLICAS).await?;
        made = size;
        let (phase, work) = (format!("{} pods", size * REPLICAS), REPLICAS + step + 1);
        stage.cold_start(&phase, async |client| scale(client, &keys[0], work).await).await?;
    }
    Ok(())
}

/// Nodes that run nothing.
pub(super) async fn nodes(stage: &mut Stage) -> anyhow::Result<()> {
    for size in sizes(stage, 5000) {
        stage.join_nodes(size, PODS_A_NODE as u32).await?;
        nodes_are_ready(&stage.client, size).await?;
        start_beside_a_new_namespace(stage, &format!("{size} nodes")).await?;
    }
    Ok(())
}

/// ConfigMaps that nobody but the garbage collector looks at.
pub(super) async fn objects(stage: &mut Stage) -> anyhow::Result<()> {
    let namespaces = spaces(20);
    make_namespaces(&stage.client, &namespaces).await?;
    let sizes = sizes(stage, 50_000);
    let keys = keys(&namespaces, sizes[3]);
    let mut made = 0;
    for size in sizes {
        let more = keys[made..size].iter().map(|key| (key.namespace.to_string(), data(&key.name, "data")));
        create_all(&stage.client, &CONFIG_MAPS, more).await?;
        made = size;
        start_beside_a_new_namespace(stage, &format!("{size} objects")).await?;
    }
    Ok(())
}

/// A new namespace wants an account, which is work for a manager that starts.
async fn start_beside_a_new_namespace(stage: &mut Stage, phase: &str) -> anyhow::Result<()> {
    let name = format!("beside-{}", phase.replace(' ', "-"));
    let namespace = json!({"metadata": {"name": name}});
    stage
        .cold_start(phase, async |client| create_all(client, &NAMESPACES, [(String::new(), namespace)]).await)
        .await
}
