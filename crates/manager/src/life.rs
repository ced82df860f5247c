//! The life of the process: connect, fill the caches, win the lease, work, stop in order.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use keleustes_client::{ClientFactory, ClientOptions, Connection, Rate};
use keleustes_controllers::all;
use keleustes_objects::Key;
use keleustes_plan::{Controller, EventNote};
use keleustes_runtime::caches::Caches;
use keleustes_runtime::clock::{Chance, Clocks};
use keleustes_runtime::events::{MANAGER_COMPONENT, Recorder};
use keleustes_runtime::leader::{self, ElectionObserver, Ended, LeaderElection, Leadership};
use keleustes_runtime::loops::{self, Running, Surroundings};
use keleustes_runtime::metrics::Metrics;
use keleustes_serving::{
    Access, CertificateSource, HealthChecks, PageOptions, Pages, Server, ServingOptions,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::choice::Choice;
use crate::files;
use crate::flags::{ElectionFlags, Flags, ServingFlags};

/// How many requests of one controller, and how many writes of one plan, may wait for an answer at once.
const IN_FLIGHT_MAX: usize = 64;

/// Runs the manager until it is told to stop.
///
/// # Errors
/// What kept it from starting, or made it end before its time.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    // Two threads are plenty: one item's work is microseconds of deciding and milliseconds of waiting.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the async runtime")?
        .block_on(live(flags))
}

async fn live(flags: &Flags) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(cancel_on_signal(stop.clone())?);

    let choice = Choice::read(&flags.controllers.controllers)?;
    let connection = Connection::open(flags.api.kubeconfig.as_deref(), flags.api.master.as_deref())?;
    let controllers = all(&files::settings(&flags.controllers, &connection)?);
    complain_of_what_is_missing(flags, &choice, &controllers);
    let controllers: Vec<_> =
        controllers.into_iter().filter(|controller| choice.wants(controller.name)).collect();

    let house = House::new(flags, connection);
    let leadership = house.election(&flags.election)?;
    let (health, server) = house.serve(&flags.serving, &controllers, &leadership)?;
    let mut background = JoinSet::new();
    if let Some(server) = server {
        let stopped = stop.clone().cancelled_owned();
        background.spawn(async move { server.run(stopped).await.context("serving") });
    }

    // Caches fill before the lease is won: a standby is ready to work the moment it may.
    for controller in &controllers {
        loops::prepare(controller, &house.caches);
    }
    let result = house.lead(flags, controllers, leadership, health, &stop, &mut background).await;
    house.caches.stop().await;
    result
}

/// What the parts of the process share.
struct House {
    factory: ClientFactory,
    metrics: Metrics,
    clocks: Clocks,
    chance: Chance,
    caches: Caches,
}

/// The lease to win, if there is one, and what tells whether it is held.
struct Election {
    election: Option<LeaderElection>,
    leadership: Leadership,
}

impl House {
    fn new(flags: &Flags, connection: Connection) -> Self {
        let metrics = Metrics::new();
        let throttle = flags.api.kube_api_qps.map(|qps| Rate { qps, burst: flags.api.kube_api_burst });
        let options = ClientOptions {
            throttle,
            in_flight_max: Some(IN_FLIGHT_MAX),
            observer: Some(Arc::new(metrics.clone())),
            use_service_account_credentials: flags.api.use_service_account_credentials,
        };
        let factory = ClientFactory::new(connection, options);
        let clocks = Clocks::new(wall_nanoseconds);
        let chance = Chance::seeded(seed());
        let resync = Some(flags.api.min_resync_period).filter(|period| !period.is_zero());
        let informers = factory.root("shared-informers");
        let caches = Caches::new(informers, clocks.clone(), chance.clone(), metrics.clone(), resync);
        Self { factory, metrics, clocks, chance, caches }
    }

    fn election(&self, flags: &ElectionFlags) -> anyhow::Result<Election> {
        if !flags.leader_elect {
            return Ok(Election { election: None, leadership: Leadership::unelected() });
        }
        let mut chance = self.chance.fork();
        let mut settings = leader::Settings::new(leader::identity(&leader::host_name(), &mut chance));
        let (namespace, name) = (&flags.leader_elect_resource_namespace, &flags.leader_elect_resource_name);
        settings.lease = Key::namespaced(namespace.as_str(), name.as_str());
        settings.lease_duration = flags.leader_elect_lease_duration;
        settings.renew_deadline = flags.leader_elect_renew_deadline;
        settings.retry_period = flags.leader_elect_retry_period;
        let client = self.factory.root("leader-election");
        let observer = Arc::new(Announcer::new(self));
        let election = LeaderElection::new(client, settings, self.clocks.clone(), chance, observer)?;
        Ok(Election { leadership: election.leadership(), election: Some(election) })
    }

    fn serve(
        &self,
        flags: &ServingFlags,
        controllers: &[Controller],
        election: &Election,
    ) -> anyhow::Result<(HealthChecks, Option<Server>)> {
        let health = HealthChecks::new();
        let leadership = election.leadership.clone();
        health.add("leaderElection", move || leadership.check());
        for controller in controllers {
            health.add_ping(controller.name);
        }
        let certificate = match (&flags.tls_cert_file, &flags.tls_private_key_file, &flags.cert_dir) {
            (Some(certificate), Some(key), _) => {
                CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }
            }
            (_, _, Some(directory)) => CertificateSource::Directory(directory.clone()),
            _ => CertificateSource::Generated,
        };
        let options = ServingOptions {
            bind_address: flags.bind_address,
            port: flags.secure_port,
            certificate,
            ..ServingOptions::default()
        };
        let registry = self.metrics.registry().clone();
        let pages = Pages::new(health.clone(), registry, SystemTime::now(), PageOptions::default());
        Ok((health, Server::bind(&options, pages, Access::closed())?))
    }

    /// Wins the lease and works until told to stop, or until the lease or a part of the process is lost.
    async fn lead(
        &self,
        flags: &Flags,
        controllers: Vec<Controller>,
        election: Election,
        _health: HealthChecks,
        stop: &CancellationToken,
        background: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let leadership = election.leadership.clone();
        let leading = match election.election {
            Some(election) => {
                tracing::info!("standing by for the lease");
                match election.acquire(stop.cancelled()).await {
                    Some(leading) => Some(leading),
                    None => return Ok(()),
                }
            }
            None => None,
        };
        let workers_ended = CancellationToken::new();
        let hold = async {
            match leading {
                Some(leading) => leading.hold(workers_ended.cancelled()).await,
                None => {
                    workers_ended.cancelled().await;
                    Ended::Stopped { released: false }
                }
            }
        };
        let work = async {
            let running = self.start(controllers, &leadership).await;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(ended) = background.join_next() => ended.context("a part of the process panicked")??,
            }
            let stopping = futures::future::join_all(running.into_iter().map(Running::stop));
            let timeout = flags.controllers.controller_shutdown_timeout;
            if tokio::time::timeout(timeout, stopping).await.is_err() {
                tracing::warn!(?timeout, "work under way was cut off");
            }
            workers_ended.cancel();
            // Holding on gives the lease back; the select below waits for that.
            std::future::pending::<anyhow::Result<()>>().await
        };
        tokio::select! {
            biased;
            ended = hold => match ended {
                Ended::Lost => bail!("leaderelection lost"),
                Ended::Stopped { .. } => Ok(()),
            },
            failed = work => failed,
        }
    }

    /// Starts all controllers, each as soon as its caches are filled; the first one is up before the
    /// others begin.
    async fn start(&self, controllers: Vec<Controller>, leadership: &Leadership) -> Vec<Running> {
        let leadership = leadership.clone();
        let surroundings = Surroundings {
            caches: self.caches.clone(),
            clocks: self.clocks.clone(),
            chance: self.chance.clone(),
            metrics: self.metrics.clone(),
            leads: Arc::new(move || leadership.still_held()),
            in_flight_max: IN_FLIGHT_MAX,
        };
        let mut running = Vec::new();
        for controller in controllers {
            let client = match controller.service_account {
                Some(account) => self.factory.for_controller(account),
                None => self.factory.root("tokens-controller"),
            };
            let recorder = Recorder::of(&controller, client.clone(), self.clocks.clone(), self.chance.fork());
            let record: Arc<dyn Fn(EventNote) + Send + Sync> = match recorder {
                Some((recorder, writer)) => {
                    tokio::spawn(writer.run(CancellationToken::new()));
                    Arc::new(move |note| recorder.record(note))
                }
                None => Arc::new(|_| unreachable!("a controller without a component records no events")),
            };
            running.push(loops::start(controller, &surroundings, client, record).await);
        }
        running
    }
}

fn complain_of_what_is_missing(flags: &Flags, choice: &Choice, there: &[Controller]) {
    let missing = choice.missing(there);
    if !missing.is_empty() {
        tracing::warn!(
            controllers = missing.join(","),
            "these controllers are asked for and do not run here"
        );
    }
    let later = flags.later.given();
    if !later.is_empty() {
        tracing::warn!(flags = later.join(","), "these flags have no effect yet");
    }
}

/// Tells people and dashboards who leads.
struct Announcer {
    recorder: Recorder,
    metrics: Metrics,
}

impl Announcer {
    fn new(house: &House) -> Self {
        let client = house.factory.root("leader-election");
        let (recorder, writer) =
            Recorder::new(MANAGER_COMPONENT, client, house.clocks.clone(), house.chance.fork());
        tokio::spawn(writer.run(CancellationToken::new()));
        Self { recorder, metrics: house.metrics.clone() }
    }
}

impl ElectionObserver for Announcer {
    fn event(&self, note: EventNote) {
        self.recorder.record(note);
    }

    fn leading(&self, lease_name: &str, leading: bool) {
        self.metrics.leading(lease_name, leading);
    }
}

/// Ends the process in order on SIGTERM or SIGINT; a second signal ends it at once.
fn cancel_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        for again in [false, true] {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if again {
                std::process::exit(1);
            }
            tracing::info!("told to stop");
            stop.cancel();
        }
    })
}

fn wall_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The one place where real chance comes in: two managers that start together must not wait in step.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}
