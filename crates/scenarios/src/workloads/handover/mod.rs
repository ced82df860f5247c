//! Leaders alternate between the original and ours during rollouts, and no additional pod is created or
//! deleted.
//!
//! Fifty workloads of all kinds roll back and forth. Meanwhile leaders are stopped or killed at random
//! times (seed `KELEUSTES_SEED`, printed), and each is replaced by the other program. All creations and
//! deletions of pods are recorded and must match the templates and replicas.

pub(crate) mod leaders;
mod pod_log;
mod workloads;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, User};
use keleustes_hollow::Hollow;
use kube::ResourceExt as _;
use kube::api::ListParams;

use self::leaders::AlternatingLeaders;
use self::pod_log::PodLog;
use self::workloads::{NODES, PHASES, Workloads};
use crate::TestCluster;
use crate::real::client_of;

/// How long fifty rollouts with changes of leaders may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The workload controllers and what they need.
const CONTROLLERS: &str = "--controllers=replicaset-controller,replicationcontroller-controller,deployment-controller,\
     statefulset-controller,daemonset-controller,job-controller,garbage-collector-controller,\
     serviceaccount-controller";

/// How often the leader changes in each phase; the first phase only creates the workloads.
const SWAPS: [usize; PHASES] = [0, 3, 2, 3];

/// Proves REV-12, REV-33, REV-36, REV-49.
pub(crate) async fn leaders_change_during_rollouts(_: &TestCluster) -> anyhow::Result<()> {
    let plane = plane()?;
    let cluster = TestCluster::new(client_of(&plane, User::Admin).await?, None, TIMEOUT);
    let seed = std::env::var("KELEUSTES_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("        seed {seed}");
    let rng = fastrand::Rng::with_seed(seed);
    let mut leaders = AlternatingLeaders::start(&plane, &cluster, rng, CONTROLLERS).await?;
    let nodes = Hollow::builder(cluster.admin.clone()).nodes(NODES).scheduler(true).untaint(true);
    let nodes = nodes.capacity("64", "256Gi", 250).seed(seed).start();

    let namespace = cluster.namespace_with_service_account("handover").await?;
    let log = PodLog::open(&cluster, &namespace).await?;
    let workloads = Workloads::new(&cluster, &namespace);
    for (phase, swaps) in SWAPS.into_iter().enumerate() {
        workloads.start_phase(phase).await?;
        for _ in 0..swaps {
            leaders.replace_leader(&cluster, async || workloads.unfinished(phase).await).await?;
        }
        leaders
            .until(&cluster, &format!("phase {phase}"), async || {
                Ok((workloads.unfinished(phase).await? == 0).then_some(()))
            })
            .await?;
        log.close(&cluster, phase).await?.expect_equal(&Workloads::expected_counts(phase))?;
    }
    let revisions = cluster.api::<ControllerRevision>(&namespace).list(&ListParams::default()).await?;
    let sets = cluster.api::<ReplicaSet>(&namespace).list(&ListParams::default()).await?;
    let replica_sets = sets.iter().filter(|set| !set.owner_references().is_empty()).count();
    ensure!(
        replica_sets == 2 * workloads::DEPLOYMENTS,
        "{replica_sets} ReplicaSets for two templates of each Deployment"
    );
    let wanted = 2 * (workloads::STATEFUL_SETS + workloads::DAEMON_SETS);
    ensure!(
        revisions.items.len() == wanted,
        "{} revisions where {wanted} are expected",
        revisions.items.len()
    );
    new_leader_writes_nothing(&cluster, &mut leaders, &workloads, &plane).await?;
    nodes.stop().await;
    Ok(())
}

/// A new leader that starts when all is done writes nothing to existing objects.
async fn new_leader_writes_nothing(
    cluster: &TestCluster,
    leaders: &mut AlternatingLeaders<'_>,
    workloads: &Workloads<'_>,
    plane: &ControlPlane,
) -> anyhow::Result<()> {
    let before = plane.audit_mark()?;
    leaders.replace_leader(cluster, async || workloads.unfinished(PHASES - 1).await).await?;
    // A leader that has completed new work has also reconciled all existing keys.
    workloads.create_last().await?;
    leaders.until(cluster, "one more Deployment", async || workloads.last_is_done().await).await?;
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
    ensure!(writes.is_empty(), "the new leader wrote although nothing had changed:\n{}", writes.join("\n"));
    Ok(())
}

/// A control plane with both programs.
pub(crate) fn plane() -> anyhow::Result<ControlPlane> {
    let mut builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    if let Some(folder) = std::env::var_os("KELEUSTES_LOGS") {
        builder = builder.keep_logs(std::path::Path::new(&folder).join("handover"));
    }
    builder.start().context("a control plane")
}
