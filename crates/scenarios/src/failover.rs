//! Leader election: a released lease is taken at once, that of a crashed leader when it expires, leaders
//! may alternate with the original, and two processes never write at the same time.
//!
//! Each candidate has its own user, so that the audit log distinguishes their writes. Durations are printed;
//! only the order and generous limits are checked, because machines are noisy.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use keleustes_control_plane::Process;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};

use crate::real::{Manager, RealCluster};
use crate::{TestCluster, resilience};

/// A manager that competes for the lease of these scenarios.
struct Candidate<'w> {
    real: &'w RealCluster,
    user: String,
    process: Process,
}

impl<'w> Candidate<'w> {
    fn start(real: &'w RealCluster, manager: &Manager, user: &str, lease: &str) -> anyhow::Result<Self> {
        Self::start_with(real, manager, user, lease, &[])
    }

    fn start_with(
        real: &'w RealCluster,
        manager: &Manager,
        user: &str,
        lease: &str,
        more_flags: &[String],
    ) -> anyhow::Result<Self> {
        let kubeconfig = real.plane().kubeconfig_for(user, Some("system:masters"))?;
        let mut flags = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--leader-elect-resource-name={lease}"),
            "--controllers=serviceaccount-controller".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        flags.extend_from_slice(more_flags);
        let process = manager.start_with(real.plane(), user, &flags)?;
        Ok(Self { real, user: user.to_owned(), process })
    }

    /// The times at which this candidate created ServiceAccounts.
    fn writes(&self) -> anyhow::Result<Vec<Timestamp>> {
        let entries = self.real.plane().audit_entries()?.into_iter();
        let ours =
            entries.filter(|entry| entry.user == self.user && entry.verb == "create" && entry.code == 201);
        let accounts =
            ours.filter(|entry| entry.object.as_ref().is_some_and(|o| o.resource == "serviceaccounts"));
        Ok(accounts.filter_map(|entry| entry.received_at.parse().ok()).collect())
    }

    /// Waits for the first write after a time.
    async fn first_write_after(&self, cluster: &TestCluster, moment: Timestamp) -> anyhow::Result<Timestamp> {
        let what = format!("a write of {}", self.user);
        cluster.eventually(&what, async || Ok(self.writes()?.into_iter().find(|at| *at > moment))).await
    }
}

/// Creates a namespace every 20 ms while the future runs, so that the leader always has work.
async fn while_creating_namespaces<T>(
    cluster: &TestCluster,
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let work = async {
        loop {
            // A failed request does not matter: the next one follows.
            let _ = cluster.namespace("failover").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        biased;
        result = future => result,
        () = work => unreachable!("the loop never ends"),
    }
}

/// All writes of the first candidate come before those of the second.
fn wrote_one_after_the_other(
    previous: &Candidate<'_>,
    next: &Candidate<'_>,
    since: Timestamp,
) -> anyhow::Result<()> {
    let last = previous.writes()?.into_iter().max();
    let first = next.writes()?.into_iter().find(|at| *at > since);
    ensure!(last < first, "{} wrote until {last:?}, {} from {first:?}", previous.user, next.user);
    Ok(())
}

fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_millis().try_into().unwrap_or(i64::MAX)
}

/// A leader and a standby, both ours; the cluster's own manager is stopped.
async fn leader_and_standby<'w>(
    cluster: &'w TestCluster,
    lease: &str,
) -> anyhow::Result<(Candidate<'w>, Candidate<'w>)> {
    leader_and_standby_with(cluster, lease, &[]).await
}

async fn leader_and_standby_with<'w>(
    cluster: &'w TestCluster,
    lease: &str,
    flags: &[String],
) -> anyhow::Result<(Candidate<'w>, Candidate<'w>)> {
    let real = cluster.real()?;
    real.stop_manager()?;
    let ours = real.ours()?;
    let leader = Candidate::start_with(real, &ours, &format!("{lease}-a"), lease, flags)?;
    while_creating_namespaces(cluster, leader.first_write_after(cluster, Timestamp::UNIX_EPOCH)).await?;
    let standby = Candidate::start_with(real, &ours, &format!("{lease}-b"), lease, flags)?;
    // Long enough to observe the lease and fill the caches.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok((leader, standby))
}

/// Proves LE-40, LE-43, RUN-72.
pub(crate) async fn stopped_leader_is_replaced_at_once(cluster: &TestCluster) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(cluster, "stopped").await?;
    let stopped_at = Timestamp::now();
    leader.process.terminate()?;
    let first_write_at =
        while_creating_namespaces(cluster, standby.first_write_after(cluster, stopped_at)).await?;
    let status = leader.process.wait_exit(Duration::from_secs(15))?;
    ensure!(status.success(), "a graceful shutdown exits with 0, not {status}");
    println!("        SIGTERM to the standby's first write: {} ms", milliseconds(stopped_at, first_write_at));
    ensure!(milliseconds(stopped_at, first_write_at) < 5_000, "a released lease is taken at once");
    wrote_one_after_the_other(&leader, &standby, stopped_at)?;
    cluster.processes()?.start_manager()
}

/// A standby whose watch of Secrets fails takes over for the controllers that need none. A leader that is stopped leaves
/// a handover record; after one that is killed, every cache is relisted, also that of Secrets.
///
/// Proves RUN-124.
pub(crate) async fn standby_takes_over_while_secrets_cannot_be_listed(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    take_over_without_secrets(cluster, "undecodable", LeaderEnd::Terminated).await?;
    take_over_without_secrets(cluster, "undecodable-killed", LeaderEnd::Killed).await
}

/// How a leader ends.
#[derive(Clone, Copy)]
enum LeaderEnd {
    /// By SIGTERM: it releases its lease.
    Terminated,
    /// By SIGKILL: its lease of 15 s must expire.
    Killed,
}

async fn take_over_without_secrets(cluster: &TestCluster, lease: &str, end: LeaderEnd) -> anyhow::Result<()> {
    let plane = cluster.real()?.plane();
    let readers_of_secrets =
        "--controllers=garbage-collector-controller,legacy-serviceaccount-token-cleaner-controller";
    let (mut leader, standby) =
        leader_and_standby_with(cluster, lease, &[readers_of_secrets.to_owned()]).await?;
    let namespace = cluster.namespace(lease).await?;
    let key = format!("/registry/secrets/{namespace}/undecodable");
    plane.put_in_etcd(&key, b"not an object")?;
    let ended = async {
        resilience::wait_until_secrets_cannot_be_listed(cluster, &namespace).await?;
        let ended_at = Timestamp::now();
        match end {
            LeaderEnd::Terminated => leader.process.terminate()?,
            LeaderEnd::Killed => leader.process.kill9()?,
        }
        let first_write_at =
            while_creating_namespaces(cluster, standby.first_write_after(cluster, ended_at)).await?;
        leader.process.wait_exit(Duration::from_secs(15))?;
        ensure!(
            !resilience::can_list_secrets(cluster, &namespace).await,
            "Secrets could be listed meanwhile"
        );
        anyhow::Ok((ended_at, first_write_at))
    }
    .await;
    // Other scenarios need Secrets again.
    plane.delete_in_etcd(&key)?;
    let (ended_at, first_write_at) = ended?;
    let took = milliseconds(ended_at, first_write_at);
    let (signal, milliseconds_max) = match end {
        LeaderEnd::Terminated => ("SIGTERM", 5_000),
        LeaderEnd::Killed => ("kill -9", 25_000),
    };
    println!("        {signal} to the standby's first write: {took} ms");
    ensure!(took < milliseconds_max, "the standby waited for Secrets");
    wrote_one_after_the_other(&leader, &standby, ended_at)?;
    cluster.processes()?.start_manager()
}

/// Proves LE-28, LE-44.
pub(crate) async fn killed_leader_is_replaced_when_its_lease_expires(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(cluster, "killed").await?;
    let killed_at = Timestamp::now();
    leader.process.kill9()?;
    let first_write_at =
        while_creating_namespaces(cluster, standby.first_write_after(cluster, killed_at)).await?;
    println!("        kill -9 to the standby's first write: {} ms", milliseconds(killed_at, first_write_at));
    ensure!(
        milliseconds(killed_at, first_write_at) < 25_000,
        "a lease of 15 s is taken soon after it expires"
    );
    wrote_one_after_the_other(&leader, &standby, killed_at)?;
    cluster.processes()?.start_manager()
}

/// A process that was killed is restarted on its machine, and its Lease need not expire: the kernel's lock on the file
/// proves that it has ended.
pub(crate) async fn killed_leader_with_a_lock_file_continues_after_its_restart(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let real = cluster.real()?;
    real.stop_manager()?;
    let ours = real.ours()?;
    let lock_file = format!("--lease-lock-file={}", real.plane().logs_dir().join("lease.lock").display());
    let flags = [lock_file];
    let start = |user: &str| Candidate::start_with(real, &ours, user, "lock-file", &flags);
    let mut killed = start("lock-file-a")?;
    while_creating_namespaces(cluster, killed.first_write_after(cluster, Timestamp::UNIX_EPOCH)).await?;
    let killed_at = Timestamp::now();
    killed.process.kill9()?;
    killed.process.wait_exit(Duration::from_secs(5))?;
    let restarted_at = Timestamp::now();
    let restarted = start("lock-file-b")?;
    let first_write_at =
        while_creating_namespaces(cluster, restarted.first_write_after(cluster, killed_at)).await?;
    let took = milliseconds(restarted_at, first_write_at);
    println!("        restart after kill -9 to the first write: {took} ms");
    ensure!(took < 1_000, "the lease of a process that has ended is taken at once, not after {took} ms");
    wrote_one_after_the_other(&killed, &restarted, killed_at)?;
    // A second process of the machine waits while the first lives.
    let standby = start("lock-file-c")?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let written = standby.writes()?;
    ensure!(written.is_empty(), "the standby wrote beside the leader: {written:?}");
    cluster.processes()?.start_manager()
}

/// Proves LE-105, RUN-73, RUN-74, RUN-81.
pub(crate) async fn paused_leader_writes_nothing_after_resuming(cluster: &TestCluster) -> anyhow::Result<()> {
    let (mut leader, standby) = leader_and_standby(cluster, "paused").await?;
    let paused_at = Timestamp::now();
    leader.process.pause()?;
    while_creating_namespaces(cluster, standby.first_write_after(cluster, paused_at)).await?;
    leader.process.resume()?;
    let status =
        while_creating_namespaces(cluster, async { Ok(leader.process.wait_exit(Duration::from_secs(15))?) })
            .await?;
    ensure!(status.code() == Some(1), "a process that loses its lease exits with 1, not {status}");
    wrote_one_after_the_other(&leader, &standby, paused_at)?;
    cluster.processes()?.start_manager()
}

/// Interferes with the Lease while the leader works and a standby waits. Whether or not the leader changes, at most one
/// process writes at a time.
async fn one_writer_after(
    cluster: &TestCluster,
    lease: &str,
    interfere: impl AsyncFn(&Api<Lease>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let began_at = Timestamp::now();
    let (leader, standby) = leader_and_standby(cluster, lease).await?;
    let leases = cluster.api::<Lease>("kube-system");
    let candidates = [&leader, &standby];
    while_creating_namespaces(cluster, async {
        interfere(&leases).await?;
        // Longer than a Lease lasts, so that every consequence shows.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let later = Timestamp::now();
        let again = async || {
            let last = candidates.iter().map(|one| Ok(one.writes()?.into_iter().max()));
            let last = last.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().max();
            Ok((last > Some(later)).then_some(()))
        };
        cluster.eventually("one of the two to work", again).await
    })
    .await?;
    let mut writes = Vec::new();
    for candidate in candidates {
        // A repeated scenario has the same users.
        let recent = candidate.writes()?.into_iter().filter(|at| *at > began_at);
        writes.extend(recent.map(|at| (at, &candidate.user)));
    }
    writes.sort();
    for candidate in candidates {
        let count = writes.iter().filter(|(_, user)| *user == &candidate.user).count();
        println!("        {} wrote {count} times", candidate.user);
    }
    let mut terms = writes.clone();
    terms.dedup_by_key(|(_, user)| *user);
    ensure!(terms.len() <= 2, "two managers wrote in turns, from {terms:?}");
    cluster.processes()?.start_manager()
}

/// Proves LE-100.
pub(crate) async fn deleted_lease_never_has_two_writers(cluster: &TestCluster) -> anyhow::Result<()> {
    one_writer_after(cluster, "deleted", async |leases| {
        leases.delete("deleted", &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}

/// Proves LE-102.
pub(crate) async fn cleared_lease_holder_never_has_two_writers(cluster: &TestCluster) -> anyhow::Result<()> {
    one_writer_after(cluster, "cleared", async |leases| {
        let no_holder = Patch::Merge(serde_json::json!({"spec": {"holderIdentity": ""}}));
        leases.patch("cleared", &PatchParams::default(), &no_holder).await?;
        Ok(())
    })
    .await
}

/// Proves LE-12, LE-13.
pub(crate) async fn leadership_alternates_with_the_original(cluster: &TestCluster) -> anyhow::Result<()> {
    let real = cluster.real()?;
    real.stop_manager()?;
    let managers = [Manager::Original, real.ours()?, Manager::Original, real.ours()?];
    let mut previous: Option<Candidate<'_>> = None;
    for (round, manager) in managers.iter().enumerate() {
        let mut candidate = Candidate::start(real, manager, &format!("round-{round}"), "alternating")?;
        let since = Timestamp::now();
        if let Some(mut previous) = previous.take() {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let stopped_at = Timestamp::now();
            previous.process.terminate()?;
            let first_write_at =
                while_creating_namespaces(cluster, candidate.first_write_after(cluster, stopped_at)).await?;
            previous.process.wait_exit(Duration::from_secs(20)).context("the previous leader exits")?;
            println!("        round {round}: {} ms after SIGTERM", milliseconds(stopped_at, first_write_at));
            wrote_one_after_the_other(&previous, &candidate, since)?;
        } else {
            while_creating_namespaces(cluster, candidate.first_write_after(cluster, since)).await?;
        }
        ensure!(candidate.process.is_running(), "the leader keeps running");
        previous = Some(candidate);
    }
    drop(previous);
    cluster.processes()?.start_manager()
}
