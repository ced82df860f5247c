//! One process, up to two locks: each set of controllers works under its own, and everything ends together.

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
use crate::clock::Clocks;

/// A lock that controllers run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The one every manager competes for.
    Main,
    /// The one of a leader migration, which other programs compete for too.
    Migration,
}

/// The locks of a process: none, one or two.
pub struct Locks {
    main: Option<LeaderElection>,
    migration: Option<(Migration, LeaderElection)>,
}

/// The time during which a lock is held; what works under it is told of its end.
pub struct Term {
    /// The lock.
    pub lock: Lock,
    /// Whoever held it before.
    pub predecessor: Predecessor,
    /// The guard to ask before each write.
    pub leadership: Leadership,
    /// Cancelled when the work shall end in order.
    pub stop: CancellationToken,
    /// Under the main lock: lets the other lock be tried.
    pub ready: TokenControllerReady,
}

/// Says that the other lock may be tried: the token controller runs, so that what will run there can have
/// credentials. Dropped, it says the same: a process without that controller has nothing to wait for.
pub struct TokenControllerReady(Option<oneshot::Sender<()>>);

/// How a process with locks ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LocksOutcome<E> {
    /// A lock was lost. Others may lead from now on: end the process at once.
    Lost(Lock),
    /// All work has ended, and the locks were given back if that is wanted.
    Stopped {
        /// What went wrong under either lock.
        errors: Vec<E>,
    },
}

/// Nobody waits longer than this for a first look at the locks.
const LOOKED_WITHIN: Duration = Duration::from_millis(500);

/// The lock that was lost.
struct Lost(Lock);

impl TokenControllerReady {
    /// Lets the other lock be tried.
    pub fn signal(self) {
        // Nobody listens if there is no other lock, or if everything is ending.
        self.0.map(|sender| sender.send(()));
    }
}

impl Locks {
    /// For `--leader-elect=false`: work begins at once and no lock is taken, not even one of a migration.
    #[must_use]
    pub fn without_election() -> Self {
        Self { main: None, migration: None }
    }

    /// Prepares to compete for the main lock, and for that of a migration if there is one.
    ///
    /// # Errors
    /// If the settings would not keep two leaders apart. Nothing was sent by then.
    pub fn elected(
        client: &Client,
        settings: LeaderElectionConfig,
        migration: Option<Migration>,
        clocks: &Clocks,
        mut chance: fastrand::Rng,
        observer: &Arc<dyn ElectionObserver>,
    ) -> Result<Self, InvalidElectionConfig> {
        let mut compete = |settings| {
            let (clocks, observer) = (clocks.clone(), Arc::clone(observer));
            LeaderElection::new(client.clone(), settings, clocks, chance.fork(), observer)
        };
        let migration = migration
            .map(|migration| {
                let election = compete(migration.settings(&settings)?)?;
                Ok((migration, election))
            })
            .transpose()?;
        Ok(Self { main: Some(compete(settings)?), migration })
    }

    /// Lets knowledge pass from one holder of a lock to the next.
    #[must_use]
    pub fn with_handover(self, handover: &Arc<dyn Handover>) -> Self {
        let with = |election: LeaderElection| election.with_handover(handover.clone());
        Self {
            main: self.main.map(with),
            migration: self.migration.map(|(migration, election)| (migration, with(election))),
        }
    }

    /// Looks at the locks before anything else begins, but not for long: what a process lists after that is not older than
    /// the silence of whoever led before, if there is one.
    pub async fn read_leases(&mut self) {
        let elections = self.main.iter_mut().chain(self.migration.iter_mut().map(|(_, election)| election));
        let looks = future::join_all(elections.map(LeaderElection::read_lease));
        // Whoever does not answer now may do so later.
        let _ = tokio::time::timeout(LOOKED_WITHIN, looks).await;
    }

    /// The lock that a controller runs under here; `None` if another program runs it.
    #[must_use]
    pub fn lock_of(&self, controller: &str) -> Option<Lock> {
        self.migration.as_ref().map_or(Some(Lock::Main), |(migration, _)| migration.lock_of(controller))
    }

    /// The health check `leaderElection`: fails if any lock that is held was not renewed for too long. The
    /// original forgets the main lock once it competes for the other.
    pub fn health(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let elections = self.main.iter().chain(self.migration.iter().map(|(_, election)| election));
        let guards: Vec<_> = elections.map(LeaderElection::leadership).collect();
        move || guards.iter().try_for_each(Leadership::check)
    }

    /// Wins the locks and lets `work` run under each, until `stop` is cancelled, some work ends, or a lock is lost.
    ///
    /// `work` is called once for each lock that is won. It shall run until [`Term::stop`] is cancelled, and
    /// resolve when nothing of it is left: its lock is given back then. If it ends or fails by itself, what
    /// runs under the other lock is stopped as well.
    pub async fn run<E, F>(self, stop: &CancellationToken, work: impl Fn(Term) -> F) -> LocksOutcome<E>
    where
        F: Future<Output = Result<(), E>>,
    {
        let stop = stop.child_token();
        let (ready, is_ready) = oneshot::channel();
        let main = serve(Lock::Main, self.main, TokenControllerReady(Some(ready)), &stop, &work);
        let migration = async {
            let Some((_, mut election)) = self.migration else { return Ok(None) };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                // Both locks of a process that died run out together, so both are watched from the start.
                () = election.observe_lease_until(async { drop(is_ready.await) }) => {}
            }
            tracing::info!("leader migration: competing for the lock of migrated controllers");
            serve(Lock::Migration, Some(election), TokenControllerReady(None), &stop, &work).await
        };
        match future::try_join(main, migration).await {
            Ok((main, migration)) => {
                LocksOutcome::Stopped { errors: main.into_iter().chain(migration).collect() }
            }
            Err(Lost(lock)) => LocksOutcome::Lost(lock),
        }
    }
}

/// Wins one lock, works under it, and gives it back; `Ok` carries what went wrong with the work.
async fn serve<E, F>(
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
        lock.say_ended();
        return Ok(None);
    };
    let (predecessor, leadership) = (leading.predecessor().clone(), leading.leadership());
    let term = Term { lock, predecessor, leadership, stop: stop.clone(), ready };
    let (work_ended, ended) = oneshot::channel::<()>();
    let mut work_ended = Some(work_ended);
    let mut holding = pin!(leading.hold(async {
        // The sender lives as long as this function.
        let _ = ended.await;
    }));
    let mut working = pin!(work(term));
    let mut result = None;
    loop {
        tokio::select! {
            biased;
            ended = &mut holding => {
                lock.say_ended();
                return match ended {
                    TermEnd::Lost => Err(Lost(lock)),
                    TermEnd::Stopped { .. } => Ok(result),
                };
            }
            worked = &mut working, if work_ended.is_some() => {
                result = worked.err();
                stop.cancel();
                work_ended.take();
            }
        }
    }
}

impl Lock {
    fn say_ended(self) {
        match self {
            Self::Main => tracing::error!("leaderelection lost/stopped"),
            Self::Migration => tracing::error!("migration leaderelection lost/stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keleustes_apiserver::ApiServer;

    use super::super::leadership::SentAt;
    use super::*;

    struct Nobody;

    impl ElectionObserver for Nobody {}

    /// Proves LE-104.
    #[tokio::test(start_paused = true)]
    async fn health_looks_at_both_locks() {
        let client = Client::new(ApiServer::default(), "default");
        let (clocks, chance) = (Clocks::new(|| 0), fastrand::Rng::with_seed(1));
        let observer: Arc<dyn ElectionObserver> = Arc::new(Nobody);
        let (settings, migration) = (LeaderElectionConfig::new("me".to_owned()), Some(Migration::default()));
        let locks = Locks::elected(&client, settings, migration, &clocks, chance, &observer).unwrap();
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
