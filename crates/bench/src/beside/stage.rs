//! One manager on a control plane of its own, and what its work is measured by.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, DeleteOptions};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, AuditMark, ControlPlane, Process, User};
use keleustes_hollow::{Hollow, HollowHandle};
use keleustes_objects::{Key, Resource};
use keleustes_scenarios::real::{Manager, controllers_flag};
use kube::Client;

use super::profile::Profile;
use super::relay::Relay;
use super::report::{Figure, Measure};
use crate::meters::Meter;

/// The API server writes its log a moment after the answer.
const LOG_LAG: Duration = Duration::from_secs(2);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(1800);
const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

/// What is the same for every load of a run.
pub(super) struct Setting {
    /// Who is measured.
    pub(super) manager: Manager,
    /// The size of loads.
    pub(super) percent: usize,
    /// How often a second the manager may ask, if that is said at all.
    pub(super) qps: Option<u32>,
    /// Where profiles go, if there are to be any.
    pub(super) profiles: Option<PathBuf>,
}

/// A control plane, a manager, nodes and a stopwatch.
pub(super) struct Stage {
    /// Speaks as the administrator.
    pub(super) client: Client,
    setting: Setting,
    load: &'static str,
    plane: ControlPlane,
    relay: Relay,
    hollow: Option<HollowHandle>,
    /// How many nodes it plays.
    nodes: usize,
    manager: Process,
    managers: usize,
    figures: Vec<Figure>,
}

/// What had been used when something began.
struct Before {
    manager_cpu: f64,
    server_cpu: f64,
    mark: AuditMark,
    received: f64,
}

impl Stage {
    /// Starts everything, and waits until the manager is at rest.
    pub(super) async fn set(setting: Setting, load: &'static str) -> anyhow::Result<Self> {
        let plane = ControlPlane::builder().with_program(Program::KubeControllerManager).start()?;
        let connection = Connection::open(Some(&plane.kubeconfig(User::Admin)), None, None)?;
        let client = ClientFactory::new(connection, ClientOptions::default()).root("bench");
        let relay = Relay::to(plane.api_server_port()).await?;
        let manager = spawn(&plane, &relay, &setting, 0)?;
        let figures = Vec::new();
        let mut stage = Self {
            client,
            setting,
            load,
            plane,
            relay,
            hollow: None,
            nodes: 0,
            manager,
            managers: 1,
            figures,
        };
        stage.rest().await?;
        Ok(stage)
    }

    /// Takes everything down and tells what was measured.
    pub(super) async fn end(mut self) -> Vec<Figure> {
        if let Some(hollow) = self.hollow.take() {
            hollow.stop().await;
        }
        self.figures
    }

    /// So many parts of the full size of something, and at least one.
    pub(super) fn share(&self, full: usize) -> usize {
        (full * self.setting.percent / 100).max(1)
    }

    /// Lets hollow nodes join that run whatever is bound to them, in place of those that joined before.
    pub(super) async fn join_nodes(&mut self, nodes: usize, pods_each: u32) -> anyhow::Result<()> {
        if let Some(earlier) = self.hollow.take() {
            earlier.stop().await;
        }
        let connection = Connection::open(Some(&self.plane.kubeconfig(User::Admin)), None, None)?;
        let client = ClientFactory::new(connection, ClientOptions::default()).root("hollow");
        let builder = Hollow::builder(client).nodes(nodes).zones(3).scheduler(true);
        let builder = builder.capacity("1000", "4000Gi", pods_each);
        self.nodes = nodes;
        self.hollow = Some(builder.batch_run_for(Some(Duration::from_secs(1))).start());
        Ok(())
    }

    /// Notes how large the manager's file is.
    pub(super) fn note_program(&mut self) -> anyhow::Result<()> {
        let size = fs::metadata(self.setting.manager.program(&self.plane)?)?.len();
        self.note("once", Measure::Program, size as f64);
        Ok(())
    }

    /// Does something and notes what that took of everybody. What is done tells how long each of its
    /// parts took, in seconds, if it has parts.
    pub(super) async fn phase(
        &mut self,
        name: &str,
        act: impl AsyncFnOnce(&Client) -> anyhow::Result<Vec<f64>>,
    ) -> anyhow::Result<()> {
        let before = self.before()?;
        self.meter().forget_peak()?;
        let profile = self.profile(name)?;
        let began = Instant::now();
        let mut parts = act(&self.client).await?;
        let took = began.elapsed().as_secs_f64();
        eprintln!("    {name}: {took:.1} s");
        self.note(name, Measure::Seconds, took);
        parts.sort_by(f64::total_cmp);
        if let (Some(p50), Some(p99)) = (quantile(&parts, 50), quantile(&parts, 99)) {
            self.note(name, Measure::Half, p50);
            self.note(name, Measure::NearlyAll, p99);
        }
        self.rest().await?;
        profile.map(Profile::end).transpose()?;
        self.note_since(name, &before)
    }

    /// Ends the manager without its saying goodbye, gives it work, and starts it again as on the first day:
    /// nobody holds the lease any more.
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
        let before = Before { manager_cpu: 0.0, ..self.before()? };
        let from = Timestamp::now();
        self.manager = self.spawn_another()?;
        let profile = self.profile(name)?;
        let first = self.first_write(before.mark, from).await?;
        self.note(name, Measure::FirstWrite, first);
        self.rest().await?;
        let makes_pod = |entry: &AuditEntry| {
            entry.verb == "create"
                && entry.object.as_ref().is_some_and(|object| {
                    (object.resource.as_str(), object.subresource.as_str()) == ("pods", "")
                })
        };
        if let Some(made) = self.first(before.mark, from, makes_pod)? {
            self.note(name, Measure::FirstPod, made);
        }
        profile.map(Profile::end).transpose()?;
        self.note_since(name, &before)
    }

    /// Ends the manager beside one that stands by, gives work, and notes how long it takes that one to do
    /// something of use.
    pub(super) async fn fail_over(
        &mut self,
        name: &str,
        end: impl FnOnce(&mut Process) -> keleustes_control_plane::Result<()>,
        work: impl AsyncFnOnce(&Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut standby = self.spawn_another()?;
        settled(&mut standby, self.at_rest()).await?;
        let from = Timestamp::now();
        end(&mut self.manager)?;
        self.manager.wait_exit(Duration::from_secs(60))?;
        let (mark, gone) = (self.plane.audit_mark()?, Timestamp::now());
        work(&self.client).await?;
        self.manager = standby;
        let after_the_end = self.first_write(mark, gone).await?;
        let ending = Duration::try_from(gone.duration_since(from))?.as_secs_f64();
        self.note(name, Measure::FirstWrite, ending + after_the_end);
        self.rest().await
    }

    /// Asks until the answer is yes.
    pub(super) async fn until(what: &str, ask: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let began = Instant::now();
        while !ask().await? {
            if began.elapsed() > PATIENCE {
                bail!("{what}: not within {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    fn before(&self) -> anyhow::Result<Before> {
        Ok(Before {
            manager_cpu: self.meter().cpu().unwrap_or(0.0),
            server_cpu: self.server()?.cpu()?,
            mark: self.plane.audit_mark()?,
            received: self.relay.received(),
        })
    }

    /// Notes what everybody has used since then, and what the manager holds now.
    fn note_since(&mut self, phase: &str, before: &Before) -> anyhow::Result<()> {
        let (manager, server) = (self.meter(), self.server()?);
        self.note(phase, Measure::ManagerCpu, manager.cpu()? - before.manager_cpu);
        self.note(phase, Measure::ServerCpu, server.cpu()? - before.server_cpu);
        let requests = self.requests(before.mark)?;
        let writes = requests.iter().filter(|entry| entry.is_write()).count();
        self.note(phase, Measure::Writes, writes as f64);
        for measure in Measure::VERBS {
            let count = requests.iter().filter(|entry| measure.counts(&entry.verb)).count();
            self.note(phase, measure, count as f64);
        }
        self.note(phase, Measure::Received, self.relay.received() - before.received);
        self.note(phase, Measure::Resident, manager.resident()?);
        self.note(phase, Measure::Peak, manager.peak()?);
        Ok(())
    }

    fn note(&mut self, phase: &str, measure: Measure, value: f64) {
        let (load, whose) = (self.load.to_owned(), self.setting.manager.whose().to_owned());
        self.figures.push(Figure { load, phase: phase.to_owned(), measure, whose, value });
    }

    fn meter(&self) -> Meter {
        Meter(self.manager.pid())
    }

    fn server(&self) -> anyhow::Result<Meter> {
        Ok(Meter(self.plane.api_server_pid().context("no API server runs")?))
    }

    /// Begins to write down where time goes, if that is wanted.
    fn profile(&self, phase: &str) -> anyhow::Result<Option<Profile>> {
        let Some(folder) = &self.setting.profiles else { return Ok(None) };
        let name = format!("{} {phase} {}", self.load, self.setting.manager.whose());
        Profile::begin(folder, &name, self.manager.pid(), &self.client).map(Some)
    }

    fn spawn_another(&mut self) -> anyhow::Result<Process> {
        self.managers += 1;
        spawn(&self.plane, &self.relay, &self.setting, self.managers)
    }

    /// How many seconds of processor a manager may use in two seconds and still be at rest. Every node says each ten
    /// seconds that it is alive, which no waiting ends; a heartbeat, with the looks at the node between two of them, costs
    /// neither manager more than a third of a millisecond.
    fn at_rest(&self) -> f64 {
        const OF_A_NODE: f64 = 0.000_3 / 5.0;
        0.1 + self.nodes as f64 * OF_A_NODE
    }

    async fn rest(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(LOG_LAG).await;
        let at_rest = self.at_rest();
        settled(&mut self.manager, at_rest).await
    }

    /// What managers and their service accounts asked for since then, in order.
    fn requests(&self, since: AuditMark) -> anyhow::Result<Vec<AuditEntry>> {
        let mut entries = self.plane.audit_since(since)?;
        entries.retain(AuditEntry::is_from_manager);
        Ok(entries)
    }

    /// How many seconds after a moment a manager first asked for something of a sort, if it did.
    fn first(
        &self,
        since: AuditMark,
        from: Timestamp,
        is_it: impl Fn(&AuditEntry) -> bool,
    ) -> anyhow::Result<Option<f64>> {
        let entries = self.requests(since)?.into_iter().filter(is_it);
        let times = entries.filter_map(|entry| entry.received_at.parse::<Timestamp>().ok());
        let first = times.filter(|time| *time >= from).min();
        first.map(|first| Ok(Duration::try_from(first.duration_since(from))?.as_secs_f64())).transpose()
    }

    /// How many seconds after a moment a manager first wrote something other than its lease.
    async fn first_write(&self, since: AuditMark, from: Timestamp) -> anyhow::Result<f64> {
        let began = Instant::now();
        loop {
            let is_useful = |entry: &AuditEntry| entry.is_write() && !entry.is_routine();
            if let Some(first) = self.first(since, from, is_useful)? {
                return Ok(first);
            }
            if began.elapsed() > PATIENCE {
                bail!("the manager writes nothing");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Starts a manager with the flags of a kubeadm manifest and the controllers that both have.
fn spawn(plane: &ControlPlane, relay: &Relay, setting: &Setting, nth: usize) -> anyhow::Result<Process> {
    let mut flags = vec![controllers_flag(), format!("--master={}", relay.url())];
    if let Some(qps) = setting.qps {
        flags.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={qps}")]);
    }
    setting.manager.start(plane, &format!("manager-{nth}"), &flags)
}

/// Waits until a manager has used no more processor for two seconds than one at rest does, and for at most two minutes.
async fn settled(manager: &mut Process, at_rest: f64) -> anyhow::Result<()> {
    let meter = Meter(manager.pid());
    let mut before = f64::NEG_INFINITY;
    for _ in 0..60 {
        if !manager.is_running() {
            bail!("the manager has ended:\n{}", manager.log_tail());
        }
        let now = meter.cpu()?;
        if now - before < at_rest {
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
