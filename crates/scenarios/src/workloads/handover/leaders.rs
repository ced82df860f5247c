//! One leader after the other on one lease, alternating between the original and ours.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use keleustes_control_plane::{ControlPlane, Process};

use crate::TestCluster;
use crate::real::{Manager, built_manager};

/// Flags of both beside `--controllers`: short leases.
const FLAGS: [&str; 5] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
    "--kube-api-qps=100",
    "--kube-api-burst=100",
];

/// The longest term of a leader before it is stopped.
const TERM_MAX: Duration = Duration::from_millis(2500);

/// The two programs and the current leader.
pub(crate) struct AlternatingLeaders<'p> {
    plane: &'p ControlPlane,
    /// The flags of both.
    flags: Vec<&'static str>,
    rng: fastrand::Rng,
    /// The program that leads, and the one that leads next.
    leads: Manager,
    follows: Manager,
    /// How many processes were started.
    started: usize,
    leader: Process,
}

impl<'p> AlternatingLeaders<'p> {
    /// Starts with the original; `controllers` is the flag with the controllers of both.
    pub(crate) async fn start(
        plane: &'p ControlPlane,
        cluster: &TestCluster,
        rng: fastrand::Rng,
        controllers: &'static str,
    ) -> anyhow::Result<Self> {
        let (leads, follows) = (Manager::Original, Manager::Ours(built_manager()?));
        let flags: Vec<_> = [controllers].into_iter().chain(FLAGS).collect();
        let leader = leads.start(plane, &log_name(&leads, 0), &flags)?;
        let mut leaders = Self { plane, flags, rng, leads, follows, started: 1, leader };
        leaders.until(cluster, "the first leader", async || Ok(holder(cluster).await?.map(drop))).await?;
        Ok(leaders)
    }

    /// Starts the other program, and stops or kills the leader after a random time. `unfinished` says how much work the
    /// next leader has, for the log.
    pub(crate) async fn replace_leader(
        &mut self,
        cluster: &TestCluster,
        unfinished: impl AsyncFn() -> anyhow::Result<usize>,
    ) -> anyhow::Result<()> {
        let mut previous =
            self.follows.start(self.plane, &log_name(&self.follows, self.started), &self.flags)?;
        std::mem::swap(&mut previous, &mut self.leader);
        let previous_holder = holder(cluster).await?;
        let longest = u64::try_from(TERM_MAX.as_millis())?;
        let term = Duration::from_millis(self.rng.u64(0..longest));
        tokio::time::sleep(term).await;
        let how = if self.rng.bool() { "kill -9" } else { "SIGTERM" };
        if how == "SIGTERM" {
            previous.terminate()?;
        } else {
            previous.kill9()?;
        }
        previous.wait_exit(Duration::from_secs(60)).context("the previous leader exits")?;
        self.started += 1;
        std::mem::swap(&mut self.leads, &mut self.follows);
        let next = self.leads.whose();
        let unfinished = unfinished().await?;
        println!("        {how} after {:.1} s, {unfinished} unfinished, then {next}", term.as_secs_f64());
        let acquired = async || {
            let holder = holder(cluster).await?;
            Ok((holder.is_some() && holder != previous_holder).then_some(()))
        };
        self.until(cluster, "the next leader", acquired).await
    }

    /// Waits for something. A leader that exits because it could not renew its lease is restarted, as a
    /// supervisor would.
    pub(crate) async fn until<T>(
        &mut self,
        cluster: &TestCluster,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = tokio::time::Instant::now() + cluster.timeout;
        loop {
            if !self.leader.is_running() {
                println!("        a leader lost its lease and is restarted");
                self.leader =
                    self.leads.start(self.plane, &log_name(&self.leads, self.started), &self.flags)?;
                self.started += 1;
            }
            if let Some(answer) = ask().await.with_context(|| what.to_owned())? {
                return Ok(answer);
            }
            let in_time = tokio::time::Instant::now() < deadline;
            anyhow::ensure!(in_time, "{what}: not within {:?}\n{}", cluster.timeout, self.leader.log_tail());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// The name of the log of the nth process.
fn log_name(manager: &Manager, nth: usize) -> String {
    format!("{nth}-{}", manager.whose().replace(' ', "-"))
}

/// The holder of the lease.
async fn holder(cluster: &TestCluster) -> anyhow::Result<Option<String>> {
    let lease = cluster.api::<Lease>("kube-system").get_opt("kube-controller-manager").await?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}
