//! Runs the process: connect, fill the caches, serve, acquire the Lease, run the controllers, shut down gracefully.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use keleustes_client::Connection;
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher as publisher;
use keleustes_objects::Key;
use keleustes_options::Options;
use keleustes_plan::Controller;
use keleustes_runtime::explain::Explainer;
use keleustes_runtime::leader::{
    self, Announcer, Candidacy, Candidate, ElectionObserver, Handover, Lock, Locks, LocksOutcome, Migration,
    ProcessLock, Term,
};
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{self, ControllerSet};
use keleustes_serving::{BrowserLogin, HealthChecks, Pages};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::certificates::LateStart;
use crate::controller_selection::{ControllerSelection, FIRST};
use crate::lead_gate::LeadGate;
use crate::lease_lock::LeaseLockFile;
use crate::logging::Verbosity;
use crate::{inspect, options_from_files, process_context, serving};

/// Runs the manager until it is stopped.
///
/// # Errors
/// Why it could not start, or ended early.
pub(crate) fn run(options: &Options, verbosity: &Verbosity) -> anyhow::Result<()> {
    // One worker thread, besides this one, which renews the Lease. A reconcile is microseconds of deciding and milliseconds
    // of waiting; handing it to another thread costs more than running it. The secure port has a third thread.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the async runtime")?
        .block_on(run_until_stopped(options, verbosity, None))
}

/// Runs on the caller's async runtime. Browsers can log in by links only in a playground.
pub(crate) async fn run_until_stopped(
    options: &Options,
    verbosity: &Verbosity,
    browser_login: Option<BrowserLogin>,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(cancel_on_signal(stop.clone())?);

    let metrics = Metrics::new();
    let connection = connect(options, &metrics).await?;
    let (settings, late_start) = options_from_files::settings_and_late_start(options, &connection)?;
    let selection = ControllerSelection::choose(options, &settings)?;
    let process = process_context::build_process_context(options, connection, metrics);

    let (announcer, events) = announcer(&process);
    let identity = leader::identity(&leader::host_name()?, &mut process.random.fork());
    let mut locks = locks(&process, options, &identity, &announcer)?;
    drop(announcer);

    // Caches fill before the Lease is acquired: a standby can start at once. They start before everything else that takes
    // time, such as generating the key of the serving certificate.
    locks.read_leases().await;
    // The version of ClusterTrustBundles is discovered by the leader.
    loops::prepare(
        selection.members.iter().filter(|controller| controller.name != publisher::NAME),
        &process.caches,
    );

    let gate = gate(&process, options, &selection, &locks);
    let (health, readiness) = (HealthChecks::new(), HealthChecks::new());
    readiness.add("controllers", gate.readiness());
    if election_config(options, &identity).is_some() {
        health.add("leaderElection", locks.health());
    }
    let mut background = JoinSet::new();
    let checks = [health.clone(), readiness];
    let opened =
        serving::open(&process, options, checks, &selection.missing, verbosity, browser_login).await?;
    let (server, pages) = opened.map_or((None, None), |opened| (opened.server, Some(opened.pages)));
    process.inspection.register(&selection.members);
    look_inside(&process, options, pages.as_ref(), &stop, &mut background);
    if let Some(server) = server {
        let stopped = stop.clone().cancelled_owned();
        background.spawn(async move { server.run_on_own_thread(stopped).await.context("serving") });
    }
    if election_config(options, &identity).is_some_and(|election| election.coordinated) {
        let candidate = candidate(&process, options, identity);
        health.add("informer-sync", candidate.health());
        let stopped = stop.clone().cancelled_owned();
        background.spawn(async move {
            candidate.run(stopped).await;
            Ok(())
        });
    }
    let context = LeadingContext {
        process: &process,
        options,
        health: &health,
        pages: pages.as_ref(),
        late_start: &late_start,
        gate: &gate,
    };
    let result = lead(context, locks, selection.members, &stop, &mut background).await;
    // The last events were written before the Lease was released; from then on another process leads.
    events.abort();
    process.caches.stop().await;
    result
}

/// Adds the pages about what runs inside, and starts the comparison of a shadow.
fn look_inside(
    process: &ProcessContext,
    options: &Options,
    pages: Option<&Pages>,
    stop: &CancellationToken,
    background: &mut JoinSet<anyhow::Result<()>>,
) {
    let explainer = Explainer::new(process, options.leader_election.leader_elect.then(|| lease_key(options)));
    if let Some(pages) = pages {
        inspect::add_pages(pages, explainer.clone(), process.shadow.clone());
    }
    if let Some(shadow) = process.shadow.clone() {
        let stopped = stop.clone();
        background.spawn(async move {
            shadow.run(explainer, stopped).await;
            Ok(())
        });
    }
}

/// What announces the leader, and the task that writes its events.
fn announcer(process: &ProcessContext) -> (Arc<dyn ElectionObserver>, JoinHandle<()>) {
    let root = process.factory.root("kube-controller-manager");
    let (announcer, events) =
        Announcer::new(root, process.clocks.clone(), process.random.fork(), process.metrics.clone());
    (Arc::new(announcer), tokio::spawn(events.run(CancellationToken::new())))
}

/// The gate before leading. Controllers that another program runs do not count.
fn gate(
    process: &ProcessContext,
    options: &Options,
    selection: &ControllerSelection,
    locks: &Locks,
) -> LeadGate {
    let missing = selection.missing.iter().copied().filter(|name| locks.lock_of(name).is_some());
    // A shadow compares what it can: the leader does the rest.
    let is_open = options.generic.allow_missing_controllers || options.debugging.shadow;
    LeadGate::new(is_open, missing.collect(), &selection.members, &process.caches)
}

/// The connection to the API server. Credentials that cannot be obtained fail here, not with each request.
async fn connect(options: &Options, metrics: &Metrics) -> anyhow::Result<Connection> {
    let (kubeconfig, master) = api_server(options);
    let connection = Connection::open(kubeconfig, master, Some(Arc::new(metrics.clone())))?;
    connection.prefetch_credentials().await?;
    Ok(connection)
}

/// The kubeconfig and the address of the API server, each if it is set.
pub(crate) fn api_server(options: &Options) -> (Option<&Path>, Option<&str>) {
    let client = &options.client;
    let kubeconfig = (!client.kubeconfig.is_empty()).then(|| client.kubeconfig.as_ref());
    (kubeconfig, Some(client.master.as_str()).filter(|url| !url.is_empty()))
}

fn locks(
    process: &ProcessContext,
    options: &Options,
    identity: &str,
    observer: &Arc<dyn ElectionObserver>,
) -> anyhow::Result<Locks> {
    let Some(settings) = election_config(options, identity) else { return Ok(Locks::without_election()) };
    let lock_file = lease_lock_file(options, &settings.lease)?;
    let client = process.factory.root("leader-election");
    let migration = migration(options);
    let locks =
        Locks::elected(&client, settings, migration, &process.clocks, process.random.fork(), observer)?;
    let handover: Arc<dyn Handover> = Arc::new(process.caches.clone());
    let locks = locks.with_handover(&handover);
    Ok(match lock_file {
        Some(file) => locks.with_process_lock(&file),
        None => locks,
    })
}

fn lease_lock_file(options: &Options, lease: &Key) -> anyhow::Result<Option<Arc<dyn ProcessLock>>> {
    let path = &options.leader_election.lock_file;
    if path.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(LeaseLockFile::open(path.as_ref(), lease.clone())?)))
}

/// The Lease of the leader election.
fn lease_key(options: &Options) -> Key {
    let flags = &options.leader_election;
    Key::namespaced(flags.resource_namespace.as_str(), flags.resource_name.as_str())
}

/// The window of shadow mode; `None` if this process leads or stands by.
pub(crate) fn shadow_window(options: &Options) -> Option<Duration> {
    options.debugging.shadow.then(|| options.debugging.shadow_window.to_std())
}

/// The leader election; `None` if it is disabled, or this process is a shadow.
pub(crate) fn election_config(options: &Options, identity: &str) -> Option<leader::LeaderElectionConfig> {
    let flags = &options.leader_election;
    if !flags.leader_elect || options.debugging.shadow {
        return None;
    }
    let mut settings = leader::LeaderElectionConfig::new(identity.to_owned());
    settings.lease = lease_key(options);
    settings.lease_duration = flags.lease_duration.to_std();
    settings.renew_deadline = flags.renew_deadline.to_std();
    settings.retry_period = flags.retry_period.to_std();
    settings.program = Some(crate::identity::program());
    settings.coordinated = options.gates.enabled("CoordinatedLeaderElection");
    // The original has this gate off. Releasing the Lease is why the next leader need not wait, so it is on here unless
    // the operator disables it.
    settings.release_on_stop =
        options.gates.explicit_value("ControllerManagerReleaseLeaderElectionLockOnExit").unwrap_or(true);
    Some(settings)
}

pub(crate) fn migration(options: &Options) -> Option<Migration> {
    options.leader_migration.as_ref().map(|migration| Migration {
        leader_name: migration.leader_name.clone(),
        resource_lock: migration.resource_lock.clone(),
        entries: migration
            .controller_leaders
            .iter()
            .map(|entry| (entry.name.clone(), entry.component.clone()))
            .collect(),
    })
}

fn candidate(process: &ProcessContext, options: &Options, identity: String) -> Candidate {
    let candidacy = Candidacy {
        identity,
        binary_version: options.reported_version.trim_start_matches('v').to_owned(),
        emulation_version: format!("{}.0", options.versions.emulation),
    };
    let client = process.factory.root("leader-election");
    Candidate::new(client, candidacy, process.clocks.clone(), &process.metrics)
}

/// Acquires the locks and runs the controllers under them until it is stopped, or until a lock or a part of the process is lost.
async fn lead(
    context: LeadingContext<'_>,
    locks: Locks,
    members: Vec<Controller>,
    stop: &CancellationToken,
    background: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (mut main, mut migrated) = (Vec::new(), Vec::new());
    for controller in members {
        match locks.lock_of(controller.name) {
            Some(Lock::Main) => main.push(controller),
            Some(Lock::Migration) => migrated.push(controller),
            None => tracing::info!(controller = controller.name, "another program runs this controller"),
        }
    }
    let (main, migrated) = (Mutex::new(main), Mutex::new(migrated));
    let work = |term: Term| {
        let members = match term.lock {
            Lock::Main => std::mem::take(&mut *main.lock()),
            Lock::Migration => std::mem::take(&mut *migrated.lock()),
        };
        context.work(members, term)
    };
    let mut failed = None;
    let finish = {
        let mut leading = std::pin::pin!(async {
            if !context.gate.wait(context.late_start, stop).await {
                return LocksOutcome::Stopped { errors: Vec::new() };
            }
            locks.run(stop, work).await
        });
        loop {
            tokio::select! {
                biased;
                finish = &mut leading => break finish,
                Some(ended) = background.join_next() => {
                    let ended = ended.context("a part of the process panicked").and_then(|ended| ended);
                    failed = failed.or(ended.err());
                    stop.cancel();
                }
            }
        }
    };
    match (finish, failed) {
        (LocksOutcome::Lost(Lock::Main), _) => bail!("leaderelection lost"),
        (LocksOutcome::Lost(Lock::Migration), _) => bail!("migration leaderelection lost"),
        (LocksOutcome::Stopped { errors }, failed) => {
            let errors: Vec<_> = failed.into_iter().chain(errors).map(|error| format!("{error:#}")).collect();
            if errors.is_empty() { Ok(()) } else { Err(anyhow!(errors.join("; "))) }
        }
    }
}

/// What running under a lock needs from the process.
#[derive(Clone, Copy)]
struct LeadingContext<'a> {
    process: &'a ProcessContext,
    options: &'a Options,
    health: &'a HealthChecks,
    pages: Option<&'a Pages>,
    late_start: &'a LateStart,
    gate: &'a LeadGate,
}

impl LeadingContext<'_> {
    /// Runs the controllers while a lock is held, and shuts down gracefully.
    async fn work(self, members: Vec<Controller>, term: Term) -> anyhow::Result<()> {
        let members = self.late_start.complete(members, self.process).await?;
        let (interval, stops_within) = start_and_stop(self.options);
        let set = ControllerSet { controllers: members, first: FIRST, start_interval: interval };
        let begins = |members: &[Controller]| {
            self.process.inspection.register(members);
            if self.process.shadow.is_none() {
                self.process.inspection.start_leading();
            }
            self.health.add_pings(members.iter().map(|controller| controller.name));
            if let Some(pages) = self.pages {
                serving::register_debug_pages(pages, members);
            }
        };
        Ok(running_controllers::run_controllers(self.process, set, term, stops_within, begins).await?)
    }
}

/// The interval between controller starts, and how long controllers may take to stop.
pub(crate) fn start_and_stop(options: &Options) -> (Duration, Duration) {
    let generic = &options.generic;
    (generic.controller_start_interval.to_std(), generic.controller_shutdown_timeout.to_std())
}

/// Shuts down gracefully on SIGTERM or SIGINT; a second signal ends the process at once.
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
            tracing::info!("received signal, shutting down");
            stop.cancel();
        }
    })
}

#[cfg(test)]
mod tests;
