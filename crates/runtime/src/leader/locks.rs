//! One process, up to two locks: each set of controllers runs under its own lock, and all end together.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use kube::Client;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::config::{InvalidElectionConfig, LeaderElectionConfig};
use super::election::{ElectionObserver, LeaderElection, TermEnd};
use super::leadership::Leadership;
use super::migration::Migration;
use super::predecessor::{Handover, Predecessor};
use super::process_lock::ProcessLock;
use crate::clock::Clocks;

/// A lock that controllers run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The lock that every manager competes for.
    Main,
    /// The lock of a leader migration, which other programs compete for, too.
    Migration,
}

/// The locks of a process: none, one or two.
pub struct Locks {
    main: Option<LeaderElection>,
    migration: Option<(Migration, LeaderElection)>,
}

/// The time during which a lock is held.
pub struct Term {
    /// The lock.
    pub lock: Lock,
    /// The previous holder.
    pub predecessor: Predecessor,
    /// The check before each write.
    pub leadership: Leadership,
    /// Cancelled to request a graceful shutdown.
    pub stop: CancellationToken,
    /// Under the main lock: allows the process to compete for the other lock.
    pub ready: TokenControllerReady,
}

/// Signals that the process may compete for the other lock: the token controller runs, so that controllers
/// under that lock can get credentials. Dropping it signals the same: a process without that controller has
/// nothing to wait for.
pub struct TokenControllerReady(Option<oneshot::Sender<()>>);

/// How a process with locks ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LocksOutcome<E> {
    /// A lock was lost. Other processes may lead from now on: end this one immediately.
    Lost(Lock),
    /// All work has ended, and the locks were released if configured.
    Stopped {
        /// The errors of the work under either lock.
        errors: Vec<E>,
    },
}

/// How long the first read of the locks may take.
const FIRST_READ_MAX: Duration = Duration::from_millis(500);

/// The lock that was lost.
struct Lost(Lock);

impl TokenControllerReady {
    /// Allows the process to compete for the other lock.
    pub fn signal(self) {
        // There is no receiver without a second lock, or during shutdown.
        self.0.map(|sender| sender.send(()));
    }
}

impl Locks {
    /// For `--leader-elect=false`: work starts immediately and no lock is taken, not even one of a migration.
    #[must_use]
    pub fn without_election() -> Self {
        Self { main: None, migration: None }
    }

    /// Prepares to compete for the main lock, and for that of a migration if there is one.
    ///
    /// # Errors
    /// If the configuration would allow two leaders. Nothing was sent by then.
    pub fn elected(
        client: &Client,
        config: LeaderElectionConfig,
        migration: Option<Migration>,
        clocks: &Clocks,
        mut random: fastrand::Rng,
        observer: &Arc<dyn ElectionObserver>,
    ) -> Result<Self, InvalidElectionConfig> {
        let mut compete = |config| {
            let (clocks, observer) = (clocks.clone(), Arc::clone(observer));
            LeaderElection::new(client.clone(), config, clocks, random.fork(), observer)
        };
        let migration = migration
            .map(|migration| {
                let election = compete(migration.settings(&config)?)?;
                Ok((migration, election))
            })
            .transpose()?;
        Ok(Self { main: Some(compete(config)?), migration })
    }

    /// Hands state over from one holder of a lock to the next.
    #[must_use]
    pub fn with_handover(self, handover: &Arc<dyn Handover>) -> Self {
        self.map(|election| election.with_handover(handover.clone()))
    }

    /// Takes the locks of processes that are proved to have ended without waiting for their expiry.
    #[must_use]
    pub fn with_process_lock(self, lock: &Arc<dyn ProcessLock>) -> Self {
        self.map(|election| election.with_process_lock(lock.clone()))
    }

    fn map(self, with: impl Fn(LeaderElection) -> LeaderElection) -> Self {
        Self {
            main: self.main.map(&with),
            migration: self.migration.map(|(migration, election)| (migration, with(election))),
        }
    }

    /// Reads the locks before anything else starts, for at most 500 ms: if a lock has no holder then,
    /// everything that this process lists afterwards includes the previous leader's last writes.
    pub async fn read_leases(&mut self) {
        let elections = self.main.iter_mut().chain(self.migration.iter_mut().map(|(_, election)| election));
        let reads = future::join_all(elections.map(LeaderElection::read_lease));
        // A read that has not finished by then does not matter.
        let _ = tokio::time::timeout(FIRST_READ_MAX, reads).await;
    }

    /// The lock that a controller runs under here; `None` if another program runs it.
    #[must_use]
    pub fn lock_of(&self, controller: &str) -> Option<Lock> {
        self.migration.as_ref().map_or(Some(Lock::Main), |(migration, _)| migration.lock_of(controller))
    }

    /// The health check `leaderElection`: fails if any held lock was not renewed for too long. The original
    /// checks only the second lock once it competes for it.
    pub fn health(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let elections = self.main.iter().chain(self.migration.iter().map(|(_, election)| election));
        let guards: Vec<_> = elections.map(LeaderElection::leadership).collect();
        move || guards.iter().try_for_each(Leadership::check)
    }

    /// Acquires the locks and runs `work` under each, until `stop` is cancelled, some work ends, or a lock is
    /// lost.
    ///
    /// `work` is called once for each acquired lock. It must run until [`Term::stop`] is cancelled, and
    /// resolve when all of its tasks have ended: its lock is released then. If it ends or fails by itself,
    /// the work under the other lock is stopped as well.
    pub async fn run<E, F>(self, stop: &CancellationToken, work: impl Fn(Term) -> F) -> LocksOutcome<E>
    where
        F: Future<Output = Result<(), E>>,
    {
        let stop = stop.child_token();
        let (ready, ready_signal) = oneshot::channel();
        let main = run_under_lock(Lock::Main, self.main, TokenControllerReady(Some(ready)), &stop, &work);
        let migration = async {
            let Some((_, mut election)) = self.migration else { return Ok(None) };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                // Both locks of a process that died expire together, so both are watched from the start.
                () = election.observe_lease_until(async { drop(ready_signal.await) }) => {}
            }
            tracing::info!("leader migration: attempting to acquire the migration lock");
            run_under_lock(Lock::Migration, Some(election), TokenControllerReady(None), &stop, &work).await
        };
        match future::try_join(main, migration).await {
            Ok((main, migration)) => {
                LocksOutcome::Stopped { errors: main.into_iter().chain(migration).collect() }
            }
            Err(Lost(lock)) => LocksOutcome::Lost(lock),
        }
    }
}

/// Acquires one lock, runs the work under it, and releases it; `Ok` carries the error of the work.
async fn run_under_lock<E, F>(
    lock: Lock,
    election: Option<LeaderElection>,
    ready: TokenControllerReady,
    stop: &CancellationToken,
    work: impl Fn(Term) -> F,
) -> Result<Option<E>, Lost>
where
    F: Future<Output = Result<(), E>>,
{
    let Some(election) = election else {
        let (predecessor, leadership) = (Predecessor::Absent, Leadership::without_election());
        let term = Term { lock, predecessor, leadership, stop: stop.clone(), ready };
        return Ok(work(term).await.err());
    };
    let Some(leading) = election.acquire(stop.cancelled()).await else {
        lock.log_end(false);
        return Ok(None);
    };
    let (predecessor, leadership) = (leading.predecessor().clone(), leading.leadership());
    let term = Term { lock, predecessor, leadership, stop: stop.clone(), ready };
    let (work_ended, ended) = oneshot::channel::<()>();
    let mut work_ended = Some(work_ended);
    let mut holding = pin!(leading.hold(async {
        // The sender is dropped when the work has ended.
        let _ = ended.await;
    }));
    let mut working = pin!(work(term));
    let mut result = None;
    loop {
        tokio::select! {
            biased;
            ended = &mut holding => {
                lock.log_end(matches!(ended, TermEnd::Lost));
                return match ended {
                    TermEnd::Lost => Err(Lost(lock)),
                    TermEnd::Stopped { .. } => Ok(result),
                };
            }
            work_result = &mut working, if work_ended.is_some() => {
                result = work_result.err();
                stop.cancel();
                work_ended.take();
            }
        }
    }
}

impl Lock {
    /// The original logs an error in both cases; an orderly stop is none.
    fn log_end(self, is_lost: bool) {
        match (self, is_lost) {
            (Self::Main, true) => tracing::error!("leaderelection lost/stopped"),
            (Self::Main, false) => tracing::info!("leaderelection lost/stopped"),
            (Self::Migration, true) => tracing::error!("migration leaderelection lost/stopped"),
            (Self::Migration, false) => tracing::info!("migration leaderelection lost/stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keleustes_apiserver::ApiServer;

    use super::super::leadership::SentAt;
    use super::*;

    struct NoObserver;

    impl ElectionObserver for NoObserver {}

    /// Proves LE-104.
    #[tokio::test(start_paused = true)]
    async fn health_checks_both_locks() {
        let client = Client::new(ApiServer::default(), "default");
        let (clocks, random) = (Clocks::new(|| 0), fastrand::Rng::with_seed(1));
        let observer: Arc<dyn ElectionObserver> = Arc::new(NoObserver);
        let (config, migration) = (LeaderElectionConfig::new("me".to_owned()), Some(Migration::default()));
        let locks = Locks::elected(&client, config, migration, &clocks, random, &observer).unwrap();
        let health = locks.health();
        let guards = [
            ("kube-controller-manager", locks.main.unwrap().leadership()),
            ("cloud-provider-extraction-migration", locks.migration.unwrap().1.leadership()),
        ];
        for (name, guard) in guards {
            guard.renewed(SentAt { monotonic: clocks.monotonic(), wall_nanoseconds: 0 });
            tokio::time::advance(Duration::from_secs(35)).await;
            assert_eq!(health(), Ok(()));
            tokio::time::advance(Duration::from_secs(1)).await;
            let error = format!("failed election to renew leadership on lease {name}");
            assert_eq!(health(), Err(error));
            guard.revoke();
            assert_eq!(health(), Ok(()));
        }
    }
}
