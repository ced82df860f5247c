//! Leaders change in the middle of rollouts, between the original and ours, and no pod comes or goes for it.
//!
//! Fifty workloads of all kinds roll forth and back. Meanwhile leaders are asked to stop or are killed at
//! moments that a seed decides (`KELEUSTES_SEED`, printed), and each is followed by the other program. Everything that
//! happens to pods is written down and must be what the templates and sizes account for.

mod ledger;
mod loads;
mod relay;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, User};
use keleustes_hollow::Hollow;
use kube::ResourceExt as _;
use kube::api::ListParams;

use self::ledger::Ledger;
use self::loads::{Loads, NODES, PHASES};
use self::relay::Relay;
use crate::World;
use crate::real::client_of;

/// How long fifty rollouts may take on a busy machine, changes of leaders among them.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often leaders change during each phase; the first only fills the cluster.
const SWAPS: [usize; PHASES] = [0, 3, 2, 3];

/// Proves REV-12, REV-33, REV-36, REV-49.
pub(crate) async fn leaders_change_in_the_middle_of_rollouts(_: &World) -> anyhow::Result<()> {
    let plane = plane()?;
    let world = World::new(client_of(&plane, User::Admin).await?, None, PATIENCE);
    let seed = std::env::var("KELEUSTES_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("        seed {seed}");
    let mut relay = Relay::start(&plane, &world, fastrand::Rng::with_seed(seed)).await?;
    let nodes = Hollow::builder(world.admin.clone()).nodes(NODES).scheduler(true).untaint(true);
    let nodes = nodes.capacity("64", "256Gi", 250).seed(seed).start();

    let namespace = world.inhabited_namespace("handover").await?;
    let ledger = Ledger::open(&world, &namespace).await?;
    let loads = Loads::new(&world, &namespace);
    for (phase, swaps) in SWAPS.into_iter().enumerate() {
        loads.begin(phase).await?;
        for _ in 0..swaps {
            relay.swap(&world, &loads, phase).await?;
        }
        relay
            .until(&world, &format!("phase {phase}"), async || {
                Ok((loads.under_way(phase).await? == 0).then_some(()))
            })
            .await?;
        ledger.close(&world, phase).await?.must_be(&Loads::accounts_for(phase))?;
    }
    let revisions = world.api::<ControllerRevision>(&namespace).list(&ListParams::default()).await?;
    let sets = world.api::<ReplicaSet>(&namespace).list(&ListParams::default()).await?;
    let rolled = sets.iter().filter(|set| !set.owner_references().is_empty()).count();
    ensure!(rolled == 2 * loads::DEPLOYMENTS, "{rolled} ReplicaSets for two templates of each Deployment");
    let wanted = 2 * (loads::STATEFUL_SETS + loads::DAEMON_SETS);
    ensure!(revisions.items.len() == wanted, "{} revisions where {wanted} are", revisions.items.len());
    nothing_is_left_to_do(&world, &mut relay, &loads, &plane).await?;
    nodes.stop().await;
    Ok(())
}

/// A leader that comes when all is done finds everything as it would have left it.
async fn nothing_is_left_to_do(
    world: &World,
    relay: &mut Relay<'_>,
    loads: &Loads<'_>,
    plane: &ControlPlane,
) -> anyhow::Result<()> {
    let before = plane.audit_mark()?;
    relay.swap(world, loads, PHASES - 1).await?;
    // Whoever has done something new has looked at all that was there before.
    loads.begin_last().await?;
    relay.until(world, "one more Deployment", async || loads.last_is_done().await).await?;
    let entries = plane.audit_since(before)?;
    let writes = entries.iter().filter(|entry| {
        let is_old = entry.object.as_ref().is_some_and(|object| {
            object.resource != "serviceaccounts"
                && !object.name.starts_with("last")
                && !object.name.is_empty()
        });
        is_old && entry.is_write() && !entry.is_routine() && entry.is_from_manager()
    });
    let writes: Vec<_> = writes.map(|entry| format!("{} {} {}", entry.user, entry.verb, entry.uri)).collect();
    ensure!(writes.is_empty(), "nothing was to do, and this was written:\n{}", writes.join("\n"));
    Ok(())
}

fn plane() -> anyhow::Result<ControlPlane> {
    let mut builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    if let Some(folder) = std::env::var_os("KELEUSTES_LOGS") {
        builder = builder.keep_logs(std::path::Path::new(&folder).join("handover"));
    }
    builder.start().context("a control plane")
}
