//! One leader after the other on one lease, alternately the original and ours.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use keleustes_control_plane::{ControlPlane, Process};

use super::loads::Loads;
use crate::World;
use crate::real::{Manager, built_manager};

/// What both are told: the workloads and what they need, and leases that are not waited for long.
const FLAGS: [&str; 6] = [
    "--controllers=replicaset-controller,replicationcontroller-controller,deployment-controller,\
     statefulset-controller,daemonset-controller,job-controller,garbage-collector-controller,\
     serviceaccount-controller",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
    "--kube-api-qps=100",
    "--kube-api-burst=100",
];

/// The longest a leader is left alone before the next one takes its place.
const TURN_MAX: Duration = Duration::from_millis(2500);

/// The managers.
pub(super) struct Relay<'p> {
    plane: &'p ControlPlane,
    chance: fastrand::Rng,
    /// Who leads, and who follows.
    leads: Manager,
    follows: Manager,
    /// How many have been started.
    started: usize,
    leader: Process,
}

impl<'p> Relay<'p> {
    /// Begins with the original.
    pub(super) async fn start(
        plane: &'p ControlPlane,
        world: &World,
        chance: fastrand::Rng,
    ) -> anyhow::Result<Self> {
        let (leads, follows) = (Manager::Original, Manager::Ours(built_manager()?));
        let leader = leads.start(plane, &log(&leads, 0), &FLAGS)?;
        let mut relay = Self { plane, chance, leads, follows, started: 1, leader };
        relay.until(world, "the first leader", async || Ok(holder(world).await?.map(drop))).await?;
        Ok(relay)
    }

    /// Lets the other program follow, after a while that chance decides.
    pub(super) async fn swap(
        &mut self,
        world: &World,
        loads: &Loads<'_>,
        phase: usize,
    ) -> anyhow::Result<()> {
        let mut before = self.follows.start(self.plane, &log(&self.follows, self.started), &FLAGS)?;
        std::mem::swap(&mut before, &mut self.leader);
        let held = holder(world).await?;
        let longest = u64::try_from(TURN_MAX.as_millis())?;
        let turn = Duration::from_millis(self.chance.u64(0..longest));
        tokio::time::sleep(turn).await;
        let how = if self.chance.bool() { "kill -9" } else { "SIGTERM" };
        if how == "SIGTERM" {
            before.terminate()?;
        } else {
            before.kill9()?;
        }
        before.wait_exit(Duration::from_secs(60)).context("the leader before ends")?;
        self.started += 1;
        std::mem::swap(&mut self.leads, &mut self.follows);
        let next = self.leads.whose();
        let under_way = loads.under_way(phase).await?;
        println!("        {how} after {:.1} s, {under_way} under way, then {next}", turn.as_secs_f64());
        let followed = async || {
            let holder = holder(world).await?;
            Ok((holder.is_some() && holder != held).then_some(()))
        };
        self.until(world, "the next leader", followed).await
    }

    /// Waits for something. A leader that ends because it could not renew its lease is started again, as any
    /// supervisor would.
    pub(super) async fn until<T>(
        &mut self,
        world: &World,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = tokio::time::Instant::now() + world.patience;
        loop {
            if !self.leader.is_running() {
                println!("        a leader lost its lease and is started again");
                self.leader = self.leads.start(self.plane, &log(&self.leads, self.started), &FLAGS)?;
                self.started += 1;
            }
            if let Some(answer) = ask().await.with_context(|| what.to_owned())? {
                return Ok(answer);
            }
            let in_time = tokio::time::Instant::now() < deadline;
            anyhow::ensure!(in_time, "{what}: not within {:?}\n{}", world.patience, self.leader.log_tail());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// What the log of the nth manager is called.
fn log(manager: &Manager, nth: usize) -> String {
    format!("{nth}-{}", manager.whose().replace(' ', "-"))
}

/// Who has the lease.
async fn holder(world: &World) -> anyhow::Result<Option<String>> {
    let lease = world.api::<Lease>("kube-system").get_opt("kube-controller-manager").await?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}
