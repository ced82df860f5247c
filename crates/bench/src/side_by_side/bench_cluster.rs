//! One manager on its own control plane, and the measurements of its work.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, DeleteOptions};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, AuditMark, ControlPlane, Process, User};
use keleustes_hollow::{Hollow, HollowHandle, StorageDriver, StorageDriverHandle};
use keleustes_objects::{Key, Resource};
use keleustes_scenarios::real::{API_SERVER_FOR_EVERY_CONTROLLER, EVERY_CONTROLLER, Manager};
use kube::Client;

use super::profile::Profile;
use super::proxy::CountingProxy;
use super::report::{Measure, Measurement};
use super::schedules::AUTOSCALERS_LOAD;
use crate::meters::Meter;

/// The API server writes its audit log a moment after the response.
const AUDIT_LOG_DELAY: Duration = Duration::from_secs(2);
const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

/// Options that all loads of a run share.
pub(super) struct BenchOptions {
    /// The measured manager.
    pub(super) manager: Manager,
    /// The size of loads in percent.
    pub(super) percent: usize,
    /// `--kube-api-qps` and burst of the manager, if set.
    pub(super) qps: Option<u32>,
    /// The folder for profiles, if they are wanted.
    pub(super) profiles: Option<PathBuf>,
}

/// A control plane, a manager, hollow nodes and the measurements.
pub(super) struct BenchCluster {
    /// A client with administrator credentials.
    pub(super) client: Client,
    options: BenchOptions,
    load: &'static str,
    plane: ControlPlane,
    proxy: CountingProxy,
    hollow: Option<HollowHandle>,
    driver: Option<StorageDriverHandle>,
    /// How many hollow nodes there are.
    nodes: usize,
    manager: Process,
    started: usize,
    measurements: Vec<Measurement>,
}

/// An object whose creation is in the audit log: resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Created([String; 3]);

impl Created {
    pub(super) fn new(resource: &Resource, key: &Key) -> Self {
        Self([resource.plural.to_string(), key.namespace.to_string(), key.name.to_string()])
    }
}

/// The resource usage at the start of a phase.
struct Usage {
    manager_cpu: f64,
    server_cpu: f64,
    mark: AuditMark,
    received: f64,
}

impl BenchCluster {
    /// How long any step may take.
    pub(super) const TIMEOUT: Duration = Duration::from_secs(1800);

    /// Starts everything, and waits until the manager is idle.
    pub(super) async fn start(options: BenchOptions, load: &'static str) -> anyhow::Result<Self> {
        let builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
        let builder = API_SERVER_FOR_EVERY_CONTROLLER
            .into_iter()
            .fold(builder, |builder, argument| builder.api_server_arg(argument));
        let builder = if load == AUTOSCALERS_LOAD { builder.with_metrics_adapter() } else { builder };
        let plane = builder.start()?;
        let connection = Connection::open(Some(&plane.kubeconfig(User::Admin)), None, None)?;
        let client = ClientFactory::new(connection, ClientOptions::default()).root("bench");
        let proxy = CountingProxy::start(plane.api_server_port()).await?;
        let manager = spawn(&plane, &proxy, &options, 0)?;
        let measurements = Vec::new();
        let mut cluster = Self {
            client,
            options,
            load,
            plane,
            proxy,
            hollow: None,
            driver: None,
            nodes: 0,
            manager,
            started: 1,
            measurements,
        };
        cluster.wait_until_idle().await?;
        Ok(cluster)
    }

    /// Stops everything and returns the measurements.
    pub(super) async fn finish(mut self) -> Vec<Measurement> {
        if let Some(driver) = self.driver.take() {
            driver.stop().await;
        }
        if let Some(hollow) = self.hollow.take() {
            hollow.stop().await;
        }
        self.measurements
    }

    /// The configured percentage of a full size, at least 1.
    pub(super) fn share(&self, full: usize) -> usize {
        (full * self.options.percent / 100).max(1)
    }

    /// Starts hollow nodes in place of earlier ones.
    pub(super) async fn start_nodes(&mut self, nodes: usize, pods_each: u32) -> anyhow::Result<()> {
        self.start_hollow(nodes, pods_each, false).await
    }

    /// Starts hollow nodes in place of earlier ones, and the external attacher of their volumes.
    pub(super) async fn start_nodes_with_volumes(
        &mut self,
        nodes: usize,
        pods_each: u32,
    ) -> anyhow::Result<()> {
        self.start_hollow(nodes, pods_each, true).await
    }

    /// Starts a CSI driver that provisions volumes.
    pub(super) fn start_storage_driver(&mut self, name: &str) -> anyhow::Result<()> {
        self.driver = Some(StorageDriver::new(self.client_of("driver")?, name).start());
        Ok(())
    }

    /// A client of its own, with administrator credentials.
    fn client_of(&self, name: &'static str) -> anyhow::Result<Client> {
        let connection = Connection::open(Some(&self.plane.kubeconfig(User::Admin)), None, None)?;
        Ok(ClientFactory::new(connection, ClientOptions::default()).root(name))
    }

    async fn start_hollow(&mut self, nodes: usize, pods_each: u32, volumes: bool) -> anyhow::Result<()> {
        if let Some(earlier) = self.hollow.take() {
            earlier.stop().await;
        }
        let client = self.client_of("hollow")?;
        let builder = Hollow::builder(client).nodes(nodes).zones(3).scheduler(true).volumes(volumes);
        let builder = builder.capacity("1000", "4000Gi", pods_each);
        self.nodes = nodes;
        self.hollow = Some(builder.batch_run_for(Some(Duration::from_secs(1))).start());
        Ok(())
    }

    /// Records the size of the manager's program file.
    pub(super) fn record_program_size(&mut self) -> anyhow::Result<()> {
        let size = fs::metadata(self.options.manager.program(&self.plane)?)?.len();
        self.record("once", Measure::Program, size as f64);
        Ok(())
    }

    /// Runs an action and records the resource usage. The action returns the seconds of each of its parts,
    /// if it has parts.
    pub(super) async fn phase(
        &mut self,
        name: &str,
        action: impl AsyncFnOnce(&Client) -> anyhow::Result<Vec<f64>>,
    ) -> anyhow::Result<()> {
        let before = self.before()?;
        self.meter().reset_peak()?;
        let profile = self.profile(name)?;
        let began = Instant::now();
        let mut parts = action(&self.client).await?;
        let took = began.elapsed().as_secs_f64();
        eprintln!("    {name}: {took:.1} s");
        self.record(name, Measure::Seconds, took);
        parts.sort_by(f64::total_cmp);
        if let (Some(p50), Some(p99)) = (quantile(&parts, 50), quantile(&parts, 99)) {
            self.record(name, Measure::Half, p50);
            self.record(name, Measure::NearlyAll, p99);
        }
        self.wait_until_idle().await?;
        profile.map(Profile::end).transpose()?;
        self.record_since(name, &before)
    }

    /// The end of the audit log.
    pub(super) fn audit_mark(&self) -> anyhow::Result<AuditMark> {
        Ok(self.plane.audit_mark()?)
    }

    /// Records how long after the request that creates the first object of each pair the manager sends the one that creates
    /// the second.
    pub(super) fn record_reactions(
        &mut self,
        phase: &str,
        since: AuditMark,
        pairs: &[(Created, Created)],
    ) -> anyhow::Result<()> {
        let mut created: BTreeMap<Created, Timestamp> = BTreeMap::new();
        for entry in self.plane.audit_since(since)?.into_iter().filter(|entry| entry.verb == "create") {
            let Some(object) =
                entry.object.filter(|object| entry.code == 201 && object.subresource.is_empty())
            else {
                continue;
            };
            let object = Created([object.resource, object.namespace, object.name]);
            created.insert(object, entry.received_at.parse()?);
        }
        let at = |object: &Created| {
            created.get(object).copied().with_context(|| format!("{object:?} is not in the audit log"))
        };
        let mut times = Vec::new();
        for (cause, effect) in pairs {
            times.push(at(effect)?.duration_since(at(cause)?).as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        if let (Some(p50), Some(p99)) = (quantile(&times, 50), quantile(&times, 99)) {
            self.record(phase, Measure::ReactionHalf, p50);
            self.record(phase, Measure::ReactionNearlyAll, p99);
        }
        Ok(())
    }

    /// Kills the manager, deletes its lease, creates work, and starts the manager again.
    pub(super) async fn cold_start(
        &mut self,
        name: &str,
        work: impl AsyncFnOnce(&Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.manager.kill9()?;
        self.manager.wait_exit(Duration::from_secs(10))?;
        let lease = Key::namespaced("kube-system", "kube-controller-manager");
        Call::delete(&LEASES, &lease, &DeleteOptions::default()).send_discarding_body(&self.client).await?;
        work(&self.client).await?;
        let before = Usage { manager_cpu: 0.0, ..self.before()? };
        let from = Timestamp::now();
        self.manager = self.spawn_another()?;
        let profile = self.profile(name)?;
        let first = self.first_write(before.mark, from).await?;
        self.record(name, Measure::FirstWrite, first);
        self.wait_until_idle().await?;
        let makes_pod = |entry: &AuditEntry| {
            entry.verb == "create"
                && entry.object.as_ref().is_some_and(|object| {
                    (object.resource.as_str(), object.subresource.as_str()) == ("pods", "")
                })
        };
        if let Some(made) = self.first(before.mark, from, makes_pod)? {
            self.record(name, Measure::FirstPod, made);
        }
        profile.map(Profile::end).transpose()?;
        self.record_since(name, &before)
    }

    /// Starts a standby, stops the manager, creates work, and records the time until the standby's first
    /// useful write.
    pub(super) async fn fail_over(
        &mut self,
        name: &str,
        stop: impl FnOnce(&mut Process) -> keleustes_control_plane::Result<()>,
        work: impl AsyncFnOnce(&Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut standby = self.spawn_another()?;
        wait_until_cpu_below(&mut standby, self.idle_cpu()).await?;
        let from = Timestamp::now();
        stop(&mut self.manager)?;
        self.manager.wait_exit(Duration::from_secs(60))?;
        let (mark, exited_at) = (self.plane.audit_mark()?, Timestamp::now());
        work(&self.client).await?;
        self.manager = standby;
        let seconds_after_exit = self.first_write(mark, exited_at).await?;
        let shutdown_seconds = Duration::try_from(exited_at.duration_since(from))?.as_secs_f64();
        self.record(name, Measure::FirstWrite, shutdown_seconds + seconds_after_exit);
        self.wait_until_idle().await
    }

    /// Polls until the answer is yes.
    pub(super) async fn until(what: &str, ask: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let began = Instant::now();
        while !ask().await? {
            if began.elapsed() > Self::TIMEOUT {
                bail!("{what}: not within {:?}", Self::TIMEOUT);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    fn before(&self) -> anyhow::Result<Usage> {
        Ok(Usage {
            manager_cpu: self.meter().cpu().unwrap_or(0.0),
            server_cpu: self.server()?.cpu()?,
            mark: self.plane.audit_mark()?,
            received: self.proxy.received(),
        })
    }

    /// Records the resource usage since then, and the current memory of the manager.
    fn record_since(&mut self, phase: &str, before: &Usage) -> anyhow::Result<()> {
        let (manager, server) = (self.meter(), self.server()?);
        self.record(phase, Measure::ManagerCpu, manager.cpu()? - before.manager_cpu);
        self.record(phase, Measure::ServerCpu, server.cpu()? - before.server_cpu);
        let requests = self.requests(before.mark)?;
        let writes = requests.iter().filter(|entry| entry.is_write()).count();
        self.record(phase, Measure::Writes, writes as f64);
        for measure in Measure::VERBS {
            let count = requests.iter().filter(|entry| measure.counts(&entry.verb)).count();
            self.record(phase, measure, count as f64);
        }
        self.record(phase, Measure::Received, self.proxy.received() - before.received);
        self.record(phase, Measure::Resident, manager.resident()?);
        self.record(phase, Measure::Peak, manager.peak()?);
        Ok(())
    }

    fn record(&mut self, phase: &str, measure: Measure, value: f64) {
        let (load, whose) = (self.load.to_owned(), self.options.manager.whose().to_owned());
        self.measurements.push(Measurement { load, phase: phase.to_owned(), measure, whose, value });
    }

    fn meter(&self) -> Meter {
        Meter(self.manager.pid())
    }

    fn server(&self) -> anyhow::Result<Meter> {
        Ok(Meter(self.plane.api_server_pid().context("no API server runs")?))
    }

    /// Starts profilers, if profiles are wanted.
    fn profile(&self, phase: &str) -> anyhow::Result<Option<Profile>> {
        let Some(folder) = &self.options.profiles else { return Ok(None) };
        let name = format!("{} {phase} {}", self.load, self.options.manager.whose());
        Profile::begin(folder, &name, self.manager.pid(), &self.client).map(Some)
    }

    fn spawn_another(&mut self) -> anyhow::Result<Process> {
        self.started += 1;
        spawn(&self.plane, &self.proxy, &self.options, self.started)
    }

    /// The CPU seconds that an idle manager may use in two seconds. Each node sends a heartbeat every ten
    /// seconds; handling one costs either manager at most 0.3 ms, including the periodic node checks.
    fn idle_cpu(&self) -> f64 {
        const CPU_PER_NODE: f64 = 0.000_3 / 5.0;
        0.1 + self.nodes as f64 * CPU_PER_NODE
    }

    async fn wait_until_idle(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(AUDIT_LOG_DELAY).await;
        let idle_cpu = self.idle_cpu();
        wait_until_cpu_below(&mut self.manager, idle_cpu).await
    }

    /// The requests of managers and their service accounts since then, in order.
    fn requests(&self, since: AuditMark) -> anyhow::Result<Vec<AuditEntry>> {
        let mut entries = self.plane.audit_since(since)?;
        entries.retain(AuditEntry::is_from_manager);
        Ok(entries)
    }

    /// The seconds from a time to the first matching request of a manager, if there is one.
    fn first(
        &self,
        since: AuditMark,
        from: Timestamp,
        matches: impl Fn(&AuditEntry) -> bool,
    ) -> anyhow::Result<Option<f64>> {
        let entries = self.requests(since)?.into_iter().filter(matches);
        let times = entries.filter_map(|entry| entry.received_at.parse::<Timestamp>().ok());
        let first = times.filter(|time| *time >= from).min();
        first.map(|first| Ok(Duration::try_from(first.duration_since(from))?.as_secs_f64())).transpose()
    }

    /// The seconds from a time to the first write of a manager other than routine ones.
    async fn first_write(&self, since: AuditMark, from: Timestamp) -> anyhow::Result<f64> {
        let began = Instant::now();
        loop {
            let is_useful = |entry: &AuditEntry| entry.is_write() && !entry.is_routine();
            if let Some(first) = self.first(since, from, is_useful)? {
                return Ok(first);
            }
            if began.elapsed() > Self::TIMEOUT {
                bail!("the manager sends no write");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Starts a manager with the flags of a kubeadm manifest and all controllers.
fn spawn(
    plane: &ControlPlane,
    proxy: &CountingProxy,
    options: &BenchOptions,
    nth: usize,
) -> anyhow::Result<Process> {
    let mut flags = EVERY_CONTROLLER.map(str::to_owned).to_vec();
    flags.push(format!("--master={}", proxy.url()));
    if let Some(qps) = options.qps {
        flags.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={qps}")]);
    }
    options.manager.start(plane, &format!("manager-{nth}"), &flags)
}

/// Waits until a manager uses no more CPU in two seconds than an idle one, for at most two minutes.
pub(super) async fn wait_until_cpu_below(manager: &mut Process, idle_cpu: f64) -> anyhow::Result<()> {
    let meter = Meter(manager.pid());
    let mut before = f64::NEG_INFINITY;
    for _ in 0..60 {
        if !manager.is_running() {
            bail!("the manager has exited:\n{}", manager.log_tail());
        }
        let now = meter.cpu()?;
        if now - before < idle_cpu {
            break;
        }
        before = now;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}
