//! Who leads: a lease handed over at once, taken after a crash, shared with the original, and never
//! written under by two.
//!
//! Each contender speaks as a user of its own, so the audit log tells who wrote what and when. The time it
//! takes is printed; only its order is judged, because machines are noisy.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use keleustes_control_plane::Process;

use crate::World;
use crate::real::{Manager, Real};

/// A manager that competes for the lease of these scenarios.
struct Contender<'w> {
    real: &'w Real,
    user: String,
    process: Process,
}

impl<'w> Contender<'w> {
    fn start(real: &'w Real, manager: &Manager, user: &str, lease: &str) -> anyhow::Result<Self> {
        let kubeconfig = real.plane().kubeconfig_for(user, Some("system:masters"))?;
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--leader-elect-resource-name={lease}"),
            "--controllers=serviceaccount-controller".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let process = manager.start_with(real.plane(), user, &flags)?;
        Ok(Self { real, user: user.to_owned(), process })
    }

    /// When this contender created accounts.
    fn writes(&self) -> anyhow::Result<Vec<Timestamp>> {
        let entries = self.real.plane().audit_entries()?.into_iter();
        let ours =
            entries.filter(|entry| entry.user == self.user && entry.verb == "create" && entry.code == 201);
        let accounts =
            ours.filter(|entry| entry.object.as_ref().is_some_and(|o| o.resource == "serviceaccounts"));
        Ok(accounts.filter_map(|entry| entry.received_at.parse().ok()).collect())
    }

    /// The first write after a moment.
    async fn writes_after(&self, world: &World, moment: Timestamp) -> anyhow::Result<Timestamp> {
        let what = format!("a write of {}", self.user);
        world.eventually(&what, async || Ok(self.writes()?.into_iter().find(|at| *at > moment))).await
    }
}

/// Asks for something new every few milliseconds, for as long as something else goes on.
async fn busy<T>(world: &World, meanwhile: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let work = async {
        loop {
            // A request that fails because a server is busy is made up for by the next one.
            let _ = world.namespace("busy").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        biased;
        result = meanwhile => result,
        () = work => unreachable!("there is always more to ask for"),
    }
}

/// Nothing of the one is later than anything of the other.
fn took_turns(before: &Contender<'_>, after: &Contender<'_>, since: Timestamp) -> anyhow::Result<()> {
    let last = before.writes()?.into_iter().max();
    let first = after.writes()?.into_iter().find(|at| *at > since);
    ensure!(last < first, "{} wrote until {last:?}, {} from {first:?}", before.user, after.user);
    Ok(())
}

fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_millis().try_into().unwrap_or(i64::MAX)
}

/// A leader and a standby, both ours, with the world's own manager out of the way.
async fn leader_and_standby<'w>(
    world: &'w World,
    lease: &str,
) -> anyhow::Result<(Contender<'w>, Contender<'w>)> {
    let real = world.real()?;
    real.stop_manager()?;
    let ours = real.ours()?;
    let leader = Contender::start(real, &ours, &format!("{lease}-a"), lease)?;
    busy(world, leader.writes_after(world, Timestamp::UNIX_EPOCH)).await?;
    let standby = Contender::start(real, &ours, &format!("{lease}-b"), lease)?;
    // Long enough to see the lease and fill the caches.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok((leader, standby))
}

/// Proves LE-40, LE-43, RUN-72.
pub(crate) async fn a_stopped_leader_is_followed_at_once(world: &World) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(world, "stopped").await?;
    let stopped_at = Timestamp::now();
    leader.process.terminate()?;
    let followed_at = busy(world, standby.writes_after(world, stopped_at)).await?;
    let status = leader.process.wait_exit(Duration::from_secs(15))?;
    ensure!(status.success(), "an orderly stop is a success, not {status}");
    println!("        SIGTERM to the standby's first write: {} ms", milliseconds(stopped_at, followed_at));
    ensure!(milliseconds(stopped_at, followed_at) < 5_000, "a released lease is not waited for");
    took_turns(&leader, &standby, stopped_at)?;
    world.plane()?.start_manager()
}

/// Proves LE-28, LE-44.
pub(crate) async fn a_killed_leader_is_followed_when_its_lease_ends(world: &World) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(world, "killed").await?;
    let killed_at = Timestamp::now();
    leader.process.kill9()?;
    let followed_at = busy(world, standby.writes_after(world, killed_at)).await?;
    println!("        kill -9 to the standby's first write: {} ms", milliseconds(killed_at, followed_at));
    ensure!(milliseconds(killed_at, followed_at) < 25_000, "a lease of 15 s is not waited for much longer");
    took_turns(&leader, &standby, killed_at)?;
    world.plane()?.start_manager()
}

/// Proves LE-105, RUN-73, RUN-74, RUN-81.
pub(crate) async fn a_paused_leader_writes_nothing_on_waking(world: &World) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(world, "paused").await?;
    let paused_at = Timestamp::now();
    leader.process.pause()?;
    busy(world, standby.writes_after(world, paused_at)).await?;
    leader.process.resume()?;
    let status = busy(world, async { Ok(leader.process.wait_exit(Duration::from_secs(15))?) }).await?;
    ensure!(status.code() == Some(1), "a lost lease ends the process with 1, not {status}");
    took_turns(&leader, &standby, paused_at)?;
    world.plane()?.start_manager()
}

/// Proves LE-12, LE-13.
pub(crate) async fn the_original_and_we_alternate(world: &World) -> anyhow::Result<()> {
    let real = world.real()?;
    real.stop_manager()?;
    let turns = [Manager::Original, real.ours()?, Manager::Original, real.ours()?];
    let mut before: Option<Contender<'_>> = None;
    for (turn, manager) in turns.iter().enumerate() {
        let mut contender = Contender::start(real, manager, &format!("turn-{turn}"), "alternating")?;
        let since = Timestamp::now();
        if let Some(mut before) = before.take() {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let stopped_at = Timestamp::now();
            before.process.terminate()?;
            let followed_at = busy(world, contender.writes_after(world, stopped_at)).await?;
            before.process.wait_exit(Duration::from_secs(20)).context("the one before ends")?;
            println!("        turn {turn}: {} ms after SIGTERM", milliseconds(stopped_at, followed_at));
            took_turns(&before, &contender, since)?;
        } else {
            busy(world, contender.writes_after(world, since)).await?;
        }
        ensure!(contender.process.is_running(), "the leader goes on");
        before = Some(contender);
    }
    drop(before);
    world.plane()?.start_manager()
}
