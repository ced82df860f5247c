//! What the manager costs as a cluster grows: four sizes, each twice the one before, and a cold start at each.

use super::loads::{PODS_A_NODE, create_deployments, keys, scale, spaces};
use super::objects::make_namespaces;
use super::stage::Stage;

const REPLICAS: usize = 100;
/// How many Deployments there are at each size.
const SIZES: [usize; 4] = [25, 50, 100, 200];

/// The name of the phase at which there are so many pods.
fn phase(pods: usize) -> String {
    format!("{pods} pods")
}

/// How many pods a phase of this load had.
pub(super) fn pods_of(phase: &str) -> Option<f64> {
    phase.strip_suffix(" pods")?.parse().ok()
}

/// Grows a cluster step by step.
pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    let sizes = SIZES.map(|full| stage.share(full));
    let namespaces = spaces(20);
    let keys = keys(&namespaces, sizes[3]);
    stage.join_nodes(sizes[3] * REPLICAS / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    make_namespaces(&stage.client, &namespaces).await?;
    let mut made = 0;
    for (step, size) in sizes.into_iter().enumerate() {
        create_deployments(&stage.client, &keys[made..size], REPLICAS).await?;
        made = size;
        let work = REPLICAS + step + 1;
        stage.cold_start(&phase(size * REPLICAS), async |client| scale(client, &keys[0], work).await).await?;
    }
    Ok(())
}
